"""The time of a bare message and a bare sync on this machine, without LogDB.

A message: half of a journey to another process and back, over a stream of the same gRPC library. A sync: some bytes
written where there are blocks already, and fdatasync.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import grpc

METHOD: Final = "/bare.Bare/Echo"
BYTES: Final = 200
FILE_BYTES: Final = 1 << 20
ECHO: Final = (sys.executable, "-m", "benchmarks.bare")


class Bare:
    """Measures both, between other measurements. Call `close` at the end."""

    def __init__(self, directory: Path) -> None:
        self._echo = subprocess.Popen(ECHO, stdout=subprocess.PIPE, text=True)
        assert self._echo.stdout is not None
        port = self._echo.stdout.readline().strip()
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self._channel, self._call = channel, channel.stream_stream(METHOD)()
        self._fd = os.open(directory / "bare", os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._fd, bytes(FILE_BYTES), 0)
        os.fsync(self._fd)
        self._at = 0

    async def message_us(self) -> float:
        """One way."""
        begun = time.perf_counter()
        await self._call.write(bytes(BYTES))
        await self._call.read()
        return (time.perf_counter() - begun) * 1e6 / 2

    def sync_us(self) -> float:
        """A write and its fdatasync."""
        self._at = (self._at + BYTES) % (FILE_BYTES - BYTES)
        begun = time.perf_counter()
        os.pwrite(self._fd, bytes(BYTES), self._at)
        os.fdatasync(self._fd)
        return (time.perf_counter() - begun) * 1e6

    async def close(self) -> None:
        """End the other process."""
        self._call.cancel()
        await self._channel.close()
        self._echo.terminate()
        self._echo.communicate()
        os.close(self._fd)


async def _serve() -> None:
    async def echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            await context.write(message)

    service, method = METHOD[1:].split("/")
    handler = grpc.method_handlers_generic_handler(service, {method: grpc.stream_stream_rpc_method_handler(echo)})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
