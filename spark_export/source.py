"""The Spark data source `logdb`: one version of a database directory as a DataFrame.

    spark.read.format("logdb").option("versionAsOf", 42).option("prefix", "flight/").load("data")

A row is a live key: `key` BINARY, `value` BINARY, `version` LONG, the version that wrote it. The rows are exactly those
of `db.at(version=...).scan()`.

`load()` fixes the version, also when none is named, and keeps the log's files: the DataFrame shows that one snapshot
however often it is used, whatever is written or compacted meanwhile. The files go when the Spark application has ended
and the directory is next read by one (`logdb.embedded.plan`). The executors read the log themselves (`runs`), so they
must see the directory; partitions are key ranges in order.

Options:

path            the directory
versionAsOf     the version (default: the newest)
timestampAsOf   instead: the version at that time, ISO 8601 (UTC if it names no zone) or seconds since the epoch
prefix          only keys that begin with this text (as UTF-8)
prefixHex       only keys that begin with these bytes, in hexadecimal
partitionBytes  bytes of log for each partition (default: 64 MiB)
snapshot        instead of all of the above but the prefix and partitionBytes: the folder of a pinned snapshot
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from logdb import moments
from logdb.embedded.plan import Owner, Plan, load, pin, process_owner
from spark_export.failure import reporting
from spark_export.runs import Runs

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_BYTES: Final = 64 << 20
OPTIONS: Final = ("path", "versionAsOf", "timestampAsOf", "prefix", "prefixHex", "partitionBytes", "snapshot")
SCHEMA: Final = "key BINARY, value BINARY, version LONG"


class LogDBSource(DataSource):
    """`spark.read.format("logdb")`. Raises ValueError for a wrong option, and as `logdb.embedded.plan.pin`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        given = _checked(options)
        self.prefix = _prefix(given)
        self.partition_bytes = _number(given, "partitionBytes", PARTITION_BYTES, least=1)
        self.plan = _plan(given)

    @classmethod
    def name(cls) -> str:
        return "logdb"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: object) -> LogDBReader:
        return LogDBReader(Runs(self.plan, self.prefix), self.partition_bytes)


class KeyRange(InputPartition):
    """The keys from `low` to before `high` (None: no bound), the partition `number`."""

    def __init__(self, number: int, low: bytes | None, high: bytes | None) -> None:
        super().__init__(number)
        self.number, self.low, self.high = number, low, high


class LogDBReader(DataSourceReader):
    """Reads one snapshot, by key range."""

    def __init__(self, runs: Runs, partition_bytes: int) -> None:
        self._runs, self._partition_bytes = runs, partition_bytes

    def partitions(self) -> list[InputPartition]:
        plan, prefix = self._runs.plan, self._runs.prefix
        sample = [key for key in plan.sample if key.startswith(prefix)]
        wanted = -(-sum(part.size for part in plan.parts) // self._partition_bytes)
        count = max(1, min(wanted, len(sample)))
        bounds = [None, *(sample[number * len(sample) // count] for number in range(1, count)), None]
        return [KeyRange(number, bounds[number], bounds[number + 1]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, KeyRange)
        with reporting(Path(self._runs.plan.folder)):
            self._runs.make(begin_with=partition.number)
            yield from self._runs.merge(partition.low, partition.high)


def _checked(options: Mapping[str, str]) -> dict[str, str]:
    """The options by the names that they have here: Spark does not mind their case."""
    names = {name.lower(): name for name in OPTIONS}
    given = {}
    for name, value in options.items():
        if name.lower() not in names:
            raise ValueError(f"the data source logdb has no option {name!r}; it has {', '.join(OPTIONS)}")
        given[names[name.lower()]] = value
    for one, other in (("versionAsOf", "timestampAsOf"), ("prefix", "prefixHex"), ("path", "snapshot")):
        if one in given and other in given:
            raise ValueError(f"give {one} or {other}, but not both")
    for name in ("versionAsOf", "timestampAsOf"):
        if name in given and "snapshot" in given:
            raise ValueError(f"a pinned snapshot has its version: give {name} or snapshot, but not both")
    return given


def _plan(given: Mapping[str, str]) -> Plan:
    if "snapshot" in given:
        return load(Path(given["snapshot"]))
    if "path" not in given:
        raise ValueError('the data source logdb needs a directory: .load("data") or .option("path", "data")')
    version = _number(given, "versionAsOf", 0, least=0) if "versionAsOf" in given else None
    time_ns = _nanoseconds(given["timestampAsOf"]) if "timestampAsOf" in given else None
    return pin(Path(given["path"]), version=version, time_ns=time_ns, owner=application())


def _prefix(given: Mapping[str, str]) -> bytes:
    try:
        return bytes.fromhex(given["prefixHex"]) if "prefixHex" in given else given.get("prefix", "").encode()
    except ValueError:
        raise ValueError(f"prefixHex must be hexadecimal digits, not {given['prefixHex']!r}") from None


def _number(given: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise ValueError(f"{name} must be a whole number from {least} on, not {text!r}")
    return int(text)


def _nanoseconds(text: str) -> int:
    try:
        return round(float(text) * 1e6) * 1_000
    except (ValueError, OverflowError):
        pass
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"timestampAsOf must be a time like 2024-05-01T12:00:00Z or seconds since the epoch, not {text!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=dt.UTC)
    return moments.nanoseconds(time)


def application() -> Owner:
    """The process of this Spark application: the JVM above the worker that Spark plans in, else this process."""
    pid = os.getpid()
    while pid > 1:
        name, parent = _process(pid)
        if name == "java":
            return process_owner(pid)
        pid = parent
    return process_owner(os.getpid())


def _process(pid: int) -> tuple[str, int]:
    """(name, parent)"""
    head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    return head.partition("(")[2], int(tail.split()[1])
