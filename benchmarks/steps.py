"""The work of each process of a cluster for a single commit and a single get: messages, stream writes, wake-ups, thread
handovers, syncs, CPU time; and the messages between each two roles.

Every process counts for itself (`counted.py`), before and after some hundred operations of one client, one after
another. Messages that servers send without an operation are included: an idle second shows their number.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from rich.console import Group
from rich.table import Table

import logdb.aio
from benchmarks.clusters import FOUNDERS, PROCESSES, Cluster, nodes_of
from benchmarks.counted import Counting, Counts, Messages, counting
from logdb.system.addresses import location_of, role_in

Progress = Callable[[str], object]

CLIENT: Final = "client"
LEADER: Final = " (leader)"
CONNECTIONS: Final = 3
"""Clients that are measured one after another, for each place of the mapping server that they ask."""
MAX_CONNECTIONS: Final = 60
KEYS: Final = 100
COUNTS_S: Final = 10.0
"""How long a process may take to write its counts."""
MIN_SHOWN: Final = 0.05
"""Messages for an operation, below which a hop is left out of the tables."""


class Work(NamedTuple):
    """The work of the processes of one title for one operation. `sent`, `received`: messages to and from other
    processes; `calls`: messages between cores of one process. See `Counts` for the others."""

    processes: int
    sent: float
    received: float
    calls: float
    writes: float
    turns: float
    wakeups: float
    handovers: float
    syncs: float
    switches: float
    cpu_us: float


class Hop(NamedTuple):
    """Messages of one kind for one operation. `is_call`: between two cores of one process."""

    kind: str
    sender: str
    receiver: str
    is_call: bool
    messages: float


class Steps(NamedTuple):
    """Of one operation: how many were measured, their median time, the work by title of the process, the hops."""

    operation: str
    number: int
    median_us: float
    work: dict[str, Work]
    hops: list[Hop]

    def as_json(self) -> Any:
        """For programs."""
        work = {title: one._asdict() for title, one in self.work.items()}
        return {**self._asdict(), "work": work, "hops": [hop._asdict() for hop in self.hops]}


HEADINGS: Final = (
    "Process",
    "Sent",
    "Received",
    "Calls",
    "Writes",
    "Turns",
    "Wake-ups",
    "Handovers",
    "Syncs",
    "Switches",
    "CPU us",
)


class Found(NamedTuple):
    """The result: of a cluster of `engine`, as a process for each server (`nodes` is 0) or as equal nodes."""

    engine: str
    nodes: int
    steps: list[Steps]

    @property
    def name(self) -> str:
        """Of its files."""
        return f"steps-{self.engine}" + (f"-{self.nodes}-nodes" if self.nodes else "")

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.engine}, " + (f"{self.nodes} nodes" if self.nodes else "a process for each server")

    def table(self) -> Group:
        """For a terminal."""
        tables = []
        for steps in self.steps:
            work = Table(*HEADINGS, title=f"{self.title}: {_title(steps)}")
            for row in _work_rows(steps):
                work.add_row(*row)
            hops = Table("Message", "From", "To", "How", "Number")
            for row in _hop_rows(steps):
                hops.add_row(*row)
            tables += [work, hops]
        return Group(*tables)

    def markdown(self) -> str:
        """The page that stays in the repository."""
        lines = [f"# Steps: {self.title}"]
        for steps in self.steps:
            lines += ["", f"## {_title(steps)}", "", "| " + " | ".join(HEADINGS) + " |"]
            lines += ["|---|" + "---:|" * (len(HEADINGS) - 1)]
            lines += ["| " + " | ".join(row) + " |" for row in _work_rows(steps)]
            lines += ["", "| Message | From | To | How | Number |", "|---|---|---|---|---:|"]
            lines += ["| " + " | ".join(row) + " |" for row in _hop_rows(steps)]
        return "\n".join(lines) + "\n"

    def as_json(self) -> Any:
        """For programs."""
        return {"engine": self.engine, "nodes": self.nodes, "steps": [steps.as_json() for steps in self.steps]}

    def write(self, to: Path) -> None:
        """`name`.json and `name`.md."""
        to.mkdir(parents=True, exist_ok=True)
        (to / f"{self.name}.json").write_text(json.dumps(self.as_json()) + "\n")
        (to / f"{self.name}.md").write_text(self.markdown())


def _title(steps: Steps) -> str:
    return f"{steps.operation}: {steps.median_us:,.0f} us (median of {steps.number:,})"


def _work_rows(steps: Steps) -> list[list[str]]:
    rows = []
    for title, work in steps.work.items():
        several = f", {work.processes} processes" if work.processes > 1 else ""
        rows.append([title + several, *[f"{number:,.1f}" for number in work[1:-1]], f"{work.cpu_us:,.0f}"])
    return rows


def _hop_rows(steps: Steps) -> list[list[str]]:
    return [
        [hop.kind, hop.sender, hop.receiver, "call" if hop.is_call else "stream", f"{hop.messages:.1f}"]
        for hop in steps.hops
        if hop.messages >= MIN_SHOWN
    ]


# ---- measuring


def measure(path: Path, engine: str, nodes: int, operations: int, progress: Progress) -> Found:
    """Measure about as many commits and gets, and an idle second."""
    shape = nodes_of(engine, nodes) if nodes else PROCESSES[engine]
    directory = path / "counts"
    directory.mkdir(parents=True)
    serve = (sys.executable, "-m", "benchmarks.counted", str(directory))
    with counting() as mine, Cluster(path, shape, serve=serve) as cluster:
        return Found(engine, nodes, asyncio.run(_measure(Processes(cluster, directory, mine), operations, progress)))


class Processes:
    """The counts of all processes of a cluster, and of this one, which is the client."""

    def __init__(self, cluster: Cluster, directory: Path, mine: Counting) -> None:
        self.endpoints, self.leader = cluster.endpoints, cluster.leader()
        self._cluster, self._directory, self._mine = cluster, directory, mine
        self._names = {address: name for name, address in cluster.addresses.items()}
        self._asked = 0

    async def now(self) -> dict[str, Counts]:
        """The counts of each process, by its name."""
        self._asked += 1
        for process in self._cluster.processes.values():
            process.send_signal(signal.SIGUSR1)
        found = {name: await self._read(name) for name in self._cluster.processes}
        return {**found, CLIENT: self._mine.now()}

    async def _read(self, name: str) -> Counts:
        path, deadline = self._directory / f"{name}.counts", time.monotonic() + COUNTS_S
        while True:
            text = path.read_text() if path.exists() else ""
            if text.count("\n") == self._asked:
                return Counts.from_json(text.splitlines()[-1])
            if time.monotonic() > deadline:
                raise RuntimeError(f"{name} does not report its counts")
            await asyncio.sleep(0.001)

    def process_of(self, address: str) -> str:
        """The name of the process with a server at this address."""
        return self._names.get(location_of(address), CLIENT) if ":" in address else CLIENT

    def role_of(self, address: str) -> str:
        """The role of the server there; that of a leader's process is marked."""
        name = self.process_of(address)
        role = CLIENT if name == CLIENT else role_in(address) or self._cluster.roles[name]
        return role + (LEADER if name == self.leader else "")

    def title_of(self, name: str) -> str:
        """The title of a process: those of one title do the same."""
        role = self._cluster.roles.get(name, CLIENT)
        return role + (LEADER if name == self.leader else "") if role in FOUNDERS else role


