"""A replica: acknowledgements, retries, reads, restarts, and the use of a snapshot."""

from __future__ import annotations

import random
from typing import Any

from logdb.cores.effects import Create, Journal, Persist, Persisted, Received, Send, SetTimer, TimerFired
from logdb.log.contract import LogRecord
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.engine import REPLICA
from logdb.log.multipaxos.messages import (
    AppendRefused,
    AppendRequest,
    AppendResponse,
    DurableResponse,
    Pull,
    Pulled,
    ReadError,
    ReadFailed,
    ReadRequest,
    TrimRequest,
    TrimResponse,
)
from logdb.log.multipaxos.replica import SAVE, MultiPaxosReplica
from logdb.log.paxos import Config
from logdb.log.paxos.messages import Learn, MemberEnvelope
from logdb.log.paxos.replica import ELECTION

CLIENT = "client-1"


class Stage:
    """A replica on a disk without delay. `outbox`: messages to other replicas; `timers`: by name, when they fire.
    `is_held`: the disk syncs nothing until `release`."""

    def __init__(self, address: str = "r:1", replicas: tuple[str, ...] = ("r:1",), **config: Any) -> None:
        self.config = ReplicaConfig(address, replicas, **config)
        self.journals: dict[str, Journal] = {}
        self.now = 1
        self.sent: list[Any] = []
        self.outbox: list[tuple[str, Any]] = []
        self.timers: dict[str, int] = {}
        self.is_held = False
        self.held: list[Persisted] = []
        self.begin()

    def begin(self) -> None:
        self.core = MultiPaxosReplica(self.config, self.journals, random.Random(1))
        self.perform(self.core.start(self.now))

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.to in self.config.replicas:
                self.outbox.append((effect.to, effect.message))
            elif isinstance(effect, Send):
                self.sent.append(effect.message)
            elif isinstance(effect, Create):
                self.journals[effect.journal] = Journal(effect.first, effect.first, [])
            elif isinstance(effect, Persist):
                found = self.journals.setdefault(effect.journal, Journal(1, 1, []))
                records = [LogRecord(n, 0, tag, payload) for n, (tag, payload) in enumerate(effect.records, found.end)]
                end = found.end + len(records)
                self.journals[effect.journal] = Journal(found.first, end, [*found.records, *records])
                self.held.append(Persisted(effect.journal, end))
                if not self.is_held:
                    self.release()
            elif isinstance(effect, SetTimer) and effect.name == "multipaxos.flush":
                self.handle(TimerFired(effect.name))
            elif isinstance(effect, SetTimer):
                self.timers[effect.name] = effect.at

    def release(self) -> None:
        """Sync what is written."""
        self.is_held = False
        while self.held:
            self.handle(self.held.pop(0))

    def handle(self, event: Any) -> None:
        self.now += 1
        self.perform(self.core.handle(event, self.now))
        self.core.check_invariants()

    def ask(self, message: Any) -> list[Any]:
        """Deliver a message of a client. Returns the answers."""
        self.sent.clear()
        self.handle(Received(CLIENT, message))
        return self.sent.copy()


class Group:
    """Three replicas, and a network that loses messages of the types in `lost`."""

    def __init__(self, **config: Any) -> None:
        addresses = ("r:1", "r:2", "r:3")
        self.stages = {address: Stage(address, addresses, **config) for address in addresses}
        self.lost: set[type] = set()
        self.delivered: list[Any] = []
        while not any(stage.core.leader for stage in self.stages.values()):
            self.fire()
        self.leader = next(stage for stage in self.stages.values() if stage.core.leader)

    def fire(self) -> None:
        """Let the timer that is due first fire, and deliver the messages that follow."""
        stage, name = min(((s, n) for s in self.stages.values() for n in s.timers), key=lambda it: it[0].timers[it[1]])
        at = stage.timers.pop(name)
        for one in self.stages.values():
            one.now = max(one.now, at)
        stage.handle(TimerFired(name))
        self.deliver()

    def deliver(self) -> None:
        while messages := [(stage, *stage.outbox.pop(0)) for stage in self.stages.values() if stage.outbox]:
            for sender, to, message in messages:
                if type(message) not in self.lost:
                    self.delivered.append(message.message if isinstance(message, MemberEnvelope) else message)
                    self.stages[to].handle(Received(sender.config.address, message))

    @property
    def follower(self) -> Stage:
        """A replica that does not lead."""
        return next(stage for stage in self.stages.values() if stage is not self.leader)

    def append(self, sequence: int) -> list[Any]:
        self.leader.ask(AppendRequest(7, sequence, sequence, [(1, bytes(1000))]))
        self.deliver()
        return self.leader.sent


def test_an_append_is_acknowledged_once_it_is_durable_and_a_retry_with_the_same_gsns() -> None:
    stage = Stage()
    request = AppendRequest(7, 1, 1, [(1, b"a"), (2, b"b")])
    assert stage.ask(request) == [AppendResponse(7, ((1, 2, 1),))]
    assert stage.ask(request) == [AppendResponse(7, ((1, 2, 1),))]
    stage.begin()
    assert stage.ask(request) == [AppendResponse(7, ((1, 2, 1),))]
    (pulled,) = stage.ask(Pull(9, 1, frozenset({2}), 1000))
    assert isinstance(pulled, Pulled)
    assert [(record.gsn, record.payload[8:]) for record in pulled.records] == [(2, b"b")]
    assert pulled.end == 3


