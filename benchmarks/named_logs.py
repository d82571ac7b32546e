"""Named logs of a server beside Redis Streams and NATS JetStream, each with a sync before every acknowledgement.

The clients are coroutines of one process. The servers have their turns in every round, and one at a time is at work.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from rich.table import Table

import logdb.aio
from benchmarks.rounds import Spread, spread
from benchmarks.servers import answering, ended, launched
from benchmarks.servers.ours import launch
from benchmarks.servers.redis import Redis
from tests.harness.ports import free_ports

ENTRY_BYTES = 100
WRITERS = (1, 64)
SUBSCRIBERS = 100
NAME = "events"
CONSUMER = "billing"
STAMP_BYTES = 8
STANDSTILL_S = 120
"""A round of one server takes a tenth of this."""
CANCEL_S = 0.1
"""Interval at which a task that has not ended is cancelled again."""


class Scale(NamedTuple):
    """How much is measured. `deliveries`: the number of entries whose latency is measured; `fanned_out`: those that all
    subscribers receive; `consumed`: those that a consumer acknowledges one by one."""

    rounds: int
    turn_s: float
    deliveries: int
    fanned_out: int
    consumed: int


FULL = Scale(rounds=5, turn_s=1.0, deliveries=500, fanned_out=200, consumed=200)
QUICK = Scale(rounds=1, turn_s=0.05, deliveries=5, fanned_out=2, consumed=2)


class Stream(Protocol):
    """A server with one log. `append` returns when the entry is durable; `follow` yields the entries that are appended
    from its call on, and calls `begun` when it is ready. `begin_to_consume` makes a consumer of the entries from then
    on, if there is none; `consume` hands it `count` of them, each acknowledged before the next."""

    name: ClassVar[str]
    program: str

    async def start(self, directory: Path) -> None: ...
    async def append(self, entry: bytes) -> object: ...
    def follow(self, begun: Callable[[], object]) -> AsyncGenerator[bytes]: ...
    async def begin_to_consume(self) -> None: ...
    async def consume(self, count: int) -> None: ...
    async def stop(self) -> None: ...


class OurStream:
    """A named log of `logdb serve`, over one connection."""

    name: ClassVar[str] = "LogDB"
    program = "logdb"
    _process: subprocess.Popen[bytes]

    async def start(self, directory: Path) -> None:
        self._process, address = launch(directory)

        async def probe() -> None:
            self._db = await logdb.aio.connect(address)

        await answering(probe, self._process)
        self._log = self._db.log(NAME)
        await self._log.append(b"first")

    async def append(self, entry: bytes) -> object:
        return await self._log.append(entry)

    async def follow(self, begun: Callable[[], object]) -> AsyncGenerator[bytes]:
        last = await self._log.last()
        begun()
        async for entry in self._log.subscribe(after=last):
            yield entry.value

    async def begin_to_consume(self) -> None:
        await self._log.consumer(CONSUMER).reset(to_end=True)

    async def consume(self, count: int) -> None:
        consumer = self._log.consumer(CONSUMER)
        await consumer.run(lambda txn, entry: txn.put(b"effect", entry.value), limit=count)

    async def stop(self) -> None:
        await self._db.close()
        ended(self._process)


class RedisStream:
    """A stream of Redis with appendfsync always; each coroutine has a connection of its own."""

    name: ClassVar[str] = "Redis Streams"
    program = Redis.program

    async def start(self, directory: Path) -> None:
        import redis.asyncio

        self._server = Redis()
        await self._server.start(directory)
        host, _, port = self._server.address.rpartition(":")
        self._redis: Any = redis.asyncio.Redis(host=host, port=int(port), max_connections=1_000, protocol=2)

    async def append(self, entry: bytes) -> object:
        return await self._redis.xadd(NAME, {b"v": entry})

    async def follow(self, begun: Callable[[], object]) -> AsyncGenerator[bytes]:
        newest = await self._redis.xrevrange(NAME, count=1)
        last = newest[0][0] if newest else b"0"
        begun()
        while True:
            for _, entries in await self._redis.xread({NAME: last}, count=1_000, block=1_000):
                last = entries[-1][0]
                for _, fields in entries:
                    yield fields[b"v"]

    async def begin_to_consume(self) -> None:
        import redis

        with contextlib.suppress(redis.ResponseError):  # there is one
            await self._redis.xgroup_create(NAME, CONSUMER, "$")
        await self._redis.xgroup_setid(NAME, CONSUMER, "$")

    async def consume(self, count: int) -> None:
        for _ in range(count):
            [(_, [(entry, _)])] = await self._redis.xreadgroup(CONSUMER, "one", {NAME: ">"}, count=1, block=1_000)
            await self._redis.xack(NAME, CONSUMER, entry)

    async def stop(self) -> None:
        await self._redis.aclose()
        await self._server.stop()


class JetStream:
    """A JetStream of NATS with `sync_interval: always`, which needs nats-server 2.10, over one connection."""

    name: ClassVar[str] = "NATS JetStream"
    _process: subprocess.Popen[bytes]

    def __init__(self, program: str) -> None:
        self.program = program

    async def start(self, directory: Path) -> None:
        import nats

        directory.mkdir()
        port = next(free_ports())
        config = directory / "nats.conf"
        jetstream = f'jetstream {{ store_dir: "{directory}/data", sync_interval: always }}'
        config.write_text(f"listen: 127.0.0.1:{port}\n{jetstream}\n")
        self._process = launched([self.program, "-c", str(config)])

        async def probe() -> None:
            self._connection: Any = await nats.connect(
                f"nats://127.0.0.1:{port}", allow_reconnect=False, connect_timeout=1
            )

        await answering(probe, self._process)
        self._stream: Any = self._connection.jetstream(timeout=30)
        await self._stream.add_stream(name=NAME, subjects=[NAME], storage="file")

    async def append(self, entry: bytes) -> object:
        return await self._stream.publish(NAME, entry)

    async def follow(self, begun: Callable[[], object]) -> AsyncGenerator[bytes]:
        from nats.js.api import DeliverPolicy

        found = await self._stream.subscribe(NAME, ordered_consumer=True, deliver_policy=DeliverPolicy.NEW)
        begun()
        try:
            async for message in found.messages:
                yield message.data
        finally:
            await found.unsubscribe()

    async def begin_to_consume(self) -> None:
        from nats.js.api import ConsumerConfig, DeliverPolicy
        from nats.js.errors import NotFoundError

        with contextlib.suppress(NotFoundError):
            await self._stream.delete_consumer(NAME, CONSUMER)
        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        self._pulled: Any = await self._stream.pull_subscribe(NAME, CONSUMER, config=config)

    async def consume(self, count: int) -> None:
        for _ in range(count):
            [message] = await self._pulled.fetch(1, timeout=1)
            await message.ack_sync()

    async def stop(self) -> None:
        await self._connection.close()
        ended(self._process)


class Measured(NamedTuple):
    """One figure of one server, round by round."""

    figure: str
    unit: str
    server: str
    values: list[float]


class Results(NamedTuple):
    """`absent`: servers that are not installed or did not start."""

    measured: list[Measured]
    absent: list[str]

    def rows(self) -> list[tuple[str, str, Spread, Spread | None]]:
        """(figure with its unit, server, its values, LogDB's ratio to them round by round)."""
        ours = {each.figure: each.values for each in self.measured if each.server == OurStream.name}
        rows = []
        for figure, unit, server, values in self.measured:
            ratio = None
            if server != OurStream.name:
                ratio = spread([mine / theirs for mine, theirs in zip(ours[figure], values, strict=True)])
            rows.append((f"{figure}, {unit}", server, spread(values), ratio))
        return rows

    def cells(self) -> list[tuple[str, str, str, str]]:
        """For people."""
        return [
            (
                figure,
                server,
                f"{found.median:,.2f}" if found.median < 100 else f"{found.median:,.0f}",
                "" if ratio is None else f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})",
            )
            for figure, server, found, ratio in self.rows()
        ]

    def table(self) -> Table:
        """For a terminal."""
        table = Table(*HEADINGS, title="Named logs")
        for cells in self.cells():
            table.add_row(*cells)
        return table

    def markdown(self) -> str:
        """The table."""
        lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        absent = [f"\n{name} was left out: it is not installed, or too old." for name in self.absent]
        return "\n".join([*lines, *absent])

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"absent": self.absent, "measured": [each._asdict() for each in self.measured]}


