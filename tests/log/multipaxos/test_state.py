"""The replicated state: GSNs, retries, times, trims, and the bounded index."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from logdb.log.contract import Record
from logdb.log.multipaxos import log_index
from logdb.log.multipaxos.commands import Append, Batch, Trim, encode
from logdb.log.multipaxos.log_index import LogIndex
from logdb.log.multipaxos.records import unwrap
from logdb.log.multipaxos.sessions import Run, Sessions
from logdb.log.multipaxos.state import LogState


def some_records(count: int, payload: bytes = b"x") -> list[Record]:
    return [(1, payload)] * count


def test_records_get_consecutive_gsns_and_retries_the_same_ones() -> None:
    state = LogState()
    first = state.apply(encode(Batch(5, [Append(7, 1, 1, some_records(3)), Append(8, 1, 1, some_records(2))])))
    assert first.appends == [(7, 1, [Run(1, 3, 1)]), (8, 1, [Run(1, 2, 4)])]
    again = state.apply(encode(Batch(6, [Append(8, 1, 1, some_records(2)), Append(7, 2, 1, some_records(4))])))
    assert again.appends == [(8, 1, [Run(1, 2, 4)]), (7, 2, [Run(2, 2, 2), Run(4, 2, 6)])]
    assert len(again.records) == 2
    assert state.next_gsn == 8
    assert LogState.from_bytes(state.to_bytes()).to_bytes() == state.to_bytes()


def test_settled_numbers_are_never_appended() -> None:
    state = LogState()
    state.apply(encode(Batch(5, [Append(7, 1, 1, some_records(3)), Append(7, 4, 4, some_records(1))])))
    late = state.apply(encode(Batch(6, [Append(7, 1, 1, some_records(5))])))
    assert late.appends == [(7, 1, [Run(4, 1, 4), Run(5, 1, 5)])]


def test_times_never_decrease() -> None:
    state = LogState()
    times = []
    for time in (50, 40, 60):
        applied = state.apply(encode(Batch(time, [Append(time, 1, 1, some_records(1))])))
        times.append(unwrap(applied.first, applied.records[0]).time)
    assert times == [50, 50, 60]


def test_a_trim_past_the_end_is_rejected() -> None:
    state = LogState()
    state.apply(encode(Batch(5, [Append(7, 1, 1, some_records(3))])))
    assert state.apply(encode(Trim(1, 5))).trim == (1, "cannot trim to 5: the newest record is 3")
    assert state.apply(encode(Trim(2, 4))).trim == (2, "")
    assert state.apply(encode(Trim(3, 2))).trim == (3, "")
    assert state.oldest == 4


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 8)), max_size=30), st.integers(0, 30))
def test_sessions_agree_with_a_dictionary(requests: list[tuple[int, int]], mark: int) -> None:
    sessions, known, gsn = Sessions(), dict[int, int](), 1
    for sequence, count in requests:
        for run in sessions.find(9, sequence, count):
            if not run.gsn:
                sessions.add(9, run._replace(gsn=gsn))
                known |= {run.sequence + at: gsn + at for at in range(run.count)}
                gsn += run.count
    sessions.settle(9, mark)
    sessions = Sessions.from_json(sessions.to_json())
    found = {run.sequence + at: run.gsn and run.gsn + at for run in sessions.find(9, 1, 40) for at in range(run.count)}
    assert found == {number: known.get(number, 0) for number in range(max(1, mark), 41)}


def test_the_index_stays_bounded_and_returns_the_range_around_a_record() -> None:
    rng, index = random.Random(3), LogIndex()
    sizes: list[int] = []
    times: list[int] = []
    while len(sizes) < 3 * log_index.ENTRIES:
        count, size = rng.randint(1, 3), log_index.GRAIN_BYTES
        index.add(len(sizes), count, count * size)
        sizes += [size] * count
        times += [len(times)] * count
    assert len(index.gsns) <= log_index.ENTRIES
    assert index.grain > log_index.GRAIN_BYTES
    for time in rng.sample(range(len(sizes)), 200):
        first, end = index.around(time)
        exact = sum(1 for one in times if one <= time)
        assert first <= exact + 1
        assert end > exact
        assert end - first <= 2 * index.grain // log_index.GRAIN_BYTES + 3
    for gsn in rng.sample(range(1, len(sizes)), 200):
        end = index.reach(gsn, 10 * log_index.GRAIN_BYTES)
        assert gsn + 8 <= end <= gsn + 12 or end == index.end
    assert index.reach(index.end - 1, 1 << 40) == index.end


def test_a_trimmed_index_keeps_the_entry_of_its_first_record() -> None:
    index = LogIndex()
    for number in range(10):
        index.add(number, 1, log_index.GRAIN_BYTES)
    index.trim(6)
    assert index.gsns == [6, 7, 8, 9, 10]
    assert index.around(0) == (0, 6)
    assert index.around(7) == (9, 9)
    assert index.reach(2, 1) == 3
    assert LogIndex.from_json(index.to_json()).to_json() == index.to_json()
