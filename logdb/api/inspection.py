"""Checking a database: every byte on disk, and every decision in the log."""

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
    """The amount of data that `verify` has read, and the damage it has found."""

    bytes_checked: int
    records: int
    keys: int
    damage: list[Corruption]


def verify(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Verified:
    """Check every byte of a database directory, and its checkpoint against the log. Works while another process writes.

    `progress`: called with the number of bytes checked, and of those to check. Damage in the log needs a backup; damage
    in the checkpoint is repaired by `rebuild`. Raises NotADatabase, UnsupportedFormat, Unavailable.
    """
    try:
        return Verified(*verify_files(Path(path), progress))
    except OSError as error:
        raise Unavailable(f"{path} could not be checked: {described(error)}") from error


def audit(path: str | PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> Audit:
    """Decide every commit in the log again and compare.

    `progress`: called with the number of records decided, and of all. Raises as `open`.
    """
    backend = EmbeddedBackend.open(Path(path), read_only=True, create=False)
    try:
        return audit_log(backend, progress)
    finally:
        backend.close()
