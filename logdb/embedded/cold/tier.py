"""Segments of a log in a cold tier: a directory or an object store with a file for each segment, and a manifest.

    00000000000000000001-CRC.log       a segment, as the log's own file (`log/segments/FORMAT.md`)
    00000000000000000001-CRC.aborted   which of its commit records were not applied: GSNs as u64
    cold-0000000001-CRC.json           the manifest of generation 1: written after the files that it names

No name is given to two contents, so a write that a store carries out late replaces nothing. `cold.json` is a manifest
of generation 0, which earlier versions of LogDB wrote.

Invariants:

COLD-1  The segments of a manifest follow each other without a gap.
COLD-2  The log trims only records of segments that the manifest names, after their files were read back.
COLD-3  A segment that a manifest names is never written again.
COLD-4  A fold that starts at an era gives every version from its floor on.
COLD-5  The manifest of the highest generation counts. A writer withdraws its manifest unless, once it is written, it is
        the only one since the generation that it continues. So of two writers at most one continues a generation.
"""

from __future__ import annotations

import contextlib
import json
import re
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

FORMAT: Final = 2
_MANIFEST: Final = re.compile(r"cold(?:-([0-9]{10})-[0-9a-f]{8})?\.json")
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
    """The content of a manifest. `generation`: the number of changes before it. `source`: the database, for people."""

    generation: int
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
    """The name of a local copy of a segment."""
    return f"{first:020d}{STORE_SUFFIX}"


def manifests(place: Place) -> dict[str, int]:
    """The generation of each manifest in a place, by its name. Raises Unavailable."""
    found = ((name, _MANIFEST.fullmatch(name)) for name in place.sizes())
    return {name: int(match[1] or 0) for name, match in found if match is not None}


def read_manifest(place: Place) -> Manifest | None:
    """The manifest in a place, None if there is none. Raises Corruption, UnsupportedFormat, Unavailable."""
    gone = ""
    while generations := manifests(place):
        newest = max(generations, key=lambda name: (generations[name], name))
        try:
            return _decoded(place.read(newest), place.location(newest))
        except FileNotFoundError:
            if newest == gone:
                raise Corruption(place.location(newest), None, "the file is missing") from None
            gone = newest  # replaced after it was listed
    return None


def _decoded(document: bytes, path: str) -> Manifest:
    try:
        fields: dict[str, Any] = json.loads(document)
        crc, version = fields.pop("crc32c"), fields.pop("format")
        if version > FORMAT:
            raise UnsupportedFormat(path, version, FORMAT)
        if crc != checksum({"format": version, **fields}):
            raise Corruption(path, None, "it does not match its checksum")
        segments = tuple(ColdSegment(Part.of(*part), crc) for part, crc in fields["segments"])
        eras = tuple(Era(*era) for era in fields["eras"])
        manifest = Manifest(fields.get("generation", 0), fields["log_id"], fields["source"], segments, eras)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corruption(path, None, f"it is not the manifest of a cold tier ({error})") from error
    ends = [manifest.first, *(segment.part.end for segment in segments)]
    if any(segment.part.first != end for segment, end in zip(segments, ends, strict=False)):
        raise Corruption(path, None, "COLD-1: its segments do not follow each other")
    return manifest


def encoded(manifest: Manifest) -> bytes:
    """The content of the file of a manifest."""
    fields = {"format": FORMAT, **manifest._asdict()}
    return json.dumps({**fields, "crc32c": checksum(fields)}).encode()


def checksum(fields: dict[str, Any]) -> str:
    """The checksum of the fields of a manifest, without itself."""
    return f"{value(json.dumps(fields, sort_keys=True).encode()):08x}"


