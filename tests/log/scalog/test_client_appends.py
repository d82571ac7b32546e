"""Appends of a client: choice of segments, batches, and that no record is appended twice."""

from __future__ import annotations

import pickle

import pytest

from logdb.cores.effects import MILLISECOND, SECOND, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, LogFailed, NotOfThisShard
from logdb.log.policies import ByRecord, Fixed, Nearest
from logdb.log.scalog.client import appends
from logdb.log.scalog.messages import (
    Append,
    AppendStatus,
    AppendStatusRequest,
    Rejected,
    RejectReason,
    Segment,
    TailRequest,
    TailResponse,
    Unreachable,
    ViewRequest,
    ViewResponse,
)
from tests.harness.comparisons import comparisons_of
from tests.log.scalog.client_stage import FINALIZED, FINALIZING, Stage, records, shard, view


def test_an_append_is_sent_and_answered() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Append(records(3)))
    to, append = stage.one(Append)
    assert to in ("s11", "s12")
    assert (f"s{append.segment}", append.sequence, append.settled, list(append.records)) == (to, 1, 1, records(3))
    assert call not in stage.answers
    stage.acknowledge(to, append, 40)
    assert stage.answers[call] == calls.AppendResult([40, 41, 42], [1, 1, 1])


def test_an_append_waits_for_the_view() -> None:
    stage = Stage()
    call = stage.call(calls.Append(records(1)))
    assert stage.take(Append) == []
    stage.show(view(1, shard(1)))
    to, append = stage.one(Append)
    stage.acknowledge(to, append, 1)
    assert stage.answers[call].gsns == [1]


def test_an_append_without_records() -> None:
    stage = Stage(view(1, shard(1)))
    assert stage.ask(calls.Append([])) == calls.AppendResult([], [])
    assert stage.take(Append) == []


# ---- batches


def one_segment(**config: int) -> Stage:
    return Stage(view(1, shard(1, servers=1)), **config)


def test_records_are_collected_while_a_batch_is_in_flight() -> None:
    stage = one_segment(linger_ns=SECOND)
    first = stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    others = [stage.call(calls.Append(records(2))) for _ in range(3)]
    assert stage.take(Append) == []
    stage.acknowledge(to, append, 1)
    assert stage.answers[first].gsns == [1]
    to, batch = stage.one(Append)
    assert (batch.sequence, batch.settled, len(batch.records)) == (2, 2, 6)
    stage.acknowledge(to, batch, 10)
    assert [stage.answers[call].gsns for call in others] == [[10, 11], [12, 13], [14, 15]]


def test_appends_called_at_one_moment_are_sent_together() -> None:
    stage = Stage(view(1, shard(1), shard(2), shard(3)), coalesce_calls=True)
    for _ in range(5):
        stage.call(calls.Append(records(2)))
    assert stage.take(Append) == []
    stage.wait(0)
    to, batch = stage.one(Append)
    assert len(batch.records) == 10
    stage.acknowledge(to, batch, 1)
    assert [stage.answers[call].gsns for call in range(1, 6)] == [[n, n + 1] for n in range(1, 11, 2)]


def test_a_full_batch_does_not_wait_for_more_calls() -> None:
    stage = one_segment(coalesce_calls=True, batch_bytes=200)
    for _ in range(6):
        stage.call(calls.Append(records(1)))
    assert len(stage.one(Append)[1].records) == 5


def test_records_are_sent_after_the_linger_time() -> None:
    stage = one_segment(linger_ns=MILLISECOND)
    for _ in range(3):
        stage.call(calls.Append(records(1)))
    assert len(stage.one(Append)[1].records) == 1
    stage.wait(MILLISECOND)
    assert len(stage.one(Append)[1].records) == 2


def test_a_full_batch_does_not_linger() -> None:
    stage = one_segment(linger_ns=SECOND, batch_bytes=200)
    stage.call(calls.Append(records(1)))
    stage.one(Append)
    for _ in range(5):
        stage.call(calls.Append(records(1)))
    assert len(stage.one(Append)[1].records) == 5


