"""Copies to a unit the entries of its shard from before it joined, in the background while appends go on.

First it completes what was not certainly decided when it joined, as a filler does: from the unit before it in the
chain. It copies older entries from the last unit of the chain, where they are complete, so they cannot change any
more (COR-1). Of a damaged entry it requests the copy of the unit before that one. A hole is filled along the chain.
If the chain has no unit with all entries, its first one copies from former units, the latest one first, and writes
junk where none of them has an entry (COR-5). A stream replica copies the entries of its streams from all shards of
the log.
"""

from __future__ import annotations

from itertools import takewhile
from random import Random
from typing import Final

from logdb.cores.effects import Address, Effect, Send
from logdb.log.contract import LogRecord
from logdb.log.corfu.messages import Entry, FillRequest, Pull, Pulled, Reason, Rejected, Written
from logdb.log.corfu.projection import Former, ShardConfig, Unit, View, position_of
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.entry_store import EntryStore

MAX_DOUBLINGS: Final = 6
"""The pause before a request is repeated doubles this often: a response is large, and may take long."""


class Copier:
    """The copying of one unit. `is_current`: it has all entries durably from where it joined to where the epoch began
    at that time. `copied`: also those before the position at which it joined, and this position; 0: not yet."""

    def __init__(self, config: UnitConfig, store: EntryStore, out: list[Effect], rng: Random) -> None:
        self._config, self._store, self._out = config, store, out
        self._number = rng.getrandbits(62)
        self._view: View | None = None
        self._server = self._shard = self._since = self._at = 0
        self._source = self._stop = 0
        self._part = 0, 0
        self._reached: dict[tuple[int, int], int] = {}
        self._link = self._asked_at = self._recent_end = self._end = 0
        self._is_filling = False
        self._former: Former | None = None
        self._lacking: dict[int, int] = {}
        self._request: Send | None = None
        self._doublings = 0
        self._bytes, self._damaged = config.copy_bytes, 0
        self.is_current = False
        self.copied = 0

    def on_view(self, view: View, shard: int, me: Unit, now: int) -> None:
        """The unit is in this projection. The shard from which it copies may have been trimmed away."""
        is_newer = self._view is None or view.epoch > self._view.epoch or view.shard(self._source) is None
        self._view, self._server, self._shard, self._since = view, me.server, shard, me.since
        if is_newer:
            self._is_filling, self._link, self._damaged = False, 0, 0
            self._ask(now)

    def _ask(self, now: int) -> None:
        """Request the next entries, or fill the next hole."""
        self._request = None
        if self.copied >= self._since or self._view is None:
            return
        view = self._view
        while (position := self._next_missing()) is not None:
            config = view.shard(self._source)
            assert config is not None
            units = self._upstream(config, position)
            if units or self._source != self._shard:
                self._ask_chain(view, units, position, now)
                return
            former = [one for one in formers_of(config, position) if not self._is_lacking(one, position)]
            if self._link < len(former):
                self._ask_former(view, former, position, now)
                return
            if position < self._since:
                self._link = 0
                return  # a former unit has the entry, but does not send it yet
            self._store.add(Entry(position, 0, 0, 0, 0), ())
            self._link = 0
        self._end = self._store.next
        self.on_persisted()

    def _upstream(self, config: ShardConfig, position: int) -> tuple[Unit, ...]:
        """The units to copy the entry at a position from: the last one, when it has it."""
        is_own = config.shard == self._shard
        return config.upstream(self._server, position) if is_own else config.chain(position)

    def _ask_chain(self, view: View, units: tuple[Unit, ...], position: int, now: int) -> None:
        if not units:
            return
        self._number += 1
        self._asked_at = now
        self._former = None
        if self._is_filling:
            self._link = min(self._link, len(units) - 1)
            self._send(units[self._link].address, FillRequest(self._number, view.epoch, position))
        else:
            stop = position + 1 if self._damaged else self._stop
            self._pull(view, units[max(len(units) - 1 - self._damaged, 0)].address, view.epoch, position, stop)

    def _ask_former(self, view: View, former: list[Former], position: int, now: int) -> None:
        """Request the entry of the next former unit, with those that follow if these cannot be on a later one."""
        self._number += 1
        self._asked_at = now
        self._former = one = former[self._link]
        end = position + 1
        if not self._link:
            config = view.shard(self._shard)
            assert config is not None
            later = [unit.since for unit in config.former if unit.is_sealed and position < unit.since]
            end = min([self._stop, one.end, *later])
        self._pull(view, one.address, one.left - 1, position, end)

    def _is_lacking(self, one: Former, position: int) -> bool:
        """Whether a former unit had not copied that position yet, as an answer of it has shown: it copied in order."""
        return self._lacking.get(one.server, one.since) <= position < one.since

    def _pull(self, view: View, to: Address, epoch: int, position: int, end: int) -> None:
        stride = view.stride(self._source, position)
        assert stride is not None
        end = min(stride.end or end, end)
        self._send(to, Pull(self._number, epoch, position, stride.step, end, 0, None, self._bytes, uncommitted=True))

    def _send(self, to: Address, message: Pull | FillRequest) -> None:
        self._request = Send(to, message)
        self._out.append(self._request)

    def _next_missing(self) -> int | None:
        """The first position that this unit may lack."""
        view = self._view
        assert view is not None
        for source, first, end in self._parts(view):
            self._source, self._stop, self._part = source, end, (source, first)
            self._at = max(self._reached.get(self._part, first), position_of(view.oldest))
            while (stride := view.stride(source, self._at)) is not None and stride.first < end:
                self._at = stride.first
                if self._store.find(self._at) is None:
                    self._reached[self._part] = self._at
                    return self._at
                self._at += 1
            self._reached[self._part] = max(self._at, end)
            if source == self._shard and first and not self._recent_end:
                self._recent_end = self._store.next
                self.on_persisted()
        return None

    def _parts(self, view: View) -> list[tuple[int, int, int]]:
        """The shards that the entries come from, and the first position and the end of what has to be copied."""
        own = view.shard(self._shard)
        if own is not None and own.holds_streams:
            return [(one.shard, 0, self._since) for one in view.shards if not one.holds_streams]
        return [(self._shard, self._since, view.start), (self._shard, 0, self._since)]

    def _is_own(self, entry: Entry) -> bool:
        """Whether the entry is to be copied."""
        view, position = self._view, entry.position
        if view is None or self._source == self._shard:
            return True
        return any(view.stream_shard(stream, position) == self._shard for stream, _ in entry.streams)

    def on_pulled(self, message: Pulled, now: int) -> bool:
        """Store the received entries. Returns whether the response was to a request of this copier."""
        if message.request != self._number or self._view is None:
            return False
        self._doublings = max(0, self._doublings - 1)
        first = max(self._at, position_of(self._view.oldest))
        by_position: dict[int, list[LogRecord]] = {}
        for record in message.records:
            by_position.setdefault(position_of(record.gsn), []).append(record)
        deleted, uncommitted = frozenset(message.deleted), frozenset(message.uncommitted)
        former = self._former
        entries = [*takewhile(lambda entry: former is None or entry.time <= former.time, message.entries)]
        for entry in entries:
            position = entry.position
            if self._store.find(position) is None and position >= first and self._is_own(entry):
                self._store.add_copy(entry, by_position.get(position, ()), deleted, uncommitted)
        if entries:
            self._reached[self._part] = max(self._at, entries[-1].position + 1)
            self._bytes, self._damaged = min(4 * self._bytes, self._config.copy_bytes), 0
        if former is None:
            self._is_filling, self._link = not entries, 0
        elif entries:
            self._link = 0
        elif self._at < former.since:
            self._lacking[former.server] = self._at
        else:
            self._link += 1
        self._ask(now)
        return True

    def on_written(self, message: Written, now: int) -> None:
        """A unit of the chain has the entry of a hole."""
        if message.request != self._number or self._view is None:
            return
        config = self._view.shard(self._source)
        self._doublings = max(0, self._doublings - 1)
        self._link += 1
        if config is None or self._link >= len(self._upstream(config, message.position)):
            self._is_filling = False
        self._ask(now)

    def on_rejected(self, message: Rejected, now: int) -> None:
        """Wait for a newer projection, or for the next attempt. If entries are damaged there, request fewer of them,
        then the first one of the unit before in the chain: all units have the entry that a later unit has."""
        if message.request != self._number:
            return
        is_filling, self._is_filling, self._request = self._is_filling, False, None
        if message.why is not Reason.UNREADABLE or is_filling or self._view is None:
            return
        config = self._view.shard(self._source)
        if self._bytes > 1:
            self._bytes = max(self._bytes // 16, 1)
        elif config is None or self._former is not None:
            return
        else:
            self._damaged += 1
            if self._damaged >= len(self._upstream(config, self._at)):
                self._damaged = 0
                return
        self._ask(now)

    def on_persisted(self) -> None:
        """The copy is complete when its last entry is durable."""
        self.is_current = self.is_current or (self._recent_end > 0 and self._store.durable >= self._recent_end)
        if self._end and self._store.durable >= self._end:
            self.copied = self._since

    def on_timer(self, now: int) -> None:
        """Repeat a request that was not answered, under its number: the answer to each attempt counts."""
        if self.copied >= self._since or now < self._asked_at + (self._config.resend_ns << self._doublings):
            return
        if self._request is None:
            self._ask(now)
        else:
            self._doublings = min(MAX_DOUBLINGS, self._doublings + 1)
            self._asked_at = now
            self._out.append(self._request)


def formers_of(config: ShardConfig, position: int) -> list[Former]:
    """The former units that may have the entry at a position, the latest one first: what was decided while a unit was
    in the chain is not different on it, and a unit that had copied it has the deletions of its time (COR-14)."""
    found = [one for one in config.former if one.is_sealed and position < one.end]
    return sorted(found, key=lambda one: one.left, reverse=True)
