"""A client's leases on versions that it reads at, and the compactions that it requests."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from logdb.cluster.client import requests
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.messages import (
    Compact,
    Compacted,
    Compacting,
    FutureVersionReply,
    Hold,
    Version,
    VersionTrimmedReply,
)
from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import MILLISECOND, Address
from logdb.errors import FutureVersion, Unavailable, VersionTrimmed

RENEWAL_NS: Final = 100 * MILLISECOND
"""How often a client renews its lease."""


class Leases:
    """The versions that this client reads at, by holder.

    While there are any, the oldest one is leased at all mapping servers, every `renew_ns`. A version that is released
    before the first renewal costs no message.
    """

    def __init__(self, context: ClientContext, servers: tuple[Address, ...], renew_ns: int) -> None:
        self._context, self._servers, self._renew_ns = context, servers, renew_ns
        self.versions: dict[Hashable, int] = {}
        self._leased: int | None = None
        self._renewal = Timer(self._renew)

    def set(self, holder: Hashable, version: int | None) -> None:
        """Lease `version` for `holder`; None releases it."""
        if version is not None:
            self.versions[holder] = version
            if self._renewal.at is None:
                self._context.set_timer(self._renewal, self._context.now + self._renew_ns)
        else:
            self.versions.pop(holder, None)

    def use(self, servers: tuple[Address, ...]) -> None:
        """Use these servers from now on."""
        self._servers = servers

    def _renew(self) -> None:
        oldest = min(self.versions.values(), default=None)
        if oldest is not None or self._leased is not None:
            for server in self._servers:
                self._context.send(server, Hold(oldest))
            self._context.set_timer(self._renewal, self._context.now + self._renew_ns)
        self._leased = oldest

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self.versions or self._renewal.at is not None, "versions are leased, and the lease is not renewed"


class CompactionClient:
    """The compactions that this client has requested: each request is repeated to a server while that replies, and
    sent to the next server when it does not."""

    def __init__(self, context: ClientContext, queries: QueryClient) -> None:
        self._context, self._queries = context, queries
        self._requests = PendingRequests(context)

    def compact(self, call: int, request: requests.Compact) -> None:
        """Check that the version is readable, then request the compaction until it is done."""
        context = self._context
        query, number = 0, context.next_number()

        def expired() -> None:
            self._queries.drop(query)
            self._requests.cancel(number)
            context.answer(call, Unavailable("no server reports progress of the compaction; do it again"))

        def on_readable(_: int, result: Any) -> None:
            if isinstance(result, VersionTrimmedReply):
                context.answer(call, VersionTrimmed(request.before, result.oldest))
            elif isinstance(result, FutureVersionReply):
                context.answer(call, FutureVersion(request.before, result.newest))
            elif context.is_open(call):
                self._request(call, number, request)

        context.open(call, request.deadline, expired)
        query = self._queries.ask(Version(), requests.SNAPSHOT, request.before, on_readable)

    def _request(self, call: int, number: int, request: requests.Compact) -> None:
        context, queries = self._context, self._queries
        ttl_ns = None if request.deadline is None else request.deadline - context.now
        unanswered = copied = 0

        def where(_: int) -> Address:
            nonlocal unanswered
            if unanswered:
                queries.leave(queries.server)
            unanswered += 1
            return queries.server

        def on_reply(message: Compacting | Compacted, _: Address) -> int | None:
            nonlocal unanswered, copied
            if isinstance(message, Compacting):
                unanswered = 0
                if message.copied != copied and ttl_ns is not None:
                    copied = message.copied
                    context.extend_deadline(call, context.now + ttl_ns)
                if request.progress is not None:
                    request.progress(message.copied)
                return context.config.answer_timeout_ns
            result: Any = requests.Compacted(*message[1:5], *message[6:])
            if message.why:
                result = Unavailable(f"the compaction has failed: {message.why}")
            context.answer(call, result)
            return None

        self._requests.send(number, Compact(number, request.before), where, on_reply)

    def on_reply(self, message: Compacting | Compacted, sender: Address) -> None:
        """A server reports progress or the result."""
        self._requests.on_reply(message.request, message, sender)

    def lost(self, server: Address) -> None:
        """`server` is unreachable."""
        self._requests.on_disconnected(server)
