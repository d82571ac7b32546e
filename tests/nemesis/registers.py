"""Linearizability of single keys: Wing & Gong's search for each key, with Lowe's just-in-time optimization.

A key is a register with read, write and compare-and-set. The search goes through the history in time and keeps all
possible states of the key: its value, and the operations under way that have taken effect. When an operation returns,
the states in which it has not taken effect are dropped. If no state remains, the history is not linearizable.

Every value is written once; only deletions write None any number of times. So an operation of unknown outcome whose
value was read had taken effect when the first read of it returned. Other operations of unknown outcome may take effect
at any time or never. Such a write can only explain a failed comparison; such a deletion can explain that a key is
absent, and all such deletions are equivalent. A state in which fewer of them have taken effect dominates one in which
more have: every continuation of the second is one of the first. Only dominating states are kept, which are few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.nemesis.history import Entry
from tests.sim.world import Failure

MOST_STATES = 200_000


class Operation(NamedTuple):
    """`kind` "r", "w" or "cas"; a read found `value`, a write wrote it; a "cas" wrote it where `expected` was.

    `succeeded`: of a "cas", whether its condition held; one that failed is a read of anything but `expected`.
    `returned`: None if it may take effect at any time or never."""

    kind: str
    value: str | None
    expected: str | None
    succeeded: bool
    invoked: int
    returned: int | None
    entry: Entry


State = tuple[str | None, frozenset[int], frozenset[int]]
"""A possible state: the key's value, the operations of known outcome that have taken effect, and those of unknown
outcome that have."""


def check_registers(entries: Iterable[Entry], keys: Sequence[str]) -> None:
    """Check each key separately, which suffices since linearizability is local."""
    everything = list(entries)
    for key in keys:
        check_register(key, operations_of(everything, key))


def operations_of(entries: Sequence[Entry], key: str) -> list[Operation]:
    """The operations on one key. Reads of old snapshots are left out."""
    operations: list[Operation] = []
    unknown: list[Operation] = []
    for entry in entries:
        if not entry.linearizable:
            continue
        for kind, name, *rest in entry.ops:
            if name != key or (kind == "r" and entry.status != "ok"):
                continue
            is_refused = kind == "cas" and entry.status == "fail" and "failed" in entry.error
            if entry.status == "fail" and not is_refused:
                continue
            operation = Operation(
                kind, rest[-1], rest[0] if kind == "cas" else None, not is_refused, entry.invoked,
                entry.returned, entry,
            )  # fmt: skip
            (operations if entry.status != "info" else unknown).append(operation)
    return operations + _bounded(unknown, operations)


def _bounded(unknown: Sequence[Operation], operations: Sequence[Operation]) -> list[Operation]:
    """The operations of unknown outcome, each bounded by the first read of its value, if any."""
    firsts: dict[str | None, int] = {}

    def saw(value: str | None, returned: int) -> None:
        firsts[value] = min(firsts.get(value, returned), returned)

    for one in operations:
        if one.kind == "r" or (one.kind == "cas" and one.succeeded):
            assert one.returned is not None
            saw(one.value if one.kind == "r" else one.expected, one.returned)
    found: list[Operation] = []
    left = list(unknown)
    while known := [one for one in left if one.value is not None and one.value in firsts]:
        for one in known:
            left.remove(one)
            returned = firsts[one.value]
            found.append(one._replace(returned=returned))
            if one.kind == "cas":
                saw(one.expected, returned)
    return found + left


def check_register(key: str, operations: Sequence[Operation]) -> None:
    """Raises Failure if no order of the operations explains their results."""
    moments = sorted(
        (moment, ends, number)
        for number, one in enumerate(operations)
        for moment, ends in ((one.invoked, False), (one.returned, True))
        if moment is not None
    )
    under_way: set[int] = set()
    states: set[State] = {(None, frozenset(), frozenset())}
    for _, ends, number in moments:
        if not ends:
            under_way.add(number)
            continue
        reached = _reachable(states, under_way, operations)
        states = {(value, done - {number}, maybe) for value, done, maybe in reached if number in done}
        under_way.discard(number)
        if not states:
            raise Failure("linearizable", f"{key}: no order explains the result of {operations[number].entry}")


def _deleting(may: set[int], operations: Sequence[Operation]) -> set[int]:
    """Operations of unknown outcome that may have deleted the key, or written a value that one of these has deleted
    then."""
    found: set[int] = set()
    values: set[str | None] = {None}
    while more := {number for number in may - found if operations[number].value in values}:
        found |= more
        values |= {operations[number].expected for number in more if operations[number].kind == "cas"}
    return found


def _reachable(states: set[State], under_way: set[int], operations: Sequence[Operation]) -> set[State]:
    """All states that operations under way can reach from these, without those that others dominate."""
    minimal: dict[tuple[str | None, frozenset[int]], list[frozenset[int]]] = {}
    left: deque[State] = deque()

    def add(value: str | None, done: frozenset[int], maybe: frozenset[int]) -> None:
        known = minimal.setdefault((value, done), [])
        if not any(other <= maybe for other in known):
            known[:] = [other for other in known if not maybe <= other]
            known.append(maybe)
            left.append((value, done, maybe))

    for state in sorted(states, key=lambda state: len(state[2])):
        add(*state)
    refused = {number for number in under_way if not operations[number].succeeded}
    may = {number for number in under_way if operations[number].returned is None}
    must, unseen = under_way - may, {operations[number].value for number in may} - {None}
    helpful = must | _deleting(may, operations)
    deletions = sorted(number for number in may if operations[number].kind == "w" and operations[number].value is None)
    while left:
        value, done, maybe = left.popleft()
        for number in (helpful if refused <= done else under_way) - done - maybe:
            one = operations[number]
            if one.kind == "r":
                fits, after = one.value == value, value
            elif one.kind == "w" and one.returned is not None:
                fits, after = True, one.value
            elif one.kind == "w" and one.value is None:  # all deletions of unknown outcome are equivalent
                fits = value is not None and number == next(other for other in deletions if other not in maybe)
                after = None
            elif one.kind == "w":  # all values that no operation read are equivalent
                fits, after = value not in unseen, one.value
            else:
                fits, after = (one.expected == value) == one.succeeded, one.value if one.succeeded else value
            if fits and one.returned is None:
                add(after, done, maybe | {number})
            elif fits:
                add(after, done | {number}, maybe)
        if len(minimal) > MOST_STATES:
            raise Failure("linearizable", "too many concurrent operations to decide")
    return {(value, done, maybe) for (value, done), all_ in minimal.items() for maybe in all_}
