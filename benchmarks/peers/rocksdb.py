"""RocksDB through rocksdict: raw mode, a synced WAL.

rocksdict has neither transactions nor a compare-and-set, so it takes no part in the read-modify-write runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from benchmarks.peers import Items, Operation

BLOCK_CACHE_BYTES = 256 << 20


class RocksDB:
    name: ClassVar[str] = "rocksdict"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = self._open()

    def load(self, items: Items) -> None:
        write(self._db, items)

    def reopen(self) -> None:
        self.compact()
        self._db.close()
        self._db = self._open()

    def compact(self) -> None:
        self._db.flush()
        self._db.compact_range(None, None)

    def session(self) -> RocksDBSession:
        return RocksDBSession(self._db)

    def close(self) -> None:
        self._db.close()

    def _open(self) -> Rdict:
        table = BlockBasedOptions()
        table.set_block_cache(Cache(BLOCK_CACHE_BYTES))
        table.set_bloom_filter(10, False)
        options = Options(raw_mode=True)
        options.set_block_based_table_factory(table)
        options.set_compression_type(DBCompressionType.none())
        db = Rdict(str(self._path), options)
        synced = WriteOptions()
        synced.sync = True
        db.set_write_options(synced)
        return db


class RocksDBSession:
    def __init__(self, db: Rdict) -> None:
        self._db = db
        self.put = db.put

    def multi_put(self, items: Items) -> None:
        write(self._db, items)

    def multi_delete(self, keys: Sequence[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._db.write(batch)

    def increment(self, key: bytes) -> None:
        raise NotImplementedError("rocksdict does not offer OptimisticTransactionDB")

    def get_each(self, keys: Sequence[bytes]) -> bytes:
        get = self._db.get
        value: bytes | None = b""
        for key in keys:
            value = get(key)
        assert value is not None
        return value

    def multi_get_each(self, groups: Sequence[list[bytes]]) -> int:
        get: Callable[[list[bytes]], list[bytes]] = self._db.get  # type: ignore[assignment]  # its stubs: no list[bytes]
        found: dict[bytes, bytes] = {}
        for group in groups:
            found = dict(zip(group, get(group), strict=True))
        return len(found)

    def scan(self) -> int:
        rows = 0
        for _key, _value in self._db.items():
            rows += 1
        return rows

    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        items, rows = self._db.items, 0
        for start in starts:
            rows = 0
            for _key, _value in islice(items(from_key=start), limit):
                rows += 1
        return rows

    def do_each(self, operations: Sequence[Operation]) -> int:
        items, put = self._db.items, self._db.put
        rows: list[tuple[object, object]] = []
        for key, what in operations:
            if isinstance(what, int):
                rows = list(islice(items(from_key=key), what))
            else:
                put(key, what)
        return len(rows)

    def close(self) -> None:
        """The database outlives its sessions."""


def write(db: Rdict, items: Items) -> None:
    """One atomic, synced write."""
    batch = WriteBatch(raw_mode=True)
    for key, value in items.items():
        batch.put(key, value)
    db.write(batch)
