"""The keys of the workloads, and the meaning of their values."""

from __future__ import annotations

LISTS = [b"list %d" % number for number in range(4)]
ACCOUNTS = [b"account %d" % number for number in range(5)]
CELLS = [b"cell %d" % number for number in range(3)]
KEYS = [*LISTS, *ACCOUNTS, *CELLS]
COUNTERS = [b"count %d" % number for number in range(2)]
"""The keys of folds, in some seeds. Other operations read them, and range deletes delete them."""
APPENDED = b"added ", b"added!"
"""The range of the keys that commits make. No range delete overlaps it."""
BALANCE = 100
"""The balance of an account that was never written, or was deleted."""


def elements_of(value: bytes | None) -> list[bytes]:
    """The elements of a list."""
    return value.split(b",") if value else []


def balance_of(value: bytes | None) -> int:
    """The balance of an account: its value is that and a unique name."""
    return BALANCE if value is None else int(value.partition(b" ")[0])


def is_within(key: bytes, start: bytes, end: bytes | None) -> bool:
    """Whether a key is in [start, end)."""
    return start <= key and (end is None or key < end)
