"""The contract in `logdb/log/contract.py`, on every engine: an engine joins by a line in `ENGINES`."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logdb.log import LocalLog, MemoryLog
from logdb.log.contract import Log, LogFailed, NotOfThisShard, OrderedLog, Record, Trimmed

JOIN_S = 60
ENGINES: dict[str, Callable[[Path, Callable[[], int]], OrderedLog]] = {
    "local": lambda path, clock: LocalLog(path, bytes(16), segment_bytes=1 << 10, clock=clock),
    "memory": lambda path, clock: MemoryLog(clock),
}


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=ENGINES)
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[OrderedLog]:
    engine = ENGINES[request.param](tmp_path / "log", clock)
    yield engine
    engine.close()


def numbered(count: int, tag: int = 1) -> list[Record]:
    return [(tag, b"%d" % number) for number in range(count)]


def test_it_is_a_log(log: OrderedLog) -> None:
    assert isinstance(log, Log)
    assert isinstance(log, OrderedLog)


def test_an_empty_log(log: OrderedLog) -> None:
    assert (log.tail(), log.durable, log.end(), log.oldest()) == (0, 0, 1, 1)
    assert log.last_at_time(1 << 60) == 0
    assert list(log.scan(1, 1)) == []
    with pytest.raises(TimeoutError, match="record 1 was not appended within 0 seconds"):
        log.read_record(1, 0, timeout=0)


def test_appends_are_ordered_and_durable(log: OrderedLog) -> None:
    first = log.append([(3, b"a"), (255, b""), (1, b"c" * 3000)])
    second = log.append([(4, bytes(range(256)))])
    gsns = [*first, *second]
    assert gsns == sorted(set(gsns))
    assert log.durable == log.tail() == gsns[-1]
    assert log.end() == gsns[-1] + 1
    read = [log.read_record(gsn, 0) for gsn in gsns]
    assert [(r.tag, r.payload) for r in read] == [(3, b"a"), (255, b""), (1, b"c" * 3000), (4, bytes(range(256)))]
    assert [r.lsn for r in read] == gsns
    assert list(log.scan(gsns[0], gsns[-1] + 1)) == read
    assert list(log.scan(gsns[1], gsns[2])) == [read[1]]


def test_an_append_of_nothing(log: OrderedLog) -> None:
    assert list(log.append([])) == []
    log.append(numbered(2))
    assert list(log.append([])) == []
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


def test_appending_to_a_shard(log: OrderedLog) -> None:
    gsns, shard = log.append_to_shard(numbered(2), 0)
    assert (list(gsns), shard) == ([1, 2], 0)
    with pytest.raises(NotOfThisShard):
        log.append_to_shard(numbered(1), 1)
    assert log.tail() == 2
    log.set_shard_policy(lambda record: 0)
    assert log.view().active == {0}
    assert log.view().finalized == frozenset()


def test_the_five_answers_of_a_read(log: OrderedLog) -> None:
    """The fifth, Corruption, is `tests/log/test_damage.py`'s: an engine in memory cannot give it."""
    log.append([(1, b"x" * 900) for _ in range(6)])
    log.trim(4)
    assert log.read_record(4, 0).lsn == 4
    with pytest.raises(Trimmed) as trimmed:
        log.read_record(3, 0)
    assert (trimmed.value.gsn, trimmed.value.oldest) == (3, 4)
    for gsn, shard in ((4, 1), (0, 0), (-1, 0), (4, -1)):
        with pytest.raises(NotOfThisShard):
            log.read_record(gsn, shard)
    with pytest.raises(TimeoutError):
        log.read_record(7, 0, timeout=0)


def test_a_read_waits_for_its_record(log: OrderedLog) -> None:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(log.read_record(3, 0).payload), daemon=True)
    thread.start()
    for number in range(3):
        log.append([(1, b"%d" % number)])
    thread.join(JOIN_S)
    assert got == [b"2"]
    assert log.wait_past(2, 0) is True
    assert log.wait_past(3, 0) is False


def test_trimming(log: OrderedLog) -> None:
    log.append([(1, b"x" * 500) for _ in range(10)])
    with pytest.raises(ValueError, match="cannot trim before 12: the tail is 10"):
        log.trim(12)
    assert log.oldest() == 1
    left = log.left_by_trim(5)
    assert left <= 5
    log.trim(5)
    log.trim(3)
    assert log.oldest() == 5
    assert log.left_by_trim(5) <= 5
    assert [record.lsn for record in log.scan(5, 11)] == list(range(5, 11))
    with pytest.raises(Trimmed):
        list(log.scan(4, 11))
    log.trim(11)
    assert log.oldest() == 11
    assert list(log.append(numbered(1))) == [11]
    assert log.read_record(11, 0).payload == b"0"


