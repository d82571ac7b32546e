"""The tasks of an export: each writes one file, a range of keys or a range of changes, and a description of it.

Executors write Parquet, so rows pass neither through the JVM nor the driver. A task writes a file under another name,
syncs and renames it, and only then writes its description into a second file. So of a killed export a file is either
whole and described or counts as missing, and the next export writes what is missing.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from logdb.errors import Corruption
from logdb.store.range_deletions import RangeIndex
from spark_export import changes
from spark_export.changes import Changes
from spark_export.columns import OutputColumns
from spark_export.decoding import EVERYTHING, KeyRange
from spark_export.manifest import File, describe, sync, unreadable
from spark_export.ordering import last_of_each
from spark_export.runs import ROWS, Runs, snapshot_rows
from spark_export.snapshot_source import SnapshotPlan
from spark_export.task_errors import task

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
"""The columns of a history's changes; the value is null where the key was deleted, the label "" where the transaction
had none."""


class Task(NamedTuple):
    """Write the file `name` into `folder`: the keys in `keys` of the runs' snapshot.

    `base`: the directory of an earlier export, its file of these keys at the version after which the runs begin, and
    whether that file may stay in place if nothing has changed.
    """

    name: str
    folder: str
    keys: KeyRange
    runs: Runs
    number: int
    base: tuple[str, File, bool] | None

    def run(self) -> File:
        """Write the file unless it is there. Raises Corruption."""
        return _whole(Path(self.folder), self.name) or self._write()

    def _write(self) -> File:
        with task(self.runs.plan):
            self.runs.make(begin_with=self.number)
            rows = self.runs.newest_in(self.keys)
            file = Path(self.folder, self.name)
            if self.base is None:
                rows = rows.filter(pc.is_valid(rows.column("value")))
            batches = snapshot_rows(self.runs.plan, rows, batch_rows=GROUP_ROWS)
            if self.base is not None:
                directory, expected, may_stay = self.base
                old, deleted = _checked(Path(directory), expected), self.runs.deleted()
                if not rows.num_rows and not deleted.last and may_stay:
                    return expected
                if not rows.num_rows and not deleted.last:
                    _link(old, file)
                    return _described(file, expected._replace(name=self.name))
                batches = _merged(old, batches, deleted)
            _write_rows(file, ROWS, batches)
            return _described(file, describe(file, self.keys))


class HistoryTask(NamedTuple):
    """Write the file `name` into `folder`: the changes in the range `number` of the log."""

    name: str
    folder: str
    changes: Changes
    number: int

    def run(self) -> File:
        """Write the file unless it is there. Raises Corruption."""
        return _whole(Path(self.folder), self.name) or self._write()

    def _write(self) -> File:
        with task(self.changes.plan):
            file = Path(self.folder, self.name)
            _write_rows(file, HISTORY, self.changes.read(self.number))
            return _described(file, describe(file, EVERYTHING, changes=True))


def history(plan: SnapshotPlan, keys: KeyRange, since: int, partition_bytes: int) -> Changes:
    """The changes after `since` with the columns of `HISTORY`."""
    columns = OutputColumns(HISTORY, tuple(HISTORY.names))
    return Changes(plan, keys, since, plan.version, columns, partition_bytes)


def _checked(directory: Path, expected: File) -> Path:
    """The file of a base, compared with its manifest. Raises Corruption, Unavailable."""
    file = directory / expected.name
    try:
        found = describe(file, expected.keys)
    except FileNotFoundError:
        raise Corruption(file, None, "the manifest of the base lists it, but it is missing") from None
    except (OSError, ValueError) as error:
        raise unreadable(file, error, "the base of the export") from error
    if found != expected:
        raise Corruption(file, None, "it is not the file that the manifest of the base describes")
    return file


def _merged(base: Path, changed: Iterable[pa.RecordBatch], deleted: RangeIndex) -> Iterator[pa.RecordBatch]:
    """Merge changed rows into those of the base, in key order, without deleted keys. `deleted`: the range deletes since
    the base."""
    old = pq.read_table(base, schema=ROWS, use_threads=False)
    if deleted.last:
        old = old.filter(pa.array([not deleted.newest(key) for key in old.column("key").to_pylist()], pa.bool_()))
    rows = pa.concat_tables([old, pa.Table.from_batches(changed, ROWS)])
    newest = last_of_each(rows.column("key").combine_chunks())
    for at in range(0, len(newest), GROUP_ROWS):
        some = rows.take(pa.array(newest[at : at + GROUP_ROWS]))
        yield from some.filter(pc.is_valid(some.column("value"))).to_batches()


def _write_rows(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    staging = file.with_suffix(f".{secrets.token_hex(8)}.tmp")
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


def _link(base: Path, file: Path) -> None:
    """Use the file of the base, in which nothing has changed."""
    file.unlink(missing_ok=True)
    try:
        os.link(base, file)
    except OSError:  # on another file system
        staging = file.with_suffix(f".{secrets.token_hex(8)}.tmp")
        shutil.copyfile(base, staging)
        sync(staging)
        os.replace(staging, file)


def _described(file: Path, description: File) -> File:
    note = _note(file.parent, file.name)
    staging = note.with_suffix(f".{secrets.token_hex(8)}.tmp")
    staging.write_text(json.dumps(description))
    os.replace(staging, note)
    return description


def _whole(folder: Path, name: str) -> File | None:
    """The description of a file that an interrupted export has finished; None if there is none. Raises OSError."""
    note = _note(folder, name)
    try:
        found = File.of(dict(zip(File._fields, json.loads(note.read_bytes()), strict=True)))
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return None
    return found if found.name == name and (folder / name).is_file() else None


def _note(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"
