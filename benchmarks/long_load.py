"""Long load: each engine is loaded, overwritten, killed, opened, halved and compacted, with gets and scans meanwhile.

Each engine works in processes of its own (`loading.py`), one engine after the other on the same disk, all with batches
of 1,000 rows that are durable when they return. Bytes written are the disk's own count: measure on a file system that
nothing else uses. Memory and size on disk are looked at from outside every `SAMPLE_S` seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.table import Table

from benchmarks.counters import MIB, disk_bytes, memory
from benchmarks.fresh import CHECKOUT, key_of
from benchmarks.peers.lmdb import LMDB
from benchmarks.peers.ours import LogDB
from benchmarks.peers.rocksdb import RocksDB
from benchmarks.peers.sqlite import SQLite
from benchmarks.report import machine
from benchmarks.workloads import PEERS, VALUE_BYTES

SAMPLE_S: Final = 0.25
SAMPLES: Final = 400
"""Maximum number of samples kept for an engine."""
BINS: Final = 120
"""Points of a phase in the plot."""
ROW_BYTES: Final = len(key_of(0)) + VALUE_BYTES
ORDERS: Final = ("random", "sequential")
ENGINES: Final = tuple(kind.name for kind in PEERS)
OURS: Final = LogDB.name

MAX_WRITTEN: Final = ((5_000_000, 6.0), (20_000_000, 12.0))
"""(maximum number of keys, maximum bytes written for a byte of data on overwrite); a third of it in key order."""
LONGEST_BATCH_S: Final = 0.5
MAX_SPACE: Final = 2.5
MAX_COMPACTION: Final = 2.0
MAX_MEMORY_MIB: Final = 600.0
LONGEST_OPENING_S: Final = 5.0


class Phase(NamedTuple):
    """Measurements of a phase. `bins`: (end in seconds, rows a second, longest batch in seconds)."""

    rows: int
    seconds: float
    cpu_s: float
    written: int
    worst_s: float
    p999_s: float
    gets: float
    scans: float
    bins: list[tuple[float, float, float]]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def written_per_byte(self) -> float:
        """Bytes written for a byte of data."""
        return self.written / (self.rows * ROW_BYTES)


class Load(NamedTuple):
    """Measurements of an engine with one number of keys in one order. Times in seconds, sizes in bytes, memory in MiB.

    `samples`: (seconds since the beginning, anonymous MiB, all resident MiB, bytes on disk).
    """

    engine: str
    keys: int
    order: str
    phases: dict[str, Phase]
    open_after_kill_s: float
    open_after_close_s: float
    close_s: float
    largest: int
    compacted: int
    anonymous_mib: float
    all_mib: float
    samples: list[tuple[float, float, float, int]]

    @property
    def space(self) -> float:
        """The size after the compaction for a byte of data that is left."""
        return self.compacted / ((self.keys - self.keys // 2) * ROW_BYTES)

    @property
    def worst_s(self) -> float:
        """The longest batch of all phases."""
        return max(phase.worst_s for phase in self.phases.values())

    def cells(self) -> list[str]:
        """As `HEADINGS` says."""
        load, over, delete = (self.phases[name] for name in ("load", "overwrite", "delete"))
        compact, after = self.phases["compact"], self.phases["after"]
        return [
            f"{load.rate:,.0f}",
            f"{over.rate:,.0f}",
            f"{load.cpu_s / load.rows * 1e6:.1f}",
            f"{over.cpu_s / over.rows * 1e6:.1f}",
            f"{load.written_per_byte:.1f}",
            f"{over.written_per_byte:.1f}",
            f"{max(load.p999_s, over.p999_s, delete.p999_s) * 1000:,.0f}",
            f"{self.worst_s * 1000:,.0f}",
            f"{over.gets:,.0f}",
            f"{over.scans:,.0f}",
            f"{after.gets:,.0f}",
            f"{after.scans:,.0f}",
            f"{self.open_after_kill_s:.2f}",
            f"{self.open_after_close_s:.2f}",
            f"{compact.seconds:.1f}",
            f"{compact.cpu_s:.1f}",
            f"{self.space:.2f}",
            f"{self.largest / MIB:,.0f}",
            f"{self.anonymous_mib:,.0f}",
            f"{self.all_mib:,.0f}",
        ]


HEADINGS: Final = (
    "Load, rows/s",
    "Overwrite, rows/s",
    "Load, CPU us a row",
    "Overwrite, CPU us a row",
    "Load: written / data",
    "Overwrite: written / data",
    "p99.9 batch, ms",
    "Worst batch, ms",
    "Gets/s meanwhile",
    "Scans/s meanwhile",
    "Gets/s after",
    "Scans/s after",
    "Open after kill, s",
    "Open after close, s",
    "Compact, s",
    "Compact, CPU s",
    "Compacted / data",
    "Largest, MiB",
    "Anonymous MiB",
    "All resident MiB",
)


class Aim(NamedTuple):
    """A figure of LogDB and what it should be at most (or, `at_least`, more than)."""

    title: str
    figure: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the aim is reached."""
        return self.figure > self.bound if self.at_least else self.figure <= self.bound

    def __str__(self) -> str:
        sign, verdict = "more than" if self.at_least else "at most", "met" if self.met else "NO"
        return f"{self.title}: {self.figure:,.2f}, {sign} {self.bound:,.2f}: {verdict}"


