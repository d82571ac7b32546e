"""Clusters of 3 and 5 replicas under faults drawn from a seed, and planted bugs that the simulation finds."""

from __future__ import annotations

import random

import pytest

from logdb.cores.effects import MILLISECOND, ProtocolViolation
from tests.log.paxos.bugs import BUGS, Plant
from tests.log.paxos.cluster import CONFIG, SHORT_ELECTIONS, Cluster


def simulate(seed: int) -> Cluster:
    """Two seconds of faults, of kinds that the seed turns on; then all faults end, and the replicas must agree."""
    rng = random.Random(seed)
    cluster = Cluster(rng.choice((3, 3, 5)), seed, rng.choice((CONFIG, SHORT_ELECTIONS)))
    cluster.loss = rng.choice((0, 0, 0.02, 0.2))
    cluster.duplication = rng.choice((0, 0.05, 0.3))
    cluster.late_delivery = rng.choice((0, 0.01, 0.1))
    cluster.crashing = rng.choice((0, 0, 0.05, 0.5))
    cluster.isolating = rng.choice((0, 0.1, 0.4))
    cluster.wiping = rng.choice((0, 0.3, 1))
    cluster.delay_ns = rng.choice((1, 5, 30, 60)) * MILLISECOND
    cluster.sync_ns = rng.choice((1, 3, 15)) * MILLISECOND
    faults = [fault for fault in FAULTS if rng.random() < 0.5]
    proposing, reading, failing, healing = (rng.choice((0.05, 0.3, 0.7)) for _ in range(4))
    cluster.start_all()
    end = cluster.now + 2_000 * MILLISECOND
    while cluster.now < end:
        for address in cluster.members:
            if rng.random() < proposing:
                cluster.propose(address)
            if rng.random() < reading:
                cluster.read_index(address)
        if faults and rng.random() < failing / 3:
            rng.choice(faults)(cluster, rng)
        if rng.random() < healing / 3:
            cluster.start_all()
        if rng.random() < healing / 3:
            cluster.cut.clear()
        cluster.run(rng.randrange(20) * MILLISECOND)
    heal(cluster)
    return cluster


def crash(cluster: Cluster, rng: random.Random) -> None:
    cluster.crash(rng.choice(cluster.members))


def crash_leader(cluster: Cluster, rng: random.Random) -> None:
    for address in cluster.leaders():
        cluster.crash(address)


def wipe(cluster: Cluster, rng: random.Random) -> None:
    cluster.wipe(rng.choice(cluster.leaders() or cluster.members))


def wipe_any(cluster: Cluster, rng: random.Random) -> None:
    cluster.wipe(rng.choice(cluster.members))


def crash_all(cluster: Cluster, rng: random.Random) -> None:
    for address in cluster.members:
        cluster.crash(address)
    if rng.random() < 0.5:
        cluster.start_all()


def pause(cluster: Cluster, rng: random.Random) -> None:
    node = cluster.nodes[rng.choice(cluster.leaders() or cluster.members)]
    node.paused_until = cluster.now + rng.randrange(500) * MILLISECOND


def part(cluster: Cluster, rng: random.Random) -> None:
    """Two sides without a connection."""
    side = set(rng.sample(cluster.members, rng.randrange(1, len(cluster.members))))
    cluster.cut = {(a, b) for a in cluster.members for b in cluster.members if (a in side) != (b in side)}


def part_leader(cluster: Cluster, rng: random.Random) -> None:
    for leader in cluster.leaders():
        cluster.isolate(leader)


def part_one_way(cluster: Cluster, rng: random.Random) -> None:
    sender, receiver = rng.sample(cluster.members, 2)
    cluster.cut.add((sender, receiver))


def hold_disk(cluster: Cluster, rng: random.Random) -> None:
    """A disk stands still, or is full."""
    node = cluster.nodes[rng.choice(cluster.leaders() or cluster.members)]
    node.held_until = cluster.now + rng.randrange(1_000) * MILLISECOND


FAULTS = (crash, crash_leader, wipe, wipe_any, crash_all, pause, part, part_leader, part_one_way, hold_disk)


def heal(cluster: Cluster) -> None:
    """Without faults a leader is elected and accepts a value, all replicas get it, and all confirm reads (liveness)."""
    cluster.loss = cluster.duplication = cluster.late_delivery = 0.0
    cluster.crashing = cluster.isolating = cluster.wiping = 0.0
    cluster.delay_ns, cluster.sync_ns = 2 * MILLISECOND, 2 * MILLISECOND
    cluster.cut.clear()
    for node in cluster.nodes.values():
        node.paused_until = node.held_until = 0
    cluster.start_all()
    cluster.run(500 * MILLISECOND)
    cluster.run_until(lambda: len(cluster.leaders()) == 1, 3_000 * MILLISECOND)
    leader = cluster.leaders()[0]
    value = cluster.propose(leader)
    cluster.run_until(lambda: value in cluster.values.values(), 200 * MILLISECOND)
    last = max(cluster.values)
    cluster.run_until(lambda: all(node.applied == last for node in cluster.nodes.values()), 1_000 * MILLISECOND)
    cluster.run_until(lambda: all(node.has_joined for node in cluster.nodes.values()), 1_000 * MILLISECOND)
    tokens = [cluster.read_index(address) for address in cluster.members]
    cluster.run_until(lambda: set(tokens) <= set(cluster.confirmed), 200 * MILLISECOND)


@pytest.mark.parametrize("seed", range(60))
def test_replicas_agree(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(400):
        try:
            simulate(seed)
        except (AssertionError, ProtocolViolation, IndexError):
            return
    raise AssertionError("not found in 400 seeds")
