"""Points in time: the log counts nanoseconds since the epoch, people and Python have dates.

One rule for a date or a text that names no time zone: inside Spark it is in the zone of Spark's session, everywhere
else in local time.
"""

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


def parsed(text: str, zone: dt.tzinfo | None = None) -> dt.datetime:
    """The date that a text means: ISO 8601, or seconds since the epoch. `zone` is that of a text which names none; None
    is local time. Raises ValueError.
    """
    try:
        time = _read(text)
        return (time if time.tzinfo is not None else time.replace(tzinfo=zone)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time such as 2024-05-01T12:30:00+02:00, nor seconds since the epoch"
        ) from None


def _read(text: str) -> dt.datetime:
    """ISO 8601 comes first: 20240501 is a date, and as seconds it would be in 1970."""
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return _EPOCH + dt.timedelta(microseconds=round(float(text) * 1_000_000))
