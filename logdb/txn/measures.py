"""Numbers about the state of a database in one process, for its operators."""

from __future__ import annotations

import json
from typing import Any

from logdb.txn.coordinator import Coordinator


def measures_of(coordinator: Coordinator) -> dict[str, Any]:
    """Numbers about a coordinator and its map, by name. The values are numbers, but for `aborts`:
    (reason, label, number) of the commit records that were not applied."""
    key_map, counts = coordinator.map, coordinator.counts
    layers = [layer for layer in (key_map.active, key_map.frozen) if layer is not None]
    runs = () if key_map.checkpoint is None else key_map.checkpoint.snapshot.manifest.runs
    return {
        "applied": coordinator.applied,
        "oldest_version": coordinator.floor,
        "max_keys": sum([len(layer.newest) for layer in layers]) + sum([run.rows for run in runs]),
        "live_bytes": key_map.live_bytes,
        "map_bytes": sum([run.bytes for run in runs]),
        "map_runs": len(runs),
        "memory_bytes": sum([layer.size for layer in layers]),
        "cache_bytes": key_map.values.cached_bytes,
        "commits": counts.commits,
        "aborts": counts.listed(),
    }


def encode_measures(measures: dict[str, Any]) -> str:
    """The measures as text for a message."""
    return json.dumps(measures)


def decode_measures(text: str) -> dict[str, Any]:
    """The inverse. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("measures are an object")
    return found
