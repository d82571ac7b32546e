"""The keys and values of named logs.

The keys of the log `n`; the versions and indexes are made by commits (`Transaction.append`):

    (None, "logdb.logs", n, 0)                              the log was created; its value is empty
    (None, "logdb.logs", n, 1) id version index             an entry with this transaction id; its value is the index of
                                                            the entry
    (None, "logdb.logs", n, 2) version index                an entry
    (None, "logdb.logs", n, 3, consumer, ...)               a consumer: see `cursors.py`

    (None, "logdb.writers", n)                              the epoch of the exclusive writer (8 bytes); it outlives the
                                                            log, so that it never decreases

The value of an entry is a byte that says what precedes the value: a transaction id (8 bytes), a partition key (2 bytes
for its length, and the key), both, or nothing.

Invariant: transaction ids do not decrease along a log. An append with an id reads the last one in its transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from logdb.errors import LogDBError, WriterFenced
from logdb.keys import Subspace, unpack
from logdb.named_logs.retention import LOG_MARKS, POLICIES, Retention
from logdb.store.limits import MAX_VALUE_BYTES, check_name
from logdb.store.records import APPENDED_BYTES, INDEX_BYTES, VERSION_BYTES

LOGS: Final = Subspace(None, "logdb.logs")
WRITERS: Final = Subspace(None, "logdb.writers")
CREATED, IDS, ENTRIES, CONSUMERS = 0, 1, 2, 3
HAS_ID, HAS_KEY = 1, 2
"""Bits of the first byte of an entry."""
ID_BYTES: Final = 8
EPOCH_BYTES: Final = 8
KEY_LENGTH_BYTES: Final = 2
MAX_PARTITION_KEY_BYTES: Final = 1_024
MAX_ENTRY_BYTES: Final = MAX_VALUE_BYTES - 1 - ID_BYTES - KEY_LENGTH_BYTES - MAX_PARTITION_KEY_BYTES
_LAST_INDEX: Final = (1 << 8 * INDEX_BYTES) - 1
_TEXT_END: Final = re.compile(rb"\x00(?!\xff)")


class Position(NamedTuple):
    """The place of an entry in its log: the `version` of its commit, and the `index` among the entries that the commit
    appended to the log. Positions are ordered as their entries."""

    version: int
    index: int  # type: ignore[assignment]  # a tuple has a method of that name

    def __str__(self) -> str:
        return f"{self.version}.{self.index}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position whose str() is `text`. Raises ValueError."""
        found = re.fullmatch(r"([0-9]{1,20})\.([0-9]{1,10})", text)
        if found is None:
            raise ValueError(f"{text!r:.100} is not a position (a version, a dot, an index)")
        return checked_position("the position", cls(int(found[1]), int(found[2])))


class Entry(NamedTuple):
    """An entry of a named log: its `position`, its `value`, and what it was appended with, None if without: `txn_id`,
    the transaction id, and `key`, the partition key."""

    position: Position
    value: bytes
    txn_id: int | None
    key: bytes | None = None


class LogStats(NamedTuple):
    """The size of a named log: `entries`, their number; `size_bytes`, of their values; `first` and `last`, the
    positions of the first and the last one (None: there is none); `last_txn_id`, the last transaction id among them."""

    entries: int
    size_bytes: int
    first: Position | None
    last: Position | None
    last_txn_id: int | None


NO_ENTRIES: Final = LogStats(0, 0, None, None, None)


def with_entry(stats: LogStats, entry: Entry) -> LogStats:
    """The size with the next entry."""
    return LogStats(
        stats.entries + 1,
        stats.size_bytes + len(entry.value),
        stats.first or entry.position,
        entry.position,
        stats.last_txn_id if entry.txn_id is None else entry.txn_id,
    )


class Appends(Protocol):
    """The appends of a transaction."""

    version: int
    appends: dict[bytes, bytes]

    @property
    def appended(self) -> list[bytes]: ...
    def append(self, prefix: bytes, value: bytes) -> None: ...


