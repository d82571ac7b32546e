"""The primary's part of a storage server: it takes appends, tells their GSNs, and tells what became of others.

What is not ordered yet waits in the order of LSNs, so a link answers a prefix. Bytes that wait are bounded: beyond that
clients are told BUSY. A client's own retry waits beside the first one: who was answered is not remembered, as the
answer may be lost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from logdb.cores.effects import Address, Persist, Send
from logdb.log.contract import Record
from logdb.log.requests import record_bytes
from logdb.log.scalog.messages import Append, Appended, AppendStatus, AppendStatusRequest, Rejected, RejectReason
from logdb.log.scalog.records import wrap
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.segment_replica import SegmentReplica
from logdb.log.scalog.storage.sessions import ClientRun


class Waiting(NamedTuple):
    """The records `first` to `end` - 1 of a segment are a client's, from `sequence` on, who waits at `address`."""

    end: int
    first: int
    sequence: int
    client: int
    address: Address


class Primary:
    """`fresh(copy, first, records, size)` is told what has been taken, for the backups."""

    def __init__(self, shard: MemberState, fresh: Callable[[SegmentReplica, int, list[Record], int], None]) -> None:
        self._shard = shard
        self._fresh = fresh
        self._waiting: dict[int, list[Waiting]] = {}
        self.answered: dict[int, int] = {}

    # ---- appending

    def on_append(self, message: Append, sender: Address) -> None:
        """Take what is new, answer what is ordered, have the rest wait."""
        client, sequence, settled, segment, records = message
        copy = self._shard.copies.get(segment)
        if copy is None or (copy.primary != self._shard.server and copy.sealed is None):
            self._refuse(client, sequence, segment, RejectReason.NOT_PRIMARY, sender)
            return
        copy.sessions.settle(client, settled)
        if copy.primary == self._shard.server and copy.sealed is None and copy.sessions.is_new(client, sequence):
            self._take(copy, client, sequence, records, sender)
            return
        for run in copy.sessions.find(client, sequence, len(records)):
            if run.lsn:
                self._answer_again(copy, client, run, sender)
            elif copy.sealed is not None or copy.primary != self._shard.server:
                self._refuse(client, run.sequence, segment, RejectReason.SEALED, sender)
            else:
                at = run.sequence - sequence
                self._take(copy, client, run.sequence, records[at : at + run.count], sender)

    def _take(
        self, copy: SegmentReplica, client: int, sequence: int, records: Sequence[Record], sender: Address
    ) -> None:
        shard = self._shard
        if copy.sizes.total - copy.ordered_bytes >= shard.settings.buffer_bytes:
            self._refuse(client, sequence, copy.id, RejectReason.BUSY, sender)
            return
        stored = wrap(client, sequence, records)
        size = record_bytes(stored)
        first = copy.take(stored, size)
        copy.sessions.add(client, sequence, len(stored), first)
        shard.out.append(Persist(copy.journal, first, stored))
        self._fresh(copy, first, stored, size)
        self._waiting.setdefault(copy.id, []).append(Waiting(copy.end, first, sequence, client, sender))

    def _answer_again(self, copy: SegmentReplica, client: int, run: ClientRun, sender: Address) -> None:
        """A client asks again for records that are in the segment (or were)."""
        shard = self._shard
        ordered = shard.chain.ends.get(copy.id, 1)
        ranges, run_left = self._ordered(copy, run, ordered)
        ranges = [known for known in ranges if known[2]]
        if ranges:
            shard.out.append(Send(sender, Appended(client, copy.id, tuple(ranges), shard.leaving)))
        if run_left is None:
            return
        end = run_left.lsn + run_left.count
        if copy.sealed is not None and end > copy.sealed:
            first_lost = max(run_left.lsn, copy.sealed)
            self._refuse(client, run_left.sequence + first_lost - run_left.lsn, copy.id, RejectReason.SEALED, sender)
            end = first_lost
        if end > run_left.lsn:
            waiting = self._waiting.setdefault(copy.id, [])
            entry = Waiting(end, run_left.lsn, run_left.sequence, client, sender)
            at = bisect_left(waiting, entry)
            if at == len(waiting) or waiting[at] != entry:
                waiting.insert(at, entry)

    def _ordered(
        self, copy: SegmentReplica, run: ClientRun, ordered: int
    ) -> tuple[list[tuple[int, int, int]], ClientRun | None]:
        """What the chain has ordered of a run, and what it has not.

        The first as (first sequence number, count, first GSN), with 0 for GSNs that are not known any more.
        """
        if run.gsn:
            return [(run.sequence, run.count, max(run.gsn, 0))], None
        end = min(run.lsn + run.count, ordered)
        ranges, sequence = [], run.sequence
        if run.lsn < end:
            for gsn, count in self._shard.gsns_of(copy.id, run.lsn, end):
                ranges.append((sequence, count, max(gsn, 0)))
                sequence += count
        left = run.part(sequence, run.sequence + run.count) if sequence < run.sequence + run.count else None
        return ranges, left

    def _refuse(self, client: int, sequence: int, segment: int, why: RejectReason, to: Address) -> None:
        self._shard.out.append(Send(to, Rejected(client, sequence, segment, why)))

    # ---- what links and configurations do to those who wait

    def on_ordered(self) -> None:
        """Answer everybody whose records have got their GSNs (SCA-8: the chain gives them, nothing else does)."""
        shard = self._shard
        own = shard.own()
        if own is not None:
            own.ordered_bytes = own.sizes.at(shard.chain.ends.get(own.id, 1))
        for segment, waiting in self._waiting.items():
            ordered = shard.chain.ends.get(segment, 1)
            if not waiting or waiting[0].end > ordered:
                continue
            count = bisect_left(waiting, (ordered + 1,))
            answers: dict[tuple[int, Address], list[tuple[int, int, int]]] = {}
            for end, first, sequence, client, address in waiting[:count]:
                ranges = answers.setdefault((client, address), [])
                for gsn, length in shard.gsns_of(segment, first, end):
                    if gsn > 0:
                        ranges.append((sequence, length, gsn))
                    sequence += length
            self.answered[segment] = waiting[count - 1].end
            del waiting[:count]
            for (client, address), ranges in answers.items():
                if ranges:
                    shard.out.append(Send(address, Appended(client, segment, tuple(ranges), shard.leaving)))

    def on_sealed(self) -> None:
        """Refuse those whose records lie beyond the end of a segment that has been sealed, or that is gone."""
        for segment, waiting in list(self._waiting.items()):
            copy = self._shard.copies.get(segment)
            sealed = copy.sealed if copy else 0
            if sealed is None:
                continue
            kept: list[Waiting] = []
            for entry in waiting:
                if entry.end <= sealed:
                    kept.append(entry)
                    continue
                lost = max(entry.first, sealed)
                self._refuse(
                    entry.client, entry.sequence + lost - entry.first, segment, RejectReason.SEALED, entry.address
                )
                if entry.first < sealed:
                    insort(kept, entry._replace(end=sealed))
            self._waiting[segment] = kept
            if copy is None:
                del self._waiting[segment]

    def leave(self) -> None:
        """This server is no member any more: those who wait must ask others what became of their records."""
        for segment, waiting in self._waiting.items():
            for entry in waiting:
                self._refuse(entry.client, entry.sequence, segment, RejectReason.SEALED, entry.address)
        self._waiting.clear()

    # ---- fates

    def on_append_status_request(self, message: AppendStatusRequest, sender: Address) -> None:
        """Say what is ordered, and what never will be: only of a sealed segment that this copy has to its end."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        ordered: list[tuple[int, int, int]] = []
        never: list[tuple[int, int]] = []
        if copy is not None:
            end = shard.chain.ends.get(copy.id, 1)
            sealed = copy.sealed if copy.sealed is not None and copy.durable >= copy.sealed and copy.whole else None
            for sequence, count in message.sequences:
                for run in copy.sessions.find(message.client, sequence, count):
                    if run.lsn:
                        ranges, left = self._ordered(copy, run, end)
                        ordered += ranges
                    else:
                        left = run
                    if left is None or sealed is None:
                        continue
                    if left.lsn == 0:
                        never.append((left.sequence, left.count))
                    elif left.lsn + left.count > sealed:
                        skipped = max(0, sealed - left.lsn)
                        never.append((left.sequence + skipped, left.count - skipped))
        shard.out.append(Send(sender, AppendStatus(message.client, message.segment, tuple(ordered), tuple(never))))

    def check(self) -> None:
        """SCA-8."""
        for segment, answered in self.answered.items():
            copy = self._shard.copies.get(segment)
            if copy is not None:
                ordered = self._shard.chain.ends.get(segment, 1)
                assert answered <= ordered, "SCA-8: answered before it was ordered"
                assert copy.sealed is None or ordered <= copy.sealed, "SCA-8: ordered beyond the sealed end"
                assert copy.primary != self._shard.server or ordered <= copy.durable, "SCA-2: ordered, not durable here"
        for segment, waiting in self._waiting.items():
            assert not waiting or waiting[0].end > self._shard.chain.ends.get(segment, 1), "SCA-8: answer is due"
