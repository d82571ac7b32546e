"""The result types of the verbs, shared by all faces and all backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from logdb.store.records import Condition, Range


class Found(dict[bytes, bytes]):
    """The keys of a multi-get that exist, with their values: a dict of one snapshot, whose version is `version`."""

    version: int

    def __init__(self, found: Iterable[tuple[bytes, bytes]], version: int) -> None:
        super().__init__(found)
        self.version = version


class Tested(NamedTuple):
    """How a test-and-multi-put ended.

    `committed`: whether the items were written. `version`: of its record in the log. `failed`: the conditions that did
    not hold.
    """

    committed: bool
    version: int
    failed: tuple[Condition, ...]


class HistoryEntry(NamedTuple):
    """A version of a key: `version`, and its `value`, None where it was deleted."""

    version: int
    value: bytes | None


class ShardHistory(NamedTuple):
    """The history of a key as its shard has it.

    `through`: the version up to which it is complete. `entries`: every version of the key up to that one, newest first.
    """

    through: int
    entries: list[HistoryEntry]


class Change(NamedTuple):
    """One committed transaction: an item of `Database.watch`.

    `version`: of the commit, and the cursor to resume from. `time`: nanoseconds since the epoch. `label`: of the
    transaction. `changes`: key -> value, or None where the key was deleted; only the keys that are watched. `deleted`:
    the ranges (start, end) whose keys were deleted before `changes` were made, as far as they are watched; the end None
    is the last key.
    """

    version: int
    time: int
    label: str
    changes: dict[bytes, bytes | None]
    deleted: tuple[Range, ...] = ()

    def with_deleted(self, keys: Iterable[bytes]) -> Change:
        """This change, with `keys`, those that existed in its deleted ranges, among its `changes`."""
        return self._replace(changes={**dict.fromkeys(keys), **self.changes})

    def applied_to(self, state: dict[bytes, bytes]) -> None:
        """Change `state`, the watched keys just before this commit, into those after it."""
        for start, end in self.deleted:
            for key in [key for key in state if start <= key and (end is None or key < end)]:
                del state[key]
        for key, value in self.changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value


class Compacted(NamedTuple):
    """The result of a compaction.

    `floor`: the oldest version that can still be read. `relocated`: the number of versions copied. `oldest_before`,
    `oldest_after`: the oldest record in the log before and after. `read_bytes`: of the map and of large values.
    `written_bytes`: of copies and of the rewritten map. `freed_bytes`: of the files that were removed.
    """

    floor: int
    relocated: int
    oldest_before: int
    oldest_after: int
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0
