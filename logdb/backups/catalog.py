"""The backups in a place: a manifest for each, written when all of its parts are durable, and the chains they form.
A cold tier is read as backups, too.

    000001.json                        manifest of backup 1, a full one
    000001-00000000000000000001.log    its first part, from record 1 on (`parts.py`)
    000002.json                        backup 2, which continues where backup 1 ends

A chain is a full backup and those after it up to the next full one. A chain may be removed, the oldest first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from google_crc32c import value

from logdb.api.timestamps import moment
from logdb.backups.parts import Part, records_of
from logdb.backups.places import Place
from logdb.embedded.cold.tier import Manifest, read_manifest
from logdb.errors import BackupError, Corruption, FutureVersion, UnsupportedFormat, VersionTrimmed
from logdb.log.contract import LogRecord
from logdb.store.records import COMMIT, decode_commit

FORMAT: Final = 1
LOG: Final = "log"
CHANGES: Final = "changes"
_NAME: Final = re.compile(r"[0-9]{6}\.json")


@dataclass(frozen=True)
class Backup:
    """A backup: the versions after `since` up to `version`.

    `number`: from 1, in the order in which the backups of a place were made. `is_full`: whether it needs none before
    it. `oldest`: the oldest version that its chain can restore. `kind`: "log" if it has the records of the log, so that
    a restored directory has the same versions, or "changes" if it was made through servers and has what their clients
    can read. `log_id`: of its parts, in hexadecimal. `time`: when the record at `version` was written, `taken`: when
    the backup was begun, in ns since the epoch. `source`: the path or the addresses of the database. `parts`: its
    files. `records`: in all of them.
    """

    number: int
    kind: str
    is_full: bool
    log_id: str
    since: int
    version: int
    oldest: int
    time: int | None
    taken: int
    source: str
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of its parts."""
        return sum(part.size for part in self.parts)

    @property
    def records(self) -> int:
        """The number of records in its parts."""
        return sum(part.end - part.first for part in self.parts)


Chain = tuple[Backup, ...]
"""A full backup and those that continue it."""


def manifest_name(number: int) -> str:
    """The name of a manifest."""
    return f"{number:06}.json"


def write_manifest(place: Place, backup: Backup) -> None:
    """Write the manifest of a backup, whose parts are durable. Raises Unavailable."""
    fields = {"format": FORMAT, **asdict(backup), "parts": [part._asdict() for part in backup.parts]}
    document = json.dumps({**fields, "crc32c": f"{_checksum(fields):08x}"}, indent=1)
    place.write(manifest_name(backup.number), document.encode())


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
        backup = _read_manifest(place, name)
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


def _read_manifest(place: Place, name: str) -> Backup:
    path = place.location(name)
    try:
        fields: dict[str, Any] = json.loads(place.read(name))
        checksum = fields.pop("crc32c")
        version = fields.pop("format")
        if version > FORMAT:
            raise UnsupportedFormat(path, version, FORMAT)
        if checksum != f"{_checksum({'format': version, **fields}):08x}":
            raise Corruption(path, None, "it does not match its checksum")
        return Backup(**{**fields, "parts": tuple(Part(**part) for part in fields["parts"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corruption(path, None, f"it is not the manifest of a backup ({error})") from error


def _checksum(fields: dict[str, Any]) -> int:
    return int(value(json.dumps(fields, sort_keys=True).encode()))


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
