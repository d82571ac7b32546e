"""Pauses between attempts to reach a server."""

from __future__ import annotations

import random


class Backoff:
    """Exponential backoff with jitter: each pause is drawn at random from the upper half of a bound, which doubles from
    `first_s` to `max_s` seconds."""

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s, self._max_s = first_s, max_s
        self._bound_s = min(first_s, max_s)

    def next_s(self) -> float:
        """The next pause, in seconds."""
        bound_s = self._bound_s
        self._bound_s = min(2 * bound_s, self._max_s)
        return bound_s * random.uniform(0.5, 1)

    def reset(self) -> None:
        """Start again with the first pause."""
        self._bound_s = min(self._first_s, self._max_s)
