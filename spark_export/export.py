"""Exporting a snapshot as Parquet: all of it or nothing, with a manifest that proves what it holds.

    TO/_manifest.json      version, time, rows, schema, and of each file the rows, bytes and SHA-256
    TO/part-00000.parquet  key, value, version; zstd; sorted by key, the next file goes on where this one ends

The files are written into a staging directory beside TO, which is locked (flock) while it is used, made durable, and
published by one rename. Whatever an export that died has left there, the next one to the same place clears away.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from logdb import moments
from logdb.embedded.plan import Plan, pin
from logdb.errors import Corruption, LogDBError, Unavailable
from spark_export.failure import reported
from spark_export.runs import made_bytes
from spark_export.session import session

FORMAT: Final = 1
MANIFEST: Final = "_manifest.json"
PARTITION_BYTES: Final = 64 << 20
"""Of log, for each file."""
POLL_S: Final = 0.2
_SCHEMA: Final = (("key", "binary"), ("value", "binary"), ("version", "int64"))

Progress = Callable[[int, int], None]
"""Hears (bytes of the log read, of how many)."""


class Exported(NamedTuple):
    """An export. `time`: when its version was written (UTC), None if that is unknown. `bytes`: of its files."""

    version: int
    time: dt.datetime | None
    rows: int
    files: int
    bytes: int


class ExportFailed(LogDBError):
    """The export was not published, or what stands there is no export. Nothing that was there has been touched."""


def export_snapshot(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: dt.datetime | None = None,
    prefix: bytes | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the snapshot of a database at a version or a time (default: the newest) to the new directory `to`.

    Works while the database is in use. Runs on the Spark session of this process, which is made if there is none.
    Raises ExportFailed (`to` is not empty, Spark failed), VersionTrimmed, FutureVersion, Corruption, NotADatabase,
    Unavailable.
    """
    target = Path(to).absolute()
    _check_target(target)
    time_ns = None if timestamp is None else nanoseconds(timestamp)
    with pin(Path(path), version=version, time_ns=time_ns) as plan, _staging(target) as staging:
        with _watched(plan, progress):
            _run(plan, prefix or b"", staging / "spark")
        files = _collect(staging)
        exported = _write_manifest(plan, prefix, files, staging)
        for file in [*staging.iterdir(), staging]:
            _sync(file)
        try:
            os.rename(staging, target)
        except OSError as error:
            raise ExportFailed(f"{target} cannot take the export ({error.strerror}); give a new directory") from error
        _sync(target.parent)
    return exported


def verify_export(to: str | os.PathLike[str]) -> Exported:
    """Check that every file of an export is there, whole and listed. Raises ExportFailed, Corruption."""
    directory = Path(to)
    manifest = _manifest(directory)
    listed = {file["name"]: file for file in manifest["files"]}
    strangers = {file.name for file in directory.glob("*.parquet")} - listed.keys()
    if strangers:
        raise Corruption(directory / min(strangers), None, "the manifest does not list it")
    for name, wanted in listed.items():
        file = directory / name
        try:
            found = _describe(file)
        except FileNotFoundError:
            raise Corruption(file, None, "the manifest lists it and it is gone") from None
        except (OSError, ValueError) as error:
            raise Corruption(file, None, f"it cannot be read ({error})") from error
        for field in ("bytes", "sha256", "rows"):
            if found[field] != wanted[field]:
                raise Corruption(
                    file, None, f"its {field} should be {wanted[field]} by the manifest, not {found[field]}"
                )
    return _exported(manifest)


def nanoseconds(time: dt.datetime) -> int:
    """Nanoseconds since the epoch. Raises TypeError, ValueError."""
    if not isinstance(time, dt.datetime):
        raise TypeError(f"timestamp must be a datetime, not {type(time).__name__}")
    if time.tzinfo is None:
        raise ValueError("the timestamp must name its time zone, for example tzinfo=datetime.UTC")
    return moments.nanoseconds(time)


# ---- the steps


