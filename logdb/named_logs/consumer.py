"""Consumers of named logs, the synchronous face: the cursor moves in the transaction of the effects."""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from types import CoroutineType
from typing import Any, Protocol, Self

from logdb.errors import ConflictError, LogDBError, OutcomeUnknown, VersionTrimmed
from logdb.named_logs.cursors import (
    PAGE,
    ConsumerKeys,
    ConsumerState,
    Heartbeats,
    Pick,
    Progress,
    check_count,
    check_lease,
    check_partitions,
    consumer_in,
    first_position,
    is_balanced,
    partitions_in,
    rebalanced,
    states_of,
)
from logdb.named_logs.layout import CONSUMERS, LOGS, Entry, Layout, Position, behind, check_start, checked_position
from logdb.named_logs.snapshots import at_newest
from logdb.store.arguments import check_body, check_flag, checked_wait


class Reader(Protocol):
    """A snapshot or a transaction."""

    def multi_get(self, keys: list[bytes], /) -> Mapping[bytes, bytes]: ...
    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]: ...


class Snapshot(Reader, Protocol):
    """A snapshot, at `version`."""

    version: int


class Base(Protocol):
    """A database."""

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Snapshot: ...
    def multi_put(self, items: Mapping[bytes, bytes | None], *, label: str = "") -> int: ...
    def delete_range(self, start: bytes | None = None, end: bytes | None = None, *, label: str = "") -> int: ...
    def run(self, body: Callable[[Any], Any], *, label: str | None = None) -> Any: ...
    def outcome(self, txn_id: str, *, settle: bool = False) -> Any: ...
    def watch(
        self,
        prefix: bytes | None = None,
        *,
        keys: Any = None,
        since: int | None = None,
        timeout: float | None = None,
    ) -> Iterator[Any]: ...


def consumers_of(snapshot: Reader, layout: Layout) -> Iterator[str]:
    """The names of all consumers of a log, in order: one short read for each."""
    start, end = LOGS.range((layout.name, CONSUMERS))
    while (row := next(snapshot.scan(start, end, limit=1), None)) is not None:
        name = consumer_in(row[0])
        yield name
        start = ConsumerKeys(layout.name, name).all[1]


def end_of(db: Base, layout: Layout, *, reverse: bool) -> Position | None:
    """The position of the first entry of a log, with `reverse` of the last one; None if there is none."""
    rows = at_newest(db, lambda snapshot: list(snapshot.scan(*layout.range(), reverse=reverse, limit=1)))
    return next((entry.position for entry in layout.read(rows)), None)


