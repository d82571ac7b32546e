"""Throughput of a cluster over time while something happens to it, as in figures 3.3 and 3.4 of the dissertation.

Transactions are offered at half the rate that the cluster can take, whatever becomes of those before them, so work that
is held up shows as a dip and a peak after it. Every one writes a key of its own; in the end all that were acknowledged
are looked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from rich.table import Table

import logdb.aio
from benchmarks.clusters import PROCESSES, Cluster, nodes_of
from logdb.errors import LogDBError
from logdb.log import connect

BUCKET_S = 0.1
TICK_S = 0.005
CLIENTS = 32
"""Number of coroutines that measure the cluster's capacity."""
WINDOW_S = 1.0
"""Length of the window after an event whose throughput is compared with the rest."""


class Event(NamedTuple):
    """`happened` and `done`: when it began and ended, seconds from the beginning."""

    what: str
    happened: float
    done: float


class Timeline(NamedTuple):
    """`offered` per second. `issued`, `acked`: when transactions were, in seconds from the beginning; `failed` of them
    ended in errors, and of the acknowledged ones `lost` were not there in the end."""

    title: str
    offered: float
    seconds: float
    events: list[Event]
    issued: list[float]
    acked: list[float]
    failed: int
    lost: int

    def rates(self, width_s: float = BUCKET_S) -> list[float]:
        """Acknowledged per second, in one bucket after another."""
        counts = [0] * max(round(self.seconds / width_s), 1)
        for at in self.acked:
            if at < len(counts) * width_s:
                counts[int(at / width_s)] += 1
        return [count / width_s for count in counts]

    def waiting(self, at: float) -> int:
        """Number of transactions under way."""
        return sum([issued <= at for issued in self.issued]) - sum([acked <= at for acked in self.acked])

    def silence_s(self, event: Event) -> float:
        """The longest time without an acknowledgement that began at most `WINDOW_S` after the event."""
        moments = [event.happened, *sorted([at for at in self.acked if at > event.happened]), self.seconds]
        gaps = [later - at for at, later in pairwise(moments) if at <= max(event.done, event.happened + WINDOW_S)]
        return max(gaps)

    def caught_up_s(self, event: Event) -> float:
        """When as few transactions were on their way as had been at most before the event, after they were more; the
        most that is known is that it had not happened by the end."""
        steps = [at * BUCKET_S for at in range(round(self.seconds / BUCKET_S))]
        before = max([self.waiting(at) for at in steps if at < event.happened], default=0)
        after = [at for at in steps if at > event.done]
        behind = [at for at in after if self.waiting(at) > before and at < event.done + WINDOW_S]
        if not behind:
            return event.done - event.happened + BUCKET_S
        caught_up = [at for at in after if at > behind[0] and self.waiting(at) <= before]
        return min(caught_up, default=self.seconds) - event.happened

    def deviation(self, event: Event) -> float:
        """The throughput in the `WINDOW_S` after the event less what it is in others, in their standard deviations."""
        calm = [
            rate
            for at, rate in enumerate(self.rates(WINDOW_S))
            if not any(each.happened - WINDOW_S < at * WINDOW_S < each.done + WINDOW_S for each in self.events)
        ]
        then = sum([event.happened <= at < event.happened + WINDOW_S for at in self.acked]) / WINDOW_S
        return (then - mean(calm)) / max(stdev(calm), 1e-9) if len(calm) > 1 else 0.0

    def rows(self) -> list[tuple[str, str]]:
        """The lines below the plot."""
        lines = [
            ("offered", f"{self.offered:,.0f}/s"),
            ("acknowledged", f"{len(self.acked):,} of {len(self.issued):,}"),
            ("failed", f"{self.failed:,}"),
            ("acknowledged and lost", f"{self.lost:,}"),
        ]
        for event in self.events:
            what = f"{event.what} ({event.happened:.1f} s)"
            lines += [
                (f"{what}: took", f"{event.done - event.happened:.2f} s"),
                (f"{what}: nothing acknowledged for", f"{self.silence_s(event):.2f} s"),
                (f"{what}: backlog caught up after", f"{self.caught_up_s(event):.1f} s"),
                (f"{what}: throughput of the next second", f"{self.deviation(event):+.1f} standard deviations"),
            ]
        return lines

    def table(self) -> Table:
        """For a terminal."""
        table = Table("", "", title=self.title, show_header=False)
        for row in self.rows():
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """The same for a file."""
        return "\n".join(["| | |", "|---|---:|", *[f"| {what} | {value} |" for what, value in self.rows()]]) + "\n"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        figures = {"rates": self.rates(), "events": [event._asdict() for event in self.events]}
        return {**self._asdict(), **figures, "issued": len(self.issued), "acked": len(self.acked)}

    def plot(self, to: Path) -> None:
        """Acknowledged per second over time."""
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, axis = plt.subplots(figsize=(9, 3.5), constrained_layout=True)
        rates = self.rates()
        axis.plot([at * BUCKET_S for at in range(len(rates))], rates, drawstyle="steps-post", linewidth=1)
        axis.axhline(self.offered, linestyle=":", color="gray", label="offered")
        for at, event in enumerate(self.events):
            axis.axvspan(event.happened, max(event.done, event.happened + 0.02), alpha=0.3, color=f"C{at + 1}")
            axis.axvline(event.happened, color=f"C{at + 1}", label=event.what)
        axis.set_title(self.title)
        axis.set_xlabel("seconds")
        axis.set_ylabel("transactions/s acknowledged")
        axis.set_ylim(bottom=0)
        axis.legend()
        figure.savefig(to, dpi=110)
        plt.close(figure)


