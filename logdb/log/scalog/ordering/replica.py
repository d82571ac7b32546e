"""A replica of the ordering layer: Paxos chooses commands, the state machine applies them, a leader collects reports.

Any replica answers what its state can (`UpdateRequest`, `ViewRequest`, a change that was carried out). What needs the
leader is forwarded to it (reports, tallies, registrations, suspicions), or the asker is told who leads
(`ChangeRequest`, `TailRequest`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from logdb.cores.effects import Address, Effect, Event, Journal, Received, Send, TimerFired
from logdb.log import paxos
from logdb.log.scalog.messages import (
    CaughtUp,
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Recovered,
    Register,
    RegisterAggregator,
    RegistrationReply,
    Report,
    ReportRequest,
    ShardTally,
    Suspect,
    SuspectAggregator,
    TailRequest,
    TailResponse,
    Tally,
    Unreachable,
    UpdateRequest,
    Updates,
    ViewRequest,
    ViewResponse,
)
from logdb.log.scalog.ordering.commands import ChangeCommand, ServerJoined, decode
from logdb.log.scalog.ordering.leader import Leader, OrderingConfig, pass_on
from logdb.log.scalog.ordering.state import OrderingState

__all__ = ["OrderingConfig", "OrderingReplica"]


class OrderingReplica:
    """The core of one replica. `journals`: "paxos", unless it is started for the first time.

    `state` is what has been applied, up to `slot`; `leader` is there while this replica leads.
    """

    def __init__(self, config: OrderingConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.state = OrderingState()
        self.slot = 0
        self.leader: Leader | None = None
        self.paxos = paxos.Replica(config.address, config.replicas, journals.get("paxos"), rng, config.paxos)
        self._out: list[Effect] = []
        self._told_slot = self._snapshot_bytes = 0
        self._changing: dict[int, dict[Address, None]] = {}
        self._tails: dict[tuple[Address, int], None] = {}
        self._confirming: dict[tuple[Address, int], None] = {}
        self._token = 0

    def start(self, now: int) -> list[Effect]:
        """What to do when the node starts."""
        self._absorb(self.paxos.start(now), now)
        return self._taken(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        if isinstance(event, Received) and (answer := _ANSWER.get(type(event.message))) is not None:
            if event.sender in self.config.replicas or self._believes(event.message, event.sender):
                answer(self, event.message, event.sender, now)
        elif isinstance(event, TimerFired) and not event.name.startswith(paxos.TIMERS):
            if self.leader is not None:
                self.leader.timer(event.name, now)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._taken(now)

    def check_invariants(self) -> None:
        """SCA-4, 5, 6, 12, 14, and Paxos's own. Raises AssertionError."""
        self.state.check()
        self.paxos.check_invariants()
        assert (self.leader is not None) == self.paxos.is_leader, "a leader that Paxos does not know, or the reverse"
        assert self.slot == self.paxos.chosen, "a chosen command was not applied"

    # ---- Paxos

    def _taken(self, now: int) -> list[Effect]:
        """Propose what is to be proposed, tell what is to be told."""
        while self.leader is not None and (value := self.leader.next_proposal(now)) is not None:
            self._absorb(self.paxos.propose(value, now), now)
        if self._tails and not self._confirming:
            self._confirm(now)
        if self.slot != self._told_slot:
            self._told_slot = self.slot
            if self.leader is not None:
                self.leader.tell(now)
            self._compact(now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _compact(self, now: int) -> None:
        """Save the state when that lets many commands go."""
        if self.paxos.uncompacted_bytes > max(self.config.snapshot_bytes, 8 * self._snapshot_bytes):
            snapshot = self.state.to_bytes()
            self._snapshot_bytes = len(snapshot)
            self._absorb(self.paxos.compact(self.slot, snapshot, now), now)

    def _absorb(self, outcomes: list[paxos.Outcome], now: int) -> None:
        for outcome in outcomes:
            match outcome:
                case paxos.Chosen(slot, value):
                    self._chosen(slot, value)
                case paxos.Restore(slot, snapshot):
                    self.state, self.slot = OrderingState.from_bytes(snapshot), slot
                    self._snapshot_bytes = len(snapshot)
                case paxos.Confirmed():
                    self._confirmed()
                case paxos.Elected():
                    self.leader = Leader(self.config, self.state, self._out, now)
                    self.leader.start(now)
                case paxos.Deposed():
                    self._deposed()
                case _:
                    self._out.append(outcome)

    def _chosen(self, slot: int, value: bytes) -> None:
        assert slot == self.slot + 1, f"slot {slot} was chosen after {self.slot}"
        applied = self.state.apply(decode(value))
        self.slot = slot
        if applied.answer is not None:
            assert applied.answer.id in self.state.changes, "a change that is not remembered could be carried out twice"
            for asker in self._changing.pop(applied.answer.id, ()):
                self._out.append(Send(asker, applied.answer))
        if self.leader is not None:
            self.leader.applied(applied)
            self.leader.chosen(value)

    def _deposed(self) -> None:
        assert self.leader is not None
        self.leader.stop()
        self.leader = None
        for id, askers in self._changing.items():
            for asker in askers:
                self._refuse(asker, id)
        for asker, request in self._tails | self._confirming:
            self._refuse(asker, request)
        self._changing.clear()
        self._tails.clear()
        self._confirming.clear()

    def _refuse(self, asker: Address, request: int) -> None:
        leader = self.paxos.leader
        self._out.append(Send(asker, NotLeader(request, "" if leader == self.config.address else leader)))

    # ---- for the leader, from servers and aggregators

    def _forward(self, message: Any, sender: Address) -> None:
        leader = self.paxos.leader
        if leader not in ("", self.config.address) and sender not in self.config.replicas:
            self._out.append(Send(leader, message))

    def _believes(self, message: Any, sender: Address) -> bool:
        """Whether this sender, which is no replica that forwards it, has something to say about what it tells of."""
        kind = type(message)
        if kind is Report or kind is CaughtUp:
            shard = self.state.shards.get(message.shard)
            member = shard.member(message.server) if shard is not None else None
            return member is not None and member.address == sender
        if kind is Tally:
            return sender == message.address and sender in self.state.tree.parents
        if kind is Suspect or kind is Recovered:
            shard = self.state.shards.get(message.shard)
            return shard is not None and sender == shard.reports_to
        if kind is Register or kind is RegisterAggregator or kind is UpdateRequest:
            return bool(sender == message.address)
        return True

    def _report(self, report: Report, sender: Address, now: int) -> None:
        shard = self.state.shards.get(report.shard)
        if self.leader is not None:
            self.leader.alive(report.server)
        if shard is not None and report.epoch < shard.epoch:
            member = shard.member(report.server)
            if member is not None:  # who has left asks, and is told so
                update = shard.update(report.placed, self.state.last, self.state.oldest)
                self._out.append(Send(member.address, Updates(self.state.version, (update,))))
        elif self.leader is None:
            self._forward(report, sender)
        elif shard is not None and report.epoch == shard.epoch:
            self.leader.report(shard, report, now)

    def _tally(self, tally: Tally, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(tally, sender)
        elif sender in self.config.replicas:
            self.leader.tally(tally)
        else:
            self.leader.tally(tally._replace(shards=self._below(sender, tally)))

    def _below(self, aggregator: Address, tally: Tally) -> tuple[ShardTally, ...]:
        """What an aggregator can know: that of the shards that report to it, or to one below it."""
        shards, above = self.state.shards, self.state.tree.above
        reported = [(one, shards[one.shard].reports_to) for one in tally.shards if one.shard in shards]
        return tuple([one for one, to in reported if to == aggregator or aggregator in above(to)])

    def _verdict(self, verdict: Suspect | Recovered, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(verdict, sender)
        else:
            self.leader.hear(verdict, now)

    def _ask_report(self, question: ReportRequest, sender: Address, now: int) -> None:
        if sender in self.config.replicas:
            pass_on(question, self.state, self._out)

    def _unreachable(self, hint: Unreachable, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(hint, sender)
        else:
            self.leader.hint(hint.server, now)

    def _caught_up(self, said: CaughtUp, sender: Address, now: int) -> None:
        shard = self.state.shards.get(said.shard)
        if self.leader is None:
            self._forward(said, sender)
        elif shard is not None and said.server in shard.joining:
            self.leader.want(("joined", *said), ServerJoined(*said))

    def _suspect_aggregator(self, suspicion: SuspectAggregator, sender: Address, now: int) -> None:
        if sender not in self.config.replicas and not self._is_below(sender, suspicion.address):
            return
        if self.leader is None:
            self._forward(suspicion, sender)
        else:
            self.leader.drop_aggregator(suspicion.address)

    def _is_below(self, child: Address, aggregator: Address) -> bool:
        """Only who reports to an aggregator can suspect it; so a suspicion that comes late does nothing."""
        if self.state.tree.parents.get(child) == aggregator:
            return True
        shards = (shard for shard in self.state.shards.values() if shard.reports_to == aggregator)
        return any(member.address == child for shard in shards for member in shard.holders)

    def _register_aggregator(self, message: RegisterAggregator, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(message, sender)
        elif message.address not in self.state.tree.parents:
            self.leader.want(message, message)

    def _register(self, message: Register, sender: Address, now: int) -> None:
        state = self.state
        known = state.servers.get(state.tokens.get(message.token, 0))
        if known is None or known.address != message.address:
            if self.leader is not None and message.token not in state.gone:
                self.leader.want(message, message)
        elif not known.shard and self.leader is not None:
            self.leader.heard_spare(known.id, now)
        if self.leader is None and (known is None or not known.shard or known.address != message.address):
            self._forward(message, sender)

    # ---- questions

    def _ask(self, ask: UpdateRequest, sender: Address, now: int) -> None:
        state = self.state
        server = state.servers.get(state.tokens.get(ask.token, 0))
        self._register(Register(ask.token, ask.address), sender, now)
        if server is None:
            answer = RegistrationReply(ask.token, 0, ask.token in state.gone, None)
        elif not server.shard:
            answer = RegistrationReply(ask.token, server.id, False, None)
        else:
            update = state.shards[server.shard].update(ask.after, state.last, state.oldest)
            answer = RegistrationReply(ask.token, server.id, False, update)
        self._out.append(Send(ask.address, answer))

    def _ask_view(self, ask: ViewRequest, sender: Address, now: int) -> None:
        self._out.append(Send(sender, ViewResponse(ask.request, self.state.view())))

    def _ask_tail(self, ask: TailRequest, sender: Address, now: int) -> None:
        if self.leader is None:
            self._refuse(sender, ask.request)
        else:
            self._tails[sender, ask.request] = None

    def _confirm(self, now: int) -> None:
        """Make sure, once for all who have asked since the last time, that this replica still leads."""
        self._confirming, self._tails = self._tails, {}
        self._token += 1
        self._absorb(self.paxos.read_index(self._token, now), now)

    def _confirmed(self) -> None:
        assert self.leader is not None
        state, leader = self.state, self.leader
        for asker, request in self._confirming:
            unreachable = tuple(leader.unreachable)
            tail = TailResponse(
                request, state.last, state.oldest, state.version, state.cut, unreachable, leader.interval_ns
            )
            self._out.append(Send(asker, tail))
        self._confirming.clear()

    def _change(self, change: ChangeRequest, sender: Address, now: int) -> None:
        done = self.state.changes.get(change.id)
        if done is not None:
            self._out.append(Send(sender, ChangeResponse(change.id, *done)))
        elif self.leader is None:
            self._refuse(sender, change.id)
        else:
            self._changing.setdefault(change.id, {})[sender] = None
            command = ChangeCommand(change.id, change.change, self.leader.live_spares(now))
            self.leader.want(("change", change.id), command)


_ANSWER: dict[type, Any] = {
    Report: OrderingReplica._report,
    Tally: OrderingReplica._tally,
    Suspect: OrderingReplica._verdict,
    Unreachable: OrderingReplica._unreachable,
    Recovered: OrderingReplica._verdict,
    CaughtUp: OrderingReplica._caught_up,
    SuspectAggregator: OrderingReplica._suspect_aggregator,
    RegisterAggregator: OrderingReplica._register_aggregator,
    Register: OrderingReplica._register,
    UpdateRequest: OrderingReplica._ask,
    ReportRequest: OrderingReplica._ask_report,
    ViewRequest: OrderingReplica._ask_view,
    TailRequest: OrderingReplica._ask_tail,
    ChangeRequest: OrderingReplica._change,
}
