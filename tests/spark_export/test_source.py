"""`spark.read.format("logdb")`, with a real Spark."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import logdb
from logdb import Database
from spark_export import register
from spark_export.options import zone_named
from tests.spark_export import histories
from tests.spark_export.test_changes import FEED, watched

OpenSmall = Callable[..., Database]


def collected(frame: Any) -> list[tuple[bytes, bytes]]:
    """(key, value) of a DataFrame, in its order."""
    return [(bytes(row.key), bytes(row.value)) for row in frame.collect()]


def test_every_way_to_name_a_snapshot(spark: Any, open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(21), 300)
    db.compact(versions[100])
    histories.write(db, Random(22), 50)
    read = spark.read.format("logdb").option("partitionBytes", 150_000)
    middle, later = versions[200], db.time_of(versions[250])
    assert later is not None
    frame = read.option("versionAsOf", middle).load(db.path)
    assert frame.rdd.getNumPartitions() > 1
    assert frame.schema.simpleString() == "struct<key:binary,value:binary,version:bigint>"
    assert collected(frame) == list(db.at(middle).scan())
    assert frame.where(frame.version > versions[150]).count() == sum(
        next(db.at(middle).history(key)).version > versions[150] for key, _ in db.at(middle).scan()
    )
    read = spark.read.format("logdb")
    by_time = read.option("timestampAsOf", later.isoformat()).option("prefix", "a/").load(db.path)
    assert collected(by_time) == list(db.at(time=later).scan(prefix=b"a/"))
    by_prefix = spark.read.format("logdb").load(db.path, prefixHex=b"b/".hex())
    assert collected(by_prefix) == list(db.scan(prefix=b"b/"))
    with histories.planned(db.path, version=middle) as plan:
        pinned = spark.read.format("logdb").option("snapshot", plan.folder).load()
        assert collected(pinned) == list(db.at(middle).scan())


def test_columns_filters_and_typed_values(spark: Any, open_small: OpenSmall) -> None:
    db = open_small()
    db.multi_put({b"f/%d" % number: json.dumps({"n": number, "carrier": "UA"}).encode() for number in range(9)})
    version = db.put(b"f/5", b'{"n": 55}')
    flights = spark.read.format("logdb").option("codec", "json").load(db.path, startKey="f/2")
    assert flights.columns == ["key", "n", "carrier", "_rescued_data", "version"]
    last = flights.where("key >= cast('f/4' as binary) and key <> cast('f/7' as binary)").where(f"version < {version}")
    assert [row.n for row in last.collect()] == [4, 6, 8]
    as_text = spark.read.format("logdb").option("codec", "json").schema("key STRING, n INT").load(db.path)
    assert as_text.where("key like 'f/%' and n > 6").collect() == [("f/5", 55), ("f/7", 7), ("f/8", 8)]
    one, other = (as_text.where(f"key = 'f/{number}'") for number in (5, 8))
    assert (one.count(), as_text.count()) == (1, 9)
    assert sorted(one.union(other).collect()) == [("f/5", 55), ("f/8", 8)]
    register(spark, push_filters=True)
    try:
        pushed = spark.read.format("logdb").load(db.path).where("key > cast('f/5' as binary)")
        assert "Filter (" not in pushed._jdf.queryExecution().executedPlan().toString()
        assert pushed.count() == 3
    finally:
        register(spark)
    with pytest.raises(Exception, match=r"ValueError: the field 'n' of key b'f/6' should be int32, not 'many'"):
        db.put(b"f/6", b'{"n": "many"}')
        spark.read.format("logdb").option("codec", "json").schema("n INT").load(db.path).collect()


def test_times_are_of_the_time_zone_of_the_session(spark: Any, open_small: OpenSmall) -> None:
    """The same text is the same time in the data source, in its values and in SQL."""
    db, zone = open_small(), "spark.sql.session.timeZone"
    version = db.put(b"k", b'{"at": "2024-07-01T12:00:00"}')
    later = db.put(b"k", b"{}")
    when = db.time_of(version)
    assert when is not None
    before = spark.conf.get(zone)
    try:
        for name in ("America/New_York", "Asia/Kolkata", "+05:30"):
            spark.conf.set(zone, name)
            register(spark)
            text = when.astimezone(zone_named(name)).replace(tzinfo=None).isoformat(timespec="microseconds")
            frame = spark.read.format("logdb").option("timestampAsOf", text).option("codec", "json")
            frame = frame.schema("key STRING, at TIMESTAMP, version LONG").load(db.path)
            frame.createOrReplaceTempView("times")
            same = f"at = timestamp'2024-07-01T12:00:00' AND timestamp'{text}' = timestamp'{when.isoformat()}'"
            assert spark.sql(f"SELECT version FROM times WHERE {same}").collect() == [(version,)]
        spark.conf.set(zone, "Europe/Paris")
        with pytest.raises(Exception, match=r"is Europe/Paris, and was \+05:30 when .* call register\(spark\) again"):
            frame.collect()
        text = when.astimezone(zone_named("Europe/Paris")).replace(tzinfo=None).isoformat(timespec="microseconds")
        for empty in ({}, FEED, {"listing": "versions"}):
            times = {"endingTimestamp": text, "startingVersion": "0"} if empty else {"timestampAsOf": text}
            nothing = spark.read.format("logdb").options(**empty, **times).load(db.path)
            with pytest.raises(Exception, match=r"is Europe/Paris, and was \+05:30"):
                nothing.collect()
        named = spark.read.format("logdb").option("timestampAsOf", when.isoformat()).load(db.path)
        assert named.collect()[0].version == version
        assert spark.read.format("logdb").load(db.path).collect()[0].version == later
    finally:
        spark.conf.set(zone, before)
        register(spark)


TIME = "_commit_timestamp"


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Changes in the order of the log."""
    return sorted(rows, key=lambda row: (row["_commit_version"], row["key"]))


