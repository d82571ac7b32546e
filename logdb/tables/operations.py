"""The operations of a table, written once for both faces: generators that yield reads and are sent the answers.

A face runs an operation with `perform` (below) or its twin in `async_table.py`, over anything that reads: a
transaction, a snapshot or a database. Operations that write are given the transaction's workspace beside.

The invariant: at every version, an index that is READABLE has exactly the entries of the rows of that version. Each
transaction that writes a row reads it, and changes its entries with it. Why an index that is built beside writers
misses no row: see ARCHITECTURE.md, "An index is built in steps".
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from logdb.errors import Corruption, IndexUnavailable, TableMismatch, UniqueViolation
from logdb.keys import Item
from logdb.store.limits import check_name
from logdb.store.ranges import key_range
from logdb.tables.codecs import FORMATS, Codec, parse
from logdb.tables.schema import (
    KEY_TYPES,
    Entry,
    Index,
    IndexState,
    Layout,
    Schema,
    check_like,
    key_types,
)
from logdb.txn.transaction import Workspace

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

PAGE = 128
"""Number of entries whose rows a query reads together."""
FIRST_STEP, LONGEST_STEP = 16, 1_024
"""Numbers of rows that a step of building an index reads."""
STEP_BYTES = 1 << 20
"""The size of the rows above which the next step reads fewer."""


class Get(NamedTuple):
    """Read these keys; the answer is a dictionary of those that exist."""

    keys: Sequence[bytes]


class Scan(NamedTuple):
    """Read these ranges, up to `limit` rows of each; the answer is a list of rows for each range."""

    ranges: Sequence[tuple[bytes | None, bytes | None]]
    limit: int | None = None
    reverse: bool = False


Operation: TypeAlias = Generator[Get | Scan, Any, T]


class Readable(Protocol):
    """The source of an operation's reads: a database, a snapshot or a transaction."""

    def multi_get(self, keys: list[bytes], /) -> Mapping[bytes, bytes]: ...
    def multi_scan(
        self, ranges: Iterable[tuple[bytes | None, bytes | None]], /, *, reverse: bool = False, limit: int | None = None
    ) -> list[list[tuple[bytes, bytes]]]: ...


def perform(operation: Operation[T], reader: Readable) -> T:
    """Run an operation."""
    answer: Any = None
    while True:
        try:
            request = operation.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if isinstance(request, Get):
            answer = reader.multi_get(list(request.keys))
        else:
            answer = reader.multi_scan(request.ranges, reverse=request.reverse, limit=request.limit)


class Bounds(NamedTuple):
    """The range of a scan, in keys of the database."""

    start: bytes
    end: bytes


