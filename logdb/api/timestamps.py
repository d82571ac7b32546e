"""Points in time: the log counts nanoseconds since the epoch, people and Python have dates.

One rule for a date or a text that names no time zone: inside Spark it is in the zone of Spark's session, everywhere
else in local time.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Final

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799


def moment(time: int) -> dt.datetime:
    """The date (UTC) of a time in ns since the epoch, rounded up to µs, so that it is not before `time`."""
    return _EPOCH + dt.timedelta(microseconds=-(-time // 1_000))


def nanoseconds(time: dt.datetime | float) -> int:
    """A date (without a zone: local time), or seconds since the epoch, as ns since the epoch, in the years 1 to 9999.

    Raises TypeError, ValueError.
    """
    if isinstance(time, dt.datetime):
        try:
            return (time.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1) * 1_000
        except (OverflowError, ValueError) as error:
            raise ValueError(f"a time must be in the years 1 to 9999 UTC: {time}") from error
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise TypeError(f"a time must be a datetime or seconds since the epoch, not {type(time).__name__}")
    if isinstance(time, float) and not math.isfinite(time):
        raise ValueError(f"a time must be a finite number of seconds since the epoch, not {time}")
    return int(min(max(time, _FIRST_S), _LAST_S) * 1_000_000_000)


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


def names_zone(text: str) -> bool:
    """Whether the time that a text means depends on no zone but what the text itself names. Raises ValueError."""
    return _read(text).tzinfo is not None


def _read(text: str) -> dt.datetime:
    """ISO 8601 comes first: 20240501 is a date, and as seconds it would be in 1970."""
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return _EPOCH + dt.timedelta(microseconds=round(float(text) * 1_000_000))
