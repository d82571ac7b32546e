"""Making a backup. The log is the history, so a backup is the range of its records after the last one's version.

From a directory, the frames of the log's files are copied as they are, while the database is written: durable records
never change, and hard links keep the files through compactions (`embedded/snapshot_plan.py`). From servers, a full
backup is a scan of one version, and the next one has the commits of the change feed. In such a part a RELOCATION record
has rows of the scan, and a COMMIT record a commit, with its version as sequence number.

Invariants:

BAK-1  A manifest is written when all parts of its backup and all backups before it are durable.
BAK-2  A backup continues the chain only if the database has, at the version where the chain ends, the record that the
       chain has there; else it is another history.
BAK-3  The records of a "log" backup are dense: each part begins where the one before it ends.
"""

from __future__ import annotations

import contextlib
import mmap
import secrets
import time
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path
from typing import Final

from logdb.api.database import Database
from logdb.api.results import Change
from logdb.backups.catalog import Chain, chains
from logdb.backups.manifests import ARCHIVE, CHANGES, LOG, Backup, write_manifest
from logdb.backups.parts import PART_BYTES, Frame, PartWriter, frames_of, log_id_of, records_of
from logdb.backups.places import DirectoryPlace, Place, place_of
from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.cold.tier import read_manifest
from logdb.embedded.snapshot_plan import DirectoryPlan, pin, pin_at
from logdb.errors import BackupError, FutureVersion, VersionTrimmed
from logdb.log.contract import LogRecord, Trimmed
from logdb.log.local.local_log import LocalLog
from logdb.store.arguments import check_flag
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    RELOCATION,
    Commit,
    decode_commit,
    decode_relocation,
    encode_commit,
    encode_relocation,
)

Progress = Callable[[int, int | None], None]
"""Called with (records copied, records in all or None)."""

ROWS_BYTES: Final = 1 << 20
"""A record of rows has about this size, or one row."""
TICK_RECORDS: Final = 4_096


def backup(
    db: Database,
    to: str | PathLike[str],
    *,
    full: bool = False,
    progress: Progress | None = None,
) -> Backup:
    """Make a backup of `db` at its newest version, while it is used. Returns it, or the last one if that has the same
    version.

    `to`: a directory, or a URL that fsspec knows (s3://bucket/folder), for which `pip install 'logdb[backup]'` and the
    store's package are needed. The first backup there is full. The next ones continue it, and have what was written
    since then; if a compaction has removed that, or with `full`, a full one is made. A database that was opened from a
    directory, also with `read_only`, gets a copy of its log, which restores all versions in it. A database behind
    endpoints gets its rows at one version and then its commits: any version from the full backup on can be restored.

    `progress`: called with (records copied, records in all, or None while that is not known).

    A backup that was interrupted is none: the next call continues it. One process at a time can make a backup in a
    directory; a store has no lock. Raises BackupError (`to` has backups of another database, or is in the directory of
    this one), Corruption (damage in the log, or in `to`), Unavailable (also a full disk), TypeError, ValueError,
    ModuleNotFoundError without fsspec, and as `Database.scan`.
    """
    check_flag("full", full)
    if not isinstance(db, Database):
        raise TypeError(f"db must be a Database, not {type(db).__name__}")
    return back_up(db, place_of(to), full=full, progress=progress)


def back_up(
    db: Database, place: Place, *, full: bool = False, progress: Progress | None = None, part_bytes: int = PART_BYTES
) -> Backup:
    """As `backup`, to a place, with parts of about `part_bytes`."""
    tick = progress or (lambda done, total: None)
    host = db._host
    if isinstance(place, DirectoryPlace) and isinstance(host, EmbeddedBackend):
        source = Path(host.path).resolve()
        if Path(place.location()).resolve().is_relative_to(source):
            raise BackupError(f"{place.location()} is in the directory of the database; use one outside of {source}")
    with place.lock():
        if read_manifest(place) is not None:
            raise _in_a_tier(place)
        found = chains(place)
        if found and found[0][0].kind == ARCHIVE:
            raise _in_a_tier(place)
        if isinstance(host, EmbeddedBackend) and isinstance(host.log, LocalLog):
            return _LogBackup(db, host, host.log, place, found, full, tick, part_bytes).run()
        return _ChangesBackup(db, place, found, full, tick, part_bytes).run()


def _in_a_tier(place: Place) -> BackupError:
    return BackupError(f"{place.location()} is a cold tier, which has no room for backups; use another place")


