"""Segments of a log in a cold tier: a directory or an object store with a file for each segment, and a manifest.

    00000000000000000001.log       a segment, as the log's own file (`log/segments/FORMAT.md`)
    00000000000000000001.aborted   which of its commit records were not applied: GSNs as u64
    cold.json                      the manifest: written after the files that it names

Invariants:

COLD-1  The segments of a manifest follow each other without a gap.
COLD-2  The log trims only records of segments that the manifest names, after their files were read back.
COLD-3  A segment that a manifest names is never written again.
COLD-4  A fold that starts at an era gives every version from its floor on.
"""

from __future__ import annotations

import json
import sys
import threading
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from google_crc32c import value

from logdb.backups.parts import Part, read_part
from logdb.backups.places import STAGING_SUFFIX, Place
from logdb.errors import ColdTierError, Corruption, UnsupportedFormat
from logdb.log.segments.segment import STORE_SUFFIX

MANIFEST: Final = "cold.json"
FORMAT: Final = 1
_ABORTED_SUFFIX: Final = ".aborted"


class ColdSegment(NamedTuple):
    """A segment in a cold tier. `part`: its file. `aborted_crc`: the CRC32C of the file of aborted commits."""

    part: Part
    aborted_crc: int

    @property
    def aborted_name(self) -> str:
        return self.part.name.removesuffix(STORE_SUFFIX) + _ABORTED_SUFFIX


class Era(NamedTuple):
    """Where a fold can start: after a compaction, or where the tier begins.

    `first`: the oldest record that the compaction has left. `floor`: the oldest version that it has left.
    `compacted_at`: its record, up to which a fold must go; 0 for the beginning of a log.
    """

    first: int
    floor: int
    compacted_at: int


class Manifest(NamedTuple):
    """The content of a manifest. `source`: the database, for people."""

    log_id: str
    source: str
    segments: tuple[ColdSegment, ...]
    eras: tuple[Era, ...]

    @property
    def first(self) -> int:
        """The first record of the tier, which exists or is to come."""
        return self.eras[0].first

    @property
    def end(self) -> int:
        """The record after the last one."""
        return self.segments[-1].part.end if self.segments else self.first

    def segment_of(self, gsn: int) -> ColdSegment | None:
        """The segment that has a record; None if there is none."""
        position = bisect_right(self.segments, gsn, key=lambda segment: segment.part.first)
        if position == 0 or gsn >= self.segments[position - 1].part.end:
            return None
        return self.segments[position - 1]

    def era_of(self, version: int) -> tuple[Era, Era | None]:
        """(the newest era that has a version, the one after it)."""
        position = bisect_right(self.eras, version, key=lambda era: era.floor)
        return self.eras[position - 1], self.eras[position] if position < len(self.eras) else None


def segment_name(first: int) -> str:
    """The name of the file of a segment."""
    return f"{first:020d}{STORE_SUFFIX}"


def read_manifest(place: Place) -> Manifest | None:
    """The manifest in a place, None if there is none. Raises Corruption, UnsupportedFormat, Unavailable."""
    try:
        document = place.read(MANIFEST)
    except FileNotFoundError:
        return None
    return _decoded(document, place.location(MANIFEST))


