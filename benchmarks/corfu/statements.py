"""Each statement of the papers on Corfu, Scalog and vCorfu beside what was measured."""

from __future__ import annotations

from typing import Final

from benchmarks.corfu.effort import CORFU, SCALOG
from benchmarks.corfu.measuring import Measured
from benchmarks.corfu.objects import PLAIN, VCORFU, VSCALOG
from benchmarks.corfu.pauses import Pauses
from benchmarks.corfu.scaling import Scaling
from benchmarks.corfu.stores import MultiKey
from benchmarks.statements import Statement

ALIKE: Final = 1.5
"""Rates that differ by less than this factor count as the same."""
STOPS: Final = 2.0
"""A gap that is longer than the longest one before the event by this factor counts as a pause."""
ENOUGH: Final = 0.8
"""A replica that executes this share of the offered commands keeps up: the first and last ones of a run are not counted
in full."""
FILL_AFTER_MS: Final = 125.0
"""A subscriber waits so long before it fills a position."""
SHARED: Final = "all servers and clients share the cores of one machine, which are busy with one shard already"


def statements(found: Measured) -> list[Statement]:
    """All of them, in the order of the parts."""
    return [
        *_of_shards(found),
        *_of_changes(found),
        *_of_failures(found),
        *_of_holes(found),
        *_of_stores(found),
        *_of_machines(found),
        *_of_objects(found),
    ]


def _alike(one: float, other: float) -> bool:
    return max(one, other) < ALIKE * min(one, other)


def _points(found: Measured, engine: str) -> tuple[Scaling, Scaling]:
    """Those with the fewest and the most shards."""
    points = [one for one in found.scaling if one.engine == engine]
    return points[0], points[-1]


def _of_shards(found: Measured) -> list[Statement]:
    (few, many), (base, _) = _points(found, CORFU), _points(found, SCALOG)
    factor = many.shards / few.shards
    appends, reads = many.appends_per_s / few.appends_per_s, many.reads_per_s / few.reads_per_s
    most = max([one.appends_per_s for one in found.scaling if one.engine == CORFU])
    alone, together = found.tokens[0], found.tokens[-1]
    return [
        Statement(
            "Corfu 4.2, figure 7",
            "Appends scale with the number of units.",
            f"{appends:.2f} times as many with {factor:g} times the shards",
            appends >= ENOUGH * factor,
            SHARED,
        ),
        Statement(
            "Corfu 4.2, figure 7",
            "Reads scale with the number of units.",
            f"{reads:.2f} times as many with {factor:g} times the shards",
            reads >= ENOUGH * factor,
            SHARED,
        ),
        Statement(
            "3.5.3",
            "A shard of Scalog takes 1.35 times the appends of one of Corfu (18.7K and 13.9K/s).",
            f"{base.appends_per_s / few.appends_per_s:.2f} times",
            base.appends_per_s > few.appends_per_s,
            "CPU time limits both, and Scalog's appends pass the ordering layer as well",
        ),
        Statement(
            "3.5.4",
            "Reads are as fast in Corfu as in Scalog.",
            f"{few.reads_per_s / base.reads_per_s:.2f} of Scalog's rate",
            _alike(few.reads_per_s, base.reads_per_s),
            "",
        ),
        Statement(
            "Corfu 4.2, figure 7",
            "The sequencer assigns more positions (180K/s) than a few units write.",
            f"{alone.tokens_per_s:,.0f}/s one by one, {alone.limit_per_s:,.0f}/s with a core of its own, "
            f"{together.limit_per_s:,.0f}/s in requests of {together.batch}; at most {most:,.0f} appends/s",
            alone.limit_per_s > most,
            "",
        ),
    ]


def _ms(pauses: Pauses, what: str) -> str:
    return f"{pauses.gap_s(what) * 1e3:,.0f}"


