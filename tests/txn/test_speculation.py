"""Beliefs: in whom, for how long, and what has to hold for them."""

from __future__ import annotations

import pytest

import logdb
from logdb.txn import speculation
from logdb.txn.speculation import FRESH_S, MOST_BYTES, MOST_WRITES, WARY_S, SpeculatedWrites, Speculation


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def beliefs(clock: Clock) -> Speculation:
    return Speculation(clock)


def value(beliefs: Speculation, key: bytes = b"k") -> bytes | str | None:
    belief = beliefs.belief(key)
    return "none" if belief is None else belief.values[key]


def test_the_last_write_is_believed(beliefs: Speculation) -> None:
    assert value(beliefs) == "none"
    beliefs.sent({b"k": b"1", b"other": b"x"}, (), 0.0)
    beliefs.sent({b"k": None}, (), 0.0)
    assert value(beliefs) is None
    assert value(beliefs, b"other") == b"x"


def test_what_is_old_is_not_believed(beliefs: Speculation, clock: Clock) -> None:
    beliefs.sent({b"k": b"1"}, (), 0.0)
    clock.now += FRESH_S
    assert value(beliefs) == "none"


def test_who_was_overtaken_is_not_believed_in(beliefs: Speculation, clock: Clock) -> None:
    begun = clock()
    beliefs.sent({b"k": b"1"}, (b"k",), begun)
    beliefs.sent({b"k": b"2"}, (b"k",), begun)
    assert value(beliefs) == b"1"
    beliefs.sent({b"k": b"3"}, (), begun)  # it has read nothing: nothing makes it abort
    assert value(beliefs) == b"3"
    beliefs.sent({b"k": b"4"}, (b"k",), clock())
    assert value(beliefs) == b"4"


def test_who_has_failed_is_not_believed_in(beliefs: Speculation) -> None:
    lost: dict[bytes, bytes | None] = {b"k": b"1", b"other": b"1"}
    beliefs.sent(lost, (), 0.0)
    beliefs.sent({b"k": b"2"}, (), 0.0)
    beliefs.failed(lost)
    assert value(beliefs) == b"2"
    assert value(beliefs, b"other") == "none"


def test_keys_that_are_written_in_another_way_are_forgotten(beliefs: Speculation) -> None:
    beliefs.sent({b"k": b"1"}, (), 0.0)
    beliefs.forget([b"k", b"other"])
    assert value(beliefs) == "none"


def test_nobody_believes_for_a_while_where_that_was_wrong(beliefs: Speculation, clock: Clock) -> None:
    beliefs.suppress_speculation([b"k"])
    beliefs.sent({b"k": b"1", b"other": b"1"}, (), 0.0)
    assert value(beliefs) == "none"
    assert value(beliefs, b"other") == b"1"
    clock.now += WARY_S
    beliefs.sent({b"k": b"2"}, (), 0.0)
    assert value(beliefs) == b"2"


def test_large_transactions_and_many_keys_are_not_remembered(
    beliefs: Speculation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes in ({b"k": bytes(MOST_BYTES + 1)}, {b"k": b"", **{b"%d" % at: None for at in range(MOST_WRITES)}}):
        beliefs.sent({b"k": b"1"}, (), 0.0)
        beliefs.sent(writes, (), 0.0)
        assert value(beliefs) == "none"
    monkeypatch.setattr(speculation, "MOST_KEYS", 10)
    for number in range(100):
        beliefs.sent({b"%d" % number: b""}, (), 0.0)
        beliefs.suppress_speculation([b"%d" % (number + 1000)])
        assert value(beliefs, b"%d" % number) == b""
        assert max(len(beliefs._beliefs), len(beliefs._wary)) <= 10


def test_conditions_are_about_what_was_read() -> None:
    belief = SpeculatedWrites(0.0, {b"a": b"1", b"b": None, b"c": b""})
    assert belief.conditions({b"b", b"a", b"z"}) == [logdb.equals(b"a", b"1"), logdb.absent(b"b")]
    assert belief.conditions([b"c"]) == [logdb.equals(b"c", b"")]
