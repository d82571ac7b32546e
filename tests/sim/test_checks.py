"""Every check can fail: each history and each set of copies here is wrong in one way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Trimmed
from tests.sim.checks import Copy, Truth, check_all, check_answered, truth_of
from tests.sim.history import Following, History, Operation
from tests.sim.world import Failure

RECORDS = [(1, b"a"), (2, b"b"), (1, b"c"), (2, b"d")]
"""The log: `a` and `c` on shard 1, `b` and `d` on shard 2."""


def stored(gsn: int, payload: bytes | None = None, time: int | None = None) -> LogRecord:
    tag, content = RECORDS[gsn - 1]
    return LogRecord(gsn, time or 10 * gsn, tag, payload or content)


def a_copy(member: str, shard: int, *gsns: int) -> Copy:
    owned, authors = [(gsn, 1) for gsn in gsns], {gsn: (1, gsn) for gsn in gsns}
    return Copy(member, shard, 1, owned, [stored(gsn) for gsn in gsns], authors)  # type: ignore[arg-type]


def copies() -> list[Copy]:
    return [a_copy("one", 1, 1, 3), a_copy("two", 1, 1, 3), a_copy("three", 2, 2, 4)]


def truth() -> Truth:
    return truth_of(copies(), 1, 4)


def record(history: History, request: Any, result: Any, reads: Any = None) -> Operation:
    operation = history.invoke(request, "client")
    operation.reads = reads
    history.complete(operation, result)
    return operation


def good() -> History:
    """A correct history."""
    history = History()
    for gsn, one in enumerate(RECORDS, 1):
        record(history, calls.Append([one]), calls.AppendResult([gsn], [2 - gsn % 2]))
    for gsn, (tag, payload) in enumerate(RECORDS, 1):
        read = calls.Read(gsn, 2 - gsn % 2)
        record(history, read, LogRecord(gsn, 10 * gsn, tag, payload), RECORDS[gsn - 1])
    record(history, calls.Read(1, 2), NotOfThisShard(1, 2), "wrong")
    record(history, calls.Tail(), 4)
    record(history, calls.Oldest(), 1)
    record(history, calls.AtTime(25), 2)
    everything = [(gsn, 10 * gsn, one) for gsn, one in enumerate(RECORDS, 1)]
    history.followings.append(Following("client", 1, None, 5, everything))
    history.followings.append(Following("client", 1, frozenset({2}), 5, [everything[1], everything[3]]))
    return history


def test_a_good_history_passes() -> None:
    check_all(good(), truth())
    check_answered(good())


def fails(check: str, history: History, found: Truth | None = None) -> None:
    with pytest.raises(Failure) as failure:
        check_all(history, found or truth())
    assert check in failure.value.check


# ---- records of the servers


def changed(number: int, **changes: Any) -> list[Copy]:
    found = copies()
    found[number] = dataclasses.replace(found[number], **changes)
    return found


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (changed(1, records=[stored(1), stored(3, payload=b"x")]), "same record at the same GSN"),
        (changed(1, authors={1: (1, 1), 3: (1, 9)}), "same record at the same GSN"),
        (changed(1, records=[stored(1)]), "every record of its shard"),
        (changed(1, records=[stored(1), stored(2), stored(3)]), "returns only records of its shard"),
        (changed(2, owned=[(2, 2), (4, 1)], records=[stored(2), stored(3), stored(4)]), "a GSN belongs to one shard"),
        (copies()[:2], "GSNs are dense"),
    ],
)
def test_copies_that_differ_are_reported(wrong: list[Copy], check: str) -> None:
    with pytest.raises(Failure) as failure:
        truth_of(wrong, 1, 4)
    assert check in failure.value.check


def test_a_duplicate_record_is_reported() -> None:
    found = copies()
    found[2] = dataclasses.replace(found[2], authors={2: (1, 2), 4: (1, 1)})
    fails("no record twice", good(), truth_of(found, 1, 4))


def test_a_duplicate_of_a_trimmed_record_is_reported() -> None:
    history = good()
    history.followings[1].reached = 3
    history.followings[1].records = [(2, 20, RECORDS[1])]
    found = truth()
    moved = [(gsn, 10 * gsn, record) for gsn, record in enumerate([RECORDS[3], *RECORDS[1:]], 1)]
    history.operations = []
    history.followings[0].records = moved
    history.highest_trim = found.oldest = 2
    del found.records[1], found.owner[1], found.authors[1]
    fails("no record twice", history, found)


def test_decreasing_times_are_reported() -> None:
    found = copies()
    found[2] = dataclasses.replace(found[2], records=[stored(2, time=5), stored(4)])
    fails("times grow", good(), truth_of(found, 1, 4))


# ---- results of clients


def first(history: History, kind: type) -> Operation:
    return next(operation for operation in history.operations if type(operation.request) is kind)


def wrong_gsn(history: History) -> None:
    first(history, calls.Append).result = calls.AppendResult([9], [1])


def lost(history: History) -> None:
    record(history, calls.Append([(1, b"e")]), calls.AppendResult([5], [1]))


def wrong_shard(history: History) -> None:
    first(history, calls.Append).result = calls.AppendResult([1], [2])


def refused_record_in_the_log(history: History) -> None:
    first(history, calls.Append).result = Unavailable("")


def not_in_order(history: History) -> None:
    history.operations[0].result, history.operations[1].result = (
        calls.AppendResult([2], [2]),
        calls.AppendResult([1], [1]),
    )
    history.operations[0].request, history.operations[1].request = (
        calls.Append([RECORDS[1]]),
        calls.Append([RECORDS[0]]),
    )


def tail_too_small(history: History) -> None:
    first(history, calls.Tail).result = 3


def tail_too_large(history: History) -> None:
    first(history, calls.Tail).result = 5


def late_append_with_small_gsn(history: History) -> None:
    operation = first(history, calls.Append)
    history.operations.remove(operation)
    operation.invoked, operation.returned = history.moment + 1, history.moment + 2
    history.operations.append(operation)


def killed_append_with_small_gsn(history: History) -> None:
    late_append_with_small_gsn(history)
    history.operations[-1].result = "killed"


def batch_out_of_order(history: History) -> None:
    for operation in history.operations[:4]:
        operation.result = None
    record(history, calls.Append([RECORDS[2], RECORDS[0]]), calls.AppendResult([3, 1], [1, 1]))


def read_of_another_record(history: History) -> None:
    first(history, calls.Read).result = LogRecord(2, 20, *RECORDS[1])


def read_with_another_time(history: History) -> None:
    first(history, calls.Read).result = LogRecord(1, 20, *RECORDS[0])


def read_returns_absent(history: History) -> None:
    first(history, calls.Read).result = NotOfThisShard(1, 1)


def read_returns_trimmed(history: History) -> None:
    first(history, calls.Read).result = Trimmed(1, 3)


def read_times_out(history: History) -> None:
    first(history, calls.Read).result = TimeoutError()


def wrong_shard_returns_a_record(history: History) -> None:
    record(history, calls.Read(1, 2), LogRecord(1, 10, *RECORDS[0]), "wrong")


def subscriber_with_a_gap(history: History) -> None:
    del history.followings[0].records[1]


def subscriber_with_a_wrong_tag(history: History) -> None:
    history.followings[1].records.insert(0, history.followings[0].records[0])


def subscriber_with_another_record(history: History) -> None:
    history.followings[0].records[0] = (1, 10, (1, b"z"))


def subscriber_gets_trimmed(history: History) -> None:
    history.followings[0].ended = Trimmed(5, 7)


def oldest_goes_back(history: History) -> None:
    history.highest_trim = 3
    record(history, calls.Trim(3), 3)
    record(history, calls.Oldest(), 1)


def oldest_grows_without_a_trim(history: History) -> None:
    record(history, calls.Oldest(), 3)


def time_too_young(history: History) -> None:
    first(history, calls.AtTime).result = 3


def time_too_old(history: History) -> None:
    first(history, calls.AtTime).result = 1


@pytest.mark.parametrize(
    ("spoil", "check"),
    [
        (wrong_gsn, "no record twice"),
        (lost, "acknowledged records are present"),
        (wrong_shard, "acknowledged records are on their shard"),
        (refused_record_in_the_log, "refused records"),
        (not_in_order, "linearizable"),
        (tail_too_small, "linearizable"),
        (tail_too_large, "a tail exists"),
        (late_append_with_small_gsn, "linearizable"),
        (killed_append_with_small_gsn, "linearizable"),
        (batch_out_of_order, "an append are in order"),
        (read_of_another_record, "the record asked for"),
        (read_with_another_time, "the record asked for"),
        (read_returns_absent, "never reports"),
        (read_returns_trimmed, "only trimmed records are reported as trimmed"),
        (read_times_out, "only calls with a deadline"),
        (wrong_shard_returns_a_record, "its own records only"),
        (subscriber_with_a_gap, "subscribers agree"),
        (subscriber_with_a_wrong_tag, "subscribers agree"),
        (subscriber_with_another_record, "same record at the same GSN"),
        (subscriber_gets_trimmed, "only trimmed records are reported as trimmed"),
        (oldest_goes_back, "the oldest GSN never goes back"),
        (oldest_grows_without_a_trim, "only trimmed records are gone"),
        (time_too_young, "a point in time"),
        (time_too_old, "a point in time"),
    ],
)
def test_a_history_with_one_fault(spoil: Callable[[History], None], check: str) -> None:
    history = good()
    spoil(history)
    fails(check, history)


def test_missing_records_without_a_trim_are_reported() -> None:
    history = good()
    history.followings.clear()
    found = truth()
    found.oldest = 3
    fails("only trimmed records are gone", history, found)


def test_a_call_without_an_answer_is_reported() -> None:
    history = good()
    history.invoke(calls.Tail(), "client")
    with pytest.raises(Failure, match="every call is answered"):
        check_answered(history)
