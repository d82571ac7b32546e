"""The core that founders of engines share: Paxos chooses commands, a state machine applies them, the leader acts."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from logdb.cores.effects import Address, Effect, Event, Journal, Received, Send, SetTimer, TimerFired
from logdb.log.paxos.interface import (
    JOURNAL,
    TIMERS,
    Chosen,
    Config,
    Confirmed,
    Deposed,
    Elected,
    Outcome,
    Restore,
)
from logdb.log.paxos.replica import Replica


class FounderConfig(Protocol):
    """Part of an engine's configuration. `snapshot_bytes`: size of the commands after which the state is saved."""

    @property
    def address(self) -> Address: ...
    @property
    def replicas(self) -> tuple[Address, ...]: ...
    @property
    def heartbeat_ns(self) -> int: ...
    @property
    def snapshot_bytes(self) -> int: ...
    @property
    def paxos(self) -> Config: ...


class Commands(Protocol):
    """A module that encodes an engine's commands for the log of Paxos."""

    def encode(self, command: Any, /) -> bytes: ...
    def decode(self, data: bytes, /) -> Any: ...


class State(Protocol):
    """A deterministic state machine. `results`: of the changes that clients request, by the request's number."""

    results: dict[int, Any]

    def apply(self, command: Any) -> Any: ...
    def check(self) -> None: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> Self: ...


class Leader(Protocol):
    """The part of a founder that leads; all of its state is soft. `commands`: to be proposed. `waiting`: the clients
    whose changes are not applied yet. `is_ticking`: its timer is set."""

    commands: list[Any]
    waiting: dict[int, Address]
    is_ticking: bool

    def on_change(self, request: Any, state: Any, now: int) -> None: ...
    def on_report(self, report: Any, sender: Address, state: Any, now: int) -> None: ...


S = TypeVar("S", bound=State)
L = TypeVar("L", bound=Leader)


