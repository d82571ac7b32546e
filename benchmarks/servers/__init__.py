"""The interface of a served database to the benchmarks, and the servers: each a process at a free port."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

COUNTER_BYTES = 8
START_S = 30
Items = Mapping[bytes, bytes]


def incremented(value: bytes) -> bytes:
    """The value with 1 more in the counter at its head."""
    count = int.from_bytes(value[:COUNTER_BYTES], "big") + 1
    return count.to_bytes(COUNTER_BYTES, "big") + value[COUNTER_BYTES:]


class Client(Protocol):
    """A connection of one coroutine. Writes are durable when they return; `increment` is a transaction of one key."""

    async def put(self, key: bytes, value: bytes) -> object: ...
    async def get(self, key: bytes) -> object: ...
    async def multi_put(self, items: Items) -> object: ...
    async def multi_get(self, keys: Sequence[bytes]) -> object: ...
    async def increment(self, key: bytes) -> object: ...


class Server(Protocol):
    """A server process; `client` is called once for each coroutine."""

    name: ClassVar[str]
    program: ClassVar[str]

    async def start(self, directory: Path) -> None: ...
    def client(self) -> Client: ...
    async def stop(self) -> None: ...


def is_installed(program: str) -> bool:
    """Whether there is such a program on this machine."""
    return shutil.which(program) is not None


def launched(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """The process; its output is dropped."""
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def answering(probe: Callable[[], Awaitable[object]], process: subprocess.Popen[bytes]) -> None:
    """Return when the probe succeeds. Raises RuntimeError if the process ends or does not answer."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            await probe()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not answer")


def ended(process: subprocess.Popen[bytes]) -> None:
    """Stop it."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
