"""Beliefs: in whom, for how long, and what has to hold for them."""

from __future__ import annotations

import pytest

import logdb
from logdb.txn import speculation
from logdb.txn.speculation import FRESH_S, MAX_BYTES, MAX_WRITES, WARY_S, SpeculatedWrites, Speculation


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
def speculations(clock: Clock) -> Speculation:
    return Speculation(clock)


def value(speculations: Speculation, key: bytes = b"k") -> bytes | str | None:
    speculated = speculations.speculated(key)
    return "none" if speculated is None else speculated.values[key]


def test_the_last_write_is_believed(speculations: Speculation) -> None:
    assert value(speculations) == "none"
    speculations.sent({b"k": b"1", b"other": b"x"}, (), 0.0)
    speculations.sent({b"k": None}, (), 0.0)
    assert value(speculations) is None
    assert value(speculations, b"other") == b"x"


def test_what_is_old_is_not_believed(speculations: Speculation, clock: Clock) -> None:
    speculations.sent({b"k": b"1"}, (), 0.0)
    clock.now += FRESH_S
    assert value(speculations) == "none"


def test_who_was_overtaken_is_not_believed_in(speculations: Speculation, clock: Clock) -> None:
    begun = clock()
    speculations.sent({b"k": b"1"}, (b"k",), begun)
    speculations.sent({b"k": b"2"}, (b"k",), begun)
    assert value(speculations) == b"1"
    speculations.sent({b"k": b"3"}, (), begun)  # it has read nothing: nothing makes it abort
    assert value(speculations) == b"3"
    speculations.sent({b"k": b"4"}, (b"k",), clock())
    assert value(speculations) == b"4"


def test_who_has_failed_is_not_believed_in(speculations: Speculation) -> None:
    lost: dict[bytes, bytes | None] = {b"k": b"1", b"other": b"1"}
    speculations.sent(lost, (), 0.0)
    speculations.sent({b"k": b"2"}, (), 0.0)
    speculations.failed(lost)
    assert value(speculations) == b"2"
    assert value(speculations, b"other") == "none"


def test_keys_that_are_written_in_another_way_are_forgotten(speculations: Speculation) -> None:
    speculations.sent({b"k": b"1"}, (), 0.0)
    speculations.forget([b"k", b"other"])
    assert value(speculations) == "none"


def test_nobody_believes_for_a_while_where_that_was_wrong(speculations: Speculation, clock: Clock) -> None:
    speculations.suppress_speculation([b"k"])
    speculations.sent({b"k": b"1", b"other": b"1"}, (), 0.0)
    assert value(speculations) == "none"
    assert value(speculations, b"other") == b"1"
    clock.now += WARY_S
    speculations.sent({b"k": b"2"}, (), 0.0)
    assert value(speculations) == b"2"


def test_large_transactions_and_many_keys_are_not_remembered(
    speculations: Speculation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for writes in ({b"k": bytes(MAX_BYTES + 1)}, {b"k": b"", **{b"%d" % at: None for at in range(MAX_WRITES)}}):
        speculations.sent({b"k": b"1"}, (), 0.0)
        speculations.sent(writes, (), 0.0)
        assert value(speculations) == "none"
    monkeypatch.setattr(speculation, "MAX_KEYS", 10)
    for number in range(100):
        speculations.sent({b"%d" % number: b""}, (), 0.0)
        speculations.suppress_speculation([b"%d" % (number + 1000)])
        assert value(speculations, b"%d" % number) == b""
        assert max(len(speculations._beliefs), len(speculations._wary)) <= 10


def test_conditions_are_about_what_was_read() -> None:
    speculated = SpeculatedWrites(0.0, {b"a": b"1", b"b": None, b"c": b""})
    assert speculated.conditions({b"b", b"a", b"z"}) == [logdb.equals(b"a", b"1"), logdb.absent(b"b")]
    assert speculated.conditions([b"c"]) == [logdb.equals(b"c", b"")]
