"""The simulator itself: time, network, disks and processes, with toy cores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from logdb.cores.effects import (
    MILLISECOND,
    SECOND,
    CancelTimer,
    Create,
    Drop,
    Effect,
    JournalRange,
    Persist,
    Received,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
)
from logdb.log.contract import LogRecord
from tests.sim.disk import Damaged
from tests.sim.network import Weather
from tests.sim.process import Process
from tests.sim.toys import Count, Counter, Stored, pair
from tests.sim.world import EPOCH_NS, Failure, World

UNRELIABLE = Weather(100_000, 100_000, loss=0.1, double=0.1, slow=0.2, slow_ns=5 * MILLISECOND)
ROOT = Path(__file__).resolve().parent.parent.parent


def digest_of(seed: int) -> str:
    """The digest of a short run of two counters with faults."""
    world, _, one, two = pair(seed, UNRELIABLE, exact=True)
    world.run(EPOCH_NS + 50 * MILLISECOND)
    one.kill()
    one.start()
    two.pause()
    world.run(EPOCH_NS + 80 * MILLISECOND)
    two.resume()
    world.run(EPOCH_NS + 120 * MILLISECOND)
    return world.digest()


def core_of(process: Process) -> Counter:
    assert isinstance(process.core, Counter)
    return process.core


def perform(process: Process, *effects: Effect) -> None:
    """Have its core request these effects."""
    process.call(99, list(effects))
    process.calls.clear()


def test_a_seed_always_gives_the_same_run() -> None:
    assert digest_of(1) == digest_of(1)
    assert len({digest_of(seed) for seed in range(5)}) == 5


def test_a_seed_gives_the_same_run_under_another_hash_seed() -> None:
    program = "from tests.sim.test_machine import digest_of; print(digest_of(7))"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": number},
        ).stdout.strip()
        for number in ("1", "2")
    }
    assert digests == {digest_of(7)}


def test_actions_of_the_same_time_run_in_the_order_of_scheduling() -> None:
    world = World(0)
    seen: list[object] = []
    for number in range(10):
        world.at(EPOCH_NS + 5, seen.append, number)
    world.at(EPOCH_NS, seen.append, "first")
    world.run(EPOCH_NS + 5)
    assert seen == ["first", *range(10)]


# ---- network


def received_by(process: Process) -> list[object]:
    return [message for message in core_of(process).received if isinstance(message, Count)]


def test_an_unreliable_network_loses_duplicates_and_reorders() -> None:
    world, network, _, two = pair(3, UNRELIABLE)
    for value in range(1000, 1400):
        network.send("one", "two", Count(value))
    world.run(EPOCH_NS + SECOND // 10)
    values = [message.value for message in received_by(two) if isinstance(message, Count) and message.value >= 1000]
    assert 300 < len(set(values)) < 400
    assert len(values) > len(set(values))
    assert values != sorted(values)
    assert {"message lost", "message doubled", "message overtaken"} <= set(world.counts)


def test_a_cut_link_drops_messages_in_one_direction_until_it_is_restored() -> None:
    world, network, one, two = pair(3)
    links = network.split(["one"], ["two"], one_way=True)
    world.run(EPOCH_NS + 20 * MILLISECOND)
    assert received_by(two) == []
    assert len(received_by(one)) > 15
    network.restore(links)
    world.run(EPOCH_NS + 40 * MILLISECOND)
    assert len(received_by(two)) > 15


# ---- processes


def test_a_killed_process_receives_no_messages_and_has_no_timers() -> None:
    world, _, one, two = pair(3)
    one.kill()
    world.run(EPOCH_NS + 20 * MILLISECOND)
    assert received_by(two) == []
    one.start()
    assert received_by(one) == []
    world.run(EPOCH_NS + 40 * MILLISECOND)
    assert 15 < len(received_by(two)) < 21


def test_a_paused_process_receives_all_messages_when_it_resumes() -> None:
    world, _, one, two = pair(3)
    world.run(EPOCH_NS + 10 * MILLISECOND)
    one.pause()
    before, sent = len(received_by(one)), len(received_by(two))
    world.run(EPOCH_NS + 30 * MILLISECOND)
    assert len(received_by(one)) == before
    assert len(received_by(two)) <= sent + 1
    one.resume()
    assert len(received_by(one)) > before + 15


def test_a_clock_jump_fires_due_timers() -> None:
    world, _, one, _ = pair(3)
    perform(one, SetTimer("late", one.now + SECOND), SetTimer("never", one.now + SECOND), CancelTimer("never"))
    world.run(EPOCH_NS + MILLISECOND)
    world.recent.clear()
    before = one.now
    one.jump(2 * SECOND)
    world.run(EPOCH_NS + 2 * MILLISECOND)
    fired = [event for _, name, event in world.recent if name == "one" and isinstance(event, TimerFired)]
    assert TimerFired("late") in fired
    assert TimerFired("never") not in fired
    assert one.now > before + 2 * SECOND


def test_a_timer_that_is_reset_fires_once() -> None:
    world, _, one, _ = pair(3)
    perform(one, SetTimer("x", EPOCH_NS + 10), SetTimer("x", EPOCH_NS + 20))
    world.run(EPOCH_NS + 30)
    assert [when - EPOCH_NS for when, _, event in world.recent if event == TimerFired("x")] == [20]


def test_a_core_that_stops_loses_its_disk_only_on_request() -> None:
    for wipe in (False, True):
        world, _, one, _ = pair(3)
        world.run(EPOCH_NS + 20 * MILLISECOND)
        perform(one, Stop("done", wipe))
        assert one.core is None
        assert one.stopped == Stop("done", wipe)
        one.start()
        assert (core_of(one).found == []) is wipe


@pytest.mark.parametrize(
    ("effects", "complaint"),
    [
        ([Persist("counts", 7, [(1, b"")])], "ends at 1"),
        ([Persist("counts", 1, [])], "nothing to persist"),
        ([Create("a", 3), Create("a", 3)], "exists already"),
        ([Create("a", 3), Persist("a", 1, [(1, b"")])], "ends at 3"),
        ([Persist("a", 1, [(1, b"")]), SendStored("two", Stored(), "a", 1, 2)], "durable"),
        ([Trim("a", 1)], "does not reach"),
        ([Drop("a")], "does not exist"),
        (["nonsense"], "unknown effect"),
    ],
)
def test_a_core_that_breaks_the_contract_fails_the_seed(effects: list[Effect], complaint: str) -> None:
    _, _, one, _ = pair(3)
    with pytest.raises(Failure, match=complaint):
        one.call(1, effects)


def test_a_broken_invariant_and_a_second_answer_fail_the_seed() -> None:
    from logdb.cores.effects import Answer

    _, _, one, two = pair(3)
    one.calls[5] = None
    with pytest.raises(Failure, match="not open"):
        one.call(1, [Answer(5, 0), Answer(5, 0)])
    core_of(two).broken = "SIM-0"
    with pytest.raises(Failure, match="SIM-0"):
        two.deliver(Received("one", Count(1)))


# ---- disks


def fill(process: Process, count: int) -> None:
    perform(
        process,
        Persist(
            "a",
            process.disk.journals["a"].end if "a" in process.disk.journals else 1,
            [(1, b"%d" % number) for number in range(count)],
        ),
    )


def test_a_crash_keeps_synced_records_and_a_prefix_of_the_rest() -> None:
    kept = set()
    for seed in range(60):
        world, _, one, _ = pair(seed)
        fill(one, 5)
        world.run(EPOCH_NS + 500_000)
        fill(one, 5)
        one.kill()
        journal = one.disk.journals["a"]
        assert [payload for _, payload in journal.records] == [b"%d" % (n % 5) for n in range(journal.end - 1)]
        assert journal.durable == journal.end
        kept.add(journal.end - 1)
    assert kept == {5, 6, 7, 8, 9, 10}


def test_a_crash_may_restore_a_dropped_journal_and_lose_a_new_one() -> None:
    found = set()
    for seed in range(40):
        world, _, one, _ = pair(seed)
        fill(one, 5)
        world.run(EPOCH_NS + 500_000)
        perform(one, Drop("a"), Create("b", 7))
        one.kill()
        found.add(frozenset(one.disk.journals))
    assert found == {frozenset(names) for names in ((), ("a",), ("b",), ("a", "b"))}


def test_trimming_removes_whole_files_and_no_more() -> None:
    world, _, one, _ = pair(3)
    fill(one, 30)
    world.run(EPOCH_NS + 500_000)
    perform(one, Trim("a", 21))
    assert one.disk.mount()["a"].first == 16
    with pytest.raises(Failure, match="has 21 to 31"):
        perform(one, SendStored("two", Stored(), "a", 20, 22))


def test_ranges_are_read_with_their_own_numbers_and_times_by_tag() -> None:
    world, _, one, two = pair(3)
    perform(one, Persist("a", 1, [(1, b"a"), (2, b"b"), (1, b"c"), (1, b"d")]))
    world.run(EPOCH_NS + 500_000)
    perform(
        one,
        SendRanges("two", Stored(), [JournalRange("a", 4, 5, 70, 8), JournalRange("a", 1, 4, 90, 9)], frozenset({1})),
    )
    world.run(EPOCH_NS + 900_000)
    (stored,) = [message for message in core_of(two).received if isinstance(message, Stored)]
    assert stored.records == [LogRecord(70, 8, 1, b"d"), LogRecord(90, 9, 1, b"a"), LogRecord(92, 9, 1, b"c")]


def test_a_full_disk_delays_durability_until_there_is_space() -> None:
    world, _, one, _ = pair(3)
    one.disk.full = True
    fill(one, 3)
    world.run(EPOCH_NS + 50 * MILLISECOND)
    assert one.disk.journals["a"].durable == 1
    one.disk.full = False
    world.run(EPOCH_NS + 60 * MILLISECOND)
    assert one.disk.journals["a"].durable == 4
    one.disk.full = True
    fill(one, 3)
    one.kill()
    assert one.disk.journals["a"].end == 4


def test_a_flipped_bit_is_unreadable_and_keeps_the_process_from_starting() -> None:
    world, _, one, two = pair(3)
    fill(one, 3)
    world.run(EPOCH_NS + 500_000)
    perform(one, SendStored("two", Stored(), "a", 1, 3))
    assert one.disk.flip("a")
    perform(one, SendStored("two", Stored(), "a", 1, 4))
    world.run(EPOCH_NS + 900_000)
    assert [type(message).__name__ for message in core_of(one).received if type(message) is not Count] == ["Unreadable"]
    (stored,) = [message for message in core_of(two).received if isinstance(message, Stored)]
    assert stored.records == [(1, b"0"), (1, b"1")]
    one.kill()
    with pytest.raises(Damaged):
        one.disk.mount()
    assert one.start() is False
    assert one.damaged
    one.wipe()
    assert one.start()
    assert core_of(one).found == []
