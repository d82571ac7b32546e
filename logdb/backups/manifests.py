"""The manifest of a backup, and of a segment of the cold tier of a cluster: a file with its checksum."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from google_crc32c import value

from logdb.backups.parts import Part
from logdb.backups.places import Place
from logdb.errors import Corruption, UnsupportedFormat

FORMAT: Final = 1
LOG: Final = "log"
CHANGES: Final = "changes"
ARCHIVE: Final = "archive"


@dataclass(frozen=True)
class Backup:
    """A backup: the versions after `since` up to `version`.

    `number`: from 1, in the order in which the backups of a place were made. `is_full`: whether it needs none before
    it. `oldest`: the oldest version that its chain can restore. `kind`: "log" if it has the records of the log, so that
    a restored directory has the same versions, "changes" if it was made through servers and has what their clients
    can read, "archive" if it is a segment of the cold tier of a cluster, with such content. `log_id`: of its parts, in
    hexadecimal. `time`: when the record at `version` was written, `taken`: when the backup was begun, in ns since the
    epoch. `source`: the path or the addresses of the database. `parts`: its files. `records`: in all of them.
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


def manifest_name(number: int) -> str:
    """The name of a manifest."""
    return f"{number:06}.json"


def write_manifest(place: Place, backup: Backup) -> None:
    """Write the manifest of a backup, whose parts are durable. Raises Unavailable."""
    fields = {"format": FORMAT, **asdict(backup), "parts": [part._asdict() for part in backup.parts]}
    document = json.dumps({**fields, "crc32c": f"{_checksum(fields):08x}"}, indent=1)
    place.write(manifest_name(backup.number), document.encode())


def read_backup(place: Place, name: str) -> Backup:
    """The manifest in the file `name`. Raises FileNotFoundError, Corruption, UnsupportedFormat, Unavailable."""
    path = place.location(name)
    try:
        fields: dict[str, Any] = json.loads(place.read(name))
        checksum = fields.pop("crc32c")
        version = fields.pop("format")
        if version > FORMAT:
            raise UnsupportedFormat(path, version, FORMAT)
        if checksum != f"{_checksum({'format': version, **fields}):08x}":
            raise Corruption(path, None, "it does not match its checksum")
        return Backup(**{**fields, "parts": tuple(Part.of(**part) for part in fields["parts"])})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Corruption(path, None, f"it is not the manifest of a backup ({error})") from error


def _checksum(fields: dict[str, Any]) -> int:
    return int(value(json.dumps(fields, sort_keys=True).encode()))
