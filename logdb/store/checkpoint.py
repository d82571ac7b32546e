"""The part of the map that is on disk: an LMDB environment that covers a prefix of the log.

Tables:

`newest`   key -> row of its newest version, tombstones included while an older version is retained.
`live`     key -> its newest value, bare, where that is live and neither it nor the key is long: what a get or a scan of
           the newest version reads, and nothing else.
`large`    key -> nothing, where the newest value is large and the key is not long: what a scan must not overlook.
`tails`    the rest of keys that are longer than LMDB takes: a row of kind LINK under the first `ROOT_BYTES` bytes
           names a node, and the key goes on under its number, as deep as it takes. Order is kept: scans descend.
`older`    BLAKE2b-128(key) + complement of the version -> row without its value, which stands in the log at `place`; or
           with it (`inline`), where fetching it would be a journey.
`state`    what else is a function of the covered prefix, as rows that their owners write and read.
`meta`     `covers`: every record up to this GSN is in the tables. `ceiling`: no row is newer than this.
           `pruned`: what only a read before this version could see was removed.

Every row is sealed (`sealed.py`). The names of the tables end with their format, so a LogDB that has another one does
not see them.

A checkpoint is written in slices, one LMDB transaction each, while readers and writers go on; `covers` moves with the
last one. A crash between two slices leaves rows newer than `covers`, which harms nobody: reads name their version,
older rows are kept, and the replay that follows writes the same rows again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

import lmdb
from google_crc32c import extend
from lmdb import _envid

from logdb.errors import Corruption, LogDBError, Unavailable, shown
from logdb.forking import keep_for_ever, own
from logdb.log.segments.disk import described
from logdb.store import checking
from logdb.store.checking import RESIDUE
from logdb.store.overlay import Entry, Overlay
from logdb.store.records import Place, Value
from logdb.store.sealed import SealedTxn, damaged, opened, opened_rows

MAP_BYTES: Final = 1 << 40
SLICE_ROWS: Final = 2_000

# kind, version, place: GSN of the record that holds the value. A live value follows if the key is long (see `live`).
ROW: Final = Struct("<BQQ")
OLDER_ROW: Final = Struct("<BQ")  # kind, place
PLACED: Final = Struct("<QIQ16s")  # follows a row of a large value
LIVE: Final = 1
GONE: Final = 2
LARGE: Final = 3
LINK: Final = 4
LONG_KEYS, LARGE_VALUES, NOTHING = "long keys", "large values", "nothing"
ROW_BYTES: Final = ROW.size

ROOT_BYTES: Final = 480
NODE: Final = Struct(">Q")
TAIL_BYTES: Final = 480
_U64: Final = Struct("<Q")
_DESCENDING: Final = Struct(">Q")
_ALL_ONES: Final = (1 << 64) - 1

FORMAT: Final = b"2"
TABLES: Final = tuple(name + FORMAT for name in (b"newest", b"live", b"large", b"tails", b"older", b"state", b"meta"))
DAMAGE: Final = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.CursorFullError, lmdb.BadTxnError)
"""The last one: what a transaction says that has said one of the others before."""
NO_TABLES: Final = (*DAMAGE, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.IncompatibleError)
"""What says, when tables are opened, that the file is not what was written. All else is the system's refusal."""
_environments: dict[str, tuple[Any, list[Any], int]] = {}
"""By path: the environment, its tables, how many use it."""
_environments_lock = threading.Lock()


class Row(NamedTuple):
    """A version as the checkpoint has it. `place`: GSN of the record that holds the value."""

    version: int
    kind: int
    place: int
    value: Value


