"""LMDB through py-lmdb: sync=True, one transaction for each operation, also for each get."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import lmdb

from benchmarks.peers import Items, Operation, incremented

MAP_BYTES = 64 << 30


class LMDB:
    name: ClassVar[str] = "py-lmdb"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._env = self._open()

    def load(self, items: Items) -> None:
        with self._env.begin(write=True) as txn, txn.cursor() as cursor:
            cursor.putmulti(items.items())

    def reopen(self) -> None:
        self._env.close()
        self._env = self._open()

    def compact(self) -> None:
        copy = self._path.with_name(self._path.name + ".compact")
        copy.mkdir()
        self._env.copy(str(copy), compact=True)
        fd = os.open(copy / "data.mdb", os.O_RDWR)
        os.fsync(fd)
        os.close(fd)
        self._env.close()
        (copy / "data.mdb").replace(self._path / "data.mdb")
        shutil.rmtree(copy)
        self._env = self._open()

    def session(self) -> LMDBSession:
        return LMDBSession(self._env)

    def close(self) -> None:
        self._env.close()

    def _open(self) -> Any:
        return lmdb.open(str(self._path), map_size=MAP_BYTES, sync=True, metasync=True, max_readers=256)


class LMDBSession:
    def __init__(self, env: Any) -> None:
        self._env = env

    def put(self, key: bytes, value: bytes) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(key, value)

    def multi_put(self, items: Items) -> None:
        with self._env.begin(write=True) as txn:
            for key, value in items.items():
                txn.put(key, value)

    def multi_delete(self, keys: Sequence[bytes]) -> None:
        with self._env.begin(write=True) as txn:
            for key in keys:
                txn.delete(key)

    def increment(self, key: bytes) -> None:
        with self._env.begin(write=True) as txn:
            txn.put(key, incremented(txn.get(key)))

    def get_each(self, keys: Sequence[bytes]) -> bytes:
        begin = self._env.begin
        value = b""
        for key in keys:
            with begin() as txn:
                value = txn.get(key)
        return value

    def multi_get_each(self, groups: Sequence[list[bytes]]) -> int:
        begin = self._env.begin
        found: dict[bytes, bytes] = {}
        for group in groups:
            with begin() as txn:
                get = txn.get
                found = {key: get(key) for key in group}
        return len(found)

    def scan(self) -> int:
        rows = 0
        with self._env.begin() as txn, txn.cursor() as cursor:
            for _key, _value in cursor:
                rows += 1
        return rows

    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        begin, rows = self._env.begin, 0
        for start in starts:
            rows = 0
            with begin() as txn, txn.cursor() as cursor:
                for _key, _value in islice(cursor if cursor.set_range(start) else (), limit):
                    rows += 1
        return rows

    def do_each(self, operations: Sequence[Operation]) -> int:
        begin = self._env.begin
        rows: list[tuple[bytes, bytes]] = []
        for key, what in operations:
            if isinstance(what, int):
                with begin() as txn, txn.cursor() as cursor:
                    rows = list(islice(cursor, what)) if cursor.set_range(key) else []
            else:
                with begin(write=True) as txn:
                    txn.put(key, what)
        return len(rows)

    def close(self) -> None:
        """The environment outlives its sessions."""
