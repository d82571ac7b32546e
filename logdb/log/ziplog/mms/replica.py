"""A replica of the MMS: Paxos chooses commands, the state machine applies them, the leader acts on reports."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from logdb.cores.effects import (
    Address,
    Effect,
    Event,
    Journal,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
)
from logdb.log import paxos
from logdb.log.record_clock import is_beyond_any_pause
from logdb.log.ziplog.messages import (
    ChangeRequest,
    ChangeResponse,
    NotLeader,
    Report,
    TailRequest,
    TailResponse,
    ViewRequest,
    ViewResponse,
)
from logdb.log.ziplog.mms import commands as c
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.leader import Leader
from logdb.log.ziplog.mms.state import MembershipState, Result

TICK: Final = "mms.tick"
EPOCH: Final = "mms.epoch"


class MmsReplica:
    """The core of one replica. `state`: what the commands up to `slot` have made; `leader`: there while it leads."""

    def __init__(self, config: MmsConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config = config
        self.state = MembershipState(config.epoch_ns)
        self.slot = 0
        self.leader: Leader | None = None
        self._out: list[Effect] = []
        self.paxos = paxos.Replica(config.address, config.replicas, journals.get(paxos.JOURNAL), rng, config.paxos)
        self._questions: dict[tuple[Address, int], TailRequest | ViewRequest] = {}
        self._confirming: dict[tuple[Address, int], TailRequest | ViewRequest] = {}
        self._token = 0
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Report: self._report,
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
                self.leader.on_timer(event.name == EPOCH, self.state, now)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._effects(now)

    def check_invariants(self) -> None:
        """ZIP-n as far as one replica sees them, and Paxos's own. Raises AssertionError."""
        self.paxos.check_invariants()
        self.state.check()
        assert self.slot == self.paxos.chosen, "a chosen command was not applied"
        assert (self.leader is not None) == self.paxos.is_leader, "a leader that Paxos does not know, or the reverse"

    # ---- after each event

    def _effects(self, now: int) -> list[Effect]:
        while self.leader is not None and self.leader.commands:
            command = self.leader.commands.pop(0)
            if is_beyond_any_pause(self.state.origin, now):
                self._out.append(Stop("its clock is more than ten years ahead of the log: set it right", wipe=False))
                break
            self._absorb(self.paxos.propose(c.encode(command), now), now)
        if self.leader is not None:
            if self._questions and not self._confirming:
                self._confirming, self._questions = self._questions, {}
                self._token += 1
                self._absorb(self.paxos.read_index(self._token, now), now)
            self._set_timers(self.leader, now)
        if self.paxos.uncompacted_bytes > self.config.snapshot_bytes:
            self._absorb(self.paxos.compact(self.slot, self.state.to_bytes(), now), now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _set_timers(self, leader: Leader, now: int) -> None:
        if not leader.is_ticking:
            leader.is_ticking = True
            self._out.append(SetTimer(TICK, now + self.config.heartbeat_ns))
        if leader.epoch_at is not None and leader.epoch_at != leader.epoch_timer_at:
            leader.epoch_timer_at = leader.epoch_at
            self._out.append(SetTimer(EPOCH, leader.epoch_at))

    def _absorb(self, outcomes: list[paxos.Outcome], now: int) -> None:
        for outcome in outcomes:
            match outcome:
                case paxos.Chosen(slot, value):
                    assert slot == self.slot + 1, f"slot {slot} was chosen after {self.slot}"
                    self.slot = slot
                    result = self.state.apply(c.decode(value))
                    if self.leader is not None:
                        self.leader.on_applied(self.state, now)
                        if result is not None:
                            self._answer_change(self.leader, result)
                case paxos.Restore(slot, snapshot):
                    self.state, self.slot = MembershipState.from_bytes(snapshot), slot
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
                last = max([state.left, *(self.leader.stable.values() if self.leader is not None else ())])
                self._out.append(Send(sender, TailResponse(number, last, state.oldest, state.cut, state.interval_ns)))
        self._confirming.clear()