Step = tuple[str, Callable[[], object]]
"""Something that is done to the cluster, in a thread, and what it is called."""


def leader_killed(path: Path, seconds: float, progress: Callable[[str], object]) -> Timeline:
    """kill -9 of the ordering layer's leader."""
    with Cluster(path, PROCESSES["scalog"]) as cluster:
        leader = cluster.leader()
        steps = [("ordering leader killed", lambda: cluster.kill(leader))]
        title = "The ordering layer's leader is killed (election timeout 0.5 to 1 s)"
        return _run(title, cluster, steps, seconds, progress)


def node_killed(path: Path, engine: str, seconds: float, progress: Callable[[str], object]) -> Timeline:
    """kill -9 of the one of three nodes whose ordering replica leads."""
    with Cluster(path, nodes_of(engine, 3)) as cluster:
        leader = cluster.leader()
        steps = [("leader's node killed", lambda: cluster.kill(leader))]
        return _run(f"One of three nodes is killed, the leader's ({engine})", cluster, steps, seconds, progress)


def shards_changed(path: Path, seconds: float, progress: Callable[[str], object]) -> Timeline:
    """A shard is added, and one of the first ones finalized."""
    shape = PROCESSES["scalog"]
    with Cluster(path, shape._replace(storage=shape.storage + 2)) as cluster, connect(cluster.endpoints) as log:
        steps: list[Step] = [
            ("shard added", log.add_shard),
            ("shard finalized", lambda: log.finalize_shard(1, 10)),
        ]
        return _run("A shard is added, and another one finalized", cluster, steps, seconds, progress)


def _run(
    title: str, cluster: Cluster, steps: Sequence[Step], seconds: float, progress: Callable[[str], object]
) -> Timeline:
    progress(title)
    return asyncio.run(_observed(title, cluster.endpoints, steps, seconds))


async def _observed(title: str, endpoints: str, steps: Sequence[Step], seconds: float) -> Timeline:
    async with await logdb.aio.connect(endpoints, timeout=30) as db:
        offered = await _capacity(db, seconds / 6) / 2
        issued: list[float] = []
        acked: dict[int, float] = {}
        failed: list[Exception] = []
        events: list[Event] = []
        begun = time.perf_counter()

        def now() -> float:
            return time.perf_counter() - begun

        async def put(number: int) -> None:
            try:
                await db.put(b"offered-%d" % number, b"%d" % number)
            except LogDBError as error:
                failed.append(error)
            else:
                acked[number] = now()

        async def happen(at: float, what: str, step: Callable[[], object]) -> None:
            await asyncio.sleep(at - now())
            happened = now()
            await asyncio.to_thread(step)
            events.append(Event(what, happened, now()))

        moments = [seconds * (number + 1) / (len(steps) + 1) for number in range(len(steps))]
        happening = [asyncio.create_task(happen(at, *step)) for at, step in zip(moments, steps, strict=True)]
        under_way: list[Awaitable[None]] = []
        while now() < seconds:
            while len(issued) < now() * offered:
                under_way.append(asyncio.create_task(put(len(issued))))
                issued.append(now())
            await asyncio.sleep(TICK_S)
        await asyncio.gather(*happening, *under_way)
        lost = await _lost(db, list(acked))
    return Timeline(title, offered, seconds, events, issued, sorted(acked.values()), len(failed), lost)


async def _capacity(db: logdb.aio.Database, seconds: float) -> float:
    """Transactions per second of `CLIENTS` coroutines that each commit one after another."""
    done, end = 0, time.perf_counter() + seconds

    async def client() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await db.put(b"capacity", b"")
            done += 1

    await asyncio.gather(*[client() for _ in range(CLIENTS)])
    return done / seconds


async def _lost(db: logdb.aio.Database, numbers: Sequence[int]) -> int:
    lost = 0
    for first in range(0, len(numbers), 500):
        wanted = {b"offered-%d" % number: b"%d" % number for number in numbers[first : first + 500]}
        found = await db.multi_get(list(wanted))
        lost += sum([found.get(key) != value for key, value in wanted.items()])
    return lost
