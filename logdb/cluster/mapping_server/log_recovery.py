"""Recovers a replica from a trimmed log: from the PARTs of the last compaction that ended, and the commit records
from its floor to its BEGINNING. The result is the state as of that BEGINNING, to the last bit.

The log is first searched for that compaction. Then the versions go into the replica's map as they are read, a few at a
time, so the map may be larger than memory and the server handles other events meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from logdb.cluster.compaction.records import decode_ending, decode_part
from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import HeadRows, LedgerRows, MapRows, Part
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import MILLISECOND, ProtocolViolation
from logdb.errors import shown
from logdb.log import requests as calls
from logdb.log.contract import LogFailed, LogRecord
from logdb.store.folds import folded_commit
from logdb.store.range_deletions import RangeDeletions
from logdb.store.records import BEGINNING, COMMIT, ENDING, PART, MalformedRecord, Place, Value, decode_commit
from logdb.txn.coordinator import deletions_of, floor_of
from logdb.txn.ledger import aborted_of

ROWS_AT_ONCE: Final = 1_000
"""Number of rows read before other events are handled."""
PAUSE_NS: Final = 20 * MILLISECOND

Done = Callable[[int, list[Part]], None]
"""Takes the version, and the parts other than those of the map."""
Steps = Generator[Any, Any, None]
"""Yields requests to the log and is sent their results; None: let others run."""


class LogRecovery:
    """One attempt to fill an empty replica. Ends with a call of `done`, or of `failed` with the reason.

    `began`: the GSN of the BEGINNING, 0 until it is found. `rows`: the number of versions taken so far.
    """

    def __init__(
        self,
        log: LogAdapter,
        context: ClientContext,
        replica: Replica,
        oldest: int,
        done: Done,
        failed: Callable[[Any], None],
    ) -> None:
        self._log, self._context, self._replica, self._oldest = log, context, replica, oldest
        self._done, self._failed = done, failed
        self.began = self.rows = 0
        self._begun = self._ended = self._floor = 0
        self._deletions = RangeDeletions()
        self._parts: list[Part] = []
        self._aborted: set[int] = set()
        self._generator = self._steps()

    def start(self) -> None:
        """Begin; `done` or `failed` may be called before this returns."""
        self._step(None)

    def _step(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._failed(result)
            return
        try:
            request = self._generator.send(result)
        except StopIteration:
            return
        except MalformedRecord as error:
            raise ProtocolViolation(f"this version cannot read a record of the log: {error}") from error
        if request is None:
            self._pause()
        else:
            self._log.call(request, self._step)

    def _pause(self) -> None:
        """Pause until other events were handled, and for longer while the disk is behind."""
        if self._replica.map.is_ahead_of_disk:
            self._context.set_timer(Timer(self._pause), self._context.now + PAUSE_NS)
        else:
            self._context.set_timer(Timer(lambda: self._step(None)), self._context.now + 1)

    def _steps(self) -> Steps:
        tail = yield calls.Tail()
        yield from self._read(self._oldest, tail, frozenset({BEGINNING, ENDING}), self._find)
        if not self.began:
            what = f"the log begins with record {self._oldest}, and no complete compaction replaces those before it"
            self._failed(LogFailed(what))
            return
        yield from self._read(self.began, self._ended, frozenset({PART}), self._take_part)
        for part in self._parts:
            if isinstance(part, HeadRows):
                self._floor = max(self._floor, floor_of(part.rows))
                self._deletions = self._deletions.with_older(deletions_of(part.rows))
            elif isinstance(part, LedgerRows):
                self._aborted.update(aborted_of(part.rows))
        if self._floor < self._oldest:
            raise ProtocolViolation(f"DBS-12: the log begins with {self._oldest}, its last floor is {self._floor}")
        yield from self._read(self._floor, self.began, frozenset({COMMIT}), self._take_commit)
        self._done(self.began, self._parts)

    def _read(self, first: int, last: int, tags: frozenset[int], take: Callable[[LogRecord], int]) -> Steps:
        """Pass all records of these kinds from `first` to `last` to `take`, which returns their number of rows."""
        subscription = yield calls.Subscribe(first, tags)
        end, rows = first, 0
        while end <= last:
            batch = yield calls.Next(subscription)
            for record in batch.records:
                rows += take(record) if record.gsn <= last else 0
                if rows >= ROWS_AT_ONCE:
                    rows = 0
                    yield None
            end = batch.end
        yield calls.Close(subscription)

    def _find(self, record: LogRecord) -> int:
        """Find the newest BEGINNING that was followed by its ENDING before another BEGINNING."""
        if record.tag == BEGINNING:
            self._begun = record.gsn
        elif decode_ending(record.payload) == self._begun:
            self.began, self._ended = self._begun, record.gsn
        return 0

    def _take_part(self, record: LogRecord) -> int:
        began, part = decode_part(record.payload)
        if began != self.began:
            return 0
        if not isinstance(part, MapRows):
            self._parts.append(part)
            return len(part.rows)
        for key, version, value, _ in part.rows:
            self._replica.map.replace(key, version, value)
        self.rows += len(part.rows)
        return len(part.rows)

    def _take_commit(self, record: LogRecord) -> int:
        """Add the versions that no part has: a part has the newer place of a value (DBS-13)."""
        gsn, key_map = record.gsn, self._replica.map
        if gsn in self._aborted or gsn == self.began:
            return 0
        writes = folded_commit(decode_commit(record.payload, gsn), lambda key: self._before(key, gsn)).writes
        for key, value in writes.items():
            if (gsn > self._floor or value is not None) and key_map.written_version(key, gsn) != gsn:
                if isinstance(value, Place) and value.gsn < self._floor:
                    what = f"the value of version {gsn} of {shown(key)} was trimmed, at {value.gsn}"
                    raise ProtocolViolation(f"DBS-13: {what}, and it begins with {self._oldest}")
                key_map.replace(key, gsn, value)
        self.rows += len(writes)
        return len(writes)

    def _before(self, key: bytes, gsn: int) -> Value:
        """The value of a key just before a commit record behind the floor: all versions up to there were taken."""
        entry = self._replica.map.written(key, gsn - 1)
        return None if entry is None or entry[0] < self._deletions.newest(key, gsn - 1) else entry[1]