class Checkpoint:
    """The tables, read through snapshots that follow each slice, written by one thread at a time."""

    def __init__(self, path: Path, log_id: bytes, *, follow: bool = False, inline: bool = False) -> None:
        self._path, self._follow, self._inline = os.path.realpath(path), follow, inline
        self._env, tables = _share_environment(self._path)
        self._newest, self._live, self._large, self._tails, self._older, self._state, self._meta = tables
        self._readers: list[Any] = []
        self._renewing, self._one_writer = threading.Lock(), threading.Lock()
        self.covers = self.ceiling = self.pruned = self._nodes = 0
        own(self)
        try:
            self._claim(log_id)
            self.switch(self.newest())
        except lmdb.Error as error:
            _release_environment(self._path)
            raise _cannot_be_opened(self._path, error) from error
        except BaseException:
            _release_environment(self._path)
            raise

    def newest(self) -> Any:
        """A snapshot of what the last slice has written (also one of another process), to `switch` to."""
        try:
            return SealedTxn(self._env.begin(db=self._live), self._path)
        except lmdb.Error as error:
            raise _cannot_be_opened(self._path, error) from error

    def switch(self, snapshot: Any) -> None:
        """Read from now on from `snapshot`."""
        self.covers = self._number(snapshot, b"covers")
        self.ceiling = self._number(snapshot, b"ceiling")
        self.pruned = self._number(snapshot, b"pruned")
        self._nodes = self._number(snapshot, b"nodes")
        old, self._readers = self._readers, [snapshot]
        if not self._follow:  # who waits for a follower's one old snapshot gets it, and drops it
            _drain(old)

    def _renew(self) -> None:
        """Read what has been written. A compaction prunes beside a checkpoint: an older snapshot must not win."""
        with self._renewing:
            self.switch(self.newest())

    def damaged(self, what: str) -> Corruption:
        """The error for tables that are not what they should be."""
        return damaged(self._path, what)

    def size(self) -> int:
        """The bytes of its files."""
        return os.path.getsize(os.path.join(self._path, checking.DATA))

    def covered_by(self, snapshot: Any) -> int:
        """What the tables covered when the snapshot was taken."""
        return self._number(snapshot, b"covers")

    def close(self) -> None:
        """Release the environment, once the slice under way is written: LMDB lets only its own thread end it."""
        if self._env is None:
            return
        with self._one_writer:
            _drain(self._readers)
            _release_environment(self._path)

    def disown(self, parent: int) -> None:
        """In a child of fork(): read nothing any more. LMDB's transactions and its environment stay the parent's."""
        keep_for_ever(self._readers)
        self._readers, self._env = [], None
        self._renewing, self._one_writer = threading.Lock(), threading.Lock()

    def _claim(self, log_id: bytes) -> None:
        txn = self.newest()
        try:
            owner = txn.get(b"log", db=self._meta)
        finally:
            txn.abort()
        if owner is None and not self._follow:
            with self._writing() as txn:
                txn.put(b"log", log_id, db=self._meta)
        elif owner not in (log_id, None):
            raise self.damaged("it is that of another log")

    def _borrow(self, readers: list[Any]) -> Any:
        """A reader of the current snapshot. A follower has just one, the writer's own are as many as its threads."""
        while True:
            try:
                return readers.pop()
            except IndexError:
                if not self._follow:
                    return self.newest()
                time.sleep(0)

    # ---- reading

    def row(self, key: bytes, at: int) -> Row | None:
        """The newest version of the key not after `at`. The value of one that is live, not large and not the newest is
        None: it stands in the record at `place`."""
        readers = self._readers
        txn = self._borrow(readers)
        try:
            where = (self._newest, key) if len(key) < ROOT_BYTES else self._find(txn, key)
            raw = None if where is None else txn.get(where[1], db=where[0])
            if raw is None:
                return None
            row = self._row_of(txn, key, raw)
            return row if row.version <= at else self._older_row(txn, key, at)
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)

    def live_value(self, key: bytes) -> bytes | None:
        """The key's value in `live`, which is of a version not newer than `ceiling`, read after this."""
        if len(key) >= ROOT_BYTES:
            return None
        readers = self._readers
        try:
            txn = readers.pop()
        except IndexError:
            txn = self._borrow(readers)
        try:
            row = txn.raw_get(key)
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)
        if row is None:
            return None
        if extend(RESIDUE, key + row) != RESIDUE:
            return opened(key, row, self._path)  # raises
        return row[:-4]  # type: ignore[no-any-return]

    def live_chunk(
        self, start: bytes | None, end: bytes | None, reverse: bool, most: int
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes]] | None:
        """Up to `most` (key, value) of [start, end) from `live`, and as many keys from `large`: all that exists there.

        From the first, or from the last when `reverse`. No version among them is newer than `ceiling`, read after this.
        None if there are long keys, which only `chunk` sees.
        """
        readers = self._readers
        try:
            txn = readers.pop()
        except IndexError:
            txn = self._borrow(readers)
        try:
            unlike = txn.unlike_live
            if unlike is None:
                unlike = txn.unlike_live = self._unlike_live(txn)
            if unlike == LONG_KEYS:
                return None
            rows = self._rows(txn.own_cursor, start, end, reverse, most)
            if unlike != LARGE_VALUES:
                return rows, []
            with txn.raw_cursor(db=self._large) as cursor:
                return rows, [key for key, _ in self._rows(cursor, start, end, reverse, most)]
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)

    def chunk(self, start: bytes | None, end: bytes | None, reverse: bool, most: int) -> list[tuple[bytes, int]]:
        """Up to `most` (key, newest version) of [start, end), tombstones included, in order as in `live_chunk`."""
        readers = self._readers
        txn = self._borrow(readers)
        try:
            if self._nodes or self._number(txn, b"nodes"):
                rows = list(islice(self._walk(txn, self._newest, b"", b"", start, end, reverse), most))
            else:
                with txn.raw_cursor(db=self._newest) as cursor:
                    rows = self._rows(cursor, start, end, reverse, most)
            return [(key, ROW.unpack_from(raw)[1]) for key, raw in rows]
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)

    def state(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """The rows of `state` whose keys begin with `prefix`, in order, without it."""
        readers = self._readers
        txn = self._borrow(readers)
        rows = []
        try:
            with txn.cursor(db=self._state) as cursor:
                if cursor.set_range(prefix):
                    for key, raw in cursor:
                        if not key.startswith(prefix):
                            break
                        rows.append((key[len(prefix) :], raw))
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)
        return rows

    def everything(self) -> Iterator[tuple[bytes, list[Row]]]:
        """(key, all its versions, newest first) of every key in order, from the snapshot that `covers` speaks of."""
        readers = self._readers
        txn = self._borrow(readers)
        bare = {LIVE: 0, LARGE: 0}
        try:
            for key, raw in self._walk(txn, self._newest, b"", b"", None, None, False):
                newest = self._row_of(txn, key, raw)
                if newest.kind in bare and len(key) < ROOT_BYTES:
                    bare[newest.kind] += 1
                yield key, [newest, *(self._older_one(*found) for found in self._older_of(txn, key))]
            if bare != {LIVE: txn.stat(self._live)["entries"], LARGE: txn.stat(self._large)["entries"]}:
                raise self.damaged("it has live values of keys that it does not know")
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        finally:
            readers.append(txn)

    def _unlike_live(self, txn: SealedTxn) -> str:
        """Which keys a snapshot has that do not stand in `live`."""
        if self._number(txn, b"nodes"):
            return LONG_KEYS
        return LARGE_VALUES if txn.stat(self._large)["entries"] else NOTHING

    def _rows(
        self, cursor: Any, start: bytes | None, end: bytes | None, reverse: bool, most: int
    ) -> list[tuple[bytes, bytes]]:
        """Up to `most` rows of a table without long keys, where a bound says as much when it is cut to their length."""
        if reverse:
            if not _before(cursor, end and end[:ROOT_BYTES]):
                return []
            rows = list(islice(cursor.iterprev(), most))
            if rows and start is not None and rows[-1][0] < (start := start[:ROOT_BYTES]):
                del rows[len(rows) - bisect_left(rows[::-1], start, key=itemgetter(0)) :]
        else:
            if not (cursor.first() if not start else cursor.set_range(start[:ROOT_BYTES])):
                return []
            rows = [cursor.item()] if most == 1 else list(islice(cursor, most))
            if rows and end is not None and rows[-1][0] >= (end := end[:ROOT_BYTES]):
                del rows[bisect_left(rows, end, key=itemgetter(0)) :]
        return opened_rows(rows, self._path)

    def _row_of(self, txn: Any, key: bytes, raw: bytes) -> Row:
        """The row of `key`, whose bytes in `newest` or `tails` are `raw`."""
        kind, version, place = ROW.unpack_from(raw)
        if kind == LIVE:
            value = txn.get(key) if len(key) < ROOT_BYTES else raw[ROW_BYTES:]
            if value is None:
                raise self.damaged(f"the value of key {shown(key)} is missing")
            return Row(version, kind, place, value)
        return Row(version, kind, place, Place(*PLACED.unpack_from(raw, ROW_BYTES)) if kind == LARGE else None)

    def _older_of(self, txn: Any, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The rows of the key in `older`, newest first."""
        prefix = _hash(key)
        with txn.cursor(db=self._older) as cursor:
            if cursor.set_range(prefix):
                for found in cursor:
                    if found[0][:16] != prefix:
                        return
                    yield found

    def _older_one(self, found: bytes, raw: bytes) -> Row:
        version = _ALL_ONES - _DESCENDING.unpack(found[16:])[0]
        kind, place = OLDER_ROW.unpack_from(raw)
        if kind == LIVE:
            return Row(version, kind, place, raw[OLDER_ROW.size :] if self._inline else None)
        return Row(version, kind, place, Place(*PLACED.unpack_from(raw, OLDER_ROW.size)) if kind == LARGE else None)

    def _older_row(self, txn: Any, key: bytes, at: int) -> Row | None:
        prefix = _hash(key)
        with txn.cursor(db=self._older) as cursor:
            if cursor.set_range(prefix + _DESCENDING.pack(_ALL_ONES - at)) and cursor.key()[:16] == prefix:
                return self._older_one(cursor.key(), cursor.value())
        return None

    def _find(self, txn: Any, key: bytes) -> tuple[Any, bytes] | None:
        """(table, LMDB key) of a long key, or None if a node on its way does not exist."""
        table, head, rest = self._newest, key[:ROOT_BYTES], key[ROOT_BYTES:]
        while True:
            raw = txn.get(head, db=table)
            if raw is None or raw[0] != LINK:
                return None
            node = NODE.pack(ROW.unpack_from(raw)[1])
            table = self._tails
            if len(rest) < TAIL_BYTES:
                return table, node + rest
            head, rest = node + rest[:TAIL_BYTES], rest[TAIL_BYTES:]

    def _walk(
        self, txn: Any, table: Any, node: bytes, above: bytes, start: bytes | None, end: bytes | None, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """(key, row) under a node whose keys begin with `above`, links followed, within [start, end)."""
        room = ROOT_BYTES if table is self._newest else TAIL_BYTES
        with txn.cursor(db=table) as cursor:
            if reverse:
                bound = _successor(node)
                if end is not None and end.startswith(above):
                    rest = end[len(above) :]
                    bound = node + rest[:room] + (b"\0" if len(rest) > room else b"")
                rows = cursor.iterprev() if _before(cursor, bound) else iter(())
            else:
                first = node
                if start is not None and start.startswith(above):
                    first += start[len(above) :][:room]
                rows = cursor.iternext() if (cursor.set_range(first) if first else cursor.first()) else iter(())
            for found, raw in rows:
                if not found.startswith(node):
                    return
                key = above + found[len(node) :]
                is_link = raw[0] == LINK
                if end is not None and key >= end:
                    if not reverse:
                        return
                elif start is not None and key < start and not (is_link and start.startswith(key)):
                    if reverse:
                        return
                elif is_link:
                    child = NODE.pack(ROW.unpack_from(raw)[1])
                    yield from self._walk(txn, self._tails, child, key, start, end, reverse)
                else:
                    yield key, raw

    # ---- writing

    def begin(self, target: int) -> None:
        """The slices that follow bring rows up to version `target`."""
        if target > self.ceiling:
            with self._writing() as txn:
                txn.put(b"ceiling", _U64.pack(target), db=self._meta)
            self.ceiling = target

    def write(self, overlay: Overlay) -> Iterator[int]:
        """Move an overlay's entries in, slice by slice; yields the number of keys after each."""
        keys = sorted(overlay.newest.keys() | overlay.moved.keys())
        nothing_moved: dict[int, tuple[int, Value]] = {}
        for first in range(0, len(keys), SLICE_ROWS):
            part = keys[first : first + SLICE_ROWS]
            with self._writing() as txn:
                for key in part:
                    self._put(txn, key, overlay.newest.get(key), overlay.moved.get(key, nothing_moved))
            self._renew()
            yield len(part)

    def finish(self, covers: int, state: Iterable[tuple[bytes, bytes | None]]) -> None:
        """The last slice: rows of `state` (None: remove), and the GSN that the tables cover from now on."""
        with self._writing() as txn:
            for key, raw in state:
                if raw is None:
                    txn.delete(key, db=self._state)
                else:
                    txn.put(key, raw, db=self._state)
            txn.put(b"covers", _U64.pack(covers), db=self._meta)
        self._env.reader_check()
        self._renew()
        checking.note(Path(self._path))

    def prune(self, floor: int) -> Iterator[int]:
        """Remove, slice by slice, what only a read before version `floor` could see; yields the keys looked at.

        The tables must cover the record that has moved the floor there (MAP-4).
        """
        assert floor <= self.covers, f"MAP-4: it covers {self.covers}, and is pruned to {floor}"
        after: bytes | None = None
        while True:
            start = None if after is None else after + b"\0"
            with self._writing() as txn:
                part = list(islice(self._walk(txn, self._newest, b"", b"", start, None, False), SLICE_ROWS))
                for key, raw in part:
                    self._prune_key(txn, key, raw, floor)
            if not part:
                break
            self._renew()
            after = part[-1][0]
            yield len(part)
        with self._writing() as txn:
            txn.put(b"pruned", _U64.pack(floor), db=self._meta)
        self._renew()
        checking.note(Path(self._path))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Any]:
        """A transaction of the tables. Raises Unavailable when it fails, on a full disk for example; Corruption."""
        try:
            with self._one_writer, self._env.begin(write=True) as txn:
                yield SealedTxn(txn, self._path)
        except DAMAGE as error:
            raise self.damaged(str(error)) from error
        except lmdb.Error as error:
            raise Unavailable(
                f"the checkpoint in {self._path} could not be written ({error}); nothing is lost, the log has it all"
            ) from error

    def _put(self, txn: Any, key: bytes, chain: Entry | None, moved: Mapping[int, tuple[int, Value]]) -> None:
        is_long = len(key) >= ROOT_BYTES
        table, where = self._make(txn, key) if is_long else (self._newest, key)
        raw = txn.get(where, db=table)
        versions: dict[int, tuple[Value, int]] = {}
        while chain is not None:
            versions[chain[0]] = chain[1], chain[0]
            chain = chain[2]
        for version, (place, value) in moved.items():
            versions[version] = value, place
        newest = max(versions)
        was = None if raw is None else raw[0]
        if raw is not None:
            _, version, place = ROW.unpack_from(raw)
            if version > newest:
                newest = version
            elif version not in versions:
                rest = raw[ROW_BYTES:] if was == LARGE else b""
                if self._inline and was == LIVE:
                    rest = raw[ROW_BYTES:] if is_long else txn.get(key, db=self._live)
                txn.put(_older_key(key, version), OLDER_ROW.pack(was, place) + rest, db=self._older)
        if newest in versions:
            value, place = versions.pop(newest)
            row = _row(value, newest, place)
            txn.put(where, row + value if is_long and type(value) is bytes else row, db=table)
            if not is_long:
                self._put_bare(txn, key, value, was, row[0])
        for version, (value, place) in versions.items():
            row = _row(value, version, place)
            rest = value if self._inline and type(value) is bytes else row[ROW_BYTES:]
            txn.put(_older_key(key, version), OLDER_ROW.pack(row[0], place) + rest, db=self._older)

    def _put_bare(self, txn: Any, key: bytes, value: Value, was: int | None, kind: int) -> None:
        """Bring `live` and `large` up to a newest row of `kind`, after one of kind `was`."""
        if kind == LIVE:
            txn.put(key, value, db=self._live)
        elif was == LIVE:
            txn.delete(key, db=self._live)
        if kind == LARGE:
            txn.put(key, b"", db=self._large)
        elif was == LARGE:
            txn.delete(key, db=self._large)

    def _make(self, txn: Any, key: bytes) -> tuple[Any, bytes]:
        """As `_find`, making the nodes that do not exist."""
        table, head, rest = self._newest, key[:ROOT_BYTES], key[ROOT_BYTES:]
        while True:
            raw = txn.get(head, db=table)
            if raw is None:
                number = self._number(txn, b"nodes") + 1
                txn.put(b"nodes", _U64.pack(number), db=self._meta)
                raw = ROW.pack(LINK, number, 0)
                txn.put(head, raw, db=table)
            node = NODE.pack(ROW.unpack_from(raw)[1])
            table = self._tails
            if len(rest) < TAIL_BYTES:
                return table, node + rest
            head, rest = node + rest[:TAIL_BYTES], rest[TAIL_BYTES:]

    def _prune_key(self, txn: Any, key: bytes, raw: bytes, floor: int) -> None:
        kind, version, _ = ROW.unpack_from(raw)
        seen = version <= floor
        if seen and kind == GONE:
            found = (self._newest, key) if len(key) < ROOT_BYTES else self._find(txn, key)
            if found is not None:
                txn.delete(found[1], db=found[0])
        doomed = []
        for found_key, row in self._older_of(txn, key):
            older = self._older_one(found_key, row)
            if older.version <= floor:
                if seen or older.kind == GONE:
                    doomed.append(found_key)
                seen = True
        for found_key in doomed:
            txn.delete(found_key, db=self._older)

    def _number(self, txn: Any, name: bytes) -> int:
        raw = txn.get(name, db=self._meta)
        return 0 if raw is None else int(_U64.unpack(raw)[0])


