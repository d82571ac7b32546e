"""What to send where a message is too large to travel: its parts, or less of it, where the protocol allows that.

A batch of records is two batches; updates, tallies, values to accept, and all that a client and a mapping server say to
each other are independent of each other; who asked for
placements, a stretch of the log or accepted values asks on from where an answer ends. Everything else travels whole
or not at all. Cores keep their batches far below the limits, so this is for the record of 60 MB that came last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from logdb.cluster.messages import Answers, Await, Busy, Reads, Verdicts
from logdb.log.paxos.messages import Accept, Promise, Said
from logdb.log.scalog.messages import Append, Placements, Pulled, Replicate, Tally, Updates


def _append(message: Append) -> list[Append]:
    half = len(message.records) // 2
    first, rest = message.records[:half], message.records[half:]
    return [message._replace(records=first), message._replace(sequence=message.sequence + half, records=rest)]


def _replicate(message: Replicate) -> list[Replicate]:
    half = len(message.records) // 2
    first, rest = message.records[:half], message.records[half:]
    return [message._replace(records=first), message._replace(first=message.first + half, records=rest)]


def _pulled(message: Pulled) -> list[Pulled]:
    records = message.records[: len(message.records) // 2]
    end = message.records[len(records)].lsn
    owned = tuple((gsn, min(count, end - gsn)) for gsn, count in message.owned if gsn < end)
    return [message._replace(end=end, owned=owned, final=False, records=records)]


def _placements(message: Placements) -> list[Placements]:
    return [message._replace(entries=message.entries[: len(message.entries) // 2], complete=False)]


def _updates(message: Updates) -> list[Updates]:
    half = len(message.updates) // 2
    return [message._replace(updates=message.updates[:half]), message._replace(updates=message.updates[half:])]


def _tally(message: Tally) -> list[Tally]:
    half = len(message.shards) // 2
    return [message._replace(shards=message.shards[:half]), message._replace(shards=message.shards[half:])]


def _accept(message: Accept) -> list[Accept]:
    half = len(message.values) // 2
    first, rest = message.values[:half], message.values[half:]
    return [message._replace(values=first), message._replace(first=message.first + half, values=rest)]


def _promise(message: Promise) -> list[Promise]:
    return [message._replace(entries=message.entries[: len(message.entries) // 2])]


def _halves(field: str) -> tuple[str, Callable[[Any], list[Any]]]:
    """For a message of nothing but items that are independent of each other."""

    def parts(message: Any) -> list[Any]:
        items = getattr(message, field)
        half = len(items) // 2
        return [type(message)(items[:half]), type(message)(items[half:])]

    return field, parts


_SPLITS: Final[dict[type, tuple[str, Callable[[Any], list[Any]]]]] = {
    Append: ("records", _append),
    Replicate: ("records", _replicate),
    Pulled: ("records", _pulled),
    Placements: ("entries", _placements),
    Updates: ("updates", _updates),
    Tally: ("shards", _tally),
    Accept: ("values", _accept),
    Promise: ("entries", _promise),
    Reads: _halves("reads"),
    Answers: _halves("answers"),
    Busy: _halves("numbers"),
    Await: _halves("waits"),
    Verdicts: _halves("verdicts"),
}


def split(message: Any) -> list[Any]:
    """Smaller messages that together say the same, or one that says less but enough; none if there are no such."""
    if type(message) is Said:
        return [message._replace(message=part) for part in split(message.message)]
    what = _SPLITS.get(type(message))
    if what is None or len(getattr(message, what[0])) < 2:
        return []
    return what[1](message)
