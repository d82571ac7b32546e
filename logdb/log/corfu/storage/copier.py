"""Copies to a unit the entries of its shard from before it joined, in the background while appends go on.

An entry is copied from the last unit of its chain, where it is complete, so it cannot change any more (COR-1). A hole
there is first filled along the chain, as a reader would do. A stream replica copies the entries of its streams from all
shards of the log.
"""

from __future__ import annotations

from random import Random
from typing import Final

from logdb.cores.effects import Address, Effect, Send
from logdb.log.contract import LogRecord
from logdb.log.corfu.messages import Entry, FillRequest, Pull, Pulled, Rejected, Written
from logdb.log.corfu.projection import Unit, View, position_of
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.entry_store import EntryStore

MAX_DOUBLINGS: Final = 6
"""The pause before a request is repeated doubles this often: a response is large, and may take long."""


class Copier:
    """The copying of one unit. `copied`: it has all entries from before this position, at which it joined, durably; 0:
    not yet."""

    def __init__(self, config: UnitConfig, store: EntryStore, out: list[Effect], rng: Random) -> None:
        self._config, self._store, self._out = config, store, out
        self._number = rng.getrandbits(62)
        self._view: View | None = None
        self._shard = self._since = self._at = 0
        self._source = 0
        self._done: set[int] = set()
        self._link = self._asked_at = self._end = 0
        self._is_filling = False
        self._request: Send | None = None
        self._doublings = 0
        self.copied = 0

    def on_view(self, view: View, shard: int, me: Unit, now: int) -> None:
        """The unit is in this projection."""
        is_newer = self._view is None or view.epoch > self._view.epoch
        self._view, self._shard, self._since = view, shard, me.since
        if is_newer:
            self._is_filling = False
            self._ask(now)

    def _ask(self, now: int) -> None:
        """Request the next entries, or fill the next hole."""
        self._request = None
        if self.copied >= self._since or self._view is None:
            return
        position = self._next_missing()
        if position is None:
            self._end = self._store.next
            self.on_persisted()
            return
        config = self._view.shard(self._source)
        assert config is not None
        chain = config.chain(position)
        if not chain:
            return
        self._number += 1
        self._asked_at = now
        if self._is_filling:
            self._link = min(self._link, len(chain) - 1)
            self._send(chain[self._link].address, FillRequest(self._number, self._view.epoch, position))
            return
        stride = self._view.stride(self._source, position)
        assert stride is not None
        end, size = min(stride.end or self._since, self._since), self._config.copy_bytes
        pull = Pull(self._number, self._view.epoch, position, stride.step, end, 0, None, size, uncommitted=True)
        self._send(chain[-1].address, pull)

    def _send(self, to: Address, message: Pull | FillRequest) -> None:
        self._request = Send(to, message)
        self._out.append(self._request)

    def _next_missing(self) -> int | None:
        """The first position that this unit may lack, before the one at which it joined."""
        view = self._view
        assert view is not None
        for source in self._sources(view):
            if source != self._source:
                self._source, self._at = source, 0
            self._at = max(self._at, position_of(view.oldest))
            while (stride := view.stride(source, self._at)) is not None and stride.first < self._since:
                if self._store.find(stride.first) is None:
                    return stride.first
                self._at = stride.first + 1
            self._done.add(source)
        return None

    def _sources(self, view: View) -> list[int]:
        """The shards that still have to be copied."""
        own = view.shard(self._shard)
        is_of_streams = own is not None and own.holds_streams
        shards = [one.shard for one in view.shards if not one.holds_streams] if is_of_streams else [self._shard]
        return [one for one in shards if one not in self._done]

    def _is_own(self, entry: Entry) -> bool:
        """Whether the entry is to be copied."""
        view, position = self._view, entry.position
        if view is None or self._source == self._shard:
            return True
        return any(view.stream_shard(stream, position) == self._shard for stream, _ in entry.streams)

    def on_pulled(self, message: Pulled, now: int) -> bool:
        """Store the received entries. Returns whether the response was to a request of this copier."""
        if message.request != self._number:
            return False
        self._doublings = max(0, self._doublings - 1)
        by_position: dict[int, list[LogRecord]] = {}
        for record in message.records:
            by_position.setdefault(position_of(record.gsn), []).append(record)
        deleted, uncommitted = frozenset(message.deleted), frozenset(message.uncommitted)
        for entry in message.entries:
            position = entry.position
            if self._store.find(position) is None and position >= self._at and self._is_own(entry):
                self._store.add_copy(entry, by_position.get(position, ()), deleted, uncommitted)
        if message.entries:
            self._at = max(self._at, message.entries[-1].position + 1)
        self._is_filling, self._link = not message.entries, 0
        self._ask(now)
        return True

    def on_written(self, message: Written, now: int) -> None:
        """A unit of the chain has the entry of a hole."""
        if message.request != self._number or self._view is None:
            return
        config = self._view.shard(self._source)
        self._doublings = max(0, self._doublings - 1)
        self._link += 1
        if config is None or self._link >= len(config.chain(message.position)):
            self._is_filling = False
        self._ask(now)

    def on_rejected(self, message: Rejected) -> None:
        """Wait for a newer projection, or for the next attempt."""
        if message.request == self._number:
            self._is_filling, self._request = False, None

    def on_persisted(self) -> None:
        """The copy is complete when its last entry is durable."""
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
