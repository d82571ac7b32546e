"""The Spark data source `logdb`: a database as DataFrames, read from its log.

    spark.read.format("logdb").option("versionAsOf", 42).option("prefix", "flight/").load("data")

A row is a live key: `key` BINARY, `value` BINARY, `version` LONG, the version that wrote it. The rows are exactly those
of `db.at(version=...).scan()`.

`load()` fixes the version, also without `versionAsOf`. Of a directory it also keeps the files of the log: the DataFrame
shows one snapshot however often it is used, whatever is written or compacted meanwhile. The files go when the Spark
application has ended and another one reads the directory (`logdb.embedded.snapshot_plan`). Executors read the log
(`runs`), so they must see the directory. Partitions are key ranges, in order.

    spark.read.format("logdb").option("readChangeFeed", "true").option("startingVersion", 42).load("data")

A row is a key that a transaction wrote: `key`, `value` (null where it was deleted), `_change_type` (insert, update,
delete), `_commit_version`, `_commit_timestamp`, as `db.watch` reports it. Partitions are ranges of the log (`changes`).

    spark.readStream.format("logdb").option("readChangeFeed", "true").load("data")

The same as a stream (`stream`). Without readChangeFeed a stream has `key`, `value`, `version`, which costs less: its
tasks need not look up previous values.

With `register(spark, push_filters=True)` Spark pushes comparisons of the key or the version with a constant down to
batch queries (`FilteredReader`): tasks drop other keys while they decode, and skip segments of other versions.

Options:

path               the directory, also as a URI, file:/...
endpoints          or the servers, "host:port,host:port": a server of a directory, or any nodes of a cluster
versionAsOf        the version (default: the newest)
timestampAsOf      or the version at a time: ISO 8601 (without a zone: in that of Spark's session), or seconds since the
                   epoch
atVersion, atTime  the same two for tables of Spark's catalog (`catalog_tables`)
readChangeFeed     true: changes
startingVersion    the first version whose changes are read; for streams also latest (the default) or oldest
endingVersion      the last version whose changes are read (default: the newest)
startingTimestamp, endingTimestamp
                   or the changes of the commits from a time on, up to a time, as timestampAsOf
oldValues          true: changes have a column `old_value`, the value before
updateImages       true: an update is two rows, update_preimage with the old value and update_postimage with the new
                   one, and a deletion has the value that it deleted
labels             true: changes have a column `_commit_label`, the label of the transaction, "" if it had none
maxRowsPerTrigger  the largest number of changes in a batch of a stream; a batch has at least one transaction
maxBytesPerTrigger or the largest number of bytes of log
listing            versions: the commits that wrote something, instead of keys: `version`, `time`, `label`, `keys`
                   (how many it wrote or deleted), `deleted_ranges` (`versions`); from startingVersion to endingVersion,
                   or of times
prefix             only keys that begin with this text (as UTF-8); prefixHex: with these bytes, in hexadecimal
startKey           only keys from this one on; startKeyHex in hexadecimal
endKey             only keys before this one; endKeyHex in hexadecimal
log                a named log: a row is an entry, `version`, `index`, `txn_id`, `key`, `value` (`entries`); batches may
                   begin at startingVersion or startingTimestamp, or behind afterPosition, "VERSION.INDEX"
codec              json: values are JSON objects, as `logdb import` makes them, and their fields are columns: those that
                   `.schema(...)` names, or else those that the values have, with a column `_rescued_data` for what
                   does not fit (`documents`); or msgpack, avro or protobuf (`formats`)
sampleValues       find the columns in so many values only (default: all), which is faster
avroSchema         for avro: the schema of a record as JSON, or the file that has it
descriptorFile, messageName
                   for protobuf: the file that has the descriptors of messages, and the name of one
table, index       the rows of a table of `logdb.tables`, or the entries of an index of it, with the key and the fields
                   as columns (`row_keys`)
keyColumns         for a table: the names of the columns of its key, divided by commas
partitionBytes     bytes of log for each partition (default: 128 MiB)
snapshot           instead of path and version: the folder of a pinned snapshot
timeout            the timeout of a request to servers, in seconds (default: 30)
ca, certificate, certificateKey, token
                   the credentials for servers, as for `logdb.connect`
scratch            the directory for scratch folders, visible to all executors, where these run on several machines and
                   read servers (default: the one for temporary files)

    df.write.format("logdb").mode("append").save("data")

writes the columns `key` and `value` (BINARY or STRING, a null value deletes), and so does `writeStream` (`writing`):

path, endpoints    a directory that no other process has open for writing, or the addresses of servers
codec              json: the other columns become a JSON object, with the fields in `_rescued_data`
batchRows          the rows of a transaction (default: 1,000)
atomic             true: all rows are one transaction
jobId              the name of the job: another run with it, and the same batchRows and atomic, writes what was not
                   written yet
label              the label of the transactions

`.schema(...)` selects columns, and may read key and value as STRING (`columns`). Options of Spark's own, such as
mergeSchema, are ignored.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from logdb import Database
from logdb.errors import LogDBError
from logdb.named_logs.layout import Layout, Position, behind
from spark_export import changes, entries, versions
from spark_export.application import Application, current_application
from spark_export.catalog_tables import defines_table, split_options, with_options
from spark_export.changes import Changes
from spark_export.columns import CODECS, WRITABLE, OutputColumns, check_writable, select_columns
from spark_export.decoding import KeyRange
from spark_export.directory_source import pinned_snapshot
from spark_export.documents import RESCUED, JsonValues, infer_columns
from spark_export.endpoints import Endpoints
from spark_export.entries import EntryColumns, SelectedColumns, check_entries_writable
from spark_export.filters import Bounds
from spark_export.formats import AvroValues, MsgpackValues, ProtobufValues, ValueFormat
from spark_export.options import SERVERS, Options, given_options, local_path, zone_named
from spark_export.row_keys import RowKeys, Rows
from spark_export.runs import PARTITION_BYTES, ROWS, Runs
from spark_export.snapshot_source import Location, PlanRequest, SnapshotPlan, source_of
from spark_export.stream import LATEST, OLDEST, LogDBStreamReader, StartTime, before
from spark_export.task_errors import task
from spark_export.versions import VersionsReader
from spark_export.writing import IGNORED, LogDBStreamWriter, LogDBWriter, SpoolFolder, Target
from spark_export.writing import ROWS as BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

RANGE: Final = ("prefix", "prefixHex", "startKey", "startKeyHex", "endKey", "endKeyHex")
FORMAT: Final = ("sampleValues", "avroSchema", "descriptorFile", "messageName")
TABLE: Final = ("table", "index", "keyColumns")
EVERYWHERE: Final = ("path", *SERVERS, *RANGE, "codec", *FORMAT, *TABLE, "partitionBytes", "readChangeFeed")
SINCE: Final = ("startingVersion", "startingTimestamp")
UNTIL: Final = ("endingVersion", "endingTimestamp")
LIMITS: Final = ("maxRowsPerTrigger", "maxBytesPerTrigger")
SNAPSHOT: Final = (*EVERYWHERE, "versionAsOf", "timestampAsOf", "snapshot", *SINCE, *LIMITS)
WRITING: Final = ("label", "batchRows", "atomic", "jobId")
CHANGES: Final = (*EVERYWHERE, *SINCE, *UNTIL, "oldValues", "updateImages", "labels", *LIMITS)
TRAVEL: Final = ("versionAsOf", "timestampAsOf")
LOG: Final = ("log", "afterPosition", "path", *SERVERS, "partitionBytes", *TRAVEL, *SINCE, *LIMITS)
LISTING: Final = ("listing", "path", *SERVERS, *RANGE, "partitionBytes", *SINCE, *UNTIL)
MAX_PARTITION_BYTES: Final = 1 << 30
"""The largest partition: a task holds all of it in memory."""
COLUMNS: Final = dict(zip(ROWS.names, ROWS.types, strict=True))


class LogDBSource(DataSource):
    """`spark.read.format("logdb")` and `spark.readStream.format("logdb")`.

    Raises ValueError for a wrong option, and as `logdb.embedded.snapshot_plan.pin`.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        every = Options(options, (*SNAPSHOT, *CHANGES, *WRITING, *LISTING, *LOG))
        self._log = every.text("log")
        self._is_feed = every.flag("readChangeFeed")
        self._is_listing = every.choice("listing", ("versions",)) is not None
        allowed: tuple[str, ...] = LISTING if self._is_listing else CHANGES if self._is_feed else (*SNAPSHOT, *WRITING)
        if self._log is not None:
            Layout(self._log)
            allowed = (*LOG, *WRITING)
        self._options = chosen = Options(options, allowed)
        self._codec = chosen.choice("codec", CODECS)
        self._format = _format(chosen, self._codec)
        self._rows = _rows(chosen)
        self._keys = chosen.keys() if self._rows is None else self._rows.range()
        self._samples = chosen.number("sampleValues", minimum=1)
        self._partition_bytes = (
            chosen.number("partitionBytes", minimum=1, maximum=MAX_PARTITION_BYTES) or PARTITION_BYTES
        )
        self._with_old, self._with_labels = chosen.flag("oldValues"), chosen.flag("labels")
        self._images = chosen.flag("updateImages")
        self._lacks_zone = any("timestamp" in name.lower() and chosen.lacks_zone(name) for name in chosen)
        self._zone = zone_named(self.time_zone) if self._lacks_zone else None
        self._since = _since(chosen, self._zone)
        chosen.number("endingVersion", minimum=0)
        self._limit = _limit(chosen)
        self._fixed: SnapshotPlan | None = None
        self._described: RowKeys | None = None

    @classmethod
    def name(cls) -> str:
        return "logdb"

    time_zone: str | None = None
    """The time zone of Spark's session, set by `register`; None is local time."""

    push_filters: bool = False
    """Whether Spark pushes filters down, set by `register`."""

    application_id: str = ""
    """The id of the Spark application, set by `register`."""

    def schema(self) -> StructType:
        if not self._is_feed:
            self._plan()
        columns = [StructField(name, from_arrow_type(kind)) for name, kind in self._columns().items()]
        if not self._is_listing and self._log is None:
            row_keys = self._row_keys()
            count = 1 if row_keys is None else len(row_keys.names)
            others = [field for field in columns[count:] if field.name != "value"]
            columns = [*columns[:count], *(self._fields() or [StructField("value", BinaryType())]), *others]
        return self._as_table(StructType(columns))

    def _as_table(self, schema: StructType) -> StructType:
        return with_options(schema, given_options(self.options)) if defines_table(self.options) else schema

    def _of_table(self, schema: StructType) -> tuple[LogDBSource, StructType]:
        """The source with the options of a table of Spark's catalog, and the columns; `self` if it is none."""
        columns, stored = split_options(schema)
        if not stored:
            return self, schema
        given = {name.lower(): value for name, value in given_options(self.options).items()}
        return type(self)({**{name.lower(): value for name, value in stored.items()}, **given}), columns

    def reader(self, schema: StructType) -> DataSourceReader:
        source, columns = self._of_table(schema)
        reader = source._reader(columns)
        return FilteredReader(reader) if self.push_filters else reader

    def _reader(self, schema: StructType) -> NarrowingReader:
        for name in LIMITS:
            self._refuse(name, "it is for streams")
        for name in WRITING:
            self._refuse(name, "it is for writing")
        plan = self._plan()
        if self._is_listing:
            return VersionsReader(plan, self._keys, self._of_rows(schema), self._partition_bytes)
        columns = self._selected(schema)
        if self._is_feed:
            return ChangesReader(plan, self._keys, columns, self._partition_bytes, images=self._images)
        if self._log is not None:
            return SnapshotReader(plan, self._entries(self._log), columns, self._partition_bytes)
        for name in SINCE:
            self._refuse(name, "it goes with readChangeFeed, or a stream")
        return SnapshotReader(plan, self._keys, columns, self._partition_bytes)

    def streamReader(self, schema: StructType) -> LogDBStreamReader:  # noqa: N802
        source, columns = self._of_table(schema)
        return source._stream_reader(columns)

    def _stream_reader(self, schema: StructType) -> LogDBStreamReader:
        for name in ("versionAsOf", "timestampAsOf", "snapshot", *UNTIL):
            self._refuse(name, "a stream begins at startingVersion and has no end")
        self._refuse("listing", "it is for batches")
        self._refuse("afterPosition", "a stream begins at startingVersion")
        if self._fixed is not None:
            self._fixed.release()
        columns = self._selected(schema)
        since = LATEST if self._since is None else self._since
        return LogDBStreamReader(
            self._options.location(),
            self._options.text("scratch"),
            self._keys if self._log is None else KeyRange(*Layout(self._log).range()),
            columns,
            since,
            self._limit,
            self._partition_bytes,
            self._application(),
            images=self._images,
        )

    def _selected(self, schema: StructType) -> SelectedColumns:
        columns = self._of_rows(schema)
        return columns if self._log is None else EntryColumns(self._log, columns)

    def _of_rows(self, schema: StructType) -> OutputColumns:
        keys = self._row_keys()
        format = self._format if keys is None else keys.values
        return select_columns(schema, self._columns(), format, self.time_zone, self._lacks_zone, keys)

    def _entries(self, name: str) -> KeyRange:
        """The range of the entries that a batch reads."""
        layout, after = Layout(name), None
        position = self._options.text("afterPosition")
        if isinstance(self._since, str):
            raise ValueError("a batch of a log begins at a startingVersion that is a number, or has none")
        if position is not None:
            if self._since is not None:
                raise ValueError("give afterPosition, startingVersion or startingTimestamp, but only one")
            after = Position.parse(position)
        elif self._since is not None:
            after = behind(self._first(self._options.location()) - 1)
        return KeyRange(*layout.range(after))

    def writer(self, schema: StructType, overwrite: bool) -> LogDBWriter:
        source, columns = self._of_table(schema)
        target = source._target(columns, overwrite)
        return LogDBWriter(target, self._spool_folder(target))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogDBStreamWriter:  # noqa: N802
        source, columns = self._of_table(schema)
        target = source._target(columns, overwrite)
        if not target.named:
            raise ValueError("a stream that is written needs a jobId, by which a repeated batch is recognized")
        return LogDBStreamWriter(target, self._spool_folder(target))

    def _spool_folder(self, target: Target) -> SpoolFolder | None:
        return None if target.path is None else SpoolFolder.make(target, self._application().process)

    def _target(self, schema: StructType, overwrite: bool) -> Target:
        if overwrite:
            raise ValueError('rows are added to a database: .mode("append")')
        for name in (*SNAPSHOT, *CHANGES, *LISTING, *LOG):
            if name not in ("path", "codec", "log", *SERVERS):
                self._refuse(name, "it is for reading")
        options, location = self._options, self._options.location()
        if self._codec is not None and self._codec not in WRITABLE:
            raise ValueError(f"rows are written with the codec {' or '.join(WRITABLE)}, not {self._codec}")
        texts: tuple[str, ...] = ()
        if self._log is None:
            texts = check_writable(schema, self._codec, IGNORED)
        else:
            check_entries_writable(schema, self._log)
        job, atomic = options.text("jobId"), options.flag("atomic")
        batch_rows = options.number("batchRows", minimum=1) or BATCH_ROWS
        return Target(
            None if isinstance(location, Endpoints) else str(location),
            location if isinstance(location, Endpoints) else None,
            f"{job or uuid.uuid4().hex}/{'atomic' if atomic else batch_rows}",
            job is not None,
            self._codec,
            texts,
            options.text("label") or "",
            batch_rows,
            atomic,
            self._log,
        )

    def _columns(self) -> dict[str, pa.DataType]:
        if self._is_listing:
            return versions.COLUMNS
        if self._log is not None:
            return entries.COLUMNS
        if self._rows is not None:
            keys = self._row_keys()
            assert keys is not None
            others = {name: kind for name, kind in self._plain_columns().items() if name not in ("key", "value")}
            return {**keys.arrow, **others}
        return self._plain_columns()

    def _row_keys(self) -> RowKeys | None:
        """The keys of the table that is read, as the catalog has it at the version."""
        if self._described is None and self._rows is not None:
            with source_of(self._options.location()).database() as db:
                self._described = self._rows.described(db.at(self._version(db)))
        return self._described

    def _version(self, db: Database) -> int:
        return db.version if self._is_feed else self._plan().version

    def _plain_columns(self) -> dict[str, pa.DataType]:
        if not self._is_feed:
            return COLUMNS
        columns = dict(changes.COLUMNS)
        if self._with_old:
            old = {changes.OLD_VALUE: columns["value"]}
            columns = {"key": columns.pop("key"), "value": columns.pop("value"), **old, **columns}
        return {**columns, **({changes.LABEL: columns["_change_type"]} if self._with_labels else {})}

    def _application(self) -> Application:
        return current_application(self.application_id)

    def _refuse(self, name: str, reason: str) -> None:
        if name in self._options:
            raise ValueError(f"{name} does not go with this: {reason}")

    # ---- the version that `load()` fixes

    def __getstate__(self) -> dict[str, Any]:
        """Fix the version before Spark pickles the source at the end of `load()`, so that every use of the DataFrame
        has the same one. For a stream there is none, and errors show when its reader is made."""
        with contextlib.suppress(LogDBError, ValueError):
            self._plan()
        return self.__dict__

    def _plan(self) -> SnapshotPlan:
        if self._fixed is None:
            self._fixed = self._fix()
        return self._fixed

    def _fix(self) -> SnapshotPlan:
        options = self._options
        snapshot = options.text("snapshot")
        if snapshot is not None:
            return pinned_snapshot(Path(snapshot), self._application())
        location = options.location()
        since: int | None = None
        if self._is_feed or self._is_listing:
            version, time_ns = options.number("endingVersion", minimum=0), self._time("endingTimestamp")
            since = self._first(location) - 1
        else:
            version, time_ns = options.number("versionAsOf", minimum=0), self._time("timestampAsOf")
        request = PlanRequest(
            version=version,
            time_ns=time_ns,
            since=since,
            part_bytes=self._partition_bytes,
            application=self._application(),
            scratch_parent=options.text("scratch"),
            shared=True,
        )
        return source_of(location).plan(request)

    def _time(self, name: str) -> int | None:
        return self._options.time_ns(name, self._zone)

    def _first(self, location: Location) -> int:
        """The first version whose changes are read."""
        if isinstance(self._since, StartTime):
            return before(source_of(location), self._since) + 1
        if isinstance(self._since, int):
            return self._since + 1
        if self._is_feed or self._since is not None:
            raise ValueError("changes need a startingVersion, which is a number, or a startingTimestamp")
        with source_of(location).database() as db:
            return db.oldest_version + 1

    def _fields(self) -> list[StructField]:
        """The columns for fields: those of the format's schema, or else those of the values; none without a format."""
        keys = self._row_keys()
        format = self._format if keys is None else keys.values
        if format is None:
            return []
        if (named := format.fields()) is not None:
            reserved = {name.lower() for name in self._columns()}
            fields = [field for field in named if field.name.lower() not in reserved]
            return fields if len(fields) == len(named) else [*fields, StructField(RESCUED, StringType())]
        low, high = self._keys
        with source_of(self._options.location()).database() as db:
            rows = islice(db.at(self._version(db)).scan(start=low, end=high), self._samples)
            if (first := next(rows, None)) is None:
                raise ValueError("there are no values to infer the columns from: name them with .schema(...)")
            found: Iterable[tuple[bytes, bytes]] = chain([first], rows)
            if keys is not None and keys.of_index is not None:
                found = ((key, key) for key, _ in found)
            fields = infer_columns(found, (*self._columns(), RESCUED), format)
        return [*fields, StructField(RESCUED, StringType())]


