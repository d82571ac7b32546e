"""Where the time of a commit goes in a cluster, at low load: hop by hop, on the way that its verdict depends on.

    client -> primary: sync -> backup: sync -> ordering leader -> another replica: sync -> leader -> a member of the
    shard -> mapping server -> client

Every process notes when messages leave and come and when its journals are flushed (`traced.py`); of each commit the
notes on that way are picked out. After each one there is a bare message and a bare sync (`bare.py`), of a process that
has slept as long as the others have: a process that is woken for one message is slower than one that is kept busy.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.table import Table

import logdb.aio
from benchmarks.bare import Bare
from benchmarks.clusters import PROCESSES, Cluster
from benchmarks.traced import Note, noted, read

GOAL = 3.0
"""Goal: maximum ratio of a commit's time to that of its bare syncs and messages."""


class Hop(NamedTuple):
    """`kind`: "message", "sync", or "work" (everything else that a process does)."""

    name: str
    kind: str


HOPS = (
    Hop("client: call", "work"),
    Hop("Append: client to primary", "message"),
    Hop("primary: takes the record", "work"),
    Hop("primary: sync", "sync"),
    Hop("primary: to replicate", "work"),
    Hop("Replicate: primary to backup", "message"),
    Hop("backup: takes the record", "work"),
    Hop("backup: sync", "sync"),
    Hop("backup: to report", "work"),
    Hop("Report: backup to leader", "message"),
    Hop("leader: proposes a cut", "work"),
    Hop("Accept: leader to replica", "message"),
    Hop("replica: takes the cut", "work"),
    Hop("replica: sync", "sync"),
    Hop("replica: to accept", "work"),
    Hop("Accepted: replica to leader", "message"),
    Hop("leader: applies the cut", "work"),
    Hop("Updates: leader to member", "message"),
    Hop("member: places the record", "work"),
    Hop("Pulled: member to mapping server", "message"),
    Hop("mapping server: decides", "work"),
    Hop("Verdicts: mapping server to client", "message"),
    Hop("client: answer", "work"),
)
KINDS = ("message", "sync", "work")
MESSAGES, SYNCS = (sum([hop.kind == kind for hop in HOPS]) for kind in ("message", "sync"))


class Split(NamedTuple):
    """Medians in microseconds. `hops`: in the order of HOPS, of the `commits` that could be followed."""

    commits: int
    commit_us: float
    hops: list[float]
    message_us: float
    sync_us: float

    @property
    def bare_us(self) -> float:
        """Time of the messages and syncs on the way by themselves, in microseconds."""
        return MESSAGES * self.message_us + SYNCS * self.sync_us

    @property
    def ratio(self) -> float:
        """The ratio of a commit's time to `bare_us`."""
        return self.commit_us / self.bare_us

    def of_kind(self, kind: str) -> float:
        """The sum of the hops of a kind."""
        return sum([us for hop, us in zip(HOPS, self.hops, strict=True) if hop.kind == kind])

    def table(self) -> Table:
        """For a terminal."""
        table = Table("hop", "what", "us", title="A commit with one client")
        for hop, us in zip(HOPS, self.hops, strict=True):
            table.add_row(hop.name, hop.kind, f"{us:,.0f}")
        table.add_section()
        for cells in self.sums():
            table.add_row(*cells)
        return table

    def sums(self) -> list[tuple[str, str, str]]:
        """The lines below the hops."""
        return [
            ("a commit", "median", f"{self.commit_us:,.0f}"),
            *[(f"all of these on its way: {kind}", "sum", f"{self.of_kind(kind):,.0f}") for kind in KINDS],
            ("a bare message, one way", "median", f"{self.message_us:,.0f}"),
            ("a bare sync", "median", f"{self.sync_us:,.0f}"),
            (f"{MESSAGES} bare messages and {SYNCS} bare syncs", "sum", f"{self.bare_us:,.0f}"),
            (f"ratio of a commit to these (goal: at most {GOAL:g})", "ratio", f"{self.ratio:.2f}"),
        ]

    def markdown(self) -> str:
        """The same as a table for a file."""
        rows = [(hop.name, hop.kind, f"{us:,.0f}") for hop, us in zip(HOPS, self.hops, strict=True)]
        lines = ["| Hop | What | us |", "|---|---|---:|"]
        return "\n".join([*lines, *["| " + " | ".join(row) + " |" for row in [*rows, *self.sums()]]]) + "\n"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        named = {hop.name: us for hop, us in zip(HOPS, self.hops, strict=True)}
        return {**self._asdict(), "hops": named, "bare_us": self.bare_us, "ratio": self.ratio}


def measure(path: Path, rounds: int, commits: int, progress: Callable[[str], object]) -> Split:
    """Measure rounds of `commits` commits each, one after another."""
    directory = path / "notes"
    directory.mkdir(parents=True)
    serve = (sys.executable, "-m", "benchmarks.traced", str(directory))
    with noted() as mine, Cluster(path, PROCESSES["scalog"], serve=serve) as cluster:
        progress("Commits, one after another")
        spans, messages, syncs = asyncio.run(_commits(cluster.endpoints, path, rounds, commits))
        leader, names = cluster.leader(), {address: name for name, address in cluster.addresses.items()}
        cluster.close()
    notes = {name: read(directory / f"{name}.notes") for name in cluster.roles}
    return split(Log({**notes, CLIENT: list(mine)}, names), leader, spans, messages, syncs)