def test_a_leader_admits_no_records_beyond_what_its_disk_may_lag() -> None:
    """The followers choose commands without the leader's disk."""
    group = Group(paxos=Config(buffer_bytes=5_000))
    group.leader.is_held = True
    admitted = 0
    while not any(isinstance(answer, AppendRefused) for answer in group.append(admitted + 1)):
        admitted += 1
        assert admitted < 10
    assert admitted == 5
    assert group.append(admitted) == [AppendResponse(7, ((admitted, 1, admitted),))]
    group.leader.release()
    assert AppendResponse(7, ((admitted + 1, 1, admitted + 1),)) in group.append(admitted + 1)


def test_a_large_append_takes_consecutive_gsns() -> None:
    stage = Stage(fragment_bytes=10)
    assert stage.ask(AppendRequest(7, 1, 1, [(1, b"x" * 50)] * 3)) == [AppendResponse(7, ((1, 3, 1),))]


def test_a_read_waits_for_its_record() -> None:
    stage = Stage()
    assert stage.ask(ReadRequest(5, 2)) == []
    assert stage.ask(AppendRequest(7, 1, 1, [(1, b"a")])) == [AppendResponse(7, ((1, 1, 1),))]
    _, read = stage.ask(AppendRequest(7, 2, 2, [(1, b"b")]))
    assert (read.request, read.gsn) == (5, 2)


def test_a_follower_answers_a_waiting_pull_with_the_next_message_of_its_leader() -> None:
    group = Group()
    group.append(1)
    reader = group.follower
    assert reader.ask(Pull(5, 2, None, 1000)) == [ReadFailed(5, ReadError.BEHIND, 1, group.leader.config.address)]
    assert reader.ask(Pull(6, 2, None, 1000, allow_follower=True)) == []
    group.append(2)
    assert reader.sent == []
    group.append(3)
    (pulled,) = reader.sent
    assert (pulled.request, pulled.first, pulled.end) == (6, 2, 3)
    assert not any(isinstance(message, Learn) for message in group.delivered)


def test_a_leader_informs_the_follower_that_has_an_urgent_pull() -> None:
    group = Group()
    group.append(1)
    assert group.follower.ask(Pull(6, 2, None, 1000, allow_follower=True, is_urgent=True)) == []
    group.append(2)
    (pulled,) = group.follower.sent
    assert (pulled.request, pulled.first, pulled.end) == (6, 2, 3)
    assert sum(isinstance(message, Learn) for message in group.delivered) == 1


def test_a_pull_becomes_urgent_after_the_leader_has_counted_the_vote() -> None:
    group = Group()
    group.append(1)
    group.append(2)
    assert group.follower.ask(Pull(6, 2, None, 1000, allow_follower=True)) == []
    assert group.follower.ask(Pull(6, 2, None, 1000, allow_follower=True, is_urgent=True)) == []
    group.deliver()
    (pulled,) = group.follower.sent
    assert (pulled.request, pulled.first, pulled.end) == (6, 2, 3)


def test_a_follower_without_a_leader_refuses_waiting_pulls() -> None:
    group = Group()
    group.append(1)
    reader = group.follower
    assert reader.ask(Pull(6, 2, None, 1000, allow_follower=True)) == []
    reader.now += 2 * Config().election_ns
    reader.handle(TimerFired(ELECTION))
    assert reader.sent == [ReadFailed(6, ReadError.BEHIND, 1, "")]


def test_trimmed_records_stay_trimmed_after_a_restart() -> None:
    stage = Stage()
    stage.ask(AppendRequest(7, 1, 1, [(1, b"a"), (1, b"b")]))
    assert stage.ask(TrimRequest(3, 4)) == [TrimResponse(3, 1, "cannot trim to 4: the newest record is 2")]
    assert stage.ask(TrimRequest(4, 2)) == [TrimResponse(4, 2, "")]
    stage.begin()
    assert stage.ask(ReadRequest(5, 1)) == [ReadFailed(5, ReadError.TRIMMED, 2, "r:1")]


def test_metrics_say_whether_a_replica_is_complete() -> None:
    stage = Stage()
    assert {metric.name: metric.value for metric in REPLICA.metrics(stage.core)}["logdb_joining"] == 0
    stage.core.copier.is_complete = False
    assert {metric.name: metric.value for metric in REPLICA.metrics(stage.core)}["logdb_joining"] == 1


def test_a_snapshot_is_used_only_when_most_replicas_have_its_records() -> None:
    """Otherwise it could take the place of the commands in the only replica that has the records (MPX-9)."""
    group = Group(snapshot_bytes=4000, paxos=Config(retain_bytes=0))
    paxos = group.leader.core.paxos
    group.lost = {DurableResponse}
    for sequence in range(1, 21):
        assert group.append(sequence) == [AppendResponse(7, ((sequence, 1, sequence),))]
    assert paxos.uncompacted_bytes > 20_000
    group.lost = set()
    while SAVE in group.leader.timers:
        group.fire()
    assert group.append(21) == [AppendResponse(7, ((21, 1, 21),))]
    assert paxos.uncompacted_bytes < 4000