def _of_changes(found: Measured) -> list[Statement]:
    by_engine = {one.engine: one for one in found.reconfigured}
    corfu, scalog = by_engine[CORFU], by_engine[SCALOG]
    gaps = {one.engine: max([one.gap_s(event.what) for event in one.timeline.events]) for one in found.reconfigured}
    calm = {one.engine: f"{one.calm_gap_s() * 1e3:,.0f} ms before" for one in found.reconfigured}
    return [
        Statement(
            "3.5.1, figure 3.3; Corfu 4.3, figure 8",
            "A new projection stops all appends for about 30 ms.",
            f"longest gap {_ms(corfu, 'shard added')} ms when a shard is added, {_ms(corfu, 'shard finalized')} ms "
            f"finalized, {_ms(corfu, 'server replaced')} ms when a server is replaced; {calm[CORFU]}",
            gaps[CORFU] > STOPS * corfu.calm_gap_s(),
            "the longest gaps of a busy machine hide it",
        ),
        Statement(
            "3.5.1, figure 3.3",
            "Adding or finalizing a shard leaves Scalog's throughput as it is.",
            f"{_ms(scalog, 'shard added')} and {_ms(scalog, 'shard finalized')} ms; {calm[SCALOG]}",
            gaps[SCALOG] <= STOPS * scalog.calm_gap_s(),
            "the new servers create their journals, and wake up beside the others, on the same cores",
        ),
        Statement(
            "3.5.1, figure 3.3",
            "Corfu stops, and Scalog does not.",
            f"the longest gap is {gaps[CORFU] / gaps[SCALOG]:.1f} times Scalog's",
            gaps[CORFU] > STOPS * gaps[SCALOG],
            "an epoch takes two messages and two syncs, about as long as the longest gap of a busy machine",
        ),
    ]


def _of_failures(found: Measured) -> list[Statement]:
    by_engine = {one.engine: one for one in found.failed}
    corfu, scalog = by_engine[CORFU], by_engine[SCALOG]
    stored = [one.gap_s("storage server killed") for one in (corfu, scalog)]
    ordered = [one.gap_s("orderer killed") for one in (corfu, scalog)]
    return [
        Statement(
            "3.5.2, figure 3.4; Corfu 4.3, figure 8",
            "A storage server fails: Corfu is unavailable for the timeout (1 s) and the change. In Scalog the other "
            "shards continue.",
            f"nothing for {stored[0]:.2f} s, in Scalog for {stored[1]:.2f} s",
            stored[0] > STOPS * stored[1] and stored[0] >= 0.5,
            "appends to the other shard continue, since each waits for its own positions only; those of the failed"
            " server wait for the timeout",
        ),
        Statement(
            "3.5.2, figure 3.4",
            "The sequencer fails: nearly nothing is appended until there is another one. In Scalog nothing is "
            "acknowledged until there is a leader.",
            f"nothing for {ordered[0]:.2f} s, in Scalog for {ordered[1]:.2f} s",
            min(ordered) > STOPS * max(corfu.calm_gap_s(), scalog.calm_gap_s()),
            "",
        ),
    ]


def _of_holes(found: Measured) -> list[Statement]:
    one = found.holes
    extra = one.waited_ms - one.delivered_ms
    return [
        Statement(
            "Corfu 4.1, figure 6",
            "A read takes less than a fill, and a fill less than an append (0.5, 0.65 and 0.75 ms).",
            f"{one.read_ms:.1f}, {one.fill_ms:.1f} and {one.append_ms:.1f} ms",
            one.read_ms < one.fill_ms < one.append_ms,
            "a unit asks the sequencer whether the position is assigned, and syncs the junk",
        ),
        Statement(
            "Corfu 4.1",
            "Holes are filled quickly: a reader waits for its timeout and a fill.",
            f"{extra:.0f} ms longer behind a client that died with a token; timeout {FILL_AFTER_MS:g} ms",
            extra < 2 * FILL_AFTER_MS + one.fill_ms,
            "",
        ),
    ]


def _stores(found: Measured, engine: str) -> list[MultiKey]:
    return [one for one in found.stores if one.engine == engine]