def _row(value: Value, version: int, place: int) -> bytes:
    if type(value) is bytes:
        return ROW.pack(LIVE, version, place)
    if value is None:
        return ROW.pack(GONE, version, place)
    return ROW.pack(LARGE, version, place) + PLACED.pack(*value)


def _older_key(key: bytes, version: int) -> bytes:
    return _hash(key) + _DESCENDING.pack(_ALL_ONES - version)


def _hash(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()


def _before(cursor: Any, end: bytes | None) -> bool:
    """Put the cursor on the last key before `end`."""
    if end is None or not cursor.set_range(end):
        return bool(cursor.last())
    return bool(cursor.prev())


def _successor(node: bytes) -> bytes | None:
    return NODE.pack(NODE.unpack(node)[0] + 1) if node else None


def _drain(readers: list[Any]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            readers.pop().abort()


def _share_environment(path: str) -> tuple[Any, list[Any]]:
    """LMDB allows an environment to be open once in a process, so those who open the same directory share it.

    Its tables too: py-lmdb opens one in a writing transaction, for which it waits without letting other threads of
    Python run, so it would wait for ever for a writer of this process.
    """
    with _environments_lock:
        if path in _environments:
            env, tables, users = _environments[path]
        else:
            os.makedirs(path, exist_ok=True)
            env, users = None, 0
            try:
                env = lmdb.open(path, map_size=MAP_BYTES, max_dbs=8, max_readers=1024, max_spare_txns=16)
                with env.begin(write=True) as txn:  # all or none: a part of them is damage
                    tables = [env.open_db(name, txn=txn) for name in TABLES]
            except BaseException as error:
                if env is not None:
                    env.close()
                if isinstance(error, lmdb.Error):
                    raise _cannot_be_opened(path, error) from error
                raise
        _environments[path] = env, tables, users + 1
        return env, tables


def _cannot_be_opened(path: str, error: lmdb.Error) -> LogDBError:
    """Damage only where LMDB says that: for all else a rebuild would help nothing, and would take the tables away."""
    if isinstance(error, NO_TABLES):
        return damaged(path, f"it cannot be opened ({error})")
    advice = "nothing is damaged: try again, or close the database and open it again"
    if isinstance(error, lmdb.ReadonlyError):
        advice = "readers, too, need the right to write in it, where LMDB keeps a list of them; nothing is damaged"
    elif isinstance(error, lmdb.MemoryError):
        advice = f"LMDB needs {MAP_BYTES >> 40} TiB of address space (ulimit -v), and no memory; nothing is damaged"
    elif os.strerror(errno.EMFILE) in str(error):
        advice = "allow this process more open files (ulimit -n); nothing is damaged"
    elif isinstance(error, lmdb.ReadersFullError):
        advice = "too many threads and processes read it at the same time; nothing is damaged"
    what = str(error).removeprefix(f"{path}: ")
    return Unavailable(f"the checkpoint in {path} cannot be opened ({what}): {advice}")


def check_tables(path: Path, *, all_of_it: bool = False) -> None:
    """Look at the tables in `path`, if there are any, before LMDB maps them (`checking.py`).

    `all_of_it`: trust no note. Looks at nothing while this process has them open. Must not run beside another process
    that writes them. Raises Corruption: they must be rebuilt; Unavailable: they cannot be read.
    """
    if is_open(path):
        return
    try:
        why = checking.find_damage(path, TABLES, all_of_it=all_of_it)
    except OSError as error:
        raise Unavailable(f"the checkpoint in {path} cannot be read: {described(error)}") from error
    if why is not None:
        raise damaged(os.path.realpath(path), why)


def is_open(path: Path) -> bool:
    """Whether this process has the tables in `path` open."""
    return os.path.realpath(path) in _environments


def _release_environment(path: str) -> None:
    with _environments_lock:
        env, tables, users = _environments.pop(path)
        if users > 1:
            _environments[path] = env, tables, users - 1
        else:
            env.close()


def _leave_to_parent() -> None:
    """In a child of fork(): closing an environment would end the parent's reads, so it is kept. What the child opens is
    another one, which LMDB allows, since a child inherits no locks; py-lmdb tells environments by their files alone.
    """
    global _environments_lock  # noqa: PLW0603 - a thread of the parent may hold it
    _environments_lock = threading.Lock()
    keep_for_ever(list(_environments.values()))
    _environments.clear()
    identities: Any = _envid.env_keys
    child = os.getpid()

    def identities_here(path: Any, subdir: bool) -> tuple[tuple[Any, ...], ...]:
        return tuple((child, *key) for key in identities(path, subdir))

    _envid.env_keys = identities_here


os.register_at_fork(after_in_child=_leave_to_parent)
