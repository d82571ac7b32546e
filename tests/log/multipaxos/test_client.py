"""A client of Multi-Paxos whose leader ends: where its requests go until there is another one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logdb.cores.effects import MILLISECOND, SECOND
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, Trimmed
from logdb.log.multipaxos.client import append_client
from logdb.log.multipaxos.client.log_client import MultiPaxosClient
from logdb.log.multipaxos.messages import (
    AppendRefused,
    AppendRequest,
    AppendResponse,
    NotLeader,
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    ReadResponse,
    TailRequest,
)
from logdb.log.multipaxos.records import wrap
from logdb.log.requests import ClientConfig
from tests.harness.comparisons import comparisons_of
from tests.harness.script import Script

REPLICAS = ("r1", "r2", "r3")


class Stage(Script):
    def __init__(self, **config: int) -> None:
        set_ = ClientConfig("client", REPLICAS, coalesce_calls=False, **config)
        super().__init__(lambda journals: MultiPaxosClient(set_, journals, random.Random(1)), now=1_000 * SECOND)

    def append(self) -> tuple[str, AppendRequest]:
        """A new append: the replica that gets it, and its request."""
        self.call(calls.Append(((1, b"record"),)))
        return self.one(AppendRequest)

    def acknowledge(self, leader: str, request: AppendRequest, gsn: int) -> None:
        self.give(leader, AppendResponse(request.client, ((request.sequence, len(request.records), gsn),)))

    def refuse_all(self, dead: str, steps: int, kind: type[Any] = AppendRequest) -> dict[str, int]:
        """The others refuse what they get, and take `dead` for the leader. Returns how often each was asked."""
        asked = dict.fromkeys(REPLICAS, 0)
        for _ in range(steps):
            self.wait(5 * MILLISECOND)
            for to, request in self.take(kind):
                asked[to] += 1
                if to != dead:
                    wrong = (
                        AppendRefused(request.client, request.sequence, dead)
                        if kind is AppendRequest
                        else NotLeader(request.request, dead)
                    )
                    self.give(to, wrong)
        return asked


def led_by(stage: Stage) -> str:
    leader, request = stage.append()
    stage.acknowledge(leader, request, 1)
    return leader


def test_records_behind_a_full_window_are_appended_when_the_others_are_in_the_log() -> None:
    """All were in one message, which was split from 68 MiB on. A leader that had no room for a part, or a stream that
    dropped it, did not keep the next one from being ordered before it."""
    stage = Stage()
    records = [(1, bytes([number]) * (3 << 20)) for number in range(5)]
    call = stage.call(calls.Append(records))
    appended: list[tuple[int, bytes]] = []
    refusals = 0
    while sent := stage.take(AppendRequest):
        ((leader, request),) = sent
        assert (request.sequence, len(request.records)) == (1 + len(appended), min(2, 5 - len(appended)))
        if len(appended) == 2 and refusals < 2:
            refusals += 1
            other = next(replica for replica in REPLICAS if replica != leader)
            stage.give(leader, AppendRefused(request.client, request.sequence, leader if refusals == 1 else other))
            stage.wait(50 * MILLISECOND)
        else:
            appended += request.records
            stage.acknowledge(leader, request, 10 * request.sequence)
        assert (call in stage.answers) == (len(appended) == 5)
    assert (appended, refusals) == (records, 2)
    assert stage.answers[call] == calls.AppendResult([10, 11, 30, 31, 50], [1] * 5)


def test_while_the_others_name_a_replica_that_has_ended_few_requests_go_there() -> None:
    """A request to such a replica waits for its next connection: it missed the new leader by half a second."""
    stage = Stage()
    dead = led_by(stage)
    stage.append()
    stage.lose(dead)
    asked = stage.refuse_all(dead, 80)  # 0.4 s
    assert asked.pop(dead) <= 15, "each waits for a few ms"
    assert min(asked.values()) > 5


def test_refused_appends_are_sent_when_a_leader_has_answered() -> None:
    """Of a hundred, each asked on its own, 60 times a second."""
    stage = Stage()
    dead = led_by(stage)
    stage.lose(dead)
    for _ in range(20):
        stage.call(calls.Append(((1, b"record"),)))
        stage.wait(5 * MILLISECOND)
    asked = stage.refuse_all(dead, 60)
    assert sum(asked.values()) < 20 + 3 * 60
    leader = next(replica for replica in REPLICAS if replica != dead)
    found: list[AppendRequest] = []
    while not found:
        stage.wait(5 * MILLISECOND)
        for to, request in stage.take(AppendRequest):
            if to == leader:
                found.append(request)
            elif to != dead:
                stage.give(to, AppendRefused(request.client, request.sequence, leader))
    stage.acknowledge(leader, found[0], 2)
    open_ = {request.sequence for to, request in stage.take(AppendRequest) if to == leader}
    assert len(open_) >= 15, "all are sent at once"


def test_a_leader_whose_stream_was_lost_is_tried_again() -> None:
    """Only the connection was lost, and the others still follow it."""
    stage = Stage()
    leader = led_by(stage)
    call = stage.call(calls.Append(((1, b"record"),)))
    stage.lose(leader)
    for _ in range(60):
        stage.wait(5 * MILLISECOND)
        for to, request in stage.take(AppendRequest):
            if to == leader:
                stage.acknowledge(leader, request, 2)
            else:
                stage.give(to, AppendRefused(request.client, request.sequence, leader))
    assert stage.answers[call].gsns == [2]
    assert stage.append()[0] == leader


def test_a_paused_leader_is_asked_by_few_requests_until_another_one_leads() -> None:
    stage = Stage()
    stage.call(calls.Tail())
    paused, _ = stage.one(TailRequest)
    asked = stage.refuse_all(paused, 400, TailRequest)  # 2 s
    assert 0 < asked.pop(paused) <= 4
    assert min(asked.values()) > 5


def test_a_subscription_leaves_a_leader_that_has_ended() -> None:
    """A replica that is behind names it. The pull went there, and waited for a timeout."""
    stage = Stage()
    subscription = stage.ask(calls.Subscribe(1))
    stage.call(calls.Next(subscription))
    to, pull = stage.one(Pull)
    stage.lose(to)
    dead, asked = to, set()
    for _ in range(20):
        stage.wait(5 * MILLISECOND)
        for to, pull in stage.take(Pull):
            asked.add(to)
            if to != dead:
                stage.give(to, ReadFailed(pull.request, ReadError.BEHIND, 1, dead, ""))
    assert asked == set(REPLICAS) - {dead}
    for _ in range(200):
        stage.wait(5 * MILLISECOND)
        for to, pull in stage.take(Pull):
            asked.add(to)
            stage.give(to, ReadFailed(pull.request, ReadError.BEHIND, 1, dead, ""))
    assert dead in asked, "it may have returned"


def test_a_subscription_whose_records_were_trimmed_asks_for_no_more() -> None:
    """The application does not fetch the batch in front of the trimmed records for a while."""
    stage = Stage()
    subscription = stage.ask(calls.Subscribe(1))
    call = stage.call(calls.Next(subscription))
    for gsn in (1, 2):
        replica, pull = stage.one(Pull)
        stage.give(replica, Pulled(pull.request, gsn, gsn + 1, [LogRecord(gsn, 0, 1, bytes(8))]))
    assert stage.answers[call].end == 2
    replica, pull = stage.one(Pull)
    stage.give(replica, ReadFailed(pull.request, ReadError.TRIMMED, 9, replica))
    assert stage.take(Pull) == []
    trimmed = stage.ask(calls.Next(subscription))
    assert (type(trimmed), trimmed.oldest) == (Trimmed, 9)
    assert stage.take(Pull) == []


def test_records_are_read_if_those_damaged_on_one_replica_are_sound_on_another() -> None:
    """Each damage made the whole batch unreadable, so no replica seemed to have its records."""
    stage = Stage()
    subscription = stage.ask(calls.Subscribe(1))
    damaged, found = dict(zip(REPLICAS, ({1, 2}, {2, 3}, {1, 3}), strict=True)), []
    call = stage.call(calls.Next(subscription))
    for _ in range(40):
        for to, pull in stage.take(Pull):
            if pull.gsn in damaged[to] or pull.max_bytes > 1:
                stage.give(to, ReadFailed(pull.request, ReadError.UNREADABLE, 1, to, f"disk of {to}"))
            else:
                records = [LogRecord(pull.gsn, 0, 1, bytes(8))]
                stage.give(to, Pulled(pull.request, pull.gsn, pull.gsn + 1, records))
        if call in stage.answers:
            found += [record.gsn for record in stage.answers[call].records]
            call = stage.call(calls.Next(subscription))
        stage.wait(50 * MILLISECOND)
    assert found[:3] == [1, 2, 3]


def test_a_read_returns_to_a_replica_whose_stream_was_lost() -> None:
    """The others do not have the record. The read went back and forth between them (seed 218)."""
    stage = Stage()
    call = stage.call(calls.Read(4, 1))
    holder, _ = stage.one(ReadRequest)
    stage.lose(holder)
    for _ in range(200):
        stage.wait(5 * MILLISECOND)
        for to, request in stage.take(ReadRequest):
            if to == holder:
                stage.give(to, ReadResponse(request.request, 4, wrap(1, [(1, b"record")])))
            else:
                stage.give(to, ReadFailed(request.request, ReadError.MISSING, 1, "", ""))
    assert stage.answers[call].payload == b"record"


def test_records_behind_a_full_window_are_sent_when_the_others_are_in_the_log() -> None:
    """All were in one message, which was split from 68 MiB on. Of more than two parts a stream drops the first ones,
    and a leader orders the others without them."""
    stage = Stage()
    records = [(1, bytes([number]) * (3 << 20)) for number in range(5)]
    append = stage.call(calls.Append(records))
    sent: list[tuple[int, bytes]] = []
    while found := stage.take(AppendRequest):
        ((leader, request),) = found
        assert (request.sequence, request.settled, len(request.records)) == (len(sent) + 1, 1, min(2, 5 - len(sent)))
        sent += request.records
        stage.acknowledge(leader, request, 10 * request.sequence)
        stage.acknowledge(leader, request, 10 * request.sequence)
        assert (append in stage.answers) == (len(sent) == 5)
    assert sent == records
    assert stage.answers[append] == calls.AppendResult([10, 11, 30, 31, 50], [1] * 5)
    _, next_ = stage.append()
    assert (next_.sequence, next_.settled) == (6, 6)


def test_an_append_that_expires_is_compared_with_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 that expired together took a client seconds. Half of them have room in its buffer, one is sent."""
    compared = comparisons_of("PendingAppend", append_client, monkeypatch)
    stage = Stage(window_bytes=1, buffer_bytes=100 * 33)
    for number in range(200):
        stage.call(calls.Append([(1, b"x")], deadline=stage.now + MILLISECOND - number))
    stage.wait(2 * MILLISECOND)
    assert len(stage.answers) == 200
    assert len(compared) < 10 * 200
