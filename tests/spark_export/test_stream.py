"""Streams, called as Spark calls them: offsets, batches, restarts, and leases against compaction."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

import logdb
from logdb import Database
from logdb.embedded.external_leases import ExternalLease, LeaseOwner, process_owner
from logdb.store import values
from spark_export.directory_source import DirectorySource
from spark_export.runs import Runs
from spark_export.source import LogDBSource
from spark_export.stream import LogDBStreamReader, Offset
from tests.spark_export import histories, planning
from tests.spark_export.test_changes import FEED, watched

OpenSmall = Callable[..., Database]


class Query:
    """Uses a reader as Spark does; `checkpoint` is the offset of the last committed batch."""

    def __init__(self, path: str, checkpoint: Offset | None = None, **options: str) -> None:
        self.path = path
        given = {"endpoints" if ":" in path else "path": path, **FEED, **options}
        source = pickle.loads(pickle.dumps(LogDBSource(given)))
        self._asked = source.schema()
        self.reader: LogDBStreamReader = source.streamReader(self._asked)
        self.executors = pickle.dumps(self.reader)
        self.checkpoint = checkpoint or self.reader.initialOffset()

    def batch(self, *, commit: bool = True, end: Offset | None = None) -> list[dict[str, Any]]:
        """The rows of the next batch, up to the newest version or to `end`."""
        end = end or self.reader.latestOffset(self.checkpoint, self.reader.getDefaultReadLimit())
        rows = self.rows(self.checkpoint, end)
        if commit:
            self.reader.commit(end)
            self.checkpoint = end
        return rows

    def oldest(self) -> int:
        """The oldest version that can be read."""
        with logdb.open(self.path, read_only=True) as db:
            return db.oldest_version

    def rows(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        """The rows of a range."""
        reader = pickle.loads(self.executors)
        planned = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        return [row for part in planned for batch in reader.read(part) for row in batch.to_pylist()]


def test_batches_follow_each_other_through_compactions_and_restarts(open_small: OpenSmall) -> None:
    db, rng = open_small(), Random(1)
    query = Query(db.path, startingVersion="oldest")
    seen: list[dict[str, Any]] = []
    for step in range(6):
        held = query.checkpoint["version"]
        histories.write(db, rng, 80)
        expected = watched(db, held, db.version)
        db.compact()
        assert db.oldest_version == held
        rows = query.batch(commit=step != 3)
        if step == 3:  # the query fails after it has planned a batch, and is restarted before the next compaction
            end, checkpoint = query.reader.reportLatestOffset(), query.checkpoint
            db.pin("query", held)
            query.reader.stop()
            db.compact()
            query = Query(db.path, checkpoint, startingVersion="1")
            db.unpin("query")
            assert query.batch(end=end) == rows
        seen += rows
        assert rows == expected
    assert len(seen) > 500
    query.reader.stop()
    assert not (Path(db.path) / "exports").exists()
    db.compact(db.put(b"k", b"v"))
    assert db.oldest_version > query.checkpoint["version"]


def test_a_query_follows_a_process_that_writes_and_compacts(tmp_path: Path) -> None:
    """Each of its transactions writes the next number under 40 keys."""
    path = tmp_path / "db"
    command = [sys.executable, "-m", "tests.spark_export.busy_writer", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        query = Query(str(path), startingVersion="oldest", maxRowsPerTrigger="4000")
        numbers, trimmed = list[int](), set[int]()
        while len(trimmed) < 4:
            rows = query.batch()
            trimmed.add(query.oldest())
            numbers += [int(row["value"][:9]) for row in rows]
        writer.stdin.close()
        assert writer.wait() == 0
    query.reader.stop()
    first = numbers[0]
    assert numbers == [first + number // 40 for number in range(len(numbers))]
    assert len(set(numbers)) * 40 == len(numbers)


def test_old_values_are_looked_up_in_the_map(
    open_small: OpenSmall, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The log before the batch may be long; it is read only if the map cannot be read."""
    db, rng = open_small(), Random(2)
    histories.write(db, rng, 100)
    query = Query(db.path)
    for cannot in (False, True):
        held = query.checkpoint["version"]
        histories.write(db, rng, 60)
        with monkeypatch.context() as patched:
            if cannot:
                patched.setattr(DirectorySource, "values_at", lambda *_, **__: None)
            else:
                patched.setattr(Runs, "make", None)
            assert query.batch() == watched(db, held, db.version)
    query.reader.stop()
    assert DirectorySource(Path(db.path)).values_at(10**9, [b"k"], with_values=True) is None
    assert DirectorySource(tmp_path / "never").values_at(1, [b"k"], with_values=True) is None


@pytest.mark.parametrize(("old", "decoded"), [("true", 20), ("false", 0)])
def test_the_records_of_old_values_are_decoded_once(
    open_small: OpenSmall, monkeypatch: pytest.MonkeyPatch, old: str, decoded: int
) -> None:
    db, rng, decode = open_small(), Random(3), values.decode_commit
    writes = [dict.fromkeys((b"%03d" % key for key in rng.sample(range(400), 100)), b"%d" % at) for at in range(30)]
    versions = [db.multi_put(items) for items in writes]
    db.checkpoint()
    seen = list[bytes]()
    query = Query(db.path, startingVersion=str(versions[20]), oldValues=old)
    monkeypatch.setattr(values, "decode_commit", lambda payload, gsn: seen.append(payload) or decode(payload, gsn))
    rows = query.batch()
    assert len(rows) == 1_000
    assert len(seen) == len(set(seen)) <= decoded
    for row in rows:
        before = db.at(row["_commit_version"] - 1).get(row["key"])
        assert row["_change_type"] == ("insert" if before is None else "update")
        assert row.get("old_value") == (before if old == "true" else None)
    query.reader.stop()


