"""The numbers of the first page: sizes, rates since the last measurement, aborts, and the status of a cluster."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from logdb.admin.status import ClusterStatus, ServerStatus
from logdb.api.database import Database
from logdb.api.results import Stats
from logdb.errors import AccessDenied, LogDBError

LEAST_S: Final = 1.0
"""Minimum time between two measurements for one visitor."""
SAMPLES: Final = 90
LABELS: Final = 25
PINS: Final = 50
WIDTH, HEIGHT = 240, 40


class Measured(Protocol):
    """A database to measure, and its cluster."""

    @property
    def database(self) -> Database:
        """The database. Raises LogDBError."""

    def status(self) -> ClusterStatus | None:
        """The status of the cluster, None for a server. Raises Unavailable."""


class Overview(NamedTuple):
    """The content of the first page. `failure`: why the database does not answer, "" if it does. `topology_failure`:
    the same of the cluster's status. `rate`: records per second, None before the second measurement."""

    stats: Stats | None
    failure: str
    status: ClusterStatus | None
    topology_failure: str
    pins: Sequence[tuple[str, int]]
    aborts: Sequence[tuple[str, str, int]]
    rate: float | None
    line: str

    @property
    def leader(self) -> ServerStatus | None:
        """The leader of the ordering layer."""
        servers = self.status.servers if self.status is not None else ()
        return next((server for server in servers if self.status and server.address == self.status.leader), None)


class Samples:
    """The last measurements for a visitor: (time in seconds, newest version)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
        self._last: Overview | None = None
        self._measured_at = 0.0

    def overview(self, visitor: Measured) -> Overview:
        """Measure, but at most once in `LEAST_S`. Raises AccessDenied."""
        with self._lock:
            if self._last is None or time.monotonic() - self._measured_at > LEAST_S:
                self._last = self._measured(visitor)
                self._measured_at = time.monotonic()
            return self._last

    def _measured(self, visitor: Measured) -> Overview:
        status, stats, failure, topology_failure = None, None, "", ""
        pins: list[tuple[str, int]] = []
        try:
            status = visitor.status()
        except AccessDenied:
            raise
        except (LogDBError, OSError) as error:
            topology_failure = str(error)
        try:
            stats = visitor.database.stats()
            pins = sorted(visitor.database.pins.items(), key=lambda pin: pin[1])[:PINS]
        except AccessDenied:
            raise
        except LogDBError as error:
            failure = str(error)
        newest = stats.version if stats is not None else status.tail if status is not None else None
        if newest is not None:
            self._samples.append((time.monotonic(), newest))
        aborts = sorted([] if stats is None else stats.aborts, key=lambda one: -one[2])[:LABELS]
        rates = self._rates()
        rate = rates[-1] if rates and newest is not None else None
        return Overview(stats, failure, status, topology_failure, pins, aborts, rate, line_of(rates))

    def _rates(self) -> list[float]:
        """Records per second between each measurement and the next."""
        samples = list(self._samples)
        return [
            max(0.0, (after - before) / max(now - then, 1e-3)) for (then, before), (now, after) in pairwise(samples)
        ]


def line_of(rates: Sequence[float]) -> str:
    """The points of a line of the rates, for a picture of `WIDTH` by `HEIGHT`; "" for fewer than two."""
    if len(rates) < 2:
        return ""
    top, step = max(*rates, 1e-9), WIDTH / (len(rates) - 1)
    return " ".join([f"{step * at:.1f},{HEIGHT - 2 - (HEIGHT - 4) * rate / top:.1f}" for at, rate in enumerate(rates)])
