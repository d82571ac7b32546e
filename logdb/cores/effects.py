"""What a protocol core and its host say to each other.

A core is a class with `start(now)` and `handle(event, now)`, both of which return effects. It does no I/O, reads no
clock, starts no thread and draws no random number but from the generator it was given. A host (the cluster's event
loop, the simulator) performs the effects in their order and feeds the core events. `now` is in ns and never goes back.

Durability is said with journals: sequences of records, numbered from 1, one file set of log segments each. A core
writes with `Persist`, goes on, and hears `Persisted` when the records are on the medium; what must not leave before
that, the core keeps until then. A host that dies keeps every record that it has reported as persisted, and of the
others any prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from logdb.log.contract import LogRecord, Record

Address = str
"""Where a core is to be found; "host:port" in a cluster. What it means is the host's business."""

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class ProtocolViolation(Exception):
    """A core met a state that it cannot explain. Its host must stop it: nothing it says from now on counts."""


class Send(NamedTuple):
    """Send `message`, which may be lost, doubled, delayed or overtaken."""

    to: Address
    message: Any


class SendStored(NamedTuple):
    """Send `message._replace(records=...)` with the durable records `first` to `end` - 1 of a journal: (tag, payload).

    A host that cannot read them gives the core `Unreadable`.
    """

    to: Address
    message: Any
    journal: str
    first: int
    end: int


class Stretch(NamedTuple):
    """The durable records `first` to `end` - 1 of a journal, to be handed on as numbers `number` and following, of
    `time`."""

    journal: str
    first: int
    end: int
    number: int
    time: int


class SendStretches(NamedTuple):
    """Send `message._replace(records=...)` with all records of `stretches`, one after another: LogRecords, with the
    number and time that their stretch gives them. `tags`: only records of these; None: all.

    A host that cannot read them gives the core `Unreadable`. Choosing by tag happens where the bytes are read anyway:
    a core that kept the tags of all its records would pay a byte for each for ever.
    """

    to: Address
    message: Any
    stretches: Sequence[Stretch]
    tags: frozenset[int] | None


class Create(NamedTuple):
    """A new, empty journal whose first record will be `first`. It must not exist."""

    journal: str
    first: int


class Persist(NamedTuple):
    """Append `records` to a journal. The first will have the number `first`, which the core knows."""

    journal: str
    first: int
    records: Sequence[Record]


class Trim(NamedTuple):
    """Records before `before` are needed no more."""

    journal: str
    before: int


class Drop(NamedTuple):
    """The journal is needed no more."""

    journal: str


class SetTimer(NamedTuple):
    """Give the core `TimerFired(name)` at `at` (ns). A timer of that name set before is forgotten."""

    name: str
    at: int


class CancelTimer(NamedTuple):
    """Forget a timer, if it is set."""

    name: str


class Answer(NamedTuple):
    """What a call of this node's application has come to: a value or, to be raised, an exception."""

    call: int
    result: Any


class Stop(NamedTuple):
    """This core has nothing more to do: its host may end it and, if `wipe`, remove its journals."""

    why: str
    wipe: bool


Effect = Send | SendStored | SendStretches | Create | Persist | Trim | Drop | SetTimer | CancelTimer | Answer | Stop


class Received(NamedTuple):
    """A message has arrived."""

    sender: Address
    message: Any


class Persisted(NamedTuple):
    """Every record of the journal before `end` is on the medium."""

    journal: str
    end: int


class TimerFired(NamedTuple):
    """A timer has run out."""

    name: str


class Call(NamedTuple):
    """This node's application asks for something; `Answer` says what came of it."""

    call: int
    request: Any


class Unreadable(NamedTuple):
    """The records for a `SendStored` or `SendStretches` could not be read: they are damaged."""

    effect: SendStored | SendStretches
    why: str


class Lost(NamedTuple):
    """A stream to this peer has broken, or none can be opened: what was said to it may never be answered. Hosts of
    clients tell this as a courtesy, so that nobody waits for a time-out in vain; nothing may depend on it."""

    peer: Address


Event = Received | Persisted | TimerFired | Call | Unreadable | Lost


class Journal(NamedTuple):
    """A journal as it was found when its node started: records `first` to `end` - 1. `records[n - first]` is number n;
    a host may read them only when they are asked for, and a slice without what is before it."""

    first: int
    end: int
    records: Sequence[LogRecord]


class Core(Protocol):
    """A protocol role."""

    def start(self, now: int) -> list[Effect]:
        """What to do when the node starts. Called once, before anything else."""

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""

    def check_invariants(self) -> None:
        """Raises AssertionError, naming the invariant that does not hold."""
