"""Transactions of LMDB in which every row ends with a CRC32C of its key and itself, which no reader sees.

LMDB has no checksums. A row that was damaged, or that stands where it does not belong, raises Corruption when it is
read; rows and pages that are missing are found by `checking.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from types import TracebackType
from typing import Any, Final

from google_crc32c import extend, value

from logdb.errors import Corruption, shown
from logdb.store.checking import is_sealed

SEAL: Final = Struct("<I")


class SealedTxn:
    """The part of `lmdb.Transaction` that the tables use."""

    def __init__(self, txn: Any, path: str) -> None:
        self._txn, self._path = txn, path
        self.delete, self.stat, self.abort = txn.delete, txn.stat, txn.abort

    def get(self, key: bytes, db: Any = None) -> bytes | None:
        row = self._txn.get(key, db=db)
        return None if row is None else opened(key, row, self._path)

    def put(self, key: bytes, row: bytes, db: Any) -> None:
        self._txn.put(key, row + SEAL.pack(extend(value(key), row)), db=db)

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
    if not is_sealed(key, row):
        raise Corruption(path, None, f"the row of {shown(key)} is not what was written")
    return row[: -SEAL.size]
