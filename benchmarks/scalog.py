"""CPU time of the Scalog engine without disks and networks: of a record on its way, and of a cut by servers.

The yardstick for records is the least that any engine in Python does with one: put a head before its payload and
keep it. It is measured in the same rounds, so the ratio says more than the microseconds do on a machine that is shared.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import median
from struct import Struct
from time import process_time_ns
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.cuts import CutCost, cut_cost
from benchmarks.log_client import client_cost
from benchmarks.storage_server import microseconds_per_record

ROUNDS = 5
SERVERS = (2, 20, 200, 2_000)
SERVERS_PER_AGGREGATOR = 50
TARGET_US = 5.0
HEAD = Struct("<QQ")


class Costs(NamedTuple):
    """Microseconds of CPU time, medians of the rounds. Records: of 100 bytes, in batches of 100."""

    head_us: float
    servers_us: float
    append_us: float
    subscribe_us: float
    cuts: list[CutCost]

    @property
    def record_us(self) -> float:
        """From the client's append to its acknowledgement: the client, the primary and one backup together."""
        return self.servers_us + self.append_us

    def table(self) -> Table:
        """For a terminal."""
        table = Table("CPU time", "us", "to a head before a payload", title="The Scalog engine")
        for title, cost in self.rows():
            table.add_row(title, f"{cost:,.2f}", f"{cost / self.head_us:,.1f}" if "cut" not in title else "")
        return table

    def rows(self) -> list[tuple[str, float]]:
        """(what, microseconds)."""
        rows = [
            ("record: a head before its payload", self.head_us),
            ("record: primary and one backup", self.servers_us),
            ("record: client, append and acknowledgement", self.append_us),
            ("record: all of these, from append to acknowledgement", self.record_us),
            ("record: client, subscription", self.subscribe_us),
        ]
        for cut in self.cuts:
            beneath = f", {cut.aggregators} aggregators" if cut.aggregators else ""
            rows.append((f"cut, {cut.servers:,} servers{beneath}: leader", cut.leader_us))
            if cut.aggregators:
                rows.append((f"cut, {cut.servers:,} servers{beneath}: each aggregator", cut.aggregator_us))
        return rows

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        return {**self._asdict(), "record_us": self.record_us, "cuts": [cut._asdict() for cut in self.cuts]}


def measure(quick: bool = False) -> Costs:
    """Measure everything. `quick`: to see that it runs."""
    batches = 20 if quick else 1_000
    heads, servers, appends, subscriptions = [], [], [], []
    for _ in range(1 if quick else ROUNDS):
        heads.append(head_cost(100 * batches))
        servers.append(microseconds_per_record(batches))
        client = client_cost(batches)
        appends.append(client.append_us)
        subscriptions.append(client.subscribe_us)
    cuts = []
    for count in SERVERS[:2] if quick else SERVERS:
        for aggregators in sorted({0, count // SERVERS_PER_AGGREGATOR}):
            rounds = [cut_cost(count, aggregators, 5 if quick else 20_000 // (count + 50)) for _ in heads]
            cuts.append(sorted(rounds, key=lambda cut: cut.leader_us)[len(rounds) // 2])
    return Costs(median(heads), median(servers), median(appends), median(subscriptions), cuts)


def head_cost(records: int) -> float:
    """The yardstick, in microseconds a record."""
    payload = bytes(100)
    begun = process_time_ns()
    kept = [(1, HEAD.pack(7, sequence) + payload) for sequence in range(records)]
    return (process_time_ns() - begun) / 1_000 / len(kept)


def write(costs: Costs, directory: Path) -> None:
    """scalog.json, scalog.md and scalog.png."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "scalog.json").write_text(json.dumps(costs.as_json(), indent=1) + "\n")
    lines = [
        "# CPU time of the Scalog engine",
        "",
        "`python -m benchmarks scalog`: CPU time in one process, disks and networks left out, medians of rounds.",
        f"Records have 100 bytes and come in batches of 100; the aim for one is {TARGET_US:g} us. A cut orders",
        f"something of every server. {os.cpu_count()} cores.",
        "",
        "| CPU time | us | to a head before a payload |",
        "|---|---|---|",
    ]
    for title, cost in costs.rows():
        ratio = f"{cost / costs.head_us:,.1f}" if "cut" not in title else ""
        lines.append(f"| {title} | {cost:,.2f} | {ratio} |")
    (directory / "scalog.md").write_text("\n".join([*lines, "", "![cuts](scalog.png)", ""]))
    plot(costs, directory / "scalog.png")


def plot(costs: Costs, file: Path) -> None:
    """The cost of a cut over the number of servers, with and without aggregators."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5))
    alone = [cut for cut in costs.cuts if not cut.aggregators]
    beneath = [cut for cut in costs.cuts if cut.aggregators]
    axes.plot([cut.servers for cut in alone], [cut.leader_us for cut in alone], "o-", label="leader, no aggregators")
    if beneath:
        counts = [cut.servers for cut in beneath]
        label = f"leader, {SERVERS_PER_AGGREGATOR} servers an aggregator"
        axes.plot(counts, [cut.leader_us for cut in beneath], "s-", label=label)
        axes.plot(counts, [cut.aggregator_us for cut in beneath], "^--", label="each aggregator")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("storage servers")
    axes.set_ylabel("CPU time of a cut, us")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=110, bbox_inches="tight")
    plt.close(figure)
