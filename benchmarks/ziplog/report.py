"""The result: tables and plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from rich.console import Group

from benchmarks.statements import Rows, markdown, name_axes, shown, statement_rows
from benchmarks.steps import MIN_SHOWN
from benchmarks.ziplog.measuring import BUCKET_S, SCALOG, ZIPLOG, Failure, Measured
from benchmarks.ziplog.statements import statements

NAME: Final = "ziplog"
TITLE: Final = "Ziplog beside Scalog and Multi-Paxos"


def tables(found: Measured) -> list[Rows]:
    """All figures."""
    return [
        statement_rows("Statements of section 4.4", statements(found)),
        _commits(found),
        _messages(found),
        _points(found),
        _access(found),
        _failures(found),
        _increments(found),
        _epochs(found),
    ]


def _commits(found: Measured) -> Rows:
    steps, message_us, sync_us = found.commits.steps, found.commits.message_us, found.commits.sync_us
    rows = [
        [
            engine,
            f"{one.median_us:,.0f}",
            f"{one.median_us / steps[SCALOG].median_us:.2f}",
            f"{one.work['all'].sent:.1f}",
            f"{one.work['all'].syncs:.1f}",
            f"{one.work['all'].cpu_us:,.0f}",
        ]
        for engine, one in steps.items()
    ]
    title = f"A commit alone on three nodes (a bare message {message_us:,.0f} us, a bare sync {sync_us:,.0f} us)"
    return title, ["Engine", "Median us", "Of Scalog's", "Messages", "Syncs", "CPU us"], rows


def _messages(found: Measured) -> Rows:
    rows = [
        [engine, hop.kind, hop.sender, hop.receiver, "call" if hop.is_call else "stream", f"{hop.messages:.1f}"]
        for engine, one in found.commits.steps.items()
        for hop in one.hops
        if hop.messages >= 10 * MIN_SHOWN
    ]
    return "Its messages", ["Engine", "Message", "From", "To", "How", "Number"], rows


def _points(found: Measured) -> Rows:
    rows = [
        [
            one.engine,
            str(one.clients),
            f"{one.offered:g}",
            f"{one.inserts_per_s:,.0f}",
            f"{one.mean_ms:.1f}",
            f"{one.median_ms:.1f}",
            f"{one.fast_share:.0%}" if one.engine == ZIPLOG else "",
        ]
        for one in found.points
    ]
    headings = ["Engine", "Clients", "Offered/s", "Inserts/s", "Mean ms", "Median ms", "Fast path"]
    return "A shard (figures 4.4 and 4.5)", headings, rows


def _access(found: Measured) -> Rows:
    rows = [
        [
            one.engine,
            f"{one.gap_s * 1e3:g}",
            str(one.records),
            f"{one.mean_ms:.1f}",
            f"{one.median_ms:.1f}",
            f"{one.p99_ms:.1f}",
        ]
        for one in found.access
    ]
    headings = ["Engine", "Between inserts, ms", "Records", "Mean ms", "Median ms", "p99 ms"]
    return "Sequential access (figure 4.6)", headings, rows


def _failures(found: Measured) -> Rows:
    rows = [_failure_row(f"a server is killed, {one.engine}", one) for one in found.failures]
    rows.append(_failure_row("a shard is added, another one finalized", found.reconfigured))
    headings = ["What", "Offered/s", "As before after", "Nothing to read for", "Unknown", "Unread"]
    return "What happens to inserts and readers (figure 4.7)", headings, rows


def _increments(found: Measured) -> Rows:
    rows = [
        [one.engine, str(one.clients), f"{one.commits_per_s:,.0f}", f"{one.abort_rate:.1%}"] for one in found.increments
    ]
    title = "Increments of ten keys on three nodes (figures 4.8 and 4.9)"
    return title, ["Engine", "Clients", "Commits/s", "Aborted"], rows


def _epochs(found: Measured) -> Rows:
    rows = [[str(one.shards), f"{one.core_ms:.2f}", f"{one.encoding_ms:.2f}", f"{one.bytes:,}"] for one in found.epochs]
    return "An epoch at the leader of the MMS", ["Shards", "Core ms", "Encoding ms", "Bytes"], rows


def _failure_row(what: str, one: Failure) -> list[str]:
    return [
        what,
        f"{one.offered:g}",
        f"{one.restored_s:.2f} s",
        f"{one.silence_s:.2f} s",
        str(one.failed),
        str(one.unread),
    ]


def table(found: Measured) -> Group:
    """For a terminal."""
    return shown(tables(found))


def as_json(found: Measured) -> Any:
    """For programs."""
    steps = {engine: one.as_json() for engine, one in found.commits.steps.items()}
    return {
        **{
            name: [one._asdict() for one in getattr(found, name)]
            for name in ("points", "access", "changed", "failures", "reads", "increments", "epochs")
        },
        "commits": {**found.commits._asdict(), "steps": steps},
        "reconfigured": found.reconfigured._asdict(),
        "statements": [one.as_json() for one in statements(found)],
    }


def plot(found: Measured, to: Path) -> None:
    """Figures 4.4 to 4.9."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(14, 8), constrained_layout=True)
    fast, latency, access, failed, commits, aborted = axes.flat
    series = dict.fromkeys([(one.engine, one.clients) for one in found.points])
    for engine, clients in series:
        points = [one for one in found.points if (one.engine, one.clients) == (engine, clients)]
        rates, label = [one.inserts_per_s for one in points], f"{engine}, {clients} clients"
        latency.plot(rates, [one.mean_ms for one in points], marker="o", label=label)
        if engine == ZIPLOG:
            fast.plot(rates, [one.fast_share for one in points], marker="o", label=label)
    for engine in (ZIPLOG, SCALOG):
        waits = [one for one in found.access if one.engine == engine]
        gaps = [one.gap_s * 1e3 for one in waits]
        access.plot(gaps, [one.mean_ms for one in waits], marker="o", label=f"{engine}, mean")
        access.plot(gaps, [one.p99_ms for one in waits], marker="o", linestyle=":", label=f"{engine}, p99")
        done = [one for one in found.increments if one.engine == engine]
        commits.plot([one.clients for one in done], [one.commits_per_s for one in done], marker="o", label=engine)
        aborted.plot([one.commits_per_s for one in done], [one.abort_rate for one in done], marker="o", label=engine)
    for one in found.failures:
        times = [at * BUCKET_S - one.happened_s for at in range(len(one.rates))]
        failed.plot(times, one.rates, drawstyle="steps-post", label=one.engine)
    access.set_xscale("log")
    name_axes(fast, "4.4: share of the fast path", "inserts/s of a shard", "")
    name_axes(latency, "4.5: latency of inserts", "inserts/s of a shard", "mean, ms")
    name_axes(access, "4.6: sequential access", "time between inserts of a client, ms", "ms")
    name_axes(failed, "4.7: a server is killed", "seconds since then", "inserts/s")
    name_axes(commits, "4.8: increments of ten keys", "clients", "commits/s")
    name_axes(aborted, "4.9: aborted", "commits/s", "share of transactions")
    figure.savefig(to, dpi=110)
    plt.close(figure)


def write(found: Measured, to: Path) -> None:
    """ziplog.json, .md and .png."""
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{NAME}.json").write_text(json.dumps(as_json(found)) + "\n")
    (to / f"{NAME}.md").write_text(markdown(TITLE, "python -m benchmarks ziplog", tables(found)))
    plot(found, to / f"{NAME}.png")
