"""Planting a bug: one method is replaced by a wrong one for a while. The lists of planted bugs are built with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Protocol, TypeVar

TRIES = 200
"""Maximum number of seeds within which a planted bug must be caught."""

BROKEN = re.compile(r"\b(AttributeError|NameError|TypeError|UnboundLocalError)\b")
"""Errors of a planted bug that calls or uses something that is not there, for example after a method was renamed."""

Plants = dict[str, Callable[[], AbstractContextManager[None]]]
"""Bugs by name; each is planted while its context lasts."""
Wrong = Callable[..., Any]


def planted(owner: Any, method: str, among: Plants, kind: str = "") -> Callable[[Wrong], Wrong]:
    """Make a bug of a function that gets the right method and its arguments. The bug is named after the function,
    behind `kind`."""

    def plant(wrong: Wrong) -> Wrong:
        @contextmanager
        def patched() -> Iterator[None]:
            right = getattr(owner, method)

            @wraps(right)  # cores are pickled with their methods, by name
            def replaced(*arguments: Any, **named: Any) -> Any:
                return wrong(right, *arguments, **named)

            setattr(owner, method, replaced)
            try:
                yield
            finally:
                setattr(owner, method, right)

        among[kind + name_of(wrong)] = patched
        return wrong

    return plant


def name_of(wrong: Wrong) -> str:
    """The name of the bug."""
    return wrong.__name__.replace("_", " ")


class BrokenPlant(Exception):
    """The code of a planted bug raised an error of its own, so nothing has been caught."""


class Caught(Protocol):
    """The outcome of a simulated seed. `failure`: the check that failed, "" if none; `detail`: for people."""

    @property
    def seed(self) -> int: ...
    @property
    def failure(self) -> str: ...
    @property
    def detail(self) -> str: ...


Simulated = TypeVar("Simulated", bound=Caught)


def catch(
    name: str, plants: Plants, remembered: int, simulate: Callable[[int], Simulated], tries: int = TRIES
) -> tuple[str, Simulated | None, int]:
    """Simulate seeds with the bug planted until one fails: (name, its outcome or None, number of seeds).

    The remembered seed comes first, then those from 1 on, `tries` in all. Raises BrokenPlant.
    """
    with plants[name]():
        for count, seed in enumerate([remembered, *range(1, tries)], 1):
            outcome = simulate(seed)
            if BROKEN.search(f"{outcome.failure} {outcome.detail}"):
                raise BrokenPlant(f"{name}: seed {seed} failed with {outcome.failure}: {outcome.detail}")
            if outcome.failure:
                return name, outcome, count
    return name, None, tries
