"""From log segments to the rows of a snapshot: sorted runs, merged by key range.

The newest version of a key may stand in any segment, so a task that reads one segment cannot tell which of its rows
are live. Two steps make the answer exact with every byte of the log read once:

1. *Runs.* Each stretch of some segments is decoded, every frame checked, and reduced to the newest version of each of
   its keys, deleted ones included; that goes into a file, sorted by key (`scratch`).
2. *Merge.* The keys are divided into as many ranges as there are tasks. A task takes its range out of every run, keeps
   the newest version of each key, drops the deleted, and fetches large values. What it yields is in key order.

Every task does its share of step 1 before step 2: it makes the runs that are missing and that no other task is making.
A lock held by a process (flock) says who is making which; if that process dies, the lock is gone and the next task
makes the run. So nobody waits for a task that has not been started, and it does not matter how many run at a time, or
on how many machines that share the file system: without working locks a run is made twice, and is the same.

A run is a file of Arrow IPC with a checksum behind it, which each process that reads it compares; one that has been
damaged is made again. A second action on the same DataFrame, or on another one of that version, finds the runs made.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

import google_crc32c as crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.embedded.plan import Part
from logdb.errors import Corruption, Unavailable, VersionTrimmed
from spark_export.checksums import Numbers
from spark_export.decoding import EVERYTHING, ITEMS, AnyPlan, KeyRange, LargeValues, decoded, folder_of
from spark_export.ordering import last_of_each
from spark_export.remote import RemotePlan

BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 32 << 20
STRETCH_BYTES: Final = 128 << 20
ROWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("version", pa.int64())])
RUN: Final = ITEMS.remove(ITEMS.get_field_index("time"))
SUFFIX: Final = ".arrow"
_REDUCE_ROWS: Final = 500_000
"""Rows that are decoded before they are reduced, beside those that are left of the last time."""


class Stretch(NamedTuple):
    """Some parts of a plan that follow each other; `name` tells them from others."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return f"{self.parts[0].first}-{self.parts[-1].end}"

    @property
    def size(self) -> int:
        """Bytes of log."""
        return sum(part.size for part in self.parts)


def stretches(parts: Iterable[Part], stretch_bytes: int) -> list[Stretch]:
    """The parts in stretches of at most so many bytes, or of one part."""
    found: list[list[Part]] = []
    size = stretch_bytes
    for part in parts:
        if size + part.size > stretch_bytes:
            found.append([])
            size = 0
        found[-1].append(part)
        size += part.size
    return [Stretch(tuple(some)) for some in found]


