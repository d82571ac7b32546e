"""Named logs, the synchronous face."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any, Protocol

from logdb.errors import VersionTrimmed
from logdb.named_logs.consumer import Base as ConsumerBase
from logdb.named_logs.consumer import Consumer, GroupConsumer, Reader, consumers_of, end_of
from logdb.named_logs.cursors import ConsumerState
from logdb.named_logs.layout import (
    LOGS,
    NO_ENTRIES,
    Appends,
    Entry,
    Layout,
    LogStats,
    Position,
    behind,
    check_entry,
    check_start,
    check_txn_id,
    checked_position,
    name_in,
    stored,
    with_entry,
)
from logdb.named_logs.retention import Retention, check_retention
from logdb.named_logs.snapshots import at_newest
from logdb.store.arguments import checked_wait, listed


class Writer(Appends, Reader, Protocol):
    """A transaction."""

    def put(self, key: bytes, value: bytes) -> None: ...
    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None: ...
    def get(self, key: bytes, /) -> bytes | None: ...
    def log(self, name: str) -> TransactionLog: ...


class Base(ConsumerBase, Protocol):
    """A database."""

    def append(self, prefix: bytes, value: bytes, *, label: str = "") -> bytes: ...
    def put(self, key: bytes, value: bytes, *, label: str = "") -> int: ...
    def transaction(
        self, *, read_only: bool = False, label: str = "", guard_writes: bool = False
    ) -> AbstractContextManager[Any]: ...


def names_of(reader: Reader) -> Iterator[str]:
    """The names of all logs, in order: one short read for each."""
    start, end = LOGS.range()
    while (row := next(reader.scan(start, end, limit=1), None)) is not None:
        name = name_in(row[0])
        yield name
        start = LOGS.range((name,))[1]


class TransactionLog:
    """A named log within a transaction: `Transaction.log` makes one."""

    def __init__(self, txn: Writer, name: str, epoch: int | None = None) -> None:
        self._txn, self._layout, self._epoch = txn, Layout(name), epoch

    def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> None:
        """Append an entry with this `value` when the transaction commits. `txn_id`: as `NamedLog.append`; the
        transaction conflicts with another one that appends with an id. `key`: the partition key, as `NamedLog.append`.

        Raises TypeError, ValueError (also for an id that is less than the last one), and as `Transaction.append`.
        """
        check_entry(value, txn_id, key)
        if self._epoch is not None:
            self._layout.check_epoch(self._epoch, self._txn.get(self._layout.writer))
        last = None
        if txn_id is not None:
            last = self._layout.last_own_id(self._txn)
            if last is None:
                for row, _ in self._txn.scan(*self._layout.id_range, reverse=True, limit=1):
                    last = self._layout.id_of(row)
        self._layout.append(self._txn, value, txn_id, key, last)

    @property
    def appended(self) -> list[Position]:
        """The positions of the entries that the transaction has appended to this log, in order. Raises LogDBError
        before the commit has returned, and after an abort."""
        return self._layout.appended(self._txn)


class NamedLog:
    """A log of entries inside the database, called `name`: `Database.log` makes one.

    Every entry has a `Position`, which contains the version of its commit; entries are in the order of the database's
    log. The methods raise as those of `Database`.
    """

    def __init__(self, db: Base, name: str, retention: Retention | None = None) -> None:
        check_retention(retention)
        self._db, self._layout, self._retention = db, Layout(name), retention

    @property
    def name(self) -> str:
        """The name of the log."""
        return self._layout.name

    def create(self) -> int:
        """Create the log, so that `Database.logs` names it while it has no entries; the first append does so, too.
        Returns the version. Creating it again has no effect on its entries."""
        self._store_retention()
        return self._db.put(self._layout.created, b"")

    def delete(self) -> int:
        """Delete the log with all its entries, transaction ids and its retention, with one small record. Returns the
        version."""
        layout = self._layout
        with self._db.transaction() as txn:
            txn.delete_range(*layout.all)
            txn.multi_put({layout.policy: None, layout.marks: None})
        return int(txn.version)

    # ---- retention

    @property
    def retention(self) -> Retention | None:
        """How long the log keeps its entries; None: until they are truncated. Raises as `Database.multi_get`."""
        policy = self._layout.policy
        return self._layout.kept(at_newest(self._db, lambda snapshot: snapshot.multi_get([policy])).get(policy))

    def set_retention(self, retention: Retention | None) -> int:
        """Store how long the log keeps its entries, for all programs that use it; None: until they are truncated.
        Sweeps (`Database.sweep`) delete the others. Returns the version. The age of entries from before the log had a
        retention, or a limit of its size, counts from the next sweep on.

        Raises TypeError, and as `Database.run`.
        """
        check_retention(retention)
        policy = self._layout.policy

        def body(txn: Any) -> Any:
            txn.multi_put(self._layout.with_retention(txn.get(policy), retention))
            return txn

        version = int(self._db.run(body, label="retention").version)
        self._retention = None
        return version

    def _store_retention(self) -> None:
        """Store the retention that the log was opened with, before the first append through this object."""
        if self._retention is not None:
            self.set_retention(self._retention)

    # ---- appending

    def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> Position:
        """Append an entry with this `value`. Returns its position, once it is durable.

        Appends without `txn_id` do not conflict with each other. `txn_id`: a number of the application, from 0 to
        2^64 - 1, that never decreases along the log, by which `read` finds the entry. `key`: the partition key, up to
        1,024 bytes: in a group of consumers, one member at a time has all entries of a key.

        Raises TypeError, ValueError (also for an id that is less than the last one); ConflictError if others append
        with ids all the time; and as `Database.append`.
        """
        if txn_id is not None:
            return self.extend([value], txn_id=txn_id, key=key)[0]
        check_entry(value, None, key)
        self._store_retention()
        return self._layout.position(self._db.append(self._layout.entries, stored(value, None, key)))

    def extend(self, values: Iterable[bytes], *, txn_id: int | None = None, key: bytes | None = None) -> list[Position]:
        """Append entries with these `values` in one transaction, all with `txn_id` and the partition `key`. Returns
        their positions, once they are durable. Raises as `append`, and TransactionTooLarge."""
        all_values = listed(values, "values")

        def body(txn: Writer) -> TransactionLog:
            log = self.within(txn)
            for value in all_values:
                log.append(value, txn_id=txn_id, key=key)
            return log

        if not all_values:
            return []
        self._store_retention()
        log: TransactionLog = self._db.run(body)
        return log.appended

    def within(self, txn: Any) -> TransactionLog:
        """This log in a transaction `txn` of the same database, to append to it: as `Transaction.log`."""
        return TransactionLog(txn, self.name)

    # ---- reading

    def read(
        self,
        after: Position | None = None,
        *,
        since: dt.datetime | float | None = None,
        from_txn_id: int | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Entry]:
        """The entries of one snapshot, in order, read as the iterator advances.

        One of: `after`: those behind this position; `since`: those committed after this time (a datetime, or seconds
        since the epoch), which must not be before the oldest version of the database; `from_txn_id`: from the first
        entry with this transaction id or a greater one. `reverse`: from the last entry back. `limit`: maximum number of
        entries.

        Raises TypeError, ValueError, VersionTrimmed and FutureVersion (for `since`), and as
        `Database.scan`.
        """
        check_start(after, since, from_txn_id)
        snapshot = self._db.at()
        start = self._layout.range(None if after is None else checked_position("after", after))
        if since is not None:
            start = self._layout.range(behind(self._db.at(time=since).version))
        elif from_txn_id is not None:
            check_txn_id(from_txn_id)
            found = next(snapshot.scan(self._layout.id_key(from_txn_id), self._layout.id_range[1], limit=1), None)
            if found is None:
                return iter(())
            start = self._layout.key(self._layout.position_of_id(*found)), start[1]
        return self._layout.read(snapshot.scan(*start, reverse=reverse, limit=limit))

    def subscribe(self, after: Position | None = None, *, timeout: float | None = None) -> Iterator[Entry]:
        """The entries behind the position `after` (default: from the first), in order and without gaps. Waits for more,
        or ends when none has come for `timeout` seconds.

        To resume, pass the last entry's `position` as `after`. Entries that are truncated before they are read are left
        out. Raises TypeError, ValueError, and as `Database.watch`.
        """
        checked_wait(timeout)
        position = None if after is None else checked_position("after", after)

        def entries(position: Position | None) -> Iterator[Entry]:
            while True:
                snapshot = self._db.at()
                try:
                    for entry in self._layout.read(snapshot.scan(*self._layout.range(position))):
                        position = entry.position
                        yield entry
                    for change in self._db.watch(self._layout.entries, since=snapshot.version, timeout=timeout):
                        for entry in self._layout.changed(change.changes, position):
                            position = entry.position
                            yield entry
                except VersionTrimmed:  # a compaction has overtaken the reader: the entries are still there
                    continue
                return

        return entries(position)

    def __len__(self) -> int:
        """The number of entries. Reads all of them. Raises as `Database.scan`."""
        with self._db.transaction(read_only=True) as txn:  # a lease keeps its version, however long it takes
            return sum(1 for _ in txn.scan(*self._layout.range()))

    def __bool__(self) -> bool:
        return True

    @property
    def first(self) -> Position | None:
        """The position of the first entry, None if there is none. Raises as `Database.scan`."""
        return end_of(self._db, self._layout, reverse=False)

    @property
    def last(self) -> Position | None:
        """The position of the last entry, None if there is none. Raises as `Database.scan`."""
        return end_of(self._db, self._layout, reverse=True)

    def stats(self) -> LogStats:
        """The number of entries, their size, and where they begin and end. Reads all of them, in one snapshot. Raises
        as `Database.scan`."""
        with self._db.transaction(read_only=True) as txn:
            return reduce(with_entry, self._layout.read(txn.scan(*self._layout.range())), NO_ENTRIES)

    # ---- consumers

    def consumer(self, name: str) -> Consumer:
        """The consumer `name` of this log, whose cursor moves in the transactions of its effects. Its first transaction
        creates it, at the first entry. Raises TypeError, ValueError."""
        return Consumer(self._db, self._layout, name)

    def group(self, name: str, *, partitions: int = 8, lease: float = 10.0) -> GroupConsumer:
        """A member of the group of consumers `name`, which share the entries of this log; `with` makes it a member.

        `partitions`: the number of partitions, fixed by the first member; an entry belongs to one by its partition key,
        or by its position if it has none. `lease`: the time in seconds after which another member takes over the
        partitions of this one when it has sent no heartbeat. It sends one between transactions, three times in a lease,
        so a lease must be longer than a transaction of the body.

        Raises TypeError, ValueError; entering it raises ValueError for another number of partitions, and LogDBError
        for a consumer that is not a group.
        """
        return GroupConsumer(self._db, self._layout, name, partitions, lease)

    def consumers(self) -> list[ConsumerState]:
        """The state of all consumers, in order of their names: one for each partition. Reads the entries that they have
        not consumed. Raises as `Database.scan`."""
        names = at_newest(self._db, lambda snapshot: list(consumers_of(snapshot, self._layout)))
        return [state for name in names for state in self.consumer(name).states()]

    # ---- truncating

    def truncate(self, before: Position) -> int:
        """Delete the entries before the position `before`, with one small record. Returns the version. The last
        transaction id stays the least that a later append may have.

        Raises TypeError, ValueError, and as `Database.delete_range`.
        """
        layout, position = self._layout, checked_position("before", before)

        def read(snapshot: Reader) -> Entry | None:
            if next(snapshot.scan(*layout.id_range, limit=1), None) is None:
                return None
            gone = layout.read(snapshot.scan(*layout.range(before=position), reverse=True))
            return next((entry for entry in gone if entry.txn_id is not None), None)

        last = at_newest(self._db, read)
        with self._db.transaction() as txn:
            txn.delete_range(*layout.range(before=position))
            if last is not None:
                txn.delete_range(*layout.ids_before(last))
        return int(txn.version)

    def __repr__(self) -> str:
        return f"<logdb.named_logs.NamedLog {self.name!r}>"


class ExclusiveLog(NamedLog):
    """A log that one writer at a time appends to: `Database.log` with `exclusive` makes one.

    The writer that has taken over last has the log, and an epoch, a number that grows. Appends of the writers before it
    are refused, also in transactions (`within`): the transaction of an append reads the epoch. Only writers that open
    the log as exclusive exclude each other.
    """

    def __init__(self, db: Base, name: str, retention: Retention | None = None) -> None:
        super().__init__(db, name, retention)
        self._epoch: int | None = None
        self._claiming = threading.Lock()

    @property
    def epoch(self) -> int | None:
        """The epoch of this writer, None before it has taken over."""
        return self._epoch

    def claim(self) -> int:
        """Take over the log: the writers before are refused from now on. Returns the epoch. The first append does so,
        too, but not in a transaction. A writer that was refused can claim the log again. Raises as `Database.run`."""

        def body(txn: Writer) -> int:
            epoch, value = self._layout.next_epoch(txn.get(self._layout.writer))
            txn.put(self._layout.writer, value)
            return epoch

        self._epoch = int(self._db.run(body, label="claim"))
        return self._epoch

    def within(self, txn: Any) -> TransactionLog:
        """As `NamedLog.within`. An append raises WriterFenced if another writer has taken over, and conflicts if one
        does before the commit. Raises LogDBError before `claim`."""
        if self._epoch is None:
            raise self._layout.not_claimed()
        return TransactionLog(txn, self.name, self._epoch)

    def append(self, value: bytes, *, txn_id: int | None = None, key: bytes | None = None) -> Position:
        """As `NamedLog.append`. Raises WriterFenced."""
        return self.extend([value], txn_id=txn_id, key=key)[0]

    def extend(self, values: Iterable[bytes], *, txn_id: int | None = None, key: bytes | None = None) -> list[Position]:
        """As `NamedLog.extend`. Raises WriterFenced."""
        with self._claiming:  # once, whatever the number of threads
            if self._epoch is None:
                self.claim()
        return super().extend(values, txn_id=txn_id, key=key)
