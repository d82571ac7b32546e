"""The verbs of a database for users, the same over every backend. `logdb.aio` has them for asyncio."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from time import perf_counter
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from logdb.api.backend import Backend
from logdb.api.results import ROUND_TRIPS, Change, Compacted, Found, HistoryEntry, Stats, Tested, stats_of
from logdb.api.timestamps import moment, nanoseconds
from logdb.errors import DatabaseClosed
from logdb.named_logs import ExclusiveLog, NamedLog, Retention
from logdb.named_logs.log import names_of
from logdb.retention.expiry import with_expiry
from logdb.retention.sweep import Sweeper, Swept, carry_out
from logdb.store.arguments import (
    check_flag,
    check_progress,
    checked_conditions,
    checked_items,
    checked_keys,
    checked_version,
    checked_wait,
    watched_keys,
)
from logdb.store.folds import ADD, MAX, MIN, check_fold
from logdb.store.key_map import Rows
from logdb.store.limits import check_key, check_pin, check_value
from logdb.store.ranges import check_prefix, key_range, range_to_delete, scan_ranges
from logdb.store.records import Condition, Fold, TxnId, unversioned_key, versioned_key
from logdb.tables.codecs import Codec
from logdb.tables.operations import Definition
from logdb.tables.table import Table
from logdb.txn.coordinator import Outcome
from logdb.txn.retry import ATTEMPTS, run
from logdb.txn.transaction import Transaction
from logdb.txn.validation import Verdict

D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
T = TypeVar("T")


class Snapshot:
    """The database at one version: `version`. `Database.at` makes one.

    Reads raise VersionTrimmed once a compaction has passed that version, unless it is pinned.
    """

    def __init__(self, host: Backend, version: int) -> None:
        self._host, self.version = host, version

    @overload
    def get(self, key: bytes) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: D) -> bytes | D: ...
    def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """The value of `key`, or `default` where the key does not exist.

        Raises TypeError, ValueError and KeyTooLarge for a key that cannot be one, DatabaseClosed, VersionTrimmed,
        Unavailable, Corruption.
        """
        check_key(key)
        self._check_open()
        value = self._host.get(key, self.version)
        return default if value is None else value

    def _check_open(self) -> None:
        if self._host.closed:
            raise DatabaseClosed(self._host.path, self._host.forked_from)

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def multi_get(self, keys: Iterable[bytes]) -> Found:
        """The existing keys among `keys`, with their values. Raises as `get`."""
        self._check_open()
        return Found(self._host.multi_get(checked_keys(keys), self.version)[1], self.version)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of the keys in [`start`, `end`) or with `prefix`, in key order.

        `start`, `end`: keys; None is the first key, or the end of all keys. `prefix`: instead of these. `reverse`: from
        the last key to the first. `limit`: maximum number of rows; up to 256 are
        read at once, otherwise rows are read as the iterator advances.

        Raises TypeError and ValueError for arguments that make no range, and as `get`.
        """
        low, high = key_range(start, end, prefix, limit, reverse)
        return rows_of(self._host.scan(low, high, self.version, reverse=reverse, limit=limit), limit)

    def multi_scan(
        self,
        ranges: Iterable[tuple[bytes | None, bytes | None]],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of several ranges, read together: for each of `ranges`, a pair (start, end) as of `scan`, a list of
        (key, value).

        `reverse`: each list from its last key to its first. `limit`: maximum number of rows of each range.

        Raises as `scan`.
        """
        self._check_open()
        return self._host.multi_scan(scan_ranges(ranges, limit, reverse), self.version, reverse=reverse)

    def history(self, key: bytes) -> Iterator[HistoryEntry]:
        """The versions of `key` up to this one, newest first, back to the oldest that is retained. Raises as `get`."""
        check_key(key)
        return (HistoryEntry(*entry) for entry in self._host.history(key, self.version))


class Database:
    """A LogDB database, for any number of threads: `logdb.open` and `logdb.connect` make one.

    Every write returns its version, an integer that grows along the log, once it is durable. A read sees every write
    that had returned before it began. After `close` every method raises DatabaseClosed. Behind endpoints every method
    raises Unavailable when no server answers within the timeout, and AccessDenied without the right.
    """

    def __init__(self, host: Backend) -> None:
        self._host = host

    # ---- reading

    @overload
    def get(self, key: bytes) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: D) -> bytes | D: ...
    def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """The newest value of `key`, or `default` where the key does not exist.

        Raises TypeError, ValueError and KeyTooLarge for a key that cannot be one, DatabaseClosed, Unavailable,
        Corruption.
        """
        if key.__class__ is not bytes or not key:
            check_key(key)
        value = self._host.get(key)
        if value is not None:
            return value
        check_key(key)  # its length, which costs time, only here: no key that exists is too long
        return default

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def multi_get(self, keys: Iterable[bytes]) -> Found:
        """The existing keys among `keys`, with their values, all of one snapshot.

        The atomic multi-get of Scalog-Store (dissertation 3.4.2). Raises as `get`.
        """
        version, found = self._host.multi_get(checked_keys(keys))
        return Found(found, version)

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of the keys in [`start`, `end`) or with `prefix`, in key order.

        `start`, `end`: keys; None is the first key, or the end of all keys. `prefix`: instead of these. `reverse`: from
        the last key to the first. `limit`: maximum number of rows. The whole iteration sees one snapshot, whatever is
        written meanwhile.

        Raises TypeError and ValueError for arguments that make no range, VersionTrimmed if the snapshot was compacted
        away meanwhile, and as `get`.
        """
        low, high = key_range(start, end, prefix, limit, reverse)
        batches = self._host.scan(low, high, reverse=reverse, limit=limit)
        return iter(batches[0]) if batches.__class__ is tuple else rows_of(batches, limit)

    def multi_scan(
        self,
        ranges: Iterable[tuple[bytes | None, bytes | None]],
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of several ranges, read together: for each of `ranges`, a pair (start, end) as of `scan`, a list of
        (key, value).

        `reverse`: each list from its last key to its first. `limit`: maximum number of rows of each range. All rows are
        of one snapshot; behind endpoints this takes one round trip.

        Raises as `scan`.
        """
        return self._host.multi_scan(scan_ranges(ranges, limit, reverse), reverse=reverse)

    def history(self, key: bytes) -> Iterator[HistoryEntry]:
        """The versions of `key`, newest first, back to the oldest that is retained. Raises as `get`."""
        check_key(key)
        return (HistoryEntry(*entry) for entry in self._host.history(key))

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Snapshot:
        """The database as it was at a `version`, or at a point in `time` (a datetime, or seconds since the epoch).

        A datetime without a time zone is local time. Without arguments: the newest snapshot. Raises VersionTrimmed,
        FutureVersion, TypeError, ValueError (both arguments, or one that makes no sense).
        """
        host = self._host
        if time is not None:
            if version is not None:
                raise ValueError("give a version or a time, but not both")
            return Snapshot(host, host.at_time(nanoseconds(time)))
        return Snapshot(host, host.version() if version is None else host.at(checked_version(version)))

    @property
    def version(self) -> int:
        """The newest version: that of the last record that is durable."""
        return self._host.version()

    @property
    def session(self) -> int:
        """The newest version that was read or written here: `logdb.connect(..., session=...)` continues with it."""
        return self._host.session

    @property
    def oldest_version(self) -> int:
        """The oldest version that can be read; 0 is the empty database."""
        return self._host.oldest()

    def time_of(self, version: int) -> dt.datetime | None:
        """When `version` was written (UTC); None for version 0, and for one whose record was compacted away.

        Raises VersionTrimmed, FutureVersion, TypeError, ValueError.
        """
        time = self._host.time_of(version) if checked_version(version) else None
        return None if time is None else moment(time)

    # ---- writing

    def put(self, key: bytes, value: bytes, *, label: str = "", ttl: float | None = None) -> int:
        """Write `value` under `key`. Returns the version, once it is durable.

        `label`: up to 1 KiB of text that names the transaction in the feed and in the conflicts of others. `ttl`: a
        time in seconds, after which a sweep deletes the key, unless it was written again: see `sweep`.

        Raises KeyTooLarge, ValueTooLarge, TypeError and ValueError for arguments that cannot be written; ReadOnly,
        DatabaseClosed; Unavailable if nothing was or will be written; OutcomeUnknown if that is not known.
        """
        check_key(key)
        check_value(key, value)
        if ttl is not None:
            return self.multi_put({key: value}, label=label, ttl=ttl)
        return self._host.write({key: value}, label)[0]

    def delete(self, key: bytes, *, label: str = "") -> int:
        """Delete `key`, which need not exist. Returns the version, once it is durable. `label` and errors: as `put`."""
        check_key(key)
        return self._host.write({key: None}, label)[0]

    def delete_range(self, start: bytes | None = None, end: bytes | None = None, *, label: str = "") -> int:
        """Delete the keys in [`start`, `end`); None: from the first key, or to the last. Returns the version, once it
        is durable.

        One record of some bytes in the log, whatever the range holds. To others it is a deletion of every key of the
        range: transactions that have read one of them conflict with it. The space is given back by the next
        compaction. `label` and errors: as `put`.
        """
        return self._host.write({}, label, (), range_to_delete(start, end))[0]

    def delete_prefix(self, prefix: bytes, *, label: str = "") -> int:
        """As `delete_range`, for the keys that begin with `prefix`; b"" deletes all keys."""
        return self._host.write({}, label, (), range_to_delete(None, None, prefix))[0]

    def add(self, key: bytes, n: int, *, label: str = "") -> int:
        """Add `n` to the number under `key`; a key that does not exist counts as 0. Returns the version, once it is
        durable.

        The value is a decimal number as text, as b"-12", of at most 100 digits. Commits that add to a key do not
        conflict with each other, wherever they come from. See `Transaction.add`. `label`: as `put`.

        Raises as `put`, and NotANumber if the key holds something else.
        """
        return self._fold(Fold(ADD, key, n), label)

    def min(self, key: bytes, value: int, *, label: str = "") -> int:
        """Set the number under `key` to `value`, unless it is smaller already. All else as `add`."""
        return self._fold(Fold(MIN, key, value), label)

    def max(self, key: bytes, value: int, *, label: str = "") -> int:
        """Set the number under `key` to `value`, unless it is larger already. All else as `add`."""
        return self._fold(Fold(MAX, key, value), label)

    def _fold(self, fold: Fold, label: str) -> int:
        check_fold(fold)
        return self._host.write({}, label, (), (), 0, (fold,))[0]

    def append(self, prefix: bytes, value: bytes, *, label: str = "") -> bytes:
        """Write `value` under a new key, which the commit makes of `prefix` and its version. Returns the key, once it
        is durable.

        The key is `prefix`, the version (8 bytes) and 0 (4 bytes), both big endian: later appends have greater keys,
        and appends to one prefix do not conflict. See `Transaction.append`. `label` and errors: as `put`.
        """
        check_prefix(prefix)
        check_value(prefix, value)
        key = unversioned_key(prefix, 0)
        return versioned_key(key, self._host.write({key: value}, label, (), (), 1)[0])

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.put(key, value)

    def __delitem__(self, key: bytes) -> None:
        self.delete(key)

    def multi_put(self, items: Mapping[bytes, bytes | None], *, label: str = "", ttl: float | None = None) -> int:
        """Write all of `items` or nothing; the value None deletes. Returns the version, once it is durable.

        `label`, `ttl`: as `put`. Raises as `put`, and TransactionTooLarge.
        """
        writes, appended = with_expiry(checked_items(items), ttl)
        return self._host.write(writes, label, (), (), appended)[0]

    def test_and_multi_put(
        self,
        conditions: Iterable[Condition],
        items: Mapping[bytes, bytes | None],
        *,
        label: str = "",
        ttl: float | None = None,
    ) -> Tested:
        """Write all of `items` if all of `conditions` hold, else nothing (Scalog-Store, dissertation 3.4.2).

        A condition that fails is a result, not an error: see `Tested`. `conditions`: of `logdb.equals`, `exists`,
        `absent`, `version_equals`, `version_less`, `version_greater`. `label`, `ttl`: as `put`. Raises as
        `multi_put`.
        """
        tested, (writes, appended) = checked_conditions(conditions), with_expiry(checked_items(items), ttl)
        return tested_answer(*self._host.write(writes, label, tested, (), appended), tested)

    def transaction(self, *, read_only: bool = False, label: str = "", guard_writes: bool = False) -> TransactionScope:
        """A transaction: `with db.transaction() as txn: ...` commits at the end and aborts on an exception.

        `label`: up to 1 KiB of text that names it in the feed and in the conflicts of others. `guard_writes`: abort too
        if a key that it wrote without reading has changed since the snapshot. `read_only`: never aborts, and sees
        durable versions only.

        The block raises at its end ConflictError, TransactionTooLarge, Unavailable, OutcomeUnknown. Raises TypeError.
        """
        check_flag("read_only", read_only)
        check_flag("guard_writes", guard_writes)
        return TransactionScope(self._host, read_only=read_only, label=label, guard_writes=guard_writes)

    @overload
    def run(
        self,
        body: Callable[[Transaction], T],
        *,
        read_only: bool = False,
        label: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
    ) -> T: ...
    @overload
    def run(self, body: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T: ...
    def run(  # type: ignore[misc]  # a parameter of the body may have the name of an option
        self,
        body: Callable[..., T],
        *args: Any,
        read_only: bool = False,
        label: str | None = None,
        attempts: int = ATTEMPTS,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> T:
        """Call `body(txn, *args, **kwargs)` in a transaction and return its result; call it again after each conflict.

        `read_only`, `label`: of the transaction; the label is by default the function's qualified name. `attempts`: how
        often `body` runs at most, with random pauses that grow. `timeout`: the time in seconds after which no other
        attempt begins. `txn.attempt` and `txn.conflicts` show which attempt it is, and how the earlier ones ended. See
        `logdb.transactional`.

        Raises the last ConflictError, with the number of `attempts`; what `body` raises, and what a transaction raises
        at its end; TypeError, ValueError.
        """
        return run(self, body, *args, read_only=read_only, label=label, attempts=attempts, timeout=timeout, **kwargs)

    @overload
    def table(self, name: str, *, key: type[K], value: Codec[V]) -> Table[K, V]: ...
    @overload
    def table(self, name: str, *, key: tuple[type, ...], value: Codec[V]) -> Table[tuple[Any, ...], V]: ...
    def table(self, name: str, *, key: Any, value: Codec[V]) -> Table[Any, V]:
        """The table called `name`: rows with typed keys and values, and their indexes. The first write creates it.

        `key`: the type of the keys (bytes, str, int, float, bool, datetime or UUID), or a tuple of types for keys that
        are tuples. `value`: how rows are stored: a codec, such as `logdb.tables.Json()`. All programs must give the
        same types and format. Raises TypeError, ValueError.
        """
        return Table(Definition(name, key, value), self)

    @overload
    def log(self, name: str, *, exclusive: Literal[False] = False, retention: Retention | None = None) -> NamedLog: ...
    @overload
    def log(self, name: str, *, exclusive: Literal[True], retention: Retention | None = None) -> ExclusiveLog: ...
    def log(self, name: str, *, exclusive: bool = False, retention: Retention | None = None) -> NamedLog:
        """The named log `name`, in which entries have positions in the order of the database's log. The first append
        creates it. `exclusive`: for its only writer, see `logdb.named_logs.ExclusiveLog`: the first append takes over,
        and the appends of earlier exclusive writers are refused. `retention`: how long it keeps its entries, stored by
        `create` or the first append (`NamedLog.set_retention`); None: as it is stored. Raises TypeError, ValueError."""
        check_flag("exclusive", exclusive)
        return (ExclusiveLog if exclusive else NamedLog)(self, name, retention)

    def logs(self) -> list[str]:
        """The names of the named logs that have entries or were created, in order: one short read for each. Raises as
        `scan`."""
        return list(names_of(self.at()))

    def outcome(self, txn_id: str, *, settle: bool = False) -> Outcome:
        """How the transaction with the id `txn_id` ended: committed, aborted, not found or forgotten.

        A transaction that is not found may still be on its way from its client. `settle`: if the log has no record of
        it, abort it, so that the answer is final. Raises ValueError for text that is not an id, TypeError,
        Unavailable.
        """
        check_flag("settle", settle)
        return self._host.outcome(TxnId.parse(txn_id), settle)

    # ---- following

    def watch(
        self,
        prefix: bytes | None = None,
        *,
        keys: Iterable[bytes] | None = None,
        since: int | None = None,
        timeout: float | None = None,
        deleted_keys: bool = False,
    ) -> Iterator[Change]:
        """The commits after version `since` (default: from now on) that touch the `prefix` or the `keys`, without gaps.

        Waits for more, or ends when none has come for `timeout` seconds. To resume, pass the last item's `version` as
        `since`. A commit that deletes a range names the range (`Change.deleted`). `deleted_keys`: also report the keys
        that existed there, as deletions among its `changes`, which takes a scan of the range.

        Raises VersionTrimmed (also when a compaction overtakes a slow reader), FutureVersion, Unavailable, TypeError,
        ValueError.
        """
        watched, wait_s = watched_keys(prefix, keys), checked_wait(timeout)
        check_flag("deleted_keys", deleted_keys)
        feed = self._host.feed(None if since is None else checked_version(since), prefix, watched)

        def changes() -> Iterator[Change]:
            try:
                while (change := feed.poll(wait_s)) is not None:
                    if deleted_keys and change.deleted:
                        before = Snapshot(self._host, change.version - 1)
                        rows = [row for start, end in change.deleted for row in before.scan(start, end)]
                        change = change.with_deleted([key for key, _ in rows])
                    yield change
            finally:
                feed.close()

        return changes()

    # ---- upkeep

    def pin(self, name: str, version: int | None = None) -> int:
        """Keep a `version` (default: the newest) readable through compactions until `unpin`. Returns the version.

        `name`: 1 to 400 bytes; an existing pin of that name is replaced. Raises VersionTrimmed, FutureVersion,
        TypeError, ValueError, and as `put`.
        """
        check_pin(name)
        return self._host.pin(name, None if version is None else checked_version(version))

    def unpin(self, name: str) -> None:
        """Remove the pin `name`. Raises KeyError if there is none, TypeError, ValueError, and as `put`."""
        check_pin(name)
        self._host.unpin(name)

    @property
    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""
        return self._host.pins()

    def stats(self) -> Stats:
        """Sizes, garbage, memory, commits, aborts and latencies: see `Stats`. Raises as `get`."""
        times = []
        for _ in range(ROUND_TRIPS):
            started = perf_counter()
            version = self._host.version()
            times.append(perf_counter() - started)
        found = self._host.measures()
        return stats_of(self.path, version, self._host.oldest(), len(self._host.pins()), times, found)

    def compact(self, before: int | None = None, *, progress: Callable[[int], None] | None = None) -> Compacted:
        """Drop what only reads before version `before` (default: the newest) can see, and trim the log.

        Live rows keep their versions. Pins and running transactions hold it back: see the result's `floor`. `progress`:
        called with the number of versions copied since its last call. A compaction that was interrupted continues with
        the next call.

        Raises VersionTrimmed, FutureVersion, TypeError, ValueError, and as `put`.
        """
        check_progress(progress)
        return self._host.compact(None if before is None else checked_version(before), progress)

    def sweep(self) -> Swept:
        """Delete what has expired: keys with a `ttl`, and the entries of named logs that their retention does not keep.

        The process that opened the directory, the server, or one of the servers of a cluster does so every few seconds
        (`sweep_interval` of `logdb.open`), so programs need not. Times are those of the log's records. The age of what
        was written since the last sweep counts from this sweep on. Until a sweep has deleted it, a key or an entry can
        be read. One call does a bounded amount of work: see `Swept.is_complete`.

        Raises ReadOnly, and as `put`.
        """
        return carry_out(self._host, Sweeper().sweep(0))

    def checkpoint(self, *, progress: Callable[[int], None] | None = None) -> int:
        """Write the key map to disk, so that the next opening replays nothing. Returns the version that it covers.

        `progress`: called with the number of keys written since its last call. Raises TypeError, Unavailable (no room
        on the disk), and as `put`.
        """
        check_progress(progress)
        return self._host.checkpoint(progress)

    @property
    def path(self) -> str:
        """The directory, ":memory:", or the addresses of the servers."""
        return self._host.path

    def close(self) -> None:
        """Make durable what was written and release the directory. Closing twice has no effect.

        Raises OutcomeUnknown if a write fails that has not returned yet.
        """
        self._host.close()

    def __enter__(self) -> Database:
        if self._host.closed:
            raise DatabaseClosed(self._host.path, self._host.forked_from)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<logdb.Database {self._host.path!r}{' (closed)' if self._host.closed else ''}>"


class TransactionScope:
    """The context of a transaction: begins it, and commits or aborts it at the end."""

    _has_ended = True

    def __init__(self, host: Backend, *, read_only: bool, label: str, guard_writes: bool) -> None:
        self._host = host
        self._options = read_only, label, guard_writes

    def __enter__(self) -> Transaction:
        read_only, label, guard_writes = self._options
        host = self._host
        txn = self._txn = Transaction(
            host, read_only=read_only or host.read_only, label=label, guard_writes=guard_writes
        )
        self._has_ended = False
        txn.reader = host.begin_work(txn)
        return txn

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        txn = self._txn
        if kind is not None or txn.is_over:
            txn.close()
            self._host.end(txn)
        else:
            txn.close()
            txn.version = self._host.commit(txn)
        self._has_ended = True

    def __del__(self) -> None:
        if not self._has_ended:  # an interrupt (Ctrl-C) came before the first line of `__exit__`
            self._host.end(self._txn)


def rows_of(batches: Iterable[Rows], limit: int | None) -> Iterator[tuple[bytes, bytes]]:
    """The rows of batches, up to `limit`."""
    if isinstance(batches, tuple):  # a short scan, see `Batches`
        return iter(batches[0])
    return islice(chain.from_iterable(batches), limit)


def tested_answer(gsn: int, verdict: Verdict, conditions: Sequence[Condition]) -> Tested:
    """The answer of a test-and-multi-put."""
    return Tested(verdict.committed, gsn, tuple(conditions[position] for position in verdict.failed))
