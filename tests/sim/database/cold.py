"""The cold tier in the simulator: a store in memory that is slow, away at times, and has what killed servers wrote.
Each life of a server reads it by views of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from logdb.backups.restoring import bytes_of
from logdb.cluster.cold_reads import WINDOW, ColdReader, SegmentHead
from logdb.cluster.messages import Get, History, MultiScan, NotReadable, Scan, Version
from logdb.cores.effects import MILLISECOND, Address, Archive, Archived, Recall, Recalled
from logdb.log.contract import LogRecord
from logdb.store.records import COMMIT, Commit, Value, decode_commit, decode_relocation
from tests.harness.cold_tiers import MemoryMap
from tests.sim.database.keys import is_within
from tests.sim.process import Process
from tests.sim.world import Failure, World

AWAY = "the cold tier is away"
"""Why a read failed."""


class SimulatedColdTier:
    """The segments by number. `away_until`: no segment is written or read before that time."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self._world, self._draw = world, draw
        self.segments: dict[int, Archive] = {}
        self.away_until, self._away = 0, 0.2
        self._reads = world.draw("reads of the cold tier")
        self._readers: dict[Address, tuple[int, ColdReader]] = {}

    def archive(self, process: Process, segment: Archive) -> None:
        """Write a segment after some time, also if the server is killed meanwhile, and report it later."""
        if self._draw.random() < self._away:
            self.away_until = self._world.now + self._draw.randrange(20 * MILLISECOND)
        written_after, reported_after = self._draw.randrange(5 * MILLISECOND), self._draw.randrange(5 * MILLISECOND)
        life = process.lives

        def report(failure: str) -> None:
            if process.lives == life:
                process.deliver(Archived(segment.number, failure))

        def write(_: None) -> None:
            failure = "the store is away" if self._world.now < self.away_until else ""
            self._world.counts["cold tier is away"] += bool(failure)
            if not failure:
                self._keep(segment)
            self._world.after(reported_after, report, failure)

        self._world.after(written_after, write, None)

    def recall(self, process: Process, recall: Recall) -> None:
        """Read an old version after some time."""
        life = process.lives
        reader = self._reader_of(process)
        self._check_need(process, recall)

        def read(_: None) -> None:
            if process.lives != life:
                return
            recalled = reader.recalled(recall)
            if self._world.now < self.away_until:
                recalled = Recalled(recall.number, 0, NotReadable("", AWAY))
            elif isinstance(recalled.result, NotReadable):
                raise Failure("DBS-21: the cold tier has what the log states", f"{recall}: {recalled.result}")
            self._world.counts["read from the cold tier"] += 1
            process.deliver(recalled)

        self._world.after(self._reads.randrange(self._reads.choice((1, 10)) * MILLISECOND), read, None)

    def _reader_of(self, process: Process) -> ColdReader:
        known, reader = self._readers.get(process.address, (0, None))
        if reader is None or known != process.lives:
            reader = ColdReader(self, MemoryMap, window=self._reads.choice((1, 2, WINDOW)))
            self._readers[process.address] = process.lives, reader
        return reader

    def _check_need(self, process: Process, recall: Recall) -> None:
        """A server does not read from the store, which may be away, the versions that it has itself."""
        core: Any = process.core
        floor, question = core.replica.coordinator.floor, recall.question
        is_new = isinstance(question, Get | Scan | MultiScan | Version) and recall.version >= floor
        if is_new or (isinstance(question, History) and recall.version > floor):
            raise Failure("DBS-21: the tier is read before the floor only", f"{process.address} at {floor}: {recall}")

    def location(self) -> str:
        """See `Segments.location`."""
        return "the cold tier"

    def head(self, number: int) -> SegmentHead:
        """See `Segments.head`."""
        if number not in self.segments:
            raise Failure("DBS-20: the tier has what was trimmed", f"segment {number} is missing")
        segment = self.segments[number]
        is_empty = not segment.records
        return SegmentHead(segment.log_id, segment.since, segment.version, segment.oldest, segment.time, is_empty)

    def records(self, number: int) -> Sequence[LogRecord]:
        """See `Segments.records`."""
        return self.segments[number].records

    def _keep(self, segment: Archive) -> None:
        """DBS-20: what is written again is the same."""
        number = segment.number
        self._world.counts["segment copied to the cold tier"] += 1
        if self.segments.setdefault(number, segment) != segment:
            raise Failure("DBS-20: a segment follows from the log", f"{segment} and {self.segments[number]}")
        if number > 1 and (number - 1 not in self.segments or self.segments[number - 1].version != segment.since):
            raise Failure("DBS-20: segments follow each other", f"{segment}")

    @property
    def through(self) -> int:
        """The newest version in the store."""
        return max((segment.version for segment in self.segments.values()), default=0)

    def heal(self) -> None:
        """Accept every segment from now on."""
        self.away_until, self._away = 0, 0.0

    def check(self, versions: dict[bytes, list[tuple[int, bytes | None]]]) -> None:
        """DBS-20: the store has the versions of a replay, from its first version on."""
        if not self.segments or self.through < (oldest := self.segments[1].oldest):
            return
        found: dict[bytes, dict[int, bytes | None]] = {key: {} for key in versions}
        rows: dict[bytes, Value] = {}
        for _, segment in sorted(self.segments.items()):
            for record in segment.records:
                if record.tag == COMMIT:
                    self._take(decode_commit(record.payload, 0), found)
                else:
                    rows.update({row.key: row.value for row in decode_relocation(record.payload)})
        for key, right in versions.items():
            before = [value for version, value in right if version <= oldest]
            if rows.get(key) != (before[-1] if before else None):
                raise Failure("DBS-20: the cold tier has the rows of its first version", f"{key!r} is {rows.get(key)}")
            wanted = {version: value for version, value in right if oldest < version <= self.through}
            if found[key] != wanted:
                raise Failure("DBS-20: the cold tier has every version", f"{key!r} is {found[key]}, not {wanted}")

    def _take(self, commit: Commit, found: dict[bytes, dict[int, bytes | None]]) -> None:
        for key, versions in found.items():
            if any(is_within(key, *deleted) for deleted in commit.deletes):
                versions[commit.sequence] = None
            if key in commit.writes:
                versions[commit.sequence] = bytes_of(commit.writes[key])
