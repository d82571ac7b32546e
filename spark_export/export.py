"""Exports as Parquet or as a Delta table, complete or not at all, with a manifest of checksums.

    TO/_manifest.json      the description of the export (`manifest`)
    TO/part-00000.parquet  key, value, version; zstd; sorted by key, each file continuing the one before
    TO/changes-...         of a history: key, value, _commit_version, _commit_timestamp, _commit_label, in the order
                           of the log

Spark's executors write the files (`parts`) into a staging directory beside TO, which the driver locks (flock) and
publishes by one rename. An export that was killed leaves its finished files there. The next export to the same place
with the same arguments continues with them, at the same version.

*Incremental*: with `base`, an earlier export of the same keys, only the log after its version is read. Each file of the
base is merged with the changes in its range of keys, or linked if there are none.

*Delta*: a new directory becomes a Delta table of version 1. An existing table gets another version with the changes
since its last one, in which files with changed keys are replaced. Each version records the version of the database as
an application transaction, so a repeated export does nothing.

*How the version is kept*: a plan of a directory has links to the files of the log (`logdb.embedded.snapshot_plan`),
whose durable bytes never change, and the list of aborted commits. So compaction may drop the version and unlink the
files while the export runs. No pin is needed, and an export that hangs costs nothing but disk space. At servers a lease
keeps the version while the export runs (`remote_source`).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from logdb.api import timestamps
from logdb.errors import FutureVersion, Unavailable, VersionTrimmed
from logdb.store.ranges import after_prefix
from logdb.system.disk import described
from spark_export import delta
from spark_export.decoding import KeyRange
from spark_export.endpoints import Endpoints
from spark_export.manifest import (
    MANIFEST,
    Exported,
    ExportFailed,
    File,
    Manifest,
    database_name,
    newest_manifest,
    sync,
    write_manifest,
)
from spark_export.parts import HistoryTask, Task, history
from spark_export.runs import PARTITION_BYTES, Runs, folded_bytes
from spark_export.session import session
from spark_export.snapshot_source import PlanRequest, SnapshotPlan, SnapshotSource, source_of
from spark_export.source import split_keys
from spark_export.task_errors import reported_damage

FORMATS: Final = ("parquet", "delta")
POLL_S: Final = 0.2
_JOB: Final = "_job.json"
_NAMED: Final = re.compile(r"(?:: )?(?:\w+\.)*[A-Z]\w*(?:: |$)")
"""The beginning of a line with the name of an error, as at the end of a traceback."""

Progress = Callable[[int, int], None]
"""Called with (bytes of the log read, bytes in all)."""


class Job(NamedTuple):
    """The parameters of an export, in a file from which an interrupted export continues.

    `asked`: the arguments of the export. `database`: its id. `time`: when the version was written, ns since the epoch
    (None: unknown). `bounds`: the bounds of the key ranges, in hexadecimal (None: no bound).
    """

    asked: dict[str, Any]
    database: str
    version: int
    time: int | None
    since: int | None
    bounds: list[str | None]

    def is_of(self, plan: SnapshotPlan) -> bool:
        """Whether the plan has the version that the job exports: another database, or one that was put back to an
        earlier state, may have a version of this number."""
        is_same_time = None in (self.time, plan.time) or self.time == plan.time
        return is_same_time and self.database == database_name(plan.log_id)


def export_snapshot(
    source: str | os.PathLike[str] | Endpoints,
    to: str | os.PathLike[str],
    *,
    version: int | None = None,
    timestamp: dt.datetime | float | None = None,
    prefix: bytes | None = None,
    base: str | os.PathLike[str] | None = None,
    history: bool = False,
    format: str = "parquet",
    file_bytes: int = PARTITION_BYTES,
    progress: Progress | None = None,
) -> Exported:
    """Write the snapshot of a database at a `version` or a `timestamp` (default: the newest) to the directory `to`.

    `source`: the database's directory, or `servers("host:port,...")`. `timestamp`: as `logdb.Database.at`, so one
    without a time zone is local time. `prefix`: only these keys. `base`: an earlier export, so that only what has
    changed since is read. `history`: also every change since the oldest version left, for `import_export`. `format`:
    "parquet", or "delta", for which `to` may be a table that an earlier export has made. `file_bytes`: bytes of log for
    each file. `progress`: called with (bytes of the log read, bytes in all).

    Works while the database is in use. Runs on the Spark session of this process, which is made if there is none.
    Raises ExportFailed (`to` is not empty, the base is of something else, Spark failed), VersionTrimmed, FutureVersion,
    Corruption, NotADatabase, Unavailable, ValueError (arguments that exclude each other).
    """
    if format not in FORMATS:
        raise ValueError(f"format must be {' or '.join(FORMATS)}, not {format!r}")
    if history and (base is not None or format == "delta"):
        raise ValueError("a history is exported in full, as parquet")
    target = Path(to).absolute()
    table = delta.Table.at(target) if format == "delta" else None
    if table is not None and base is not None:
        raise ValueError(f"{target} is a Delta table already: it continues from its last version, without a base")
    if table is None:
        _check_target(target)
    begin = table.manifest() if table is not None else None if base is None else newest_manifest(Path(base))
    asked: dict[str, Any] = {
        "version": version,
        "time_ns": None if timestamp is None else timestamps.nanoseconds(timestamp),
        "prefix": None if prefix is None else prefix.hex(),
        "base": None if begin is None else [str(target if base is None else Path(base).absolute()), begin.version],
        "history": history,
        "format": format,
    }
    with _staging(target) as staging:
        database = source_of(source if isinstance(source, Endpoints) else Path(source).absolute())
        left, plan = _planned(database, asked, begin, staging, file_bytes)
        with plan.job():
            if begin is not None:
                _check_base(begin, plan, prefix, Path(base or target))
            keys = KeyRange(prefix or b"", after_prefix(prefix or b""))
            job = left or _start_job(staging, asked, plan, keys, begin, file_bytes)
            if table is not None and begin is not None and begin.version == plan.version:
                return begin.exported()
            is_table = table is not None
            with _watched(plan, progress):
                files = _write_files(plan, job, keys, begin, Path(base or target), staging, file_bytes, is_table)
            since, name = plan.since if history else None, database_name(plan.log_id)
            manifest = Manifest(name, plan.version, plan.time, since, None if prefix is None else prefix.hex(), files)
        if table is not None:
            table.advance(manifest, staging)
            return manifest.exported()
        _publish(manifest, staging, target, format)
    return manifest.exported()


# ---- the steps


def _check_target(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportFailed(f"{target} exists and is not an empty directory; give a new one")
    if not target.parent.is_dir():
        raise ExportFailed(f"{target.parent} does not exist; make it first")


def _check_base(begin: Manifest, plan: SnapshotPlan, prefix: bytes | None, base: Path) -> None:
    if begin.database != database_name(plan.log_id):
        raise ExportFailed(f"{base} is an export of another database ({begin.database})")
    if begin.prefix != (None if prefix is None else prefix.hex()):
        raise ExportFailed(f"{base} is an export of other keys: the prefix must be the same")
    if begin.since is not None:
        raise ExportFailed(f"{base} is the export of a history; give one of a snapshot")
    when = None
    with contextlib.suppress(VersionTrimmed), plan.source.database() as db:  # trimmed since it was planned
        when = db.time_of(begin.version)
    if None not in (when, begin.time_ns) and when != begin.exported().time:
        raise ExportFailed(
            f"{base} is an export of another history: the database was put back to an earlier state and has another"
            f" version {begin.version}; export it anew"
        )


def _planned(
    source: SnapshotSource, asked: dict[str, Any], begin: Manifest | None, staging: Path, file_bytes: int
) -> tuple[Job | None, SnapshotPlan]:
    """The interrupted job to continue, if there is one whose version can still be read, and the plan."""
    left = _interrupted_job(staging, asked)
    if left is not None:
        try:
            plan = source.plan(PlanRequest(version=left.version, since=left.since, part_bytes=file_bytes))
        except (VersionTrimmed, FutureVersion):
            if asked["version"] is not None or asked["time_ns"] is not None:
                raise
        else:
            if left.is_of(plan):
                return left, plan
            plan.close()
        _clear(staging)
    return None, _plan(source, asked, begin, file_bytes)


def _plan(source: SnapshotSource, asked: dict[str, Any], begin: Manifest | None, file_bytes: int) -> SnapshotPlan:
    version, time_ns = asked["version"], asked["time_ns"]
    since = None if begin is None else begin.version
    if begin is not None and version is not None and version < begin.version:
        raise ExportFailed(f"the base is of version {begin.version}, later than {version}")
    while True:
        if asked["history"]:
            with source.database() as db:
                since = db.oldest_version
        try:
            return source.plan(PlanRequest(version=version, time_ns=time_ns, since=since, part_bytes=file_bytes))
        except VersionTrimmed as error:  # a history begins at the oldest version, which a compaction may have moved
            if since is None or not asked["history"] or error.version != since:
                raise


def _interrupted_job(staging: Path, asked: dict[str, Any]) -> Job | None:
    """The job that an export with the same arguments has left; anything else in the staging directory is removed.
    Raises Unavailable."""
    try:
        content = (staging / _JOB).read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise Unavailable(f"the interrupted export in {staging} cannot be continued: {described(error)}") from error
    with contextlib.suppress(ValueError, TypeError):
        left = Job(**json.loads(content))
        low, *_, high = [None if bound is None else bytes.fromhex(bound) for bound in left.bounds]
        prefix = bytes.fromhex(asked["prefix"] or "")
        if left.asked == asked and (low or b"") == prefix and high == after_prefix(prefix):
            return left
    _clear(staging)
    return None


def _clear(staging: Path) -> None:
    for entry in staging.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def _start_job(
    staging: Path, asked: dict[str, Any], plan: SnapshotPlan, keys: KeyRange, begin: Manifest | None, file_bytes: int
) -> Job:
    if begin is None:
        is_empty = asked["history"] and plan.since == 0
        wanted = 1 if is_empty else -(-sum(part.size for part in plan.parts) // file_bytes)
        ranges = split_keys(plan, keys, wanted)
    else:
        ranges = [file.keys for file in begin.files]
    bounds = [some.low.hex() for some in ranges] + [None if keys.high is None else keys.high.hex()]
    job = Job(asked, database_name(plan.log_id), plan.version, plan.time, plan.since, bounds)
    temporary = staging / f"{_JOB}.tmp"
    temporary.write_text(json.dumps(job._asdict()))
    os.replace(temporary, staging / _JOB)
    return job


def _write_files(
    plan: SnapshotPlan,
    job: Job,
    keys: KeyRange,
    begin: Manifest | None,
    base: Path,
    staging: Path,
    file_bytes: int,
    keeps: bool,
) -> tuple[File, ...]:
    """Let the executors write all files. Raises ExportFailed, Corruption."""
    plan = plan._replace(sample=())  # each task has a copy of the plan
    tag = f"{plan.version}-" if job.asked["format"] == "delta" else ""
    tasks: list[Task | HistoryTask] = []
    if job.asked["history"]:
        assert plan.since is not None
        feed = history(plan, keys, plan.since, file_bytes)
        numbers = range(len(feed.ranges))
        tasks += [HistoryTask(f"changes-{number:05d}.parquet", str(staging), feed, number) for number in numbers]
        runs = Runs(plan._replace(version=plan.since), keys, partition_bytes=file_bytes)
    else:
        newer_than = -1 if begin is None else begin.version
        runs = Runs(plan, keys, newer_than=newer_than, partition_bytes=file_bytes)
    bounds = [None if bound is None else bytes.fromhex(bound) for bound in job.bounds]
    for number, (low, high) in enumerate(pairwise(bounds)):
        of = None if begin is None else (str(base), begin.files[number], keeps)
        some = KeyRange(low or b"", high)
        tasks.append(Task(f"part-{tag}{number:05d}.parquet", str(staging), some, runs, number, of))
    return tuple(_run(plan, tasks))


def _run(plan: SnapshotPlan, tasks: Sequence[Task | HistoryTask]) -> list[File]:
    import pyarrow as pa

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            files = [pickle.dumps(tasks[number].run()) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"file": files})

    numbers = session().range(0, len(tasks), numPartitions=len(tasks))
    try:
        rows = numbers.mapInArrow(run, "file BINARY").collect()
        return [pickle.loads(row.file) for row in rows]
    except Exception as error:
        failure = reported_damage(plan)
        if failure is None:
            raise ExportFailed(f"Spark could not write the export: {_cause(error)}") from error
        raise failure from None


def _cause(error: Exception) -> str:
    """The line of Spark's error that names the error in Python."""
    text, _, _ = str(error).partition("JVM stacktrace:")  # of Spark Connect's errors
    lines = [line for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _NAMED.match(line)]
    return (named or lines or [type(error).__name__])[-1 if named else 0].strip().removeprefix(": ")