class Consumer:
    """A consumer of a named log: `NamedLog.consumer` makes one.

    `run` hands out each entry to a function, in a transaction that also moves the cursor behind the entry. So each
    entry takes effect once, in order, also if processes are killed, if outcomes are unknown, and if several processes
    run the same consumer. The methods raise as those of `Database`.
    """

    _member: str | None = None

    def __init__(self, db: Base, layout: Layout, name: str) -> None:
        self._db, self._layout = db, layout
        self._keys = ConsumerKeys(layout.name, name)
        self._progress = Progress(layout, self._keys)
        self._label = f"consumer {name} of {layout.name}"[:200]

    @property
    def name(self) -> str:
        """The name of the consumer."""
        return self._keys.name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    # ---- consuming

    def run(
        self,
        body: Callable[[Any, Entry], object],
        *,
        batch: int = 1,
        limit: int | None = None,
        timeout: float | None = None,
        until_end: bool = False,
    ) -> int:
        """Call `body(txn, entry)` for each entry behind the cursor, in order, and wait for more. Returns the number of
        entries that have taken effect.

        The transaction `txn` of `body` also moves the cursor. After a conflict `body` runs again, so it must have no
        effect but on `txn`. `batch`: maximum number of entries in one transaction. It ends after `limit` entries; when
        no entry has come for `timeout` seconds (0: at the end of the log); or, with `until_end`, behind the last entry
        that the log has when it begins. Entries that are truncated before they are read are left out.

        Raises what `body` raises, which aborts the transaction; ConflictError as `Database.run`, unless another process
        runs the same consumer; LogDBError if the consumer is deleted meanwhile, is a group, or runs in
        another thread by this object; TypeError, ValueError; and as `Database.watch`. `run` can be called again after
        any of them.
        """
        check_body(body)
        check_flag("until_end", until_end)
        for name, count in (("batch", batch), ("limit", limit)):
            check_count(name, count)
        timeout, through, progress = checked_wait(timeout), None, self._progress
        with progress.running():
            if until_end:
                through = end_of(self._db, self._layout, reverse=True)
                if through is None:
                    return 0
            done, idle_since, progress.is_known = 0, time.monotonic(), False
            while limit is None or done < limit:
                self._beat()
                if not progress.is_known:
                    progress.refresh(at_newest(self._db, lambda snapshot: snapshot.multi_get(progress.keys)))
                pick = progress.pick(batch if limit is None else min(batch, limit - done), through)
                if pick.entries:
                    if self._commit(pick, body):
                        done += len(pick.entries)
                        idle_since = time.monotonic()
                    continue
                if through is not None and progress.end >= through:
                    break
                version = at_newest(self._db, self._look)
                if version is None:
                    continue
                left = None if timeout is None else idle_since + timeout - time.monotonic()
                if through is not None or (left is not None and left <= 0):
                    break
                self._wait(version, self._waiting_time(left))
            return done

    def _look(self, snapshot: Any) -> int | None:
        """Read more entries. Returns the snapshot's version if there are none; None if there are, or if the progress is
        not that of the snapshot."""
        progress = self._progress
        if entries := list(self._layout.read(snapshot.scan(*self._layout.range(progress.end), limit=PAGE))):
            progress.add(entries)
            return None
        return snapshot.version if progress.confirm(snapshot.multi_get(progress.watched)) else None

    def _commit(self, pick: Pick, body: Callable[[Any, Entry], object] | None = None) -> bool:
        """Move cursors, and let the entries take effect in the same transaction. Returns whether it has committed."""

        def step(txn: Any) -> bool:
            if not pick.holds(txn.multi_get(list(pick.expected))):
                return False
            for entry in pick.entries:
                result = body(txn, entry) if body is not None else None
                if isinstance(result, CoroutineType):
                    result.close()
                    raise TypeError("an async function consumes a log of logdb.aio only")
            pick.move(txn)
            return True

        try:
            committed = bool(self._db.run(step, label=self._label))
        except ConflictError as conflict:
            if conflict.key not in pick.expected:
                raise
            committed = False
        except OutcomeUnknown as error:
            committed = bool(self._db.outcome(error.txn_id, settle=True).committed)
        if committed:
            self._progress.done(pick)
        else:
            self._progress.is_known = False
        return committed

    def _wait(self, version: int, timeout: float | None) -> None:
        """Wait for entries, or for other owners or cursors, after a version at which the progress is at the end."""
        progress, keys = self._progress, self._progress.watched
        try:
            changes: Any = self._db.watch(self._layout.entries, keys=keys, since=version, timeout=timeout)
            with closing(changes):
                for change in changes:
                    if not change.changes.keys().isdisjoint(keys) or change.deleted:
                        progress.is_known = False
                        return
                    if entries := self._layout.changed(change.changes, progress.end):
                        progress.add(entries)
                        return
        except VersionTrimmed:  # a compaction has overtaken the consumer: the entries are still there
            pass

    def _beat(self) -> None:
        """Send the heartbeat of a group's member when it is due."""

    def _waiting_time(self, left_s: float | None) -> float | None:
        """The time in seconds that it may wait before something is due."""
        return left_s

    # ---- the cursor

    def states(self) -> list[ConsumerState]:
        """The state of each partition, with its lag. Raises as `Database.scan`."""

        def read(snapshot: Reader) -> list[ConsumerState]:
            found = self._cursors(snapshot)
            rows = snapshot.scan(*self._layout.range(first_position(self._keys, found)))
            return states_of(self._keys, found, self._layout.read(rows))

        return at_newest(self._db, read)

    def _cursors(self, snapshot: Reader) -> dict[bytes, bytes]:
        """The stored owners and cursors."""
        found = snapshot.multi_get([self._keys.owners])
        return {**found, **snapshot.multi_get(self._keys.cursors(partitions_in(self._keys, found)))}

    @property
    def position(self) -> Position | None:
        """The position of the last entry that took effect; None if none has. Of a group: the least of its partitions.
        Raises as `Database.multi_get`."""
        position = first_position(self._keys, at_newest(self._db, self._cursors))
        return position if position.version else None

    @property
    def lag(self) -> int:
        """The number of entries that have not taken effect. Reads them. Raises as `Database.scan`."""
        return sum(state.lag for state in self.states())

    def reset(
        self,
        after: Position | None = None,
        *,
        since: dt.datetime | float | None = None,
        to_end: bool = False,
    ) -> int:
        """Move the cursor: the next entry is the first one behind the position `after`; with `since` the first one
        committed after this time, as `NamedLog.read`; with `to_end` the next one that is appended; by default the first
        one of the log. Returns the version.

        A consumer that runs continues from there, after the transaction that it is in. Raises TypeError, ValueError,
        VersionTrimmed and FutureVersion (for `since`), and as `Database.put`.
        """
        check_flag("to_end", to_end)
        check_start(after, since, to_end or None)
        if after is not None:
            position: Position | None = checked_position("after", after)
        elif since is not None:
            position = behind(self._db.at(time=since).version)
        else:
            position = None

        def move(txn: Any) -> Any:
            partitions = partitions_in(self._keys, txn.multi_get([self._keys.owners]))
            to = position
            if to_end:  # the cursors are read first: one that passes the end conflicts, instead of going back
                txn.multi_get(self._keys.cursors(partitions))
                to = end_of(self._db, self._layout, reverse=True)
            txn.multi_put(self._keys.moved(range(partitions), to))
            return txn

        return int(self._db.run(move, label="").version)

    def delete(self) -> int:
        """Delete the consumer with its cursor. A process that runs it raises LogDBError. Returns the version."""
        return self._db.delete_range(*self._keys.all)

    def __repr__(self) -> str:
        return f"<logdb.named_logs.{type(self).__name__} {self.name!r} of {self._layout.name!r}>"