HEADINGS = ("Measured", "Server", "Value", "LogDB's ratio to it")


def measure(nats_server: str, directory: Path, scale: Scale, progress: Callable[[str], object]) -> Results:
    """Measure all servers that are installed, in `directory`, on a real disk."""
    return asyncio.run(_measure([OurStream(), RedisStream(), JetStream(nats_server)], directory, scale, progress))


async def _measure(
    streams: Sequence[Stream], directory: Path, scale: Scale, progress: Callable[[str], object]
) -> Results:
    started: list[Stream] = []
    absent, values = [], dict[tuple[str, str, str], list[float]]()
    try:
        for stream in streams:
            if stream.name != OurStream.name and shutil.which(stream.program) is None:
                absent.append(stream.name)
                continue
            try:
                await stream.start(directory / stream.name.replace(" ", "-"))
                started.append(stream)
            except (RuntimeError, ModuleNotFoundError):
                absent.append(stream.name)
        for turn in range(-1, scale.rounds):
            for stream in started:
                progress(f"{stream.name}, round {turn + 1} of {scale.rounds}")
                try:
                    async with asyncio.timeout(STANDSTILL_S):
                        found = await _figures(stream, scale)
                except TimeoutError as error:
                    raise RuntimeError(f"{stream.name} stood still for {STANDSTILL_S} s") from error
                if turn >= 0:  # the round before the first one only warms up
                    for (figure, unit), value in found.items():
                        values.setdefault((figure, unit, stream.name), []).append(value)
    finally:
        for stream in started:
            await stream.stop()
    order = list(dict.fromkeys((figure, unit) for figure, unit, _ in values))
    keys = [(*figure, stream.name) for figure in order for stream in started]
    return Results([Measured(*key, values[key]) for key in keys], absent)