class ColdTier:
    """The cold tier of the log `log_id` in a place. One process writes it; others of the same database read it."""

    def __init__(self, place: Place, log_id: bytes) -> None:
        self.place, self.log_id = place, log_id
        self._manifest: Manifest | None = None
        self._continued: Manifest | None = None
        self._attempts: dict[str, int] = {}
        self._withdrawn: set[str] = set()
        self._lock = threading.Lock()
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
            raise ColdTierError(f"{self.location} has no manifest: the cold tier was removed or moved")
        return found

    def load(self) -> Manifest | None:
        """Read the manifest; None for an empty tier. A newer one that was read or written meanwhile stays. Raises
        ColdTierError (it is of another database), Corruption, UnsupportedFormat, Unavailable."""
        found = self._read()
        with self._lock:
            known = self._manifest
            if found is not None and known is not None and found.generation < known.generation:
                return known
            if found is not None:
                self._manifest = found
            return found

    def _read(self) -> Manifest | None:
        found = read_manifest(self.place)
        if found is not None and found.log_id != self.log_id.hex():
            raise ColdTierError(
                f"{self.location} is the cold tier of another database ({found.source}); use another place"
            )
        return found

    # ---- writing

    def agree(self) -> Manifest | None:
        """Read the manifest that the next change continues. Raises as `load`."""
        with self._writing:
            self._withdraw()
            found, known = self._read(), self._continued
            newest = sorted(name for name, its in manifests(self.place).items() if found and its == found.generation)
            if len(newest) > 1:
                if found and known and found.generation == known.generation:  # it was alone when it was read or written
                    return known
                raise ColdTierError(
                    f"{self.location} has two manifests of one generation, of two copies of this database: remove one"
                    f" of {newest[0]} and {newest[1]}"
                )
            self._continued = found
            self._publish(found)
            return found

    def _publish(self, manifest: Manifest | None) -> None:
        if manifest is not None:
            with self._lock:
                self._manifest = manifest

    def begin(self, source: str, era: Era) -> Manifest:
        """Write the manifest of an empty tier. Raises ColdTierError, Unavailable."""
        with self._writing:
            files = [name for name in self.place.sizes() if not name.endswith(STAGING_SUFFIX)]
            if files:
                raise ColdTierError(f"{self.location} is not a cold tier, and not empty (it has {min(files)!r})")
            return self._write(Manifest(0, self.log_id.hex(), source, (), (era,)))

    def add_era(self, era: Era) -> Manifest:
        """Note where a fold can start. Raises ColdTierError, Unavailable, Corruption."""
        with self._writing:
            manifest = self._unchanged()
            if era.floor <= manifest.eras[-1].floor:
                return manifest
            return self._write(manifest._replace(eras=(*manifest.eras, era)))

    def add(self, data: bytes, first: int, end: int, times: tuple[int, int], aborted: Sequence[int]) -> Manifest:
        """Write a segment, read it back, and name it in the manifest. Raises ColdTierError, Unavailable, Corruption."""
        with self._writing:
            manifest = self._unchanged()
            assert first == manifest.end, f"COLD-1: {first} after {manifest.end}"
            crc = value(data)
            part = Part(f"{first:020d}-{crc:08x}{STORE_SUFFIX}", first, end, *times, len(data), crc)
            content = _little_endian(array("Q", aborted)).tobytes()
            segment = ColdSegment(part, value(content))
            self.place.write(segment.aborted_name, content)
            self.place.write(part.name, data)
            self.read(segment)
            self.aborted(segment)
            return self._write(manifest._replace(segments=(*manifest.segments, segment)))

    def _unchanged(self) -> Manifest:
        """The manifest, which no other process has changed since it was read here. Raises ColdTierError."""
        known = self._continued
        if known is None or self._others(manifests(self.place)):
            self._read()  # another database
            raise self._changed()
        return known

    def _others(self, generations: dict[str, int]) -> bool:
        """Whether another process has changed the manifest that is continued."""
        known = self._continued
        behind = -1 if known is None else known.generation
        return any(its > behind for name, its in generations.items() if name not in self._attempts)

    def _changed(self) -> ColdTierError:
        return ColdTierError(f"{self.location} was changed by another process: a copy of this database writes there")

    def _write(self, manifest: Manifest) -> Manifest:
        """Write the manifest that continues `_continued` (COLD-5)."""
        before = 0 if self._continued is None else self._continued.generation
        generation = max(before, *self._attempts.values(), 0) + 1  # a write that failed may yet be carried out
        manifest = manifest._replace(generation=generation)
        content = encoded(manifest)
        name = f"cold-{generation:010d}-{value(content):08x}.json"
        self._attempts[name] = generation
        self.place.write(name, content)
        generations = manifests(self.place)
        if name not in generations or self._others(generations):
            self._withdrawn.add(name)
            self._withdraw()
            self._read()  # another database
            raise self._changed()
        self._continued, self._attempts = manifest, {}
        self._publish(manifest)
        for old, its in generations.items():
            if its < before:  # a reader may be about to read the one before
                self._remove(old)
        return manifest

    def _withdraw(self) -> None:
        while self._withdrawn:
            self._remove(next(iter(self._withdrawn)))
            self._withdrawn.pop()

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.place.remove(name)

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
        return array("Q", sorted(_little_endian(array("Q", content))))  # earlier versions wrote them in any order


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
