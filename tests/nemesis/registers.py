"""Linearizability of single keys: Wing & Gong's search, key by key, as Lowe does it: just in time.

A key is a register that is read, written, and compared and set. Going through the history in time, the search keeps
every state in which the key may be: its value, and which of the operations under way have taken effect. When an
operation returns, only those states are left in which it has. None left: the history is not linearizable.

Every value is written once; only deletions write None any number of times. So of operations of which nobody knows how
they ended, one whose value somebody saw had taken effect when the first to see it returned. The others may have taken
effect at any time or never. Writes among them can explain no more than why a comparison failed. Deletions among them
can explain that a key is not there, and any of them does as well as another one. A state in which fewer of them have is
as good as one in which more have: what can follow the second can follow the first. So only those states are kept, and
there are few.
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
"""A possible state: the key's value, and which operations have taken effect, of those that must and of those that
may."""


def check_registers(entries: Iterable[Entry], keys: Sequence[str]) -> None:
    """Check each of these keys alone, which suffices: linearizability is local."""
    everything = list(entries)
    for key in keys:
        check_register(key, operations_of(everything, key))


def operations_of(entries: Sequence[Entry], key: str) -> list[Operation]:
    """The operations on one key. Reads of old snapshots are left out."""
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
                entry.returned, entry,
            )  # fmt: skip
            (operations if entry.status != "info" else doubtful).append(operation)
    return operations + _bounded(doubtful, operations)


def _bounded(doubtful: Sequence[Operation], operations: Sequence[Operation]) -> list[Operation]:
    """Among operations of unknown outcome, those whose value was read: they had taken effect by then."""
    firsts: dict[str | None, int] = {}

    def saw(value: str | None, returned: int) -> None:
        firsts[value] = min(firsts.get(value, returned), returned)

    for one in operations:
        if one.kind == "r" or (one.kind == "cas" and one.succeeded):
            assert one.returned is not None
            saw(one.value if one.kind == "r" else one.expected, one.returned)
    found: list[Operation] = []
    left = list(doubtful)
    while known := [one for one in left if one.value is not None and one.value in firsts]:
        for one in known:
            left.remove(one)
            returned = firsts[one.value]
            found.append(one._replace(returned=returned))
            if one.kind == "cas":
                saw(one.expected, returned)
    return found + left


def check_register(key: str, operations: Sequence[Operation]) -> None:
    """Raises Failure if no order of the operations explains what they returned."""
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
            raise Failure("linearizable", f"{key}: {operations[number].entry} cannot have returned what it did")


def _deleting(may: set[int], operations: Sequence[Operation]) -> set[int]:
    """Operations of unknown outcome that may have deleted the key, or written a value that one of these has deleted
    then."""
    found: set[int] = set()
    wanted: set[str | None] = {None}
    while more := {number for number in may - found if operations[number].value in wanted}:
        found |= more
        wanted |= {operations[number].expected for number in more if operations[number].kind == "cas"}
    return found


def _reachable(states: set[State], under_way: set[int], operations: Sequence[Operation]) -> set[State]:
    """All states that operations under way can reach from these, without those that others dominate."""
    least: dict[tuple[str | None, frozenset[int]], list[frozenset[int]]] = {}
    left: deque[State] = deque()

    def add(value: str | None, done: frozenset[int], maybe: frozenset[int]) -> None:
        known = least.setdefault((value, done), [])
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
            elif one.kind == "w" and one.value is None:  # one deletion is as good as another
                fits = value is not None and number == next(other for other in deletions if other not in maybe)
                after = None
            elif one.kind == "w":  # of two values that nobody saw, one is enough
                fits, after = value not in unseen, one.value
            else:
                fits, after = (one.expected == value) == one.succeeded, one.value if one.succeeded else value
            if fits and one.returned is None:
                add(after, done, maybe | {number})
            elif fits:
                add(after, done | {number}, maybe)
        if len(least) > MOST_STATES:
            raise Failure("linearizable", "too many operations at once to tell")
    return {(value, done, maybe) for (value, done), all_ in least.items() for maybe in all_}
