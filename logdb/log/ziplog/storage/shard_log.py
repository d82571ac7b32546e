"""The log of one server for its shard: the order, the speculative records, and what of both is durable.

It knows neither the other members nor the MMS: `replication.py` and `server.py` decide what to do with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from logdb.cores.effects import Address, Create, Drop, Effect, Journal, Persist, ProtocolViolation, Trim
from logdb.log.contract import Record
from logdb.log.ziplog.records import gsn_of, header, wrap
from logdb.log.ziplog.storage.log_store import LogStore
from logdb.log.ziplog.storage.sessions import Sessions

SPECULATIVE: Final = "spec-"
ORDER: Final = "records-"
VOID_UP_TO: Final = (0, 0)
"""In place of (client, sequence number): speculative records up to this GSN do not count any more."""
VOID_AT: Final = (0, 1)
"""Likewise, of the one at this GSN."""
TOGETHER: Final = (0, 2)
"""Likewise: the speculative records behind this mark were placed together, up to this GSN (ZIP-13)."""
TRIM_RECORDS: Final = 64
"""Number of records at the beginning of the speculative journal, all unneeded, after which they are trimmed."""


class Speculation(NamedTuple):
    """A record that the primary has not placed yet. `record`: as stored. `sender`: its client. `last`: the GSN of the
    last record that was placed with it. `place`: the number in the journal of speculative records from which on it is
    needed."""

    client: int
    sequence: int
    record: Record
    sender: Address
    last: int
    place: int


@dataclass(slots=True)
class Step:
    """The order is durable up to `gsn` when the journal is, before `place`, and then `voids`.

    Speculative records become void only when the records that take their place are durable: a crash between the two
    would lose the first records of an append, and keep those behind them.
    """

    journal: str
    place: int
    gsn: int
    voids: Sequence[Record] = ()


class ShardLog:
    """`end`: the order covers all GSNs up to it, durably up to `durable`, on all members up to `stable`.

    `frontier`: no record is placed at or below it. `last`: the largest GSN that a record was given here.
    `acks_received`: it acknowledges records that are not synced yet.
    """

    def __init__(self, out: list[Effect], cache_bytes: int) -> None:
        self._out, self._cache_bytes, self.acks_received = out, cache_bytes, False
        self.store = LogStore(out, cache_bytes)
        self.sessions = Sessions()
        self.end = self.frontier = self.durable = self.stable = self.last = 0
        self.speculative: dict[int, Speculation] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._journal = ""
        self._is_created = False
        self._next_place = self._oldest_place = 1
        self._steps: deque[Step] = deque()
        self._durable_before: dict[str, int] = {}
        self._held: dict[str, deque[tuple[int, Effect]]] = {}

    # ---- a restart, and views

    def load(
        self,
        journals: Mapping[str, Journal],
        segments: Sequence[tuple[str, int]],
        sessions: tuple[int, Sessions],
        stable: int,
        speculative: str,
        oldest: int = 1,
    ) -> None:
        """Load the state of a restarted server. `sessions`: as they were when the order ended at a GSN. `speculative`:
        the name of the journal of speculative records."""
        self.store.load(journals, segments, stable, oldest)
        upto, self.sessions = sessions
        kept = {journal for journal, _ in segments}
        self._journal = speculative
        for name, journal in journals.items():
            if name == speculative:
                self._is_created, self._next_place, self._oldest_place = True, journal.end, journal.first
                self._durable_before[name] = journal.end
                self._replay(journal)
            elif name.startswith((SPECULATIVE, ORDER)) and name not in kept:
                self._out.append(Drop(name))
        self._note_sessions(journals, segments, upto)
        self.end = self.durable = max([self.store.last, stable])
        self.stable = stable
        for gsn, (client, sequence, *_) in list(self.speculative.items()):
            if self.sessions.find(client, sequence):
                self._forget(gsn)
        self._forget_up_to(self.end)
        self.last = max([self.store.last, *self.speculative])
        self.frontier = max(self.end, self.last)

    def _note_sessions(self, journals: Mapping[str, Journal], segments: Sequence[tuple[str, int]], upto: int) -> None:
        for (name, _), segment in zip(segments, self.store.segments, strict=True):
            if name not in journals or (segment.limit is not None and segment.limit <= upto):
                continue
            for record in journals[name].records:
                gsn, client, sequence = header((record.tag, record.payload))
                if gsn > upto and (segment.limit is None or gsn <= segment.limit):
                    self._note(client, sequence, gsn)

    def _replay(self, journal: Journal) -> None:
        together = first = 0
        for place, one in enumerate(journal.records, journal.first):
            gsn, *who = header((one.tag, one.payload))
            if tuple(who) == TOGETHER:
                together, first = gsn, place
            elif tuple(who) == VOID_UP_TO:
                self._forget_up_to(gsn)
            elif tuple(who) == VOID_AT:
                if gsn in self.speculative:
                    self._forget(gsn)
            else:
                client, sequence = who
                before = self._places.get((client, sequence))
                if before is not None:
                    self._forget(before)
                last, needed = (together, first) if gsn <= together else (gsn, place)
                self.speculative[gsn] = Speculation(client, sequence, (one.tag, one.payload), "", last, needed)
                self._places[client, sequence] = gsn

    def begin_view(
        self, journals: tuple[str, str], start: int, end: int, records: Sequence[Record], sessions: Sessions
    ) -> ShardLog:
        """The log of a new view: what there is up to `start`, then `records`, and the order ends at `end`. `journals`:
        the names of the new ones, for the order and for speculative records.

        This log stays as it is, in memory and on disk, until one of both drops its journals (ZIP-10).
        """
        log = ShardLog(self._out, self._cache_bytes)
        log.store, log.sessions = self.store.copy(), sessions
        log.store.begin(journals[0], start)
        log._journal = journals[1]
        log._durable_before = self._durable_before.copy()
        log.stable = min(self.stable, start)
        log.end = log.durable = log.frontier = start
        log.accept(end, records)
        log.last = log.store.last
        return log

    def drop_journals(self, kept: ShardLog) -> None:
        """Remove the journals that the log `kept` does not have."""
        names = [segment.journal for segment in self.store.segments]
        others = {segment.journal for segment in kept.store.segments}
        self._out += [Drop(name) for name in names if name not in others]
        if self._is_created:
            self._out.append(Drop(self._journal))

    @property
    def journal(self) -> str:
        """The journal of the order in this view."""
        return self.store.segments[-1].journal

    @property
    def speculative_journal(self) -> str:
        """The journal of the speculative records in this view."""
        return self._journal

    def to_keep(self, cut: int) -> list[Record]:
        """The records behind `cut` that a view which begins with this server must have."""
        rest = [self.speculative[gsn].record for gsn in sorted(self.speculative) if gsn > self.end]
        return self.store.behind(cut) + rest

    # ---- what is where

    def find(self, client: int, sequence: int) -> tuple[int, str]:
        """(GSN, journal) of a record, (0, "") if it is not here."""
        gsn = self.sessions.find(client, sequence)
        if gsn:
            return gsn, self.journal
        gsn = self._places.get((client, sequence), 0)
        return gsn, self._journal if gsn else ""

    @property
    def is_durable(self) -> bool:
        """Whether all that this log has is on the medium."""
        return not self._steps and self._durable_before.get(self._journal, 1) >= self._next_place

    def acknowledge(self, journal: str, effect: Effect) -> None:
        """Send the acknowledgement of what was written to a journal: once all of that is on the medium, unless this
        server acknowledges what it has received."""
        end = self._next_place if journal == self._journal else self.store.segments[-1].end
        if self.acks_received or self._durable_before.get(journal, 1) >= end:
            self._out.append(effect)
        else:
            self._held.setdefault(journal, deque()).append((end, effect))

    def persisted(self, journal: str, end: int) -> None:
        """The records of a journal before `end` are on the medium."""
        self._durable_before[journal] = end
        self.store.persisted(journal, end)
        held = self._held.get(journal)
        while held and held[0][0] <= end:
            self._out.append(held.popleft()[1])
        self._advance()

    def _advance(self) -> None:
        steps = self._steps
        while steps and self._durable_before.get(steps[0].journal, 1) >= steps[0].place:
            step = steps.popleft()
            if step.voids:
                steps.appendleft(self._void(step.voids, step.gsn))
            else:
                self.durable = max(self.durable, step.gsn)
        if not steps:
            self.durable = self.end
            if self._next_place - self._oldest_place > TRIM_RECORDS:
                self._trim_speculative()

    def _trim_speculative(self) -> None:
        """Trim the records in front of the oldest one that still counts. The order behind the others is durable."""
        oldest = next(iter(self.speculative.values())).place if self.speculative else self._next_place
        before = min(oldest, self._durable_before.get(self._journal, 1))
        if before - self._oldest_place >= TRIM_RECORDS:
            self._oldest_place = before
            self._out.append(Trim(self._journal, before))

    # ---- placing

    def place(self, gsns: Sequence[int], client: int, sequence: int, records: Sequence[Record]) -> None:
        """The primary gives GSNs to records."""
        stored = [
            wrap(gsn, client, number, one)
            for number, (gsn, one) in enumerate(zip(gsns, records, strict=True), sequence)
        ]
        self.accept(gsns[-1], stored)

    def speculate(
        self, gsns: Sequence[int], client: int, sequence: int, records: Sequence[Record], sender: Address
    ) -> None:
        """A backup gives GSNs to records."""
        if gsns[0] <= self.frontier:
            raise ProtocolViolation(f"ZIP-3: {gsns[0]} is not behind the frontier {self.frontier}")
        stored = [wrap(gsns[-1], *TOGETHER, (1, b""))] if len(gsns) > 1 else []
        for number, (gsn, record) in enumerate(zip(gsns, records, strict=True), sequence):
            stored.append(wrap(gsn, client, number, record))
            self.speculative[gsn] = Speculation(client, number, stored[-1], sender, gsns[-1], self._next_place)
            self._places[client, number] = gsn
        self._write_speculative(stored)
        self.frontier = self.last = gsns[-1]

    def _write_speculative(self, records: Sequence[Record]) -> None:
        if not self._is_created:
            self._is_created = True
            self._out.append(Create(self._journal, 1))
        self._out.append(Persist(self._journal, self._next_place, records))
        self._next_place += len(records)

    def _void(self, voids: Sequence[Record], gsn: int) -> Step:
        """Note that speculative records do not count any more. The order is durable up to `gsn` with that."""
        self._write_speculative(voids)
        return Step(self._journal, self._next_place, gsn)

    def skip(self, gsn: int) -> None:
        """The order places nothing up to `gsn`."""
        if gsn > self.end:
            self.accept(gsn, ())

    def accept(self, end: int, records: Sequence[Record]) -> list[tuple[Address, int, int, int]]:
        """The order goes on to `end` with these records. Returns (client's address, client, sequence number, GSN) of
        those that were speculative at another GSN."""
        if records and not self.end < gsn_of(records[0][1]) <= gsn_of(records[-1][1]) <= end:
            raise ProtocolViolation(f"ZIP-3: an order from {self.end} to {end} has {gsn_of(records[0][1])}")
        moved: list[tuple[Address, int, int, int]] = []
        voids: list[Record] = []
        for record in records:
            gsn, client, sequence = header(record)
            at = self._places.get((client, sequence))
            if at is not None:
                speculation = self._forget(at)
                if at != gsn:
                    moved.append((speculation.sender, client, sequence, gsn))
                    if at > end:
                        voids.append(wrap(at, *VOID_AT, (1, b"")))
            self._note(client, sequence, gsn)
        self.end = max(end, self.end)
        if passed := self._forget_up_to(self.end):
            voids.append(wrap(passed, *VOID_UP_TO, (1, b"")))
        if records:
            self.store.append(records)
            self.last = max(self.last, gsn_of(records[-1][1]))
        if records or voids:
            self._steps.append(Step(self.journal, self.store.segments[-1].end, self.end, voids))
        if self._steps:
            self._steps[-1].gsn = self.end
        self._advance()
        self.frontier = max(self.frontier, self.end)
        return moved

    def _note(self, client: int, sequence: int, gsn: int) -> None:
        if sequence >= self.sessions.mark(client):
            self.sessions.add(client, sequence, gsn)

    def _forget(self, gsn: int) -> Speculation:
        speculation = self.speculative.pop(gsn)
        del self._places[speculation.client, speculation.sequence]
        return speculation

    def _forget_up_to(self, end: int) -> int:
        """Drop what the order has passed; of records that were placed together none without those before it. Returns
        the GSN of the last one, 0 if there is none."""
        last = 0
        for gsn in list(self.speculative):
            if gsn <= max(end, last):
                last = max(last, self._forget(gsn).last)
        return last

    def learn_stable(self, stable: int) -> bool:
        """All members have the order up to `stable`. Returns whether more of it can be read here."""
        stable = min(stable, self.durable)
        if stable <= self.stable:
            return False
        self.stable = stable
        self.store.shrink(stable)
        return True

    def check(self) -> None:
        """Raises AssertionError."""
        self.store.check()
        assert self.stable <= self.durable <= self.end <= self.frontier, (
            f"ZIP-4: {self.stable} {self.durable} {self.end} {self.frontier}"
        )
        assert len(self.speculative) == len(self._places), "ZIP-5"
        assert all(gsn > self.end for gsn in self.speculative), "ZIP-3"
