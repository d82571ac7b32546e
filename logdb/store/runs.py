"""A run: the changes of a range of the log, in key order, in an LMDB file that is written once.

Tables:

`rows`    key -> row of its newest version in the run, tombstones included.
`older`   ordinal -> row of an older version in the run. Those of one key are adjacent, newest first; the key's row in
          `rows` has the ordinal of the first and their number. Their values are in the log, in the record at `place`,
          or in the row (`inline`), where reading the log would need a network round trip.
`state`   changes of other state of the database.

A row is a value, a trailer and a checksum (`row_checksums.py`), so that a plain value is a slice of the row. The
trailer from its end: kind and flags, version, then according to the flags: the ordinal and number of the older
versions, the rest of a long key, the place.

Consecutive runs whose key ranges do not overlap are read as one (`Group`).

LMDB accepts keys of up to 511 bytes. A longer one is stored under its first `ROOT_BYTES` bytes and its ordinal among
the keys that begin with them; its row has the rest. The order in LMDB is that of the keys.
"""

from __future__ import annotations

import os
from binascii import hexlify
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice, pairwise
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple

import lmdb
from google_crc32c import extend

from logdb.errors import shown
from logdb.store.files import TABLES, MapFiles, OpenRun
from logdb.store.manifest import RunInfo
from logdb.store.map_verifier import RESIDUE
from logdb.store.records import PLACE as LARGE_PLACE
from logdb.store.records import Place, Value
from logdb.store.row_checksums import CHECKSUM, CHECKSUM_BYTES, RawRow, check_row, check_rows, damaged, with_checksum

LIVE: Final = 1
TOMBSTONE: Final = 2
LARGE: Final = 3
KIND: Final = 3
PLACED: Final = 4
"""The value is not in the record whose GSN is the version, but in the one at `place`."""
OLDER: Final = 8
"""The run has older versions of the key."""
LONG: Final = 16
"""The key is long."""
WITHOUT_VALUE: Final = 32
"""The value is not in the row."""

TRAILER: Final = Struct("<QBI")  # version, kind and flags, checksum
CHAIN: Final = Struct("<QI")  # ordinal of the newest older version, number of older versions
PLACE: Final = Struct("<Q")
TAIL: Final = Struct("<H")  # length in bytes of the rest of a long key, which precedes it
ORDINAL: Final = Struct(">Q")
KIND_AT: Final = -5
"""Offset of kind and flags from the end of a row."""
LIVE_END: Final = -TRAILER.size
"""Offset of the end of the value from the end of a row of kind LIVE without flags."""
LIVE_VALUE: Final = slice(LIVE_END)
"""The value of such a row. Constant, because a scan takes it of each row."""
PLAIN: Final = {
    LIVE: TRAILER.size,
    LIVE | OLDER: TRAILER.size + CHAIN.size,
    LIVE | PLACED: TRAILER.size + PLACE.size,
    LIVE | OLDER | PLACED: TRAILER.size + CHAIN.size + PLACE.size,
}
"""By kind and flags of a live row whose first part is the value: the number of bytes after it."""
HEAD: Final = Struct("<QB")

ROOT_BYTES: Final = 480
LAST_ORDINAL: Final = b"\xff" * ORDINAL.size
FLAGS: Final = [bytes([flags]) for flags in range(256)]
WITHOUT_VALUE_FLAGS: Final = FLAGS[LIVE | WITHOUT_VALUE]
OLDER_BYTES: Final = ORDINAL.size + CHECKSUM_BYTES
PRESENT_STATE: Final = bytes([LIVE])
REMOVED_STATE: Final = bytes([TOMBSTONE])
ROW_KEY: Final = itemgetter(0)
FIRST_KEY: Final = attrgetter("first")
PAGE_BYTES: Final = 4096
CHUNK_ROWS: Final = 1_000
OLDER_ROWS: Final = 500
FIRST_ROWS: Final = 16
"""Number of rows that a scan reads before it looks at the end of its range."""
STATE_ROWS: Final = 1_000
WRITE_BYTES: Final = 2 << 20
"""Size of one transaction of LMDB."""
SYNC_BYTES: Final = 32 << 20
"""Maximum number of bytes written between two syncs."""
FENCE_BYTES: Final = 16 << 20
"""About the size of the parts of a large run."""
DAMAGE: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError, lmdb.BadTxnError)
"""LMDB's errors that mean damage. A transaction that has raised one of the first three raises the last one
afterwards."""


