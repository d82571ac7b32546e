"""LogDB itself, from threads and from coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import logdb
import logdb.aio
from benchmarks.peers import Items, Operation, incremented

LOAD_BATCH = 1_000


class LogDB:
    """`logdb.Database`, which all threads share."""

    name: ClassVar[str] = "LogDB"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = logdb.open(path)

    def load(self, items: Items) -> None:
        for batch in batches(items):
            self._db.multi_put(batch)

    def reopen(self) -> None:
        self._db.checkpoint()
        self._db.close()
        self._db = logdb.open(self._path)

    def compact(self) -> None:
        self._db.compact()

    def session(self) -> LogDBSession:
        return LogDBSession(self._db)

    def close(self) -> None:
        self._db.close()


class LogDBSession:
    def __init__(self, db: logdb.Database) -> None:
        self._db = db
        self.put, self.multi_put = db.put, db.multi_put

    def multi_delete(self, keys: Sequence[bytes]) -> None:
        self._db.multi_put(dict.fromkeys(keys))

    def increment(self, key: bytes) -> None:
        self._db.run(increment, key)

    def get_each(self, keys: Sequence[bytes]) -> bytes:
        get = self._db.get
        value = None
        for key in keys:
            value = get(key)
        assert value is not None
        return value

    def multi_get_each(self, groups: Sequence[list[bytes]]) -> int:
        multi_get = self._db.multi_get
        found: dict[bytes, bytes] = {}
        for group in groups:
            found = multi_get(group)
        return len(found)

    def scan(self) -> int:
        rows = 0
        for _key, _value in self._db.scan():
            rows += 1
        return rows

    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        scan, rows = self._db.scan, 0
        for start in starts:
            rows = 0
            for _key, _value in scan(start, limit=limit):
                rows += 1
        return rows

    def do_each(self, operations: Sequence[Operation]) -> int:
        scan, put = self._db.scan, self._db.put
        rows: list[tuple[bytes, bytes]] = []
        for key, what in operations:
            if isinstance(what, int):
                rows = list(scan(key, limit=what))
            else:
                put(key, what)
        return len(rows)

    def close(self) -> None:
        """The database outlives its sessions."""


class LogDBInTransactions(LogDB):
    """Its sessions scan in transactions."""

    def session(self) -> LogDBSession:
        return LogDBTransactions(self._db)


class LogDBTransactions(LogDBSession):
    def scan_each(self, starts: Sequence[bytes], limit: int) -> int:
        rows = 0
        with self._db.transaction() as txn:
            for start in starts:
                rows = 0
                for _key, _value in txn.scan(start, limit=limit):
                    rows += 1
        return rows


class LogDBCoroutines:
    """`logdb.aio.Database` on an event loop of its own."""

    def __init__(self, path: Path) -> None:
        self._runner, self._path = asyncio.Runner(), path
        self._db = self._runner.run(logdb.aio.open(path))

    def load(self, items: Items) -> None:
        self._runner.run(self._multi_put_each(items))

    def put_each(self, pairs: Sequence[tuple[bytes, bytes]], coroutines: int) -> None:
        """Put the pairs from a number of `coroutines`; in each, a put is durable before the next one begins."""
        self._runner.run(self._put_each(iter(pairs), coroutines))

    def close(self) -> None:
        self._runner.run(self._db.close())
        self._runner.close()

    def reopen(self) -> None:
        """See `Peer.reopen`."""
        self._runner.run(self._reopen())

    def do_each(self, operations: Sequence[Operation], coroutines: int) -> int:
        """As `Session.do_each`, distributed over several coroutines."""
        return self._runner.run(self._do_each(iter(operations), coroutines))

    async def _reopen(self) -> None:
        await self._db.checkpoint()
        await self._db.close()
        self._db = await logdb.aio.open(self._path)

    async def _do_each(self, operations: Iterator[Operation], coroutines: int) -> int:
        scan, put = self._db.scan, self._db.put
        rows: list[tuple[bytes, bytes]] = []

        async def client() -> None:
            nonlocal rows
            for key, what in operations:
                if isinstance(what, int):
                    rows = [row async for row in scan(key, limit=what)]
                else:
                    await put(key, what)

        await asyncio.gather(*[client() for _ in range(coroutines)])
        return len(rows)

    async def _multi_put_each(self, items: Items) -> None:
        for batch in batches(items):
            await self._db.multi_put(batch)

    async def _put_each(self, pairs: Iterator[tuple[bytes, bytes]], coroutines: int) -> None:
        put = self._db.put

        async def client() -> None:
            for key, value in pairs:
                await put(key, value)

        await asyncio.gather(*[client() for _ in range(coroutines)])


def increment(txn: logdb.Transaction, key: bytes) -> None:
    """The read-modify-write transaction."""
    txn[key] = incremented(txn[key])


def batches(items: Items) -> Iterator[dict[bytes, bytes]]:
    """The items in batches for multi-puts."""
    rest = iter(items.items())
    while batch := dict(islice(rest, LOAD_BATCH)):
        yield batch
