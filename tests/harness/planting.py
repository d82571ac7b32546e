"""Planting a bug: for a while one method is a wrong one. The lists of planted bugs are made with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Plants = dict[str, Callable[[], AbstractContextManager[None]]]
"""Bugs by name; each is there while its context lasts."""
Wrong = Callable[..., Any]


def planted(owner: Any, method: str, among: Plants, kind: str = "") -> Callable[[Wrong], Wrong]:
    """Make a bug of a function that takes the right method and then its arguments; its own name, behind `kind`, is the
    bug's."""

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
    """What the bug is called."""
    return wrong.__name__.replace("_", " ")
