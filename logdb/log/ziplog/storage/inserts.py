"""Inserts at a storage server: it enters epochs, and gives records their GSNs by the rates of the newest one."""

from __future__ import annotations

from typing import Any, Final

from logdb.cores.effects import MILLISECOND, SECOND, Address, Send
from logdb.log.requests import record_bytes
from logdb.log.ziplog.epochs import BITS, Slots
from logdb.log.ziplog.messages import Insert, Inserted, Placed, Refused, ShardConfig, Stale, placed_runs
from logdb.log.ziplog.storage.member_state import MemberState

MAX_AHEAD_NS: Final = 60 * SECOND
"""Epochs may run ahead of the time by as much."""


class Inserts:
    """Places records, as the primary in the order, as a backup speculatively.

    `wanted`: the base of the epoch in which an insert waits for the next one, 0 if none does.
    """

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self.slots: Slots | None = None
        self._entered_at = 0
        self.wanted = 0
        self._waiting: dict[tuple[int, int, int], tuple[Insert, Address]] = {}
        self._waiting_bytes = 0
        self._placed = self._reported_in = 0

    # ---- epochs

    def enter(self, now: int) -> None:
        """Enter the newest epoch: this server places all later records in it.

        The order passes no empty slots for that, except those that a reader of the tail may wait for (`View.left`): so
        the log seems to end with its last record. A shard that has left the set has no more records.
        """
        state = self._state
        update, config = state.update, state.shard
        if update is None or config is None or not state.serves(config.shard, config.view) or config.is_drained:
            return
        epoch = update.epoch
        if epoch.base > state.epoch.base or self.slots is None:
            if epoch.version > state.epoch.version:
                state.must_report = True
            if epoch.base > state.epoch.base:
                self._entered_at = now
            state.epoch, self.wanted = epoch, 0
            state.reads.version = max(state.reads.version, epoch.version)
            share = epoch.share_of(config.shard, state.view)
            self.slots = Slots(epoch, share) if share is not None else None
            state.log.frontier = max(state.log.frontier, epoch.base - 1)
            if state.primary is not None:
                state.log.skip(update.left)
        self.retry(now)

    def end_view(self) -> None:
        """Place nothing more in this view."""
        self.slots = None
        self._waiting.clear()
        self._waiting_bytes = self.wanted = 0

    def take_count(self) -> int:
        """The number of records that were placed in the order, or wait for an epoch, since the last call."""
        count, self._placed = self._placed, 0
        return count if self._state.primary is not None else 0

    # ---- inserts

    def on_insert(self, message: Insert, sender: Address, now: int) -> None:
        """Place the records that are not here yet, and acknowledge all."""
        state, config = self._state, self._state.shard
        if config is None or message.shard != state.shard_number:
            return
        end = message.sequence + len(message.records)
        if state.is_over or (state.primary is not None and self._has_ended(message.view, config)):
            self._answer_ended(message, sender)
        elif state.serves(message.shard, message.view) and end > state.log.sessions.mark(message.client):
            self._insert(message, sender, now)

    def _has_ended(self, view: int, config: ShardConfig) -> bool:
        """Whether nothing that was sent for this view can be placed any more, in any later view."""
        state = self._state
        if view < state.view:
            return config.view == state.view and config.is_established
        is_out = config.view == state.view and config.is_draining and not config.joining and config.bound > 0
        return view == state.view and is_out and state.log.stable >= config.bound - 1

    def _answer_ended(self, message: Insert, sender: Address) -> None:
        """Of an insert for an earlier view: what is here is answered once it is stable, the rest is refused."""
        state, log = self._state, self._state.log
        placed: list[tuple[int, int]] = []
        refused: list[tuple[int, int]] = []
        for number in range(message.sequence, message.sequence + len(message.records)):
            gsn, _ = log.find(message.client, number)
            if not gsn:
                first, count = refused.pop() if refused and sum(refused[-1]) == number else (number, 0)
                refused.append((first, count + 1))
            elif gsn <= log.stable:
                placed.append((number, gsn))
        if placed:
            inserted = Inserted(message.client, message.shard, state.view, placed_runs(placed), True)
            state.out.append(Send(sender, inserted))
        if refused:
            state.out.append(Send(sender, Refused(message.client, message.shard, message.view, tuple(refused))))

    def _insert(self, message: Insert, sender: Address, now: int) -> None:
        """Acknowledge what is here, and place the rest."""
        state, log, client = self._state, self._state.log, message.client
        log.sessions.settle(client, message.settled)
        new = self._acknowledge(message, sender)
        if new is None:
            return
        first, records = new
        if message.version and state.epoch.version > message.version:
            state.out.append(Send(sender, Stale(client, message.sequence, state.epoch.version)))
            return
        gsns = self._slots_for(message.floor, len(records), now)
        if len(gsns) < len(records):
            self._wait(message, sender, now)
            return
        if state.primary is not None:
            log.place(gsns, client, first, records)
            journal = log.journal
            state.unsaved_bytes += record_bytes(records)
            if not self._placed and self._reported_in != state.epoch.base:
                self._reported_in = state.epoch.base
                state.must_report = True
            self._placed += len(records)
        else:
            log.speculate(gsns, client, first, records, sender)
            journal = log.find(client, first)[1]
        inserted = Inserted(client, message.shard, state.view, (Placed(first, tuple(gsns)),), False)
        log.acknowledge(journal, Send(sender, inserted))

    def _acknowledge(self, message: Insert, sender: Address) -> tuple[int, Any] | None:
        """Acknowledge records that are here. Returns (first number, records) of those that are not, which follow each
        other; None if there are none."""
        log, client = self._state.log, message.client
        mark = log.sessions.mark(client)
        missing: list[int] = []
        here: dict[str, list[tuple[int, int]]] = {}
        for number in range(message.sequence, message.sequence + len(message.records)):
            if number < mark:
                continue
            gsn, journal = log.find(client, number)
            if gsn:
                here.setdefault(journal, []).append((number, gsn))
            elif not missing or missing[-1] == number - 1:
                missing.append(number)
        for journal, places in here.items():
            inserted = Inserted(client, message.shard, self._state.view, placed_runs(places), False)
            log.acknowledge(journal, Send(sender, inserted))
        if not missing:
            return None
        start = missing[0] - message.sequence
        return missing[0], message.records[start : start + len(missing)]

    def _slots_for(self, floor: int, count: int, now: int) -> list[int]:
        """The GSNs of the next records behind `floor`; too few if this epoch has none, or must not be used."""
        state = self._state
        max_age = max(state.config.epoch_age_ns, 2 * state.epoch.duration_ns)
        if self.slots is None or not self.is_open() or now > self._entered_at + max_age:
            return []
        return self.slots.take(max(floor, state.log.frontier), count)

    def is_open(self) -> bool:
        """Whether this shard accepts records: it is in the set, and its version is open (ZIP-6)."""
        state = self._state
        config, update = state.shard, state.update
        if self.slots is None or config is None or update is None:
            return False
        return config.view == state.view and update.opened >= config.since > 0

    def _wait(self, message: Insert, sender: Address, now: int) -> None:
        """Keep an insert until an epoch with GSNs behind its floor begins. The floor is the GSN of a record, so its
        epoch has begun, though perhaps not at this server. A floor far ahead of the time is forged: the insert would
        wait for years and take room from others."""
        state = self._state
        ahead_ns = (message.floor - state.epoch.end >> BITS) * MILLISECOND
        if ahead_ns > now - self._entered_at + MAX_AHEAD_NS:
            return
        key = message.client, message.sequence, len(message.records)
        if key not in self._waiting:
            size = record_bytes(message.records)
            if self._waiting and self._waiting_bytes + size > state.config.buffer_bytes:
                return
            self._waiting_bytes += size
            self._waiting[key] = message, sender
        if self.is_open() and message.floor <= state.epoch.end and self.wanted != state.epoch.base:
            self.wanted = state.epoch.base
            self._placed += len(message.records)  # so that the next epoch has room for them
            state.must_report = True

    def retry(self, now: int) -> None:
        """Place the inserts that wait, if that is possible by now."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for message, sender in waiting.values():
            self.on_insert(message, sender, now)
