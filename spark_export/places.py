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
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from logdb.log.segments.format import FRAME_BYTES
from logdb.store.records import (
    COMMIT,
    COMMIT_HEAD,
    COMMIT_MORE,
    DELETED,
    FORMAT,
    HAS_READS,
    ITEM,
    PLACE,
    PLACED,
    RELOCATION,
    RELOCATION_HEAD,
    RELOCATION_VERSION,
)
from spark_export.checksums import Numbers, integers
from spark_export.frames import LENGTH_AT, Frames

IN_STEP: Final = 16
"""The least number of records that are walked in step."""

Flags = npt.NDArray[np.bool_]
_TIME_AT: Final = 16
_TAG_AT: Final = 24
_COUNT_AT: Final = COMMIT_HEAD.size - 4
_PUT_BYTES: Final = COMMIT_HEAD.size + ITEM.size
_LABEL_BYTES_AT: Final = 8
_UNKNOWN: Final = "its format or its flags are unknown"
_TOO_SHORT: Final = "it is too short"
_TOO_LONG: Final = "an item ends behind it"
_TRAILING: Final = "there is something after its items"


class Places(NamedTuple):
    """The items of records, in the order of the log, with the offsets of key and value.

    `value_bytes`: the size of the value, DELETED, or PLACED for the location of a large value. `record`: the index of
    the record.
    """

    key_at: Numbers
    value_at: Numbers
    value_end: Numbers
    value_bytes: Numbers
    version: Numbers
    record: Numbers


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
        return Places(key_at, value_at, end, value_bytes, self.gsns[record], record), commits[~is_put]

    def _transactions(self, records: Numbers) -> _Cursors:
        data, at, end = self._payloads(records)
        self.refuse(records, at + COMMIT_HEAD.size > end, _TOO_SHORT)
        flags = integers(data, at + 1, "u1")
        self.refuse(records, (integers(data, at, "u1") != FORMAT) | (flags & ~HAS_READS != 0), _UNKNOWN)
        left = integers(data, at + _COUNT_AT, "<u4")
        at += COMMIT_HEAD.size
        more = np.flatnonzero(flags)
        self.refuse(records[more], at[more] + COMMIT_MORE.size > end[more], _TOO_SHORT)
        at[more] += COMMIT_MORE.size + integers(data, at[more] + _LABEL_BYTES_AT, "<u2")
        return _Cursors(records, at, end, left, np.zeros_like(at), 1 - flags)

    def _copies(self, records: Numbers) -> _Cursors:
        data, at, end = self._payloads(records)
        self.refuse(records, at + RELOCATION_HEAD.size > end, _TOO_SHORT)
        self.refuse(records, integers(data, at, "u1") != FORMAT, _UNKNOWN)
        left, versions = integers(data, at + 1, "<u4"), np.full_like(at, RELOCATION_VERSION.size)
        return _Cursors(records, at + RELOCATION_HEAD.size, end, left, versions, np.ones_like(at))

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
        data, (record, at, end, left, version_bytes, _) = self.file.data, cursors
        item = at + version_bytes
        self.refuse(record, item + ITEM.size > end, _TOO_LONG)
        version = self.gsns[record]
        if version_bytes.any():
            version = integers(data, at, "<i8")
        key_at, value_bytes = item + ITEM.size, integers(data, item + 2, "<u4")
        value_at = key_at + integers(data, item, "<u2")
        value_end = value_at + _inline_bytes(value_bytes)
        self.refuse(record, value_end > end, _TOO_LONG)
        items = Places(key_at, value_at, value_end, value_bytes, version, record)
        return cursors._replace(at=value_end, left=left - 1), items

    def _alone(self, cursor: tuple[int, ...]) -> Places:
        """Read the remaining items of one record."""
        data, (record, at, end, left, version_bytes, is_all) = self.file.data, cursor
        version, columns = int(self.gsns[record]), tuple(array("q") for _ in Places._fields)
        notes = [column.append for column in columns]
        for _ in range(left):
            if at + version_bytes + ITEM.size > end:
                at = end + 1
                break
            if version_bytes:
                (version,) = RELOCATION_VERSION.unpack_from(data, at)
            key_bytes, value_bytes = ITEM.unpack_from(data, at + version_bytes)
            key_at = at + version_bytes + ITEM.size
            value_at = key_at + key_bytes
            at = value_at + (0 if value_bytes == DELETED else PLACE.size if value_bytes == PLACED else value_bytes)
            for note, number in zip(notes, (key_at, value_at, at, value_bytes, version, record), strict=True):
                note(number)
        self.refuse(np.array([record]), np.array([at > end]), _TOO_LONG)
        self.refuse(np.array([record]), np.array([is_all > 0 and at != end]), _TRAILING)
        return Places(*(np.array(column, np.int64) for column in columns))


class _Cursors(NamedTuple):
    """Walks through records: the offset of each one's next item, its end, and the number of items `left`.

    `version_bytes`: the size of the version before each item. `is_all`: 1 where nothing may follow the last item.
    """

    record: Numbers
    at: Numbers
    end: Numbers
    left: Numbers
    version_bytes: Numbers
    is_all: Numbers

    def where(self, selected: Flags) -> _Cursors:
        """The selected cursors."""
        return _Cursors(*(column[selected] for column in self))

    def each(self) -> Iterator[tuple[int, ...]]:
        """The cursors one by one."""
        return zip(*(column.tolist() for column in self), strict=True)


def _inline_bytes(value_bytes: Numbers) -> Numbers:
    """The size of each value within its record."""
    return np.where(value_bytes < PLACED, value_bytes, np.where(value_bytes == PLACED, PLACE.size, 0))
