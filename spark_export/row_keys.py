"""The tables and indexes of `logdb.tables` as tables of Spark: the keys of their rows as typed columns.

A filter that compares the first parts of a key with constants narrows the range of keys that tasks decode. Spark
applies it once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from logdb import Database
from logdb.api.database import Snapshot
from logdb.errors import shown
from logdb.keys import pack, unpack
from logdb.tables.schema import CATALOG, ENTRIES, ROWS, Index, IndexState, Schema
from spark_export.decoding import EVERYTHING, KeyRange
from spark_export.documents import JsonValues
from spark_export.formats import IndexEntries, MsgpackValues, ValueFormat

_COLUMNS: Final = {
    "bytes": pa.binary(),
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "datetime": pa.timestamp("us", tz="UTC"),
    "UUID": pa.string(),
}
_COMPARED: Final[dict[str, type]] = {"bytes": bytes, "str": str, "int": int, "bool": bool}
"""The types whose order in a key is that of Spark."""
_AFTER: Final = b"\xff"
"""After a packed key, and before its successors: no item of a key begins with it."""


class Rows(NamedTuple):
    """The rows of a `table`, or the entries of its index. `names`: of the key's columns, if given."""

    table: str
    index_name: str | None = None
    names: tuple[str, ...] = ()

    @property
    def prefix(self) -> tuple[Any, ...]:
        """The first items of all their keys."""
        return (self.table, ROWS) if self.index_name is None else (self.table, ENTRIES, self.index_name)

    def range(self) -> KeyRange:
        """The range of their keys."""
        low = pack(self.prefix)
        return EVERYTHING.within(low, low + _AFTER)

    def described(self, view: Snapshot | Database) -> RowKeys:
        """Look up the table in the catalog. Raises ValueError for a table or an index that does not exist."""
        stored = view.get(CATALOG.pack((self.table,)))
        if stored is None:
            raise ValueError(f"there is no table {self.table!r} at this version")
        schema = Schema.decoded(self.table, stored)
        index = schema.indexes.get(self.index_name or "")
        if self.index_name is not None and (index is None or index.state is not IndexState.READABLE):
            names = [one.name for one in schema.indexes.values() if one.state is IndexState.READABLE]
            raise ValueError(f"the table {self.table!r} has no index {self.index_name!r} to read (it has {names})")
        parts = range(1, len(schema.key) + 1)
        columns = self.names or (("key",) if len(schema.key) == 1 else tuple(f"key_{number}" for number in parts))
        if len(columns) != len(schema.key):
            raise ValueError(f"keyColumns must name {len(schema.key)} columns, for {', '.join(schema.key)}")
        return RowKeys(self, columns, schema.key, schema.format, index)


class RowKeys(NamedTuple):
    """The columns of the keys: `names` and `kinds`, as the catalog calls them; and the `format` of the values."""

    rows: Rows
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    format: str
    of_index: Index | None

    @property
    def arrow(self) -> dict[str, pa.DataType]:
        """The types of the columns."""
        return {name: _COLUMNS[kind] for name, kind in zip(self.names, self.kinds, strict=True)}

    @property
    def values(self) -> ValueFormat:
        """The format of the other columns: the fields of values, or of the keys of an index."""
        if self.of_index is not None:
            return IndexEntries(len(self.rows.prefix), self.of_index.fields)
        return MsgpackValues() if self.format == "msgpack" else JsonValues()

    def columns(self, keys: pa.Array, values: pa.Array) -> dict[str, pa.Array]:
        """The columns of some rows. Raises ValueError, which names the key."""
        found = list(map(self._key, keys.to_pylist(), values.to_pylist()))
        columns = {}
        for at, (name, kind) in enumerate(self.arrow.items()):
            items = [row and row[at] for row in found]
            if self.kinds[at] == "UUID":
                items = [item if item is None else str(item) for item in items]
            try:
                columns[name] = pa.array(items, kind)
            except (pa.ArrowInvalid, OverflowError) as error:
                raise ValueError(
                    f"a key of the table {self.rows.table!r} does not fit {name} {kind}: {error}"
                ) from None
        return columns

    def _key(self, key: bytes, value: bytes | None) -> tuple[Any, ...] | None:
        """The key of a row; None for that of a deleted entry of a unique index."""
        items = unpack(key)[len(self.rows.prefix) :]
        if self.of_index is not None:
            items = items[len(self.of_index.fields) :]
            if not items:  # an entry of a unique index
                items = unpack(value) if value is not None else ()
                if not items:
                    return None
        if len(items) != len(self.kinds):
            raise ValueError(f"the key {shown(key)} is not one of the table {self.rows.table!r}")
        return items

    # ---- filters

    def range(self, filters: Sequence[Filter]) -> KeyRange:
        """The range of keys that the filters leave."""
        if self.of_index is not None:
            return EVERYTHING
        prefix = self.rows.prefix
        for name, kind in zip(self.names, self.kinds, strict=True):
            some = list(_comparisons(filters, name, _COMPARED.get(kind)))
            equal = [one for one in some if isinstance(one, EqualTo)]
            if not equal:
                low = pack(prefix)
                keys = KeyRange(low, low + _AFTER)
                for one in some:
                    keys = keys.within(*_bounds(prefix, one))
                return keys
            prefix = (*prefix, equal[0].value)
        low = pack(prefix)
        return KeyRange(low, low + _AFTER)

    def split(self, filters: Iterable[Filter]) -> tuple[list[Filter], list[Filter]]:
        """The filters on the columns of the key, and the others."""
        filters = list(filters)
        of_key = [one for one in filters if getattr(one, "attribute", ("",))[0] in self.names]
        return of_key, [one for one in filters if one not in of_key]


_Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In


def _comparisons(filters: Iterable[Filter], name: str, kind: type | None) -> Iterator[_Comparison]:
    for one in filters:
        match one:
            case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual() | In():
                values = one.value if isinstance(one, In) else (one.value,)
                if one.attribute == (name,) and values and all(type(value) is kind for value in values):
                    yield one


def _bounds(prefix: tuple[Any, ...], one: _Comparison) -> tuple[bytes, bytes | None]:
    values = one.value if isinstance(one, In) else (one.value,)
    low, high = pack((*prefix, min(values))), pack((*prefix, max(values)))
    match one:
        case GreaterThan():
            return low + _AFTER, None
        case GreaterThanOrEqual():
            return low, None
        case LessThan():
            return b"", high
        case LessThanOrEqual():
            return b"", high + _AFTER
    return low, high + _AFTER
