"""What a client asks of the whole database: that versions stay readable while it reads, and that others may go."""

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

HOLD_NS: Final = 100 * MILLISECOND
"""So often a client tells what it holds."""


class Leases:
    """The versions that this client needs. The oldest is told to all servers, again and again while there is one; what
    is let go of before it was told costs nothing."""

    def __init__(self, context: ClientContext, servers: tuple[Address, ...], hold_ns: int) -> None:
        self._context, self._servers, self._hold_ns = context, servers, hold_ns
        self._held: dict[Hashable, int] = {}
        self._told: int | None = None
        self._tell = Timer(self._notify_all)

    def hold(self, holder: Hashable, version: int | None) -> None:
        """None: no more."""
        if version is not None:
            self._held[holder] = version
            if self._tell.at is None:
                self._context.set_timer(self._tell, self._context.now + self._hold_ns)
        else:
            self._held.pop(holder, None)

    def use(self, servers: tuple[Address, ...]) -> None:
        """These are the servers from now on."""
        self._servers = servers

    def _notify_all(self) -> None:
        oldest = min(self._held.values(), default=None)
        if oldest is not None or self._told is not None:
            for server in self._servers:
                self._context.send(server, Hold(oldest))
            self._context.set_timer(self._tell, self._context.now + self._hold_ns)
        self._told = oldest


class CompactionClient:
    """The compactions that this client has asked for: said again to a server as long as that answers, else to
    another."""

    def __init__(self, context: ClientContext, asking: QueryClient) -> None:
        self._context, self._asking = context, asking
        self._requests = PendingRequests(context)

    def compact(self, call: int, request: requests.Compact) -> None:
        """The version must be readable; then a server is asked until it is done."""
        context = self._context
        asked, number = 0, context.next_number()

        def expired() -> None:
            self._asking.drop(asked)
            self._requests.cancel(number)
            context.answer(call, Unavailable("the compaction does not go on, or nobody says so; do it again"))

        def readable(_: int, result: Any) -> None:
            if isinstance(result, VersionTrimmedReply):
                context.answer(call, VersionTrimmed(request.before, result.oldest))
            elif isinstance(result, FutureVersionReply):
                context.answer(call, FutureVersion(request.before, result.newest))
            elif context.is_open(call):
                self._ask(call, number, request)

        context.open(call, request.deadline, expired)
        asked = self._asking.ask(Version(), requests.SNAPSHOT, request.before, readable)

    def _ask(self, call: int, number: int, request: requests.Compact) -> None:
        context, asking = self._context, self._asking
        request_ttl_ns = None if request.deadline is None else request.deadline - context.now
        unanswered = copied = 0

        def where(_: int) -> Address:
            nonlocal unanswered
            if unanswered:
                asking.leave(asking.server)
            unanswered += 1
            return asking.server

        def answered(message: Compacting | Compacted, _: Address) -> int | None:
            nonlocal unanswered, copied
            if isinstance(message, Compacting):
                unanswered = 0
                if message.copied != copied and request_ttl_ns is not None:
                    copied = message.copied
                    context.extend_deadline(call, context.now + request_ttl_ns)
                if request.progress is not None:
                    request.progress(message.copied)
                return context.config.answer_timeout_ns
            result: Any = requests.Compacted(*message[1:5], *message[6:])
            if message.why:
                result = Unavailable(f"the compaction has failed: {message.why}")
            context.answer(call, result)
            return None

        self._requests.send(number, Compact(number, request.before), where, answered)

    def told(self, message: Compacting | Compacted, sender: Address) -> None:
        """What a server says of one."""
        self._requests.on_reply(message.request, message, sender)

    def lost(self, server: Address) -> None:
        """This server can not be reached any more."""
        self._requests.on_disconnected(server)