def _decoded(document: bytes, path: str) -> Manifest:
    try:
        fields: dict[str, Any] = json.loads(document)
        checksum, version = fields.pop("crc32c"), fields.pop("format")
        if version > FORMAT:
            raise UnsupportedFormat(path, version, FORMAT)
        if checksum != _checksum({"format": version, **fields}):
            raise Corruption(path, None, "it does not match its checksum")
        segments = tuple(ColdSegment(Part(*part), crc) for part, crc in fields["segments"])
        manifest = Manifest(fields["log_id"], fields["source"], segments, tuple(Era(*era) for era in fields["eras"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corruption(path, None, f"it is not the manifest of a cold tier ({error})") from error
    ends = [manifest.first, *(segment.part.end for segment in segments)]
    if any(segment.part.first != end for segment, end in zip(segments, ends, strict=False)):
        raise Corruption(path, None, "COLD-1: its segments do not follow each other")
    return manifest


def _encoded(manifest: Manifest) -> bytes:
    fields = {"format": FORMAT, **manifest._asdict()}
    return json.dumps({**fields, "crc32c": _checksum(fields)}).encode()


def _checksum(fields: dict[str, Any]) -> str:
    return f"{value(json.dumps(fields, sort_keys=True).encode()):08x}"


class ColdTier:
    """The cold tier of the log `log_id` in a place. One process writes it; others of the same database read it."""

    def __init__(self, place: Place, log_id: bytes) -> None:
        self.place, self.log_id = place, log_id
        self._manifest: Manifest | None = None
        self._writing = threading.Lock()

    @property
    def location(self) -> str:
        """The path or the address."""
        return self.place.location()

    @property
    def known(self) -> Manifest | None:
        """The manifest as it was last read or written; None before that, and for an empty tier."""
        return self._manifest

    @property
    def manifest(self) -> Manifest:
        """As `known`, read now if it was not read before. Raises as `load`, and ColdTierError for an empty tier."""
        found = self._manifest or self.load()
        if found is None:
            raise ColdTierError(f"{self.location} has no manifest ({MANIFEST}): the cold tier was removed or moved")
        return found

    def load(self) -> Manifest | None:
        """Read the manifest; None for an empty tier. Raises ColdTierError (it is of another database), Corruption,
        UnsupportedFormat, Unavailable."""
        found = read_manifest(self.place)
        if found is not None and found.log_id != self.log_id.hex():
            raise ColdTierError(
                f"{self.location} is the cold tier of another database ({found.source}); use another place"
            )
        if found is not None or self._manifest is None:
            self._manifest = found
        return found

    # ---- writing

    def begin(self, source: str, era: Era) -> None:
        """Write the manifest of an empty tier. Raises ColdTierError, Unavailable."""
        files = [name for name in self.place.sizes() if not name.endswith(STAGING_SUFFIX)]
        if files:
            raise ColdTierError(f"{self.location} is not a cold tier, and not empty (it has {min(files)!r})")
        self._write(Manifest(self.log_id.hex(), source, (), (era,)))

    def add_era(self, era: Era) -> None:
        """Note where a fold can start. Raises ColdTierError, Unavailable, Corruption."""
        with self._writing:
            manifest = self._unchanged()
            if era.floor > manifest.eras[-1].floor:
                self._write(manifest._replace(eras=(*manifest.eras, era)))

    def add(self, data: bytes, first: int, end: int, times: tuple[int, int], aborted: Sequence[int]) -> None:
        """Write a segment, read it back, and name it in the manifest. Raises ColdTierError, Unavailable, Corruption."""
        with self._writing:
            manifest = self._unchanged()
            assert first == manifest.end, f"COLD-1: {first} after {manifest.end}"
            part = Part(segment_name(first), first, end, *times, len(data), value(data))
            content = _little_endian(array("Q", aborted)).tobytes()
            segment = ColdSegment(part, value(content))
            self.place.write(segment.aborted_name, content)
            self.place.write(part.name, data)
            self.read(segment)
            self.aborted(segment)
            self._write(manifest._replace(segments=(*manifest.segments, segment)))

    def _unchanged(self) -> Manifest:
        """The manifest, which no other process has changed since it was read here. Raises ColdTierError."""
        known = self.manifest
        if self.load() != known:
            raise ColdTierError(f"{self.location} was changed by another process: a copy of this database writes there")
        return known

    def _write(self, manifest: Manifest) -> None:
        self._manifest = None  # the outcome of a write that fails is unknown
        self.place.write(MANIFEST, _encoded(manifest))
        self._manifest = manifest

    # ---- reading

    def read(self, segment: ColdSegment) -> bytes:
        """The file of a segment, with the size and the checksum that it was written with. Raises Corruption,
        Unavailable."""
        return read_part(self.place, segment.part, self.log_id)

    def aborted(self, segment: ColdSegment) -> array[int]:
        """The commit records of a segment that were not applied, in order. Raises Corruption, Unavailable."""
        path = self.place.location(segment.aborted_name)
        try:
            content = self.place.read(segment.aborted_name)
        except FileNotFoundError:
            raise Corruption(path, None, "the file is missing") from None
        if value(content) != segment.aborted_crc:
            raise Corruption(path, None, "the file does not match its checksum")
        return _little_endian(array("Q", content))


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
