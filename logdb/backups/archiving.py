"""Writing the cold tier of a cluster: each segment is a backup that continues the one before it.

    000001.json                        manifest of segment 1 (`manifests.py`)
    000001-00000000000000000001.log    its records: those of a backup that was made through servers (`taking.py`)

Invariants:

ARC-1  A manifest is written after its part was read back.
ARC-2  A segment is written behind the one that it continues, in the tier of the same cluster.
"""

from __future__ import annotations

from typing import Final

from logdb.backups.manifests import ARCHIVE, Backup, manifest_name, read_backup, write_manifest
from logdb.backups.parts import PartWriter, read_part
from logdb.backups.places import STAGING_SUFFIX, Place
from logdb.cores.effects import Archive
from logdb.errors import ColdTierError, Corruption

_ONE_PART: Final = 1 << 62


def write_segment(place: Place, segment: Archive, source: str) -> None:
    """Write a segment, unless the place has it. `source`: the cluster, for people. Raises ColdTierError (the place is
    not the tier of this cluster, or lacks a segment), Corruption, Unavailable."""
    written = _check_place(place, segment)
    if written is not None:
        for part in written.parts:
            read_part(place, part, segment.log_id)
        return
    writer = PartWriter(place, segment.number, segment.log_id, segment.first, _ONE_PART)
    for record in segment.records:
        writer.add(record.tag, record.payload, record.time)
    writer.flush()
    for part in writer.parts:
        read_part(place, part, segment.log_id)
    backup = Backup(
        number=segment.number,
        kind=ARCHIVE,
        is_full=segment.number == 1,
        log_id=segment.log_id.hex(),
        since=segment.since,
        version=segment.version,
        oldest=segment.oldest,
        time=segment.time,
        taken=segment.time,
        source=source,
        parts=tuple(writer.parts),
    )
    write_manifest(place, backup)
    if read_backup(place, manifest_name(segment.number)) != backup:
        raise Corruption(place.location(manifest_name(segment.number)), None, "it is not what was written")


def _check_place(place: Place, segment: Archive) -> Backup | None:
    """The manifest of this segment, if another server has written it. Raises ColdTierError."""
    number, log_id = segment.number, segment.log_id.hex()
    if number > 1:
        before = _found(place, number - 1)
        if before is None or (before.log_id, before.version) != (log_id, segment.since):
            raise ColdTierError(
                f"{place.location()} does not have the segment {number - 1} of this cluster: the cold tier was moved,"
                " removed or replaced"
            )
    written = _found(place, number)
    if written is None:
        own = f"{1:06}-"  # a server that was killed has left a part
        names = place.sizes() if number == 1 else ()
        strangers = [name for name in names if not name.startswith(own) and not name.endswith(STAGING_SUFFIX)]
        if strangers:
            raise ColdTierError(f"{place.location()} is not a cold tier, and not empty (it has {min(strangers)!r})")
    elif (written.log_id, written.since, written.version) != (log_id, segment.since, segment.version):
        raise ColdTierError(f"{place.location()} has another segment {number} ({written.source}); use another place")
    return written


def _found(place: Place, number: int) -> Backup | None:
    try:
        return read_backup(place, manifest_name(number))
    except FileNotFoundError:
        return None
