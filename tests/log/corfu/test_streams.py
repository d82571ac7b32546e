"""Streams: tokens, commit bits, stream replicas and their rebuilding, and reads."""

from __future__ import annotations

from typing import Any

import pytest

from logdb.cores.effects import SECOND
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.messages import (
    CommitRequest,
    Committed,
    Entry,
    FillRequest,
    HighestRequest,
    HighestResponse,
    OpenPositions,
    OpenRequest,
    Pull,
    Pulled,
    ReadRequest,
    ReadResponse,
    Reason,
    Rejected,
    StreamPull,
    StreamPulled,
    StreamTailRequest,
    StreamTailResponse,
    TokenRefused,
    TokenRequest,
    TokenResponse,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import ENTRY_RECORDS, Range, ShardConfig, Unit, View, gsn_at
from logdb.log.corfu.storage.entry_store import EntryStore
from tests.log.corfu.client_stage import Client, shard_of, view_of
from tests.log.corfu.test_sequencer import Scripted as ScriptedSequencer
from tests.log.corfu.test_unit import Scripted

SHARD_OF_STREAMS = 2


def streams_of(number: int, *since: int, is_live: bool = True) -> ShardConfig:
    """A shard of streams; its units are s21, s22, and so on for shard 2."""
    return shard_of(number, *since, is_live=is_live)._replace(holds_streams=True)


def with_streams(*shards: ShardConfig, **fields: Any) -> View:
    """A projection with log shards and shards of streams."""
    log = tuple([one.shard for one in shards if one.is_live and not one.holds_streams])
    held = tuple([one.shard for one in shards if one.is_live and one.holds_streams])
    return view_of(*shards, **fields)._replace(ranges=(Range(1, log),), streams=(Range(1, held),))


VIEW = with_streams(shard_of(1, 0), streams_of(SHARD_OF_STREAMS, 0), start=5)


def entry(position: int, *streams: tuple[int, int]) -> Entry:
    """An entry of one record."""
    return Entry(position, 9, 7, position, 1, streams)


def records(*positions: int) -> list[LogRecord]:
    """The records of such entries."""
    return [LogRecord(gsn_at(position), 9, 1, b"%d" % position) for position in positions]


# ---- projections


def test_streams_belong_to_the_shards_of_their_range() -> None:
    view = with_streams(shard_of(1, 0), streams_of(2, 0), streams_of(3, 0, 7))
    view = view._replace(streams=(Range(1, (2,)), Range(5, (2, 3))))
    assert [view.stream_shard(stream, 4) for stream in (1, 2)] == [2, 2]
    assert [view.stream_shard(stream, 5) for stream in (1, 2)] == [3, 2]
    assert (view.stream_end(1, 9), view.stream_end(1, 3), view.stream_end(6, 9)) == (5, 3, 9)
    chains = view.stream_chains(5, (1, 2, 3))
    assert [[unit.address for unit in chain] for chain in chains] == [["s21"], ["s31"]]
    assert [config.shard for config in view.live()] == [1]


def test_a_shard_of_streams_is_kept_without_units_and_gets_a_spare() -> None:
    state = ProjectionState()
    for nonce in (1, 2, 3):
        state.apply(c.Register(nonce, f"s{nonce}"))

    def begin(sealed: tuple[int, ...], joins: tuple[tuple[int, int], ...], kind: str, *numbers: int) -> None:
        request = state.epoch * bool(kind)
        state.apply(c.NewEpoch(state.epoch, sealed, 4, 0, 0, "q1", 7, joins, request, kind, numbers))
        state.check()

    begin((), (), "AddShard", 1)
    begin((1,), (), "AddStreamShard", 2)
    assert state.streams == [Range(5, (2,))]
    assert state.shards[2] == ShardConfig(2, (Unit(2, "s2", 0, joined=3),), 1, True, holds_streams=True)
    begin((1,), (), "")
    assert state.shards[2].units == ()
    begin((1,), ((2, 3),), "")
    assert state.shards[2].units == (Unit(3, "s3", 5, joined=5),)
    assert ProjectionState.from_bytes(state.to_bytes()).view() == state.view()


# ---- the sequencer


def test_a_token_names_the_previous_position_of_each_stream_in_its_epoch() -> None:
    one = ScriptedSequencer()
    one.update(view_of(shard_of(1, 0), start=5))
    one.give("me", TokenRequest(1, 2, (0, 0), ((0, 7), (1, 7), (1, 8))))
    assert one.one(TokenResponse)[1].previous == (0, 5, 0)
    one.give("me", TokenRequest(2, 2, (0,), ((0, 8),)))
    assert one.one(TokenResponse)[1].previous == (6,)
    one.give("me", TokenRequest(2, 2, (0,), ((0, 8),)))
    assert one.one(TokenResponse)[1].previous == (6,)
    one.give("me", StreamTailRequest(3, 2, 8))
    assert one.one(StreamTailResponse)[1] == StreamTailResponse(3, 7)
    one.update(view_of(shard_of(1, 0), start=20, epoch=3))
    one.give("me", StreamTailRequest(4, 2, 8))
    assert one.one(TokenRefused)[1].epoch == 3
    one.give("me", StreamTailRequest(5, 3, 8))
    assert one.one(StreamTailResponse)[1].position == 0


# ---- log replicas


def log_replica(**fields: Any) -> Scripted:
    """The last unit of a log shard, with the entries 1, of streams, and 2."""
    unit = Scripted(with_streams(shard_of(1, 0, 0, 0), streams_of(SHARD_OF_STREAMS, 0), **fields))
    for position, streams in ((1, ((7, 0),)), (2, ())):
        unit.give("me", WriteRequest(5, 2, position, 9, 7, position, streams, [(1, b"%d" % position)]))
    unit.sync()
    unit.sent.clear()
    return unit


def test_an_entry_of_streams_is_there_for_readers_when_it_is_committed() -> None:
    unit = log_replica()
    unit.give("me", ReadRequest(6, 2, gsn_at(1)))
    unit.give("me", Pull(7, 2, 1, 1, 0, 0, None, 99))
    assert [(type(one.message), one.message.request) for one in unit.sent] == [(Pulled, 7)]
    assert unit.one(Pulled)[1].entries == ()
    unit.give("s21", Pull(8, 2, 1, 1, 2, 0, None, 99, uncommitted=True))
    assert unit.one(Pulled)[1] == Pulled(8, 2, (entry(1, (7, 0)),), (), (1,), records(1))
    unit.give("me", CommitRequest(9, 2, 1))
    assert unit.one(Committed)[1].request == 9
    assert unit.one(ReadResponse)[1].request == 6
    unit.sync()
    unit.restart()
    unit.give("me", ReadRequest(6, 2, gsn_at(1)))
    assert unit.core.store.readable_at(1) is not None


def test_a_commit_bit_that_was_not_durable_is_lost_in_a_restart() -> None:
    unit = log_replica()
    unit.give("me", CommitRequest(9, 2, 1))
    unit.restart()
    assert unit.core.store.readable_at(1) is None
    assert unit.core.store.durable_at(1) is not None


def test_a_log_replica_reports_its_highest_entry_though_it_is_not_committed() -> None:
    """Its writer may have died: a reader that waits for the tail must complete it."""
    unit = log_replica()
    unit.give("me", WriteRequest(5, 2, 3, 9, 7, 3, ((7, 1),), [(1, b"3")]))
    unit.give("me", Pull(6, 2, 3, 1, 0, 3, None, 99))
    assert not unit.take(Pulled)
    unit.sync()
    assert unit.one(Pulled)[1] == Pulled(6, 3, (), records=[])
    unit.give("me", Pull(7, 2, 3, 1, 0, 4, None, 99))
    assert not unit.take(Pulled)
    unit.give("me", CommitRequest(9, 2, 3))
    assert unit.one(Pulled)[1].entries == (entry(3, (7, 1)),)


def test_a_stream_replica_copies_nothing_from_a_shard_that_was_trimmed_away() -> None:
    """Its units were silent, and the replica asked them until another epoch began."""
    view = with_streams(shard_of(1, 0, is_live=False), shard_of(3, 0), streams_of(SHARD_OF_STREAMS, 9), start=9)
    view = view._replace(ranges=(Range(1, (1,)), Range(5, (3,))))
    unit = Scripted(view, server=21)
    assert unit.one(Pull)[0] == "s11"
    unit.wait(unit.core.config.heartbeat_ns)
    trimmed = view._replace(version=3, shards=view.shards[1:], ranges=view.ranges[1:], oldest=gsn_at(5))
    unit.update(trimmed)
    to, pull = unit.take(Pull)[-1]
    assert (to, pull.first) == ("s31", 5)


def test_a_log_replica_names_its_open_positions_before_the_epoch() -> None:
    unit = log_replica(start=6)
    unit.give("me", OpenRequest(6, 2, 1, 6))
    assert unit.one(OpenPositions)[1].positions == (1, 3, 4, 5)
    unit.give("me", CommitRequest(9, 2, 1))
    unit.give("me", OpenRequest(7, 2, 1, 3))
    assert unit.one(OpenPositions)[1].positions == ()
    unit.give("me", OpenRequest(8, 3, 1, 6))
    assert unit.one(Rejected)[1].why is Reason.BUSY


def test_a_log_replica_looks_for_open_positions_from_the_first_one_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request for the next 256 of many looked at all positions before them again."""
    unit = log_replica(start=6)
    unit.give("me", CommitRequest(9, 2, 1))
    firsts, missing = [], EntryStore.missing

    def noted(self: EntryStore, first: int, *arguments: Any) -> list[int]:
        firsts.append(first)
        return missing(self, first, *arguments)

    monkeypatch.setattr(EntryStore, "missing", noted)
    for _ in range(2):
        unit.give("me", OpenRequest(6, 2, 0, 6))
        assert unit.one(OpenPositions)[1].positions == (3, 4, 5)
    assert firsts == [1, 3]


def test_an_entry_at_a_position_of_another_shard_hides_no_open_position() -> None:
    """A unit that has just restarted accepts it. The open position would be decided when streams were read (COR-18)."""
    view = with_streams(shard_of(1, 0, 0, 0), shard_of(2, 0), streams_of(SHARD_OF_STREAMS, 0), start=5)
    unit = Scripted(view)
    unit.restart()
    for position in (1, 2):
        unit.give("me", WriteRequest(5, 2, position, 9, 7, position, (), [(1, b"x")]))
    unit.sync()
    unit.update(view)
    unit.give("me", OpenRequest(6, 2, 1, 5))
    assert unit.one(OpenPositions)[1].positions == (3,)


def test_a_log_replica_that_has_copied_names_its_open_positions_from_before_it_joined() -> None:
    """Its projection may still have it as joining, when a client has a newer one and asks only this unit."""
    unit = Scripted(with_streams(shard_of(1, 0, 0, 3), streams_of(SHARD_OF_STREAMS, 0), start=3))
    unit.give("me", OpenRequest(6, 2, 3, 3))
    assert unit.one(OpenPositions)[1].positions == ()
    unit.give("me", OpenRequest(6, 2, 0, 3))
    assert unit.one(Rejected)[1].why is Reason.BUSY
    _, pull = unit.one(Pull)
    unit.give("s12", Pulled(pull.request, 2, (entry(1, (7, 0)), entry(2)), (), (1,), records(1, 2)))
    unit.sync()
    for first, positions in ((3, ()), (0, (1,)), (2, ()), (0, (1,))):
        unit.give("me", OpenRequest(7, 2, first, 3))
        assert unit.one(OpenPositions)[1].positions == positions


@pytest.mark.parametrize(
    ("epoch", "position", "why"), [(1, 1, Reason.SEALED), (2, 5, Reason.BUSY), (2, 0, Reason.TRIMMED)]
)
def test_a_commit_of_what_is_not_there_is_rejected(epoch: int, position: int, why: Reason) -> None:
    unit = log_replica()
    unit.give("me", CommitRequest(9, epoch, position))
    assert unit.one(Rejected)[1].why is why


# ---- stream replicas


def stream_replica(since: int = 0, start: int = 9) -> Scripted:
    """The unit s13 as the only stream replica."""
    held = ShardConfig(SHARD_OF_STREAMS, (Unit(13, "s13", since),), 1, True, holds_streams=True)
    return Scripted(with_streams(shard_of(1, 0, 0), held, start=start))


def test_a_stream_is_read_from_its_replica_in_order() -> None:
    unit = stream_replica()
    for position, streams in ((3, ((7, 0),)), (6, ((7, 3), (8, 0))), (5, ((8, 0),))):
        unit.give("me", WriteRequest(5, 2, position, 9, 7, position, streams, [(1, b"%d" % position)]))
    unit.sync()
    unit.sent.clear()
    unit.give("me", StreamPull(6, 2, 7, 1, 9, 99))
    found = (entry(3, (7, 0)), entry(6, (7, 3), (8, 0)))
    assert unit.one(StreamPulled)[1] == StreamPulled(6, 9, found, (), records(3, 6))
    unit.give("me", StreamPull(6, 2, 7, 1, 9, 1))
    assert unit.one(StreamPulled)[1] == StreamPulled(6, 6, found[:1], (), records(3))
    unit.give("me", StreamPull(6, 2, 8, 6, 7, 99))
    assert unit.one(StreamPulled)[1].entries == found[1:]


@pytest.mark.parametrize("holds_streams", [True, False])
def test_a_unit_reads_no_stream_for_a_replica_that_had_its_address(holds_streams: bool) -> None:
    """That one was sealed, and lost its disk before the epoch began. The reader missed all entries of the stream."""
    lost = ShardConfig(2, (Unit(9, "s13", 0),), 1, True, holds_streams=True)
    own = ShardConfig(3, (Unit(13, "s13", 0),), 1, True, holds_streams=holds_streams)
    unit = Scripted(with_streams(shard_of(1, 0, 0), lost, own)._replace(streams=(Range(1, (2,)),)))
    unit.give("me", StreamPull(6, 2, 7, 1, 9, 99))
    assert unit.one(Rejected)[1].why is Reason.BUSY


def test_a_stream_replica_completes_an_entry_from_the_last_log_replica() -> None:
    unit = stream_replica()
    unit.give("me", FillRequest(5, 2, 4))
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end, pull.uncommitted) == ("s12", 4, 5, True)
    unit.give("s12", Pulled(pull.request, 4, (entry(4, (7, 0)),), (), (4,), records(4)))
    unit.sync()
    assert unit.one(Written)[1] == Written(5, 4, 7, 4, 1, ((7, 0),))


def test_a_stream_replica_copies_nothing_that_is_not_its_own_for_a_filler() -> None:
    unit = stream_replica()
    unit.give("me", FillRequest(5, 2, 4))
    _, pull = unit.one(Pull)
    unit.give("s12", Pulled(pull.request, 4, (entry(4),), records=records(4)))
    assert unit.one(Rejected)[1].why is Reason.ABSENT
    assert not unit.core.store.positions


def test_a_new_stream_replica_copies_its_streams_from_the_log() -> None:
    unit = stream_replica(since=5, start=5)
    unit.give("me", StreamPull(6, 2, 7, 1, 9, 99))
    assert unit.one(Rejected)[1].why is Reason.BUSY
    unit.give("me", StreamPull(6, 2, 7, 5, 9, 99))
    assert unit.one(StreamPulled)[1].entries == ()
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end, pull.uncommitted) == ("s12", 1, 5, True)
    unit.give("s12", Pulled(pull.request, 4, (entry(1, (7, 0)), entry(2)), (), (1,), records(1, 2)))
    _, pull = unit.one(Pull)
    assert pull.first == 3
    unit.give("s12", Pulled(pull.request, 4, ()))
    for link in ("s11", "s12"):
        to, fill = unit.one(FillRequest)
        assert (to, fill.position) == (link, 3)
        unit.give(link, Written(fill.request, 3, 0, 0, 0))
    _, pull = unit.one(Pull)
    unit.give("s12", Pulled(pull.request, 4, (Entry(3, 0, 0, 0, 0), entry(4, (7, 1))), records=records(4)))
    unit.sync()
    assert list(unit.core.store.positions) == [1, 4]
    assert unit.core.copier.copied == 5
    unit.sent.clear()
    unit.give("me", StreamPull(6, 2, 7, 1, 9, 99))
    assert [one.position for one in unit.one(StreamPulled)[1].entries] == [1, 4]


# ---- a client that appends


def test_an_append_is_written_to_log_and_stream_replicas_and_then_committed() -> None:
    client = Client()
    call = client.call(calls.Append([(1, b"x")], streams=(8, 7)))
    client.configure(with_streams(shard_of(1, 0, 0), streams_of(2, 0), streams_of(3, 0)))
    to, token = client.one(TokenRequest)
    assert token.streams == ((0, 7), (0, 8))
    client.give("q1", TokenResponse(token.request, 2, 4, 5, (4,), 9, (0, 3)))
    for unit in ("s11", "s12", "s21", "s31"):
        to, write = client.one(WriteRequest)
        assert (to, write.position, write.streams) == (unit, 4, ((7, 0), (8, 3)))
        assert not client.take(CommitRequest)
        client.give(unit, Written(write.request, 4, write.client, write.sequence, 1, write.streams))
    commits = client.take(CommitRequest)
    assert [to for to, _ in commits] == ["s11", "s12"]
    for to, commit in commits:
        assert call not in client.answers
        client.give(to, Committed(commit.request))
    assert client.answers[call] == calls.AppendResult([gsn_at(4)], [1])


def test_an_append_to_streams_waits_for_a_stream_replica() -> None:
    client = Client()
    client.call(calls.Append([(1, b"x")], streams=(7,)))
    client.configure(with_streams(shard_of(1, 0), streams_of(2)))
    assert not client.take(TokenRequest)
    client.wait(SECOND)
    client.configure(with_streams(shard_of(1, 0), streams_of(2, 5), epoch=3, start=5))
    assert client.one(TokenRequest)[1].streams == ((0, 7),)


def test_an_append_to_streams_is_refused_without_a_shard_of_streams() -> None:
    client = Client()
    call = client.call(calls.Append([(1, b"x")], streams=(7,)))
    client.configure(view_of(shard_of(1, 0)))
    client.configure(view_of(shard_of(1, 0)))
    assert isinstance(client.answers[call], Unavailable)


# ---- a client that reads


def test_a_subscription_to_a_shard_of_streams_ends_at_once() -> None:
    client = Client()
    subscription = client.call(calls.Subscribe(1, shard=SHARD_OF_STREAMS))
    call = client.call(calls.Next(client.answers[subscription]))
    client.configure(VIEW)
    assert client.answers[call] == Batch(1, calls.END, [])


def test_a_subscription_completes_the_last_entry_whose_writer_has_died() -> None:
    """Nothing comes after it, and `tail` has it."""
    client = Client()
    subscription = client.call(calls.Subscribe(gsn_at(5)))
    call = client.call(calls.Next(client.answers[subscription]))
    client.configure(VIEW)
    _, pull = client.one(Pull)
    assert (pull.first, pull.known) == (5, 5)
    client.give("s11", Pulled(pull.request, 5, ()))
    _, pull = client.one(Pull)
    assert (pull.first, pull.known) == (5, 6)
    client.wait(SECOND // 4)
    fill_with(client, 5, Written(0, 5, 7, 5, 1, ((7, 0),)))
    client.give("s11", Pulled(pull.request, 5, (entry(5, (7, 0)),), records=records(5)))
    assert client.answers[call].records == records(5)


def reading(view: View, last: int, gsn: int = 1) -> tuple[Client, int]:
    """A client that reads stream 7, with the last position of this epoch."""
    client = Client()
    call = client.call(calls.ReadStream(7, gsn))
    client.configure(view)
    for to, question in client.take(HighestRequest):
        client.give(to, HighestResponse(question.request, gsn_at(9)))
    for to, opened in client.take(OpenRequest):
        assert (to, opened.first, opened.end) == ("s11", 0, view.start)
        client.give(to, OpenPositions(opened.request, ()))
    to, question = client.one(StreamTailRequest)
    assert (to, question.epoch, question.stream) == ("q1", view.epoch, 7)
    client.give("q1", StreamTailResponse(question.request, last))
    return client, call


def give_stream(client: Client, first: int, until: int, *entries: Entry, end: int = 0) -> None:
    """The stream replica has these entries, and sends what it has up to `end`."""
    to, pull = client.one(StreamPull)
    assert (to, pull.stream, pull.first, pull.end) == ("s21", 7, first, until)
    found = records(*(one.position for one in entries))
    client.give("s21", StreamPulled(pull.request, end or until, entries, records=found))


def test_a_stream_is_read_up_to_the_last_position_that_was_assigned() -> None:
    client, call = reading(VIEW, 8)
    give_stream(client, 1, 9, entry(2, (7, 0)), entry(6, (7, 0)), entry(8, (7, 6)))
    assert client.answers[call] == Batch(1, gsn_at(9), records(2, 6, 8))


@pytest.mark.parametrize("both", [False, True], ids=["of different entries", "of one entry"])
def test_a_stream_is_read_if_what_is_damaged_on_one_replica_is_sound_on_another(both: bool) -> None:
    """Each damage made the whole batch unreadable, so a read had no end."""
    client, call = reading(with_streams(shard_of(1, 0), streams_of(SHARD_OF_STREAMS, 0, 0), start=5), 8)
    entries = entry(2, (7, 0)), entry(6, (7, 0)), entry(8, (7, 6))
    damaged = {"s21": 6, "s22": 6 if both else 2}
    for _ in range(20):
        for to, pull in client.take(StreamPull):
            rest = [one for one in entries if one.position >= pull.first]
            found = rest[:1] if pull.max_bytes == 1 else rest
            end = rest[1].position if found == rest[:1] != rest else pull.end
            answer: Any = StreamPulled(pull.request, end, tuple(found), (), records(*[one.position for one in found]))
            if damaged[to] in [one.position for one in found]:
                answer = Rejected(pull.request, Reason.UNREADABLE, 1, 1, f"disk of {to}")
            client.give(to, answer)
        client.wait(SECOND // 20)
    if both:
        assert "disk of s21; disk of s22" in str(client.answers[call])
    else:
        assert client.answers[call] == Batch(1, gsn_at(9), records(2, 6, 8))


@pytest.mark.parametrize("are_trimmed", [False, True], ids=["empty records", "trimmed records"])
def test_a_batch_of_many_small_records_has_a_limit(are_trimmed: bool) -> None:
    client, call = reading(VIEW._replace(start=1), 99)
    for position in range(1, 99):
        if call in client.answers:
            break
        _, pull = client.one(StreamPull)
        one = Entry(position, 9, 7, position, ENTRY_RECORDS, ((7, position - 1),))
        gsns = range(gsn_at(position), gsn_at(position + 1))
        found = [] if are_trimmed else [LogRecord(gsn, 9, 1, b"") for gsn in gsns]
        trimmed = tuple(gsns) if are_trimmed else ()
        client.give("s21", StreamPulled(pull.request, position + 1, (one,), trimmed, found))
    batch = client.answers[call]
    assert batch.end == gsn_at(len([*batch.records, *batch.trimmed]) // ENTRY_RECORDS + 1)


def test_a_read_continues_in_the_middle_of_an_epoch() -> None:
    client, call = reading(VIEW, 8, gsn_at(7))
    give_stream(client, 7, 9, entry(8, (7, 6)))
    assert client.answers[call] == Batch(gsn_at(7), gsn_at(9), records(8))


def fill_with(client: Client, position: int, written: Written) -> None:
    """The log and stream replicas have an entry, or junk."""
    for unit in ("s11", "s21") if written.count else ("s11",):
        to, fill = client.one(FillRequest)
        assert (to, fill.position) == (unit, position)
        client.give(unit, written._replace(request=fill.request))
    if written.count:
        to, commit = client.one(CommitRequest)
        client.give(to, Committed(commit.request))


@pytest.mark.parametrize("missing", ["in between", "the last one"])
def test_an_entry_that_the_replica_lacks_is_completed(missing: str) -> None:
    client, call = reading(VIEW, 8 if missing == "in between" else 6)
    entries = [entry(8, (7, 6))] if missing == "in between" else []
    give_stream(client, 1, 9 if entries else 7, *entries)
    client.wait(SECOND // 20)
    assert not client.take(FillRequest)
    for to, pull in client.take(StreamPull):
        client.give(to, StreamPulled(pull.request, pull.end, tuple(entries), records=records(*[8] * len(entries))))
    client.wait(SECOND)
    for to, pull in client.take(StreamPull):
        client.give(to, StreamPulled(pull.request, pull.end, tuple(entries), records=records(*[8] * len(entries))))
    client.wait(SECOND // 4)
    fill_with(client, 6, Written(0, 6, 7, 6, 1, ((7, 0),)))
    _, pull = client.one(StreamPull)
    both = (entry(6, (7, 0)), *entries)
    client.give("s21", StreamPulled(pull.request, pull.end, both, records=records(*(one.position for one in both))))
    assert client.answers[call].records == records(*(one.position for one in both))


def test_a_read_ends_when_many_positions_that_it_fills_were_trimmed() -> None:
    """The fills ended at once, each 256 in a deeper call, until the client met a RecursionError."""
    client, call = reading(VIEW, 200_000)
    give_stream(client, 1, 200_001)
    client.wait(SECOND // 8)
    give_stream(client, 5, 200_001)
    client.wait(SECOND // 8)
    fill_with(client, 200_000, Written(0, 200_000, 0, 0, 0))
    for to, fill in client.take(FillRequest):
        client.give(to, Rejected(fill.request, Reason.TRIMMED, 1, gsn_at(300_000)))
    assert isinstance(client.answers[call], Trimmed)


def test_junk_has_no_predecessor_so_all_positions_before_it_are_filled() -> None:
    client, call = reading(VIEW, 8)
    for _ in range(20):
        for to, pull in client.take(StreamPull):
            found = [2] if pull.first == 1 else []
            entries = tuple([entry(position, (7, 0)) for position in found])
            client.give(to, StreamPulled(pull.request, pull.end, entries, records=records(*found)))
        if client.sent and isinstance(client.sent[-1].message, FillRequest):
            break
        client.wait(SECOND // 20)
    fill_with(client, 8, Written(0, 8, 0, 0, 0))
    fills = client.take(FillRequest)
    assert [one.position for _, one in fills] == [5, 6, 7]
    for to, fill in fills:
        client.give(to, Written(fill.request, fill.position, 0, 0, 0))
    give_stream(client, 5, 9)
    assert client.answers[call] == Batch(1, gsn_at(9), records(2))


def test_an_entry_that_came_after_a_pull_had_passed_it_is_not_missed() -> None:
    """The replica sends what it has up to a limit: the next entry that it has may not be the next of the stream."""
    client, call = reading(VIEW, 8)
    give_stream(client, 1, 9, end=8)
    for _ in range(20):
        for to, pull in client.take(StreamPull):
            assert pull.first == 5
            client.give(to, StreamPulled(pull.request, 9, (entry(8, (7, 7)),), records=records(8)))
        if client.sent and isinstance(client.sent[-1].message, FillRequest):
            break
        client.wait(SECOND // 20)
    fill_with(client, 7, Written(0, 7, 0, 0, 0))
    for to, fill in client.take(FillRequest):
        client.give(to, Written(fill.request, fill.position, 0, 0, 0))
    give_stream(client, 5, 9, entry(6, (7, 0)), entry(8, (7, 7)))
    assert client.answers[call] == Batch(1, gsn_at(9), records(6, 8))


def test_open_positions_of_earlier_epochs_are_closed_once_in_an_epoch() -> None:
    client = Client()
    client.call(calls.ReadStream(7, 1))
    client.configure(VIEW)
    (question,) = [one for _, one in client.take(HighestRequest)]
    client.give("s11", HighestResponse(question.request, gsn_at(9)))
    _, opened = client.one(OpenRequest)
    client.give("s11", OpenPositions(opened.request, (3, 4)))
    assert not client.take(StreamTailRequest)
    fills = client.take(FillRequest)
    assert [one.position for _, one in fills] == [3, 4]
    for to, fill in fills:
        client.give(to, Written(fill.request, fill.position, 0, 0, 0))
    _, opened = client.one(OpenRequest)
    client.give("s11", OpenPositions(opened.request, ()))
    assert client.take(StreamTailRequest)
    client.call(calls.ReadStream(8, 1))
    (question,) = [one for _, one in client.take(HighestRequest)]
    client.give("s11", HighestResponse(question.request, gsn_at(9)))
    assert not client.take(OpenRequest)
    assert client.take(StreamTailRequest)


def test_a_read_begins_again_in_another_epoch() -> None:
    client, call = reading(VIEW, 8)
    _, pull = client.one(StreamPull)
    client.give("s21", Rejected(pull.request, Reason.SEALED, 2, 1))
    client.configure(VIEW._replace(version=3, epoch=3, start=9))
    for to, question in client.take(HighestRequest):
        client.give(to, HighestResponse(question.request, gsn_at(9)))
    for to, opened in client.take(OpenRequest):
        assert opened.end == 9
        client.give(to, OpenPositions(opened.request, ()))
    _, question = client.one(StreamTailRequest)
    client.give("q1", StreamTailResponse(question.request, 0))
    give_stream(client, 1, 9, entry(2, (7, 0)), entry(8, (7, 6)))
    assert client.answers[call] == Batch(1, gsn_at(9), records(2, 8))
