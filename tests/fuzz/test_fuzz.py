"""A few thousand random messages to servers of every role in this process: none ends, and all still answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

import pytest

import logdb
from logdb.clients.background_loop import in_shared_loop
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cores.effects import Effect, Event, Received
from logdb.log.engine import ENGINES, Right, engine_of
from logdb.node.node import Node
from logdb.security.access import add
from logdb.security.authenticator import Authenticator, Security
from logdb.security.certificates import Authority
from logdb.transport import peers
from logdb.wire.sanity_checks import check_sense
from tests.fuzz.running import fuzz_node, fuzz_single, listening, secured
from tests.harness.clusters import Cluster
from tests.harness.ports import free_addresses
from tests.harness.secured import SecureCluster
from tests.harness.served import Served

MESSAGES = 1_500
SEED = 11
SERVERS = [
    (engine, f"{letter}1")
    for engine in ENGINES
    for letter in (*(role.letter for role in engine_of(engine).roles.values()), "m")
]


@pytest.mark.parametrize(("engine", "name"), SERVERS)
def test_no_message_ends_a_server_of_a_cluster(tmp_path: Path, engine: str, name: str) -> None:
    cluster = Cluster(tmp_path, engine=engine, mapping=1)
    cluster.start(1)
    addresses = free_addresses()
    try:
        with logdb.connect(cluster.ordering) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            config = cluster.configs[name]
            texts = [each.address for each in cluster.configs.values()]

            async def fuzzed() -> int:
                async with listening(engine_of(engine), addresses) as speakers:
                    server = engine_of(engine), config.address, config.role
                    return await fuzz_node(*server, texts, speakers, MESSAGES, SEED, cluster.check)

            assert in_shared_loop(fuzzed()) >= MESSAGES
            server = cluster.servers[name]
            assert isinstance(server, Node)
            assert server.peers is not None
            assert server.peers.refusals.count
            assert db.get(b"k7") == b"v"
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
            db.compact()
        cluster.check()
    finally:
        cluster.close()


@pytest.mark.parametrize(("engine", "name"), SERVERS)
def test_no_message_ends_a_server_whichever_speaker_sends_it(tmp_path: Path, engine: str, name: str) -> None:
    """Over TLS: with each right and none, and with certificates of servers of the cluster that do not run."""
    cluster = SecureCluster(tmp_path, engine=engine, storage=2, aggregators=2, mapping=2)
    second = [each for each in cluster.configs if each.endswith("2")]
    spare = {each: cluster.configs.pop(each) for each in second}
    cluster.start(1)
    try:
        tokens = cluster.tokens
        with logdb.connect(cluster.ordering, **cluster.credentials(tokens.admin)) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            config = cluster.configs[name]
            speakers = secured(
                engine_of(engine),
                cluster.certificates,
                [tokens.read, tokens.write, tokens.admin, "wrong"],
                {each: config.address for each, config in spare.items()},
            )
            texts = [each.address for each in cluster.configs.values()]
            server = engine_of(engine), config.address, config.role
            fuzzing = fuzz_node(*server, texts, speakers, MESSAGES, SEED, cluster.check)
            assert in_shared_loop(fuzzing) >= MESSAGES
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
        cluster.check()
    finally:
        cluster.close()


def test_the_fuzzer_finds_a_check_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a server whose core ends at what the check would have refused."""
    handle = MappingServer.handle

    def trusting(self: MappingServer, event: Event, now: int) -> list[Effect]:
        if isinstance(event, Received):
            check_sense([event.message])
        return handle(self, event, now)

    monkeypatch.setattr(peers, "check_sense", lambda messages: None)
    monkeypatch.setattr(MappingServer, "handle", trusting)
    cluster = Cluster(tmp_path, mapping=1)
    cluster.start(1)
    addresses = free_addresses()
    try:
        config = cluster.configs["m1"]

        async def fuzzed() -> None:
            engine = engine_of(ENGINES[0])
            async with listening(engine, addresses) as speakers:
                await fuzz_node(engine, config.address, config.role, [], speakers, 50_000, SEED, cluster.check)

        with pytest.raises(AssertionError):
            in_shared_loop(fuzzed())
    finally:
        with contextlib.suppress(Exception):  # of the server that has ended
            cluster.close()


@pytest.mark.parametrize("tls", [False, True], ids=["in the clear", "over TLS"])
def test_no_message_ends_a_single_server(tmp_path: Path, tls: bool) -> None:
    tokens = [add(tmp_path / "tokens.toml", right.label, right) for right in list(Right)[1:]]
    pem = Authority(tmp_path / "certificates").server(["127.0.0.1"]) if tls else None
    key = pem.with_suffix(".key") if pem else None
    ca = pem.with_name("ca.pem") if pem else None
    served = Served(tmp_path / "db", Authenticator(Security(certificate=pem, key=key, tokens=tmp_path / "tokens.toml")))
    try:
        asyncio.run(fuzz_single(served.address, [*tokens, "wrong"], MESSAGES, SEED, lambda: None, ca=ca))
        with logdb.connect(served.address, token=tokens[-1], ca=ca) as db:
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
        deadline = time.monotonic() + 60
        while served.server.load().answer_bytes and time.monotonic() < deadline:  # the last stream is being ended
            time.sleep(0.01)
        assert served.server.load().answer_bytes == 0
    finally:
        served.close()
