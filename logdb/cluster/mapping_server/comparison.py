"""How a mapping server notices that its state differs from that of the others (PROTOCOL.md, DBS-14).

The state is a function of the log, so two servers at one version have the same state. From time to time each server
sends its peers a digest of its decisions since the last comparison (after a restart: of all that it remembers) and of a
part of its map. A server that differs from at least half of all stops, since its answers may be wrong. It does not wipe
itself: only an operator can say which servers are right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Compare, Compared
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, ProtocolViolation

MAX_ATTEMPTS: Final = 10
"""Maximum number of comparisons of one part while some peers differ and others have not replied."""


class Comparison:
    """Begins comparisons with `peers`, and replies to theirs. `agreed`: the comparisons in which a peer agreed.

    A comparison is made at the version that this server had applied when the comparison before began: the peers have
    applied it by now.
    """

    def __init__(self, context: ClientContext, peers: tuple[Address, ...], replica: Replica) -> None:
        self._context, self._peers, self._replica = context, peers, replica
        self.agreed = 0
        self._version = self._through = 0
        self._key = b""
        self._request = 0
        self._same: set[Address] = set()
        self._different: set[Address] = set()

    def begin(self, on_confirmed: Callable[[int], None]) -> None:
        """Compare with all peers. `on_confirmed` takes the version up to which this server may write its decisions to
        the log: that of the comparison, or all that it has applied if no peer replies. If the server has to stop, the
        timer that ends the comparison raises ProtocolViolation."""
        floor = self._replica.coordinator.floor
        version, self._version = self._version, self._replica.applied
        after = max(self._through, floor - 1)
        if not self._peers:
            on_confirmed(self._version)
        if not self._peers or self._request or version < max(floor, 1):
            return
        end = self._replica.end_of_excerpt(self._key)

        def on_end(is_confirmed: bool) -> None:
            if is_confirmed:
                self._through, self._key = version, end
                self.agreed += 1
            on_confirmed(version if is_confirmed else self._replica.applied)

        self._compare((after, version, self._key, end), on_end)

    def _compare(self, part: tuple[int, int, bytes, bytes], on_end: Callable[[bool], None], attempt: int = 1) -> None:
        """Send a part of the state to all peers; `on_end` takes whether any peer has the same. While a peer differs and
        others, whose replies may decide which server is wrong, have not replied, the comparison is repeated."""
        context, version = self._context, part[1]
        floor, digest = self._replica.coordinator.floor, self._replica.excerpt(*part)
        self._request = context.next_number()
        self._same, self._different = set(), set()
        for peer in self._peers:
            context.send(peer, Compare(self._request, floor, *part, digest))

        def judge() -> None:
            same, different, self._request = self._same, self._different, 0
            if different and len(same) + len(different) < len(self._peers) and attempt < MAX_ATTEMPTS:
                self._compare(part, on_end, attempt + 1)
                return
            if len(different) > len(same):
                others = ", ".join(sorted(different))
                what = f"{others} hold something else at version {version}, and {len(same)} peers hold the same"
                advice = "remove the map of each server in the minority, or of all: the log has everything"
                raise ProtocolViolation(f"DBS-14: {what}. Stop the servers and {advice}")
            on_end(bool(same))

        context.set_timer(Timer(judge), context.now + context.config.answer_timeout_ns)

    def on_compare(self, message: Compare, sender: Address) -> None:
        """Reply to a peer, if this server has applied the version and has the same floor. If the two differ this server
        begins a comparison of the same part: it may be the one that is wrong."""
        request, floor, after, version, start, end, digest = message
        replica = self._replica
        if not 0 < version <= replica.applied or floor != replica.coordinator.floor or after < floor - 1:
            return
        is_same = replica.excerpt(after, version, start, end) == digest
        self._context.send(sender, Compared(request, is_same))
        if not is_same and not self._request:
            self._compare((after, version, start, end), lambda _: None)

    def on_compared(self, message: Compared, sender: Address) -> None:
        """The reply of a peer."""
        if message.request == self._request:
            (self._same if message.is_same else self._different).add(sender)
