"""The change feed of the embedded host: the commits of the log, in order, from a version on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol

from logdb.api.results import Change
from logdb.errors import DatabaseClosed, Unavailable, VersionTrimmed
from logdb.log.contract import Batch, LogFailed, OrderedLog, Trimmed
from logdb.store.records import COMMIT, Value, decode_commit
from logdb.txn.coordinator import Coordinator


class FeedHost(Protocol):
    """What the feed needs of the host."""

    path: str
    closed: bool
    forked_from: int
    log: OrderedLog
    coordinator: Coordinator

    def settled(self, gsn: int) -> None: ...


class Feed:
    """Commits after `since` that touch a watched key; waits for more. Iterate, or `poll`; `close` ends it.

    `keys` and `prefix`: what is watched; neither: everything.
    """

    def __init__(self, host: FeedHost, since: int, prefix: bytes | None, keys: Collection[bytes] | None) -> None:
        self._host, self.since, self._prefix = host, since, prefix
        self._keys = None if keys is None else frozenset(keys)
        try:
            self._subscription = host.log.subscribe(since + 1, {COMMIT})
        except Trimmed as error:
            raise VersionTrimmed(since, error.oldest - 1) from error
        self._ready: list[tuple[int, int, str, dict[bytes, Value]]] = []

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
    def has_ready(self) -> bool:
        """Whether `take` has a commit to return."""
        return bool(self._ready)

    def take(self) -> Change:
        """The next commit of those that have been read."""
        gsn, time, label, watched = self._ready.pop()
        load = self._host.coordinator.map.values.load
        try:
            change = Change(gsn, time, label, {key: load(value) for key, value in watched.items()})
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        self.since = gsn
        return change

    def read(self, timeout: float | None) -> bool:
        """Read one more batch of the log, in which there may be no commit that is watched. False when there was none
        within `timeout` seconds, or the feed was closed. Raises as `poll`."""
        try:
            batch = self._subscription.poll(timeout)
        except Trimmed as error:
            raise VersionTrimmed(self.since, error.oldest - 1) from error
        except StopIteration:
            return False
        except LogFailed as error:
            if self._host.forked_from:
                raise DatabaseClosed(self._host.path, self._host.forked_from) from error
            if self._host.closed:
                return False
            raise Unavailable(
                f"the log of {self._host.path} failed ({error}); open it again and watch from {self.since}"
            ) from error
        if batch is None:
            return False
        self._host.settled(batch.end - 1)
        ready = self._commits(batch)
        # Which of the records before the floor had aborted is forgotten, and so is what they had written.
        floor = self._host.coordinator.floor
        if batch.first <= floor and any(record.gsn < floor for record in batch.records):
            raise VersionTrimmed(self.since, floor)
        if ready:
            ready.reverse()
            self._ready = ready
        else:
            self.since = batch.end - 1
        return True

    def _commits(self, batch: Batch) -> list[tuple[int, int, str, dict[bytes, Value]]]:
        """(version, time, label, what it has written of what is watched) of those that write some of it."""
        ledger, commits = self._host.coordinator.ledger, []
        for gsn, time, _, payload in batch.records:
            if ledger.is_aborted(gsn):
                continue
            commit = decode_commit(payload)
            watched = {key: value for key, value in commit.writes.items() if self._watches(key)}
            if watched:
                commits.append((gsn, time, commit.label, watched))
        return commits

    def close(self) -> None:
        """End the feed: who waits in it returns."""
        self._subscription.close()

    def _watches(self, key: bytes) -> bool:
        if self._keys is not None and key in self._keys:
            return True
        if self._prefix is not None:
            return key.startswith(self._prefix)
        return self._keys is None