def test_changes_in_a_batch(spark: Any, open_small: OpenSmall) -> None:
    db = open_small()
    versions = histories.write(db, Random(27), 200)
    frame = spark.read.format("logdb").options(**FEED).option("startingVersion", versions[50] + 1).load(db.path)
    expected = watched(db, versions[50], db.version)
    histories.write(db, Random(28), 50)
    db.compact()
    assert frame.columns == list(expected[0])
    rows = [{**row.asDict(), TIME: row[TIME].astimezone(dt.UTC)} for row in frame.collect()]
    assert by_place(rows) == by_place(expected)
    found = dict(frame.where(f"_commit_version <= {versions[100]}").groupBy("_change_type").count().collect())
    assert found == Counter(row["_change_type"] for row in expected if row["_commit_version"] <= versions[100])


def test_a_stream_continues_from_its_checkpoint(spark: Any, open_small: OpenSmall, tmp_path: Path) -> None:
    db, batches = open_small(), list[list[dict[str, Any]]]()

    def run() -> None:
        stream = spark.readStream.format("logdb").options(**FEED, maxRowsPerTrigger=150)
        query = stream.option("startingVersion", "oldest").load(db.path).writeStream
        query = query.foreachBatch(lambda rows, _: batches.append([row.asDict() for row in rows.collect()]))
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    histories.write(db, Random(29), 150)
    first = db.version
    expected = watched(db, 0, first)
    run()
    db.pin("query", first)
    histories.write(db, Random(30), 50)
    db.compact()
    assert db.oldest_version == first
    expected += watched(db, first, db.version)
    run()
    rows = [{**row, TIME: row[TIME].astimezone(dt.UTC)} for batch in batches for row in by_place(batch)]
    assert rows == by_place(expected)
    assert len(batches) >= 3
    assert max(map(len, batches)) <= 150


def test_a_frame_is_written_and_read_back(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    frame = spark.range(0, 5_000, 1, 4).selectExpr("printf('k%04d', id) as key", "cast(id as string) as value")
    frame.write.format("logdb").mode("append").save(path)
    with logdb.open(path) as db:
        assert list(db.scan()) == [(b"k%04d" % number, b"%d" % number) for number in range(5_000)]
        assert len(list(db.watch(since=0, timeout=0))) == 8
        version = db.version
    gone = spark.read.format("logdb").load(path).where("key < cast('k2500' as binary)")
    gone.selectExpr("key", "cast(null as binary) as value").write.format("logdb").mode("append").save(path)
    assert spark.read.format("logdb").load(path).count() == 2_500
    assert spark.read.format("logdb").option("versionAsOf", version).load(path).count() == 5_000
    broken = frame.selectExpr("key", "cast(assert_true(key < 'k3') as string) as value")
    with pytest.raises(Exception, match=r"assert_true|is not true"):
        broken.write.format("logdb").mode("append").save(path)
    with logdb.open(path) as db:
        assert len(list(db.scan())) == 2_500


def test_a_frame_is_the_snapshot_at_its_load(spark: Any, open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(23), 200)
    expected = list(db.scan())
    frame = spark.read.format("logdb").option("partitionBytes", 100_000).load(db.path)
    histories.write(db, Random(24), 300)
    db.compact()
    assert list(db.scan()) != expected
    assert collected(frame) == expected
    histories.write(db, Random(25), 100)
    db.compact()
    db.close()
    assert frame.join(frame.withColumnRenamed("value", "other"), ["key", "version"]).count() == len(expected)
    assert collected(frame) == expected


def test_reading_beside_a_process_that_writes_and_compacts(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "db"
    command = [sys.executable, "-m", "tests.spark_export.busy_writer", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        seen = set()
        for _ in range(4):
            rows = collected(spark.read.format("logdb").option("partitionBytes", 200_000).load(str(path)))
            assert [key for key, _ in rows] == [b"k%02d" % number for number in range(40)]
            assert len({value for _, value in rows}) == 1
            seen.add(rows[0][1])
        writer.communicate()
        assert writer.returncode == 0
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionsAsOf": "1"}, "ValueError: the data source logdb has no option 'versionsasof' here; it has path"),
        ({"versionAsOf": "99999"}, "FutureVersion: version 99999 does not exist yet; the newest is"),
        ({"versionAsOf": "1"}, "VersionTrimmed: version 1 was compacted away; the oldest version left is"),
    ],
)
def test_a_wrong_option_is_named(spark: Any, open_small: OpenSmall, options: dict[str, str], message: str) -> None:
    db = open_small()
    for number in range(3):
        db.put(b"k", b"%d" % number)
    db.compact()
    with pytest.raises(Exception, match=message):
        spark.read.format("logdb").options(**options).load(db.path)
    assert not (Path(db.path) / "exports").exists()


def test_no_directory_and_no_database(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="needs a directory"):
        spark.read.format("logdb").load()
    with pytest.raises(Exception, match=r"NotADatabase: .* is not a LogDB database"):
        spark.read.format("logdb").load(str(tmp_path))


def test_a_damaged_segment_fails_the_job_and_is_named(spark: Any, open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(26), 200)
    segment = sorted((Path(db.path) / "log").glob("*.log"))[1]
    frame = spark.read.format("logdb").load(db.path)
    with segment.open("r+b") as file:
        file.seek(5_000)
        byte = file.read(1)
        file.seek(5_000)
        file.write(bytes([byte[0] ^ 8]))
    with pytest.raises(Exception, match=rf"Corruption: {segment} is damaged at byte \d+: record"):
        frame.count()
