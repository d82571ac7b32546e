"""Compaction of the map, in one pass over its runs in key order: live versions in the log's prefix are copied, and one
run with the places of the copies replaces all others.

The pass is a generator: it yields the records to append and is sent their GSNs, so it needs no log. Rows are decoded
one by one only if a key has versions after the floor, a large value or a long key, or an interrupted compaction has
copied it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, takewhile
from struct import Struct
from typing import Final, NamedTuple

from google_crc32c import extend

from logdb.log.contract import Record
from logdb.store.map_verifier import RESIDUE
from logdb.store.merging import kept_state, put_again
from logdb.store.range_deletions import NOTHING, RangeIndex
from logdb.store.records import RELOCATION, VALUE, Place, Value, encode_relocation
from logdb.store.row_checksums import CHECKSUM, RawRow
from logdb.store.runs import (
    FLAGS,
    KIND_AT,
    LIVE,
    LIVE_END,
    OLDER,
    PLACE,
    PLACED,
    PLAIN,
    TOMBSTONE,
    OlderRows,
    Reader,
    Row,
    RunReader,
    RunWriter,
    aligned,
    decode,
    versions,
)
from logdb.store.values import Values

BATCH_BYTES: Final = 64 << 10
"""Size of a relocation record. A lookup of one version decodes the whole record, so it must not be large."""
COPY_BYTES: Final = 20
"""Minimum size of an entry beside its key and value."""
VERSION: Final = Struct("<Q")
COPIED_FLAGS: Final = FLAGS[LIVE | PLACED]

Copies = Generator[list[Record], int, None]
"""Yields lists of records to append, which may be empty, and is sent the GSN of the first."""


class Copied(NamedTuple):
    """A version that an interrupted compaction has copied to the record at `gsn`."""

    key: bytes
    version: int
    gsn: int
    value: Value


class _Kept(NamedTuple):
    """A key whose rows are written one by one. `survivor`: its version that is live at the floor, as it will be
    written; `is_copied`: its place becomes that of the copy. `is_unchanged`: the survivor keeps its row; older rows may
    be dropped."""

    key: bytes
    of_key: list[tuple[OlderRows, bytes]]
    survivor: Row | None
    is_copied: bool
    is_unchanged: bool


class _Batch:
    """The entries of one relocation record, and the rows to write when its GSN is known: `_Kept`, or (key, row, number
    of bytes after its value; 0: the row does not change)."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, int, Value]] = []
        self.rows: list[tuple[bytes, bytes, int] | _Kept] = []
        self.size = 0


