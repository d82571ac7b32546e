"""The database of a cluster as a source for Spark.

A part is a range of GSNs. A task follows the log there as any client does: it pulls from one replica of each shard,
goes to another replica when one does not answer, merges by GSN, and distinguishes gaps from loss (SCA-11). So the load
is spread over all shards and replicas, parts come in the order of the log, and shards may be added or finalized
meanwhile.

A compaction writes PART records with copies between a BEGINNING and an ENDING record. Only the copies of the last
finished compaction count (`messages.Floor`); a task decodes them as RELOCATION records. While a compaction runs, its
floor is already in force and its copies are incomplete, so planning waits for its end.

Commits that were trimmed come from the cold tier, if the cluster has one: those of a change feed, and for a version
before the floor all of them, from the first one on.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from random import Random
from typing import Any, Final

import numpy as np

from logdb.clients.cluster_backend import ClusterBackend
from logdb.clients.core_client import unwrap
from logdb.clients.folded_commits import with_folded_values
from logdb.cluster.client import requests as calls
from logdb.cluster.client.leases import RENEWAL_NS
from logdb.cluster.compaction.records import copies_of
from logdb.cluster.messages import COLD_SHARD, CommitPage
from logdb.cores.effects import SECOND
from logdb.embedded.snapshot_plan import SegmentPart
from logdb.errors import Unavailable, VersionTrimmed
from logdb.log import requests as log
from logdb.log.contract import Batch, LogFailed, LogRecord, NotOfThisShard, Trimmed
from logdb.log.segments.format import FRAME, FRAME_BYTES, FRAME_MAGIC
from logdb.store.records import (
    COMMIT,
    PART,
    RELOCATION,
    VALUE,
    Place,
    decode_commit,
    decode_relocation,
    encode_commit,
    has_folds,
)
from spark_export.frames import MemoryFrames
from spark_export.places import Records
from spark_export.remote_source import Floor, Layout, RemoteSource, prefetched
from spark_export.snapshot_source import SnapshotPlan

PROBES: Final = 16
PROBE_BYTES: Final = 64 << 10
SAMPLES_PER_PROBE: Final = 128
SAMPLES_PER_RECORD: Final = 8
BATCH_BYTES: Final = 16 << 20
"""The bytes of log that are decoded together."""
LEASE_SPREAD_S: Final = 3 * RENEWAL_NS / SECOND
"""After this time every server has received a lease; a compaction that began without it has moved the floor."""
COMPACTION_TIMEOUT_S: Final = 600.0
"""How long planning waits for a running compaction."""
DATABASES: Final = uuid.UUID("6c6f6764-6220-636c-8573-746572732121")


class ClusterSource(RemoteSource[ClusterBackend]):
    """The source of a cluster's database."""

    LARGE_VALUES_AT_ONCE = 64

    # ---- plans

    async def _lay_out(
        self, version: int, first: int, floor: Floor | None, part_bytes: int, since: int | None
    ) -> Layout:
        host, ranges, copies_from, time = self._host, [(first, version + 1)], 0, None
        if floor is not None:
            copies_from = floor.copies_from
            if floor.copies_end > version:
                ranges.append((max(copies_from, version + 1), floor.copies_end + 1))
        parts, sample = await self._split(ranges, part_bytes, copies_from)
        if floor is not None and version:
            time = await host.time_of(version)
        return Layout(uuid.uuid5(DATABASES, host.cluster).bytes, time, parts, sample)

    async def _lease(self, holder: object, version: int) -> None:
        self._host.lease(holder, version)

    async def _lease_floor(self, holder: object, needed: int | None = None) -> Floor:
        """Lease the floor once no compaction is moving it. A version before it is the fold of all commits, those of the
        cold tier included: the tier must have them from the first one on."""
        try:
            async with asyncio.timeout(COMPACTION_TIMEOUT_S):
                while True:
                    floor = await self._host.call(calls.Oldest())
                    if needed is not None and needed < floor.version and await self._host.oldest() == 0:
                        return Floor(0)
                    self._host.lease(holder, max(floor.version, 1))
                    await asyncio.sleep(LEASE_SPREAD_S)
                    if floor.cleaned == floor.version and floor == await self._host.call(calls.Oldest()):
                        return Floor(floor.version, floor.began, floor.ended)
        except TimeoutError:
            what = f"a compaction of {self._host.path} has not ended within {COMPACTION_TIMEOUT_S:g} s"
            raise Unavailable(what) from None

    async def _split(
        self, ranges: list[tuple[int, int]], part_bytes: int, copies_from: int
    ) -> tuple[tuple[SegmentPart, ...], tuple[bytes, ...]]:
        """Split ranges of the log into parts of about `part_bytes`, and sample their keys, by reading a few records."""
        draw, keys, size, count = Random(copies_from), set[bytes](), 0, 0
        total = sum(end - first for first, end in ranges)

        async def probe(first: int, end: int) -> Batch:
            copies = bool(copies_from)
            async with contextlib.aclosing(
                self._batches(first, end, copies=copies, fetch_bytes=PROBE_BYTES)
            ) as batches:
                async for batch in batches:
                    return batch
            raise AssertionError("a range has at least one batch")

        async def measure(starts: Sequence[tuple[int, int]]) -> None:
            nonlocal size, count
            for batch in await asyncio.gather(*[probe(first, end) for first, end in starts]):
                size, count = size + _size_bytes(batch.records), count + batch.end - batch.first
                keys.update(_sample_keys(batch.records, copies_from))

        filled = [(first, end) for first, end in ranges if first < end]
        await measure(filled)
        if count < total:
            drawn = draw.choices(filled, [end - first for first, end in filled], k=PROBES)
            await measure([(draw.randrange(first, end), end) for first, end in drawn])
        record_bytes = size / max(count, 1)
        part_records = max(int(part_bytes / max(record_bytes, 1.0)), 1)
        parts = []
        for first, end in ranges:
            chunks = -(-(end - first) // part_records)
            bounds = [first + (end - first) * number // chunks for number in range(chunks + 1)] if chunks else []
            for low, high in pairwise(bounds):
                parts.append(SegmentPart("", self._host.path, low, high, int(record_bytes * (high - low))))
        return tuple(parts), tuple(sorted(keys))

    # ---- the log

    async def _batches(
        self, first: int, end: int, *, copies: bool, fetch_bytes: int | None = None
    ) -> AsyncGenerator[Batch]:
        """The commits from `first` to before `end` that were applied, with `copies` PART records too. Without them
        records that were trimmed come from the cold tier. Raises VersionTrimmed, Unavailable, Corruption."""
        while first < end:
            try:
                async with contextlib.aclosing(self._from_log(first, end, copies, fetch_bytes)) as batches:
                    async for batch in batches:
                        first = batch.end
                        yield batch
            except VersionTrimmed:
                if copies:
                    raise
                page: CommitPage = await self._host.call(calls.ColdCommits(first - 1))
                found = [LogRecord(one.version, one.time, COMMIT, one.record) for one in page.commits]
                yield Batch(first, page.end, found)
                first = page.end

    async def _from_log(self, first: int, end: int, copies: bool, fetch_bytes: int | None) -> AsyncGenerator[Batch]:
        host = self._host
        tags = frozenset((COMMIT, PART) if copies else (COMMIT,))
        subscription = 0
        try:
            subscription = unwrap(await host.put(log.Subscribe(first, tags, fetch_bytes), None))
            while first < end:
                batch = unwrap(await host.put(log.Next(subscription), host.timeout_s))
                if batch is None:
                    what = f"no replica has answered within {host.timeout_s:g} s"
                    raise Unavailable(f"the log of {host.path} cannot be read from record {first} on: {what}")
                first = batch.end
                applied = await self._applied(batch.records)
                yield batch._replace(records=await self._with_folded_values(applied))
        except Trimmed as error:
            raise VersionTrimmed(first - 1, error.oldest - 1) from error
        except LogFailed as error:
            raise Unavailable(f"the log of {host.path} cannot be read: {error}") from error
        finally:
            if subscription and not host.closed:
                host.put(log.Close(subscription), None)

    async def _applied(self, records: list[LogRecord]) -> list[LogRecord]:
        """The records without commits that were not applied. Raises VersionTrimmed if no server has their outcomes."""
        commits = [record.gsn for record in records if record.tag == COMMIT]
        if not commits:
            return records
        aborted = frozenset(await self._host.call(calls.Aborted(commits[0] - 1, commits[-1])))
        return [record for record in records if record.gsn not in aborted] if aborted else records

    async def _with_folded_values(self, records: list[LogRecord]) -> list[LogRecord]:
        """The records, those of commits with folds as if they had written the values plainly."""
        at = [at for at, record in enumerate(records) if record.tag == COMMIT and has_folds(record.payload)]
        if not at:
            return records
        records = list(records)
        commits = [decode_commit(records[index].payload, records[index].gsn) for index in at]
        asking = [
            with_folded_values(commit, records[index].gsn, self._host.call)
            for index, commit in zip(at, commits, strict=True)
        ]
        for index, commit in zip(at, await asyncio.gather(*asking), strict=True):
            records[index] = records[index]._replace(payload=encode_commit(commit))
        return records

    def records(
        self, plan: SnapshotPlan, part: SegmentPart, first: int, end: int, *, copies: bool
    ) -> Iterator[Records]:
        copies = copies and bool(plan.copies_from)
        with contextlib.closing(prefetched(self._batches(first, end, copies=copies))) as batches:
            some: list[LogRecord] = []
            size = 0
            for batch in batches:
                some += _with_copies(batch.records, plan.copies_from, end)
                size += _size_bytes(batch.records)
                if size >= BATCH_BYTES and some:
                    yield _framed(some, part)
                    some, size = [], 0
            if some:
                yield _framed(some, part)

    def commits(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        with contextlib.closing(prefetched(self._batches(first, end, copies=False))) as batches:
            for batch in batches:
                yield from ((record.gsn, record.payload) for record in batch.records if record.gsn < end)

    async def _aborted(self, first: int, end: int) -> Iterable[int]:
        return ()  # `_batches` leaves them out

    async def _read_record(self, place: Place) -> LogRecord | None:
        if place.shard == COLD_SHARD:
            return LogRecord(place.gsn, 0, VALUE, await self._host.call(calls.ColdValue(place)))
        try:
            record: LogRecord = unwrap(await self._host.put(log.Read(place.gsn, place.shard), self._host.timeout_s))
            return record
        except (Trimmed, NotOfThisShard):
            return None
        except (TimeoutError, LogFailed) as error:
            raise Unavailable(f"record {place.gsn} of shard {place.shard} cannot be read: {error}") from error


def _size_bytes(records: Sequence[LogRecord]) -> int:
    return sum([len(record.payload) for record in records]) + FRAME_BYTES * len(records)


def _with_copies(records: Iterable[LogRecord], copies_from: int, end: int) -> Iterator[LogRecord]:
    """The records before `end`, with the copies of the compaction that counts as RELOCATION records."""
    for record in records:
        if record.gsn >= end:
            return
        if record.tag == COMMIT:
            yield record
        elif (copies := copies_of(record.payload, copies_from)) is not None:
            yield record._replace(tag=RELOCATION, payload=copies)


def _sample_keys(records: Sequence[LogRecord], copies_from: int) -> Iterator[bytes]:
    for record in _with_copies(records[:: max(1, len(records) // SAMPLES_PER_PROBE)], copies_from, 1 << 63):
        if record.tag == COMMIT:
            keys = list(decode_commit(record.payload, record.gsn).writes)
        else:
            keys = [entry.key for entry in decode_relocation(record.payload)]
        yield from keys[:: max(1, len(keys) // SAMPLES_PER_RECORD)]


def _framed(records: Sequence[LogRecord], part: SegmentPart) -> Records:
    """Records as frames without checksums: the log client has verified those of the log."""
    gsns, times, tags, payloads = zip(*records, strict=True)
    lengths = list(map(len, payloads))
    heads: Any = map(FRAME.pack, repeat(FRAME_MAGIC), repeat(0), lengths, repeat(0), times, tags)
    data = b"".join([chunk for frame in zip(heads, payloads, strict=True) for chunk in frame])
    starts = np.zeros(len(lengths), np.int64)
    np.cumsum(np.array(lengths[:-1], np.int64) + FRAME_BYTES, out=starts[1:])
    return Records(MemoryFrames(data, part), np.array(gsns, np.int64), starts)
