"""A storage server: it dispatches events to its parts, reports to the MMS, and answers requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from logdb.cores.effects import (
    Address,
    Disconnected,
    Effect,
    Event,
    Journal,
    Persisted,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
    Unreadable,
)
from logdb.log.ziplog.messages import (
    Freeze,
    FrontierRequest,
    FrontierResponse,
    Insert,
    Pull,
    ReadRequest,
    Replicate,
    Report,
    Sessions,
    Status,
    StatusRequest,
    Stored,
    Update,
    placed_runs,
)
from logdb.log.ziplog.storage.backup import Backup
from logdb.log.ziplog.storage.checkpoints import META, Checkpoints
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.inserts import Inserts
from logdb.log.ziplog.storage.member_state import MemberState
from logdb.log.ziplog.storage.views import Views

HEARTBEAT: Final = "storage.heartbeat"
RESEND: Final = "storage.resend"


class StorageServer:
    """The core of one server. `journals`: as they were found, none at the first start."""

    def __init__(self, config: StorageConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.state = state = MemberState(config, rng)
        self._checkpoints = Checkpoints(state, journals)
        self._inserts, self._backup = Inserts(state), Backup(state)
        self._views = Views(state, self._checkpoints, self._inserts, self._backup)
        self._is_stopping = self._is_resending = False
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Update: self._on_update,
            Freeze: self._views.on_freeze,
            Insert: self._inserts.on_insert,
            FrontierRequest: self._on_frontier_request,
            StatusRequest: self._on_status_request,
            Replicate: self._backup.on_replicate,
            Stored: self._on_stored,
            Sessions: self._views.on_sessions,
            ReadRequest: self._on_read,
            Pull: self._on_read,
        }

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        self._checkpoints.start()
        self.state.out.append(SetTimer(HEARTBEAT, now + self.state.config.heartbeat_ns))
        self.state.must_report = True
        return self._effects(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        if type(event) is Received:
            do = self._do.get(type(event.message))
            if do is not None:
                do(event.message, event.sender, now)
        elif type(event) is Persisted:
            self._on_persisted(event, now)
        elif type(event) is TimerFired:
            self._on_timer(event.name, now)
        elif type(event) is Unreadable:
            self.state.reads.on_unreadable(event)
        elif type(event) is Disconnected:
            self.state.reads.forget(event.peer)
        return self._effects(now)

    def check_invariants(self) -> None:
        """ZIP-n as far as one server sees them. Raises AssertionError."""
        self.state.check()

    @property
    def is_ready(self) -> bool:
        """Whether the MMS has given this server a number."""
        return self.state.number > 0

    def _effects(self, now: int) -> list[Effect]:
        state = self.state
        if state.primary is not None:
            if state.log.learn_stable(state.primary.stable()):
                state.reads.wake(state.log)
            state.primary.send(state.epoch.version, now)
            if not self._is_resending and any(one.sent > one.end for one in state.primary.followers.values()):
                self._is_resending = True
                state.out.append(SetTimer(RESEND, now + state.config.resend_ns))
        self._checkpoints.save_if_due()
        if state.must_report:
            self._report(now)
        out = state.out.copy()
        state.out.clear()
        if self._is_stopping:
            return [one for one in out if isinstance(one, Stop)]
        return out

    def _on_persisted(self, event: Persisted, now: int) -> None:
        state = self.state
        if event.journal == META:
            self._checkpoints.persisted(event.end, now)
            return
        state.log.persisted(event.journal, event.end)
        if state.base is not None:
            state.base.persisted(event.journal, event.end)
        if state.adopting is not None:
            self._views.finish_adoption()
        elif state.is_frozen:
            state.must_report |= state.config.acks_received and self._has_saved_all()
        elif state.is_serving and state.primary is None:
            self._backup.report()

    def _on_timer(self, name: str, now: int) -> None:
        state = self.state
        if name == RESEND:
            self._is_resending = False
            return
        state.out.append(SetTimer(HEARTBEAT, now + state.config.heartbeat_ns))
        if state.primary is not None:
            # A backup may have a record that its client sends no more: the order passes it.
            state.log.skip(min(state.primary.ahead(), state.epoch.end))
            state.primary.heartbeat(state.epoch.version, now)
        elif state.is_serving:
            self._backup.heartbeat()
        self._inserts.retry(now)
        state.must_report = True

    # ---- the MMS

    def _report(self, now: int) -> None:
        state = self.state
        state.must_report = False
        suspects: tuple[int, ...] = ()
        if state.primary is not None:
            suspects = state.primary.silent(now)
        elif state.is_serving and state.shard is not None and self._backup.is_primary_silent(now):
            suspects = (state.shard.members[0].server,)
        report = Report(
            state.number,
            state.nonce,
            state.shard_number,
            state.view,
            state.is_frozen and self._has_saved_all(),
            state.is_synced,
            (state.base or state.log).stable,
            state.epoch.base,
            0 if state.is_frozen else state.epoch.version,
            state.update.change if state.update is not None else 0,
            self._inserts.take_count(),
            self._inserts.wanted,
            suspects,
            state.may_lack,
        )
        for replica in state.config.ordering:
            state.out.append(Send(replica, report))

    def _has_saved_all(self) -> bool:
        """Whether this server still has all that it has acknowledged after a crash: the next view may begin with it."""
        return not self.state.config.acks_received or (self.state.base or self.state.log).is_durable

    def _on_update(self, update: Update, sender: Address, now: int) -> None:
        """The MMS has decided something. An earlier decision may arrive late, even after a restart."""
        state, config = self.state, update.config
        if update.nonce != state.nonce or update.change < state.change:
            return
        state.update, state.number, state.change = update, update.server, update.change
        state.must_report |= not state.number
        if state.shard_number and (config is None or config.shard != state.shard_number):
            self._is_stopping = True
            state.out.append(Stop("this server was replaced, and becomes a spare one", wipe=True))
            return
        state.shard = config
        may_trim = update.oldest > state.reads.oldest
        if config is not None and state.primary is not None and config.view == state.view:
            was_established = state.primary.is_established
            state.primary.note(config)
            may_trim |= state.primary.is_established and not was_established
        if may_trim:
            state.unsaved_bytes += state.config.checkpoint_bytes + 1
        if update.oldest > state.reads.oldest:
            state.reads.oldest = update.oldest
            if state.view:
                state.reads.wake(state.log)
        self._views.follow(now)
        if state.is_over and state.log.end >= state.log.store.last:
            self._views.be_drained()
        self._inserts.enter(now)

    def _on_stored(self, message: Stored, sender: Address, now: int) -> None:
        if self.state.primary is not None and self.state.serves(message.shard, message.view):
            self.state.primary.on_stored(message, sender, now)

    # ---- requests

    def _on_frontier_request(self, message: FrontierRequest, sender: Address, now: int) -> None:
        state, log = self.state, self.state.log
        version = state.epoch.version if state.serves(message.shard, message.view) else 0
        is_open = self._inserts.is_open()
        answer = FrontierResponse(message.request, message.shard, version, log.frontier, log.last, log.stable, is_open)
        state.out.append(Send(sender, answer))

    def _on_status_request(self, message: StatusRequest, sender: Address, now: int) -> None:
        state = self.state
        if state.shard is None or not (state.primary is not None or state.is_over):
            return
        found = state.log.sessions.find_all(message.client, message.sequences)
        placed = placed_runs([place for place in found if place[1] <= state.log.stable])
        state.out.append(Send(sender, Status(message.client, state.shard.shard, placed)))

    def _on_read(self, message: ReadRequest | Pull, sender: Address, now: int) -> None:
        state = self.state
        if message.shard != state.shard_number or state.adopting is not None or not state.reads.version:
            state.reads.on_request(message, sender, None)
            return
        wanted = message.wanted if isinstance(message, Pull) else message.gsn * message.is_reached
        if state.primary is not None:
            state.log.skip(min(wanted, state.epoch.end))
        state.reads.on_request(message, sender, state.log)
