"""The options of the data source `logdb`, checked: an error names the option that is wrong.

Spark ignores the case of an option's name and passes all values as text.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from logdb.api import timestamps
from logdb.errors import KeyTooLarge
from logdb.store.limits import MAX_KEY_BYTES
from logdb.store.ranges import MAX_BOUND_BYTES, after_prefix
from spark_export.catalog_tables import OF_CATALOG
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
    ("startingVersion", "startingTimestamp"),
    ("endingVersion", "endingTimestamp"),
    ("maxRowsPerTrigger", "maxBytesPerTrigger"),
    ("oldValues", "updateImages"),
)
ALIASES: Final = {"atVersion": "versionAsOf", "atTime": "timestampAsOf"}
"""Names that Spark leaves to the source in queries of its catalog's tables; it takes the others as time travel."""
SERVERS: Final = ("endpoints", "timeout", "ca", "certificate", "certificateKey", "token", "scratch")


OF_SPARK: Final = frozenset(
    (
        *OF_CATALOG,
        *("checkpointlocation", "queryname", "outputmode", "transient_lastddltime", "serialization.format"),
        *("mergeschema", "inferschema", "pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter"),
        *("ignorecorruptfiles", "ignoremissingfiles", "maxfilespertrigger", "__partition_columns"),
    )
)
"""Options, in lower case, that Spark adds or that programs give to every source; they are ignored."""
_PREFIXES_OF_SPARK: Final = ("spark.", "option.", "fs.")


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those of Spark."""
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in OF_SPARK and not name.lower().startswith(_PREFIXES_OF_SPARK)
    }


class Options:
    """The options of a query, by their names in `allowed`, without those of Spark. Raises ValueError for another
    name."""

    def __init__(self, options: Mapping[str, str], allowed: tuple[str, ...]) -> None:
        names = {name.lower(): name for name in allowed}
        names |= {alias.lower(): name for alias, name in ALIASES.items() if name in allowed}
        self._values: dict[str, str] = {}
        for name, value in given_options(options).items():
            if name.lower() not in names:
                raise ValueError(f"the data source logdb has no option {name!r} here; it has {', '.join(allowed)}")
            if names[name.lower()] in self._values:
                raise ValueError(f"the option {names[name.lower()]} is given twice, once as {name}")
            self._values[names[name.lower()]] = value
        for one, other in EXCLUSIVE:
            if one in self._values and other in self._values:
                raise ValueError(f"give {one} or {other}, but not both")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, name: str, default: str | None = None) -> str | None:
        """The text of an option."""
        return self._values.get(name, default)

    def location(self) -> Location:
        """The directory (absolute) or the servers. Raises ValueError."""
        if "path" in self._values:
            for name in SERVERS[1:]:
                if name in self._values:
                    raise ValueError(f"{name} goes with endpoints, not with a path")
            return local_path(self._values["path"])
        if "endpoints" not in self._values:
            raise ValueError(
                'the data source logdb needs a directory, .load("data"), or servers: .option("endpoints", "host:port").'
                " Spark does not pass the options of a table that was created with a list of columns: create it without"
                " one, or query it WITH (path = ...)"
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

    def lacks_zone(self, name: str) -> bool:
        """Whether the option is a time without a zone."""
        text = self._values.get(name)
        try:
            return text is not None and not timestamps.names_zone(text)
        except (ValueError, OverflowError):
            return False  # `time_ns` refuses it

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


def local_path(text: str) -> Path:
    """The absolute path of a directory, which may be a URI with `file:`, as Spark writes it. Raises ValueError."""
    scheme, host, path = _URI.fullmatch(text).groups()  # type: ignore[union-attr]
    if scheme not in (None, "file") or host not in (None, "", "localhost"):
        raise ValueError(f"path must be a directory that all machines see as a file system, not {text!r}")
    return Path(path).absolute()


_URI: Final = re.compile(r"(?:([a-z][a-z0-9+.-]+):)?(?:(?<=:)//([^/]*))?(.*)", re.DOTALL)


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
