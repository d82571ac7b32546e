"""The timestamps of the records of a log in one process: strictly increasing, and protected against clock jumps.

Timestamps never decrease. After a single write with a clock that is far ahead, all later records would have times in
the future, and could not be found by time. Therefore appends are rejected after the clock has jumped ahead, until it is
corrected or the log is opened again: reopening confirms that the new time is right.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable
from typing import Final

from logdb.errors import Unavailable

log = logging.getLogger(__name__)

MAX_JUMP_NS: Final = 24 * 3_600 * 1_000_000_000
MAX_PAUSE_NS: Final = 3_653 * MAX_JUMP_NS
"""Maximum time between the newest record and the next one: ten years."""

UNSET_NS: Final = 946_684_800_000_000_000
"""The year 2000. A clock with an earlier time has not been set yet: setting it is not a jump."""


def since_boot() -> int:
    """ns since the machine was started, including suspended time; a clock that cannot be set."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def is_beyond_any_pause(last: int, now: int) -> bool:
    """Whether `now` is so much later than `last`, the time of the newest record, that the clock must be wrong."""
    return last > UNSET_NS and now - last > MAX_PAUSE_NS


class RecordClock:
    """The clock of a log. `last`: the time of its newest record, 0 if there is none; `monotonic`: a clock in ns that
    cannot be set. For one thread at a time."""

    def __init__(self, last: int, clock: Callable[[], int], monotonic: Callable[[], int] = since_boot) -> None:
        self._last, self._clock, self._monotonic = last, clock, monotonic
        self._checked_at: tuple[int, int] | None = None
        self._next_check = 0
        self._is_behind = False

    def next(self) -> int:
        """The next timestamp, ns since the epoch. Raises Unavailable while the clock is far ahead."""
        now = self._clock()
        if now <= self._last:
            if self._last - now > MAX_JUMP_NS and not self._is_behind:
                self._is_behind = True
                log.warning(
                    "the clock shows %s, but the newest record has the time %s: until the clock catches up, times of"
                    " new records continue from there; set the clock if it is wrong",
                    _text(now),
                    _text(self._last),
                )
            now = self._last + 1
        elif now > self._next_check:
            self._check(now)
        self._last = now
        return now

    def _check(self, now: int) -> None:
        monotonic = self._monotonic()
        if self._checked_at is not None:
            time_then, monotonic_then = self._checked_at
            if time_then > UNSET_NS and now - time_then - (monotonic - monotonic_then) > MAX_JUMP_NS:
                self._refuse(now, "while this log was open; set it right, or open the log again if it is right now")
        if is_beyond_any_pause(self._last, now):
            self._refuse(now, "by more than ten years; set it right, or if it is right, export the data to a new log")
        self._checked_at, self._next_check = (now, monotonic), now + MAX_JUMP_NS

    def _refuse(self, now: int, details: str) -> None:
        reason = f"the clock of this machine has jumped ahead, from {_text(self._last)} to {_text(now)}, {details}"
        log.error("writes are refused: %s", reason)
        raise Unavailable(f"nothing was written: {reason}")


def _text(time_ns: int) -> str:
    seconds = min(time_ns // 1_000_000_000, 253_402_300_799)
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
