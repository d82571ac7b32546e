"""Named logs as DataFrames and streams, called as Spark calls them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import StructType

import logdb
from logdb import Database
from logdb.named_logs import Entry, Position
from spark_export import writing
from spark_export.source import LogDBSource
from spark_export.stream import Offset
from tests.harness.served import Served
from tests.spark_export import planning
from tests.spark_export.test_stream import Query

OpenSmall = Callable[..., Database]
LARGE = b"large " * 2_000


def fill(db: Database) -> list[Position]:
    db.put(b"other", b"1")
    log = db.log("orders")
    first = log.append(b"1")
    middle = log.extend([b"2", LARGE], txn_id=(1 << 64) - 1, key=b"ada")
    db.log("others").append(b"x")
    return [first, *middle, log.append(b"4", key=b"")]


def row_of(entry: Entry) -> dict[str, Any]:
    txn_id = None if entry.txn_id is None else Decimal(entry.txn_id)
    version, index = entry.position
    return {"version": version, "index": index, "txn_id": txn_id, "key": entry.key, "value": entry.value}


def read(path: str, schema: StructType | None = None, **options: str) -> list[dict[str, Any]]:
    given = {"endpoints" if ":" in path else "path": path, "log": "orders", **options}
    source = pickle.loads(pickle.dumps(LogDBSource(given)))
    reader = pickle.loads(pickle.dumps(source.reader(schema or source.schema())))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize("where", ["directory", "server"])
def test_a_batch_has_the_entries_of_a_version(where: str, open_small: OpenSmall, served: Served) -> None:
    db = open_small() if where == "directory" else logdb.connect(served.address)
    path = db.path if where == "directory" else served.address
    positions = fill(db)
    before = db.version
    entries = list(db.log("orders").read())
    db.log("orders").truncate(positions[1])
    rows = [row_of(entry) for entry in entries]
    assert read(path) == rows[1:]
    assert read(path, versionAsOf=str(before)) == rows
    assert read(path, startingVersion=str(positions[3].version)) == rows[3:]
    assert read(path, startingVersion="0") == rows[1:]
    assert read(path, afterPosition=str(positions[1])) == rows[2:]
    time = db.time_of(positions[3].version)
    assert time is not None
    assert read(path, startingTimestamp=time.isoformat()) == rows[3:]
    columns = planning.struct("value STRING, index LONG")
    assert read(path, columns, afterPosition=str(positions[2])) == [{"value": "4", "index": 0}]
    assert read(path, log="none") == []
    db.close()


def test_a_filter_of_versions_is_one_of_positions(open_small: OpenSmall) -> None:
    db, restored = open_small(), open_small("restored")
    positions = fill(db)
    restored.multi_put(dict(db.scan()))  # keeps the positions, as an import does, under another version
    rows = [row_of(entry) for entry in restored.log("orders").read()]
    for version in {position.version for position in positions}:
        found = planning.read(restored.path, filters=[EqualTo(("version",), version)], log="orders")
        assert [row for row in found if row["version"] == version] == [row for row in rows if row["version"] == version]


class LogQuery(Query):
    """A query that follows the log `orders`."""

    def __init__(self, path: str, checkpoint: Offset | None = None, **options: str) -> None:
        source = pickle.loads(pickle.dumps(LogDBSource({"path": path, "log": "orders", **options})))
        self.path, self.reader = path, source.streamReader(source.schema())
        self.executors = pickle.dumps(self.reader)
        self.checkpoint = checkpoint or self.reader.initialOffset()


def test_a_stream_has_each_entry_once(open_small: OpenSmall) -> None:
    db = open_small()
    log = db.log("orders")
    log.append(b"before")
    query = LogQuery(db.path)
    assert query.batch() == []
    positions = fill(db)
    assert [row["value"] for row in query.batch(commit=False)] == [b"1", b"2", LARGE, b"4"]
    rows = query.batch()
    assert rows == [row_of(entry) for entry in log.read(after=Position(1, 0))]
    log.truncate(before=positions[3])
    log.append(b"5")
    log.set_retention(logdb.Retention(size_bytes=1))
    db.sweep()
    assert [entry.value for entry in log.read()] == [b"5"]
    again = LogQuery(db.path, query.checkpoint)
    assert [row["value"] for row in again.batch()] == [b"5"], "deletions are no rows"
    again.reader.stop()
    query.reader.stop()


def test_a_stream_has_entries_that_retention_deletes_before_it_reads_them(open_small: OpenSmall) -> None:
    db = open_small()
    query = LogQuery(db.path, maxRowsPerTrigger="1")
    log = db.log("orders", retention=logdb.Retention(size_bytes=1))
    for number in range(3):
        log.append(b"%d" % number)
    db.sweep()
    db.compact()
    assert [entry.value for entry in log.read()] == [b"2"]
    found = []
    while query.checkpoint["version"] < db.version:
        found += [row["value"] for row in query.batch()]
    assert found == [b"0", b"1", b"2"]
    query.reader.stop()


class Job:
    """A write of a log, from the planning to the commit."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, schema: str = "value BINARY, txn_id LONG", **options: str
    ) -> None:
        self._monkeypatch = monkeypatch
        self._schema = schema
        source = LogDBSource({"batchRows": "2", "log": "orders", **options})
        self.writer: Any = source.writer(planning.struct(schema), False)

    def task(self, part: int, rows: list[tuple[Any, ...]], fails_after: int = 1 << 30) -> Any:
        names = [name.split()[0] for name in self._schema.split(", ")]

        def batches() -> Iterator[pa.RecordBatch]:
            for number, row in enumerate(rows):
                if number == fails_after:
                    raise ConnectionError("the executor is lost")
                yield pa.RecordBatch.from_pydict({name: [item] for name, item in zip(names, row, strict=True)})

        self._monkeypatch.setattr(writing, "partition_id", lambda: part)
        return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(self.writer)).write(batches())))

    def commit(self, *messages: Any) -> None:
        pickle.loads(pickle.dumps(self.writer)).commit(list(messages))


