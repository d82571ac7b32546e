"""Real processes: they start, stop and are killed, and no acknowledged record is lost or duplicated."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import logdb.log
from logdb.clients.log_client import RemoteLog
from logdb.wire.envelopes import EXCHANGE
from tests.harness.cluster_processes import WAIT_S, Processes

AT_LEAST = 30
"""Number of records acknowledged between one event and the next."""


class Appender:
    """A thread that appends numbered batches all the while; `acknowledged`: (GSN, payload)."""

    def __init__(self, log: RemoteLog) -> None:
        self.log = log
        self.acknowledged: list[tuple[int, bytes]] = []
        self.failure: BaseException | None = None
        self._enough = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        try:
            while not self._enough.is_set():
                batch = [(1, b"%d.%d" % (number, part)) for part in range(3)]
                gsns = self.log.append(batch)
                number += 1
                with self._progress:
                    self.acknowledged += [(gsn, payload) for gsn, (_, payload) in zip(gsns, batch, strict=True)]
                    self._progress.notify_all()
        except BaseException as error:
            self.failure = error
            with self._progress:
                self._progress.notify_all()

    def go_on(self, records: int = AT_LEAST) -> None:
        """Return when `count` more records have been acknowledged."""
        with self._progress:
            wanted = len(self.acknowledged) + records
            assert self._progress.wait_for(lambda: self.failure or len(self.acknowledged) >= wanted, WAIT_S)
        assert self.failure is None, repr(self.failure)

    def stop(self) -> None:
        self._enough.set()
        self._thread.join(WAIT_S)
        assert self.failure is None, repr(self.failure)


def everything(log: RemoteLog) -> dict[int, bytes]:
    """All records, by GSN."""
    tail, found = log.tail(), {}
    subscription = log.subscribe(1)
    while len(found) < tail:
        batch = subscription.poll(WAIT_S)
        assert batch is not None, f"the log does not go on after {max(found)}"
        found.update({record.gsn: record.payload for record in batch.records})
    return found


def check(log: RemoteLog, acknowledged: list[tuple[int, bytes]]) -> None:
    """Each acknowledged record has its acknowledged GSN, and no record is duplicated."""
    found = everything(log)
    assert [(gsn, found.get(gsn)) for gsn, _ in acknowledged] == acknowledged
    assert [payload for payload, times in Counter(found.values()).items() if times > 1] == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    with Processes(tmp_path, ordering=3, storage=4, aggregators=1, failures=1, policy="finalize-and-add") as processes:
        processes.start_all()
        yield processes


def test_kills_while_a_client_appends(cluster: Processes) -> None:
    with logdb.log.connect(cluster.addresses["o2"]) as log:
        while len(log.configuration().spares) < 4 or not log.configuration().aggregators:
            pass
        first = log.add_shard()
        appender = Appender(log)
        try:
            appender.go_on()
            cluster.kill("a1")
            appender.go_on()
            cluster.kill(leader := cluster.leader())
            appender.go_on()
            by_address = {address: name for name, address in cluster.addresses.items()}
            (config,) = [config for config in log.configuration().shards if config.shard == first]
            cluster.kill(victim := by_address[config.members[0].address])
            appender.go_on()
            cluster.start(leader, victim, "a1")
            appender.go_on()
            cluster.kill(cluster.leader())
            appender.go_on()
        finally:
            appender.stop()
        assert first in log.view().finalized
        check(log, appender.acknowledged)


def test_one_server_of_each_role_from_its_start_to_its_end(tmp_path: Path) -> None:
    with Processes(tmp_path, ordering=1, storage=1, aggregators=1, failures=0, policy="mask") as processes:
        processes.start_all()
        with logdb.log.connect(processes.addresses["s1"]) as log:
            while not (log.configuration().spares and log.configuration().aggregators):
                pass
            log.add_shard()
            gsns = log.append([(1, b"x" * 100)] * 10)
        assert processes.metric("o1", "logdb_leader") == 1
        assert processes.metric("o1", "logdb_ordered_records_total") == 10
        assert processes.metric("o1", "logdb_cuts_total") >= 1
        assert processes.metric("s1", "logdb_persisted_records_total") >= 10
        assert processes.metric("s1", "logdb_written_bytes_total") >= 1000
        assert processes.metric("s1", "logdb_sync_seconds_count") >= 1
        assert processes.metric("a1", "logdb_sent_bytes_total") > 0
        for name in processes.roles:
            with grpc.insecure_channel(processes.addresses[name]) as channel:
                for service in ("", EXCHANGE.split("/")[1]):
                    request = health_pb2.HealthCheckRequest(service=service)
                    answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_S)
                    assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert processes.end("s1") == 0
        assert processes.end("a1", signal.SIGINT) == 0
        assert processes.end("o1") == 0
        assert "Traceback" not in "".join(map(processes.log, processes.roles))
        assert gsns == list(range(1, 11))


def test_a_wrong_configuration_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "cluster.toml"
    config.write_text('[cluster]\nname = "x"\n[ordering.o1]\nlisten = "127.0.0.1:99999"\n')
    command = [sys.executable, "-m", "logdb_cli", "serve", "ordering", "--name", "o1", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {config}:4: listen must be ")
    assert done.stderr.count("\n") == 1


def test_ordering_replicas_that_lose_their_disks_come_back(tmp_path: Path) -> None:
    """First the leader, then another one: acknowledged records remain, and appends continue."""
    with Processes(tmp_path, ordering=3, storage=1, aggregators=0, failures=0, policy="finalize-and-add") as processes:
        processes.start_all()
        with logdb.log.connect([processes.addresses[name] for name in ("o1", "o2", "o3")]) as log:
            while not log.configuration().spares:
                pass
            log.add_shard()
            appender = Appender(log)
            try:
                appender.go_on()
                leader = processes.leader()
                for name in (leader, "o2" if leader == "o1" else "o1"):
                    processes.kill(name)
                    shutil.rmtree(tmp_path / "data" / name)
                    processes.start(name)
                    while "has joined the ordering group again" not in processes.log(name):
                        appender.go_on()
                    appender.go_on()
                    assert processes.metric(name, "logdb_joining") == 0
            finally:
                appender.stop()
            check(log, appender.acknowledged)
