"""The database that a streaming query follows, and what is kept for the query: in a directory, or behind endpoints.

Both hold the version from which the query goes on, so that compaction does not pass it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from logdb.embedded.holds import Hold, sweep
from logdb.embedded.host import EmbeddedHost
from logdb.embedded.plan import Plan, pin_at
from logdb.log.contract import Trimmed
from logdb.store.records import COMMIT, Place, decode_commit
from spark_export import scratch
from spark_export.decoding import AnyPlan, folder_of
from spark_export.options import application
from spark_export.remote import Endpoints, RemotePlan, connected, laid_out


class Followed(ABC):
    """What a query asks of the database."""

    def __init__(self) -> None:
        self._plans: list[AnyPlan] = []

    @abstractmethod
    def version(self) -> int:
        """The newest version."""

    @abstractmethod
    def hold(self, version: int) -> None:
        """Keep what comes after a version from compaction. Raises VersionTrimmed if it is gone, FutureVersion."""

    @abstractmethod
    def hold_oldest(self) -> int:
        """Hold the oldest version that can be read, which is returned."""

    @abstractmethod
    def _plan(self, since: int, until: int) -> AnyPlan: ...

    @abstractmethod
    def _commits(self, since: int, until: int) -> Iterable[tuple[int, bytes]]:
        """(version, payload) of the commit records after `since` up to `until`."""

    def hold_newest(self) -> int:
        """Hold the newest version, which is returned."""
        self.hold(version := self.version())
        return version

    def planned(self, since: int, until: int) -> AnyPlan:
        """Where the changes after `since` up to `until` are; they are kept until that is `done`."""
        self._plans.append(plan := self._plan(since, until))
        return plan

    def done(self, version: int) -> None:
        """Nobody asks for what comes before a version any more."""
        for plan in self._plans:
            if plan.version <= version:
                _closed(plan)
        self._plans = [plan for plan in self._plans if plan.version > version]
        self.hold(version)

    def after_rows(self, since: int, until: int, most: int) -> int:
        """The last version up to which the commits after `since` write at most so many keys; one commit at least."""
        sizes = ((gsn, len(decode_commit(payload).writes)) for gsn, payload in self._commits(since, until))
        return after(since, until, most, sizes)

    def after_bytes(self, since: int, until: int, most: int) -> int:
        """The last version up to which the log after `since` has at most so many bytes; one commit at least."""
        sizes = ((gsn, _bytes_of(payload)) for gsn, payload in self._commits(since, until))
        return after(since, until, most, sizes)

    def close(self) -> None:
        """Hold and keep nothing any more."""
        for plan in self._plans:
            _closed(plan)


class FollowedDirectory(Followed):
    """A directory: its files of each batch are kept until Spark has committed it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._owner = path.absolute(), application()
        sweep(self._path)
        self._host = EmbeddedHost.open(self._path, read_only=True, create=False)
        self._hold: Hold | None = None

    def version(self) -> int:
        return self._host.version()

    def hold(self, version: int) -> None:
        if self._hold is None:
            self._hold = Hold(self._path, version, self._owner)
        else:
            self._hold.move(version)
        self._host.at(version)

    def hold_oldest(self) -> int:
        if self._hold is None:
            self._hold = Hold(self._path, 0, self._owner)
        self.hold(version := self._host.oldest())
        return version

    def _plan(self, since: int, until: int) -> Plan:
        while True:
            try:
                return pin_at(self._host, version=until, since=since, owner=self._owner)._replace(sample=())
            except (FileNotFoundError, Trimmed):  # the log was trimmed, to no further than what is held
                self._host.close()
                self._host = EmbeddedHost.open(self._path, read_only=True, create=False)

    def _commits(self, since: int, until: int) -> Iterable[tuple[int, bytes]]:
        records = self._host.log.scan(since + 1, until + 1)
        return ((record.lsn, record.payload) for record in records if record.tag == COMMIT)

    def close(self) -> None:
        super().close()
        if self._hold is not None:
            self._hold.close()
        with suppress(Exception):
            self._host.close()


class FollowedServers(Followed):
    """Servers: each task fetches its part of a batch, which they keep as long as the query holds where it begins."""

    def __init__(self, endpoints: Endpoints, scratch: str | None, part_bytes: int) -> None:
        super().__init__()
        self._endpoints, self._scratch, self._part_bytes = endpoints, scratch, part_bytes
        self._source = connected(endpoints)

    def version(self) -> int:
        return self._source.version()

    def hold(self, version: int) -> None:
        self._source.hold(self, version)
        self._source.at(version)

    def hold_oldest(self) -> int:
        return self._source.hold_oldest(self)

    def _plan(self, since: int, until: int) -> RemotePlan:
        return laid_out(
            self._endpoints,
            version=until,
            since=since,
            part_bytes=self._part_bytes,
            follows=True,
            scratch_in=self._scratch,
        )

    def _commits(self, since: int, until: int) -> Iterable[tuple[int, bytes]]:
        return self._source.commits(since + 1, until + 1)

    def close(self) -> None:
        super().close()
        self._source.end(self)


def _closed(plan: AnyPlan) -> None:
    scratch.remove(folder_of(plan))
    plan.close()


def after(since: int, until: int, most: int, sizes: Iterable[tuple[int, int]]) -> int:
    """The last of the commits after `since`, given with their sizes, up to which these add up to `most` or less, or the
    first one; `until` if all do."""
    size, last = 0, since
    for gsn, of in sizes:
        size += of
        if size > most and last > since:
            return last
        last = gsn
        if size >= most:
            return last
    return until


def _bytes_of(payload: bytes) -> int:
    """With the large values that a commit refers to."""
    values = decode_commit(payload).writes.values()
    return len(payload) + sum(value.length for value in values if isinstance(value, Place))
