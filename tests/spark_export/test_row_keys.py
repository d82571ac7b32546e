"""Tables and indexes of `logdb.tables` as tables of Spark."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

import logdb
from logdb import Database, keys
from logdb.tables import Json, Msgpack
from spark_export.row_keys import Rows
from spark_export.source import LogDBSource
from tests.spark_export import planning

AT = dt.datetime(2026, 5, 1, tzinfo=dt.UTC)
ID = UUID(int=7)


def filled(db: Database) -> int:
    users = db.table("users", key=int, value=Json())
    users.create_index("by_city", "city", "rank")
    users.create_index("by_email", "email", unique=True)
    for number, city in enumerate(["Rome", "London", "Rome"]):
        users.put(number - 1, {"city": city, "rank": number, "email": f"{number}@x", "key": "inner"})
    version = users.put(5, {"city": "Oslo"})
    users.put(5, {"city": "Bern"})
    visits = db.table("visits", key=(str, int, dt.datetime, UUID), value=Msgpack())
    visits.put(("a\0", 1, AT, ID), {"raw": b"\xff"})
    visits.put(("b", 2, AT, ID), {"raw": b"2"})
    db.put(b"stray", b"1")
    return version


def test_rows_have_the_columns_of_their_keys_and_fields(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        version = filled(db)
    path = str(tmp_path)
    rows = planning.read(path, table="users")
    assert list(rows[0]) == ["key", "city", "rank", "email", "_rescued_data", "version"]
    assert [(row["key"], row["city"], row["rank"]) for row in rows] == [
        (-1, "Rome", 0),
        (0, "London", 1),
        (1, "Rome", 2),
        (5, "Bern", None),
    ]
    assert json.loads(rows[0]["_rescued_data"]) == {"key": "inner"}
    old = planning.read(path, "id LONG, city STRING", table="users", keyColumns="id", versionAsOf=str(version))
    assert old[-1] == {"id": 5, "city": "Oslo"}
    (first, second) = planning.read(path, table="visits", keyColumns="page, user, at, session")
    assert (first["page"], first["user"], first["at"], first["session"], first["raw"]) == (
        "a\0",
        1,
        AT,
        str(ID),
        b"\xff",
    )
    assert list(second)[:4] == ["page", "user", "at", "session"]
    feed = planning.read(path, table="users", readChangeFeed="true", updateImages="true", startingVersion=str(version))
    assert [(row["key"], row["city"], row["_change_type"]) for row in feed] == [
        (5, "Oslo", "insert"),
        (5, "Oslo", "update_preimage"),
        (5, "Bern", "update_postimage"),
    ]


def test_entries_of_an_index_have_its_fields_and_the_key_of_the_row(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        filled(db)
    entries = planning.read(str(tmp_path), table="users", index="by_city", keyColumns="id")
    assert [(row["city"], row["rank"], row["id"]) for row in entries] == [
        ("Bern", None, 5),
        ("London", 1, 0),
        ("Rome", 0, -1),
        ("Rome", 2, 1),
    ]
    unique = planning.read(str(tmp_path), "key LONG, email STRING", table="users", index="by_email")
    assert unique == [{"key": 5, "email": None}, *({"key": n - 1, "email": f"{n}@x"} for n in range(3))]
    assert planning.read(str(tmp_path), "key LONG", table="users", index="by_email")[1:] == [
        {"key": n} for n in (-1, 0, 1)
    ]


def test_filters_on_keys_become_ranges_that_lose_no_row(tmp_path: Path) -> None:
    rng, texts = Random(4), ["", "a", "a\0", "a\0b", "ab", "\U0001f600", "\uffff"]
    with logdb.open(tmp_path) as db:
        table = db.table("t", key=(str, int), value=Json())
        rows = {(text, number): {} for text in texts for number in (-(2**40), -1, 0, 1, 255, 256, 2**40)}
        table.multi_put(rows)
        described = Rows("t").described(db)
    every = sorted(rows)
    by_operator = {
        EqualTo: lambda one, other: one == other,
        GreaterThan: lambda one, other: one > other,
        GreaterThanOrEqual: lambda one, other: one >= other,
        LessThan: lambda one, other: one < other,
        LessThanOrEqual: lambda one, other: one <= other,
    }
    narrowed = 0
    for _ in range(300):
        text, number = rng.choice(every)
        one, other = rng.choice([*by_operator]), rng.choice([*by_operator])
        filters = [one(("key_1",), text), other(("key_2",), number)][: rng.randrange(1, 3)]
        if rng.random() < 0.2:
            filters = [In(("key_1",), (text, rng.choice(texts)))]
        low, high = described.range(filters)
        inside = [
            row
            for row in every
            if low <= keys.pack(("t", 0, *row)) and (high is None or keys.pack(("t", 0, *row)) < high)
        ]
        for row in every:
            tests = [
                row[0] in each.value
                if isinstance(each, In)
                else by_operator[type(each)](row[each.attribute == ("key_2",)], each.value)
                for each in filters
            ]
            assert not all(tests) or row in inside, (filters, row)
        narrowed += len(inside) < len(every)
    assert narrowed > 200
    pushed = [EqualTo(("key_1",), "a\0"), GreaterThan(("key_2",), 255)]
    found = planning.read(str(tmp_path), "key_1 STRING, key_2 LONG", pushed, table="t")
    assert found == [{"key_1": "a\0", "key_2": 256}, {"key_1": "a\0", "key_2": 2**40}]
    assert described.range([EqualTo(("key_1",), 7)]) == described.range([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "none"}, "there is no table 'none' at this version"),
        ({"table": "users", "index": "none"}, r"has no index 'none' to read \(it has \['by_city', 'by_email'\]\)"),
        ({"table": "users", "keyColumns": "a,b"}, "keyColumns must name 1 columns, for int"),
        ({"table": "users", "prefix": "a"}, "prefix does not go with table"),
        ({"index": "by_city"}, "index goes with table"),
    ],
)
def test_errors(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with logdb.open(tmp_path) as db:
        filled(db)
    with pytest.raises(ValueError, match=message):
        LogDBSource({"path": str(tmp_path), **options}).schema()


def test_a_key_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        db.table("t", key=int, value=Json()).put(2**70, {"a": 1})
    with pytest.raises(ValueError, match="a key of the table 't' does not fit key int64"):
        planning.read(str(tmp_path), table="t")