def test_at_most_the_window_is_in_flight() -> None:
    stage = one_segment(linger_ns=0, batch_bytes=100, window_bytes=300)
    for _ in range(10):
        stage.call(calls.Append(records(2)))
    stage.wait(SECOND // 10)
    assert sum(len(append.records) for _, append in stage.take(Append)) == 6


def test_appends_beyond_the_buffer_wait_for_admission() -> None:
    stage = one_segment(linger_ns=0, buffer_bytes=200)
    waiting = [stage.call(calls.Append(records(2))) for _ in range(6)]
    stage.wait(MILLISECOND)
    taken = stage.take(Append)
    assert sum(len(append.records) for _, append in taken) == 4
    for to, append in taken:
        stage.acknowledge(to, append, append.sequence)
    stage.wait(MILLISECOND)
    for _ in range(3):
        for to, append in stage.take(Append):
            stage.acknowledge(to, append, append.sequence)
        stage.wait(MILLISECOND)
    assert [stage.answers[call].gsns for call in waiting] == [[n, n + 1] for n in range(1, 13, 2)]


def test_an_append_that_expires_is_compared_with_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 that expired together took a client seconds. Half of them are admitted."""
    compared = comparisons_of("PendingAppend", appends, monkeypatch)
    stage = one_segment(buffer_bytes=100 * 33)
    for number in range(200):
        stage.call(calls.Append([(1, b"x")], deadline=stage.now + MILLISECOND - number))
    stage.wait(2 * MILLISECOND)
    assert len(stage.answers) == 200
    assert len(compared) < 10 * 200


def test_a_large_append_is_sent_chunk_by_chunk() -> None:
    """The records keep their order if a chunk fails."""
    stage = one_segment(batch_bytes=100)
    call = stage.call(calls.Append(records(5)))
    gsn = 1
    for count in (2, 2, 1):
        to, append = stage.one(Append)
        assert (len(append.records), append.sequence) == (count, gsn)
        stage.acknowledge(to, append, gsn)
        gsn += count
    assert stage.answers[call].gsns == [1, 2, 3, 4, 5]


def test_acknowledgements_may_cover_a_part_or_several_batches() -> None:
    stage = one_segment(linger_ns=0)
    first = stage.call(calls.Append(records(4)))
    to, append = stage.one(Append)
    second = stage.call(calls.Append(records(2)))
    stage.wait(0)
    stage.one(Append)
    stage.acknowledge(to, append, 7, 1)
    assert first not in stage.answers
    stage.acknowledge(to, append, 7, 1)
    stage.acknowledge(to, append._replace(sequence=2), 20, 5)
    assert stage.answers[first].gsns == [7, 20, 21, 22]
    assert stage.answers[second].gsns == [23, 24]


# ---- choice of segments


def test_a_random_segment_for_each_batch() -> None:
    assert primaries_of_appends(Stage(view(1, shard(1), shard(2)))) == {"s11", "s12", "s21", "s22"}


def primaries_of_appends(stage: Stage) -> set[str]:
    """The primaries of 40 appends, one after another."""
    primaries = set()
    for _ in range(40):
        stage.call(calls.Append(records(1)))
        to, append = stage.one(Append)
        primaries.add(to)
        stage.acknowledge(to, append, append.sequence)
    return primaries


@pytest.mark.parametrize("reason", ["silence", "busy"])
def test_new_appends_avoid_a_stalled_segment(reason: str) -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    call = stage.call(calls.Append(records(1)))
    to, stalled = stage.one(Append)
    if reason == "busy":
        stage.give(to, Rejected(stalled.client, 1, stalled.segment, RejectReason.BUSY))
    else:
        stage.wait(SECOND // 2)
        stage.take(Append)
    others = {"s11", "s12", "s21", "s22"} - {to}
    assert primaries_of_appends(stage) == others
    stage.acknowledge(to, stalled, 100)
    assert stage.answers[call].gsns == [100]
    assert primaries_of_appends(stage) == others | {to}


def test_new_appends_do_not_wait_behind_a_stalled_batch() -> None:
    stage = Stage(view(1, shard(1)), window_bytes=1)
    appenders = stage.core._appends.appenders
    while not any(appender.waiting for appender in appenders.values()):
        stage.call(calls.Append(records(1)))
    (stalled,) = [f"s{segment}" for segment, appender in appenders.items() if appender.waiting]
    for to, append in stage.take(Append):
        if to != stalled:
            stage.acknowledge(to, append, 1)
    stage.wait(SECOND // 2)
    stage.take(Append)
    assert primaries_of_appends(stage) == {"s11", "s12"} - {stalled}


def test_if_all_segments_are_stalled_the_policy_chooses_as_usual() -> None:
    stage = Stage(view(1, shard(1)))
    for _ in range(20):
        stage.call(calls.Append(records(1)))
    stage.wait(SECOND)
    stage.take(Append)
    call = stage.call(calls.Append(records(1)))
    stage.wait(SECOND)
    (to, sent), *_ = [each for each in stage.take(Append) if each[1].sequence == 21]
    stage.acknowledge(to, sent, 5)
    assert stage.answers[call].gsns == [5]


def test_a_fixed_shard_and_the_shard_that_replaces_it() -> None:
    stage = Stage(view(1, shard(1), shard(2), shard(3)), policy=Fixed(2), linger_ns=0)
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[0] in ("s21", "s22")
    stage = Stage(view(1, shard(1), shard(2, FINALIZED), shard(3)), policy=Fixed(2))
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[0] in ("s31", "s32")
    stage = Stage(view(1, shard(1), shard(2), shard(3, FINALIZING)), policy=Fixed(3))
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[0] in ("s11", "s12")


def test_by_record_results_are_in_the_order_of_the_records() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    assert stage.ask(calls.SetPolicy(ByRecord(lambda record: record[0]))) is None
    call = stage.call(calls.Append([(1, b"a"), (2, b"b"), (1, b"c"), (2, b"d")]))
    (one, first), (two, second) = stage.take(Append)
    assert (one[:2], list(first.records)) == ("s1", [(1, b"a"), (1, b"c")])
    assert (two[:2], list(second.records)) == ("s2", [(2, b"b"), (2, b"d")])
    stage.acknowledge(two, second, 10)
    stage.acknowledge(one, first, 20)
    assert stage.answers[call] == calls.AppendResult([20, 10, 21, 11], [1, 2, 1, 2])


def test_a_policy_that_raises_fails_its_append_alone() -> None:
    stage = Stage(view(1, shard(1)), policy=ByRecord(lambda record: 1 // (record[0] - 1)))
    assert isinstance(stage.ask(calls.Append([(1, b"")])), ZeroDivisionError)
    stage.call(calls.Append([(3, b"")]))
    stage.one(Append)


def test_the_nearest_is_the_one_with_the_lowest_round_trip_once_all_are_measured() -> None:
    stage = Stage(view(1, shard(1), shard(2)), policy=Nearest())
    times = {"s11": 30, "s12": 10, "s21": 20, "s22": 40}
    primaries = []
    for _ in range(6):
        stage.call(calls.Append(records(1)))
        to, append = stage.one(Append)
        primaries.append(to)
        stage.wait(times[to] * MILLISECOND)
        stage.acknowledge(to, append, append.sequence)
    assert sorted(primaries[:4]) == sorted(times)
    assert primaries[4:] == ["s12", "s12"]


def test_a_draining_shard_gets_no_new_appends() -> None:
    stage = Stage(view(1, shard(1), shard(2)), policy=Fixed(1))
    stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    stage.acknowledge(to, append, 1, leaving=True)
    stage.one(ViewRequest)
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[0][:2] == "s2"


# ---- retries


def test_an_overdue_batch_is_resent_under_the_same_numbers() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    call = stage.call(calls.Append(records(2)))
    to, append = stage.one(Append)
    stage.wait(3 * SECOND)
    again = stage.take(Append)
    assert len(again) >= 2
    assert {(where, it.segment, it.sequence, len(it.records)) for where, it in again} == {(to, append.segment, 1, 2)}
    stage.acknowledge(to, append, 5)
    assert stage.answers[call].gsns == [5, 6]
    stage.wait(10 * SECOND)
    assert stage.take(Append) == []


def test_busy_does_not_release_the_numbers() -> None:
    stage = Stage(view(1, shard(1), shard(2)), linger_ns=0)
    call = stage.call(calls.Append(records(2)))
    to, append = stage.one(Append)
    waits = []
    for _ in range(5):
        stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.BUSY))
        assert stage.take(Append) == []
        before = stage.now
        while not (again := stage.take(Append)):
            stage.wait(MILLISECOND)
        waits.append(stage.now - before)
        assert again == [(to, append)]
    assert waits[-1] > waits[0], "it backs off"
    stage.acknowledge(to, append, 1)
    assert stage.answers[call].gsns == [1, 2]


def test_not_primary_does_not_release_the_numbers() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    stage.call(calls.Append(records(2)))
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.NOT_PRIMARY))
    stage.one(ViewRequest)
    stage.wait(SECOND)
    assert {where for where, _ in stage.take(Append)} == {to}


def sealed_stage(count: int = 4) -> tuple[Stage, int, Append]:
    """An append to segment 11 that was rejected because the segment is sealed. Shard 2 is live."""
    stage = Stage(view(1, shard(1, servers=3)), policy=Fixed(1))
    while True:
        call = stage.call(calls.Append(records(count)))
        to, append = stage.one(Append)
        if to == "s11":
            break
        stage.acknowledge(to, append, append.sequence)
    stage.give(to, Rejected(append.client, append.sequence, append.segment, RejectReason.SEALED))
    stage.show(view(2, shard(1, FINALIZED, servers=3), shard(2)))
    return stage, call, append


def test_records_whose_gsns_no_member_has_end_as_unknown() -> None:
    """A record was ordered and trimmed, and the member with its GSN has lost its disk (BUGS.md, 10)."""
    stage, call, append = sealed_stage()
    asked: list[str] = []
    while call not in stage.answers:
        stage.wait(SECOND)
        for to, _ in stage.take(AppendStatusRequest):
            asked.append(to)
            stage.give(to, AppendStatus(append.client, 11, ((append.sequence, 4, 0),), ()))
    assert isinstance(stage.answers[call], LogFailed)
    assert "it is in the log, but was trimmed" in str(stage.answers[call])
    assert {"s11", "s12", "s13"} <= set(asked[:-1]), "requests primaries to all members"


def test_a_late_status_may_have_the_gsns_that_were_given_up_or_lack_known_ones() -> None:
    """A member that was paused answers an old request when its records have results from others (BUGS.md, 50)."""
    stage, call, append = sealed_stage()
    first = append.sequence
    for _ in range(20):
        stage.wait(SECOND)
        for to, _ in stage.take(AppendStatusRequest):
            stage.give(to, AppendStatus(append.client, 11, ((first, 1, 0),), ()))
    stage.give("s13", AppendStatus(append.client, 11, ((first, 3, 70),), ()))
    stage.give("s12", AppendStatus(append.client, 11, ((first, 4, 0),), ()))
    assert isinstance(stage.answers[call], LogFailed)
    assert "it is in the log, but was trimmed" in str(stage.answers[call])


def test_a_gsn_that_one_member_lacks_comes_from_another_one() -> None:
    stage, call, append = sealed_stage()
    while call not in stage.answers:
        stage.wait(SECOND)
        for to, _ in stage.take(AppendStatusRequest):
            gsn = 70 if to == "s13" else 0
            stage.give(to, AppendStatus(append.client, 11, ((append.sequence, 4, gsn),), ()))
    assert stage.answers[call].gsns == [70, 71, 72, 73]


def test_a_status_without_gsns_is_no_evidence_about_later_batches() -> None:
    """The other member does not have the GSNs, but the primary does."""
    stage = Stage(view(1, shard(1, sealed=(12,))))
    for _ in range(2):
        call = stage.call(calls.Append(records(2)))
        to, append = stage.one(Append)
        for _ in range(6):
            while not stage.take(AppendStatusRequest):
                stage.wait(SECOND // 10)
        stage.give("s12", AppendStatus(append.client, 11, ((append.sequence, 2, 0),), ()))
        assert call not in stage.answers
        stage.acknowledge(to, append, append.sequence)
        assert stage.answers[call].gsns == [append.sequence, append.sequence + 1]
        stage.take(Append)


def test_a_sealed_segment_keeps_the_numbers_until_a_status_says_never() -> None:
    stage, call, append = sealed_stage()
    asked: set[str] = set()
    for _ in range(6):
        stage.wait(SECOND)
        assert stage.take(Append) == []
        for to, question in stage.take(AppendStatusRequest):
            asked.add(to)
            assert (question.segment, question.sequences) == (11, ((append.sequence, 4),))
            stage.give(to, AppendStatus(append.client, 11, (), ()))
    assert asked == {"s11", "s12", "s13"}
    first = append.sequence
    stage.give("s12", AppendStatus(append.client, 11, ((first, 1, 70),), ((first + 1, 3),)))
    to, moved = stage.one(Append)
    assert to in ("s21", "s22")
    assert (moved.sequence, list(moved.records)) == (first + 1, records(4)[1:]), "the same numbers"
    stage.acknowledge(to, moved, 90)
    assert stage.answers[call] == calls.AppendResult([70, 90, 91, 92], [1, 2, 2, 2])


def test_settled_stays_below_numbers_without_a_result() -> None:
    """Numbers 3 and 4 were never appended to the segment and were rerouted; 2 and 5 have no result yet."""
    stage = one_segment(linger_ns=0)
    stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    for _ in range(4):
        stage.call(calls.Append(records(1)))
    stage.wait(0)
    stage.acknowledge(to, append, 1)
    _, append = stage.one(Append)
    segment = append.segment
    stage.give(to, Rejected(append.client, 2, segment, RejectReason.SEALED))
    stage.show(view(2, shard(1, FINALIZED, servers=1), shard(2, servers=1)))
    stage.give(to, AppendStatus(append.client, segment, (), ((3, 1), (4, 1))))
    to, moved = stage.one(Append)
    assert (moved.sequence, len(moved.records), moved.settled) == (3, 1, 2)
    stage.wait(5 * MILLISECOND)
    _, other = stage.one(Append)
    stage.acknowledge(to, moved, 90)
    stage.acknowledge(to, other, 91)
    stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    assert append.settled == 2
    stage.give("s11", AppendStatus(append.client, segment, ((2, 1, 70),), ()))
    stage.acknowledge(to, append, 92)
    stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    assert append.settled == 5
    stage.acknowledge(to, append, 93)
    stage.give("s11", AppendStatus(append.client, segment, (), ((5, 1),)))
    to, moved = stage.one(Append)
    assert (moved.sequence, moved.settled) == (5, 5)
    stage.acknowledge(to, moved, 94)
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[1].settled == 8


def test_rerouted_chunks_keep_their_order() -> None:
    """The status of the second record arrives before that of the first."""
    stage, call, append = sealed_stage(2)
    first = append.sequence
    stage.give("s12", AppendStatus(append.client, 11, (), ((first + 1, 1),)))
    assert stage.take(Append) == [], "the first one has no result yet"
    stage.give("s12", AppendStatus(append.client, 11, (), ((first, 1),)))
    to, moved = stage.one(Append)
    assert (moved.sequence, len(moved.records)) == (first, 1)
    stage.acknowledge(to, moved, 80)
    to, moved = stage.one(Append)
    assert (moved.sequence, len(moved.records)) == (first + 1, 1)
    stage.acknowledge(to, moved, 81)
    assert stage.answers[call].gsns == [80, 81]


def test_unsent_records_leave_a_sealed_segment_at_once() -> None:
    stage = one_segment(linger_ns=SECOND)
    stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    stage.call(calls.Append(records(2)))
    stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.SEALED))
    assert stage.take(Append) == []
    stage.show_now(view(2, shard(1, FINALIZED, servers=1), shard(2)))
    assert list(stage.one(Append)[1].records) == records(2)


def test_statuses_are_requested_for_a_segment_that_the_view_shows_as_sealed() -> None:
    """Its server was replaced, or its failure masked: the shard continues with other segments."""
    stage = Stage(view(1, shard(1, servers=3)))
    call = stage.call(calls.Append(records(1), shard=1))
    to, append = stage.one(Append)
    new = Segment(19, 10 + (append.segment - 10) % 3 + 1, 1, None)
    later = shard(1, servers=3, sealed=[append.segment], extra=[new])
    stage.wait(3 * SECOND)
    stage.take(AppendStatusRequest)
    stage.show(view(2, later))
    stage.wait(0)
    stage.take(Append)
    to, question = stage.one(AppendStatusRequest)
    stage.give(to, AppendStatus(question.client, question.segment, (), question.sequences))
    to, moved = stage.one(Append)
    assert moved.segment != append.segment
    stage.acknowledge(to, moved, 3)
    assert stage.answers[call] == calls.AppendResult([3], [1])


def test_an_append_to_a_named_finalized_shard_ends_as_unavailable() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    call = stage.call(calls.Append(records(2), shard=1))
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.SEALED))
    stage.show(view(2, shard(1, FINALIZED), shard(2)))
    stage.wait(SECOND)
    assert call not in stage.answers
    stage.give("s12", AppendStatus(append.client, append.segment, (), ((1, 2),)))
    error = stage.answers[call]
    assert isinstance(error, Unavailable)
    assert str(error) == "shard 1 is finalized"
    stage.call(calls.Append(records(1), shard=2))
    assert stage.one(Append)[1].settled == 3, "records that never will be appended are settled"


def test_a_partly_ordered_append_does_not_end_as_unavailable() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    call = stage.call(calls.Append(records(2), shard=1))
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.SEALED))
    stage.show(view(2, shard(1, FINALIZED), shard(2)))
    stage.give("s12", AppendStatus(append.client, append.segment, ((1, 1, 9),), ((2, 1),)))
    assert isinstance(stage.answers[call], LogFailed)
    assert "1 of 2 records" in str(stage.answers[call])


def test_a_shard_trimmed_away_leaves_the_outcome_unknown() -> None:
    stage = Stage(view(1, shard(1), shard(2)), policy=Fixed(1))
    call = stage.call(calls.Append(records(2)))
    stage.one(Append)
    stage.wait(3 * SECOND)
    stage.show(view(5, shard(2), next_shard=3, oldest=50))
    stage.wait(0)
    assert isinstance(stage.answers[call], LogFailed)


def test_a_number_that_is_in_two_segments_stops_the_client() -> None:
    stage, _, append = sealed_stage()
    stage.give("s12", AppendStatus(append.client, 11, (), ((append.sequence, 3),)))
    with pytest.raises(ProtocolViolation, match="SCA-13"):
        stage.acknowledge("s11", append, 5)


def test_a_number_that_was_not_allocated_stops_the_client() -> None:
    stage = Stage(view(1, shard(1)))
    stage.call(calls.Append(records(2)))
    to, append = stage.one(Append)
    with pytest.raises(ProtocolViolation, match="SCA-13"):
        stage.acknowledge(to, append, 1, 3)


def test_replies_to_an_earlier_client_at_this_address_are_ignored() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Append(records(2)))
    to, append = stage.one(Append)
    stage.acknowledge(to, append._replace(client=append.client + 1), 1)
    assert call not in stage.answers


# ---- shards by name


def test_an_append_to_an_unknown_shard_waits_for_a_confirmed_view() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Append(records(1), shard=2))
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 9, 1, 4))
    to, ask = stage.one(ViewRequest)
    stage.give(to, ViewResponse(ask.request, view(3, shard(1))))
    assert call not in stage.answers, "that view was older than the confirmation"
    stage.wait(SECOND)
    (to, ask), *_ = stage.take(ViewRequest)
    stage.give(to, ViewResponse(ask.request, view(4, shard(1), shard(2))))
    assert stage.one(Append)[0] in ("s21", "s22")
    call = stage.call(calls.Append(records(1), shard=7))
    to, question = stage.one(TailRequest)
    stage.give(to, TailResponse(question.request, 9, 1, 4))
    assert isinstance(stage.answers[call], NotOfThisShard)


def test_a_finalized_shard_is_unavailable_at_once_and_a_finalizing_one_is_not() -> None:
    stage = Stage(view(1, shard(1, FINALIZED), shard(2, FINALIZING), next_shard=5))
    assert isinstance(stage.ask(calls.Append(records(1), shard=1)), Unavailable)
    assert isinstance(stage.ask(calls.Append(records(1), shard=4)), Unavailable), "trimmed away"
    stage.call(calls.Append(records(1), shard=2))
    assert stage.one(Append)[0][:2] == "s2"


# ---- deadlines and silence


def test_any_number_of_queued_appends_end_with_their_shard() -> None:
    stage = Stage(view(1, shard(1)), buffer_bytes=1)
    first = stage.call(calls.Append(records(1), shard=1))
    queued = [stage.call(calls.Append(records(1), shard=1)) for _ in range(2_000)]
    to, append = stage.one(Append)
    stage.give(to, Rejected(append.client, append.sequence, append.segment, RejectReason.SEALED))
    stage.show(view(2, shard(1, FINALIZED), shard(2)))
    while first not in stage.answers:
        stage.wait(SECOND // 10)
        for member, request in stage.take(AppendStatusRequest):
            stage.give(member, AppendStatus(request.client, request.segment, (), request.sequences))
    assert all(isinstance(stage.answers[call], Unavailable) for call in (first, *queued))


def test_an_append_unsent_at_its_deadline_is_unavailable_and_is_not_sent() -> None:
    stage = Stage()
    call = stage.call(calls.Append(records(1), deadline=stage.now + SECOND))
    stage.wait(SECOND)
    assert isinstance(stage.answers[call], Unavailable)
    stage.show(view(1, shard(1)))
    assert stage.take(Append) == []


def test_an_append_sent_before_its_deadline_ends_as_unknown() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Append(records(1), deadline=stage.now + SECOND))
    to, append = stage.one(Append)
    stage.wait(2 * SECOND)
    assert isinstance(stage.answers[call], LogFailed)
    assert stage.take(Append), "its numbers stay in use"
    stage.give(to, Rejected(append.client, 1, append.segment, RejectReason.SEALED))
    stage.give("s12", AppendStatus(append.client, append.segment, (), ((1, 1),)))
    stage.wait(10 * SECOND)
    assert stage.take(Append) == [], "no call waits for it, so it is not rerouted"


def unknown_of(stage: Stage, call: int) -> AppendId:
    error = stage.answers[call]
    assert isinstance(error, AppendUnknown)
    assert str(error.append_id) in str(error)
    assert pickle.loads(pickle.dumps(error)).append_id == AppendId.parse(str(error.append_id)) == error.append_id
    return error.append_id


def test_the_outcome_of_an_unknown_append_can_be_requested() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Append(records(3), deadline=stage.now + SECOND))
    to, append = stage.one(Append)
    stage.wait(2 * SECOND)
    append_id = unknown_of(stage, call)
    assert append_id == AppendId(append.client, ((append.sequence, 3),))
    hasty = stage.call(calls.Outcome(append_id, stage.now + SECOND))
    patient = stage.call(calls.Outcome(append_id))
    stage.wait(2 * SECOND)
    assert unknown_of(stage, hasty) == append_id
    stage.give(to, Rejected(append.client, append.sequence + 1, append.segment, RejectReason.SEALED))
    stage.give("s12", AppendStatus(append.client, append.segment, ((append.sequence, 1, 8),), ()))
    assert patient not in stage.answers
    stage.give("s12", AppendStatus(append.client, append.segment, (), ((append.sequence + 1, 2),)))
    assert stage.answers[patient] == [8, None, None]
    assert stage.answers[stage.call(calls.Outcome(append_id))] == [8, None, None]


def test_the_numbers_of_an_unknown_append_stay_unsettled() -> None:
    """Also after this client has received the GSN."""
    stage = Stage(view(1, shard(1, servers=1)))
    stage.call(calls.Append(records(1), deadline=stage.now + SECOND))
    to, unknown = stage.one(Append)
    stage.wait(2 * SECOND)
    stage.acknowledge(to, unknown, 8)
    for gsn in (9, 10):
        stage.call(calls.Append(records(1)))
        to, append = [sent for sent in stage.take(Append) if sent[1].sequence > unknown.sequence][-1]
        assert append.settled == unknown.sequence
        stage.acknowledge(to, append, gsn)


def test_the_numbers_of_an_unknown_append_are_settled_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.log.scalog.client.batches.MAX_RETAINED", 2)
    stage = Stage(view(1, shard(1, servers=1)))
    stage.call(calls.Append(records(1), deadline=stage.now + SECOND))
    to, unknown = stage.one(Append)
    stage.wait(2 * SECOND)
    stage.acknowledge(to, unknown, 8)
    stage.take(Append)
    for gsn, settled in ((9, 1), (10, 3)):
        stage.call(calls.Append(records(1)))
        to, append = stage.one(Append)
        assert append.settled == settled
        stage.acknowledge(to, append, gsn)


def test_no_part_of_an_append_is_settled_before_the_whole() -> None:
    """The append may end as unknown, and other appends of this client carry the settled number."""
    stage = Stage(view(1, shard(1, servers=1), shard(2, servers=1)), batch_bytes=50, policy=ByRecord(lambda record: 1))
    call = stage.call(calls.Append(records(2), deadline=stage.now + 100 * SECOND))
    to, first = stage.one(Append)
    stage.acknowledge(to, first, 8)
    _, second = stage.one(Append)
    assert second.settled == first.sequence
    stage.acknowledge(to, second, 9)
    assert stage.answers[call].gsns == [8, 9]
    stage.call(calls.Append(records(1)))
    assert stage.one(Append)[1].settled == second.sequence + 1


def test_the_outcome_of_a_partly_sent_append() -> None:
    stage = Stage(view(1, shard(1, servers=1)), batch_bytes=50)
    call = stage.call(calls.Append(records(3), deadline=stage.now + SECOND))
    to, append = stage.one(Append)
    stage.wait(2 * SECOND)
    append_id = unknown_of(stage, call)
    assert append_id.numbers == ((append.sequence, 1), (0, 2))
    stage.acknowledge(to, append, 8)
    assert stage.answers[stage.call(calls.Outcome(append_id))] == [8, None, None]


def test_the_outcome_of_records_trimmed_with_their_segment_stays_unknown() -> None:
    stage = Stage(view(1, shard(1), shard(2)))
    call = stage.call(calls.Append(records(1), shard=1))
    stage.one(Append)
    stage.show_now(view(2, shard(2), next_shard=3))
    stage.wait(5 * SECOND)
    append_id = unknown_of(stage, call)
    assert unknown_of(stage, stage.call(calls.Outcome(append_id))) == append_id


def test_the_append_of_another_client_is_searched_at_all_members() -> None:
    stage = Stage(view(1, shard(1), shard(2, FINALIZED)))
    append_id = AppendId(77, ((5, 2), (0, 1), (9, 1)))
    call = stage.call(calls.Outcome(append_id, stage.now + 100 * SECOND))
    asked: set[tuple[str, int]] = set()
    for _ in range(30):
        for to, question in stage.take(TailRequest):
            stage.give(to, TailResponse(question.request, 9, 1, 1))
        asked |= {(to, it.segment) for to, it in stage.take(AppendStatusRequest) if it.sequences == ((5, 2), (9, 1))}
        stage.wait(SECOND // 10)
    assert asked == {(f"s{n}{member}", 10 * n + segment) for n in (1, 2) for member in (1, 2) for segment in (1, 2)}
    stage.give(
        "s11", AppendStatus(77, 11, ((5, 2, 0),), ((9, 1),))
    )  # in the log without a GSN; and never in that segment
    stage.give("s12", AppendStatus(77, 12, ((9, 1, 4),), ()))
    assert call not in stage.answers
    stage.give("s21", AppendStatus(77, 21, ((5, 2, 30),), ()))
    assert stage.answers[call] == [30, 31, None, 4]


def test_an_append_of_another_client_that_is_not_found_stays_unknown() -> None:
    stage = Stage(view(1, shard(1)))
    call = stage.call(calls.Outcome(AppendId(77, ((5, 2),)), stage.now + SECOND))
    stage.wait(2 * SECOND)
    assert unknown_of(stage, call) == AppendId(77, ((5, 2),))
    for text in ("", "x", "4d-5+2", "000000000000004d-5", "000000000000004d-5+02"):
        with pytest.raises(ValueError, match="is not an append id"):
            AppendId.parse(text)


def test_a_silent_primary_is_reported_and_statuses_come_from_other_members() -> None:
    stage = Stage(view(1, shard(1, servers=3)), suspect_after_ns=2 * SECOND)
    call = stage.call(calls.Append(records(1)))
    to, append = stage.one(Append)
    stage.wait(SECOND * 19 // 10)
    assert stage.take(Unreachable) == []
    asked = {to for to, _ in stage.take(AppendStatusRequest)}
    assert asked == {"s11", "s12", "s13"}
    stage.wait(SECOND)
    suspects = {message for _, message in stage.take(Unreachable)}
    assert suspects == {Unreachable(append.segment)}
    other = next(member for member in asked if member != to)
    stage.give(other, AppendStatus(append.client, append.segment, ((1, 1, 8),), ()))
    assert stage.answers[call].gsns == [8]


def test_a_primary_that_only_waits_for_cuts_is_not_reported() -> None:
    stage = Stage(view(1, shard(1)), suspect_after_ns=2 * SECOND)
    stage.call(calls.Append(records(1)))
    primary, append = stage.one(Append)
    for _ in range(60):
        stage.wait(SECOND // 10)
        if any(to == primary for to, _ in stage.take(AppendStatusRequest)):
            stage.give(primary, AppendStatus(append.client, append.segment, (), ()))
    assert stage.take(Unreachable) == []


def test_a_large_batch_is_not_sent_again_before_it_can_have_arrived() -> None:
    stage = one_segment()
    stage.call(calls.Append([(1, bytes(64 << 20))]))
    stage.one(Append)
    stage.wait(5 * SECOND)
    assert stage.take(Append) == []
    assert stage.take(Unreachable) == []
    stage.wait(10 * SECOND)
    assert len(stage.take(Append)) >= 1
