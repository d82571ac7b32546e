"""When a client asks a second server: a query takes much longer than others, and only few of them do."""

from __future__ import annotations

from collections import deque
from typing import Final

from logdb.cores.effects import MILLISECOND, Address

SAMPLES: Final = 256
MIN_SAMPLES: Final = 64
"""Number of times that the bound follows from, and the number below which there is none."""
PERCENTILE: Final = 0.99
MIN_BOUND_NS: Final = 20 * MILLISECOND
SHARE: Final = 1 / 20
"""Share of the queries that may be sent twice, so that servers that are all slow get little more load."""
MAX_SAVED: Final = 10.0
"""Maximum number of queries that may be sent twice at once."""
SLOW_AFTER: Final = 8
"""A server is slow when the second one was faster this number of times in a row."""


class Hedging:
    """The times of the last queries. `bound_ns`: twice their 99th percentile; None until it is known. `sent`: the
    number of queries that were sent twice; `won`: of those that the second server answered first."""

    def __init__(self) -> None:
        self._times: deque[int] = deque(maxlen=SAMPLES)
        self._until_next = MIN_SAMPLES
        self._saved = 0.0
        self._lost_in_a_row = 0
        self.bound_ns: int | None = None
        self.sent = self.won = 0

    def answered(self, time_ns: int) -> None:
        """The first server has answered a query after this time."""
        self._lost_in_a_row = 0
        self._saved = min(self._saved + SHARE, MAX_SAVED)
        self._times.append(time_ns)
        self._until_next -= 1
        if not self._until_next:
            self._until_next = MIN_SAMPLES
            times = sorted(self._times)
            self.bound_ns = max(2 * times[int(len(times) * PERCENTILE)], MIN_BOUND_NS)

    def may_send(self) -> bool:
        """Count a query that is to be sent to a second server; False if it may not be sent."""
        if self._saved < 1:
            return False
        self._saved -= 1
        self.sent += 1
        return True

    def lost(self) -> bool:
        """The second server has answered first. Returns whether the first one is slow."""
        self.won += 1
        self._lost_in_a_row += 1
        if self._lost_in_a_row < SLOW_AFTER:
            return False
        self._lost_in_a_row = 0
        return True


def next_of(server: Address, servers: tuple[Address, ...]) -> Address:
    """The server after this one, the first one after an unknown one."""
    return servers[(servers.index(server) + 1) % len(servers) if server in servers else 0]
