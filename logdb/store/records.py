"""Every kind of record that the database writes to the log, and its bytes.

A transaction is one COMMIT record (dissertation section 4.3): its identity, a label for people, the snapshot that its
reads were made at, the keys and ranges read, the conditions of a test-and-multi-put, and the write set. Small values
are inside it; a large one is a VALUE record appended before it, to which it refers by `Place`.

All integers are little endian. A decoder raises `MalformedRecord` for bytes that the encoder cannot have written. The
frame's checksum has been verified before, so this is a bug or a forgery, not a torn write.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import islice, pairwise
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from logdb.store.limits import MAX_VALUE_BYTES

COMMIT: Final = 1
VALUE: Final = 2
DECISION: Final = 3
RELOCATION: Final = 4
COMPACTION: Final = 5
PIN: Final = 6
BEGINNING: Final = 7
PART: Final = 8
ENDING: Final = 9
"""The last three belong to a compaction in a cluster (`cluster/compaction/records.py`)."""
PLACEMENT: Final = 10
"""On which shards objects of a cluster live (`cluster/placement.py`)."""
SUMMARY: Final = 11
"""State of the objects of a shard that its own records do not contain (`cluster/summaries.py`)."""
COLD: Final = 12
"""The state of the cold tier of a cluster (`cluster/compaction/cold_records.py`)."""

# The names without an underscore are for a decoder of many records at once (spark_export/decoding.py).
FORMAT: Final = 1
HAS_READS: Final = 1
HAS_DELETES: Final = 2
"""The record deletes ranges, which stand behind the conditions. Such a record has `HAS_READS`, too."""
HAS_FOLDS: Final = 8
"""The record has folds, which stand behind the range deletes. Such a record has `HAS_READS`, too."""
HAS_APPENDS: Final = 4
"""The keys of the last writes get their version when the record is ordered; the last four bytes of the record are the
number of these writes. Such a record has `HAS_READS`, too."""
COMMIT_FLAGS: Final = (0, *range(HAS_READS, 2 * HAS_FOLDS, 2))
"""All sets of the flags above that have `HAS_READS`, and none."""
VERSION_BYTES: Final = 8
INDEX_BYTES: Final = 4
APPENDED_BYTES: Final = VERSION_BYTES + INDEX_BYTES
"""The key of an append is a prefix, the version of its commit, and its index there; both are big endian."""
ITEMS_AT_ONCE: Final = 4_096

COMMIT_HEAD: Final = Struct("<BBQQI")  # format, flags, client, sequence, writes
COMMIT_MORE: Final = Struct("<QHIII")  # snapshot, label bytes, keys read, ranges read, conditions
ITEM: Final = Struct("<HI")  # key bytes, value bytes or one of:
_ITEM_BYTES: Final = ITEM.size
_HEAD_AND_ITEM: Final = Struct(COMMIT_HEAD.format + ITEM.format[1:])  # both headers of a put at once
DELETED: Final = 0xFFFFFFFF
PLACED: Final = 0xFFFFFFFE
PLACE: Final = Struct("<QIQ16s")  # gsn, shard, value bytes, digest
_LENGTH: Final = Struct("<H")
_RANGE: Final = Struct("<HH")
_UNBOUNDED: Final = 0xFFFF
_OPERATOR: Final = Struct("<B")
_U64: Final = Struct("<Q")
_COUNT: Final = Struct("<I")
_DECISION: Final = Struct("<BQQI")  # format, after, through, aborted
RELOCATION_HEAD: Final = Struct("<BI")
RELOCATION_VERSION: Final = Struct("<Q")
_COPY: Final = Struct(RELOCATION_VERSION.format + ITEM.format[1:])  # both headers of a small value at once
_COMPACTION: Final = Struct("<BQII")  # format, floor, sessions, pins
_COMPACTION_FORMAT: Final = 2
_COMPACTION_WITH_DELETES: Final = 3
_SESSION: Final = Struct("<QI")  # client, bounds
_LAST_OF_SESSION: Final = Struct("<QQ")  # of format 1: client, last sequence number
_PIN: Final = Struct("<BQH")  # format, version (0: no longer pinned), name bytes


class MalformedRecord(ValueError):
    """The payload does not follow the grammar of its kind."""


class Place(NamedTuple):
    """The place of a large value in the log, with its length and digest, so that it can be compared without reading it.

    `gsn`, `shard`: its VALUE record. `length`: in bytes. `digest`: BLAKE2b-128 of the value.

    A client may forge a place that no record fits: who reads the value finds that. Its commit is decided as any other,
    since decisions in the log, and transactions after it, say how earlier releases decided it.
    """

    gsn: int
    shard: int
    length: int
    digest: bytes

    @classmethod
    def unpack(cls, raw: bytes, at: int = 0) -> Place:
        """The place at this offset. A length that no value has is read as one byte above the limit, so that lengths can
        be added, stored and sent. Raises struct.error."""
        gsn, shard, length, name = PLACE.unpack_from(raw, at)
        return cls(gsn, shard, min(length, MAX_VALUE_BYTES + 1), name)

    def has(self, tag: int, payload: bytes) -> bool:
        """Whether this record, read from the place, holds the value."""
        return tag == VALUE and len(payload) == self.length and digest(payload) == self.digest


Value = bytes | None | Place
"""The value of a version of a key: bytes, None if it was deleted, or the place of a large value."""


def digest(value: bytes) -> bytes:
    """BLAKE2b-128 of a large value."""
    return hashlib.blake2b(value, digest_size=16).digest()


FENCE: Final = {b"\0": Place(0, 0, 0, bytes(16))}
"""The writes of a record that fences a transaction: they refer to no record, so neither it nor a later commit record
with the same id is applied."""


class TxnId(NamedTuple):
    """A transaction's identity: the committing client (a random number for each open database) and its sequence
    number."""

    client: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.client:016x}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> TxnId:
        """The inverse of str(). Raises TypeError, ValueError."""
        if type(text) is not str:
            raise TypeError(f"a transaction id must be a str, not {type(text).__name__}")
        parts = re.fullmatch(r"([0-9a-f]{16})-([0-9]{1,20})", text)
        if parts is None:
            raise ValueError(f"{text!r} is not a transaction id (16 hexadecimal digits, a dash, a number)")
        if int(parts[2]) >> 63:
            raise ValueError(f"{text!r} is not a transaction id: its number is too large")
        return cls(int(parts[1], 16), int(parts[2]))


Range = tuple[bytes, bytes | None]
"""Keys from the first, inclusive, to the second, exclusive; None: to the last key."""


class Condition(NamedTuple):
    """A condition of a test-and-multi-put. Make one with `logdb.equals`, `absent`, `exists`, `version_equals`, ...

    `operator`: one of `conditions.NAMES`. `key`: its newest version is tested. `operand`: the value or version to
    compare with.
    """

    operator: int
    key: bytes
    operand: bytes | Place | int | None = None


MAX_DIGITS: Final = 100
"""The most digits of a number in a value that folds work on."""
_NUMBER: Final = re.compile(rb"-?[0-9]{1,%d}" % MAX_DIGITS)


def number_in(value: object) -> int | None:
    """The number that a value holds as decimal text; None: it holds none."""
    return int(value) if value.__class__ is bytes and _NUMBER.fullmatch(value) else None


class Fold(NamedTuple):
    """A change of a key's number that does not depend on when it is made (`store/folds.py`).

    `operator`: one of `folds.OPERATORS`. `operand`: the number to add, or that the value becomes if it is larger or
    smaller.
    """

    operator: int
    key: bytes
    operand: int


class DeletedRange(NamedTuple):
    """The commit at `version` has deleted the keys of [start, end); end None: to the last key."""

    version: int
    start: bytes
    end: bytes | None

    def has(self, key: bytes) -> bool:
        """Whether the key is in the range."""
        return self.start <= key and (self.end is None or key < self.end)

    def overlaps(self, start: bytes, end: bytes | None) -> bool:
        """Whether it has a key of [start, end)."""
        return (end is None or self.start < end) and (self.end is None or start < self.end)


class Commit(NamedTuple):
    """The content of a COMMIT record.

    `snapshot`: the version at which `reads` (keys) and `ranges` were read. `deletes`: ranges whose keys it deletes,
    before it writes `writes`. `appended`: the keys of the last `appended` writes are made by `unversioned_key`, and get
    the record's GSN when it is ordered (`ordered_at`). `folds`: in their order; what they write follows from the map
    just before the record, so only records of clusters have any (`store/folds.py`).
    """

    client: int
    sequence: int
    writes: Mapping[bytes, Value]
    snapshot: int = 0
    label: str = ""
    reads: Sequence[bytes] = ()
    ranges: Sequence[Range] = ()
    conditions: Sequence[Condition] = ()
    deletes: Sequence[Range] = ()
    appended: int = 0
    folds: Sequence[Fold] = ()

    @property
    def folded_keys(self) -> tuple[bytes, ...]:
        """The keys that only folds write."""
        return tuple(dict.fromkeys([fold.key for fold in self.folds if fold.key not in self.writes]))

    def ordered_at(self, gsn: int) -> Commit:
        """This commit with the keys that its appends have if its record is at `gsn`. A made key replaces the same key
        among the other writes."""
        if not self.appended:
            return self
        items = iter(self.writes.items())
        writes = dict(islice(items, len(self.writes) - self.appended))
        writes.update((versioned_key(key, gsn), value) for key, value in items)
        return self._replace(writes=writes, appended=0)


def unversioned_key(prefix: bytes, index: int) -> bytes:
    """The key of an append whose version is not known. `index`: the number of earlier appends to `prefix` in the same
    transaction."""
    return prefix + bytes(VERSION_BYTES) + index.to_bytes(INDEX_BYTES)


def versioned_key(key: bytes, version: int) -> bytes:
    """The key of `unversioned_key`, once the version is known."""
    return key[:-APPENDED_BYTES] + version.to_bytes(VERSION_BYTES) + key[-INDEX_BYTES:]


def encode_commit(commit: Commit) -> bytes:
    """The payload of a COMMIT record."""
    client, sequence, writes, snapshot, label, reads, ranges, conditions, deletes, appended, folds = commit
    if not (reads or ranges or conditions or label or deletes or appended or folds):
        if len(writes) == 1:
            ((key, value),) = writes.items()
            if type(value) is bytes:
                head = _HEAD_AND_ITEM.pack(FORMAT, 0, client, sequence, 1, len(key), len(value))
                return b"".join((head, key, value))
        parts = [COMMIT_HEAD.pack(FORMAT, 0, client, sequence, len(writes))]
        return _encoded(parts, writes)
    name = label.encode()
    flags = HAS_READS | (HAS_DELETES if deletes else 0) | (HAS_APPENDS if appended else 0)
    flags |= HAS_FOLDS if folds else 0
    parts = [
        COMMIT_HEAD.pack(FORMAT, flags, client, sequence, len(writes)),
        COMMIT_MORE.pack(snapshot, len(name), len(reads), len(ranges), len(conditions)),
        name,
    ]
    rest: list[bytes] = []
    for key in reads:
        rest.append(_LENGTH.pack(len(key)))
        rest.append(key)
    for start, end in ranges:
        rest.append(_encoded_range(start, end))
    for operator, key, operand in conditions:
        rest.append(_OPERATOR.pack(operator))
        encoded = _U64.pack(operand) if isinstance(operand, int) else operand
        _write_items(rest, ((key, encoded),))
    if deletes:
        rest.append(_COUNT.pack(len(deletes)))
    for start, end in deletes:
        rest.append(_encoded_range(start, end))
    if folds:
        rest.append(_COUNT.pack(len(folds)))
    for operator, key, number in folds:
        rest.append(_OPERATOR.pack(operator))
        _write_items(rest, ((key, b"%d" % number),))
    if appended:
        rest.append(_COUNT.pack(appended))
    return _encoded(parts, writes, rest)


def _encoded_range(start: bytes, end: bytes | None) -> bytes:
    return _RANGE.pack(len(start), _UNBOUNDED if end is None else len(end)) + start + (end or b"")


def _encoded(parts: list[bytes], writes: Mapping[bytes, Value], rest: Sequence[bytes] = ()) -> bytes:
    """`parts`, the writes and `rest`, joined. Many writes are joined a few at a time: a million writes as three million
    parts would take three times their memory, and joining and freeing them at once would block all other threads."""
    if len(writes) <= ITEMS_AT_ONCE:
        _write_items(parts, writes.items())
        parts += rest
        return b"".join(parts)
    done, items = BytesIO(), iter(writes.items())
    while parts:
        done.write(b"".join(parts))
        parts.clear()
        _write_items(parts, islice(items, ITEMS_AT_ONCE))
    done.write(b"".join(rest))
    return done.getvalue()


def decode_put(payload: bytes) -> tuple[int, int, bytes, bytes] | None:
    """(client, sequence, key, value) of a COMMIT record that only writes one small value; None for other records."""
    if len(payload) < _HEAD_AND_ITEM.size:
        return None
    form, flags, client, sequence, count, key_bytes, value_bytes = _HEAD_AND_ITEM.unpack_from(payload)
    value_at = _HEAD_AND_ITEM.size + key_bytes
    if form != FORMAT or flags or count != 1 or value_at + value_bytes != len(payload):
        return None
    return client, sequence, payload[_HEAD_AND_ITEM.size : value_at], payload[value_at:]


def decode_commit(payload: bytes, gsn: int) -> Commit:
    """The content of the COMMIT record at `gsn`, with the keys of its appends; 0: of a record that is not ordered yet,
    the inverse of `encode_commit`. Raises MalformedRecord."""
    try:
        form, flags, client, sequence, count = COMMIT_HEAD.unpack_from(payload)
        if form != FORMAT or flags not in COMMIT_FLAGS:
            raise MalformedRecord(f"commit record of format {form} with flags {flags}")
        at = COMMIT_HEAD.size
        if not flags:
            writes, at = _read_items(payload, at, count)
            return Commit(client, sequence, writes) if at == len(payload) else _trailing(payload, at)
        snapshot, label_bytes, read_count, range_count, condition_count = COMMIT_MORE.unpack_from(payload, at)
        at += COMMIT_MORE.size
        label = payload[at : at + label_bytes].decode()
        writes, at = _read_items(payload, at + label_bytes, count)
        reads: list[bytes] = []
        ranges: list[Range] = []
        conditions: list[Condition] = []
        for _ in range(read_count):
            key, at = _read_bytes(payload, at + 2, _LENGTH.unpack_from(payload, at)[0])
            reads.append(key)
        for _ in range(range_count):
            range_read, at = _read_range(payload, at)
            ranges.append(range_read)
        for _ in range(condition_count):
            operator = payload[at]
            ((key, operand),), at = _read_pairs(payload, at + 1, 1)
            if operator >= FIRST_VERSION_OPERATOR:
                if not isinstance(operand, bytes):
                    raise MalformedRecord(f"operand of operator {operator} is not a version")
                conditions.append(Condition(operator, key, _U64.unpack(operand)[0]))
            else:
                conditions.append(Condition(operator, key, operand))
        deletes: list[Range] = []
        if flags & HAS_DELETES:
            (delete_count,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            for _ in range(delete_count):
                deleted, at = _read_range(payload, at)
                if deleted[1] is not None and deleted[0] >= deleted[1]:
                    raise MalformedRecord("commit record: a range that it deletes is empty")
                deletes.append(deleted)
        folds: list[Fold] = []
        if flags & HAS_FOLDS:
            (fold_count,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            for _ in range(fold_count):
                fold, at = _read_fold(payload, at, writes)
                folds.append(fold)
        appended = 0
        if flags & HAS_APPENDS:
            (appended,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            if not are_appends(writes, appended):
                raise MalformedRecord("commit record: a write that it appends has a version, or no value")
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedRecord(f"commit record of {len(payload)} bytes: {error}") from error
    if at != len(payload):
        _trailing(payload, at)
    commit = Commit(client, sequence, writes, snapshot, label, reads, ranges, conditions, deletes, appended, folds)
    return commit.ordered_at(gsn) if gsn else commit


def has_folds(payload: bytes) -> bool:
    """Whether the payload of a COMMIT record has folds."""
    return len(payload) > 1 and payload[1] & HAS_FOLDS != 0


def _read_fold(payload: bytes, at: int, writes: Mapping[bytes, Value]) -> tuple[Fold, int]:
    operator = payload[at]
    ((key, raw),), at = _read_pairs(payload, at + 1, 1)
    operand = number_in(raw)
    if operand is None or not 0 < operator <= LAST_FOLD_OPERATOR or key in writes:
        raise MalformedRecord(f"commit record: no fold has operator {operator} and this operand, or its key is written")
    return Fold(operator, key, operand), at


def are_appends(writes: Mapping[bytes, object], appended: int) -> bool:
    """Whether the last `appended` writes have values, and keys as `unversioned_key` makes them."""
    return appended <= len(writes) and all(
        len(key) >= APPENDED_BYTES and not any(key[-APPENDED_BYTES:-INDEX_BYTES]) and value is not None
        for key, value in islice(writes.items(), len(writes) - appended, None)
    )


def _read_range(payload: bytes, at: int) -> tuple[Range, int]:
    start_bytes, end_bytes = _RANGE.unpack_from(payload, at)
    start, at = _read_bytes(payload, at + _RANGE.size, start_bytes)
    if end_bytes == _UNBOUNDED:
        return (start, None), at
    end, at = _read_bytes(payload, at, end_bytes)
    return (start, end), at


FIRST_VERSION_OPERATOR: Final = 16
"""Operators from this number on compare versions: their operand is an integer."""
LAST_FOLD_OPERATOR: Final = 3
"""The largest operator of a fold."""


class Decision(NamedTuple):
    """The COMMIT records with `after` < gsn <= `through` are decided; those in `aborted` were not applied."""

    after: int
    through: int
    aborted: Sequence[int]


def encode_decision(decision: Decision) -> bytes:
    """The payload of a DECISION record."""
    after, through, aborted = decision
    return _DECISION.pack(FORMAT, after, through, len(aborted)) + b"".join(map(_U64.pack, aborted))


def decode_decision(payload: bytes) -> Decision:
    """The inverse of `encode_decision`. Raises MalformedRecord."""
    try:
        form, after, through, count = _DECISION.unpack_from(payload)
    except struct.error as error:
        raise MalformedRecord(f"decision record: {error}") from error
    if form != FORMAT or len(payload) != _DECISION.size + 8 * count:
        raise MalformedRecord(f"decision record of format {form}, {len(payload)} bytes, {count} entries")
    return Decision(after, through, [gsn for (gsn,) in _U64.iter_unpack(payload[_DECISION.size :])])


class Relocated(NamedTuple):
    """A live version that compaction copied out of the prefix that it trims."""

    key: bytes
    version: int
    value: Value


def encode_relocation(entries: Sequence[tuple[bytes, int, Value]]) -> bytes:
    """The payload of a RELOCATION record. `entries`: as of `Relocated`."""
    parts = [RELOCATION_HEAD.pack(FORMAT, len(entries))]
    for key, version, value in entries:
        if type(value) is bytes:
            parts += (_COPY.pack(version, len(key), len(value)), key, value)
        else:
            parts.append(RELOCATION_VERSION.pack(version))
            _write_items(parts, ((key, value),))
    return b"".join(parts)


def decode_relocation(payload: bytes) -> list[Relocated]:
    """The inverse of `encode_relocation`. Raises MalformedRecord."""
    try:
        form, count = RELOCATION_HEAD.unpack_from(payload)
        if form != FORMAT:
            raise MalformedRecord(f"relocation record of format {form}")
        at, entries = RELOCATION_HEAD.size, []
        for _ in range(count):
            (version,) = RELOCATION_VERSION.unpack_from(payload, at)
            ((key, value),), at = _read_pairs(payload, at + RELOCATION_VERSION.size, 1)
            entries.append(Relocated(key, version, value))
    except struct.error as error:
        raise MalformedRecord(f"relocation record: {error}") from error
    return entries if at == len(payload) else _trailing(payload, at)


class Compaction(NamedTuple):
    """After this record, versions before `floor` cannot be read.

    It repeats state of the trimmed prefix: the sequence numbers that each client has used, as bounds (first, end,
    first, end, ...), the pins by name, and `deletes`, the deleted ranges of which the rest of the log may hold older
    copies.
    """

    floor: int
    sessions: Mapping[int, tuple[int, ...]]
    pins: Mapping[str, int]
    deletes: Sequence[DeletedRange] = ()


def encode_compaction(compaction: Compaction) -> bytes:
    """The payload of a COMPACTION record."""
    floor, sessions, pins, deletes = compaction
    form = _COMPACTION_WITH_DELETES if deletes else _COMPACTION_FORMAT
    parts = [_COMPACTION.pack(form, floor, len(sessions), len(pins))]
    for client, bounds in sorted(sessions.items()):
        parts += (_SESSION.pack(client, len(bounds)), *map(_U64.pack, bounds))
    parts += [encode_pin(name, version) for name, version in sorted(pins.items())]
    if deletes:
        parts.append(_COUNT.pack(len(deletes)))
    parts += map(encode_deleted_range, deletes)
    return b"".join(parts)


def encode_deleted_range(deleted: DeletedRange) -> bytes:
    """A deleted range in a record or a row of a checkpoint."""
    return _U64.pack(deleted.version) + _encoded_range(deleted.start, deleted.end)


def decode_deleted_range(payload: bytes, at: int = 0) -> tuple[DeletedRange, int]:
    """(deleted range at this offset, offset behind it). Raises MalformedRecord, struct.error."""
    (version,) = _U64.unpack_from(payload, at)
    (start, end), at = _read_range(payload, at + _U64.size)
    return DeletedRange(version, start, end), at


def decode_compaction(payload: bytes) -> Compaction:
    """The inverse of `encode_compaction`. Raises MalformedRecord."""
    try:
        form, floor, session_count, pin_count = _COMPACTION.unpack_from(payload)
        if form not in (FORMAT, _COMPACTION_FORMAT, _COMPACTION_WITH_DELETES):
            raise MalformedRecord(f"compaction record of format {form}")
        at = _COMPACTION.size
        sessions: dict[int, tuple[int, ...]] = {}
        for _ in range(session_count):
            client, bounds, at = _read_session(payload, at, form)
            sessions[client] = bounds
        pins: dict[str, int] = {}
        for _ in range(pin_count):
            name, version, at = _read_pin(payload, at)
            pins[name] = version
        deletes: list[DeletedRange] = []
        if form == _COMPACTION_WITH_DELETES:
            (delete_count,) = _COUNT.unpack_from(payload, at)
            at += _COUNT.size
            for _ in range(delete_count):
                deleted, at = decode_deleted_range(payload, at)
                deletes.append(deleted)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"compaction record: {error}") from error
    return Compaction(floor, sessions, pins, deletes) if at == len(payload) else _trailing(payload, at)


def _read_session(payload: bytes, at: int, form: int) -> tuple[int, tuple[int, ...], int]:
    """(client, bounds, offset of the next session). Format 1 has the last number; all before it count as used."""
    if form == FORMAT:
        client, last = _LAST_OF_SESSION.unpack_from(payload, at)
        return client, (0, last + 1), at + _LAST_OF_SESSION.size
    client, count = _SESSION.unpack_from(payload, at)
    raw, at = _read_bytes(payload, at + _SESSION.size, 8 * count)
    bounds = tuple([bound for (bound,) in _U64.iter_unpack(raw)])
    if not count or count % 2 or any(bound >= following for bound, following in pairwise(bounds)):
        raise MalformedRecord(f"compaction record: {count} bounds of client {client:016x} are not ranges")
    return client, bounds, at


def encode_pin(name: str, version: int) -> bytes:
    """The payload of a PIN record: `name` pins `version`; 0 removes the pin."""
    text = name.encode()
    return _PIN.pack(FORMAT, version, len(text)) + text


def decode_pin(payload: bytes) -> tuple[str, int]:
    """(name, version). Raises MalformedRecord."""
    try:
        name, version, at = _read_pin(payload, 0)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRecord(f"pin record: {error}") from error
    return (name, version) if at == len(payload) else _trailing(payload, at)


def _read_pin(payload: bytes, at: int) -> tuple[str, int, int]:
    form, version, length = _PIN.unpack_from(payload, at)
    if form != FORMAT:
        raise MalformedRecord(f"pin record of format {form}")
    text, at = _read_bytes(payload, at + _PIN.size, length)
    return text.decode(), version, at


def _write_items(parts: list[bytes], items: Iterable[tuple[bytes, Value]]) -> None:
    for key, value in items:
        if type(value) is bytes:
            parts += (ITEM.pack(len(key), len(value)), key, value)
        elif value is None:
            parts += (ITEM.pack(len(key), DELETED), key)
        else:
            parts += (ITEM.pack(len(key), PLACED), key, PLACE.pack(*value))


def _read_items(payload: bytes, at: int, count: int) -> tuple[dict[bytes, Value], int]:
    unpack, size = ITEM.unpack_from, _ITEM_BYTES
    items: dict[bytes, Value] = {}
    for _ in range(count):
        key_bytes, value_bytes = unpack(payload, at)
        value_at = at + size + key_bytes
        key = payload[at + size : value_at]
        if value_bytes < PLACED:
            at = value_at + value_bytes
            items[key] = payload[value_at:at]
        elif value_bytes == DELETED:
            at = value_at
            items[key] = None
        else:
            items[key] = Place.unpack(payload, value_at)
            at = value_at + PLACE.size
    if at > len(payload):
        raise MalformedRecord(f"an item ends at byte {at} of {len(payload)}")
    return items, at


def _read_pairs(payload: bytes, at: int, count: int) -> tuple[list[tuple[bytes, Value]], int]:
    items, at = _read_items(payload, at, count)
    return list(items.items()), at


def _read_bytes(payload: bytes, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if end > len(payload):
        raise MalformedRecord(f"a field ends at byte {end} of {len(payload)}")
    return payload[at:end], end


def _trailing(payload: bytes, at: int) -> NoReturn:
    raise MalformedRecord(f"{len(payload) - at} bytes after the end of the record")
