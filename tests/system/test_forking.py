"""The objects that a child disowns. `tests/embedded/test_forks.py` and `tests/clients/test_forks.py` test the rest."""

from __future__ import annotations

import os

from logdb.system import forking
from tests.harness.forks import in_child


class Thing:
    """Knows whether it was disowned, and by which process's child."""

    parent = 0

    def disown(self, parent: int) -> None:
        self.parent = parent


def test_what_exists_at_the_fork_is_disowned_and_nothing_later() -> None:
    before = Thing()
    forking.own(before)

    def body() -> tuple[int, int, int]:
        after = Thing()
        forking.own(after)
        return before.parent, after.parent, in_child(lambda: after.parent)

    in_first, of_later, in_second = in_child(body)
    assert (before.parent, in_first, of_later) == (0, os.getpid(), 0)
    assert in_second not in (0, os.getpid())


class Broken:
    """Cannot be disowned, as a thing that was being made, or closed, at the fork."""

    def disown(self, parent: int) -> None:
        raise AttributeError("half made")


def test_what_cannot_be_disowned_leaves_the_others_disowned() -> None:
    printed: list[str] = []
    broken, thing = Broken(), Thing()
    forking.own(broken)
    forking.own(thing)
    parent, told = in_child(lambda: (thing.parent, list(printed)), printed)
    assert parent == os.getpid()
    assert "half made" in told[0]
    del broken


def test_what_is_gone_takes_no_room() -> None:
    for _ in range(10_000):
        forking.own(Thing())
    assert len(forking._owned) < 5_000  # how many tests before this one have left there, they decide
