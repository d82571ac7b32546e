"""The Spark data source `logdb`: a database directory as DataFrames, read from the files of its log.

    spark.read.format("logdb").option("versionAsOf", 42).option("prefix", "flight/").load("data")

A row is a live key: `key` BINARY, `value` BINARY, `version` LONG, the version that wrote it. The rows are exactly those
of `db.at(version=...).scan()`.

`load()` fixes the version, also when none is named, and keeps the log's files: the DataFrame shows that one snapshot
however often it is used, whatever is written or compacted meanwhile. The files go when the Spark application has ended
and the directory is next read by one (`logdb.embedded.plan`). The executors read the log themselves (`runs`), so they
must see the directory; partitions are key ranges in order.

    spark.read.format("logdb").option("readChangeFeed", "true").option("startingVersion", 42).load("data")

A row is a key that a transaction wrote: `key`, `value` (null where it was deleted), `_change_type` (insert, update,
delete), `_commit_version`, `_commit_timestamp`, as `db.watch` tells it; partitions are stretches of the log
(`changes`).

    spark.readStream.format("logdb").option("readChangeFeed", "true").load("data")

The same as a stream (`stream`). Without readChangeFeed a stream has `key`, `value`, `version`, which costs less: nobody
needs to know what was there before.

Filters on the key or the version (comparisons with a constant) are pushed down in batches: keys out of range are
dropped as they are decoded, and segments of other versions are not read. `register` turns that on in the session
(`spark.sql.python.filterPushdown.enabled`).

Options:

path               the directory
endpoints          or the servers, "host:port,host:port": a server of a directory, or any nodes of a cluster
versionAsOf        the version (default: the newest)
timestampAsOf      instead: the version at that time, ISO 8601 (in the time zone of Spark's session if it names none) or
                   seconds since the epoch
readChangeFeed     true: changes
startingVersion    the first version whose changes are wanted; for streams also latest (the default) or oldest
endingVersion      the last one (default: the newest)
oldValues          true: changes have a column `old_value`, what the key held before
labels             true: changes have a column `_commit_label`, the label of the transaction, "" if it had none
maxRowsPerTrigger  a batch of a stream has at most so many rows, but one transaction at least
prefix             only keys that begin with this text (as UTF-8); prefixHex: with these bytes, in hexadecimal
startKey           only keys from this one on; startKeyHex in hexadecimal
endKey             only keys before this one; endKeyHex in hexadecimal
codec              json: values are JSON objects, as `logdb import` makes them, and their fields are columns: those that
                   `.schema(...)` names, or else those that the first 1,000 values have, with a column
                   `_rescued_data` for what does not fit (`documents`)
partitionBytes     bytes of log for each partition (default: 128 MiB)
snapshot           instead of path and version: the folder of a pinned snapshot
timeout            seconds that servers have for an answer (default: 30)
ca, certificate, certificateKey, token
                   what is shown to servers, as for `logdb.connect`
scratch            a directory for what tasks leave for each other, if servers are read by executors on several machines
                   (default: that for temporary files)

    df.write.format("logdb").mode("append").save("data")

writes the columns `key` and `value` (BINARY or STRING, a null value deletes), and so does `writeStream` (`writing`):

path, endpoints    where to: a directory that nobody has open for writing, or the addresses of servers
codec              json: the other columns become a JSON object, with what is in `_rescued_data`
batchRows          rows of a transaction (default: 1,000)
atomic             true: all rows are one transaction
jobId              a name by which a job that is repeated is known, so that it writes what was not written
label              of the transactions

`.schema(...)` chooses columns, and may ask for key and value as STRING (`columns`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

import logdb
from logdb.embedded.plan import load, pin
from logdb.errors import LogDBError
from spark_export import changes
from spark_export.changes import Changes
from spark_export.columns import CODECS, Asked, asked, check_written
from spark_export.decoding import AnyPlan, KeyRange
from spark_export.documents import RESCUED, learned
from spark_export.failure import task
from spark_export.filters import Bounds
from spark_export.options import SERVERS, Options, application, zone_named
from spark_export.remote import Endpoints, laid_out
from spark_export.runs import ROWS, STRETCH_BYTES, Runs
from spark_export.stream import LATEST, OLDEST, LogDBStreamReader
from spark_export.writing import IGNORED, Folder, LogDBStreamWriter, LogDBWriter, Target
from spark_export.writing import ROWS as BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

RANGE: Final = ("prefix", "prefixHex", "startKey", "startKeyHex", "endKey", "endKeyHex")
EVERYWHERE: Final = ("path", *SERVERS, *RANGE, "codec", "partitionBytes", "readChangeFeed")
SNAPSHOT: Final = (*EVERYWHERE, "versionAsOf", "timestampAsOf", "snapshot", "startingVersion", "maxRowsPerTrigger")
WRITING: Final = ("label", "batchRows", "atomic", "jobId")
CHANGES: Final = (*EVERYWHERE, "startingVersion", "endingVersion", "oldValues", "labels", "maxRowsPerTrigger")
MOST_BYTES: Final = 1 << 30
"""Of log for a partition: a task holds it all."""
SAMPLED_VALUES: Final = 1_000
COLUMNS: Final = dict(zip(ROWS.names, ROWS.types, strict=True))


class LogDBSource(DataSource):
    """`spark.read.format("logdb")` and `spark.readStream.format("logdb")`.

    Raises ValueError for a wrong option, and as `logdb.embedded.plan.pin`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._is_feed = Options(options, (*SNAPSHOT, *CHANGES, *WRITING)).flag("readChangeFeed")
        self._given = given = Options(options, CHANGES if self._is_feed else (*SNAPSHOT, *WRITING))
        self._keys = given.keys()
        self._codec = given.choice("codec", CODECS)
        self._stretch_bytes = given.number("partitionBytes", least=1, most=MOST_BYTES) or STRETCH_BYTES
        self._with_old, self._with_labels = given.flag("oldValues"), given.flag("labels")
        self._since = _since(given)
        given.number("endingVersion", least=0)
        self._most_rows = given.number("maxRowsPerTrigger", least=1)
        self._fixed: AnyPlan | None = None

    @classmethod
    def name(cls) -> str:
        return "logdb"

    time_zone: str | None = None
    """That of Spark's session, set by `register`; None is local time."""

    def schema(self) -> StructType:
        if not self._is_feed:
            self._plan()
        key, value, *others = (StructField(name, from_arrow_type(kind)) for name, kind in self._columns().items())
        return StructType([key, *([value] if self._codec is None else self._fields()), *others])

    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse("maxRowsPerTrigger", "it is for streams")
        for name in WRITING:
            self._refuse(name, "it is for writing")
        plan = self._plan()
        columns = asked(schema, self._columns(), self._codec, self.time_zone, "timestampAsOf" in self._given)
        if self._is_feed:
            return ChangesReader(plan, self._keys, columns, self._stretch_bytes)
        self._refuse("startingVersion", "it goes with readChangeFeed, or a stream")
        return SnapshotReader(plan, self._keys, columns, self._stretch_bytes)

    def streamReader(self, schema: StructType) -> LogDBStreamReader:  # noqa: N802
        for name in ("versionAsOf", "timestampAsOf", "snapshot", "endingVersion"):
            self._refuse(name, "a stream begins at startingVersion and has no end")
        if self._fixed is not None:
            self._fixed.close()
        columns = asked(schema, self._columns(), self._codec, self.time_zone, "timestampAsOf" in self._given)
        since = LATEST if self._since is None else self._since
        where, scratch, size = self._given.where(), self._given.text("scratch"), self._stretch_bytes
        return LogDBStreamReader(where, scratch, self._keys, columns, since, self._most_rows, size)

    def writer(self, schema: StructType, overwrite: bool) -> LogDBWriter:
        target = self._target(schema, overwrite)
        return LogDBWriter(target, None if target.path is None else Folder.made(target, application()))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogDBStreamWriter:  # noqa: N802
        target = self._target(schema, overwrite)
        if not target.named:
            raise ValueError("a stream that is written needs a jobId, by which a batch that is repeated is known")
        return LogDBStreamWriter(target, None if target.path is None else Folder.made(target, application()))

    def _target(self, schema: StructType, overwrite: bool) -> Target:
        if overwrite:
            raise ValueError('rows are added to a database: .mode("append")')
        for name in (*SNAPSHOT, *CHANGES):
            if name not in ("path", "codec", *SERVERS):
                self._refuse(name, "it is for reading")
        given, where = self._given, self._given.where()
        texts = check_written(schema, self._codec, IGNORED)
        job = given.text("jobId")
        return Target(
            given.text("path"),
            where if isinstance(where, Endpoints) else None,
            job or uuid.uuid4().hex,
            job is not None,
            self._codec,
            texts,
            given.text("label") or "",
            given.number("batchRows", least=1) or BATCH_ROWS,
            given.flag("atomic"),
        )

    def _columns(self) -> dict[str, pa.DataType]:
        if not self._is_feed:
            return COLUMNS
        columns = dict(changes.COLUMNS)
        if self._with_old:
            old = {changes.OLD_VALUE: columns["value"]}
            columns = {"key": columns.pop("key"), "value": columns.pop("value"), **old, **columns}
        return {**columns, **({changes.LABEL: columns["_change_type"]} if self._with_labels else {})}

    def _refuse(self, name: str, why: str) -> None:
        if name in self._given:
            raise ValueError(f"{name} does not go with this: {why}")

    # ---- the version that `load()` fixes

    def __getstate__(self) -> dict[str, Any]:
        """What Spark takes along at the end of `load()`, so that every use of the DataFrame has the same version.

        A stream has no such version, and only what is asked next tells that this is none: it hears of errors then.
        """
        with contextlib.suppress(LogDBError, ValueError):
            self._plan()
        return self.__dict__

    def _plan(self) -> AnyPlan:
        if self._fixed is None:
            self._fixed = self._pinned()
        return self._fixed

    def _pinned(self) -> AnyPlan:
        given = self._given
        snapshot = given.text("snapshot")
        if snapshot is not None:
            return load(Path(snapshot))
        where = given.where()
        if self._is_feed:
            if not isinstance(self._since, int):
                raise ValueError("changes need a startingVersion")
            version, time_ns, since = given.number("endingVersion", least=0), None, self._since
        else:
            version, since = given.number("versionAsOf", least=0), None
            time_ns = given.time_ns("timestampAsOf", zone_named(self.time_zone))
        if isinstance(where, Path):
            return pin(where, version=version, time_ns=time_ns, since=since, owner=application())
        return laid_out(
            where,
            version=version,
            time_ns=time_ns,
            since=since,
            part_bytes=self._stretch_bytes,
            scratch_in=given.text("scratch"),
            shared=True,
        )

    def _fields(self) -> list[StructField]:
        """The columns for documents, as a sample of the values shows them."""
        low, high = self._keys
        where = self._given.where()
        with logdb.open(where, read_only=True) if isinstance(where, Path) else where.database() as db:
            view = db.at(self._plan().version) if not self._is_feed else db.at(db.version)
            rows = islice(view.scan(start=low, end=high), SAMPLED_VALUES)
            if (first := next(rows, None)) is None:
                raise ValueError("there are no values to learn the columns from: name them with .schema(...)")
            fields = learned(chain([first], rows), (*self._columns(), RESCUED))
        return [*fields, StructField(RESCUED, StringType())]


