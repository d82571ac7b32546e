"""The contract of consumers of named logs: each entry takes effect once, in every world and both faces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import logdb
from logdb.errors import LogDBError
from logdb.named_logs import ConsumerState, Entry, Position
from tests.harness.worlds import World


def record(txn: Any, entry: Entry) -> None:
    """The effect: the values in the order in which they were consumed, in one key."""
    txn.put(b"seen", (txn.get(b"seen") or b"") + entry.value + b" ")


def seen(db: logdb.Database, key: bytes = b"seen") -> list[bytes]:
    return (db.get(key) or b"").split()


def numbered(db: logdb.Database, count: int, name: str = "orders") -> list[Position]:
    return db.log(name).extend([b"%d" % number for number in range(count)])


def test_entries_take_effect_once_and_in_order(world: World) -> None:
    positions = numbered(world.db, 5)
    with world.db.log("orders").consumer("billing") as consumer:
        assert consumer.position is None
        assert consumer.lag == 5
        assert consumer.run(record, limit=2) == 2
        assert consumer.position == positions[1]
    db = world.disturb()
    orders = db.log("orders")
    consumer = orders.consumer("billing")
    assert consumer.run(record, until_end=True) == 3
    assert consumer.run(record, timeout=0) == 0
    last = orders.append(b"5")
    assert consumer.run(record, timeout=0, batch=10) == 1
    assert seen(db) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert (consumer.position, consumer.lag) == (last, 0)


def test_a_batch_is_one_transaction(db: logdb.Database) -> None:
    numbered(db, 7)
    versions = set[int]()

    def body(txn: Any, entry: Entry) -> None:
        record(txn, entry)
        versions.add(txn.snapshot)

    before = db.version
    assert db.log("orders").consumer("billing").run(body, batch=3, limit=7) == 7
    changes = [change.version for change in db.watch(keys=[b"seen"], since=before, timeout=0)]
    assert len(changes) == 3
    assert seen(db) == [b"%d" % number for number in range(7)]


def test_an_error_leaves_the_entry_to_the_next_run(world: World) -> None:
    numbered(world.db, 4)
    consumer = world.db.log("orders").consumer("billing")

    def fail(txn: Any, entry: Entry) -> None:
        record(txn, entry)
        if entry.value == b"2":
            raise InterruptedError

    with pytest.raises(InterruptedError):
        consumer.run(fail)
    assert seen(world.disturb()) == [b"0", b"1"]
    assert world.db.log("orders").consumer("billing").run(record, timeout=0) == 2
    assert seen(world.db) == [b"0", b"1", b"2", b"3"]


def test_a_consumer_waits_for_entries(world: World) -> None:
    orders = world.db.log("orders")
    numbered(world.db, 2)
    done = list[int]()
    thread = threading.Thread(target=lambda: done.append(orders.consumer("billing").run(record, limit=4)))
    thread.start()
    for number in range(2, 4):
        while len(seen(world.db)) < number:
            pass
        world.db.log("other").append(b"x")
        orders.append(b"%d" % number)
    thread.join()
    assert done == [4]
    assert seen(world.db) == [b"0", b"1", b"2", b"3"]


def test_processes_that_run_one_consumer_do_not_repeat_an_entry(db: logdb.Database) -> None:
    numbered(db, 30)
    counts = list[int]()

    def consume() -> None:
        counts.append(db.log("orders").consumer("billing").run(record, until_end=True, batch=2))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 30
    assert seen(db) == [b"%d" % number for number in range(30)]


def test_consumers_are_independent_of_each_other(world: World) -> None:
    orders = world.db.log("orders")
    positions = numbered(world.db, 3)
    for name in ("mail", "billing", "a\0"):
        orders.consumer(name).run(lambda txn, entry: None, limit=2)
    orders.consumer("mail").run(lambda txn, entry: None, limit=1)
    expected = [
        ConsumerState("a\0", 0, positions[1], 1, None),
        ConsumerState("billing", 0, positions[1], 1, None),
        ConsumerState("mail", 0, positions[2], 0, None),
    ]
    assert world.disturb().log("orders").consumers() == expected
    orders = world.db.log("orders")
    orders.consumer("billing").delete()
    assert orders.consumers() == [expected[0], expected[2]]
    assert world.db.log("other").consumers() == []
    assert [entry.value for entry in orders.read()] == [b"0", b"1", b"2"]
    orders.delete()
    assert orders.consumers() == []
    assert world.db.logs() == []


def test_a_cursor_is_reset(db: logdb.Database) -> None:
    positions = [db.log("orders").append(b"%d" % number) for number in range(4)]
    orders = db.log("orders")
    consumer = orders.consumer("billing")
    times = [db.time_of(position.version) for position in positions]
    time = times[2]
    assert time is not None
    later = [b"%d" % number for number in range(4) if (times[number] or time) > time]

    def values_after(reset: Callable[[Any], object]) -> list[bytes]:
        found = list[bytes]()
        reset(consumer)
        consumer.run(lambda txn, entry: found.append(entry.value), timeout=0, batch=2)
        return found

    assert values_after(lambda consumer: consumer.reset()) == [b"0", b"1", b"2", b"3"]
    assert values_after(lambda consumer: None) == []
    assert values_after(lambda consumer: consumer.reset(positions[1])) == [b"2", b"3"]
    assert values_after(lambda consumer: consumer.reset(since=time)) == later
    assert values_after(lambda consumer: consumer.reset(to_end=True)) == []
    consumer.reset()
    assert (consumer.position, consumer.lag) == (None, 4)
    with pytest.raises(ValueError, match="one of"):
        consumer.reset(positions[0], to_end=True)


def test_a_waiting_consumer_continues_after_a_reset(db: logdb.Database) -> None:
    orders = db.log("orders")
    numbered(db, 2)
    thread = threading.Thread(target=lambda: orders.consumer("billing").run(record, limit=4))
    thread.start()
    while len(seen(db)) < 2:
        pass
    orders.consumer("billing").reset()
    thread.join()
    assert seen(db) == [b"0", b"1", b"0", b"1"]


def test_truncated_entries_and_compacted_versions(world: World) -> None:
    positions = numbered(world.db, 300)
    orders = world.db.log("orders")
    orders.consumer("billing").run(record, limit=3)
    orders.truncate(positions[298])
    world.db.compact()
    db = world.disturb()
    consumer = db.log("orders").consumer("billing")
    assert consumer.lag == 2
    assert consumer.run(record, timeout=0) == 2
    assert seen(db) == [b"0", b"1", b"2", b"298", b"299"]


def test_a_consumer_that_is_deleted_ends(db: logdb.Database) -> None:
    orders = db.log("orders")
    numbered(db, 3)

    def body(txn: Any, entry: Entry) -> None:
        if entry.value == b"1" and txn.attempt == 1:
            orders.consumer("billing").delete()

    with pytest.raises(LogDBError, match="was deleted while it was in use"):
        orders.consumer("billing").run(body)
    assert orders.consumers() == []


def test_a_conflict_with_others_is_tried_again(db: logdb.Database) -> None:
    numbered(db, 2)
    attempts = list[int]()

    def body(txn: Any, entry: Entry) -> None:
        attempts.append(txn.attempt)
        record(txn, entry)
        if txn.attempt == 1:
            db.put(b"seen", b"other ")

    assert db.log("orders").consumer("billing").run(body, limit=1) == 1
    assert attempts == [1, 2]
    assert seen(db) == [b"other", b"0"]


# ---- groups


def test_a_group_shares_the_entries_by_key(world: World) -> None:
    orders = world.db.log("orders")
    for key in range(6):
        orders.extend([b"%d" % number for number in range(4 * key, 4 * key + 4)], key=b"key %d" % key)
    found = dict[str, list[Entry]]()

    def body(member: str) -> Callable[[Any, Entry], None]:
        return lambda txn, entry: found.setdefault(member, []).append(entry)

    with orders.group("billing", partitions=4) as first, orders.group("billing", partitions=4) as second:
        assert len(second.partitions) == 2
        done = first.run(body("first"), until_end=True) + second.run(body("second"), until_end=True, batch=5)
        assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
        owners = {state.owner for state in orders.consumers()}
        assert owners == {first.member, second.member}
    assert done == 24
    entries = [entry for part in found.values() for entry in part]
    assert sorted(int(entry.value) for entry in entries) == list(range(24))
    for part in found.values():
        assert [entry.position for entry in part] == sorted(entry.position for entry in part)
    for key in {entry.key for entry in entries}:
        assert len({member for member, part in found.items() for entry in part if entry.key == key}) == 1
    states = world.disturb().log("orders").consumers()
    assert [(state.name, state.partition, state.lag, state.owner) for state in states] == [
        ("billing", partition, 0, None) for partition in range(4)
    ]


def test_entries_without_keys_are_spread(db: logdb.Database) -> None:
    orders = db.log("orders")
    numbered(db, 40)
    with orders.group("billing", partitions=2) as first, orders.group("billing", partitions=2) as second:
        counts = [member.run(record, until_end=True, batch=8) for member in (first, second)]
    assert sum(counts) == 40
    assert min(counts) > 5
    assert sorted(map(int, seen(db))) == list(range(40))


def test_the_partitions_of_a_member_that_leaves_go_to_others(db: logdb.Database) -> None:
    orders = db.log("orders")
    numbered(db, 10)
    with orders.group("billing", partitions=3) as first:
        with orders.group("billing", partitions=3) as second:
            assert second.run(record, limit=1) == 1
        assert first.run(record, until_end=True) == 9
        assert first.partitions == [0, 1, 2]
    assert sorted(map(int, seen(db))) == list(range(10))


def test_the_partitions_of_a_lost_member_move_after_its_lease(world: World) -> None:
    orders = world.db.log("orders")
    numbered(world.db, 10)
    lost = orders.group("billing", partitions=4, lease=0.2)
    lost.__enter__()
    lost.run(record, limit=1)
    with orders.group("billing", partitions=4, lease=0.3) as other:
        assert other.run(record, limit=9) == 9
        assert other.partitions == [0, 1, 2, 3]
        assert lost.run(record, until_end=True) == 0  # the member comes back, and takes its part again
        assert lost.partitions
    lost.__exit__(None, None, None)
    assert sorted(map(int, seen(world.db))) == list(range(10))
    assert {state.owner for state in orders.consumers()} == {None}


def test_a_member_that_has_lost_a_partition_is_fenced(db: logdb.Database) -> None:
    """The first member hands out an entry, and stops in the middle of the transaction until another has its lease."""
    orders = db.log("orders")
    orders.append(b"0", key=b"key")
    effects, counts, owners = list[str](), list[int](), list[bool]()
    lease = {"partitions": 1, "lease": 0.01}
    with orders.group("billing", **lease) as first, ExitStack() as others:

        def take_over() -> None:
            second = others.enter_context(orders.group("billing", **lease))
            counts.append(second.run(record, limit=1))
            owners.append(orders.consumers()[0].owner == second.member)

        def slow(txn: Any, entry: Entry) -> None:
            record(txn, entry)
            effects.append("first")
            if len(effects) == 1:
                thread = threading.Thread(target=take_over)
                thread.start()
                thread.join()

        assert first.run(slow, limit=1, timeout=0) == 0
    assert seen(db) == [b"0"]
    assert (effects, counts, owners) == (["first"], [1], [True])


def test_groups_and_consumers_are_not_mixed(db: logdb.Database) -> None:
    orders = db.log("orders")
    numbered(db, 2)
    orders.consumer("one").run(record, limit=1)
    with pytest.raises(LogDBError, match="is not a group"):
        orders.group("one").__enter__()
    with orders.group("all", partitions=2):
        with pytest.raises(LogDBError, match="is a group"):
            orders.consumer("all").run(record)
        with pytest.raises(ValueError, match="2 partitions, not 3"):
            orders.group("all", partitions=3).__enter__()
    with pytest.raises(LogDBError, match="with statement"):
        orders.group("all", partitions=2).run(record)
    group = orders.consumer("all")
    assert (group.lag, group.position) == (4 // 2, None)
    group.reset(to_end=True)
    assert group.lag == 0
    group.delete()
    assert [state.name for state in orders.consumers()] == ["one"]


def test_arguments_that_make_no_sense(db: logdb.Database) -> None:
    orders = db.log("orders")
    for name, error in ((7, TypeError), ("", ValueError), ("n" * 401, ValueError)):
        with pytest.raises(error, match="name of a consumer"):
            orders.consumer(name)  # type: ignore[arg-type]
    consumer = orders.consumer("billing")
    for options, error in (
        ({"batch": 0}, ValueError),
        ({"limit": "1"}, TypeError),
        ({"timeout": -1}, ValueError),
        ({"until_end": 1}, TypeError),
    ):
        with pytest.raises(error):
            consumer.run(record, **options)  # type: ignore[arg-type]
    for options, error in (
        ({"partitions": 0}, ValueError),
        ({"partitions": 1.0}, TypeError),
        ({"lease": 0}, ValueError),
        ({"lease": "1"}, TypeError),
    ):
        with pytest.raises(error):
            orders.group("billing", **options)  # type: ignore[arg-type]
    for key, error in (("text", TypeError), (bytes(1_025), ValueError)):
        with pytest.raises(error, match="partition key"):
            orders.append(b"x", key=key)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="to_end"):
        consumer.reset(to_end=1)  # type: ignore[arg-type]
    assert consumer.run(record, until_end=True) == 0


def test_a_refused_member_takes_no_partitions(db: logdb.Database) -> None:
    orders = db.log("orders")
    with orders.group("all", partitions=4) as first:
        with pytest.raises(ValueError, match="4 partitions, not 8"):
            orders.group("all", partitions=8).__enter__()
        with orders.group("all", partitions=4) as second:
            assert {state.owner for state in orders.consumers()} == {first.member, second.member}


def test_a_member_of_a_deleted_group_leaves_nothing_behind(db: logdb.Database) -> None:
    orders = db.log("orders")
    with orders.group("all", lease=0.001) as member:
        orders.delete()
        with pytest.raises(LogDBError, match="was deleted"):  # also if the heartbeat is not due yet
            member.run(record, timeout=1)
    assert orders.consumers() == []
    assert list(db.logs()) == []
