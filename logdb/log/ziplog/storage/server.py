"""A storage server: it adopts the views that the MMS decides, enters epochs, places records and serves reads."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from logdb.cores.effects import (
    Address,
    Create,
    Disconnected,
    Effect,
    Event,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
    Unreadable,
)
from logdb.log.requests import record_bytes
from logdb.log.ziplog.epochs import NO_EPOCH, Slots
from logdb.log.ziplog.messages import (
    Freeze,
    FrontierRequest,
    FrontierResponse,
    Insert,
    Inserted,
    Member,
    Placed,
    Pull,
    ReadRequest,
    Refused,
    Replicate,
    Report,
    Sessions,
    ShardConfig,
    Stale,
    Status,
    StatusRequest,
    Stored,
    Update,
)
from logdb.log.ziplog.records import gsn_of
from logdb.log.ziplog.storage import sessions
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.read_server import ReadServer
from logdb.log.ziplog.storage.replication import Primary
from logdb.log.ziplog.storage.shard_log import ORDER, SPECULATIVE, ShardLog

META: Final = "meta"
HEARTBEAT: Final = "storage.heartbeat"
RESEND: Final = "storage.resend"
MAX_EARLY: Final = 32
"""Maximum number of messages of the primary that a backup keeps until those before them come."""
SAVED: Final = 1
"""The tag of the records in the journal META: each is all that the server must know after a restart."""


class StorageServer:
    """The core of one server. `journals`: as they were found, none at the first start.

    `view`: of its shard, that it has adopted; `is_frozen`: it accepts nothing in this view. `shard`: the configuration
    of its shard, in a view that may be newer. `primary`: there while it leads. `_change`: the newest decision of the
    MMS that it knows; an older one must not wipe a member that has restarted (ZIP-8).

    `_base`: the log that this server had when it adopted its view, until it has all of the new view durably. It is
    what the directory has, and what the next view begins with if the source of this one fails (ZIP-10).
    """

    def __init__(self, config: StorageConfig, journals: Mapping[str, Journal], rng: random.Random) -> None:
        self.config, self._rng = config, rng
        self._out: list[Effect] = []
        self.log = ShardLog(self._out, config.cache_bytes)
        self._base: ShardLog | None = None
        self.reads = ReadServer(self._out)
        self.number = self.shard_number = self.view = 0
        self.is_frozen = self.is_synced = False
        self.shard: ShardConfig | None = None
        self.primary: Primary | None = None
        self.epoch = NO_EPOCH
        self.slots: Slots | None = None
        self._update: Update | None = None
        self._change = 0
        self._nonce = rng.getrandbits(62) + 1
        self._meta_end = 1
        self._after_meta: deque[tuple[int, Callable[[int], None]]] = deque()
        self._adopting: ShardConfig | None = None
        self._adopted_segments: list[tuple[str, int]] = []
        self._is_stopping = False
        self._captured: tuple[int, bytes, int] | None = None
        self._is_saving = False
        self._bytes_since = 0
        self._early: dict[int, Replicate] = {}
        self._waiting: dict[tuple[int, int, int], tuple[Insert, Address]] = {}
        self._waiting_bytes = self._wanted = self._records = self._reported_in = 0
        self._entered_at = self._primary_last_received_at = self._stored_sent = 0
        self._must_report = False
        self._is_resending = False
        self._load(journals)
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Update: self._on_update,
            Freeze: self._on_freeze,
            Insert: self._on_insert,
            FrontierRequest: self._on_frontier_request,
            StatusRequest: self._on_status_request,
            Replicate: self._on_replicate,
            Stored: self._on_stored,
            Sessions: self._on_sessions,
            ReadRequest: self._on_read,
            Pull: self._on_read,
        }

    # ---- the directory

    def _load(self, journals: Mapping[str, Journal]) -> None:
        """Load the state of a restarted server. It is frozen in the view that it had adopted (ZIP-8)."""
        meta = journals.get(META)
        self._has_meta = meta is not None
        if meta is not None and len(meta.records):
            self._meta_end = meta.end
            saved = json.loads(meta.records[-1].payload)
            self._nonce, self.shard_number, self.view = saved["nonce"], saved["shard"], saved["view"]
            self.reads.oldest, self.reads.version = saved["oldest"], saved["version"]
            self._change = saved["change"]
            segments = [(name, start) for name, start in saved["segments"]]
            of_clients = saved["upto"], sessions.Sessions.from_json(saved["sessions"])
            self._adopted_segments = segments
            self.log.load(journals, segments, of_clients, saved["stable"], saved["speculative"], saved["oldest"])
            self.log.store.trim(self.reads.oldest)
            self.is_frozen = self.shard_number > 0

    def _saved(self) -> bytes:
        state = {
            "nonce": self._nonce,
            "shard": self.shard_number,
            "view": self.view,
            "change": self._change,
            "oldest": self.reads.oldest,
            "version": self.reads.version,
            "stable": self.log.stable,
            "speculative": self.log.speculative_journal,
            "segments": [(segment.journal, segment.start) for segment in self.log.store.segments],
            "upto": self.log.end,
            "sessions": self.log.sessions.to_json(),
        }
        return json.dumps(state, separators=(",", ":")).encode()

    def _save(self, saved: bytes, then: Callable[[int], None]) -> None:
        """Write what a restart must know, and act once it is on the medium."""
        self._out.append(Persist(META, self._meta_end, [(SAVED, saved)]))
        self._meta_end += 1
        self._after_meta.append((self._meta_end, then))

    def _checkpoint(self, now: int) -> None:
        """Save the sessions when many records have come, or were trimmed; the order must be durable first. Trimmed
        records are removed behind that, so no restart forgets that they are gone."""
        if self._captured is None and self._bytes_since > self.config.checkpoint_bytes and self._base is None:
            self._bytes_since, oldest = 0, self.reads.oldest
            self._captured = self.log.end, self._saved(), oldest
        if self._captured is not None and self.log.durable >= self._captured[0]:
            _, saved, oldest = self._captured
            self._captured = None
            self._save(saved, lambda now: self._trim(oldest))

    def _trim(self, oldest: int) -> None:
        if self._base is None:
            self.log.store.trim(oldest)

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        if self._meta_end == 1:
            if not self._has_meta:
                self._out.append(Create(META, 1))
            self._save(self._saved(), lambda now: None)
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        self._must_report = True
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
            self.reads.on_unreadable(event)
        elif type(event) is Disconnected:
            self.reads.forget(event.peer)
        return self._effects(now)

    def check_invariants(self) -> None:
        """ZIP-n as far as one server sees them. Raises AssertionError."""
        if self.view and self._adopting is None:
            self.log.check()
        self.reads.check(self.log)
        if self.primary is not None:
            self.primary.check()
            assert not self.log.speculative, "ZIP-3: a primary has speculative records"
        if self._base is not None:
            assert not self.is_synced, "ZIP-10: a synced server has two logs"
        else:
            assert self.is_synced or not self.is_serving, "ZIP-10: a server takes part with nothing to go back to"

    @property
    def is_ready(self) -> bool:
        """Whether the MMS has given this server a number."""
        return self.number > 0

    @property
    def is_adopting(self) -> bool:
        """Whether it begins a view whose state is not durable yet."""
        return self._adopting is not None

    @property
    def is_serving(self) -> bool:
        """Whether this server takes part in the view that it has adopted."""
        return self.view > 0 and not self.is_frozen and self._adopting is None

    def _effects(self, now: int) -> list[Effect]:
        if self.primary is not None:
            if self.log.learn_stable(self.primary.stable()):
                self.reads.wake(self.log)
            self.primary.send(self.epoch.version, now)
            if not self._is_resending and any(one.sent > one.end for one in self.primary.followers.values()):
                self._is_resending = True
                self._out.append(SetTimer(RESEND, now + self.config.resend_ns))
        if self.view and self._base is None:
            self._checkpoint(now)
        if self._must_report:
            self._report(now)
        out = self._out.copy()
        self._out.clear()
        if self._is_stopping:
            return [one for one in out if isinstance(one, Stop)]
        return out

    def _on_persisted(self, event: Persisted, now: int) -> None:
        if event.journal == META:
            while self._after_meta and self._after_meta[0][0] <= event.end:
                self._after_meta.popleft()[1](now)
            if event.end > 2:
                self._out.append(Trim(META, event.end - 1))
            return
        self.log.persisted(event.journal, event.end)
        if self._base is not None:
            self._base.persisted(event.journal, event.end)
        if self._adopting is not None:
            self._finish_adoption(self._adopting)
        elif self.is_serving and self.primary is None:
            self._send_stored()

    def _on_timer(self, name: str, now: int) -> None:
        if name == RESEND:
            self._is_resending = False
            return
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        if self.primary is not None:
            self._skip_to_backups(self.primary)
            self.primary.heartbeat(self.epoch.version)
        elif self.is_serving:
            self._stored_sent = 0
            self._send_stored()
        self._retry_waiting(now)
        self._must_report = True

    # ---- the MMS

    def _report(self, now: int) -> None:
        self._must_report = False
        suspects: tuple[int, ...] = ()
        if self.primary is not None:
            suspects = self.primary.silent(now)
        elif (
            self.is_serving
            and self.shard is not None
            and self._primary_last_received_at <= now - self.config.suspect_after_ns
        ):
            suspects = (self.shard.members[0].server,)
        report = Report(
            self.number,
            self._nonce,
            self.shard_number,
            self.view,
            self.is_frozen,
            self.is_synced,
            (self._base or self.log).stable,
            self.epoch.base,
            0 if self.is_frozen else self.epoch.version,
            self._update.change if self._update is not None else 0,
            self._records if self.primary is not None else 0,
            self._wanted,
            suspects,
        )
        self._records = 0
        for replica in self.config.ordering:
            self._out.append(Send(replica, report))

    def _on_update(self, update: Update, sender: Address, now: int) -> None:
        """The MMS has decided something. An earlier decision may arrive late, even after a restart."""
        if update.nonce != self._nonce or update.change < self._change:
            return
        self._update, self.number, self._change = update, update.server, update.change
        config = update.config
        if self.shard_number and (config is None or config.shard != self.shard_number):
            self._is_stopping = True
            self._out.append(Stop("this server was replaced, and becomes a spare one", wipe=True))
            return
        self.shard = config
        if config is not None and self.primary is not None and config.view == self.view:
            self.primary.note(config)
        if update.oldest > self.reads.oldest:
            self.reads.oldest = update.oldest
            self._bytes_since += self.config.checkpoint_bytes + 1
            if self.view:
                self.reads.wake(self.log)
        self._follow(now)
        if (
            config is not None
            and config.is_drained
            and config.view == self.view
            and self.log.end >= self.log.store.last
        ):
            self.reads.version = max(self.reads.version, update.epoch.version)
            self._be_drained(config)
            if not self.is_frozen:
                self._freeze()
                self._must_report = True
        self._enter(now)

    def _be_drained(self, config: ShardConfig) -> None:
        """The order is complete, and stable on all members."""
        log = self.log
        if log.end < config.bound - 1:
            log.accept(config.bound - 1, ())
        if log.learn_stable(config.bound - 1):
            self.reads.wake(log)

    def _on_freeze(self, message: Freeze, sender: Address, now: int) -> None:
        is_member = message.shard == self.shard_number and message.view == self.view and self._adopting is None
        if is_member and not self.is_frozen:
            self._freeze()
            self._must_report = True

    def _freeze(self) -> None:
        """Accept nothing in this view any more."""
        self.is_frozen = True
        self.primary = None
        self.slots = None
        self._waiting.clear()
        self._waiting_bytes = self._wanted = 0
        self.reads.end_waiting()

    # ---- views

    def _follow(self, now: int) -> None:
        """Adopt the view of the newest configuration, unless the last adoption is being saved."""
        config = self.shard
        if config is None or config.view <= self.view or self._adopting is not None or self._is_saving:
            return
        if self._base is not None:
            self.log.drop_journals(self._base)
            self.log, self._base = self._base, None
        member = next((one for one in config.members if one.server == self.number), None)
        self._freeze()
        if member is not None:
            self._adopt(config, member, now)

    def _adopt(self, config: ShardConfig, me: Member, now: int) -> None:
        """Begin a view: with all that this server has if it is the source, else with what it keeps."""
        is_source = me is config.members[0]
        suffix = f"{config.view}-{self._rng.getrandbits(32):08x}"
        names = f"{ORDER}{suffix}", f"{SPECULATIVE}{suffix}"
        log = self.log
        if self._update is not None:
            self.reads.version = max(self.reads.version, self._update.epoch.version)
        self._captured, self.is_synced, self._base = None, False, log
        self._early.clear()
        if is_source:
            records = log.to_keep(me.valid)
            end = max([log.end, me.valid, config.bound - 1, *(gsn_of(payload) for _, payload in records[-1:])])
            self.log = log.begin_view(names, me.valid, end, records, log.sessions)
            self._adopting = config
            self._finish_adoption(config)
        else:
            self.log = log.begin_view(names, me.valid, me.valid, (), sessions.Sessions())
            self._begin_serving(config, now)

    def _finish_adoption(self, config: ShardConfig) -> None:
        """Save the view once all that it begins with is durable (ZIP-9)."""
        if self.log.durable < self.log.end or self._is_saving:
            return
        self.shard_number, view, self.view = config.shard, self.view, config.view
        self._is_saving = True
        self._save(self._saved(), lambda now: self._adopted(config, now))
        self.view = view

    def _adopted(self, config: ShardConfig, now: int) -> None:
        """The source has saved the view."""
        self._adopting = None
        self._commit()
        self.primary = Primary(self.config, config, self.log, self._out, now)
        self.reads.can_wait = True
        self._begin_serving(config, now)

    def _commit(self) -> None:
        """The directory has the new view: what this server had before is not needed any more (ZIP-10)."""
        assert self._base is not None, "ZIP-10"
        self._is_saving = False
        self._base.drop_journals(self.log)
        self._base = None
        self.is_synced = True
        self.log.store.trim(self.reads.oldest)

    def _begin_serving(self, config: ShardConfig, now: int) -> None:
        self.shard_number, self.view, self.is_frozen = config.shard, config.view, False
        self._bytes_since = self._stored_sent = 0
        self._primary_last_received_at = now
        self._must_report = True
        if self.primary is None:
            self._send_stored()
        self._follow(now)
        self._enter(now)

    # ---- epochs

    def _enter(self, now: int) -> None:
        """Enter the newest epoch: this server places all later records in it.

        The order passes no empty slots for that, except those that a reader of the tail may wait for (`View.left`): so
        the log seems to end with its last record. A shard that has left the set has no more records.
        """
        update, config = self._update, self.shard
        if update is None or config is None or not self.is_serving or config.view != self.view or config.is_drained:
            return
        epoch = update.epoch
        if epoch.base > self.epoch.base or self.slots is None:
            if epoch.version > self.epoch.version:
                self._must_report = True
            if epoch.base > self.epoch.base:
                self._entered_at = now
            self.epoch, self._wanted = epoch, 0
            self.reads.version = max(self.reads.version, epoch.version)
            share = epoch.share_of(config.shard, self.view)
            self.slots = Slots(epoch, share) if share is not None else None
            self.log.frontier = max(self.log.frontier, epoch.base - 1)
            if self.primary is not None:
                self._skip(update.left)
        self._retry_waiting(now)

    def _skip(self, gsn: int) -> None:
        """Place nothing up to `gsn` (the primary)."""
        if gsn > self.log.end:
            self.log.accept(gsn, ())

    def _skip_to_backups(self, primary: Primary) -> None:
        """A backup has a record that its client sends no more."""
        self._skip(min(primary.ahead(), self.epoch.end))

    # ---- inserts

    def _on_insert(self, message: Insert, sender: Address, now: int) -> None:
        config = self.shard
        if config is None or message.shard != self.shard_number:
            return
        is_over = config.is_drained and config.view == self.view
        if is_over or (self.primary is not None and self._has_ended(message.view, config)):
            self._answer_ended(message, sender)
        elif (
            self.is_serving
            and message.view == self.view
            and message.sequence + len(message.records) > self.log.sessions.mark(message.client)
        ):
            self._insert(message, sender, now)

    def _has_ended(self, view: int, config: ShardConfig) -> bool:
        """Whether nothing that was sent for this view can be placed any more, in any later view."""
        if view < self.view:
            return config.view == self.view and config.is_established
        is_out = config.view == self.view and config.is_draining and not config.joining and config.bound > 0
        return view == self.view and is_out and self.log.stable >= config.bound - 1

    def _answer_ended(self, message: Insert, sender: Address) -> None:
        """Of an insert for an earlier view: what is here is answered once it is stable, the rest is refused."""
        placed: list[Placed] = []
        refused: list[tuple[int, int]] = []
        for number in range(message.sequence, message.sequence + len(message.records)):
            gsn, _ = self.log.find(message.client, number)
            if not gsn:
                refused.append((number, 1))
            elif gsn <= self.log.stable:
                placed.append(Placed(number, (gsn,)))
        if placed:
            inserted = Inserted(message.client, message.shard, self.view, tuple(placed), True)
            self._out.append(Send(sender, inserted))
        if refused:
            self._out.append(Send(sender, Refused(message.client, message.shard, message.view, tuple(refused))))

    def _insert(self, message: Insert, sender: Address, now: int) -> None:
        """Acknowledge what is here, and place the rest."""
        log, client = self.log, message.client
        log.sessions.settle(client, message.settled)
        new = self._acknowledge(message, sender)
        if new is None:
            return
        first, records = new
        if message.version and self.epoch.version > message.version:
            self._out.append(Send(sender, Stale(client, message.sequence, self.epoch.version)))
            return
        gsns = self._slots_for(message.floor, len(records), now)
        if len(gsns) < len(records):
            self._wait(message, sender)
            return
        size = record_bytes(records)
        if self.primary is not None:
            log.place(gsns, client, first, records)
            journal = log.journal
            self._bytes_since += size
            if not self._records and self._reported_in != self.epoch.base:
                self._reported_in = self.epoch.base
                self._must_report = True
            self._records += len(records)
        else:
            log.speculate(gsns, client, first, records, sender)
            journal = log.find(client, first)[1]
        inserted = Inserted(client, message.shard, self.view, (Placed(first, tuple(gsns)),), False)
        log.when_durable(journal, Send(sender, inserted))

    def _acknowledge(self, message: Insert, sender: Address) -> tuple[int, Any] | None:
        """Acknowledge records that are here. Returns (first number, records) of those that are not, which follow each
        other; None if there are none."""
        log, client = self.log, message.client
        mark = log.sessions.mark(client)
        missing: list[int] = []
        for number in range(message.sequence, message.sequence + len(message.records)):
            if number < mark:
                continue
            gsn, journal = log.find(client, number)
            if gsn:
                inserted = Inserted(client, message.shard, self.view, (Placed(number, (gsn,)),), False)
                log.when_durable(journal, Send(sender, inserted))
            elif not missing or missing[-1] == number - 1:
                missing.append(number)
        if not missing:
            return None
        start = missing[0] - message.sequence
        return missing[0], message.records[start : start + len(missing)]

    def _slots_for(self, floor: int, count: int, now: int) -> list[int]:
        """The GSNs of the next records behind `floor`; too few if this epoch has none, or must not be used."""
        if self.slots is None or not self._is_open() or now > self._entered_at + self.config.epoch_age_ns:
            return []
        return self.slots.take(max(floor, self.log.frontier), count)

    def _is_open(self) -> bool:
        """Whether this shard accepts records: it is in the set, and its version is open (ZIP-6)."""
        config, update = self.shard, self._update
        if self.slots is None or config is None or update is None:
            return False
        return config.view == self.view and update.opened >= config.since > 0

    def _wait(self, message: Insert, sender: Address) -> None:
        """Keep an insert until the next epoch."""
        key = message.client, message.sequence, len(message.records)
        if key not in self._waiting:
            size = record_bytes(message.records)
            if self._waiting and self._waiting_bytes + size > self.config.buffer_bytes:
                return
            self._waiting_bytes += size
            self._waiting[key] = message, sender
        if self._is_open() and self._wanted != self.epoch.base:
            self._wanted = self.epoch.base
            self._must_report = True

    def _retry_waiting(self, now: int) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for message, sender in waiting.values():
            self._on_insert(message, sender, now)

    # ---- replication

    def _on_replicate(self, message: Replicate, sender: Address, now: int) -> None:
        log = self.log
        if not self._is_from_view(message.shard, message.view) or self.primary is not None:
            return
        self._primary_last_received_at = now
        self.reads.version = max(self.reads.version, message.version)
        if message.after > log.end:
            self._stored_sent = 0
            if len(self._early) < MAX_EARLY:
                self._early[message.after] = message
        else:
            self._accept(message)
            while self._early and (first := min(self._early)) <= log.end:
                self._accept(self._early.pop(first))
        self._send_stored()

    def _accept(self, message: Replicate) -> None:
        """The order goes on."""
        log = self.log
        if message.end > log.end:
            records = [(one.tag, one.payload) for one in message.records]
            new = [one for one in records if log.end < gsn_of(one[1]) <= message.end]
            self._bytes_since += record_bytes(new)
            for client_address, client, sequence, gsn in log.accept(message.end, new):
                if client_address:
                    inserted = Inserted(client, message.shard, self.view, (Placed(sequence, (gsn,)),), False)
                    log.when_durable(log.journal, Send(client_address, inserted))
        if log.learn_stable(message.stable):
            self.reads.wake(log)

    def _is_from_view(self, shard: int, view: int) -> bool:
        return self.is_serving and shard == self.shard_number and view == self.view

    def _send_stored(self) -> None:
        """Report to the primary how far the order has come."""
        log, config = self.log, self.shard
        if config is None or config.view != self.view:
            return
        state = hash((log.end, log.durable)) or 1
        if state != self._stored_sent:
            self._stored_sent = state
            stored = Stored(self.shard_number, self.view, log.end, log.durable, log.last)
            self._out.append(Send(config.members[0].address, stored))

    def _on_stored(self, message: Stored, sender: Address, now: int) -> None:
        if self._is_from_view(message.shard, message.view) and self.primary is not None:
            self.primary.on_stored(message, sender, now)

    def _on_sessions(self, message: Sessions, sender: Address, now: int) -> None:
        """All that a new member lacked: save it, and be synced."""
        if not self._is_from_view(message.shard, message.view) or self.primary is not None:
            return
        if self.is_synced or self._is_saving or not message.end == self.log.end == self.log.durable:
            return
        self.log.sessions = sessions.Sessions.from_json(message.sessions)
        self._captured, self._is_saving = None, True
        self._save(self._saved(), self._synced)

    def _synced(self, now: int) -> None:
        self._commit()
        self._must_report = True
        self._follow(now)

    # ---- requests

    def _on_frontier_request(self, message: FrontierRequest, sender: Address, now: int) -> None:
        serves = self.is_serving and message.shard == self.shard_number and message.view == self.view
        version = self.epoch.version if serves else 0
        log = self.log
        answer = FrontierResponse(message.request, message.shard, version, log.frontier, log.last, log.stable)
        self._out.append(Send(sender, answer))

    def _on_status_request(self, message: StatusRequest, sender: Address, now: int) -> None:
        config = self.shard
        if config is None or not (self.primary is not None or (config.is_drained and config.view == self.view)):
            return
        found = self.log.sessions.find_all(message.client, message.sequences)
        placed = tuple([Placed(number, (gsn,)) for number, gsn in found if gsn <= self.log.stable])
        self._out.append(Send(sender, Status(message.client, config.shard, placed)))

    def _on_read(self, message: ReadRequest | Pull, sender: Address, now: int) -> None:
        if message.shard != self.shard_number or self._adopting is not None or not self.reads.version:
            self.reads.on_request(message, sender, None)
            return
        wanted = message.wanted if isinstance(message, Pull) else message.gsn * message.is_reached
        if self.primary is not None and wanted > self.log.end:
            self._skip(min(wanted, self.epoch.end))
        self.reads.on_request(message, sender, self.log)
