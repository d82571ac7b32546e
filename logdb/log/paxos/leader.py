"""Leading: what the replica with a quorum of promises does, until it hears of a higher ballot.

It sends each other replica the slots in their order, a `window` of messages ahead of the answers. What does not arrive
is sent again when the replica says where it stands, so following, catching up and sending again are one thing. Who is
behind the beginning of the log gets the snapshot, a piece at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from logdb.cores.effects import Address, ProtocolViolation, Send
from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.interface import Config, Confirmed, Elected, Outcome
from logdb.log.paxos.messages import Accept, Accepted, Ballot, Install, Installed, Probe, Probed


@dataclass(slots=True)
class Peer:
    """Another replica, which has accepted up to `matched`. `next`: the first slot that was not yet sent to it.

    `sent`: the last slots of messages that it has not answered. `heard_at`: when it last answered. `probed`: the last
    probe that it answered. `snapshot`: the one on its way (slot, bytes), of which the piece at `offset` was sent;
    `stuck`: nothing was heard of that piece since the last heartbeat.
    """

    address: Address
    next: int
    heard_at: int
    matched: int = 0
    sent: deque[int] = field(default_factory=deque)
    probed: int = 0
    snapshot: tuple[int, bytes] | None = None
    offset: int = 0
    stuck: bool = False


class Leader:
    """Leads in `ballot`, from slot `first` on; `begin` makes it start. `established`: PAX-9."""

    def __init__(
        self,
        me: Address,
        others: Sequence[Address],
        ballot: Ballot,
        acceptor: Acceptor,
        out: list[Outcome],
        config: Config,
    ) -> None:
        self._me, self.ballot, self._acceptor, self._out, self._config = me, ballot, acceptor, out, config
        self._first = acceptor.commit + 1
        self._peers = {address: Peer(address, self._first, 0) for address in others}
        self._quorum = (len(others) + 1) // 2 + 1
        self._own = acceptor.commit
        self._recovered_to = acceptor.commit
        self.established = False
        self._probe = self._confirmed = 0
        self._asked: deque[tuple[int, int, int]] = deque()

    # ---- values

    def begin(self, recovered: Sequence[bytes], now: int) -> None:
        """Have the values chosen that were found at a quorum: they may have been already (PAX-4)."""
        self._recovered_to += len(recovered)
        for peer in self._peers.values():
            peer.heard_at = now
        if recovered:
            self._accept(self._first, recovered)
        else:
            self._establish()
        self._announce()

    def propose(self, value: bytes) -> None:
        """Have `value` chosen for the next slot."""
        self._accept(self._acceptor.last + 1, (value,))

    def _accept(self, first: int, values: Sequence[bytes]) -> None:
        acceptor = self._acceptor
        assert acceptor.matched + 1 == first, "PAX-4"
        acceptor.accept(first, values, acceptor.commit)
        for peer in self._peers.values():
            self._fill(peer)
        waits = acceptor.when_durable(Send(self._me, Accepted(self.ballot, acceptor.matched, False)))
        assert not waits, "PAX-6"

    def _fill(self, peer: Peer) -> None:
        """Send what there is and what the window lets through."""
        if peer.next <= self._acceptor.base:
            if peer.snapshot is None:
                peer.snapshot = self._acceptor.snapshot_slot, self._acceptor.snapshot
                self._send_chunk(peer, 0)
            return
        while peer.next <= self._acceptor.last and len(peer.sent) < self._config.window:
            values = self._acceptor.values(peer.next)
            self._out.append(Send(peer.address, Accept(self.ballot, peer.next, values, self._acceptor.commit)))
            peer.next += len(values)
            peer.sent.append(peer.next - 1)

    # ---- votes

    def accepted(self, sender: Address, message: Accepted, now: int) -> None:
        """A replica says where it stands."""
        matched = message.matched
        if matched > self._acceptor.last:
            raise ProtocolViolation(f"PAX-5: {sender} has slot {matched}, which I have not proposed")
        if sender == self._me:
            self._own = matched
            self._count()
            return
        peer = self._peers[sender]
        peer.heard_at = now
        if message.again:
            peer.next = matched + 1
            peer.sent.clear()
        peer.next = max(peer.next, matched + 1)
        while peer.sent and peer.sent[0] <= matched:
            peer.sent.popleft()
        if peer.snapshot is not None and matched >= peer.snapshot[0]:
            peer.snapshot = None
        if matched > peer.matched:
            peer.matched = matched
            self._count()
        self._fill(peer)

    def _count(self) -> None:
        """What a quorum has accepted is chosen (PAX-6)."""
        chosen = sorted((self._own, *(peer.matched for peer in self._peers.values())))[-self._quorum]
        if chosen > self._acceptor.commit:
            self._acceptor.choose(chosen)
            if not self.established:
                self._establish()

    def _establish(self) -> None:
        if self._acceptor.commit >= self._recovered_to:
            self.established = True
            self._out.append(Elected())

    def forget(self, address: Address) -> None:
        """It has lost its disk: nothing counts that it has said before (PAX-16)."""
        self._peers[address] = Peer(address, self._acceptor.last + 1, self._peers[address].heard_at)

    # ---- heartbeats

    def has_quorum(self, now: int) -> bool:
        """Whether so many replicas have answered lately that this one may think that it still leads."""
        since = now - 2 * self._config.election_ns
        return 1 + sum(peer.heard_at >= since for peer in self._peers.values()) >= self._quorum

    def heartbeat(self) -> None:
        """Send again what may be lost, and say to all that there is a leader."""
        for peer in self._peers.values():
            if peer.snapshot is not None:
                if peer.stuck:
                    self._send_chunk(peer, peer.offset)
                peer.stuck = True
        if self._confirmed < self._probe:
            self._send_probe()
        self._announce()

    def _announce(self) -> None:
        for peer in self._peers.values():
            self._out.append(Send(peer.address, Accept(self.ballot, peer.next, (), self._acceptor.commit)))

    # ---- snapshots

    def installed(self, sender: Address, message: Installed, now: int) -> None:
        """A replica has got a piece of the snapshot. What says nothing new is a copy of what was answered before."""
        peer = self._peers[sender]
        peer.heard_at = now
        if peer.snapshot is not None and peer.snapshot[0] == message.slot and message.offset != peer.offset:
            self._send_chunk(peer, message.offset)

    def _send_chunk(self, peer: Peer, offset: int) -> None:
        assert peer.snapshot is not None
        slot, snapshot = peer.snapshot
        chunk = snapshot[offset : offset + self._config.batch_bytes]
        self._out.append(Send(peer.address, Install(self.ballot, slot, len(snapshot), offset, chunk)))
        peer.offset, peer.stuck = offset, False

    # ---- reading

    def read_index(self, token: int) -> None:
        """Confirm `token` when a probe that begins after this has been answered by a quorum (PAX-10)."""
        if not self._peers:
            self._out.append(Confirmed(token, self._acceptor.commit))
            return
        self._asked.append((self._probe + 1, token, self._acceptor.commit))
        if self._confirmed == self._probe:
            self._begin_probe()

    def _begin_probe(self) -> None:
        self._probe += 1
        self._send_probe()

    def _send_probe(self) -> None:
        for peer in self._peers.values():
            if peer.probed < self._probe:
                self._out.append(Send(peer.address, Probe(self.ballot, self._probe)))

    def probed(self, sender: Address, message: Probed, now: int) -> None:
        """A replica knows of no higher ballot."""
        peer = self._peers[sender]
        peer.heard_at = now
        peer.probed = max(peer.probed, message.number)
        self._confirmed = sorted((self._probe, *(peer.probed for peer in self._peers.values())))[-self._quorum]
        while self._asked and self._asked[0][0] <= self._confirmed:
            _, token, slot = self._asked.popleft()
            self._out.append(Confirmed(token, slot))
        if self._asked and self._confirmed == self._probe:
            self._begin_probe()

    def check_invariants(self) -> None:
        acceptor = self._acceptor
        assert acceptor.matched == acceptor.last, "PAX-4"
        assert self._own <= acceptor.matched, "PAX-6"
        assert self.established <= (acceptor.commit >= self._recovered_to), "PAX-9"
        assert self._confirmed <= self._probe, "PAX-10"
        assert all(peer.next <= acceptor.last + 1 for peer in self._peers.values()), "PAX-5"