class Range(InputPartition):
    """The partition `number`: some keys."""

    def __init__(self, number: int, keys: KeyRange) -> None:
        super().__init__(number)
        self.number, self.keys = number, keys


class SnapshotReader(DataSourceReader):
    """Reads one snapshot, by key range."""

    def __init__(self, plan: AnyPlan, keys: KeyRange, columns: Asked, stretch_bytes: int) -> None:
        self._plan, self._columns, self._stretch_bytes = plan, columns, stretch_bytes
        self._bounds = Bounds(keys, 0, plan.version)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._bounds, left = self._bounds.narrowed(filters, "version", self._columns.plain)
        return left

    def partitions(self) -> list[InputPartition]:
        stretches = self._runs().stretches
        wanted = -(-sum(stretch.size for stretch in stretches) // self._stretch_bytes)
        return [Range(number, keys) for number, keys in enumerate(divided(self._plan, self._bounds.keys, wanted))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        with task(self._plan):
            runs, bounds = self._runs(), self._bounds
            runs.make(begin_with=partition.number)
            for batch in runs.merge(partition.keys, fetch=self._columns.needs_values):
                if bounds.most < self._plan.version:
                    batch = batch.filter(pc.less_equal(batch.column("version"), bounds.most))
                yield self._columns.batch(dict(zip(ROWS.names, batch.columns, strict=True)))

    def _runs(self) -> Runs:
        bounds, size = self._bounds, self._stretch_bytes
        return Runs(self._plan, bounds.keys, newer_than=bounds.least - 1, stretch_bytes=size)


class ChangesReader(DataSourceReader):
    """Reads the changes of a range of versions, by stretch of the log."""

    def __init__(self, plan: AnyPlan, keys: KeyRange, columns: Asked, stretch_bytes: int) -> None:
        assert plan.since is not None
        self._plan, self._columns, self._stretch_bytes = plan, columns, stretch_bytes
        self._bounds = Bounds(keys, plan.since + 1, plan.version)

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._bounds, left = self._bounds.narrowed(filters, "_commit_version", self._columns.plain)
        return left

    def partitions(self) -> list[InputPartition]:
        return [Range(number, self._bounds.keys) for number in range(len(self._changes().stretches))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Range):  # where there are no changes, Spark makes a partition of its own
            with task(self._plan):
                yield from self._changes().read(partition.number)

    def _changes(self) -> Changes:
        keys, least, most = self._bounds
        return Changes(self._plan, keys, least - 1, most, self._columns, self._stretch_bytes)


def divided(plan: AnyPlan, keys: KeyRange, wanted: int) -> list[KeyRange]:
    """A range of keys in as many ranges of about the same size, or as near to that as the plan's sample allows."""
    inner = [key for key in plan.sample if keys.low < key and (keys.high is None or key < keys.high)]
    count = max(1, min(wanted, len(inner)))
    bounds = [keys.low, *(inner[number * len(inner) // count] for number in range(1, count)), keys.high]
    return [KeyRange(low or b"", high) for low, high in pairwise(bounds)]


def _since(given: Options) -> int | str | None:
    """The version after which changes begin; LATEST, OLDEST or None."""
    if given.text("startingVersion") in (LATEST, OLDEST):
        return given.text("startingVersion")
    first = given.number("startingVersion", least=0)
    return None if first is None else max(first - 1, 0)
