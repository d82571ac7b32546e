"""Queries with all options, filters and columns, planned as Spark does, without a JVM."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

import logdb
from logdb import Database
from spark_export.decoding import EVERYTHING
from spark_export.filters import Bounds
from spark_export.runs import ROWS, Runs
from spark_export.source import LogDBSource
from tests.spark_export import histories, planning

OpenSmall = Callable[..., Database]


@pytest.fixture
def busy(open_small: OpenSmall) -> Database:
    db = open_small()
    histories.write(db, Random(31), 300)
    return db


def expected(db: Database, wanted: Callable[[bytes, int], bool]) -> list[dict[str, Any]]:
    """The rows with the selected keys and versions."""
    rows = []
    for key, value in db.scan():
        version = next(db.history(key)).version
        if wanted(key, version):
            rows.append({"key": key, "value": value, "version": version})
    return rows


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({"startKey": "a/050"}, b"a/050", b"\xff"),
        ({"endKeyHex": b"b/020".hex()}, b"", b"b/020"),
        ({"startKeyHex": b"a/09".hex(), "endKey": "b/03"}, b"a/09", b"b/03"),
        ({"prefix": "b/0", "startKey": "b/02", "endKey": "c"}, b"b/02", b"b/1"),
        ({"prefix": "a/", "startKey": "b/"}, b"b", b"b"),
    ],
)
def test_ranges_of_keys(busy: Database, options: dict[str, str], low: bytes, high: bytes) -> None:
    rows = planning.read(busy.path, partitionBytes="70000", **options)
    assert rows == expected(busy, lambda key, _: low <= key < high)


A, B = b"a/040", b"b/061"


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(("key",), A)], lambda key, _: key == A),
        ([GreaterThan(("key",), A), LessThan(("key",), B)], lambda key, _: A < key < B),
        ([GreaterThanOrEqual(("key",), A), LessThanOrEqual(("key",), bytearray(B))], lambda key, _: A <= key <= B),
        ([StringStartsWith(("key",), "b/0"), IsNotNull(("key",))], lambda key, _: key.startswith(b"b/0")),
        ([GreaterThan(("version",), 150), LessThanOrEqual(("version",), 300)], lambda _, version: 150 < version <= 300),
        ([GreaterThanOrEqual(("version",), 200), LessThan(("version",), 250)], lambda _, version: 200 <= version < 250),
        ([EqualTo(("version",), 10**6)], lambda _, version: False),
        ([GreaterThan(("version",), 200), EqualTo(("key",), B)], lambda key, version: key == B and version > 200),
    ],
)
def test_filters_that_are_pushed_down(
    busy: Database, filters: list[Filter], wanted: Callable[[bytes, int], bool]
) -> None:
    assert Bounds(EVERYTHING, 0, 10**9).narrowed(filters, "version", ROWS.names)[1] == []
    assert planning.read(busy.path, filters=filters, partitionBytes="70000") == expected(busy, wanted)


def test_a_filter_on_a_field_is_not_applied_to_a_column(open_small: OpenSmall) -> None:
    db = open_small()
    db.multi_put({b"a": b'{"_commit_version":5}', b"b": b"{}"})
    schema, fields = "key BINARY, _commit_version LONG", [IsNotNull(("_commit_version",))]
    source = LogDBSource({"path": db.path, "codec": "json"})
    assert list(source.reader(planning.struct(schema)).narrow(fields)) == fields
    feed = LogDBSource({"path": db.path, "codec": "json", "readChangeFeed": "true", "startingVersion": "1"})
    versions = [IsNotNull(("version",)), EqualTo(("version",), 5)]
    assert list(feed.reader(planning.struct("key BINARY, version LONG")).narrow(versions)) == versions


def test_filters_that_spark_applies_as_well() -> None:
    bounds = Bounds(EVERYTHING, 0, 100)
    some = In(("key",), (b"m", b"c", b"k"))
    others = [
        Not(EqualTo(("key",), b"c")),
        EqualTo(("value",), b"x"),
        In(("version",), (7, 9)),
        EqualTo(("key",), None),
    ]
    narrowed, left = bounds.narrowed([some, *others], "version", ROWS.names)
    assert left == [some, *others]
    assert narrowed == ((b"c", b"m\0"), 7, 9)


def test_segments_before_the_selected_versions_are_not_read(busy: Database) -> None:
    with histories.planned(busy.path) as plan:
        assert len(Runs(plan, newer_than=plan.version - 5, partition_bytes=1).ranges) == 1
        assert len(Runs(plan, newer_than=plan.parts[1].end - 2, partition_bytes=1).ranges) == len(plan.parts) - 1
        assert len(Runs(plan, newer_than=plan.parts[1].end - 1, partition_bytes=1).ranges) == len(plan.parts) - 2


def test_a_schema_chooses_columns_and_text(open_small: OpenSmall) -> None:
    db = open_small()
    versions = [db.put(b"k%d" % number, "wörld".encode() * 2_000 * number) for number in range(3)]
    rows = planning.read(db.path, "version LONG, key STRING")
    assert rows == [{"version": version, "key": f"k{number}"} for number, version in enumerate(versions)]
    assert planning.read(db.path, "value STRING")[2] == {"value": "wörld" * 4_000}
    for schema, message in (
        (
            "key BINARY, carrier STRING",
            r"no column carrier \(the columns are .*\); fields of values need a codec",
        ),
        ("version STRING", "the column version can be int64, not string"),
        ("key LONG", "the column key can be BINARY or STRING, not int64"),
    ):
        with pytest.raises(ValueError, match=message):
            planning.read(db.path, schema)
    db.put(b"\xff", b"1")
    with pytest.raises(ValueError, match=r"the key of key b'\\xff' is not UTF-8: use BINARY"):
        planning.read(db.path, "key STRING")


FLIGHTS = {
    b"f/1": {"carrier": "UA", "delay": 2.5, "seats": 7, "note": None, "day": "2013-01-02"},
    b"f/2": {"carrier": "AA", "delay": 3, "seats": 8, "note": ["a"], "late": True},
    b"f/3": {"carrier": "DL", "seats": None, "day": "2013-01-03"},
}


def flights(db: Database) -> None:
    """Values in the form of `logdb import`, one with several lines."""
    db.multi_put(
        {key: json.dumps(row, indent=2 if row["carrier"] == "AA" else None).encode() for key, row in FLIGHTS.items()}
    )


def test_fields_of_json_values_are_columns(open_small: OpenSmall) -> None:
    db = open_small()
    flights(db)
    rows = planning.read(db.path, codec="json")
    names = ["carrier", "delay", "seats", "note", "day", "late", "_rescued_data"]
    assert list(rows[0]) == ["key", *names, "version"]
    assert [row["delay"] for row in rows] == [2.5, 3.0, None]
    assert [row["note"] for row in rows] == [None, '["a"]', None]
    assert [row["late"] for row in rows] == [None, True, None]
    typed = planning.read(db.path, "seats INT, day DATE, key STRING, carrier STRING", codec="json")
    assert typed[0] == {"seats": 7, "day": dt.date(2013, 1, 2), "key": "f/1", "carrier": "UA"}
    assert typed[1]["day"] is None
    assert [row["seats"] for row in planning.read(db.path, "seats STRING", codec="json")] == ["7", "8", None]


def test_values_that_do_not_fit_are_named(open_small: OpenSmall) -> None:
    db = open_small()
    with pytest.raises(ValueError, match="no values to infer the columns from"):
        planning.read(db.path, codec="json")
    flights(db)
    with pytest.raises(ValueError, match="the field 'carrier' of key b'f/1' should be int64, not 'UA'"):
        planning.read(db.path, "carrier LONG", codec="json")
    with pytest.raises(ValueError, match="codec must be json or msgpack or avro or protobuf, not 'xml'"):
        planning.read(db.path, codec="xml")
    db.put(b"f/4", b"[1]")
    with pytest.raises(ValueError, match=r"the value of key b'f/4' is not a JSON object: b'\[1\]'"):
        planning.read(db.path, "carrier STRING", codec="json")
    db.put(b"f/4", b"\xff")
    with pytest.raises(ValueError, match=r"the value of key b'f/4' is not JSON"):
        planning.read(db.path, "carrier STRING", codec="json")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startKey": "b", "endKey": "a"}, "endKey 'a' comes before startKey 'b'"),
        ({"startKey": "a", "startKeyHex": "61"}, "give startKey or startKeyHex, but not both"),
        ({"endKeyHex": "6"}, "endKeyHex must be hexadecimal digits, not '6'"),
        ({"startKey": "k" * 9_000}, "as startKey"),
        ({"versionsAsOf": "1"}, "has no option 'versionsAsOf' here; it has path"),
        ({"versionAsOf": "newest"}, "versionAsOf must be a whole number from 0 on, not 'newest'"),
        ({"versionAsOf": "-1"}, "versionAsOf must be a whole number"),
        ({"timestampAsOf": "yesterday"}, "timestampAsOf cannot be read: .yesterday. is not a time such as"),
        ({"versionAsOf": "3", "timestampAsOf": "0"}, "give versionAsOf or timestampAsOf, but not both"),
        ({"prefix": "a", "prefixHex": "61"}, "give prefix or prefixHex, but not both"),
        ({"prefixHex": "xyz"}, "prefixHex must be hexadecimal digits"),
        ({"partitionBytes": "0"}, "partitionBytes must be a whole number from 1 on"),
        ({"partitionBytes": str(2 << 30)}, "partitionBytes can be 1,073,741,824 at most"),
        ({"snapshot": "elsewhere"}, "give path or snapshot, but not both"),
        ({"maxRowsPerTrigger": "5"}, "maxRowsPerTrigger does not go with this: it is for streams"),
    ],
)
def test_wrong_options(open_small: OpenSmall, options: dict[str, str], message: str) -> None:
    db = open_small()
    with pytest.raises(ValueError, match=message):
        planning.read(db.path, **options)


@pytest.mark.parametrize("time", ["2001-01-01", "2999-01-01T00:00:00Z"])
def test_times_without_a_version(open_small: OpenSmall, time: str) -> None:
    db = open_small()
    db.compact(db.put(b"k", b"1"))
    with pytest.raises((logdb.VersionTrimmed, logdb.FutureVersion)):
        planning.read(db.path, timestampAsOf=time)
