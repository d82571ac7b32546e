"""Checks that every index has the entries of the rows, and no others, at one version.

It needs nothing of the application: what an index holds follows from the stored rows and the catalog alone. Both ways
are read in pages: each row's entry must exist, and each entry must be that of its row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from logdb.keys import Item
from logdb.tables.codecs import parse
from logdb.tables.operations import Bounds, Get, Operation, Scan
from logdb.tables.schema import CATALOG, Entry, Index, IndexState, Layout, Schema

PAGE = 256


class IndexDamage(NamedTuple):
    """A difference between an index and the rows of its table.

    `table_name`, `index_name`: where. `key`: of the row. `what`: "the entry is missing", or what is wrong with one that
    is there.
    """

    table_name: str
    index_name: str
    key: tuple[Any, ...]
    what: str


class IndexesVerified(NamedTuple):
    """The result of a verification: the number of `tables`, of `indexes` and of their `entries` that were checked, and
    the `damage` found."""

    tables: int
    indexes: int
    entries: int
    damage: list[IndexDamage]


def verify_tables(only: str | None = None) -> Operation[IndexesVerified]:
    """Check the indexes of all tables, or of the table called `only`."""
    if only is None:
        start, end = CATALOG.range()
    else:
        start = CATALOG.pack((only,))
        end = start + b"\0"
    tables = indexes = entries = 0
    damage: list[IndexDamage] = []
    bounds: Bounds | None = Bounds(start, end)
    while bounds:
        (page,) = yield Scan([bounds], PAGE)
        for key, data in page:
            (name,) = CATALOG.unpack(key)
            assert isinstance(name, str), f"{key!r} is not a key of the catalog"
            schema = Schema.decoded(name, data)
            tables += 1
            for index in schema.kept:
                indexes += 1
                entries += yield from _verify(Layout(name), schema, index, damage)
        bounds = _rest(bounds, page)
    return IndexesVerified(tables, indexes, entries, damage)


def _verify(layout: Layout, schema: Schema, index: Index, damage: list[IndexDamage]) -> Operation[int]:
    """Check one index. Returns the number of its entries."""

    def report(key: tuple[Item, ...], what: str) -> None:
        damage.append(IndexDamage(layout.name, index.name, key, what))

    first, last = layout.rows.range()
    if index.state is IndexState.BUILDING:
        progress = yield Get([layout.progress_key(index.name)])
        last = progress.get(layout.progress_key(index.name), first)
    rows: Bounds | None = Bounds(first, last)
    while rows:
        (page,) = yield Scan([rows], PAGE)
        expected = {}
        for row_key, data in page:
            key = layout.rows.unpack(row_key)
            try:
                expected[key] = layout.entry(index, key, parse(schema.format, data))
            except (TypeError, ValueError) as error:
                report(key, f"the row cannot be read: {error}")
        found = (yield Get([entry.key for entry in expected.values()])) if expected else {}
        for key, entry in expected.items():
            if entry.key not in found:
                report(key, "the entry is missing")
        rows = _rest(rows, page)
    count = 0
    entries: Bounds | None = Bounds(*layout.entries(index.name).range())
    while entries:
        (page,) = yield Scan([entries], PAGE)
        count += len(page)
        owners = {}
        for entry in map(Entry._make, page):
            try:
                owners[entry] = layout.key_of_entry(index, entry)
            except ValueError as error:
                report((), f"the entry {entry.key!r} cannot be read: {error}")
        row_keys = {key: layout.rows.pack(key) for key in owners.values()}
        found = (yield Get(list(row_keys.values()))) if row_keys else {}
        for entry, key in owners.items():
            if (row := found.get(row_keys[key])) is None:
                report(key, f"the entry {entry.key!r} has no row")
            elif not _is_entry_of(layout, index, key, schema.format, row, entry):
                report(key, f"the entry {entry.key!r} is not of this row")
        entries = _rest(entries, page)
    return count


def _is_entry_of(layout: Layout, index: Index, key: tuple[Item, ...], format: str, data: bytes, entry: Entry) -> bool:
    try:
        return layout.entry(index, key, parse(format, data)) == entry
    except (TypeError, ValueError):
        return True  # the row is reported


def _rest(bounds: Bounds, page: list[tuple[bytes, bytes]]) -> Bounds | None:
    """The rest of the bounds after a page of rows."""
    return Bounds(page[-1][0] + b"\0", bounds.end) if len(page) == PAGE else None
