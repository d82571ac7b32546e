"""The change feed of an embedded database: the commits of its log, in order, from a version on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from logdb.api.results import Change
from logdb.embedded.cold.history import ColdHistory
from logdb.embedded.state_machine import StateMachine
from logdb.errors import DatabaseClosed, Unavailable, VersionTrimmed
from logdb.log.contract import Batch, LogFailed, Trimmed
from logdb.store.records import COMMIT, Range, Value, decode_commit
from logdb.store.watched import Watched


class Feed:
    """Commits after `since` that write a watched key; waits for more.

    `keys`, `prefix`: the watched keys; None for both: all keys. `cold`: has the records that the log has trimmed.
    """

    def __init__(
        self,
        machine: StateMachine,
        since: int,
        prefix: bytes | None,
        keys: Collection[bytes] | None,
        cold: ColdHistory | None = None,
    ) -> None:
        self._machine, self.since, self._watched, self._cold = machine, since, Watched(prefix, keys), cold
        try:
            log = machine.log if cold is None else cold.log
            self._subscription = log.subscribe(since + 1, {COMMIT})
        except Trimmed as error:
            raise VersionTrimmed(since, error.oldest - 1) from error
        self._ready: list[tuple[int, int, str, dict[bytes, Value], tuple[Range, ...]]] = []

    def __iter__(self) -> Iterator[Change]:
        return self

    def __next__(self) -> Change:
        change = self.poll(None)
        if change is None:
            raise StopIteration
        return change

    def poll(self, timeout: float | None) -> Change | None:
        """The next commit, or None when there was none within `timeout` seconds (None: wait) or the feed was closed.

        Raises VersionTrimmed when compaction has overtaken the feed, Corruption, Unavailable when the log failed.
        """
        while not self._ready:
            if not self.read(timeout):
                return None
        return self.take()

    @property
    def is_cold(self) -> bool:
        """Whether the next batch is read from the cold tier, which takes long."""
        return self._cold is not None and self.since + 1 < self._machine.log.oldest()

    @property
    def has_ready(self) -> bool:
        """Whether a commit has been read that `take` has not returned."""
        return bool(self._ready)

    def take(self) -> Change:
        """The next of the commits that have been read."""
        gsn, time, label, watched, deleted = self._ready.pop()
        values = self._machine.coordinator.map.values if self._cold is None else self._cold.values
        load = values.load
        try:
            change = Change(gsn, time, label, {key: load(value) for key, value in watched.items()}, deleted)
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        self.since = gsn
        return change

    def read(self, timeout: float | None) -> bool:
        """Read the next batch of the log, which may have no watched commit. Returns False if none came within `timeout`
        seconds or the feed was closed. Raises as `poll`."""
        try:
            batch = self._subscription.poll(timeout)
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        except StopIteration:
            return False
        except LogFailed as error:
            if self._machine.forked_from:
                raise DatabaseClosed(self._machine.path, self._machine.forked_from) from error
            if self._machine.closed:
                return False
            raise Unavailable(
                f"the log of {self._machine.path} failed ({error}); open it again and watch from {self.since}"
            ) from error
        if batch is None:
            return False
        self._machine.wait_applied(batch.end - 1)
        ready = self._commits(batch, self._machine.coordinator.ledger.is_aborted)
        # The ledger has no outcomes for records before the floor.
        floor = self._machine.coordinator.floor
        if batch.first <= floor and any(record.gsn < floor for record in batch.records):
            if self._cold is None:
                raise VersionTrimmed(self.since, floor)
            ready = self._commits(batch, frozenset(self._cold.log.aborted(batch.first, batch.end)).__contains__)
        if ready:
            ready.reverse()
            self._ready = ready
        else:
            self.since = batch.end - 1
        return True

    def _commits(
        self, batch: Batch, is_aborted: Callable[[int], bool]
    ) -> list[tuple[int, int, str, dict[bytes, Value], tuple[Range, ...]]]:
        """(version, time, label, writes of watched keys, deleted ranges of watched keys) of the commits that have
        any."""
        commits = []
        for gsn, time, _, payload in batch.records:
            if is_aborted(gsn):
                continue
            commit = decode_commit(payload, gsn)
            watched, deleted = self._watched.part_of(commit)
            if watched or deleted:
                commits.append((gsn, time, commit.label, watched, deleted))
        return commits

    def close(self) -> None:
        """End the feed; a waiting `poll` returns None."""
        self._subscription.close()
