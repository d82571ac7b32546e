"""The contract `Log` in `logdb/log/contract.py`, on every engine, however many shards it has."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from logdb.log.contract import GENESIS, RECENT, Batch, Log, LogFailed, NotOfThisShard, Subscription, Trimmed
from tests.conformance.logs import ENGINES, JOIN_S, ORDERED, Clock, a_shard, follow, numbered, read


@pytest.fixture(params=ENGINES)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    engine = ENGINES[request.param](tmp_path / "log", Clock())
    yield engine
    engine.close()


def test_it_is_a_log(log: Log) -> None:
    assert isinstance(log, Log)


def test_an_empty_log(log: Log) -> None:
    assert (log.tail(), log.oldest()) == (0, 1)
    with pytest.raises(TimeoutError, match="record 1 was not appended within 0 seconds"):
        log.read_record(1, a_shard(log), timeout=0)


def test_appends_are_ordered_and_durable(log: Log) -> None:
    first = log.append([(3, b"a"), (255, b""), (1, b"c" * 3000)])
    second = log.append([(4, bytes(range(256)))])
    gsns = [*first, *second]
    assert gsns == sorted(set(gsns))
    assert log.tail() >= gsns[-1]
    records = [read(log, gsn) for gsn in gsns]
    assert [(r.tag, r.payload) for r in records] == [(3, b"a"), (255, b""), (1, b"c" * 3000), (4, bytes(range(256)))]
    assert [r.gsn for r in records] == gsns


def test_an_append_without_records(log: Log) -> None:
    assert list(log.append([])) == []
    log.append(numbered(2))
    assert list(log.append([])) == []


def test_appending_to_a_shard(log: Log) -> None:
    for wanted in sorted(log.view().active):
        gsns, shard = log.append_to_shard(numbered(2), wanted)
        assert (len(gsns), shard) == (2, wanted)
        assert [log.read_record(gsn, shard).payload for gsn in gsns] == [b"0", b"1"]
    before = log.tail()
    for wanted in (max(log.view().active) + 1, -1):
        with pytest.raises(NotOfThisShard):
            log.append_to_shard(numbered(1), wanted)
    assert log.tail() == before


def test_a_policy_chooses_the_shard(log: Log) -> None:
    active = sorted(log.view().active)
    assert log.view().finalized == frozenset()
    for shard in active:  # a shard that has just been added may not accept appends yet, and this waits for it
        log.append_to_shard([(1, b"first")], shard)
    log.set_shard_policy(lambda record: active[record[0] % len(active)])
    gsns = log.append([(tag, b"%d" % tag) for tag in range(1, 7)])
    for tag, gsn in enumerate(gsns, 1):
        assert log.read_record(gsn, active[tag % len(active)]).payload == b"%d" % tag
    log.set_shard_policy(lambda record: 1000)
    (gsn,) = log.append([(1, b"the shard does not exist, so another one stores the record")])
    assert read(log, gsn).gsn == gsn


def test_an_append_whose_policy_fails_raises_and_the_log_goes_on(log: Log) -> None:
    """Regression: the client of Corfu and Ziplog ended for all threads, also if the policy returned no number."""

    def broken(record: tuple[int, bytes]) -> int:
        raise ZeroDivisionError("planted")

    for policy, error in ((broken, ZeroDivisionError), (lambda record: "1", TypeError)):
        log.set_shard_policy(policy)  # type: ignore[arg-type]
        if len(log.view().active) > 1:
            with pytest.raises(error):
                log.append(numbered(2))
    log.set_shard_policy(lambda record: 1)
    assert len(log.append(numbered(2))) == 2


def test_the_five_answers_of_a_read(log: Log) -> None:
    """`tests/log/test_damage.py` tests the fifth, Corruption, which an engine in memory cannot return."""
    shard = a_shard(log)
    gsns, _ = log.append_to_shard([(1, b"x" * 900) for _ in range(6)], shard)
    log.trim(gsns[3])
    assert log.read_record(gsns[3], shard).gsn == gsns[3]
    with pytest.raises(Trimmed) as trimmed:
        log.read_record(gsns[2], shard)
    assert (trimmed.value.gsn, trimmed.value.oldest) == (gsns[2], gsns[3])
    for gsn, of in ((gsns[3], shard + 10), (0, shard), (-1, shard), (gsns[3], -1)):
        with pytest.raises(NotOfThisShard):
            log.read_record(gsn, of)
    for other in log.view().active - {shard}:
        with pytest.raises(NotOfThisShard):
            log.read_record(gsns[3], other)
    with pytest.raises(TimeoutError):
        log.read_record(log.tail() + 1, shard, timeout=0)


def test_a_read_waits_for_its_record(log: Log) -> None:
    """The contract does not require dense GSNs, so it waits on all shards for the next GSN after the tail."""
    got: list[bytes] = []
    log.append_to_shard(numbered(1), a_shard(log))
    waited = log.tail() + 1

    def wait_on(shard: int) -> None:
        try:
            got.append(log.read_record(waited, shard).payload)
        except NotOfThisShard:
            got.append(b"")

    shards = sorted(log.view().active)
    threads = [threading.Thread(target=wait_on, args=(shard,), daemon=True) for shard in shards]
    for thread in threads:
        thread.start()
    (gsn,) = log.append([(1, b"this one")])
    log.append([(1, b"and one more")])
    for thread in threads:
        thread.join(JOIN_S)
    assert sorted(got) == [b""] * (len(shards) - 1) + [b"this one" if gsn == waited else b""]


def test_trimming(log: Log) -> None:
    gsns = log.append([(1, b"x" * 500) for _ in range(10)])
    with pytest.raises(ValueError, match=f"{log.tail() + 2}"):
        log.trim(log.tail() + 2)
    assert log.oldest() == 1
    log.trim(gsns[4])
    log.trim(gsns[2])
    assert log.oldest() == gsns[4]
    assert read(log, gsns[4]).gsn == gsns[4]
    log.trim(log.tail() + 1)
    assert log.oldest() == log.tail() + 1
    with pytest.raises(Trimmed):
        log.subscribe(gsns[-1])
    (gsn,) = log.append(numbered(1))
    assert gsn > gsns[-1]
    assert read(log, gsn).payload == b"0"


def test_times_do_not_decrease(log: Log) -> None:
    gsns = [gsn for _ in range(10) for gsn in log.append(numbered(2))]
    times = [record.time for record in follow(log, 1, 20)]
    assert times == sorted(times)
    assert times == [read(log, gsn).time for gsn in gsns]


def test_a_subscription_delivers_all_records_in_order(log: Log) -> None:
    gsns = log.append(numbered(3000))
    got = follow(log, gsns[4], 2996)
    assert [record.gsn for record in got] == list(gsns[4:])
    assert [record.payload for record in got] == [b"%d" % number for number in range(4, 3000)]
    subscription = log.subscribe(log.tail() + 1)
    assert subscription.poll(0) is None
    (gsn,) = log.append(numbered(1))
    batch = next(batch for batch in subscription if batch.end > gsn)
    assert batch.first <= gsn
    assert [record.payload for record in batch.records] == [b"0"]
    assert iter(subscription) is subscription


def test_subscriptions_agree(log: Log) -> None:
    for number in range(30):
        log.append([(number % 3 + 1, b"%d" % number)])
    one, other = follow(log, 1, 30), follow(log, 1, 30)
    assert one == other
    assert [record.payload for record in one] == [b"%d" % number for number in range(30)]
    assert follow(log, one[10].gsn, 20) == one[10:]


def test_a_subscription_to_some_tags_shows_its_gaps(log: Log) -> None:
    log.append([(number % 5 + 1, b"%d" % number) for number in range(2500)])
    got = follow(log, 1, 1000, {2, 4})
    assert [r.payload for r in got] == [b"%d" % n for n in range(2500) if n % 5 in (1, 3)]
    at = log.tail() + 1
    subscription = log.subscribe(at, {2, 4})
    (gsn,) = log.append([(1, b"not subscribed")])
    while at <= gsn:
        batch = next(subscription)
        assert (batch.first, batch.records) == (at, [])
        assert batch.end > at
        at = batch.end


def test_a_subscription_waits_at_the_tail(log: Log) -> None:
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.extend(r.payload for r in follow(log, 1, 40)), daemon=True)
    thread.start()
    for number in range(40):
        log.append([(1, b"%d" % number)])
    thread.join(JOIN_S)
    assert got == [b"%d" % number for number in range(40)]


def test_a_subscription_to_the_future(log: Log) -> None:
    log.append(numbered(1))
    future = log.tail() + 3
    subscription = log.subscribe(future)
    (gsn,) = log.append(numbered(1))
    assert gsn >= future or subscription.poll(0) is None, "in an engine with gaps the second record may lie behind it"
    while log.tail() < future:
        log.append([(1, b"%d" % log.tail())])
    batch = next(subscription)
    assert batch.first == future
    assert min(record.gsn for record in batch.records) >= future


def test_a_subscription_to_the_oldest_record_that_is_left(log: Log) -> None:
    gsns = log.append(numbered(6))
    log.trim(gsns[2])
    subscription, got = log.subscribe(GENESIS), []
    left = [gsn for gsn in gsns if gsn >= log.oldest()]
    while len(got) < len(left):
        got += [record.gsn for record in next(subscription).records]
    assert got == left
    subscription.close()


def test_a_subscription_to_what_is_ordered_from_now_on(log: Log) -> None:
    log.append(numbered(3))
    subscription = log.subscribe(RECENT)
    later, got = log.append(numbered(2)), []
    while len(got) < 2:
        got += [record.gsn for record in next(subscription).records]
    assert got == list(later)
    subscription.close()


def test_a_trim_that_overtakes_a_subscription(log: Log) -> None:
    gsns = log.append(numbered(10))
    subscription = log.subscribe(1)
    more = log.append(numbered(2))
    log.trim(gsns[4])
    with pytest.raises(Trimmed) as trimmed:
        subscription.poll(None)
    assert (trimmed.value.gsn, trimmed.value.oldest) == (1, gsns[4])
    with pytest.raises(Trimmed):
        log.subscribe(gsns[3])
    assert [record.gsn for record in follow(log, gsns[4], 8)] == [*gsns[4:], *more]


def test_an_append_after_a_record_is_ordered_after_it(log: Log) -> None:
    (last,) = log.append(numbered(1))
    for _ in range(10):
        gsns = log.append(numbered(3), after=last)
        assert min(gsns) > last
        last = max(gsns)
    (placed,), shard = log.append_to_shard(numbered(1), a_shard(log), after=last)
    assert placed > last
    assert shard == a_shard(log)
    assert log.append(numbered(1), after=0)


def test_an_append_after_a_record_that_another_reader_has_seen(log: Log) -> None:
    """The append of that record may not have returned yet."""
    subscription = log.subscribe(1)
    threads = [threading.Thread(target=lambda: log.append(numbered(2)), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    seen = 0
    while seen < 8:
        batch = next(subscription)
        if batch.records:
            assert min(log.append(numbered(1, tag=2), after=batch.records[-1].gsn)) > batch.records[-1].gsn
        seen += sum(record.tag == 1 for record in batch.records)
    for thread in threads:
        thread.join(JOIN_S)
    subscription.close()


@pytest.mark.parametrize("engine", ORDERED)
def test_an_append_after_no_record(engine: str, tmp_path: Path) -> None:
    log = ORDERED[engine](tmp_path / "log", Clock())
    log.append(numbered(2))
    with pytest.raises(ValueError, match="there is no record 3 yet; the newest is 2"):
        log.append(numbered(1), after=3)
    assert log.tail() == 2
    log.close()


def test_closing_a_subscription_ends_waiting_calls(log: Log) -> None:
    subscription = log.subscribe(1)
    batches: list[Batch] = []
    thread = threading.Thread(target=lambda: batches.extend(subscription), daemon=True)
    thread.start()
    log.append(numbered(2))
    subscription.close()
    thread.join(JOIN_S)
    assert not thread.is_alive()
    assert len([batch for batch in batches if batch.records]) <= 1
    with pytest.raises(StopIteration):
        next(subscription)


def test_closing_the_log_ends_waiting_calls(log: Log) -> None:
    ended: list[BaseException] = []
    shard = a_shard(log)
    far = 1 << 50
    subscription: Subscription = log.subscribe(far + 1)

    def end_with(call: Callable[[], object]) -> None:
        try:
            call()
        except LogFailed as error:
            ended.append(error)

    calls: list[Callable[[], object]] = [lambda: log.read_record(far, shard), lambda: next(subscription)]
    threads = [threading.Thread(target=end_with, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    log.append(numbered(2))
    log.close()
    for thread in threads:
        thread.join(JOIN_S)
    assert [str(error) for error in ended] == ["the log is closed"] * 2
    with pytest.raises(LogFailed, match="the log is closed"):
        log.append(numbered(1))


def test_many_threads(log: Log) -> None:
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
    everything = sorted(itertools.chain(*got))
    assert len(set(everything)) == 400
    assert log.tail() >= everything[-1]
    records = {record.gsn: record for record in follow(log, 1, 400)}
    assert sorted(records) == everything
    for number, gsns in enumerate(got):
        assert gsns == sorted(gsns)
        assert [records[gsn].payload for gsn in gsns[::2]] == [b"%d" % turn for turn in range(25)]
        assert {records[gsn].tag for gsn in gsns} == {number + 1}
