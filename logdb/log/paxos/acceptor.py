"""What one replica has promised, accepted and knows to be chosen, in memory and in its journal.

The log is the slots `base` + 1 to `last`, without a gap (PAX-5):

    snapshot --+               +-- commit: chosen up to here        +-- last
               v               v                                    v
      [ retained ][ chosen     ][ accepted for `promised` ][ accepted for older ballots ]
      ^ base                                               ^ matched

Values are accepted in the order of slots alone, so what a replica has accepted for a ballot is one number, `matched`,
and votes are counted by comparing numbers. A value behind `matched` stays until a leader replaces it: it may be chosen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from logdb.cores.effects import Create, Effect, Journal, Persist, ProtocolViolation, Trim
from logdb.log.contract import Record
from logdb.log.paxos import records
from logdb.log.paxos.interface import JOURNAL, Chosen, Outcome, Restore
from logdb.log.paxos.membership import Membership
from logdb.log.paxos.messages import NOBODY, Ballot, Entry


class Acceptor:
    """`out` takes the effects. `promised`: what is below that ballot is refused (PAX-2).

    `nonce`: what tells the disk of a replica that was no member yet; `membership`: None before it is one.
    """

    def __init__(self, journal: Journal | None, out: list[Outcome], batch_bytes: int) -> None:
        self._out, self._batch_bytes = out, batch_bytes
        self.promised = NOBODY
        self.nonce = 0
        self.membership: Membership | None = None
        self._joined_at = 0
        self.base = self.snapshot_slot = self.commit = 0
        self.snapshot = b""
        self.log: list[Entry] = []
        self.uncompacted_bytes = 0
        if journal is None:
            out.append(Create(JOURNAL, 1))
        else:
            self._replay(journal)
        self.matched = self._matched_in(self.promised)
        self._end = self._durable = 1 if journal is None else journal.end
        self._waiting: deque[tuple[int, Effect]] = deque()

    @property
    def last(self) -> int:
        return self.base + len(self.log)

    def value(self, slot: int) -> bytes:
        return self.log[slot - self.base - 1][1]

    def entries(self, first: int) -> list[Entry]:
        """What was accepted from slot `first` on, as much as fits into a message but one at least."""
        return self.log[first - self.base - 1 : self._batch_end(first) - self.base - 1]

    def values(self, first: int) -> list[bytes]:
        return [value for _, value in self.entries(first)]

    def _batch_end(self, first: int) -> int:
        slot, size = first, 0
        while (slot <= self.last and (size := size + len(self.value(slot))) <= self._batch_bytes) or slot == first:
            slot += 1
        return slot

    # ---- durability: nothing is answered before all that was written is on the medium (PAX-1)

    def _write(self, written: Sequence[Record]) -> None:
        self._out.append(Persist(JOURNAL, self._end, written))
        self._end += len(written)

    def when_durable(self, effect: Effect) -> list[Effect]:
        """The effect, if it may be performed now. If not, `persisted` returns it in time."""
        if self._durable == self._end:
            return [effect]
        self._waiting.append((self._end, effect))
        return []

    def persisted(self, end: int) -> list[Effect]:
        """What may be performed now that the records before `end` are on the medium."""
        self._durable = max(self._durable, end)
        ready = []
        while self._waiting and self._waiting[0][0] <= end:
            ready.append(self._waiting.popleft()[1])
        return ready

    # ---- who this is

    def mint(self, nonce: int) -> None:
        """This disk is a new one."""
        self.nonce = nonce
        self._write([records.fresh(nonce)])

    def enrol(self, membership: Membership) -> None:
        """This is who this replica is from now on, and who the others are."""
        joins = membership.joined and not self.has_joined
        self.membership = membership
        self._write([records.member(membership)])
        if joins:
            self._joined_at = self._end

    @property
    def has_joined(self) -> bool:
        """Whether this replica is a member that nothing is missing of (PAX-15)."""
        return self.membership is not None and self.membership.joined

    @property
    def has_joined_durably(self) -> bool:
        """Whether a crash does not change that either."""
        return self.has_joined and self._durable >= self._joined_at

    # ---- promising and accepting

    def promise(self, ballot: Ballot) -> None:
        """Refuse everything below `ballot` from now on."""
        assert ballot > self.promised, "PAX-2"
        self.promised = ballot
        self.matched = self._matched_in(ballot)
        self._write([records.promise(ballot)])

    def _matched_in(self, ballot: Ballot) -> int:
        slot = self.commit
        while slot < self.last and self.log[slot - self.base][0] == ballot:
            slot += 1
        return slot

    def accept(self, first: int, values: Sequence[bytes], commit: int) -> bool:
        """Accept for the ballot that is promised. Returns whether that follows on what is here; if not, nothing is."""
        if first > self.matched + 1:
            return False
        known = self.matched + 1 - first
        self._check_agreement(first, values[:known])
        fresh = values[known:]
        if fresh:
            ballot, at, slot = self.promised, self.matched - self.base, self.matched + 1
            self.log[at : at + len(fresh)] = [(ballot, value) for value in fresh]
            self.matched += len(fresh)
        self.choose(min(commit, self.matched))
        if fresh:
            self._write([records.accepted(ballot, self.commit, slot, fresh)])
        return True

    def _check_agreement(self, first: int, values: Sequence[bytes]) -> None:
        for slot, value in enumerate(values, first):
            if self.base < slot and self.value(slot) != value:
                raise ProtocolViolation(f"PAX-3: two values for slot {slot}")

    def choose(self, commit: int) -> None:
        """The slots up to `commit` are known to be chosen."""
        for slot in range(self.commit + 1, commit + 1):
            value = self.value(slot)
            self.uncompacted_bytes += len(value)
            self._out.append(Chosen(slot, value))
        self.commit = max(self.commit, commit)

    # ---- snapshots

    def compact(self, slot: int, snapshot: bytes, retain_bytes: int) -> None:
        """Let go of the slots up to `slot`, but for the last `retain_bytes` of them."""
        if not self.snapshot_slot < slot <= self.commit:
            raise ProtocolViolation(f"PAX-11: a snapshot of slot {slot}, {self.snapshot_slot} to {self.commit} are due")
        self.uncompacted_bytes -= sum(len(self.value(at)) for at in range(self.snapshot_slot + 1, slot + 1))
        keep = slot
        while keep > self.base and (retain_bytes := retain_bytes - len(self.value(keep))) >= 0:
            keep -= 1
        self._cut(keep)
        self._store_snapshot(slot, snapshot)

    def install(self, slot: int, snapshot: bytes) -> None:
        """Begin anew with another replica's snapshot. What was accepted behind it stays: it may be a vote."""
        assert slot > self.commit, "PAX-11"
        self._cut(slot)
        self.commit, self.uncompacted_bytes = slot, 0
        self.matched = max(slot, self.matched)
        if self.matched == slot:
            self.matched = self._matched_in(self.promised)
        self._out.append(Restore(slot, snapshot))
        self._store_snapshot(slot, snapshot)

    def _cut(self, base: int) -> None:
        self.log = self.log[base - self.base :]
        self.base = base

    def _store_snapshot(self, slot: int, snapshot: bytes) -> None:
        """Write down all that is to be known, and let the journal's older records go when that is durable (PAX-12)."""
        self.snapshot_slot, self.snapshot = slot, snapshot
        before = self._end
        assert self.membership is not None, "PAX-14"
        standing = records.promise(self.promised), records.member(self.membership)
        self._write([records.snapshot(slot, snapshot), *standing, *self._retold(slot + 1)])
        self._waiting.append((self._end, Trim(JOURNAL, before)))

    def _retold(self, first: int) -> list[Record]:
        told = []
        while first <= self.last:
            ballot, entries = next(groupby(self.entries(first), key=itemgetter(0)))
            values = [value for _, value in entries]
            told.append(records.accepted(ballot, min(self.commit, first + len(values) - 1), first, values))
            first += len(values)
        return told

    # ---- starting

    def _replay(self, journal: Journal) -> None:
        accepted: dict[int, Entry] = {}
        for _, _, tag, payload in journal.records:
            if tag == records.PROMISE:
                self.promised = max(self.promised, records.read_promise(payload))
            elif tag == records.ACCEPTED:
                ballot, commit, first, values = records.read_accepted(payload)
                self.promised, self.commit = max(self.promised, ballot), max(self.commit, commit)
                for slot, value in enumerate(values, first):
                    accepted[slot] = max((ballot, value), accepted.get(slot, (NOBODY, b"")), key=itemgetter(0))
            elif tag == records.SNAPSHOT:
                self.snapshot_slot, self.snapshot = records.read_snapshot(payload)
            elif tag == records.FRESH:
                self.nonce = records.read_fresh(payload)
            elif tag == records.MEMBER:
                self.membership = records.read_member(payload)
            else:
                raise ProtocolViolation(f"PAX-12: the journal holds a record with the tag {tag}")
        self.base = self.snapshot_slot
        while self.last + 1 in accepted:
            self.log.append(accepted[self.last + 1])
        self.commit = max(self.commit, self.snapshot_slot)
        if self.commit > self.last or max(accepted, default=0) > self.last:
            raise ProtocolViolation(f"PAX-12: the journal has a gap after slot {self.last}")

    def restore(self) -> None:
        """Tell the embedding core what is known to be chosen."""
        if self.snapshot_slot:
            self._out.append(Restore(self.snapshot_slot, self.snapshot))
        commit, self.commit = self.commit, self.snapshot_slot
        self.choose(commit)

    def check_invariants(self) -> None:
        assert self.base <= self.snapshot_slot <= self.commit <= self.matched <= self.last, "PAX-5, PAX-7"
        assert not self.log or self.log[-1][0] <= self.promised, "PAX-2"
        assert self._durable <= self._end, "PAX-1"
