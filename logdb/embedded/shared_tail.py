"""The end of the log of a database, which is read and decoded once for all change feeds of the process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from logdb.embedded.state_machine import StateMachine
from logdb.errors import VersionTrimmed
from logdb.log.contract import Batch, Trimmed
from logdb.log.local.subscriptions import BATCH_RECORDS, LocalSubscription
from logdb.store.recent_commits import CommitBlock, OrderedCommit, RecentCommits, WatchedCommit
from logdb.store.records import COMMIT, Place, Value, decode_commit
from logdb.store.watched import Watched
from logdb.system.forking import own

OVERLAYS: Final = 8
"""The map's overlay may be this number of times as large as the commits that are kept, and as their large values
(16 MiB each)."""
MAX_VALUE_BYTES: Final = 1 << 20
"""Each feed reads larger values itself."""


def applied_commits(machine: StateMachine, batch: Batch) -> list[OrderedCommit]:
    """The commits of a durable batch that were applied. Raises VersionTrimmed if a compaction has removed the outcome
    of one, Unavailable."""
    machine.wait_applied(batch.end - 1)
    is_aborted = machine.coordinator.ledger.is_aborted
    commits = [
        OrderedCommit(gsn, time, len(payload), decode_commit(payload, gsn))
        for gsn, time, _, payload in batch.records
        if not is_aborted(gsn)
    ]
    # The ledger has no outcomes for records before the floor.
    floor = machine.coordinator.floor
    if batch.first <= floor and any(record.gsn < floor for record in batch.records):
        raise VersionTrimmed(batch.first - 1, floor)
    return commits


class SharedTail:
    """The newest commits of the log that a feed has asked for.

    The first feed at the end of the log reads it for the others. A feed that is behind, or asks for versions that a
    compaction has dropped, gets nothing here, and reads the log itself.
    """

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._max_bytes = machine.overlay_bytes // OVERLAYS
        self._recent = RecentCommits(self._max_bytes)
        self._subscription: LocalSubscription | None = None
        self._values = OrderedDict[int, bytes | None]()
        self._values_bytes = 0
        self._lock = threading.Lock()
        own(self)

    def part_of(self, first: int, watched: Watched) -> tuple[int, list[WatchedCommit]] | None:
        """(end, the commits from record `first`, which is durable, up to `end` - 1 that write or delete watched keys);
        None if the feed has to read the log itself. Raises as `Feed.read`."""
        if first < max(self._machine.coordinator.floor, self._machine.log.oldest()):
            return None
        with self._lock:
            recent = self._recent
            if self._subscription is None or first > recent.end + BATCH_RECORDS:
                recent.restart(first)
                self._subscription = LocalSubscription(self._machine.log, first, {COMMIT})
            if first < recent.first:
                return None
            try:
                while recent.end <= first:
                    self._extend(self._subscription)
            except BaseException as error:
                self._subscription = None
                if isinstance(error, (Trimmed, VersionTrimmed)):  # a compaction has overtaken it
                    return None
                raise
            return recent.part_of(first, watched)

    def _extend(self, subscription: LocalSubscription) -> None:
        batch = subscription.take()
        self._recent.add(CommitBlock(batch.first, batch.end, applied_commits(self._machine, batch)))

    def load(self, value: Value, load: Callable[[Value], bytes | None]) -> bytes | None:
        """`load(value)`, the value of a commit; if it is a large one, it is kept for the next feed."""
        if not isinstance(value, Place) or value.length > MAX_VALUE_BYTES:
            return load(value)
        with self._lock:
            if value.gsn in self._values:
                return self._values[value.gsn]
            found = self._values[value.gsn] = load(value)
            self._values_bytes += len(found or b"")
            while self._values_bytes > self._max_bytes:
                self._values_bytes -= len(self._values.popitem(last=False)[1] or b"")
            return found

    def disown(self, parent: int) -> None:
        """In a child of fork(): replace the lock."""
        self._lock = threading.Lock()
