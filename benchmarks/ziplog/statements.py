"""Each statement of section 4.4 of the dissertation beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.statements import Statement
from benchmarks.ziplog.measuring import BUCKET_S, SCALOG, ZIPLOG, Increments, Measured, ShardPoint

EPOCH_MS: Final = 10.0
"""The interval of epochs for which the number of shards is computed."""


def statements(found: Measured) -> list[Statement]:
    """All of them, with the aims of this engine."""
    return [*_inserts(found), *_shards(found), *_reads(found), *_rates(found), *_failures(found), *_increments(found)]


def _inserts(found: Measured) -> list[Statement]:
    """The aim for a commit alone, and section 4.4.1."""
    low, high = point(found, ZIPLOG, min, load=False), point(found, ZIPLOG, max, load=True)
    contended = point(found, ZIPLOG, max, load=False)
    scalog = point(found, SCALOG, min, load=False)
    paxos = point(found, "multipaxos", min, load=False)
    ratio = found.commits.ratio(SCALOG)
    return [
        Statement(
            "aim",
            "A commit alone takes at most half of Scalog's time on the same nodes.",
            f"{ratio:.2f} of Scalog's time, {found.commits.ratio('multipaxos'):.2f} of Multi-Paxos's",
            ratio <= 0.5,
            "a node is woken for the insert, the order and the pull, and Python's part of each is as long as the sync",
        ),
        Statement(
            "4.4.1",
            "An insert takes 150 us: less than with NOPaxos (220 us) and Scalog (900 us).",
            f"{low.median_ms:.1f} ms; Multi-Paxos {paxos.median_ms:.1f} ms, Scalog {scalog.median_ms:.1f} ms",
            low.median_ms < min(paxos.median_ms, scalog.median_ms),
            "all members sync before they acknowledge; Multi-Paxos waits for the fastest majority of its replicas",
        ),
        Statement(
            "4.4.1, figure 4.4",
            "With more clients and a higher rate, the share of the fast path decreases, to 70 % at worst.",
            f"{low.fast_share:.0%} ({low.clients} client, {low.offered:g}/s) to {high.fast_share:.0%} ({high.clients} "
            f"clients, {high.offered:g}/s); at least {min([one.fast_share for one in found.points]):.0%}",
            low.fast_share >= high.fast_share,
            "at low rates most inserts meet a new epoch, which two members do not enter at the same moment",
        ),
        Statement(
            "4.4.1, figure 4.5",
            "Contention of many clients raises the latency by a third (150 to 200 us).",
            f"{low.mean_ms:.1f} ms with {low.clients} client, {contended.mean_ms:.1f} ms with {contended.clients}, at "
            f"{low.offered:g}/s",
            contended.mean_ms < 2 * low.mean_ms,
            "all processes of this run share the cores of one machine",
        ),
    ]


def _shards(found: Measured) -> list[Statement]:
    """Section 4.4.2."""
    carried = shards_carried(found)
    return [
        Statement(
            "4.4.2",
            "The MMS supports 4,000 shards with an epoch each 10 ms.",
            f"{carried:,.0f} shards take one core {EPOCH_MS:g} ms",
            carried >= 4_000,
            "each update has the rates of all shards, so its bytes grow with the square of their number; encoding them"
            " in Python is most of the time",
        ),
    ]


def _reads(found: Measured) -> list[Statement]:
    """Section 4.4.3, and the latencies of 4.4.4."""
    regular = [one for one in found.access if one.gap_s == min([each.gap_s for each in found.access])]
    irregular = [one for one in found.access if one.gap_s == max([each.gap_s for each in found.access])]
    ours, theirs = (next(one for one in group if one.engine == ZIPLOG) for group in (regular, irregular))
    base = next(one for one in regular if one.engine == SCALOG)
    read = {one.engine: one for one in found.reads}
    return [
        Statement(
            "4.4.3",
            "Reading a stable record takes as long as in Scalog.",
            f"{read[ZIPLOG].read_ms:.2f} ms, Scalog {read[SCALOG].read_ms:.2f} ms",
            read[ZIPLOG].read_ms < 1.5 * read[SCALOG].read_ms,
            "",
        ),
        Statement(
            "4.4.4",
            "A subscriber of old records is as fast as in Scalog.",
            f"{read[ZIPLOG].subscribed_per_s:,.0f}/s, Scalog {read[SCALOG].subscribed_per_s:,.0f}/s",
            read[ZIPLOG].subscribed_per_s > read[SCALOG].subscribed_per_s / 1.5,
            "",
        ),
        Statement(
            "4.4.4, figure 4.6",
            "The sequential access latency is lower than Scalog's on average.",
            f"mean {ours.mean_ms:.1f} ms, Scalog {base.mean_ms:.1f} ms ({ours.gap_s * 1e3:g} ms between inserts)",
            ours.mean_ms < base.mean_ms,
            "a subscriber gets stable records only, which takes one more sync and message than an insert, and asks the"
            " other shard to skip its empty slots",
        ),
        Statement(
            "4.4.4, figure 4.6",
            "Irregular clients raise it, mostly the tail.",
            f"mean {ours.mean_ms:.1f} and p99 {ours.p99_ms:.1f} ms with {ours.gap_s * 1e3:g} ms between inserts, "
            f"{theirs.mean_ms:.1f} and {theirs.p99_ms:.1f} ms with {theirs.gap_s * 1e3:g} ms",
            theirs.p99_ms >= ours.p99_ms,
            "a shard skips its empty slots when a subscriber waits, so what it waits for depends on no rate",
        ),
    ]


def _rates(found: Measured) -> list[Statement]:
    """Rates that change, in section 4.4.4."""
    up, down = found.changed
    return [
        Statement(
            "4.4.4",
            "A shard that gets 1.5 times as many records delays readers of its own records until the next epochs have"
            " its rate, and of no others.",
            f"medians of both shards: {_pair(up.before_ms)} before, {_pair(up.soon_ms)} ms in the first half second, "
            f"{_pair(up.later_ms)} later",
            max(up.later_ms) < 1.5 * max(up.before_ms) and up.soon_ms[1] < 1.5 * up.before_ms[1],
            "",
        ),
        Statement(
            "4.4.4",
            "A shard that gets half as many records delays no reader.",
            f"{_pair(down.before_ms)} before, {_pair(down.soon_ms)} ms in the first half second",
            max(down.soon_ms) < 1.5 * max(down.before_ms),
            "",
        ),
    ]


def _failures(found: Measured) -> list[Statement]:
    """Section 4.4.5."""
    killed = {one.engine: one for one in found.failures}
    return [
        Statement(
            "4.4.5",
            "Adding and removing a shard leaves the throughput as it is.",
            f"after {found.reconfigured.restored_s:.2f} s as before; {found.reconfigured.failed} failed",
            found.reconfigured.restored_s <= 2 * BUCKET_S and not found.reconfigured.failed,
            "the shard has no grace: inserts under way are refused and sent elsewhere",
        ),
        Statement(
            "4.4.5, figure 4.7",
            "When a server fails, inserts are back slightly more than the timeout (1 s) later, as in Scalog.",
            f"{killed[ZIPLOG].restored_s:.2f} s, Scalog {killed[SCALOG].restored_s:.2f} s",
            killed[ZIPLOG].restored_s <= 2.5,
            "a client sends again, and asks for the newest shards, after half a second without an answer",
        ),
        Statement(
            "4.4.5",
            "Readers wait for the failed shard for less than 2 s; in Scalog they do not.",
            f"nothing to read for {killed[ZIPLOG].silence_s:.2f} s, in Scalog for {killed[SCALOG].silence_s:.2f} s",
            killed[ZIPLOG].silence_s < 2.5,
            "the new view must be on all its members before anything in it is stable (ZIP-10)",
        ),
    ]


def _increments(found: Measured) -> list[Statement]:
    """Section 4.4.6."""
    best, equal = at_equal_throughput(found)
    most = max([one.commits_per_s for one in found.increments if one.engine == ZIPLOG])
    return [
        Statement(
            "4.4.6, figure 4.8",
            "LogDB on Ziplog commits more increments of 10 keys than on Scalog.",
            f"at most {most:,.0f}/s, Scalog {best.commits_per_s:,.0f}/s",
            most > best.commits_per_s,
            "with many clients both are bound by the CPU of the nodes",
        ),
        Statement(
            "4.4.6, figure 4.9",
            "At equal throughput fewer of them abort.",
            f"{equal.abort_rate:.1%} at {equal.commits_per_s:,.0f}/s with {equal.clients} clients, Scalog "
            f"{best.abort_rate:.1%} at {best.commits_per_s:,.0f}/s with {best.clients}",
            equal.abort_rate <= best.abort_rate,
            "clients of one process speculate on each other's commits on both engines, so few of them abort at all",
        ),
    ]


def point(found: Measured, engine: str, choose: Callable[[list[int]], int], *, load: bool) -> ShardPoint:
    """The point of a shard with the fewest or most clients (`choose`), at the lowest rate, or the highest (`load`)."""
    points = [one for one in found.points if one.engine == engine]
    clients = choose([one.clients for one in points])
    rate = (max if load else min)([one.offered for one in points])
    return next(one for one in points if one.clients == clients and one.offered == rate)


def shards_carried(found: Measured) -> float:
    """Shards whose epochs take the leader `EPOCH_MS` on one core, between the numbers that were measured. Linear."""
    before = (0, 0.0)
    for cost in found.epochs:
        if cost.total_ms >= EPOCH_MS:
            share = (EPOCH_MS - before[1]) / (cost.total_ms - before[1])
            return before[0] + share * (cost.shards - before[0])
        before = cost.shards, cost.total_ms
    return float(before[0])


def at_equal_throughput(found: Measured) -> tuple[Increments, Increments]:
    """Scalog's point with the most commits, and Ziplog's with the fewest clients that commits as many; its best one
    if none does."""
    ours = [one for one in found.increments if one.engine == ZIPLOG]
    theirs = max([one for one in found.increments if one.engine == SCALOG], key=lambda one: one.commits_per_s)
    as_many = [one for one in ours if one.commits_per_s >= theirs.commits_per_s]
    return theirs, (as_many[0] if as_many else max(ours, key=lambda one: one.commits_per_s))


def _pair(ms: tuple[float, float]) -> str:
    return f"{ms[0]:.1f} and {ms[1]:.1f}"
