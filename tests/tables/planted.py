"""Bugs in the operations of tables, which the model must catch: a method's source with one place changed."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable

import pytest

from logdb.tables import operations, schema, verification
from logdb.tables.operations import Definition
from logdb.tables.schema import Layout, Schema

Plant = Callable[[pytest.MonkeyPatch], None]


def mutated(owner: type, method: str, right: str, wrong: str) -> Plant:
    """The plant that replaces one place in the source of a method."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        found = inspect.getattr_static(owner, method)
        is_property = isinstance(found, property)
        source = textwrap.dedent(inspect.getsource(found.fget if is_property else found))
        assert source.count(right) == 1, f"{right!r} is not in {method} once"
        module = inspect.getmodule(owner)
        assert module in (operations, schema, verification)
        names: dict[str, object] = {}
        exec(source.replace(right, wrong), vars(module), names)
        monkeypatch.setattr(owner, method, names[method])

    return plant


PLANTED: dict[str, Plant] = {
    "writers ignore an index that is being built": mutated(
        Schema, "kept", "is not IndexState.DROPPING", "is IndexState.READABLE"
    ),
    "writers keep an index that is being dropped": mutated(Schema, "kept", "is not IndexState.DROPPING", "is not None"),
    "a program remembers the indexes instead of reading them": mutated(
        Definition, "write", "self._schemas.get(work)", "self._decoded and self._decoded[1]"
    ),
    "a writer does not read the row that it replaces": mutated(
        Definition,
        "write",
        "found = yield Get(list(rows))",
        "found = dict(work.reader.multi_get(list(rows), work.snapshot)[1])",
    ),
    "old entries stay": mutated(Definition, "_index", "work.delete(entry_key)", "pass"),
    "an unindexed row takes the entry of another row with it": mutated(
        Definition, "_index", "if was.is_exclusive and index.state is IndexState.BUILDING:", "if False:"
    ),
    "of two rows that give up an entry the last one counts": mutated(
        Definition, "_index", "removed.setdefault(was.key, set()).add(was.value)", "removed[was.key] = {was.value}"
    ),
    "a unique value is not looked up": mutated(Definition, "_index", "if becomes.is_exclusive:", "if False:"),
    "a unique value that a row gives up is taken from any row": mutated(
        Definition, "_index", "if entry_key in held and", "if entry_key in held and entry_key not in removed and"
    ),
    "two rows of one write have one unique value": mutated(
        Definition, "_index", "if becomes.key in added:", "if False:"
    ),
    "the builder reads rows that may change": mutated(
        Definition,
        "build_step",
        "(rows,) = yield Scan([(found.get(progress_key, first), last)], limit)",
        "rows = work.reader.multi_scan([(found.get(progress_key, first), last, limit)], work.snapshot)[0]",
    ),
    "the builder skips a row": mutated(
        Definition, "build_step", 'rows[-1][0] + b"\\0"', 'rows[-1][0][:-1] + bytes([rows[-1][0][-1] + 1]) + b"\\0"'
    ),
    "the builder ends a step too early": mutated(
        Definition, "build_step", "if len(rows) < limit:", "if len(rows) <= limit:"
    ),
    "the builder takes the entry of another row": mutated(
        Definition, "build_step", "if holder != added[key]:", "if False:"
    ),
    "a row of the builder's page takes the entry of another": mutated(
        Definition, "build_step", "if entry.key in added:", "if False:"
    ),
    "the builder leaves its progress behind": mutated(
        Definition, "build_step", "work.delete(progress_key)", "work.put(progress_key, last)"
    ),
    "the builder goes on with an index that is being dropped": mutated(
        Definition, "build_step", "index.state is not IndexState.BUILDING", "index.state is IndexState.READABLE"
    ),
    "a drop deletes the entries of an index that was created again": mutated(
        Definition, "drop_step", "or schema.indexes[name].state is not IndexState.DROPPING", ""
    ),
    "a drop ends before the entries are gone": mutated(
        Definition, "drop_step", "for key, _ in entries:", "for key, _ in entries[1:]:"
    ),
    "rows of different keys share a unique entry without a value": mutated(
        Layout, "entry", "if index.unique and None not in fields:", "if index.unique:"
    ),
}
