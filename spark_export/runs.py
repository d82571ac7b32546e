"""From log segments to the rows of a snapshot: sorted runs, merged by key range.

The newest version of a key may stand in any segment, so a task that reads one segment cannot tell which of its rows
are live. Two steps make the answer exact with every byte of the log read once:

1. *Runs.* Each segment is walked, every frame checked, and reduced to the newest version of each of its keys, deleted
   ones included; that goes into a file beside the links of the plan, sorted by key.
2. *Merge.* The keys are divided into as many ranges as there are tasks. A task takes its range out of every run, keeps
   the newest version of each key, drops the deleted, and fetches large values. What it yields is in key order.

Every task does its share of step 1 before step 2: it makes the runs that are missing and that no other task is making.
A lock held by a process (flock) says who is making which; if that process dies, the lock is gone and the next task
makes the run. So nobody waits for a task that has not been started, and it does not matter how many run at a time, or
on how many machines that share the file system: without working locks a run is made twice, and is the same.

A run is a file of Arrow IPC; a second action on the same DataFrame finds the runs made.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import mmap
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.embedded.plan import Part, Plan
from logdb.errors import Corruption
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES, LogRecord, read_frame, salt_of, store_header
from logdb.store.records import (
    COMMIT,
    RELOCATION,
    VALUE,
    MalformedRecord,
    Place,
    Value,
    decode_commit,
    decode_relocation,
    digest,
)

T = TypeVar("T")
BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 32 << 20
ROWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("version", pa.int64())])
_RUN: Final = pa.schema(
    [
        ("key", pa.large_binary()),
        ("version", pa.int64()),
        ("gsn", pa.int64()),  # of the record that holds this copy of the version
        ("value", pa.large_binary()),  # null where the key was deleted; the packed place of a large value
        ("large", pa.bool_()),
    ]
)
_SUFFIX: Final = ".arrow"
_PLACE: Final = Struct("<QIQ16s")
_VALUES: Final = b"values"
"""Metadata of a run: GSNs of the VALUE records in the segment, then as many offsets, as unsigned 64-bit integers."""

Newest = dict[bytes, tuple[int, int, Value]]
"""Key -> (version, GSN of the record, value)."""


class Runs:
    """The runs of a plan, of the keys with a prefix. Cheap to make and to pickle."""

    def __init__(self, plan: Plan, prefix: bytes) -> None:
        self.plan, self.prefix = plan, prefix
        self._folder = Path(plan.folder) / f"runs-{hashlib.blake2b(prefix, digest_size=8).hexdigest()}"

    # ---- step 1

    def make(self, begin_with: int) -> None:
        """Return when every run is there: make what nobody makes, then wait for the rest. Raises Corruption."""
        self._folder.mkdir(exist_ok=True)
        parts = self.plan.parts[begin_with:] + self.plan.parts[:begin_with]
        for wait in (False, True):
            for part in parts:
                self._make_one(part, wait=wait)

    def _make_one(self, part: Part, *, wait: bool) -> None:
        run = self._file(part)
        if run.exists():
            return
        lock = os.open(run.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                return
            if not run.exists():
                staging = run.with_suffix(f".{os.getpid()}.tmp")
                with _uncollected():
                    self._write(part, staging)
                os.replace(staging, run)
        finally:
            os.close(lock)

    def _file(self, part: Part) -> Path:
        return self._folder / f"{part.link}{_SUFFIX}"

    def _write(self, part: Part, file: Path) -> None:
        newest, values = fold(self.plan, part, self.prefix)
        keys = sorted(newest)
        versions, gsns, contents = zip(*map(newest.__getitem__, keys), strict=True) if keys else ((), (), ())
        is_large = [content.__class__ is Place for content in contents]
        if any(is_large):
            contents = tuple(_PLACE.pack(*value) if isinstance(value, Place) else value for value in contents)
        batch = pa.record_batch(
            [
                _binary(keys),
                pa.array(versions, pa.int64()),
                pa.array(gsns, pa.int64()),
                _binary(contents),
                pa.array(is_large, pa.bool_()),
            ],
            schema=_RUN.with_metadata({_VALUES: values}),
        )
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)

    # ---- step 2

    def merge(self, low: bytes | None, high: bytes | None) -> Iterator[pa.RecordBatch]:
        """The live rows with low <= key < high (None: no bound), in key order, as batches of `ROWS`.

        Raises Corruption.
        """
        runs = [self._read(part) for part in self.plan.parts]
        slices = [_slice(run, low, high).replace_schema_metadata() for run in runs]
        rows = pa.Table.from_batches(slices, _RUN).combine_chunks()
        live = _live(rows)
        values = _LargeValues(self.plan, [run.schema.metadata[_VALUES] for run in runs])
        for at in range(0, len(live), BATCH_ROWS):
            yield from _batches(rows.take(live.slice(at, BATCH_ROWS)), values)

    def _read(self, part: Part) -> pa.RecordBatch:
        with pa.memory_map(str(self._file(part))) as source:
            return pa.ipc.open_file(source).get_batch(0)


def made_bytes(plan: Plan) -> int:
    """How many bytes of the log have been made into runs."""
    sizes = {f"{part.link}{_SUFFIX}": part.size for part in plan.parts}
    return sum(sizes[run.name] for run in Path(plan.folder).glob(f"runs-*/*{_SUFFIX}"))


def fold(plan: Plan, part: Part, prefix: bytes) -> tuple[Newest, bytes]:
    """The newest version not after the plan's of each key that the part speaks of, and its table of large values.

    Raises Corruption.
    """
    version, aborted = plan.version, plan.aborted(part)
    newest: Newest = {}
    value_gsns, value_offsets = array("Q"), array("Q")
    for offset, record in frames(plan, part):
        gsn, tag = record.lsn, record.tag
        if tag == COMMIT:
            # A commit is newer than everything before it in the log, copies of older versions included.
            if gsn <= version and gsn not in aborted:
                writes = _decoded(part, offset, record, decode_commit).writes
                for key, value in writes.items():
                    if key.startswith(prefix):
                        newest[key] = (gsn, gsn, value)
        elif tag == VALUE:
            value_gsns.append(gsn)
            value_offsets.append(offset)
        elif tag == RELOCATION:
            for key, written, value in _decoded(part, offset, record, decode_relocation):
                if written <= version and key.startswith(prefix):
                    known = newest.get(key)
                    if known is None or known[0] <= written:
                        newest[key] = (written, gsn, value)
    return newest, value_gsns.tobytes() + value_offsets.tobytes()


def frames(plan: Plan, part: Part) -> Iterator[tuple[int, LogRecord]]:
    """(offset, record) of all records of a part, each checked. Raises Corruption, which names the database's file."""
    data = mapped(plan, part)
    if data[:STORE_HEADER_BYTES] != store_header(part.first, plan.log_id):
        raise Corruption(part.origin, 0, "the header is not the one of this segment")
    offset, limit, salt = STORE_HEADER_BYTES, len(data), salt_of(plan.log_id)
    for gsn in range(part.first, part.end):
        record = read_frame(data, offset, limit, gsn, salt)
        if record is None:
            raise Corruption(part.origin, offset, f"record {gsn} does not match its checksum")
        yield offset, record
        offset += FRAME_BYTES + len(record.payload)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without cyclic garbage collection, which would look through a million new tuples again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _binary(items: Sequence[bytes | None]) -> pa.Array:
    """`pa.array` of bytes, in a fraction of its time."""
    present = [item for item in items if item is not None]
    if len(present) < len(items):
        return pa.array(items, pa.large_binary())
    offsets = np.zeros(len(items) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=offsets[1:])
    data = b"".join(present)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(items), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _decoded(part: Part, offset: int, record: LogRecord, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(record.payload)
    except MalformedRecord as error:
        raise Corruption(part.origin, offset, f"record {record.lsn} cannot be decoded ({error})") from error


def _slice(run: pa.RecordBatch, low: bytes | None, high: bytes | None) -> pa.RecordBatch:
    keys, count = run.column("key"), run.num_rows
    start = 0 if low is None else bisect_left(range(count), low, key=lambda at: keys[at].as_py())
    end = count if high is None else bisect_left(range(count), high, start, key=lambda at: keys[at].as_py())
    return run.slice(start, end - start)


def _live(rows: pa.Table) -> pa.Array:
    """The positions, in key order, of the newest version of each key that is not deleted."""
    if rows.column("key").num_chunks == 0:
        return pa.array([], pa.uint64())
    order = pc.sort_indices(rows, [("key", "ascending"), ("version", "descending"), ("gsn", "descending")])
    keys = rows.column("key").take(order)
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy()
    newest = order.filter(pa.array(is_first))
    return newest.filter(pc.is_valid(rows.column("value")).combine_chunks().take(newest))


def _batches(rows: pa.Table, values: _LargeValues) -> Iterator[pa.RecordBatch]:
    """Rows of the output schema, in batches that a Spark task can hold."""
    large = rows.column("large")
    if not pc.any(large).as_py():
        yield _batch(rows, rows.column("value").combine_chunks())
        return
    start = size = 0
    content: list[bytes] = []
    for at, (value, is_large) in enumerate(zip(rows.column("value").to_pylist(), large.to_pylist(), strict=True)):
        content.append(values.load(Place(*_PLACE.unpack(value))) if is_large else value)
        size += len(content[-1])
        if size >= BATCH_BYTES:
            yield _batch(rows.slice(start, len(content)), pa.array(content, pa.binary()))
            start, size, content = at + 1, 0, []
    if content:
        yield _batch(rows.slice(start), pa.array(content, pa.binary()))


def _batch(rows: pa.Table, content: pa.Array) -> pa.RecordBatch:
    key = rows.column("key").cast(pa.binary()).combine_chunks()
    version = rows.column("version").combine_chunks()
    return pa.record_batch([key, content.cast(pa.binary()), version], schema=ROWS)


class _LargeValues:
    """Fetches large values from the plan's links. `tables`: of each part, where its VALUE records stand."""

    def __init__(self, plan: Plan, tables: Sequence[bytes]) -> None:
        self._plan, self._tables = plan, tables
        self._firsts = [part.first for part in plan.parts]
        self._opened: dict[int, tuple[dict[int, int], mmap.mmap]] = {}

    def load(self, place: Place) -> bytes:
        at = bisect_right(self._firsts, place.gsn) - 1
        part = self._plan.parts[max(at, 0)]
        offsets, data = self._open(max(at, 0))
        offset = offsets.get(place.gsn)
        if offset is None:
            raise Corruption(part.origin, None, f"it lacks the large value that should be record {place.gsn}")
        record = read_frame(data, offset, len(data), place.gsn, salt_of(self._plan.log_id))
        if record is None or len(record.payload) != place.length or digest(record.payload) != place.digest:
            raise Corruption(
                part.origin, offset, f"record {place.gsn} is not the large value that a commit placed there"
            )
        return record.payload

    def _open(self, at: int) -> tuple[dict[int, int], mmap.mmap]:
        if at not in self._opened:
            numbers = array("Q", self._tables[at])
            half = len(numbers) // 2
            offsets = dict(zip(numbers[:half], numbers[half:], strict=True))
            self._opened[at] = offsets, mapped(self._plan, self._plan.parts[at])
        return self._opened[at]


def mapped(plan: Plan, part: Part) -> mmap.mmap:
    """The part's file, through the plan's link."""
    with open(Path(plan.folder) / part.link, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
