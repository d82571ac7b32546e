"""What to send where a message is too large to travel: its parts, or less of it, where the protocol allows that.

Of an engine's messages the engine says it. Values to accept, and all that a client and a mapping server say to each
other are independent of each other; a replica that asked for accepted values asks on from where an answer ends.
Everything else travels whole or not at all. Cores keep their batches far below the limits, so this is for the record
of 60 MB that came last.
"""

from __future__ import annotations

from typing import Any, Final

from logdb.cluster.messages import Answers, AwaitVerdicts, Busy, Reads, Verdicts
from logdb.log.engine import Parts, all_engines
from logdb.log.paxos.messages import Accept, MemberEnvelope, Promise


def _accept(message: Accept) -> list[Accept]:
    half = len(message.values) // 2
    first, rest = message.values[:half], message.values[half:]
    return [message._replace(values=first), message._replace(first=message.first + half, values=rest)]


def _promise(message: Promise) -> list[Promise]:
    return [message._replace(entries=message.entries[: len(message.entries) // 2])]


def _halves(field: str) -> tuple[str, Parts]:
    """For a message of nothing but items that are independent of each other."""

    def parts(message: Any) -> list[Any]:
        items = getattr(message, field)
        half = len(items) // 2
        return [type(message)(items[:half]), type(message)(items[half:])]

    return field, parts


_SPLITS: Final[dict[type, tuple[str, Parts]]] = {
    **{kind: parts for engine in all_engines() for kind, parts in engine.wire.splits.items()},
    Accept: ("values", _accept),
    Promise: ("entries", _promise),
    Reads: _halves("reads"),
    Answers: _halves("answers"),
    Busy: _halves("numbers"),
    AwaitVerdicts: _halves("waits"),
    Verdicts: _halves("verdicts"),
}


def split(message: Any) -> list[Any]:
    """Smaller messages that together say the same, or one that says less but enough; none if there are no such."""
    if type(message) is MemberEnvelope:
        return [message._replace(message=part) for part in split(message.message)]
    what = _SPLITS.get(type(message))
    if what is None or len(getattr(message, what[0])) < 2:
        return []
    return what[1](message)
