"""When a log has enough garbage to be compacted, and how fast a compaction runs in the background: the same decision
for a directory and for a cluster."""

from __future__ import annotations

from typing import Final

MIN_LOG_BYTES: Final = 64 << 20
"""A smaller log is not compacted in the background: that would free little."""
MAX_PAUSE_NS: Final = 100_000_000
"""Longest pause between two steps of a compaction in the background."""


def garbage_share(log_bytes: int, live_bytes: int, grown_bytes: int) -> float:
    """The share of a log that a compaction would free, from 0 to 1: the garbage since the last compaction.

    The estimate is low. Superseded values count as live until the runs of the map are merged, and garbage that the last
    compaction had to leave counts for nothing.
    """
    return max(min(log_bytes - live_bytes, grown_bytes), 0) / max(log_bytes, 1)


def is_worth_compacting(log_bytes: int, share: float, max_share: float, min_bytes: int) -> bool:
    """Whether a log of this size and garbage `share` is to be compacted without a request."""
    return log_bytes >= min_bytes and share > max_share


def pause_ns(step_ns: int) -> int:
    """The pause after a step of a compaction in the background that took `step_ns`: it takes half of the time at most,
    so that calls keep their latency."""
    return min(step_ns, MAX_PAUSE_NS)
