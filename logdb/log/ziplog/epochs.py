"""Epochs: which shard has which GSN, computed from the expected rates alone (dissertation, figure 4.2).

A GSN is also a time: the first GSN of a millisecond is its number since the log began, times 2^21, plus one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from logdb.cores.effects import MILLISECOND

BITS: Final = 21
"""Each millisecond has 2^21 GSNs: 63 bits last for 139 years."""


class Share(NamedTuple):
    """A shard of an epoch, in a view. `rate`: expected records per unit of time, at least 1."""

    shard: int
    view: int
    rate: int


class Epoch(NamedTuple):
    """GSNs `base` to `end`, for `shares` in the order of their shards. `version`: the number of this set of shards."""

    version: int
    base: int
    end: int
    shares: Sequence[Share]

    def share_of(self, shard: int, view: int) -> Share | None:
        """The share of a shard in this view; None if it may not use this epoch."""
        return next((share for share in self.shares if share.shard == shard and share.view == view), None)

    @property
    def duration_ns(self) -> int:
        """The time that its GSNs stand for."""
        return (self.end + 1 - self.base >> BITS) * MILLISECOND


NO_EPOCH: Final = Epoch(0, 1, 0, ())
"""Before the first one."""


def base_at(time: int, origin: int) -> int:
    """The first GSN of the millisecond of `time`, of a log that began at `origin` (both ns since the epoch)."""
    return (max(0, time - origin) // MILLISECOND << BITS) + 1


def time_of(gsn: int, origin: int) -> int:
    """The time of a record, ns since the epoch, in a log that began at `origin`."""
    return origin + (gsn - 1 >> BITS) * MILLISECOND


def last_at(time: int, origin: int) -> int:
    """The last GSN whose time is not after `time`; 0 if there is none."""
    return base_at(time + MILLISECOND, origin) - 1 if time >= origin else 0


class Slots:
    """The GSNs of one shard in one epoch: slot k is expected at the time (k + 1) / rate."""

    def __init__(self, epoch: Epoch, share: Share) -> None:
        self.base, self.end = epoch.base, epoch.end
        self._rate = share.rate
        self._total = sum([one.rate for one in epoch.shares])
        self._before = [one.rate for one in epoch.shares if one.shard < share.shard]
        self._behind = [one.rate for one in epoch.shares if one.shard > share.shard]

    def gsn(self, slot: int) -> int:
        """The GSN of a slot: the slots of all shards that are expected before it come first; ties go by shard."""
        count, rate = slot + 1, self._rate
        before = sum([count * other // rate for other in self._before])
        behind = sum([-(-count * other // rate) - 1 for other in self._behind])
        return self.base + slot + before + behind

    def after(self, gsn: int) -> int:
        """The first slot with a larger GSN."""
        slot = max(0, (gsn - self.base) * self._rate // self._total - len(self._before) - len(self._behind) - 2)
        while self.gsn(slot) <= gsn:
            slot += 1
        return slot

    def take(self, after: int, count: int) -> list[int]:
        """The first `count` GSNs behind `after`; fewer if the epoch has no more."""
        slot = self.after(after)
        found: list[int] = []
        while len(found) < count and (gsn := self.gsn(slot)) <= self.end:
            found.append(gsn)
            slot += 1
        return found
