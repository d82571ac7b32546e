"""A mapping server's part in deleting what has expired: it carries out the sweeps of `logdb.retention`.

The commits of a sweep depend on conditions, so servers that sweep at the same time, or one after the other with half of
the work done, do no harm (DBS-18). The servers take turns in the order of their addresses: each waits a while for those
before it, so usually one of them sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from logdb.cluster.log_adapter import LogAdapter
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.replica import Replica
from logdb.cores.context import ClientContext, Timer
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard
from logdb.retention.sweep import LABEL, TICK, Scan, Steps, Sweeper, TimeOf, Write, Written
from logdb.store.key_map import Rows
from logdb.store.records import COMMIT, Commit, Place, TxnId, encode_commit
from logdb.txn.validation import Reason

SCANS_AT_ONCE: Final = 50
"""Number of scans after which other events are handled."""
BATCHES_AT_ONCE: Final = 16
"""The same for batches of one scan, which may pass many keys that do not exist."""
TURNS: Final = 3
"""A server waits this number of sweeps for each server before it."""


class RetentionSweeper:
    """Begins a sweep every `MappingConfig.sweep_ns`. `expired_keys`, `truncated_logs`: what its sweeps have deleted.
    `turn`: the number of servers that it waits for."""

    def __init__(self, config: MappingConfig, context: ClientContext, log: LogAdapter, replica: Replica) -> None:
        self._config, self._context, self._log, self._replica = config, context, log, replica
        self.expired_keys = self.truncated_logs = 0
        self._client = self._sequence = 0
        self._sweeper = Sweeper()
        self._steps: Steps | None = None
        self._number = 0
        self._timer = Timer(self._begin)
        self._awaited: tuple[int, TxnId] | None = None
        self._shard = 0
        # When a sweep became due, None if none is; the version of the last tick that this server has seen.
        self._due_since: int | None = None
        self._tick = self._began = 0
        self.turn = sum([peer < config.address for peer in config.peers])

    @property
    def is_awaited(self) -> bool:
        """Whether it waits for a record of its own."""
        return self._awaited is not None

    def start(self) -> None:
        """Begin the first sweep after an interval, if there is one."""
        if self._config.sweep_ns:
            self._client = self._context.rng.getrandbits(64)
            self._again()

    def _again(self, wait_ns: int | None = None) -> None:
        self._steps, self._awaited = None, None
        self._number += 1
        self._context.set_timer(self._timer, self._context.now + max(wait_ns or self._config.sweep_ns, 1))

    def _begin(self) -> None:
        replica = self._replica
        if not replica.applied:
            self._again()
            return
        tick = replica.map.entry(TICK, replica.applied)
        if tick is not None and tick[0] != self._tick:
            self._tick, self._due_since = tick[0], None
        self._began = self._context.now
        self._steps = self._sweeper.sweep(self._context.now)
        self._step(None)

    def _step(self, answer: Any) -> None:
        """Carry out the next requests of the sweep, up to one that has to wait."""
        assert self._steps is not None
        for _ in range(SCANS_AT_ONCE):
            try:
                request = self._steps.send(answer)
            except StopIteration as ended:
                self._end(*ended.value)
                return
            if isinstance(request, Write):
                self._write(request)
                return
            if isinstance(request, TimeOf):
                self._call(calls.Read(request.version, self._shard), self._timed)
                return
            answer = []
            at = self._replica.applied
            batches = self._replica.map.scan(request.start, request.end, at, request.reverse, request.limit)
            if not self._scan(request, at, batches, answer):
                return
        self._later(lambda: self._step(answer))

    def _scan(self, request: Scan, at: int, batches: Iterator[Rows], rows: list[tuple[bytes, Any]]) -> bool:
        """Add the batches of a scan to `rows`. Returns whether the answer is complete now; else the sweep continues
        later."""
        for number, batch in enumerate(batches, 1):
            rows.extend(batch)
            if number == BATCHES_AT_ONCE:
                self._later(partial(self._scan_on, request, at, batches, rows))
                return False
        del rows[request.limit :]
        places = [value for _, value in rows if isinstance(value, Place)] if request.whole else []
        if places:
            self._read(rows, places)
        return not places

    def _scan_on(self, request: Scan, at: int, batches: Iterator[Rows], rows: list[tuple[bytes, Any]]) -> None:
        if self._replica.coordinator.floor > at:
            self._again()
        elif self._scan(request, at, batches, rows):
            self._step(rows)

    def _later(self, step: Callable[[], None]) -> None:
        """Handle other events first."""
        number = self._number

        def on_time() -> None:
            if number == self._number:
                step()

        self._context.set_timer(Timer(on_time), self._context.now + 1)

    def _end(self, keys: int, logs: int, is_complete: bool) -> None:
        self.expired_keys += keys
        self.truncated_logs += logs
        self._due_since = None
        self._again(None if is_complete else self._context.now - self._began)

    # ---- requests

    def _call(self, request: Any, on_result: Any) -> None:
        """Send a request to the log. If it fails, the next sweep begins anew; that a shard does not have a record is a
        result."""
        number = self._number

        def answered(result: Any) -> None:
            if number != self._number:
                return
            if isinstance(result, Exception) and not isinstance(result, NotOfThisShard):
                self._again()
            else:
                on_result(result)

        self._log.call(request, answered)

    def _timed(self, record: LogRecord | NotOfThisShard) -> None:
        self._step(record.time if isinstance(record, LogRecord) else None)

    def _read(self, rows: list[tuple[bytes, Any]], places: list[Place]) -> None:
        """Read the large values among the rows. The value of a forged place, which has no record, is empty."""
        found: dict[Place, bytes] = {}

        def read(place: Place, record: Any) -> None:
            found[place] = record.payload if isinstance(record, LogRecord) else b""
            if len(found) == len(set(places)):
                self._step([(key, found.get(value, value)) for key, value in rows])

        for place in set(places):
            request = calls.Read(place.gsn, place.shard, size=place.length)
            self._call(request, lambda record, place=place: read(place, record))

    def _write(self, request: Write) -> None:
        now, sweep_ns = self._context.now, self._config.sweep_ns
        if TICK in request.writes:
            if self._due_since is None:
                self._due_since = now
            if now < self._due_since + self.turn * TURNS * sweep_ns:
                self._again()
                return
        self._sequence += 1
        txn = TxnId(self._client, self._sequence)
        commit = Commit(
            *txn,
            dict(request.writes),
            self._replica.applied,
            LABEL,
            conditions=tuple(request.conditions),
            deletes=tuple(request.deletes),
        )

        def appended(done: calls.AppendResult) -> None:
            self._shard = done.shards[0]
            self._awaited = done.gsns[0], txn
            self.look()

        self._call(calls.Append(((COMMIT, encode_commit(commit)),)), appended)

    def look(self) -> None:
        """The replica has applied more of the log."""
        if self._awaited is None or self._replica.applied < self._awaited[0]:
            return
        (gsn, txn), self._awaited = self._awaited, None
        decided = self._replica.decided(txn)
        if decided is not None and decided.verdict.reason in (Reason.COMMITTED, Reason.CONDITION):
            self._step(Written(gsn, decided.verdict.failed))
        else:
            self._again()