def test_a_batch_has_at_most_the_requested_rows_or_one_transaction(open_small: OpenSmall) -> None:
    db = open_small()
    versions = [db.multi_put({b"k%d" % key: b"v" * 100 for key in range(count)}) for count in (2, 1, 2, 7, 1, 1)]
    query = Query(db.path, startingVersion="1", maxRowsPerTrigger="4")
    assert [len(query.batch()) for _ in range(5)] == [3, 2, 7, 2, 0]
    assert query.checkpoint == {"version": versions[-1]}
    start = {"version": 0}
    assert query.reader.latestOffset(start, ReadAllAvailable()) == {"version": versions[-1]}
    assert query.reader.latestOffset(start, ReadMaxRows(1)) == {"version": versions[0]}
    assert query.reader.latestOffset(start, ReadMaxBytes(600)) == {"version": versions[1]}
    assert query.reader.reportLatestOffset() == {"version": versions[-1]}
    query.reader.stop()


def test_a_reader_that_has_not_connected_stops() -> None:
    source = LogDBSource({"endpoints": "127.0.0.1:1", "timeout": "1", "readChangeFeed": "true"})
    reader = source.streamReader(source.schema())
    with pytest.raises(logdb.Unavailable, match=r"127\.0\.0\.1:1"):
        reader.initialOffset()
    reader.stop()


def test_a_batch_is_limited_in_bytes(open_small: OpenSmall) -> None:
    db = open_small()
    versions = [db.put(b"k%d" % number, b"x" * 1_000) for number in range(6)]
    db.put(b"large", b"x" * 20_000)
    query = Query(db.path, startingVersion="oldest", maxBytesPerTrigger="2500")
    assert [row["_commit_version"] for row in query.batch()] == versions[:2]
    assert [row["_commit_version"] for row in query.batch()] == versions[2:4]
    assert [row["_commit_version"] for row in query.batch()] == versions[4:]
    assert [row["key"] for row in query.batch()] == [b"large"]
    query.reader.stop()
    with pytest.raises(ValueError, match="give maxRowsPerTrigger or maxBytesPerTrigger, but not both"):
        Query(db.path, maxRowsPerTrigger="1", maxBytesPerTrigger="1")


def test_available_now_ends_at_the_version_of_its_start(open_small: OpenSmall) -> None:
    db = open_small()
    first = db.put(b"a", b"1")
    query = Query(db.path, startingVersion="oldest")
    query.reader.prepareForTriggerAvailableNow()
    db.put(b"b", b"2")
    assert [row["key"] for row in query.batch()] == [b"a"]
    assert query.batch() == []
    assert query.checkpoint == {"version": first}
    query.reader.stop()


def test_where_a_stream_begins(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"a", b"1")
    second = db.put(b"b", b"2")
    beginnings = {**BEGINNINGS, "time": {"startingTimestamp": str(db.time_of(2))}}
    begun = {name: Query(db.path, **options) for name, options in beginnings.items()}
    db.put(b"c", b"3")
    found = {name: [row["key"] for row in query.batch()] for name, query in begun.items()}
    assert found.pop("oldest") == [b"a", b"b", b"c"]
    assert found == {"latest": [b"c"], "by default": [b"c"], "second": [b"b", b"c"], "time": [b"b", b"c"]}
    for query in begun.values():
        query.reader.stop()
    db.compact()
    with pytest.raises(logdb.VersionTrimmed):
        Query(db.path, startingVersion=str(second))
    with pytest.raises(logdb.FutureVersion):
        Query(db.path, startingVersion="99")
    late = Query(db.path, {"version": second})
    with pytest.raises(logdb.VersionTrimmed, match=f"version {second} was compacted away"):
        late.batch()
    with pytest.raises(ValueError, match="endingVersion does not go with this: a stream begins at startingVersion"):
        Query(db.path, endingVersion="5")
    with pytest.raises(ValueError, match="versionAsOf does not go with this"):
        LogDBSource({"path": db.path, "versionAsOf": str(db.version)}).streamReader(planning.struct("key BINARY"))


BEGINNINGS = {
    "latest": {"startingVersion": "latest"},
    "by default": {},
    "oldest": {"startingVersion": "oldest"},
    "second": {"startingVersion": "2"},
}


def test_without_types_a_stream_has_the_columns_of_a_snapshot(open_small: OpenSmall) -> None:
    db = open_small()
    source = LogDBSource({"path": db.path, "startingVersion": "oldest"})
    asked = source.schema()
    query = Query(db.path)
    query.reader = source.streamReader(asked)
    query.executors = pickle.dumps(query.reader)
    start = query.reader.initialOffset()
    written, deleted = db.put(b"a", b"1" * 9_000), db.delete(b"a")
    assert query.rows(start, {"version": deleted}) == [
        {"key": b"a", "value": b"1" * 9_000, "version": written},
        {"key": b"a", "value": None, "version": deleted},
    ]
    query.reader.stop()


def test_the_lease_of_an_ended_process_is_ignored(open_small: OpenSmall) -> None:
    db = open_small()
    for number in range(5):
        db.put(b"k", b"%d" % number)
    me = process_owner(1)
    hold = ExternalLease(Path(db.path), 3, me)
    ExternalLease(Path(db.path), 2, LeaseOwner(me.host, me.pid, me.started + 1))
    assert db.compact().floor == 3
    hold.move(4)
    assert db.compact().floor == 4
    hold.close()
    assert db.compact().floor > 4
