"""Old versions of a database, folded from the records of its cold tier.

A view serves the versions from the floor of a compaction up to the next one. It is the fold of the records that the
compaction has left, which include its copies of all live versions, so it costs what a rebuild of the map cost then.
Its map is a checkpoint in a folder, and values that are not in the map are read from the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.cold.tier import Era
from logdb.embedded.cold.tiered_log import TieredLog
from logdb.embedded.reads import Reads
from logdb.embedded.snapshots import Snapshots
from logdb.embedded.state_machine import StateMachine
from logdb.log.contract import LogRecord, OrderedLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.records import COMPACTION, Decision

STRETCH: Final = 50_000
"""Number of records folded between two checks of the overlay."""


class ViewedLog:
    """The part of `OrderedLog` that reads and checkpoints of a view use: the records up to `durable`, without waiting
    and appending."""

    def __init__(self, log: TieredLog, durable: int) -> None:
        self.durable = durable
        self.read_record, self.payload, self.scan = log.read_record, log.payload, log.scan

    def wait_durable(self, gsn: int) -> None:
        """Return at once."""

    def refresh(self) -> int:
        """The last record."""
        return self.durable

    def end(self) -> int:
        """The record after the one that comes next: a view appends nothing."""
        return self.durable + 2

    def size(self, first: int = 0) -> int:
        """0: none of it has to be replayed."""
        return 0


class View(Reads):
    """Reads of the versions from `era.floor` to `through`. `users`: the number of reads under way. `size_bytes`: of its
    files."""

    def __init__(self, of: StateMachine, log: TieredLog, log_id: bytes, era: Era, through: int, folder: Path) -> None:
        self.era, self.through, self.users, self._folder = era, through, 0, folder
        self._checkpoint = Checkpoint(folder, log_id)
        viewed = cast(OrderedLog, ViewedLog(log, through))
        machine = StateMachine(of.path, viewed, self._checkpoint, overlay_bytes=of.overlay_bytes)
        super().__init__(machine, Snapshots(machine))
        try:
            self.fold(log)
        except BaseException:
            self.close()
            raise
        self.size_bytes = self._checkpoint.size()

    def fold(self, log: TieredLog) -> None:
        """Apply the records of the era. Raises Corruption, Unavailable."""
        machine, coordinator = self.machine, self.machine.coordinator
        checkpointer = Checkpointer(machine, self._checkpoint)
        at = self.era.first
        aborted = log.aborted(at, self.through + 1)
        coordinator.preload_decisions([Decision(at - 1, self.through, aborted)])
        coordinator.applied = at - 1
        while at <= self.through:
            end = min(at + STRETCH, self.through + 1)
            with machine.order_lock:
                coordinator.replay(self._relevant(log.scan(at, end)))
                coordinator.pass_to(end - 1)
            at = end
            checkpointer.write_if_due()
        checkpointer.write()  # its overlay would stay in memory

    def _relevant(self, records: Iterator[LogRecord]) -> Iterator[LogRecord]:
        """Without the compactions after the era: their floors are not those of this view."""
        return (record for record in records if record.tag != COMPACTION or record.gsn <= self.era.compacted_at)

    def close(self) -> None:
        """Remove its files."""
        self.machine.refuse()
        self._checkpoint.close()
        shutil.rmtree(self._folder, ignore_errors=True)
