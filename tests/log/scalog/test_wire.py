"""Scalog's messages on the wire: optional fields, the split of large messages, and errors that name wrong values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.log.contract import LogRecord
from logdb.log.requests import ShardState
from logdb.log.scalog import messages as scalog
from logdb.log.scalog.engine import ORDERING
from logdb.log.scalog.storage.sessions import ClientSessions
from logdb.log.scalog.wire import MAX_PULL_BYTES
from logdb.transport.accepted_messages import ONLY_FROM
from logdb.wire.envelopes import pack, unpack
from logdb.wire.limits import WireError
from logdb.wire.schema import Packet
from tests.harness.samples import arrivals, sent, tight


def test_a_run_that_is_not_ordered_yet_arrives() -> None:
    runs = ((1 << 63, 2, 3, 4, -1), (1, 2, 3, 4, 0))
    assert sent(scalog.SessionsResponse(1, 2, 3, 7, 1 << 63, ((7, 8),), runs)).runs == runs


def test_any_number_of_clients_fits_in_messages_of_limited_size() -> None:
    """All clients were in one message, which was too large to send above some 150,000 clients that ever appended to a
    segment: no member could join the shard any more."""
    sessions, copied = ClientSessions(), ClientSessions()
    clients = [(1 << 64) - 1 - 977 * number for number in range(120_000)]
    for lsn, client in enumerate(clients, 1 << 62):
        sessions.add(client, 1 << 62, 1, lsn)
        sessions.settle(client, 1 << 61)
    firsts, followings = [], []
    for part in sessions.before((1 << 63) - 1):
        arrived = sent(scalog.SessionsResponse(1, 2, 3, *part))
        firsts.append(arrived.first)
        followings.append(arrived.following)
        copied.merge(arrived.marks, arrived.runs)
    assert len(firsts) > 5
    assert (firsts[0], followings[-1], firsts[1:]) == (0, 0, followings[:-1])
    assert list(copied.before((1 << 63) - 1)) == list(sessions.before((1 << 63) - 1))


def test_an_append_is_split_by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 1000)
    records = tuple((1 + n % 3, bytes([n]) * 100) for n in range(30))
    parts = arrivals(pack("one:1", "two:2", [scalog.Append(1, 500, 400, 7, records)]))
    assert len(parts) > 3
    assert {(part.client, part.settled, part.segment) for part in parts} == {(1, 400, 7)}
    numbered = {part.sequence + n: record for part in parts for n, record in enumerate(part.records)}
    assert numbered == dict(enumerate(records, 500))


def test_a_replication_is_split_by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 1000)
    records = tuple((1, bytes([n]) * 100) for n in range(30))
    parts = arrivals(pack("one:1", "two:2", [scalog.Replicate(1, 2, 70, ((5, 6),), records)]))
    assert {part.settled for part in parts} == {((5, 6),)}
    assert [part.first for part in parts] == sorted(part.first for part in parts)
    assert {part.first + n: it for part in parts for n, it in enumerate(part.records)} == dict(enumerate(records, 70))


@pytest.mark.parametrize("chosen", [1, 3])
def test_a_stretch_of_the_log_is_cut_short(monkeypatch: pytest.MonkeyPatch, chosen: int) -> None:
    """The shard owns 100 to 109 and 120 to 129 of 100 to 139; every `chosen`-th has a requested tag."""
    tight(monkeypatch, 1000)
    owned = [*range(100, 110), *range(120, 130)]
    records = tuple(LogRecord(gsn, 9, 1, bytes(150)) for gsn in owned[::chosen])
    whole = scalog.Pulled(1, 2, 95, 140, ((100, 10), (120, 10)), True, records)
    (part,) = arrivals(pack("one:1", "two:2", [whole]))
    assert part.first == 95
    assert 100 < part.end < 140
    assert not part.final
    assert part.records == tuple(record for record in records if record.gsn < part.end)
    assert part.records
    listed = [gsn for first, count in part.owned for gsn in range(first, first + count)]
    assert listed == [gsn for gsn in owned if gsn < part.end]


def test_updates_and_tallies_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 200)
    updates = tuple(scalog.Update(n, 5, None, (), 10, 1 << 40, 1) for n in range(40))
    parts = arrivals(pack("one:1", "two:2", [scalog.Updates(7, updates)]))
    assert len(parts) > 1
    assert sum((part.updates for part in parts), ()) == updates
    assert {part.view for part in parts} == {7}

    shards = tuple(scalog.ShardTally(n, 5, 10, ((n, 1 << 40),)) for n in range(40))
    parts = arrivals(pack("one:1", "two:2", [scalog.Tally("one:1", shards)]))
    assert len(parts) > 1
    assert sum((part.shards for part in parts), ()) == shards


def test_placements_that_do_not_fit_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tight(monkeypatch, 300)
    entries = tuple(scalog.ShardCut(n, n - 1, 5, (scalog.Range(1, n, 1, n),)) for n in range(1, 80))
    (part,) = arrivals(pack("one:1", "two:2", [scalog.PlacementsResponse(1, 0, ((1, 1),), 1, entries, True)]))
    assert part.entries
    assert part.entries == entries[: len(part.entries)]
    assert not part.complete


@settings(max_examples=30)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=40), st.integers(500, 2000))
def test_split_or_not_the_same_records_arrive(sizes: list[int], limit: int) -> None:
    records = tuple((1, bytes([n % 256]) * size) for n, size in enumerate(sizes))
    with pytest.MonkeyPatch.context() as patch:
        tight(patch, limit)
        parts = arrivals(pack("one:1", "two:2", [scalog.Append(1, 10, 0, 2, records)]))
    assert sum((part.records for part in parts), ()) == records
    assert [part.sequence for part in parts] == [
        10 + sum(len(part.records) for part in parts[:at]) for at in range(len(parts))
    ]


@pytest.mark.parametrize(
    ("absent", "zero"),
    [
        (scalog.Segment(1, 2, 3, None), scalog.Segment(1, 2, 3, 0)),
        (scalog.Segment(1, 2, 3, None), scalog.Segment(1, 2, 3, 4)),
    ],
)
def test_not_sealed_is_not_sealed_at_0(absent: scalog.Segment, zero: scalog.Segment) -> None:
    def config(segment: scalog.Segment) -> scalog.RegistrationReply:
        shard = scalog.ShardConfig(1, 0, ShardState.LIVE, 1, (), (segment,), "")
        return scalog.RegistrationReply(1, 1, False, scalog.Update(1, 0, shard, (), 0, 0, 0))

    assert sent(config(absent)) == config(absent)
    assert sent(config(zero)) == config(zero)


@pytest.mark.parametrize("tags", [None, frozenset(), frozenset({1}), frozenset(range(1, 256))])
def test_no_tags_are_not_all_tags(tags: frozenset[int] | None) -> None:
    assert sent(scalog.Pull(1, 2, 3, tags, 4)).tags == tags


def test_no_update_and_no_config_are_none() -> None:
    assert sent(scalog.RegistrationReply(1, 0, False, None)).update is None
    (update,) = sent(scalog.Updates(1, (scalog.Update(0, 0, None, (), 0, 0, 0),))).updates
    assert update.config is None


@pytest.mark.parametrize("kind", [scalog.RejectReason, scalog.ReadError, ShardState])
def test_every_member_of_an_enum_arrives(kind: Any) -> None:
    for member in kind:
        if kind is scalog.RejectReason:
            assert sent(scalog.Rejected(1, 2, 3, member)).why is member
        elif kind is scalog.ReadError:
            assert sent(scalog.ReadFailed(1, member, 2)).why is member
        else:
            shard = scalog.ShardConfig(1, 0, member, 1, (), (), "")
            assert sent(scalog.ViewResponse(1, scalog.View(1, (shard,), 2, 1, (), ()))).view.shards[0].state is member


@pytest.mark.parametrize(
    "message",
    [
        scalog.ReplicateAck(1, 2, 3, -1, False),
        scalog.ReplicateAck(1, 2, 3, 1 << 63, False),
        scalog.ReplicateAck(1, 2, 3, None, False),  # type: ignore[arg-type]
        scalog.ReplicateAck(1, 2, "3", 4, False),  # type: ignore[arg-type]
        scalog.Register(1 << 64, "a:1"),
        scalog.Rejected(1, 2, 3, "busy"),  # type: ignore[arg-type]
        scalog.Append(1, 2, 3, 4, [(256, b"")]),
        scalog.Append(1, 2, 3, 4, [(0, b"")]),
        scalog.Append(1, 2, 3, 4, [(1, "text")]),  # type: ignore[list-item]
        scalog.Pull(1, 2, 3, frozenset({256}), 4),
        scalog.Pull(1, 2, 3, None, MAX_PULL_BYTES + 1),
        scalog.ChangeRequest(1, scalog.ReplicateAck(1, 2, 3, 4, False)),  # type: ignore[arg-type]
        scalog.Range(1, 2, 3, 4),
    ],
)
def test_wrong_fields_are_not_sent(message: Any) -> None:
    with pytest.raises(WireError):
        sent(message)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([{"replicate_ack": {"end": -1}}], "ReplicateAck with end -1"),
        ([{"report": {"ends": [1, 2, 3]}}], "3 numbers where each row has 2"),
        ([{"report": {"ends": [1, -2]}}], "an invalid position"),
        ([{"sessions_response": {"marks": [1 << 63, 1 << 63]}}], "an invalid position"),
        ([{"rejected": {"client": 1}}], "0 is not a RejectReason"),
        ([{"rejected": {"why": 77}}], "77 is not a RejectReason"),
        ([{"read_failed": {"why": 5}}], "5 is not a ReadError"),
        ([{"change_request": {"change": {}}}], "a Reconfiguration of an unknown kind"),
        ([{"pull": {"tags": b"\0"}}], "0 is not a tag"),
        ([{"pull": {"max_bytes": MAX_PULL_BYTES + 1}}], "a Pull of"),
        ([{"view_response": {"view": {"aggregators": ["a"]}}}], "1 strings where each row has 2"),
        ([{"append": {}}], "append without its batch"),
    ],
)
def test_wrong_values_are_named(messages: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        unpack(Packet(messages=messages).SerializeToString())


@pytest.mark.parametrize(
    "kind",
    [
        scalog.Report,
        scalog.Tally,
        scalog.Suspect,
        scalog.Recovered,
        scalog.Unreachable,
        scalog.CaughtUp,
        scalog.Register,
        scalog.RegisterAggregator,
        scalog.SuspectAggregator,
    ],
)
def test_an_ordering_replica_accepts_what_another_one_forwards(kind: type) -> None:
    """A refused message would end the stream of two nodes."""
    assert kind in ORDERING.accepts
    assert "ordering" in ONLY_FROM.get(kind, {"ordering"})