class _Run:
    """One backup. `chain`: the chain to continue, empty for a full backup. `taken`: the time at its begin."""

    kind: str

    def __init__(self, db: Database, place: Place, found: list[Chain], full: bool, tick: Progress) -> None:
        self.db, self.place, self.tick = db, place, tick
        self.chain: Chain = found[-1] if found else ()
        self.taken = time.time_ns()
        self.number = self.chain[-1].number + 1 if self.chain else 1
        if self.chain and self.chain[0].kind != self.kind:
            raise BackupError(
                f"{place.location()} has backups that were made {_MADE[self.chain[0].kind]}, and this one would be made"
                f" {_MADE[self.kind]}; use one way, or another place"
            )
        self._check_history()
        if full:
            self.chain = ()

    def _check_history(self) -> None:
        """BAK-2. Empties the chain if a compaction has removed what follows it."""
        if not self.chain:
            return
        last = self.chain[-1]
        newest = self.db._host.version()
        when = None
        if newest >= last.version:
            try:
                when = self._time_of(last.version) if last.version else last.time
            except VersionTrimmed:
                self.chain = ()
                return
        if newest < last.version or (None not in (when, last.time) and when != last.time):
            raise BackupError(
                f"{self.place.location()} has backups of another history, up to version {last.version} of"
                f" {last.source}: {self.db.path} has another record there, or none; use another place"
            )

    def _time_of(self, version: int) -> int | None:
        return self.db._host.time_of(version)

    def written(self, writer: PartWriter, version: int, oldest: int, at: int | None) -> Backup:
        """Write the manifest of this backup."""
        writer.flush()
        backup = Backup(
            number=self.number,
            kind=self.kind,
            is_full=not self.chain,
            log_id=writer.log_id.hex(),
            since=self.chain[-1].version if self.chain else 0,
            version=version,
            oldest=self.chain[0].oldest if self.chain else oldest,
            time=at,
            taken=self.taken,
            source=self.db.path,
            parts=tuple(writer.parts),
        )
        write_manifest(self.place, backup)
        return backup


_MADE: Final = {LOG: "from the directory", CHANGES: "through servers"}


class _LogBackup(_Run):
    """A backup of the log's files."""

    kind = LOG

    def __init__(
        self,
        db: Database,
        host: EmbeddedBackend,
        log: LocalLog,
        place: Place,
        found: list[Chain],
        full: bool,
        tick: Progress,
        part_bytes: int,
    ) -> None:
        self._host, self._log, self._part_bytes = host, log, part_bytes
        if found and found[-1][0].log_id != host.log_id.hex():
            raise BackupError(
                f"{place.location()} has backups of another database ({found[-1][0].source}); use another place"
            )
        super().__init__(db, place, found, full, tick)

    def _time_of(self, version: int) -> int | None:
        if version + 1 < self._log.oldest():
            raise VersionTrimmed(version, self._log.oldest())
        return self._log.time_of(version) if version >= self._log.oldest() else None

    def run(self) -> Backup:
        with self._plan() as plan:
            if self.chain and plan.version == self.chain[-1].version:
                return self.chain[-1]
            parts = plan.parts
            first = self.chain[-1].version + 1 if self.chain else parts[0].first if parts else 1
            if self.chain and parts[0].first > first:  # a compaction since the check
                self.chain, first = (), parts[0].first
            writer = PartWriter(self.place, self.number, plan.log_id, first, self._part_bytes)
            writer.resume()
            if writer.parts and not _has_record(plan, writer.end - 1, writer.parts[-1].last_time):
                writer.discard(plan.log_id, first)  # the interrupted attempt was made before the directory was put back
            compacted_at = self._copied(plan, writer, first)
            assert writer.end == plan.version + 1, f"BAK-3: {writer.end} after {plan.version}"
            oldest = 0 if first == 1 else compacted_at
            return self.written(writer, plan.version, oldest, self._time_of(plan.version) if plan.version else None)

    def _plan(self) -> DirectoryPlan:
        try:
            return pin_at(self._host)
        except (FileNotFoundError, Trimmed):  # another process has trimmed the log
            return pin(Path(self._host.path))

    def _copied(self, plan: DirectoryPlan, writer: PartWriter, first: int) -> int:
        """Copy the records from `writer.end` on; returns the last record of a compaction from `first` on."""
        compacted_at, end = 0, plan.version + 1
        for data, frame in _frames(plan, first, end):
            if frame.tag == COMPACTION and frame.number >= first:
                compacted_at = frame.number
            if frame.number == writer.end:
                writer.add_frame(data[frame.offset : frame.end], frame.time)
            if frame.number % TICK_RECORDS == 0:
                self.tick(max(frame.number - first, 0), end - first)
        return compacted_at


def _frames(plan: DirectoryPlan, first: int, end: int) -> Iterator[tuple[mmap.mmap, Frame]]:
    """(the file, a frame in it) of each record of the files that have records `first` to `end` - 1, up to that one.
    Raises Corruption."""
    for part in plan.parts:
        if part.end <= first or part.first >= end:
            continue
        path = Path(plan.folder) / part.link
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for frame in frames_of(data, part.origin, plan.log_id, min(part.end, end)):
                yield data, frame


