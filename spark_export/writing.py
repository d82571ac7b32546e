"""`df.write.format("logdb")`: the rows of a DataFrame into a database, in transactions, each applied once.

A row is a key and its new value, null to delete it. Rows of a partition go in by transactions of `batchRows`, in their
order; with `atomic` all rows of the job are one transaction (of 256 MiB at most).

*Into a directory* (`path`), which has one writer process: executors leave their rows in files there, and Spark's driver
writes those of the attempts that succeeded, which Spark has chosen, in its commit. No other process may have the
directory open for writing; if one has, let it serve the directory and write to its `endpoints`.

*To servers* (`endpoints`): executors write themselves, all at the same time; with `atomic` the driver does.

Spark repeats tasks, and people repeat jobs. Into a directory the transactions have ids made of the job, the partition
and the batch (`transactions`). At servers each transaction moves a key on that says how many batches of the partition
there are, `logdb-write/JOB/PARTITION`, and is refused if that has moved. When the job has a name (`jobId`), running it
again writes only what was not written yet, and those keys stay; otherwise they go when it has ended. Either way the
rows of a partition must come in the same order again, as they do from files and from whatever has been sorted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

import logdb
from logdb import Database
from logdb.directories import is_locked
from logdb.embedded.holds import Owner, make_folder, remove_folder
from logdb.errors import DatabaseInUse, NotADatabase, TransactionTooLarge, Unavailable
from logdb.store.limits import MAX_TRANSACTION_BYTES
from spark_export.columns import items as items_of
from spark_export.remote import Endpoints
from spark_export.transactions import Numbered

ROWS: Final = 1_000
BATCH_BYTES: Final = 8 << 20
MARKS: Final = b"logdb-write/"
IGNORED: Final = ("version", "old_value", "_change_type", "_commit_version", "_commit_timestamp", "_commit_label")
"""Columns that DataFrames read from a database have, and that are not written."""

Items = dict[bytes, bytes | None]


class Target(NamedTuple):
    """Where rows go, and how. `path` or `endpoints`; `named`: `job` is a name that the user has given; `texts`: the
    columns of JSON text."""

    path: str | None
    endpoints: Endpoints | None
    job: str
    named: bool
    codec: str | None
    texts: tuple[str, ...]
    label: str
    batch_rows: int
    atomic: bool

    def connected(self) -> Database:
        """The servers. Raises Unavailable."""
        assert self.endpoints is not None
        return self.endpoints.database()


class Rows(WriterCommitMessage):
    """The rows of a partition: in the file `where`, or here as Arrow IPC, or (None) written already."""

    def __init__(self, partition: int, size: int, where: str | bytes | None) -> None:
        self.partition, self.size, self.where = partition, size, where


class Folder(NamedTuple):
    """Where the executors leave rows for a directory, made by the driver."""

    path: Path

    @classmethod
    def made(cls, target: Target, owner: Owner) -> Folder:
        """A new one. Raises DatabaseInUse, NotADatabase."""
        assert target.path is not None
        directory = Path(target.path).absolute()
        try:
            logdb.open(directory, read_only=True).close()
        except NotADatabase:
            logdb.open(directory).close()
        if is_locked(directory):
            raise DatabaseInUse(directory, "another process; or let that serve it, and write to its endpoints")
        return cls(make_folder(directory, owner))


class LogDBWriter(DataSourceArrowWriter):
    """Writes a DataFrame. `folder`: of a target that is a directory."""

    def __init__(self, target: Target, folder: Folder | None) -> None:
        self._target, self._folder = target, folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        target, partition = self._target, partition_id()
        if self._folder is None and not target.atomic:
            with target.connected() as db:
                marked = Marked(db, target.job, partition)
                for items in batches(iterator, target):
                    marked.put(items, target.label)
            return Rows(partition, 0, None)
        return left(iterator, target, self._folder, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        finish(self._target, self._folder, messages, self._target.job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._folder is not None:
            remove_folder(self._folder.path)


class LogDBStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, through the driver: each batch under a name of its own, so that it is written once."""

    def __init__(self, target: Target, folder: Folder | None) -> None:
        self._target, self._folder = target, folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return left(iterator, self._target, self._folder, partition_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        finish(self._target, self._folder, messages, f"{self._target.job}/{batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._folder is not None:
            remove_folder(self._folder.path)


def partition_id() -> int:
    """The number of the partition that this task writes."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


class Marked:
    """The batches of a partition that is written to servers, of which a key tells how many there are."""

    def __init__(self, db: Database, job: str, partition: int) -> None:
        self._db, self._mark = db, MARKS + f"{job}/{partition}".encode()
        self._done = int(db.get(self._mark, b"0"))
        self._count = 0

    def put(self, items: Items, label: str) -> None:
        """Write the next batch, unless it was written before."""
        self._count += 1
        while self._done < self._count:
            before = logdb.equals(self._mark, b"%d" % self._done) if self._done else logdb.absent(self._mark)
            try:
                writes = {**items, self._mark: b"%d" % self._count}
                answer = self._db.test_and_multi_put([before], writes, label=label)
                if answer.committed:
                    self._done = self._count
                    return
            except logdb.OutcomeUnknown:
                pass
            self._done = int(self._db.get(self._mark, b"0"))


def left(iterator: Iterator[pa.RecordBatch], target: Target, folder: Folder | None, partition: int) -> Rows:
    """Leave rows for the driver: in a file of the folder, or in the message. Raises ValueError, TransactionTooLarge."""
    name = None
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)  # a stream makes one, and each of its batches removes it
        name = str(folder.path / f"{partition}-{uuid.uuid4().hex}.arrow")
    sink = pa.BufferOutputStream() if name is None else pa.OSFile(name, "wb")
    schema = pa.schema([("key", pa.large_binary()), ("value", pa.large_binary())])
    size = 0
    with pa.ipc.new_stream(sink, schema) as writer:
        for items in batches(iterator, target):
            size += sum(len(key) + len(value or b"") for key, value in items.items())
            if target.atomic and size > MAX_TRANSACTION_BYTES:
                raise TransactionTooLarge(size, MAX_TRANSACTION_BYTES, ", with atomic,")
            writer.write_batch(pa.record_batch([list(items), list(items.values())], schema=schema))
    if name is None:
        return Rows(partition, size, sink.getvalue().to_pybytes())
    sink.close()
    return Rows(partition, size, name)


def finish(target: Target, folder: Folder | None, messages: Sequence[WriterCommitMessage | None], job: str) -> None:
    """Write what the executors have left, in the order of the partitions, and leave nothing else of the job."""
    some = sorted((message for message in messages if isinstance(message, Rows)), key=lambda rows: rows.partition)
    try:
        if target.path is not None:
            try:
                with logdb.open(target.path) as db:
                    _write(db, target, some, job)
            except DatabaseInUse as error:
                raise Unavailable(f"{error}; or let that process serve it, and write to its endpoints") from None
        else:
            with target.connected() as db:
                _write(db, target, some, job)
                if not target.named:
                    marks = [key for key, _ in db.scan(prefix=MARKS + f"{job}/".encode())]
                    db.multi_put(dict.fromkeys(marks))
    finally:
        if folder is not None:
            remove_folder(folder.path)


def _write(db: Database, target: Target, some: Sequence[Rows], job: str) -> None:
    if target.atomic:
        size = sum(rows.size for rows in some)
        if size > MAX_TRANSACTION_BYTES:
            raise TransactionTooLarge(size, MAX_TRANSACTION_BYTES, ", with atomic,")
        everything: Items = {}
        for rows in some:
            for items in _taken(rows):
                everything.update(items)
        if everything:
            _sink(db, target, job, 0).put(everything, target.label)
        return
    for rows in some:
        if rows.where is not None:
            sink = _sink(db, target, job, rows.partition)
            for items in _taken(rows):
                sink.put(items, target.label)


def _sink(db: Database, target: Target, job: str, partition: int) -> Numbered | Marked:
    return Marked(db, job, partition) if target.path is None else Numbered(db, f"write {job} {partition}")


def _taken(rows: Rows) -> Iterator[Items]:
    assert rows.where is not None
    source = pa.memory_map(rows.where) if isinstance(rows.where, str) else pa.BufferReader(rows.where)
    with source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def batches(iterator: Iterator[pa.RecordBatch], target: Target) -> Iterator[Items]:
    """The rows as what transactions write; of a key that comes twice in one, the last. Raises ValueError."""
    items: Items = {}
    size = 0
    for batch in iterator:
        for key, value in items_of(batch, target.codec, target.texts):
            items[key] = value
            size += len(key) + len(value or b"")
            if len(items) >= target.batch_rows or size >= BATCH_BYTES:
                yield items
                items, size = {}, 0
    if items:
        yield items