async def _commits(
    endpoints: str, path: Path, rounds: int, commits: int
) -> tuple[list[tuple[int, int]], list[float], list[float]]:
    """(when each commit began and ended, bare messages, bare syncs)."""
    bare, spans, messages, syncs = Bare(path), [], [], []
    async with await logdb.aio.connect(endpoints) as db:
        for turn in range(-1, rounds):
            for number in range(commits):
                begun = time.monotonic_ns()
                await db.put(b"key-%d" % number, bytes(100))
                ended = time.monotonic_ns()
                message_us, sync_us = await bare.message_us(), bare.sync_us()
                if turn >= 0:  # the round before the first one only warms up
                    spans.append((begun, ended))
                    messages.append(message_us)
                    syncs.append(sync_us)
    await bare.close()
    return spans, messages, syncs


CLIENT = "client"


class Log:
    """The notes of all processes, by name."""

    def __init__(self, notes: Mapping[str, Sequence[Note]], names: Mapping[str, str]) -> None:
        self._notes = {
            process: [note._replace(peer=names.get(note.peer, CLIENT)) if note.peer else note for note in ones]
            for process, ones in notes.items()
        }
        self._times = {process: [note.at for note in ones] for process, ones in notes.items()}

    def after(self, at: int, process: str, what: str, kind: str = "", peer: str = "") -> Note:
        """The first matching note at or after a time. Raises LookupError."""
        notes = self._notes[process]
        for index in range(bisect_left(self._times[process], at), len(notes)):
            if _fits(notes[index], what, kind, peer):
                return notes[index]
        raise LookupError(f"{process} {what} no {kind}")

    def before(self, at: int, process: str, what: str, kind: str = "", peer: str = "") -> Note:
        """The last matching note at or before a time. Raises LookupError."""
        notes = self._notes[process]
        for index in range(bisect_left(self._times[process], at + 1) - 1, -1, -1):
            if _fits(notes[index], what, kind, peer):
                return notes[index]
        raise LookupError(f"{process} {what} no {kind}")


def _fits(note: Note, what: str, kind: str, peer: str) -> bool:
    return note.what == what and note.kind == kind and (not peer or note.peer == peer)


def way(log: Log, leader: str, begun: int, ended: int) -> list[int]:
    """The moments between the hops of one commit, with those at which it began and ended. Raises LookupError."""
    # From its beginning up to the proposal, each step is the first one that is possible.
    append = log.after(begun, CLIENT, "sent", "Append")
    primary = append.peer
    moments = [begun, append.at, log.after(append.at, primary, "came", "Append", CLIENT).at]
    moments += _sync(log, moments[-1], primary)
    replicate = log.after(moments[-1], primary, "sent", "Replicate")
    backup = replicate.peer
    moments += [replicate.at, log.after(replicate.at, backup, "came", "Replicate", primary).at]
    moments += _sync(log, moments[-1], backup)
    moments.append(log.after(moments[-1], backup, "sent", "Report", leader).at)
    moments.append(log.after(moments[-1], leader, "came", "Report", backup).at)
    proposed = log.after(moments[-1], leader, "sent", "Accept")
    # From its end back to the vote that made the cut chosen, each step is the last one that is possible.
    verdicts = log.before(ended, CLIENT, "came", "Verdicts")
    mapping = verdicts.peer
    back = [ended, verdicts.at, log.before(verdicts.at, mapping, "sent", "Verdicts", CLIENT).at]
    pulled = log.before(back[-1], mapping, "came", "Pulled")
    member = pulled.peer
    back += [pulled.at, log.before(pulled.at, member, "sent", "Pulled", mapping).at]
    back.append(log.before(back[-1], member, "came", "Updates", leader).at)
    back.append(log.before(back[-1], leader, "sent", "Updates", member).at)
    accepted = log.before(back[-1], leader, "came", "Accepted")
    replica = accepted.peer
    moments += [proposed.at, log.after(proposed.at, replica, "came", "Accept", leader).at]
    moments += _sync(log, moments[-1], replica)
    moments += [log.after(moments[-1], replica, "sent", "Accepted", leader).at, accepted.at]
    moments += reversed(back)
    if moments != sorted(moments):
        raise LookupError("these are not of one commit")
    return moments


def _sync(log: Log, at: int, process: str) -> list[int]:
    """When the first flush that begins after a moment began and ended."""
    begun = log.after(at, process, "flushes").at
    return [begun, log.after(begun, process, "flushed").at]


def split(
    log: Log, leader: str, spans: Sequence[tuple[int, int]], messages: Sequence[float], syncs: Sequence[float]
) -> Split:
    """The medians of all commits that can be followed through the notes; nearly all can."""
    ways = []
    for span in spans:
        try:
            ways.append(way(log, leader, *span))
        except LookupError:
            continue
    if not ways:
        raise RuntimeError("no commit could be followed through the notes")
    hops = [median([(one[at + 1] - one[at]) / 1e3 for one in ways]) for at in range(len(HOPS))]
    took = median([(end - begun) / 1e3 for begun, end in spans])
    return Split(len(ways), took, hops, median(messages), median(syncs))
