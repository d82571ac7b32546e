"""The times of records increase, and a temporarily wrong clock has no lasting effect."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.embedded import EmbeddedBackend
from logdb.log import MemoryLog
from logdb.log.record_clock import MAX_JUMP_NS, MAX_PAUSE_NS, RecordClock
from tests.harness.served import Served

S = 1_000_000_000
NOW = int(dt.datetime(2026, 11, 22, tzinfo=dt.UTC).timestamp()) * S
YEARS = 365 * 24 * 3_600 * S


class Clocks:
    """A settable clock, and a monotonic one."""

    def __init__(self, now: int) -> None:
        self.now, self.passed = now, 0

    def advance(self, ns: int) -> None:
        self.now += ns
        self.passed += ns


@pytest.fixture
def clocks() -> Clocks:
    return Clocks(NOW)


def opened(clocks: Clocks, last: int = 0) -> Callable[[], int]:
    """The source of timestamps of a log whose newest record has the time `last`."""
    return RecordClock(last, lambda: clocks.now, lambda: clocks.passed).next


def test_times_increase(clocks: Clocks) -> None:
    stamp = opened(clocks)
    assert [stamp(), stamp(), stamp()] == [NOW, NOW + 1, NOW + 2]
    clocks.now -= S
    assert stamp() == NOW + 3
    clocks.now = NOW + S
    assert stamp() == NOW + S


def test_a_clock_that_jumps_ahead_is_not_followed(clocks: Clocks) -> None:
    stamp = opened(clocks, NOW - S)
    stamp()
    clocks.now += 50 * YEARS
    for _ in range(2):
        with pytest.raises(logdb.Unavailable, match="from 2026-11-22 00:00:00 UTC to 2076-11-09 00:00:00 UTC"):
            stamp()
    clocks.now -= 50 * YEARS - S
    assert stamp() == NOW + S
    clocks.now += 2 * MAX_JUMP_NS
    with pytest.raises(logdb.Unavailable, match="open the log again if it is right now"):
        stamp()
    assert opened(clocks, NOW + S)() == clocks.now


def test_a_log_that_is_opened_with_a_clock_far_ahead(clocks: Clocks) -> None:
    clocks.now += 50 * YEARS
    with pytest.raises(logdb.Unavailable, match="more than ten years"):
        opened(clocks, NOW)()
    clocks.now = NOW + MAX_PAUSE_NS
    assert opened(clocks, NOW)() == clocks.now


def test_elapsed_time_is_not_a_jump(clocks: Clocks) -> None:
    """Between two writes, or while the machine was suspended; a day more in ten years is drift."""
    stamp = opened(clocks, NOW - 9 * YEARS)
    assert stamp() == NOW
    for _ in range(3):
        clocks.advance(3 * YEARS)
        clocks.now += MAX_JUMP_NS // 3
        assert stamp() == clocks.now


def test_a_clock_that_was_not_set_is_set(clocks: Clocks) -> None:
    """A machine without a battery starts in 1970, and may write before its clock is set."""
    clocks.now = S
    fresh, older = opened(clocks), opened(clocks, NOW - YEARS)
    assert fresh() == S
    assert older() == NOW - YEARS + 1
    clocks.now = NOW
    assert fresh() == older() == NOW
    assert opened(clocks, S)() == NOW


def test_a_clock_that_is_behind_is_logged_once(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    stamp = opened(clocks, NOW + 50 * YEARS)
    assert [stamp() - NOW, stamp() - NOW] == [50 * YEARS + 1, 50 * YEARS + 2]
    assert [record.message for record in caplog.records if "2076-11-09" in record.message] == [caplog.messages[0]]


@pytest.fixture(params=["embedded", "memory", "served"])
def db(request: pytest.FixtureRequest, tmp_path: Path, clocks: Clocks) -> Iterator[logdb.Database]:
    options = {"clock": lambda: clocks.now}
    if request.param == "memory":
        with logdb.Database(EmbeddedBackend(":memory:", MemoryLog(options["clock"]), None)) as db:
            yield db
    elif request.param == "embedded":
        host = EmbeddedBackend.open(tmp_path / "db", read_only=False, create=True, log_options=options)
        with logdb.Database(host) as db:
            yield db
    else:
        served = Served(tmp_path / "db", log_options=options)
        with logdb.connect(served.address) as db:
            yield db
        served.close()


def test_one_write_with_a_wrong_clock_does_not_affect_later_times(db: logdb.Database, clocks: Clocks) -> None:
    db.put(b"k", b"1")
    clocks.now += 50 * YEARS
    with pytest.raises(logdb.Unavailable, match="clock of this machine has jumped ahead"):
        db.put(b"k", b"2")
    with pytest.raises(logdb.Unavailable), db.transaction() as txn:
        txn[b"k"] = b"2"
    assert db[b"k"] == b"1"
    clocks.now -= 50 * YEARS - S
    version = db.put(b"k", b"3")
    assert db.time_of(version) == dt.datetime(2026, 11, 22, 0, 0, 1, tzinfo=dt.UTC)
