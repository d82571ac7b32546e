"""A replica of the ordering layer: Paxos chooses commands, the state machine applies them, a leader collects reports.

Every replica answers requests from its own state (`UpdateRequest`, `ViewRequest`, a change that was carried out). It
forwards messages for the leader (reports, tallies, registrations, suspicions) and answers requests that only the leader
can answer (`ChangeRequest`, `TailRequest`) with `NotLeader`.
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
from logdb.log.scalog.ordering.invariants import StateChecker
from logdb.log.scalog.ordering.leader import Leader, OrderingConfig, forward_to_member
from logdb.log.scalog.ordering.state import OrderingState

__all__ = ["OrderingConfig", "OrderingReplica"]


class OrderingReplica:
    """The core of one replica. `journals`: contains "paxos", unless the replica is started for the first time.

    `state`: the result of the commands up to `slot`. `leader`: the leader's part, while this replica leads.
    """

    def __init__(self, config: OrderingConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.state = OrderingState()
        self._checker = StateChecker()
        self.slot = 0
        self.leader: Leader | None = None
        self.paxos = paxos.Replica(config.address, config.replicas, journals.get("paxos"), rng, config.paxos)
        self._out: list[Effect] = []
        self._published_slot = self._snapshot_bytes = 0
        self._pending_changes: dict[int, dict[Address, None]] = {}
        self._tail_requests: dict[tuple[Address, int], None] = {}
        self._confirming: dict[tuple[Address, int], None] = {}
        self._token = 0

    def start(self, now: int) -> list[Effect]:
        """Start Paxos. Returns the effects."""
        self._absorb(self.paxos.start(now), now)
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Process an event. Returns the effects. Raises ProtocolViolation."""
        if isinstance(event, Received) and (handler := _HANDLERS.get(type(event.message))) is not None:
            if event.sender in self.config.replicas or self._is_authorized(event.message, event.sender):
                handler(self, event.message, event.sender, now)
        elif isinstance(event, TimerFired) and not event.name.startswith(paxos.TIMERS):
            if self.leader is not None:
                self.leader.timer(event.name, now)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._effects(now)

    def check_invariants(self) -> None:
        """SCA-4, 5, 6, 12, 14, and the invariants of Paxos. Raises AssertionError."""
        self._checker.check(self.state)
        self.paxos.check_invariants()
        assert (self.leader is not None) == self.paxos.is_leader, "Paxos and the replica disagree about the leader"
        assert self.slot == self.paxos.chosen, "a chosen command was not applied"

    # ---- Paxos

    def _effects(self, now: int) -> list[Effect]:
        """Propose pending commands, publish applied ones. Returns the collected effects."""
        while self.leader is not None and (value := self.leader.next_proposal(now)) is not None:
            self._absorb(self.paxos.propose(value, now), now)
        if self._tail_requests and not self._confirming:
            self._confirm(now)
        if self.slot != self._published_slot:
            self._published_slot = self.slot
            if self.leader is not None:
                self.leader.publish(now)
            self._compact(now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _compact(self, now: int) -> None:
        """Write a snapshot when it replaces enough commands."""
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
                case paxos.Confirmed(token) if token == self._token:
                    self._confirmed()
                case paxos.Confirmed():
                    pass  # of requests that were rejected meanwhile
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
            assert applied.answer.id in self.state.changes, "the result of a change was not stored"
            for client in self._pending_changes.pop(applied.answer.id, ()):
                self._out.append(Send(client, applied.answer))
        if self.leader is not None:
            self.leader.applied(applied)
            self.leader.chosen(value)

    def _deposed(self) -> None:
        assert self.leader is not None
        self.leader.stop()
        self.leader = None
        for id, clients in self._pending_changes.items():
            for client in clients:
                self._send_not_leader(client, id)
        self._pending_changes.clear()
        self._reject_tail_requests()

    def _send_not_leader(self, client: Address, request: int) -> None:
        leader = self.paxos.leader
        self._out.append(Send(client, NotLeader(request, "" if leader == self.config.address else leader)))

    # ---- messages of servers and aggregators for the leader

    def _forward(self, message: Any, sender: Address) -> None:
        leader = self.paxos.leader
        if leader not in ("", self.config.address) and sender not in self.config.replicas:
            self._out.append(Send(leader, message))

    def _is_authorized(self, message: Any, sender: Address) -> bool:
        """Whether this sender, which is not a replica that forwards, may send a message about its subject."""
        kind = type(message)
        if kind is Report or kind is CaughtUp:
            shard = self.state.shards.get(message.shard)
            member = shard.member(message.server) if shard is not None else None
            return member is not None and member.address == sender
        if kind is Tally:
            return sender == message.address and sender in self.state.tree.parents
        if kind is Suspect or kind is Recovered:
            shard = self.state.shards.get(message.shard)
            if shard is None:
                return False
            member = shard.member(message.server) if kind is Suspect else None
            return sender == shard.reports_to or (member is not None and member.address == sender)
        if kind is Register or kind is RegisterAggregator or kind is UpdateRequest:
            return bool(sender == message.address)
        return True

    def _report(self, report: Report, sender: Address, now: int) -> None:
        shard = self.state.shards.get(report.shard)
        if self.leader is not None:
            self.leader.on_alive(report.shard, report.server, now)
        if shard is not None and report.epoch < shard.epoch:
            member = shard.member(report.server)
            if member is not None:  # a removed server learns it from `UpdateRequest`
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
        """The tallies of shards that report to this aggregator, or to one below it."""
        shards, above = self.state.shards, self.state.tree.above
        reported = [(one, shards[one.shard].reports_to) for one in tally.shards if one.shard in shards]
        return tuple([one for one, to in reported if to == aggregator or aggregator in above(to)])

    def _verdict(self, verdict: Suspect | Recovered, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(verdict, sender)
        else:
            self.leader.on_verdict(verdict, now)

    def _report_request(self, request: ReportRequest, sender: Address, now: int) -> None:
        if sender in self.config.replicas:
            forward_to_member(request, self.state, self._out)

    def _unreachable(self, hint: Unreachable, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(hint, sender)
        else:
            self.leader.on_unreachable(hint.server, now)

    def _caught_up(self, message: CaughtUp, sender: Address, now: int) -> None:
        shard = self.state.shards.get(message.shard)
        if self.leader is None:
            self._forward(message, sender)
        elif shard is not None and message.server in shard.joining:
            self.leader.submit(("joined", *message), ServerJoined(*message))

    def _suspect_aggregator(self, suspicion: SuspectAggregator, sender: Address, now: int) -> None:
        if sender not in self.config.replicas and not self._is_below(sender, suspicion.address):
            return
        if self.leader is None:
            self._forward(suspicion, sender)
        else:
            self.leader.drop_aggregator(suspicion.address)

    def _is_below(self, child: Address, aggregator: Address) -> bool:
        """Whether `child` reports to the aggregator. Only children may suspect it; a late suspicion has no effect."""
        if self.state.tree.parents.get(child) == aggregator:
            return True
        shards = (shard for shard in self.state.shards.values() if shard.reports_to == aggregator)
        return any(member.address == child for shard in shards for member in shard.holders)

    def _register_aggregator(self, message: RegisterAggregator, sender: Address, now: int) -> None:
        if self.leader is None:
            self._forward(message, sender)
        elif message.address not in self.state.tree.parents:
            self.leader.submit(message, message)

    def _register(self, message: Register, sender: Address, now: int) -> None:
        state = self.state
        server = state.servers.by_token(message.token)
        if server is None or server.address != message.address:
            if self.leader is not None and message.token not in state.servers.removed:
                self.leader.submit(message, message)
        elif not server.shard and self.leader is not None:
            self.leader.on_spare_registered(server.id, now)
        if self.leader is None and (server is None or not server.shard or server.address != message.address):
            self._forward(message, sender)

    # ---- requests

    def _update_request(self, request: UpdateRequest, sender: Address, now: int) -> None:
        state = self.state
        server = state.servers.by_token(request.token)
        self._register(Register(request.token, request.address), sender, now)
        if server is None:
            reply = RegistrationReply(request.token, 0, request.token in state.servers.removed, None)
        elif not server.shard:
            reply = RegistrationReply(request.token, server.id, False, None)
        else:
            update = state.shards[server.shard].update(request.after, state.last, state.oldest)
            reply = RegistrationReply(request.token, server.id, False, update)
        self._out.append(Send(request.address, reply))

    def _view_request(self, request: ViewRequest, sender: Address, now: int) -> None:
        self._out.append(Send(sender, ViewResponse(request.request, self.state.view())))

    def _tail_request(self, request: TailRequest, sender: Address, now: int) -> None:
        if self.leader is not None or (request.allow_follower and self.paxos.leader not in ("", self.config.address)):
            self._tail_requests[sender, request.request] = None
        else:
            self._send_not_leader(sender, request.request)

    def _confirm(self, now: int) -> None:
        """Confirm that this replica still leads, or its leader, once for all requests since the last confirmation."""
        self._confirming, self._tail_requests = self._tail_requests, {}
        self._token += 1
        try:
            self._absorb(self.paxos.read_index(self._token, now), now)
        except paxos.NotLeader:
            self._reject_tail_requests()

    def _confirmed(self) -> None:
        state, leader = self.state, self.leader
        of_leader = (tuple(leader.unreachable), leader.interval_ns) if leader is not None else ()
        for client, request in self._confirming:
            tail = TailResponse(request, state.last, state.oldest, state.version, state.cut, *of_leader)
            self._out.append(Send(client, tail))
        self._confirming.clear()

    def _reject_tail_requests(self) -> None:
        for client, request in self._tail_requests | self._confirming:
            self._send_not_leader(client, request)
        self._tail_requests.clear()
        self._confirming.clear()

    def _change(self, change: ChangeRequest, sender: Address, now: int) -> None:
        outcome = self.state.changes.get(change.id)
        if outcome is not None:
            self._out.append(Send(sender, ChangeResponse(change.id, *outcome)))
        elif self.leader is None:
            self._send_not_leader(sender, change.id)
        else:
            self._pending_changes.setdefault(change.id, {})[sender] = None
            command = ChangeCommand(change.id, change.change, self.leader.live_spares(now))
            self.leader.submit(("change", change.id), command)


_HANDLERS: dict[type, Any] = {
    Report: OrderingReplica._report,
    Tally: OrderingReplica._tally,
    Suspect: OrderingReplica._verdict,
    Unreachable: OrderingReplica._unreachable,
    Recovered: OrderingReplica._verdict,
    CaughtUp: OrderingReplica._caught_up,
    SuspectAggregator: OrderingReplica._suspect_aggregator,
    RegisterAggregator: OrderingReplica._register_aggregator,
    Register: OrderingReplica._register,
    UpdateRequest: OrderingReplica._update_request,
    ReportRequest: OrderingReplica._report_request,
    ViewRequest: OrderingReplica._view_request,
    TailRequest: OrderingReplica._tail_request,
    ChangeRequest: OrderingReplica._change,
}
