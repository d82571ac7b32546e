"""The manifest of an export, `_manifest.json`, by which the export is verified, continued and imported.

format      2
database    its id
version     the exported version; time: when it was written (null: unknown)
since       null, or the version at which a history begins
prefix      null, or the prefix of all exported keys, in hexadecimal
rows        the number of rows in all files
schema      the columns
sha256      the checksum of all other fields, as they are written here
files       name (a Parquet file beside the manifest), rows, bytes, sha256, and the keys from `low` to before `high` in
            hexadecimal (null: no bound); for a file of a history's changes both are null and `changes` is true

A manifest is input: every field is checked before use, and it names no file outside its directory.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from logdb.api import timestamps
from logdb.errors import Corruption, LogDBError, Unavailable
from logdb.system.disk import described, is_of_system
from logdb.system.file_names import check_file_name
from spark_export.decoding import KeyRange

FORMAT: Final = 2
MANIFEST: Final = "_manifest.json"
CHECKSUM: Final = "sha256"
"""The checksum of the other fields, as JSON; exports of earlier releases have none."""
SCHEMA: Final = (("key", "binary"), ("value", "binary"), ("version", "int64"))


class ExportFailed(LogDBError):
    """The export was not published, or the directory contains no export. Existing files are unchanged."""


class Exported(NamedTuple):
    """An export: `version`, its `time` (UTC; None if unknown), and the number of `rows`, `files` and `bytes`."""

    version: int
    time: dt.datetime | None
    rows: int
    files: int
    bytes: int


class File(NamedTuple):
    """A file of an export; `changes`: of a history's changes, not of a snapshot's rows."""

    name: str
    rows: int
    bytes: int
    sha256: str
    low: str | None
    high: str | None
    changes: bool

    @classmethod
    def of(cls, fields: Any) -> File:
        """Check fields that were read. Raises ValueError, TypeError, AttributeError."""
        found = cls(**fields)
        check_file_name(found.name, ".parquet")
        _check_counts(found.rows, found.bytes)
        _check_keys(found.low, found.high)
        if not (_SHA256.fullmatch(found.sha256) and isinstance(found.changes, bool)):
            raise ValueError(f"the fields of {found.name} are wrong")
        return found

    @property
    def keys(self) -> KeyRange:
        """The range of its keys."""
        return KeyRange(bytes.fromhex(self.low or ""), None if self.high is None else bytes.fromhex(self.high))


class Manifest(NamedTuple):
    """The fields of a manifest that differ between exports."""

    database: str
    version: int
    time_ns: int | None
    since: int | None
    prefix: str | None
    files: tuple[File, ...]

    @classmethod
    def of(cls, fields: Any) -> Manifest:
        """Check fields that were read. Raises ValueError, TypeError, AttributeError, KeyError, OverflowError."""
        files = tuple(File.of(one) for one in fields["files"])
        if len({file.name for file in files}) < len(files):
            raise ValueError("a file is listed twice")
        found = cls(**{name: fields[name] for name in cls._fields if name != "files"}, files=files)
        uuid.UUID(found.database)
        _check_counts(found.version, found.since or 0, found.time_ns or 0)
        _check_keys(found.prefix)
        found.exported()
        return found

    def exported(self) -> Exported:
        """The export that the manifest describes."""
        time = None if self.time_ns is None else timestamps.moment(self.time_ns)
        rows, size = sum(file.rows for file in self.files), sum(file.bytes for file in self.files)
        return Exported(self.version, time, rows, len(self.files), size)


def database_name(log_id: bytes) -> str:
    """The name of a database in manifests."""
    return str(uuid.UUID(bytes=log_id))


def describe(file: Path, keys: KeyRange, *, name: str | None = None, changes: bool = False) -> File:
    """Describe a Parquet file for a manifest. Raises OSError, ValueError."""
    with open(file, "rb", opener=_no_link) as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
    low, high = (None if changes else keys.low.hex()), (None if keys.high is None else keys.high.hex())
    rows = pq.read_metadata(file).num_rows
    return File(name or file.name, rows, file.stat().st_size, checksum, low, high, changes)


def write_manifest(file: Path, manifest: Manifest) -> None:
    """Write a manifest to a file, which appears with its whole content."""
    time = None if manifest.time_ns is None else timestamps.moment(manifest.time_ns).isoformat()
    fields = {
        "format": FORMAT,
        **manifest._asdict(),
        "time": time,
        "rows": sum(file.rows for file in manifest.files),
        "schema": [{"name": name, "type": kind} for name, kind in SCHEMA],
        "files": [file._asdict() for file in manifest.files],
    }
    staging = file.with_suffix(".tmp")
    staging.write_text(json.dumps({**fields, CHECKSUM: _checksum(fields)}, indent=2) + "\n")
    sync(staging)
    os.replace(staging, file)


def _checksum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, indent=2).encode()).hexdigest()


def read_manifest(file: Path) -> Manifest:
    """Read and check a manifest. Raises ExportFailed, Corruption, Unavailable."""
    try:
        fields = json.loads(file.read_bytes(), parse_constant=_no_number)
    except (FileNotFoundError, NotADirectoryError):
        raise ExportFailed(f"{file.parent} is not an export of LogDB (it has no {file.name})") from None
    except OSError as error:
        raise Unavailable(f"{file} cannot be read: {described(error)}") from error
    except (ValueError, RecursionError) as error:
        raise Corruption(file, None, f"it is not JSON ({error})") from error
    if not isinstance(fields, dict) or type(fields.get("format")) is not int:
        raise Corruption(file, None, "it has no format")
    if fields["format"] != FORMAT:
        raise Unavailable(f"{file} has format {fields['format']}, this LogDB reads {FORMAT}: export again")
    try:
        if CHECKSUM in fields and fields.pop(CHECKSUM) != _checksum(fields):
            raise Corruption(file, None, "it does not match its checksum; export again")
        return Manifest.of(fields)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Corruption(file, None, f"a field is missing or wrong ({error})") from error


_SHA256: Final = re.compile("[0-9a-f]{64}")


def _check_counts(*counts: Any) -> None:
    if not all(type(count) is int and 0 <= count < 1 << 63 for count in counts):
        raise ValueError(f"one of {counts} is not a count")


def _check_keys(*keys: Any) -> None:
    for key in keys:
        if key is not None:
            bytes.fromhex(key)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def unreadable(file: Path, error: OSError | ValueError, title: str) -> LogDBError:
    """The error for a file of an export, called `title` there, that `describe` could not read."""
    if isinstance(error, OSError) and is_of_system(error):
        return Unavailable(f"{file} cannot be read: {described(error)}")
    return Corruption(file, None, f"{title} cannot be read ({error})")


def _no_link(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def newest_manifest(directory: Path) -> Manifest:
    """The manifest of an export; of a Delta table, that of its last version. Raises as `read_manifest`."""
    try:
        is_table = (directory / "_delta_log").is_dir()
    except OSError as error:
        raise Unavailable(f"{directory} cannot be read: {described(error)}") from error
    if not is_table:
        return read_manifest(directory / MANIFEST)
    from spark_export import delta  # an extra

    return delta.Table(directory).manifest()


def verify_export(to: str | os.PathLike[str]) -> Exported:
    """Check that every file of the export in the directory `to` is there, complete and listed. Raises ExportFailed,
    Corruption, Unavailable.
    """
    directory = Path(to)
    manifest = newest_manifest(directory)
    names = {file.name for file in manifest.files}
    try:
        unlisted = {name for name in os.listdir(directory) if name.endswith(".parquet")} - names
        is_table = (directory / "_delta_log").is_dir()
    except OSError as error:
        raise Unavailable(f"{directory} cannot be read: {described(error)}") from error
    if unlisted and not is_table:  # a table has files of other versions
        raise Corruption(directory / min(unlisted), None, "the manifest does not list it")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(threads.map(lambda file: _verify(directory, file), manifest.files))
    return manifest.exported()


def _verify(directory: Path, expected: File) -> None:
    file = directory / expected.name
    try:
        found = describe(file, expected.keys, changes=expected.changes)
    except FileNotFoundError:
        raise Corruption(file, None, "the manifest lists it, but it is missing") from None
    except (OSError, ValueError) as error:
        raise unreadable(file, error, "it") from error
    for field in ("bytes", "sha256", "rows"):
        should, is_ = getattr(expected, field), getattr(found, field)
        if should != is_:
            raise Corruption(file, None, f"its {field} should be {should} by the manifest, not {is_}")


def sync(path: Path) -> None:
    """Sync a file, or the entries of a directory, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
