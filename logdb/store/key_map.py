"""Key -> the versions still retained: an overlay in memory over a checkpoint on disk (Scalog-Store, section 3.4.2).

Three layers, read from the top: `active` has the newest commits, `frozen` is being written to the checkpoint, the
checkpoint has the rest. Each entry is immutable and every read has a version, so a reader takes the layers once and
needs no lock: a version that it can see is either in the layer that it reads, or in a lower one that it reads later.

Invariants:

MAP-1  The versions of a key grow: `apply` is called in log order, and a chain is sorted.
MAP-2  The contents of all layers together are a function of the log prefix: checkpoints change no result.
MAP-3  A layer is dropped only after the one below has all of its entries and has renewed its readers.
MAP-4  A checkpoint is pruned to a floor only when it covers the record that has moved the floor there: a restart begins
       with that floor, so it never reads a version that was removed.

Range deletes are kept beside the layers (`range_deletions.py`), which hold only what was written for single keys. A
reader takes the range deletes before it looks into a layer, and they are dropped only after the versions before them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple, overload

from logdb.log.contract import Trimmed
from logdb.store.checkpoint import LIVE, Checkpoint, Row, Snapshot
from logdb.store.overlay import Entry, Overlay
from logdb.store.range_deletions import NOTHING, RangeDeletions, RangeIndex
from logdb.store.records import DeletedRange, Range, Relocated, Value
from logdb.store.values import Values

SCAN_ROWS = 1_000
FIRST_ROWS, MAX_ROWS = 256, 512
"""A scan begins with small batches, since many scans are short. Larger ones cost less for each row, up to the size of
the processor's caches."""
BOUNDED_ROWS = 32
"""First batch of a range with an end, which may have few rows: a prefix, or one key."""
FEW_ABOVE = 4
"""Inserting one row into a sorted list takes as long as sorting this number of rows with it."""
KEY_OF, VALUE_OF = itemgetter(0), itemgetter(1)

FIRST_BATCHES = 6
"""Number of batches after which the first rows of a range are not read at once."""

Rows = Iterable[tuple[bytes, bytes]]
"""(key, value) in order, for one iteration."""
Batches = Generator[Rows, None, None] | tuple[list[tuple[bytes, bytes]]]
"""The rows of a scan. A tuple has all of them in one batch, which was read at once and has no more than the limit."""
LAST_VERSION = (1 << 64) - 1


class Passed(list[tuple[bytes, bytes]]):
    """An empty batch: the scan has passed keys that do not exist, and goes on. `rest`: the bound of the rest of its
    range: its start, or its end when `reverse`."""

    __slots__ = ("rest",)

    def __init__(self, rest: bytes) -> None:
        super().__init__()
        self.rest = rest


class Changed(NamedTuple):
    """The first conflicting version that `KeyMap.changed` has found."""

    key: bytes
    version: int


