"""A storage unit: write-once positions, which clients write and fill along a chain, and seals.

A unit knows the other units only to copy entries: when it joins a chain, and to complete one that a filler has met.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from random import Random
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
from logdb.log.corfu.messages import (
    CommitRequest,
    Committed,
    Deleted,
    DeleteRequest,
    Entry,
    FillRequest,
    HighestRequest,
    HighestResponse,
    OpenPositions,
    OpenRequest,
    Pull,
    Pulled,
    ReadRequest,
    Reason,
    Rejected,
    Report,
    Seal,
    Sealed,
    Status,
    StatusRequest,
    StreamPull,
    TimeRequest,
    TimeResponse,
    TokenRequest,
    TokenResponse,
    Update,
    WriteRequest,
    Written,
)
from logdb.log.corfu.projection import (
    ENTRY_RECORDS,
    MAX_TOKENS,
    NO_VIEW,
    POSITION_WINDOW,
    TIME_WINDOW_NS,
    ShardConfig,
    Unit,
    gsn_at,
    position_of,
)
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.copier import Copier
from logdb.log.corfu.storage.deleted_records import DELETED
from logdb.log.corfu.storage.entry_store import JOURNAL, EntryStore
from logdb.log.corfu.storage.read_server import ReadServer

META: Final = "meta"
SAVED: Final = 1
"""The tag of the records of the journal META: each is the whole state beside the entries."""
HEARTBEAT: Final = "storage.heartbeat"
MAX_FETCHES: Final = 1_000
"""Maximum number of entries that are being copied for fillers."""
MAX_HELD: Final = 1_000
"""Maximum number of messages that wait for the sequencer."""
MAX_OPEN: Final = 256
"""Maximum number of positions in a response to `OpenRequest`."""


class StorageUnit:
    """The core of one unit. `server`: its number, 0 until it has one. `assigned`: the first position that no sequencer
    has assigned, as far as the unit knows; `time`: the latest time of a sequencer that it knows."""

    def __init__(self, config: UnitConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.config = config
        self._out: list[Effect] = []
        self._nonce = rng.getrandbits(62) + 1
        self.server = 0
        self.view = NO_VIEW
        self.store = EntryStore(self._out, config.cache_bytes)
        self.reads = ReadServer(self.store, self._out)
        self.copier = Copier(config, self.store, self._out, rng)
        self._meta_end = 1
        self._is_known = self._is_joining = False
        self._after_meta: deque[tuple[int, Callable[[int], None]]] = deque()
        self._answers: list[tuple[int, int, Effect]] = []
        self._answered = 0
        self._deletions: deque[tuple[int, Effect]] = deque()
        self._fetches: dict[int, tuple[FillRequest, Address, Sequence[Unit]]] = {}
        self._number = rng.getrandbits(62)
        self._question = self._asked_at = self._written = self.time = 0
        self._held: list[tuple[WriteRequest | FillRequest, Address]] = []
        self._journals = frozenset(journals)
        self._copied = 0
        self._shard = self._since = 0
        self._closed = self._decided = 1
        self._load(journals)
        self.assigned = max(1, self.store.highest + 1 - POSITION_WINDOW)
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Update: self._on_update,
            Seal: self._on_seal,
            WriteRequest: self._on_write,
            FillRequest: self._on_fill,
            DeleteRequest: self._on_delete,
            CommitRequest: self._on_commit,
            OpenRequest: self._on_open,
            StreamPull: self._on_stream_pull,
            Pulled: self._on_pulled,
            Written: lambda message, sender, now: self.copier.on_written(message, now),
            Rejected: self._on_rejected,
            TokenResponse: self._on_assigned,
            HighestRequest: self._on_highest,
            TimeRequest: self._on_time,
            StatusRequest: self._on_status,
            ReadRequest: self._on_read,
            Pull: self._on_read,
        }

    # ---- the directory

    def _load(self, journals: Mapping[str, Journal]) -> None:
        meta = journals.get(META)
        if meta is not None:
            self._meta_end = meta.end
        if meta is not None and len(meta.records):
            saved = json.loads(meta.records[-1].payload)
            self._nonce, self.reads.has_joined = saved["nonce"], saved["joined"]
            self.reads.sealed, self.reads.oldest = saved["sealed"], saved["oldest"]
            self.store.highest, self.store.last, self.store.trimmed, self.store.time = saved["store"]
        oldest = position_of(self.reads.oldest)
        deleted = self.store.deleted.load(journals[DELETED], oldest) if DELETED in journals else []
        if JOURNAL in journals:
            self.store.load(journals[JOURNAL], oldest, deleted)

    def _save(self, then: Callable[[int], None]) -> None:
        """Write all that a restart must know beside the entries, and act once it is on the medium."""
        store = self.store
        state = {
            "nonce": self._nonce,
            "joined": self._is_joining or self.reads.has_joined,
            "sealed": self.reads.sealed,
            "oldest": self.reads.oldest,
            "store": (store.highest, store.last, store.trimmed, store.time),
        }
        self._out.append(Persist(META, self._meta_end, [(SAVED, json.dumps(state, separators=(",", ":")).encode())]))
        self._meta_end += 1
        self._after_meta.append((self._meta_end, then))

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        for journal in (META, DELETED, JOURNAL):
            if journal not in self._journals:
                self._out.append(Create(journal, 1))
        self._save(self._begin)
        return self._effects()

    def _begin(self, now: int) -> None:
        """The nonce is durable: report it."""
        self._is_known = True
        self._report(now)
        self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        kind = type(event)
        if kind is Received:
            do = self._do.get(type(event.message))  # type: ignore[union-attr]
            if do is not None:
                do(event.message, event.sender, now)  # type: ignore[union-attr]
        elif isinstance(event, Persisted):
            self._on_persisted(event, now)
        elif isinstance(event, TimerFired):
            if self._held and now >= self._asked_at + self.config.resend_ns:
                self._release(now)
            if self.store.highest >= self.assigned:
                self._ask_sequencer(now)
            self.copier.on_timer(now)
            self._make_space(now)
            self._report(now)
            self._out.append(SetTimer(HEARTBEAT, now + self.config.heartbeat_ns))
        elif isinstance(event, Unreadable):
            self.reads.on_unreadable(event)
        elif isinstance(event, Disconnected):
            self.reads.forget(event.peer)
        if self.copier.copied != self._copied:
            self._copied = self.copier.copied
            self._report(now)
        return self._effects()

    def _effects(self) -> list[Effect]:
        out = self._out.copy()
        self._out.clear()
        return out

    def check_invariants(self) -> None:
        """Check the invariants COR-n of one unit. Raises AssertionError."""
        self.store.check()
        self.reads.check()
        assert self.store.highest < self.assigned + POSITION_WINDOW, "COR-12"
        for message, _ in self._held:
            assert not self.reads.rejects(message.epoch), "COR-7: a message of a sealed epoch waits"

    @property
    def is_ready(self) -> bool:
        """Whether the auxiliary knows this unit."""
        return self.server > 0

    def _on_persisted(self, event: Persisted, now: int) -> None:
        if event.journal == META:
            while self._after_meta and self._after_meta[0][0] <= event.end:
                self._after_meta.popleft()[1](now)
            if event.end > 2:
                self._out.append(Trim(META, event.end - 1))
            return
        if event.journal == DELETED:
            self.store.on_deleted(event.end)
            while self._deletions and self._deletions[0][0] <= event.end:
                self._out.append(self._deletions.popleft()[1])
            return
        durable = self.store.on_persisted(event.end)
        while self._answers and self._answers[0][0] <= event.end:
            self._out.append(heappop(self._answers)[2])
        self.reads.wake_at(durable)
        self.copier.on_persisted()

    def _when_durable(self, lsn: int, effect: Effect) -> None:
        """Do this when all records before an LSN are durable."""
        if lsn <= self.store.durable:
            self._out.append(effect)
        else:
            self._answered += 1
            heappush(self._answers, (lsn, self._answered, effect))

    # ---- the auxiliary

    def _report(self, now: int) -> None:
        if not self._is_known:
            return
        copied, store, decided = self.copier.copied, self.store, self._first_undecided()
        report = Report(self.server, self._nonce, self.view.version, self.reads.sealed, copied, store.last, decided)
        for replica in self.config.ordering:
            self._out.append(Send(replica, report))

    def _first_undecided(self) -> int:
        """See `Report`. The next epoch begins at or behind the last durable entry, and may have other ranges from there
        on. Once this unit rejects the epoch of its projection, it may have entries of such a range already."""
        config = self.view.shard(self._shard)
        if config is None or not config.has(self.server):
            return 0
        at = max(self._decided, self._since, position_of(self.reads.oldest))
        end = max(self._decided, self.view.start)
        if not self.reads.rejects(self.view.epoch):
            end = max(end, position_of(self.store.last_durable()) + 1)
        while at < end and (stride := self.view.stride(self._shard, at)) is not None:
            stop = min(stride.end or end, end)
            at = self.store.first_missing(stride.first, stride.step, stop)
            if at < stop:
                break
            at = stop
        else:
            at = end
        self._decided = at
        return at

    def _on_update(self, update: Update, sender: Address, now: int) -> None:
        view = update.view
        if update.nonce != self._nonce:
            return
        if update.is_released:
            self._out.append(Stop("it left its shard, so it starts again as a spare unit", wipe=True))
            return
        self.server = update.server
        if view.version <= self.view.version:
            return
        if view.epoch > self.view.epoch:  # it assigns its positions again
            self.assigned = max(view.start, self.store.highest + 1 - POSITION_WINDOW)
        self.view, self.time = view, max(self.time, view.time)
        self._question = 0
        if self._held:
            self._ask_sequencer(now)
        found = [(one.shard, unit) for one in view.shards for unit in one.units if unit.server == self.server]
        if found and not self.reads.has_joined:
            self._join(view.epoch)
        elif not found and self.reads.has_joined:
            self._reject_until(view.epoch, now)  # it has left its shard, for good
        former = [unit for one in view.shards for unit in one.former if unit.server == self.server]
        self.reads.former = former[0] if former else None
        if view.oldest > self.reads.oldest:
            self.reads.oldest = view.oldest
            self.store.trim_index(position_of(view.oldest))
            self._save(self._make_space)
            self.reads.wake()
        if found:
            self._shard, self._since = found[0][0], found[0][1].since
            self.copier.on_view(view, *found[0], now)
        self._report(now)

    def _make_space(self, now: int) -> None:
        """Delete what no entry needs any more, unless a restart would not know yet that it was trimmed."""
        if self.store.has_space and not self._after_meta:
            self.store.trim_journal()
            self.store.deleted.trim_journal(position_of(self.reads.oldest))

    def _join(self, epoch: int) -> None:
        """Accept messages from this epoch on, once that is durable: earlier ones were sent to another disk (COR-8)."""
        self.reads.sealed = max(self.reads.sealed, epoch - 1)
        self._is_joining = True

        def joined(now: int) -> None:
            self.reads.has_joined = True

        self._save(joined)

    def _reject_until(self, epoch: int, now: int) -> None:
        if epoch > self.reads.sealed:
            self.reads.sealed = epoch
            self.reads.wake()
            self._release(now)

    def _on_seal(self, message: Seal, sender: Address, now: int) -> None:
        """Reject an epoch from now on, and report what was written before, when all of that is durable."""
        self._reject_until(message.epoch, now)
        store = self.store
        end, server = store.next, self.server
        answer = Sealed(server, self.reads.sealed, store.highest, store.last, store.time)
        if server:
            self._save(lambda now: self._when_durable(end, Send(sender, answer)))

    # ---- writing

    def _is_rejected(self, message: WriteRequest | FillRequest, sender: Address) -> bool:
        """Reject a message of a sealed epoch, or about a position that was trimmed."""
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
        elif message.position < max(1, position_of(self.reads.oldest)):
            self.reads.reject(message.request, Reason.TRIMMED, sender)
        else:
            return False
        return True

    def _is_assigned(self, message: WriteRequest | FillRequest) -> bool:
        """Whether a sequencer has assigned the position, as far as the unit can say (COR-12, COR-13). Junk must not be
        ahead of the sequencer at all: it would be the tail, and later appends come before it. A writer has a token, and
        does not wait for the answer of the sequencer."""
        if isinstance(message, FillRequest):
            return message.position < self.assigned
        return message.position < self.assigned + POSITION_WINDOW and message.time < self.time + TIME_WINDOW_NS

    def _hold(self, message: WriteRequest | FillRequest, sender: Address, now: int) -> None:
        """Let a message wait until the sequencer has answered."""
        if len(self._held) < MAX_HELD:
            self._held.append((message, sender))
            self._ask_sequencer(now)
        else:
            self.reads.reject(message.request, Reason.BUSY, sender, "too many positions wait for the sequencer")

    def _ask_sequencer(self, now: int, count: int = 0) -> None:
        """Request its next position, and so many positions before, unless a request is open."""
        if self.view.sequencer and (not self._question or now >= self._asked_at + self.config.resend_ns):
            self._number += 1
            self._question, self._asked_at, self._written = self._number, now, self.store.highest
            self._out.append(Send(self.view.sequencer, TokenRequest(self._number, self.view.epoch, (0,) * count)))

    def _on_assigned(self, message: TokenResponse, sender: Address, now: int) -> None:
        """An entry that the unit had when it asked, and that is not assigned, has a forged token. It is the tail, and
        the positions before it may not be filled yet: the unit requests tokens for them."""
        if message.request == self._question:
            self._question = 0
            self.assigned, self.time = max(self.assigned, message.end), max(self.time, message.time)
            if self._written >= message.end:
                self._ask_sequencer(now, min(self._written + 1 - message.end, MAX_TOKENS))
            self._release(now)

    def _release(self, now: int) -> None:
        """Handle the messages that have waited, or reject them."""
        held, self._held = self._held, []
        for message, sender in held:
            if self._is_assigned(message):
                self._do[type(message)](message, sender, now)
            elif not self._is_rejected(message, sender):
                why = f"position {message.position} is not assigned: the next one is {self.assigned}"
                if isinstance(message, WriteRequest):
                    why += f", and the time is {self.time}, not {message.time}"
                self.reads.reject(message.request, Reason.UNASSIGNED, sender, why)

    def _on_write(self, message: WriteRequest, sender: Address, now: int) -> None:
        if self._is_rejected(message, sender):
            return
        if not 0 < len(message.records) <= ENTRY_RECORDS:
            why = f"an entry has 1 to {ENTRY_RECORDS} records, not {len(message.records)}"
            self.reads.reject(message.request, Reason.INVALID, sender, why)
            return
        if not self._is_assigned(message):
            self._hold(message, sender, now)
            return
        if self.store.find(message.position) is None:
            if self.view.version and self._shard_of(message) is None:  # after a restart, it has none for a moment
                self.reads.reject(message.request, Reason.BUSY, sender, "the unit knows no chain of the position")
                return
            self.store.add(
                Entry(
                    message.position,
                    message.time,
                    message.client,
                    message.sequence,
                    len(message.records),
                    message.streams,
                ),
                message.records,
            )
        if message.position >= self.assigned + POSITION_WINDOW // 2:
            self._ask_sequencer(now)
        self._answer_written(message.request, message.position, sender)

    def _answer_written(self, request: int, position: int, sender: Address) -> None:
        """Send which entry is at a position, when it is durable: otherwise it could still become another one."""
        at = self.store.find(position)
        assert at is not None
        entry = self.store.entry(at)
        written = Written(request, position, entry.client, entry.sequence, entry.count, entry.streams)
        self._when_durable(self.store.end(at), Send(sender, written))

    def _on_fill(self, message: FillRequest, sender: Address, now: int) -> None:
        """Only the head writes junk; the others copy the entry. The filler does not say which unit is the head: its
        chain could be forged."""
        if self._is_rejected(message, sender):
            return
        position, config = message.position, self._shard_of(message)
        if self.store.find(position) is not None:
            self._answer_written(message.request, position, sender)
        elif not self._is_assigned(message):
            self._hold(message, sender, now)
        elif config is None:
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit knows no chain of the position")
        elif self._lacks(config, position):
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit still copies entries")
        elif units := self._before(config, position):
            self._fetch(message, sender, units)
        else:
            self.store.add(Entry(position, 0, 0, 0, 0), ())
            self._answer_written(message.request, position, sender)

    def _fetch(self, fill: FillRequest, filler: Address, units: Sequence[Unit]) -> None:
        """Copy an entry from the last of these units, or from the one before it if the entry is damaged there."""
        self._number += 1
        self._fetches[self._number] = fill, filler, units[:-1]
        if len(self._fetches) > MAX_FETCHES:
            del self._fetches[next(iter(self._fetches))]
        pull = Pull(self._number, fill.epoch, fill.position, 1, fill.position + 1, 0, None, 1, uncommitted=True)
        self._out.append(Send(units[-1].address, pull))

    def _shard_of(self, message: WriteRequest | FillRequest) -> ShardConfig | None:
        """The shard of a position; None if this unit has no positions of that, or does not know the epoch yet. A stream
        replica has positions of all shards."""
        config = self.view.owner(message.position)
        if config is None or message.epoch > self.view.epoch:
            return None
        return config if self._holds_streams or config.has(self.server) else None

    @property
    def _holds_streams(self) -> bool:
        own = self.view.shard(self._shard)
        return own is not None and own.holds_streams

    def _before(self, config: ShardConfig, position: int) -> tuple[Unit, ...]:
        """The units that have an entry before this one; none: this unit is the head. Stream replicas come after all log
        replicas (COR-15)."""
        return config.chain(position) if self._holds_streams else config.upstream(self.server, position)

    def _lacks(self, config: ShardConfig, position: int) -> bool:
        """Whether no unit of the chain before this one has the entry, but a former unit may have it."""
        if self._holds_streams or config.upstream(self.server, position):
            return False
        is_head = config.chain(position)[0].server == self.server
        return not is_head or (position < self.view.start and not self._is_whole(position))

    def _is_own(self, entry: Entry) -> bool:
        """Whether this unit is to have the entry."""
        view, position = self.view, entry.position
        return not self._holds_streams or any(
            view.stream_shard(stream, position) == self._shard for stream, _ in entry.streams
        )

    def _on_pulled(self, message: Pulled, sender: Address, now: int) -> None:
        """Entries of another unit have arrived: for a filler, or for this unit, which has joined."""
        fetch = self._fetches.pop(message.request, None)
        if fetch is None:
            self.copier.on_pulled(message, now)
            return
        fill, filler, _ = fetch
        if not message.entries or self._is_rejected(fill, filler):
            return
        if not self._is_own(message.entries[0]):
            self.reads.reject(fill.request, Reason.ABSENT, filler)
            return
        if self.store.find(fill.position) is None:
            deleted, uncommitted = frozenset(message.deleted), frozenset(message.uncommitted)
            self.store.add_copy(message.entries[0], message.records, deleted, uncommitted)
        self._answer_written(fill.request, fill.position, filler)

    def _on_rejected(self, message: Rejected, sender: Address, now: int) -> None:
        """Another unit does not send an entry. The filler requests it again, unless it was trimmed."""
        fetch = self._fetches.pop(message.request, None)
        if fetch is None:
            self.copier.on_rejected(message, now)
            return
        fill, filler, units = fetch
        if message.why is Reason.UNREADABLE and units:
            self._fetch(fill, filler, units)
        elif message.why is Reason.TRIMMED:
            self.reads.reject(fill.request, Reason.TRIMMED, filler)

    # ---- trimming records one by one

    def _on_delete(self, message: DeleteRequest, sender: Address, now: int) -> None:
        """Delete records, once this unit has their entry: it may still copy it (COR-14)."""
        position = position_of(message.gsns[0]) if message.gsns else 0
        store, at = self.store, self.store.durable_at(position)
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
        elif position < max(1, position_of(self.reads.oldest)):
            self.reads.reject(message.request, Reason.TRIMMED, sender)
        elif any(position_of(gsn) != position for gsn in message.gsns):
            self.reads.reject(message.request, Reason.INVALID, sender, "these records are of several entries")
        elif at is None:
            self.reads.reject(message.request, Reason.BUSY, sender, f"the unit has no entry at {position} yet")
        else:
            store.deleted.add(store.entry(at), [gsn - gsn_at(position) for gsn in message.gsns])
            deleted = Send(sender, Deleted(message.request))
            if store.deleted.next <= store.deleted.durable:
                self._out.append(deleted)
            else:
                self._deletions.append((store.deleted.next, deleted))

    # ---- streams

    def _on_commit(self, message: CommitRequest, sender: Address, now: int) -> None:
        """All stream replicas have the entry."""
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
        elif message.position < max(1, position_of(self.reads.oldest)):
            self.reads.reject(message.request, Reason.TRIMMED, sender)
        elif self.store.durable_at(message.position) is None:
            self.reads.reject(message.request, Reason.BUSY, sender, f"the unit has no entry at {message.position}")
        else:
            self.store.commit(message.position)
            self._out.append(Send(sender, Committed(message.request)))
            self.reads.wake_at((message.position,))

    def _on_open(self, message: OpenRequest, sender: Address, now: int) -> None:
        """Send the first positions of this unit in the range that are not decided, or not committed."""
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
            return
        if message.epoch > self.view.epoch or not self._is_whole(message.first) or self._is_mistaken():
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit is not ready in this projection")
            return
        found = list[int]()
        at = max(self._closed, message.first, position_of(self.reads.oldest))
        end = min(message.end, self.view.start)
        while len(found) < MAX_OPEN and (stride := self.view.stride(self._shard, at)) is not None:
            at = min(stride.end or end, end)
            found += self.store.missing(stride.first, stride.step, at, MAX_OPEN - len(found))
            if at == end:
                break
        if message.first <= self._closed:
            self._closed = max(self._closed, found[0] if found else end)
        self._out.append(Send(sender, OpenPositions(message.request, tuple(found))))

    def _on_stream_pull(self, message: StreamPull, sender: Address, now: int) -> None:
        """A unit that still copies does not know all earlier entries (COR-18). The request may be for another one that
        had this address, and lost its disk."""
        view = self.view
        if not self._is_whole(message.first) and not self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit still copies entries")
        elif message.epoch > view.epoch:
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit does not know the projection yet")
        elif not self.reads.rejects(message.epoch) and self._shard != view.stream_shard(message.stream, message.first):
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit has not this stream")
        else:
            self.reads.on_stream_pull(message, sender)

    # ---- questions

    def _is_whole(self, first: int) -> bool:
        """Whether this unit has all entries from a position on, so far as they are from before it joined."""
        copier = self.copier
        is_current = copier.is_current or self._holds_streams
        return copier.copied >= self._since or (is_current and first >= self._since)

    def _is_mistaken(self) -> bool:
        """Whether a question may be for another unit, which had this address and lost its disk. It stays in the chain
        of a finalized shard while no spare can replace it."""
        units = [unit for config in self.view.shards for unit, _, _ in config.lasts()]
        return any(unit.address == self.config.address and unit.server != self.server for unit in units)

    def _on_read(self, message: ReadRequest | Pull, sender: Address, now: int) -> None:
        self.reads.on_request(message, sender)

    def _on_highest(self, message: HighestRequest, sender: Address, now: int) -> None:
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
        else:
            self._out.append(Send(sender, HighestResponse(message.request, self.store.last_durable())))

    def _on_time(self, message: TimeRequest, sender: Address, now: int) -> None:
        first = 0 if 0 < message.end <= self._since else self._since
        if self.reads.rejects(message.epoch):
            self.reads.reject(message.request, Reason.SEALED, sender)
        elif message.epoch > self.view.epoch or not self._is_whole(first) or self._is_mistaken():
            self.reads.reject(message.request, Reason.BUSY, sender, "the unit is not ready in this projection")
        else:
            last = self.store.last_at(message.time, message.end)
            self._out.append(Send(sender, TimeResponse(message.request, last)))

    def _on_status(self, message: StatusRequest, sender: Address, now: int) -> None:
        found = self.store.of_client(message.client, message.sequences)
        self._out.append(Send(sender, Status(message.client, tuple([entry.position for entry in found]))))
