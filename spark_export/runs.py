"""The rows of a snapshot, from sorted runs of the log that are merged by key range.

The newest version of a key may be in any segment, so a task that reads one segment does not know which of its rows are
live. Two steps give the exact answer and read each byte of the log once:

1. *Runs.* A task decodes a range of the log, verifies every frame, and reduces it to the newest version of each key,
   deleted keys included. It writes the result to a file, sorted by key (`scratch`).
2. *Merge.* The keys are divided into as many ranges as there are tasks. A task reads its range of every run, keeps the
   newest version of each key, drops deleted keys, and fetches large values. It yields rows in key order.

Before step 2 each task helps with step 1: it writes the runs that are missing and that no other task is writing. The
writer of a run holds a file lock (flock). When its process dies, the lock is released and the next task writes the run.
So a task never waits for one that has not started, however many tasks run at a time, on one machine or on several that
share the file system. Without working locks a run is written twice, with the same content.

A run is a file of Arrow IPC that ends with a checksum. Each process verifies the checksum before its first read; a
damaged run is written again. A second action on the same DataFrame, or on another one of that version, finds the runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

import google_crc32c as crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.embedded.snapshot_plan import SegmentPart
from logdb.errors import Corruption, Unavailable, VersionTrimmed
from logdb.store.range_deletions import RangeIndex, index_of
from logdb.store.records import DeletedRange, decode_deleted_range, encode_deleted_range
from spark_export.checksums import Numbers
from spark_export.decoding import EVERYTHING, ITEMS, KeyRange, decoded, filled
from spark_export.ordering import last_of_each
from spark_export.places import RangeDeletion
from spark_export.snapshot_source import SnapshotPlan

BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 32 << 20
PARTITION_BYTES: Final = 128 << 20
ROWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("version", pa.int64())])
RUN: Final = ITEMS.remove(ITEMS.get_field_index("time"))
SUFFIX: Final = ".arrow"
_DELETIONS: Final = b"deletions"
_REDUCE_ROWS: Final = 500_000
"""Rows that are decoded before the next reduction, in addition to those that the last one left."""


class LogRange(NamedTuple):
    """Consecutive parts of a plan, which one task reads."""

    parts: tuple[SegmentPart, ...]

    @property
    def name(self) -> str:
        """The first GSN and the end, which identify the range in its plan."""
        return f"{self.parts[0].first}-{self.parts[-1].end}"

    @property
    def size_bytes(self) -> int:
        """The bytes of log."""
        return sum(part.size for part in self.parts)


def log_ranges(parts: Iterable[SegmentPart], partition_bytes: int) -> list[LogRange]:
    """Group parts into ranges of at most `partition_bytes` each, or of one part."""
    found: list[list[SegmentPart]] = []
    size = partition_bytes
    for part in parts:
        if size + part.size > partition_bytes:
            found.append([])
            size = 0
        found[-1].append(part)
        size += part.size
    return [LogRange(tuple(some)) for some in found]


class Runs:
    """The runs of a plan, of the keys in a range. Cheap to make and to pickle.

    `newer_than`: the caller needs only rows of later versions, so ranges that end before have none.
    """

    def __init__(
        self,
        plan: SnapshotPlan,
        keys: KeyRange = EVERYTHING,
        *,
        newer_than: int = -1,
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self.keys, self.newer_than, self._partition_bytes = keys, newer_than, partition_bytes
        self._set_plan(plan)

    def _set_plan(self, plan: SnapshotPlan) -> None:
        self.plan = plan
        every = log_ranges(plan.parts, self._partition_bytes)
        self.ranges = [one for one in every if one.parts[-1].end > self.newer_than + 1]
        content = repr((plan.version, plan.floor, plan.copies_from, self.keys, self.newer_than))
        self._folder = folder_for(plan, "runs", content)

    # ---- step 1

    def make(self, begin_with: int) -> None:
        """Write the missing runs, and return when every run is there. Tasks begin with different ones. Raises
        Corruption; VersionTrimmed if the servers no longer have the version; Unavailable."""
        while True:
            try:
                return self._make_all(begin_with)
            except VersionTrimmed as error:  # the log was trimmed before this task's lease; the version may be left
                plan = self.plan.source.replan(self.plan)
                if plan.floor == self.plan.floor:
                    what = f"the log of {self.plan.location} lacks records of the plan: {error}"
                    raise Unavailable(what) from error
                self._set_plan(plan)

    def _make_all(self, begin_with: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        turn = begin_with % max(len(self.ranges), 1)
        rotated = self.ranges[turn:] + self.ranges[:turn]
        for wait in (False, True):
            for one in rotated:
                write_once(self._file(one), partial(self._write, one), wait=wait)

    def _file(self, log_range: LogRange) -> Path:
        return self._folder / f"{log_range.name}{SUFFIX}"

    def _write(self, log_range: LogRange, file: Path) -> None:
        write_run(fold(self.plan, log_range, self.keys, self.newer_than), file)

    # ---- step 2

    def newest_of(self, keys: pa.Array) -> pa.Table:
        """Look up keys in the runs, all of which are written: rows of `RUN`, deleted keys included."""
        runs = (read_run(self._file(one)) for one in self.ranges)
        found = newest_versions(run.filter(pc.is_in(run.column("key"), value_set=keys)) for run in runs)
        return without_deleted(found, self.deleted())

    def newest_in(self, keys: KeyRange) -> pa.Table:
        """Read a range of keys from the runs: rows of `RUN`, deleted keys included, in key order."""
        rows = newest_versions(key_slice(read_run(self._file(one)), keys) for one in self.ranges)
        rows = without_deleted(rows, self.deleted())
        return rows.filter(pc.greater(rows.column("version"), self.newer_than))

    def deleted(self) -> RangeIndex:
        """The range deletes after `newer_than` in all runs, which are written. Compactions restate earlier ones."""
        found = (deletions_of(read_run(self._file(one))) for one in self.ranges)
        return index_of(deleted for some in found for deleted in some if deleted.version > self.newer_than)

    def merge(self, keys: KeyRange, *, fetch: bool = True) -> Iterator[pa.RecordBatch]:
        """The live rows in a range of keys, in key order, as batches of `ROWS`; large values only if `fetch`.

        Raises Corruption.
        """
        rows = self.newest_in(keys)
        yield from snapshot_rows(self.plan, rows.filter(pc.is_valid(rows.column("value"))), fetch=fetch)


def folder_for(plan: SnapshotPlan, kind: str, content: str) -> Path:
    """The folder in the plan's scratch folder for runs of some content."""
    return Path(plan.scratch) / f"{kind}-{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"


