"""Streams on real processes: kill -9 of a stream replica that does not come back, and of a log replica that does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import logdb.log
from logdb.errors import Unavailable
from tests.harness.cluster_processes import WAIT_S, Processes


def added(add: Callable[[], int]) -> int:
    """The shard that was added. On a busy machine spare servers may be silent for so long that they do not count."""
    while True:
        try:
            return add()
        except Unavailable as error:
            assert str(error) == "there are too few spare servers"


def test_a_stream_outlives_its_replica_and_a_restart_of_a_log_replica(tmp_path: Path) -> None:
    """vCorfu's shape: one log replica and one stream replica, and a spare server."""
    with Processes(tmp_path, ordering=1, storage=3, aggregators=0, failures=0, policy="", engine="corfu") as cluster:
        cluster.start_all()
        with logdb.log.connect(cluster.addresses["o1"], timeout=WAIT_S) as log:
            while len(log.configuration().spares) < 3:
                pass
            added(log.add_shard)
            streams = added(log.add_stream_shard)
            log.append([(1, b"of no stream")])
            log.append_to_streams([(1, b"a"), (1, b"b")], [1, 2])
            log.append_to_streams([(1, b"c")], [2])
            by_address = {address: name for name, address in cluster.addresses.items()}
            servers = {one.shard: by_address[one.members[0].address] for one in log.configuration().shards}
            cluster.kill(servers[streams])
            shutil.rmtree(tmp_path / "data" / servers[streams])
            assert [record.payload for record in log.read_stream(2).records] == [b"a", b"b", b"c"]
            (config,) = [one for one in log.configuration().shards if one.shard == streams]
            assert by_address[config.members[0].address] not in servers.values()
            (log_replica,) = [name for shard, name in servers.items() if shard != streams]
            cluster.kill(log_replica)
            cluster.start(log_replica)
            log.append_to_streams([(1, b"d")], [1])
            batch = log.read_stream(1)
            assert [record.payload for record in batch.records] == [b"a", b"b", b"d"]
            assert log.read_stream(1, batch.end).records == []
