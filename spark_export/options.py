"""The options of the data source `logdb`, checked: an error names the option that is wrong.

Spark ignores the case of an option's name and passes all values as text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from logdb.api import timestamps
from logdb.errors import KeyTooLarge
from logdb.store.limits import MAX_KEY_BYTES
from logdb.store.ranges import MAX_BOUND_BYTES, after_prefix
from spark_export.decoding import EVERYTHING, KeyRange
from spark_export.endpoints import TIMEOUT_S, Endpoints
from spark_export.snapshot_source import Location

EXCLUSIVE: Final = (
    ("versionAsOf", "timestampAsOf"),
    ("prefix", "prefixHex"),
    ("startKey", "startKeyHex"),
    ("endKey", "endKeyHex"),
    ("path", "snapshot"),
    ("path", "endpoints"),
    ("endpoints", "snapshot"),
    ("snapshot", "versionAsOf"),
    ("snapshot", "timestampAsOf"),
)
SERVERS: Final = ("endpoints", "timeout", "ca", "certificate", "certificateKey", "token", "scratch")


class Options:
    """The options of a query, by their names in `allowed`. Raises ValueError for any other name."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in allowed}
        self._values: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in names:
                raise ValueError(f"the data source logdb has no option {name!r} here; it has {', '.join(allowed)}")
            self._values[names[name.lower()]] = value
        for one, other in EXCLUSIVE:
            if one in self._values and other in self._values:
                raise ValueError(f"give {one} or {other}, but not both")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        """The text of an option."""
        return self._values.get(name, default)

    def location(self) -> Location:
        """The directory (absolute) or the servers. Raises ValueError."""
        if "path" in self._values:
            for name in SERVERS[1:]:
                if name in self._values:
                    raise ValueError(f"{name} goes with endpoints, not with a path")
            return Path(self._values["path"]).absolute()
        if "endpoints" not in self._values:
            raise ValueError(
                'the data source logdb needs a directory, .load("data"), or servers: .option("endpoints", "host:port")'
            )
        values = self._values
        return Endpoints.of(
            values["endpoints"],
            timeout_s=self.number("timeout", minimum=1) or TIMEOUT_S,
            ca=values.get("ca"),
            certificate=values.get("certificate"),
            certificate_key=values.get("certificateKey"),
            token=values.get("token"),
        )

    def number(self, name: str, *, minimum: int, maximum: int | None = None) -> int | None:
        """A whole number; None without the option. Raises ValueError."""
        text = self._values.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and int(text) >= minimum):
            raise ValueError(f"{name} must be a whole number from {minimum} on, not {text!r}")
        if maximum is not None and int(text) > maximum:
            raise ValueError(f"{name} can be {maximum:,} at most, not {text}")
        return int(text)

    def flag(self, name: str) -> bool:
        """Whether an option is true (default: false). Raises ValueError."""
        text = self._values.get(name, "false").lower()
        if text not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, not {text!r}")
        return text == "true"

    def choice(self, name: str, values: tuple[str, ...]) -> str | None:
        """One of some values; None without the option. Raises ValueError."""
        text = self._values.get(name)
        if text is not None and text not in values:
            raise ValueError(f"{name} must be {' or '.join(values)}, not {text!r}")
        return text

    def time_ns(self, name: str, zone: dt.tzinfo | None) -> int | None:
        """A time in ns since the epoch; without a zone it is in `zone` (None: local time). Raises ValueError."""
        text = self._values.get(name)
        try:
            return None if text is None else timestamps.nanoseconds(timestamps.parsed(text, zone))
        except ValueError as error:
            raise ValueError(f"{name} cannot be read: {error}") from None

    def key(self, name: str) -> bytes | None:
        """A key, as text, or in hexadecimal from the option of that name with Hex. Raises ValueError, KeyTooLarge."""
        text, digits = self._values.get(name), self._values.get(f"{name}Hex")
        try:
            key = text.encode() if text is not None else None if digits is None else bytes.fromhex(digits)
        except ValueError:
            raise ValueError(f"{name}Hex must be hexadecimal digits, not {digits!r}") from None
        if key is not None and len(key) > MAX_BOUND_BYTES:
            raise KeyTooLarge(len(key), MAX_KEY_BYTES, f", as {name},")
        return key

    def keys(self) -> KeyRange:
        """The intersection of prefix, startKey and endKey. Raises as `key`."""
        prefix, start, end = self.key("prefix") or b"", self.key("startKey") or b"", self.key("endKey")
        keys = EVERYTHING.within(prefix, after_prefix(prefix)).within(start, end)
        if end is not None and end < start:
            raise ValueError(f"endKey {self._shown('endKey')} comes before startKey {self._shown('startKey')}")
        return keys

    def _shown(self, name: str) -> str:
        return repr(self._values.get(name, self._values.get(f"{name}Hex")))


def zone_named(name: str | None) -> dt.tzinfo | None:
    """The time zone with a name as Spark uses; None is local time. Raises ValueError."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        offset = _OFFSET.fullmatch(name)
    if offset is None:
        raise ValueError(f"the time zone {name!r} of Spark's session is unknown here: name one in the time itself")
    sign, *parts = offset.groups()
    hours, minutes, seconds = (int(part or 0) for part in parts)
    ahead = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return dt.timezone(-ahead if sign == "-" else ahead)


_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
