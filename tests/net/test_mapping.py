"""Mapping servers as processes: what a client commits is read at any of them, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from logdb.cluster.calls import Commit, Found, Get, Scan
from logdb.cluster.messages import Consistency
from logdb.log import connect
from logdb.net.log_client import discover
from logdb.net.loops import in_shared_loop
from logdb.net.parcels import VERSION, Hello, Role
from tests.net.applications import Application
from tests.net.cluster_processes import Processes

LARGE = bytes(range(256)) * 40


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """One of everybody but two mapping servers, and a shard."""
    shape = {"ordering": 1, "storage": 1, "aggregators": 0, "failures": 0, "mapping": 2}
    with Processes(tmp_path, policy="finalize-and-add", **shape) as running:
        running.start_all()
        with connect(running.addresses["s1"]) as log:
            while not log.configuration().spares:
                pass
            log.add_shard()
        yield running


def application(processes: Processes, *servers: str) -> Application:
    """A client of these mapping servers; of all, if none is named."""
    names = servers or [name for name, role in processes.roles.items() if role == "mapping"]
    return Application([processes.addresses["o1"]], [processes.addresses[name] for name in names])


def test_what_is_committed_is_read_at_every_server(processes: Processes) -> None:
    with application(processes, "m1") as one, application(processes, "m2") as other:
        first = one.call(Commit({b"a": b"1", b"large": LARGE}, label="first"))
        assert first.verdict.committed
        assert other.call(Get([b"a", b"large", b"none"])).entries == (
            (first.version, b"1"),
            (first.version, LARGE),
            (0, None),
        )
        second = other.call(Commit({b"a": None, b"b": b"2"}, snapshot=first.version, reads=[b"a"]))
        lost = one.call(Commit({b"a": b"3"}, snapshot=first.version, reads=[b"a"]))
        assert second.verdict.committed
        assert (lost.verdict.key, lost.verdict.version) == (b"a", second.version)
        assert one.call(Scan()).rows == ((b"b", b"2"), (b"large", LARGE))
        assert other.call(Get([b"a"], Consistency.SNAPSHOT, first.version)) == Found(
            first.version, ((first.version, b"1"),)
        )
    assert processes.metric("m1", "logdb_verdicts_total") == 2
    assert processes.metric("m2", "logdb_reads_total") == 2
    assert processes.metric("m1", "logdb_applied_gsn") >= lost.version


def test_a_client_goes_on_with_another_server(processes: Processes) -> None:
    with application(processes) as client:
        for number in range(30):
            if number in (10, 20):
                processes.kill("m1" if number == 10 else "m2")
                processes.start("m1" if number == 10 else "m2")
            assert client.call(Commit({b"k": b"%d" % number})).verdict.committed
            assert client.call(Get([b"k"])).entries[0][1] == b"%d" % number


def test_any_node_tells_where_the_mapping_servers_are(processes: Processes) -> None:
    mine = Hello(VERSION, "", Role.CLIENT, "client-1")
    told = [in_shared_loop(discover([address], mine, 10.0)) for address in processes.addresses.values()]
    servers = (processes.addresses["m1"], processes.addresses["m2"])
    assert [hello.mapping for hello in told] == [servers] * len(processes.addresses)