class KeyMap:
    """The map of one log. The caller serializes `apply` and `relocate`; any thread may read.

    `deletions`: the range deletes retained, None if there are none.
    """

    def __init__(self, values: Values, checkpoint: Checkpoint | None) -> None:
        self.values = values
        self.checkpoint = checkpoint
        self.active = Overlay()
        self.frozen: Overlay | None = None
        self.deletions: RangeDeletions | None = None

    @property
    def live_bytes(self) -> int:
        """Estimated size in bytes of the compacted log. An upper estimate: versions that a newer overlay or run has
        superseded count until the two are merged."""
        frozen, checkpoint = self.frozen, self.checkpoint
        live = self.active.size if frozen is None else self.active.size + frozen.size
        return live if checkpoint is None else live + checkpoint.live_bytes

    @property
    def is_ahead_of_disk(self) -> bool:
        """Whether a checkpoint is being written that is smaller than the changes since it began."""
        frozen = self.frozen
        return frozen is not None and self.active.size > frozen.size

    # ---- applying the log

    def apply(self, version: int, writes: Mapping[bytes, Value], deletes: Sequence[Range] = ()) -> None:
        """Apply the commit at `version`, which is after every version applied before: the ranges that it deletes, and
        then its writes."""
        if deletes:
            if self.deletions is None:
                self.deletions = RangeDeletions()
            self.deletions.add(version, deletes)
        self.active.apply(version, writes)

    def add_deletions(self, ranges: Iterable[DeletedRange]) -> None:
        """Add range deletes of a checkpoint or a compaction, which may be there already."""
        if ranges := list(ranges):
            self.deletions = (self.deletions or RangeDeletions()).with_older(ranges)

    def drop_deletions(self, dropped: Callable[[DeletedRange], bool]) -> None:
        """Drop range deletes: the layers have no version before them that a read at the floor or later could see."""
        if self.deletions is not None:
            self.deletions = self.deletions.without(dropped) or None

    def deleted_to(self, version: int) -> RangeIndex:
        """The range deletes up to a version."""
        deletions = self.deletions
        return NOTHING if deletions is None else deletions.at(version)

    def deleted_at(self, key: bytes, at: int) -> int:
        """The version of the newest range delete of the key not after `at`, 0 if there is none."""
        deletions = self.deletions
        return 0 if deletions is None else deletions.newest(key, at)

    def relocate(self, gsn: int, entries: list[Relocated]) -> None:
        """Apply a relocation record: the record at `gsn` has copies of these versions, perhaps the only ones."""
        for key, version, value in entries:
            if self.active.has(key, version):
                self.active.insert(key, version, value)
            elif self.written_version(key, version) != version:
                # A rebuild after a trim, which removed the version's own record. No layer may hide a newer version.
                self._copy_newer(key, version)
                self.active.insert(key, version, value)
            self.active.move(key, version, gsn, value)

    def replace(self, key: bytes, version: int, value: Value) -> None:
        """Replace the value of a version, in whatever layer it is."""
        self._copy_newer(key, version)
        self.active.insert(key, version, value)

    def _copy_newer(self, key: bytes, version: int) -> None:
        """Copy the versions after `version` into `active`: no layer may hide a newer version."""
        at, entry = LAST_VERSION, self.active.newest.get(key)
        while entry is not None:
            if entry[0] <= version:
                return  # and so it has all newer ones
            at, entry = entry[0] - 1, entry[2]
        for found in self._written_to(key, at):
            if found[0] <= version:
                return
            self.active.insert(key, found[0], self._loaded(key, found)[1])

    # ---- points

    def entry(self, key: bytes, at: int) -> Entry | None:
        """The newest version of the key not after `at`: (version, value, ...); the value of a deletion is None.

        Reads the value of an older version from the log if it is no longer in memory.
        """
        return self._loaded(key, self._found(key, at))

    def value(self, key: bytes, at: int) -> Value:
        """The value of `entry`, without reading large values from the log."""
        entry = self.entry(key, at)
        return None if entry is None else entry[1]

    def written(self, key: bytes, at: int) -> Entry | None:
        """As `entry`, without range deletes."""
        return self._loaded(key, self._found_written(key, at))

    @overload
    def _loaded(self, key: bytes, found: Entry | Row) -> Entry: ...
    @overload
    def _loaded(self, key: bytes, found: Entry | Row | None) -> Entry | None: ...

    def _loaded(self, key: bytes, found: Entry | Row | None) -> Entry | None:
        if isinstance(found, Row):
            return found.version, self.values.written(found.place, key, found.version), None
        return found

    def _found(self, key: bytes, at: int) -> Entry | Row | None:
        """As `entry`; a row if its value must be read from the log."""
        deleted = self.deleted_at(key, at)  # before a layer is read, see above
        found = self._found_written(key, at)
        return found if not deleted or (found is not None and found[0] >= deleted) else (deleted, None, None)

    def _found_written(self, key: bytes, at: int) -> Entry | Row | None:
        entry = self.active.newest.get(key)
        while entry is not None:
            if entry[0] <= at:
                return entry
            entry = entry[2]
        frozen, checkpoint = self.frozen, self.checkpoint
        if frozen is not None:
            entry = frozen.entry(key, at)
            if entry is not None:
                return entry
        if checkpoint is None:
            return None
        row = checkpoint.row(key, at)
        if row is None:
            return None
        return _found_in(row)

    @overload
    def get(self, key: bytes, at: int, *, whole: Literal[True] = True) -> bytes | None: ...
    @overload
    def get(self, key: bytes, at: int, *, whole: Literal[False]) -> Value: ...

    def get(self, key: bytes, at: int, *, whole: bool = True) -> Value:
        """The value of the key at version `at`; None if it does not exist. `whole` False: the place of a large value
        instead. Raises Trimmed, Corruption."""
        if self.deletions is not None and self.deleted_at(key, at):
            entry = self.entry(key, at)
        else:
            entry = self.active.newest.get(key)
            if entry is None and self.frozen is None and self.checkpoint is not None:
                live = self.checkpoint.live_value(key)
                if live is not None and self.checkpoint.ceiling <= at:
                    return live
            if entry is None or entry[0] > at:
                entry = self.entry(key, at)
        if entry is None:
            return None
        value = entry[1]
        return value if value.__class__ is bytes or not whole else self.values.load(value)

    def get_many(self, keys: Sequence[bytes], at: int) -> list[bytes | None]:
        """The values of the keys, as of `get`. A record of the log with versions of several keys is read once."""
        values, found, waiting = self.values, list[bytes | None](), list[tuple[int, int, int]]()
        for key in keys:
            entry: Entry | Row | None
            if self.deletions is not None and self.deleted_at(key, at):
                entry = self._found(key, at)
            else:
                entry = self.active.newest.get(key)
                if entry is None and self.frozen is None and self.checkpoint is not None:
                    live = self.checkpoint.live_value(key)
                    if live is not None and self.checkpoint.ceiling <= at:
                        found.append(live)
                        continue
                if entry is None or entry[0] > at:
                    entry = self._found(key, at)
            if isinstance(entry, Row):
                waiting.append((entry.place, len(found), entry.version))
                found.append(None)
            else:
                found.append(None if entry is None else values.load(entry[1]))
        waiting.sort()
        for gsn, some in groupby(waiting, key=itemgetter(0)):
            writes = values.writes(gsn)
            for _, index, version in some:
                found[index] = values.load(values.among(writes, gsn, keys[index], version))
        return found

    def exist(self, keys: Sequence[bytes], at: int) -> list[bool]:
        """Whether each of the keys exists at version `at`. Does not read the log."""
        found = (self._found(key, at) for key in keys)
        return [isinstance(one, Row) or (one is not None and one[1] is not None) for one in found]

    def newer(self, key: bytes, since: int, at: int) -> int:
        """The newest version of the key not after `at`, if it is after `since`; else 0. Does not read the log."""
        found = max(self.deleted_at(key, at), self.written_version(key, at, since))
        return found if found > since else 0

    def written_version(self, key: bytes, at: int, since: int = 0) -> int:
        """The newest version of the key not after `at`, without range deletes; 0 if there is none, or perhaps if it is
        not after `since`."""
        entry = self.active.entry(key, at)
        frozen, checkpoint = self.frozen, self.checkpoint
        if entry is None and frozen is not None:
            entry = frozen.entry(key, at)
        if entry is not None:
            return entry[0]
        row = None if checkpoint is None or checkpoint.ceiling <= since else checkpoint.row(key, at)
        return 0 if row is None else row.version

    def history(self, key: bytes, at: int, floor: int) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of the key, newest first, from version `at` back to the one that is live at `floor`.

        Takes time in proportion to the number of versions that it returns, and once to that of the newer ones.
        """
        deletions = self.deletions  # before a layer is read, see above
        for found in self._written_to(key, at):
            written = found[0]
            while deletions is not None and (deleted := deletions.newest(key, at)) > written:
                if deleted <= floor:
                    return
                yield deleted, None
                at = deleted - 1
            if written <= floor and not isinstance(found, Row) and found[1] is None:
                return
            yield written, self._value_of(key, found)
            if written <= floor:
                return
            at = written - 1
        while deletions is not None and (deleted := deletions.newest(key, at)) > floor:
            yield deleted, None
            at = deleted - 1

    def _value_of(self, key: bytes, found: Entry | Row) -> bytes | None:
        """The value of a version that `_written_to` has returned, perhaps long ago."""
        try:
            return self.values.load(self._loaded(key, found)[1])
        except Trimmed:  # a compaction moved the value after it was looked up
            entry = self.written(key, found[0])
            return self.values.load(None if entry is None else entry[1])

    def _written_to(self, key: bytes, at: int) -> Iterator[Entry | Row]:
        """The versions of a key up to `at`, newest first, without range deletes; a row if its value must be read from
        the log. Each layer's chain is walked once: to find each version from the newest one is quadratic.

        A lower layer is taken only after the one above was read to its end (MAP-3).
        """
        for overlay in self._overlays():
            entry = overlay.entry(key, at)
            while entry is not None:
                yield entry
                at = entry[0] - 1
                entry = entry[2]
        checkpoint = self.checkpoint
        while checkpoint is not None and (row := checkpoint.row(key, at)) is not None:
            yield _found_in(row)
            at = row.version - 1

    def _overlays(self) -> Iterator[Overlay]:
        """The layers in memory, the lower one as it is after the upper one was read."""
        yield self.active
        if (frozen := self.frozen) is not None:
            yield frozen

    # ---- ranges

    def scan(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool = False, limit: int | None = None
    ) -> Generator[Rows, None, None]:
        """Batches of (key, value) of the keys that exist in [start, end) at version `at`, in order.

        Ends after at least `limit` (1 or more) rows; the last batch may have more. No batch takes long: where nothing
        exists, `Passed` follows `Passed`.
        """
        bound, active, is_begun = end if reverse else start, self.active, False
        if active.gaps and (bound, reverse) in active.gaps:
            start, end = self._after_gaps(start, end, at, reverse)
        max_rows, has_passed = _first_rows(start if reverse else end, limit), False
        for rows in self._batches(start, end, at, reverse, limit, max_rows):
            if not is_begun and isinstance(rows, Passed):
                has_passed = True
                active.note_gap(bound, reverse, rows.rest, at)
            elif not is_begun:
                is_begun = True
                if has_passed:
                    active.note_gap(bound, reverse, rows[0][0], at)
            yield rows

    def _batches(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int | None, max_rows: int
    ) -> Generator[list[tuple[bytes, bytes]], None, None]:
        """The batches of `scan`, the first one of about `max_rows`."""
        left = limit
        while True:
            rows, stop, rest = self._batch(start, end, at, reverse, max_rows)
            if stop is not None:
                rest = stop if reverse else stop + b"\0"
            if count := len(rows):
                yield rows
            elif rest is not None:
                yield Passed(rest)
            if rest is None:
                return
            if left is not None:
                left -= count
                if left <= 0:
                    return
            is_dense = left is not None and 2 * count >= max_rows
            max_rows = min(left if left is not None and is_dense else 4 * max_rows, MAX_ROWS)
            if reverse:
                end = rest
            else:
                start = rest

    def first(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int
    ) -> list[tuple[bytes, bytes]] | None:
        """The first `limit` rows of `scan`, read at once; None if that may take long, as many keys do not exist."""
        active, checkpoint = self.active, self.checkpoint
        is_alone = self.deletions is None and self.frozen is None and (checkpoint is None or not checkpoint.ceiling)
        if is_alone and not active.gaps:  # a map in memory, where `_batch` takes as long as the reading
            keys = active.keys(start, end, reverse, limit, at)
            found = active.rows(keys, at)
            is_alone = self.frozen is None and self.active is active
            if is_alone and found is not None and (len(found) == limit or len(keys) < limit):
                return found
        max_rows = limit if limit <= BOUNDED_ROWS else _first_rows(start if reverse else end, limit)
        bound = end if reverse else start
        if active.gaps and (bound, reverse) in active.gaps:
            start, end = self._after_gaps(start, end, at, reverse)
        rows, stop, rest = self._batch(start, end, at, reverse, max_rows)
        if len(rows) >= limit:
            return rows if len(rows) == limit else rows[:limit]
        if stop is not None:
            rest = stop if reverse else stop + b"\0"
        if rest is not None:
            start, end, is_gap = (start, rest, not rows) if reverse else (rest, end, not rows)
            left = limit - len(rows)
            for number, batch in enumerate(self._batches(start, end, at, reverse, left, min(4 * max_rows, left))):
                if number == FIRST_BATCHES:
                    return None
                rows += batch
            if is_gap and rows:
                active.note_gap(bound, reverse, rows[0][0], at)
        return rows if len(rows) <= limit else rows[:limit]

    def _after_gaps(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool
    ) -> tuple[bytes | None, bytes | None]:
        """The range without the gaps at its beginning: a scan in pages has noted one for each of its pages."""
        while (rest := self._after_gap(start, end, at, reverse)) != (start, end):
            start, end = rest
        return start, end

    def _after_gap(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool
    ) -> tuple[bytes | None, bytes | None]:
        """The range without its beginning, if a scan has found that nothing exists there, and nothing was written there
        since.

        The consumer of a queue would else pass all keys that it has deleted and that the checkpoint still has.
        """
        active, frozen, checkpoint = self.active, self.frozen, self.checkpoint
        gap = active.gaps.get((end if reverse else start, reverse))
        if gap is None or gap.at > at:
            return start, end
        if (frozen is not None and frozen.last > gap.at) or (checkpoint is not None and checkpoint.ceiling > gap.at):
            return start, end
        low, high = (gap.to + b"\0", end) if reverse else (start, gap.to)
        is_within = (start is None or start < gap.to) if reverse else (end is None or gap.to < end)
        if not is_within or active.existing(low, high, at) or self.active is not active:  # then it is being emptied
            return start, end
        return (start, low) if reverse else (high, end)

    def _batch(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, max_rows: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None, bytes | None]:
        """About `max_rows` rows of `scan`, the last key that was looked at, and, if that is None, where to continue:
        the start of the rest of the range, or its end when `reverse`. Both are None if nothing is left."""
        # Hot for short scans: no closure, no list that stays empty.
        deletions = self.deletions
        deleted, low, high = 0, start, end
        rest = stop = None
        if deletions is not None:  # before a layer is read, see above
            deleted, low, high = deletions.at(at).first(start, end, reverse)
            rest = low if reverse else high
            if rest == (start if reverse else end):
                rest = None
        active, frozen, checkpoint = self.active, self.frozen, self.checkpoint
        live = lower = upper = middle = None
        # A checkpoint without rows is not read, nor one whose rows in the range are all deleted.
        if checkpoint is not None and checkpoint.ceiling and checkpoint.ceiling >= deleted:
            if checkpoint.ceiling <= at:
                live, lower, stop = checkpoint.live_chunk(low, high, reverse, max_rows, deleted)
            if checkpoint.ceiling > at:
                live, lower, stop = _keys_below(checkpoint, low, high, reverse, max_rows)
            # Read the overlays up to the last key looked at in the checkpoint.
            if stop is not None:
                if reverse:
                    low = stop
                else:
                    high = stop + b"\0"
        if active.newest:
            upper = active.keys(low, high, reverse, max_rows, at)
        if frozen is not None:
            middle = frozen.keys(low, high, reverse, max_rows, at)
        if self.frozen is not frozen or self.active is not active:
            # A layer may have moved down between the two reads, and be missing from both: read again.
            return self._batch(start, end, at, reverse, max_rows)
        hides = active.buried_to or (frozen is not None and frozen.buried_to)
        if upper and not (live or middle or lower):
            rows = (not deleted and active.rows(upper, at)) or self._existing(active, upper, at, deleted)
            if len(upper) == max_rows:
                stop = upper[-1]
        elif not (upper or middle or lower or hides):
            rows = live or []
        else:
            stop = _cut_to_shortest(live, lower, (middle, upper), reverse, max_rows, stop)
            if hides:  # what lies below buried keys does not exist
                below = [key for key, _ in live or ()]
                if frozen is not None:
                    middle = [*(middle or ()), *filter(frozen.newest.__contains__, below)]
                    below += middle
                upper = [*(upper or ()), *filter(active.newest.__contains__, below)]
                if self.frozen is not frozen or self.active is not active:  # one that has moved down is emptied
                    return self._batch(start, end, at, reverse, max_rows)
            above: dict[bytes, bytes | None] = {}
            for overlay, keys in ((None, lower), (frozen, middle), (active, upper)):
                if keys:
                    above.update(self._rows(overlay, keys, at, deleted))
            rows = _merged(live or [], above, reverse)
        return rows, stop, rest

    def _existing(self, active: Overlay, keys: list[bytes], at: int, deleted: int) -> list[tuple[bytes, bytes]]:
        """The rows of keys that only `active` has."""
        return [(key, value) for key, value in self._rows(active, keys, at, deleted) if value is not None]

    def _rows(
        self, overlay: Overlay | None, keys: list[bytes], at: int, deleted: int
    ) -> list[tuple[bytes, bytes | None]]:
        """(key, value) of these keys of a layer, None if it does not exist. `overlay` None is the checkpoint. Layers
        above are read later."""
        newest = {} if overlay is None else overlay.newest
        rows: list[tuple[bytes, bytes | None]] = []
        for key in keys:
            entry = newest.get(key)
            if entry is not None and deleted <= entry[0] <= at:
                value = entry[1]
                if value is None or value.__class__ is bytes:
                    rows.append((key, value))
                    continue
            rows.append((key, self._value(key, at)))
        return rows

    def _value(self, key: bytes, at: int) -> bytes | None:
        try:
            return self.get(key, at)
        except Trimmed:  # a compaction moved the value after it was looked up
            return self.get(key, at)

    def changed(self, start: bytes, end: bytes | None, since: int, at: int) -> Changed | None:
        """The first key of [start, end) with a version after `since` and not after `at`, deletions included, also of
        ranges."""
        deletions = self.deletions
        deleted = None if deletions is None else deletions.changed(start, end, since, at)
        if deleted is None:
            return self._written_between(start, end, since, at)
        written = self._written_between(start, deleted.start + b"\0", since, at)
        if written is not None and written.key < deleted.start:
            return written
        return Changed(deleted.start, max(deleted.version, written.version if written is not None else 0))

    def _written_between(self, start: bytes, end: bytes | None, since: int, at: int) -> Changed | None:
        found: Changed | None = None
        for overlay in (self.active, self.frozen):
            changed = None if overlay is None else _changed(overlay, start, end, since, at)
            if changed is not None:  # a lower layer may have a change before that key (MAP-2)
                found, end = changed, changed.key
        checkpoint = self.checkpoint
        if checkpoint is None or checkpoint.ceiling <= since:
            return found
        position: bytes | None = start
        while position is not None:
            rows = checkpoint.chunk(position, end, False, SCAN_ROWS)
            for key, version in rows:
                if version > at:
                    older = checkpoint.row(key, at)
                    version = 0 if older is None else older.version
                if version > since:
                    return Changed(key, version)
            position = rows[-1][0] + b"\0" if len(rows) == SCAN_ROWS else None
        return found

    # ---- copying to another map

    def keys_from(self, start: bytes, max_rows: int) -> list[bytes]:
        """Up to `max_rows` keys from `start` on, in order, with any retained version, deletions of single keys
        included."""
        keys = set(self.active.keys(start, None, False, max_rows))
        if self.frozen is not None:
            keys.update(self.frozen.keys(start, None, False, max_rows))
        if self.checkpoint is not None:
            keys.update(key for key, _ in self.checkpoint.chunk(start, None, False, max_rows))
        return sorted(keys)[:max_rows]

    def newest_from(self, start: bytes, max_rows: int) -> list[tuple[bytes, int, Value]]:
        """(key, newest version, its value) of the keys of `keys_from`. Serialized with `apply` and `thaw`."""
        found: dict[bytes, tuple[int, Value]] = {}
        if self.checkpoint is not None:
            for key, row in self.checkpoint.rows(start, max_rows):
                found[key] = row.version, row.value
        for overlay in (self.frozen, self.active):
            if overlay is not None:
                for key in overlay.keys(start, None, False, max_rows):
                    found[key] = overlay.newest[key][:2]
        return [(key, *found[key]) for key in sorted(found)[:max_rows]]

    def versions(self, key: bytes, at: int) -> Iterator[tuple[int, Value, int]]:
        """(version, value, GSN of a record with a copy or 0) of all retained versions up to `at`, newest first, without
        range deletes."""
        moved = self.active.moved.get(key, {})
        for found in self._written_to(key, at):
            version, value, _ = self._loaded(key, found)
            yield version, value, moved[version][0] if version in moved else 0

    def insert(self, key: bytes, version: int, value: Value, copy: int) -> None:
        """Add a version of another map, as returned by its `versions`."""
        self.active.insert(key, version, value)
        if copy:
            self.active.move(key, version, copy, value)

    # ---- moving into the checkpoint

    def freeze(self) -> Overlay:
        """Begin a checkpoint: `active` becomes `frozen`. Serialized with `apply`."""
        assert self.frozen is None, "a checkpoint is in progress"
        frozen = self.active
        self.frozen = frozen
        self.active = Overlay()
        return frozen

    def thaw(self) -> None:
        """End a checkpoint: the checkpoint has all of `frozen`, and its readers see it (MAP-3)."""
        self.frozen = None

    def prune(self, floor: int) -> None:
        """Remove versions that only a read before version `floor` could see, of a map without a checkpoint."""
        self.active.prune(floor, self.deleted_to(floor))
        self.drop_deletions(lambda deleted: deleted.version <= floor)

    def adopt(self, snapshot: Snapshot) -> None:
        """Switch to a checkpoint that another process has written, and drop the entries that it covers. Serialized with
        `apply`."""
        assert self.checkpoint is not None
        self.checkpoint.switch(snapshot)
        self.active = self.active.without(self.checkpoint.covers)

    def check_invariants(self) -> None:
        """MAP-1 on both overlays; for tests and simulations."""
        for overlay in (self.active, self.frozen):
            for key, entry in [] if overlay is None else list(overlay.newest.items()):
                while entry[2] is not None:
                    assert entry[0] > entry[2][0], f"MAP-1: {key!r} has {entry[2][0]} after {entry[0]}"
                    entry = entry[2]


def _found_in(row: Row) -> Entry | Row:
    """An entry with the row's version and value; the row if its value must be read from the log."""
    return row if row.value is None and row.kind == LIVE else (row.version, row.value, None)


