"""Speculation: on which writes, for how long, and with which conditions."""

from __future__ import annotations

import asyncio

import pytest

import logdb
from logdb.errors import TransactionTooLarge
from logdb.store.records import Condition
from logdb.txn import speculation
from logdb.txn.speculation import (
    MAX_AGE_S,
    MAX_BYTES,
    MAX_WRITES,
    SUPPRESSED_S,
    WRONG,
    ConditionalReply,
    Misspeculated,
    SpeculatedWrites,
    Speculation,
)


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


def test_the_last_write_is_speculated_on(speculations: Speculation) -> None:
    assert value(speculations) == "none"
    speculations.sent({b"k": b"1", b"other": b"x"}, (), 0.0)
    speculations.sent({b"k": None}, (), 0.0)
    assert value(speculations) is None
    assert value(speculations, b"other") == b"x"


def test_old_writes_are_not_speculated_on(speculations: Speculation, clock: Clock) -> None:
    speculations.sent({b"k": b"1"}, (), 0.0)
    clock.now += MAX_AGE_S
    assert value(speculations) == "none"


def test_a_transaction_that_was_overtaken_is_not_speculated_on(speculations: Speculation, clock: Clock) -> None:
    begun = clock()
    speculations.sent({b"k": b"1"}, (b"k",), begun)
    speculations.sent({b"k": b"2"}, (b"k",), begun)
    assert value(speculations) == b"1"
    speculations.sent({b"k": b"3"}, (), begun)  # it has read nothing: nothing makes it abort
    assert value(speculations) == b"3"
    speculations.sent({b"k": b"4"}, (b"k",), clock())
    assert value(speculations) == b"4"


def test_a_failed_transaction_is_not_speculated_on(speculations: Speculation) -> None:
    lost: dict[bytes, bytes | None] = {b"k": b"1", b"other": b"1"}
    speculations.sent(lost, (), 0.0)
    speculations.sent({b"k": b"2"}, (), 0.0)
    speculations.failed(lost)
    assert value(speculations) == b"2"
    assert value(speculations, b"other") == "none"


def test_keys_written_by_other_means_are_forgotten(speculations: Speculation) -> None:
    speculations.sent({b"k": b"1"}, (), 0.0)
    speculations.forget([b"k", b"other"])
    assert value(speculations) == "none"


def test_a_wrong_speculation_suppresses_others_for_a_while(speculations: Speculation, clock: Clock) -> None:
    speculations.suppress_speculation([b"k"])
    speculations.sent({b"k": b"1", b"other": b"1"}, (), 0.0)
    assert value(speculations) == "none"
    assert value(speculations, b"other") == b"1"
    clock.now += SUPPRESSED_S
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
        assert max(len(speculations._writes), len(speculations._suppressed_until)) <= 10


def test_conditions_cover_the_keys_that_were_read() -> None:
    speculated = SpeculatedWrites(0.0, {b"a": b"1", b"b": None, b"c": b""})
    assert speculated.conditions({b"b", b"a", b"z"}) == [logdb.equals(b"a", b"1"), logdb.absent(b"b")]
    assert speculated.conditions([b"c"]) == [logdb.equals(b"c", b"")]


def committed(speculations: Speculation, speculated: SpeculatedWrites, reply: ConditionalReply | Exception) -> int:
    """The version of a commit that has read "k" and writes it."""
    sent: list[list[Condition]] = []

    async def send(conditions: list[Condition]) -> ConditionalReply:
        sent.append(conditions)
        if isinstance(reply, Exception):
            raise reply
        return reply

    version = asyncio.run(speculations.commit({b"k": b"2"}, {b"k"}, speculated, send))
    assert sent == [[logdb.equals(b"k", b"1")]]
    return version


def test_a_commit_is_applied_where_its_conditions_hold(speculations: Speculation) -> None:
    speculated = SpeculatedWrites(speculations.clock(), {b"k": b"1"})
    assert committed(speculations, speculated, ConditionalReply(7, True)) == 7
    assert value(speculations) == b"2"
    assert committed(speculations, speculated, ConditionalReply(8, True, is_contended=True)) == 8
    assert value(speculations) == "none", "another client has its turn"


@pytest.mark.parametrize("reply", [ConditionalReply(7, False), TransactionTooLarge(2, 1), OSError("lost")])
def test_a_failed_commit_is_run_again_and_not_speculated_on(
    speculations: Speculation, reply: ConditionalReply | Exception
) -> None:
    speculated = SpeculatedWrites(speculations.clock(), {b"k": b"1"})
    with pytest.raises(OSError if isinstance(reply, OSError) else Misspeculated):
        committed(speculations, speculated, reply)
    assert value(speculations) == "none"
    speculations.sent({b"k": b"3"}, (), 0.0)
    assert value(speculations) == ("none" if isinstance(reply, ConditionalReply) else b"3"), "its value was wrong"


def test_a_transaction_that_has_failed_its_verification_cannot_commit(speculations: Speculation) -> None:
    with pytest.raises(Misspeculated):
        committed(speculations, WRONG, ConditionalReply(7, True))
