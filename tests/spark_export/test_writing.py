"""Writing DataFrames: repeated tasks, repeated jobs, atomic jobs; called as Spark calls them."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

import logdb
from logdb import Database
from spark_export import transactions, writing
from spark_export.source import LogDBSource
from spark_export.writing import COUNTERS, CountedBatches, LogDBWriter, SpooledRows
from tests.harness.served import Served
from tests.spark_export import planning

OpenSmall = Callable[..., Database]
SCHEMA = "key BINARY, value BINARY"
TYPES = pa.schema([("key", pa.binary()), ("value", pa.binary())])
PARTS = [[(b"%d/%d" % (part, number), b"%d" % number) for number in range(7)] for part in range(3)]
EXPECTED = [row for part in PARTS for row in part]


class Job:
    """A write, from the planning to the commit."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, schema: str = SCHEMA, overwrite: bool = False, **options: str
    ) -> None:
        self._monkeypatch = monkeypatch
        source = LogDBSource({"batchRows": "3", **options})
        self.writer: Any = source.writer(planning.struct(schema), overwrite)

    def task(self, part: int, rows: Any = None, fails_after: int | None = None) -> SpooledRows:
        """Run the task of a partition. With `fails_after` the task fails after that number of rows."""
        rows = PARTS[part] if rows is None else rows

        def batches() -> Iterator[pa.RecordBatch]:
            for number, row in enumerate(rows):
                if number == fails_after:
                    raise ConnectionError("the executor is lost")
                yield pa.RecordBatch.from_pydict({"key": [row[0]], "value": [row[1]]}, TYPES)

        self._monkeypatch.setattr(writing, "partition_id", lambda: part)
        done: SpooledRows = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(self.writer)).write(batches())))
        return done

    def commit(self, *messages: SpooledRows) -> None:
        """Commit the job, as the driver does."""
        pickle.loads(pickle.dumps(self.writer)).commit(list(messages))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    return lambda *args, **options: Job(monkeypatch, *args, **options)


def contents(path: str) -> list[tuple[bytes, bytes]]:
    with logdb.open(path, read_only=True) as db:
        return list(db.scan())


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_into_a_directory(job: Callable[..., Job], tmp_path: Path, atomic: str) -> None:
    path = str(tmp_path / "db")
    write = job(path=path, atomic=atomic, label="spark")
    messages = [write.task(part) for part in (0, 2)]
    with pytest.raises(ConnectionError):
        write.task(1, fails_after=5)
    assert contents(path) == []
    write.commit(*messages, write.task(1))
    assert contents(path) == EXPECTED
    assert not (tmp_path / "db" / "exports").exists()
    with logdb.open(path) as db:
        commits = list(db.watch(since=0, timeout=0))
    assert [len(commit.changes) for commit in commits] == ([21] if atomic == "true" else [3, 3, 1] * 3)
    assert {commit.label for commit in commits} == {"spark"}


def test_a_repeated_named_job_writes_the_missing_rows(
    job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "db")
    put, calls = transactions.NumberedTransactions.put, []

    def dying(self: Any, items: Any, label: str = "") -> None:
        if len(calls) == 4:
            raise KeyboardInterrupt
        calls.append(items)
        put(self, items, label)

    write = job(path=path, jobId="nightly")
    with monkeypatch.context() as patched:
        patched.setattr(transactions.NumberedTransactions, "put", dying)
        with pytest.raises(KeyboardInterrupt):
            write.commit(*(write.task(part) for part in range(3)))
    assert len(contents(path)) == 10
    with logdb.open(path) as db:
        db.put(b"0/0", b"changed since")
    for _ in range(2):
        again = job(path=path, jobId="nightly")
        again.commit(*(again.task(part) for part in range(3)))
        assert contents(path) == [(b"0/0", b"changed since"), *EXPECTED[1:]]
    with logdb.open(path) as db:
        assert sum(len(commit.changes) for commit in db.watch(since=0, timeout=0)) == 22


def test_a_directory_that_is_open_for_writing_is_not_written(job: Callable[..., Job], open_small: OpenSmall) -> None:
    db = open_small()
    with pytest.raises(logdb.DatabaseInUse, match="let that serve it, and write to its endpoints"):
        job(path=db.path)
    db.close()
    write = job(path=db.path)
    messages = [write.task(0)]
    db = open_small()
    with pytest.raises(logdb.Unavailable, match="let that process serve it, and write to its endpoints"):
        write.commit(*messages)
    assert list(db.scan()) == []
    write = LogDBWriter(write.writer._target, write.writer._folder)
    write.abort([])
    assert not (Path(db.path) / "exports").exists()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    server = Served(tmp_path / "served")
    yield server
    server.close()