class Layout:
    """The keys of one log. `all`: the range of all but `writer`, the key of the epoch, and `policy` and `marks`,
    those of its retention. `created`: the key of `create`; `entries` and `ids`: the prefixes of entries and of
    transaction ids. Raises TypeError, ValueError for a name that no log can have."""

    def __init__(self, name: str) -> None:
        check_name("a log", name)
        self.name = name
        self.all = LOGS.range((name,))
        self.writer = WRITERS.pack((name,))
        self.policy, self.marks = POLICIES.pack((name,)), LOG_MARKS.pack((name,))
        self.created, self.ids, self.entries = [LOGS.pack((name, kind)) for kind in (CREATED, IDS, ENTRIES)]

    # ---- entries

    def key(self, position: Position) -> bytes:
        """The key of the entry at a position."""
        return self.entries + position.version.to_bytes(VERSION_BYTES) + position.index.to_bytes(INDEX_BYTES)

    def position(self, key: bytes) -> Position:
        """The inverse of `key`."""
        at = len(key) - APPENDED_BYTES
        return Position(int.from_bytes(key[at : at + VERSION_BYTES]), int.from_bytes(key[-INDEX_BYTES:]))

    def range(self, after: Position | None = None, before: Position | None = None) -> tuple[bytes, bytes]:
        """The range of the entries behind `after` and before `before`."""
        start = self.entries if after is None else self.key(after) + b"\0"
        return start, self.entries + b"\xff" * (APPENDED_BYTES + 1) if before is None else self.key(before)

    def read(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[Entry]:
        """The entries in these rows. Raises ValueError."""
        for key, value in rows:
            yield self.entry(key, value)

    def entry(self, key: bytes, value: bytes) -> Entry:
        """The entry in a row. Raises ValueError."""
        if value[:1] == b"\0":
            return Entry(self.position(key), value[1:], None)
        txn_id = partition_key = None
        flags, at = value[0] if value else -1, 1
        if flags & HAS_ID:
            txn_id, at = int.from_bytes(value[at : at + ID_BYTES]), at + ID_BYTES
        if flags & HAS_KEY:
            at += KEY_LENGTH_BYTES
            length = int.from_bytes(value[at - KEY_LENGTH_BYTES : at])
            partition_key, at = value[at : at + length], at + length
        if not 0 < flags <= HAS_ID | HAS_KEY or len(value) < at:
            raise ValueError(f"what is at position {self.position(key)} of log {self.name!r} is not an entry")
        return Entry(self.position(key), value[at:], txn_id, partition_key)

    def changed(self, changes: Mapping[bytes, bytes | None], after: Position | None) -> list[Entry]:
        """The entries behind `after` that a commit has appended, in order. Raises ValueError."""
        low, high = self.range(after)
        rows = [(key, value) for key, value in changes.items() if value is not None and low <= key < high]
        return list(self.read(sorted(rows)))

    # ---- retention

    def kept(self, stored: bytes | None) -> Retention | None:
        """The retention that the key `policy` holds."""
        return None if stored is None else Retention.decode(stored)

    def with_retention(self, stored: bytes | None, retention: Retention | None) -> dict[bytes, bytes | None]:
        """The writes that change the retention from what is `stored`; none if it is the same. Marks without sizes are
        of no use for a limit of the size."""
        old = self.kept(stored)
        if old == retention:
            return {}
        writes: dict[bytes, bytes | None] = {self.policy: None if retention is None else retention.encode()}
        has_sizes = old is not None and old.size_bytes is not None
        if retention is None or (retention.size_bytes is not None and not has_sizes):
            writes[self.marks] = None
        return writes

    # ---- transaction ids

    def id_key(self, txn_id: int) -> bytes:
        """The prefix of the keys of a transaction id."""
        return self.ids + txn_id.to_bytes(ID_BYTES)

    @property
    def id_range(self) -> tuple[bytes, bytes]:
        """The range of the keys of all transaction ids."""
        return self.ids, self.ids + b"\xff" * (ID_BYTES + APPENDED_BYTES + 1)

    def position_of_id(self, key: bytes, value: bytes) -> Position:
        """The position of the entry that a row of a transaction id names."""
        return self.position(key)._replace(index=int.from_bytes(value))

    def id_of(self, key: bytes) -> int:
        """The transaction id in a key."""
        return int.from_bytes(key[len(self.ids) :][:ID_BYTES].ljust(ID_BYTES, b"\0"))

    def ids_before(self, entry: Entry) -> tuple[bytes, bytes]:
        """The range of the ids that no longer have entries when `entry`, which has one, is the last to be truncated.
        Its own remains: it is the least that a later append may have."""
        assert entry.txn_id is not None
        return self.ids, self.id_key(entry.txn_id) + entry.position.version.to_bytes(VERSION_BYTES)

    def last_own_id(self, txn: Appends) -> int | None:
        """The last transaction id among the appends of a transaction, which its reads do not see."""
        keys = reversed(txn.appends)
        return next((self.id_of(key) for key in keys if key.startswith(self.ids)), None)

    # ---- exclusive writers

    def next_epoch(self, stored: bytes | None) -> tuple[int, bytes]:
        """The epoch of the next writer, and its value."""
        epoch = int.from_bytes(stored or b"") + 1
        return epoch, epoch.to_bytes(EPOCH_BYTES)

    def check_epoch(self, epoch: int, stored: bytes | None) -> None:
        """Check the epoch of a writer in its transaction, which has read `stored`. An older one is that of a snapshot
        before the writer took over, and the transaction conflicts. Raises WriterFenced."""
        newest = int.from_bytes(stored or b"")
        if newest > epoch:
            raise WriterFenced(self.name, epoch, newest)

    def not_claimed(self) -> LogDBError:
        """The error of an exclusive log that is used in a transaction before it was claimed."""
        return LogDBError(f"claim the exclusive log {self.name!r} before you append to it in a transaction")

    # ---- appending

    def append(self, txn: Appends, value: bytes, txn_id: int | None, key: bytes | None, last: int | None) -> None:
        """Append in a transaction. `last`: the last transaction id of the log, if one is given. Raises ValueError."""
        if txn_id is None:
            txn.append(self.entries, stored(value, None, key))
            return
        if last is not None and txn_id < last:
            raise ValueError(f"transaction ids of log {self.name!r} do not decrease: {txn_id} comes after {last}")
        txn.append(self.entries, stored(value, txn_id, key))
        txn.append(self.id_key(txn_id), next(reversed(txn.appends))[-INDEX_BYTES:])

    def appended(self, txn: Appends) -> list[Position]:
        """The positions of the entries that a transaction has appended."""
        return [self.position(key) for key in txn.appended if key.startswith(self.entries)]


def name_in(key: bytes) -> str:
    """The name of the log that a key belongs to."""
    begin = len(LOGS.pack())
    end = _TEXT_END.search(key, begin + 1)
    assert end is not None, f"{key!r} is not a key of a log"
    (name,) = unpack(key[begin : end.end()])
    return str(name)


def stored(value: bytes, txn_id: int | None, key: bytes | None) -> bytes:
    """The value of an entry's row."""
    flags = (0 if txn_id is None else HAS_ID) | (0 if key is None else HAS_KEY)
    head = bytes([flags])
    if txn_id is not None:
        head += txn_id.to_bytes(ID_BYTES)
    if key is not None:
        head += len(key).to_bytes(KEY_LENGTH_BYTES) + key
    return head + value


def check_entry(value: bytes, txn_id: int | None, key: bytes | None) -> None:
    """Raises TypeError, ValueError."""
    if type(value) is not bytes:
        raise TypeError(f"the value of an entry must be bytes, not {type(value).__name__}")
    if len(value) > MAX_ENTRY_BYTES:
        raise ValueError(f"the value of an entry has {len(value):,} bytes, the limit is {MAX_ENTRY_BYTES:,}")
    if txn_id is not None:
        check_txn_id(txn_id)
    if key is not None:
        if type(key) is not bytes:
            raise TypeError(f"a partition key must be bytes, not {type(key).__name__}")
        if len(key) > MAX_PARTITION_KEY_BYTES:
            raise ValueError(f"a partition key has {len(key):,} bytes, the limit is {MAX_PARTITION_KEY_BYTES:,}")


def check_txn_id(txn_id: int) -> None:
    """Raises TypeError, ValueError."""
    if type(txn_id) is not int:
        raise TypeError(f"a transaction id must be an int, not {type(txn_id).__name__}")
    if not 0 <= txn_id < 1 << 8 * ID_BYTES:
        raise ValueError(f"a transaction id must be from 0 to 2^64 - 1, not {txn_id}")


def checked_position(what: str, position: tuple[int, int]) -> Position:
    """Raises TypeError, ValueError."""
    if not isinstance(position, tuple) or len(position) != 2 or any(type(part) is not int for part in position):
        raise TypeError(f"{what} must be a Position, not {position!r:.100}")
    found = Position(*position)
    if not (0 <= found.version < 1 << 63 and 0 <= found.index <= _LAST_INDEX):
        raise ValueError(f"{what} is not a position: {found}")
    return found


def behind(version: int) -> Position:
    """The last possible position of a version."""
    return Position(version, _LAST_INDEX)


def check_start(after: object, since: object, from_txn_id: object) -> None:
    """Raises ValueError for more than one."""
    if sum(start is not None for start in (after, since, from_txn_id)) > 1:
        raise ValueError("give one of after, since and from_txn_id")
