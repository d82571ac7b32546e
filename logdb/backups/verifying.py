"""Listing and checking backups."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import NamedTuple

from logdb.backups.catalog import chains, existing_chains
from logdb.backups.manifests import LOG, Backup
from logdb.backups.parts import Part, frames_of, read_part
from logdb.backups.places import Place, place_of
from logdb.errors import Corruption


class BackupVerified(NamedTuple):
    """The amount of data that `verify_backup` has read, and the damage it has found.

    `backups`, `records`: their number. `bytes_checked`: in all parts. `damage`: each part that is missing or damaged.
    """

    backups: int
    bytes_checked: int
    records: int
    damage: list[Corruption]


def list_backups(location: str | PathLike[str]) -> list[Backup]:
    """The complete backups at `location` (as `to` of `logdb.backup`), the oldest first; none for an empty place.

    Raises Corruption, UnsupportedFormat, Unavailable, TypeError, BackupError, ModuleNotFoundError.
    """
    return [backup for chain in chains(place_of(location)) for backup in chain]


def verify_backup(
    location: str | PathLike[str], *, progress: Callable[[int, int | None], None] | None = None
) -> BackupVerified:
    """Read every byte of the backups at `location` (as `to` of `logdb.backup`), and check the records by their
    checksums.

    `progress`: called with (bytes checked, bytes in all). A damaged manifest is raised, as the backups after it cannot
    be judged: Corruption. Raises BackupError (no backup), and as `list_backups`.
    """
    place = place_of(location)
    backups = [backup for chain in existing_chains(place) for backup in chain]
    total, done, records = sum({part.name: part.size for each in backups for part in each.parts}.values()), 0, 0
    damage: list[Corruption] = []
    seen: set[str] = set()  # backups of a cold tier share parts
    for backup in backups:
        end = backup.parts[0].first if backup.parts else 0
        if not backup.is_full and backup.kind == LOG and end != backup.since + 1:
            damage.append(Corruption(place.location(), None, f"backup {backup.number} does not begin where it should"))
        for part in backup.parts:
            if part.name in seen:
                end = part.end
                continue
            seen.add(part.name)
            try:
                if part.first != end:
                    raise Corruption(place.location(part.name), None, f"record {end} is missing before it")
                _check(place, part, bytes.fromhex(backup.log_id))
            except Corruption as found:
                damage.append(found)
            end = part.end
            done += part.size
            records += part.end - part.first
            if progress is not None:
                progress(done, total)
    return BackupVerified(len(backups), done, records, damage)


def _check(place: Place, part: Part, log_id: bytes) -> None:
    """Raises Corruption."""
    frames = list(frames_of(read_part(place, part, log_id), place.location(part.name), log_id, part.end))
    if [frame.number for frame in (frames[0], frames[-1])] != [part.first, part.end - 1]:
        raise Corruption(place.location(part.name), 0, f"it does not have the records {part.first} to {part.end - 1}")
