"""Reading a database for a page: keys, histories, commits and differences, each in a step of bounded cost.

A step ends after a number of rows, after `STEP_BYTES` of values or after `STEP_S`, and says where the next one begins.
Values of up to 64 MiB are read in batches of a few keys, of which a page keeps only the beginning.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from logdb.api.database import Database, Snapshot
from logdb.dashboard.notation import PREVIEW_BYTES
from logdb.errors import FutureVersion, VersionTrimmed
from logdb.store.ranges import after_prefix

ROWS: Final = 50
ENTRIES: Final = 25
COMMITS: Final = 50
CHANGED: Final = 100
EXAMINED: Final = 10_000
"""Commits that one step of a difference examines."""
STEP_BYTES: Final = 4 << 20
STEP_S: Final = 2.0
_BATCH: Final = 8
_SMALL_BYTES: Final = 64 << 10


class Shown(NamedTuple):
    """A value of which a page has the beginning."""

    size_bytes: int
    beginning: bytes


def _shown(value: bytes | None) -> Shown | None:
    return None if value is None else Shown(len(value), value[:PREVIEW_BYTES])


class Row(NamedTuple):
    """A key and its value."""

    key: bytes
    value: Shown


class KeyPage(NamedTuple):
    """Rows in the order of the keys. `following`: the first key of the next page, `has_previous`: whether there may
    be keys before the first one."""

    rows: list[Row]
    following: bytes | None
    has_previous: bool


def keys_from(snapshot: Snapshot, prefix: bytes, start: bytes) -> KeyPage:
    """The rows with this prefix from `start` on."""
    low, high = max(prefix, start), after_prefix(prefix) if prefix else None
    rows, more = _rows(snapshot, low, high, reverse=False)
    following = rows.pop().key if more and len(rows) > 1 else rows[-1].key + b"\0" if more else None
    return KeyPage(rows, following, bool(start) and start > prefix)


def keys_before(snapshot: Snapshot, prefix: bytes, end: bytes) -> KeyPage:
    """The last rows with this prefix before `end`."""
    if end <= prefix:
        return keys_from(snapshot, prefix, b"")
    rows, more = _rows(snapshot, prefix or None, end, reverse=True)
    if more and len(rows) > 1:
        rows.pop()
    rows.reverse()
    return KeyPage(rows, end, more) if rows else keys_from(snapshot, prefix, b"")


def _rows(snapshot: Snapshot, low: bytes | None, high: bytes | None, *, reverse: bool) -> tuple[list[Row], bool]:
    """(up to `ROWS` + 1 rows of [low, high), whether a row after the last but one exists)."""
    rows: list[Row] = []
    size, batch = 0, 1
    while len(rows) <= ROWS:
        limit = min(batch, ROWS + 1 - len(rows))
        found = list(snapshot.scan(low or None, high, reverse=reverse, limit=limit))
        rows += [Row(key, Shown(len(value), value[:PREVIEW_BYTES])) for key, value in found]
        if len(found) < limit:
            return rows, False
        largest = max(len(value) for _, value in found)
        size += sum(len(value) for _, value in found)
        if size > STEP_BYTES:
            break
        low, high = (low, found[-1][0]) if reverse else (found[-1][0] + b"\0", high)
        batch = _BATCH if largest <= _SMALL_BYTES else 1
    return rows, True


class Entry(NamedTuple):
    """A version of a key; `value` is None where it was deleted. `time`: None if it is not known any more."""

    version: int
    time: dt.datetime | None
    value: Shown | None


class HistoryPage(NamedTuple):
    """Versions of a key, newest first. `following`: where the next page begins."""

    entries: list[Entry]
    following: int | None


def history_of(db: Database, snapshot: Snapshot, key: bytes) -> HistoryPage:
    """The versions of `key` up to that of the snapshot."""
    found: list[tuple[int, Shown | None]] = []
    following, size = None, 0
    for version, value in snapshot.history(key):
        if len(found) >= ENTRIES or size > STEP_BYTES:
            following = version
            break
        found.append((version, _shown(value)))
        size += len(value or b"")
    return HistoryPage([Entry(version, time_of(db, version), value) for version, value in found], following)


def time_of(db: Database, version: int) -> dt.datetime | None:
    """When the version was written, None if that is not known any more."""
    try:
        return db.time_of(version)
    except (VersionTrimmed, FutureVersion):
        return None


class CommitRow(NamedTuple):
    """A commit. `keys`: the first few of its keys; `number`: of all keys and ranges that it changed."""

    version: int
    time: dt.datetime
    label: str
    keys: Sequence[bytes]
    number: int


def commits_up_to(db: Database, until: int, oldest: int) -> tuple[list[CommitRow], int | None]:
    """(the commits among the last `COMMITS` versions up to `until`, newest first; where the next page ends)."""
    since = max(oldest, until - COMMITS)
    rows = []
    if since < until:
        for change in db.watch(since=since, timeout=0):
            if change.version > until:
                break
            ranges = [start for start, _ in change.deleted]
            keys = [*change.changes, *ranges]
            when = dt.datetime.fromtimestamp(change.time / 1e9, dt.UTC)
            rows.append(CommitRow(change.version, when, change.label, keys[:3], len(keys)))
            if change.version == until:
                break
    return rows[::-1], since if since > oldest else None


class ChangedRow(NamedTuple):
    """A key whose value differs; None: it does not exist."""

    key: bytes
    before: Shown | None
    after: Shown | None


class Difference(NamedTuple):
    """The keys that differ between two versions, of those changed by the commits up to `reached`. `is_partial`: a
    commit or a deleted range had more keys than a step examines."""

    rows: list[ChangedRow]
    reached: int
    is_partial: bool


def difference(db: Database, before: int, after: int, prefix: bytes, since: int) -> Difference:
    """The keys with this prefix that the commits after `since` changed, and that differ between the two versions.
    One step: `reached` is `after` when there is no further one."""
    old, new = db.at(before), db.at(after)
    keys: set[bytes] = set()
    reached, is_partial = after, False
    deadline = time.monotonic() + STEP_S
    changes = db.watch(prefix or None, since=since, timeout=0) if since < after else iter(())
    for examined, change in enumerate(changes, 1):
        if change.version > after:
            break
        found = list(change.changes)
        for start, end in change.deleted:
            rows, more = _rows(old, *_within(prefix, start, end), reverse=False)
            found += [row.key for row in rows]
            is_partial |= more
        added = [key for key in found if key not in keys]
        keys.update(added[:CHANGED])
        is_partial |= len(added) > CHANGED
        if change.version == after:
            break
        if len(keys) >= CHANGED or examined >= EXAMINED or time.monotonic() > deadline:
            reached = change.version
            break
    return Difference(_compared(old, new, sorted(keys)), reached, is_partial)


def _within(prefix: bytes, start: bytes, end: bytes | None) -> tuple[bytes, bytes | None]:
    last = after_prefix(prefix) if prefix else None
    ends = [bound for bound in (end, last) if bound is not None]
    return max(prefix, start), min(ends) if ends else None


def _compared(old: Snapshot, new: Snapshot, keys: Sequence[bytes]) -> list[ChangedRow]:
    rows = []
    for first in range(0, len(keys), _BATCH):
        some = keys[first : first + _BATCH]
        was, now = old.multi_get(some), new.multi_get(some)
        rows += [
            ChangedRow(key, _shown(was.get(key)), _shown(now.get(key))) for key in some if was.get(key) != now.get(key)
        ]
    return rows
