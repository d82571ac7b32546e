"""Checking a database that nobody needs to trust: every byte on disk, and every decision ever made."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from logdb.embedded import EmbeddedBackend
from logdb.embedded.verification.audit import Audit, audit_log
from logdb.embedded.verification.verify import verify_files
from logdb.errors import Corruption, Unavailable
from logdb.system.disk import described


class Verified(NamedTuple):
    """What `verify` has read, and the damage found: an empty list is a clean bill."""

    bytes_checked: int
    records: int
    keys: int
    damage: list[Corruption]


def verify(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Check every byte of a database directory, and its checkpoint against the log. Works while another process writes.

    `progress` hears (bytes checked, of how many). Damage in the log is for a backup to mend; damage in the checkpoint
    is mended by `rebuild`. Raises NotADatabase, UnsupportedFormat, and Unavailable if it could not be looked at.
    """
    try:
        return Verified(*verify_files(Path(path), progress))
    except OSError as error:
        raise Unavailable(f"{path} could not be checked: {described(error)}") from error


def audit(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Decide every commit in the log again and compare. `progress` hears (records, of how many).

    Raises as `open`.
    """
    host = EmbeddedBackend.open(Path(path), read_only=True, create=False)
    try:
        return audit_log(host, progress)
    finally:
        host.close()
