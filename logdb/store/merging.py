"""Merging runs: which are due, and the rows of the run that replaces them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

from logdb.store.range_deletions import NOTHING, RangeIndex
from logdb.store.row_checksums import CHECKSUM_BYTES, RawRow
from logdb.store.runs import (
    CHAIN,
    KIND,
    KIND_AT,
    LARGE,
    LIVE,
    LIVE_END,
    OLDER,
    PLACED,
    TOMBSTONE,
    OlderRows,
    Reader,
    Row,
    RunReader,
    RunWriter,
    aligned,
    merged_state,
    newest_rows,
    version_of,
    versions,
)

RATIO: Final = 4
"""Number of groups of about the same size at which they are merged."""
DISJOINT_RATIO: Final = 32
"""Number of runs of about the same size in one group at which they are merged."""
LEVEL_BYTES: Final = 4 << 20
"""Maximum size of a run or group of the lowest level; the maximum of each further level is larger by the ratio."""
MAX_GROUPS: Final = 8
MAX_RUNS: Final = 128
SMALL_BYTES: Final = 64 << 20
"""Maximum size of a map that is merged into one run when it is closed."""
COPIED: Final = frozenset((LIVE, LARGE, LIVE | PLACED, LARGE | PLACED))
"""Kind and flags of rows that are copied unchanged."""
VERSION: Final = Struct("<Q")
CHAIN_AT: Final = LIVE_END - CHAIN.size
OLDER_VERSION_AT: Final = LIVE_END + CHECKSUM_BYTES
OLDER_KIND_AT: Final = KIND_AT + CHECKSUM_BYTES
"""Offsets from the end of a row: `CHAIN_AT` with its checksum, `OLDER_...` without."""
MAX_AT_ONCE: Final = 10_000
"""Maximum number of older versions of a key in a run that are copied at once; more are written one by one."""


def runs_due(groups: Sequence[Sequence[int]], *, closing: bool) -> int:
    """How many of the newest runs are due for a merge. `groups`: the bytes of each run of each group, from the oldest
    to the newest. `closing`: a small map is merged into one run.

    A merge takes the newest runs, so that small runs do not collect between large ones. Groups are merged with each
    other to bound the number of lookups of a read, and the space; the runs of a group only to bound the number of
    files.
    """
    if closing and sum(map(sum, groups)) <= SMALL_BYTES:
        count = sum(map(len, groups))
        return count if count > 1 else 0
    due = groups_due(groups)
    if due:
        return sum(map(len, groups[-due:]))
    return _newest_due(groups[-1], DISJOINT_RATIO) if groups else 0


def groups_due(groups: Sequence[Sequence[int]]) -> int:
    """How many of the newest groups are due for a merge with each other."""
    count = len(groups)
    due = _newest_due(list(map(sum, groups)), RATIO)
    if not due and count > MAX_GROUPS:
        due = count - MAX_GROUPS + 1
    if not due and count > 1 and sum(map(len, groups)) > MAX_RUNS:
        due = max(count - max(range(count), key=lambda index: len(groups[index])), 2)
    return due


def _newest_due(sizes: Sequence[int], ratio: int) -> int:
    """How many of the newest are due for a merge: `ratio` of them are of the same level. The level of one is at least
    that of every newer one."""
    count = len(sizes)
    levels = [_level(size, ratio) for size in sizes]
    for index in reversed(range(count - 1)):
        levels[index] = max(levels[index], levels[index + 1])
    first = next((levels.index(level) for level in levels if levels.count(level) >= ratio), count)
    while 0 < first < count:  # the result may complete the level above: merge that, too
        above = levels[first - 1]
        if levels.count(above) < ratio - 1 or _level(sum(sizes[first:]), ratio) < above:
            break
        first = levels.index(above)
    return count - first


def _level(size: int, ratio: int) -> int:
    level = 0
    while size > LEVEL_BYTES:
        size //= ratio
        level += 1
    return level


def merge_rows(
    readers: Reader, writer: RunWriter, floor: int, *, is_oldest: bool, deleted: RangeIndex = NOTHING
) -> Generator[int, object, None]:
    """Write the rows of several groups, the newest first, as one run; yields the number of keys read in each step.

    Versions that only a read before version `floor` could see are left out; deletions among them only if `is_oldest`:
    the result is the oldest run. `deleted`: range deletes up to `floor`, whose keys have lost all versions before them.
    """
    sources: dict[RunReader, OlderRows] = {}
    for parts in aligned(readers):
        found = [dict(rows) for _, rows in parts]
        newest, shared = newest_rows(found)
        of_part = [sources.get(run) or sources.setdefault(run, OlderRows(run)) for run, _ in parts]
        _merge_part(of_part, writer, floor, is_oldest, found, newest, shared, deleted)
        yield len(newest)
    writer.put_state(kept_state(readers, is_oldest=is_oldest))


def _merge_part(
    sources: Sequence[OlderRows],
    writer: RunWriter,
    floor: int,
    is_oldest: bool,
    found: list[dict[bytes, bytes]],
    rows: list[RawRow],
    shared: set[bytes],
    deleted: RangeIndex,
) -> None:
    copied: list[RawRow] = []
    lookups = [(source, part.get) for source, part in zip(sources, found, strict=True)]
    for row in rows:
        key, raw = row
        before = deleted.newest(key) if deleted.last else 0
        if raw[KIND_AT] in COPIED and key not in shared:
            if not before or version_of(raw) >= before:
                copied.append(row)
            continue
        if copied:
            writer.copy(copied)
            copied = []
        of_key = [(source, there) for source, get in lookups if (there := get(key)) is not None]
        if before or not put_again(writer, key, of_key, floor, is_oldest=is_oldest):
            found_rows = versions((source.reader, raw) for source, raw in of_key)
            kept = _kept(found_rows, floor, is_oldest, before)
            newest = next(kept, None)
            if newest is not None:
                writer.put(key, newest, kept)
    if copied:
        writer.copy(copied)


def put_again(
    writer: RunWriter, key: bytes, of_key: list[tuple[OlderRows, bytes]], floor: int, *, is_oldest: bool
) -> bool:
    """Write a key without decoding its rows.

    Returns False, and writes nothing, if the key has very many versions, some before `floor` that must be left out, or
    one that is in several of the runs.
    """
    older: list[bytes] = []
    oldest = 0
    for source, raw in of_key:
        (version,) = VERSION.unpack_from(raw, len(raw) + LIVE_END)
        if older or oldest:
            if version >= oldest:
                return False
            older.append(writer.as_older(raw))
        oldest = version
        if raw[KIND_AT] & OLDER:
            first, count = CHAIN.unpack_from(raw, len(raw) + CHAIN_AT)
            if count > MAX_AT_ONCE:
                return False
            older += source.read(first, count)
            (oldest,) = VERSION.unpack_from(older[-1], len(older[-1]) + OLDER_VERSION_AT)
    if oldest <= floor:
        last = older[-1][OLDER_KIND_AT] if older else of_key[0][1][KIND_AT]
        if last & KIND == TOMBSTONE and is_oldest:
            return False
        if older and _version_before_last(of_key[0][1], older) <= floor:
            return False
    writer.put_again(key, of_key[0][1], older)
    return True


def _version_before_last(newest: bytes, older: list[bytes]) -> int:
    if len(older) == 1:
        return version_of(newest)
    return int(VERSION.unpack_from(older[-2], len(older[-2]) + OLDER_VERSION_AT)[0])


def _kept(rows: Iterable[Row], floor: int, is_oldest: bool, deleted: int) -> Iterator[Row]:
    for row in rows:
        if row.version < deleted:
            return
        if row.version <= floor:
            if row.kind != TOMBSTONE or not is_oldest:
                yield row
            return
        yield row


def kept_state(readers: Reader, *, is_oldest: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """The rows of state of the run that replaces several groups, the newest first."""
    for key, value in merged_state([reader.state() for reader in readers]):
        if value is not None or not is_oldest:
            yield key, value
