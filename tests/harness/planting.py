"""Planting a bug: one method is replaced by a wrong one for a while. The lists of planted bugs are built with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

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
            setattr(owner, method, lambda *arguments, **named: wrong(right, *arguments, **named))
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