@pytest.mark.parametrize("atomic", ["false", "true"])
@pytest.mark.parametrize("where", ["directory", "server"])
def test_a_repeated_job_appends_nothing_twice(
    where: str, atomic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, served: Served
) -> None:
    path = str(tmp_path / "db") if where == "directory" else served.address
    target = {"path" if where == "directory" else "endpoints": path, "jobId": "j", "atomic": atomic}
    parts = [[(b"%d" % n, n) for n in range(5)], [(b"%d" % n, n) for n in range(5, 8)]]
    job = Job(monkeypatch, **target)
    with pytest.raises(ConnectionError):
        job.task(0, parts[0], fails_after=3)
    job.commit(*(job.task(number, rows) for number, rows in enumerate(parts)))
    job = Job(monkeypatch, **target)
    job.commit(*(job.task(number, rows) for number, rows in enumerate(parts)))
    with logdb.open(path) if where == "directory" else logdb.connect(path) as db:
        entries = list(db.log("orders").read())
        assert [(entry.value, entry.txn_id) for entry in entries] == [row for part in parts for row in part]
        assert len({entry.position.version for entry in entries}) == (1 if atomic == "true" else 5)
        with pytest.raises(ValueError, match="6 comes after 7"):
            db.log("orders").append(b"", txn_id=6)


def test_partition_keys_and_texts_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    job = Job(monkeypatch, "version LONG, key STRING, value STRING", path=path)
    job.commit(job.task(0, [(1, "ada", "1"), (2, None, "2")]))
    with logdb.open(path) as db:
        assert [(entry.key, entry.value) for entry in db.log("orders").read()] == [(b"ada", b"1"), (None, b"2")]
    job = Job(monkeypatch, path=path)
    with pytest.raises(ValueError, match="value is null"):
        job.task(0, [(None, 1)])
    job = Job(monkeypatch, path=path)
    with pytest.raises(ValueError, match="3 comes after 4"):
        job.commit(job.task(0, [(b"", 4), (b"", 3)]))


def test_wrong_options_are_refused(open_small: OpenSmall, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_small()
    fill(db)
    for options, message in (
        ({"log": ""}, "must have 1 to 1,024 bytes, not 0"),
        ({"prefix": "a"}, "no option 'prefix' here"),
        ({"codec": "json"}, "no option 'codec' here"),
        ({"afterPosition": "first"}, "is not a position"),
        ({"afterPosition": "1.0", "startingVersion": "1"}, "but only one"),
        ({"startingVersion": "oldest"}, "is a number"),
    ):
        with pytest.raises(ValueError, match=message):
            read(db.path, **options)
    with pytest.raises(ValueError, match="begins at startingVersion"):
        LogQuery(db.path, afterPosition="1.0")
    for schema, message in (
        ("key BINARY", "no column value"),
        ("value BINARY, price LONG", "no column price in a log"),
        ("value LONG", "value must be BINARY or STRING"),
        ("value BINARY, txn_id STRING", "txn_id must be an integer"),
    ):
        with pytest.raises(ValueError, match=message):
            Job(monkeypatch, schema, path=db.path)


def test_spark_streams_one_log_into_another(spark: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    with logdb.open(path) as db:
        fill(db)
    for _ in range(2):
        source = spark.readStream.format("logdb").option("log", "orders").option("startingVersion", 1).load(path)
        query = (
            source.writeStream.format("logdb")
            .option("log", "copies")
            .option("jobId", "copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination(60)
    with logdb.open(path) as db:
        copies = [(entry.txn_id, entry.key, entry.value) for entry in db.log("copies").read()]
        assert copies == [(entry.txn_id, entry.key, entry.value) for entry in db.log("orders").read()]
    assert spark.read.format("logdb").option("log", "copies").load(path).filter("key = 'ada'").count() == 2
