"""Decodes parts of the log into Arrow columns, without a Python object per record.

Tens of thousands of frames go through three steps together. Their checksums are verified (`frames`, `checksums`). Their
keys and values are located (`places`). Then one Arrow array is mapped over the file, with every key and every value as
an element, and `take` copies those out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.embedded.snapshot_plan import SegmentPart
from logdb.store.records import APPENDED_BYTES, DELETED, PLACED, VERSION_BYTES, Place
from spark_export.checksums import Numbers
from spark_export.places import Places, RangeDeletion, Records
from spark_export.snapshot_source import LargeValue, LargeValues, SnapshotPlan

ITEMS: Final = pa.schema(
    [
        ("key", pa.binary()),  # with short offsets, which grouping is several times faster with
        ("value", pa.large_binary()),  # null where the key was deleted; the packed location of a large value
        ("large", pa.bool_()),
        ("version", pa.int64()),
        ("gsn", pa.int64()),  # of the record, which is not the version where a compaction has copied it
        ("time", pa.int64()),  # of the record, ns since the epoch
    ]
)
"""One row for each key in a record, in the order of the log."""

Labels = dict[int, str]
"""The labels of commits by version, of those that have one."""


class KeyRange(NamedTuple):
    """The keys from `low` to before `high` (None: no bound)."""

    low: bytes = b""
    high: bytes | None = None

    def within(self, low: bytes, high: bytes | None) -> KeyRange:
        """The intersection with another range."""
        highs = [bound for bound in (self.high, high) if bound is not None]
        return KeyRange(max(self.low, low), min(highs) if highs else None)

    def mask(self, keys: pa.Array) -> pa.Array | None:
        """A mask of the keys that are in the range; None: all are."""
        mask = None
        for bound, compare in ((self.low or None, pc.greater_equal), (self.high, pc.less)):
            if bound is not None:
                inside = compare(keys, pa.scalar(bound, keys.type))
                mask = inside if mask is None else pc.and_(mask, inside)
        return mask


EVERYTHING: Final = KeyRange()


def decoded(
    plan: SnapshotPlan,
    part: SegmentPart,
    keys: KeyRange,
    *,
    copies: bool,
    after: int = -1,
    labels: Labels | None = None,
    deletions: list[RangeDeletion] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode what the records of a part say about `keys` up to the plan's version, as batches of `ITEMS`.

    Aborted commits are left out, and so is what compaction has copied unless `copies`. The caller needs no versions up
    to `after`, and records up to that GSN have no later ones, so they are skipped where possible. `labels`, if given,
    receives those of the commits, and `deletions` the range deletes. Raises Corruption, which names the database's
    file, VersionTrimmed, Unavailable.
    """
    first, end = max(part.first, after + 1), part.end if copies else min(part.end, plan.version + 1)
    if first >= end:
        return
    source = plan.source
    aborted = np.fromiter(source.aborted(plan, part, first, end), np.int64)
    for records in source.records(plan, part, first, end, copies=copies):
        yield from items(records, aborted, plan.version, keys, copies, labels, deletions)


def items(
    records: Records,
    aborted: Numbers,
    version: int,
    keys: KeyRange,
    copies: bool,
    labels: Labels | None,
    deletions: list[RangeDeletion] | None,
) -> Iterator[pa.RecordBatch]:
    """Decode some records, as `decoded` does. Raises Corruption."""
    places = records.places(aborted, version, copies=copies)
    if deletions is not None:
        deletions += records.deletions(aborted, version, copies=copies)
    if labels is not None:
        labels.update(records.labels())
    if len(places.key_at):
        batch = _batch(records, places)
        mask = keys.mask(batch.column("key"))
        yield batch if mask is None else batch.filter(mask)


def _batch(records: Records, places: Places) -> pa.RecordBatch:
    count = len(places.key_at)
    base = int(places.key_at[0])
    bounds = np.empty(3 * count + 1, np.int64)
    bounds[0:-1:3], bounds[1::3], bounds[2::3] = places.key_at, places.value_at, places.value_end
    bounds[-1] = places.value_end[-1]
    content = pa.py_buffer(records.file.data).slice(base)
    everything = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), 3 * count, [None, pa.py_buffer(bounds - base), content]
    )
    at = np.arange(0, 3 * count, 3)
    keys = everything.take(pa.array(at)).cast(pa.binary())
    columns = [
        _with_versions(keys, places) if places.is_append.any() else keys,
        everything.take(pa.array(at + 1, mask=places.value_bytes == DELETED)),
        pa.array(places.value_bytes == PLACED),
        pa.array(places.version),
        pa.array(records.gsns[places.record]),
        pa.array(records.times(places.record)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=ITEMS)
    return _without_replaced(batch, places) if places.is_append.any() else batch


def _without_replaced(batch: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """The rows without those that an append of the same commit has replaced (`Commit.ordered_at`)."""
    is_append = places.is_append != 0
    is_plain = ~is_append & np.isin(places.record, places.record[is_append])
    if not is_plain.any():
        return batch
    plain, appends = np.flatnonzero(is_plain), np.flatnonzero(is_append)
    keys, records = batch.column("key"), places.record
    made = set(zip(records[appends].tolist(), keys.take(pa.array(appends)).to_pylist(), strict=True))
    written = zip(plain.tolist(), records[plain].tolist(), keys.take(pa.array(plain)).to_pylist(), strict=True)
    replaced = [at for at, record, key in written if (record, key) in made]
    return batch.take(pa.array(np.setdiff1d(np.arange(len(keys)), replaced))) if replaced else batch


def _with_versions(keys: pa.Array, places: Places) -> pa.Array:
    """The keys, those of appends with their versions (`records.versioned_key`)."""
    appends = np.flatnonzero(places.is_append)
    _, offsets, content = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, len(keys) + 1)[appends + 1].astype(np.int64)
    made = np.frombuffer(content, np.uint8).copy()
    versions = places.version[appends].astype(">u8").view(np.uint8).reshape(-1, VERSION_BYTES)
    made[(ends - APPENDED_BYTES)[:, None] + np.arange(VERSION_BYTES)] = versions
    return pa.Array.from_buffers(keys.type, len(keys), [None, offsets, pa.py_buffer(made)])


def filled(fetch: LargeValues, values: pa.Array, large: pa.Array, keys: pa.Array, versions: pa.Array) -> pa.Array:
    """Replace the packed locations of `large` values by the values, each that of its key at its version. Raises
    Corruption, VersionTrimmed, Unavailable."""
    at = np.flatnonzero(large.to_numpy(zero_copy_only=False))
    if not len(at):
        return values
    everything = values.to_pylist()
    places = [Place.unpack(everything[index]) for index in at]
    of = zip(places, keys.take(pa.array(at)).to_pylist(), versions.take(pa.array(at)).to_pylist(), strict=True)
    for index, value in zip(at, fetch([LargeValue(*one) for one in of]), strict=True):
        everything[index] = value
    return pa.array(everything, pa.large_binary())
