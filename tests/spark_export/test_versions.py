"""The listing of versions, planned as Spark does, without a JVM."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from pyspark.sql.datasource import GreaterThan, LessThanOrEqual

from logdb import Database
from logdb.api import timestamps
from spark_export.source import LogDBSource
from tests.spark_export import histories, planning

OpenSmall = Callable[..., Database]


def test_versions_are_the_commits_of_the_feed(open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(3), 200)
    deleted = db.delete_prefix(b"a/00", label="gone")
    with db.transaction(label="both") as txn:
        txn.delete_prefix(b"b/")
        txn[b"b/new"] = b"1"
    expected = [
        {
            "version": commit.version,
            "time": timestamps.moment(commit.time),
            "label": commit.label,
            "keys": len(commit.changes),
            "deleted_ranges": len(commit.deleted),
        }
        for commit in db.watch(since=0, timeout=0, deleted_keys=False)
    ]
    assert [row["deleted_ranges"] for row in expected[-2:]] == [1, 1]
    assert planning.read(db.path, listing="versions", partitionBytes="100000") == expected
    first, last = versions[50], versions[100]
    some = [row for row in expected if first <= row["version"] <= last]
    assert planning.read(db.path, listing="versions", startingVersion=str(first), endingVersion=str(last)) == some
    bounds = [GreaterThan(("version",), first - 1), LessThanOrEqual(("version",), last)]
    assert planning.read(db.path, None, bounds, listing="versions", partitionBytes="100000") == some
    labels = planning.read(db.path, "label STRING, version LONG", listing="versions", prefix="a/00")
    assert labels[-1] == {"label": "gone", "version": deleted}
    time = str(db.time_of(last))
    assert planning.read(db.path, listing="versions", startingTimestamp=time)[0]["version"] == last
    db.compact(last)
    left = planning.read(db.path, listing="versions")
    assert left == [row for row in expected if row["version"] > last]


def test_a_listing_has_no_other_options(open_small: OpenSmall) -> None:
    path = open_small().path
    assert planning.read(path, listing="versions") == []
    with pytest.raises(ValueError, match="listing must be versions, not 'tables'"):
        LogDBSource({"path": path, "listing": "tables"})
    with pytest.raises(ValueError, match="has no option 'versionAsOf' here; it has listing, path"):
        LogDBSource({"path": path, "listing": "versions", "versionAsOf": "1"})
    with pytest.raises(ValueError, match="listing does not go with this: it is for batches"):
        LogDBSource({"path": path, "listing": "versions"}).streamReader(planning.struct("version LONG"))