class Row(NamedTuple):
    """A version in a run. `place`: GSN of the record that holds the value. `value`: None for a deletion, and for an
    older live version whose value is only in the log."""

    version: int
    kind: int
    place: int
    value: Value


def row_of(version: int, place: int, value: Value) -> Row:
    """The row of a version; `value` may not be omitted."""
    if type(value) is bytes:
        return Row(version, LIVE, place, value)
    return Row(version, TOMBSTONE if value is None else LARGE, place, value)


def _body(row: Row, flags: int) -> tuple[bytes, int]:
    """(encoded value and place of a row, its kind and flags)."""
    version, kind, place, value = row
    if kind == LIVE:
        body = b""
        if value is None:
            flags |= WITHOUT_VALUE
        else:
            assert type(value) is bytes
            body = value
    else:
        body = b"" if value is None else LARGE_PLACE.pack(*value)
    if place != version:
        body += PLACE.pack(place)
        flags |= PLACED
    return body, kind | flags


def _large_bytes(raw: bytes) -> int:
    """The length of the large value whose place a row holds."""
    return Place.unpack(raw).length


def version_of(raw: bytes) -> int:
    """The version of a row with its checksum."""
    return int(HEAD.unpack_from(raw, len(raw) - TRAILER.size)[0])


def decode(raw: bytes) -> tuple[Row, int, int]:
    """(row, ordinal of its first older version, number of older versions) of a row with its checksum."""
    at = len(raw) - TRAILER.size
    version, flags = HEAD.unpack_from(raw, at)
    place, first, count = version, 0, 0
    value: Value = None
    if flags & OLDER:
        at -= CHAIN.size
        first, count = CHAIN.unpack_from(raw, at)
    if flags & LONG:
        at -= TAIL.size + TAIL.unpack_from(raw, at - TAIL.size)[0]
    if flags & PLACED:
        at -= PLACE.size
        (place,) = PLACE.unpack_from(raw, at)
    kind = flags & KIND
    if kind == LARGE:
        value = Place.unpack(raw)
    elif kind == LIVE and not flags & WITHOUT_VALUE:
        value = raw[:at]
    return Row(version, kind, place, value), first, count


def whole_key(found: bytes, raw: bytes) -> bytes:
    """The key of a row that LMDB stores under `found`."""
    if len(found) < ROOT_BYTES:
        return found
    end = len(raw) - TRAILER.size - (CHAIN.size if raw[KIND_AT] & OLDER else 0) - TAIL.size
    return found[:ROOT_BYTES] + raw[end - TAIL.unpack_from(raw, end)[0] : end]


