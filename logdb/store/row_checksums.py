"""Rows of LMDB that end with a CRC32C of their key and themselves.

LMDB has no checksums. A row that was damaged, or that stands where it does not belong, raises Corruption when it is
read; rows and pages that are missing are found by `map_verifier.py`, before LMDB maps the file.

The CRC begins with the residue that every sealed row leaves behind, so one CRC over many rows checks all of them.
"""

from __future__ import annotations

from io import BytesIO
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final

from google_crc32c import extend

from logdb.errors import Corruption, shown
from logdb.store.map_verifier import RESIDUE, forget

SEAL: Final = Struct("<I")
SEAL_BYTES: Final = SEAL.size
FEW_ROWS: Final = 16
"""So few are checked sooner one by one."""
ADVICE: Final = "opening the database for writing rebuilds it from the log"

RawRow = tuple[bytes, bytes]
"""(key, row with its seal)."""


def sealed(key: bytes, row: bytes) -> bytes:
    """A row with its seal."""
    return row + SEAL.pack(extend(RESIDUE, key + row))


def check_row(key: bytes, row: bytes, path: str) -> None:
    """Raises Corruption where a row is not what was written."""
    if extend(RESIDUE, key + row) != RESIDUE or len(row) <= SEAL_BYTES:
        raise damaged(path, f"the row of {shown(key)} is not what was written")


def check_rows(rows: list[RawRow], path: str) -> None:
    """As `check_row` of each."""
    if len(rows) > FEW_ROWS:
        joined = BytesIO()
        joined.writelines(chain.from_iterable(rows))
        if extend(RESIDUE, joined.getvalue()) == RESIDUE:
            return
    for key, row in rows:
        if extend(RESIDUE, key + row) != RESIDUE:
            check_row(key, row, path)


def damaged(path: str, what: str) -> Corruption:
    """The error for damage to the map in `path`, whose files are looked at before they are opened again."""
    forget(Path(path))
    return Corruption(path, None, f"{what}; {ADVICE}")
