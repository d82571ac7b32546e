"""TPC-C with several client processes: the databases take turns in every round, so that drift hits all alike."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.table import Table

from benchmarks.clusters import cpu_s
from benchmarks.report import machine
from benchmarks.rounds import spread
from benchmarks.tpcc.servers import Database, databases
from benchmarks.tpcc.workload import Scale

COMMAND: Final = (sys.executable, "-m", "benchmarks.tpcc.clients")
CHECKOUT: Final = Path(__file__).parents[2]
HEADINGS: Final = (
    "Database",
    "Transactions/s",
    "New orders/min",
    "CPU ms a transaction",
    "of its clients",
    "Rate of it",
)


class Effort(NamedTuple):
    """How much is measured."""

    scale: Scale
    processes: int
    rounds: int
    turn_s: float


FULL: Final = Effort(Scale(), processes=8, rounds=5, turn_s=10.0)
QUICK: Final = Effort(Scale(warehouses=1, customers=20, items=50, orders=10), processes=2, rounds=1, turn_s=0.5)


class Turn(NamedTuple):
    """Transactions of all processes in one round. CPU times in seconds, of the servers and of the clients."""

    done: dict[str, int]
    seconds: float
    servers_cpu_s: float
    clients_cpu_s: float

    @property
    def rate(self) -> float:
        """Transactions a second."""
        return sum(self.done.values()) / self.seconds


class Measured(NamedTuple):
    """The rounds of a database, and the consistency conditions that did not hold after them."""

    database: str
    turns: list[Turn]
    violations: list[str]


def measure(effort: Effort, directory: Path, progress: Callable[[str], object]) -> list[Measured]:
    """Measure each database that is installed, in `directory`: on a real disk. RuntimeError if a process ends."""
    running: dict[str, tuple[Database, list[subprocess.Popen[str]]]] = {}
    turns: dict[str, list[Turn]] = {}
    rng = random.Random(20130101)
    try:
        for database in databases():
            progress(f"loading {database.name}")
            running[database.name] = (database, [])
            database.start(directory / str(len(running)), effort.scale)
            running[database.name][1].extend(_clients(database, effort))
            turns[database.name] = []
        for number in range(-1, effort.rounds):
            for name in rng.sample(list(running), len(running)):
                progress(f"round {max(number, 0) + 1} of {effort.rounds}: {name}")
                turn = _turn(*running[name], effort.turn_s)
                if number >= 0:  # the round before the first one only warms up
                    turns[name].append(turn)
        return [
            Measured(name, turns[name], database.violations(effort.scale)) for name, (database, _) in running.items()
        ]
    finally:
        for database, clients in running.values():
            for client in clients:
                client.communicate()
            database.stop()


def _clients(database: Database, effort: Effort) -> list[subprocess.Popen[str]]:
    clients = []
    for number in range(effort.processes):
        warehouse = str(number % effort.scale.warehouses + 1)
        words = [database.name, database.address, json.dumps(effort.scale), warehouse, str(number)]
        clients.append(
            subprocess.Popen([*COMMAND, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
        )
    for client in clients:
        assert client.stdout is not None
        if client.stdout.readline() != "ready\n":
            raise RuntimeError(f"a client of {database.name} did not start")
    return clients


def _turn(database: Database, clients: Sequence[subprocess.Popen[str]], seconds: float) -> Turn:
    used = cpu_s(database.pids())
    for client in clients:
        assert client.stdin is not None
        client.stdin.write(f"{seconds}\n")
        client.stdin.flush()
    done, clients_s = Counter[str](), 0.0
    for client in clients:
        assert client.stdout is not None
        line = client.stdout.readline()
        if not line:
            raise RuntimeError(f"a client of {database.name} ended")
        counts, cpu = json.loads(line)
        done.update(counts)
        clients_s += cpu
    return Turn(dict(done), seconds, cpu_s(database.pids()) - used, clients_s)


def rows(measured: Sequence[Measured]) -> list[tuple[str, ...]]:
    """For people. The ratios are those of the first database to each other one, round by round."""
    found: list[tuple[str, ...]] = []
    for name, turns, _ in measured:
        count = [sum(turn.done.values()) or 1 for turn in turns]
        ratio = spread([ours.rate / max(turn.rate, 1e-9) for ours, turn in zip(measured[0].turns, turns, strict=True)])
        found.append(
            (
                name,
                f"{spread([turn.rate for turn in turns]).median:,.0f}",
                f"{spread([60 * turn.done.get('new_order', 0) / turn.seconds for turn in turns]).median:,.0f}",
                f"{spread([1000 * turn.servers_cpu_s / n for turn, n in zip(turns, count, strict=True)]).median:.1f}",
                f"{spread([1000 * turn.clients_cpu_s / n for turn, n in zip(turns, count, strict=True)]).median:.1f}",
                "" if name == measured[0].database else f"{ratio.median:.2f} ({ratio.least:.2f} to {ratio.most:.2f})",
            )
        )
    return found


def table(measured: Sequence[Measured]) -> Table:
    """For a terminal."""
    shown = Table(title="TPC-C")
    for heading in _headings(measured):
        shown.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
    for cells in rows(measured):
        shown.add_row(*cells)
    return shown


def _headings(measured: Sequence[Measured]) -> tuple[str, ...]:
    return (*HEADINGS[:-1], f"{measured[0].database} to it")


def as_json(measured: Sequence[Measured], effort: Effort) -> dict[str, Any]:
    """For programs."""
    return {
        "machine": machine(),
        "effort": {**effort._asdict(), "scale": effort.scale._asdict()},
        "databases": [
            {"name": name, "turns": [turn._asdict() for turn in turns], "violations": violations}
            for name, turns, violations in measured
        ],
    }


def write(measured: Sequence[Measured], effort: Effort, to: Path) -> None:
    """tpcc.json and tpcc.md."""
    to.mkdir(parents=True, exist_ok=True)
    (to / "tpcc.json").write_text(json.dumps(as_json(measured, effort)) + "\n")
    scale, headings = effort.scale, _headings(measured)
    lines = [
        "# TPC-C",
        "",
        f"{effort.processes} client processes, {scale.warehouses} warehouses of 10 districts with {scale.customers} "
        f"customers, {scale.items} items; {effort.rounds} rounds of {effort.turn_s:g} s in which the databases take "
        "turns; fsync on, all on one machine.",
        "",
        "| " + " | ".join(headings) + " |",
        "|---" + "|---:" * (len(headings) - 1) + "|",
        *("| " + " | ".join(cells) + " |" for cells in rows(measured)),
        "",
        *(f"- {name}: {each}" for name, _, violations in measured for each in violations),
    ]
    (to / "tpcc.md").write_text("\n".join(lines).rstrip() + "\n")
