"""The catalog: for each table the types of its key, the format of its rows, its indexes and their states.

The keys of the table `t`, as tuples of `logdb.keys`:

    (None, "logdb.tables", t)              the schema, as JSON
    (t, 0, *key)                           a row
    (t, 1, index, *fields, *key)           an index entry; its value is empty
    (t, 1, index, *fields)                 an entry of a unique index whose fields have no None; its value is the packed
                                           key of the row
    (t, 2, index)                          how far the building of an index has come: the row key to continue with

Every transaction that writes rows reads the schema, so a change of the schema conflicts with every writer that has not
seen it.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple
from uuid import UUID

from logdb.errors import TableMismatch, UnsupportedFormat
from logdb.keys import Item, Subspace, pack, unpack
from logdb.tables.codecs import CONVERSIONS

CATALOG: Final = Subspace(None, "logdb.tables")
ROWS, ENTRIES, PROGRESS = 0, 1, 2
VERSION: Final = 1

KEY_TYPES: Final[dict[str, type]] = {
    "bytes": bytes,
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "datetime": dt.datetime,
    "UUID": UUID,
}


class IndexState(Enum):
    """How far an index is.

    `BUILDING`: writers keep it, queries are refused; rows from before may lack their entries. `READABLE`: it has
    exactly the entries of all rows. `DROPPING`: it is ignored, and its entries are being deleted.
    """

    BUILDING = "building"
    READABLE = "readable"
    DROPPING = "dropping"


class Index(NamedTuple):
    """An index of a table: its `name`, the paths of its `fields`, whether it is `unique`, and its `state`.

    `conversions`: for each field how it is read from the stored row; "" as it is.
    """

    name: str
    fields: tuple[str, ...]
    unique: bool
    state: IndexState
    conversions: tuple[str, ...]

    def is_like(self, other: Index) -> bool:
        """Whether this index and the `other` have the same entries."""
        return self._replace(state=other.state) == other


class Entry(NamedTuple):
    """An index entry: its `key` and `value` in the database."""

    key: bytes
    value: bytes

    @property
    def is_exclusive(self) -> bool:
        """Whether one row at most may have this key."""
        return bool(self.value)


class Schema(NamedTuple):
    """The stored definition of a table. `key`: the names of the key's types, in `KEY_TYPES`. `has_tuple_key`: whether
    a key is a tuple of these, even of one. `format`: of the rows."""

    key: tuple[str, ...]
    has_tuple_key: bool
    format: str
    indexes: Mapping[str, Index] = {}

    @property
    def kept(self) -> list[Index]:
        """The indexes that writers keep."""
        return [index for index in self.indexes.values() if index.state is not IndexState.DROPPING]

    def with_index(self, index: Index) -> Schema:
        """This schema with an index, which replaces the one of its name."""
        return self._replace(indexes={**self.indexes, index.name: index})

    def without_index(self, name: str) -> Schema:
        """This schema without an index."""
        return self._replace(indexes={other: index for other, index in self.indexes.items() if other != name})

    def encoded(self) -> bytes:
        """The bytes in the catalog."""
        indexes = {
            index.name: {
                "fields": index.fields,
                "unique": index.unique,
                "state": index.state.value,
                "conversions": index.conversions,
            }
            for index in self.indexes.values()
        }
        stored = {"version": VERSION, "key": self.key, "tuple": self.has_tuple_key, "format": self.format}
        return json.dumps(stored | {"indexes": indexes}, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def decoded(cls, table: str, data: bytes) -> Schema:
        """The schema of its bytes in the catalog. Raises UnsupportedFormat."""
        stored = json.loads(data)
        if stored["version"] != VERSION:
            raise UnsupportedFormat(f"the table {table!r}", stored["version"], VERSION)
        indexes = {
            name: Index(name, tuple(one["fields"]), one["unique"], IndexState(one["state"]), tuple(one["conversions"]))
            for name, one in stored["indexes"].items()
        }
        return cls(tuple(stored["key"]), stored["tuple"], stored["format"], indexes)


class Layout:
    """Where the keys of the table `name` lie."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.catalog_key = CATALOG.pack((name,))
        self.all = Subspace(name)
        self.rows = Subspace(name, ROWS)

    def entries(self, index: str) -> Subspace:
        """The entries of an index."""
        return Subspace(self.name, ENTRIES, index)

    def progress_key(self, index: str) -> bytes:
        """Where the building of an index notes how far it has come."""
        return pack((self.name, PROGRESS, index))

    def entry(self, index: Index, key: tuple[Item, ...], row: Any) -> Entry:
        """The entry of the parsed `row` with this key. Raises TypeError, ValueError for a field that has no key."""
        fields = tuple(
            _indexed(row, path, conversion) for path, conversion in zip(index.fields, index.conversions, strict=True)
        )
        try:
            if index.unique and None not in fields:
                return Entry(self.entries(index.name).pack(fields), pack(key))
            return Entry(self.entries(index.name).pack(fields + key), b"")
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"the index {index.name!r} of the table {self.name!r} cannot hold {fields!r:.200} of the row"
                f" {key!r:.100}: {error}"
            ) from error

    def key_of_entry(self, index: Index, entry: Entry) -> tuple[Item, ...]:
        """The key of the row to which an entry belongs. Raises ValueError."""
        if entry.value:
            return unpack(entry.value)
        return self.entries(index.name).unpack(entry.key)[len(index.fields) :]


def _indexed(row: Any, path: str, conversion: str) -> Item:
    for part in path.split("."):
        row = row.get(part) if isinstance(row, dict) else None
    if row is None:
        return None
    item: Item = CONVERSIONS[conversion](row) if conversion else _tupled(row)
    return item


def _tupled(value: Any) -> Any:
    """Lists as tuples, which keys are made of."""
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


def key_types(key: Any) -> Iterator[str]:
    """The names of the types of a key. Raises TypeError, ValueError."""
    kinds = key if isinstance(key, tuple) else (key,)
    if not kinds:
        raise ValueError("the key of a table has at least one type")
    for kind in kinds:
        for name, known in KEY_TYPES.items():
            if kind is known:
                yield name
                break
        else:
            raise TypeError(f"the key of a table is of {', '.join(KEY_TYPES)}, or a tuple of these, not {kind!r:.100}")


def check_like(table: str, stored: Schema, declared: Schema) -> None:
    """Raises TableMismatch for a table that was created otherwise than it is opened."""
    if stored._replace(indexes={}) != declared:
        raise TableMismatch(
            f"the table {table!r} has the key {_shown(stored)} and rows of format {stored.format!r}; it was opened with"
            f" the key {_shown(declared)} and rows of format {declared.format!r}"
        )


def _shown(schema: Schema) -> str:
    return f"({', '.join(schema.key)},)" if schema.has_tuple_key else schema.key[0]