def _check_target(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportFailed(f"{target} exists and is not an empty directory; give a new one")
    if not target.parent.is_dir():
        raise ExportFailed(f"{target.parent} does not exist; make it first")


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """An empty directory beside `target`, locked, and removed unless it was renamed."""
    staging = target.parent / f".{target.name}.staging"
    lock = _lock(staging, target)
    try:
        for left in staging.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        yield staging
    finally:
        if _is_same(staging, lock):
            shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _lock(staging: Path, target: Path) -> int:
    while True:
        try:
            staging.mkdir(exist_ok=True)
            lock = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # published between the two
            continue
        except OSError as error:
            raise ExportFailed(f"{staging} cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ExportFailed(f"another export to {target} is running") from None
        if _is_same(staging, lock):
            return lock
        os.close(lock)


def _is_same(staging: Path, lock: int) -> bool:
    try:
        return os.path.samestat(staging.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def _run(plan: Plan, prefix: bytes, to: Path) -> None:
    rows = session().read.format("logdb").option("snapshot", plan.folder).option("prefixHex", prefix.hex())
    rows = rows.option("partitionBytes", PARTITION_BYTES)
    try:
        rows.load().write.option("compression", "zstd").parquet(str(to))
    except Exception as error:
        failure = reported(Path(plan.folder))
        if failure is None:
            raise ExportFailed(f"Spark could not write the export: {str(error).strip().splitlines()[0]}") from error
        raise failure from None


@contextlib.contextmanager
def _watched(plan: Plan, progress: Progress | None) -> Iterator[None]:
    """Tells `progress` how far the job is, from a thread of its own."""
    if progress is None:
        yield
        return
    total = sum(part.size for part in plan.parts)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            progress(made_bytes(plan), total)

    thread = threading.Thread(target=watch, name="logdb-export-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(total, total)


def _collect(staging: Path) -> list[dict[str, Any]]:
    """Take the Parquet files, in order, out of what Spark has written, and describe them."""
    written = sorted((staging / "spark").glob("part-*.parquet"))
    full = [file for file in written if pq.read_metadata(file).num_rows] or written[:1]
    files = []
    for number, file in enumerate(full):
        files.append(staging / f"part-{number:05d}.parquet")
        os.rename(file, files[-1])
    shutil.rmtree(staging / "spark")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_describe, files))


def _describe(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        checksum = hashlib.file_digest(content, "sha256").hexdigest()
    rows = pq.read_metadata(file).num_rows
    return {"name": file.name, "rows": rows, "bytes": file.stat().st_size, "sha256": checksum}


def _write_manifest(plan: Plan, prefix: bytes | None, files: list[dict[str, Any]], staging: Path) -> Exported:
    time = None if plan.time is None else moments.moment(plan.time)
    manifest = {
        "format": FORMAT,
        "database": str(uuid.UUID(bytes=plan.log_id)),
        "version": plan.version,
        "time": None if time is None else time.isoformat(),
        "time_ns": plan.time,
        "prefix": None if prefix is None else prefix.hex(),
        "rows": sum(file["rows"] for file in files),
        "schema": [{"name": name, "type": kind} for name, kind in _SCHEMA],
        "files": files,
    }
    (staging / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    return _exported(manifest)


def _manifest(directory: Path) -> dict[str, Any]:
    file = directory / MANIFEST
    try:
        manifest = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ExportFailed(f"{directory} is not an export of LogDB (it has no {MANIFEST})") from None
    except ValueError as error:
        raise Corruption(file, None, f"it is no JSON ({error})") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise Corruption(file, None, "it does not say its format")
    if manifest["format"] > FORMAT:
        raise Unavailable(f"{file} has format {manifest['format']}, this LogDB reads up to {FORMAT}; upgrade LogDB")
    return manifest


def _exported(manifest: dict[str, Any]) -> Exported:
    time = None if manifest["time"] is None else dt.datetime.fromisoformat(manifest["time"])
    files = manifest["files"]
    return Exported(manifest["version"], time, manifest["rows"], len(files), sum(file["bytes"] for file in files))


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
