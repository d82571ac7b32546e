"""Filters that Spark pushes down, as bounds on the key and on the version. Tasks do not decode rows outside of them.

Spark need not apply a filter that a bound expresses exactly. A list of keys becomes the range that contains them all,
and Spark applies it once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from logdb.store.ranges import after_prefix
from spark_export.decoding import KeyRange

Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In
NEVER_NULL: Final = ("key", "version", "_change_type", "_commit_version", "_commit_timestamp", "_commit_label")


class Bounds(NamedTuple):
    """A range of keys, and the versions from `minimum` to `maximum`."""

    keys: KeyRange
    minimum: int
    maximum: int

    def narrowed(self, filters: Iterable[Filter], version: str, plain: Collection[str]) -> tuple[Bounds, list[Filter]]:
        """Narrow the bounds by filters; returns them and the filters that Spark must apply. `version`: the column of
        versions; `plain`: the columns that are not fields of values."""
        bounds, left = self, list[Filter]()
        for one in filters:
            match one:
                case IsNotNull(attribute=(name,)) if name in NEVER_NULL and name in plain:
                    pass
                case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual() | In():
                    narrowed = bounds._by_key(one) if one.attribute == ("key",) and "key" in plain else None
                    if one.attribute == (version,) and version in plain:
                        narrowed = bounds._by_version(one)
                    bounds = narrowed or bounds
                    if narrowed is None or isinstance(one, In):
                        left.append(one)
                case StringStartsWith(attribute=("key",), value=str(prefix)) if "key" in plain:
                    start = prefix.encode()
                    bounds = bounds._replace(keys=bounds.keys.within(start, after_prefix(start)))
                case _:
                    left.append(one)
        return bounds, left

    def _by_key(self, one: Comparison) -> Bounds | None:
        values = one.value if isinstance(one, In) else (one.value,)
        if not values or not all(isinstance(key, bytes | bytearray | str) for key in values):
            return None
        keys = [key.encode() if isinstance(key, str) else bytes(key) for key in values]
        low, high = min(keys), max(keys)
        match one:
            case GreaterThan():
                keys_left = self.keys.within(low + b"\0", None)
            case GreaterThanOrEqual():
                keys_left = self.keys.within(low, None)
            case LessThan():
                keys_left = self.keys.within(b"", high)
            case LessThanOrEqual():
                keys_left = self.keys.within(b"", high + b"\0")
            case _:
                keys_left = self.keys.within(low, high + b"\0")
        return self._replace(keys=keys_left)

    def _by_version(self, one: Comparison) -> Bounds | None:
        versions = one.value if isinstance(one, In) else (one.value,)
        if not versions or not all(type(version) is int for version in versions):
            return None
        low, high = min(versions), max(versions)
        match one:
            case GreaterThan():
                return self._replace(minimum=max(self.minimum, low + 1))
            case GreaterThanOrEqual():
                return self._replace(minimum=max(self.minimum, low))
            case LessThan():
                return self._replace(maximum=min(self.maximum, high - 1))
            case LessThanOrEqual():
                return self._replace(maximum=min(self.maximum, high))
            case _:
                return self._replace(minimum=max(self.minimum, low), maximum=min(self.maximum, high))
