"""Stretches of the log as Arrow columns: what the records of a segment say about keys, without an object for each.

Three steps for some tens of thousands of frames at a time, none of which costs Python anything for each of them. They
are checked together (`frames`, `checksums`). Where keys and values stand is found (`places`). Then one Arrow array is
laid over the file, of which every key and every value is an element, and `take` copies those out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logdb.embedded.plan import Part, Plan
from logdb.errors import Corruption
from logdb.log.segments.format import read_frame as read_one
from logdb.store.records import DELETED, PLACE, PLACED, Place, digest
from spark_export import scratch
from spark_export.checksums import Numbers
from spark_export.frames import Opened, checked
from spark_export.places import Places, Records
from spark_export.remote import Large, RemotePlan

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

AnyPlan = Plan | RemotePlan
Labels = dict[int, str]
"""By version, of those commits that have one."""


def folder_of(plan: AnyPlan) -> Path:
    """Where tasks leave what they have made of a plan."""
    return Path(plan.folder) if isinstance(plan, RemotePlan) else scratch.folder_of(plan)


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


def decoded(
    plan: AnyPlan, part: Part, keys: KeyRange, *, copies: bool, after: int = -1, labels: Labels | None = None
) -> Iterator[pa.RecordBatch]:
    """What the records of a part say about `keys` up to the plan's version, as batches of `ITEMS`.

    Without what aborted commits would have written, and with what a compaction has copied only if `copies`. Versions up
    to `after` are not wanted: records up to that one, which have no later ones, need not be looked at. If there is room
    for `labels` they are noted. Raises Corruption, which names the database's file; VersionTrimmed.
    """
    aborted = np.fromiter(plan.aborted(part), np.int64)
    if isinstance(plan, RemotePlan):
        for fetched, gsns, starts in plan.source().fetch(plan, part, copies=copies):
            yield from items(Records(fetched, gsns, starts), aborted, plan.version, keys, copies, labels)
        return
    file = Opened(plan, part)
    for gsns, starts in checked(file, file.offsets, after=after):
        yield from items(Records(file, gsns, starts), aborted, plan.version, keys, copies, labels)


def items(
    records: Records, aborted: Numbers, version: int, keys: KeyRange, copies: bool, labels: Labels | None
) -> Iterator[pa.RecordBatch]:
    """As `decoded`, of some records. Raises Corruption."""
    places = records.places(aborted, version, copies=copies)
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
    columns = [
        everything.take(pa.array(at)).cast(pa.binary()),
        everything.take(pa.array(at + 1, mask=places.value_bytes == DELETED)),
        pa.array(places.value_bytes == PLACED),
        pa.array(places.version),
        pa.array(records.gsns[places.record]),
        pa.array(records.times(places.record)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ITEMS)


class LargeValues:
    """Fetches values that stand in records of their own, from the plan's links or its servers."""

    def __init__(self, plan: AnyPlan) -> None:
        self._plan = plan
        self._opened: dict[Part, Opened] = {}

    def fill(self, values: pa.Array, large: pa.Array, keys: pa.Array, versions: pa.Array) -> pa.Array:
        """The values, with those that are `large` in place of where they stand; each is what its key held at its
        version. Raises Corruption, VersionTrimmed."""
        at = np.flatnonzero(large.to_numpy(zero_copy_only=False))
        if not len(at):
            return values
        everything = values.to_pylist()
        places = [Place(*PLACE.unpack(everything[index])) for index in at]
        if isinstance(self._plan, RemotePlan):
            of = zip(places, keys.take(pa.array(at)).to_pylist(), versions.take(pa.array(at)).to_pylist(), strict=True)
            loaded = self._plan.source().values(self._plan, [Large(*one) for one in of])
        else:
            loaded = [self._load(self._plan, place) for place in places]
        for index, value in zip(at, loaded, strict=True):
            everything[index] = value
        return pa.array(everything, pa.large_binary())

    def _load(self, plan: Plan, place: Place) -> bytes:
        part = next((part for part in plan.parts if part.first <= place.gsn < part.end), plan.parts[0])
        if part not in self._opened:
            self._opened[part] = Opened(plan, part)
        file = self._opened[part]
        if not 0 <= place.gsn - part.first < len(file.offsets) - 1:
            raise Corruption(part.origin, None, f"it lacks the large value that should be record {place.gsn}")
        offset = int(file.offsets[place.gsn - part.first])
        record = read_one(file.data, offset, len(file.data), place.gsn, file.salt)
        if record is None or len(record.payload) != place.length or digest(record.payload) != place.digest:
            raise file.damaged(offset, f"record {place.gsn} is not the large value that a commit placed there")
        return record.payload
