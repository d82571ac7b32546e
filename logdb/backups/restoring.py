"""The way back: a directory with the log of a backup, or writes to an empty database.

A directory is built in a folder inside of it, opened once, which replays the log, and then moved into place, the
identity last: until then nothing opens it as a database. An interrupted restore leaves that folder, and the next one
removes it.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import Final, NamedTuple

from logdb.api.database import Database
from logdb.api.timestamps import nanoseconds
from logdb.backups.catalog import Chain, chain_with, existing_chains, records, version_at_time
from logdb.backups.manifests import LOG, Backup
from logdb.backups.places import Place, place_of
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.directory import DATABASE, IDENTITY
from logdb.errors import BackupError, Corruption, DatabaseInUse, Unavailable
from logdb.log.contract import LogFailed, LogRecord
from logdb.log.local.local_log import MIN_ALLOCATION_BYTES
from logdb.log.segments import SegmentStore
from logdb.store.arguments import checked_version
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    RELOCATION,
    Compaction,
    Decision,
    Range,
    decode_commit,
    decode_relocation,
    encode_compaction,
    encode_decision,
)
from logdb.system.directories import LOCK, identify, lock, make_identity
from logdb.system.disk import Disk, described

STAGING: Final = ".restoring"
BATCH_BYTES: Final = 4 << 20
BATCH_KEYS: Final = 2_000
FLUSH_BYTES: Final = 8 << 20
TICK_RECORDS: Final = 4_096

Progress = Callable[[int, int | None], None]


class Restored(NamedTuple):
    """A restored database. `version`: the one of the backup that was restored. `new_version`: the newest one of the
    restored database; the same where versions are kept."""

    version: int
    new_version: int


def restore(
    location: str | PathLike[str],
    into: str | PathLike[str] | Database,
    *,
    version: int | None = None,
    time: dt.datetime | float | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Restore the backups at `location` into a new directory, or into an empty database.

    `location`: as `to` of `logdb.backup`. `into`: a path, which must be missing or empty, or a database that has no
    keys, such as that of a new cluster. `version`: to restore (default: the newest of the backups). `time`: restore
    what was there at that time instead (a datetime, or seconds since the epoch). `progress`: called with (records done,
    records in all or None).

    Backups of a directory's log restore into a directory with the same versions, times, history, pins and outcomes of
    transactions. Otherwise the rows are written anew: the restored database has the same keys and values, with new
    versions, which in a directory are later than those of the backup. A path is a database only when all is restored;
    the call can be repeated after an interruption. An interrupted restore into a database leaves what it has written:
    delete that first (`Database.delete_prefix(b"")`).

    Raises BackupError (no backup, or the target is not empty), VersionTrimmed, FutureVersion, Corruption (a part is
    missing or damaged), Unavailable (also a full disk), TypeError, ValueError, ModuleNotFoundError without fsspec, and
    as `Database.multi_put`.
    """
    place = place_of(location)
    if time is not None:
        if version is not None:
            raise ValueError("give a version or a time, but not both")
        at = version_at_time(place, nanoseconds(time))
    else:
        at = existing_chains(place)[-1][-1].version if version is None else checked_version(version)
    chain = chain_with(place, at)
    tick = progress or (lambda done, total: None)
    if not isinstance(into, Database):
        if not isinstance(into, str | PathLike):
            raise TypeError(f"into must be a path or a Database, not {type(into).__name__}")
        return _into_directory(Path(into), place, chain, at, tick)
    if next(iter(into.scan(limit=1)), None) is not None:
        raise BackupError(f"{into.path} is not empty; restore into a database without keys")
    _write_rows(into, place, chain, at, tick)
    return Restored(at, into.version)


# ---- into a directory


def _into_directory(path: Path, place: Place, chain: Chain, version: int, tick: Progress) -> Restored:
    try:
        if path.exists() and not path.is_dir():
            raise BackupError(f"{path} is a file; restore into a new or an empty directory")
        _check_empty(path)
        held = lock(path)
    except DatabaseInUse as error:
        raise BackupError(f"{path} is in use by {error.holder}; restore into another directory") from error
    try:
        staging = path / STAGING
        remove_leftovers(path)
        staging.mkdir()
        try:
            if chain[0].kind == LOG:
                _write_log(staging, place, chain, version, tick)
            else:
                if version:
                    _begin_behind(staging, version)
                with Database(EmbeddedBackend.open(staging, read_only=False, create=True)) as db:
                    _write_rows(db, place, chain, version, tick)
            with Database(EmbeddedBackend.open(staging, read_only=False, create=True)) as db:
                newest = db.version
                if chain[0].kind == LOG and newest != version:
                    raise Corruption(staging, None, f"it has version {newest} instead of {version}")
            _move_into_place(staging, path)
        except BaseException:
            if not (path / IDENTITY).exists():
                remove_leftovers(path)
            raise
        return Restored(version, newest)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {described(error)}") from error
    finally:
        held.release()


def _check_empty(path: Path) -> None:
    """Raises BackupError."""
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    strangers = names - {LOCK, STAGING}
    if STAGING in names and IDENTITY not in names:  # these are of an interrupted restore
        strangers -= {"log", "map"}
    if strangers:
        raise BackupError(f"{path} is not empty (it has {min(strangers)!r}); restore into a new or an empty directory")


