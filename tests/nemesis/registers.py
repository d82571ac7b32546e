"""Linearizability of single keys: Wing & Gong's search, key by key, as Lowe does it: just in time.

A key is a register that is read, written, and compared and set. Going through the history in time, the search keeps
every state in which the key may be: its value, and which of the operations under way have taken effect. When an
operation returns, only those states are left in which it has. None left: the history is not linearizable.

Every value is written once. So of operations of which nobody knows how they ended, one that nobody saw may be left out,
and one that was seen had taken effect when the first to see it returned: none is under way for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.nemesis.history import Entry
from tests.sim.world import Failure

MOST_STATES = 200_000


class Operation(NamedTuple):
    """`kind` "r", "w" or "cas"; a read found `value`, a write wrote it; a "cas" wrote it where `expected` was.

    `succeeded`: of a "cas", whether its condition held; one that failed is a read of anything but `expected`."""

    kind: str
    value: str | None
    expected: str | None
    succeeded: bool
    invoked: int
    returned: int
    entry: Entry


State = tuple[str | None, frozenset[int]]


def check_registers(entries: Iterable[Entry], keys: Sequence[str]) -> None:
    """Every key of these by itself, which is enough: linearizability is local."""
    everything = list(entries)
    for key in keys:
        check_register(key, operations_of(everything, key))


def operations_of(entries: Sequence[Entry], key: str) -> list[Operation]:
    """What happened to one key. Snapshots of the past are no operations."""
    operations: list[Operation] = []
    doubtful: list[Operation] = []
    for entry in entries:
        if not entry.linearizable:
            continue
        for kind, name, *rest in entry.ops:
            if name != key or (kind == "r" and entry.status != "ok"):
                continue
            is_refused = kind == "cas" and entry.status == "fail" and "failed" in entry.why
            if entry.status == "fail" and not is_refused:
                continue
            operation = Operation(
                kind, rest[-1], rest[0] if kind == "cas" else None, not is_refused, entry.invoked,
                entry.returned or 0, entry,
            )  # fmt: skip
            (operations if entry.status != "info" else doubtful).append(operation)
    return operations + _seen(doubtful, operations)


def _seen(doubtful: Sequence[Operation], operations: Sequence[Operation]) -> list[Operation]:
    """Of those of which nobody knows: the ones that somebody saw, with the moment by which they had taken effect."""
    firsts: dict[str | None, int] = {}
    for one in operations:
        seen = one.value if one.kind == "r" else one.expected if one.kind == "cas" and one.succeeded else None
        if seen is not None:
            firsts[seen] = min(firsts.get(seen, one.returned), one.returned)
    found: list[Operation] = []
    left = list(doubtful)
    while True:
        known = [one for one in left if one.value in firsts]
        if not known:
            return found
        for one in known:
            left.remove(one)
            returned = firsts[one.value]
            found.append(one._replace(returned=returned))
            if one.kind == "cas" and one.expected is not None:
                firsts[one.expected] = min(firsts.get(one.expected, returned), returned)


def check_register(key: str, operations: Sequence[Operation]) -> None:
    """Raises Failure if no order of the operations explains what they returned."""
    moments = sorted(
        (moment, begins, number)
        for number, one in enumerate(operations)
        for moment, begins in ((one.invoked, 0), (one.returned, 1))
    )
    under_way: set[int] = set()
    states: set[State] = {(None, frozenset())}
    for _, ends, number in moments:
        if not ends:
            under_way.add(number)
            continue
        states = {
            (value, done - {number}) for value, done in _reachable(states, under_way, operations) if number in done
        }
        under_way.discard(number)
        if not states:
            raise Failure("linearizable", f"{key}: {operations[number].entry} cannot have returned what it did")


def _reachable(states: set[State], under_way: set[int], operations: Sequence[Operation]) -> set[State]:
    """All states that operations under way can make of these."""
    found, left = set(states), list(states)
    while left:
        value, done = left.pop()
        for number in under_way - done:
            one = operations[number]
            if one.kind == "r":
                fits, after = one.value == value, value
            elif one.kind == "w":
                fits, after = True, one.value
            else:
                fits, after = (one.expected == value) == one.succeeded, one.value if one.succeeded else value
            if fits and (state := (after, done | {number})) not in found:
                found.add(state)
                left.append(state)
        if len(found) > MOST_STATES:
            raise Failure("linearizable", "too many operations at once to tell")
    return found
