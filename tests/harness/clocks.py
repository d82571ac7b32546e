"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Returns `now` until the test sets another time. The caller chooses the unit."""

    def __init__(self, now: int = 1_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now
