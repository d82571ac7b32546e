"""Clusters of real processes: an export under full load equals the fold of the log at its version, and tasks survive
failures of servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import logdb
import logdb.log
from logdb.clients.log_client import RemoteLog
from logdb.cluster.mapping_server.replica import FOLLOWED, Replica
from logdb.log.contract import Batch
from logdb.store.records import Place
from spark_export import export_snapshot, servers
from spark_export.cluster_source import ClusterSource
from tests.harness.cluster_processes import WAIT_S, Processes
from tests.spark_export.test_endpoints import Planned, disconnect
from tests.spark_export.test_export import exported_rows

FILE_BYTES = 300_000


class Busy:
    """Threads that repeat a function until the end of the block."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, again: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while not self.ended.is_set():
                    again()
            except BaseException as error:
                self._failures.append(error)
                self.ended.set()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        assert not self._failures, self._failures


class Follower:
    """Keeps the log in memory from its first record on; compactions stop at the records that it has read."""

    def __init__(self, log: RemoteLog) -> None:
        self._subscription = log.subscribe(1, FOLLOWED)
        self._batches: list[Batch] = []
        self._more = threading.Condition()
        self.seen = 0

    def follow(self) -> None:
        batch = self._subscription.poll(0.2)
        if batch is not None:
            with self._more:
                self._batches.append(batch)
                self.seen = batch.end - 1
                self._more.notify_all()

    def wait(self, version: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: self.seen >= version, WAIT_S)

    def fold(self, version: int) -> list[tuple[bytes, Any, int]]:
        """(key, value, version) of the live keys at `version`, decided from the log alone."""
        self.wait(version)
        replica = Replica(None, 0)
        for batch in self._batches:
            if batch.first <= version:
                stop = min(batch.end, version + 1)
                records = [record for record in batch.records if record.gsn < stop]
                replica.apply(Batch(batch.first, stop, records))
        rows = []
        for found in replica.map.scan(None, None, version, False):
            rows += [(key, value, replica.map.newer(key, 0, version)) for key, value in found]
        return rows


@contextmanager
def started(path: Path, *, storage: int, shards: int) -> Iterator[Processes]:
    """f = 1: shards of two servers."""
    shape = {"ordering": 1, "storage": storage, "aggregators": 0, "failures": 1, "mapping": 1}
    with Processes(path, policy="finalize-and-add", **shape) as processes:
        processes.start_all()
        with logdb.log.connect(processes.addresses["s1"]) as log:
            while len(log.configuration().spares) < storage:
                pass
            for _ in range(shards):
                log.add_shard()
        yield processes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    """Two shards, and spare servers to replace one of them."""
    with started(tmp_path, storage=6, shards=2) as processes:
        yield processes


