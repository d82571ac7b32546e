"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Shows `now` until the test sets another time. The unit is that of whoever asks."""

    def __init__(self, now: int = 1_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now
