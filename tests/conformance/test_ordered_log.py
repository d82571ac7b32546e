"""The contract `OrderedLog` of a log of one process (`logdb/log/contract.py`): dense GSNs, separate calls for ordering
and waiting, scans, times."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logdb.log.contract import Batch, LogFailed, NotOfThisShard, OrderedLog, Trimmed
from tests.conformance.logs import JOIN_S, ORDERED, Clock, numbered


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=ORDERED)
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[OrderedLog]:
    engine = ORDERED[request.param](tmp_path / "log", clock)
    yield engine
    engine.close()


def test_it_is_an_ordered_log(log: OrderedLog) -> None:
    assert isinstance(log, OrderedLog)


def test_an_empty_log(log: OrderedLog) -> None:
    assert (log.durable, log.end()) == (0, 1)
    assert log.last_at_time(1 << 60) == 0
    assert list(log.scan(1, 1)) == []


def test_an_append_is_durable_and_can_be_scanned(log: OrderedLog) -> None:
    gsns = log.append([(3, b"a"), (255, b""), (1, b"c" * 3000)])
    assert list(gsns) == [1, 2, 3]
    assert (log.durable, log.tail(), log.end()) == (3, 3, 4)
    read = [log.read_record(gsn, 0) for gsn in gsns]
    assert list(log.scan(1, 4)) == read
    assert list(log.scan(2, 3)) == [read[1]]


def test_an_append_without_records_uses_no_gsn(log: OrderedLog) -> None:
    log.append([])
    log.append(numbered(2))
    log.append([])
    assert log.end() == 3


def test_ordering_and_waiting_apart(log: OrderedLog) -> None:
    assert log.order(numbered(3)) == 1
    assert log.order(numbered(2)) == 4
    assert log.end() == 6
    log.wait_durable(4)
    assert log.durable >= 4
    log.wait_durable(5)
    assert log.durable == 5
    log.wait_durable(1)


def test_the_one_shard_is_0(log: OrderedLog) -> None:
    gsns, shard = log.append_to_shard(numbered(2), 0)
    assert (list(gsns), shard) == ([1, 2], 0)
    with pytest.raises(NotOfThisShard):
        log.append_to_shard(numbered(1), 1)
    assert log.tail() == 2
    log.set_shard_policy(lambda record: 0)
    assert log.view().active == {0}
    assert log.view().finalized == frozenset()


def test_waiting_past_a_record(log: OrderedLog) -> None:
    assert log.wait_past(0, 0) is False
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(log.wait_past(2, None)), daemon=True)
    thread.start()
    for _ in range(3):
        log.append(numbered(1))
    thread.join(JOIN_S)
    assert got == [True]
    assert log.wait_past(2, 0) is True
    assert log.wait_past(3, 0) is False


def test_trimming(log: OrderedLog) -> None:
    log.append([(1, b"x" * 500) for _ in range(10)])
    with pytest.raises(ValueError, match="cannot trim before 12: the tail is 10"):
        log.trim(12)
    assert log.oldest() == 1
    left = log.oldest_after_trim(5)
    assert left <= 5
    log.trim(5)
    log.trim(3)
    assert log.oldest() == 5
    assert log.oldest_after_trim(5) <= 5
    assert [record.gsn for record in log.scan(5, 11)] == list(range(5, 11))
    with pytest.raises(Trimmed):
        list(log.scan(4, 11))
    log.trim(11)
    assert log.oldest() == 11
    assert list(log.append(numbered(1))) == [11]
    assert log.read_record(11, 0).payload == b"0"


def test_a_trim_removes_whole_files_only(log: OrderedLog) -> None:
    log.append([(1, b"x" * 1_000)] * 3)
    full = log.size()
    assert full >= 3_000
    assert log.begin_file() == log.begin_file() == 4
    log.append([(1, b"y")])
    assert log.size(4) < 1_000 < log.size(1)
    log.trim(4)
    assert log.oldest_after_trim(4) == log.oldest() == 4
    assert log.size() < full / 2
    assert log.read_record(4, 0).payload == b"y"


def test_a_scan_that_a_trim_overtakes(log: OrderedLog) -> None:
    """The scan returns correct records to the end or raises Trimmed, and never omits a record."""
    for _ in range(20):
        log.append([(1, b"x" * 500)])
    scan = log.scan(1, 21)
    got = [next(scan).gsn]
    log.trim(21)
    try:
        got.extend(record.gsn for record in scan)
        assert len(got) == 20
    except Trimmed as error:
        assert error.oldest == 21
    assert got == list(range(1, len(got) + 1))


def test_times_do_not_decrease(log: OrderedLog, clock: Clock) -> None:
    for now in (1000, 5000, 4000, 5000, 9000):
        clock.now = now
        log.append(numbered(2))
    times = [log.time_of(gsn) for gsn in range(1, 11)]
    assert times == sorted(times)
    assert times == [log.read_record(gsn, 0).time for gsn in range(1, 11)]
    assert (times[0], times[2], times[-1]) == (1000, 5000, 9000)
    assert times[3] < times[4] < times[6], "each append has a time of its own"


def test_the_last_record_at_a_time(log: OrderedLog, clock: Clock) -> None:
    for now in (1000, 2000, 3000, 4000):
        clock.now = now
        log.append([(1, b"x" * 400), (1, b"y" * 400)])
    for time, gsn in ((999, 0), (1000, 2), (1999, 2), (2000, 4), (3500, 6), (4000, 8), (1 << 62, 8)):
        assert log.last_at_time(time) == gsn
    log.trim(6)
    for time, gsn in ((999, 5), (2000, 5), (2999, 5), (3000, 6), (4000, 8)):
        assert log.last_at_time(time) == gsn
    with pytest.raises(Trimmed):
        log.time_of(log.oldest_after_trim(6) - 1)


def test_a_subscription_delivers_every_gsn(log: OrderedLog) -> None:
    log.append(numbered(3000))
    subscription = log.subscribe(5)
    at = 5
    while at <= 3000:
        batch = next(subscription)
        assert batch.first == at
        assert [record.gsn for record in batch.records] == list(range(batch.first, batch.end))
        at = batch.end
    log.append(numbered(1))
    batch = next(subscription)
    assert (batch.first, batch.end) == (3001, 3002)


def test_a_subscription_to_some_tags_shows_its_gaps(log: OrderedLog) -> None:
    log.append([(number % 5 + 1, b"%d" % number) for number in range(2500)])
    subscription = log.subscribe(1, {2, 4})
    at = 1
    while at <= 2500:
        batch = next(subscription)
        assert batch.first == at, "contiguous, with or without filtered records"
        at = batch.end
    log.append([(1, b"not subscribed")])
    assert next(subscription) == Batch(2501, 2502, [])


def test_a_subscription_to_the_future(log: OrderedLog) -> None:
    log.append(numbered(1))
    subscription = log.subscribe(4)
    log.append(numbered(2))
    assert subscription.poll(0) is None
    log.append(numbered(2))
    assert [record.gsn for record in next(subscription).records] == [4, 5]


def test_closing_the_log_ends_waiting_calls(log: OrderedLog) -> None:
    ended: list[BaseException] = []

    def end_with(call: Callable[[], object]) -> None:
        try:
            call()
        except LogFailed as error:
            ended.append(error)

    calls: list[Callable[[], object]] = [
        lambda: log.read_record(5, 0),
        lambda: log.wait_past(5, None),
        lambda: next(log.subscribe(6)),
    ]
    threads = [threading.Thread(target=end_with, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    log.append(numbered(2))
    log.close()
    for thread in threads:
        thread.join(JOIN_S)
    assert [str(error) for error in ended] == ["the log is closed"] * 3
    with pytest.raises(LogFailed, match="the log is closed"):
        log.append(numbered(1))


def test_many_threads_leave_no_gap(log: OrderedLog) -> None:
    got: list[list[int]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        for turn in range(25):
            got[number].extend(log.append([(number + 1, b"%d" % turn), (number + 1, b"and more")]))

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
    assert sorted(itertools.chain(*got)) == list(range(1, 401))
    assert all(gsn == first + 1 for gsns in got for first, gsn in zip(gsns[::2], gsns[1::2], strict=True))
    times = [record.time for record in log.scan(1, 401)]
    assert times == sorted(times)
