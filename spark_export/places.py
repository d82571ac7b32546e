"""Locates the keys and values in the records of a log, for many records together.

A put writes one small value at fixed offsets of its record, so NumPy locates those of all puts at once. The items of
larger transactions, and of copies by a compaction, are of variable length: all such records are walked in step, first
the first item of each, then the second. When few records are left, because they have more items than the others, each
is walked alone.

`logdb.store.records` is the grammar.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from logdb.log.segments.format import FRAME_BYTES
from logdb.store.records import (
    APPENDED_BYTES,
    COMMIT,
    COMMIT_FLAGS,
    COMMIT_HEAD,
    COMMIT_MORE,
    COMPACTION,
    DELETED,
    FORMAT,
    HAS_APPENDS,
    HAS_DELETES,
    ITEM,
    PLACE,
    PLACED,
    RELOCATION,
    RELOCATION_HEAD,
    RELOCATION_VERSION,
    DeletedRange,
    MalformedRecord,
    decode_commit,
    decode_compaction,
)
from spark_export.checksums import Numbers, integers
from spark_export.frames import LENGTH_AT, Frames

IN_STEP: Final = 16
"""The least number of records that are walked in step."""

Flags = npt.NDArray[np.bool_]
_LENGTH: Final = Struct("<I")
_APPENDS: Final = Struct("<I")
_TIME_AT: Final = 16
_TAG_AT: Final = 24
_COUNT_AT: Final = COMMIT_HEAD.size - 4
_PUT_BYTES: Final = COMMIT_HEAD.size + ITEM.size
_LABEL_BYTES_AT: Final = 8
_UNKNOWN: Final = "its format or its flags are unknown"
_TOO_SHORT: Final = "it is too short"
_TOO_LONG: Final = "an item ends behind it"
_NO_APPEND: Final = "a key that it appends is too short"
_TRAILING: Final = "there is something after its items"


class Places(NamedTuple):
    """The items of records, in the order of the log, with the offsets of key and value.

    `value_bytes`: the size of the value, DELETED, or PLACED for the location of a large value. `record`: the index of
    the record. `is_append`: whether the version is missing in the key as the record has it (`records.versioned_key`).
    """

    key_at: Numbers
    value_at: Numbers
    value_end: Numbers
    value_bytes: Numbers
    version: Numbers
    record: Numbers
    is_append: Numbers


class RangeDeletion(NamedTuple):
    """A range delete, the time of its record, and the keys that the same commit has written."""

    deleted: DeletedRange
    time: int
    written: frozenset[bytes]


class Records(NamedTuple):
    """Some records: the frames that contain them, their GSNs, and the offsets of their frames."""

    file: Frames
    gsns: Numbers
    starts: Numbers

    def times(self, of: Numbers) -> Numbers:
        """When these records were written, ns since the epoch."""
        return integers(self.file.data, self.starts[of] + _TIME_AT, "<i8")

    def places(self, aborted: Numbers, version: int, *, copies: bool) -> Places:
        """Locate the writes of the commits up to a version that were not aborted; with `copies` also those that a
        compaction has copied. Raises Corruption."""
        data = self.file.data
        tags = integers(data, self.starts + _TAG_AT, "u1")
        commits = np.flatnonzero((tags == COMMIT) & (self.gsns <= version) & ~np.isin(self.gsns, aborted))
        puts, others = self._puts(commits)
        found = [puts]
        if len(others):
            found += self._walked(self._transactions(others))
        if copies and len(relocations := np.flatnonzero(tags == RELOCATION)):
            found += self._walked(self._copies(relocations))
        if len(found) == 1:
            return puts
        items = Places(*map(np.concatenate, zip(*found, strict=True)))
        visible = np.flatnonzero(items.version <= version)
        order = visible[np.argsort(items.key_at[visible], kind="stable")]
        return Places(*(column[order] for column in items))

    def labels(self) -> Iterator[tuple[int, str]]:
        """(GSN, label) of the commits that have a label; call `places` first, which checks the records."""
        data = self.file.data
        commits = np.flatnonzero(integers(data, self.starts + _TAG_AT, "u1") == COMMIT)
        heads = self.starts[commits] + FRAME_BYTES
        more = np.flatnonzero(integers(data, heads + 1, "u1"))
        at = heads[more] + COMMIT_HEAD.size
        sizes = integers(data, at + _LABEL_BYTES_AT, "<u2")
        begins = at + COMMIT_MORE.size
        for gsn, begin, size in zip(self.gsns[commits[more]].tolist(), begins.tolist(), sizes.tolist(), strict=True):
            if size:
                yield gsn, data[begin : begin + size].decode()

    def deletions(self, aborted: Numbers, version: int, *, copies: bool) -> Iterator[RangeDeletion]:
        """The range deletes up to a version of the commits that were not aborted, and with `copies` those that a
        compaction has restated; call `places` first, which checks the records. Raises Corruption."""
        data = self.file.data
        tags = integers(data, self.starts + _TAG_AT, "u1")
        commits = np.flatnonzero((tags == COMMIT) & (self.gsns <= version) & ~np.isin(self.gsns, aborted))
        flags = integers(data, self.starts[commits] + FRAME_BYTES + 1, "u1")
        found = commits[flags & HAS_DELETES != 0]
        if copies:
            found = np.concatenate([found, np.flatnonzero(tags == COMPACTION)])
        times = self.times(found).tolist()
        for at, time in zip(found.tolist(), times, strict=True):
            start, gsn = int(self.starts[at]), int(self.gsns[at])
            begin = start + FRAME_BYTES
            (size,) = _LENGTH.unpack_from(data, start + LENGTH_AT)
            try:
                payload = bytes(data[begin : begin + size])
                if tags[at] == COMMIT:
                    commit = decode_commit(payload, gsn)
                    written = frozenset(commit.writes)
                    for deleted in commit.deletes:
                        yield RangeDeletion(DeletedRange(gsn, *deleted), time, written)
                else:
                    for restated in decode_compaction(payload).deletes:
                        if restated.version <= version:
                            yield RangeDeletion(restated, time, frozenset())
            except MalformedRecord as error:
                raise self.file.damaged(start, f"record {gsn} cannot be decoded ({error})") from error

    def refuse(self, records: Numbers, is_wrong: Flags, reason: str) -> None:
        """Raise Corruption for the first record that is wrong."""
        if is_wrong.any():
            first = int(records[is_wrong].min())
            what = f"record {self.gsns[first]} cannot be decoded ({reason})"
            raise self.file.damaged(int(self.starts[first]), what)

    def _puts(self, commits: Numbers) -> tuple[Places, Numbers]:
        """Separate puts from other commits: the items of the puts, and the indices of the others."""
        data, start = self.file.data, self.starts[commits]
        payload_bytes = integers(data, start + LENGTH_AT, "<u4")
        has_room = payload_bytes >= _PUT_BYTES
        head = start + np.where(has_room, FRAME_BYTES, 0)  # else the frame's first bytes, which cannot begin a commit
        is_put = has_room & (integers(data, head, "<u2") == FORMAT)  # and no flags
        is_put &= integers(data, head + _COUNT_AT, "<u4") == 1

        record, end = commits[is_put], (head + payload_bytes)[is_put]
        item = head[is_put] + COMMIT_HEAD.size
        key_at, value_bytes = item + ITEM.size, integers(data, item + 2, "<u4")
        value_at = key_at + integers(data, item, "<u2")
        self.refuse(record, value_at + _inline_bytes(value_bytes) != end, "its item does not fill it")
        places = Places(key_at, value_at, end, value_bytes, self.gsns[record], record, np.zeros_like(record))
        return places, commits[~is_put]

    def _transactions(self, records: Numbers) -> _Cursors:
        data, at, end = self._payloads(records)
        self.refuse(records, at + COMMIT_HEAD.size > end, _TOO_SHORT)
        flags = integers(data, at + 1, "u1")
        self.refuse(records, (integers(data, at, "u1") != FORMAT) | ~np.isin(flags, COMMIT_FLAGS), _UNKNOWN)
        left = integers(data, at + _COUNT_AT, "<u4")
        at += COMMIT_HEAD.size
        more = np.flatnonzero(flags)
        self.refuse(records[more], at[more] + COMMIT_MORE.size > end[more], _TOO_SHORT)
        at[more] += COMMIT_MORE.size + integers(data, at[more] + _LABEL_BYTES_AT, "<u2")
        appends = np.zeros_like(at)
        with_appends = np.flatnonzero(flags & HAS_APPENDS)
        self.refuse(records[with_appends], at[with_appends] + _APPENDS.size > end[with_appends], _TOO_SHORT)
        appends[with_appends] = integers(data, end[with_appends] - _APPENDS.size, "<u4")
        return _Cursors(records, at, end, left, np.zeros_like(at), np.where(flags == 0, 1, 0), appends)

    def _copies(self, records: Numbers) -> _Cursors:
        data, at, end = self._payloads(records)
        self.refuse(records, at + RELOCATION_HEAD.size > end, _TOO_SHORT)
        self.refuse(records, integers(data, at, "u1") != FORMAT, _UNKNOWN)
        left, versions = integers(data, at + 1, "<u4"), np.full_like(at, RELOCATION_VERSION.size)
        begins = at + RELOCATION_HEAD.size
        return _Cursors(records, begins, end, left, versions, np.ones_like(at), np.zeros_like(at))

    def _payloads(self, records: Numbers) -> tuple[mmap.mmap | bytes, Numbers, Numbers]:
        """(data, offsets of the payloads, their ends)"""
        data, start = self.file.data, self.starts[records]
        return data, start + FRAME_BYTES, start + FRAME_BYTES + integers(data, start + LENGTH_AT, "<u4")

    # ---- records of several items

    def _walked(self, cursors: _Cursors) -> list[Places]:
        found = []
        while len((cursors := self._unfinished(cursors)).at) >= IN_STEP:
            cursors, items = self._step(cursors)
            found.append(items)
        return [*found, *map(self._alone, cursors.each())]

    def _unfinished(self, cursors: _Cursors) -> _Cursors:
        is_over = cursors.left == 0
        if not is_over.any():
            return cursors
        self.refuse(cursors.record, is_over & (cursors.is_all > 0) & (cursors.at != cursors.end), _TRAILING)
        return cursors.where(~is_over)

    def _step(self, cursors: _Cursors) -> tuple[_Cursors, Places]:
        """Read the next item of each record; return the cursors after it, and the items."""
        data, (record, at, end, left, version_bytes, _, appends) = self.file.data, cursors
        item = at + version_bytes
        self.refuse(record, item + ITEM.size > end, _TOO_LONG)
        version = self.gsns[record]
        if version_bytes.any():
            version = integers(data, at, "<i8")
        key_at, value_bytes = item + ITEM.size, integers(data, item + 2, "<u4")
        value_at = key_at + integers(data, item, "<u2")
        value_end = value_at + _inline_bytes(value_bytes)
        self.refuse(record, value_end > end, _TOO_LONG)
        is_append = left <= appends
        self.refuse(record, is_append & (value_at - key_at < APPENDED_BYTES), _NO_APPEND)
        items = Places(key_at, value_at, value_end, value_bytes, version, record, is_append.astype(np.int64))
        return cursors._replace(at=value_end, left=left - 1), items

    def _alone(self, cursor: tuple[int, ...]) -> Places:
        """Read the remaining items of one record."""
        data, (record, at, end, left, version_bytes, is_all, appends) = self.file.data, cursor
        version, columns = int(self.gsns[record]), tuple(array("q") for _ in Places._fields)
        notes = [column.append for column in columns]
        for after in range(left, 0, -1):
            if at + version_bytes + ITEM.size > end:
                at = end + 1
                break
            if version_bytes:
                (version,) = RELOCATION_VERSION.unpack_from(data, at)
            key_bytes, value_bytes = ITEM.unpack_from(data, at + version_bytes)
            key_at = at + version_bytes + ITEM.size
            value_at = key_at + key_bytes
            at = value_at + (0 if value_bytes == DELETED else PLACE.size if value_bytes == PLACED else value_bytes)
            is_append = after <= appends
            if is_append and key_bytes < APPENDED_BYTES:
                self.refuse(np.array([record]), np.array([True]), _NO_APPEND)
            item = key_at, value_at, at, value_bytes, version, record, is_append
            for note, number in zip(notes, item, strict=True):
                note(number)
        self.refuse(np.array([record]), np.array([at > end]), _TOO_LONG)
        self.refuse(np.array([record]), np.array([is_all > 0 and at != end]), _TRAILING)
        return Places(*(np.array(column, np.int64) for column in columns))


class _Cursors(NamedTuple):
    """Walks through records: the offset of each one's next item, its end, and the number of items `left`.

    `version_bytes`: the size of the version before each item. `is_all`: 1 where nothing may follow the last item.
    `appends`: the number of last items whose keys get the version of the commit.
    """

    record: Numbers
    at: Numbers
    end: Numbers
    left: Numbers
    version_bytes: Numbers
    is_all: Numbers
    appends: Numbers

    def where(self, selected: Flags) -> _Cursors:
        """The selected cursors."""
        return _Cursors(*(column[selected] for column in self))

    def each(self) -> Iterator[tuple[int, ...]]:
        """The cursors one by one."""
        return zip(*(column.tolist() for column in self), strict=True)


def _inline_bytes(value_bytes: Numbers) -> Numbers:
    """The size of each value within its record."""
    return np.where(value_bytes < PLACED, value_bytes, np.where(value_bytes == PLACED, PLACE.size, 0))
