"""The times that a log of one process gives its records: they grow, and follow no clock that jumps ahead.

A time cannot be taken back, since those after it have to be later. So a clock that is wrong for one write would mark
all later versions with its time, and none of them could be found by its time. What follows a jump is refused until the
clock is set right, or the log is opened again: then the jump was the correction.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import Final

from logdb.errors import Unavailable

log = logging.getLogger(__name__)

LONGEST_JUMP_NS: Final = 24 * 3_600 * 1_000_000_000
LONGEST_PAUSE_NS: Final = 3_653 * LONGEST_JUMP_NS
"""No log that is opened again has rested for longer: ten years."""


UNSET_NS: Final = 946_684_800_000_000_000
"""A clock that shows less, the year 2000, has not been set yet: what it shows next is no jump."""


def since_boot() -> int:
    """ns that have passed, also while the machine was suspended; nobody can set them."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def is_beyond_any_pause(last: int, now: int) -> bool:
    """Whether `now` is so much later than the newest record's time that the clock must be wrong."""
    return last > UNSET_NS and now - last > LONGEST_PAUSE_NS


class RecordClock:
    """`last`: the time of the newest record, 0 if there is none. For one thread at a time."""

    def __init__(self, last: int, clock: Callable[[], int], passed: Callable[[], int] = since_boot) -> None:
        self._last, self._clock, self._passed = last, clock, passed
        self._agreed: tuple[int, int] | None = None
        self._unasked_until = 0
        self._is_behind = False

    def next(self) -> int:
        """ns since the epoch, later than before. Raises Unavailable while the clock is far ahead."""
        now = self._clock()
        if now <= self._last:
            if self._last - now > LONGEST_JUMP_NS and not self._is_behind:
                self._is_behind = True
                log.warning(
                    "the clock says %s, the newest record %s: until then times are counted on from there, and do not"
                    " tell when something was written; set the clock if it is wrong",
                    _shown(now),
                    _shown(self._last),
                )
            now = self._last + 1
        elif now > self._unasked_until:
            self._check(now)
        self._last = now
        return now

    def _check(self, now: int) -> None:
        passed = self._passed()
        if self._agreed is not None:
            agreed_at, then = self._agreed
            if agreed_at > UNSET_NS and now - agreed_at - (passed - then) > LONGEST_JUMP_NS:
                self._refuse(now, "while this log was open; set it right, or open the log again if it is right now")
        if is_beyond_any_pause(self._last, now):
            self._refuse(now, "by more than ten years; set it right, or if it is right, export the data to a new log")
        self._agreed, self._unasked_until = (now, passed), now + LONGEST_JUMP_NS

    def _refuse(self, now: int, how: str) -> None:
        what = f"the clock of this machine has jumped ahead, from {_shown(self._last)} to {_shown(now)}, {how}"
        log.error("writes are refused: %s", what)
        raise Unavailable(f"nothing was written: {what}")


def _shown(time_ns: int) -> str:
    seconds = min(time_ns // 1_000_000_000, 253_402_300_799)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
