"""Rows of LMDB that end with a CRC32C of their key and themselves.

LMDB has no checksums. A row that was damaged, or that is stored under another key, raises Corruption when it is read;
`map_verifier.py` finds missing rows and pages before LMDB maps the file.

The CRC begins with the residue that every row with a checksum leaves behind, so one CRC over many rows checks them all.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final

from google_crc32c import extend

from logdb.errors import Corruption, shown
from logdb.store.map_verifier import RESIDUE, forget

CHECKSUM: Final = Struct("<I")
CHECKSUM_BYTES: Final = CHECKSUM.size
FEW_ROWS: Final = 8
"""Up to this number of rows, one check for each is faster than one for all."""
ADVICE: Final = "opening the database for writing rebuilds it from the log"

RawRow = tuple[bytes, bytes]
"""(key, row with its checksum)."""


def with_checksum(key: bytes, row: bytes) -> bytes:
    """A row with its checksum."""
    return row + CHECKSUM.pack(extend(RESIDUE, key + row))


def check_row(key: bytes, row: bytes, path: str) -> None:
    """Raises Corruption if the row does not match its checksum."""
    if extend(RESIDUE, key + row) != RESIDUE or len(row) <= CHECKSUM_BYTES:
        raise damaged(path, f"the row of {shown(key)} is not what was written")


def check_rows(rows: list[RawRow], path: str) -> None:
    """Check each row as `check_row` does."""
    if len(rows) > FEW_ROWS and extend(RESIDUE, b"".join(chain.from_iterable(rows))) == RESIDUE:
        return
    for key, row in rows:
        if extend(RESIDUE, key + row) != RESIDUE:
            check_row(key, row, path)


def damaged(path: str, reason: str) -> Corruption:
    """The error for damage to the map in `path`; the next opening checks its files in full."""
    forget(Path(path))
    return Corruption(path, None, f"{reason}; {ADVICE}")