def test_to_servers_a_repeated_task_writes_once(job: Callable[..., Job], served: Served) -> None:
    write = job(endpoints=served.address)
    with pytest.raises(ConnectionError):
        write.task(0, fails_after=5)
    with logdb.connect(served.address) as db:
        marks = list(db.scan(prefix=COUNTERS))
        assert len(marks) == 1
        assert list(db.scan(end=COUNTERS)) == PARTS[0][:3]
        db.put(b"0/0", b"changed since")
        write.commit(*(write.task(part) for part in (0, 1, 2, 1)))
        assert list(db.scan()) == [(b"0/0", b"changed since"), *EXPECTED[1:]]
        named = [job(endpoints=served.address, jobId="nightly") for _ in range(2)]
        for write in named:
            write.commit(write.task(0, [(b"x", b"1"), (b"y", None), (b"0/6", None)]))
            db.put(b"x", b"2")
        assert db.get(b"x") == b"2"
        assert b"0/6" not in db
        assert [key for key, _ in db.scan(prefix=COUNTERS)] == [COUNTERS + b"nightly/3/0"]


@pytest.mark.parametrize("changed", [{"batchRows": "5"}, {"atomic": "true"}])
def test_a_named_job_that_is_repeated_with_other_transactions_loses_no_rows(
    job: Callable[..., Job], served: Served, tmp_path: Path, changed: dict[str, str]
) -> None:
    path = str(tmp_path / "db")
    for place in ({"path": path}, {"endpoints": served.address}):
        interrupted = job(jobId="nightly", batchRows="1", **place)
        interrupted.commit(interrupted.task(0, PARTS[0][:2]))
        again = job(**{"jobId": "nightly", "batchRows": "1", **place, **changed})
        again.commit(again.task(0))
    assert contents(path) == PARTS[0]
    with logdb.connect(served.address) as db:
        assert list(db.scan(end=COUNTERS)) == PARTS[0]


def test_one_of_two_concurrent_attempts_counts(served: Served) -> None:
    with logdb.connect(served.address) as db:
        one, other = (CountedBatches(db, "job", 0) for _ in range(2))
        one.put({b"k": b"1"}, "")
        db.put(b"k", b"changed since")
        other.put({b"k": b"1"}, "")
        other.put({b"l": b"1"}, "")
        one.put({b"l": b"2"}, "")
        assert db.multi_get([b"k", b"l"]) == {b"k": b"changed since", b"l": b"1"}


def test_an_atomic_job_at_servers(job: Callable[..., Job], served: Served) -> None:
    write = job(endpoints=served.address, atomic="true")
    with logdb.connect(served.address) as db:
        messages = [write.task(part) for part in range(3)]
        assert list(db.scan()) == []
        write.commit(*messages)
        assert list(db.scan()) == EXPECTED
        (commit, _) = db.watch(since=0, timeout=0)
        assert len(commit.changes) == 22


def test_a_stream_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "db")
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    source = LogDBSource({"path": path, "jobId": "stream"})
    for batch, value in ((0, b"first"), (1, b"second"), (1, b"again")):
        writer = pickle.loads(pickle.dumps(source.streamWriter(planning.struct(SCHEMA), False)))
        rows = [pa.RecordBatch.from_pydict({"key": [b"k"], "value": [value]})]
        writer.commit([writer.write(iter(rows))], batch)
    assert contents(path) == [(b"k", b"second")]
    with pytest.raises(ValueError, match="a stream that is written needs a jobId"):
        LogDBSource({"path": path}).streamWriter(planning.struct(SCHEMA), False)


