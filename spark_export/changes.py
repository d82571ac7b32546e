"""From log segments to the changes of a range of versions, each with what it was: an insert, an update or a delete.

A row is a key that a committed transaction wrote, in the order of the log, as `db.watch` tells it. A task takes one
stretch of the log and needs nothing else for that. But to call a write an insert, or to tell the old value, it must
know what the key held before, which may have been written in any earlier stretch. So, if that is asked for:

1. each task reduces its own stretch to the newest version of each key and leaves that as a run, for the later ones;
2. inside a stretch, what a key held before is its previous row there; for the first one it is in the nearest earlier
   run that speaks of the key, and if none does, in the snapshot at the version before the first one asked for.

That snapshot are runs too (`runs`), over the whole log before, unless the database can be asked (`asking`); for version
0 there is nothing in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_export import asking
from spark_export.checksums import Numbers
from spark_export.columns import Asked
from spark_export.decoding import ITEMS, AnyPlan, KeyRange, Labels, LargeValues, decoded, folder_of
from spark_export.remote import RemotePlan
from spark_export.runs import (
    RUN,
    STRETCH_BYTES,
    SUFFIX,
    Runs,
    Stretch,
    bounded,
    newest,
    once,
    read_run,
    stretches,
    write_run,
)

COLUMNS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "_change_type": pa.string(),
    "_commit_version": pa.int64(),
    "_commit_timestamp": pa.timestamp("us", tz="UTC"),
}
LABEL: Final = "_commit_label"
OLD_VALUE: Final = "old_value"
_TYPES: Final = pa.array(["insert", "update", "delete"])


class Changes:
    """What the commits after `since` up to `until` wrote of some keys. Cheap to make and to pickle.

    The plan must hold the log for that, and if changes are to have types, what is live at `since`. `is_held`: nobody
    compacts `since` away, so the database's map can be asked first.
    """

    def __init__(
        self,
        plan: AnyPlan,
        keys: KeyRange,
        since: int,
        until: int,
        columns: Asked,
        stretch_bytes: int = STRETCH_BYTES,
        *,
        is_held: bool = False,
    ) -> None:
        self._is_held = is_held
        self.plan, self.keys, self.since, self.columns = plan._replace(version=until), keys, since, columns
        some = [part for part in plan.parts if part.end > since + 1 and part.first <= until]
        if isinstance(plan, RemotePlan):  # what is fetched is what is needed, and still there
            some = [part._replace(first=max(part.first, since + 1), end=min(part.end, until + 1)) for part in some]
        self.stretches = stretches(some, stretch_bytes)
        self._with_types = "_change_type" in columns.plain or OLD_VALUE in columns.plain
        self._before = Runs(plan._replace(version=since), keys, stretch_bytes=stretch_bytes) if since else None
        self._with_old = OLD_VALUE in columns.plain
        self._with_labels = LABEL in columns.plain
        meant = repr((since, until, keys, self._with_old)).encode()
        self._folder = folder_of(plan) / f"changes-{hashlib.blake2b(meant, digest_size=8).hexdigest()}"

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The changes in the stretch `number`, in the order of the log, as batches of `columns`. Raises Corruption."""
        values = LargeValues(self.plan)
        labels: Labels = {}
        for rows in self._rows(number, labels if self._with_labels else None):
            for batch in bounded(rows):
                yield self.columns.batch(self._shown(batch, values, labels))

    def _rows(self, number: int, labels: Labels | None) -> Iterator[pa.Table]:
        """The changes in a stretch, some after the others; all together if they must know of each other."""
        if not self._with_types:
            yield from self._decoded(self.stretches[number], labels)
            return
        rows = self._written(self.stretches[number], labels)
        held = self._held_before(number, rows)
        kind = np.where(pc.is_null(rows.column("value")), 2, np.where(held.alive, 1, 0))
        rows = rows.append_column("kind", pa.array(kind))
        yield rows.append_column("old", held.values).append_column("old_large", held.large)

    def _shown(self, batch: pa.RecordBatch, values: LargeValues, labels: Labels) -> dict[str, pa.Array]:
        content = batch.column("value")
        if self.columns.needs_values:
            content = values.fill(content, batch.column("large"), batch.column("key"), batch.column("version"))
        shown = {
            "key": batch.column("key"),
            "value": content.cast(pa.binary()),
            "version": batch.column("version"),
            "_commit_version": batch.column("version"),
        }
        if "_commit_timestamp" in self.columns.plain:
            time_us = -(-batch.column("time").to_numpy() // 1_000)
            shown["_commit_timestamp"] = pa.array(time_us, pa.timestamp("us", tz="UTC"))
        if self._with_labels:
            shown[LABEL] = pa.array([labels.get(version, "") for version in batch.column("version").to_pylist()])
        if self._with_types:
            shown["_change_type"] = _TYPES.take(batch.column("kind"))
        if self._with_old:
            before = pc.subtract(batch.column("version"), 1)
            old = values.fill(batch.column("old"), batch.column("old_large"), batch.column("key"), before)
            shown[OLD_VALUE] = old.cast(pa.binary())
        return shown

    def _written(self, stretch: Stretch, labels: Labels | None = None) -> pa.Table:
        return pa.concat_tables([ITEMS.empty_table(), *self._decoded(stretch, labels)]).combine_chunks()

    def _decoded(self, stretch: Stretch, labels: Labels | None) -> Iterator[pa.Table]:
        for part in stretch.parts:
            for batch in decoded(self.plan, part, self.keys, copies=False, after=self.since, labels=labels):
                rows = pa.Table.from_batches([batch])
                if isinstance(self.plan, RemotePlan):
                    rows = rows.filter(pc.greater(rows.column("version"), self.since))
                yield rows

    # ---- what a key held before

    def _held_before(self, number: int, rows: pa.Table) -> _Held:
        self._leave_run(number, rows)
        codes = rows.column("key").combine_chunks().dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        previous = np.full(len(codes), -1, np.int64)
        follows = codes[order[1:]] == codes[order[:-1]]
        previous[order[1:][follows]] = order[:-1][follows]
        firsts = np.flatnonzero(previous < 0)
        earlier = self._earlier(number, rows.column("key").take(pa.array(firsts)).combine_chunks())
        previous[firsts] = len(codes) + np.arange(len(firsts))
        both = pa.concat_tables([rows.select(["value", "large"]), earlier]).take(pa.array(previous))
        return _Held(pc.is_valid(both.column("value")), both.column("value"), both.column("large"))

    def _leave_run(self, number: int, rows: pa.Table) -> None:
        """Write the run of the own stretch, then those of earlier ones that nobody has written or is writing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if number + 1 < len(self.stretches):
            once(self._file(number), lambda file: self._write(rows, file), wait=True)
        for wait in (False, True):
            for earlier in range(number):
                self._make(earlier, wait=wait)

    def _file(self, number: int) -> Path:
        return self._folder / f"{self.stretches[number].name}{SUFFIX}"

    def _make(self, number: int, *, wait: bool) -> None:
        once(self._file(number), lambda file: self._write(self._written(self.stretches[number]), file), wait=wait)

    def _write(self, rows: pa.Table, file: Path) -> None:
        if not self._with_old:  # whether there is a value is all that matters
            at, value = rows.schema.get_field_index("value"), rows.column("value")
            rows = rows.set_column(at, RUN.field("value"), pc.if_else(pc.is_valid(value), b"", value))
        write_run(newest([rows.select(RUN.names)]), file)

    def _earlier(self, number: int, keys: pa.Array) -> pa.Table:
        """(value, large) that each of the keys held before the stretch; null if it did not exist."""
        found = np.full(len(keys), -1, np.int64)
        sources = [pa.table({"value": [None], "large": [False]}, pa.schema([RUN.field("value"), RUN.field("large")]))]
        size = 1
        for number_before in reversed(range(-1, number)):
            missing = np.flatnonzero(found < 0)
            if not len(missing):
                break
            left = keys.take(pa.array(missing))
            run = read_run(self._file(number_before)) if number_before >= 0 else self._at_since(number, left)
            if run is None:
                break
            at = pc.index_in(left, value_set=run.column("key").combine_chunks())
            known = np.flatnonzero(pc.is_valid(at))
            found[missing[known]] = at.take(pa.array(known)).to_numpy() + size
            sources.append(run.select(["value", "large"]))
            size += run.num_rows
        return pa.concat_tables(sources).take(pa.array(np.maximum(found, 0)))

    def _at_since(self, number: int, keys: pa.Array) -> pa.Table | None:
        """What these keys held at `since`; None: there was nothing yet. Raises VersionTrimmed, Unavailable."""
        if self._before is None:
            return None
        where = self.plan.endpoints if isinstance(self.plan, RemotePlan) else self.plan.path
        told = asking.held(where, self.since, keys, with_values=self._with_old) if self._is_held else None
        if told is not None:
            return told
        self._before.make(number)
        return self._before.newest_of(keys)


class _Held(NamedTuple):
    """What keys held: whether they existed, their values, which of these are places."""

    alive: Numbers
    values: pa.ChunkedArray
    large: pa.ChunkedArray
