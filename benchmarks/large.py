"""Values of 64 MiB at a server, beside another client's small puts: how long both take, and what the server keeps.

The large values come from a process of their own, so that what it does with them does not slow the small puts' client.
The servers have their turns in every round.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

import logdb.aio
from benchmarks.servers import is_installed
from benchmarks.servers.ours import LogDB
from benchmarks.servers.redis import Redis, reached

SERVERS = (LogDB, Redis)
CLIENTS: Mapping[str, Callable[[str], Awaitable[Any]]] = {LogDB.name: logdb.aio.connect, Redis.name: reached}
"""How another process reaches a server."""
MIB = 1 << 20
KEYS = 3
SMALL_BYTES = 100
REST_S = 1.0
"""Time between the last request and the measurement of memory."""


class Scale(NamedTuple):
    """How much is measured."""

    rounds: int
    value_bytes: int
    quiet_s: float


FULL = Scale(rounds=7, value_bytes=64 * MIB, quiet_s=1.0)
QUICK = Scale(rounds=1, value_bytes=2 * MIB, quiet_s=0.1)


class Figures(NamedTuple):
    """Of one server: seconds of each large put and get; of each small put that was made when nothing else was, beside
    large puts and beside large gets; MiB of the server's memory at first, at last and at the most."""

    server: str
    puts: list[float]
    gets: list[float]
    quiet: list[float]
    beside_puts: list[float]
    beside_gets: list[float]
    anonymous_before: float
    anonymous_after: float
    resident_after: float
    peak: float


class Memory(NamedTuple):
    """Of a process, in MiB."""

    anonymous: float
    resident: float
    peak: float


def memory_of(pid: int) -> Memory:
    """Memory of the process in MiB, from /proc."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Memory(*(int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS", "VmHWM")))


def forget_peak(pid: int) -> None:
    """Reset the measured peak."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _write_file(path: Path, size: int) -> float:
    block = os.urandom(MIB)
    begun = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(block)
        file.flush()
        os.fdatasync(file.fileno())
    took = time.perf_counter() - begun
    path.unlink()
    return took


def _serve_requests(name: str, address: str, size: int, pipe: Connection) -> None:
    """In a process of its own: a client that puts and gets large values on request."""
    asyncio.run(_large_client(name, address, size, pipe))


async def _large_client(name: str, address: str, size: int, pipe: Connection) -> None:
    client = await CLIENTS[name](address)
    value = os.urandom(size)
    loop = asyncio.get_running_loop()
    number = 0
    pipe.send(None)
    while (verb := await loop.run_in_executor(None, pipe.recv)) is not None:
        key = b"large-%d" % (number % KEYS)
        begun = time.perf_counter()
        if verb == "put":
            await client.put(key, value)
        else:
            found = await client.get(key)
            assert len(found) == size
            del found
            number += 1
        pipe.send(time.perf_counter() - begun)
    await client.close()
    pipe.close()


async def _small_puts(client: Any, into: list[float], until: asyncio.Event) -> None:
    number = 0
    while not until.is_set():
        number += 1
        begun = time.perf_counter()
        await client.put(b"small-%d" % (number % 100), bytes(SMALL_BYTES))
        into.append(time.perf_counter() - begun)
        await asyncio.sleep(0.001)


