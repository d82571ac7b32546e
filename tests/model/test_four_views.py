"""The log folded, a scan, the feed replayed and Spark say the same of every version, after whatever has happened.

Each is also held against the commits as they were acknowledged, lest all four forget the same thing. `test_model` does
far more of this without Spark; here histories are few, since a query of Spark takes a second.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import logdb
from logdb.embedded import EmbeddedBackend
from spark_export import export_snapshot
from tests.harness.opening import host_of
from tests.model.views import Rows, folded, replayed, scanned

Changes = Mapping[bytes, bytes | None]

KEYS = [b"a", b"b", b"b\x00", b"c", b"d", b"\xff", b"l" * 480, b"l" * 1000]
LARGE = [b"x" * 700, b"y" * 5_000, b"z" * 9_000]
keys = st.sampled_from(KEYS)
values = st.one_of(st.binary(max_size=4), st.sampled_from(LARGE))
changes = st.dictionaries(keys, st.one_of(st.none(), values), min_size=1, max_size=5)
bounds = st.one_of(st.none(), keys)
prefixes = st.sampled_from([b"", b"b", b"log/"])
percent = st.integers(0, 100)
steps = st.one_of(
    st.tuples(st.just("put"), keys, values),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("delete_range"), bounds, bounds, changes),
    st.tuples(st.just("multi_put"), changes),
    st.tuples(st.just("append"), st.lists(st.tuples(prefixes, values), min_size=1, max_size=4), changes),
    st.tuples(st.just("test_and_multi_put"), keys, st.booleans(), changes),
    st.tuples(st.just("transact"), keys, changes),
    st.tuples(st.just("lose"), keys, values, changes),
    st.tuples(st.just("give_up"), changes),
    st.tuples(st.sampled_from(["checkpoint", "unpin"])),
    st.tuples(st.sampled_from(["compact", "pin"]), percent),
    st.tuples(st.just("reopen"), st.sampled_from(["close", "rebuild", "crash"])),
)


class History:
    """A database in a directory, and the commits that it has acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.path, self.copy = folder / "db", folder / "copy"
        self.commits: dict[int, Changes] = {}
        self.db = self.open()

    def open(self) -> logdb.Database:
        options = {"segment_bytes": 6_000}
        return logdb.Database(EmbeddedBackend.open(self.path, read_only=False, create=True, log_options=options))

    def version_at(self, percent: int) -> int:
        """The readable version that is so far on from the floor to the newest."""
        floor = self.db.oldest_version
        return floor + (self.db.version - floor) * percent // 100

    def expected(self, version: int) -> Rows:
        state: dict[bytes, tuple[bytes | None, int]] = {}
        for written in sorted(self.commits):
            if written <= version:
                state.update({key: (value, written) for key, value in self.commits[written].items()})
        return [(key, value, written) for key, (value, written) in sorted(state.items()) if value is not None]

    # ---- what a step can be

    def put(self, key: bytes, value: bytes) -> None:
        self.commits[self.db.put(key, value)] = {key: value}

    def delete(self, key: bytes) -> None:
        self.commits[self.db.delete(key)] = {key: None}

    def delete_range(self, start: bytes | None, end: bytes | None, written: Changes) -> None:
        with self.db.transaction() as txn:
            txn.delete_range(start, end)
            txn.multi_put(written)
        known = {*KEYS, *(key for commit in self.commits.values() for key in commit)}
        gone = {key: None for key in known if (start or b"") <= key and (end is None or key < end)}
        assert txn.version is not None
        self.commits[txn.version] = {**gone, **written}

    def append(self, values: list[tuple[bytes, bytes]], written: Changes) -> None:
        with self.db.transaction() as txn:
            txn.multi_put(written)
            for prefix, value in values:
                txn.append(prefix, value)
        appended = zip(txn.appended, [value for _, value in values], strict=True)
        self.commits[txn.version] = {**written, **dict(appended)}

    def multi_put(self, written: Changes) -> None:
        self.commits[self.db.multi_put(written)] = written

    def test_and_multi_put(self, key: bytes, holds: bool, written: Changes) -> None:
        condition = logdb.exists(key) if (key in self.db) is holds else logdb.absent(key)
        tested = self.db.test_and_multi_put([condition], written)
        assert tested.committed is holds
        if holds:
            self.commits[tested.version] = written

    def transact(self, key: bytes, written: Changes) -> None:
        with self.db.transaction() as txn:
            txn.get(key)
            txn.multi_put(written)
        assert txn.version is not None
        self.commits[txn.version] = written

    def lose(self, key: bytes, value: bytes, written: Changes) -> None:
        """A transaction that aborts: another one writes what it has read."""
        with pytest.raises(logdb.ConflictError):
            with self.db.transaction() as txn:
                txn.get(key)
                txn.multi_put(written)
                self.put(key, value)

    def give_up(self, written: Changes) -> None:
        with pytest.raises(InterruptedError):
            with self.db.transaction() as txn:
                txn.multi_put(written)
                raise InterruptedError

    def checkpoint(self) -> None:
        self.db.checkpoint()

    def compact(self, percent: int) -> None:
        self.db.compact(self.version_at(percent))

    def pin(self, percent: int) -> None:
        if self.db.version:
            self.db.pin("pin", max(1, self.version_at(percent)))

    def unpin(self) -> None:
        for name in self.db.pins:
            self.db.unpin(name)

    def reopen(self, how: str) -> None:
        if how == "crash":  # what a kill leaves: the files as they are
            shutil.copytree(self.path, self.copy)
        self.db.close()
        if how == "crash":
            shutil.rmtree(self.path)
            self.copy.rename(self.path)
        if how == "rebuild":
            logdb.rebuild(self.path)
        self.db = self.open()


@settings(
    max_examples=8,
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # making a failure smaller would take many minutes
)
@given(
    history=st.lists(steps, min_size=30, max_size=60),
    percents=st.lists(st.integers(1, 99), min_size=2, max_size=2, unique=True),
)
def test_the_four_views_of_a_version_agree(spark: Any, history: list[tuple[Any, ...]], percents: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = History(Path(folder))
        try:
            for name, *arguments in history:
                getattr(made, name)(*arguments)
            versions = {made.version_at(percent) for percent in (0, *percents, 100)}
            for version in versions:
                check_views(spark, made, version)
            check_export(made, made.version_at(percents[0]), Path(folder) / "export")
        finally:
            made.db.close()


def check_views(spark: Any, made: History, version: int) -> None:
    db, expected = made.db, made.expected(version)
    assert folded(host_of(db).log, version, made.commits) == expected, version
    assert scanned(db, version) == expected, version
    assert replayed(db, db.oldest_version, version) == expected, version
    frame = spark.read.format("logdb").option("path", str(made.path)).option("versionAsOf", version).load()
    assert [(bytes(row.key), bytes(row.value), row.version) for row in frame.collect()] == expected, version


def check_export(made: History, version: int, to: Path) -> None:
    exported = export_snapshot(made.path, to, version=version)
    assert exported.version == version
    rows = [row for file in sorted(to.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert [(row["key"], row["value"], row["version"]) for row in rows] == made.expected(version), version
