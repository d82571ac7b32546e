"""Stretches of the log as Arrow columns: what the records of a segment say about keys, without an object for each.

Three steps for some tens of thousands of frames at a time. Every frame is walked and its checksum compared, which is
the one thing that Python does for each. What a put writes, one small value, stands at fixed places of its record, so
NumPy finds it for all of them together; only what transactions of several keys and copies of a compaction say is looked
for one by one. Then one Arrow array is laid over the file, of which every key and every value is an element, and `take`
copies those out.

`logdb.store.records` is the grammar.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value as crc32c

from logdb.embedded.plan import Part, Plan
from logdb.errors import Corruption
from logdb.log.segments.format import (
    BODY_AT,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    LOW_HALF,
    STORE_HEADER_BYTES,
    salt_of,
    store_header,
)
from logdb.log.segments.format import read_frame as read_one
from logdb.store.records import (
    COMMIT,
    COMMIT_HEAD,
    COMMIT_MORE,
    DELETED,
    FORMAT,
    HAS_READS,
    ITEM,
    PLACE,
    PLACED,
    RELOCATION,
    RELOCATION_HEAD,
    RELOCATION_VERSION,
    MalformedRecord,
    Place,
    digest,
)

FRAMES: Final = 65_536
CHUNK_BYTES: Final = 32 << 20
"""So many frames, or a frame more than so many bytes, are decoded together."""

ITEMS: Final = pa.schema(
    [
        ("key", pa.binary()),  # with short offsets, which grouping is several times faster with
        ("value", pa.large_binary()),  # null where the key was deleted; the packed place of a large value
        ("large", pa.bool_()),
        ("version", pa.int64()),
        ("gsn", pa.int64()),  # of the record, which is not the version where a compaction has copied it
        ("time", pa.int64()),  # of the record, ns since the epoch
    ]
)
"""One row for each key that a record speaks of, in the order of the log."""

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
_LENGTH: Final = Struct("<I")
_LENGTH_AT: Final = 8
_TIME_AT: Final = 16
_TAG_AT: Final = 24
_PUT_BYTES: Final = COMMIT_HEAD.size + ITEM.size


class KeyRange(NamedTuple):
    """The keys from `low` to before `high` (None: no bound)."""

    low: bytes = b""
    high: bytes | None = None

    def within(self, low: bytes, high: bytes | None) -> KeyRange:
        """What this and another range have in common."""
        highs = [bound for bound in (self.high, high) if bound is not None]
        return KeyRange(max(self.low, low), min(highs) if highs else None)

    def mask(self, keys: pa.Array) -> pa.Array | None:
        """Which keys are in the range; None: all."""
        mask = None
        for bound, compare in ((self.low or None, pc.greater_equal), (self.high, pc.less)):
            if bound is not None:
                inside = compare(keys, pa.scalar(bound, keys.type))
                mask = inside if mask is None else pc.and_(mask, inside)
        return mask


EVERYTHING: Final = KeyRange()


class Frames(Protocol):
    """Bytes in which there are frames, and the error for damage at an offset."""

    @property
    def data(self) -> mmap.mmap | bytes: ...

    def damaged(self, offset: int, what: str) -> Corruption: ...


class Opened:
    """A part's file, through the plan's link. Raises Corruption if it is not what the plan says."""

    def __init__(self, plan: Plan, part: Part) -> None:
        self.part, self.salt = part, salt_of(plan.log_id)
        with open(Path(plan.folder) / part.link, "rb") as file:
            try:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError:
                raise Corruption(part.origin, 0, "the file is empty") from None
        if self.data[:STORE_HEADER_BYTES] != store_header(part.first, plan.log_id):
            raise Corruption(part.origin, 0, "the header is not the one of this segment")

    def damaged(self, offset: int, what: str) -> Corruption:
        """The error for damage at `offset`."""
        return Corruption(self.part.origin, offset, what)


def decoded(plan: Plan, part: Part, keys: KeyRange, *, copies: bool) -> Iterator[pa.RecordBatch]:
    """What the records of a part say about `keys` up to the plan's version, as batches of `ITEMS`.

    Without what aborted commits would have written, and with what a compaction has copied only if `copies`. Raises
    Corruption, which names the database's file.
    """
    file = Opened(plan, part)
    aborted = np.fromiter(plan.aborted(part), np.int64)
    for gsn, offsets, crcs in _walked(file):
        _check(file, gsn, offsets, crcs)
        gsns = np.arange(gsn, gsn + len(crcs), dtype=np.int64)
        yield from items(file, gsns, offsets[:-1], aborted, plan.version, keys, copies=copies)


def items(
    file: Frames, gsns: Numbers, starts: Numbers, aborted: Numbers, version: int, keys: KeyRange, *, copies: bool
) -> Iterator[pa.RecordBatch]:
    """As `decoded`, of the frames that begin at `starts`. Raises Corruption."""
    batch = _batch(file, _found(file, gsns, starts, aborted, version, copies=copies))
    mask = keys.mask(batch.column("key"))
    if batch.num_rows:
        yield batch if mask is None else batch.filter(mask)


def _walked(file: Opened) -> Iterator[tuple[int, Numbers, Numbers]]:
    """(first GSN, offsets of so many frames and of their end, the checksums of what they hold) of stretches.

    Where a frame would end behind the file, its checksum is told to be wrong.
    """
    data, limit, unpack = file.data, len(file.data), _LENGTH.unpack_from
    at, gsn, end = STORE_HEADER_BYTES, file.part.first, file.part.end
    while gsn < end:
        offsets = array("q")
        note, stop = offsets.append, at + CHUNK_BYTES
        for _ in range(min(FRAMES, end - gsn)):
            note(at)
            at = at + FRAME_BYTES + unpack(data, at + _LENGTH_AT)[0] if at + FRAME_BYTES <= limit else limit + 1
            if at > stop or at > limit:
                break
        note(at)
        bodies = map(slice, map(BODY_AT.__add__, offsets), offsets[1:])
        crcs = array("q", map(crc32c, map(data.__getitem__, bodies)))
        if at > limit:
            crcs[-1] = -1
        yield gsn, np.array(offsets, np.int64), np.array(crcs, np.int64)
        if at > limit:
            return
        gsn += len(crcs)


def _check(file: Opened, gsn: int, offsets: Numbers, crcs: Numbers) -> None:
    raw = np.frombuffer(file.data, np.uint8)
    starts, count = offsets[:-1], len(crcs)
    if crcs[-1] == -1:
        starts, count = starts[:-1], count - 1
    heads = raw[starts[:, None] + np.arange(_LENGTH_AT)]
    is_right = (heads[:, :4] == np.frombuffer(FRAME_MAGIC, np.uint8)).all(axis=1)
    numbers = np.arange(gsn, gsn + count, dtype=np.int64) & LOW_HALF
    is_right &= crcs[:count] ^ numbers ^ file.salt == heads[:, 4:].copy().view("<u4")[:, 0]
    wrong = np.flatnonzero(~is_right)
    if len(wrong) or count < len(crcs):
        at = int(wrong[0]) if len(wrong) else count
        raise file.damaged(int(offsets[at]), f"record {gsn + at} does not match its checksum")


class _Found(NamedTuple):
    """Where keys and values stand in the file, in its order. `live`: there is a value; `large`: it is a place."""

    key_at: Numbers
    value_at: Numbers
    value_end: Numbers
    large: npt.NDArray[np.bool_]
    live: npt.NDArray[np.bool_]
    version: Numbers
    gsn: Numbers
    time: Numbers


def _found(file: Frames, gsns: Numbers, starts: Numbers, aborted: Numbers, version: int, *, copies: bool) -> _Found:
    raw = np.frombuffer(file.data, np.uint8)
    tags = raw[starts + _TAG_AT]
    commits = np.flatnonzero((tags == COMMIT) & (gsns <= version) & ~np.isin(gsns, aborted))
    at = starts[commits] + FRAME_BYTES
    payload_bytes = _integers(raw, starts[commits] + _LENGTH_AT, "<u4")
    ends = at + payload_bytes
    is_put = payload_bytes >= _PUT_BYTES
    is_put &= (_bytes(raw, at, 0, ends) == FORMAT) & (_bytes(raw, at, 1, ends) == 0)
    is_put[is_put] = _integers(raw, at[is_put] + COMMIT_HEAD.size - 4, "<u4") == 1

    put_at, put_end = at[is_put] + COMMIT_HEAD.size, ends[is_put]
    value_at = put_at + ITEM.size + _integers(raw, put_at, "<u2")
    value_bytes = _integers(raw, put_at + 2, "<u4")
    size = np.where(value_bytes == DELETED, 0, np.where(value_bytes == PLACED, PLACE.size, value_bytes))
    _refuse(file, gsns, starts, commits[is_put], value_at + size != put_end)
    put_gsns = gsns[commits[is_put]]
    puts = (put_at + ITEM.size, value_at, value_at + size, value_bytes, put_gsns, put_gsns)

    walked = _Walked(file.data)
    for index in commits[~is_put].tolist():
        walked.record(file, gsns, starts, index, walked.commit)
    if copies:
        for index in np.flatnonzero(tags == RELOCATION).tolist():
            walked.record(file, gsns, starts, index, walked.relocation)
    key_at, value_at, value_end, value_bytes, versions, of = walked.in_order_with(puts, version)
    times = _integers(raw, starts[np.searchsorted(gsns, of)] + _TIME_AT, "<i8")
    return _Found(key_at, value_at, value_end, value_bytes == PLACED, value_bytes != DELETED, versions, of, times)


class _Walked:
    """What records say whose items have no fixed places, found one by one."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self._columns = tuple(array("q") for _ in range(6))

    def record(
        self, file: Frames, gsns: Numbers, starts: Numbers, index: int, walk: Callable[[int, int, int], None]
    ) -> None:
        """Walk through the record `index`. Raises Corruption."""
        start, gsn = int(starts[index]), int(gsns[index])
        at = start + FRAME_BYTES
        try:
            walk(at, at + FRAME.unpack_from(self._data, start)[2], gsn)
        except (MalformedRecord, struct.error) as error:
            raise file.damaged(start, f"record {gsn} cannot be decoded ({error})") from error

    def commit(self, at: int, end: int, gsn: int) -> None:
        """A transaction."""
        form, flags, _, _, count = COMMIT_HEAD.unpack_from(self._data, at)
        if form != FORMAT or flags & ~HAS_READS:
            raise MalformedRecord(f"commit record of format {form} with flags {flags}")
        at += COMMIT_HEAD.size
        if flags:
            at += COMMIT_MORE.size + COMMIT_MORE.unpack_from(self._data, at)[1]
        for _ in range(count):
            at = self._item(at, end, gsn, gsn)
        if not flags and at != end:
            raise MalformedRecord(f"{end - at} bytes after the end of the record")

    def relocation(self, at: int, end: int, gsn: int) -> None:
        """Copies that a compaction has made."""
        form, count = RELOCATION_HEAD.unpack_from(self._data, at)
        if form != FORMAT:
            raise MalformedRecord(f"relocation record of format {form}")
        at += RELOCATION_HEAD.size
        for _ in range(count):
            (version,) = RELOCATION_VERSION.unpack_from(self._data, at)
            at = self._item(at + RELOCATION_VERSION.size, end, version, gsn)
        if at != end:
            raise MalformedRecord(f"{end - at} bytes after the end of the record")

    def _item(self, at: int, end: int, version: int, gsn: int) -> int:
        key_bytes, value_bytes = ITEM.unpack_from(self._data, at)
        at += ITEM.size
        value_at = at + key_bytes
        value_end = value_at + (0 if value_bytes == DELETED else PLACE.size if value_bytes == PLACED else value_bytes)
        if value_end > end:
            raise MalformedRecord(f"an item ends {value_end - end} bytes after the record")
        for column, number in zip(self._columns, (at, value_at, value_end, value_bytes, version, gsn), strict=True):
            column.append(number)
        return int(value_end)

    def in_order_with(self, puts: tuple[Numbers, ...], version: int) -> tuple[Numbers, ...]:
        """(key_at, value_at, value_end, value_bytes, version, gsn) of all items up to a version and of `puts`."""
        mine = [np.array(column, np.int64) for column in self._columns]
        if not len(mine[0]):
            return puts
        wanted = mine[4] <= version
        columns = [np.concatenate([put, column[wanted]]) for put, column in zip(puts, mine, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return tuple(column[order] for column in columns)


def _refuse(file: Frames, gsns: Numbers, starts: Numbers, records: Numbers, is_wrong: npt.NDArray[np.bool_]) -> None:
    if is_wrong.any():
        index = int(records[np.flatnonzero(is_wrong)[0]])
        raise file.damaged(int(starts[index]), f"record {gsns[index]} cannot be decoded (its item does not fill it)")


def _integers(raw: Bytes, at: Numbers, kind: str) -> Numbers:
    """The integers that stand at these places."""
    size = np.dtype(kind).itemsize
    return np.ascontiguousarray(raw[at[:, None] + np.arange(size)]).view(kind)[:, 0].astype(np.int64)


def _bytes(raw: Bytes, at: Numbers, offset: int, ends: Numbers) -> Bytes:
    """The bytes `offset` after these places; where a record ends before, any."""
    return raw[np.minimum(at + offset, ends - 1)]


def _batch(file: Frames, found: _Found) -> pa.RecordBatch:
    count = len(found.key_at)
    if not count:
        return pa.RecordBatch.from_pylist([], ITEMS)
    base = int(found.key_at[0])
    bounds = np.empty(3 * count + 1, np.int64)
    bounds[0:-1:3], bounds[1::3], bounds[2::3] = found.key_at, found.value_at, found.value_end
    bounds[-1] = found.value_end[-1]
    content = pa.py_buffer(file.data).slice(base)
    everything = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 3 * count, [None, pa.py_buffer(bounds - base), content]
    )
    places = np.arange(0, 3 * count, 3)
    columns = [
        everything.take(pa.array(places)).cast(pa.binary()),
        everything.take(pa.array(places + 1, mask=~found.live)),
        pa.array(found.large),
        pa.array(found.version),
        pa.array(found.gsn),
        pa.array(found.time),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ITEMS)


class LargeValues:
    """Fetches values that stand in records of their own, from the plan's links."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opened: dict[Part, tuple[Opened, dict[int, int]]] = {}

    def fill(self, values: pa.Array, large: pa.Array) -> pa.Array:
        """The values, with those that are `large` in place of where they stand."""
        if not pc.any(large).as_py():
            return values
        rows = zip(values.to_pylist(), large.to_pylist(), strict=True)
        return pa.array([self.load(value) if is_large else value for value, is_large in rows], pa.large_binary())

    def load(self, packed: bytes) -> bytes:
        """The value at a packed place. Raises Corruption."""
        place = Place(*PLACE.unpack(packed))
        part = next((part for part in self._plan.parts if part.first <= place.gsn < part.end), self._plan.parts[0])
        file, offsets = self._open(part)
        offset = offsets.get(place.gsn)
        if offset is None:
            raise Corruption(part.origin, None, f"it lacks the large value that should be record {place.gsn}")
        record = read_one(file.data, offset, len(file.data), place.gsn, file.salt)
        if record is None or len(record.payload) != place.length or digest(record.payload) != place.digest:
            raise file.damaged(offset, f"record {place.gsn} is not the large value that a commit placed there")
        return record.payload

    def _open(self, part: Part) -> tuple[Opened, dict[int, int]]:
        if part not in self._opened:
            file, unpack = Opened(self._plan, part), _LENGTH.unpack_from
            offsets, at = {}, STORE_HEADER_BYTES
            for gsn in range(part.first, part.end):
                if at + FRAME_BYTES > len(file.data):
                    break
                offsets[gsn] = at
                at += FRAME_BYTES + unpack(file.data, at + _LENGTH_AT)[0]
            self._opened[part] = file, offsets
        return self._opened[part]
