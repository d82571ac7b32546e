"""The cold tier of a cluster at one mapping server: segments are written in a thread, one after another, and old
versions are read in another one."""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from logdb.backups.archiving import write_segment
from logdb.backups.manifests import ARCHIVE, Backup, manifest_name, read_backup
from logdb.backups.parts import missing, records_of
from logdb.backups.places import Place, place_of
from logdb.cluster.cold_reads import ColdReader, SegmentHead
from logdb.cluster.mapping_server.replica import UnresolvedValues
from logdb.cluster.messages import NotReadable
from logdb.cores.effects import Archive, Archived, Recall, Recalled
from logdb.errors import ColdTierError, Unavailable
from logdb.log.contract import LogRecord
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap

OVERLAY_BYTES: Final = 32 << 20
"""Maximum size of the changes of a view in memory."""
WORK_S: Final = 0.005
"""The thread that folds pauses after this time, for as long: the event loop shares the interpreter with it."""

logger = logging.getLogger("logdb.server")


class ColdStore:
    """The place of a cold tier. `source`: the cluster, for people. `folder`: for maps of old versions. Raises
    BackupError, and ModuleNotFoundError without fsspec."""

    def __init__(self, location: str, source: str, folder: Path) -> None:
        self._place, self._source, self._folder = place_of(location), source, folder
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-cold")
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="logdb-cold-reads")
        self._failure = ""
        self._stopping = threading.Event()
        self._numbers = itertools.count(1)
        shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed
        self._reader = ColdReader(PlacedSegments(self._place), self._make_map)

    def archive(self, segment: Archive, done: Callable[[Archived], None]) -> None:
        """Write a segment, and call `done` in the event loop."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, self._write, segment)
        future.add_done_callback(lambda future: done(self._result(segment.number, future.result())))

    def _write(self, segment: Archive) -> str:
        """Returns why the segment is not in the tier, "" if it is."""
        try:
            write_segment(self._place, segment, self._source)
        except Exception as error:  # also those of the library of a store
            return str(error) or repr(error)
        return ""

    def _result(self, number: int, failure: str) -> Archived:
        if failure and not self._failure:
            logger.error("the cold tier cannot be written; compactions wait", extra={"why": failure})
        elif self._failure and not failure:
            logger.info("the cold tier is written again")
        self._failure = failure
        return Archived(number, failure)

    # ---- reading

    def recall(self, recall: Recall, done: Callable[[Recalled], None]) -> None:
        """Read an old version, and call `done` in the event loop."""
        future = asyncio.get_running_loop().run_in_executor(self._reading, self._recalled, recall)
        future.add_done_callback(lambda future: None if future.cancelled() else done(future.result()))

    def _recalled(self, recall: Recall) -> Recalled:
        try:
            return self._reader.recalled(recall)
        except Exception as error:  # also those of the library of a store, and of a full disk
            logger.exception("an old version cannot be read")
            return Recalled(recall.number, 0, NotReadable("", f"the cold tier cannot be read: {error!r}"))

    def _make_map(self) -> DiskMap:
        return DiskMap(self._folder / str(next(self._numbers)), self._stopping)

    def close(self) -> None:
        """End the threads, after the file that is being written."""
        self._stopping.set()
        self._thread.shutdown()
        self._reading.shutdown(cancel_futures=True)
        self._reader.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class PlacedSegments:
    """The segments in a place."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._backup = cache(self._read_backup)

    def _read_backup(self, number: int) -> Backup:
        name = manifest_name(number)
        try:
            backup = read_backup(self._place, name)
        except FileNotFoundError:
            raise missing(self._place, name) from None
        if (backup.kind, backup.number) != (ARCHIVE, number):
            raise ColdTierError(f"{self._place.location(name)} is not of a cold tier")
        return backup

    def location(self) -> str:
        """See `Segments.location`."""
        return self._place.location()

    def head(self, number: int) -> SegmentHead:
        """See `Segments.head`."""
        backup = self._backup(number)
        assert backup.time is not None
        log_id = bytes.fromhex(backup.log_id)
        return SegmentHead(log_id, backup.since, backup.version, backup.oldest, backup.time, not backup.parts)

    def records(self, number: int) -> Iterable[LogRecord]:
        """See `Segments.records`."""
        backup = self._backup(number)
        for part in backup.parts:
            yield from records_of(self._place, part, bytes.fromhex(backup.log_id))


class DiskMap:
    """A map in a folder. `stopping`: makes the one that fills it raise Unavailable."""

    def __init__(self, folder: Path, stopping: threading.Event) -> None:
        self._folder, self._stopping = folder, stopping
        folder.parent.mkdir(exist_ok=True)
        self._checkpoint = Checkpoint(folder, bytes(16), inline=True)
        self.key_map = KeyMap(UnresolvedValues(), self._checkpoint)
        self._began = time.monotonic()

    @property
    def size_bytes(self) -> int:
        return self._checkpoint.size()

    def rest(self) -> None:
        """See `ViewMap.rest`."""
        if self.key_map.active.size > OVERLAY_BYTES:
            self._write(0)
        self._pause()

    def prune(self, floor: int) -> None:
        """See `ViewMap.prune`."""
        self._write(floor)
        for _ in self._checkpoint.prune(floor, self.key_map.deleted_to(floor)):
            self._pause()
        self.key_map.drop_deletions(lambda deleted: deleted.version <= floor)

    def _pause(self) -> None:
        if time.monotonic() - self._began >= WORK_S:
            if self._stopping.wait(WORK_S):
                raise Unavailable("the server is stopping")
            self._began = time.monotonic()

    def _write(self, version: int) -> None:
        """Write the changes to the disk; they reach `version` at least."""
        key_map, checkpoint = self.key_map, self._checkpoint
        frozen = key_map.freeze()
        newest = max(frozen.last, checkpoint.covers, version)
        checkpoint.begin(newest)
        for _ in checkpoint.write(frozen):
            self._pause()
        checkpoint.finish(newest, ())
        key_map.thaw()
        for _ in checkpoint.merge():
            self._pause()

    def close(self) -> None:
        """Remove it."""
        self._checkpoint.close()
        shutil.rmtree(self._folder, ignore_errors=True)
