"""`logdb serve`, and one connection for all coroutines of the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import logdb.aio
from benchmarks.servers import Items, answering, ended, incremented, launched
from tests.harness.ports import free_addresses


def launch(directory: Path) -> tuple[subprocess.Popen[bytes], str]:
    """A server of the directory, which may not answer yet, and its address."""
    address = next(free_addresses())
    command = [sys.executable, "-P", "-m", "logdb_cli", "serve", "--db", str(directory), "--listen", address]
    return launched(command), address


class LogDB:
    """See `Server`. It is its own client: what is ready goes together, whichever coroutine it is of."""

    name: ClassVar[str] = "LogDB"
    program: ClassVar[str] = sys.executable
    address: str
    _process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    async def start(self, directory: Path) -> None:
        self._process, self.address = launch(directory)
        address = self.address

        async def probe() -> None:
            self._db = await logdb.aio.connect(address)

        await answering(probe, self._process)

    def client(self) -> LogDB:
        return self

    async def put(self, key: bytes, value: bytes) -> None:
        await self._db.put(key, value)

    async def get(self, key: bytes) -> bytes | None:
        return await self._db.get(key)

    async def multi_put(self, items: Items) -> None:
        await self._db.multi_put(items)

    async def multi_get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._db.multi_get(keys)

    async def increment(self, key: bytes) -> None:
        await self._db.run(_increment, key)

    async def stop(self) -> None:
        await self._db.close()
        ended(self._process)


async def _increment(txn: logdb.aio.Transaction, key: bytes) -> None:
    value = await txn.get(key)
    assert value is not None
    txn.put(key, incremented(value))
