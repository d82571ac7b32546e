"""The rule that decides a transaction: a pure function of its commit record and of the map just before it.

Optimistic concurrency control (dissertation section 4.3), serializable without phantoms: a transaction aborts if a
key that it read has a version newer than its snapshot, or a range that it read has gained, lost or changed a key
since. A write that follows no read conflicts with nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from logdb.store.conditions import holds
from logdb.store.key_map import Changed
from logdb.store.overlay import Entry
from logdb.store.records import Commit, Place


class Reason(Enum):
    """Why a commit record was applied or not."""

    COMMITTED = "committed"
    CONFLICT = "something that it read had changed"
    CONDITION = "a condition did not hold"
    DUPLICATE = "the log has an earlier record of the same transaction"
    TOO_OLD = "its snapshot was compacted away before it committed"
    DANGLING = "it refers to a record that is not before it in the log"
    NOT_A_NUMBER = "a key that it adds to holds no number"


class Verdict(NamedTuple):
    """How a commit record was decided.

    `key`, `version`, `in_range`: for CONFLICT, the change that it conflicts with. `key`: for NOT_A_NUMBER, too.
    `failed`: for CONDITION, the positions of the conditions that did not hold. `first`: for DUPLICATE, the GSN of the
    transaction's first record.
    """

    reason: Reason
    key: bytes = b""
    version: int = 0
    in_range: bool = False
    failed: tuple[int, ...] = ()
    first: int = 0

    @property
    def committed(self) -> bool:
        """Whether the writes were applied."""
        return self.reason is Reason.COMMITTED


COMMITTED = Verdict(Reason.COMMITTED)
SETTLED = (
    "nothing was committed: the transaction was settled as aborted before its commit record was ordered, or a"
    " compaction was ordered before its large values; begin it again"
)


class MapBefore(Protocol):
    """The part of the map that the rule reads, at version `at`."""

    def newer(self, key: bytes, since: int, at: int) -> int: ...
    def entry(self, key: bytes, at: int) -> Entry | None: ...
    def changed(self, start: bytes, end: bytes | None, since: int, at: int) -> Changed | None: ...


def validate(commit: Commit, gsn: int, floor: int, map_before: MapBefore) -> Verdict:
    """Decide the commit record at `gsn`; `floor` is the oldest version readable just before it."""
    for value in commit.writes.values():
        if isinstance(value, Place) and not 0 < value.gsn < gsn:
            return Verdict(Reason.DANGLING)
    before, snapshot = gsn - 1, commit.snapshot
    if snapshot < before and (commit.reads or commit.ranges):
        if snapshot < floor:
            return Verdict(Reason.TOO_OLD)
        for key in commit.reads:
            version = map_before.newer(key, snapshot, before)
            if version:
                return Verdict(Reason.CONFLICT, key, version)
        for start, end in commit.ranges:
            changed = map_before.changed(start, end, snapshot, before)
            if changed is not None:
                return Verdict(Reason.CONFLICT, changed.key, changed.version, in_range=True)
    if commit.conditions:
        failed = []
        for position, condition in enumerate(commit.conditions):
            entry = map_before.entry(condition.key, before)
            version, value = (0, None) if entry is None else entry[:2]
            if not holds(condition, version, value):
                failed.append(position)
        if failed:
            return Verdict(Reason.CONDITION, failed=tuple(failed))
    return COMMITTED
