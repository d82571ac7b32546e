"""Merging runs: which are due, and the rows of the run that takes their place."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final

from logdb.store.row_checksums import SEAL_BYTES, RawRow
from logdb.store.runs import (
    CHAIN,
    FOUND,
    GONE,
    KIND,
    KIND_AT,
    LARGE,
    LIVE,
    LIVE_END,
    OLDER,
    PLACED,
    OlderRows,
    Reader,
    Row,
    RunReader,
    RunWriter,
    aligned,
    merged_state,
    version_of,
    versions,
)

RATIO: Final = 4
"""So many groups of about the same size are merged."""
DISJOINT_RATIO: Final = 32
"""So many runs of about the same size in one group are merged."""
LEVEL_BYTES: Final = 4 << 20
"""Up to this size they are of the same level; on each further level they are up to the ratio larger."""
MAX_GROUPS: Final = 8
MAX_RUNS: Final = 128
SMALL_BYTES: Final = 64 << 20
"""A map up to this size consists of one run when it is closed."""
COPIED: Final = frozenset((LIVE, LARGE, LIVE | PLACED, LARGE | PLACED))
"""Kind and flags of rows that are copied as they are."""
VERSION: Final = Struct("<Q")
CHAIN_AT: Final = LIVE_END - CHAIN.size
OLDER_VERSION_AT: Final = LIVE_END + SEAL_BYTES
OLDER_KIND_AT: Final = KIND_AT + SEAL_BYTES
"""Where they stand from the end of a row with its seal, and of one without."""
MAX_AT_ONCE: Final = 10_000
"""A key with more older versions in a run is written version by version."""


def runs_due(groups: Sequence[Sequence[int]], *, closing: bool) -> int:
    """How many of the newest runs are to be merged; 0: none. `groups`: the bytes of each run of each group, from the
    oldest to the newest.

    Always the newest ones, so that small runs do not collect between large ones. Groups are merged with each other to
    bound what reads look at, and the space; the runs of a group only to bound the number of files.
    """
    if closing and sum(map(sum, groups)) <= SMALL_BYTES:
        count = sum(map(len, groups))
        return count if count > 1 else 0
    due = groups_due(groups)
    if due:
        return sum(map(len, groups[-due:]))
    return _newest_due(groups[-1], DISJOINT_RATIO) if groups else 0


def groups_due(groups: Sequence[Sequence[int]]) -> int:
    """How many of the newest groups are to be merged with each other."""
    count = len(groups)
    due = _newest_due(list(map(sum, groups)), RATIO)
    if not due and count > MAX_GROUPS:
        due = count - MAX_GROUPS + 1
    if not due and count > 1 and sum(map(len, groups)) > MAX_RUNS:
        due = max(count - max(range(count), key=lambda index: len(groups[index])), 2)
    return due


def _newest_due(sizes: Sequence[int], ratio: int) -> int:
    """How many of the newest are to become one, since `ratio` of about the same size have come together. One counts
    for the level of the largest that is newer."""
    count = len(sizes)
    levels = [_level(size, ratio) for size in sizes]
    for index in reversed(range(count - 1)):
        levels[index] = max(levels[index], levels[index + 1])
    first = next((levels.index(level) for level in levels if levels.count(level) >= ratio), count)
    while 0 < first < count:  # what comes out would be the one that is missing there
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


def merge_rows(readers: Reader, writer: RunWriter, floor: int, *, is_oldest: bool) -> Generator[int, object, None]:
    """Write what is in several groups, the newest first, as one run; yields keys looked at, step by step.

    What only a read before version `floor` could see is left out; a deletion only if `is_oldest`: nothing is below.
    """
    sources: dict[RunReader, OlderRows] = {}
    for parts in aligned(readers):
        found = [dict(rows) for _, rows in parts]
        newest: dict[bytes, bytes] = {}
        shared: set[bytes] = set()
        for rows in reversed(found):
            if newest:
                shared |= newest.keys() & rows.keys()
            newest.update(rows)
        of_part = [sources.get(run) or sources.setdefault(run, OlderRows(run)) for run, _ in parts]
        _merge_part(of_part, writer, floor, is_oldest, found, sorted(newest.items(), key=FOUND), shared)
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
) -> None:
    copied: list[RawRow] = []
    lookups = [(source, part.get) for source, part in zip(sources, found, strict=True)]
    for row in rows:
        key, raw = row
        if raw[KIND_AT] in COPIED and key not in shared:
            copied.append(row)
            continue
        if copied:
            writer.copy(copied)
            copied = []
        of_key = [(source, there) for source, get in lookups if (there := get(key)) is not None]
        if not put_again(writer, key, of_key, floor, is_oldest=is_oldest):
            kept = _kept(versions((source.reader, raw) for source, raw in of_key), floor, is_oldest)
            newest = next(kept, None)
            if newest is not None:
                writer.put(key, newest, kept)
    if copied:
        writer.copy(copied)


def put_again(
    writer: RunWriter, key: bytes, of_key: list[tuple[OlderRows, bytes]], floor: int, *, is_oldest: bool
) -> bool:
    """Write a key without decoding its rows. False, and nothing is written, where that cannot be: it has very many
    versions, some that are to be left out, or one that stands in several of the runs."""
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
            older += source.take(first, count)
            (oldest,) = VERSION.unpack_from(older[-1], len(older[-1]) + OLDER_VERSION_AT)
    if oldest <= floor:
        last = older[-1][OLDER_KIND_AT] if older else of_key[0][1][KIND_AT]
        if last & KIND == GONE and is_oldest:
            return False
        if older and _version_before_last(of_key[0][1], older) <= floor:
            return False
    writer.put_again(key, of_key[0][1], older)
    return True


def _version_before_last(newest: bytes, older: list[bytes]) -> int:
    if len(older) == 1:
        return version_of(newest)
    return int(VERSION.unpack_from(older[-2], len(older[-2]) + OLDER_VERSION_AT)[0])


def _kept(rows: Iterable[Row], floor: int, is_oldest: bool) -> Iterator[Row]:
    for row in rows:
        if row.version <= floor:
            if row.kind != GONE or not is_oldest:
                yield row
            return
        yield row


def kept_state(readers: Reader, *, is_oldest: bool) -> Iterator[tuple[bytes, bytes | None]]:
    """The rows of state of several groups, the newest first, as those of the run that takes their place."""
    for key, value in merged_state([reader.state() for reader in readers]):
        if value is not None or not is_oldest:
            yield key, value
