"""How a mapping server notices that it differs from the others (PROTOCOL.md, DBS-14).

What a server holds is a function of the log, so two servers at one version hold the same. Now and then each sends its
peers a digest of what it has decided since the last comparison, and of a part of its map; after a restart that is all
that it remembers. A server that differs from at least half of all stops, since its answers may be wrong. It does not
wipe itself: only an operator can say which servers are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Compare, Compared
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation

ATTEMPTS: Final = 10
"""So often a peer is asked whose answer counts, one time-out after another."""


class Comparison:
    """The comparisons that a server begins, and its answers to those of others. Without peers there is nothing to do.

    A comparison is made at the version that the server had applied when the one before began, which the others have
    applied by now. `agreed`: comparisons that ended well.
    """

    def __init__(self, context: ClientContext, peers: tuple[Address, ...], replica: Replica) -> None:
        self._context, self._peers, self._replica = context, peers, replica
        self.agreed = 0
        self._version = self._through = 0
        self._key = b""
        self._request = 0
        self._same: set[Address] = set()
        self._different: set[Address] = set()

    def begin(self, then: Callable[[int], None]) -> None:
        """Compare with all peers. `then` takes the version up to which this server may say what it has decided: that of
        the comparison, or all that it has applied where no peer answers. If it has to stop, the alarm by which answers
        must have come raises ProtocolViolation."""
        floor = self._replica.coordinator.floor
        version, self._version = self._version, self._replica.applied
        after = max(self._through, floor - 1)
        if not self._peers:
            then(self._version)
        if not self._peers or self._request or version < max(floor, 1):
            return
        end = self._replica.end_of_excerpt(self._key)

        def ended(is_known: bool) -> None:
            if is_known:
                self._through, self._key = version, end
                self.agreed += 1
            then(version if is_known else self._replica.applied)

        self._ask((after, version, self._key, end), ended)

    def _ask(self, part: tuple[int, int, bytes, bytes], ended: Callable[[bool], None], attempt: int = 1) -> None:
        """`ended` takes whether any peer holds the same. While one differs and others are silent, which may decide who
        is wrong, all are asked again."""
        context, version = self._context, part[1]
        floor, digest = self._replica.coordinator.floor, self._replica.excerpt(*part)
        self._request = context.number()
        self._same, self._different = set(), set()
        for peer in self._peers:
            context.send(peer, Compare(self._request, floor, *part, digest))

        def judge() -> None:
            same, different, self._request = self._same, self._different, 0
            if different and len(same) + len(different) < len(self._peers) and attempt < ATTEMPTS:
                self._ask(part, ended, attempt + 1)
                return
            if len(different) > len(same):
                others = ", ".join(sorted(different))
                what = f"{others} hold something else at version {version}, and {len(same)} peers hold the same"
                advice = "remove the map of each server in the minority, or of all: the log has everything"
                raise ProtocolViolation(f"DBS-14: {what}. Stop the servers and {advice}")
            ended(bool(same))

        context.set(Timer(judge), context.now + context.config.answer_timeout_ns)

    def asked(self, message: Compare, sender: Address) -> None:
        """A peer compares. This server says nothing unless it has applied that version and has the same floor. If it
        differs it asks the others, too: it may be the one that is wrong."""
        request, floor, after, version, start, end, digest = message
        replica = self._replica
        if not 0 < version <= replica.applied or floor != replica.coordinator.floor or after < floor - 1:
            return
        is_same = replica.excerpt(after, version, start, end) == digest
        self._context.send(sender, Compared(request, is_same))
        if not is_same and not self._request:
            self._ask((after, version, start, end), lambda _: None)

    def told(self, message: Compared, sender: Address) -> None:
        """What a peer says."""
        if message.request == self._request:
            (self._same if message.is_same else self._different).add(sender)
