"""Keys that expire: which keys a commit adds to a write with a time to live.

    (None, "logdb.expiring", ttl) version index     the key that was written with this time to live, by the commit at
                                                    this version, which makes the key (`Transaction.append`)
    (None, "logdb.retention", 2, ttl)               what the sweeps know about these (`marks.py`)

The keys with one time to live (in ms) are in the order in which they expire. Times are rounded up to five binary
digits, so that there are at most 32 times between one and its double, whatever programs ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from logdb.keys import Subspace, unpack
from logdb.named_logs.retention import RETENTION, check_seconds, in_ms
from logdb.store.records import APPENDED_BYTES, VERSION_BYTES, unversioned_key

EXPIRING: Final = Subspace(None, "logdb.expiring")
TTL_MARKS: Final = RETENTION.subspace(2)
DIGITS: Final = 6
"""Number of leading binary digits of a time to live that are kept."""


def ttl_ms(ttl: float) -> int:
    """A time to live in seconds, in ms and rounded up to `DIGITS`. Raises TypeError, ValueError."""
    check_seconds("ttl", ttl)
    wanted = in_ms(ttl)
    unit = 1 << max(wanted.bit_length() - DIGITS, 0)
    return -(-wanted // unit) * unit


def prefix_of(ttl: int) -> bytes:
    """The prefix of the rows of a time to live in ms."""
    return EXPIRING.pack((ttl,))


def ttl_in(row: bytes) -> int:
    """The time to live, in ms, in the key of a row. Raises ValueError: programs can write any key."""
    items = unpack(row[len(EXPIRING.pack()) : -APPENDED_BYTES])
    if len(items) != 1 or type(items[0]) is not int or items[0] < 1:
        raise ValueError(f"{row!r:.100} is not a row of a key that expires")
    return items[0]


def place_in(row: bytes, prefix: bytes) -> bytes:
    """The place (version and index) in the key of a row. Places are ordered as the keys, whatever their lengths."""
    return row[len(prefix) :][:APPENDED_BYTES].ljust(APPENDED_BYTES, b"\0")


def version_in(row: bytes, prefix: bytes) -> int:
    """The version in the key of a row."""
    return int.from_bytes(place_in(row, prefix)[:VERSION_BYTES])


def expiry_rows(ttls: Iterable[tuple[bytes, int]]) -> dict[bytes, bytes]:
    """The rows of keys and their times to live (in ms): appends of the commit that writes the keys."""
    counts: dict[int, int] = {}
    rows: dict[bytes, bytes] = {}
    for key, ttl in ttls:
        index = counts[ttl] = counts.get(ttl, -1) + 1
        rows[unversioned_key(prefix_of(ttl), index)] = key
    return rows


def with_expiry(items: Mapping[bytes, bytes | None], ttl: float | None) -> tuple[Mapping[bytes, bytes | None], int]:
    """These writes with the rows that let them expire after `ttl` seconds (None: never), and the number of rows.
    Raises TypeError, ValueError."""
    if ttl is None:
        return items, 0
    rounded = ttl_ms(ttl)
    rows = expiry_rows((key, rounded) for key, value in items.items() if value is not None)
    return {**items, **rows}, len(rows)


def size_of_rows(keys: Collection[bytes], ttl: int) -> int:
    """The size in bytes of the rows of these keys."""
    return len(keys) * (len(prefix_of(ttl)) + APPENDED_BYTES) + sum(map(len, keys))
