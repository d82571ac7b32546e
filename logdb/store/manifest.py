"""The manifest of a map: its runs, and the versions that they cover.

Text: a JSON object in one line, then its CRC32C in hexadecimal digits.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from google_crc32c import value as crc32c

from logdb.store.files import run_name
from logdb.store.map_verifier import FileChecksum

FORMAT: Final = 3


class RunInfo(NamedTuple):
    """A run as the manifest names it.

    It holds the changes of the versions (`after`, `through`] of the log; if one checkpoint writes several runs, the
    manifest names the others after the first, with empty ranges. `rows`: keys; `long_keys`: those longer than LMDB
    accepts. `bytes`, `crc`: of its file (`map_verifier.py`). `live_bytes`: of its rows without older versions, and of
    the large values whose places they hold. `fences`: of a large run, keys in order that divide it into parts of about
    the same size, in hexadecimal digits.
    """

    number: int
    after: int
    through: int
    rows: int
    long_keys: int
    bytes: int
    crc: int
    live_bytes: int = 0
    fences: str = ""


class Manifest(NamedTuple):
    """`covers`: every record up to this GSN is in the runs. `ceiling`: no row is newer than this.

    `pruned`: versions that only a read before this version could see were removed. `runs`: from the oldest to the
    newest.
    """

    log_id: bytes
    covers: int = 0
    ceiling: int = 0
    pruned: int = 0
    runs: tuple[RunInfo, ...] = ()

    @property
    def files(self) -> dict[str, FileChecksum]:
        """Size and checksum of each run's file by its name, for `map_verifier.find_damage`."""
        return {run_name(run.number): FileChecksum(run.bytes, run.crc) for run in self.runs}

    def encode(self) -> bytes:
        """The content of the file."""
        fields = self._asdict() | {
            "format": FORMAT,
            "log_id": self.log_id.hex(),
            "runs": [run._asdict() for run in self.runs],
        }
        text = json.dumps(fields).encode()
        return text + b"\n%08x\n" % crc32c(text)


class MalformedManifest(Exception):
    """The manifest, or a run that it names, is damaged. The message contains the reason."""


def decode_manifest(content: bytes) -> Manifest:
    """The manifest of these bytes. Raises MalformedManifest."""
    text, _, crc = content.partition(b"\n")
    if crc != b"%08x\n" % crc32c(text):
        raise MalformedManifest("its list of runs is not what was written")
    fields = json.loads(text)
    if fields.pop("format") != FORMAT:
        raise MalformedManifest("it was written by another version of LogDB")
    try:
        runs = tuple(RunInfo(**run) for run in fields.pop("runs"))
        manifest = Manifest(**fields | {"log_id": bytes.fromhex(fields["log_id"]), "runs": runs})
    except TypeError as error:  # fields that this version does not have
        raise MalformedManifest("it was written by another version of LogDB") from error
    reached = 0
    for run in runs:
        if run.after != reached or run.through < run.after:
            raise MalformedManifest(f"run {run.number} begins after version {run.after}, and not after {reached}")
        reached = run.through
    if reached != manifest.covers:
        raise MalformedManifest(f"it covers version {manifest.covers}, its runs {reached}")
    return manifest
