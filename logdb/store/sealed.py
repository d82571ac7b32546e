"""Transactions of LMDB in which every row ends with a CRC32C of its key and itself, which no reader sees.

LMDB has no checksums. A row that was damaged, or that stands where it does not belong, raises Corruption when it is
read; rows and pages that are missing are found by `checking.py`, before LMDB maps the file.

The CRC begins with the residue that every sealed row leaves behind, so one CRC over many rows checks all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import chain
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any, Final

from google_crc32c import extend

from logdb.errors import Corruption, shown
from logdb.store.checking import RESIDUE, forget

SEAL: Final = Struct("<I")
FEW_ROWS: Final = 16
"""So few are checked sooner one by one."""
ADVICE: Final = "opening the database for writing rebuilds it from the log"


class SealedTxn:
    """The part of `lmdb.Transaction` that the tables use. `raw_get` and `raw_cursor` leave the seals on.

    `unlike_live`: what its owner keeps with it of keys that stand elsewhere.
    """

    __slots__ = ("_cursor", "_path", "_txn", "abort", "delete", "raw_cursor", "raw_get", "stat", "unlike_live")

    def __init__(self, txn: Any, path: str) -> None:
        self._txn, self._path = txn, path
        self.delete, self.stat, self.abort = txn.delete, txn.stat, txn.abort
        self.raw_get, self.raw_cursor = txn.get, txn.cursor
        self._cursor: Any = None
        self.unlike_live: str | None = None

    @property
    def own_cursor(self) -> Any:
        """A cursor of the table that it was begun for, seals on, the same one each time: for one read after another."""
        cursor = self._cursor
        if cursor is None:
            cursor = self._cursor = self.raw_cursor()
        return cursor

    def get(self, key: bytes, db: Any = None) -> bytes | None:
        row = self._txn.get(key, db=db)
        return None if row is None else opened(key, row, self._path)

    def put(self, key: bytes, row: bytes, db: Any) -> None:
        self._txn.put(key, row + SEAL.pack(extend(RESIDUE, key + row)), db=db)

    def cursor(self, db: Any) -> SealedCursor:
        return SealedCursor(self._txn.cursor(db=db), self._path)


class SealedCursor:
    """The part of `lmdb.Cursor` that the tables use."""

    def __init__(self, cursor: Any, path: str) -> None:
        self._cursor, self._path = cursor, path
        self.first, self.last, self.prev, self.set_range = cursor.first, cursor.last, cursor.prev, cursor.set_range
        self.key = cursor.key

    def __enter__(self) -> SealedCursor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._cursor.close()

    def value(self) -> bytes:
        return opened(self._cursor.key(), self._cursor.value(), self._path)

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self.iternext()

    def iternext(self) -> Iterator[tuple[bytes, bytes]]:
        for key, row in self._cursor.iternext():
            yield key, opened(key, row, self._path)

    def iterprev(self) -> Iterator[tuple[bytes, bytes]]:
        for key, row in self._cursor.iterprev():
            yield key, opened(key, row, self._path)


def opened(key: bytes, row: bytes, path: str) -> bytes:
    """A row without its seal. Raises Corruption."""
    if extend(RESIDUE, key + row) != RESIDUE or len(row) < 4:
        raise damaged(path, f"the row of {shown(key)} is not what was written")
    return row[:-4]


def opened_rows(rows: list[tuple[bytes, bytes]], path: str) -> list[tuple[bytes, bytes]]:
    """Rows without their seals. Raises Corruption."""
    if len(rows) <= FEW_ROWS:
        sound = [(key, row[:-4]) for key, row in rows if extend(RESIDUE, key + row) == RESIDUE]
        return sound if len(sound) == len(rows) else [(key, opened(key, row, path)) for key, row in rows]
    joined = BytesIO()
    joined.writelines(chain.from_iterable(rows))
    if extend(RESIDUE, joined.getvalue()) != RESIDUE:
        return [(key, opened(key, row, path)) for key, row in rows]
    return [(key, row[:-4]) for key, row in rows]


def damaged(path: str, what: str) -> Corruption:
    """The error for damage to the tables in `path`, which are looked at before they are opened again."""
    forget(Path(path))
    return Corruption(path, None, f"{what}; {ADVICE}")
