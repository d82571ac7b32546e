"""How long a named log keeps its entries, and the keys under which that is stored.

(None, "logdb.retention", 0, n)     the policy of the log `n`: a tuple (age in ms or None, size in bytes or None)
(None, "logdb.retention", 1, n)     what the sweeps know about its entries (`logdb.retention.marks`)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from logdb.keys import Subspace, pack, unpack

RETENTION: Final = Subspace(None, "logdb.retention")
POLICIES: Final = RETENTION.subspace(0)
LOG_MARKS: Final = RETENTION.subspace(1)
MAX_AGE_S: Final = 100 * 366 * 86_400
MAX_SIZE_BYTES: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a named log keeps its entries: for `age_s` seconds by the log's clock, and as many of the newest as have
    `size_bytes` bytes, with their ids and partition keys. A sweep deletes an entry that one of them does not keep;
    None: no limit.

    Raises TypeError, ValueError.
    """

    age_s: float | None = None
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.age_s is not None:
            check_seconds("age_s", self.age_s)
        if self.size_bytes is not None and type(self.size_bytes) is not int:
            raise TypeError(f"size_bytes must be an int, not {type(self.size_bytes).__name__}")
        if self.size_bytes is not None and not 0 < self.size_bytes <= MAX_SIZE_BYTES:
            raise ValueError(f"size_bytes must be from 1 to 2^62, not {self.size_bytes}")
        if self.age_s is None and self.size_bytes is None:
            raise ValueError("a Retention needs age_s, size_bytes or both; to keep all entries, use None instead of it")

    @property
    def age_ms(self) -> int | None:
        """The age in milliseconds, rounded up."""
        return None if self.age_s is None else in_ms(self.age_s)

    def encode(self) -> bytes:
        """The value of the policy's key."""
        return pack((self.age_ms, self.size_bytes))

    @classmethod
    def decode(cls, value: bytes) -> Retention:
        """The retention of a value that `encode` has made: the inverse of it. `value`: the bytes of a catalog row.
        Raises ValueError: programs can write any key."""
        try:
            age_ms, size_bytes = unpack(value)
            if type(age_ms) not in (int, type(None)):
                raise ValueError("the age is not an integer")
            return cls(None if age_ms is None else age_ms / 1_000, size_bytes)  # type: ignore[operator, arg-type]
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{value!r:.100} is not the retention of a log: {error}") from error


def in_ms(seconds: float) -> int:
    """Milliseconds, rounded up."""
    return ceil(round(seconds * 1_000, 3))


def check_seconds(name: str, seconds: float) -> None:
    """Raises TypeError, ValueError."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not 0.001 <= seconds <= MAX_AGE_S:
        raise ValueError(f"{name} must be from 0.001 seconds to 100 years, not {seconds}")


def check_retention(retention: object) -> None:
    """Raises TypeError."""
    if retention is not None and not isinstance(retention, Retention):
        raise TypeError(f"retention must be a logdb.Retention or None, not {type(retention).__name__}")
