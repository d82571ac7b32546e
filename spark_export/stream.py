"""`spark.readStream.format("logdb")`: what is committed, as it comes, with the version as offset.

An offset is the version up to which everything has been handed on, so a query that starts again from its checkpoint
goes on with the commit after it, whatever happened meanwhile. A batch is a range of versions; its tasks read the log
themselves, as for a batch of changes (`changes`).

The process in which Spark plans keeps the database open read-only. It holds the version from which the query goes on
(`logdb.embedded.holds`), so compaction waits for the query, and keeps the files of each batch until Spark has committed
it. When the query is stopped it holds nothing any more; pin the version if it must wait until the query comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from logdb.embedded.holds import Hold, sweep
from logdb.embedded.host import EmbeddedHost
from logdb.embedded.plan import Plan, pin_at
from logdb.errors import FutureVersion
from logdb.log.contract import Trimmed
from logdb.store.records import COMMIT, VALUE, decode_commit
from spark_export.changes import Changes
from spark_export.columns import Asked
from spark_export.decoding import KeyRange
from spark_export.failure import reporting
from spark_export.options import application

if TYPE_CHECKING:
    import pyarrow as pa

LATEST = "latest"
OLDEST = "oldest"
Offset = dict[str, int]


class Stretched(InputPartition):
    """The changes in one stretch of the log, the partition `number`."""

    def __init__(self, number: int, changes: Changes) -> None:
        super().__init__(number)
        self.number, self.changes = number, changes


class LogDBStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the commits after the version `since`, or from LATEST or OLDEST on, at most `most_rows` in a batch."""

    def __init__(
        self,
        path: Path,
        keys: KeyRange,
        columns: Asked,
        since: int | str,
        most_rows: int | None,
        partition_bytes: int,
    ) -> None:
        self._path, self._keys, self._columns = path, keys, columns
        self._since, self._most_rows, self._partition_bytes = since, most_rows, partition_bytes
        self._source: _Followed | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        followed = self._followed()
        if isinstance(self._since, int):
            followed.hold(self._since)
            return {"version": self._since}
        return {"version": followed.hold_newest() if self._since == LATEST else followed.hold_oldest()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most_rows is None else ReadMaxRows(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._followed().version()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        followed, since = self._followed(), start["version"]
        followed.hold(since)
        newest = followed.version()
        if since > newest:
            raise FutureVersion(since, newest)
        end = newest if self._target is None else max(since, min(newest, self._target))
        if isinstance(limit, ReadMaxRows):
            end = followed.after_rows(since, end, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            end = followed.after_bytes(since, end, limit.max_bytes)
        return {"version": end}

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return {"version": self._followed().version()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        since, until = start["version"], end["version"]
        if since == until:
            return []
        self._followed().hold(since)
        plan = self._followed().planned(since, until)
        changes = Changes(plan, self._keys, since, until, self._columns, self._partition_bytes, is_held=True)
        return [Stretched(number, changes) for number in range(len(changes.stretches))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Stretched)
        with reporting(Path(partition.changes.plan.folder)):
            yield from partition.changes.read(partition.number)

    def commit(self, end: Offset) -> None:
        self._followed().done(end["version"])

    def stop(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _followed(self) -> _Followed:
        if self._source is None:
            self._source = _Followed(self._path)
        return self._source

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}


class _Followed:
    """The database that a query follows, and what is kept for it."""

    def __init__(self, path: Path) -> None:
        self._path, self._owner = path.absolute(), application()
        sweep(self._path)
        self._host = EmbeddedHost.open(self._path, read_only=True, create=False)
        self._hold: Hold | None = None
        self._plans: list[Plan] = []

    def version(self) -> int:
        """The newest version."""
        return self._host.version()

    def hold(self, version: int) -> None:
        """Keep what comes after a version from compaction. Raises VersionTrimmed if it is gone, FutureVersion."""
        if self._hold is None:
            self._hold = Hold(self._path, version, self._owner)
        else:
            self._hold.move(version)
        self._host.at(version)

    def hold_newest(self) -> int:
        """Hold the newest version, which is returned."""
        self.hold(version := self.version())
        return version

    def hold_oldest(self) -> int:
        """Hold the oldest version that can be read, which is returned."""
        if self._hold is None:
            self._hold = Hold(self._path, 0, self._owner)
        self.hold(version := self._host.oldest())
        return version

    def planned(self, since: int, until: int) -> Plan:
        """The files for the changes after `since` up to `until`, kept until that is `done`."""
        while True:
            try:
                plan = pin_at(self._host, version=until, since=since, owner=self._owner)
                break
            except (FileNotFoundError, Trimmed):  # the log was trimmed, to no further than what is held
                self._host.close()
                self._host = EmbeddedHost.open(self._path, read_only=True, create=False)
        self._plans.append(plan)
        return plan._replace(sample=())

    def done(self, version: int) -> None:
        """Nobody asks for what comes before a version any more."""
        for plan in self._plans:
            if plan.version <= version:
                plan.close()
        self._plans = [plan for plan in self._plans if plan.version > version]
        self.hold(version)

    def after_rows(self, since: int, until: int, most: int) -> int:
        """The last version up to which the commits after `since` write at most so many keys; one commit at least."""
        rows, last = 0, since
        for record in self._host.log.scan(since + 1, until + 1):
            if record.tag == COMMIT:
                rows += len(decode_commit(record.payload).writes)
                if rows > most and last > since:
                    return last
                last = record.lsn
                if rows >= most:
                    return last
        return until

    def after_bytes(self, since: int, until: int, most: int) -> int:
        """The last version up to which the log after `since` has at most so many bytes; one commit at least."""
        size, last = 0, since
        for record in self._host.log.scan(since + 1, until + 1):
            if record.tag in (COMMIT, VALUE):
                size += len(record.payload)
            if record.tag == COMMIT:
                if size > most and last > since:
                    return last
                last = record.lsn
        return until

    def close(self) -> None:
        """Hold and keep nothing any more."""
        for plan in self._plans:
            plan.close()
        if self._hold is not None:
            self._hold.close()
        with suppress(Exception):
            self._host.close()
