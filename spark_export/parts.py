"""The tasks of an export: each writes one file, a range of keys or a stretch of changes, and says what it has written.

The executors write Parquet themselves, so rows pass neither through the JVM nor the driver. A file is written beside
its place, synced, renamed, and only then described in a file of its own; so what a killed export has left is either
described and whole or not there, and the next one makes only what is missing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logdb.errors import Corruption
from spark_export import changes
from spark_export.changes import Changes
from spark_export.columns import Asked
from spark_export.decoding import EVERYTHING, AnyPlan, KeyRange
from spark_export.failure import task
from spark_export.manifest import File, describe, sync
from spark_export.ordering import last_of_each
from spark_export.runs import ROWS, Runs, shown

COMPRESSION: Final = "zstd"
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 64 << 20
HISTORY: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", changes.COLUMNS["_commit_timestamp"]),
        (changes.LABEL, pa.string()),
    ]
)
"""The columns of the changes of a history; the value is null where the key was deleted, the label of a transaction ""
if it had none."""


class Task(NamedTuple):
    """Write the file `name` into `folder`: the keys in `keys`, of the snapshot that the runs hold.

    `base`: the directory of an earlier export, the file there that holds these keys at the version that the runs begin
    after, and whether that file can stay what it is if nothing has changed.
    """

    name: str
    folder: str
    keys: KeyRange
    runs: Runs
    number: int
    base: tuple[str, File, bool] | None

    def run(self) -> File:
        """Write it, unless it is there. Raises Corruption."""
        return _whole(Path(self.folder), self.name) or self._write()

    def _write(self) -> File:
        with task(self.runs.plan):
            self.runs.make(begin_with=self.number)
            rows = self.runs.newest_in(self.keys)
            file = Path(self.folder, self.name)
            if self.base is None:
                rows = rows.filter(pc.is_valid(rows.column("value")))
            batches = shown(self.runs.plan, rows, batch_rows=GROUP_ROWS)
            if self.base is not None:
                directory, known, may_stay = self.base
                old = _checked(Path(directory), known)
                if not rows.num_rows and may_stay:
                    return known
                if not rows.num_rows:
                    _same(old, file)
                    return _described(file, known._replace(name=self.name))
                batches = _merged(old, batches)
            _write_rows(file, ROWS, batches)
            return _described(file, describe(file, self.keys))


class HistoryTask(NamedTuple):
    """Write the file `name` into `folder`: the changes in the stretch `number`."""

    name: str
    folder: str
    changes: Changes
    number: int

    def run(self) -> File:
        """Write it, unless it is there. Raises Corruption."""
        return _whole(Path(self.folder), self.name) or self._write()

    def _write(self) -> File:
        with task(self.changes.plan):
            file = Path(self.folder, self.name)
            _write_rows(file, HISTORY, self.changes.read(self.number))
            return _described(file, describe(file, EVERYTHING, changes=True))


def history(plan: AnyPlan, keys: KeyRange, since: int, stretch_bytes: int) -> Changes:
    """The changes after `since` with the columns of `HISTORY`."""
    columns = Asked(HISTORY, tuple(HISTORY.names))
    return Changes(plan, keys, since, plan.version, columns, stretch_bytes)


def _checked(directory: Path, known: File) -> Path:
    """The file of a base, if it is what its manifest says. Raises Corruption."""
    file = directory / known.name
    try:
        found = describe(file, known.keys)
    except (OSError, ValueError) as error:
        raise Corruption(file, None, f"the base of the export cannot be read ({error})") from error
    if found != known:
        raise Corruption(file, None, "it is not the file that the manifest of the base describes")
    return file


def _merged(base: Path, changed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the base with those that have changed in their place, in key order, without the deleted."""
    old = pq.read_table(base, schema=ROWS, use_threads=False)
    rows = pa.concat_tables([old, pa.Table.from_batches(changed, ROWS)])
    newest = last_of_each(rows.column("key").combine_chunks())
    for at in range(0, len(newest), GROUP_ROWS):
        some = rows.take(pa.array(newest[at : at + GROUP_ROWS]))
        yield from some.filter(pc.is_valid(some.column("value"))).to_batches()


def _write_rows(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    staging = file.with_suffix(f".{os.getpid()}.tmp")
    some: list[pa.RecordBatch] = []
    with pq.ParquetWriter(staging, schema, compression=COMPRESSION, use_dictionary=False) as writer:
        for batch in batches:
            some.append(batch)
            if sum(one.num_rows for one in some) >= GROUP_ROWS or sum(one.nbytes for one in some) >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(some, schema))
                some.clear()
        writer.write_table(pa.Table.from_batches(some, schema))
    sync(staging)
    os.replace(staging, file)


def _same(base: Path, file: Path) -> None:
    """Nothing has changed: the base's file is this one too."""
    file.unlink(missing_ok=True)
    try:
        os.link(base, file)
    except OSError:  # on another file system
        staging = file.with_suffix(f".{os.getpid()}.tmp")
        shutil.copyfile(base, staging)
        sync(staging)
        os.replace(staging, file)


def _described(file: Path, description: File) -> File:
    note = _note(file.parent, file.name)
    staging = note.with_suffix(f".{os.getpid()}.tmp")
    staging.write_text(json.dumps(description))
    os.replace(staging, note)
    return description


def _whole(folder: Path, name: str) -> File | None:
    """What is said of a file that an export which died has finished."""
    note = _note(folder, name)
    try:
        found = File.of(dict(zip(File._fields, json.loads(note.read_bytes()), strict=True)))
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return found if found.name == name and (folder / name).is_file() else None


def _note(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
