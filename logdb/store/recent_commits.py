"""The newest commits of a log, decoded once for all change feeds that follow it.

They are kept in blocks, each the commits of a range of records, up to a number of bytes. A feed that is behind the
oldest block reads the log itself until it has caught up.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from logdb.store.records import Commit, Range, Value
from logdb.store.watched import Watched

MAX_SETS: Final = 8
"""A block keeps its part in this number of sets of watched keys; others are filtered anew."""
MAX_SET_BYTES: Final = 512
"""Larger sets are filtered anew, too: their keys would stay as long as the block."""
BLOCK_BYTES: Final = (1 << 10) + MAX_SETS * MAX_SET_BYTES
"""Size of a block without its commits."""
COMMIT_BYTES: Final = 200
"""Size of a commit without its payload, and of its part in a set of watched keys."""


class WatchedCommit(NamedTuple):
    """The part of a commit that a feed follows: its writes of watched keys, the deleted ranges of these, and the
    watched keys that only its folds write."""

    version: int
    time: int
    label: str
    writes: dict[bytes, Value]
    deleted: tuple[Range, ...]
    folds: tuple[bytes, ...] = ()


class OrderedCommit(NamedTuple):
    """A commit that was applied, the time of its record, and the size of the record's payload."""

    version: int
    time: int
    size: int
    commit: Commit


class CommitBlock:
    """The applied commits among the records `first` to `end` - 1."""

    __slots__ = ("_parts", "commits", "end", "first", "size")

    def __init__(self, first: int, end: int, commits: Sequence[OrderedCommit]) -> None:
        self.first, self.end, self.commits = first, end, commits
        self._parts: dict[Watched, list[WatchedCommit]] = {}
        self.size = BLOCK_BYTES + sum([commit.size + (1 + MAX_SETS) * COMMIT_BYTES for commit in commits])

    def part_of(self, watched: Watched) -> list[WatchedCommit]:
        """The commits that write or delete watched keys. The caller must not change the list."""
        found = self._parts.get(watched)
        if found is None:
            found = watched_commits(self.commits, watched)
            if len(self._parts) < MAX_SETS and watched.size <= MAX_SET_BYTES:
                self._parts[watched] = found
        return found


def watched_commits(commits: Sequence[OrderedCommit], watched: Watched) -> list[WatchedCommit]:
    """The commits that write or delete watched keys."""
    found = []
    for version, time, _, commit in commits:
        writes, deleted = watched.part_of(commit)
        folds = tuple(filter(watched.has, commit.folded_keys)) if commit.folds else ()
        if writes or deleted or folds:
            found.append(WatchedCommit(version, time, commit.label, writes, deleted, folds))
    return found


class RecentCommits:
    """The blocks from record `first` up to `end` - 1, without a gap; at least the newest one, and not more than
    `max_bytes` besides it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.restart(0)

    def restart(self, end: int) -> None:
        """Drop all blocks; the next one begins at record `end`."""
        self._blocks: list[CommitBlock] = []
        self.first = self.end = end
        self.size = 0

    def add(self, block: CommitBlock) -> None:
        """Add the block that begins at `end`."""
        assert block.first == self.end < block.end, (block.first, self.end, block.end)
        self._blocks.append(block)
        self.size += block.size
        self.end = block.end
        dropped = 0
        while self.size > self._max_bytes and dropped < len(self._blocks) - 1:
            self.size -= self._blocks[dropped].size
            dropped += 1
        del self._blocks[:dropped]
        self.first = self._blocks[0].first

    def part_of(self, first: int, watched: Watched) -> tuple[int, list[WatchedCommit]]:
        """(end, the commits from record `first` up to `end` - 1 that write or delete watched keys), of the block that
        has record `first`."""
        assert self.first <= first < self.end, (self.first, first, self.end)
        block = self._blocks[bisect_right(self._blocks, first, key=lambda block: block.first) - 1]
        found = block.part_of(watched)
        if first > block.first:
            found = [commit for commit in found if commit.version >= first]
        return block.end, found
