"""The change feed of an embedded database: the commits of its log, in order, from a version on."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from logdb.api.results import Change
from logdb.embedded.cold.history import ColdHistory
from logdb.embedded.shared_tail import SharedTail, applied_commits
from logdb.embedded.state_machine import StateMachine
from logdb.errors import DatabaseClosed, Unavailable, VersionTrimmed
from logdb.log.contract import Batch, LogFailed, Trimmed
from logdb.log.local.subscriptions import LocalSubscription
from logdb.store.recent_commits import OrderedCommit, WatchedCommit, watched_commits
from logdb.store.records import COMMIT, decode_commit
from logdb.store.watched import Watched


class Feed:
    """Commits after `since` that write a watched key; waits for more.

    `keys`, `prefix`: the watched keys; None for both: all keys. `tail`: has the newest commits. `cold`: has the records
    that the log has trimmed.
    """

    def __init__(
        self,
        machine: StateMachine,
        since: int,
        prefix: bytes | None,
        keys: Collection[bytes] | None,
        tail: SharedTail,
        cold: ColdHistory | None = None,
    ) -> None:
        self._machine, self.since, self._watched, self._cold = machine, since, Watched(prefix, keys), cold
        self._tail = tail
        try:
            self._subscription = LocalSubscription(machine.log if cold is None else cold.log, since + 1, {COMMIT})
        except Trimmed as error:
            raise VersionTrimmed(since, error.oldest - 1) from error
        self._ready: list[WatchedCommit] = []

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
        try:
            while not self._ready:
                if not self.read(timeout):
                    return None
            return self.take()
        except DatabaseClosed:
            if self._machine.forked_from:
                raise
            return None

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
        gsn, time, label, writes, deleted, _ = self._ready.pop()  # records of this log have no folds
        values = self._machine.coordinator.map.values
        if self._cold is not None:
            values = self._cold.values
        load = self._tail.load
        try:
            loaded = {key: load(value, values.load) for key, value in writes.items()}
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        self.since = gsn
        return Change(gsn, time, label, loaded, deleted)

    def read(self, timeout: float | None) -> bool:
        """Read the next batch of the log, which may have no watched commit. Returns False if none came within `timeout`
        seconds or the feed was closed. Raises as `poll`."""
        subscription, machine = self._subscription, self._machine
        if machine.closed:
            raise DatabaseClosed(machine.path, machine.forked_from)
        try:
            if not subscription.wait(timeout):
                return False
            shared = self._tail.part_of(subscription.position, self._watched)
            if shared is None:
                ready = watched_commits(self._applied(subscription.take()), self._watched)
            else:
                subscription.position, ready = shared
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        except StopIteration:
            return False
        except LogFailed as error:
            if machine.closed:
                return False
            raise Unavailable(
                f"the log of {machine.path} failed ({error}); open it again and watch from {self.since}"
            ) from error
        if ready:
            self._ready = ready[::-1]
        else:
            self.since = subscription.position - 1
        return True

    def _applied(self, batch: Batch) -> list[OrderedCommit]:
        try:
            return applied_commits(self._machine, batch)
        except VersionTrimmed as error:
            if self._cold is None:
                raise VersionTrimmed(self.since, error.oldest) from error
        aborted = frozenset(self._cold.log.aborted(batch.first, batch.end))
        return [
            OrderedCommit(gsn, time, len(payload), decode_commit(payload, gsn))
            for gsn, time, _, payload in batch.records
            if gsn not in aborted
        ]

    def close(self) -> None:
        """End the feed; a waiting `poll` returns None."""
        self._subscription.close()
