"""The result: tables, plots, and the statements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Group

from benchmarks.corfu.effort import CORFU, SCALOG
from benchmarks.corfu.measuring import Measured
from benchmarks.corfu.pauses import Pauses
from benchmarks.corfu.statements import statements
from benchmarks.statements import Rows, markdown, name_axes, shown, statement_rows

NAME: Final = "corfu"
BUCKET_S: Final = 0.05
PAGE: Final = "Corfu beside Scalog and the other engines"


def tables(found: Measured) -> list[Rows]:
    """All figures."""
    return [
        statement_rows("Statements", statements(found)),
        *_log_tables(found),
        *_pause_tables(found),
        *_application_tables(found),
    ]


def _rows(figures: Sequence[NamedTuple], formats: str) -> list[list[str]]:
    """A row for each figure: its fields in these formats, a letter each: s as it is, d and f with 0 and 1 decimals."""
    return [[_cell(value, how) for value, how in zip(one, formats, strict=True)] for one in figures]


def _cell(value: Any, how: str) -> str:
    return str(value) if how == "s" else f"{value:,.0f}" if how == "d" else f"{value:,.1f}"


def _log_tables(found: Measured) -> list[Rows]:
    roles = ("ordering", "sequencer", "storage")
    return [
        (
            "Appends and reads of records of 4 KB (figure 7)",
            ["Engine", "Shards of two", "Appends/s", "Reads/s", *[f"CPU us an append, {role}" for role in roles]],
            [
                [
                    *_rows([one], "ssdds")[0][:4],
                    *[f"{one.cpu_us[role]:,.0f}" if role in one.cpu_us else "" for role in roles],
                ]
                for one in found.scaling
            ],
        ),
        (
            "The sequencer alone",
            ["Positions in a request", "Positions/s", "CPU us each", "Positions/s of a core"],
            [[*_rows([one], "sdf")[0], f"{one.limit_per_s:,.0f}"] for one in found.tokens],
        ),
        (
            "Alone, medians (figure 6)",
            ["Read ms", "Append ms", "Fill ms", "Delivered after ms", "Delivered behind a hole after ms"],
            _rows([found.holes], "fffff"),
        ),
    ]


def _pause_tables(found: Measured) -> list[Rows]:
    return [
        (
            title,
            [
                "Engine",
                "What",
                "Offered/s",
                "Took ms",
                "Longest gap ms",
                "Gap before ms",
                "Slowest append ms",
                "Failed",
            ],
            [row for one in pauses for row in _pause_rows(one)],
        )
        for title, pauses in (
            ("A steady load while the log is reconfigured (figure 3.3)", found.reconfigured),
            ("A steady load while servers are killed (figure 3.4)", found.failed),
        )
    ]


def _pause_rows(one: Pauses) -> list[list[str]]:
    return [
        [
            one.engine,
            event.what,
            f"{one.timeline.offered:g}",
            f"{(event.done - event.happened) * 1e3:,.0f}",
            f"{one.gap_s(event.what) * 1e3:,.0f}",
            f"{one.calm_gap_s() * 1e3:,.0f}",
            f"{one.slowest_s(event.what) * 1e3:,.0f}",
            str(one.timeline.failed),
        ]
        for event in one.timeline.events
    ]


def _application_tables(found: Measured) -> list[Rows]:
    return [
        (
            "Transactions of keys with 4 KB on equal nodes (figures 3.7, 3.8 and 9)",
            ["Engine", "Keys", "Multi-put ms", "Multi-puts/s", "Multi-get ms", "Multi-gets/s"],
            _rows(found.stores, "ssffff"),
        ),
        (
            "State machines, commands of 512 bytes (figure 10)",
            ["Engine", "Replicas", "Offered/s", "Executed/s by each", "Least", "Most", "Queries/s of all"],
            _rows(found.machines, "ssddddd"),
        ),
        (
            "One object, versions of 4 KB",
            ["System", "Update ms", "Updates/s", "Read ms", "Reads/s", "Versions/s in order"],
            _rows(found.objects, "sfdfdd"),
        ),
    ]


def table(found: Measured) -> Group:
    """For a terminal."""
    return shown(tables(found))


def as_json(found: Measured) -> Any:
    """For programs."""
    return {
        **{
            name: [one._asdict() for one in getattr(found, name)]
            for name in ("scaling", "tokens", "stores", "machines", "objects")
        },
        **{name: [_pauses_as_json(one) for one in getattr(found, name)] for name in ("reconfigured", "failed")},
        "holes": found.holes._asdict(),
        "statements": [one.as_json() for one in statements(found)],
    }


def _pauses_as_json(one: Pauses) -> dict[str, Any]:
    gaps = {event.what: one.gap_s(event.what) for event in one.timeline.events}
    slowest = {event.what: one.slowest_s(event.what) for event in one.timeline.events}
    timeline = {**one.timeline.as_json(), "rates": one.timeline.rates(BUCKET_S)}
    return {"engine": one.engine, "gaps_s": gaps, "slowest_s": slowest, "calm_gap_s": one.calm_gap_s(), **timeline}


def plot(found: Measured, to: Path) -> None:
    """The figures of the papers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(3, 3, figsize=(15, 12), constrained_layout=True)
    shards, tokens, changes, kills, puts, gets, replicas, objects, latencies = axes.flat
    _plot_log(found, shards, tokens)
    for axis, pauses, title in (
        (changes, found.reconfigured, "3.3: shards added and finalized, a server replaced"),
        (kills, found.failed, "3.4: sequencer or leader, and storage server killed"),
    ):
        _plot_pauses(axis, pauses, title)
    _plot_stores(found, puts, gets)
    _plot_machines(found, replicas)
    _plot_objects(found, objects, latencies)
    figure.savefig(to, dpi=110)
    plt.close(figure)


