"""Seeds with small limits, and the wire between their processes."""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

import pytest

from logdb.cores.effects import SECOND
from logdb.log.paxos.messages import Accept, Ballot, MemberEnvelope
from logdb.wire import packing
from tests.sim.limits import CHOICES, WITHOUT, limits_of
from tests.sim.wire import Wire
from tests.sim.world import Failure, World

LIMITS = next(filter(None, (limits_of(seed, World(seed).draw("limits")) for seed in range(100))))


def test_limits_are_in_force_for_the_time_of_a_seed_only() -> None:
    before = packing.MAX_BATCH_BYTES
    with LIMITS.in_force():
        assert before > packing.MAX_BATCH_BYTES == dict(LIMITS.constants)["wire.packing.MAX_BATCH_BYTES"]
    assert before == packing.MAX_BATCH_BYTES


@pytest.mark.parametrize("path", CHOICES)
def test_small_limits_are_below_the_real_ones(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert max(CHOICES[path]) < getattr(import_module(f"logdb.{module}"), name)


def test_a_share_of_the_seeds_has_small_limits() -> None:
    limited = [seed for seed in range(1000) if limits_of(seed, random.Random(seed))]
    assert 100 < len(limited) < 300
    assert not WITHOUT.intersection(limited)


def sent_over(wire: Wire, world: World, *messages: Any) -> list[Any]:
    """The messages that arrive of those that one process sends another at once."""
    arrived: list[Any] = []
    for message in messages:
        wire.send("a", "b", message, lambda sender, to, part, link: arrived.append(part.message))
    world.run(world.now + 10 * SECOND)
    return arrived


def accept(first: int, *sizes: int) -> MemberEnvelope:
    return MemberEnvelope(1, (1,), Accept(Ballot(1, 1), first, [bytes(size) for size in sizes], 0))


def test_a_message_that_is_too_large_is_split_or_fails_the_seed() -> None:
    world = World(1)
    wire = Wire(world, 1 << 20, 1 << 20)
    with LIMITS.in_force():
        parts = sent_over(wire, world, accept(1, 2_000, 2_000, 2_000, 2_000))
        assert [(part.first, len(part.values)) for part in parts] == [(1, 1), (2, 1), (3, 1), (4, 1)]
        with pytest.raises(Failure, match="not too large"):
            sent_over(wire, world, accept(1, 5_000))


def test_a_full_queue_drops_the_oldest_messages_but_not_the_one_that_is_being_sent() -> None:
    world = World(1)
    wire = Wire(world, 700, 1_000)
    arrived = sent_over(wire, world, *(accept(number, 300) for number in range(1, 7)))
    assert [message.first for message in arrived] == [1, 5, 6]


def test_messages_take_time() -> None:
    world = World(1)
    before = world.now
    arrived_at: list[int] = []
    Wire(world, 1 << 20, 1_000).send("a", "b", accept(1, 900), lambda *_: arrived_at.append(world.now))
    world.run(before + 2 * SECOND)
    assert SECOND * 9 // 10 < arrived_at[0] - before < SECOND * 11 // 10
