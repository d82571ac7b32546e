"""The time of a process: wall-clock ns that never go back (`cores.py`)."""

from __future__ import annotations

import time


class Clock:
    """Follows the system's clock. While that shows less than was told before, because somebody has set it back, time
    goes on at half speed until it has caught up: what waits for an interval to pass does not wait for ever."""

    def __init__(self) -> None:
        self._now, self._told_at = time.time_ns(), time.monotonic_ns()

    def __call__(self) -> int:
        wall, at = time.time_ns(), time.monotonic_ns()
        self._now = max(wall, self._now + (at - self._told_at) // 2)
        self._told_at = at
        return self._now
