"""An interactive transaction: one snapshot, a read set, a write set, and its own writes visible to itself.

The bookkeeping (`Workspace`, `RangeRead`) is separate from the reading, which a coroutine awaits and a thread does not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Protocol, TypeVar, overload

from sortedcontainers import SortedList

from logdb.errors import ConflictError, LogDBError, ReadOnly, shown
from logdb.named_logs import TransactionLog
from logdb.retention.expiry import expiry_rows, size_of_rows, ttl_ms
from logdb.store.arguments import check_items, listed
from logdb.store.folds import ADD, MAX, MIN, check_fold, folded, joined_fold
from logdb.store.key_map import Rows
from logdb.store.limits import check_key, check_label, check_size, check_value
from logdb.store.range_deletions import NOTHING
from logdb.store.ranges import ScanRange, check_prefix, joined, key_range, range_to_delete, scan_ranges
from logdb.store.records import INDEX_BYTES, Fold, Range, TxnId, unversioned_key, versioned_key
from logdb.txn.speculation import SpeculatedWrites

D = TypeVar("D")

LEAST_MORE_ROWS = 8
FIRST_WRITES, MAX_WRITES = 16, 4_096
"""First and largest number of own writes that a scan merges at a time: many scans end early."""
KEY_OF = itemgetter(0)


class Namer(Protocol):
    """Allocates transaction ids."""

    def new_txn_id(self) -> TxnId: ...


class Reader(Protocol):
    """Reads at a version. Raises VersionTrimmed, Corruption, Unavailable."""

    def get(self, key: bytes, at: int | None = None) -> bytes | None: ...
    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]: ...
    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterable[Rows]: ...
    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]: ...


class TransactionOver(LogDBError):
    """The transaction was used after it had been committed or aborted."""


class ReadSet:
    """The keys and ranges that a transaction has read. `spans`: one of each scan, which notes its progress there."""

    __slots__ = ("keys", "spans")

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.spans: list[Span] = []

    @property
    def ranges(self) -> list[Range]:
        """The ranges read, in order; adjacent ones are joined, and a scan of an empty range has read nothing."""
        ranges = [span.range for span in self.spans]
        return joined([(start, end) for start, end in ranges if end is None or start < end])


class Span:
    """The part of [start, end) that a scan has read: from its beginning, which is `end` with `reverse`, to the key
    `last` inclusive. `last` is b"" before the first row, and None once the whole range was read."""

    __slots__ = ("_end", "_reverse", "_start", "last")

    def __init__(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        self._start, self._end, self._reverse = start, end, reverse
        self.last: bytes | None = b""

    @property
    def range(self) -> Range:
        """[start, end) of that part."""
        start, end, last = self._start or b"", self._end, self.last
        if last is None:
            return start, end
        if not last:
            return start, start
        return (last, end) if self._reverse else (start, last + b"\0")


class Workspace:
    """The read set and the write set of a transaction.

    `snapshot`: the version that it reads; 0 until the first read if a server takes the snapshot. `since`: when that was
    requested, by the clock of `Speculation`. `may_speculate`: the caller runs it again after `Misspeculated`.
    `speculated`: the writes that it speculates on, None if it has a snapshot. `attempt`: the number of this attempt of
    a function that `Database.run` runs, from 1 on; `conflicts`: how the earlier ones ended, the first one first.
    """

    attempt = 1
    conflicts: tuple[ConflictError, ...] = ()
    since = 0.0
    may_speculate = False
    speculated: SpeculatedWrites | None = None

    def __init__(self, namer: Namer, *, read_only: bool, label: str, guard_writes: bool) -> None:
        if label != "":
            check_label(label)
        self.snapshot = self.version = 0
        self.read_only, self.label, self.guard_writes = read_only, label, guard_writes
        self.read_set = ReadSet()
        self.writes: dict[bytes, bytes | None] = {}
        self.appends: dict[bytes, bytes] = {}
        self.folds: dict[bytes, list[Fold]] = {}
        self._ttls: dict[bytes, int] = {}
        self._appended_to: dict[bytes, int] = {}
        self._deletes: list[Range] = []
        self.is_over = False
        self._namer = namer
        self._ordered: SortedList | None = None
        self._deleted = NOTHING
        self._size = 0
        self._id: TxnId | None = None

    @property
    def id(self) -> str:
        """The transaction's id, for `Database.outcome` after a crash: keep it before you commit."""
        return str(self.txn_id)

    @property
    def txn_id(self) -> TxnId:
        """As `id`, as a client and a sequence number."""
        if self._id is None:
            self._check_open("ask for its id before it ends")
            self._id = self._namer.new_txn_id()
        return self._id

    @property
    def known_id(self) -> TxnId | None:
        """The id if `id` or `txn_id` was read, else None."""
        return self._id

    @property
    def guarded_keys(self) -> list[bytes]:
        """The keys that must not have changed since the snapshot, in order."""
        keys = self.read_set.keys
        return sorted(keys | self.writes.keys() if self.guard_writes else keys)

    @property
    def guarded_ranges(self) -> list[Range]:
        """The ranges in which no key may have changed since the snapshot, in order."""
        ranges = self.read_set.ranges
        return joined([*ranges, *self._deletes]) if self.guard_writes and self._deletes else ranges

    @property
    def deletes(self) -> list[Range]:
        """The ranges that it deletes, in order; adjacent ones are joined."""
        self._deletes = joined(self._deletes)
        return self._deletes

    @property
    def writes_nothing(self) -> bool:
        """Whether the transaction has only read."""
        return not (self.writes or self._deletes or self.appends or self.folds)

    @property
    def all_writes(self) -> dict[bytes, bytes | None]:
        """The writes, and after them the appends, by keys whose version is not known yet (`unversioned_key`): those of
        the transaction, and those that let keys expire."""
        if not self.append_count:
            return self.writes
        return {**self.writes, **self.appends, **expiry_rows(self._ttls.items())}

    @property
    def all_folds(self) -> list[Fold]:
        """The folds, those of one key in their order."""
        return list(chain.from_iterable(self.folds.values()))

    @property
    def append_count(self) -> int:
        """The number of appends among `all_writes`."""
        return len(self.appends) + len(self._ttls)

    @property
    def appended(self) -> list[bytes]:
        """The keys that the commit made for the appends, in the order of these. Raises LogDBError before the commit has
        returned, and after an abort."""
        if self.appends and not self.version:
            raise LogDBError("the keys of appends are known once the transaction has committed")
        return [versioned_key(key, self.version) for key in self.appends]

    # ---- reading

    def unread(self, keys: Iterable[bytes], found: dict[bytes, bytes]) -> list[bytes]:
        """Add the values of own writes of `keys` to `found`. Returns the other keys, now in the read set, which the
        caller reads from the snapshot.

        Raises TypeError, ValueError, KeyTooLarge.
        """
        self._check_open()
        left = []
        for key in keys:
            check_key(key)
            if key in self.writes:
                value = self.writes[key]
                if value is not None:
                    found[key] = value
            elif not self.has_deleted(key):
                left.append(key)
        self.read_set.keys.update(left)
        return left

    def folded_value(self, key: bytes, value: bytes | None) -> bytes:
        """The value of `key` after own folds; `value`: that in the snapshot. Raises NotANumber."""
        return folded(self.folds[key], lambda _: value)[key]

    def with_folds(self, found: Iterable[tuple[bytes, bytes]], keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The rows `found` in the snapshot, and what own folds make of those of `keys`. Raises NotANumber."""
        values = dict(found)
        if self.folds:
            folds = [fold for key in keys for fold in self.folds.get(key, ())]
            values.update(folded(folds, values.get))
        return values

    def has_deleted(self, key: bytes) -> bool:
        """Whether a range that the transaction deletes covers `key`. A later write of the key counts more."""
        return bool(self._deletes) and self._deleted.newest(key) > 0

    def written(self, low: bytes | None, high: bytes | None, reverse: bool, max_keys: int) -> list[bytes]:
        """Up to `max_keys` of the own keys in [low, high), from the first, or from the last when `reverse`.

        The keys are sorted when a scan needs them: those written since the last scan are the last ones of `writes`.
        """
        ordered = self._ordered
        if ordered is None:
            ordered = self._ordered = SortedList()
        if new := len(self.writes) - len(ordered):
            ordered.update(islice(reversed(self.writes), new))
        return list(islice(ordered.irange(low, high, inclusive=(True, False), reverse=reverse), max_keys))

    # ---- writing

    def put(self, key: bytes, value: bytes, *, ttl: float | None = None) -> None:
        """Write `value` under `key` when the transaction commits. `ttl`: as `Database.put`. Raises ReadOnly,
        LimitExceeded, TypeError, ValueError.
        """
        check_value(key, value)
        self._write(key, value, len(value), None if ttl is None else ttl_ms(ttl))

    def delete(self, key: bytes) -> None:
        """Delete `key` when the transaction commits; it need not exist. Raises as `put`."""
        self._write(key, None, 0)

    def multi_put(self, items: Mapping[bytes, bytes | None], *, ttl: float | None = None) -> None:
        """Write all of `items` when the transaction commits; the value None deletes. `ttl`: as `Database.put`. Raises
        as `put`."""
        check_items(items)
        for key, value in items.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value, ttl=ttl)

    def add(self, key: bytes, n: int) -> None:
        """Add `n` to the number under `key` when the transaction commits; a key that does not exist counts as 0.

        The value is a decimal number as text, as b"-12". The key is not read, so transactions that add to it do not
        conflict with each other; a transaction that has read it conflicts with them. A read of the key in this
        transaction sees the sum, and counts as a read. The commit raises NotANumber if the key holds something else;
        here it is raised if this transaction has put it there. The key has no time to live afterwards, unless this
        transaction has written it with one.

        Raises as `put`, NotANumber, and ValueError for `n` with more than 100 digits.
        """
        self._fold(Fold(ADD, key, n))

    def min(self, key: bytes, value: int) -> None:
        """Set the number under `key` to `value` when the transaction commits, unless it is smaller already. All else as
        `add`."""
        self._fold(Fold(MIN, key, value))

    def max(self, key: bytes, value: int) -> None:
        """Set the number under `key` to `value` when the transaction commits, unless it is larger already. All else as
        `add`."""
        self._fold(Fold(MAX, key, value))

    def _fold(self, fold: Fold) -> None:
        self._check_writable()
        check_fold(fold)
        key = fold.key
        if key in self.writes or self.has_deleted(key):
            value = folded((fold,), self.writes.get)[key]
            self._write(key, value, len(value), self._ttls.get(key))
            return
        if self.appends:
            self._check_not_both(key, self.appends)
        size = self._size + len(key) + len(b"%d" % fold.operand)
        check_size(size)
        self._size = size
        joined_fold(self.folds.setdefault(key, []), fold)

    def append(self, prefix: bytes, value: bytes) -> None:
        """Write `value` under a new key that the commit makes: `prefix`, the version of the commit (8 bytes), and the
        number of earlier appends to the prefix in this transaction (4 bytes), both big endian.

        So the keys of a prefix are in the order of the log, and transactions that append to the same prefix do not
        conflict with each other. After the commit they are in `appended`. Own reads do not see an append, and own range
        deletes do not delete it.

        Raises as `put`; ValueError for a number above 2^32 - 1.
        """
        self._check_writable()
        check_prefix(prefix)
        check_value(prefix, value)
        index = self._appended_to.get(prefix, 0)
        if index >> 8 * INDEX_BYTES:
            raise ValueError(f"a transaction appends at most 2^32 values to prefix {shown(prefix)}")
        key = unversioned_key(prefix, index)
        self._check_not_both(key, self.writes)
        self._check_not_both(key, self.folds)
        size = self._size + len(key) + len(value)
        check_size(size)
        self._size, self.appends[key], self._appended_to[prefix] = size, value, index + 1

    def _check_not_both(self, key: bytes, others: Container[bytes]) -> None:
        if key in others:
            raise ValueError(f"key {shown(key)} is that of an append before it gets its version")

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self.put(key, value)

    def __delitem__(self, key: bytes) -> None:
        self.delete(key)

    def delete_range(self, start: bytes | None = None, end: bytes | None = None) -> None:
        """Delete the keys in [`start`, `end`) when the transaction commits: those that exist then, also if others have
        written them since the snapshot. None: from the first key, or to the last.

        Nothing is read, so this conflicts with nothing, unless the transaction also scans the range or was begun with
        `guard_writes`. Raises as `put`.
        """
        self._delete_ranges(range_to_delete(start, end))

    def delete_prefix(self, prefix: bytes) -> None:
        """As `delete_range`, for the keys that begin with `prefix`; b"" deletes all keys."""
        self._delete_ranges(range_to_delete(None, None, prefix))

    def _delete_ranges(self, ranges: list[Range]) -> None:
        self._check_writable()
        for start, end in ranges:
            size = self._size + len(start) + len(end or b"")
            gone = self.written(start, end, False, len(self.writes)) if self.writes else []
            size -= sum([len(key) + len(self.writes[key] or b"") for key in gone])
            check_size(size)
            self._size = size
            for key in gone:
                del self.writes[key]
                self._ttls.pop(key, None)
                if self._ordered is not None:
                    self._ordered.remove(key)
            for key in [key for key in self.folds if start <= key and (end is None or key < end)]:
                del self.folds[key]
            self._deletes.append((start, end))
            self._deleted = self._deleted.with_range(start, end, 1)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly("the transaction was begun with read_only=True")

    def _write(self, key: bytes, value: bytes | None, size: int, ttl: int | None = None) -> None:
        self._check_writable()
        check_key(key)
        if self.appends:
            self._check_not_both(key, self.appends)
        size += self._size
        if key in self.writes:
            size -= len(self.writes[key] or b"")
        else:
            size += len(key)
        if ttl is not None:
            size += size_of_rows([key], ttl)
        check_size(size)
        self._size = size
        self.writes[key] = value
        if self.folds:
            self.folds.pop(key, None)
        if ttl is not None:
            self._ttls[key] = ttl
        elif self._ttls:
            self._ttls.pop(key, None)

    # ---- the end

    def close(self) -> None:
        """End the transaction: every later read or write raises. Called by commit and abort."""
        self.is_over = True

    def _check_open(self, instead: str = "begin another one") -> None:
        if self.is_over:
            raise TransactionOver(f"the transaction is over; {instead}")


class RangeRead:
    """One scan of a transaction: merges batches of the snapshot with the own writes. `span`: what it has read.

    Each request to the snapshot is for the rest of `limit`. If own deletions remove rows the scan requests more, each
    time further beyond the limit, until `is_over`: the snapshot has no more rows.
    """

    def __init__(
        self, work: Workspace, start: bytes | None, end: bytes | None, reverse: bool, limit: int | None
    ) -> None:
        work._check_open()
        self._work, self._reverse, self._limit = work, reverse, limit
        self._left_start, self._left_end = start, end
        self.span = Span(start, end, reverse)
        work.read_set.spans.append(self.span)
        self._requested: int | None = None
        self._got = self._passed = self._more = 0
        self.is_over = False

    def ask(self) -> tuple[bytes | None, bytes | None, int | None]:
        """(start, end, limit) of the next request to the snapshot."""
        if self._limit is not None:
            self._requested = self._limit - self._passed + self._more
            self._more = 2 * self._more or LEAST_MORE_ROWS
        self._got = 0
        return self._left_start, self._left_end, self._requested

    @property
    def is_full(self) -> bool:
        """Whether `limit` rows were returned."""
        return self._passed == self._limit

    def merged(self, batch: Rows | None) -> Iterator[list[tuple[bytes, bytes]]]:
        """The merged rows up to the end of the snapshot's next batch, up to `limit` in all, in parts. `batch` None: the
        request has been answered to its end.

        A row counts as read once the caller has set `span.last` to its key.
        """
        if batch is None:
            if self._requested is not None and self._got >= self._requested:
                return iter(())
            self.is_over = True
            return self._overlaid([], self._left_start, self._left_end)
        rows = list(batch)
        if not rows:
            return iter(())
        self._got += len(rows)
        stop = rows[-1][0]
        low: bytes | None
        high: bytes | None
        if self._reverse:
            low, high, self._left_end = stop, self._left_end, stop
        else:
            low, high = self._left_start, stop + b"\0"
            self._left_start = stop + b"\0"
        return self._overlaid(rows, low, high)

    def _overlaid(
        self, rows: list[tuple[bytes, bytes]], low: bytes | None, high: bytes | None
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """The rows of [low, high) overlaid with the own writes, in order and in parts."""
        work, reverse, max_keys = self._work, self._reverse, FIRST_WRITES
        if work._deletes:
            rows = [row for row in rows if not work.has_deleted(row[0])]
        if work.folds:
            within = [key for key in work.folds if (low is None or low <= key) and (high is None or key < high)]
            rows = sorted(work.with_folds(rows, within).items(), reverse=reverse)
        while work.writes:
            keys = work.written(low, high, reverse, max_keys)
            if not keys:
                break
            now = rows
            if len(keys) == max_keys:
                low, high, passed = _after(rows, keys[-1], low, high, reverse)
                now, rows = rows[:passed], rows[passed:]
            merged: dict[bytes, bytes | None] = dict(now)
            for key in keys:
                merged[key] = work.writes[key]
            ordered = sorted(merged.items(), reverse=reverse)
            yield self._limited([(key, value) for key, value in ordered if value is not None])
            if len(keys) < max_keys:
                return
            max_keys = min(4 * max_keys, MAX_WRITES)
        yield self._limited(rows)

    def _limited(self, rows: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        if self._limit is not None:
            rows = rows[: self._limit - self._passed]
        self._passed += len(rows)
        return rows

    def rows_of(self, batch: Rows) -> list[tuple[bytes, bytes]]:
        """The merged rows for the whole answer to the last request."""
        rows: list[tuple[bytes, bytes]] = []
        for some in (batch, None):
            for part in self.merged(some):
                if part:
                    rows += part
                    self.span.last = part[-1][0]
                if self.is_full:
                    return rows
        if self.is_over:
            self.span.last = None
        return rows


def _after(
    rows: list[tuple[bytes, bytes]], stop: bytes, low: bytes | None, high: bytes | None, reverse: bool
) -> tuple[bytes | None, bytes | None, int]:
    """(low, high) of the range after the key `stop`, and the number of rows up to it."""
    if reverse:
        return low, stop, bisect_right(rows, False, key=lambda row: row[0] < stop)
    return stop + b"\0", high, bisect_right(rows, stop, key=KEY_OF)


class RangeReads:
    """One multi-scan of a transaction, in rounds; each range is read as by a scan. `rows`: those of each range."""

    def __init__(self, work: Workspace, ranges: Sequence[ScanRange], reverse: bool) -> None:
        work._check_open()
        self.rows: list[list[tuple[bytes, bytes]]] = [[] for _ in ranges]
        readings = [RangeRead(work, start, end, reverse, limit) for start, end, limit in ranges]
        self._left = list(zip(readings, self.rows, strict=True))

    def ask(self) -> list[ScanRange]:
        """The next requests to the snapshot; none when all is read."""
        self._left = [(reading, rows) for reading, rows in self._left if not (reading.is_over or reading.is_full)]
        return [ScanRange(*reading.ask()) for reading, _ in self._left]

    def take(self, found: Iterable[Rows]) -> None:
        """The answers to the last requests."""
        for (reading, rows), batch in zip(self._left, found, strict=True):
            rows += reading.rows_of(batch)


class Transaction(Workspace):
    """A transaction over one snapshot, for one thread: `Database.transaction` makes one.

    It commits where its `with` block ends and aborts when the block raises. It never retries by itself: see
    `logdb.transactional`. Reads see the snapshot and the transaction's own writes. Writes take effect with the commit.
    """

    reader: Reader

    def log(self, name: str) -> TransactionLog:
        """The named log `name`, to append to it in this transaction. Raises TypeError, ValueError."""
        return TransactionLog(self, name)

    @overload
    def get(self, key: bytes) -> bytes | None: ...
    @overload
    def get(self, key: bytes, default: D) -> bytes | D: ...
    def get(self, key: bytes, default: D | None = None) -> bytes | D | None:
        """The value of `key` in the snapshot and the own writes, or `default`.

        Raises TypeError, ValueError and KeyTooLarge for a key that cannot be one; ConflictError if the snapshot was
        lost (its server restarted, or it was compacted away); Unavailable, Corruption.
        """
        self._check_open()
        check_key(key)
        if key in self.writes:
            value = self.writes[key]
        elif self.has_deleted(key):
            value = None
        else:
            self.read_set.keys.add(key)
            value = self.reader.get(key, self.snapshot)
            if key in self.folds:
                value = self.folded_value(key, value)
        return default if value is None else value

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: bytes) -> bool:
        return self.get(key) is not None

    def multi_get(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those of `keys` that exist. Raises as `get`."""
        found: dict[bytes, bytes] = {}
        left = self.unread(listed(keys, "keys"), found)
        if left:
            found.update(self.with_folds(self.reader.multi_get(left, self.snapshot)[1], left))
        return found

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
        the last key to the first. `limit`: maximum number of rows. Own writes are included; those that are made during
        the scan may be. The part that is consumed counts as read, so there are no phantoms.

        Raises TypeError and ValueError for arguments that make no range, and as `get`.
        """
        start, end = key_range(start, end, prefix, limit, reverse)
        return self._rows(start, end, reverse, limit)

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
        reads = RangeReads(self, scan_ranges(ranges, limit, reverse), reverse)
        while asked := reads.ask():
            reads.take(self.reader.multi_scan(asked, self.snapshot, reverse=reverse))
        return reads.rows

    def _rows(
        self, start: bytes | None, end: bytes | None, reverse: bool, limit: int | None
    ) -> Generator[tuple[bytes, bytes], None, None]:
        if self.is_over:
            self._check_open()
        batches = self.reader.scan(start, end, self.snapshot, reverse=reverse, limit=limit)
        reading: RangeRead | None = None
        parts: Iterable[list[tuple[bytes, bytes]]]
        if batches.__class__ is tuple and not (self.writes or self._deletes or self.folds):
            # A short scan, see `Batches`, with nothing to merge.
            parts, span = batches, Span(start, end, reverse)
            self.read_set.spans.append(span)
        else:
            reading = RangeRead(self, start, end, reverse, limit)
            parts, span = self._parts(reading, batches, reverse), reading.span
        for rows in parts:
            for row in rows:
                if self.is_over:
                    self._check_open()
                span.last = row[0]
                yield row
        if reading is not None:
            if not reading.is_full:
                span.last = None
        elif len(rows) != limit:
            if self.writes_nothing:
                span.last = None
                return
            # The caller has written since: own writes behind the last row of the snapshot are merged.
            if span.last:
                start, end = (start, span.last) if reverse else (span.last + b"\0", end)
            yield from self._rows(start, end, reverse, None if limit is None else limit - len(rows))

    def _parts(self, reading: RangeRead, batches: Iterable[Rows], reverse: bool) -> Iterator[list[tuple[bytes, bytes]]]:
        """`batches`: the answer to the first request."""
        reading.ask()
        while not reading.is_full:
            for batch in chain(batches, (None,)):
                for part in reading.merged(batch):
                    yield part
                    if reading.is_full:
                        return
            if reading.is_over:
                return
            low, high, asked = reading.ask()
            batches = self.reader.scan(low, high, self.snapshot, reverse=reverse, limit=asked)