def _first_rows(bound: bytes | None, limit: int | None) -> int:
    """Size of the first batch of a scan. `bound`: the end of its range."""
    max_rows = FIRST_ROWS if bound is None else BOUNDED_ROWS
    return max_rows if limit is None or limit > max_rows else limit


def _merged(
    live: list[tuple[bytes, bytes]], above: dict[bytes, bytes | None], reverse: bool
) -> list[tuple[bytes, bytes]]:
    """The rows, with those of higher layers in their place; None removes a row."""
    if len(above) * FEW_ABOVE > len(live):
        rows: dict[bytes, bytes | None] = dict(live)
        rows.update(above)
        return [(key, value) for key, value in sorted(rows.items(), reverse=reverse) if value is not None]
    if reverse:
        live.reverse()
    for key, value in above.items():
        place = bisect_left(live, key, key=KEY_OF)
        behind = place + (place < len(live) and live[place][0] == key)
        live[place:behind] = () if value is None else ((key, value),)
    if reverse:
        live.reverse()
    return live


def _keys_below(
    checkpoint: Checkpoint, start: bytes | None, end: bytes | None, reverse: bool, max_rows: int
) -> tuple[None, list[bytes], bytes | None]:
    """As `Checkpoint.live_chunk`, of a checkpoint whose newest values may be too new."""
    keys = [key for key, _ in checkpoint.chunk(start, end, reverse, max_rows)]
    return None, keys, keys[-1] if len(keys) == max_rows else None


