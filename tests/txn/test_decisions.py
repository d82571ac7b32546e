"""The rule, the coordinator and the read set, without a disk: decisions are a function of the log."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from logdb.log import MemoryLog
from logdb.store import conditions
from logdb.store.key_map import KeyMap
from logdb.store.records import COMMIT, Commit, Place, TxnId, decode_commit, encode_commit
from logdb.store.values import Values
from logdb.txn.coordinator import Coordinator, Status
from logdb.txn.transaction import ReadSet, Span
from logdb.txn.validation import Reason, validate

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
ranges = st.tuples(st.one_of(st.just(b""), keys), st.one_of(st.none(), keys))
commits = st.builds(
    Commit,
    st.integers(1, 2),
    st.integers(1, 8),
    st.dictionaries(keys, st.one_of(st.none(), st.binary(max_size=2)), max_size=3),
    st.integers(0, 12),
    st.just(""),
    st.lists(keys, max_size=2),
    st.lists(ranges, max_size=2),
    st.lists(st.builds(conditions.equals, keys, st.binary(max_size=2)), max_size=1),
    st.just(()),  # tests/model decides range deletes
    st.just(0),
    st.just(()),  # as tests/model does folds
)


def coordinator(log: MemoryLog) -> Coordinator:
    return Coordinator(KeyMap(Values(log.read_record), None))


@given(st.lists(commits, max_size=20))
def test_decisions_follow_from_the_log_alone(history: list[Commit]) -> None:
    log = MemoryLog()
    one, verdicts, states = coordinator(log), [], [dict[bytes, tuple[int, bytes | None]]()]
    seen: set[tuple[int, int]] = set()
    for gsn, commit in enumerate(history, 1):
        log.append([(COMMIT, encode_commit(commit))])
        verdict = one.deliver(gsn, commit)
        verdicts.append(verdict)
        state = states[-1]
        changed = {key for key, (version, _) in state.items() if version > commit.snapshot}
        spans = [(low, high) for low, high in commit.ranges]
        in_range = {key for key in changed for low, high in spans if low <= key and (high is None or key < high)}
        if (commit.client, commit.sequence) in seen:
            expected = Reason.DUPLICATE
        elif changed & set(commit.reads) or in_range:
            expected = Reason.CONFLICT
        elif any(state.get(condition.key, (0, None))[1] != condition.operand for condition in commit.conditions):
            expected = Reason.CONDITION
        else:
            expected = Reason.COMMITTED
        assert verdict.reason is expected
        seen.add((commit.client, commit.sequence))
        after = dict(state)
        if verdict.committed:
            after.update({key: (gsn, value) for key, value in commit.writes.items()})
        states.append(after)
    assert [key for key in states[-1] if one.map.newer(key, 0, len(history)) != states[-1][key][0]] == []
    again = coordinator(log)
    records = log.scan(1, len(history) + 1)
    assert [again.deliver(record.gsn, decode_commit(record.payload, record.gsn)) for record in records] == verdicts
    told = coordinator(log)
    told.preload_decisions([one.undeclared()])
    told.replay(log.scan(1, len(history) + 1))
    assert [told.outcome(TxnId(*txn)) for txn in sorted(seen)] == [one.outcome(TxnId(*txn)) for txn in sorted(seen)]
    assert told.map.active.newest.keys() == one.map.active.newest.keys()


def test_the_same_id_twice_counts_once() -> None:
    machine = coordinator(MemoryLog())
    first = Commit(1, 1, {b"k": b"1"})
    assert machine.deliver(1, first).committed
    verdict = machine.deliver(2, first._replace(writes={b"k": b"2"}))
    assert (verdict.reason, verdict.first) == (Reason.DUPLICATE, 1)
    assert machine.map.get(b"k", 2) == b"1"
    assert machine.outcome(TxnId(1, 1)) == (Status.COMMITTED, 1)
    assert list(machine.undeclared().aborted) == [2]


def test_a_commit_that_refers_to_a_later_record_aborts() -> None:
    machine = coordinator(MemoryLog())
    for gsn, place in ((1, 1), (2, 3), (3, 0)):
        commit = Commit(1, gsn, {b"k": Place(place, 0, 9, b"d" * 16)})
        assert machine.deliver(gsn, commit).reason is Reason.DANGLING
    assert validate(Commit(1, 1, {}, 3, reads=[b"k"]), 9, 5, machine.map).reason is Reason.TOO_OLD


@given(st.lists(ranges, max_size=6))
def test_the_read_set_joins_adjacent_ranges_and_covers_the_same_keys(spans: list[tuple[bytes, bytes | None]]) -> None:
    read_set = ReadSet()
    for start, end in spans:
        read_set.spans.append(Span(start, end, False))
        read_set.spans[-1].last = None
    joined = read_set.ranges

    def covers(some: list[tuple[bytes, bytes | None]], key: bytes) -> bool:
        return any(start <= key and (end is None or key < end) for start, end in some)

    for key in (b"\x00", b"a", b"aa", b"b", b"bb", b"c", b"cc", b"d", b"dd"):
        assert covers(joined, key) == covers(spans, key)
    assert all(end is None or start < end for start, end in joined)
    assert all(end is not None and end < start for (_, end), (start, _) in itertools.pairwise(joined))