def _publish(manifest: Manifest, staging: Path, target: Path, format: str) -> None:
    for note in [*staging.glob("*.json"), *staging.glob("*.tmp")]:
        note.unlink()
    write_manifest(staging / MANIFEST, manifest)
    if format == "delta":
        delta.create(staging, manifest)
    for entry in staging.iterdir():
        sync(entry)
    sync(staging)
    try:
        os.rename(staging, target)
    except OSError as error:
        raise ExportFailed(f"{target} cannot take the export ({error.strerror}); give a new directory") from error
    sync(target.parent)


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A locked directory beside `target`, removed at the end unless it was renamed; a killed export leaves it."""
    staging = target.parent / f".{target.name}.staging"
    lock = _lock(staging, target)
    try:
        yield staging
    finally:
        if _is_same(staging, lock):
            shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def _lock(staging: Path, target: Path) -> int:
    while True:
        try:
            staging.mkdir(exist_ok=True)
            lock = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:  # published between the two
            continue
        except OSError as error:
            raise ExportFailed(f"{staging} cannot be made: {error.strerror}") from error
        if os.fstat(lock).st_uid != os.geteuid():
            os.close(lock)
            raise ExportFailed(f"{staging} belongs to another user: remove it, or export to another place")
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


@contextlib.contextmanager
def _watched(plan: SnapshotPlan, progress: Progress | None) -> Iterator[None]:
    """Report the progress of the job, from a thread of its own."""
    if progress is None:
        yield
        return
    total = sum(part.size for part in plan.parts)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_S):
            progress(folded_bytes(plan), total)

    thread = threading.Thread(target=watch, name="logdb-export-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    progress(total, total)
