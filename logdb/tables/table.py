"""Tables, the synchronous face: rows with typed keys and values over a database, and their indexes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, Protocol, TypeVar, overload

from logdb.errors import UniqueViolation
from logdb.tables.operations import PAGE, Bounds, Definition, Operation, Readable, Step, checked_row, perform
from logdb.tables.schema import Index, IndexState
from logdb.tables.verification import IndexesVerified, verify_tables
from logdb.txn.retry import RunOptions, attempt
from logdb.txn.transaction import Transaction

D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Reader(Readable, Protocol):
    """A database, a snapshot or a transaction."""

    def scan(
        self,
        start: bytes | None = None,
        end: bytes | None = None,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]: ...


class Base(Reader, Protocol):
    """A database."""

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> Reader: ...
    def transaction(
        self, *, read_only: bool = False, label: str = "", guard_writes: bool = False
    ) -> AbstractContextManager[Transaction]: ...


class IndexView(Generic[K, V]):
    """An index of a table, by which rows are found: `TableView.index` makes one."""

    def __init__(
        self, definition: Definition[K, V], name: str, snapshot: Callable[[], AbstractContextManager[Readable]]
    ) -> None:
        self._definition, self._name, self._snapshot = definition, name, snapshot

    def scan(
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[K, V]]:
        """(key, row) in the order of the index: by the fields, then by the key.

        `start`, `end`: values of the fields, inclusive and exclusive: one value, or a tuple of the first ones.
        `prefix`: instead of these, the values that the first fields have. `reverse`: from the last to the first.
        `limit`: maximum number of rows. All rows are of one snapshot, and are read in pages of 128. In a transaction,
        own writes are included, also those of pages to come that are made during the scan: a row that is moved behind
        them returns again. To change a field of the index, make a list of the rows first.

        Raises KeyError if there is no such index, IndexUnavailable while it is built, TableMismatch, TypeError,
        ValueError, and as `Database.scan`.
        """
        bounds = self._definition.index_bounds(self._name, start, end, prefix, limit)
        return self._rows(bounds, reverse, limit)

    def _rows(self, bounds: Bounds | None, reverse: bool, limit: int | None) -> Iterator[tuple[K, V]]:
        with self._snapshot() as reader:
            while bounds and limit != 0:
                page = PAGE if limit is None else min(limit, PAGE)
                rows, bounds = perform(self._definition.page(self._name, bounds, reverse, page), reader)
                limit = None if limit is None else limit - len(rows)
                yield from rows

    def get(self, *fields: Any) -> tuple[K, V] | None:
        """(key, row) of the row that has these values of all `fields` of a unique index; None if there is none.

        Raises as `scan`, and ValueError for an index that is not unique and for None, which several rows may have.
        """
        with self._snapshot() as reader:
            return perform(self._definition.find(self._name, fields), reader)


class TableView(Generic[K, V]):
    """The rows of a table at one version, to be read: `Table.at` makes one."""

    def __init__(self, definition: Definition[K, V], reader: Reader) -> None:
        self._definition, self._reader = definition, reader

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The row with this `key`, or `default` where there is none.

        Raises TypeError for a key of another type, ValueError for stored bytes that the codec cannot decode,
        TableMismatch, and as `Database.get`.
        """
        row_key = self._definition.row_key(key)
        return perform(self._definition.get([row_key]), self._reader).get(row_key, default)

    def __getitem__(self, key: K) -> V:
        row_key = self._definition.row_key(key)
        found = perform(self._definition.get([row_key]), self._reader)
        if row_key not in found:
            raise KeyError(key)
        return found[row_key]

    def __contains__(self, key: K) -> bool:
        row_key = self._definition.row_key(key)
        return row_key in perform(self._definition.get([row_key]), self._reader)

    def multi_get(self, keys: Iterable[K]) -> dict[K, V]:
        """The rows of those of `keys` that exist, all of one snapshot. Raises as `get`."""
        row_keys = {self._definition.row_key(key): key for key in keys}
        found = perform(self._definition.get(list(row_keys)), self._reader)
        return {row_keys[row_key]: row for row_key, row in found.items()}

    def scan(
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: tuple[Any, ...] | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[tuple[K, V]]:
        """(key, row) of the rows in [`start`, `end`), in key order.

        `start`, `end`: keys, or the first items of keys that are tuples; None is the first row, or the end. `prefix`:
        instead of these, the first items of the keys. `reverse`: from the last row to the first. `limit`: maximum
        number of rows.

        Raises as `get`, and as `Database.scan`.
        """
        bounds = self._definition.bounds(start, end, prefix)
        perform(self._definition.check(), self._reader)
        rows = self._reader.scan(*bounds, reverse=reverse, limit=limit)
        return (self._definition.row(*row) for row in rows)

    def index(self, name: str) -> IndexView[K, V]:
        """The index called `name`, by which rows are found. Its methods raise KeyError if there is none."""
        return IndexView(self._definition, name, lambda: nullcontext(self._reader))


class TableTransaction(TableView[K, V]):
    """The rows of a table in a transaction, to be read and written: `Table.within` makes one."""

    def __init__(self, definition: Definition[K, V], txn: Transaction) -> None:
        super().__init__(definition, txn)
        self._txn = txn

    def put(self, key: K, row: V) -> None:
        """Write `row` under `key`, with its index entries, when the transaction commits.

        Raises UniqueViolation if another row has the same values of the fields of a unique index; TableMismatch;
        TypeError and ValueError for what the key, the codec or an index cannot hold; and as `Transaction.put` and
        `Transaction.get`.
        """
        self.multi_put({key: checked_row(row)})

    def delete(self, key: K) -> None:
        """Delete the row with this `key`, which need not exist, and its index entries. Raises as `put`."""
        self.multi_put({key: None})

    def multi_put(self, rows: Mapping[K, V | None]) -> None:
        """Write all of `rows`, by key; None deletes. Their reads are issued together. Raises as `put`."""
        perform(self._definition.write(self._txn, rows), self._txn)

    def __setitem__(self, key: K, row: V) -> None:
        self.put(key, row)

    def __delitem__(self, key: K) -> None:
        self.delete(key)


class Table(TableView[K, V]):
    """Rows with typed keys and values, and their indexes: `Database.table` makes one.

    Each write is a transaction of its own, which runs again after a conflict; `within` takes part in one of yours.
    """

    _reader: Base

    def __init__(self, definition: Definition[K, V], db: Base) -> None:
        super().__init__(definition, db)
        self._reader = db

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._definition.layout.name

    def within(self, txn: Transaction) -> TableTransaction[K, V]:
        """The rows in the transaction `txn`, to be read and written. A transaction that writes rows reads their old
        values and the table's indexes.
        """
        return TableTransaction(self._definition, txn)

    def at(self, version: int | None = None, *, time: dt.datetime | float | None = None) -> TableView[K, V]:
        """The rows as they were at a `version` or a `time`, with the indexes of then. As `Database.at`."""
        return TableView(self._definition, self._reader.at(version, time=time))

    def index(self, name: str) -> IndexView[K, V]:
        """The index called `name`, by which rows are found. Its methods raise KeyError if there is none."""
        return IndexView(self._definition, name, lambda: self._reader.transaction(read_only=True))

    # ---- writing

    def put(self, key: K, row: V) -> int:
        """Write `row` under `key`, with its index entries. Returns the version, once it is durable.

        Raises as `TableTransaction.put` and as `Database.run`.
        """
        return self.multi_put({key: checked_row(row)})

    def delete(self, key: K) -> int:
        """Delete the row with this `key`, which need not exist. Returns the version. Raises as `put`."""
        return self.multi_put({key: None})

    def multi_put(self, rows: Mapping[K, V | None]) -> int:
        """Write all of `rows`, by key, or nothing; None deletes. Returns the version. Raises as `put`."""
        return self._commit("write", lambda txn: self._definition.write(txn, rows))[1]

    def __setitem__(self, key: K, row: V) -> None:
        self.put(key, row)

    def __delitem__(self, key: K) -> None:
        self.delete(key)

    def _commit(self, what: str, operation: Callable[[Transaction], Operation[T]]) -> tuple[T, int]:
        """The result of an operation in a transaction of its own, and its version."""
        last: list[Transaction] = []

        def body(txn: Transaction) -> T:
            last[:] = [txn]
            return perform(operation(txn), txn)

        result = attempt(self._reader, RunOptions(f"{self.name}: {what}"), body)
        return result, last[0].version

    # ---- indexes

    def create_index(self, name: str, *fields: str, unique: bool = False) -> None:
        """Create an index called `name` of one or several `fields`, and return when queries can use it.

        A field is a key of the row's dictionary, or a field of its dataclass; "address.city" is a field of a field. A
        row that lacks a field counts as having None there. `unique`: rows without None in these fields must differ in
        them.
        The index is built while others write; every write keeps it from the beginning. An index that exists is left as
        it is; one whose building was interrupted is continued, also when another program is building it.

        Raises UniqueViolation if two rows are equal in the fields of a unique index, which then is not created;
        TableMismatch if the name belongs to a different index; TypeError, ValueError; ConflictError if others write the
        same rows so often that the building makes no progress: call it again; and as `put`.
        """
        index = self._definition.index(name, fields, unique)
        while self._built(index) is not IndexState.READABLE:
            pass

    def _built(self, index: Index) -> IndexState:
        """Build an index, or continue to build it, and return its state; DROPPING if another program drops it."""
        state, _ = self._commit("create index", lambda txn: self._definition.begin_index(txn, index))
        if state is IndexState.DROPPING:
            self._finish_drop(index.name)
            return state
        step = Step()
        try:
            while state is IndexState.BUILDING:
                state, _ = self._commit("build index", lambda txn: self._definition.build_step(txn, index.name, step))
                step.committed()
        except (UniqueViolation, TypeError, ValueError):
            with suppress(KeyError):
                self.drop_index(index.name)
            raise
        return state

    def drop_index(self, name: str) -> None:
        """Drop the index called `name`, and return when its entries are deleted.

        Raises KeyError if there is none, and as `put`.
        """
        self._commit("drop index", lambda txn: self._definition.begin_drop(txn, name))
        self._finish_drop(name)

    def _finish_drop(self, name: str) -> None:
        while not self._commit("drop index", lambda txn: self._definition.drop_step(txn, name))[0]:
            pass

    @property
    def indexes(self) -> dict[str, Index]:
        """The indexes of the table by name."""
        return perform(self._definition.indexes(), self._reader)

    def verify(self) -> IndexesVerified:
        """Check at one version that every index has the entries of the rows, and no others. Raises as `scan`."""
        with self._reader.transaction(read_only=True) as txn:
            return perform(verify_tables(self.name), txn)
