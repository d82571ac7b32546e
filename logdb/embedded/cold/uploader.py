"""Copying sealed segments to the cold tier, in the background and before a compaction trims them."""

from __future__ import annotations

import logging
import threading
from itertools import takewhile
from typing import Any, Final

from logdb.embedded.aborted import aborted_in
from logdb.embedded.cold.tier import ColdTier, Era, Manifest
from logdb.embedded.state_machine import StateMachine
from logdb.errors import ColdTierError, LogDBError
from logdb.log.contract import LogFailed
from logdb.log.local.local_log import LocalLog
from logdb.log.segments.segment import Segment

logger = logging.getLogger("logdb")

LOOK_S: Final = 1.0
"""Pause between two looks for sealed segments."""
MAX_PAUSE_S: Final = 60.0
"""The pause doubles with each failure in a row up to this."""


class Uploader:
    """Copies sealed segments, the oldest first; a failure is tried again, and keeps the segments in the local log.

    The thread of the process that writes the log looks for segments to copy; `release` copies them at once. `failures`:
    the number of failures since the last success.
    """

    def __init__(self, machine: StateMachine, tier: ColdTier) -> None:
        assert isinstance(machine.log, LocalLog)
        self._machine, self._log, self._tier = machine, machine.log, tier
        self._one_at_a_time = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._agreed: Manifest | None = None
        self._new_eras: list[Era] = []
        self._trim_to = 0
        self.failures = 0

    def start(self) -> None:
        """Begin to copy in the background."""
        self._thread = threading.Thread(target=self._run, name="logdb-cold", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the file that it is copying."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def disown(self) -> None:
        """In a child of fork(): replace the lock."""
        self._one_at_a_time = threading.Lock()

    # ---- beginning

    def attach(self) -> None:
        """Agree with the manifest, or write the first one. Raises ColdTierError, Corruption, Unavailable."""
        with self._one_at_a_time:
            self._agree()

    def _agree(self) -> Manifest:
        """The manifest, which belongs to this log: it has what the log has trimmed, and no other records."""
        tier, store = self._tier, self._log.store
        found = tier.agree()
        if found is None:
            if tier.known is not None:
                raise ColdTierError(f"{tier.location} has lost its manifest; nothing more is trimmed")
            coordinator = self._machine.coordinator
            found = tier.begin(self._machine.path, Era(store.base, coordinator.floor, coordinator.compacted_at))
        if found != self._agreed:
            self._check(found)
        self._agreed = found
        return found

    def _check(self, found: Manifest) -> None:
        store = self._log.store
        if found.end < store.base:
            raise ColdTierError(
                f"{self._tier.location} has the records up to {found.end - 1} of {self._machine.path}, whose log begins"
                f" at {store.base}: the records between are lost; use an empty place to begin again"
            )
        segments = store.segments
        for segment in segments:
            cold = found.segment_of(segment.base)
            if cold is None:
                continue
            last = cold.part.end - 1
            is_sealed = segment is not segments[-1] and segment.end == cold.part.end
            if not is_sealed or last > self._log.durable or store.time(last) != cold.part.last_time:
                raise self._other_copy(segment.base)
        compacted_at = found.eras[-1].compacted_at
        if compacted_at > self._machine.coordinator.compacted_at:
            raise self._other_copy(compacted_at)

    def _other_copy(self, gsn: int) -> ColdTierError:
        return ColdTierError(
            f"{self._tier.location} has other records from {gsn} on than {self._machine.path}: another copy of this"
            " database writes there; use an empty place for one of them"
        )

    # ---- copying

    def copy(self) -> None:
        """Copy the sealed segments that the tier lacks, and note new eras. Raises ColdTierError, Corruption,
        Unavailable."""
        with self._one_at_a_time:
            manifest = self._tier.known
            if manifest is None or manifest != self._agreed or self._new_eras or self._missing(manifest):
                for segment in self._missing(self._agree()):
                    if self._stopping.is_set():
                        return
                    self._add(segment)
                while self._new_eras:
                    self._agreed = self._tier.add_era(self._new_eras[0])
                    del self._new_eras[0]
            self.failures = 0

    def _missing(self, manifest: Manifest) -> list[Segment]:
        """The sealed segments from the end of the tier on, up to one that is not sealed."""
        durable_end = self._log.store.durable_end
        left = (segment for segment in self._log.store.segments[:-1] if segment.base >= manifest.end)
        # A record behind a segment is durable: no recovery continues in its file.
        return list(takewhile(lambda one: one.end < durable_end and one.allocated == one.length, left))

    def _add(self, segment: Segment) -> None:
        first, end = segment.base, segment.end
        for _ in segment.scan(first, end, frozenset()):  # damage must not get into the tier
            pass
        times = segment.time(first), segment.time(end - 1)
        data = segment.contents()[: segment.length]  # its path may be that of a copy, if the directory was moved
        self._agreed = self._tier.add(data, first, end, times, aborted_in(self._machine, first, end))

    def release(self, era: Era) -> bool:
        """Copy the records before `era.first`, which a compaction has left. Returns whether they may be trimmed now;
        else the thread trims them later."""
        self._trim_to = max(self._trim_to, era.first)
        self._new_eras.append(era)
        try:
            self.copy()
        except (LogDBError, LogFailed, OSError) as error:
            self._failed(error)
        return self._has(era.first)

    def _has(self, end: int) -> bool:
        """Whether the tier has all records before `end` (COLD-2)."""
        manifest = self._agreed
        return manifest is not None and manifest.end >= end

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            logger.warning("the cold tier cannot be written, and the log keeps its segments: %s", error)

    def _run(self) -> None:
        while not self._stopping.wait(min(LOOK_S * 2 ** min(self.failures, 10), MAX_PAUSE_S)):
            try:
                self.copy()
                if self._log.store.base < self._trim_to and self._has(self._trim_to):
                    self._log.trim(self._trim_to)
            except (LogDBError, LogFailed, OSError) as error:
                self._failed(error)
            except Exception:  # a library of a store
                logger.exception("the cold tier cannot be written, and the log keeps its segments")
                self.failures += 1

    def measures(self) -> dict[str, Any]:
        """Numbers for `Backend.measures`."""
        manifest = self._tier.known
        segments = () if manifest is None else manifest.segments
        return {
            "cold_bytes": sum(segment.part.size for segment in segments),
            "cold_version": 0 if manifest is None else manifest.end - 1,
            "cold_failures": self.failures,
        }
