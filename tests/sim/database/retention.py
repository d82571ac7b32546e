"""Keys that expire and a named log with a retention: their writes, and an independent check of what sweeps delete.

The check reads the whole log with the times of its records, and none of the code of `logdb.retention` but its keys. The
clocks of servers may differ, so it asks for two ticks between a write and its deletion that are apart by the age.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from logdb.cluster.mapping_server.replica import size_of
from logdb.named_logs.layout import Layout, stored
from logdb.named_logs.retention import Retention
from logdb.retention.expiry import EXPIRING, ttl_in, with_expiry
from logdb.retention.sweep import LABEL, TICK
from logdb.store.records import Commit, unversioned_key
from tests.sim.database.keys import is_within
from tests.sim.world import Failure

EXPIRING_KEYS = [b"\x01key %d" % number for number in range(4)]
END = b"a"
"""The keys of this workload, and the reserved ones, are before it. No range delete of other workloads overlaps them."""
LOG = Layout("log")
RETENTIONS = (Retention(0.03, 100), Retention(0.06, 1_000), Retention(None, 60))
TTLS = 0.02, 0.06
MS = 1_000_000


def drawn_writes(draw: random.Random, name: bytes) -> tuple[dict[bytes, bytes | None], int]:
    """Some writes, of which the last ones are appends, and the number of these."""
    writes: dict[bytes, bytes | None] = {}
    if draw.random() < 0.15:
        writes[LOG.policy] = draw.choice(RETENTIONS).encode()
    ttl = draw.choice((None, *TTLS, *TTLS))
    keys = draw.sample(EXPIRING_KEYS, draw.choice((1, 1, 2)))
    values = {key: name if draw.random() < 0.9 else None for key in keys}
    made, appended = with_expiry(values, ttl)
    entries = {unversioned_key(LOG.entries, at): stored(name, None, None) for at in range(draw.choice((0, 1, 3)))}
    return {**writes, **made, **entries}, appended + len(entries)


def is_of_retention(key: bytes) -> bool:
    """Whether a key belongs to this workload or to the sweeps."""
    return key < END


@dataclass(slots=True)
class RetentionCheck:
    """Follows a replay of the log. `deleted`: how many keys, and entries, sweeps have deleted."""

    deleted: int = 0
    _ticks: list[tuple[int, int]] = field(default_factory=list)
    _written: dict[bytes, tuple[int, int | None]] = field(default_factory=dict)
    _entries: dict[bytes, int] = field(default_factory=dict)
    _policy: Retention | None = None

    def add(self, gsn: int, time_ns: int, commit: Commit) -> None:
        """The next commit that was applied. Raises Failure."""
        if commit.label == LABEL:
            self._sweep(gsn, commit)
            if TICK in commit.writes:
                self._ticks.append((gsn, time_ns))
            return
        ttls = {key: ttl_in(row) for row, key in commit.writes.items() if row in EXPIRING}
        for key, value in commit.writes.items():
            if key in EXPIRING_KEYS:
                self._written.pop(key, None)
                if value is not None:
                    self._written[key] = gsn, ttls.get(key)  # type: ignore[call-overload]
            elif is_within(key, *LOG.range()):
                self._entries[key] = size_of(value)
            elif key == LOG.policy:
                assert isinstance(value, bytes)
                self._policy = Retention.decode(value)

    def _is_older(self, written: int, gsn: int, age_ms: int) -> bool:
        """Whether two ticks between a write and its deletion are apart by an age."""
        times = [time for at, time in self._ticks if written < at < gsn]
        return any(later - times[first] >= age_ms * MS for first in range(len(times)) for later in times[first:])

    def _sweep(self, gsn: int, commit: Commit) -> None:
        for key in commit.writes:
            if key not in EXPIRING_KEYS:
                continue
            written = self._written.pop(key, None)
            if written is None or written[1] is None or not self._is_older(written[0], gsn, written[1]):
                raise Failure("RET-3: a sweep deletes keys that have expired", f"{key!r} of {written} at {gsn}")
            self.deleted += 1
        for start, end in commit.deletes:
            gone = [key for key in self._entries if is_within(key, start, end)]
            kept = sum(self._entries.values()) - sum(self._entries[key] for key in gone)
            for key in gone:
                policy = self._policy
                is_old = policy is not None and policy.age_ms is not None
                is_old = is_old and self._is_older(LOG.position(key).version, gsn, policy.age_ms)  # type: ignore[union-attr, arg-type]
                is_beyond = policy is not None and policy.size_bytes is not None and kept >= policy.size_bytes
                if not (is_old or is_beyond):
                    raise Failure("RET-3: a sweep deletes entries beyond the retention", f"{key!r} at {gsn}, {policy}")
                self.deleted += 1
            self._entries = {key: size for key, size in self._entries.items() if key not in gone}