class GroupConsumer(Consumer):
    """A member of a group of consumers, which share the entries of a log by partition: `NamedLog.group` makes one.

    `with` makes it a member, and leaves the group at the end. Each partition belongs to one member at a time, which is
    the only one that its entries take effect through. Partitions move when members join, leave, or are lost: when their
    heartbeat has not come for their lease.
    """

    def __init__(self, db: Base, layout: Layout, name: str, partitions: int, lease: float) -> None:
        super().__init__(db, layout, name)
        check_partitions(partitions)
        check_lease(lease)
        self._partitions, self._lease_s = partitions, lease
        self._heartbeats: Heartbeats | None = None

    @property
    def member(self) -> str:
        """The id of this member, as `ConsumerState.owner`. Raises LogDBError outside of `with`."""
        return self._joined()[1]

    @property
    def partitions(self) -> list[int]:
        """The partitions that this member had when it last looked. Raises LogDBError outside of `with`."""
        self._joined()
        return sorted(self._progress.positions)

    def _joined(self) -> tuple[Heartbeats, str]:
        if self._heartbeats is None or self._member is None:
            raise LogDBError(f"use the group {self.name!r} in a with statement, which makes it a member")
        return self._heartbeats, self._member

    def __enter__(self) -> Self:
        if self._heartbeats is not None:
            raise LogDBError(f"this is a member of the group {self.name!r} already: make another one")
        self._member = secrets.token_hex(8)
        self._progress = Progress(self._layout, self._keys, self._partitions, self._member)
        self._heartbeats = Heartbeats(self._keys, self._member, self._lease_s)
        try:
            self._beat(is_joining=True)
            self._progress.refresh(at_newest(self._db, lambda snapshot: snapshot.multi_get(self._progress.keys)))
        except BaseException:
            self._heartbeats = None
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(LogDBError):  # then its lease ends
            self._rebalance(is_leaving=True)
        self._heartbeats = None

    def _beat(self, *, is_joining: bool = False) -> None:
        heartbeats, _ = self._joined()
        if time.monotonic() < heartbeats.due:
            return
        if is_joining:
            self._rebalance(is_joining=True)
            return

        def step(txn: Any) -> None:
            if not txn.multi_get([self._keys.owners]):
                raise self._keys.deleted()  # and stays so: no heartbeat remains of it
            txn.multi_put(heartbeats.next(time.monotonic()))

        self._db.run(step, label=self._label)
        rows, owners = at_newest(
            self._db,
            lambda snapshot: (list(snapshot.scan(*self._keys.heartbeats)), snapshot.multi_get([self._keys.owners])),
        )
        live, _ = heartbeats.observe(rows, time.monotonic())
        if not is_balanced(self._keys, owners, live):
            self._rebalance()
        elif (pick := self._progress.idle()).moved:
            self._commit(pick)

    def _rebalance(self, *, is_joining: bool = False, is_leaving: bool = False) -> None:
        """Make the owners those that suit the live members, and remove the heartbeats of the lost ones."""
        heartbeats, member = self._joined()
        keys = [self._keys.owners, self._keys.cursor(0)]

        def step(txn: Any) -> None:
            found = txn.multi_get(keys)
            rows = at_newest(self._db, lambda snapshot: list(snapshot.scan(*self._keys.heartbeats)))
            live, lost = heartbeats.observe(rows, time.monotonic())
            if is_leaving:
                live, lost = live - {member}, lost | {member}
            writes = rebalanced(self._keys, found, self._partitions, live, lost, is_joining=is_joining)
            if is_joining:  # with the owners, so that a member that is refused leaves nothing
                writes |= heartbeats.next(time.monotonic())
            txn.multi_put(writes)

        self._db.run(step, label=self._label)
        self._progress.is_known = False

    def _waiting_time(self, left_s: float | None) -> float | None:
        heartbeats, _ = self._joined()
        due = max(heartbeats.due - time.monotonic(), 0.0)
        return due if left_s is None else min(left_s, due)