def _cut_to_shortest(
    live: list[tuple[bytes, bytes]] | None,
    lower: list[bytes] | None,
    overlays: Sequence[list[bytes] | None],
    reverse: bool,
    max_rows: int,
    stop: bytes | None,
) -> bytes | None:
    """Drop the rows and keys after the last key of an overlay that may have more. Returns the last key looked at."""
    full = [keys[-1] for keys in overlays if keys and len(keys) == max_rows]
    if not full:
        return stop
    stop = max(full) if reverse else min(full)
    for keys in (lower, *overlays):
        if keys and keys[-1] != stop:
            _cut(keys, stop, reverse, None)
    if live and live[-1][0] != stop:
        _cut(live, stop, reverse, KEY_OF)
    return stop


def _cut(rows: list[Any], stop: bytes, reverse: bool, key: Callable[[Any], bytes] | None) -> None:
    """Drop the rows after the key `stop`."""
    if reverse:
        del rows[len(rows) - bisect_left(rows[::-1], stop, key=key) :]
    else:
        del rows[bisect_right(rows, stop, key=key) :]


def _changed(overlay: Overlay, start: bytes, end: bytes | None, since: int, at: int) -> Changed | None:
    if overlay.last <= since:
        return None
    position: bytes | None = start
    while position is not None:
        keys = overlay.keys(position, end, False, SCAN_ROWS)
        for key in keys:
            entry = overlay.entry(key, at)
            if entry is not None and entry[0] > since:
                return Changed(key, entry[0])
        position = keys[-1] + b"\0" if len(keys) == SCAN_ROWS else None
    return None
