"""The cost of an epoch for the leader of the MMS, by the number of shards: the core, and the bytes of its updates.

Every member reports the epoch that it has entered, with records in it; the leader announces the next one to all.
"""

from __future__ import annotations

import random
import time
from typing import Any, Final, NamedTuple

from logdb.cores.effects import MILLISECOND, Address, Effect, Persist, Persisted, Received, Send, SetTimer, TimerFired
from logdb.log.ziplog.messages import ChangeRequest, Report, Update
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.replica import EPOCH, MmsReplica
from logdb.wire.codec import encode

LEADER: Final = "o1"
MEMBERS: Final = 2


class EpochCost(NamedTuple):
    """CPU milliseconds of the leader for an epoch: of its core, and of encoding its messages, which have `bytes`."""

    shards: int
    core_ms: float
    encoding_ms: float
    bytes: int

    @property
    def total_ms(self) -> float:
        """Of both."""
        return self.core_ms + self.encoding_ms


class Mms:
    """A leader alone, with shards whose members are synced."""

    def __init__(self, shards: int) -> None:
        config = MmsConfig(LEADER, (LEADER,), members=MEMBERS, epoch_ns=10 * MILLISECOND)
        self.core: Any = MmsReplica(config, {}, random.Random(1))
        self.now = 1
        self.updates: list[Update] = []
        self._perform(self.core.start(self.now))
        servers = shards * MEMBERS
        for nonce in range(1, servers + 1):
            for change in (0, self.core.state.change + 1):  # it is new, and answers the leader with the number it got
                self.report(Report(0, nonce, 0, 0, False, False, 0, 0, 0, change, 0, 0, ()), f"s{nonce}")
        for shard in range(shards):
            numbers = tuple(range(shard * MEMBERS + 1, shard * MEMBERS + MEMBERS + 1))
            self._do(Received("client", ChangeRequest(servers + shard + 1, "AddShard", numbers)))
        for _ in range(2):  # they are synced, and have entered the epoch of all
            self.report_all(0, servers)

    def report_all(self, first: int, count: int) -> None:
        """The servers from `first` on report that they are synced, and in the newest epoch."""
        state = self.core.state
        for server in list(state.servers.values())[first : first + count]:
            shard = state.shards.get(server.shard)
            records = 100 if shard is not None and shard.members[0].server == server.server else 0
            view, shard_number = (shard.view, shard.shard) if shard is not None else (0, 0)
            report = Report(
                server.server,
                server.nonce,
                shard_number,
                view,
                False,
                shard is not None,
                0,
                state.epoch.base,
                state.epoch.version,
                state.change,
                records,
                0,
                (),
            )
            self.report(report, server.address)

    def report(self, report: Report, sender: Address) -> None:
        """A server reports."""
        self._do(Received(sender, report))

    def next_epoch(self) -> None:
        """The timer of the next epoch fires, one interval later."""
        self.now += 10 * MILLISECOND
        self._do(TimerFired(EPOCH))

    def _do(self, event: Any) -> None:
        self._perform(self.core.handle(event, self.now))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(_, Update() as update):
                    self.updates.append(update)
                case Persist(journal, first, records):
                    self._do(Persisted(journal, first + len(records)))
                case SetTimer("paxos.election", at):
                    self.now = max(self.now, at)
                    self._do(TimerFired("paxos.election"))


def epoch_cost(shards: int, epochs: int = 5) -> EpochCost:
    """The cost of an epoch in which every shard had records."""
    mms = Mms(shards)
    assert len(mms.core.state.epoch.shares) == shards, "not every shard is in the set"
    core_ns = encoding_ns = sent = 0
    for _ in range(epochs):
        mms.updates.clear()
        base, begun = mms.core.state.epoch.base, time.process_time_ns()
        mms.report_all(0, shards * MEMBERS)
        mms.next_epoch()
        core_ns += time.process_time_ns() - begun
        assert mms.core.state.epoch.base > base, "no epoch began"
        begun = time.process_time_ns()
        sent += sum([len(encode(update)) for update in mms.updates])
        encoding_ns += time.process_time_ns() - begun
    return EpochCost(shards, core_ns / epochs / 1e6, encoding_ns / epochs / 1e6, sent // epochs)