def snapshot_rows(
    plan: SnapshotPlan, rows: pa.Table, *, fetch: bool = True, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Turn rows of `RUN` that are live at the plan's version into batches of `ROWS`; with large values if `fetch`.

    Raises Corruption.
    """
    large_values = plan.source.large_values(plan)
    for batch in bounded_batches(rows, batch_rows):
        content = batch.column("value")
        if fetch:
            at = pa.repeat(plan.version, batch.num_rows)  # that of a row may be compacted away
            content = filled(large_values, content, batch.column("large"), batch.column("key"), at)
        columns = [batch.column("key"), content.cast(pa.binary()), batch.column("version")]
        yield pa.record_batch(columns, schema=ROWS)


def write_once(file: Path, write: Callable[[Path], None], *, wait: bool) -> None:
    """Write a run unless it is there. If another process is writing it, wait for that one, or return without `wait`."""
    if is_whole(file):
        return
    lock = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return
        if not is_whole(file):
            write(file)
    finally:
        os.close(lock)


def folded_bytes(plan: SnapshotPlan) -> int:
    """The bytes of the plan's parts of which there are runs."""
    names = {run.stem for run in Path(plan.scratch).glob(f"runs-*/*{SUFFIX}")}
    bounds = [tuple(map(int, name.split("-"))) for name in names]
    return sum(part.size for part in plan.parts if any(first <= part.first < end for first, end in bounds))


def fold(plan: SnapshotPlan, log_range: LogRange, keys: KeyRange, newer_than: int) -> pa.Table:
    """Reduce a range of the log to the newest version of each key up to the plan's version, in key order.

    Versions up to `newer_than` may be missing. Raises Corruption.
    """
    some: list[pa.Table] = []
    deletions: list[RangeDeletion] = []
    count = limit = 0
    for part in log_range.parts:
        for batch in decoded(plan, part, keys, copies=True, after=newer_than, deletions=deletions):
            some.append(pa.Table.from_batches([batch.select(RUN.names)]))
            count += batch.num_rows
            if count > limit + _REDUCE_ROWS:
                some = [newest_versions(some)]
                count = limit = some[0].num_rows
    return with_deletions(newest_versions(some), [found.deleted for found in deletions])


def with_deletions(run: pa.Table, deletions: Iterable[DeletedRange]) -> pa.Table:
    """A run that also has range deletes, in the metadata of its schema."""
    encoded = b"".join(map(encode_deleted_range, deletions))
    return run.replace_schema_metadata({_DELETIONS: encoded}) if encoded else run


def deletions_of(run: pa.Table) -> list[DeletedRange]:
    """The range deletes of a run."""
    encoded, at, found = (run.schema.metadata or {}).get(_DELETIONS, b""), 0, list[DeletedRange]()
    while at < len(encoded):
        deleted, at = decode_deleted_range(encoded, at)
        found.append(deleted)
    return found


def without_deleted(rows: pa.Table, deleted: RangeIndex) -> pa.Table:
    """Rows of `RUN` in which keys whose newest range delete is after their version are deleted."""
    if not deleted.last or not rows.num_rows:
        return rows
    newest = np.fromiter(map(deleted.newest, rows.column("key").to_pylist()), np.int64)
    versions = rows.column("version").to_numpy()
    gone = newest > versions
    for name, replaced in (
        ("value", pc.if_else(pa.array(gone), pa.scalar(None, RUN.field("value").type), rows.column("value"))),
        ("large", pc.if_else(pa.array(gone), False, rows.column("large"))),
        ("version", pa.array(np.maximum(versions, newest))),
    ):
        rows = rows.set_column(rows.schema.get_field_index(name), RUN.field(name), replaced)
    return rows


def newest_versions(tables: Iterable[pa.Table]) -> pa.Table:
    """The newest version of each key in tables of `RUN`, in key order; of several copies of a version the last one.

    The versions of a key increase within a table and from one table to the next, except for copies.
    """
    rows = pa.concat_tables([RUN.empty_table(), *tables]).combine_chunks()
    versions, gsns = rows.column("version").to_numpy(), rows.column("gsn").to_numpy()
    if (versions != gsns).any():  # copies: the order of records is not that of versions
        rows = rows.take(pa.array(np.lexsort((gsns, versions))))
    return rows.take(pa.array(last_of_each(rows.column("key").combine_chunks())))


def write_run(table: pa.Table, file: Path) -> None:
    """Write a run to a file, which appears with its whole content."""
    staging = file.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with pa.OSFile(str(staging), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    with staging.open("r+b") as content:
        content.write(_ENDING.pack(_MAGIC, _checksum(content, staging.stat().st_size)))
    os.replace(staging, file)


def read_run(file: Path) -> pa.Table:
    """Map the rows of a run from its file. Raises Corruption."""
    if not is_whole(file):
        raise Corruption(file, None, "it does not match its checksum")
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source.read_buffer(source.size() - _ENDING.size)).read_all()


_ENDING: Final = struct.Struct("<4sI")
_MAGIC: Final = b"run1"
_CHECKED_BYTES: Final = 4 << 20
_whole: Final = set[tuple[int, ...]]()
"""The files whose checksum this process has verified."""


def is_whole(file: Path) -> bool:
    """Return whether a run is there and matches its checksum."""
    try:
        with file.open("rb") as content:
            found = os.fstat(content.fileno())
            what = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if what not in _whole:
                size = found.st_size - _ENDING.size
                if size < 0 or _ENDING.pack(_MAGIC, _checksum(content, size)) != content.read():
                    return False
                _whole.add(what)
            return True
    except FileNotFoundError:
        return False


def _checksum(content: IO[bytes], size: int) -> int:
    checksum = 0
    while size and (some := content.read(min(size, _CHECKED_BYTES))):
        checksum, size = crc32c.extend(checksum, some), size - len(some)
    return checksum


def key_slice(run: pa.Table, keys: KeyRange) -> pa.Table:
    """The rows of a sorted run in a range of keys."""
    column, count = run.column("key"), run.num_rows
    start = bisect_left(range(count), keys.low, key=lambda at: column[at].as_py())
    end = count
    if keys.high is not None:
        end = bisect_left(range(count), keys.high, start, key=lambda at: column[at].as_py())
    return run.slice(start, end - start)


def bounded_batches(rows: pa.Table, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Divide rows of `RUN` into batches that fit into the memory of a task with their large values."""
    for some in rows.to_batches(max_chunksize=batch_rows):
        sizes = _value_bytes(some)
        if sizes.sum() <= BATCH_BYTES:
            yield some
            continue
        start = size = 0
        for at, bytes_here in enumerate(sizes.tolist()):
            if size + bytes_here > BATCH_BYTES and at > start:
                yield some.slice(start, at - start)
                start, size = at, 0
            size += bytes_here
        yield some.slice(start)


def _value_bytes(rows: pa.RecordBatch) -> Numbers:
    """The size of each value, of large values that of the fetched one."""
    sizes: Numbers = (
        pc.fill_null(pc.binary_length(rows.column("value")), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    large = rows.column("large").to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(large).tolist():
        sizes[at] = int.from_bytes(rows.column("value")[at].as_py()[12:20], "little")
    return sizes
