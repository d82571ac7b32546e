"""The time of a process: wall-clock ns that never go back (`cores/effects.py`) and follow no jump ahead."""

from __future__ import annotations

import logging
import time

from logdb.log.record_clock import MAX_JUMP_NS, UNSET_NS, since_boot

logger = logging.getLogger("logdb.server")


class Clock:
    """Follows the system's clock, but for two cases.

    While the system's clock is behind the last returned time, because it was set back, this clock runs at half speed
    until the other has caught up, so that timers still fire. When the system's clock has jumped ahead by more than a
    day, this clock runs with the machine's monotonic clock until the other is corrected or the process starts again:
    the time of a cut cannot be revoked, so one wrong cut would date all later versions.
    """

    def __init__(self) -> None:
        self._now, self._returned_at = time.time_ns(), since_boot()
        self._is_ahead = False

    def __call__(self) -> int:
        wall, at = time.time_ns(), since_boot()
        counted = self._now + at - self._returned_at
        is_ahead = self._now > UNSET_NS and wall - counted > MAX_JUMP_NS
        self._now = counted if is_ahead else max(wall, self._now + (at - self._returned_at) // 2)
        self._returned_at = at
        if is_ahead and not self._is_ahead:
            logger.error("the clock of this machine has jumped ahead by more than a day and is not followed: correct"
                         " it, or start this process again if the new time is right")  # fmt: skip
        self._is_ahead = is_ahead
        return self._now
