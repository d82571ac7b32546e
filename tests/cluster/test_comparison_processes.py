"""Mapping servers of a real cluster compare what they hold (DBS-14)."""

from __future__ import annotations

import shutil
from pathlib import Path

import logdb
from logdb.clients.background_loop import in_shared_loop
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import ProtocolViolation
from tests.harness.clusters import Cluster


def core_of(cluster: Cluster, name: str) -> MappingServer:
    host = cluster.servers[name].servers[0].host
    assert host is not None
    assert isinstance(host.core, MappingServer)
    return host.core


def agree(cluster: Cluster, *names: str) -> None:
    """Return when each of these has compared once more."""
    before = {name: core_of(cluster, name).comparison.agreed for name in names}
    while any(core_of(cluster, name).comparison.agreed <= before[name] for name in names):
        cluster.check()


def test_a_server_that_differs_stops_and_starts_again_from_the_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, aggregators=0, mapping=3, decide_ms=200)
    cluster.start(1)
    try:
        with logdb.connect(cluster.ordering, timeout=60) as db:
            version = db.put(b"k", b"right")
            agree(cluster, "m1", "m2", "m3")

            async def differ() -> None:
                core_of(cluster, "m2").replica.map.replace(b"k", version, b"wrong")

            running = cluster.running["m2"]
            in_shared_loop(differ())
            while not running.done():
                pass
            failure = running.exception()
            assert isinstance(failure, ProtocolViolation)
            assert "DBS-14" in str(failure)
            del cluster.running["m2"]
            in_shared_loop(cluster.end("m2"))
            assert db[b"k"] == b"right"
            db.put(b"k", b"again")
            agree(cluster, "m1", "m3")
            shutil.rmtree(tmp_path / "m2" / "map")
            in_shared_loop(cluster.begin("m2"))
            agree(cluster, "m1", "m2", "m3")
            assert db.at(version)[b"k"] == b"right"
    finally:
        cluster.close()