class Founder(ABC, Generic[S, L]):
    """The core of one replica. `state`: after the commands up to `slot`; `leader`: None while it does not lead.

    An engine derives from it, and says in `handlers` how it handles its messages. Questions are answered once a
    majority has confirmed that this replica leads, together with all others that came meanwhile.
    """

    TICK: ClassVar[str]
    COMMANDS: ClassVar[Commands]

    def __init__(
        self,
        config: FounderConfig,
        state: S,
        journals: Mapping[str, Journal],
        rng: random.Random,
        handlers: Mapping[type, Callable[[Any, Address, int], None]],
    ) -> None:
        self.config, self.state = config, state
        self.slot = 0
        self.leader: L | None = None
        self.paxos = Replica(config.address, config.replicas, journals.get(JOURNAL), rng, config.paxos)
        self._out: list[Effect] = []
        self._handlers = handlers
        self._questions: dict[tuple[Address, int], Any] = {}
        self._confirming: dict[tuple[Address, int], Any] = {}
        self._token = 0

    # ---- what an engine says

    @abstractmethod
    def _elected(self, now: int) -> L:
        """The leader's part of a replica that begins to lead."""

    @abstractmethod
    def _applied(self, leader: L, command: Any, now: int) -> None:
        """A command was applied while this replica leads."""

    @abstractmethod
    def _fired(self, leader: L, name: str, now: int) -> None:
        """A timer of the leader."""

    @abstractmethod
    def _answer(self, question: Any) -> Any:
        """The answer to a question, from the confirmed state."""

    @abstractmethod
    def _outcome(self, result: Any) -> Any:
        """The answer to a client whose change has this result."""

    @abstractmethod
    def _not_leader(self, request: int, leader: Address) -> Any:
        """The refusal of a request that another replica should get (empty: unknown which)."""

    def _set_timers(self, leader: L, now: int) -> None:
        if not leader.is_ticking:
            leader.is_ticking = True
            self._out.append(SetTimer(self.TICK, now + self.config.heartbeat_ns))

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        self._absorb(self.paxos.start(now), now)
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        if isinstance(event, Received) and (handler := self._handlers.get(type(event.message))) is not None:
            handler(event.message, event.sender, now)
        elif isinstance(event, TimerFired) and not event.name.startswith(TIMERS):
            if self.leader is not None:
                self._fired(self.leader, event.name, now)
        else:
            self._absorb(self.paxos.handle(event, now), now)
        return self._effects(now)

    def check_invariants(self) -> None:
        """The engine's invariants as far as one replica sees them, and PAX-n. Raises AssertionError."""
        self.paxos.check_invariants()
        self.state.check()
        assert self.slot == self.paxos.chosen, "a chosen command was not applied"
        assert (self.leader is not None) == self.paxos.is_leader, "Paxos and the replica disagree about the leader"

    def _effects(self, now: int) -> list[Effect]:
        while self.leader is not None and self.leader.commands:
            self._propose(self.leader.commands.pop(0), now)
        if self.leader is not None:
            if self._questions and not self._confirming:
                self._confirming, self._questions = self._questions, {}
                self._token += 1
                self._absorb(self.paxos.read_index(self._token, now), now)
            if self.leader is not None:
                self._set_timers(self.leader, now)
        if self.paxos.uncompacted_bytes > self.config.snapshot_bytes:
            self._absorb(self.paxos.compact(self.slot, self.state.to_bytes(), now), now)
        out = self._out.copy()
        self._out.clear()
        return out

    def _propose(self, command: Any, now: int) -> None:
        self._absorb(self.paxos.propose(self.COMMANDS.encode(command), now), now)

    def _absorb(self, outcomes: list[Outcome], now: int) -> None:
        for outcome in outcomes:
            match outcome:
                case Chosen(slot, value):
                    assert slot == self.slot + 1, f"slot {slot} was chosen after {self.slot}"
                    self.slot = slot
                    command = self.COMMANDS.decode(value)
                    result = self.state.apply(command)
                    if self.leader is not None:
                        self._applied(self.leader, command, now)
                        if result is not None:
                            self._answer_change(self.leader, result)
                case Restore(slot, snapshot):
                    self.state, self.slot = self.state.from_bytes(snapshot), slot
                case Confirmed():
                    for (sender, _), question in self._confirming.items():
                        self._out.append(Send(sender, self._answer(question)))
                    self._confirming.clear()
                case Elected():
                    self.leader = self._elected(now)
                case Deposed():
                    self._deposed()
                case _:
                    self._out.append(outcome)

    def _deposed(self) -> None:
        assert self.leader is not None
        waiting = [*(self._questions | self._confirming), *((to, number) for number, to in self.leader.waiting.items())]
        self.leader = None
        for sender, request in waiting:
            self._refuse(sender, request)
        self._questions.clear()
        self._confirming.clear()

    def _refuse(self, sender: Address, request: int) -> None:
        leader = self.paxos.leader
        self._out.append(Send(sender, self._not_leader(request, "" if leader == self.config.address else leader)))

    # ---- messages that all engines have

    def _report(self, report: Any, sender: Address, now: int) -> None:
        if self.leader is not None:
            self.leader.on_report(report, sender, self.state, now)

    def _change(self, request: Any, sender: Address, now: int) -> None:
        if self.leader is None:
            self._refuse(sender, request.request)
            return
        done = self.state.results.get(request.request)
        self.leader.waiting[request.request] = sender
        if done is not None:
            self._answer_change(self.leader, done)
        else:
            self.leader.on_change(request, self.state, now)

    def _answer_change(self, leader: L, result: Any) -> None:
        sender = leader.waiting.pop(result.request, None)
        if sender is not None:
            self._out.append(Send(sender, self._outcome(result)))

    def _question(self, request: Any, sender: Address, now: int) -> None:
        if self.leader is not None:
            self._questions[sender, request.request] = request
        else:
            self._refuse(sender, request.request)