def test_a_stream_leaves_no_counters_of_earlier_batches(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    source = LogDBSource({"endpoints": served.address, "jobId": "stream"})
    with logdb.connect(served.address) as db:
        for batch in (*range(8), 7, 6):
            writer = pickle.loads(pickle.dumps(source.streamWriter(planning.struct(SCHEMA), False)))
            rows = [pa.RecordBatch.from_pydict({"key": [b"%d" % batch], "value": [b"v"]})]
            writer.commit([writer.write(iter(rows))], batch)
        assert [key for key, _ in db.scan(end=COUNTERS)] == [b"%d" % batch for batch in range(8)]
        assert len([key for key, _ in db.scan(prefix=COUNTERS)]) == 2
        assert sum(len(commit.changes) for commit in db.watch(since=0, timeout=0)) == 2 * 8 + 6


def test_documents_and_text(job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "db")
    write = job("key STRING, n INT, name STRING, _rescued_data STRING", path=path, codec="json")
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    columns = {"key": ["k", "l"], "n": [1, None], "name": ["wörld", "x"], "_rescued_data": [None, '{"n":[1.5],"m":2}']}
    write.commit(write.writer.write(iter([pa.RecordBatch.from_pydict(columns)])))
    assert contents(path) == [
        (b"k", '{"n":1,"name":"wörld"}'.encode()),
        (b"l", b'{"n":[1.5],"name":"x","m":2}'),
    ]


KINDS = StructType(
    [
        StructField("key", StringType()),
        StructField("map", MapType(StringType(), LongType())),
        StructField("decimal", DecimalType(20, 2)),
        StructField("bytes", BinaryType()),
        StructField("at", TimestampType()),
        StructField("list", ArrayType(DoubleType())),
        StructField("inner", StructType([StructField("day", DateType()), StructField("local", TimestampNTZType())])),
    ]
)


def test_documents_of_all_types_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, moment = str(tmp_path / "db"), dt.datetime(2024, 5, 1, 12, 0, 0, 250_000)
    row: dict[str, Any] = {
        "key": "k",
        "map": [("a", 2**62), ("b", None)],
        "decimal": Decimal("123456789012345678.10"),
        "bytes": b"\xff\0",
        "at": moment.replace(tzinfo=dt.UTC),
        "list": [0.1, None, 1e300],
        "inner": {"day": moment.date(), "local": moment},
    }
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    source = LogDBSource({"path": path, "codec": "json"})
    writer = source.writer(KINDS, False)
    batch = pa.RecordBatch.from_pylist([row], to_arrow_schema(KINDS, timezone="UTC"))
    writer.commit([writer.write(iter([batch]))])
    (partition,) = (reader := LogDBSource({"path": path, "codec": "json"}).reader(KINDS)).partitions()
    assert [one for some in reader.read(partition) for one in some.to_pylist()] == [row]


@pytest.mark.parametrize(
    ("sample", "values"),
    [
        (1, [b'{"a":[1,"x"]}', b'{"a":"[1]"}', b'{"a":2.5}']),
        (2, [b'{"a":5}', b'{"a":12345678901234567890}', b'{"a":-1}', b'{"a":12345678901234567890123.5}']),
        (1, [b'{"a":1%s,"b":[1.50]}' % (20 * b"0"), b'{"a":0,"b":[[12345678901234567890123.5],{}]}']),
        (1, [b'{"a":1%s}' % (20 * b"0"), b'{"a":"5"}', b'{"a":1.50,"b":{"c":[12345678901234567890123.5,{}]}}']),
    ],
)
def test_documents_that_were_read_are_written_unchanged(
    sample: int, values: list[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = str(tmp_path / "db")
    with logdb.open(path) as db:
        db.multi_put({b"%d" % number: value for number, value in enumerate(values)})
    source = LogDBSource({"path": path, "codec": "json", "sampleValues": str(sample)})
    schema = StructType([field for field in source.schema().fields if field.name != "version"])
    reader = source.reader(schema)
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    writer = LogDBSource({"path": str(tmp_path / "copy"), "codec": "json"}).writer(schema, False)
    writer.commit([writer.write(reader.read(reader.partitions()[0]))])
    assert [value for _, value in contents(str(tmp_path / "copy"))] == values


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (DoubleType(), math.nan, "the row of key b'k' cannot be JSON: Out of range float values"),
        (ArrayType(DoubleType()), [math.inf], "the row of key b'k' cannot be JSON: Out of range float values"),
        (TimestampType(), 10**18, "the row of key b'k' cannot be JSON: date value out of range"),
        (MapType(LongType(), LongType()), None, "the column n has a map whose keys are not strings"),
        (VariantType(), None, "the column n is variant, which JSON does not have"),
        (YearMonthIntervalType(), None, "the column n is interval year to month, which JSON does not have"),
    ],
)
def test_values_that_are_not_json(
    kind: DataType, value: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(writing, "partition_id", lambda: 0)
    schema = StructType([StructField("key", StringType()), StructField("n", kind)])
    with pytest.raises(ValueError, match=message):
        writer = LogDBSource({"path": str(tmp_path / "db"), "codec": "json"}).writer(schema, False)
        arrow = to_arrow_schema(schema, timezone="UTC")
        writer.write(
            iter([pa.RecordBatch.from_arrays([["k"], pa.array([value], arrow.field("n").type)], schema=arrow)])
        )


def test_rows_that_cannot_be_written(job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "db")
    for schema, options, message in (
        ("value BINARY", {}, "has no column key"),
        ("key BINARY, carrier STRING", {}, "must be key and value, not key, carrier; documents need a codec"),
        ("key INT, value BINARY", {}, "the column key must be BINARY or STRING, not int"),
        ("key STRING, version LONG", {"codec": "json"}, "the column version is not part of the documents"),
        (SCHEMA, {"overwrite": True}, r"rows are added to a database: .mode\("),
        (SCHEMA, {"prefix": "a"}, "prefix does not go with this: it is for reading"),
        (SCHEMA, {"endpoints": "a:1"}, "give path or endpoints"),
    ):
        with pytest.raises(ValueError, match=message):
            job(schema, path=path, **options)
    with pytest.raises(ValueError, match="atomic does not go with this: it is for writing"):
        planning.read(path, SCHEMA, atomic="true")
    monkeypatch.setattr(writing, "MAX_TRANSACTION_BYTES", 10)
    with pytest.raises(logdb.TransactionTooLarge, match="with atomic"):
        job(path=path, atomic="true").task(0)
    with pytest.raises(ValueError, match="the column key is null"):
        job(path=path).task(0, [(None, b"v")])
    with pytest.raises(logdb.KeyTooLarge):
        write = job(path=path)
        write.commit(write.task(0, [(b"k" * 9_000, b"v")]))
    with pytest.raises(logdb.Unavailable, match=r"127\.0\.0\.1:1"):
        job(endpoints="127.0.0.1:1", timeout="1").task(0)