class Definition(Generic[K, V]):
    """A table as a program declares it, and its operations."""

    def __init__(self, name: str, key: Any, codec: Codec[V]) -> None:
        check_name("a table", name)
        if codec.format not in FORMATS:
            raise ValueError(f"the format of a codec is one of {', '.join(FORMATS)}, not {codec.format!r}")
        self.layout = Layout(name)
        self.codec = codec
        self.declared = Schema(tuple(key_types(key)), isinstance(key, tuple), codec.format)
        self._kinds = [KEY_TYPES[each] for each in self.declared.key]
        self._is_checked = False
        self._has_indexes = False
        self._decoded: tuple[bytes, Schema] | None = None
        self._schemas: WeakKeyDictionary[Workspace, Schema] = WeakKeyDictionary()

    # ---- keys and rows

    def items(self, key: Any) -> tuple[Item, ...]:
        """The key of a row as a tuple. Raises TypeError."""
        items = self._prefix(key)
        if len(items) != len(self._kinds):
            raise TypeError(f"a key of the table {self.layout.name!r} has {len(self._kinds)} items, not {len(items)}")
        return items

    def _prefix(self, key: Any) -> tuple[Item, ...]:
        """A key, or its first items, as a tuple."""
        if self.declared.has_tuple_key and not isinstance(key, tuple):
            raise TypeError(f"a key of the table {self.layout.name!r} is a tuple, not {key!r:.100}")
        items: tuple[Item, ...] = key if self.declared.has_tuple_key else (key,)
        if len(items) > len(self._kinds) or any(
            type(item) is not kind for item, kind in zip(items, self._kinds, strict=False)
        ):
            raise TypeError(
                f"a key of the table {self.layout.name!r} is of type ({', '.join(self.declared.key)}), not {key!r:.100}"
            )
        return items

    def row_key(self, key: K) -> bytes:
        """The key of the database under which a row is. Raises TypeError, ValueError."""
        return self.layout.rows.pack(self.items(key))

    def row(self, row_key: bytes, data: bytes) -> tuple[K, V]:
        """The key and the value of a row. Raises as `value`."""
        return self._key(row_key), self.value(row_key, data)

    def _key(self, row_key: bytes) -> K:
        items = self.layout.rows.unpack(row_key)
        return items if self.declared.has_tuple_key else items[0]  # type: ignore[return-value]

    def value(self, row_key: bytes, data: bytes) -> V:
        """The value of a row. Raises TypeError, and ValueError, which names the key."""
        try:
            return self.codec.decode(data)
        except ValueError as error:
            raise self._of_row(self._key(row_key), "read", error) from error

    def _stored(self, key: K, value: V) -> bytes:
        try:
            return self.codec.encode(value)
        except ValueError as error:
            raise self._of_row(key, "stored", error) from error

    def _of_row(self, key: K, done: str, error: ValueError) -> ValueError:
        return ValueError(f"the row {key!r:.100} of the table {self.layout.name!r} cannot be {done}: {error}")

    def bounds(self, start: Any, end: Any, prefix: Any) -> Bounds:
        """The range of rows from a key, up to a key, or with the first items of a key. Raises TypeError, ValueError."""
        if prefix is not None:
            if start is not None or end is not None:
                raise ValueError("give a prefix, or a start and an end, but not both")
            key = self.layout.rows.pack(self._prefix(prefix))
            return Bounds(key, key + b"\xff")
        first, last = self.layout.rows.range()
        return Bounds(
            first if start is None else self.layout.rows.pack(self._prefix(start)),
            last if end is None else self.layout.rows.pack(self._prefix(end)),
        )

    def index_bounds(self, index: str, start: Any, end: Any, prefix: Any, limit: int | None) -> Bounds:
        """As `bounds`, for values of the fields of an index: one value, or a tuple of the first ones."""
        key_range(None, None, None, limit)
        entries = self.layout.entries(index)
        if prefix is not None:
            if start is not None or end is not None:
                raise ValueError("give a prefix, or a start and an end, but not both")
            key = entries.pack(_values(prefix))
            return Bounds(key, key + b"\xff")
        first, last = entries.range()
        return Bounds(
            first if start is None else entries.pack(_values(start)),
            last if end is None else entries.pack(_values(end)),
        )

    # ---- the schema

    def _schema(self, data: bytes | None) -> Schema | None:
        """The schema in the catalog. Raises TableMismatch."""
        if data is None:
            return None
        decoded = self._decoded
        if decoded is None or decoded[0] != data:
            schema = Schema.decoded(self.layout.name, data)
            check_like(self.layout.name, schema, self.declared)
            decoded = self._decoded = data, schema
            self._is_checked = True
            self._has_indexes = bool(schema.kept)
        return decoded[1]

    def _created(self, work: Workspace, data: bytes | None) -> Operation[Schema]:
        """The schema, which the transaction creates if there is none. Raises TableMismatch."""
        schema = self._schema(data)
        if schema is None:
            (found,) = yield Scan([self.layout.all.range()], 1)
            if found:
                raise TableMismatch(
                    f"the table {self.layout.name!r} cannot be created: its keys begin with {self.layout.all.key!r}, as"
                    f" the key {found[0][0]!r:.100} does, which is not of a table"
                )
            schema = self.declared
            work.put(self.layout.catalog_key, schema.encoded())
        return schema

    # ---- rows

    def get(self, keys: Sequence[bytes]) -> Operation[dict[bytes, V]]:
        """The rows of these row keys."""
        catalog = [] if self._is_checked else [self.layout.catalog_key]
        found = yield Get([*catalog, *keys])
        if catalog:
            self._schema(found.get(self.layout.catalog_key))
        return {key: self.value(key, found[key]) for key in keys if key in found}

    def check(self) -> Operation[None]:
        """Raises TableMismatch for a table that was created otherwise."""
        if not self._is_checked:
            found = yield Get([self.layout.catalog_key])
            self._schema(found.get(self.layout.catalog_key))

    def write(self, work: Workspace, changes: Mapping[K, V | None]) -> Operation[None]:
        """Write rows with their index entries; None deletes. Raises UniqueViolation, TableMismatch."""
        rows: dict[bytes, tuple[tuple[Item, ...], bytes | None]] = {}
        for key, value in changes.items():
            rows[self.row_key(key)] = self.items(key), None if value is None else self._stored(key, value)
        if not rows:
            return
        schema, found, was_read = self._schemas.get(work), {}, False
        if schema is None:
            was_read = self._has_indexes
            found = yield Get([self.layout.catalog_key, *(rows if was_read else ())])
            schema = yield from self._created(work, found.get(self.layout.catalog_key))
            self._schemas[work] = schema
        if kept := schema.kept:
            if not was_read:
                found = yield Get(list(rows))
            yield from self._index(work, kept, rows, found)
        for row_key, (_, data) in rows.items():
            _put(work, row_key, data)

    def _index(
        self,
        work: Workspace,
        indexes: Sequence[Index],
        rows: Mapping[bytes, tuple[tuple[Item, ...], bytes | None]],
        before: Mapping[bytes, bytes],
    ) -> Operation[None]:
        """Change the entries of rows that change from what they were `before`."""
        removed: dict[bytes, set[bytes]] = {}
        added: dict[bytes, tuple[Index, tuple[Item, ...], bytes]] = {}
        doubtful: set[bytes] = set()
        for row_key, (key, data) in rows.items():
            old = self._entries(indexes, key, before.get(row_key))
            new = self._entries(indexes, key, data)
            for index in indexes:
                was, becomes = old.get(index.name), new.get(index.name)
                if was == becomes:
                    continue
                if was is not None:
                    removed.setdefault(was.key, set()).add(was.value)
                    if was.is_exclusive and index.state is IndexState.BUILDING:
                        doubtful.add(was.key)
                if becomes is not None:
                    if becomes.key in added:
                        raise self._violation(index, becomes, added[becomes.key][2])
                    added[becomes.key] = index, key, becomes.value
                    if becomes.is_exclusive:
                        doubtful.add(becomes.key)
        held: Mapping[bytes, bytes] = (yield Get(sorted(doubtful))) if doubtful else {}
        for entry_key, owners in removed.items():
            # While a unique index is built, another row may have the entry of one that has not been indexed yet.
            if entry_key not in added and (entry_key not in held or held[entry_key] in owners):
                work.delete(entry_key)
        for entry_key, (index, _, owner) in added.items():
            if entry_key in held and held[entry_key] not in {owner, *removed.get(entry_key, ())}:
                raise self._violation(index, Entry(entry_key, owner), held[entry_key])
            work.put(entry_key, owner)

    def _entries(self, indexes: Sequence[Index], key: tuple[Item, ...], data: bytes | None) -> dict[str, Entry]:
        if data is None:
            return {}
        row = parse(self.declared.format, data)
        return {index.name: self.layout.entry(index, key, row) for index in indexes}

    def _violation(self, index: Index, entry: Entry, holder: bytes) -> UniqueViolation:
        fields = self.layout.entries(index.name).unpack(entry.key)
        key = self.layout.key_of_entry(index, entry)
        other = self.layout.key_of_entry(index, Entry(entry.key, holder))
        return UniqueViolation(self.layout.name, index.name, fields, key, other)

    # ---- queries

    def page(
        self, name: str, bounds: Bounds, reverse: bool, limit: int
    ) -> Operation[tuple[list[tuple[K, V]], Bounds | None]]:
        """The rows of up to `limit` entries of an index, and what is left of the bounds.

        Raises KeyError, IndexUnavailable, TableMismatch.
        """
        catalog_key = self.layout.catalog_key
        catalog, entries = yield Scan([(catalog_key, catalog_key + b"\0"), bounds], limit, reverse)
        index = self._readable(name, catalog[0][1] if catalog else None)
        keys = [self.layout.key_of_entry(index, Entry(*entry)) for entry in entries]
        row_keys = [self.layout.rows.pack(key) for key in keys]
        found = (yield Get(row_keys)) if row_keys else {}
        if missing := [entry for entry, row_key in zip(entries, row_keys, strict=True) if row_key not in found]:
            raise self._dangling(name, missing[0][0])
        rows = [self.row(row_key, found[row_key]) for row_key in row_keys]
        if len(entries) < limit:
            return rows, None
        last = entries[-1][0]
        return rows, Bounds(bounds.start, last) if reverse else Bounds(last + b"\0", bounds.end)

    def find(self, name: str, fields: tuple[Any, ...]) -> Operation[tuple[K, V] | None]:
        """The row with these values of the fields of a unique index. Raises as `page`, and ValueError."""
        entry_key = self.layout.entries(name).pack(fields)
        found = yield Get([self.layout.catalog_key, entry_key])
        index = self._readable(name, found.get(self.layout.catalog_key))
        if not index.unique or None in fields or len(fields) != len(index.fields):
            raise ValueError(
                f"get takes a value for each field of a unique index, and none that is None: the index {name!r} of the"
                f" table {self.layout.name!r} may have several rows for {fields!r:.100}; use scan(prefix=...)"
            )
        if entry_key not in found:
            return None
        row_key = self.layout.rows.pack(self.layout.key_of_entry(index, Entry(entry_key, found[entry_key])))
        rows = yield Get([row_key])
        if row_key not in rows:
            raise self._dangling(name, entry_key)
        return self.row(row_key, rows[row_key])

    def _readable(self, name: str, catalog: bytes | None) -> Index:
        schema = self._schema(catalog)
        index = schema.indexes.get(name) if schema else None
        if index is None or index.state is IndexState.DROPPING:
            raise self._no_index(name)
        if index.state is IndexState.BUILDING:
            raise IndexUnavailable(self.layout.name, name)
        return index

    def _no_index(self, name: str) -> KeyError:
        return KeyError(f"the table {self.layout.name!r} has no index {name!r}")

    def _dangling(self, name: str, entry_key: bytes) -> Corruption:
        return Corruption(
            f"the index {name!r} of the table {self.layout.name!r}",
            None,
            f"its entry {entry_key!r:.200} has no row; drop the index and create it again",
        )

    # ---- indexes

    def index(self, name: str, fields: tuple[str, ...], unique: bool) -> Index:
        """An index as it is declared. Raises TypeError, ValueError."""
        check_name("an index", name)
        if not fields:
            raise ValueError("an index has at least one field")
        for path in fields:
            check_name("a field", path)
        conversions = tuple(map(self.codec.conversion, fields))
        return Index(name, fields, unique, IndexState.BUILDING, conversions)

    def indexes(self) -> Operation[dict[str, Index]]:
        """The indexes of the table by name."""
        found = yield Get([self.layout.catalog_key])
        schema = self._schema(found.get(self.layout.catalog_key))
        return dict(schema.indexes) if schema else {}

    def begin_index(self, work: Workspace, index: Index) -> Operation[IndexState]:
        """Let all later writers keep an index. Returns the state of the index, new or not. Raises TableMismatch."""
        found = yield Get([self.layout.catalog_key])
        schema = yield from self._created(work, found.get(self.layout.catalog_key))
        existing = schema.indexes.get(index.name)
        if existing is None:
            work.put(self.layout.catalog_key, schema.with_index(index).encoded())
            return IndexState.BUILDING
        if existing.state is not IndexState.DROPPING and not existing.is_like(index):
            raise TableMismatch(
                f"the table {self.layout.name!r} has an index {index.name!r} of other fields or another kind:"
                f" {existing}; drop it, or choose another name"
            )
        return existing.state

    def build_step(self, work: Workspace, name: str, step: Step) -> Operation[IndexState]:
        """Write the entries of the next rows. Returns the state of the index now: DROPPING also if another program has
        dropped it. Raises UniqueViolation.
        """
        limit = step.begun()
        catalog_key, progress_key = self.layout.catalog_key, self.layout.progress_key(name)
        found = yield Get([catalog_key, progress_key])
        schema = self._schema(found.get(catalog_key))
        index = schema.indexes.get(name) if schema else None
        if schema is None or index is None:
            return IndexState.DROPPING
        if index.state is not IndexState.BUILDING:
            return index.state
        first, last = self.layout.rows.range()
        (rows,) = yield Scan([(found.get(progress_key, first), last)], limit)
        added: dict[bytes, bytes] = {}
        for row_key, data in rows:
            entry = self.layout.entry(index, self.layout.rows.unpack(row_key), parse(schema.format, data))
            if entry.key in added:
                raise self._violation(index, entry, added[entry.key])
            added[entry.key] = entry.value
        if exclusive := [key for key, owner in added.items() if owner]:
            held = yield Get(exclusive)
            for key, holder in held.items():
                if holder != added[key]:
                    raise self._violation(index, Entry(key, added[key]), holder)
        for key, owner in added.items():
            work.put(key, owner)
        step.done(sum(len(data) for _, data in rows))
        if len(rows) < limit:
            work.put(catalog_key, schema.with_index(index._replace(state=IndexState.READABLE)).encoded())
            work.delete(progress_key)
            return IndexState.READABLE
        work.put(progress_key, rows[-1][0] + b"\0")
        return IndexState.BUILDING

    def begin_drop(self, work: Workspace, name: str) -> Operation[None]:
        """Let all later writers ignore an index. Raises KeyError."""
        found = yield Get([self.layout.catalog_key])
        schema = self._schema(found.get(self.layout.catalog_key))
        if schema is None or name not in schema.indexes:
            raise self._no_index(name)
        index = schema.indexes[name]._replace(state=IndexState.DROPPING)
        work.put(self.layout.catalog_key, schema.with_index(index).encoded())

    def drop_step(self, work: Workspace, name: str) -> Operation[bool]:
        """Delete some entries of an index that is being dropped. Returns whether the index is gone."""
        found = yield Get([self.layout.catalog_key])
        schema = self._schema(found.get(self.layout.catalog_key))
        if schema is None or name not in schema.indexes or schema.indexes[name].state is not IndexState.DROPPING:
            return True
        (entries,) = yield Scan([self.layout.entries(name).range()], LONGEST_STEP)
        for key, _ in entries:
            work.delete(key)
        if len(entries) < LONGEST_STEP:
            work.delete(self.layout.progress_key(name))
            work.put(self.layout.catalog_key, schema.without_index(name).encoded())
            return True
        return False


