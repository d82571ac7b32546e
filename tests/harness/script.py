"""A driver for tests of one protocol core. Each call is a step of the script: a message, a sync, time that passes.

The test plays the network, the disk and the clock. Messages of the core reach no other core, its records become durable
with `sync`, its timers expire with `fire` or `wait`. A step returns what the core has sent in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from logdb.cores.effects import (
    Address,
    Answer,
    Call,
    CancelTimer,
    Create,
    Disconnected,
    Drop,
    Event,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
)
from logdb.log.contract import LogRecord

Kind = TypeVar("Kind")
Build = Callable[[Mapping[str, Journal]], Any]


class ScriptedJournal:
    """The records `first` to `end` - 1, of which a crash leaves those before `durable`."""

    def __init__(self, first: int, records: Iterable[LogRecord] = ()) -> None:
        self.first = first
        self.records = list(records)
        self.durable = self.end

    @property
    def end(self) -> int:
        return self.first + len(self.records)

    def read(self, first: int, end: int) -> list[LogRecord]:
        """Durable records `first` to `end` - 1."""
        assert self.first <= first < end <= self.durable, f"{first} to {end} of {self.first} to {self.durable}"
        return self.records[first - self.first : end - self.first]

    def trim(self, before: int) -> None:
        """Delete the records before `before`."""
        assert before <= self.durable, f"trimmed before {before}, durable before {self.durable}"
        del self.records[: before - self.first]
        self.first = before


class Script:
    """A started core and its host. `build` makes the core from its journals, again for each `restart`.

    `sent`: what the core has sent. `answers`: results of calls, by their numbers. `notices`: effects of the types
    `notice_types`, which are for an embedding core. `timers`: times by name. `stopped`: the effect, if the core has
    stopped. Invariants are checked in every step.
    """

    def __init__(
        self,
        build: Build,
        *,
        now: int = 0,
        journals: Mapping[str, Journal] | None = None,
        notice_types: tuple[type, ...] = (),
    ) -> None:
        self.build, self.now, self.notice_types = build, now, notice_types
        self.journals = {
            name: ScriptedJournal(journal.first, journal.records) for name, journal in (journals or {}).items()
        }
        self.sent: list[Send] = []
        self.answers: dict[int, Any] = {}
        self.notices: list[Any] = []
        self.timers: dict[str, int] = {}
        self.stopped: Stop | None = None
        self.calls = 0
        self.start()

    # ---- steps

    def start(self) -> list[Send]:
        """Start the core with its journals."""
        journals = {name: Journal(kept.first, kept.end, list(kept.records)) for name, kept in self.journals.items()}
        self.core = self.build(journals)
        return self.perform(self.core.start(self.now))

    def restart(self) -> list[Send]:
        """Kill the core, and start it again with what was durable."""
        for journal in self.journals.values():
            del journal.records[journal.durable - journal.first :]
        self.sent.clear()
        self.notices.clear()
        self.timers.clear()
        return self.start()

    def handle(self, event: Event) -> list[Send]:
        """Pass an event to the core."""
        assert self.stopped is None, self.stopped
        return self.perform(self.core.handle(event, self.now))

    def give(self, sender: Address, message: Any) -> list[Send]:
        """Deliver a message."""
        return self.handle(Received(sender, message))

    def lose(self, peer: Address) -> list[Send]:
        """Break the connection to a peer."""
        return self.handle(Disconnected(peer))

    def call(self, request: Any) -> int:
        """Make a call of the application. Returns its number, under which `answers` will have its result."""
        self.calls += 1
        self.handle(Call(self.calls, request))
        return self.calls

    def ask(self, request: Any) -> Any:
        """Make a call that is answered at once, and return its result."""
        return self.answers[self.call(request)]

    def sync(self, *journals: str) -> list[Send]:
        """Make all records (of these journals) durable."""
        sent: list[Send] = []
        for name, journal in list(self.journals.items()):
            if journal.durable < journal.end and (not journals or name in journals):
                journal.durable = journal.end
                sent += self.handle(Persisted(name, journal.end))
        return sent

    def fire(self, timer: str) -> list[Send]:
        """Let the time pass until this timer expires; the others do not."""
        self.now = max(self.now, self.timers.pop(timer))
        return self.handle(TimerFired(timer))

    def wait(self, ns: int = 0) -> list[Send]:
        """Let the time pass; timers expire in their order."""
        until, sent = self.now + ns, list[Send]()
        while self.stopped is None and self.timers and min(self.timers.values()) <= until:
            sent += self.fire(min(self.timers, key=lambda name: self.timers[name]))
        self.now = until
        return sent

    # ---- what the core has sent

    def take(self, kind: type[Kind]) -> list[tuple[Address, Kind]]:
        """(to, message) of that kind, each returned once."""
        found = [(to, message) for to, message in self.sent if isinstance(message, kind)]
        self.sent = [send for send in self.sent if not isinstance(send[1], kind)]
        return found

    def one(self, kind: type[Kind]) -> tuple[Address, Kind]:
        """The only one of that kind."""
        (found,) = self.take(kind)
        return found

    def take_notices(self) -> list[Any]:
        """The notices, each returned once."""
        notices, self.notices = self.notices, []
        return notices

    # ---- the host

    def perform(self, effects: Iterable[Any]) -> list[Send]:
        """Perform effects in their order. Returns those that send."""
        sent: list[Send] = []
        for effect in effects:
            match effect:
                case Send():
                    sent.append(effect)
                case SendStored(to, message, journal, first, end):
                    records = [(record.tag, record.payload) for record in self.journals[journal].read(first, end)]
                    sent.append(Send(to, message._replace(records=records)))
                case SendRanges(to, message):
                    sent.append(Send(to, message._replace(records=self.read(effect))))
                case Create(name, first):
                    assert name not in self.journals, f"{name} exists"
                    self.journals[name] = ScriptedJournal(first)
                case Persist(name, first, written):
                    journal = self.journals[name]
                    assert first == journal.end, f"{name} ends at {journal.end}, not at {first}"
                    journal.records += [LogRecord(at, self.now, *record) for at, record in enumerate(written, first)]
                case Trim(name, before):
                    self.journals[name].trim(before)
                case Drop(name):
                    del self.journals[name]
                case SetTimer(name, at):
                    self.timers[name] = at
                case CancelTimer(name):
                    self.timers.pop(name, None)
                case Answer(call, result):
                    assert call not in self.answers, "answered twice"
                    self.answers[call] = result
                case Stop():
                    self.stopped = effect
                case _:
                    assert isinstance(effect, self.notice_types), effect
                    self.notices.append(effect)
        self.sent += sent
        self.core.check_invariants()
        return sent

    def read(self, effect: SendRanges) -> list[LogRecord]:
        """The records that go with a message."""
        return [
            LogRecord(number, time, record.tag, record.payload)
            for name, first, end, number_of_first, time in effect.ranges
            for number, record in enumerate(self.journals[name].read(first, end), number_of_first)
            if effect.tags is None or record.tag in effect.tags
        ]