async def _figures(stream: Stream, scale: Scale) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for writers in WRITERS:
        found[f"durable appends, {writers} writers", "per second"] = await _appends(stream, writers, scale.turn_s)
    delays = sorted(await latencies(stream, scale.deliveries))
    found["delivery, p50", "ms"] = delays[len(delays) // 2]
    found["delivery, p99", "ms"] = delays[len(delays) * 99 // 100]
    found[f"deliveries to {SUBSCRIBERS} subscribers", "per second"] = await fan_out(stream, scale.fanned_out)
    found["entries of one consumer", "per second"] = await _consumed(stream, scale.consumed)
    return found


async def _consumed(stream: Stream, count: int) -> float:
    """Entries per second that a consumer acknowledges one by one, all of them appended before."""
    await stream.begin_to_consume()
    await asyncio.gather(*(stream.append(b"x" * ENTRY_BYTES) for _ in range(count)))
    begun = time.perf_counter()
    await stream.consume(count)
    return count / (time.perf_counter() - begun)


async def _appends(stream: Stream, writers: int, seconds: float) -> float:
    entry, begun, done = b"x" * ENTRY_BYTES, time.perf_counter(), 0

    async def write() -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            await stream.append(entry)
            done += 1

    await asyncio.gather(*(write() for _ in range(writers)))
    return done / (time.perf_counter() - begun)


async def latencies(stream: Stream, count: int) -> list[float]:
    """The time from the call of `append` to the delivery, in milliseconds, of one entry after another."""
    found: list[float] = []
    arrived, ready = asyncio.Event(), asyncio.Event()

    async def follow() -> None:
        async with contextlib.aclosing(stream.follow(ready.set)) as entries:
            async for entry in entries:
                found.append((time.perf_counter_ns() - int.from_bytes(entry[:STAMP_BYTES], "big")) / 1e6)
                arrived.set()

    following = asyncio.create_task(follow())
    try:
        await _until(ready, following)
        for _ in range(count):
            arrived.clear()
            await stream.append(_stamped())
            await _until(arrived, following)
    finally:
        await _end([following])
    return found


def _stamped() -> bytes:
    return time.perf_counter_ns().to_bytes(STAMP_BYTES, "big").ljust(ENTRY_BYTES, b"x")


async def fan_out(stream: Stream, count: int) -> float:
    """Deliveries per second of entries that 64 writers append, until every subscriber has all of them."""
    ready = [asyncio.Event() for _ in range(SUBSCRIBERS)]

    async def follow(begun: asyncio.Event) -> None:
        left = count
        async with contextlib.aclosing(stream.follow(begun.set)) as entries:
            async for _ in entries:
                left -= 1
                if not left:
                    return

    following = [asyncio.create_task(follow(event)) for event in ready]
    try:
        for task, event in zip(following, ready, strict=True):
            await _until(event, task)
        begun = time.perf_counter()
        await asyncio.gather(*(stream.append(_stamped()) for _ in range(count)))
        await asyncio.gather(*following)
        return count * SUBSCRIBERS / (time.perf_counter() - begun)
    finally:
        await _end(following)


async def _until(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Wait for the event. Raises what the task has raised before."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not event.is_set():
        waiting.cancel()
        task.result()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks until they have ended. Before Python 3.12, `asyncio.wait_for` returns its result instead if it
    has just got it, and clients use it: they lose the cancellation."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_S)


def write(results: Results, to: Path) -> None:
    """named-logs.json, .md and .png."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "named-logs.json").write_text(json.dumps(results.as_json()) + "\n")
    (to / "named-logs.md").write_text(f"# Named logs beside Redis Streams and NATS JetStream\n\n{results.markdown()}\n")
    plot(results, to / "named-logs.png")


def plot(results: Results, to: Path) -> None:
    """A bar for each server in each figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figures = list(dict.fromkeys((each.figure, each.unit) for each in results.measured))
    drawn, axes = plt.subplots(1, len(figures), figsize=(3 * len(figures), 3.5), constrained_layout=True)
    for axis, (figure, unit) in zip(axes, figures, strict=True):
        found = [each for each in results.measured if each.figure == figure]
        axis.bar([each.server.split()[0] for each in found], [spread(each.values).median for each in found])
        axis.set_title(figure, fontsize=8)
        axis.set_ylabel(unit)
    drawn.savefig(to, dpi=110)
    plt.close(drawn)
