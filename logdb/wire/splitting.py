"""Splitting of messages that are too large to send: into parts or, if the protocol allows it, to a shorter message.

An engine declares the splits of its messages. Values to accept are independent of each other, as are the items of the
messages between a client and a mapping server; a replica that requested accepted values continues where an answer ends.
All other messages are sent whole or not at all. Cores keep their batches far below the limits, so splits are needed
only when the last record of a batch is as large as 60 MB.
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
    """The split of a message that consists of items independent of each other."""

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
    """Smaller messages with the same meaning together, or one that carries less and suffices; none if it cannot be
    split."""
    if type(message) is MemberEnvelope:
        return [message._replace(message=part) for part in split(message.message)]
    what = _SPLITS.get(type(message))
    if what is None or len(getattr(message, what[0])) < 2:
        return []
    return what[1](message)
