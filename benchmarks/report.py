"""The results as numbers (JSON), as a table for a terminal, as Markdown and as a plot."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import sqlite3
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from benchmarks.fresh import Figure
from benchmarks.mixed import Mixed
from benchmarks.peers.disk import Disk
from benchmarks.rounds import Scale, Spread, spread
from benchmarks.workloads import Workload

OURS = "LogDB"
MAX_DISTURBANCE = 2
HEADINGS = ("Measured", "LogDB", "Against", "Its rate", "Ratio: median (least to most)", "Target", "Met")


class Row(NamedTuple):
    """A line of the table. `ratios`: of LogDB's rate to the peer's, None for a figure that has no peer."""

    title: str
    unit: str
    ours: Spread
    peer: str
    theirs: Spread | None
    ratios: Spread | None
    target: float | None
    at_most: bool

    @property
    def met(self) -> bool | None:
        """Whether the target is met, None where there is none."""
        if self.target is None:
            return None
        reached = (self.ratios or self.ours).median
        return reached <= self.target if self.at_most else reached >= self.target

    def cells(self) -> list[str]:
        """As `HEADINGS` says."""
        sign = "at most" if self.at_most else "at least"
        return [
            self.title,
            f"{number(self.ours.median)} {self.unit}",
            self.peer,
            "" if self.theirs is None else number(self.theirs.median),
            f"{number(self.ours.least)} to {number(self.ours.most)} {self.unit}"
            if self.ratios is None
            else f"{self.ratios.median:.2f} ({self.ratios.least:.2f} to {self.ratios.most:.2f})",
            "" if self.target is None else f"{sign} {number(self.target)}",
            {True: "yes", False: "NO", None: ""}[self.met],
        ]


def rows_of(workload: Workload, rates: Mapping[str, Sequence[float]]) -> list[Row]:
    """LogDB against each of its peers in one workload: the ratio is taken round by round."""
    ours = rates[OURS]
    return [
        Row(
            workload.title,
            workload.unit,
            spread(ours),
            peer,
            spread(theirs),
            spread([mine / other for mine, other in zip(ours, theirs, strict=True)]),
            workload.targets.get(peer),
            False,
        )
        for peer, theirs in rates.items()
        if peer != OURS
    ]


def row_of(figure: Figure) -> Row:
    return Row(figure.title, figure.unit, spread(figure.values), "", None, None, figure.target, figure.at_most)


def number(value: float) -> str:
    """For people: 12,345 or 1.23."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def as_json(rows: Sequence[Row], rates: Mapping[str, Mapping[str, list[float]]], scale: Scale) -> dict[str, Any]:
    """Everything, for programs: `rates` has the rate of every round."""
    return {
        "machine": machine(),
        "scale": scale._asdict(),
        "rows": [
            {
                "title": row.title,
                "unit": row.unit,
                "ours": row.ours._asdict(),
                "peer": row.peer or None,
                "theirs": row.theirs and row.theirs._asdict(),
                "ratio": row.ratios and row.ratios._asdict(),
                "target": row.target,
                "at_most": row.at_most,
                "met": row.met,
            }
            for row in rows
        ],
        "rates": rates,
    }


def machine() -> dict[str, Any]:
    """The machine and the versions of the packages."""
    packages = {package: version(package) for package in ("logdb", "lmdb", "rocksdict")}
    return {
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **packages,
    }


def as_table(rows: Sequence[Row]) -> Table:
    """For a terminal."""
    table = Table(*HEADINGS)
    for row in rows:
        style = {True: "green", False: "red", None: None}[row.met]
        table.add_row(*row.cells(), style=style)
    return table