def aims(loads: Sequence[Load]) -> list[Aim]:
    """Every aim for every number of keys and order, as far as the engines that it names were measured."""
    found = []
    for ours in loads:
        if ours.engine != OURS:
            continue
        peers = {each.engine: each for each in loads if (each.keys, each.order) == (ours.keys, ours.order)}
        of, over = f"{ours.keys:,} keys, {ours.order}", ours.phases["overwrite"]
        maximum = next((maximum for keys, maximum in MAX_WRITTEN if ours.keys <= keys), MAX_WRITTEN[-1][1])
        maximum /= 1 if ours.order == "random" else 3
        found += [
            Aim(f"{of}: bytes written for bytes of data on overwrite", over.written_per_byte, maximum),
            Aim(f"{of}: longest batch, s", ours.worst_s, LONGEST_BATCH_S),
            Aim(f"{of}: size after compaction / data", ours.space, MAX_SPACE),
            Aim(f"{of}: anonymous memory, MiB", ours.anonymous_mib, MAX_MEMORY_MIB),
            Aim(f"{of}: open after kill -9, s", ours.open_after_kill_s, LONGEST_OPENING_S),
        ]
        if RocksDB.name in peers:
            ratio = ours.phases["compact"].seconds / peers[RocksDB.name].phases["compact"].seconds
            found.append(Aim(f"{of}: compaction / RocksDB's", ratio, MAX_COMPACTION))
        found += [
            Aim(f"{of}: overwrite rate / {name}'s", over.rate / peers[name].phases["overwrite"].rate, 1.0, True)
            for name in (SQLite.name, LMDB.name)
            if name in peers
        ]
    return found


def measure(
    root: Path,
    sizes: Sequence[int],
    orders: Sequence[str],
    engines: Sequence[str],
    passes: int,
    progress: Callable[[str], None],
) -> Iterator[Load]:
    """Every engine with every number of keys in every order."""
    for keys in sizes:
        for order in orders:
            for name in engines:
                yield load(root / "load", name, keys, order, passes, progress)


