"""The pace of writers while checkpoints or merges are behind: slowed early and in proportion to what they write,
never stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

ROOM: Final = 1.5
"""The overlay beside the one that a checkpoint is writing may grow to this multiple of `overlay_bytes`."""
MAX_SYNCS: Final = 10
"""Longest wait of a call for the checkpoint, as a multiple of the duration of a log sync."""
FIRST_SECONDS: Final = 4
"""Assumed duration of a checkpoint of `overlay_bytes` until the rate has been measured."""
MEASURED_S: Final = 0.1
"""Shortest time over which a measured rate is used."""
EARLY_BACKLOG: Final = 0.5
"""Backlog of merges above which writers are slowed for them, too."""


class Pacer:
    """How long each commit waits for the checkpoint and the merges.

    While a checkpoint has bytes left to write, which takes a time that follows from the measured rate, the overlay
    beside it may grow by the room it has left: that many bytes may be written in that time, and a commit that brings
    more is acknowledged later. The delay of bytes written in advance is shared by all commits, but a small commit
    waits for its own share only, not for that of a large one.

    If the disk writes less than `MAX_SYNCS` lets commits bring, memory would run out: that limit doubles with each
    eighth of `overlay_bytes` beyond `ROOM`.
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

    # ---- called by the writer of checkpoints

    def begin(self, size: int) -> None:
        """A checkpoint begins to write an overlay of `size` bytes."""
        now = self._clock()
        self._owed = {gsn: owed for gsn, owed in self._owed.copy().items() if owed[2] > now}  # drops abandoned waits
        self._left, self._taken, self._began = size, 0.0, now
        self.is_pressed = True

    def took(self, size: float) -> None:
        """The checkpoint has written `size` bytes more."""
        self._taken += size
        self._left = max(self._left - size, 0.0)
        elapsed = self._clock() - self._began
        if elapsed > MEASURED_S:
            self._rate = max(self._taken / elapsed, 1.0)

    def end(self) -> None:
        """The checkpoint has ended or failed."""
        self._left = 0.0
        self.is_pressed = self._backlog > EARLY_BACKLOG

    def merged(self, backlog: float) -> None:
        """Set how far merges are behind, as a share of the backlog at which they must not fall further behind."""
        self._backlog = backlog
        self.is_pressed = self._left > 0 or backlog > EARLY_BACKLOG

    # ---- called for each commit

    def charge(self, gsn: int, size: int, active: int, sync_s: float) -> None:
        """Charge the commit at `gsn` for `size` bytes; the overlay has `active` bytes now, a sync takes `sync_s`.

        Called in the order of the log, while `is_pressed`.
        """
        allowed = self._allowed(active)
        if allowed == math.inf:
            return
        now = self._clock()
        excess = active / self.overlay_bytes - ROOM
        max_wait_s = MAX_SYNCS * sync_s * (2 ** min(8 * excess, 16) if excess > 0 else 1)
        cost = size / allowed
        self._paid_at = min(max(self._paid_at, now) + cost, now + max_wait_s)
        self._owed[gsn] = now, cost, self._paid_at

    def _allowed(self, active: int) -> float:
        """Bytes that may be written per second."""
        allowed = math.inf
        if left := self._left:
            room = max(ROOM * self.overlay_bytes - active, self.overlay_bytes / 8)
            allowed = room / left * self._rate
        if self._backlog > EARLY_BACKLOG:
            allowed = min(allowed, self._rate * EARLY_BACKLOG / self._backlog)
        return allowed

    def owed(self, first: int, last: int) -> float:
        """Seconds that the commits `first` to `last` of one caller still have to wait; unless 0, `paid` must follow."""
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
        """Block the calling thread, which has committed `gsn`, for as long as that commit has to wait."""
        if left := self.owed(gsn, gsn):
            try:
                time.sleep(left)
            finally:
                self.paid(gsn)