def _of_stores(found: Measured) -> list[Statement]:
    corfu, scalog = _stores(found, CORFU), _stores(found, SCALOG)
    last, base = corfu[-1], scalog[-1]
    before = corfu[-2]
    gets = [ours.gets_per_s / theirs.gets_per_s for ours, theirs in zip(corfu, scalog, strict=True)]
    put_keys, get_keys = (
        [one.keys * rate for one, rate in zip((before, last), rates, strict=True)]
        for rates in ((before.puts_per_s, last.puts_per_s), (before.gets_per_s, last.gets_per_s))
    )
    return [
        Statement(
            "3.5.5, figure 3.7",
            "With many keys Scalog-Store does more multi-puts than Corfu-Store.",
            f"{base.puts_per_s / last.puts_per_s:.2f} times with {last.keys} keys, "
            f"{scalog[0].puts_per_s / corfu[0].puts_per_s:.2f} times with {corfu[0].keys}",
            base.puts_per_s > last.puts_per_s,
            "a multi-put is one append here, with its values, and its bytes pass more servers in Scalog",
        ),
        Statement(
            "3.5.5, figure 3.8",
            "Multi-gets are as fast in both stores.",
            f"{min(gets):.2f} to {max(gets):.2f} of Scalog's rate",
            all(_alike(one, 1.0) for one in gets),
            "",
        ),
        Statement(
            "Corfu 4.4, figure 9",
            "A multi-put of k keys makes k + 1 appends, so the log limits the keys per second.",
            f"{put_keys[0]:,.0f} keys/s with {before.keys} keys, {put_keys[1]:,.0f} with {last.keys}",
            max(put_keys) < 2 * min(put_keys),
            "a multi-put is one append here, so what it costs beside its bytes is shared by its keys",
        ),
        Statement(
            "Corfu 4.4, figure 9",
            "The keys per second of multi-gets stay the same.",
            f"{get_keys[0]:,.0f} keys/s with {before.keys} keys, {get_keys[1]:,.0f} with {last.keys}",
            max(get_keys) < 2 * min(get_keys),
            "a request costs more than its keys",
        ),
    ]


def _of_machines(found: Measured) -> list[Statement]:
    points = [one for one in found.machines if one.engine == CORFU]
    few, many = points[0], points[-1]
    behind = next((one.replicas for one in points if one.executed_per_s < ENOUGH * one.offered), None)
    most = max([one.executed_per_s for one in points])
    return [
        Statement(
            "Corfu 4.4, figure 10",
            "Each replica executes what all offer, up to about ten replicas. With more the rate stays level.",
            f"{few.executed_per_s:,.0f} of {few.offered:,.0f}/s with {few.replicas}, {many.executed_per_s:,.0f} of "
            f"{many.offered:,.0f}/s with {many.replicas}; "
            + (f"behind from {behind} replicas on" if behind else "none is behind"),
            few.executed_per_s >= ENOUGH * few.offered and many.executed_per_s >= most / ALIKE,
            "all replicas share the cores of one machine, so each of them executes less when there are more",
        ),
    ]


def _of_objects(found: Measured) -> list[Statement]:
    by_system = {one.system: one for one in found.objects}
    ours, theirs, plain = by_system[VSCALOG], by_system[VCORFU], by_system[PLAIN]
    share = theirs.updates_per_s / plain.updates_per_s
    return [
        Statement(
            "3.5.5, vScalog",
            "An object takes 1.37 times the updates in vScalog that it takes in vCorfu (18.6K and 13.6K/s).",
            f"{ours.updates_per_s / theirs.updates_per_s:.2f} times",
            ours.updates_per_s > theirs.updates_per_s,
            "CPU time limits both, and Scalog's appends pass the ordering layer as well",
        ),
        Statement(
            "3.5.5, vScalog",
            "An update takes 1.2 ms in vScalog, and 1.5 ms in vCorfu, which writes its servers one after another.",
            f"{ours.update_ms:.1f} and {theirs.update_ms:.1f} ms",
            ours.update_ms < theirs.update_ms,
            "an update alone waits for a cut in Scalog, which is more messages than a chain of two",
        ),
        Statement(
            "3.5.5, vScalog",
            "The commit bit costs vCorfu 40 % of the appends of a shard.",
            f"{share:.2f} of the appends without streams",
            share < 0.9,
            "",
        ),
        Statement(
            "3.4.3",
            "vScalog reads from all replicas of a shard, vCorfu from stream replicas: its reads are faster.",
            f"{ours.reads_per_s / theirs.reads_per_s:.2f} times the rate of vCorfu",
            ours.reads_per_s > theirs.reads_per_s,
            "",
        ),
    ]
