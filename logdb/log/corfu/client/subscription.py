"""A subscription: the entries of all shards, pulled from the last units of their chains, in the order of positions.

A position at which no entry comes, though there are later ones, is a hole: its writer is slow or has died. The
subscription fills it after a while, and waits longer the next time, since the writer may only have been slow.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from logdb.cores.context import ClientContext, PendingRequests, Timer
from logdb.cores.effects import Address
from logdb.cores.subscriptions import Subscription
from logdb.errors import Corruption
from logdb.log import requests as calls
from logdb.log.contract import Batch, LogRecord, Trimmed
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.client.reads import CompletePositions
from logdb.log.corfu.messages import Entry, Pull, Pulled, Reason, Rejected, Written
from logdb.log.corfu.projection import gsn_at, position_of
from logdb.log.requests import END

RECORD_BYTES: Final = 64
"""Size that is added to the payload of each pulled record, and of the GSN of one that was trimmed."""
MIN_FETCH_BYTES: Final = 64 << 10
FILLS_AFTER: Final = 4
"""A hole is filled after the answer timeout divided by this."""
MAX_DOUBLINGS: Final = 5
HOLES: Final = 256
"""Maximum number of holes that are filled at once."""


class Stream:
    """The entries of one shard. `at`: the next position to pull. `entries`: those that the application has not got,
    with their records, and the GSNs of those that were trimmed. `known`: the highest position of its unit that was
    reported."""

    __slots__ = ("at", "bytes", "damaged", "entries", "known", "number", "turn")

    def __init__(self, at: int) -> None:
        self.at = at
        self.entries: deque[tuple[Entry, list[LogRecord], list[int]]] = deque()
        self.bytes = self.number = self.known = self.turn = 0
        self.damaged: dict[Address, str] = {}


class LogSubscription(Subscription):
    """`position`: the next GSN for the application. `_next`: the next position; all before it were delivered."""

    def __init__(
        self,
        request: calls.Subscribe,
        context: ClientContext,
        requests: PendingRequests,
        auxiliary: AuxiliaryClient,
        fills: FillClient,
        complete: CompletePositions,
    ) -> None:
        super().__init__(context)
        self._requests, self._auxiliary, self._fills, self._complete = requests, auxiliary, fills, complete
        self.position = request.gsn
        self._next = max(1, position_of(request.gsn))
        self._tags, self._shard = request.tags, request.shard
        self._fetch_bytes = max(request.fetch_bytes or context.config.fetch_bytes, 1)
        self._streams: dict[int, Stream] = {}
        self._epoch = 0
        self._is_closed = False
        self._doublings = 0
        self._hole = self._holes_end = 0
        self._damage: Exception | None = None
        self._fill = Timer(self._fill_hole)
        self._look = Timer(self._auxiliary.refresh)

    def close(self) -> None:
        super().close()
        self._is_closed = True
        self._context.discard_timer(self._fill)
        self._context.discard_timer(self._look)
        for stream in self._streams.values():
            self._requests.cancel(stream.number)

    def on_view(self) -> None:
        """The projection may have changed. Entries that were received are complete, and do not change."""
        if self._is_closed:
            return
        view = self._auxiliary.view
        if view.epoch != self._epoch:
            self._epoch = view.epoch
            self._hole = 0
            for stream in self._streams.values():
                self._requests.cancel(stream.number)
                if stream.entries:
                    stream.at = stream.entries[-1][0].position + 1
                else:
                    stream.at = self._next
        self.advance()

    def advance(self) -> None:
        if not self._auxiliary.view.version:
            self._auxiliary.refresh()
            return
        if self._is_closed:
            return
        self._skip_trimmed()
        self._deliver()
        if self._is_closed:
            return
        if not self._pull_all() and self._waiting:  # no unit would mention a newer projection
            self._context.set_timer(self._look, self._context.now + self._context.config.answer_timeout_ns)
        self._look_for_hole()

    def _skip_trimmed(self) -> None:
        """Do not request what `_next_batch` will not deliver."""
        oldest = position_of(self._auxiliary.oldest)
        for stream in self._streams.values():
            if stream.at < oldest and not stream.entries:
                stream.at = oldest

    # ---- delivering

    def _step(self) -> tuple[int, int] | None:
        """(position, shard) of the next entry; None if no shard has one."""
        view = self._auxiliary.view
        if self._shard is not None:
            stride = view.stride(self._shard, self._next)
            return None if stride is None else (stride.first, self._shard)
        config = view.owner(self._next)
        return None if config is None else (self._next, config.shard)

    def _has_ended(self) -> bool:
        """Whether the shard that is followed is finalized, and has no more positions."""
        view, shard = self._auxiliary.view, self._shard
        if shard is None or shard >= view.next_shard or view.stride(shard, self._next) is not None:
            return False
        config = view.shard(shard)
        return config is None or not config.is_live or config.holds_streams

    def _next_batch(self) -> Batch | Exception | None:
        if self.position < self._auxiliary.oldest:
            return Trimmed(self.position, self._auxiliary.oldest)
        if not self._auxiliary.view.version:
            return None
        first, size = self.position, 0
        records: list[LogRecord] = []
        deleted: list[int] = []
        while size < self._context.config.batch_bytes and (found := self._step()) is not None:
            position, shard = found
            stream = self._streams.get(shard)
            if stream is None or not stream.entries or stream.entries[0][0].position > position:
                break
            entry, own, trimmed = stream.entries.popleft()
            bytes_ = _size(own, trimmed)
            stream.bytes -= bytes_
            if entry.position < position:
                continue
            size += bytes_
            deleted += [gsn for gsn in trimmed if gsn >= first]
            records += own if gsn_at(entry.position) >= first else [one for one in own if one.gsn >= first]
            self._next = position + 1
            self.position = max(self.position, gsn_at(position, max(0, entry.count - 1)) + 1)
        if self.position > first:
            self._doublings = max(0, self._doublings - 1)
            return Batch(first, self.position, records, tuple(deleted))
        if self._has_ended() and self.position < END:
            self.position = END
            return Batch(first, END, [])
        return self._damage

    # ---- pulling

    def _pull_all(self) -> bool:
        """Pull from every shard that may have the next entries. Returns whether there is one."""
        view = self._auxiliary.view
        shards = [config.shard for config in view.shards if self._shard in (None, config.shard)]
        for shard in [one for one in self._streams if one not in shards]:
            stream = self._streams[shard]
            self._requests.cancel(stream.number)
            if not stream.entries:
                del self._streams[shard]
        is_pulling = False
        for shard in shards:
            stream = self._streams.setdefault(shard, Stream(self._next))
            if view.stride(shard, stream.at) is None:
                continue
            is_pulling = True
            limit = max(self._fetch_bytes // len(shards), min(MIN_FETCH_BYTES, self._fetch_bytes))
            if not self._requests.is_open(stream.number) and stream.bytes < limit:
                self._pull(shard, stream, limit)
        return is_pulling

    def _pull(self, shard: int, stream: Stream, limit: int, *, is_single: bool = False) -> None:
        """`is_single`: only the next entry, because one of several was damaged."""
        view = self._auxiliary.view
        stride = view.stride(shard, stream.at)
        config = view.shard(shard)
        assert stride is not None
        assert config is not None
        stream.at, step, end = stride
        end = stream.at + 1 if is_single else end
        stream.number = number = self._context.next_number()
        size = max(1, min(limit // 2, self._context.config.batch_bytes))
        known = max(stream.known + 1, stream.at)
        pull = Pull(number, view.epoch, stream.at, step, end, known, self._tags, size)
        chain = config.chain(stream.at)

        def choose(attempt: int) -> Address | None:
            if attempt:
                self._auxiliary.refresh()
            if not chain:
                return None
            turn = stream.turn if is_single and stream.damaged else len(chain) - 1
            return chain[turn % len(chain)].address

        def answered(answer: Pulled | Rejected, sender: Address) -> int | None:
            if isinstance(answer, Pulled):
                self._requests.cancel(number)
                self._take(stream, answer, step)
                self.advance()
                return None
            if answer.why is Reason.UNREADABLE and not is_single:
                self._requests.cancel(number)
                self._pull(shard, stream, limit, is_single=True)
                return None
            if answer.why is Reason.UNREADABLE:
                # The last unit has this entry, so it is complete. Later ones at other units may not be (COR-11).
                stream.damaged[sender] = answer.explanation
                stream.turn += 1
                if stream.damaged.keys() >= {unit.address for unit in chain}:
                    self._damage = Corruption("the log", None, "; ".join(sorted(set(stream.damaged.values()))))
                    self._deliver()
                    return self._context.backoff(5)
                return self._context.backoff(0)
            if answer.why is Reason.TRIMMED:
                self._auxiliary.trimmed(answer.oldest)
                self._requests.cancel(number)
                stream.at = max(stream.at, position_of(answer.oldest))
                self.advance()
                return None
            self._auxiliary.rejected(answer)
            return self._context.backoff(3)

        self._requests.send(number, pull, choose, answered)

    def _take(self, stream: Stream, pulled: Pulled, step: int) -> None:
        """Store the received entries."""
        stream.known = max(stream.known, pulled.highest)
        if pulled.entries:
            stream.damaged.clear()
            self._damage = None
        at = 0
        deleted: dict[int, list[int]] = {}
        for gsn in pulled.deleted:
            deleted.setdefault(position_of(gsn), []).append(gsn)
        for entry in pulled.entries:
            own = []
            while at < len(pulled.records) and position_of(pulled.records[at].gsn) == entry.position:
                own.append(pulled.records[at])
                at += 1
            self._complete.add(entry.position)
            trimmed = deleted.get(entry.position, [])
            stream.entries.append((entry, own, trimmed))
            stream.bytes += _size(own, trimmed)
            stream.at = entry.position + 1

    # ---- holes

    def _look_for_hole(self) -> None:
        """Fill the next position after a while if a later one is written; soon if no client may write it any more."""
        found = self._step()
        if found is None:
            return
        position, shard = found
        stream = self._streams.get(shard)
        if stream is None or stream.entries or position < position_of(self._auxiliary.oldest):
            return
        known = max([one.known for one in self._streams.values()])
        view = self._auxiliary.view
        if (known < position and position >= view.start) or self._hole == position:
            return
        self._hole, self._holes_end = position, max(known, view.start)
        wait = self._context.config.answer_timeout_ns // FILLS_AFTER
        wait = wait << self._doublings if position >= view.start else wait // 8
        self._context.set_timer(self._fill, self._context.now + wait)

    def _fill_hole(self) -> None:
        """Fill the hole, and all others that were open when it was found: later positions were written since then, or
        no client may write them any more."""
        position, found = self._hole, self._step()
        self._hole = 0
        if found is None or found[0] != position or self._is_closed:
            self.advance()
            return
        stream = self._streams.get(found[1])
        if stream is not None and stream.entries:
            self.advance()
            return
        view, doublings = self._auxiliary.view, self._doublings

        def decided(entry: Written | None) -> None:
            if entry is not None and not entry.count and position >= view.start:
                self._doublings = min(MAX_DOUBLINGS, doublings + 1)
            if not self._is_closed:
                self.advance()

        for at in range(position, min(max(self._holes_end, position + 1), position + HOLES)):
            config = view.owner(at)
            if config is not None and self._shard in (None, config.shard):
                stream = self._streams.get(config.shard)
                if stream is None or stream.at <= at:
                    self._fills.fill(at, decided)

    def check(self) -> None:
        """Raises AssertionError."""
        for stream in self._streams.values():
            assert stream.bytes == sum([_size(own, trimmed) for _, own, trimmed in stream.entries])


def _size(records: list[LogRecord], trimmed: list[int]) -> int:
    """The size of an entry for limits in bytes."""
    return sum([len(record.payload) for record in records]) + RECORD_BYTES * (len(records) + len(trimmed) + 1)
