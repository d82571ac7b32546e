"""The cold tier of a cluster at one mapping server: segments are written in a thread, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from logdb.backups.archiving import write_segment
from logdb.backups.places import place_of
from logdb.cores.effects import Archive, Archived

logger = logging.getLogger("logdb.server")


class ColdStore:
    """The place of a cold tier. `source`: the cluster, for people. Raises BackupError, and ModuleNotFoundError without
    fsspec."""

    def __init__(self, location: str, source: str) -> None:
        self._place, self._source = place_of(location), source
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logdb-cold")
        self._failure = ""

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

    def close(self) -> None:
        """End the thread, after the file that it is writing."""
        self._thread.shutdown()