def disk_of(rates: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """The disk's rate beside each workload that wrote, with a warning if the rates differ too much to compare."""
    found = {name: spread(peers[Disk.name]).median for name, peers in rates.items() if Disk.name in peers}
    if not found:
        return ""
    each = ", ".join(f"{name} {number(rate)}" for name, rate in found.items())
    note = f"Syncs a second that the bare loop reached meanwhile: {each}."
    if max(found.values()) > MAX_DISTURBANCE * min(found.values()):
        note += (
            "\n**The disk was disturbed during this run.** Where it was slow, sharing a sync is worth more: ratios of"
            " many threads are flattered there, and those of one thread are noise. Run it again on a quiet machine."
        )
    return note


def as_markdown(rows: Sequence[Row], rates: Mapping[str, Mapping[str, Sequence[float]]], scale: Scale) -> str:
    """The page that stays in the repository."""
    facts = ", ".join(f"{name} {value}" for name, value in machine().items())
    lines = [
        "# LogDB and its peers",
        "",
        f"`python -m benchmarks`: {scale.keys:,} keys, values of 100 bytes, fresh directories on one file system.",
        f"Durable means synced before it is acknowledged. {scale.rounds} rounds of {scale.turn_s:g} s for each peer in",
        "turn, in an order that changes; the ratio is taken in each round, and the target is for its median.",
        "",
        "*loaded*: the process has just written the keys. *restarted*: all databases have been reopened, LogDB behind",
        "a checkpoint, RocksDB flushed and compacted. *write + fdatasync*: a loop on a preallocated file, with as many",
        "bytes as LogDB logs for one put: what the disk gave meanwhile. SQLite's writers queue at a lock of the",
        "process, which is 1.5 times as fast with 64 threads as its own busy waiting. rocksdict takes no part in the",
        "transactions: it offers neither OptimisticTransactionDB nor a compare-and-set.",
        "",
        f"Machine: {facts}.",
        "",
        disk_of(rates),
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(f"| {' | '.join(row.cells())} |" for row in rows),
        "",
        "![ratios](results.png)",
        "",
    ]
    return "\n".join(lines)


def plot(rows: Sequence[Row], file: Path) -> None:
    """The ratios as bars, their spread as lines, the targets as marks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    shown = [row for row in rows if row.ratios is not None][::-1]
    figure, axes = plt.subplots(figsize=(11, 1 + 0.27 * max(len(shown), 4)))
    for place, row in enumerate(shown):
        assert row.ratios is not None
        colour = {True: "tab:green", False: "tab:red", None: "lightgrey"}[row.met]
        axes.barh(place, row.ratios.median, color=colour)
        axes.plot([row.ratios.least, row.ratios.most], [place, place], color="black", linewidth=1)
        if row.target is not None:
            axes.plot([row.target] * 2, [place - 0.45, place + 0.45], color="tab:blue", linewidth=3)
    axes.set_yticks(range(len(shown)), [f"{row.title} / {row.peer}" for row in shown], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set_xlabel("LogDB's rate / peer's rate (line: least to most of the rounds; blue: target)")
    figure.savefig(file, dpi=110, bbox_inches="tight")
    plt.close(figure)


def plot_mixed(mixed: Mixed, file: Path) -> None:
    """Memory, disk and latency over the minutes of the mixed run."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (held, disk, latency) = plt.subplots(3, 1, figsize=(9, 9), sharex=True, constrained_layout=True)
    minutes = [sample.at / 60 for sample in mixed.samples]
    held.plot(minutes, [sample.anonymous for sample in mixed.samples], label="anonymous")
    held.plot(minutes, [sample.resident for sample in mixed.samples], label="all resident", linestyle=":")
    held.set_ylabel("memory, MiB")
    held.legend()
    disk.plot(minutes, [sample.disk for sample in mixed.samples])
    disk.set_ylabel("disk, MiB")
    for kind in mixed.operations:
        points = [(sample.at / 60, sample.latency[kind][0]) for sample in mixed.samples if kind in sample.latency]
        if points:
            latency.plot(*zip(*points, strict=True), label=kind, linewidth=0.7)
    latency.set_ylabel("p99, ms")
    latency.set_yscale("log")
    latency.legend(fontsize=8, ncols=4)
    latency.set_xlabel("minutes")
    for axes in (held, disk):
        axes.set_ylim(bottom=0)
    figure.suptitle(mixed.where)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def write(directory: Path, rows: Sequence[Row], results: Mapping[str, Any], scale: Scale) -> None:
    """results.json, results.md and results.png."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (directory / "results.md").write_text(as_markdown(rows, results["rates"], scale))
    plot(rows, directory / "results.png")
