"""Batches of changes, planned as Spark does, without a JVM: the rows of `db.watch`, with old values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual

import logdb
from logdb import Database
from logdb.api import timestamps
from spark_export.changes import COLUMNS, OLD_VALUE, Changes
from spark_export.columns import select_columns
from spark_export.decoding import EVERYTHING, KeyRange
from tests.spark_export import histories, planning

OpenSmall = Callable[..., Database]
FEED = {"readChangeFeed": "true", "oldValues": "true", "partitionBytes": "100000"}


def watched(db: Database, since: int, until: int) -> list[dict[str, Any]]:
    """The rows that the changes after `since` should have."""
    rows = []
    for commit in db.watch(since=since, timeout=0):
        if commit.version > until:
            break
        for key, value in commit.changes.items():
            old = db.at(commit.version - 1).get(key)
            rows.append(
                {
                    "key": key,
                    "value": value,
                    "old_value": old,
                    "_change_type": "delete" if value is None else "insert" if old is None else "update",
                    "_commit_version": commit.version,
                    "_commit_timestamp": timestamps.moment(commit.time),
                }
            )
    return rows


def read(db: Database, first: int, last: int, **options: str) -> list[dict[str, Any]]:
    return planning.read(db.path, startingVersion=str(first), endingVersion=str(last), **{**FEED, **options})


@pytest.mark.parametrize("seed", range(2))
def test_changes_are_those_of_watch(open_small: OpenSmall, seed: int) -> None:
    rng = Random(seed)
    db = open_small()
    versions = histories.write(db, rng, 250)
    assert read(db, 0, versions[-1]) == read(db, 1, versions[-1]) == watched(db, 0, versions[-1])
    for _ in range(2):
        db.compact(rng.choice([version for version in versions if version >= db.oldest_version]))
        versions += histories.write(db, rng, 150)
        left = [version for version in versions if version > db.oldest_version]
        for first, last in [sorted(rng.sample(left, 2)) for _ in range(3)] + [(db.oldest_version + 1, db.version)]:
            assert read(db, first, last) == watched(db, first - 1, last)


def test_changes_end_at_the_newest_version_by_default(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"1")
    version = db.put(b"k", b"2")
    for first, count in ((version, 1), (version + 1, 0)):
        rows = planning.read(db.path, readChangeFeed="true", startingVersion=str(first))
        assert [(row["key"], row["_change_type"]) for row in rows] == [(b"k", "update")] * count


def test_filters_ranges_and_columns(open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(7), 300)
    filters = [GreaterThan(("_commit_version",), versions[50]), LessThanOrEqual(("_commit_version",), versions[200])]
    expected = watched(db, versions[50], versions[200])
    found = planning.read(db.path, filters=filters, startingVersion="1", **FEED)
    assert found == expected
    found = planning.read(db.path, filters=[*filters, EqualTo(("key",), b"a/040")], startingVersion="1", **FEED)
    assert found == [row for row in expected if row["key"] == b"a/040"]
    found = planning.read(db.path, "_commit_version LONG, key STRING", startingVersion="1", prefix="a/04", **FEED)
    rows = [row for row in watched(db, 0, versions[-1]) if row["key"].startswith(b"a/04")]
    assert found == [{"_commit_version": row["_commit_version"], "key": row["key"].decode()} for row in rows]
    db.multi_put({b"j/1": b'{"n": 1}', b"j/2": b'{"n": 2}'})
    db.delete(b"j/1")
    rows = planning.read(db.path, readChangeFeed="true", startingVersion="1", prefix="j/", codec="json")
    assert [(row["n"], row["_change_type"]) for row in rows] == [(1, "insert"), (2, "insert"), (None, "delete")]


def test_a_plan_of_changes_outlives_a_compaction_that_passes_it(open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(8), 250)
    since, until = versions[80], versions[220]
    expected = watched(db, since, until)
    columns = select_columns(planning.struct(FEED_SCHEMA), {**COLUMNS, OLD_VALUE: COLUMNS["value"]}, None)
    with histories.planned(db.path, version=until, since=since) as plan:
        for seed in range(3):
            histories.write(db, Random(seed), 100)
            db.compact()
        assert db.oldest_version > until
        changes = Changes(plan, EVERYTHING, since, until, columns, 100_000)
        numbers = range(len(changes.ranges))
        found = {number: list(changes.read(number)) for number in reversed(numbers)}
        assert [row for number in numbers for batch in found[number] for row in batch.to_pylist()] == expected
        some = Changes(plan, KeyRange(b"b/", None), since, until, columns)
        rows = [row for batch in some.read(0) for row in batch.to_pylist()]
        assert rows == [row for row in expected if row["key"] >= b"b/"]


FEED_SCHEMA = (
    "key BINARY, value BINARY, old_value BINARY, _change_type STRING, _commit_version LONG, _commit_timestamp TIMESTAMP"
)


def test_versions_that_cannot_be_read(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"0")
    db.compact(db.put(b"k", b"1"))
    oldest = db.oldest_version
    with pytest.raises(logdb.VersionTrimmed, match=f"the oldest version left is {oldest}"):
        read(db, oldest, db.version)
    assert read(db, oldest + 1, db.version) == []
    with pytest.raises(logdb.FutureVersion, match=f"version 99 does not exist yet; the newest is {db.version}"):
        read(db, oldest + 1, 99)
    with pytest.raises(logdb.FutureVersion):
        read(db, 100, 100)
    with pytest.raises(ValueError, match="there are no changes after version"):
        read(db, db.version + 1, db.version - 1)
    for options, message in (
        ({}, "changes need a startingVersion"),
        ({"startingVersion": "latest"}, "changes need a startingVersion"),
        ({"startingVersion": "one"}, "startingVersion must be a whole number from 0 on, not 'one'"),
        ({"startingVersion": "1", "versionAsOf": "1"}, "has no option 'versionAsOf' here"),
        ({"startingVersion": "1", "maxRowsPerTrigger": "1"}, "maxRowsPerTrigger does not go with this: it is for stre"),
        ({"startingVersion": "1", "oldValues": "1"}, "oldValues must be true or false, not '1'"),
    ):
        with pytest.raises(ValueError, match=message):
            planning.read(db.path, readChangeFeed="true", **options)
    with pytest.raises(ValueError, match="startingVersion does not go with this: it goes with readChangeFeed"):
        planning.read(db.path, startingVersion="1")
    with pytest.raises(ValueError, match="has no option 'oldValues' here"):
        planning.read(db.path, oldValues="true")
    assert not list(Path(db.path).glob("exports/*/hold"))


def with_images(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the feed with two rows for an update, and with the value that a deletion has deleted."""
    found = []
    for row in rows:
        old, kind = row.pop("old_value"), row["_change_type"]
        if kind == "update":
            found.append({**row, "value": old, "_change_type": "update_preimage"})
            found.append({**row, "_change_type": "update_postimage"})
        else:
            found.append({**row, "value": old} if kind == "delete" else row)
    return found


