"""The Database contract, writing: puts, deletes, multi-puts, conditions, limits and outcomes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import logdb
from tests.harness.worlds import World

LARGE = b"large " * 2_000
OTHER_LARGE = b"other " * 2_000


def test_versions_grow(db: logdb.Database) -> None:
    versions = [
        db.put(b"k", b"1"),
        db.delete(b"k"),
        db.multi_put({b"a": b"1", b"b": None}),
        db.test_and_multi_put([], {b"c": b"1"}).version,
        db.put(b"k", LARGE),
    ]
    assert versions == sorted(set(versions))
    assert db.version == versions[-1]


def test_item_assignment(world: World) -> None:
    world.db[b"k"] = b"1"
    world.db[b"gone"] = b"1"
    del world.db[b"gone"]
    db = world.disturb()
    assert dict(db.scan()) == {b"k": b"1"}


def test_multi_put_writes_all_at_one_version(world: World) -> None:
    world.db.put(b"b", b"old")
    version = world.db.multi_put({b"a": b"1", b"b": None, b"c": LARGE})
    db = world.disturb()
    assert dict(db.at(version - 1).scan()).get(b"a") is None
    assert dict(db.scan()) == {b"a": b"1", b"c": LARGE}
    assert {next(db.history(key)).version for key in (b"a", b"b", b"c")} == {version}


def test_the_caller_may_change_its_dictionary_afterwards(db: logdb.Database) -> None:
    items: dict[bytes, bytes | None] = {b"a": b"1"}
    db.multi_put(items)
    items[b"a"] = b"2"
    assert db[b"a"] == b"1"


Made = Callable[[int], logdb.Condition]
"""Makes a condition from the version at which the key was written last."""

ON_SMALL: list[tuple[Made, bool]] = [
    (lambda _: logdb.equals(b"k", b"1"), True),
    (lambda _: logdb.equals(b"k", b"2"), False),
    (lambda _: logdb.equals(b"k", b""), False),
    (lambda _: logdb.equals(b"k", LARGE), False),
    (lambda _: logdb.absent(b"k"), False),
    (lambda _: logdb.exists(b"k"), True),
    (lambda version: logdb.version_equals(b"k", version), True),
    (lambda version: logdb.version_equals(b"k", version - 1), False),
    (lambda _: logdb.version_equals(b"k", 0), False),
    (lambda version: logdb.version_less(b"k", version + 1), True),
    (lambda version: logdb.version_less(b"k", version), False),
    (lambda version: logdb.version_greater(b"k", version - 1), True),
    (lambda version: logdb.version_greater(b"k", version), False),
]
ON_LARGE: list[tuple[Made, bool]] = [
    (lambda _: logdb.equals(b"k", LARGE), True),
    (lambda _: logdb.equals(b"k", OTHER_LARGE), False),
    (lambda _: logdb.equals(b"k", LARGE + b"x"), False),
    (lambda _: logdb.equals(b"k", b"large "), False),
    (lambda _: logdb.exists(b"k"), True),
    (lambda _: logdb.absent(b"k"), False),
    (lambda version: logdb.version_equals(b"k", version), True),
]
ON_NONE: list[tuple[Made, bool]] = [
    (lambda _: logdb.equals(b"k", b""), False),
    (lambda _: logdb.equals(b"k", LARGE), False),
    (lambda _: logdb.absent(b"k"), True),
    (lambda _: logdb.exists(b"k"), False),
    (lambda _: logdb.version_equals(b"k", 0), True),
    (lambda version: logdb.version_equals(b"k", version), False),
    (lambda _: logdb.version_less(b"k", 1), True),
    (lambda _: logdb.version_less(b"k", 0), False),
    (lambda _: logdb.version_greater(b"k", 0), False),
]
CASES = [
    (name, position, *case)
    for name, cases in (("small", ON_SMALL), ("large", ON_LARGE), ("deleted", ON_NONE), ("never", ON_NONE))
    for position, case in enumerate(cases)
]


@pytest.mark.parametrize("state", ["small", "large", "deleted", "never"])
def test_conditions(world: World, state: str) -> None:
    version = world.db.put(b"before", b"1")
    if state != "never":
        version = world.db.put(b"k", LARGE if state == "large" else b"1")
    if state == "deleted":
        version = world.db.delete(b"k")
    db = world.disturb()
    for name, position, make, holds in CASES:
        if name == state:
            condition, target = make(version), b"t%d" % position
            tested = db.test_and_multi_put([logdb.exists(b"before"), condition], {target: b"done", b"large": LARGE})
            assert tested.committed is holds, condition
            assert tested.failed == (() if holds else (condition,))
            assert (target in db) is holds
            assert tested.version <= db.version
            assert db.at(tested.version).get(target) == (b"done" if holds else None)
            assert target not in db.at(tested.version - 1)


def test_all_conditions_must_hold_and_all_failed_ones_are_returned(db: logdb.Database) -> None:
    db.put(b"a", b"1")
    wrong = [logdb.absent(b"a"), logdb.equals(b"a", b"2")]
    tested = db.test_and_multi_put([wrong[0], logdb.exists(b"a"), wrong[1]], {b"a": b"3", b"b": b"1"})
    assert (tested.committed, tested.failed) == (False, tuple(wrong))
    assert dict(db.scan()) == {b"a": b"1"}
    assert db.test_and_multi_put([logdb.absent(b"b")], {}).committed


def test_a_failed_test_stays_failed(world: World) -> None:
    tested = world.db.test_and_multi_put([logdb.exists(b"a")], {b"b": b"1"})
    world.db.put(b"a", b"1")
    db = world.disturb()
    assert not tested.committed
    assert dict(db.scan()) == {b"a": b"1"}
    assert db.at(tested.version).get(b"b") is None


@pytest.mark.parametrize("value", ["text", bytearray(b"v"), 1, None])
def test_values_of_the_wrong_type(db: logdb.Database, value: object) -> None:
    with pytest.raises(TypeError, match="must be bytes"):
        db.put(b"k", value)  # type: ignore[arg-type]
    if value is not None:
        with pytest.raises(TypeError):
            db.multi_put({b"a": b"1", b"k": value})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        logdb.equals(b"k", value)  # type: ignore[arg-type]
    with pytest.raises(TypeError), db.transaction() as txn:
        txn.put(b"k", value)  # type: ignore[arg-type]
    assert db.version == 0


@pytest.mark.parametrize("label", [b"bytes", 1, "x" * 1_025, "\ud800"])
def test_invalid_labels(db: logdb.Database, label: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        db.put(b"k", b"1", label=label)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)), db.transaction(label=label) as txn:  # type: ignore[arg-type]
        txn[b"k"] = b"1"
    db.put(b"k", b"1", label="x" * 1_024)


@pytest.mark.parametrize(
    "condition",
    [
        "k",
        logdb.Condition(99, b"k"),
        logdb.Condition(1, b"k", 5),
        logdb.Condition(1, b"k", None),
        logdb.Condition(2, b"k", b"x"),
        logdb.Condition(16, b"k", b"x"),
        logdb.Condition(16, b"k", -1),
        logdb.Condition(2, "k"),  # type: ignore[arg-type]
        logdb.Condition(2, b""),
    ],
)
def test_invalid_conditions(db: logdb.Database, condition: logdb.Condition) -> None:
    with pytest.raises((TypeError, ValueError)):
        db.test_and_multi_put([condition], {b"a": b"1"})
    version = db.put(b"k", b"1")
    assert [change.version for change in db.watch(since=0, timeout=0)] == [version]


def test_versions_in_conditions_are_checked() -> None:
    for make in (logdb.version_equals, logdb.version_less, logdb.version_greater):
        with pytest.raises(TypeError):
            make(b"k", "1")  # type: ignore[arg-type]
        for wrong in (-1, 1 << 64):
            with pytest.raises(ValueError):
                make(b"k", wrong)


def test_limits_are_checked_before_anything_is_written(db: logdb.Database) -> None:
    long_key, value = b"k" * (logdb.MAX_KEY_BYTES + 1), bytes(logdb.MAX_VALUE_BYTES)
    with pytest.raises(logdb.KeyTooLarge, match="8,193 bytes, the limit is 8,192") as key_error:
        db.put(long_key, b"1")
    assert (key_error.value.size, key_error.value.limit) == (8_193, 8_192)
    with pytest.raises(logdb.ValueTooLarge) as value_error:
        db.multi_put({b"a": b"1", b"k": value + b"x"})
    assert value_error.value.size == logdb.MAX_VALUE_BYTES + 1
    with pytest.raises(logdb.TransactionTooLarge, match="268,435,"):
        db.multi_put({b"%d" % number: value for number in range(4)})
    with pytest.raises(logdb.TransactionTooLarge), db.transaction() as txn:
        for number in range(4):
            txn[b"%d" % number] = value
    with db.transaction() as txn:
        for _ in range(6):
            txn[b"k"] = value
        txn[b"k"] = b"small"
    for call in (db.delete, logdb.absent, logdb.exists, db.history, db.at().get):
        with pytest.raises(logdb.KeyTooLarge):
            call(long_key)  # type: ignore[operator]
    with pytest.raises(logdb.KeyTooLarge), db.transaction() as txn:
        txn.get(long_key)
    assert issubclass(logdb.LimitExceeded, ValueError)
    assert dict(db.scan()) == {b"k": b"small"}
    assert len([change.version for change in db.watch(since=0, timeout=0)]) == 1


@pytest.mark.parametrize("write", ["put", "delete", "multi_put", "test_and_multi_put"])
def test_an_empty_key(db: logdb.Database, write: str) -> None:
    calls = {
        "put": lambda: db.put(b"", b"1"),
        "delete": lambda: db.delete(b""),
        "multi_put": lambda: db.multi_put({b"": b"1"}),
        "test_and_multi_put": lambda: db.test_and_multi_put([], {b"": b"1"}),
    }
    with pytest.raises(ValueError, match="must not be empty"):
        calls[write]()
    assert db.version == 0


def test_keys_and_values_at_the_limits(world: World) -> None:
    key = b"k" * logdb.MAX_KEY_BYTES
    rows = {key: b"1", key[:-1]: b"2", b"\0": b"", b"big": b"b" * 3_000_000}
    rows |= {b"inline": b"x" * 4_096, b"apart": b"x" * 4_097}
    world.db.multi_put(rows)
    db = world.disturb()
    assert dict(db.scan()) == rows
    assert db[key] == b"1"


def test_outcomes(world: World) -> None:
    with world.db.transaction() as committed:
        committed[b"k"] = b"1"
        committed_id = committed.id
    aborted_id = ""
    with pytest.raises(logdb.ConflictError), world.db.transaction() as aborted:
        aborted.get(b"k")
        aborted[b"other"] = b"1"
        aborted_id = aborted.id
        world.db.put(b"k", b"2")
    with world.db.transaction() as unfinished:
        never_id = unfinished.id
    db = world.disturb()
    assert db.outcome(committed_id) == (logdb.Status.COMMITTED, committed.version)
    assert db.outcome(committed_id).committed
    assert db.outcome(aborted_id).status is logdb.Status.ABORTED
    assert not db.outcome(aborted_id).committed
    assert db.outcome(never_id) == (logdb.Status.NOT_FOUND, 0)
    db.put(b"k", b"3")
    db.compact()
    db = world.disturb()
    assert db.outcome(committed_id).status is logdb.Status.FORGOTTEN
    assert db.outcome(aborted_id).status is logdb.Status.FORGOTTEN
    for wrong in ("", "x", "0123456789abcdef", "0123456789abcdef-", "0123456789abcdeX-1", "-1"):
        with pytest.raises(ValueError, match="transaction id"):
            db.outcome(wrong)


def test_a_settled_transaction_has_ended(world: World) -> None:
    db = world.db
    with db.transaction() as first:
        first[b"k"] = b"1"
        first_id = first.id
    assert db.outcome(first_id, settle=True) == (logdb.Status.COMMITTED, first.version)
    late_id = ""
    with pytest.raises(logdb.Unavailable, match="the transaction was settled as aborted"), db.transaction() as late:
        late_id = late.id
        late[b"k"] = late.get(b"k", b"") + b"2"
        ended = db.outcome(late_id, settle=True)
        assert ended.status is logdb.Status.ABORTED
        assert db.outcome(late_id, settle=True) == ended
    db = world.disturb()
    assert db.outcome(late_id) == ended
    assert dict(db.scan()) == {b"k": b"1"}
    assert [change.version for change in db.watch(since=0, timeout=0)] == [first.version]
    with pytest.raises(ValueError, match="its number is too large"):
        db.outcome(f"0123456789abcdef-{1 << 63}")