def _has_record(plan: DirectoryPlan, number: int, time: int) -> bool:
    """Whether the planned log has a record of this number and this time. Raises Corruption."""
    return any((frame.number, frame.time) == (number, time) for _, frame in _frames(plan, number, number + 1))


class _ChangesBackup(_Run):
    """A backup by the verbs of clients."""

    kind = CHANGES

    def __init__(
        self, db: Database, place: Place, found: list[Chain], full: bool, tick: Progress, part_bytes: int
    ) -> None:
        self._part_bytes = part_bytes
        super().__init__(db, place, found, full, tick)

    def run(self) -> Backup:
        if self.chain:
            try:
                return self._commits()
            except VersionTrimmed:  # a compaction has removed what follows the chain
                self.chain = ()
        return self._rows()

    # ---- a full backup

    def _rows(self) -> Backup:
        writer = PartWriter(self.place, self.number, secrets.token_bytes(16), 1, self._part_bytes)
        host = self.db._host
        with self.db.transaction(read_only=True) as lease:  # keeps its snapshot from compactions
            lease.get(b"\0")
            version, after = self._resumed(writer) or (lease.snapshot, None)
            at = host.time_of(version) if version else None
            done, size, rows = 0, 0, list[tuple[bytes, int, bytes]]()
            start = None if after is None else after + b"\0"
            for key, value in self.db.at(version).scan(start) if version else ():
                rows.append((key, version, value))
                size += len(key) + len(value)
                if size >= ROWS_BYTES:
                    writer.add(RELOCATION, encode_relocation(rows), at or self.taken)
                    done, size = done + len(rows), 0
                    rows.clear()
                    self.tick(done, None)
            if rows:
                writer.add(RELOCATION, encode_relocation(rows), at or self.taken)
        return self.written(writer, version, version, at)

    def _resumed(self, writer: PartWriter) -> tuple[int, bytes] | None:
        """(version, last key) of the interrupted attempt that `writer` continues; None if there is none."""
        names = writer.leftovers()
        log_id = log_id_of(self.place, names[0]) if names else None
        if log_id is not None:
            new_id = writer.log_id
            writer.resume(log_id=log_id)
            rows = _last_record(self.place, writer, RELOCATION)
            if rows is not None:
                last = decode_relocation(rows.payload)[-1]
                with contextlib.suppress(VersionTrimmed, FutureVersion):
                    # Another database may have a version of this number, but not of this time.
                    if self.db._host.time_of(last.version) == rows.time:
                        return last.version, last.key
            writer.discard(new_id, 1)
        return None

    # ---- the commits since then

    def _commits(self) -> Backup:
        last, host = self.chain[-1], self.db._host
        version = host.version()
        if version == last.version:
            return last
        ends = [part.end for one in self.chain for part in one.parts]
        log_id, first = bytes.fromhex(last.log_id), ends[-1] if ends else 1
        writer = PartWriter(self.place, self.number, log_id, first, self._part_bytes)
        since = self._resumed_commits(writer)
        if since is None:
            writer.discard(log_id, first)
            since = last.version
        for change in self._changes(since, version):
            commit = Commit(0, change.version, change.changes, label=change.label, deletes=change.deleted)
            writer.add(COMMIT, encode_commit(commit), change.time)
            if writer.end % TICK_RECORDS == 0:
                self.tick(change.version - last.version, version - last.version)
        at = host.time_of(version)
        return self.written(writer, version, 0, at)

    def _resumed_commits(self, writer: PartWriter) -> int | None:
        """The version of the last commit of the interrupted attempt that `writer` continues; None if there is none, or
        if the database has another history since, such as one that was restored from a backup."""
        writer.resume()
        written = _last_record(self.place, writer, COMMIT)
        if written is not None:
            version = decode_commit(written.payload, 0).sequence
            with contextlib.suppress(VersionTrimmed, FutureVersion):
                if self.db._host.time_of(version) == written.time:
                    return version
        return None

    def _changes(self, since: int, version: int) -> Iterator[Change]:
        """The commits after `since` up to `version`."""
        feed = self.db._host.feed(since, None, None)
        try:
            while (change := feed.poll(0)) is not None and change.version <= version:
                yield change
        finally:
            feed.close()


def _last_record(place: Place, writer: PartWriter, tag: int) -> LogRecord | None:
    """The last record that was written, None if there is none or it is of another kind."""
    if not writer.parts:
        return None
    *_, record = records_of(place, writer.parts[-1], writer.log_id)
    return record if record.tag == tag else None