class KeyPartition(InputPartition):
    """The partition `number`: a range of keys."""

    def __init__(self, number: int, keys: KeyRange) -> None:
        super().__init__(number)
        self.number, self.keys = number, keys


class FilteredReader(DataSourceReader):
    """A reader to which Spark pushes filters down.

    Spark 4.3 keeps what it has planned with the filters of one query for other queries of the same DataFrame, and so
    returns too few rows (`PythonDataSourceV2.setReadInfo`). So this reader is for programs that load a DataFrame for
    each query. Without `pushFilters` the plan is the same for all queries.
    """

    def __init__(self, reader: NarrowingReader) -> None:
        self._reader = reader

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        return self._reader.narrow(filters)

    def partitions(self) -> list[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)


class SnapshotReader(DataSourceReader):
    """Reads a snapshot, one range of keys in each partition."""

    def __init__(self, plan: SnapshotPlan, keys: KeyRange, columns: SelectedColumns, partition_bytes: int) -> None:
        self._plan, self._columns, self._partition_bytes = plan, columns, partition_bytes
        self._bounds = Bounds(keys, 0, plan.version)

    def narrow(self, filters: list[Filter]) -> list[Filter]:
        """Read less by filters; return those that Spark must apply."""
        self._bounds, left = _narrowed(self._bounds, filters, "version", self._columns)
        return left

    def partitions(self) -> list[InputPartition]:
        size_bytes = sum(one.size_bytes for one in self._runs().ranges)
        count = -(-size_bytes // self._partition_bytes)
        ranges = split_keys(self._plan, self._bounds.keys, count)
        return [KeyPartition(number, keys) for number, keys in enumerate(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, KeyPartition)
        self._columns.check_zone()
        with task(self._plan):
            runs, bounds = self._runs(), self._bounds
            runs.make(begin_with=partition.number)
            for batch in runs.merge(partition.keys, fetch=self._columns.needs_values):
                if bounds.maximum < self._plan.version:
                    batch = batch.filter(pc.less_equal(batch.column("version"), bounds.maximum))
                yield self._columns.batch(dict(zip(ROWS.names, batch.columns, strict=True)))

    def _runs(self) -> Runs:
        bounds, size = self._bounds, self._partition_bytes
        return Runs(self._plan, bounds.keys, newer_than=bounds.minimum - 1, partition_bytes=size)


class ChangesReader(DataSourceReader):
    """Reads the changes in a range of versions, one range of the log in each partition."""

    def __init__(
        self,
        plan: SnapshotPlan,
        keys: KeyRange,
        columns: SelectedColumns,
        partition_bytes: int,
        *,
        images: bool = False,
    ) -> None:
        assert plan.since is not None
        self._plan, self._columns, self._partition_bytes, self._images = plan, columns, partition_bytes, images
        self._bounds = Bounds(keys, plan.since + 1, plan.version)

    def narrow(self, filters: list[Filter]) -> list[Filter]:
        """Read less by filters; return those that Spark must apply."""
        self._bounds, left = _narrowed(self._bounds, filters, "_commit_version", self._columns)
        return left

    def partitions(self) -> list[InputPartition]:
        return [KeyPartition(number, self._bounds.keys) for number in range(len(self._changes().ranges))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._columns.check_zone()
        if isinstance(partition, KeyPartition):  # Spark makes an empty partition if there are no changes
            with task(self._plan):
                yield from self._changes().read(partition.number)

    def _changes(self) -> Changes:
        keys, least, most = self._bounds
        size, images = self._partition_bytes, self._images
        return Changes(self._plan, keys, least - 1, most, self._columns, size, images=images)


NarrowingReader = SnapshotReader | ChangesReader | VersionsReader


def split_keys(plan: SnapshotPlan, keys: KeyRange, count: int) -> list[KeyRange]:
    """Split a range of keys into `count` ranges of about the same size, or fewer if the plan's sample is small."""
    inner = [key for key in plan.sample if keys.low < key and (keys.high is None or key < keys.high)]
    count = max(1, min(count, len(inner)))
    bounds = [keys.low, *(inner[number * len(inner) // count] for number in range(1, count)), keys.high]
    return [KeyRange(low or b"", high) for low, high in pairwise(bounds)]


def _narrowed(
    bounds: Bounds, filters: list[Filter], version: str, columns: SelectedColumns
) -> tuple[Bounds, list[Filter]]:
    """The bounds narrowed by filters, and the filters that Spark must apply."""
    if columns.keys is None:
        return bounds.narrowed(filters, version, columns.plain)
    of_key, others = columns.keys.split(filters)
    keys = columns.keys.range(of_key)
    bounds, left = bounds._replace(keys=bounds.keys.within(*keys)).narrowed(others, version, columns.plain)
    return bounds, [*of_key, *left]


def _format(options: Options, codec: str | None) -> ValueFormat | None:
    """The format of values. Raises ValueError."""
    needed = {"avro": ("avroSchema",), "protobuf": ("descriptorFile", "messageName")}
    for name in ("avroSchema", "descriptorFile", "messageName"):
        if name in options and name not in needed.get(codec or "", ()):
            raise ValueError(f"{name} goes with another codec")
    for name in needed.get(codec or "", ()):
        if name not in options:
            raise ValueError(f"the codec {codec} needs the option {name}")
    if codec == "avro":
        schema = options.text("avroSchema") or ""
        return AvroValues(schema if schema.lstrip().startswith("{") else _content("avroSchema", schema).decode())
    if codec == "protobuf":
        content = _content("descriptorFile", options.text("descriptorFile") or "")
        return ProtobufValues(content, options.text("messageName") or "")
    if codec == "msgpack":
        return MsgpackValues()
    return JsonValues() if codec == "json" else None


def _content(name: str, path: str) -> bytes:
    try:
        return local_path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None


def _rows(options: Options) -> Rows | None:
    """The table that is read. Raises ValueError."""
    table = options.text("table")
    if table is None:
        for name in TABLE[1:]:
            if name in options:
                raise ValueError(f"{name} goes with table")
        return None
    for name in (*RANGE, "codec"):
        if name in options:
            raise ValueError(f"{name} does not go with table, whose keys and format are known")
    names = options.text("keyColumns") or ""
    return Rows(table, options.text("index"), tuple(name.strip() for name in names.split(",") if name.strip()))


def _limit(options: Options) -> ReadLimit:
    rows, size = (options.number(name, minimum=1) for name in LIMITS)
    return ReadMaxRows(rows) if rows is not None else ReadAllAvailable() if size is None else ReadMaxBytes(size)


def _since(options: Options, zone: dt.tzinfo | None) -> int | str | StartTime | None:
    """The version before the first change, or the time of the first one; LATEST, OLDEST or None."""
    time_ns = options.time_ns("startingTimestamp", zone)
    if time_ns is not None:
        return StartTime(time_ns)
    if options.text("startingVersion") in (LATEST, OLDEST):
        return options.text("startingVersion")
    first = options.number("startingVersion", minimum=0)
    return None if first is None else max(first - 1, 0)
