"""A few thousand random messages to servers of every role in this process: none ends, and all still answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

import logdb
from benchmarks.ports import free_addresses
from logdb.net import peers
from logdb.net.loops import in_shared_loop
from logdb.net.security.access import Right, add
from logdb.net.security.gate import Gate, Security
from logdb.net.server import Server
from tests.fuzz.running import fuzz_node, fuzz_single
from tests.net.clusters import Cluster
from tests.net.serving import Served

MESSAGES = 3_000
SEED = 11


@pytest.mark.parametrize("name", ["o1", "s1", "a1", "m1"])
def test_no_message_ends_a_server_of_a_cluster(tmp_path: Path, name: str) -> None:
    cluster = Cluster(tmp_path, mapping=1)
    cluster.start(1)
    addresses = free_addresses()
    try:
        with logdb.connect(cluster.ordering) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            config = cluster.configs[name]
            texts = [each.address for each in cluster.configs.values()]
            fuzzing = fuzz_node(
                config.address, config.role, texts, lambda: next(addresses), MESSAGES, SEED, cluster.check
            )
            assert in_shared_loop(fuzzing) >= MESSAGES
            server = cluster.servers[name]
            assert isinstance(server, Server)
            assert server.peers is not None
            assert server.peers.refusals.count
            assert db.get(b"k7") == b"v"
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
        cluster.check()
    finally:
        cluster.close()


def test_the_fuzzer_finds_a_check_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again on a new cluster now and then: a server that lost its state to the fuzzer looks at few messages."""
    monkeypatch.setattr(peers, "check_sense", lambda messages: None)
    with pytest.raises(AssertionError):
        for number in range(20):
            fuzz_mapping_server(tmp_path / str(number), SEED + number)


def fuzz_mapping_server(path: Path, seed: int) -> None:
    path.mkdir()
    cluster = Cluster(path, mapping=1)
    cluster.start(1)
    addresses = free_addresses()
    try:
        config = cluster.configs["m1"]
        fuzzing = fuzz_node(config.address, config.role, [], lambda: next(addresses), MESSAGES, seed, cluster.check)
        in_shared_loop(fuzzing)
    finally:
        with contextlib.suppress(Exception):  # of the server that has ended
            cluster.close()


def test_no_message_ends_a_single_server(tmp_path: Path) -> None:
    tokens = [add(tmp_path / "tokens.toml", right.shown, right) for right in list(Right)[1:]]
    served = Served(tmp_path / "db", Gate(Security(tokens=tmp_path / "tokens.toml")))
    try:
        asyncio.run(fuzz_single(served.address, [*tokens, "wrong"], MESSAGES, SEED, lambda: None))
        with logdb.connect(served.address, token=tokens[-1]) as db:
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
        deadline = time.monotonic() + 60
        while served.server._answers.bytes and time.monotonic() < deadline:  # the last stream is being ended
            time.sleep(0.01)
        assert served.server._answers.bytes == 0
    finally:
        served.close()