def _plot_log(found: Measured, shards: Any, tokens: Any) -> None:
    for engine in (CORFU, SCALOG):
        points = [one for one in found.scaling if one.engine == engine]
        x = [one.shards for one in points]
        shards.plot(x, [one.appends_per_s for one in points], marker="o", label=f"{engine}, appends")
        shards.plot(x, [one.reads_per_s for one in points], marker="o", linestyle=":", label=f"{engine}, reads")
    batches = [one.batch for one in found.tokens]
    tokens.plot(batches, [one.tokens_per_s for one in found.tokens], marker="o", label="one client")
    tokens.plot(batches, [one.limit_per_s for one in found.tokens], marker="o", label="a core of the sequencer")
    tokens.set_xscale("log")
    name_axes(shards, "7: records of 4 KB", "shards of two servers", "records/s")
    name_axes(tokens, "The sequencer alone", "positions in a request", "positions/s")


def _plot_pauses(axis: Any, pauses: Sequence[Pauses], title: str) -> None:
    for at, one in enumerate(pauses):
        rates = one.timeline.rates(BUCKET_S)
        times = [bucket * BUCKET_S for bucket in range(len(rates))]
        axis.plot(times, rates, drawstyle="steps-post", linewidth=1, color=f"C{at}", label=one.engine)
        for event in one.timeline.events:
            axis.axvline(event.happened, color=f"C{at}", linestyle=":")
    name_axes(axis, title, "seconds", "appends/s")


def _plot_stores(found: Measured, puts: Any, gets: Any) -> None:
    for engine in dict.fromkeys([one.engine for one in found.stores]):
        points = [one for one in found.stores if one.engine == engine]
        keys = [one.keys for one in points]
        puts.plot(keys, [one.put_ms for one in points], marker="o", label=engine)
        gets.plot(keys, [one.get_ms for one in points], marker="o", label=engine)
    for axis, title in ((puts, "3.7: multi-put of one client"), (gets, "3.8: multi-get of one client")):
        axis.set_xscale("log")
        name_axes(axis, title, "keys", "median, ms")


def _plot_machines(found: Measured, axis: Any) -> None:
    for engine in (CORFU, SCALOG):
        points = [one for one in found.machines if one.engine == engine]
        x = [one.replicas for one in points]
        axis.plot(x, [one.executed_per_s for one in points], marker="o", label=engine)
        axis.fill_between(x, [one.least_per_s for one in points], [one.most_per_s for one in points], alpha=0.2)
    offered = {one.replicas: one.offered for one in found.machines}
    axis.plot(list(offered), list(offered.values()), linestyle=":", color="gray", label="offered")
    name_axes(axis, "10: state machines", "replicas", "commands/s executed by each")


def _plot_objects(found: Measured, rates: Any, latencies: Any) -> None:
    names, places = [one.system for one in found.objects], range(len(found.objects))
    for offset, label, values in (
        (-0.2, "updates", [one.updates_per_s for one in found.objects]),
        (0.2, "reads", [one.reads_per_s for one in found.objects]),
    ):
        rates.bar([place + offset for place in places], values, 0.4, label=label)
    for offset, label, values in (
        (-0.2, "update", [one.update_ms for one in found.objects]),
        (0.2, "read", [one.read_ms for one in found.objects]),
    ):
        latencies.bar([place + offset for place in places], values, 0.4, label=label)
    for axis, title, y in ((rates, "One object", "per second"), (latencies, "One object, one client", "median, ms")):
        axis.set_xticks(list(places), names)
        name_axes(axis, title, "", y)


def write(found: Measured, to: Path) -> None:
    """corfu.json, .md and .png."""
    to.mkdir(parents=True, exist_ok=True)
    (to / f"{NAME}.json").write_text(json.dumps(as_json(found)) + "\n")
    (to / f"{NAME}.md").write_text(markdown(PAGE, "python -m benchmarks corfu", tables(found)))
    plot(found, to / f"{NAME}.png")
