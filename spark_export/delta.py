"""Exports as Delta tables (`pip install 'logdb[delta]'`), without a JVM of Delta's.

Each version of the table is an export of one version of the database, which it records as an application transaction
under the database's id. The file `_manifest-VERSION.json` describes the files of a version and is written before the
version is committed. The next export continues from it, replaces the files whose keys have changed, and keeps the
others.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from logdb.errors import Corruption, Unavailable
from spark_export.manifest import MANIFEST, ExportFailed, File, Manifest, read_manifest, sync, write_manifest
from spark_export.runs import ROWS


class Table:
    """A Delta table that an export has made. Raises Corruption, Unavailable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._table = _library().DeltaTable(path)
        except _library().exceptions.DeltaError as error:
            raise Corruption(path / "_delta_log", None, f"it is not the log of a Delta table ({error})") from error
        except OSError as error:  # several lines, without a number
            reason = str(error).rpartition("\33[0m ")[2].strip()
            raise Unavailable(f"{path / '_delta_log'} cannot be read: {reason}") from error

    @classmethod
    def at(cls, path: Path) -> Table | None:
        """The table in a directory, None if there is none. Raises Unavailable."""
        _library()
        return cls(path) if (path / "_delta_log").is_dir() else None

    def manifest(self) -> Manifest:
        """The manifest of the last version. Raises ExportFailed if the table is not an export."""
        first = read_manifest(self.path / MANIFEST)
        version = self._table.transaction_version(_application(first.database))
        if version is None:
            raise ExportFailed(f"{self.path} is a Delta table, but not an export of LogDB")
        return first if version == first.version else read_manifest(self.path / f"_manifest-{version}.json")

    def advance(self, manifest: Manifest, staging: Path) -> None:
        """Commit the next version, whose new files are in `staging`."""
        old, new = {file.name: file for file in self.manifest().files}, {file.name: file for file in manifest.files}
        for name in new.keys() - old.keys():
            os.replace(staging / name, self.path / name)
        write_manifest(self.path / f"_manifest-{manifest.version}.json", manifest)
        sync(self.path)
        now = time.time_ns() // 1_000_000
        gone = [old[name] for name in old.keys() - new.keys()]
        remove = _library().transaction.RemoveAction
        removed = [remove(file.name, True, now, file.bytes) for file in gone]
        added = [_add(file) for name, file in new.items() if name not in old]
        _commit(self._table, [*added, *removed], manifest)


def create(path: Path, manifest: Manifest) -> None:
    """Make a Delta table of the files in a directory."""
    table = _library().DeltaTable.create(path, ROWS, name="logdb")
    _commit(table, [_add(file) for file in manifest.files], manifest)


def _commit(table: Any, actions: list[Any], manifest: Manifest) -> None:
    transaction = _library().transaction
    properties = transaction.CommitProperties(
        custom_metadata={"logdb.version": str(manifest.version)},
        app_transactions=[transaction.Transaction(_application(manifest.database), manifest.version)],
    )
    table.create_write_transaction(actions, "append", ROWS, commit_properties=properties)


def _add(file: File) -> Any:
    stats = json.dumps({"numRecords": file.rows})
    now = time.time_ns() // 1_000_000
    return _library().transaction.AddAction(file.name, file.bytes, {}, now, True, stats)


def _application(database: str) -> str:
    return f"logdb-{database}"


def _library() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
        import deltalake.transaction
    except ImportError:
        raise Unavailable("Delta tables need deltalake: pip install 'logdb[delta]'") from None
    return deltalake
