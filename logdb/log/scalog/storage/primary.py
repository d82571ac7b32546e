"""The primary's part of a storage server: accepts appends, acknowledges them with GSNs, answers status requests.

Requests wait in the order of LSNs until their records are ordered, so a link completes a prefix of them. The size of
unordered records is bounded; beyond the limit appends are rejected with BUSY. A retry of a client waits beside the
first request: which requests were answered is not kept, because the answer may be lost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import NamedTuple

from logdb.cores.effects import Address, Persist, Send
from logdb.log.contract import Record
from logdb.log.requests import END, record_bytes
from logdb.log.scalog.messages import Append, Appended, AppendStatus, AppendStatusRequest, Rejected, RejectReason
from logdb.log.scalog.records import wrap
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.segment_replica import SegmentReplica
from logdb.log.scalog.storage.sessions import ClientRun


class Waiting(NamedTuple):
    """A client at `address` waits for the records `first` to `end` - 1 of a segment, its numbers from `sequence` on."""

    end: int
    first: int
    sequence: int
    client: int
    address: Address


class Primary:
    """`on_appended(copy, first, records, size)` is called for each accepted run; the backups replicate from it.

    `acknowledged`: the LSN after the last acknowledged record, by segment.
    """

    def __init__(
        self, shard: MemberState, on_appended: Callable[[SegmentReplica, int, list[Record], int], None]
    ) -> None:
        self._shard = shard
        self._on_appended = on_appended
        self._waiting: dict[int, list[Waiting]] = {}
        self.acknowledged: dict[int, int] = {}

    # ---- appending

    def on_append(self, message: Append, sender: Address) -> None:
        """Accept new records, acknowledge ordered ones, let the request wait for the others."""
        client, sequence, settled, segment, records = message
        if not records or sequence + len(records) > END:
            return  # no client sends that
        copy = self._shard.copies.get(segment)
        if copy is None or (copy.primary != self._shard.server and copy.sealed is None):
            self._reject(client, sequence, segment, RejectReason.NOT_PRIMARY, sender)
            return
        copy.sessions.settle(client, settled)
        if copy.primary == self._shard.server and copy.sealed is None and copy.sessions.is_new(client, sequence):
            self._accept(copy, client, sequence, records, sender)
            return
        for run in copy.sessions.find(client, sequence, len(records)):
            if run.lsn:
                self._on_repeated(copy, client, run, sender)
            elif copy.sealed is not None or copy.primary != self._shard.server:
                self._reject(client, run.sequence, segment, RejectReason.SEALED, sender)
            else:
                at = run.sequence - sequence
                self._accept(copy, client, run.sequence, records[at : at + run.count], sender)

    def _accept(
        self, copy: SegmentReplica, client: int, sequence: int, records: Sequence[Record], sender: Address
    ) -> None:
        shard = self._shard
        if copy.sizes.total - copy.ordered_bytes >= shard.settings.buffer_bytes:
            self._reject(client, sequence, copy.id, RejectReason.BUSY, sender)
            return
        stored = wrap(client, sequence, records)
        size = record_bytes(stored)
        first = copy.extend(stored, size)
        copy.sessions.add(client, sequence, len(stored), first)
        shard.out.append(Persist(copy.journal, first, stored))
        self._on_appended(copy, first, stored, size)
        self._waiting.setdefault(copy.id, []).append(Waiting(copy.end, first, sequence, client, sender))

    def _on_repeated(self, copy: SegmentReplica, client: int, run: ClientRun, sender: Address) -> None:
        """A client sends records again that are, or were, in the segment."""
        shard = self._shard
        ordered = shard.chain.ends.get(copy.id, 1)
        ranges, unordered = self._split(copy, run, ordered)
        ranges = [found for found in ranges if found[2]]
        if ranges:
            shard.out.append(Send(sender, Appended(client, copy.id, tuple(ranges), shard.is_draining)))
        if unordered is None:
            return
        end = unordered.lsn + unordered.count
        if copy.sealed is not None and end > copy.sealed:
            first_lost = max(unordered.lsn, copy.sealed)
            self._reject(client, unordered.sequence + first_lost - unordered.lsn, copy.id, RejectReason.SEALED, sender)
            end = first_lost
        if end > unordered.lsn:
            waiting = self._waiting.setdefault(copy.id, [])
            entry = Waiting(end, unordered.lsn, unordered.sequence, client, sender)
            at = bisect_left(waiting, entry)
            if at == len(waiting) or waiting[at] != entry:
                waiting.insert(at, entry)

    def _split(
        self, copy: SegmentReplica, run: ClientRun, ordered: int
    ) -> tuple[list[tuple[int, int, int]], ClientRun | None]:
        """Split a run into its ordered part and the rest.

        Returns the ordered part as (first sequence number, count, first GSN), with GSN 0 where it was trimmed.
        """
        if run.gsn:
            return [(run.sequence, run.count, max(run.gsn, 0))], None
        end = min(run.lsn + run.count, ordered)
        ranges, sequence = [], run.sequence
        if run.lsn < end:
            for gsn, count in self._shard.gsns_of(copy.id, run.lsn, end):
                ranges.append((sequence, count, max(gsn, 0)))
                sequence += count
        unordered = run.part(sequence, run.sequence + run.count) if sequence < run.sequence + run.count else None
        return ranges, unordered

    def _reject(self, client: int, sequence: int, segment: int, reason: RejectReason, to: Address) -> None:
        self._shard.out.append(Send(to, Rejected(client, sequence, segment, reason)))

    # ---- waiting requests, after new links and configurations

    def on_ordered(self) -> None:
        """Acknowledge the records that the chain has ordered (SCA-8: their GSNs come only from the chain)."""
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
            self.acknowledged[segment] = waiting[count - 1].end
            del waiting[:count]
            for (client, address), ranges in answers.items():
                if ranges:
                    shard.out.append(Send(address, Appended(client, segment, tuple(ranges), shard.is_draining)))

    def on_sealed(self) -> None:
        """Reject waiting records beyond the end of a sealed segment, or of a segment that was removed."""
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
                self._reject(
                    entry.client, entry.sequence + lost - entry.first, segment, RejectReason.SEALED, entry.address
                )
                if entry.first < sealed:
                    insort(kept, entry._replace(end=sealed))
            self._waiting[segment] = kept
            if copy is None:
                del self._waiting[segment]

    def leave(self) -> None:
        """This server was removed: reject all waiting requests, so that the clients ask other members."""
        for segment, waiting in self._waiting.items():
            for entry in waiting:
                self._reject(entry.client, entry.sequence, segment, RejectReason.SEALED, entry.address)
        self._waiting.clear()

    # ---- status requests

    def on_append_status_request(self, message: AppendStatusRequest, sender: Address) -> None:
        """Report which records are ordered, and which never will be: the latter only if the segment is sealed and this
        copy is complete up to its end."""
        shard = self._shard
        copy = shard.copies.get(message.segment)
        ordered: list[tuple[int, int, int]] = []
        excluded: list[tuple[int, int]] = []
        if copy is not None:
            end = shard.chain.ends.get(copy.id, 1)
            sealed = copy.sealed if copy.sealed is not None and copy.durable >= copy.sealed and copy.whole else None
            for sequence, count in message.sequences:
                for run in copy.sessions.find(message.client, sequence, count):
                    if run.lsn:
                        ranges, unordered = self._split(copy, run, end)
                        ordered += ranges
                    else:
                        unordered = run
                    if unordered is None or sealed is None:
                        continue
                    if unordered.lsn == 0:
                        excluded.append((unordered.sequence, unordered.count))
                    elif unordered.lsn + unordered.count > sealed:
                        skipped = max(0, sealed - unordered.lsn)
                        excluded.append((unordered.sequence + skipped, unordered.count - skipped))
        shard.out.append(Send(sender, AppendStatus(message.client, message.segment, tuple(ordered), tuple(excluded))))

    def check(self) -> None:
        """SCA-8. Raises AssertionError."""
        for segment, acknowledged in self.acknowledged.items():
            copy = self._shard.copies.get(segment)
            if copy is not None:
                ordered = self._shard.chain.ends.get(segment, 1)
                assert acknowledged <= ordered, "SCA-8: acknowledged before it was ordered"
                assert copy.sealed is None or ordered <= copy.sealed, "SCA-8: ordered beyond the sealed end"
                assert copy.primary != self._shard.server or ordered <= copy.durable, (
                    "SCA-2: ordered, but not durable at the primary"
                )
        for segment, waiting in self._waiting.items():
            assert not waiting or waiting[0].end > self._shard.chain.ends.get(segment, 1), (
                "SCA-8: an ordered record is not acknowledged"
            )