class _Contestant:
    """A server, its client for small puts and the process of the large ones."""

    def __init__(self, server: LogDB | Redis, scale: Scale) -> None:
        self.server, self._scale = server, scale
        self.figures = Figures(server.name, [], [], [], [], [], 0, 0, 0, 0)

    async def start(self, directory: Path) -> None:
        await self.server.start(directory)
        self._small: Any = self.server.client()
        here, there = multiprocessing.get_context("spawn").Pipe()
        self._pipe = here
        arguments = (self.server.name, self.server.address, self._scale.value_bytes, there)
        self._process = multiprocessing.get_context("spawn").Process(target=_serve_requests, args=arguments)
        self._process.start()
        await self._next_message()
        await self._beside([], asyncio.sleep(self._scale.quiet_s))
        self.figures = self.figures._replace(anonymous_before=memory_of(self.server.pid).anonymous)
        forget_peak(self.server.pid)

    async def _next_message(self) -> Any:
        return await asyncio.get_running_loop().run_in_executor(None, self._pipe.recv)

    async def _beside(self, latencies: list[float], work: Any) -> Any:
        done = asyncio.Event()
        puts = asyncio.create_task(_small_puts(self._small, latencies, done))
        try:
            return await work
        finally:
            done.set()
            await puts

    async def turn(self) -> None:
        figures = self.figures
        await self._beside(figures.quiet, asyncio.sleep(self._scale.quiet_s))
        for verb, seconds, small in (
            ("put", figures.puts, figures.beside_puts),
            ("get", figures.gets, figures.beside_gets),
        ):
            self._pipe.send(verb)
            seconds.append(await self._beside(small, self._next_message()))

    async def finish(self) -> Figures:
        await asyncio.sleep(REST_S)
        memory = memory_of(self.server.pid)
        return self.figures._replace(anonymous_after=memory.anonymous, resident_after=memory.resident, peak=memory.peak)

    async def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(20)
        await self.server.stop()


class Results(NamedTuple):
    """`floor`: seconds of a file of that size, written and synced."""

    figures: list[Figures]
    floor: list[float]
    value_bytes: int
    absent: list[str]

    def cells(self) -> list[tuple[str, ...]]:
        """For people: milliseconds and MiB."""

        def ms(seconds: Sequence[float]) -> str:
            return f"{1000 * statistics.median(seconds):,.0f} ({1000 * max(seconds):,.0f})"

        def small(seconds: Sequence[float]) -> str:
            return f"{1000 * statistics.median(seconds):,.1f} ({1000 * max(seconds):,.0f})"

        return [
            (
                each.server,
                ms(each.puts),
                ms(each.gets),
                small(each.quiet),
                small(each.beside_puts),
                small(each.beside_gets),
                f"{each.anonymous_before:,.0f}",
                f"{each.anonymous_after:,.0f}",
                f"{each.resident_after:,.0f}",
                f"{each.peak:,.0f}",
            )
            for each in self.figures
        ]

    @property
    def title(self) -> str:
        """The title of the table."""
        floor = 1000 * statistics.median(self.floor)
        return f"Values of {self.value_bytes >> 20} MiB; a file of that size is written and synced in {floor:,.0f} ms"

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title)
        for heading in HEADINGS:
            table.add_column(heading)
        for cells in self.cells():
            table.add_row(*cells)
        return table

    def markdown(self) -> str:
        """For the results' directory."""
        lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        return f"{self.title}. Times: median (worst).\n\n" + "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**self._asdict(), "figures": [each._asdict() for each in self.figures]}


HEADINGS = (
    "Server",
    "Put, ms",
    "Get, ms",
    "Small put alone, ms",
    "beside puts, ms",
    "beside gets, ms",
    "Anonymous before, MiB",
    "after",
    "Resident after",
    "Peak",
)


def measure(directory: Path, scale: Scale, progress: Callable[[str], object]) -> Results:
    """Measure all installed servers in `directory`, on a real disk."""
    installed = [kind() for kind in SERVERS if is_installed(kind.program)]
    absent = [kind.name for kind in SERVERS if not is_installed(kind.program)]
    return asyncio.run(_measure(installed, absent, directory, scale, progress))


async def _measure(
    installed: Sequence[LogDB | Redis],
    absent: list[str],
    directory: Path,
    scale: Scale,
    progress: Callable[[str], object],
) -> Results:
    contestants: list[_Contestant] = []
    floor: list[float] = []
    try:
        for server in installed:
            contestants.append(contestant := _Contestant(server, scale))
            await contestant.start(directory / server.name)
        for turn in range(scale.rounds):
            progress(f"round {turn + 1} of {scale.rounds}")
            floor.append(_write_file(directory / "floor", scale.value_bytes))
            for contestant in contestants if turn % 2 else reversed(contestants):
                await contestant.turn()
        return Results([await each.finish() for each in contestants], floor, scale.value_bytes, absent)
    finally:
        for contestant in contestants:
            await contestant.stop()


def write(results: Results, to: Path) -> None:
    """large.json and .md."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "large.json").write_text(json.dumps(results.as_json()) + "\n")
    (to / "large.md").write_text(f"# Large values at a server\n\n{results.markdown()}")
