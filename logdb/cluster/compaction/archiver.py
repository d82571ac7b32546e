"""Copying versions to the cold tier before a compaction drops them (PROTOCOL.md, "The cold tier").

Every segment is a function of the log: the state before it (`ColdState`) says where it begins, its content where it
ends. So two servers that copy the same segment write the same files, and neither has to know of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from logdb.cluster.compaction.cold_records import LOG_ID_BYTES, Attached, ColdState, Copied, Target, encode_cold
from logdb.cluster.log_adapter import LogAdapter, ignore_result
from logdb.cluster.mapping_server.replica import KEYS_AT_ONCE, Replica, size_of
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import Archive, Archived, ProtocolViolation
from logdb.errors import Corruption, shown
from logdb.log import requests as calls
from logdb.log.contract import LogRecord, NotOfThisShard
from logdb.store.folds import folded_commit
from logdb.store.records import (
    COLD,
    COMMIT,
    RELOCATION,
    Commit,
    Place,
    Relocated,
    Value,
    decode_commit,
    encode_commit,
    encode_relocation,
)

SEGMENT_BYTES: Final = 8 << 20
"""A segment ends with the first record that exceeds this. It is in memory while it is written."""
ROWS_BYTES: Final = 1 << 20
"""Size of a record with rows of the first version."""
MAX_DOUBLINGS: Final = 6
"""The pause after a failure of the store doubles this often."""

Steps = Generator[Any, Any, None]
"""Yields a request to the log, the GSN of a record that must be applied, or an Archive; is sent the result. None: let
others run."""


class Archiver:
    """Copies up to one version at a time. `retry_ns`: the pause after the first failure of the store. `failures`: the
    number of its failures since the last success."""

    def __init__(self, context: ClientContext, log: LogAdapter, replica: Replica, retry_ns: int) -> None:
        self._context, self._log, self._replica, self._retry_ns = context, log, replica, retry_ns
        self.failures = 0
        self._target = 0
        self._done: Callable[[], None] | None = None
        self._failed: Callable[[str], None] | None = None
        self._attempt = self._awaited = self._subscription = 0
        self._steps: Steps | None = None
        self._written = 0
        # The number of segments before the one whose content is being read.
        self._reading_after: int | None = None

    def copy_to(self, version: int, done: Callable[[], None], failed: Callable[[str], None]) -> None:
        """Copy everything up to `version`, which is applied, and call `done`. A failure is tried again; if no replica
        can read a record, `failed` is called with the reason."""
        self._target, self._done, self._failed = version, done, failed
        self._begin()

    # ---- the steps

    def _begin(self) -> None:
        self._end_attempt()
        self._steps = self._segments()
        self._step(self._attempt, None)

    def _end_attempt(self) -> None:
        self._attempt += 1
        self._awaited, self._reading_after, self._steps = 0, None, None
        if self._subscription:
            self._log.call(calls.Close(self._subscription), ignore_result)
            self._subscription = 0

    def _step(self, attempt: int, result: Any) -> None:
        """Continue. After a failure begin again with what the log says. That a shard does not have a record is none."""
        if attempt != self._attempt or self._steps is None:
            return
        if isinstance(result, Corruption):
            assert self._failed is not None
            self._end_attempt()
            self._failed(str(result))
            return
        if isinstance(result, Exception) and not isinstance(result, NotOfThisShard):
            self._begin_later(self._context.backoff(3))
            return
        if self._is_stale():
            self._begin()
            return
        try:
            request = self._steps.send(result)
        except StopIteration:
            self._steps, done, self._done = None, self._done, None
            assert done is not None
            done()
            return
        if request is None:
            self._context.set_timer(Timer(lambda: self._step(attempt, None)), self._context.now + 1)
        elif isinstance(request, Archive):
            self._written = request.number
            self._context.out.append(request)
        elif isinstance(request, int):
            self._awaited = request
            self.look()
        else:
            self._log.call(request, lambda result: self._step(attempt, result))

    def _is_stale(self) -> bool:
        """Whether another server has copied the segment: compactions may have dropped versions of it since."""
        cold = self._replica.cold
        return self._reading_after is not None and cold is not None and cold.copied.number != self._reading_after

    def _begin_later(self, wait_ns: int) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._context.set_timer(Timer(lambda: self._begin_again(attempt)), self._context.now + wait_ns)

    def _begin_again(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._begin()

    def look(self) -> None:
        """The replica has applied more of the log."""
        if self._awaited and self._replica.applied >= self._awaited:
            self._awaited = 0
            self._step(self._attempt, None)

    def on_archived(self, event: Archived) -> None:
        """The store has the segment that was last written, or has failed."""
        if self._steps is None or event.number != self._written:
            return
        self._written = 0
        if event.failure:
            self.failures += 1
            self._begin_later(self._retry_ns << min(self.failures - 1, MAX_DOUBLINGS))
        else:
            self.failures = 0
            self._step(self._attempt, None)

    # ---- the segments

    def _segments(self) -> Steps:
        while True:
            cold = self._replica.cold
            if cold is None:
                yield from self._append(Attached(self._context.rng.randbytes(LOG_ID_BYTES)))
            elif not cold.has_base or cold.copied.version < cold.target:
                self._reading_after = cold.copied.number
                yield from self._copy_commits(cold) if cold.has_base else self._copy_rows(cold)
            elif cold.copied.version < self._target:
                yield from self._append(Target(self._target))
            else:
                return

    def _append(self, record: Attached | Target | Copied) -> Steps:
        """Append a record, and wait until it is applied. A second one changes nothing."""
        done = yield calls.Append(((COLD, encode_cold(record)),))
        yield done.gsns[0]

    def _write(self, cold: ColdState, version: int, time: int, after: bytes | None, records: list[LogRecord]) -> Steps:
        """Write a segment, and state it when it was read back (DBS-20)."""
        self._reading_after = None
        number, first = cold.copied.number + 1, cold.copied.end
        is_base = not cold.has_base
        written = version - (after is not None)  # a tier with a part of the rows of a version lacks that version
        since = cold.copied.version - is_base if number > 1 else 0
        oldest = cold.copied.version if number == 1 else 0
        yield Archive(cold.log_id, number, since, written, oldest, first, time, tuple(records))
        yield from self._append(Copied(number, version, first + len(records), time, after))

    def _copy_rows(self, cold: ColdState) -> Steps:
        """A segment with rows of the first version."""
        _, version, first, time, start = cold.copied
        assert start is not None
        records, size = list[LogRecord](), 0
        rows, rows_size = list[Relocated](), 0
        after: bytes | None = None
        key_map = self._replica.map

        def end_record() -> None:
            records.append(LogRecord(first + len(records), time, RELOCATION, encode_relocation(rows)))
            rows.clear()

        while after is None and (keys := key_map.keys_from(start, KEYS_AT_ONCE)):
            for key in keys:
                entry = key_map.entry(key, version)
                value = None if entry is None else (yield from self._whole(entry[1]))
                if entry is not None and value is not None:
                    rows.append(Relocated(key, entry[0], value))
                    rows_size += len(key) + size_of(value)
                if rows_size >= ROWS_BYTES:
                    size, rows_size = size + rows_size, 0
                    end_record()
                    if size >= SEGMENT_BYTES:
                        after = key + b"\0"
                        break
            start = keys[-1] + b"\0"
            yield None
        if rows:
            end_record()
        yield from self._write(cold, version, time, after, records)

    def _copy_commits(self, cold: ColdState) -> Steps:
        """A segment with the commits that were applied."""
        _, version, first, time, _ = cold.copied
        records, size, at = list[LogRecord](), 0, version + 1
        self._subscription = yield calls.Subscribe(at, frozenset({COMMIT}))
        while at <= cold.target and size < SEGMENT_BYTES:
            batch = yield calls.Next(self._subscription)
            for record in batch.records:
                if record.gsn > cold.target or size >= SEGMENT_BYTES:
                    break
                if not self._replica.coordinator.ledger.is_aborted(record.gsn):
                    payload = yield from self._commit(record)
                    records.append(LogRecord(first + len(records), record.time, COMMIT, payload))
                    size += len(payload)
                    version, time = record.gsn, record.time
            at = batch.end
        yield calls.Close(self._subscription)
        self._subscription = 0
        if size < SEGMENT_BYTES:
            version = cold.target
        yield from self._write(cold, version, time, None, records)

    def _commit(self, record: LogRecord) -> Generator[Any, Any, bytes]:
        """A commit with all values in it, and its version as sequence number."""
        gsn, key_map = record.gsn, self._replica.map
        commit = decode_commit(record.payload, gsn)
        keys = folded_commit(commit, lambda key: key_map.get(key, gsn - 1, whole=False)).writes
        writes: dict[bytes, Value] = {}
        for key in keys:
            entry = key_map.written(key, gsn)
            if entry is None or entry[0] != gsn:
                raise ProtocolViolation(f"DBS-20: version {gsn} of {shown(key)} is gone before it was copied")
            writes[key] = yield from self._whole(entry[1])
        return encode_commit(Commit(0, gsn, writes, label=commit.label, deletes=commit.deletes))

    def _whole(self, value: Value) -> Generator[Any, Any, Value]:
        """The value itself, from the log if it is a large one. A place that a client has forged, where the log has no
        such value, is kept: reading it raises Corruption (DBS-10)."""
        if not isinstance(value, Place):
            return value
        record = yield calls.Read(value.gsn, value.shard, size=value.length)
        if not isinstance(record, LogRecord) or not value.has(record.tag, record.payload):
            return value
        payload: bytes = record.payload
        return payload
