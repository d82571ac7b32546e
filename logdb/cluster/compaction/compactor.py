"""A mapping server's part in the compaction of the log (PROTOCOL.md, "Compaction").

It writes a checkpoint into the log: the versions that are live at the floor and were written before it, and the state
that is not in the map. Then the log may begin at the floor. Only the newest BEGINNING counts, so a server that was
suspected by mistake does no harm (DBS-11). A server that finds the compaction of another one without progress begins
another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from logdb.cluster.compaction.archiver import Archiver
from logdb.cluster.compaction.client_leases import ClientLeases
from logdb.cluster.compaction.records import CompactionBeginning, encode_beginning, encode_ending, encode_part
from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.replica import KEYS_AT_ONCE, Replica, first_rows, size_of_decision
from logdb.cluster.messages import (
    Compact,
    Compacted,
    Compacting,
    HeadRows,
    LedgerRows,
    MapRow,
    MapRows,
    Part,
    RecentRow,
    RecentRows,
)
from logdb.cluster.placement import decode_placement, named, placed
from logdb.cluster.summaries import Summary, encode_summary
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Address, Archived, ProtocolViolation
from logdb.errors import Corruption, shown
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard, Record
from logdb.store.garbage import garbage_share, is_worth_compacting, pause_ns
from logdb.store.range_deletions import RangeIndex
from logdb.store.records import BEGINNING, ENDING, PART, SUMMARY, VALUE, Place, Value

PART_BYTES: Final = 64 << 10
APPEND_BYTES: Final = 1 << 20
"""Size of an append of parts, or of large values."""
ROWS_AT_ONCE: Final = 1_000
"""Maximum number of rows of a part of the ledger."""

MAX_DOUBLINGS: Final = 11
"""The pause after a failed compaction doubles this often: up to about an hour."""
MAX_MISTAKES: Final = 6
"""The wait before a compaction is taken over doubles this often: up to two minutes."""

Steps = Generator[Any, Any, None]
"""Yields requests to the log, one or a list of concurrent ones, and is sent the results; None: let others run."""


class Phase(Enum):
    """The phases of a compaction."""

    IDLE = "no compaction is requested"
    GATHERING = "waits for the leases of clients, and for the compaction of another server"
    ARCHIVING = "copies to the cold tier what it will drop"
    BEGINNING = "appends its BEGINNING"
    COPYING = "appends its parts and their ENDING"
    TRIMMING = "trims the log"


def _anywhere(_: bytes) -> int | None:
    return None


class Compactor:
    """One compaction at a time.

    `leases`: the versions that clients keep readable. `copied`: the number of versions copied by the compaction under
    way, or by the last one. `trimmed`: the newest GSN to which this server has trimmed the log.
    """

    def __init__(self, config: MappingConfig, context: ClientContext, log: LogAdapter, replica: Replica) -> None:
        self._config, self._context, self._log, self._replica = config, context, log, replica
        self.phase = Phase.IDLE
        self.archiver = Archiver(context, log, replica, config.takeover_ns // 2)
        self.copied = self._read = self._written = 0
        self._requested: dict[tuple[Address, int], int] = {}
        self.leases = ClientLeases(context, config.lease_ns)
        self._target = self._oldest_before = self.trimmed = 0
        self._phase_number = 0
        self._began = self._beginning_gsn = 0
        self._steps: Steps | None = None
        self._timer = Timer(lambda: None)
        # When a compaction without a request became due, 0 if none is; whether the one under way pauses.
        self._due_since = 0
        self._pauses = False
        # The failures since the last success, and until when the server begins no compaction without a request.
        self._failures = self._idle_until = 0
        # The number of segments in the cold tier when the replica was last looked at.
        self._archived = 0
        # The progress of the compaction under way, and when it was last made.
        self._progress = 0, 0
        self._progress_at = 0
        # The servers that have begun a compaction since that with the BEGINNING `_ended`, the last that has ended, and
        # how often one of them has begun another: it was overtaken by mistake.
        self._beginners = set[int]()
        self._ended = self._mistakes = 0

    # ---- requests

    def compact(self, message: Compact, sender: Address) -> None:
        """A client requests a compaction, maybe not for the first time."""
        self._requested[sender, message.request] = message.before
        self._context.send(sender, Compacting(message.request, self.copied))
        if self.phase is Phase.IDLE:
            self._gather()

    # ---- phases

    def _enter(self, phase: Phase) -> None:
        """Enter a phase. Results and timers of the phase before are ignored."""
        self.phase = phase
        self._phase_number += 1
        self._timer.at = None

    def _later(self, wait_ns: int, function: Any, *arguments: Any) -> None:
        """Call a function after `wait_ns`, in a later event, unless another phase has begun."""
        self._timer.at = None
        self._timer = Timer(lambda: function(*arguments))
        self._context.set_timer(self._timer, self._context.now + max(wait_ns, 1))

    def _call(self, request: Any, on_result: Any) -> None:
        """Send a request to the log, and again if it fails: appending a record twice is harmless. That a shard does not
        have a record is a result."""
        number = self._phase_number

        def answered(result: Any) -> None:
            if number != self._phase_number:
                return
            if isinstance(result, Corruption):
                self._fail(str(result))
            elif isinstance(result, Exception) and not isinstance(result, NotOfThisShard):
                retry = Timer(lambda: self._retry(number, request, on_result))
                self._context.set_timer(retry, self._context.now + self._context.backoff(3))
            else:
                on_result(result)

        self._log.call(request, answered)

    def _retry(self, number: int, request: Any, on_result: Any) -> None:
        if number == self._phase_number:
            self._call(request, on_result)

    def _call_all(self, requests: list[Any], on_results: Any) -> None:
        """As `_call`, concurrently; `on_results` takes the results in order."""
        results: dict[int, Any] = {}

        def answered(index: int, result: Any) -> None:
            results[index] = result
            if len(results) == len(requests):
                on_results([results[index] for index in range(len(requests))])

        for index, request in enumerate(requests):
            self._call(request, partial(answered, index))

    def _gather(self, target: int = 0) -> None:
        self._enter(Phase.GATHERING)
        self._pauses = bool(target)
        self.copied = self._read = self._written = 0
        self._target = target or max(self._requested.values(), default=self._replica.coordinator.floor)
        self._call(calls.Oldest(), self._wait)

    def _wait(self, oldest: int) -> None:
        self._oldest_before = oldest
        self._later(self._config.gather_ns, self._begin)

    def _begin(self) -> None:
        replica, config = self._replica, self._config
        tiered = replica.coordinator.floor if config.has_cold_tier else 0  # older versions are read in the tier
        before = min([self._target, *(version for version in self.leases.versions() if version >= tiered)])
        wanted = replica.coordinator.oldest_needed(before)
        if replica.applied < self._target:
            self._call(calls.Tail(), self._await_target)
        elif not self._is_abandoned and wanted <= replica.cleaned:
            self._trim()
        elif replica.begun and not self._is_abandoned:
            self._later(config.gather_ns, self._begin)
        elif config.has_cold_tier and (replica.cold is None or replica.cold.copied.version < wanted):
            self._enter(Phase.ARCHIVING)
            self.archiver.copy_to(wanted, self._begin, self._fail)
        elif replica.compactable(before) < wanted:
            self._fail(f"{config.address} does not know the cold tier of its cluster; set `cold` in its cluster.toml")
        else:
            self._enter(Phase.BEGINNING)
            self._beginning_gsn = 0
            record = BEGINNING, encode_beginning(CompactionBeginning(self._context.client, before))
            self._call(calls.Append((record,)), self._on_beginning)

    def _await_target(self, tail: int) -> None:
        """Wait for the version, unless the log has no such record: a request for it would end all compactions."""
        if self._target > tail:
            self._answer(self._oldest_before, f"version {self._target} is in the future: the newest is {tail}", tail)
        else:
            self._later(self._config.gather_ns, self._begin)

    def _on_beginning(self, done: calls.AppendResult) -> None:
        self._beginning_gsn = done.gsns[0]
        self.look()

    def look(self) -> None:
        """The replica has applied more of the log."""
        replica = self._replica
        if (replica.begun, replica.parts) != self._progress:
            if replica.begun != self._progress[0]:
                self._note_beginning()
            self._progress, self._progress_at = (replica.begun, replica.parts), self._context.now
        if replica.cold is not None and replica.cold.copied.number > self._archived:
            self._archived = replica.cold.copied.number
            self._due_since = 0  # another server is copying, or this one
        is_mine = replica.begun and replica.begun_by == self._context.client
        if self.phase is Phase.COPYING and replica.begun != self._began:
            if replica.ended == self._began:
                self._failures = 0
                self._trim()
            elif is_mine:  # a retried append of the BEGINNING was ordered late
                self._copy(replica.begun)
            else:
                self._gather()
        elif self.phase is Phase.BEGINNING:
            if is_mine:
                self._copy(replica.begun)
            elif self._beginning_gsn and replica.applied >= self._beginning_gsn:
                self._gather()
        self.archiver.look()

    def _note_beginning(self) -> None:
        replica = self._replica
        if replica.ended != self._ended:
            self._ended, self._mistakes = replica.ended, 0
            self._beginners.clear()
        if replica.begun:
            self._mistakes += replica.begun_by in self._beginners
            self._beginners.add(replica.begun_by)

    def _copy(self, began: int) -> None:
        self._enter(Phase.COPYING)
        self.copied = self._read = self._written = 0
        self._began = began
        self._steps = self._parts(began, self._replica.coordinator.floor)
        self._step(None)

    def _step(self, result: Any) -> None:
        assert self._steps is not None
        try:
            request = self._steps.send(result)
        except StopIteration:
            return
        if request is None:
            self._later(0, self._step, None)
            return
        began_at = self._context.now

        def answered(result: Any) -> None:
            if self._pauses:
                self._later(pause_ns(self._context.now - began_at), self._step, result)
            else:
                self._step(result)

        if isinstance(request, list):
            self._call_all(request, answered)
        else:
            self._call(request, answered)

    def _trim(self) -> None:
        """Trim the log to the last compaction that ended, also one of another server."""
        self._enter(Phase.TRIMMING)
        cleaned = self._replica.cleaned
        if cleaned <= self.trimmed:
            self._call(calls.Oldest(), self._finish)
            return

        def trimmed(oldest: int) -> None:
            self.trimmed = cleaned
            self._finish(oldest)

        self._call(calls.Trim(cleaned), trimmed)

    def _finish(self, oldest: int) -> None:
        self._answer(oldest, "")

    def _fail(self, reason: str) -> None:
        """A compaction that has failed may fail again, after all parts were appended again: the server waits, ever
        longer."""
        self._idle_until = self._context.now + (self._config.takeover_ns << min(self._failures, MAX_DOUBLINGS))
        self._failures += 1
        self._answer(self._oldest_before, reason)

    def on_archived(self, event: Archived) -> None:
        """A segment was written to the cold tier, or the store has failed: waiting clients get the cause, and the
        compaction goes on when the store is back."""
        self.archiver.on_archived(event)
        if event.failure and self.phase is Phase.ARCHIVING:
            self._reply(
                self._oldest_before,
                f"the cold tier cannot be written ({event.failure}); nothing is dropped, and the server tries again",
            )

    def _answer(self, oldest: int, reason: str, above: int = -1) -> None:
        self._reply(oldest, reason, above)
        if self._requested:
            self._gather()
        else:
            self._enter(Phase.IDLE)

    def _reply(self, oldest: int, reason: str, above: int = -1) -> None:
        """Answer the requests that are done; if there is a `reason`, those for versions `above` one have failed."""
        floor = self._replica.coordinator.floor
        for (address, request), before in list(self._requested.items()):
            if before > above if reason else before <= self._target:
                del self._requested[address, request]
                byte_counts = self._read, self._written, self._replica.freed if self._written else 0
                reply = Compacted(request, floor, self.copied, self._oldest_before, oldest, reason, *byte_counts)
                self._context.send(address, reply)

    def tidy(self) -> None:
        """Called periodically: end the compaction of a killed server, trim after it, or begin one that is due."""
        self.leases.drop_expired()
        replica = self._replica
        if self.phase is not Phase.IDLE:
            return
        may_begin = self._context.now >= self._idle_until
        if self._is_abandoned and may_begin:
            self._gather()
        elif replica.cleaned > self.trimmed:
            self._target = 0
            self._trim()
        elif may_begin and self._is_due():
            self._gather(replica.applied)

    @property
    def _is_abandoned(self) -> bool:
        """Whether the compaction that was begun makes no progress. Only another one ends it, even if nothing is left to
        free, because a BEGINNING that was appended twice was ordered after the end of its compaction.

        Servers that copy a value for longer than that would overtake each other without end, so they wait twice as long
        after each mistake."""
        takeover_ns = self._config.takeover_ns << min(self._mistakes, MAX_MISTAKES)
        return bool(self._replica.begun) and self._context.now >= self._progress_at + takeover_ns

    @property
    def garbage(self) -> float:
        """The share of the log that a compaction would free. Garbage that the last one left between its
        floor and its BEGINNING does not count."""
        replica = self._replica
        return garbage_share(replica.logged, replica.map.live_bytes, replica.logged - replica.logged_left)

    def _is_due(self) -> bool:
        """Whether this server should begin a compaction without a request. The servers take turns in the order of their
        addresses: each waits a while for those before it."""
        config, replica = self._config, self._replica
        is_worth = is_worth_compacting(replica.logged, self.garbage, config.compact_above, config.min_compact_bytes)
        if replica.begun or not is_worth:
            self._due_since = 0
            return False
        self._due_since = self._due_since or self._context.now
        before = sum([peer < config.address for peer in config.peers])
        return self._context.now >= self._due_since + before * 3 * config.decide_ns

    # ---- the records

    def _parts(self, began: int, floor: int) -> Steps:
        head, recent = self._replica.begun_with
        yield from self._map_parts(began, floor)
        rows_left = iter(head)
        while head_rows := first_rows(rows_left, APPEND_BYTES)[0]:
            yield calls.Append((self._part(HeadRows(tuple(head_rows))),))
        decisions, size = list[RecentRow](), 0
        for row in recent:
            decisions.append(row)
            size += size_of_decision(row)
            if size >= APPEND_BYTES or row is recent[-1]:
                yield calls.Append((self._part(RecentRows(tuple(decisions))),))
                decisions, size = [], 0
        after = b""
        while rows := tuple(islice(self._replica.coordinator.ledger.rows(after, began), ROWS_AT_ONCE)):
            yield calls.Append((self._part(LedgerRows(rows)),))
            after = rows[-1][0]
        yield calls.Append(((ENDING, encode_ending(began)),))

    def _part(self, part: Part, shard: int | None = None) -> Record:
        payload = encode_part(self._began, part)
        self._written += len(payload)
        return placed(PART, payload, shard)

    def _map_parts(self, began: int, floor: int) -> Steps:
        """Append the rows of the map, each to the shard of its object, then a summary to each shard that has all of its
        parts (DBS-17). The number of large values moved together doubles while a move takes far less time than that
        between two parts."""
        placement = self._replica.placement
        shard_of = decode_placement(placement) if placement else _anywhere
        wait_ns = self._config.takeover_ns // 4
        parts = _MapParts(self._part, shard_of, self._context, wait_ns)
        moving: list[MapRow] = []
        moving_bytes, together = 0, 1
        start, deleted = b"", self._replica.map.deleted_to(floor)
        while newest := self._replica.map.newest_from(start, KEYS_AT_ONCE):
            for row in self._needed(newest, began, floor, deleted):
                self.copied += 1
                value = row.value
                if isinstance(value, Place) and value.gsn < floor:
                    moving.append(row)
                    moving_bytes += value.length
                else:
                    parts.add((row,))
                if len(moving) >= together or moving_bytes >= APPEND_BYTES or (moving and parts.is_due):
                    began_at = self._context.now
                    parts.add((yield from self._moved(moving)))
                    is_fast = self._context.now - began_at < wait_ns // 4
                    moving, moving_bytes, together = [], 0, 2 * together if is_fast else 1
                if parts.is_due:
                    yield from parts.append()
            start = newest[-1][0] + b"\0"
            yield None
        if moving:
            parts.add((yield from self._moved(moving)))
        yield from parts.append()
        summaries = [
            placed(SUMMARY, encode_summary(Summary(shard, placement, began=began, floor=floor)), shard)
            for shard in named(shard_of)
            if shard not in parts.incomplete
        ]
        if summaries:
            yield calls.Append(tuple(summaries))

    def _moved(self, rows: list[MapRow]) -> Generator[Any, Any, list[MapRow]]:
        """Copy the large values of these rows. Returns the rows with the places of the copies. Where a forged place has
        no record, the copy is an empty one, so readers find still that it is not the value (DBS-10)."""
        places = [cast(Place, row.value) for row in rows]
        records = yield [calls.Read(place.gsn, place.shard, size=place.length) for place in places]
        values = [record.payload if isinstance(record, LogRecord) else b"" for record in records]
        size = sum(map(len, values))
        self._read += size
        self._written += size
        copies = [placed(VALUE, value, place.shard) for value, place in zip(values, places, strict=True)]
        done = yield calls.Append(tuple(copies))
        return [
            row._replace(value=place._replace(gsn=gsn, shard=shard))
            for row, place, gsn, shard in zip(rows, places, done.gsns, done.shards, strict=True)
        ]

    def _needed(
        self, newest: list[tuple[bytes, int, Value]], began: int, floor: int, deleted: RangeIndex
    ) -> Iterator[MapRow]:
        """The versions of these keys that a rebuild cannot take from commit records at or after `floor` (DBS-13).

        These are the versions that are live at the floor (one that the record at the floor has written may be the value
        of a fold, which follows from an older one), and the large values whose commit records do not have their place:
        values before the floor, and values that a compaction has moved. A commit record refers only to records before
        it, so a value whose place is greater than its version was moved.
        `deleted`: the range deletes up to the floor.
        """
        versions: Iterable[tuple[int, Value, int]]
        for key, last, its_value in newest:
            versions = ((last, its_value, 0),) if last <= floor else self._replica.map.versions(key, began)
            for version, value, _ in versions:
                if version < deleted.newest(key):
                    break
                self._read += len(key) + (len(value) if isinstance(value, bytes) else 0)
                if isinstance(value, Place) and value.gsn < self._replica.cleaned:
                    raise ProtocolViolation(
                        f"DBS-13: version {version} of {shown(key)} has its value in the trimmed record {value.gsn}"
                    )
                is_misplaced = isinstance(value, Place) and not floor <= value.gsn < version
                if is_misplaced or (version <= floor and value is not None):
                    yield MapRow(key, version, value, 0)
                if version <= floor:
                    break


class _MapParts:
    """Rows of the map that are put into parts, each part for one shard, and several parts into one append. An append is
    due at `APPEND_BYTES`, and after `wait_ns`: without progress other servers would take over.

    `incomplete`: the shards of which another shard has taken a part.
    """

    def __init__(
        self,
        part: Callable[[Part, int | None], Record],
        shard_of: Callable[[bytes], int | None],
        context: ClientContext,
        wait_ns: int,
    ) -> None:
        self._part, self._shard_of, self._context, self._wait_ns = part, shard_of, context, wait_ns
        self.incomplete: set[int | None] = set()
        self._rows: dict[int | None, list[MapRow]] = {}
        self._sizes: dict[int | None, int] = {}
        self._records: list[Record] = []
        self._shards: list[int | None] = []
        self._size = 0
        self._due = context.now + wait_ns

    def add(self, rows: Iterable[MapRow]) -> None:
        """Add rows."""
        for row in rows:
            shard = self._shard_of(row.key)
            self._rows.setdefault(shard, []).append(row)
            size = 32 + len(row.key) + (len(row.value) if isinstance(row.value, bytes) else 32)
            self._sizes[shard] = self._sizes.get(shard, 0) + size
            self._size += size
            if self._sizes[shard] >= PART_BYTES:
                self._end(shard)

    def _end(self, shard: int | None) -> None:
        self._records.append(self._part(MapRows(tuple(self._rows.pop(shard))), shard))
        self._shards.append(shard)
        del self._sizes[shard]

    @property
    def is_due(self) -> bool:
        """Whether to append now."""
        return self._size >= APPEND_BYTES or self._context.now >= self._due

    def append(self) -> Steps:
        """Append all rows added."""
        for shard in list(self._rows):
            self._end(shard)
        if self._records:
            done = yield calls.Append(tuple(self._records))
            self.incomplete.update(
                wanted for wanted, shard in zip(self._shards, done.shards, strict=True) if wanted != shard
            )
            self._due = self._context.now + self._wait_ns
        self._records, self._shards, self._size = [], [], 0
