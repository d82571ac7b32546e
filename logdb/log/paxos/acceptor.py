"""The state of one replica: its promise, its accepted values and the chosen ones, in memory and in its journal.

The log consists of the slots `base` + 1 to `last`, without gaps (PAX-5):

    snapshot --+               +-- commit: chosen up to here        +-- last
               v               v                                    v
      [ retained ][ chosen     ][ accepted for `promised` ][ accepted for older ballots ]
      ^ base                                               ^ matched

Values are accepted only in the order of slots. Therefore a single number, `matched`, describes the accepted values of a
ballot, and counting votes is comparing numbers. A value after `matched` is kept until a leader replaces it, because it
may be chosen.
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
from logdb.log.paxos.messages import NO_BALLOT, Ballot, Entry


class Acceptor:
    """Appends its effects to `out`. `promised`: the replica rejects lower ballots (PAX-2).

    `nonce`: identifies the disk of a replica that has not been a member yet. `membership`: None until it is a member.
    """

    def __init__(self, journal: Journal | None, out: list[Outcome], batch_bytes: int) -> None:
        self._out, self._batch_bytes = out, batch_bytes
        self.promised = NO_BALLOT
        self.nonce = 0
        self.membership: Membership | None = None
        self._joined_end = 0
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
        self._pending_effects: deque[tuple[int, Effect]] = deque()
        self._seen_unsynced: deque[tuple[int, int]] = deque()
        self._unsynced_values: deque[tuple[int, int]] = deque()
        self.unsynced_bytes = 0

    @property
    def last(self) -> int:
        return self.base + len(self.log)

    def value(self, slot: int) -> bytes:
        return self.log[slot - self.base - 1][1]

    def entries(self, first: int) -> list[Entry]:
        """The accepted values from slot `first` on: as many as fit into a message, and at least one."""
        return self.log[first - self.base - 1 : self._batch_end(first) - self.base - 1]

    def values(self, first: int) -> list[bytes]:
        return [value for _, value in self.entries(first)]

    def _batch_end(self, first: int) -> int:
        slot, size = first, 0
        while (slot <= self.last and (size := size + len(self.value(slot))) <= self._batch_bytes) or slot == first:
            slot += 1
        return slot

    # ---- durability: a reply is sent only after all previous writes are on the medium (PAX-1)

    def _write(self, written: Sequence[Record]) -> None:
        self._out.append(Persist(JOURNAL, self._end, written))
        self._end += len(written)

    @property
    def is_durable(self) -> bool:
        """Whether everything written is on the medium."""
        return self._durable == self._end

    def lags(self, now: int, limit_ns: int) -> bool:
        """Whether a write that was seen by a call at least `limit_ns` ago is not on the medium yet."""
        seen = self._seen_unsynced
        while seen and seen[0][1] <= self._durable:
            seen.popleft()
        if not self.is_durable and (not seen or seen[-1][1] < self._end):
            seen.append((now, self._end))
        return bool(seen) and now - seen[0][0] >= limit_ns

    def when_durable(self, effect: Effect) -> list[Effect]:
        """Return the effect if all writes are durable; otherwise `persisted` returns it later."""
        if self.is_durable:
            return [effect]
        self._pending_effects.append((self._end, effect))
        return []

    def persisted(self, end: int) -> list[Effect]:
        """Return the effects that were waiting for the records before `end`, which are now durable."""
        self._durable = max(self._durable, end)
        while self._unsynced_values and self._unsynced_values[0][0] <= self._durable:
            self.unsynced_bytes -= self._unsynced_values.popleft()[1]
        ready = []
        while self._pending_effects and self._pending_effects[0][0] <= end:
            ready.append(self._pending_effects.popleft()[1])
        return ready

    # ---- membership

    def set_nonce(self, nonce: int) -> None:
        """Store the nonce of a new disk."""
        self.nonce = nonce
        self._write([records.fresh(nonce)])

    def set_membership(self, membership: Membership) -> None:
        """Store the membership of this replica and the incarnations of the others."""
        joins = membership.joined and not self.has_joined
        self.membership = membership
        self._write([records.member(membership)])
        if joins:
            self._joined_end = self._end

    @property
    def has_joined(self) -> bool:
        """Whether this replica is a member with a complete state (PAX-15)."""
        return self.membership is not None and self.membership.joined

    @property
    def has_joined_durably(self) -> bool:
        """Whether `has_joined` is durable."""
        return self.has_joined and self._durable >= self._joined_end

    # ---- promising and accepting

    def promise(self, ballot: Ballot) -> None:
        """Promise `ballot`: reject lower ballots from now on."""
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
        """Accept `values` for the promised ballot. Returns False, and accepts nothing, if they leave a gap."""
        if first > self.matched + 1:
            return False
        already_accepted = self.matched + 1 - first
        self._check_agreement(first, values[:already_accepted])
        new = values[already_accepted:]
        if new:
            ballot, at, slot = self.promised, self.matched - self.base, self.matched + 1
            self.log[at : at + len(new)] = [(ballot, value) for value in new]
            self.matched += len(new)
        self.choose(min(commit, self.matched))
        if new:
            self._write([records.accepted(ballot, self.commit, slot, new)])
            size = sum([len(value) for value in new])
            self._unsynced_values.append((self._end, size))
            self.unsynced_bytes += size
        return True

    def _check_agreement(self, first: int, values: Sequence[bytes]) -> None:
        for slot, value in enumerate(values, first):
            if self.base < slot and self.value(slot) != value:
                raise ProtocolViolation(f"PAX-3: two values for slot {slot}")

    def choose(self, commit: int) -> None:
        """Mark the slots up to `commit` as chosen."""
        for slot in range(self.commit + 1, commit + 1):
            value = self.value(slot)
            self.uncompacted_bytes += len(value)
            self._out.append(Chosen(slot, value))
        self.commit = max(self.commit, commit)

    # ---- snapshots

    def compact(self, slot: int, snapshot: bytes, retain_bytes: int) -> None:
        """Replace the slots up to `slot` by a snapshot, except for the last `retain_bytes` of values."""
        if not self.snapshot_slot < slot <= self.commit:
            raise ProtocolViolation(
                f"PAX-11: a snapshot of slot {slot}, expected {self.snapshot_slot + 1} to {self.commit}"
            )
        self.uncompacted_bytes -= sum(len(self.value(at)) for at in range(self.snapshot_slot + 1, slot + 1))
        keep = slot
        while keep > self.base and (retain_bytes := retain_bytes - len(self.value(keep))) >= 0:
            keep -= 1
        self._cut(keep)
        self._store_snapshot(slot, snapshot)

    def install(self, slot: int, snapshot: bytes) -> None:
        """Replace the state by another replica's snapshot. Values accepted after it are kept: they may be votes."""
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
        """Write the complete state, and trim the journal's older records once that is durable (PAX-12)."""
        self.snapshot_slot, self.snapshot = slot, snapshot
        before = self._end
        assert self.membership is not None, "PAX-14"
        state = records.promise(self.promised), records.member(self.membership)
        self._write([records.snapshot(slot, snapshot), *state, *self._rewritten_log(slot + 1)])
        self._pending_effects.append((self._end, Trim(JOURNAL, before)))

    def _rewritten_log(self, first: int) -> list[Record]:
        written = []
        while first <= self.last:
            ballot, entries = next(groupby(self.entries(first), key=itemgetter(0)))
            values = [value for _, value in entries]
            written.append(records.accepted(ballot, min(self.commit, first + len(values) - 1), first, values))
            first += len(values)
        return written

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
                    accepted[slot] = max((ballot, value), accepted.get(slot, (NO_BALLOT, b"")), key=itemgetter(0))
            elif tag == records.SNAPSHOT:
                self.snapshot_slot, self.snapshot = records.read_snapshot(payload)
            elif tag == records.FRESH:
                self.nonce = records.read_fresh(payload)
            elif tag == records.MEMBER:
                self.membership = records.read_member(payload)
            else:
                raise ProtocolViolation(f"PAX-12: the journal has a record with the tag {tag}")
        self.base = self.snapshot_slot
        while self.last + 1 in accepted:
            self.log.append(accepted[self.last + 1])
        self.commit = max(self.commit, self.snapshot_slot)
        if self.commit > self.last or max(accepted, default=0) > self.last:
            raise ProtocolViolation(f"PAX-12: the journal has a gap after slot {self.last}")

    def deliver_chosen(self) -> None:
        """Pass the snapshot and all chosen values to the embedding core."""
        if self.snapshot_slot:
            self._out.append(Restore(self.snapshot_slot, self.snapshot))
        commit, self.commit = self.commit, self.snapshot_slot
        self.choose(commit)

    def check_invariants(self) -> None:
        assert self.base <= self.snapshot_slot <= self.commit <= self.matched <= self.last, "PAX-5, PAX-7"
        assert not self.log or self.log[-1][0] <= self.promised, "PAX-2"
        assert self._durable <= self._end, "PAX-1"