def test_updates_have_images(open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(5), 300)
    first, last = versions[40], versions[-1]
    feed = {"readChangeFeed": "true", "updateImages": "true", "startingVersion": str(first)}
    expected = with_images(watched(db, first - 1, last))
    assert {row["_change_type"] for row in expected} == {"insert", "update_preimage", "update_postimage", "delete"}
    assert planning.read(db.path, partitionBytes="100000", **feed) == expected
    found = planning.read(db.path, "key BINARY, value BINARY", **feed)
    assert found == [{"key": row["key"], "value": row["value"]} for row in expected]
    with pytest.raises(ValueError, match="give oldValues or updateImages, but not both"):
        planning.read(db.path, oldValues="true", **feed)


def test_changes_between_times(open_small: OpenSmall) -> None:
    db = open_small()
    versions = [db.put(b"k", b"%d" % number) for number in range(5)]
    first, last = (db.time_of(version) for version in (versions[1], versions[3]))
    assert first is not None
    assert last is not None
    feed = {"readChangeFeed": "true", "startingTimestamp": first.isoformat(), "endingTimestamp": last.isoformat()}
    assert [row["_commit_version"] for row in planning.read(db.path, **feed)] == versions[1:4]
    feed["startingTimestamp"] = "1970-01-01T00:00:01Z"
    assert [row["_commit_version"] for row in planning.read(db.path, **feed)] == versions[:4]
    db.compact(versions[2])
    with pytest.raises(logdb.VersionTrimmed):
        planning.read(db.path, **feed)
    feed["startingTimestamp"] = "2999-01-01"
    with pytest.raises(logdb.FutureVersion):
        planning.read(db.path, **feed)
    with pytest.raises(ValueError, match="give startingVersion or startingTimestamp, but not both"):
        planning.read(db.path, startingVersion="1", **feed)
    with pytest.raises(ValueError, match="changes need a startingVersion"):
        planning.read(db.path, readChangeFeed="true")
