"""The part of commits that a change feed follows: those that write or delete watched keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from logdb.store.ranges import after_prefix, common
from logdb.store.records import Commit, Range, Value

KEY_BYTES: Final = 128
"""Size of a watched key in memory beside its bytes."""


class Watched:
    """The keys of a feed: those that begin with `prefix`, and `keys`; None for both: all. `size`: in memory, in
    bytes."""

    def __init__(self, prefix: bytes | None, keys: Collection[bytes] | None) -> None:
        self._prefix, self._keys = prefix, None if keys is None else frozenset(keys)
        self.size = len(prefix or b"") + sum(map(len, self._keys or ())) + KEY_BYTES * len(self._keys or ())
        self._range: Range | None = None
        if prefix is not None:
            self._range = prefix, after_prefix(prefix)
        elif keys is None:
            self._range = b"", None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watched) and (self._prefix, self._keys) == (other._prefix, other._keys)

    def __hash__(self) -> int:
        return hash((self._prefix, self._keys))

    def has(self, key: bytes) -> bool:
        """Whether the key is watched."""
        if self._keys is not None and key in self._keys:
            return True
        if self._prefix is not None:
            return key.startswith(self._prefix)
        return self._keys is None

    def part_of(self, commit: Commit) -> tuple[dict[bytes, Value], tuple[Range, ...]]:
        """(writes of watched keys, deleted ranges of watched keys). Keys that are watched one by one and were in a
        deleted range are among the writes."""
        writes = {key: value for key, value in commit.writes.items() if self.has(key)}
        if not commit.deletes:
            return writes, ()
        deleted = []
        for start, end in commit.deletes:
            if self._range is not None and (part := common((start, end), self._range)) is not None:
                deleted.append(part)
            for key in self._keys or ():
                if start <= key and (end is None or key < end):
                    writes.setdefault(key, None)
        return writes, tuple(deleted)
