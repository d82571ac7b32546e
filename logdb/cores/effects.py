"""The interface between a protocol core and its host: effects and events.

A core is a class with `start(now)` and `handle(event, now)`, which return effects. A core does no I/O, reads no clock,
starts no thread, and uses no randomness but the generator passed to it. A host (the cluster's event loop, the
simulator) performs the effects in order and passes events to the core. `now` is in ns and never decreases.

Durability uses journals: sequences of records numbered from 1, each kept in one set of segment files. A core writes
with `Persist` and continues; the host sends it `Persisted` once the records are on the medium. A core holds back any
message that depends on a record until then. A host that crashes keeps every record that it has reported as persisted,
and any prefix of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from logdb.log.contract import LogRecord, Record

Address = str
"""The address of a core; "host:port" in a cluster. Only the host interprets it."""

SECOND = 1_000_000_000
MILLISECOND = 1_000_000


class ProtocolViolation(Exception):
    """A core has detected a state that the protocol does not allow. Its host must stop it and perform no more of its
    effects."""


class Send(NamedTuple):
    """Send `message`, which may be lost, duplicated, delayed or reordered."""

    to: Address
    message: Any


class SendStored(NamedTuple):
    """Send `message._replace(records=...)` with the durable records `first` to `end` - 1 of a journal: (tag, payload).

    If the host cannot read them, it sends the core `Unreadable`.
    """

    to: Address
    message: Any
    journal: str
    first: int
    end: int


class JournalRange(NamedTuple):
    """The durable records `first` to `end` - 1 of a journal, sent with numbers from `number` on and with `time`."""

    journal: str
    first: int
    end: int
    number: int
    time: int


class SendRanges(NamedTuple):
    """Send `message._replace(records=...)` with all records of `ranges` in order: LogRecords, with the number and time
    from their range. `tags`: only records with these tags; None: all.

    If the host cannot read them, it sends the core `Unreadable`. The host filters by tag because it reads the bytes
    anyway; a core would need a byte of memory for each record.
    """

    to: Address
    message: Any
    ranges: Sequence[JournalRange]
    tags: frozenset[int] | None


class Create(NamedTuple):
    """Create an empty journal whose first record will have the number `first`. It must not exist."""

    journal: str
    first: int


class Persist(NamedTuple):
    """Append `records` to a journal. `first`: the number of the first, which is the journal's end."""

    journal: str
    first: int
    records: Sequence[Record]


class Trim(NamedTuple):
    """Allow the host to delete the records before `before`."""

    journal: str
    before: int


class Drop(NamedTuple):
    """Delete the journal."""

    journal: str


class SetTimer(NamedTuple):
    """Send the core `TimerFired(name)` at `at` (ns). Replaces the timer of that name, if one is set."""

    name: str
    at: int


class CancelTimer(NamedTuple):
    """Cancel a timer, if it is set."""

    name: str


class Archive(NamedTuple):
    """Write the next segment of a cold tier, read it back, and send the core `Archived`. Writing one again changes
    nothing.

    `log_id`: of the tier. `number`: from 1. The segment has what leads from version `since` to `version`, or up to
    `version` for the first one; `oldest`: the oldest version that the tier has, in its first segment. `records`: with
    numbers from `first` on. `time`: of the newest record up to here, ns since the epoch.
    """

    log_id: bytes
    number: int
    since: int
    version: int
    oldest: int
    first: int
    time: int
    records: Sequence[LogRecord]


class Recall(NamedTuple):
    """Read an old version from a cold tier, and send the core `Recalled`.

    `number`: of this request. `log_id`: of the tier. `segments`: the number of segments that count; the last of them
    reaches version `through`. `version`: to read. `question`: what to read there. `max_bytes`: about the maximum size
    of the result.
    """

    number: int
    log_id: bytes
    segments: int
    through: int
    version: int
    question: Any
    max_bytes: int


class Answer(NamedTuple):
    """The result of a call of this node's application: a value, or an exception that the host raises."""

    call: int
    result: Any


class Stop(NamedTuple):
    """Stop this core; with `wipe`, remove its journals. `reason`: for people."""

    reason: str
    wipe: bool


Effect = (
    Send
    | SendStored
    | SendRanges
    | Create
    | Persist
    | Trim
    | Drop
    | SetTimer
    | CancelTimer
    | Archive
    | Recall
    | Answer
    | Stop
)


class Received(NamedTuple):
    """A message was received."""

    sender: Address
    message: Any


class Persisted(NamedTuple):
    """Every record of the journal before `end` is on the medium."""

    journal: str
    end: int


class TimerFired(NamedTuple):
    """A timer has expired."""

    name: str


class Archived(NamedTuple):
    """The segment `number` is in the cold tier, and was read back. `failure`: else why it is not, for people."""

    number: int
    failure: str


class Recalled(NamedTuple):
    """The result of the Recall `number`, as of `version`."""

    number: int
    version: int
    result: Any


class Call(NamedTuple):
    """A request of this node's application; the core responds with `Answer`."""

    call: int
    request: Any


class Unreadable(NamedTuple):
    """The records for a `SendStored` or `SendRanges` could not be read: they are damaged. `reason`: for people."""

    effect: SendStored | SendRanges
    reason: str


class Disconnected(NamedTuple):
    """The connection to this peer has broken or cannot be opened: pending requests to it may never be answered. Hosts
    of clients report this so that a client need not wait for a timeout; correctness must not depend on it."""

    peer: Address


Event = Received | Persisted | TimerFired | Archived | Recalled | Call | Unreadable | Disconnected


class Journal(NamedTuple):
    """A journal at the start of its node: records `first` to `end` - 1. `records[n - first]` is number n. A host may
    read records lazily, and only the requested slice."""

    first: int
    end: int
    records: Sequence[LogRecord]


class Core(Protocol):
    """A protocol core: the implementation of one role."""

    def start(self, now: int) -> list[Effect]:
        """Start the core; returns its first effects. Called once, before `handle`."""

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event; returns the resulting effects. Raises ProtocolViolation."""

    def check_invariants(self) -> None:
        """Check the invariants. Raises AssertionError with the number of a violated one."""
