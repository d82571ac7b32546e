"""Compaction by itself: one server begins it when the share of garbage is above what is set (PROTOCOL.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from logdb.cluster.compaction.compactor import Compactor
from logdb.cluster.mapping_server.replica import UnresolvedValues
from logdb.cluster.messages import Hold, SliceRequest
from logdb.cores.effects import SECOND
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap
from logdb.store.records import BEGINNING, ENDING, PIN, VALUE, Place, digest, encode_pin
from tests.harness.stage import Log, Server, commit

SHARE = 0.5
LARGE = b"large " * 4_000


class OnDisk:
    """Mapping servers that are each other's peers, their maps on disk; the test says when checkpoints are written."""

    def __init__(self, path: Path, log: Log, count: int) -> None:
        self.log = log
        self.checkpoints = [Checkpoint(path / f"m{number}", b"log", inline=True) for number in range(count)]
        self.servers = []
        names = [f"m{number}" for number in range(count)]
        for number, name in enumerate(names):
            key_map = KeyMap(UnresolvedValues(), self.checkpoints[number])
            peers = tuple(peer for peer in names if peer != name)
            config = {"peers": peers, "compact_above": SHARE, "min_compact_bytes": 20_000}
            server = Server(name=name, seed=number, is_behind=True, key_map=key_map, **config)
            server.wait(60 * SECOND)
            server.take(SliceRequest)
            self.servers.append(server)
        log.run(*self.servers)

    def save(self) -> None:
        """Write the checkpoints, and run all due merges."""
        for server, checkpoint in zip(self.servers, self.checkpoints, strict=True):
            replica = server.core.replica
            state, frozen = replica.unsaved(), replica.map.freeze()
            checkpoint.begin(replica.applied)
            list(checkpoint.write(frozen))
            checkpoint.finish(replica.applied, state)
            replica.map.thaw()
            list(checkpoint.merge(closing=True))
            if replica.cleaned > checkpoint.pruned:
                list(checkpoint.prune(replica.cleaned))

    def go_on(self, seconds: int, running: Sequence[Server] | None = None) -> None:
        running = self.servers if running is None else running
        for _ in range(seconds * 10):
            for server in running:
                server.wait(SECOND // 10)
            self.log.run(*running)

    def close(self) -> None:
        for checkpoint in self.checkpoints:
            checkpoint.close()


def overwritten(rounds: int, first: int = 1) -> Log:
    log = Log()
    overwrite(log, rounds, first)
    return log


def overwrite(log: Log, rounds: int, first: int) -> None:
    for number in range(first, first + rounds):
        log.add(commit(number, {b"%02d" % key: b"%d " % number + b"v" * 100 for key in range(10)}))


def begun(log: Log) -> int:
    return [tag for tag, _ in log.records].count(BEGINNING)


def ended(log: Log) -> int:
    return [tag for tag, _ in log.records].count(ENDING)


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[OnDisk]:
    disks = OnDisk(tmp_path, overwritten(60), 3)
    yield disks
    disks.close()


def test_one_server_begins_it(disks: OnDisk) -> None:
    disks.go_on(30)
    assert begun(disks.log) == 0, "what is only in memory counts as live"
    disks.save()
    disks.go_on(120)
    assert (begun(disks.log), ended(disks.log)) == (1, 1)
    assert disks.log.oldest > 50
    images = [server.core.replica.image() for server in disks.servers]
    assert images[0] == images[1] == images[2]
    disks.save()
    disks.go_on(120)
    assert begun(disks.log) == 1, "what is left has no garbage"
    overwrite(disks.log, 60, 100)
    disks.log.run(*disks.servers)
    disks.save()
    disks.go_on(120)
    assert (begun(disks.log), ended(disks.log)) == (2, 2)


def test_another_begins_it_where_the_first_does_not(disks: OnDisk) -> None:
    disks.save()
    disks.go_on(120, disks.servers[1:])
    assert (begun(disks.log), ended(disks.log)) == (1, 1)


def test_a_log_without_garbage_is_not_compacted(tmp_path: Path) -> None:
    """Large values are only in the log, and count."""
    log = Log()
    for number in range(1, 40):
        gsn = log.add((VALUE, LARGE))
        place = Place(gsn, 1, len(LARGE), digest(LARGE))
        log.add(commit(number, {b"large %02d" % number: place, b"small %02d" % number: b"v" * 300}))
    disks = OnDisk(tmp_path, log, 2)
    disks.save()
    disks.go_on(120)
    assert begun(log) == 0
    assert disks.servers[0].core.replica.logged > 39 * len(LARGE)
    disks.close()


def test_pins_and_leases_are_respected(disks: OnDisk) -> None:
    log, servers = disks.log, disks.servers
    log.add((PIN, encode_pin("pin", 20)))
    log.run(*servers)
    disks.save()
    for _ in range(60):
        for server in servers:
            server.give("client", Hold(10))
        disks.go_on(1)
    assert ended(log) == 1
    assert {server.core.replica.coordinator.floor for server in servers} == {10}
    overwrite(log, 60, 100)
    log.run(*servers)
    disks.save()
    disks.go_on(120)
    assert {server.core.replica.coordinator.floor for server in servers} == {20}
    disks.save()
    before = begun(log)
    disks.go_on(120)
    assert begun(log) == before, "a compaction that a pin holds back is not begun again and again"


def test_a_restart_counts_on(tmp_path: Path) -> None:
    log = overwritten(60)
    disks = OnDisk(tmp_path, log, 1)
    disks.save()
    logged = disks.servers[0].core.replica.logged
    assert logged == sum(len(payload) for _, payload in log.records)
    disks.close()
    checkpoint = Checkpoint(tmp_path / "m0", b"log", inline=True)
    again = Server(key_map=KeyMap(UnresolvedValues(), checkpoint), is_behind=True)
    assert again.core.replica.logged == logged
    compactor = again.core.compactor
    assert isinstance(compactor, Compactor)
    assert compactor.garbage > SHARE
    checkpoint.close()