def load(root: Path, engine: str, keys: int, order: str, passes: int, progress: Callable[[str], None]) -> Load:
    """One engine, in a directory that is removed afterwards."""
    path = root / "db"
    root.mkdir()
    begun = time.monotonic()
    phases: dict[str, Phase] = {}
    opened: list[float] = []
    closed: list[float] = []
    samples: list[tuple[float, float, float, int]] = []

    def follow(stage: str) -> None:
        with _process(engine, path, keys, order, passes, stage) as process, _sampled(process.pid, path, begun, samples):
            assert process.stdout is not None
            for line in process.stdout:
                event = json.loads(line)
                if event["event"] == "progress":
                    of = f" {event['done']:,} of {event['of']:,}" if event["of"] else ""
                    progress(f"{engine}, {keys:,} keys, {order}: {event['phase']}{of}")
                elif event["event"] == "phase":
                    phases[event["name"]] = _phase(event)
                elif event["event"] == "opened":
                    opened.append(event["seconds"])
                elif event["event"] == "closed":
                    closed.append(event["seconds"])
                else:
                    os.kill(process.pid, signal.SIGKILL)
                    break
            if (code := process.wait()) not in (0, -signal.SIGKILL if stage == "write" else 0):
                raise RuntimeError(f"{engine} ended with {code} while it was to {stage}")

    for stage in ("write", "open", "shrink"):
        progress(f"{engine}, {keys:,} keys, {order}: {stage}")
        follow(stage)
    compacted = disk_bytes(path)
    shutil.rmtree(root)  # at once: the next engine needs the space
    return Load(
        engine,
        keys,
        order,
        phases,
        opened[0],
        opened[1],
        closed[0],
        max(sample[3] for sample in samples),
        compacted,
        max(sample[1] for sample in samples),
        max(sample[2] for sample in samples),
        samples[:: len(samples) // SAMPLES + 1],
    )


def _phase(event: dict[str, Any]) -> Phase:
    batches = event["batches"]
    took = sorted(seconds for _, seconds in batches) or [0.0]
    each = max(len(batches) // BINS, 1)
    bins, before = [], 0.0
    for begin in range(0, len(batches), each):
        some = batches[begin : begin + each]
        end, share = some[-1][0], len(some) / len(batches)
        bins.append((end, event["rows"] * share / (end - before), max(seconds for _, seconds in some)))
        before = end
    return Phase(
        event["rows"],
        event["seconds"],
        event["cpu_s"],
        event["written"],
        took[-1],
        took[min(int(len(took) * 0.999), len(took) - 1)],
        event["gets"],
        event["scans"],
        bins,
    )


@contextmanager
def _process(
    engine: str, path: Path, keys: int, order: str, passes: int, stage: str
) -> Iterator[subprocess.Popen[str]]:
    """The process of a stage. It has a session of its own: Ctrl-C comes here, and this ends it."""
    words = [engine, str(path.resolve()), str(keys), order, str(passes), stage]
    command = [sys.executable, "-m", "benchmarks.loading", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def _sampled(pid: int, path: Path, begun: float, samples: list[tuple[float, float, float, int]]) -> Iterator[None]:
    """Sample the process periodically while the block runs."""
    over = threading.Event()

    def look() -> None:
        while True:
            try:
                now, held = time.monotonic() - begun, memory(pid)
            except (OSError, KeyError):  # it has ended
                return
            samples.append((round(now, 2), round(held.anonymous, 1), round(held.all, 1), disk_bytes(path)))
            if over.wait(SAMPLE_S):
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tables(loads: Sequence[Load]) -> Iterator[Table]:
    """For a terminal, one for each number of keys and order."""
    for (keys, order), these in _runs(loads).items():
        shown = Table("", *(each.engine for each in these), title=f"{keys:,} keys, {order}", title_justify="left")
        for row in _rows(these):
            shown.add_row(*row)
        yield shown


def _runs(loads: Sequence[Load]) -> dict[tuple[int, str], list[Load]]:
    """Loads to compare: by number of keys and order."""
    found: dict[tuple[int, str], list[Load]] = {}
    for each in loads:
        found.setdefault((each.keys, each.order), []).append(each)
    return found


def _rows(loads: Sequence[Load]) -> list[tuple[str, ...]]:
    return list(zip(HEADINGS, *(each.cells() for each in loads), strict=True))


def as_json(loads: Sequence[Load], passes: int) -> dict[str, Any]:
    """For programs."""
    return {
        "machine": machine(),
        "passes": passes,
        "loads": [
            {**each._asdict(), "phases": {name: phase._asdict() for name, phase in each.phases.items()}}
            for each in loads
        ],
        "aims": [{**aim._asdict(), "met": aim.met} for aim in aims(loads)],
    }


def write(loads: Sequence[Load], passes: int, directory: Path) -> None:
    """long-load.json, .md and a plot for each number of keys and order."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "long-load.json").write_text(json.dumps(as_json(loads, passes)) + "\n")
    lines = [
        "# The long load",
        "",
        f"`python -m benchmarks long-load`: keys of {len(key_of(0))} and values of {VALUE_BYTES} bytes, loaded,",
        f"overwritten {passes} times over, killed with SIGKILL while it goes on, opened, closed, opened, half of the",
        "keys deleted, compacted; in batches of 1,000 rows that are synced before they return, after each ten of them",
        "100 gets and 10 scans of 100 rows. Data are keys and values; written bytes are the disk's count, journal and",
        "all, on a file system of its own; worst and p99.9 batches are those of load, overwrite and delete; memory is",
        "the peak (anonymous: what the process allocated; all: with the pages of mapped files, which the system takes",
        "back when it needs them).",
        "Rates are without the time of the reads, CPU times (all threads of the process) with it and that of making",
        "the rows, which is the same for all. *after*: when it has been compacted.",
        "",
        f"Machine: {', '.join(f'{name} {value}' for name, value in machine().items())}.",
    ]
    for (keys, order), these in _runs(loads).items():
        picture = f"long-load-{keys}-{order}.png"
        lines += ["", f"## {keys:,} keys, {order}", "", f"| | {' | '.join(each.engine for each in these)} |"]
        lines += [f"|---|{'---:|' * len(these)}", *(f"| {' | '.join(row)} |" for row in _rows(these))]
        lines += ["", *(f"- {aim}" for aim in aims(these)), "", f"![over time]({picture})"]
        plot(these, directory / picture)
    (directory / "long-load.md").write_text("\n".join([*lines, ""]))


def plot(loads: Sequence[Load], file: Path) -> None:
    """Rows a second, the longest batches, memory and space over time, an engine beneath the other."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(4, 1, figsize=(11, 13), constrained_layout=True)
    rates, longest, held, space = axes
    data = loads[0].keys * ROW_BYTES
    for each in loads:
        done, points = 0, []
        for name in ("load", "overwrite", "delete"):
            phase = each.phases[name]
            points += [
                (done + phase.rows * (number + 1) / len(phase.bins), rate, worst)
                for number, (_, rate, worst) in enumerate(phase.bins)
            ]
            done += phase.rows
        millions = [rows / 1e6 for rows, _, _ in points]
        rates.plot(millions, [rate for _, rate, _ in points], label=each.engine, linewidth=1)
        longest.plot(millions, [worst for _, _, worst in points], label=each.engine, linewidth=1)
        seconds = [sample[0] for sample in each.samples]
        (line,) = held.plot(seconds, [sample[1] for sample in each.samples], label=each.engine, linewidth=1)
        held.plot(seconds, [sample[2] for sample in each.samples], linewidth=0.5, linestyle=":", color=line.get_color())
        space.plot(seconds, [sample[3] / data for sample in each.samples], label=each.engine, linewidth=1)
    longest.axhline(LONGEST_BATCH_S, color="black", linewidth=0.5)
    held.axhline(MAX_MEMORY_MIB, color="black", linewidth=0.5)
    for axis, label in (
        (rates, "rows/s"),
        (longest, "longest batch, s"),
        (held, "MiB: anonymous, dotted: all resident"),
        (space, "size on disk / data"),
    ):
        axis.set_ylabel(label)
        axis.set_xlabel("seconds" if axis in (held, space) else "million rows written: load, overwrite, delete")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    longest.set_yscale("log")
    rates.set_ylim(bottom=0)
    held.set_yscale("log")
    held.set_ylim(bottom=10)
    figure.suptitle(f"{loads[0].keys:,} keys, {loads[0].order}")
    figure.savefig(file, dpi=100)
    plt.close(figure)
