"""The leader: the replica with the promises of a quorum, until it learns of a higher ballot.

It sends the slots in order to every other replica, with up to `window` unanswered messages. Each reply contains the
position of the replica, from which the leader continues; so replication, catching up and retransmission are the same
mechanism. A replica whose position is before the beginning of the log gets the snapshot in chunks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from logdb.cores.effects import Address, ProtocolViolation, Send
from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.interface import Config, Confirmed, Elected, Outcome
from logdb.log.paxos.messages import (
    Accept,
    Accepted,
    Ballot,
    Install,
    Installed,
    Learn,
    Probe,
    Probed,
    ReadIndex,
    ReadIndexed,
)

QUORUM_OF_THREE: Final = 2


@dataclass(slots=True)
class Peer:
    """Another replica, which has accepted up to slot `matched`. `next`: the next slot to send.

    `sent`: the last slots of its unanswered messages. `last_reply_at`: the time of its last reply. `awaits_commit`: it
    needs a `Learn`; `informed`: the slot up to which messages of this leader have named its slots as chosen.
    `probed`: the last probe that it answered. `snapshot`: (slot, bytes) of the snapshot that is being sent, of which
    the chunk at `offset` was sent last; `is_stalled`: there was no reply to that chunk since the last heartbeat.
    """

    address: Address
    next: int
    last_reply_at: int
    matched: int = 0
    awaits_commit: bool = False
    informed: int = 0
    sent: deque[int] = field(default_factory=deque)
    probed: int = 0
    snapshot: tuple[int, bytes] | None = None
    offset: int = 0
    is_stalled: bool = False


class Leader:
    """The leader of `ballot`. `established`: all recovered values are chosen (PAX-9)."""

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
        self._own_matched = acceptor.commit
        self._recovered_to = acceptor.commit
        self.established = False
        self._probe = self._confirmed = 0
        self._pending_reads: deque[tuple[int, Confirmed | Send]] = deque()

    # ---- values

    def begin(self, recovered: Sequence[bytes], now: int) -> None:
        """Start leading: propose the values recovered from a quorum, which may already be chosen (PAX-4)."""
        self._recovered_to += len(recovered)
        for peer in self._peers.values():
            peer.last_reply_at = now
        if recovered:
            self._accept(self._first, recovered)
        else:
            self._establish()
        self._announce()

    def propose(self, value: bytes) -> None:
        """Propose `value` for the next slot."""
        self._accept(self._acceptor.last + 1, (value,))

    def _accept(self, first: int, values: Sequence[bytes]) -> None:
        acceptor = self._acceptor
        assert acceptor.matched + 1 == first, "PAX-4"
        acceptor.accept(first, values, acceptor.commit)
        for peer in self._peers.values():
            self._send_missing(peer)
        ready = acceptor.when_durable(Send(self._me, Accepted(self.ballot, acceptor.matched, False)))
        assert not ready, "PAX-6"

    def _send_missing(self, peer: Peer) -> None:
        """Send the next values, as far as the window allows."""
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
            self._note_informed(peer)

    def _note_informed(self, peer: Peer) -> None:
        """A message with the commit was sent to this replica, after all values before `peer.next`."""
        peer.informed = min(self._acceptor.commit, peer.next - 1)

    def send_commits(self) -> None:
        """Send a `Learn` to each replica that waits for slots which it has accepted and which are chosen."""
        commit = self._acceptor.commit
        for peer in self._peers.values():
            if peer.awaits_commit and peer.informed < min(commit, peer.matched):
                self._out.append(Send(peer.address, Learn(self.ballot, commit)))
                self._note_informed(peer)

    # ---- votes

    def on_accepted(self, sender: Address, message: Accepted, now: int) -> None:
        """Handle the position of a replica."""
        matched = message.matched
        if matched > self._acceptor.last:
            raise ProtocolViolation(f"PAX-5: {sender} has accepted slot {matched}, which was not proposed")
        if sender == self._me:
            self._own_matched = matched
            self._count_votes()
            return
        peer = self._peers[sender]
        peer.last_reply_at, peer.awaits_commit = now, message.awaits_commit
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
            self._count_votes()
        self._send_missing(peer)

    def _count_votes(self) -> None:
        """Mark the values that a quorum has accepted as chosen (PAX-6)."""
        chosen = sorted((self._own_matched, *(peer.matched for peer in self._peers.values())))[-self._quorum]
        if chosen > self._acceptor.commit:
            self._acceptor.choose(chosen)
            if not self.established:
                self._establish()

    def _establish(self) -> None:
        if self._acceptor.commit >= self._recovered_to:
            self.established = True
            self._out.append(Elected())

    def reset_peer(self, address: Address) -> None:
        """Discard the votes and replies of a replica that has lost its disk (PAX-16)."""
        self._peers[address] = Peer(address, self._acceptor.last + 1, self._peers[address].last_reply_at)

    # ---- heartbeats

    def has_quorum(self, now: int) -> bool:
        """Whether a quorum has replied within twice the election timeout."""
        since = now - 2 * self._config.election_ns
        return 1 + sum(peer.last_reply_at >= since for peer in self._peers.values()) >= self._quorum

    def heartbeat(self) -> None:
        """Send heartbeats, and retransmit a stalled chunk and the current probe."""
        for peer in self._peers.values():
            if peer.snapshot is not None:
                if peer.is_stalled:
                    self._send_chunk(peer, peer.offset)
                peer.is_stalled = True
        if self._confirmed < self._probe:
            self._send_probe(tuple(self._peers.values()))
        self._announce()

    def _announce(self) -> None:
        for peer in self._peers.values():
            self._out.append(Send(peer.address, Accept(self.ballot, peer.next, (), self._acceptor.commit)))
            self._note_informed(peer)

    # ---- snapshots

    def on_installed(self, sender: Address, message: Installed, now: int) -> None:
        """A replica has received a chunk of the snapshot: send the next one. Duplicates are ignored."""
        peer = self._peers[sender]
        peer.last_reply_at = now
        if peer.snapshot is not None and peer.snapshot[0] == message.slot and message.offset != peer.offset:
            self._send_chunk(peer, message.offset)

    def _send_chunk(self, peer: Peer, offset: int) -> None:
        assert peer.snapshot is not None
        slot, snapshot = peer.snapshot
        chunk = snapshot[offset : offset + self._config.batch_bytes]
        self._out.append(Send(peer.address, Install(self.ballot, slot, len(snapshot), offset, chunk)))
        peer.offset, peer.is_stalled = offset, False

    # ---- reading

    def read_index(self, token: int) -> None:
        """Confirm `token` once a quorum has answered a probe that starts after this call (PAX-10)."""
        if self._peers:
            self._confirm(Confirmed(token, self._acceptor.commit))
        else:
            self._out.append(Confirmed(token, self._acceptor.commit))

    def on_read_index(self, sender: Address, message: ReadIndex, now: int) -> None:
        """Answer a follower. It has promised no higher ballot since its question began: of three replicas, this one and
        that one are a quorum, and no probe is needed (PAX-10)."""
        self._peers[sender].last_reply_at = now
        answer = Send(sender, ReadIndexed(self.ballot, message.number, self._acceptor.commit))
        if self._quorum == QUORUM_OF_THREE:
            self._out.append(answer)
        else:
            self._confirm(answer)

    def _confirm(self, confirmation: Confirmed | Send) -> None:
        """Emit the confirmation after a probe that starts now or later."""
        self._pending_reads.append((self._probe + 1, confirmation))
        if self._confirmed == self._probe:
            self._begin_probe()

    def _begin_probe(self) -> None:
        """Send a probe to as many replicas as a quorum needs: those that have answered the last one, if there are
        enough. The next heartbeat sends it to all others as well."""
        self._probe += 1
        ready = sorted(self._peers.values(), key=lambda peer: (-peer.probed, -peer.last_reply_at))
        self._send_probe(ready[: self._quorum - 1])

    def _send_probe(self, peers: Sequence[Peer]) -> None:
        for peer in peers:
            if peer.probed < self._probe:
                self._out.append(Send(peer.address, Probe(self.ballot, self._probe)))

    def on_probed(self, sender: Address, message: Probed, now: int) -> None:
        """A replica has confirmed that it has promised no higher ballot."""
        peer = self._peers[sender]
        peer.last_reply_at = now
        peer.probed = max(peer.probed, message.number)
        self._confirmed = sorted((self._probe, *(peer.probed for peer in self._peers.values())))[-self._quorum]
        while self._pending_reads and self._pending_reads[0][0] <= self._confirmed:
            self._out.append(self._pending_reads.popleft()[1])
        if self._pending_reads and self._confirmed == self._probe:
            self._begin_probe()

    def check_invariants(self) -> None:
        acceptor = self._acceptor
        assert acceptor.matched == acceptor.last, "PAX-4"
        assert self._own_matched <= acceptor.matched, "PAX-6"
        assert self.established <= (acceptor.commit >= self._recovered_to), "PAX-9"
        assert self._confirmed <= self._probe, "PAX-10"
        assert all(peer.next <= acceptor.last + 1 for peer in self._peers.values()), "PAX-5"
