"""Servers against etcd and Redis; the clients are coroutines of one process, on the same machine.

The servers have their turns in every round, so that drift of the machine hits all alike; one at a time is at work.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.rounds import Spread, spread
from benchmarks.servers import COUNTER_BYTES, Client, Server, is_installed
from benchmarks.servers.etcd import Etcd
from benchmarks.servers.ours import LogDB
from benchmarks.servers.redis import Redis

SERVERS: tuple[type[Server], ...] = (LogDB, Etcd, Redis)
CLIENTS = (1, 8, 64)
VALUE_BYTES, HOT_KEYS, GROUP_KEYS = 100, 10, 10


class Scale(NamedTuple):
    """How much is measured."""

    keys: int
    rounds: int
    turn_s: float


FULL = Scale(keys=10_000, rounds=5, turn_s=1.0)
QUICK = Scale(keys=200, rounds=1, turn_s=0.05)

TARGETS: Mapping[tuple[str, int, str], float] = {
    ("put", 1, "etcd"): 1.0,
    ("put", 64, "etcd"): 2.0,
    ("multi-put", 64, "etcd"): 2.0,
    ("get", 64, "etcd"): 1.0,
    ("transaction", 8, "Redis"): 2.0,
    ("transaction", 64, "Redis"): 5.0,
}
"""Minimum ratio to the rate of a peer, by workload and number of clients."""

Operation = Callable[[Client, Iterator[list[bytes]], bytes], Awaitable[object]]

WORKLOADS: Mapping[str, Operation] = {
    "put": lambda client, keys, value: client.put(next(keys)[0], value),
    "get": lambda client, keys, _: client.get(next(keys)[0]),
    "multi-put": lambda client, keys, value: client.multi_put(dict.fromkeys(next(keys), value)),
    "multi-get": lambda client, keys, _: client.multi_get(next(keys)),
    "transaction": lambda client, keys, _: client.increment(next(keys)[0]),
}
TITLES = {
    "put": "Durable put",
    "get": "Get",
    "multi-put": "Durable 10-key multi-put",
    "multi-get": "10-key multi-get",
    "transaction": "Read-modify-write of 10 hot keys",
}


class Measured(NamedTuple):
    """Operations per second of one server in one workload, round by round."""

    workload: str
    clients: int
    server: str
    rates: list[float]


class Results(NamedTuple):
    """`absent`: servers that are not installed. `ours`: the server whose ratios are shown, with their `targets`."""

    measured: list[Measured]
    absent: list[str]
    ours: str = LogDB.name
    targets: Mapping[tuple[str, int, str], float] = TARGETS

    def rows(self) -> list[tuple[str, int, str, Spread, Spread | None, float | None]]:
        """(workload, clients, server, its rate, LogDB's ratio to it round by round, what that is to be)."""
        ours = {(each.workload, each.clients): each.rates for each in self.measured if each.server == self.ours}
        rows = []
        for workload, clients, server, rates in self.measured:
            ratio = None
            if server != self.ours:
                pairs = zip(ours[workload, clients], rates, strict=True)
                ratio = spread([mine / theirs for mine, theirs in pairs])
            rows.append(
                (workload, clients, server, spread(rates), ratio, self.targets.get((workload, clients, server)))
            )
        return rows

    def cells(self) -> list[tuple[str, ...]]:
        """For people."""
        return [
            (
                TITLES[workload],
                str(clients),
                server,
                f"{rate.median:,.0f}",
                "" if ratio is None else f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})",
                "" if target is None else f"at least {target:g}",
                "" if target is None or ratio is None else ("yes" if ratio.median >= target else "NO"),
            )[: len(self.headings)]
            for workload, clients, server, rate, ratio, target in self.rows()
        ]

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the columns."""
        return HEADINGS if self.targets else HEADINGS[:5]

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title="Servers")
        for heading in self.headings:
            table.add_column(heading, justify="right" if heading in ("Clients", "Operations/s") else "left")
        for cells in self.cells():
            table.add_row(*cells)
        return table

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {"absent": self.absent, "measured": [each._asdict() for each in self.measured]}


HEADINGS = ("Measured", "Clients", "Server", "Operations/s", "LogDB's ratio to it", "Target", "Met")


def measure(
    servers: Sequence[type[Server]],
    directory: Path,
    scale: Scale,
    progress: Callable[[str], object],
    targets: Mapping[tuple[str, int, str], float] = TARGETS,
) -> Results:
    """Measure all installed servers in `directory`, on a real disk. The first server is LogDB."""
    installed = [kind() for kind in servers if is_installed(kind.program)]
    absent = [kind.name for kind in servers if not is_installed(kind.program)]
    measured = asyncio.run(_measure(installed, directory, scale, progress))
    return Results(measured, absent, servers[0].name, targets)


async def _measure(
    installed: Sequence[Server], directory: Path, scale: Scale, progress: Callable[[str], object]
) -> list[Measured]:
    rng = random.Random(20130101)
    keys = [b"key-%012d" % number for number in range(scale.keys)]
    value = rng.randbytes(VALUE_BYTES - COUNTER_BYTES)
    clients: dict[str, list[Client]] = {}
    started: list[Server] = []
    try:
        for server in installed:
            await server.start(directory / server.name)
            started.append(server)
            clients[server.name] = [server.client() for _ in range(max(CLIENTS))]
            for at in range(0, len(keys), 100):
                group = dict.fromkeys(keys[at : at + 100], bytes(COUNTER_BYTES) + value)
                await clients[server.name][0].multi_put(group)
        measured = []
        for workload, operation in WORKLOADS.items():
            drawn = rng.choices(keys[:HOT_KEYS] if workload == "transaction" else keys, k=50_000)
            for count in CLIENTS:
                progress(f"{TITLES[workload]}, {count} clients")
                rates: dict[str, list[float]] = {server.name: [] for server in installed}
                for turn in range(-1, scale.rounds):
                    for server in rng.sample(installed, len(installed)):
                        rate = await _rate(operation, clients[server.name][:count], drawn, value, scale.turn_s)
                        if turn >= 0:  # the round before the first one only warms up
                            rates[server.name].append(rate)
                measured += [Measured(workload, count, name, rounds) for name, rounds in rates.items()]
        return measured
    finally:
        for server in started:
            await server.stop()


async def _rate(
    operation: Operation, clients: Sequence[Client], keys: Sequence[bytes], value: bytes, seconds: float
) -> float:
    """Operations per second of a number of coroutines."""
    endless = cycle(keys)
    groups = iter(lambda: list(islice(endless, GROUP_KEYS)), [])
    begun = time.perf_counter()
    done = 0

    async def client_loop(client: Client) -> None:
        nonlocal done
        while time.perf_counter() - begun < seconds:
            done += 1
            await operation(client, groups, done.to_bytes(COUNTER_BYTES, "big") + value)

    await asyncio.gather(*(client_loop(client) for client in clients))
    return done / (time.perf_counter() - begun)


def write(results: Results, to: Path) -> None:
    """served.json, .md and .png."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "served.json").write_text(json.dumps(results.as_json()) + "\n")
    (to / "served.md").write_text(f"# The single-node server against its peers\n\n{markdown(results)}")
    plot(results, to / "served.png")


def markdown(results: Results) -> str:
    """The table."""
    lines = ["| " + " | ".join(results.headings) + " |", "|---" * len(results.headings) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for cells in results.cells()]
    lines += [f"{name} was not installed." for name in results.absent]
    return "\n".join(lines) + "\n"


def plot(results: Results, to: Path) -> None:
    """All workloads, rate over clients."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(WORKLOADS), figsize=(4 * len(WORKLOADS), 3.5), constrained_layout=True)
    for axis, workload in zip(axes, WORKLOADS, strict=True):
        for name in dict.fromkeys(each.server for each in results.measured):
            rates = [spread(each.rates).median for each in results.measured if each[:3:2] == (workload, name)]
            axis.plot([str(count) for count in CLIENTS], rates, marker="o", label=name)
        axis.set_title(TITLES[workload], fontsize=9)
        axis.set_xlabel("clients")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("operations/s")
    axes[0].legend()
    figure.savefig(to, dpi=110)
    plt.close(figure)