class Window(NamedTuple):
    """Measurements of some operations: the counts of each process, and the duration of each operation."""

    counts: dict[str, Counts]
    took_us: list[float]


async def _measure(processes: Processes, operations: int, progress: Progress) -> list[Steps]:
    groups: dict[str, list[Window]] = {}
    each = max(operations // CONNECTIONS, 1)
    has_nodes = processes.title_of(processes.leader) == "node" + LEADER
    for _ in range(MAX_CONNECTIONS if has_nodes else CONNECTIONS):
        progress("Commits and gets, one after another")
        async with await logdb.aio.connect(processes.endpoints) as db:
            await window(processes, 10, lambda number: db.put(b"key-%d" % number, bytes(100)))
            asked = await window(processes, 10, lambda number: db.get(b"key-%d" % number))
            place = ""
            if has_nodes:
                (role,) = {processes.role_of(to) for kind, _, to in asked.counts[CLIENT].sent if kind == "Reads"}
                place = ", asked at the leader's node" if role.endswith(LEADER) else ", asked at another node"
            if len(groups.get(f"A commit{place}", ())) < CONNECTIONS:
                puts = await window(processes, each, lambda number: db.put(b"key-%d" % number, bytes(100)))
                gets = await window(processes, each, lambda number: db.get(b"key-%d" % number))
                groups.setdefault(f"A commit{place}", []).append(puts)
                groups.setdefault(f"A get{place}", []).append(gets)
        if len(groups) == 4 and all(len(windows) == CONNECTIONS for windows in groups.values()):
            break
    async with await logdb.aio.connect(processes.endpoints) as db:
        await db.get(b"key-1")
        await asyncio.sleep(0.5)
        groups["A second without operations"] = [await window(processes, 3, lambda number: asyncio.sleep(1))]
    return [steps_of(operation, windows, processes) for operation, windows in sorted(groups.items())]


async def window(processes: Processes, number: int, operation: Callable[[int], Awaitable[Any]]) -> Window:
    before, took_us = await processes.now(), []
    for one in range(number):
        begun = time.perf_counter()
        await operation(one % KEYS)
        took_us.append((time.perf_counter() - begun) * 1e6)
    after = await processes.now()
    return Window({name: after[name] - before[name] for name in before}, took_us)


# ---- what is computed


def steps_of(operation: str, windows: Sequence[Window], processes: Processes) -> Steps:
    took_us = [us for window in windows for us in window.took_us]
    number = len(took_us)
    names: dict[str, list[str]] = {}
    for name in windows[0].counts:
        names.setdefault(processes.title_of(name), []).append(name)
    work = {
        title: _work([window.counts[name] for window in windows for name in ones], len(ones), number)
        for title, ones in names.items()
    }
    every = [sum(column) for column in zip(*work.values(), strict=True)]
    messages: Counter[tuple[str, str, str, bool]] = Counter()
    for window in windows:
        for counts in window.counts.values():
            for (kind, sender, receiver), count in counts.sent.items():
                roles = processes.role_of(sender), processes.role_of(receiver)
                messages[kind, *roles, is_call(sender, receiver)] += count
    hops = [Hop(*key, count / number) for key, count in messages.most_common()]
    return Steps(operation, number, median(took_us), {**work, "all": Work(int(every[0]), *every[1:])}, hops)


def is_call(sender: str, receiver: str) -> bool:
    """Whether a message between these addresses stays within a process."""
    return ":" in sender and location_of(sender) == location_of(receiver)


def _work(counts: Sequence[Counts], processes: int, number: int) -> Work:
    def between(messages: Messages, *, calls: bool) -> int:
        return sum([count for (_, *ends), count in messages.items() if is_call(*ends) == calls])

    *sums, cpu_ns = [sum(column) for column in zip(*[one[2:] for one in counts], strict=True)]
    sent, received, calls = (
        sum([between(one.sent, calls=False) for one in counts]),
        sum([between(one.received, calls=False) for one in counts]),
        sum([between(one.sent, calls=True) for one in counts]),
    )
    return Work(processes, *[total / number for total in (sent, received, calls, *sums, cpu_ns / 1e3)])