def remove_leftovers(path: Path) -> None:
    """Remove what an interrupted restore has left."""
    if (path / STAGING).exists():
        for name in ("log", "map", STAGING):
            shutil.rmtree(path / name, ignore_errors=True)


def _move_into_place(staging: Path, path: Path) -> None:
    """Move what belongs to a database, the identity last."""
    disk = Disk()
    for name in ("log", "map"):
        disk.rename(staging / name, path / name)
    disk.sync_directory(path)
    disk.rename(staging / IDENTITY, path / IDENTITY)
    disk.sync_directory(path)
    disk.sync_directory(path.absolute().parent)
    shutil.rmtree(staging)


def _write_log(staging: Path, place: Place, chain: Chain, version: int, tick: Progress) -> None:
    """Write the records up to `version` as the log of a new database."""
    first = chain[0].parts[0].first if chain[0].parts else 1
    if version < first:
        make_identity(staging, DATABASE)
        return
    with _new_log(staging, first) as store:
        size = 0
        for number, time, tag, payload in _up_to(records(place, chain), version):
            written = store.append([(tag, payload)], time)
            if written != number:
                raise Corruption(place.location(), None, f"record {written} is missing")
            size += len(payload)
            if size >= FLUSH_BYTES:
                store.flush(store.take_batch())
                size = 0
            if number % TICK_RECORDS == 0:
                tick(number - first, version + 1 - first)
    if store.end != version + 1:
        raise Corruption(place.location(), None, f"it ends at record {store.end - 1} instead of {version}")


def _begin_behind(staging: Path, version: int) -> None:
    """Make an empty database whose versions begin behind `version`. The keys of appends contain versions, so those of
    the restored database come after those of the backup."""
    decision = encode_decision(Decision(version, version, ()))
    floor = encode_compaction(Compaction(version + 1, {}, {}))
    with _new_log(staging, version + 1) as store:
        store.append([(DECISION, decision), (COMPACTION, floor)], time_ns())


@contextlib.contextmanager
def _new_log(staging: Path, first: int) -> Iterator[SegmentStore]:
    """The log of a new database, from record `first` on, which is synced at the end. Raises Unavailable."""
    make_identity(staging, DATABASE)
    store = SegmentStore(
        staging / "log",
        identify(staging, DATABASE).id,
        writable=True,
        first=first,
        min_allocation_bytes=MIN_ALLOCATION_BYTES,
    )
    try:
        yield store
        store.flush(store.take_batch())
        store.close()
    except LogFailed as error:
        store.abandon()
        raise Unavailable(f"{staging} cannot be written: {error}") from error
    except BaseException:
        store.abandon()
        raise


def _up_to(found: Iterable[tuple[Backup, LogRecord]], version: int) -> Iterator[LogRecord]:
    for _, record in found:
        if record.gsn > version:
            return
        yield record


# ---- into a database


def _write_rows(db: Database, place: Place, chain: Chain, version: int, tick: Progress) -> None:
    """Write the state at `version`."""
    if chain[0].kind != LOG:
        _write_all(db, _changes(place, chain, version), tick)
        return
    with tempfile.TemporaryDirectory(prefix="logdb-restore-") as folder:
        directory = Path(folder) / "data"
        _into_directory(directory, place, chain, version, tick)
        with Database(EmbeddedBackend.open(directory, read_only=True, create=False)) as source:
            _write_all(db, (({key: value}, ()) for key, value in source.scan()), tick)


Write = tuple[dict[bytes, bytes | None], tuple[Range, ...]]
"""(keys and values, ranges that are deleted before)"""


def _changes(place: Place, chain: Chain, version: int) -> Iterator[Write]:
    """The rows and the commits up to `version`, in order. Raises Corruption."""
    for _, record in records(place, chain):
        if record.tag == RELOCATION:
            yield {row.key: bytes_of(row.value) for row in decode_relocation(record.payload)}, ()
        elif record.tag == COMMIT:
            commit = decode_commit(record.payload, record.gsn)
            if commit.sequence > version:
                return
            yield {key: bytes_of(value) for key, value in commit.writes.items()}, tuple(commit.deletes)


def bytes_of(value: object) -> bytes | None:
    """The value, which is in the record itself. The cold tier has a place where a client has forged one: there is no
    value."""
    return value if isinstance(value, bytes) else None


def _write_all(db: Database, writes: Iterable[Write], tick: Progress) -> None:
    """Write in transactions of about `BATCH_KEYS` keys."""
    batch: dict[bytes, bytes | None] = {}
    size = done = 0

    def put(deletes: tuple[Range, ...] = ()) -> None:
        nonlocal size, done
        if batch or deletes:
            db._host.write(batch, "restore", (), deletes)
        done += len(batch)
        batch.clear()
        size = 0
        tick(done, None)

    for items, deletes in writes:
        added = sum(len(key) + len(value or b"") for key, value in items.items())
        if deletes or size + added > BATCH_BYTES:
            put()
        batch.update(items)
        size += added
        if deletes or size >= BATCH_BYTES or len(batch) >= BATCH_KEYS:
            put(deletes)
    put()
