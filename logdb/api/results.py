"""The result types of the verbs, shared by all faces and all backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from logdb.store.records import Condition, Range


class Found(dict[bytes, bytes]):
    """The keys of a multi-get that exist, with their values: a dict of one snapshot, whose version is `version`."""

    version: int

    def __init__(self, found: Iterable[tuple[bytes, bytes]], version: int) -> None:
        super().__init__(found)
        self.version = version


class Tested(NamedTuple):
    """How a test-and-multi-put ended.

    `committed`: whether the items were written. `version`: of its record in the log. `failed`: the conditions that did
    not hold.
    """

    committed: bool
    version: int
    failed: tuple[Condition, ...]


class HistoryEntry(NamedTuple):
    """A version of a key: `version`, and its `value`, None where it was deleted."""

    version: int
    value: bytes | None


class ShardHistory(NamedTuple):
    """The history of a key as its shard has it.

    `through`: the version up to which it is complete. It gets to the last commit, and not to `Database.version`, which
    also counts records that are no commits. `entries`: every version of the key up to `through`, newest first.
    """

    through: int
    entries: list[HistoryEntry]


class Change(NamedTuple):
    """One committed transaction: an item of `Database.watch`.

    `version`: of the commit, and the cursor to resume from. `time`: nanoseconds since the epoch. `label`: of the
    transaction. `changes`: key -> value, or None where the key was deleted; only the keys that are watched. `deleted`:
    the ranges (start, end) whose keys were deleted before `changes` were made, as far as they are watched; the end None
    is the last key.
    """

    version: int
    time: int
    label: str
    changes: dict[bytes, bytes | None]
    deleted: tuple[Range, ...] = ()

    def with_deleted(self, keys: Iterable[bytes]) -> Change:
        """This change, with `keys`, those that existed in its deleted ranges, among its `changes`."""
        return self._replace(changes={**dict.fromkeys(keys), **self.changes})

    def applied_to(self, state: dict[bytes, bytes]) -> None:
        """Change `state`, the watched keys just before this commit, into those after it."""
        for start, end in self.deleted:
            for key in [key for key in state if start <= key and (end is None or key < end)]:
                del state[key]
        for key, value in self.changes.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value


class Compacted(NamedTuple):
    """The result of a compaction.

    `floor`: the oldest version that can still be read. `relocated`: the number of versions copied. `oldest_before`,
    `oldest_after`: the oldest record in the log before and after. `read_bytes`: of the map and of large values.
    `written_bytes`: of copies and of the rewritten map. `freed_bytes`: of the files that were removed.
    """

    floor: int
    relocated: int
    oldest_before: int
    oldest_after: int
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0


class Stats(NamedTuple):
    """Numbers about the database at `path`. `version`, `oldest_version`: the newest and the oldest that can be read;
    `pins`: their number. `read_s`: the median time of a round trip for the newest version, in seconds.

    The other numbers are of the process that answers: this one for a directory, the server, or a mapping server of a
    cluster. `max_keys`: the keys in all layers of the map, which counts a key once in each, and deleted ones too.
    `log_bytes`, `map_bytes`: the size of the log and of the checkpoint's files; `live_bytes`: about the size of the log
    after a compaction, and `garbage` the share (0 to 1) that it would free at least. `map_runs`: the files that a read
    may search. `memory_bytes`: of the part of the map that no checkpoint has; `cache_bytes`: of cached records.
    `commits`: commit records applied since the process started, and `aborts`: (reason, label, number) of the others.
    `compacting_to`: the oldest version that the compaction under way leaves, 0 without one.

    None for a mapping server: `sync_s`, about the median time of a sync in seconds; `leased_snapshots`: snapshots in
    use; `exports`: exports and backups that read the directory's files; `process_bytes`: memory of the process.

    None without a cold tier: `cold_bytes`, `cold_version`: its size, and the version up to which it has the log;
    `cold_failures`: failed attempts to write there since the last success; `cold_cache_bytes`: of its segments that are
    kept for reads.

    None without sweeps in the background, and for a mapping server, which has metrics: `expired_keys` and
    `truncated_logs`, the keys that the sweeps of the process have deleted, and how often they truncated a named log.

    None but for a cluster: `hedged_reads`, reads of this client that were late and were sent to a second server, too.
    """

    path: str
    version: int
    oldest_version: int
    pins: int
    read_s: float
    max_keys: int
    log_bytes: int
    map_bytes: int
    live_bytes: int
    garbage: float
    map_runs: int
    memory_bytes: int
    cache_bytes: int
    commits: int
    aborts: list[tuple[str, str, int]]
    sync_s: float | None = None
    leased_snapshots: int | None = None
    process_bytes: int | None = None
    cold_bytes: int | None = None
    cold_version: int | None = None
    cold_failures: int | None = None
    cold_cache_bytes: int | None = None
    exports: int | None = None
    compacting_to: int = 0
    expired_keys: int | None = None
    truncated_logs: int | None = None
    hedged_reads: int | None = None


def stats_of(
    path: str, version: int, oldest: int, pins: int, times: Sequence[float], measures: dict[str, Any]
) -> Stats:
    """`Stats` of `Backend.measures` and the `times` of round trips in seconds."""
    known = {name: value for name, value in measures.items() if name in Stats._fields}
    known["aborts"] = [(reason, label, number) for reason, label, number in known["aborts"]]
    known |= {"path": path, "version": version, "oldest_version": oldest, "pins": pins}
    return Stats(**known, read_s=median(times))


ROUND_TRIPS: Final = 11
"""Number of round trips that `Database.stats` measures."""
