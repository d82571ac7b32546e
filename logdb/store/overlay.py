"""The part of the map that is in memory: the changes since the last checkpoint."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from logdb.store.ordered_keys import OrderedKeys
from logdb.store.range_deletions import RangeIndex
from logdb.store.records import Value

Entry = tuple[int, Value, "Entry | None"]
"""(version, value, the entry before it in the same overlay). Immutable, so readers need no lock."""

ENTRY_BYTES = 240
"""Memory of a version beside its key and value: tuple, integer, slots of dictionary and sorted list."""

BURY_AFTER: Final = 64
"""Number of versions after which a deleted key is buried. Snapshots of transactions are seldom older."""

MAX_UNBURIED: Final = 2 * BURY_AFTER
"""Number of keys that are looked up to find that none of them exists."""

MAX_GAPS: Final = 1_000
"""Number of gaps after which all are forgotten: scans that begin at other bounds each time use none of them."""

SAMPLES: Final = 16
"""Number of keys sampled for each part, to find parts of about the same size."""


class Gap(NamedTuple):
    """No key before `to`, or behind it in reverse, exists at version `at`."""

    to: bytes
    at: int


class Overlay:
    """Key -> chain of entries, newest first; `newest` is read without a lock, and written by one writer at a time.

    The value of version v is in the log record v, unless `moved` has key -> version -> (record, value).

    Keys are sorted lazily: a write collects new keys, a scan sorts them. `last`: the newest version of all entries.
    `is_plain`: every value is bytes, none deleted or large.

    Deleted keys are buried, in an index of their own, so that the consumer of a queue does not pass all keys that it
    has deleted. A buried key does not exist from version `buried_to` on, unless it is written again. Scans still look
    it up if a layer below has it, and at earlier versions.

    A scan takes the lock only if keys have to be sorted. `_changes` counts the changes of the indexes, each of which
    begins with `_is_torn`: a scan that finds another number afterwards has perhaps read an index during a change.

    `gaps`: what scans of the whole map have found at the bound where they began (`KeyMap._after_gap`).
    """

    def __init__(self) -> None:
        self.newest: dict[bytes, Entry] = {}
        self.moved: dict[bytes, dict[int, tuple[int, Value]]] = {}
        self.size = 0
        # Both are set before the entry becomes visible: a reader that reads them after an entry sees values that cover
        # it.
        self.last = 0
        self.is_plain = True
        self._fresh: list[bytes] = []
        self._ordered = OrderedKeys()
        self._deaths = deque[tuple[int, bytes]]()
        self._revived: list[bytes] = []
        self._buried: set[bytes] = set()
        self._buried_ordered = OrderedKeys()
        self.buried_to = 0
        self.gaps: dict[tuple[bytes | None, bool], Gap] = {}
        self._is_torn = False
        self._changes = 0
        self._sorting = threading.Lock()

    def apply(self, version: int, writes: Mapping[bytes, Value]) -> None:
        """Add `version`, which is newer than all others here, of every key that it wrote."""
        newest, size = self.newest, self.size
        self.last = version
        for key, value in writes.items():
            if value.__class__ is bytes:
                size += len(value)
            else:
                self.is_plain = False
                if value is None:
                    self._deaths.append((version, key))
            older = newest.get(key)
            if older is None:
                self._fresh.append(key)
            newest[key] = (version, value, older)
            if older is not None and older[1] is None:
                self._revived.append(key)
            size += ENTRY_BYTES + len(key)
        self.size = size

    def put(self, key: bytes, version: int, value: Value) -> None:
        """Add a version that is newer than all others here."""
        self.apply(version, {key: value})

    def insert(self, key: bytes, version: int, value: Value) -> None:
        """Add a version that may be older than others of the key, or replace its value."""
        newer = []
        self.is_plain = self.is_plain and type(value) is bytes
        self.last = max(self.last, version)
        entry = self.newest.get(key)
        if entry is None:
            self._fresh.append(key)
        while entry is not None and entry[0] > version:
            newer.append(entry)
            entry = entry[2]
        if entry is not None and entry[0] == version:
            entry = entry[2]
        entry = (version, value, entry)
        for above, kept, _ in reversed(newer):
            entry = (above, kept, entry)
        self.newest[key] = entry
        self._revived.append(key)
        self.size += ENTRY_BYTES + len(key) + (len(value) if value is not None else 0)

    def move(self, key: bytes, version: int, place: int, value: Value) -> None:
        """Record that the record at `place` has a copy of a version, which may be in a layer below."""
        self.moved.setdefault(key, {})[version] = place, value
        self.size += ENTRY_BYTES

    def has(self, key: bytes, version: int) -> bool:
        """Whether exactly this version is here."""
        entry = self.entry(key, version)
        return entry is not None and entry[0] == version

    def entry(self, key: bytes, at: int) -> Entry | None:
        """The newest entry of the key not after version `at`."""
        entry = self.newest.get(key)
        while entry is not None and entry[0] > at:
            entry = entry[2]
        return entry

    def keys(self, start: bytes | None, end: bytes | None, reverse: bool, limit: int, at: int = 0) -> list[bytes]:
        """Up to `limit` keys of [start, end), from the first, or from the last when `reverse`; without buried keys if
        none of them exists at version `at`."""
        changes = self._changes  # before `_is_torn` is read, see above
        if not (self._fresh or self._deaths or self._revived or self._is_torn) and at >= self.buried_to:
            found = self._ordered.between(start, end, reverse, limit)
            if self._changes == changes:
                return found
        with self._sorting:
            if self._fresh or self._deaths or self._revived or self._is_torn:
                self._sort(at)
            found = self._ordered.between(start, end, reverse, limit)
            if at < self.buried_to:
                found += self._buried_ordered.between(start, end, reverse, limit)
                found = sorted(found, reverse=reverse)[:limit]
            return found

    def _sort(self, at: int) -> None:
        """Bring the indexes up to date; `at`: see `_bury`. An interrupt (Ctrl-C) at any call leaves them torn, and the
        next one makes them anew."""
        fresh, deaths, was_torn = self._fresh, self._deaths, self._is_torn
        self._is_torn = True
        self._changes += 1
        entries = list(self.newest.items()) if was_torn else []  # their keys are fresh or were
        count = len(fresh)
        keys = fresh[:count]
        if was_torn:
            keys = list({key for key, _ in entries}.union(keys))
            self._ordered, self._buried_ordered, self._buried = OrderedKeys(), OrderedKeys(), set()
            deaths.clear()
            deaths.extend(sorted((entry[0], key) for key, entry in entries if entry[1] is None))
        if keys:
            self._ordered.add(keys)
            del fresh[:count]
        if deaths or self._revived:
            self._bury(at)
        self._is_torn = False

    def existing(self, start: bytes | None, end: bytes | None, at: int) -> bool:
        """Whether a key of [start, end) may exist at version `at` by its entries here."""
        keys = self.keys(start, end, False, MAX_UNBURIED, at)
        if len(keys) == MAX_UNBURIED:
            return True
        entries = [self.entry(key, at) for key in keys]
        return any(entry is not None and entry[1] is not None for entry in entries)

    def note_gap(self, bound: bytes | None, reverse: bool, to: bytes, at: int) -> None:
        """Note that a scan from `bound` at version `at`, which began when this was the highest layer, found nothing
        before `to`."""
        low, high = (to + b"\0", bound) if reverse else (bound, to)
        deleted = self.keys(low, high, reverse, MAX_UNBURIED - 1, at)
        if len(deleted) == MAX_UNBURIED - 1:
            to = deleted[-1]
        if len(self.gaps) >= MAX_GAPS:
            self.gaps.clear()
        self.gaps[bound, reverse] = Gap(to, at)

    def _bury(self, at: int) -> None:
        """Bury keys that were deleted well before version `at`, and bring back those that were written again."""
        deaths, revived, buried = self._deaths, self._revived, self._buried
        while deaths and deaths[0][0] <= at - BURY_AFTER:
            _, key = deaths.popleft()
            entry = self.newest.get(key)
            if entry is not None and entry[1] is None and key not in buried:
                self._ordered.remove(key)
                self._buried_ordered.add([key])
                self.buried_to = max(self.buried_to, entry[0])
                buried.add(key)
        while revived:
            key = revived.pop()
            entry = self.newest.get(key)
            if key in buried and entry is not None:
                if entry[1] is None:
                    self.buried_to = max(self.buried_to, entry[0])
                else:
                    self._dig_out(key)
                    self._ordered.add([key])

    def _dig_out(self, key: bytes) -> None:
        self._buried.remove(key)
        self._buried_ordered.remove(key)

    def rows(self, keys: list[bytes], at: int) -> list[tuple[bytes, bytes]] | None:
        """(key, newest value) of those of these keys that exist; None if some of them may be large, newer than version
        `at`, or removed meanwhile."""
        newest = self.newest
        rows: list[tuple[bytes, Any]] = []
        try:
            if self.is_plain and self.last <= at:
                for key in keys:
                    rows.append((key, newest[key][1]))  # noqa: PERF401 - which takes longer for a few rows
                if self.is_plain and self.last <= at:
                    return rows
                rows.clear()
            for key in keys:
                version, value, _ = newest[key]
                if version > at or (value is not None and value.__class__ is not bytes):
                    return None
                if value is not None:
                    rows.append((key, value))
            return rows
        except KeyError:  # a key that is being added or removed may be in only one of the two indexes
            return None

    def sorted_keys(self, limit: int) -> Iterator[list[bytes]]:
        """All keys, also those that only `moved` has, in order, in parts of about `limit`.

        Nothing may be added meanwhile. Other threads can run between parts and while keys are assigned to them.
        """
        newest, moved = self.newest, self.moved
        parts = (len(newest) + len(moved)) // limit + 1
        samples = sorted(islice(newest, 0, None, max(len(newest) // (parts * SAMPLES), 1)))
        bounds = samples[SAMPLES::SAMPLES] if parts > 1 else []
        buckets: list[list[bytes]] = [[] for _ in range(len(bounds) + 1)]
        for key in newest:
            buckets[bisect_right(bounds, key)].append(key)
        for key in moved:
            if key not in newest:
                buckets[bisect_right(bounds, key)].append(key)
        for bucket in buckets:
            bucket.sort()
            for first in range(0, len(bucket), limit):
                yield bucket[first : first + limit]

    def clear_gradually(self) -> None:
        """Remove the entries one by one: freeing a large overlay at once would block all threads meanwhile.

        For an overlay that no new read uses, since the layer below has all of its entries.
        """
        for entries in (self.newest, self.moved):
            while entries:
                entries.popitem()

    def live_at(self, floor: int, deleted: RangeIndex) -> Iterator[tuple[bytes, int, Value, int]]:
        """(key, version, value, GSN of the record that holds it) of each key that exists at version `floor`. `deleted`:
        the range deletes up to there."""
        for key, newest in list(self.newest.items()):
            entry: Entry | None = newest
            while entry is not None and entry[0] > floor:
                entry = entry[2]
            if entry is not None and entry[1] is not None and entry[0] >= deleted.newest(key):
                place, _ = self.moved.get(key, {}).get(entry[0], (entry[0], None))
                yield key, entry[0], entry[1], place

    def without(self, covered: int) -> Overlay:
        """A copy with the versions newer than `covered`."""
        rest = Overlay()
        for key, entry in self.newest.copy().items():
            kept: list[Entry] = []
            at: Entry | None = entry
            while at is not None and at[0] > covered:
                kept.append(at)
                at = at[2]
            for version, value, _ in reversed(kept):
                rest.put(key, version, value)
        return rest

    def prune(self, floor: int, deleted: RangeIndex) -> None:
        """Remove versions that only a read before version `floor` could see. For a map without a checkpoint. `deleted`:
        the range deletes up to `floor`."""
        self.keys(None, None, False, 0, floor + BURY_AFTER)  # sorts new keys, and takes the deletions up to there
        for key, newest in list(self.newest.items()):
            kept: list[Entry] = []
            entry: Entry | None = newest
            while entry is not None and entry[0] > floor:
                kept.append(entry)
                entry = entry[2]
            if entry is not None and entry[1] is not None and entry[0] >= deleted.newest(key):
                kept.append(entry)
            rebuilt: Entry | None = None
            for version, value, _ in reversed(kept):
                rebuilt = (version, value, rebuilt)
            if rebuilt is None:
                with self._sorting:
                    was_torn, self._is_torn = self._is_torn, True
                    self._changes += 1
                    del self.newest[key]
                    if not was_torn:
                        if key in self._buried:
                            self._dig_out(key)
                        else:
                            self._ordered.remove(key)
                    self._is_torn = was_torn
            else:
                self.newest[key] = rebuilt
