"""The time of a process: wall-clock ns that never go back (`cores/effects.py`) and follow no jump ahead."""

from __future__ import annotations

import logging
import time

from logdb.log.record_clock import MAX_JUMP_NS, UNSET_NS, since_boot

logger = logging.getLogger("logdb.server")


class Clock:
    """Follows the system's clock, but for two cases.

    While that shows less than was told before, because it was set back, time goes on at half speed until it has caught
    up: what waits for an interval to pass does not wait for ever. When it has jumped ahead by more than a day, time
    goes on as the machine counts it until the clock is set right or the process starts again: the time of a cut cannot
    be taken back, so one wrong cut would date all later versions.
    """

    def __init__(self) -> None:
        self._now, self._told_at = time.time_ns(), since_boot()
        self._is_ahead = False

    def __call__(self) -> int:
        wall, at = time.time_ns(), since_boot()
        counted = self._now + at - self._told_at
        is_ahead = self._now > UNSET_NS and wall - counted > MAX_JUMP_NS
        self._now = counted if is_ahead else max(wall, self._now + (at - self._told_at) // 2)
        self._told_at = at
        if is_ahead and not self._is_ahead:
            logger.error("the clock of this machine has jumped ahead by more than a day and is not followed: set it"
                         " right, or start this process again if it is right now")  # fmt: skip
        self._is_ahead = is_ahead
        return self._now