class Relocator:
    """Copies versions that are live at `floor` and whose record is before `reach`, and drops those that only a read
    before the floor could see.

    `deleted`: the range deletes up to the floor. `compacted_at`: GSN of the last compaction. A deletion before it is
    copied, too: the log may hold an older version after it, which a replay would revive once the deletion is trimmed;
    range deletes are restated by the record that raises the floor. `copied`: versions that an interrupted
    compaction has copied after `reach`, in order.

    `relocated`: number of versions copied. `read`: bytes of runs, and of values outside them. `written`: bytes of
    copies and of the new run.
    """

    def __init__(
        self,
        floor: int,
        reach: int,
        compacted_at: int,
        copied: Iterator[Copied],
        values: Values,
        deleted: RangeIndex = NOTHING,
    ) -> None:
        self.floor, self._deleted = floor, deleted
        self.relocated = self.read = self.written = 0
        self._reach, self._compacted_at, self._values = reach, compacted_at, values
        self._copied = copied
        self._next = next(copied, None)
        self._batches = [_Batch()]

    def rows(self, readers: Reader, writer: RunWriter) -> Copies:
        """Write all groups of runs, the newest first, as one run."""
        sources: dict[RunReader, OlderRows] = {}
        for parts in aligned(readers):
            newest: dict[bytes, bytes] = {}
            for _, rows in reversed(parts):
                newest.update(rows)
            found: list[tuple[OlderRows, dict[bytes, bytes]]] = []
            keys = sorted(newest)
            for key, previous in self._relocate_plain(keys, newest, self._previous_copies(keys[-1])):
                if not found:
                    of_part = [sources.get(run) or sources.setdefault(run, OlderRows(run)) for run, _ in parts]
                    found = [(source, dict(rows)) for source, (_, rows) in zip(of_part, parts, strict=True)]
                of_key = [(source, part[key]) for source, part in found if key in part]
                yield from self._relocate_key(key, of_key, previous)
            batches, self._batches = self._batches, [_Batch()]
            records = [(RELOCATION, encode_relocation(batch.entries)) for batch in batches if batch.entries]
            self.written += sum([len(payload) for _, payload in records])
            first = yield records
            for gsn, batch in enumerate(batches, first):
                self.relocated += len(batch.entries)
                self._write_rows(writer, gsn, batch.rows)
        writer.put_state(kept_state(readers, is_oldest=True))

    def _previous_copies(self, last: bytes) -> dict[bytes, dict[int, Copied]]:
        """Versions up to key `last` that were copied before, by key and version."""
        previous: dict[bytes, dict[int, Copied]] = {}
        while (copy := self._next) is not None and copy.key <= last:
            previous.setdefault(copy.key, {})[copy.version] = copy
            self._next = next(self._copied, None)
        return previous

    def _relocate_plain(
        self, keys: list[bytes], newest: dict[bytes, bytes], previous: dict[bytes, dict[int, Copied]]
    ) -> Iterator[tuple[bytes, dict[int, Copied]]]:
        """Relocate the keys, in order, whose newest version is before the floor and has its value in its row. Yields
        each of the others in its turn, with its copies in `previous`."""
        floor, reach, compacted_at, unpack = self.floor, self._reach, self._compacted_at, VERSION.unpack_from
        batch, deleted = self._batches[-1], self._deleted
        for key in keys:
            raw = newest[key]
            size, flags = len(raw), raw[KIND_AT]
            (version,) = unpack(raw, size + LIVE_END)
            if deleted.last > version and deleted.newest(key) > version:
                continue
            if version <= floor and key not in previous:
                cut = PLAIN.get(flags)
                if cut is not None:
                    place = unpack(raw, size - cut)[0] if flags & PLACED else version
                    if place < reach:
                        batch.entries.append((key, version, raw[:-cut]))
                        batch.rows.append((key, raw, cut))
                        batch.size += size + len(key)
                        if batch.size >= BATCH_BYTES:
                            batch = self._begin_batch()
                        continue
                    if not flags & OLDER:
                        batch.rows.append((key, raw, 0))
                        continue
                elif flags & ~OLDER == TOMBSTONE and version >= compacted_at:
                    continue
            yield key, previous.get(key, {})
            batch = self._batches[-1]

    def _begin_batch(self) -> _Batch:
        self._batches.append(_Batch())
        return self._batches[-1]

    def _relocate_key(self, key: bytes, of_key: list[tuple[OlderRows, bytes]], previous: dict[int, Copied]) -> Copies:
        floor, reach = self.floor, self._reach
        survivor = found = _row_at(of_key, floor)
        is_copied = False
        if survivor is not None and self._deleted.newest(key) > survivor.version:
            survivor = None
        if survivor is not None:
            if (copy := previous.get(survivor.version)) is not None:
                value = copy.value if isinstance(copy.value, Place) else survivor.value
                survivor = survivor._replace(place=copy.gsn, value=value)
            version, kind, place, value = survivor
            if kind == TOMBSTONE:
                revived = [copy for copy in previous.values() if copy.version < version and copy.gsn > place]
                if place < self._compacted_at or revived:
                    self._add_copy(key, version, None)
                survivor = None
            elif isinstance(value, Place):
                if value.gsn < reach:
                    content = self._values.load(value)
                    assert content is not None
                    self.read += len(content)
                    self.written += len(content)
                    value = value._replace(gsn=(yield [(VALUE, content)]))
                    place = 0
                if is_copied := place < reach:
                    survivor = survivor._replace(value=value)
                    self._add_copy(key, version, value)
            elif place < reach:
                is_copied = True
                if value is None:
                    value = self._values.written(place, key, version)
                    self.read += 0 if value is None else len(value)
                self._add_copy(key, version, value)
        batch = self._batches[-1]
        batch.rows.append(_Kept(key, of_key, survivor, is_copied, survivor is found and not is_copied))
        if batch.size >= BATCH_BYTES:
            self._begin_batch()

    def _add_copy(self, key: bytes, version: int, value: Value) -> None:
        batch = self._batches[-1]
        batch.entries.append((key, version, value))
        batch.size += COPY_BYTES + len(key) + (len(value) if value is not None else 0)

    def _write_rows(self, writer: RunWriter, gsn: int, batch: list[tuple[bytes, bytes, int] | _Kept]) -> None:
        """Write the rows of a batch. The record at `gsn` has its copies."""
        place, seal = PLACE.pack(gsn), CHECKSUM.pack
        rows: list[RawRow] = []
        for item in batch:
            if isinstance(item, _Kept):
                writer.copy(rows)
                rows = []
                self._write_versions(writer, gsn, item)
                continue
            key, raw, cut = item
            if cut:
                row = raw[:-cut] + place + raw[LIVE_END:KIND_AT] + COPIED_FLAGS
                raw = row + seal(extend(RESIDUE, key + row))
            rows.append((key, raw))
        writer.copy(rows)

    def _write_versions(self, writer: RunWriter, gsn: int, kept: _Kept) -> None:
        key, of_key, survivor, is_copied, is_unchanged = kept
        if is_unchanged and put_again(writer, key, of_key, self.floor, is_oldest=True):
            return
        later = takewhile(lambda row: row.version > self.floor, versions((of.reader, raw) for of, raw in of_key))
        last = () if survivor is None else (survivor._replace(place=gsn) if is_copied else survivor,)
        rows = chain(later, last)
        newest = next(rows, None)
        if newest is not None:
            writer.put(key, newest, rows)


def _row_at(of_key: Iterable[tuple[OlderRows, bytes]], at: int) -> Row | None:
    """The newest version of a key that is not after `at`."""
    for source, raw in of_key:
        row, first, count = decode(raw)
        if row.version <= at:
            return row
        older = source.reader.older_at(first, count, at)
        if older is not None:
            return older
    return None
