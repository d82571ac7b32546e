"""Points in time: the log counts nanoseconds since the epoch, people and Python have dates."""

from __future__ import annotations

import datetime as dt
from typing import Final

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def moment(time: int) -> dt.datetime:
    """The date (UTC) of a time in ns since the epoch, rounded up to µs: by then, what happened at `time` had."""
    return _EPOCH + dt.timedelta(microseconds=-(-time // 1_000))


def nanoseconds(time: dt.datetime | float) -> int:
    """A date (without a zone: local time), or seconds since the epoch, as ns since the epoch. Raises TypeError."""
    if isinstance(time, dt.datetime):
        return (time.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1) * 1_000
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TypeError(f"a time must be a datetime or seconds since the epoch, not {type(time).__name__}")
    return int(time * 1_000_000_000)
