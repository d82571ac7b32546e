"""Imports an export into an empty database: the keys and values of a snapshot, or the transactions of a history.

Versions are positions in the new database's log, so they differ from the exported ones; their order, their writes and
the labels of a history do not. A history begins with a snapshot of its first version. The ids of all transactions
follow from the export (`transactions`), so an import that was interrupted continues when it is run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from logdb import Database
from logdb.errors import Corruption
from logdb.store.limits import MAX_LABEL_BYTES, MAX_TRANSACTION_BYTES
from logdb.store.records import COMMIT_HEAD, COMMIT_MORE, ITEM
from spark_export.changes import LABEL
from spark_export.manifest import MANIFEST, ExportFailed, Manifest, newest_manifest, read_manifest, verify_export
from spark_export.parts import HISTORY
from spark_export.runs import ROWS as ROWS_OF_FILES
from spark_export.transactions import NumberedTransactions

ROWS: Final = 1_000
BYTES: Final = 8 << 20
_ROWS_READ: Final = 10_000
_HEAD_BYTES: Final = COMMIT_HEAD.size + COMMIT_MORE.size + MAX_LABEL_BYTES

Writes = dict[bytes, bytes | None]


def is_export(directory: str | os.PathLike[str]) -> bool:
    """Return whether a directory has the manifest of an export."""
    try:
        read_manifest(Path(directory) / MANIFEST)
    except ExportFailed:
        return False
    return True


def import_export(
    db: Database,
    directory: str | os.PathLike[str],
    *,
    batch_rows: int = ROWS,
    label: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write the content of the export in `directory` into the empty database `db`. Returns the number of rows.

    Rows of a snapshot are written by transactions of `batch_rows`, the changes of a history by the transactions that
    they were, with their labels; those of a range delete of too many keys for one by several. `label`: for transactions
    that have none. `progress`: called with (rows written, rows in all).

    Raises ExportFailed (the database is not empty), Corruption (before anything is written), and as
    `logdb.Database.multi_put`.
    """
    path = Path(directory)
    verify_export(path)
    manifest = newest_manifest(path)
    total = sum(file.rows for file in manifest.files)
    job = f"import {manifest.database} {manifest.version} {manifest.since} {batch_rows}"
    transactions = NumberedTransactions(db, job)
    if db.version and not transactions.has_begun():
        raise ExportFailed(f"{db.path} is not empty: import the export into an empty database")
    done = 0
    for writes, its_label in _transactions(path, manifest, batch_rows):
        transactions.put(writes, its_label or label)
        done += len(writes)
        if progress is not None:
            progress(done, total)
    return done


def _transactions(path: Path, manifest: Manifest, batch_rows: int) -> Iterator[tuple[Writes, str]]:
    writes: Writes = {}
    size = 0
    for key, value, *_ in _rows(path, [file.name for file in manifest.files if not file.changes]):
        if writes and (len(writes) == batch_rows or size + len(value or b"") > BYTES):
            yield writes, ""
            writes, size = {}, 0
        writes[key] = value
        size += len(key) + len(value or b"")
    if writes:
        yield writes, ""
    changes = _rows(path, [file.name for file in manifest.files if file.changes])
    for (_, label), rows in groupby(changes, key=itemgetter(2, 3)):
        for writes in _parts(rows):
            yield writes, label


def _parts(rows: Iterable[tuple[bytes, bytes | None, int, str]]) -> Iterator[Writes]:
    """The writes of a transaction; in several parts if it deleted a range of more keys than a transaction can write."""
    writes: Writes = {}
    size = 0
    for key, value, *_ in rows:
        item = ITEM.size + len(key) + len(value or b"")
        if writes and size + item > MAX_TRANSACTION_BYTES - _HEAD_BYTES:
            yield writes
            writes, size = {}, 0
        writes[key] = value
        size += item
    yield writes


def _rows(path: Path, names: list[str]) -> Iterator[tuple[bytes, bytes | None, int, str]]:
    """(key, value, version, label)"""
    for name in names:
        with pq.ParquetFile(path / name) as file:
            if (found := file.schema_arrow) not in (ROWS_OF_FILES, HISTORY):
                raise Corruption(path / name, None, f"it is not a file of an export: its columns are {found.names}")
            for batch in file.iter_batches(_ROWS_READ):
                columns = [batch.column(at).to_pylist() for at in range(3)]
                labels = batch.column(LABEL).to_pylist() if LABEL in batch.schema.names else repeat("", batch.num_rows)
                yield from zip(*columns, labels, strict=True)
