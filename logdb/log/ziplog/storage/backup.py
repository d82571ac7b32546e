"""A backup's part of replication: it accepts the order of its primary, and reports how far it has it."""

from __future__ import annotations

from typing import Final

from logdb.cores.effects import Address, Send
from logdb.log.requests import record_bytes
from logdb.log.ziplog.messages import Inserted, Replicate, Stored, placed_runs
from logdb.log.ziplog.records import gsn_of
from logdb.log.ziplog.storage.member_state import MemberState

MAX_EARLY: Final = 32
"""Maximum number of messages of the primary that a backup keeps until those before them come."""


class Backup:
    """Follows the primary of its shard, in any view in which this server does not lead."""

    def __init__(self, state: MemberState) -> None:
        self._state = state
        self._early: dict[int, Replicate] = {}
        self._reported = 0
        self._last_received_at = 0

    def begin_view(self, now: int) -> None:
        """Report to the primary of the view that this server has adopted, if it is another one."""
        self._reported = 0
        self._last_received_at = now
        if self._state.primary is None:
            self.report()

    def end_view(self) -> None:
        """Forget what came in the last view."""
        self._early.clear()

    def is_primary_silent(self, now: int) -> bool:
        """Whether nothing has come from the primary for too long."""
        return self._last_received_at <= now - self._state.config.suspect_after_ns

    def on_replicate(self, message: Replicate, sender: Address, now: int) -> None:
        """The primary has sent more of its order."""
        state = self._state
        if not state.serves(message.shard, message.view) or state.primary is not None:
            return
        self._last_received_at = now
        state.reads.version = max(state.reads.version, message.version)
        if message.after > state.log.end:
            self._reported = 0
            if len(self._early) < MAX_EARLY:
                self._early[message.after] = message
        else:
            self._accept(message)
            while self._early and (first := min(self._early)) <= state.log.end:
                self._accept(self._early.pop(first))
        self.report()

    def _accept(self, message: Replicate) -> None:
        """The order goes on."""
        state, log = self._state, self._state.log
        if message.end > log.end:
            records = [(one.tag, one.payload) for one in message.records]
            new = [one for one in records if log.end < gsn_of(one[1]) <= message.end]
            state.unsaved_bytes += record_bytes(new)
            moved: dict[tuple[Address, int], list[tuple[int, int]]] = {}
            for address, client, sequence, gsn in log.accept(message.end, new):
                if address:
                    moved.setdefault((address, client), []).append((sequence, gsn))
            for (address, client), places in moved.items():
                inserted = Inserted(client, message.shard, state.view, placed_runs(places), False)
                log.acknowledge(log.journal, Send(address, inserted))
        if log.learn_stable(message.stable):
            state.reads.wake(log)

    def heartbeat(self) -> None:
        """Show the primary that this backup lives."""
        self._reported = 0
        self.report()

    def report(self) -> None:
        """Report to the primary how far the order has come, if that is new."""
        state, log, config = self._state, self._state.log, self._state.shard
        if config is None or config.view != state.view:
            return
        reported = hash((log.end, log.durable)) or 1
        if reported != self._reported:
            self._reported = reported
            stored = Stored(state.shard_number, state.view, log.end, log.durable, log.last)
            state.out.append(Send(config.members[0].address, stored))
