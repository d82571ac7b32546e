"""`df.write.format("logdb")`: writes the rows of a DataFrame to a database, in transactions that are applied once.

A row is a key and its new value; null deletes the key. The rows of a partition are written in their order by
transactions of `batchRows`; with `atomic` all rows of the job are one transaction (of 256 MiB at most).

*A directory* (`path`) has one writer process. Executors spool their rows to files there, and Spark's driver writes
those of the attempts that Spark has chosen when it commits the job. No other process may have the directory open for
writing; if one has, let it serve the directory, and write to its `endpoints`.

*Servers* (`endpoints`) take writes from all executors at the same time; with `atomic` from the driver.

Spark repeats tasks, and users repeat jobs. In a directory the ids of transactions follow from the job, the partition
and the batch (`transactions`). At servers a key counts the written batches of a partition, `logdb-write/JOB/PARTITION`;
each transaction advances it and is refused if it has changed. With a name of the job (`jobId`) another run writes only
what was not written yet, and the counters stay, except those of a stream's earlier batches; without, the job deletes
them at its end. In both cases a repeated partition must have the same rows in the same order, as it has when it comes
from files or was sorted. With another `batchRows` or `atomic` the batches have other rows, so such a run is another job
and writes all rows.
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
from logdb.embedded.external_leases import LeaseOwner, make_folder, remove_folder
from logdb.errors import DatabaseInUse, NotADatabase, TransactionTooLarge, Unavailable
from logdb.store.limits import MAX_TRANSACTION_BYTES
from logdb.store.records import unversioned_key
from logdb.system.directories import is_locked
from spark_export.columns import written_items
from spark_export.endpoints import Endpoints
from spark_export.entries import append_entries, written_entries
from spark_export.transactions import NumberedTransactions

ROWS: Final = 1_000
BATCH_BYTES: Final = 8 << 20
COUNTERS: Final = b"logdb-write/"
IGNORED: Final = ("version", "old_value", "_change_type", "_commit_version", "_commit_timestamp", "_commit_label")
"""Columns of DataFrames that were read from a database; they are not written."""

Items = dict[bytes, bytes | None]


class Target(NamedTuple):
    """Where and how rows are written: to `path` or to `endpoints`. `job`: the name of the job, with the size of its
    batches; `named`: the user has given the name; `texts`: the columns of JSON text; `log`: the named log that the rows
    are appended to, instead of keys."""

    path: str | None
    endpoints: Endpoints | None
    job: str
    named: bool
    codec: str | None
    texts: tuple[str, ...]
    label: str
    batch_rows: int
    atomic: bool
    log: str | None = None

    def connected(self) -> Database:
        """Connect to the servers. Raises Unavailable."""
        assert self.endpoints is not None
        return self.endpoints.database()


class SpooledRows(WriterCommitMessage):
    """The rows of a partition as Arrow IPC: in a file (its name), in this message (bytes), or written (None)."""

    def __init__(self, partition: int, size_bytes: int, content: str | bytes | None) -> None:
        self.partition, self.size_bytes, self.content = partition, size_bytes, content


class SpoolFolder(NamedTuple):
    """The folder in which executors spool rows for a directory; the driver makes it."""

    path: Path

    @classmethod
    def make(cls, target: Target, owner: LeaseOwner) -> SpoolFolder:
        """Make a folder. Raises DatabaseInUse, NotADatabase."""
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
    """Writes a DataFrame. `folder`: for a target that is a directory."""

    def __init__(self, target: Target, folder: SpoolFolder | None) -> None:
        self._target, self._folder = target, folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        target, partition = self._target, partition_id()
        if self._folder is None and not target.atomic:
            with target.connected() as db:
                counted = CountedBatches(db, target.job, partition, target.log)
                for items in batches(iterator, target):
                    counted.put(items, target.label)
            return SpooledRows(partition, 0, None)
        return spool(iterator, target, self._folder, partition)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        target = self._target
        finish(target, self._folder, messages, target.job, ended="" if target.named else target.job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._folder is not None:
            remove_folder(self._folder.path)


class LogDBStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream through the driver. Each batch has a name of its own and is written once."""

    def __init__(self, target: Target, folder: SpoolFolder | None) -> None:
        self._target, self._folder = target, folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return spool(iterator, self._target, self._folder, partition_id())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        job = self._target.job  # Spark repeats only the last batch
        finish(self._target, self._folder, messages, f"{job}/{batchId}", ended=f"{job}/{batchId - 2}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._folder is not None:
            remove_folder(self._folder.path)


def partition_id() -> int:
    """The number of the partition that this task writes."""
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


class CountedBatches:
    """Writes the batches of a partition to servers, each once: a key counts them."""

    def __init__(self, db: Database, job: str, partition: int, log: str | None = None) -> None:
        self._log, self._db, self._counter = log, db, COUNTERS + f"{job}/{partition}".encode()
        self._done = int(db.get(self._counter, b"0"))
        self._count = 0

    def put(self, items: Items, label: str) -> None:
        """Write the next batch unless it was written before."""
        self._count += 1
        while self._done < self._count:
            try:
                if self._is_written(items, label):
                    self._done = self._count
                    return
            except logdb.OutcomeUnknown:
                pass
            self._done = int(self._db.get(self._counter, b"0"))

    def _is_written(self, items: Items, label: str) -> bool:
        """Write the batch if the counter is as before."""
        if self._log is None:
            before = logdb.equals(self._counter, b"%d" % self._done) if self._done else logdb.absent(self._counter)
            writes = {**items, self._counter: b"%d" % self._count}
            return self._db.test_and_multi_put([before], writes, label=label).committed
        try:
            with self._db.transaction(label=label) as txn:
                if int(txn.get(self._counter, b"0")) != self._done:
                    return False
                append_entries(txn, self._log, items, lambda ids: next(txn.scan(*ids, reverse=True, limit=1), None))
                txn.put(self._counter, b"%d" % self._count)
        except logdb.ConflictError:
            return False
        return True


def spool(
    iterator: Iterator[pa.RecordBatch], target: Target, folder: SpoolFolder | None, partition: int
) -> SpooledRows:
    """Spool rows for the driver, to a file or into the message. Raises ValueError, TransactionTooLarge."""
    name = None
    if folder is not None:
        folder.path.mkdir(parents=True, exist_ok=True)  # a stream makes the folder once, and each batch removes it
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
        return SpooledRows(partition, size, sink.getvalue().to_pybytes())
    sink.close()
    return SpooledRows(partition, size, name)


def finish(
    target: Target, folder: SpoolFolder | None, messages: Sequence[WriterCommitMessage | None], job: str, *, ended: str
) -> None:
    """Write the spooled rows in the order of the partitions, and remove the folder of the job. `ended`: the job, or the
    batch of a stream, that is not repeated, so that its counters are deleted; "" without."""
    spooled = [message for message in messages if isinstance(message, SpooledRows)]
    spooled.sort(key=lambda rows: rows.partition)
    try:
        if target.path is not None:
            try:
                with logdb.open(target.path) as db:
                    _write(db, target, spooled, job)
            except DatabaseInUse as error:
                raise Unavailable(f"{error}; or let that process serve it, and write to its endpoints") from None
        else:
            with target.connected() as db:
                _write(db, target, spooled, job)
                if ended and (counters := [key for key, _ in db.scan(prefix=COUNTERS + f"{ended}/".encode())]):
                    db.multi_put(dict.fromkeys(counters))
    finally:
        if folder is not None:
            remove_folder(folder.path)


def _write(db: Database, target: Target, spooled: Sequence[SpooledRows], job: str) -> None:
    if target.atomic:
        size = sum(rows.size_bytes for rows in spooled)
        if size > MAX_TRANSACTION_BYTES:
            raise TransactionTooLarge(size, MAX_TRANSACTION_BYTES, ", with atomic,")
        everything: Items = {}
        for rows in spooled:
            for items in _read_spooled(rows):
                if target.log is None:
                    everything.update(items)
                else:
                    values = enumerate(items.values(), len(everything))
                    everything.update((unversioned_key(b"", number), value) for number, value in values)
        if everything:
            _sink(db, target, job, 0).put(everything, target.label)
        return
    for rows in spooled:
        if rows.content is not None:
            sink = _sink(db, target, job, rows.partition)
            for items in _read_spooled(rows):
                sink.put(items, target.label)


def _sink(db: Database, target: Target, job: str, partition: int) -> NumberedTransactions | CountedBatches:
    if target.path is None:
        return CountedBatches(db, job, partition, target.log)
    return NumberedTransactions(db, f"write {job} {partition}", target.log)


def _read_spooled(rows: SpooledRows) -> Iterator[Items]:
    assert rows.content is not None
    source = pa.memory_map(rows.content) if isinstance(rows.content, str) else pa.BufferReader(rows.content)
    with source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield dict(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def batches(iterator: Iterator[pa.RecordBatch], target: Target) -> Iterator[Items]:
    """Group rows into transactions; of several rows with one key, a transaction has the last. Raises ValueError."""
    items: Items = {}
    size = 0
    rows: Iterator[tuple[bytes, bytes | None]]
    if target.log is None:
        rows = (row for batch in iterator for row in written_items(batch, target.codec, target.texts))
    else:
        rows = written_entries(iterator, target.log)
    for key, value in rows:
        items[key] = value
        size += len(key) + len(value or b"")
        if len(items) >= target.batch_rows or size >= BATCH_BYTES:
            yield items
            items, size = {}, 0
    if items:
        yield items
