"""Redis with every write synced (appendonly, appendfsync always); each coroutine has a connection."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.servers import Items, answering, ended, incremented, launched
from tests.harness.ports import free_ports


class Redis:
    """See `Server`."""

    name: ClassVar[str] = "Redis"
    program: ClassVar[str] = "redis-server"
    address: str
    _process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Of the server."""
        return self._process.pid

    async def start(self, directory: Path) -> None:
        directory.mkdir()
        self._port = next(free_ports())
        self.address = f"127.0.0.1:{self._port}"
        options = {"dir": directory, "port": self._port, "bind": "127.0.0.1", "save": "", "appendonly": "yes"}
        options |= {"appendfsync": "always"}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._process = launched([self.program, *words])
        self._clients: list[RedisClient] = []
        probe = self.client()
        await answering(probe.ping, self._process)

    def client(self) -> RedisClient:
        self._clients.append(RedisClient(self._port))
        return self._clients[-1]

    async def stop(self) -> None:
        for client in self._clients:
            await client.close()
        ended(self._process)


async def reached(address: str) -> RedisClient:
    """A client of the server at an address."""
    return RedisClient(int(address.rpartition(":")[2]))


class RedisClient:
    """A connection. A transaction is WATCH, GET, MULTI, SET, EXEC, again when it was disturbed."""

    def __init__(self, port: int) -> None:
        import redis.asyncio
        from redis.exceptions import WatchError

        self._redis: Any = redis.asyncio.Redis(port=port, single_connection_client=True)
        self._disturbed = WatchError

    async def ping(self) -> None:
        await self._redis.ping()

    async def put(self, key: bytes, value: bytes) -> None:
        await self._redis.set(key, value)

    async def get(self, key: bytes) -> object:
        return await self._redis.get(key)

    async def multi_put(self, items: Items) -> None:
        await self._redis.mset(items)

    async def multi_get(self, keys: Sequence[bytes]) -> object:
        return await self._redis.mget(keys)

    async def close(self) -> None:
        await self._redis.aclose()

    async def increment(self, key: bytes) -> None:
        while True:
            async with self._redis.pipeline() as pipe:
                try:
                    await pipe.watch(key)
                    value = await pipe.get(key)
                    pipe.multi()
                    pipe.set(key, incremented(value))
                    await pipe.execute()
                    return
                except self._disturbed:
                    continue