def test_a_scan_that_a_trim_overtakes(log: OrderedLog) -> None:
    """All that it gives is right; it goes on to the end or says Trimmed, and never leaves a record out."""
    for _ in range(20):
        log.append([(1, b"x" * 500)])
    scan = log.scan(1, 21)
    got = [next(scan).lsn]
    log.trim(21)
    try:
        got.extend(record.lsn for record in scan)
        assert len(got) == 20
    except Trimmed as error:
        assert error.oldest == 21
    assert got == list(range(1, len(got) + 1))


def test_times_never_go_back(log: OrderedLog, clock: Clock) -> None:
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
        log.time_of(log.left_by_trim(6) - 1)


def test_a_subscription_gives_everything_in_order(log: OrderedLog) -> None:
    log.append(numbered(3000))
    subscription = log.subscribe(5)
    at, got = 5, []
    while at <= 3000:
        batch = next(subscription)
        assert batch.first == at < batch.end
        assert [record.lsn for record in batch.records] == list(range(batch.first, batch.end))
        got.extend(batch.records)
        at = batch.end
    assert [record.payload for record in got] == [b"%d" % number for number in range(4, 3000)]
    assert subscription.poll(0) is None
    log.append(numbered(1))
    batch = next(subscription)
    assert (batch.first, batch.end) == (3001, 3002)
    assert iter(subscription) is subscription


def test_a_subscription_to_some_tags_shows_its_gaps(log: OrderedLog) -> None:
    log.append([(number % 5 + 1, b"%d" % number) for number in range(2500)])
    subscription = log.subscribe(1, {2, 4})
    at, got = 1, []
    while at <= 2500:
        batch = next(subscription)
        assert batch.first == at, "contiguous, whatever was filtered"
        assert all(batch.first <= record.lsn < batch.end for record in batch.records)
        got.extend(batch.records)
        at = batch.end
    assert [r.payload for r in got] == [b"%d" % n for n in range(2500) if n % 5 in (1, 3)]
    log.append([(1, b"not subscribed")])
    assert next(subscription) == (2501, 2502, [])


def test_a_subscription_waits_at_the_tail(log: OrderedLog) -> None:
    got: list[bytes] = []

    def follow() -> None:
        for batch in log.subscribe(1):
            got.extend(record.payload for record in batch.records)
            if len(got) == 40:
                return

    threads = [threading.Thread(target=follow, daemon=True)]
    threads[0].start()
    for number in range(40):
        log.append([(1, b"%d" % number)])
    threads[0].join(JOIN_S)
    assert got == [b"%d" % number for number in range(40)]


def test_a_subscription_to_the_future(log: OrderedLog) -> None:
    log.append(numbered(1))
    subscription = log.subscribe(4)
    log.append(numbered(2))
    assert subscription.poll(0) is None
    log.append(numbered(2))
    assert [record.lsn for record in next(subscription).records] == [4, 5]


def test_a_trim_that_overtakes_a_subscription(log: OrderedLog) -> None:
    log.append(numbered(10))
    subscription = log.subscribe(1)
    log.append(numbered(2))
    log.trim(5)
    with pytest.raises(Trimmed) as trimmed:
        subscription.poll(None)
    assert (trimmed.value.gsn, trimmed.value.oldest) == (1, 5)
    with pytest.raises(Trimmed):
        log.subscribe(4)
    assert [record.lsn for record in next(log.subscribe(5)).records] == list(range(5, 13))


def test_closing_a_subscription_ends_who_waits(log: OrderedLog) -> None:
    subscription = log.subscribe(1)
    batches: list[object] = []
    thread = threading.Thread(target=lambda: batches.extend(subscription), daemon=True)
    thread.start()
    log.append(numbered(2))
    subscription.close()
    thread.join(JOIN_S)
    assert not thread.is_alive()
    assert len(batches) <= 1
    with pytest.raises(StopIteration):
        next(subscription)


def test_closing_the_log_ends_who_waits(log: OrderedLog) -> None:
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


def test_many_threads(log: OrderedLog) -> None:
    got: list[list[int]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        for turn in range(25):
            got[number].extend(log.append([(number + 1, b"%d" % turn), (number + 1, b"and more")]))
            assert log.tail() >= got[number][-1]

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
    assert sorted(itertools.chain(*got)) == list(range(1, 401))
    for number, gsns in enumerate(got):
        assert gsns == sorted(gsns)
        assert [log.read_record(gsn, 0).payload for gsn in gsns[::2]] == [b"%d" % turn for turn in range(25)]
        assert {log.read_record(gsn, 0).tag for gsn in gsns} == {number + 1}
    times = [record.time for record in log.scan(1, 401)]
    assert times == sorted(times)
