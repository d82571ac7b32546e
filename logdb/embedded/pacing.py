"""How fast writers may go while checkpoints are behind: slowed early and in proportion to what they write, never
stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

ROOM: Final = 1.5
"""So many times `overlay_bytes` may be in memory beside the overlay that a checkpoint is taking in."""
MAX_SYNCS: Final = 10
"""No call waits longer for the checkpoint than so many syncs of the log take."""
FIRST_SECONDS: Final = 4
"""Until it is measured, a checkpoint is expected to take so long for `overlay_bytes`."""
MEASURED_S: Final = 0.1
"""A rate that was measured for less says nothing."""
EARLY_BACKLOG: Final = 0.5
"""Of the merges: from here on writers are slowed for them, too."""


class Pacer:
    """What each commit has to wait for the checkpoint.

    While a checkpoint still has to take in some bytes, which takes a time that follows from the rate measured, the
    overlay beside it may grow by what room it has left: so much may be written in that time, and a commit that brings
    more is acknowledged later. What has been written in advance is paid off by all, but a small commit does not wait
    for a large one: it waits at most for its share.

    Where memory would run out nevertheless, as the disk takes less than `MAX_SYNCS` allow to be written, that limit
    doubles with each eighth of `overlay_bytes` beyond `ROOM`.
    """

    def __init__(self, overlay_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.overlay_bytes, self._clock = overlay_bytes, clock
        self.is_pressed = False
        self._rate = overlay_bytes / FIRST_SECONDS
        self._left = self._taken = 0.0
        self._began = 0.0
        self._backlog = 0.0
        self._paid_at = 0.0
        self._owed: dict[int, tuple[float, float, float]] = {}
        self._waiting: set[int] = set()

    # ---- said by who writes checkpoints

    def begin(self, size: int) -> None:
        """A checkpoint begins to take in an overlay of `size` bytes."""
        now = self._clock()
        self._owed = {gsn: owed for gsn, owed in self._owed.copy().items() if owed[2] > now}  # else given up
        self._left, self._taken, self._began = size, 0.0, now
        self.is_pressed = True

    def took(self, size: float) -> None:
        """It has taken in so many bytes more."""
        self._taken += size
        self._left = max(self._left - size, 0.0)
        elapsed = self._clock() - self._began
        if elapsed > MEASURED_S:
            self._rate = max(self._taken / elapsed, 1.0)

    def end(self) -> None:
        """It has ended, or failed."""
        self._left = 0.0
        self.is_pressed = self._backlog > EARLY_BACKLOG

    def merged(self, backlog: float) -> None:
        """How far merging is behind: from 1 on it is too far."""
        self._backlog = backlog
        self.is_pressed = self._left > 0 or backlog > EARLY_BACKLOG

    # ---- asked for each commit

    def charge(self, gsn: int, size: int, active: int, sync_s: float) -> None:
        """A commit at `gsn` has brought `size` bytes; the overlay has `active` now, and a sync takes `sync_s`.

        Called in the order of the log, while `is_pressed`.
        """
        allowed = self._allowed(active)
        if allowed == math.inf:
            return
        now = self._clock()
        excess = active / self.overlay_bytes - ROOM
        most = MAX_SYNCS * sync_s * (2 ** min(8 * excess, 16) if excess > 0 else 1)
        cost = size / allowed
        self._paid_at = min(max(self._paid_at, now) + cost, now + most)
        self._owed[gsn] = now, cost, self._paid_at

    def _allowed(self, active: int) -> float:
        """Bytes that may be written in a second."""
        allowed = math.inf
        if left := self._left:
            room = max(ROOM * self.overlay_bytes - active, self.overlay_bytes / 8)
            allowed = room / left * self._rate
        if self._backlog > EARLY_BACKLOG:
            allowed = min(allowed, self._rate * EARLY_BACKLOG / self._backlog)
        return allowed

    def owed(self, first: int, last: int) -> float:
        """How many seconds the commits `first` to `last` of one caller still have to wait. If any, `paid` follows."""
        if not self._owed:
            return 0.0
        due = begun = share = 0.0
        for gsn in range(first, last + 1):
            if (owed := self._owed.pop(gsn, None)) is not None:
                begun = begun or owed[0]
                share += owed[1]
                due = owed[2]
        if not due:
            return 0.0
        left = min(due, begun + share * (len(self._waiting) + 1)) - self._clock()
        if left <= 0:
            return 0.0
        self._waiting.add(last)
        return left

    def paid(self, last: int) -> None:
        """The commits up to `last` of one caller have waited."""
        self._waiting.discard(last)

    def wait(self, gsn: int) -> None:
        """Have the thread that has committed `gsn` wait."""
        if left := self.owed(gsn, gsn):
            try:
                time.sleep(left)
            finally:
                self.paid(gsn)