def write(db: logdb.Database, draw: Random) -> None:
    """Write some keys with small and large values, under a condition that usually fails."""
    value = draw.randbytes(draw.choice((20, 100, 400)))
    large = value * (20_000 // len(value))
    db.multi_put({b"k%03d" % draw.randrange(400): value for _ in range(5)} | {b"large": large})
    db.test_and_multi_put([logdb.equals(b"large", large)], {b"won": value, b"k%03d" % draw.randrange(400): None})


@pytest.mark.long
def test_exports_of_a_cluster_at_full_work(spark: Any, cluster: Processes, tmp_path: Path) -> None:
    assert spark
    where = servers([cluster.addresses["m1"], cluster.addresses["o1"]])
    floors: set[int] = set()
    with (
        logdb.log.connect(cluster.addresses["o1"]) as log,
        logdb.connect(cluster.addresses["m1"]) as db,
        Busy() as busy,
    ):
        follower = Follower(log)
        busy.start(follower.follow)
        for number in range(2):
            draw = Random(number)
            busy.start(lambda draw=draw: write(db, draw))  # type: ignore[misc]
        follower.wait(300)
        busy.start(lambda: floors.add(db.compact(follower.seen).floor))
        while len(floors) < 2:
            follower.wait(follower.seen + 1)

        exports: list[Any] = []
        job = threading.Thread(
            target=lambda: exports.append(export_snapshot(where, tmp_path / "a", file_bytes=FILE_BYTES))
        )
        job.start()
        while not (tmp_path / ".a.staging" / "_job.json").exists():  # the version is fixed, and no task has started
            assert job.is_alive()
        first, second = log.configuration().shards
        names = {address: name for name, address in cluster.addresses.items()}
        assert not (tmp_path / "a").exists()
        cluster.kill(names[second.members[0].address])
        log.finalize_shard(first.shard)
        job.join()
        done = follower.seen
        follower.wait(done + 50)  # shards accept appends again
        exports.append(export_snapshot(where, tmp_path / "b", file_bytes=FILE_BYTES))
    for exported, name in zip(exports, "ab", strict=True):
        expected = follower.fold(exported.version)
        found = exported_rows(tmp_path / name)
        assert [(key, version) for key, _, version in found] == [(key, version) for key, _, version in expected]
        for (_, value, _), (_, meant, _) in zip(found, expected, strict=True):
            assert meant.has(2, value) if isinstance(meant, Place) else value == meant
        assert any(isinstance(meant, Place) for _, meant, _ in expected)
    assert exports[1].version > done


# ---- servers that fail while a task reads

BATCHES = 3
"""The batches that are read before the server is killed; 64 KiB more of each shard may be fetched."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Processes]:
    """One shard, without spare servers."""
    with started(tmp_path, storage=2, shards=1) as processes:
        yield processes
        disconnect()


def sent(cluster: Processes) -> dict[str, float]:
    """Bytes that each storage server has sent."""
    return {
        name: cluster.metric(name, "logdb_sent_bytes_total")
        for name in cluster.running
        if cluster.roles[name] == "storage"
    }


def in_the_middle(patched: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Call `action` once, in the middle of the first part that is read in several small batches."""
    batches, actions = ClusterSource._batches, [action]

    async def small(
        self: ClusterSource, first: int, end: int, *, copies: bool, fetch_bytes: int | None = None
    ) -> AsyncGenerator[Batch]:
        count = 0
        async with aclosing(batches(self, first, end, copies=copies, fetch_bytes=1)) as some:
            async for batch in some:
                yield batch
                count += 1
                if count == BATCHES and actions:
                    assert batch.end < end
                    await asyncio.to_thread(actions.pop())

    patched.setattr(ClusterSource, "_batches", small)


def test_servers_that_fail_while_a_task_reads(pair: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    where, dead = pair.addresses["o1"], list[str]()
    with logdb.connect(pair.addresses["m1"]) as db:
        for number in range(60):  # 1.2 MB of log
            db.multi_put({b"%d-%02d" % (n, number): Random(number).randbytes(1_000) for n in range(20)})
        expected = list(db.scan())

    def kill_the_sender() -> None:
        after = sent(pair)
        dead.append(max(after, key=lambda name: after[name] - before[name]))
        pair.kill(dead[0])

    with monkeypatch.context() as patched:
        planned = Planned(where)
        in_the_middle(patched, kill_the_sender)
        before = sent(pair)
        assert planned.rows() == expected
    ((other, bytes_sent),) = sent(pair).items()
    assert {other, *dead} == {"s1", "s2"}
    assert bytes_sent - before[other] > 600_000

    planned = Planned(where, timeout="3", startKey="0")  # without runs so far
    in_the_middle(monkeypatch, lambda: pair.kill(other))
    message = f"the log of {where} cannot be read from record .* on: no replica has answered within 3 s"
    with pytest.raises(logdb.Unavailable, match=message):
        planned.rows()
    with pytest.raises(logdb.Unavailable, match=message):
        Planned(where, timeout="3")
