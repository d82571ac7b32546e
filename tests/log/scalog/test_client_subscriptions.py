"""Subscriptions of a client: ranges of all shards, merged by GSN; a missing answer proves nothing."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import Batch, Trimmed
from logdb.log.requests import END
from logdb.log.scalog.messages import Pull, ReadError, ReadFailed, ViewRequest
from tests.log.scalog.client_stage import FINALIZED, Stage, pulled, shard, view


class Reader:
    """A script with a subscription, and its open pulls by shard."""

    def __init__(
        self, stage: Stage, gsn: int = 1, tags: frozenset[int] | None = None, shard: int | None = None
    ) -> None:
        self.stage = stage
        self.number = stage.ask(calls.Subscribe(gsn, tags, shard=shard))
        self.tags = tags

    def next(self, deadline: int | None = None) -> int:
        return self.stage.call(calls.Next(self.number, deadline))

    def pulls(self) -> dict[int, tuple[str, Pull]]:
        return {pull.shard: (to, pull) for to, pull in self.stage.take(Pull)}

    def answer_pull(self, pull: tuple[str, Pull], end: int, *owned: tuple[int, int], final: bool = False) -> None:
        self.stage.give(pull[0], pulled(pull[1], end, owned, final=final, tags=self.tags))


def two_shards(**config: int) -> Stage:
    return Stage(view(1, shard(1), shard(2)), **config)


def test_nothing_is_fetched_before_the_first_call() -> None:
    reader = Reader(two_shards())
    assert reader.pulls() == {}
    reader.next()
    assert {shard: pull.gsn for shard, (_, pull) in reader.pulls().items()} == {1: 1, 2: 1}


def test_shards_are_merged_by_gsn() -> None:
    reader = Reader(two_shards())
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[2], 9, (3, 2), (8, 1))
    assert call not in reader.stage.answers, "no shard has listed 1 and 2 yet"
    reader.answer_pull(pulls[1], 11, (1, 2), (5, 3), (9, 2))
    batch = reader.stage.answers[call]
    assert (batch.first, batch.end) == (1, 11)
    assert [record.payload for record in batch.records] == [b"%d" % gsn for gsn in range(1, 11)]
    assert [(record.gsn, record.time) for record in batch.records] == [(gsn, gsn * 10) for gsn in range(1, 11)]
    assert {number: pull.gsn for number, (_, pull) in reader.pulls().items()} == {1: 11, 2: 9}


def test_a_subscription_of_one_shard_ignores_the_others() -> None:
    reader = Reader(two_shards(), shard=2)
    call = reader.next()
    pulls = reader.pulls()
    assert {number: pull.gsn for number, (_, pull) in pulls.items()} == {2: 1}
    reader.answer_pull(pulls[2], 9, (3, 2), (7, 1))
    batch = reader.stage.answers[call]
    assert (batch.first, batch.end) == (1, 9)
    assert [record.gsn for record in batch.records] == [3, 4, 7]
    call = reader.next()
    (pull,) = reader.pulls().values()
    assert pull[1].gsn == 9
    reader.answer_pull(pull, 12)
    assert reader.stage.answers[call] == Batch(9, 12, [])
    call = reader.next()
    (pull,) = reader.pulls().values()
    reader.answer_pull(pull, 14, (12, 1), final=True)
    assert reader.stage.answers[call][:2] == (12, END)


def test_a_subscription_of_a_shard_that_was_trimmed_away_ends() -> None:
    stage = Stage(view(1, shard(2), next_shard=3))
    reader = Reader(stage, shard=1)
    assert stage.answers[reader.next()] == Batch(1, END, [])


def test_a_silent_shard_delays_the_subscription() -> None:
    reader = Reader(two_shards())
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 20, (2, 18))
    reader.stage.wait(10 * SECOND)
    assert call not in reader.stage.answers
    reader.answer_pull(pulls[2], 2, (1, 1))
    assert reader.stage.answers[call].first == 1
    assert reader.stage.answers[call].end == 20


def test_a_pull_without_an_answer_is_sent_to_another_member_under_the_same_number() -> None:
    reader = Reader(Stage(view(1, shard(1, servers=3))))
    reader.next()
    reader.stage.wait(2 * SECOND)
    asked = reader.stage.take(Pull)
    assert {to for to, _ in asked} == {"s11", "s12", "s13"}
    assert len({pull.request for _, pull in asked}) == 1


def test_the_member_on_the_own_node_is_preferred() -> None:
    reader = Reader(Stage(view(1, shard(1, servers=3)), neighbours=frozenset({"s12", "o12"})))
    for gsn in range(1, 5):
        reader.next()
        (pull,) = reader.pulls().values()
        assert (pull[0], pull[1].gsn) == ("s12", gsn)
        reader.answer_pull(pull, gsn + 1, (gsn, 1))
    reader.next()
    (pull,) = reader.pulls().values()
    reader.stage.give("s12", ReadFailed(pull[1].request, ReadError.HERE, 1, ""))
    reader.stage.wait(SECOND // 10)
    assert [to for to, _ in reader.stage.take(Pull)] == ["s12"], "its copy may be durable a moment later"


def test_another_member_answers_for_a_while_after_the_own_node_could_not() -> None:
    stage = Stage(view(1, shard(1, servers=3)), neighbours=frozenset({"s12"}))
    reader = Reader(stage)
    for gsn in (1, 2):
        call = reader.next()
        asked: list[tuple[str, Pull]] = []
        while not asked or asked[-1][0] == "s12":
            asked += stage.take(Pull)
            stage.wait(SECOND // 10)
        assert [to for to, _ in asked[:3]] == ["s12"] * 3
        reader.answer_pull(asked[-1], gsn + 1, (gsn, 1))
        assert call in stage.answers
    reader.next()
    (pull,) = reader.pulls().values()
    assert pull[0] != "s12"
    stage.wait(3 * SECOND)
    reader.answer_pull(pull, 4, (3, 1))
    reader.next()
    (pull,) = reader.pulls().values()
    assert pull[0] == "s12"


def test_a_batch_by_tags_shows_its_gaps() -> None:
    """Record g has the tag g % 3 + 1."""
    reader = Reader(two_shards(), 1, frozenset({1}))
    call = reader.next()
    pulls = reader.pulls()
    assert pulls[1][1].tags == frozenset({1})
    reader.answer_pull(pulls[2], 8, (3, 5))
    reader.answer_pull(pulls[1], 8, (1, 2))
    batch = reader.stage.answers[call]
    assert (batch.first, batch.end, [record.gsn for record in batch.records]) == (1, 8, [3, 6])
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 9, (8, 1))
    assert reader.stage.answers[call] == Batch(8, 9, [])


def test_a_new_shard_is_found_when_no_known_shard_owns_the_next_record() -> None:
    reader = Reader(two_shards())
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 9, (1, 3))
    assert reader.stage.answers[call].end == 4
    call = reader.next()
    assert reader.stage.take(ViewRequest) == []
    reader.answer_pull(pulls[2], 9, (7, 2))
    reader.stage.wait(SECOND)
    assert call not in reader.stage.answers
    reader.pulls()
    reader.stage.show(view(2, shard(1), shard(2), shard(3)))
    pulls = reader.pulls()
    assert pulls[3][1].gsn == 4
    reader.answer_pull(pulls[3], 9, (4, 3))
    assert (reader.stage.answers[call].first, reader.stage.answers[call].end) == (4, 9)


def test_a_view_is_requested_again_while_it_is_old() -> None:
    reader = Reader(Stage(view(1, shard(1))))
    reader.next()
    reader.answer_pull(reader.pulls()[1], 9, (2, 7))
    for _ in range(4):
        reader.stage.wait(SECOND)
        assert reader.stage.take(ViewRequest) != []
        reader.stage.show(view(1, shard(1)))


def test_a_view_is_requested_while_the_log_has_no_shard() -> None:
    reader = Reader(Stage(view(0)))
    reader.next()
    for _ in range(5):
        reader.stage.show_now(view(0))
    reader.stage.show_now(view(1, shard(1)))
    assert {shard: pull.gsn for shard, (_, pull) in reader.pulls().items()} == {1: 1}


def test_a_view_is_requested_while_it_lacks_the_shard_of_a_subscription() -> None:
    reader = Reader(Stage(view(1, shard(1))), shard=2)
    reader.next()
    for _ in range(2):
        reader.stage.wait(SECOND)
        assert reader.stage.take(ViewRequest) != []
        reader.stage.show(view(1, shard(1)))
    reader.stage.wait(SECOND)
    reader.stage.show(view(2, shard(1), shard(2)))
    assert {shard: pull.gsn for shard, (_, pull) in reader.pulls().items()} == {2: 1}


def test_a_finalized_shard_gets_no_requests_after_its_end() -> None:
    reader = Reader(Stage(view(1, shard(1, FINALIZED), shard(2))))
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[2], 9, (5, 4))
    reader.answer_pull(pulls[1], 5, (1, 4), final=True)
    assert reader.stage.answers[call].end == 9
    reader.next()
    assert set(reader.pulls()) == {2}
    reader.stage.wait(3 * SECOND)
    assert set(reader.pulls()) == {2}


def test_a_subscription_at_a_trimmed_position_ends_with_trimmed() -> None:
    reader = Reader(two_shards(), 3)
    call = reader.next()
    to, pull = reader.pulls()[1]
    reader.stage.give(to, ReadFailed(pull.request, ReadError.TRIMMED, 7))
    error = reader.stage.answers.get(call)
    assert isinstance(error, Trimmed)
    assert (error.gsn, error.oldest) == (3, 7)
    assert isinstance(reader.stage.ask(calls.Subscribe(6)), Trimmed)
    assert isinstance(reader.stage.ask(calls.Next(reader.number)), Trimmed)


def test_a_shard_trimmed_away_behind_the_position_changes_nothing() -> None:
    reader = Reader(two_shards())
    call = reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 9, (1, 8))
    assert reader.stage.answers[call].end == 9
    call = reader.next()
    reader.stage.wait(2 * SECOND)
    reader.stage.show_now(view(3, shard(1), next_shard=3, oldest=5))
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 12, (9, 3))
    assert reader.stage.answers[call].first == 9


def test_damage_on_all_members_is_raised_at_its_position() -> None:
    reader = Reader(two_shards())
    call = reader.next()
    pulls = reader.pulls()
    for _ in range(3):
        to, pull = pulls[1]
        reader.stage.give(to, ReadFailed(pull.request, ReadError.READABLE, 1, f"disk of {to}"))
        reader.stage.wait(SECOND // 20)
        pulls = {**pulls, **reader.pulls()}
    error = reader.stage.answers[call]
    assert isinstance(error, Corruption)
    assert "disk of s11; disk of s12" in str(error)


def test_records_are_read_if_those_damaged_on_one_member_are_sound_on_another() -> None:
    """Each damage made the whole batch unreadable, so no member seemed to have its records."""
    reader = Reader(Stage(view(1, shard(1))))
    damaged, found = {"s11": 2, "s12": 1}, []
    call = reader.next()
    for _ in range(9):
        for to, pull in reader.pulls().values():
            if damaged[to] == pull.gsn or pull.max_bytes > 1:
                reader.stage.give(to, ReadFailed(pull.request, ReadError.READABLE, 1, f"disk of {to}"))
            else:
                reader.answer_pull((to, pull), pull.gsn + 1, (pull.gsn, 1))
        if call in reader.stage.answers:
            found += [record.gsn for record in reader.stage.answers[call].records]
            call = reader.next()
        reader.stage.wait(SECOND // 20)
    assert found[:2] == [1, 2]


def test_prefetched_bytes_are_bounded() -> None:
    reader = Reader(Stage(view(1, shard(1))), 1)
    reader.next()
    end = 1
    for _ in range(100):
        pulls = reader.pulls()
        if not pulls:
            break
        reader.answer_pull(pulls[1], end + 1000, (end, 1000))
        end += 1000
    limit = 8 << 20
    assert 1000 < end * 4 < limit, "it stops at about the bound"


@pytest.mark.parametrize(
    "owned", [[(1, 3)], [(2, 4)], [(1, 1), (1, 1)]], ids=["beyond the end", "both", "a GSN twice in one answer"]
)
def test_an_impossible_answer_stops_the_client(owned: list[tuple[int, int]]) -> None:
    reader = Reader(two_shards())
    reader.next()
    pulls = reader.pulls()
    reader.answer_pull(pulls[1], 6, (1, 5))
    with pytest.raises(ProtocolViolation, match=r"SCA-4|SCA-11"):
        reader.answer_pull(pulls[2], 6 if owned[0][0] == 2 else 3, *owned)
        reader.next()


def test_a_record_that_is_missing_stops_the_client() -> None:
    reader = Reader(two_shards())
    reader.next()
    to, pull = reader.pulls()[1]
    answer: Any = pulled(pull, 5, [(1, 4)])
    with pytest.raises(ProtocolViolation, match="SCA-11"):
        reader.stage.give(to, answer._replace(records=answer.records[:2] + answer.records[3:]))


def test_deadlines_and_closing() -> None:
    reader = Reader(two_shards())
    at_once = reader.next(reader.stage.now)
    late = reader.next(reader.stage.now + SECOND)
    reader.stage.wait(0)
    assert reader.stage.answers == {1: reader.number, at_once: None}
    reader.stage.wait(SECOND)
    assert reader.stage.answers[late] is None
    waiting = reader.next()
    assert reader.stage.ask(calls.Close(reader.number)) is None
    assert isinstance(reader.stage.answers[waiting], StopIteration)
    assert isinstance(reader.stage.ask(calls.Next(reader.number)), StopIteration)
    reader.stage.take(Pull)
    reader.stage.wait(5 * SECOND)
    assert reader.stage.take(Pull) == []


def test_two_waiting_calls_get_one_batch_each() -> None:
    reader = Reader(Stage(view(1, shard(1))))
    first, second = reader.next(), reader.next()
    reader.answer_pull(reader.pulls()[1], 3, (1, 2))
    assert reader.stage.answers[first].end == 3
    assert second not in reader.stage.answers
    reader.answer_pull(reader.pulls()[1], 5, (3, 2))
    assert (reader.stage.answers[second].first, reader.stage.answers[second].end) == (3, 5)
