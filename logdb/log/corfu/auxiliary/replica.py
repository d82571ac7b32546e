"""A replica of the auxiliary: Paxos chooses commands, the state machine applies them, the leader acts on reports."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from logdb.cores.effects import Address, Effect, Event, Journal, Received, Send, SetTimer, TimerFired
from logdb.log import paxos
from logdb.log.corfu.auxiliary import commands as c
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.leader import Leader
from logdb.log.corfu.auxiliary.state import ProjectionState, Result
from logdb.log.corfu.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Report,
    Sealed,
    SequencerReport,
    TailRequest,
    TailResponse,
    ViewRequest,
    ViewResponse,
)

TICK: Final = "auxiliary.tick"


class AuxiliaryReplica:
    """The core of one replica. `state`: after the commands up to `slot`; `leader`: None while it does not lead."""

    def __init__(self, config: AuxiliaryConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.state = ProjectionState()
        self.slot = 0
        self.leader: Leader | None = None
        self._out: list[Effect] = []
        self.paxos = paxos.Replica(config.address, config.replicas, journals.get(paxos.JOURNAL), rng, config.paxos)
        self._questions: dict[tuple[Address, int], TailRequest | ViewRequest] = {}
        self._confirming: dict[tuple[Address, int], TailRequest | ViewRequest] = {}
        self._token = 0
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Report: self._report,
            SequencerReport: self._sequencer_report,
            Sealed: self._sealed,
            ChangeRequest: self._change,
            TailRequest: self._question,
            ViewRequest: self._question,
        }

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        self._absorb(self.paxos.start(now), now)
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        kind = type(event)
        if kind is Received and (do := self._do.get(type(event.message))) is not None:  # type: ignore[union-attr]
            do(event.message, event.sender, now)  # type: ignore[union-attr]
        elif isinstance(event, TimerFired) and not event.name.startswith(paxos.TIMERS):
            if self.leader is not None:
                self.leader.on_timer(self.state, now)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._effects(now)

    def check_invariants(self) -> None:
        """Check the invariants COR-n and PAX-n of one replica. Raises AssertionError."""
        self.paxos.check_invariants()
        self.state.check()
        assert self.slot == self.paxos.chosen, "a chosen command was not applied"
        assert (self.leader is not None) == self.paxos.is_leader, "Paxos and the replica disagree about the leader"

    # ---- after each event

    def _effects(self, now: int) -> list[Effect]:
        while self.leader is not None and self.leader.commands:
            command = self.leader.commands.pop(0)
            self._absorb(self.paxos.propose(c.encode(command), now), now)
        if self.leader is not None:
            if self._questions and not self._confirming:
                self._confirming, self._questions = self._questions, {}
                self._token += 1
                self._absorb(self.paxos.read_index(self._token, now), now)
            if self.leader is not None and not self.leader.is_ticking:
                self.leader.is_ticking = True
                self._out.append(SetTimer(TICK, now + self.config.heartbeat_ns))
        if self.paxos.uncompacted_bytes > self.config.snapshot_bytes:
            self._absorb(self.paxos.compact(self.slot, self.state.to_bytes(), now), now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _absorb(self, outcomes: list[paxos.Outcome], now: int) -> None:
        for outcome in outcomes:
            match outcome:
                case paxos.Chosen(slot, value):
                    assert slot == self.slot + 1, f"slot {slot} was chosen after {self.slot}"
                    self.slot = slot
                    command = c.decode(value)
                    result = self.state.apply(command)
                    if self.leader is not None:
                        self.leader.on_applied(command, self.state, now)
                        if result is not None:
                            self._answer_change(self.leader, result)
                case paxos.Restore(slot, snapshot):
                    self.state, self.slot = ProjectionState.from_bytes(snapshot), slot
                case paxos.Confirmed():
                    self._answer_confirmed()
                case paxos.Elected():
                    self.leader = Leader(self.config, self._out, now)
                case paxos.Deposed():
                    self._deposed()
                case _:
                    self._out.append(outcome)

    def _deposed(self) -> None:
        assert self.leader is not None
        waiting = [*(self._questions | self._confirming), *((to, number) for number, to in self.leader.waiting.items())]
        self.leader = None
        for sender, request in waiting:
            self._out.append(Send(sender, NotLeader(request, self._other_leader())))
        self._questions.clear()
        self._confirming.clear()

    def _other_leader(self) -> Address:
        leader = self.paxos.leader
        return "" if leader == self.config.address else leader

    # ---- messages

    def _report(self, report: Report, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_report(report, sender, self.state, now)

    def _sequencer_report(self, report: SequencerReport, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_sequencer(report, sender, self.state, now)

    def _sealed(self, answer: Sealed, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_sealed(answer, self.state, now)

    def _change(self, request: ChangeRequest, sender: Address, now: int) -> None:
        if self.leader is None:
            self._out.append(Send(sender, NotLeader(request.request, self._other_leader())))
            return
        done = self.state.results.get(request.request)
        self.leader.waiting[request.request] = sender
        if done is not None:
            self._answer_change(self.leader, done)
        else:
            self.leader.on_change(request, self.state, now)

    def _answer_change(self, leader: Leader, result: Result) -> None:
        sender = leader.waiting.pop(result.request, None)
        if sender is not None:
            self._out.append(Send(sender, ChangeResponse(*result)))

    def _question(self, request: TailRequest | ViewRequest, sender: Address, now: int) -> None:
        if self.leader is not None:
            self._questions[sender, request.request] = request
        else:
            self._out.append(Send(sender, NotLeader(request.request, self._other_leader())))

    def _answer_confirmed(self) -> None:
        state = self.state
        for (sender, number), request in self._confirming.items():
            if isinstance(request, ViewRequest):
                self._out.append(Send(sender, ViewResponse(number, state.view())))
            else:
                last = max(state.last, self.leader.last() if self.leader is not None else 0)
                self._out.append(Send(sender, TailResponse(number, last, state.oldest, state.epoch)))
        self._confirming.clear()