class RunWriter:
    """Writes a run: keys in order, then state. Its memory and the bytes of one sync are bounded.

    `live_bytes`: as in `RunInfo`. Methods raise lmdb.Error and OSError, after which only `abandon` may be called.
    """

    def __init__(self, files: MapFiles, number: int, bytes_expected: int, *, inline: bool) -> None:
        self._files, self.number, self._inline = files, number, inline
        self._owner = os.getpid()
        self._count = self._long_keys = self.live_bytes = 0
        self._rows: list[RawRow] = []
        self._older: list[RawRow] = []
        self._buffered_bytes = self._unsynced_bytes = 0
        self._ordinal = 0
        self._root, self._in_root = b"", 0
        self._fences: list[bytes] = []
        self._env = files.create(number, 2 * bytes_expected)
        try:
            self._tables = [self._env.open_db(name) for name in TABLES]
        except BaseException:
            self.abandon()
            raise

    def add(self, rows: list[RawRow]) -> None:
        """Add rows with their checksums: of short keys, none large, none with older versions."""
        self._rows += rows
        self._count += len(rows)
        size = sum(map(len, chain.from_iterable(rows)))
        self.live_bytes += size
        self._on_buffered(size)

    def copy(self, rows: list[RawRow]) -> None:
        """As `add`; rows of large values are allowed."""
        self.live_bytes += sum([_large_bytes(raw) for _, raw in rows if raw[KIND_AT] & KIND == LARGE])
        self.add(rows)

    def put(self, key: bytes, newest: Row, older: Iterable[Row] = ()) -> None:
        """Add a key with its versions, newest first."""
        first = self._ordinal
        for row in older:
            self._put_older(row)
        body, flags = _body(newest, 0)
        if isinstance(newest.value, Place):
            self.live_bytes += newest.value.length
        found = key
        if len(key) >= ROOT_BYTES:
            flags |= LONG
            found = self._long(key)
            body += key[ROOT_BYTES:] + TAIL.pack(len(key) - ROOT_BYTES)
        if self._ordinal != first:
            flags |= OLDER
            body += CHAIN.pack(first, self._ordinal - first)
        raw = with_checksum(found, body + HEAD.pack(newest.version, flags))
        self._rows.append((found, raw))
        self.live_bytes += len(found) + len(raw)
        self._count += 1
        self._on_buffered(len(found) + len(raw))

    def put_again(self, key: bytes, raw: bytes, older: list[bytes]) -> None:
        """As `put`, with encoded rows. `raw`: of another run, with its checksum. `older`: results of `as_older` and
        `OlderRows.read`."""
        found = self._long(key) if len(key) >= ROOT_BYTES else key
        flags = raw[KIND_AT]
        row = raw[: LIVE_END - CHAIN.size] if flags & OLDER else raw[:LIVE_END]
        if older:
            row += CHAIN.pack(self._ordinal, len(older)) + raw[LIVE_END:KIND_AT] + FLAGS[flags | OLDER]
            size, rows = 0, self._older
            for ordinal, body in enumerate(older, self._ordinal):
                at = ORDINAL.pack(ordinal)
                rows.append((at, body + CHECKSUM.pack(extend(RESIDUE, at + body))))
                size += len(body)
            self._ordinal += len(older)
            self._on_buffered(size + OLDER_BYTES * len(older))
        else:
            row += raw[LIVE_END:KIND_AT] + FLAGS[flags & ~OLDER]
        self._rows.append((found, with_checksum(found, row)))
        self.live_bytes += len(found) + len(raw)
        if flags & KIND == LARGE:
            self.live_bytes += _large_bytes(raw)
        self._count += 1
        self._on_buffered(len(found) + len(raw))

    def as_older(self, raw: bytes) -> bytes:
        """Turn the row of a newest version, with its checksum, into that of an older one, without."""
        if raw[KIND_AT] & ~OLDER == LIVE and not self._inline:
            return raw[LIVE_END:KIND_AT] + WITHOUT_VALUE_FLAGS
        row = decode(raw)[0]
        if row.kind == LIVE and not self._inline:
            row = row._replace(value=None)
        body, flags = _body(row, 0)
        return body + HEAD.pack(row.version, flags)

    def _long(self, key: bytes) -> bytes:
        root = key[:ROOT_BYTES]
        self._in_root = self._in_root + 1 if root == self._root else 0
        self._root = root
        self._long_keys += 1
        return root + ORDINAL.pack(self._in_root)

    def _put_older(self, row: Row) -> None:
        if row.kind == LIVE and not self._inline:
            row = row._replace(value=None)
        body, flags = _body(row, 0)
        found = ORDINAL.pack(self._ordinal)
        self._ordinal += 1
        raw = with_checksum(found, body + HEAD.pack(row.version, flags))
        self._older.append((found, raw))
        self._on_buffered(len(found) + len(raw))

    def put_state(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Add rows of state in order; None: the row was removed."""
        self._flush()
        rows = iter(rows)
        while part := list(islice(rows, STATE_ROWS)):
            raws = [
                (key, with_checksum(key, REMOVED_STATE if value is None else value + PRESENT_STATE))
                for key, value in part
            ]
            self._put_multi([(self._tables[2], raws)])

    def finish(self) -> None:
        """Make the run durable and set `info`; the caller fills in the versions that it covers."""
        self._flush()
        self._env.sync(True)
        self._env.close()
        files, number = self._files, self.number
        files.sync(number)
        size, crc = files.measure(number)
        fences = b" ".join([hexlify(key) for key in self._fences]).decode()
        self.info = RunInfo(number, 0, 0, self._count, self._long_keys, size, crc, self.live_bytes, fences)

    @property
    def written(self) -> int:
        """The number of bytes written so far."""
        return int(self._env.info()["last_pgno"] + 1) * PAGE_BYTES

    def abandon(self) -> None:
        """Remove the file."""
        if os.getpid() == self._owner:
            self._env.close()
            self._files.remove(self.number)

    def _on_buffered(self, size: int) -> None:
        self._buffered_bytes += size
        if self._buffered_bytes >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows and self.live_bytes >= FENCE_BYTES * (len(self._fences) + 1):
            self._fences.append(self._rows[-1][0][:ROOT_BYTES])
        self._put_multi([(self._tables[0], self._rows), (self._tables[1], self._older)])
        self._rows, self._older = [], []
        self._unsynced_bytes += self._buffered_bytes
        self._buffered_bytes = 0
        if self._unsynced_bytes >= SYNC_BYTES:
            self._env.sync(True)
            self._unsynced_bytes = 0

    def _put_multi(self, tables: list[tuple[Any, list[RawRow]]]) -> None:
        while True:
            try:
                with self._env.begin(write=True) as txn:
                    for table, rows in tables:
                        if rows:
                            txn.cursor(db=table).putmulti(rows, append=True)
                return
            except lmdb.MapFullError:
                self._env.set_mapsize(2 * self._env.info()["map_size"])
            except lmdb.Error:
                self._files.make_room(self.number, 2 * WRITE_BYTES)
                raise


class OlderRows:
    """Reads the older versions in a run ahead, for a caller that walks through its keys in order."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._first = 0
        self._rows: list[bytes] = []

    def read(self, first: int, count: int) -> list[bytes]:
        """`count` rows from ordinal `first` on, newest first, without their checksums."""
        at = first - self._first
        if at < 0 or at + count > len(self._rows):
            rows = self.reader.raw_older(first, max(count, OLDER_ROWS))
            if len(rows) < count:
                raise damaged(self.reader.path, "older versions of a key are missing")
            self._first, self._rows, at = first, [raw[:-CHECKSUM_BYTES] for _, raw in rows], 0
        return self._rows[at : at + count]


class Run:
    """A run that is open for any number of concurrent readers.

    `first`, `last`: its smallest and largest key. `parts`: of a large run, ranges of keys of about the same size.
    """

    def __init__(self, files: MapFiles, info: RunInfo) -> None:
        self.info, self.path = info, files.path
        self.opened: OpenRun = files.open(info.number)
        reader = self.reader()
        ends = reader.chunk(None, None, False, 1) + reader.chunk(None, None, True, 1)
        self.first, self.last = (ends[0][0], ends[1][0]) if ends else (b"", b"")
        self.parts = list(pairwise([self.first, *map(bytes.fromhex, info.fences.split()), self.last]))

    def reader(self) -> RunReader:
        """A reader, for one thread at a time."""
        return RunReader(self)


class RunReader:
    """Reads one run, in one thread at a time. The rows that it returns were checked, except those of `get` and
    `unchecked`.

    `get`: the row of a short key. `count`: number of keys. Methods raise Corruption, and `DAMAGE` of LMDB.
    """

    __slots__ = ("_cursor", "_run", "_txn", "count", "get", "has_long_keys", "path")

    def __init__(self, run: Run) -> None:
        self._run, self.path = run.opened, run.path
        self._txn = run.opened.env.begin(db=run.opened.rows)
        self.get = self._txn.get
        self._cursor: Any = None
        self.count, self.has_long_keys = run.info.rows, run.info.long_keys > 0

    def run_of(self, key: bytes) -> RunReader:
        """The reader of the run that may have the key."""
        return self

    def find(self, key: bytes) -> bytes | None:
        """The row of a key with its checksum."""
        if len(key) >= ROOT_BYTES:
            return self._find_long(key)[1] if self.has_long_keys else None
        raw: bytes | None = self.get(key)
        if raw is not None:
            check_row(key, raw, self.path)
        return raw

    def _find_long(self, key: bytes) -> tuple[int, bytes | None]:
        """(number of long keys with the same root before this one, its row if the run has it)."""
        root = key[:ROOT_BYTES]
        low = high = 0
        with self._txn.cursor() as cursor:
            if _before(cursor, root + LAST_ORDINAL) and cursor.key()[:ROOT_BYTES] == root:
                high = ORDINAL.unpack_from(cursor.key(), ROOT_BYTES)[0] + 1
        while low < high:
            middle = (low + high) // 2
            found = root + ORDINAL.pack(middle)
            raw = self.get(found)
            if raw is None:
                raise damaged(self.path, f"the row of {shown(found)} is missing")
            check_row(found, raw, self.path)
            whole = whole_key(found, raw)
            if whole == key:
                return middle, raw
            low, high = (middle + 1, high) if whole < key else (low, middle)
        return low, None

    def _bound(self, key: bytes) -> bytes:
        """The key in LMDB of the first key that is not before this one."""
        if len(key) < ROOT_BYTES or not self.has_long_keys:
            return key[:ROOT_BYTES]
        return key[:ROOT_BYTES] + ORDINAL.pack(self._find_long(key)[0])

    def chunk(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
        """Up to `max_rows` (key, row with its checksum) of [start, end), from the first, or from the last when
        `reverse`."""
        rows = self.unchecked(start, end, reverse, max_rows)
        check_rows(rows, self.path)
        if self.has_long_keys:
            return [(found if len(found) < ROOT_BYTES else whole_key(found, raw), raw) for found, raw in rows]
        return rows

    def chunks(self) -> Iterator[tuple[RunReader, list[RawRow]]]:
        """(this reader, some rows), which together are all rows in order."""
        start = None
        while rows := self.chunk(start, None, False, CHUNK_ROWS):
            yield self, rows
            if len(rows) < CHUNK_ROWS:
                return
            start = rows[-1][0] + b"\0"

    def unchecked(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
        """As `chunk`, with the keys of LMDB; the rows are not checked."""
        if start is not None and len(start) >= ROOT_BYTES:
            start = self._bound(start)
        if end is not None and len(end) >= ROOT_BYTES:
            end = self._bound(end)
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = self._txn.cursor()
        if reverse:
            if not _before(cursor, end):
                return []
        elif not (cursor.set_range(start) if start else cursor.first()):
            return []
        if max_rows == 1:
            rows = [cursor.item()]
        elif max_rows <= FIRST_ROWS:
            rows = list(islice(cursor.iterprev() if reverse else cursor, max_rows))
        else:
            rows = _first_or_all(cursor, start if reverse else end, reverse, max_rows)
        if reverse:
            if start is not None and rows[-1][0] < start:
                del rows[len(rows) - bisect_left(rows[::-1], start, key=ROW_KEY) :]
        elif end is not None and rows[-1][0] >= end:
            del rows[bisect_left(rows, end, key=ROW_KEY) :]
        return rows

    def older(self, first: int, count: int) -> Iterator[Row]:
        """`count` older versions of a key from ordinal `first` on, newest first."""
        while count:
            rows = self.raw_older(first, min(count, OLDER_ROWS))
            if not rows:
                raise damaged(self.path, "older versions of a key are missing")
            for _, raw in rows:
                yield decode(raw)[0]
            first += len(rows)
            count -= len(rows)

    def raw_older(self, first: int, max_rows: int) -> list[RawRow]:
        """Up to `max_rows` (ordinal, row with its checksum) of older versions from ordinal `first` on."""
        with self._txn.cursor(db=self._run.older) as cursor:
            rows = list(islice(cursor, max_rows)) if cursor.set_key(ORDINAL.pack(first)) else []
        check_rows(rows, self.path)
        return rows

    def older_at(self, first: int, count: int, at: int) -> Row | None:
        """The newest of the `count` older versions from ordinal `first` on that is not after version `at`."""
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            if self._older_one(first + middle).version <= at:
                high = middle
            else:
                low = middle + 1
        return self._older_one(first + low) if low < count else None

    def _older_one(self, ordinal: int) -> Row:
        found = ORDINAL.pack(ordinal)
        raw = self._txn.get(found, db=self._run.older)
        if raw is None:
            raise damaged(self.path, "an older version of a key is missing")
        check_row(found, raw, self.path)
        return decode(raw)[0]

    def state(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes | None]]:
        """The rows of state whose keys begin with `prefix`, in order; None: the row was removed."""
        start = prefix
        while True:
            with self._txn.cursor(db=self._run.state) as cursor:
                rows = list(islice(cursor, STATE_ROWS)) if cursor.set_range(start) else []
            check_rows(rows, self.path)
            for key, raw in rows:
                if not key.startswith(prefix):
                    return
                yield key, None if raw[KIND_AT] == TOMBSTONE else raw[:KIND_AT]
            if len(rows) < STATE_ROWS:
                return
            start = rows[-1][0] + b"\0"


def _first_or_all(cursor: Any, bound: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
    """Up to `max_rows` rows from the cursor's place on, but only the first ones if `bound` is among them: each row that
    LMDB returns lets another thread run."""
    rest = cursor.iterprev() if reverse else cursor.iternext()
    rows = list(islice(rest, FIRST_ROWS))
    if bound is None or (rows[-1][0] > bound if reverse else rows[-1][0] < bound):
        rows += islice(rest, max_rows - FIRST_ROWS)
    return rows


class Group:
    """Consecutive runs whose key ranges do not overlap. `runs`: from the oldest to the newest."""

    def __init__(self, run: Run) -> None:
        self.runs = [run]
        self._in_order = [run]

    def add(self, run: Run) -> bool:
        """Add the next run; returns False if its key range overlaps that of another one."""
        place = bisect_left(self._in_order, run.first, key=FIRST_KEY)
        if place and self._in_order[place - 1].last >= run.first:
            return False
        if place < len(self._in_order) and self._in_order[place].first <= run.last:
            return False
        self.runs.append(run)
        self._in_order.insert(place, run)
        return True

    def reader(self) -> RunReader | GroupReader:
        """A reader, for one thread at a time."""
        return self.runs[0].reader() if len(self.runs) == 1 else GroupReader(self.runs, self._in_order)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Group runs, from the oldest to the newest. A run is added to the current group if possible."""
    groups: list[Group] = []
    for run in runs:
        if not groups or not groups[-1].add(run):
            groups.append(Group(run))
    return groups


class GroupReader:
    """Reads the runs of a group as if they were one, in one thread at a time. Methods and fields as those of
    `RunReader`; each reads only the runs whose key ranges it needs."""

    __slots__ = ("_firsts", "_gets", "_in_order", "_lasts", "_newest_first", "count", "has_long_keys")

    def __init__(self, runs: Sequence[Run], in_order: Sequence[Run]) -> None:
        readers = {run: run.reader() for run in runs}
        self._newest_first = [readers[run] for run in reversed(runs)]
        self._in_order = [readers[run] for run in in_order]
        self._firsts, self._lasts = [run.first for run in in_order], [run.last for run in in_order]
        self._gets = [reader.get for reader in self._in_order]
        self.count = sum([reader.count for reader in self._in_order])
        self.has_long_keys = any(reader.has_long_keys for reader in self._in_order)

    def get(self, key: bytes) -> bytes | None:
        place = bisect_right(self._firsts, key) - 1  # -1 before the first run: the last does not have it either
        return self._gets[place](key) if key <= self._lasts[place] else None

    def run_of(self, key: bytes) -> RunReader:
        return self._in_order[bisect_right(self._firsts, key) - 1]

    def chunk(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
        return self._walk(RunReader.chunk, start, end, reverse, max_rows)

    def unchecked(self, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int) -> list[RawRow]:
        return self._walk(RunReader.unchecked, start, end, reverse, max_rows)

    def _walk(
        self,
        read: Callable[[RunReader, bytes | None, bytes | None, bool, int], list[RawRow]],
        start: bytes | None,
        end: bytes | None,
        reverse: bool,
        max_rows: int,
    ) -> list[RawRow]:
        low = 0 if start is None else bisect_left(self._lasts, start)
        high = len(self._firsts) if end is None else bisect_left(self._firsts, end)
        rows: list[RawRow] = []
        for place in range(high - 1, low - 1, -1) if reverse else range(low, high):
            rows += read(self._in_order[place], start, end, reverse, max_rows - len(rows))
            if len(rows) == max_rows:
                break
        return rows

    def chunks(self) -> Iterator[tuple[RunReader, list[RawRow]]]:
        """(reader of a run, some of its rows), which together are all rows in order."""
        for reader in self._in_order:
            yield from reader.chunks()

    def state(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes | None]]:
        return merged_state([reader.state(prefix) for reader in self._newest_first])


Reader = tuple[RunReader | GroupReader, ...]
"""Readers of the groups of a snapshot, the newest first."""


def aligned(readers: Reader) -> Iterator[list[tuple[RunReader, list[RawRow]]]]:
    """The rows of several groups in order, in parts: (run, rows) of the same range of keys, the newest first."""
    walks = [reader.chunks() for reader in readers]
    heads = [next(walk, None) for walk in walks]
    while True:
        stop = min((head[1][-1][0] for head in heads if head is not None), default=None)
        if stop is None:
            return
        parts = []
        for index, head in enumerate(heads):
            if head is None:
                continue
            run, rows = head
            end = bisect_right(rows, stop, key=ROW_KEY)
            if end:
                parts.append((run, rows[:end]))
                heads[index] = (run, rows[end:]) if end < len(rows) else next(walks[index], None)
        yield parts


def newest_rows(found: Sequence[dict[bytes, bytes]]) -> tuple[list[RawRow], set[bytes]]:
    """(the row of each key's newest version in order, the keys that several runs have). `found`: the rows of each run
    by key, the newest run first."""
    newest: dict[bytes, bytes] = {}
    shared: set[bytes] = set()
    for rows in reversed(found):
        if newest:
            shared |= newest.keys() & rows.keys()
        newest.update(rows)
    return sorted(newest.items(), key=ROW_KEY), shared


def merged_state(runs: Sequence[Iterator[tuple[bytes, bytes | None]]]) -> Iterator[tuple[bytes, bytes | None]]:
    """Merge the rows of state of several runs, the newest first."""
    last = None
    for key, value in merge(*runs, key=ROW_KEY):  # of equal keys, those of the first run come first
        if key != last:
            yield key, value
            last = key


def versions(found: Iterable[tuple[RunReader, bytes]]) -> Iterator[Row]:
    """All versions of a key, newest first. `found`: its rows with their checksums, in the runs that have it, newest
    first."""
    last = -1
    for reader, raw in found:
        newest, first, count = decode(raw)
        for row in chain((newest,), reader.older(first, count)):
            if last < 0 or row.version < last:
                yield row
                last = row.version


def _before(cursor: Any, end: bytes | None) -> bool:
    """Move the cursor to the last key before `end`."""
    if end is None or not cursor.set_range(end):
        return bool(cursor.last())
    return bool(cursor.prev())