class Step:
    """The length of the next step of building an index, in rows: shorter after a conflict and after large rows."""

    def __init__(self, limit: int = FIRST_STEP) -> None:
        self._limit = limit
        self._is_under_way = False
        self._size = 0

    def begun(self) -> int:
        """A step begins, perhaps because a conflict has undone the last one. Returns its length."""
        if self._is_under_way:
            self._limit = max(1, self._limit // 2)
        self._is_under_way = True
        return self._limit

    def done(self, size_bytes: int) -> None:
        """The step has read so many bytes of rows, and will commit."""
        self._size = size_bytes

    def committed(self) -> None:
        """The step has committed."""
        self._is_under_way = False
        if self._size > STEP_BYTES:
            self._limit = max(1, self._limit // 2)
        else:
            self._limit = min(2 * self._limit, LONGEST_STEP)


def _values(fields: Any) -> tuple[Any, ...]:
    """The values of the first fields of an index: a tuple, or the one value."""
    return fields if isinstance(fields, tuple) else (fields,)


def _put(work: Workspace, key: bytes, value: bytes | None) -> None:
    if value is None:
        work.delete(key)
    else:
        work.put(key, value)


def checked_row(row: T) -> T:
    """A row to write. Raises TypeError for None, which deletes."""
    if row is None:
        raise TypeError("a row must not be None; use delete() to remove it")
    return row
