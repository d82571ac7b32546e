"""The client core, as far as a test can drive it without servers."""

from __future__ import annotations

from sys import getrefcount

import pytest

from logdb.cores.effects import MILLISECOND, SECOND
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, LogRecord
from logdb.log.corfu.client import appends
from logdb.log.corfu.client.subscription import HOLES
from logdb.log.corfu.messages import (
    Entry,
    FillRequest,
    Pull,
    Pulled,
    ReadRequest,
    ReadResponse,
    Reason,
    Rejected,
    StatusRequest,
    TokenRequest,
    TokenResponse,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import MAX_TOKENS, Range, gsn_at
from tests.log.corfu.client_stage import Client, shard_of, view_of


def test_a_pull_ends_where_another_unit_becomes_the_last_one_of_the_chain() -> None:
    """From there on, the entries of the former last unit may not be complete (COR-11)."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.answers[subscription]))
    client.configure(view_of(shard_of(1, 0, 0, 5, 9)))
    for first, end, unit in ((1, 5, "s12"), (5, 9, "s13"), (9, 0, "s14")):
        to, pull = client.one(Pull)
        assert (to, pull.first, pull.end) == (unit, first, end)
        entries = tuple([Entry(position, 1, 0, 0, 0) for position in range(first, end or 10)])
        client.give(unit, Pulled(pull.request, 9, entries))


def test_records_are_read_if_those_damaged_on_one_unit_are_sound_on_another() -> None:
    """Each damage made the whole batch unreadable, so no unit seemed to have its records."""
    client = Client()
    subscription = client.answers[client.call(calls.Subscribe(1))]
    damaged, found = {"s11": 1, "s12": 2}, []
    call = client.call(calls.Next(subscription))
    client.configure(view_of(shard_of(1, 0, 0)))
    for _ in range(9):
        for to, pull in client.take(Pull):
            if damaged[to] == pull.first or pull.end != pull.first + 1:
                client.give(to, Rejected(pull.request, Reason.UNREADABLE, 1, 0, f"disk of {to}"))
            else:
                records = [LogRecord(gsn_at(pull.first), 1, 1, b"x")]
                client.give(to, Pulled(pull.request, 9, (Entry(pull.first, 1, 7, pull.first, 1),), records=records))
        if call in client.answers:
            found += [record.gsn for record in client.answers[call].records]
            call = client.call(calls.Next(subscription))
        client.wait(SECOND // 20)
    assert found[:2] == [gsn_at(1), gsn_at(2)]


def test_after_an_epoch_change_entries_behind_a_damaged_one_are_pulled_from_the_last_unit() -> None:
    """COR-11: only the damaged entry is known to be complete on the other units."""
    client = Client()
    subscription = client.answers[client.call(calls.Subscribe(1))]
    client.call(calls.Next(subscription))
    client.configure(view_of(shard_of(1, 0, 0, 0), start=1))
    for _ in range(2):
        to, pull = client.one(Pull)
        assert to == "s13"
        client.give(to, Rejected(pull.request, Reason.UNREADABLE, 1, 0, "its disk"))
    client.wait(SECOND // 20)
    to, pull = client.one(Pull)
    assert (to, pull.first, pull.end) == ("s12", 1, 2)
    client.give(to, Rejected(pull.request, Reason.SEALED, 2, 1))
    client.configure(view_of(shard_of(1, 0, 0, 0), start=2, epoch=3))
    to, pull = client.one(Pull)
    assert (to, pull.first, pull.end) == ("s13", 1, 0)


def test_a_fill_ends_when_its_position_is_trimmed_away_with_its_shard() -> None:
    """The units of a shard that was removed know nothing of the position any more, and a trim begins no epoch."""
    client = Client()
    call = client.call(calls.Append([(1, b"x")]))
    client.configure(view_of(shard_of(1, 0)))
    _, token = client.one(TokenRequest)
    client.give("q1", TokenResponse(token.request, 2, 1, 2, (1,), 9))
    assert client.one(WriteRequest)[0] == "s11"
    finalized = view_of(shard_of(1, 0, is_live=False), shard_of(2, 0), epoch=3, start=5)
    finalized = finalized._replace(ranges=(Range(1, (1,)), Range(5, (2,))))
    client.wait(SECOND)
    client.configure(finalized)
    _, fill = client.take(FillRequest)[-1]
    trimmed = finalized._replace(version=4, shards=finalized.shards[1:], ranges=finalized.ranges[1:], oldest=gsn_at(6))
    client.give("s11", Rejected(fill.request, Reason.SEALED, 9, 1))
    client.configure(trimmed)
    client.take(FillRequest)
    client.wait(2 * SECOND)
    assert not client.take(FillRequest)
    assert isinstance(client.answers[call], AppendUnknown)


def test_a_fill_of_a_position_that_is_already_trimmed_ends_at_once() -> None:
    """An append was sealed out at a position that the new projection contains no more."""
    client = Client()
    call = client.call(calls.Append([(1, b"x")]))
    client.configure(view_of(shard_of(1, 0)))
    _, token = client.one(TokenRequest)
    client.give("q1", TokenResponse(token.request, 2, 1, 2, (1,), 9))
    client.wait(SECOND)
    client.configure(
        view_of(shard_of(2, 0), epoch=3, start=5, oldest=gsn_at(6))._replace(ranges=(Range(5, (2,)),), version=4)
    )
    assert not client.take(FillRequest)
    assert isinstance(client.answers[call], AppendUnknown)


def test_any_number_of_appends_that_wait_for_room_end_when_their_shard_is_finalized() -> None:
    """Each ended the next one in a deeper call, until the client met a RecursionError."""
    client = Client()
    count = 2_000
    for _ in range(count):
        client.call(calls.Append([(1, bytes(1 << 20))], 1))
    finalized = view_of(shard_of(1, 0, is_live=False), shard_of(2, 0), start=5)
    client.configure(finalized._replace(ranges=(Range(1, (1,)), Range(5, (2,)))))
    client.wait(SECOND)
    assert {type(result) for result in client.answers.values()} == {Unavailable}
    assert len(client.answers) == count


def test_any_number_of_entries_that_wait_for_a_token_end_when_their_shard_is_finalized() -> None:
    client = Client(batch_bytes=1_000, window_bytes=2_000)
    count = 2_000
    for _ in range(count):
        client.call(calls.Append([(1, bytes(900))], 1))
    client.configure(view_of(shard_of(1, 0), shard_of(2, 0)))
    client.wait(SECOND)
    finalized = view_of(shard_of(1, 0, is_live=False), shard_of(2, 0), epoch=3, start=5)
    client.configure(finalized._replace(ranges=(Range(1, (1, 2)), Range(5, (2,)))))
    client.wait(SECOND)
    assert {type(result) for result in client.answers.values()} == {Unavailable}
    assert len(client.answers) == count


@pytest.mark.parametrize("is_routed", [True, False], ids=["in a full window", "without a shard"])
def test_an_append_that_expires_looks_at_no_other_one(monkeypatch: pytest.MonkeyPatch, is_routed: bool) -> None:
    """Tens of thousands that waited took a client minutes."""
    looks = []

    class Counted(appends.Chunk):
        @property
        def append(self) -> appends.PendingAppend:
            looks.append(self)
            return self.of

        @append.setter
        def append(self, append: appends.PendingAppend) -> None:
            self.of = append

    monkeypatch.setattr(appends, "Chunk", Counted)
    client = Client(window_bytes=1)
    for number in range(200):
        client.call(calls.Append([(1, b"x")], deadline=MILLISECOND + number))
    if is_routed:
        client.configure(view_of(shard_of(1, 0)))
    looks.clear()
    client.wait(2 * MILLISECOND)
    assert len(client.answers) == 200
    assert len(looks) < 10 * 200


def test_entries_that_wait_for_a_sequencer_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt took a client with thousands of them seconds."""
    looks = []

    class Counted(appends.Entry):
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            looks.append(other)
            return self is other

    monkeypatch.setattr(appends, "Entry", Counted)
    client = Client(batch_bytes=100)
    client.call(calls.Append([(1, b"x")]))
    client.configure(view_of(shard_of(1, 0))._replace(sequencer="", nonce=0))
    for _ in range(100):
        client.call(calls.Append([(1, bytes(90))]))
    client.wait(SECOND)
    client.configure(view_of(shard_of(1, 0), epoch=3))
    assert sum([len(request.places) for _, request in client.take(TokenRequest)]) == 101
    assert len(looks) < 101


def test_a_request_for_tokens_has_a_limited_number_of_entries() -> None:
    """Entries that wait for a sequencer need several requests."""
    client = Client()
    client.call(calls.Append([(1, b"x")]))
    client.configure(view_of(shard_of(1, 0))._replace(sequencer="", nonce=0))
    for _ in range(MAX_TOKENS + 9):
        client.call(calls.Append([(1, b"x")]))
        client.wait(MILLISECOND * 10)
    client.configure(view_of(shard_of(1, 0), epoch=3))
    places = [len(request.places) for _, request in client.take(TokenRequest)]
    assert sum(places) > MAX_TOKENS >= max(places)


def test_a_subscription_fills_many_holes_at_once() -> None:
    """A client may have been assigned many positions, or have filled one far ahead, and then died."""
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.answers[subscription]))
    client.configure(view_of(shard_of(1, 0), shard_of(2, 0)))
    pulls = dict(client.take(Pull))
    client.give("s21", Pulled(pulls["s21"].request, 40, (Entry(2, 1, 0, 0, 0), Entry(4, 1, 0, 0, 0))))
    client.give("s11", Pulled(pulls["s11"].request, 1, ()))
    client.wait(SECOND // 2)
    filled = sorted({fill.position for _, fill in client.take(FillRequest)})
    assert filled == [position for position in range(1, 40) if position not in (2, 4)]


def test_a_subscription_fills_what_an_earlier_epoch_has_left_without_longer_waits() -> None:
    client = Client()
    subscription = client.call(calls.Subscribe(1))
    client.call(calls.Next(client.answers[subscription]))
    client.configure(view_of(shard_of(1, 0), start=5 * HOLES))
    for first in range(1, 5 * HOLES, HOLES):
        _, pull = client.one(Pull)
        assert pull.first == first
        client.give("s11", Pulled(pull.request, 5 * HOLES, ()))
        client.wait(20 * MILLISECOND)
        fills = client.take(FillRequest)
        assert [fill.position for _, fill in fills] == list(range(first, min(first + HOLES, 5 * HOLES)))
        _, pull = client.one(Pull)
        for _, fill in fills:
            client.give("s11", Written(fill.request, fill.position, 0, 0, 0))
        entries = tuple([Entry(fill.position, 1, 0, 0, 0) for _, fill in fills])
        client.give("s11", Pulled(pull.request, 5 * HOLES, entries))
        client.call(calls.Next(client.answers[subscription]))


def test_an_append_whose_outcome_is_kept_does_not_keep_its_records() -> None:
    """A client keeps the outcomes of 10,000 appends that ended as unknown."""
    client, payload = Client(), bytes(1_000)
    references = getrefcount(payload)
    call = client.call(calls.Append([(1, payload)], deadline=SECOND))
    client.configure(view_of(shard_of(1, 0)))
    _, token = client.one(TokenRequest)
    client.give("q1", TokenResponse(token.request, 2, 1, 2, (1,), 9))
    client.wait(2 * SECOND)
    answer = client.answers[call]
    assert isinstance(answer, AppendUnknown)
    write = client.take(WriteRequest)[-1][1]
    client.give("s11", Written(write.request, 1, write.client, write.sequence, 1))
    assert client.ask(calls.Outcome(answer.append_id)) == [gsn_at(1)]
    del write
    assert getrefcount(payload) == references


def test_an_outcome_is_searched_by_runs_of_records() -> None:
    """Units scan their indexes for each 256 runs."""
    client = Client()
    client.call(calls.Outcome(AppendId(9, ((5, 3_000), (4_000, 2)))))
    client.configure(view_of(shard_of(1, 0)))
    client.wait(SECOND)
    assert {one.sequences for _, one in client.take(StatusRequest)} == {((5, 3_000), (4_000, 2))}


def test_a_token_counts_only_in_its_epoch() -> None:
    """COR-6: the next epoch assigns the position again."""
    client = Client()
    client.call(calls.Append([(1, b"x")]))
    client.configure(view_of(shard_of(1, 0)))
    _, token = client.one(TokenRequest)
    client.give("q1", TokenResponse(token.request, 3, 5, 6, (5,), 9))
    assert not client.take(WriteRequest)
    client.configure(view_of(shard_of(1, 0), epoch=3))
    _, again = client.one(TokenRequest)
    client.give("q1", TokenResponse(again.request, 3, 6, 7, (6,), 9))
    assert client.one(WriteRequest)[1].position == 6


def test_a_record_is_read_from_the_last_unit_unless_its_entry_is_known_to_be_complete() -> None:
    """COR-11. A unit that joins behind the position is not in its chain."""
    client = Client()
    client.call(calls.Read(gsn_at(4), 1))
    client.configure(view_of(shard_of(1, 0, 0, 9), start=9))
    for _ in range(3):
        asked = client.take(ReadRequest)
        assert {to for to, _ in asked} == {"s12"}
        client.wait(SECOND)
        client.configure(view_of(shard_of(1, 0, 0, 9), start=9))
    _, request = asked[-1]
    client.give("s12", ReadResponse(request.request, request.gsn, 1, [(1, b"x")]))
    client.take(ReadRequest)
    chosen = set()
    for _ in range(4):
        client.call(calls.Read(gsn_at(4), 1))
        to, _ = client.one(ReadRequest)
        chosen.add(to)
    assert chosen == {"s11", "s12"}


def test_a_subscription_passes_what_is_the_tail_and_not_more() -> None:
    """A version that a reader has reached is not behind the tail that another client gets."""
    client = Client()
    subscription = client.answers[client.call(calls.Subscribe(1))]
    call = client.call(calls.Next(subscription))
    client.configure(view_of(shard_of(1, 0)))
    for entry, end in ((Entry(1, 1, 7, 1, 2), gsn_at(1, 2)), (Entry(2, 1, 0, 0, 0), gsn_at(2, 1))):
        _, pull = client.one(Pull)
        records = [LogRecord(gsn_at(entry.position, index), 1, 1, b"x") for index in range(entry.count)]
        client.give("s11", Pulled(pull.request, entry.position, (entry,), records=records))
        assert client.answers[call].end == end
        call = client.call(calls.Next(subscription))
