"""What a client may say it may say wrongly: no server of a cluster ends because of it, whatever the numbers are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.clients.background_loop import in_shared_loop
from logdb.cluster import messages as d
from logdb.log.engine import engine_of
from logdb.log.scalog import messages as m
from logdb.security.permissions import NEEDS
from logdb.store.records import VALUE
from logdb.transport.accepted_messages import taken_by
from logdb.transport.peers import Peers
from logdb.wire.envelopes import CLIENT, VERSION, Hello
from tests.harness.clusters import Cluster

NUMBERS = [0, 1, 2, 7, 20, 21, 22, 1_000, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, -1, -(1 << 63)]
UNSIGNED = [0, 1, 2, 1 << 63, (1 << 64) - 1]
BYTES = [b"", b"\0", b"k1", b"\xff" * 8192, b"\xff" * 8193]
MESSAGES = 250


class Nonsense:
    """Messages of every kind that a client may bring, but for what changes the cluster."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        one, n, u, b = self.rng.choice, self.number, self.unsigned, self.bytes
        self.questions: list[Callable[[], Any]] = [
            lambda: d.Get(self.some(b)),
            lambda: d.Scan(one([None, b()]), one([None, b()]), one([True, False]), n()),
            lambda: d.History(b(), n()),
            lambda: d.AtTime(n()),
            lambda: d.Outcome(u(), u()),
            lambda: d.Aborted(n()),
            d.Version,
            d.Oldest,
            d.Pins,
        ]
        self.kinds: dict[type, Callable[[], Any]] = {
            m.TailRequest: lambda: m.TailRequest(n()),
            m.ViewRequest: lambda: m.ViewRequest(n()),
            m.TimeRequest: lambda: m.TimeRequest(n(), one([1, n()]), n()),
            m.Pull: lambda: m.Pull(n(), one([1, n()]), n(), one([None, frozenset(), frozenset({1, 255})]), n()),
            m.ReadRequest: lambda: m.ReadRequest(n(), one([1, n()]), n()),
            m.AppendStatusRequest: lambda: m.AppendStatusRequest(u(), one([1, n()]), self.some(lambda: (u(), u()))),
            m.Append: lambda: m.Append(u(), u(), u(), one([1, n()]), self.some(lambda: (VALUE, b()))),
            m.Unreachable: lambda: m.Unreachable(n()),
            d.Reads: lambda: d.Reads(self.some(self.read)),
            d.AwaitVerdicts: lambda: d.AwaitVerdicts(
                self.some(lambda: d.AwaitedTransaction(u(), u(), one([1, 2, n()])))
            ),
            d.Hold: lambda: d.Hold(n()),
        }

    def number(self) -> int:
        return self.rng.choice(NUMBERS)

    def unsigned(self) -> int:
        return self.rng.choice(UNSIGNED)

    def bytes(self) -> bytes:
        return self.rng.choice(BYTES)

    def some(self, make: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.rng.randrange(3)))

    def read(self) -> d.Read:
        consistency = self.rng.choice(list(d.Consistency))
        return d.Read(self.number(), consistency, self.number(), self.rng.choice(self.questions)())

    def message(self) -> Any:
        return self.rng.choice(list(self.kinds.values()))()


def test_all_kinds_are_tried() -> None:
    assert set(Nonsense(0).kinds) == set(NEEDS) - {m.ChangeRequest, d.Compact}


async def say(cluster: Cluster, what: Nonsense) -> None:
    for number in range(MESSAGES):
        message = what.message()
        for name, config in cluster.configs.items():
            if type(message) in taken_by(config.role, engine_of("scalog")):
                peers = Peers(Hello(VERSION, "test", CLIENT, f"client-{number}"))
                port = peers.attach(peers.hello.address, taken_by(CLIENT, engine_of("scalog")))
                there = cluster.servers[name].peers
                assert there is not None
                before = there.traffic.received_parcels
                port.send(config.address, message)
                while there.traffic.received_parcels == before and not peers.traffic.dropped_messages:
                    await asyncio.sleep(0)
                await peers.close()
                assert not cluster.running[name].done(), f"{name} was ended by {message}"


@pytest.mark.parametrize("seed", [1, 2])
def test_nonsense_ends_no_server(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(tmp_path, mapping=1)
    cluster.start(1)
    try:
        with logdb.connect(cluster.ordering) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            in_shared_loop(say(cluster, Nonsense(seed)))
            assert db.get(b"k7") == b"v"
            db.put(b"k7", b"2")
            assert db.get(b"k7") == b"2"
        cluster.check()
    finally:
        cluster.close()