class Runs:
    """The runs of a plan, of the keys in a range. Cheap to make and to pickle.

    `newer_than`: only rows of later versions are wanted, so stretches that end before have nothing to say.
    """

    def __init__(
        self,
        plan: AnyPlan,
        keys: KeyRange = EVERYTHING,
        *,
        newer_than: int = -1,
        stretch_bytes: int = STRETCH_BYTES,
    ) -> None:
        self.keys, self.newer_than, self._stretch_bytes = keys, newer_than, stretch_bytes
        self._take(plan)

    def _take(self, plan: AnyPlan) -> None:
        self.plan = plan
        some = stretches(plan.parts, self._stretch_bytes)
        self.stretches = [stretch for stretch in some if stretch.parts[-1].end > self.newer_than + 1]
        began = plan.began if isinstance(plan, RemotePlan) else 0
        meant = repr((plan.version, plan.floor, began, self.keys, self.newer_than)).encode()
        self._folder = folder_of(plan) / f"runs-{hashlib.blake2b(meant, digest_size=8).hexdigest()}"

    # ---- step 1

    def make(self, begin_with: int) -> None:
        """Return when every run is there: make what nobody makes, then wait for the rest. Raises Corruption;
        VersionTrimmed if the version is gone from the servers, Unavailable."""
        while True:
            try:
                return self._make_all(begin_with)
            except VersionTrimmed as error:  # the log was, before this task held it; the version may be there
                if not isinstance(self.plan, RemotePlan):
                    raise
                laid = self.plan.again()
                if laid.floor == self.plan.floor:
                    raise Unavailable(f"the log of {self.plan.path} lacks what it should have: {error}") from error
                self._take(laid)

    def _make_all(self, begin_with: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        turn = begin_with % max(len(self.stretches), 1)
        some = self.stretches[turn:] + self.stretches[:turn]
        for wait in (False, True):
            for stretch in some:
                self._make_one(stretch, wait=wait)

    def _make_one(self, stretch: Stretch, *, wait: bool) -> None:
        once(self._file(stretch), lambda file: self._write(stretch, file), wait=wait)

    def _file(self, stretch: Stretch) -> Path:
        return self._folder / f"{stretch.name}{SUFFIX}"

    def _write(self, stretch: Stretch, file: Path) -> None:
        write_run(fold(self.plan, stretch, self.keys, self.newer_than), file)

    # ---- step 2

    def newest_of(self, keys: pa.Array) -> pa.Table:
        """What the runs, which are made, hold of these keys: rows of `RUN`, deleted keys included."""
        runs = (read_run(self._file(stretch)) for stretch in self.stretches)
        return newest(run.filter(pc.is_in(run.column("key"), value_set=keys)) for run in runs)

    def newest_in(self, keys: KeyRange) -> pa.Table:
        """What the runs hold of a range of keys: rows of `RUN`, deleted keys included, in key order."""
        rows = newest(sliced(read_run(self._file(stretch)), keys) for stretch in self.stretches)
        return rows.filter(pc.greater(rows.column("version"), self.newer_than))

    def merge(self, keys: KeyRange, *, fetch: bool = True) -> Iterator[pa.RecordBatch]:
        """The live rows in a range of keys, in key order, as batches of `ROWS`; the large values only if `fetch`.

        Raises Corruption.
        """
        rows = self.newest_in(keys)
        yield from shown(self.plan, rows.filter(pc.is_valid(rows.column("value"))), fetch=fetch)


def shown(
    plan: AnyPlan, rows: pa.Table, *, fetch: bool = True, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Rows of `RUN` that are live at the plan's version as batches of `ROWS`, with their large values if `fetch`.

    Raises Corruption.
    """
    values = LargeValues(plan)
    for batch in bounded(rows, batch_rows):
        content = batch.column("value")
        if fetch:
            at = pa.repeat(plan.version, batch.num_rows)  # that of a row may be compacted away
            content = values.fill(content, batch.column("large"), batch.column("key"), at)
        columns = [batch.column("key"), content.cast(pa.binary()), batch.column("version")]
        yield pa.record_batch(columns, schema=ROWS)


def once(file: Path, write: Callable[[Path], None], *, wait: bool) -> None:
    """Have a run written unless it is there, by one process. If another one is at it: `wait`, or leave it to that."""
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


def made_bytes(plan: AnyPlan) -> int:
    """How many bytes of the log have been made into runs."""
    made = {run.stem for run in folder_of(plan).glob(f"runs-*/*{SUFFIX}")}
    bounds = [tuple(map(int, name.split("-"))) for name in made]
    return sum(part.size for part in plan.parts if any(first <= part.first < end for first, end in bounds))


def fold(plan: AnyPlan, stretch: Stretch, keys: KeyRange, newer_than: int) -> pa.Table:
    """The newest version not after the plan's of each key that the stretch speaks of, in key order.

    Versions up to `newer_than` may be missing. Raises Corruption.
    """
    some: list[pa.Table] = []
    count = limit = 0
    for part in stretch.parts:
        for batch in decoded(plan, part, keys, copies=True, after=newer_than):
            some.append(pa.Table.from_batches([batch.select(RUN.names)]))
            count += batch.num_rows
            if count > limit + _REDUCE_ROWS:
                some = [newest(some)]
                count = limit = some[0].num_rows
    return newest(some)


def newest(tables: Iterable[pa.Table]) -> pa.Table:
    """The newest version of each key in tables of `RUN`, in key order; of copies of one version the last.

    In each table the versions of a key follow each other, and those in the next one are newer, but for copies.
    """
    rows = pa.concat_tables([RUN.empty_table(), *tables]).combine_chunks()
    versions, gsns = rows.column("version").to_numpy(), rows.column("gsn").to_numpy()
    if (versions != gsns).any():  # copies: a key's versions do not follow each other as they were written
        rows = rows.take(pa.array(np.lexsort((gsns, versions))))
    return rows.take(pa.array(last_of_each(rows.column("key").combine_chunks())))


def write_run(table: pa.Table, file: Path) -> None:
    """Write a run, which appears whole."""
    staging = file.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with pa.OSFile(str(staging), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    with staging.open("r+b") as content:
        content.write(_ENDING.pack(_MAGIC, _checksum(content, staging.stat().st_size)))
    os.replace(staging, file)


def read_run(file: Path) -> pa.Table:
    """The rows of a run, mapped from its file. Raises Corruption."""
    if not is_whole(file):
        raise Corruption(file, None, "it does not match its checksum")
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source.read_buffer(source.size() - _ENDING.size)).read_all()


_ENDING: Final = struct.Struct("<4sI")
_MAGIC: Final = b"run1"
_CHECKED_BYTES: Final = 4 << 20
_whole: Final = set[tuple[int, ...]]()
"""The files whose checksum this process has compared."""


def is_whole(file: Path) -> bool:
    """Whether a run is there and matches its checksum."""
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


def sliced(run: pa.Table, keys: KeyRange) -> pa.Table:
    """The rows of a sorted run in a range of keys."""
    column, count = run.column("key"), run.num_rows
    start = bisect_left(range(count), keys.low, key=lambda at: column[at].as_py())
    end = count
    if keys.high is not None:
        end = bisect_left(range(count), keys.high, start, key=lambda at: column[at].as_py())
    return run.slice(start, end - start)


def bounded(rows: pa.Table, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Rows of `RUN` in batches that a Spark task can hold once the large values are fetched."""
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
    """How large each value is once it is fetched."""
    sizes: Numbers = (
        pc.fill_null(pc.binary_length(rows.column("value")), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    large = rows.column("large").to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(large).tolist():
        sizes[at] = int.from_bytes(rows.column("value")[at].as_py()[12:20], "little")
    return sizes
