"""The backups in a place: a manifest for each, written when all of its parts are durable, and the chains they form.
A cold tier is read as backups, too: that of a directory has a manifest of its own, and that of a cluster is a chain.

    000001.json                        manifest of backup 1, a full one
    000001-00000000000000000001.log    its first part, from record 1 on (`parts.py`)
    000002.json                        backup 2, which continues where backup 1 ends

A chain is a full backup and those after it up to the next full one. A chain may be removed, the oldest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from logdb.api.timestamps import moment
from logdb.backups.manifests import LOG, Backup, manifest_name, read_backup
from logdb.backups.parts import records_of
from logdb.backups.places import Place
from logdb.embedded.cold.tier import Manifest, read_manifest
from logdb.errors import BackupError, Corruption, FutureVersion, VersionTrimmed
from logdb.log.contract import LogRecord
from logdb.store.records import COMMIT, decode_commit

_NAME: Final = re.compile(r"[0-9]{6}\.json")


Chain = tuple[Backup, ...]
"""A full backup and those that continue it."""


def chains(place: Place) -> list[Chain]:
    """The chains in a place, the oldest first. Raises BackupError (the place has none), Corruption (a manifest is
    damaged or missing), UnsupportedFormat."""
    tier = read_manifest(place)
    return _chains_of_backups(place) if tier is None else _chains_of_tier(tier)


def _chains_of_tier(tier: Manifest) -> list[Chain]:
    """The versions that a cold tier can restore: a chain of one backup from each of its eras on."""
    found: list[Chain] = []
    for era in tier.eras:
        parts = tuple(segment.part for segment in tier.segments if segment.part.first >= era.first)
        if era.compacted_at < tier.end and parts:
            time = parts[-1].last_time
            number, version = len(found) + 1, tier.end - 1
            oldest = era.compacted_at
            found.append((Backup(number, LOG, True, tier.log_id, 0, version, oldest, time, time, tier.source, parts),))
    return found


def _chains_of_backups(place: Place) -> list[Chain]:
    names = sorted(name for name in place.sizes() if _NAME.fullmatch(name))
    found: list[list[Backup]] = []
    for name in names:
        backup = read_backup(place, name)
        if backup.is_full:
            found.append([backup])
        else:
            before = found[-1][-1] if found else None
            if before is None or before.number + 1 != backup.number:
                raise Corruption(
                    place.location(manifest_name(backup.number - 1)),
                    None,
                    f"the file is missing, and the backup {name} continues it",
                )
            if (before.log_id, before.version) != (backup.log_id, backup.since):
                raise Corruption(place.location(name), None, "it does not continue the backup before it")
            found[-1].append(backup)
    return [tuple(chain) for chain in found]


def existing_chains(place: Place) -> list[Chain]:
    """As `chains`. Raises BackupError if there is none."""
    found = chains(place)
    if not found:
        raise BackupError(f"{place.location()} has no complete backup; make one with `logdb backup`")
    return found


# ---- versions and times


def chain_with(place: Place, version: int) -> Chain:
    """The newest chain that can restore a version, up to the backup that has it. Raises VersionTrimmed, FutureVersion,
    BackupError, Corruption."""
    found = existing_chains(place)
    for chain in reversed(found):
        if chain[0].oldest <= version <= chain[-1].version:
            return tuple(backup for backup in chain if backup.is_full or backup.since < version)
    newest, oldest = found[-1][-1].version, min(chain[0].oldest for chain in found)
    if version > newest:
        raise FutureVersion(version, newest)
    if version < oldest:
        raise VersionTrimmed(version, oldest)
    following = min(chain[0].oldest for chain in found if chain[0].oldest > version)
    raise VersionTrimmed(version, following)


def version_at_time(place: Place, when: int) -> int:
    """The newest version not younger than `when` (ns since the epoch). Raises BackupError, FutureVersion,
    Corruption."""
    found = existing_chains(place)
    last = found[-1][-1]
    if when >= max(last.taken, _up_to_date_at(last)) + 1_000:  # `time_of` rounds up to a microsecond
        raise FutureVersion(f"of the time {moment(when).isoformat()}", found[-1][-1].version)
    for chain in reversed(found):
        version = _last_at_time(place, chain, when)
        if version is not None and version >= chain[0].oldest:
            return version
    raise BackupError(
        f"the backups in {place.location()} have nothing from {moment(when).isoformat()} or before; the oldest version"
        f" that they can restore is {found[0][0].oldest}"
    )


def _up_to_date_at(backup: Backup) -> int:
    """The time from which on a backup has what was written. Records that were written after the backup was begun may be
    in it."""
    return backup.taken if backup.time is None else backup.time


def _last_at_time(place: Place, chain: Chain, when: int) -> int | None:
    """The last version of a chain at that time; None if the chain begins later."""
    for backup in reversed(chain):
        if _up_to_date_at(backup) <= when:
            return backup.version
        for part in reversed(backup.parts):
            if part.first_time <= when:
                log_id, last = bytes.fromhex(backup.log_id), None
                for record in records_of(place, part, log_id):
                    if record.time > when:
                        break
                    last = record
                if last is not None:
                    return max(version_of(backup, last), backup.since)
    return None


def version_of(backup: Backup, record: LogRecord) -> int:
    """The version of the database after a record."""
    if backup.kind == LOG:
        return record.gsn
    return decode_commit(record.payload, record.gsn).sequence if record.tag == COMMIT else backup.version


def records(place: Place, chain: Chain) -> Iterator[tuple[Backup, LogRecord]]:
    """The records of a chain, each with its backup. Raises Corruption."""
    for backup in chain:
        log_id = bytes.fromhex(backup.log_id)
        for part in backup.parts:
            for record in records_of(place, part, log_id):
                yield backup, record
