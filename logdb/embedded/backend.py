"""The embedded host: drives the log, the coordinator and the map in one process. No sockets, no event loop.

The write path: `submit` orders the commit record and has the coordinator decide it, both under `order_lock`, so the
order of decisions is the log's; then the caller waits until it is durable (`log.wait_durable`) and only then
acknowledges. The read path: `version()` is the newest version that is durable, and every read names a version.

Invariants:

EMB-1  What a caller is told, a committed version or a value read outside a writing transaction, is durable.
EMB-2  Records are applied in the order of the log, all of them: an interrupt or error between the two steps of `submit`
       stops the host, which writes no checkpoint and tells no outcome any more: the next opening decides.
EMB-3  Nobody reads before the floor: `compact` waits behind the leases of scans and transactions.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar, cast

from logdb.api.results import Compacted
from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.compactor import Compactor
from logdb.embedded.directory import Directory
from logdb.embedded.feed import Feed
from logdb.embedded.follower import follow
from logdb.embedded.incoming import PART_BYTES, IncomingValue, OutgoingValue
from logdb.embedded.replay import begin_at_oldest
from logdb.errors import (
    ConflictError,
    Corruption,
    DatabaseClosed,
    FutureVersion,
    LogDBError,
    OutcomeUnknown,
    ReadOnly,
    TransactionTooLarge,
    Unavailable,
    VersionTrimmed,
)
from logdb.log.contract import LogFailed, LogRecord, OrderedLog, Record, Trimmed
from logdb.log.local.local_log import LocalLog
from logdb.log.local.memory_log import MemoryLog
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap, Rows
from logdb.store.limits import INLINE_VALUE_BYTES, MAX_TRANSACTION_BYTES, check_label
from logdb.store.overlay import ENTRY_BYTES
from logdb.store.pacing import Pacer
from logdb.store.ranges import ScanRange
from logdb.store.records import (
    COMMIT,
    DECISION,
    FENCE,
    PIN,
    VALUE,
    Commit,
    Condition,
    Place,
    Range,
    TxnId,
    Value,
    decode_commit,
    digest,
    encode_commit,
    encode_decision,
    encode_pin,
)
from logdb.store.values import Values
from logdb.system.disk import described
from logdb.system.forking import own
from logdb.txn.coordinator import Coordinator, Outcome, Status
from logdb.txn.transaction import Workspace
from logdb.txn.validation import COMMITTED, SETTLED, Reason, Verdict, validate

T = TypeVar("T")
logger = logging.getLogger("logdb")

OVERLAY_BYTES = 128 << 20
REPLAY_OVERLAYS = 3
"""A replay has the process to itself: it takes a checkpoint when it has filled so many overlays, which the suffix that
a kill leaves does not."""
REPLAY_STRETCH = 50_000
"""A checkpoint may be taken after so many records of the replay at the opening."""
LOOK_EVERY = 1_024
"""After so many records it is seen whether the log has grown by so much that a checkpoint is due."""
SHORT_ROWS = 256
"""A scan of no more rows is read at once."""
NO_LARGE: Sequence[bytes] = ()
SUFFIX_AT_CLOSE = 10_000
"""A log that has grown by more records than this since the last checkpoint gets one when it is closed."""


class EmbeddedBackend:
    """A database of this process. `path`: its directory, or ":memory:". `incarnation`: drawn at each opening. A version
    that is not durable yet belongs to it: if it ends now, the next one gives the number to something else."""

    def __init__(
        self,
        path: str,
        log: OrderedLog,
        checkpoint: Checkpoint | None,
        *,
        directory: Directory | None = None,
        read_only: bool = False,
        overlay_bytes: int = OVERLAY_BYTES,
        compact_above: float | None = None,
    ) -> None:
        self.path, self.log, self.directory, self.read_only = path, log, directory, read_only
        self.coordinator = Coordinator(KeyMap(Values(self._read_record), checkpoint))
        self.order_lock = threading.Lock()
        self.closed = False
        self.compactor = Compactor(self, compact_above)
        self._checkpointer: Checkpointer | None = None
        if checkpoint is not None and not read_only:
            self._checkpointer = Checkpointer(self, checkpoint, overlay_bytes, self.compactor.look)
        self.overlay_bytes = overlay_bytes
        self.incarnation = secrets.randbits(63) + 1
        self._client = secrets.randbits(63) + 1
        self._sequence = 0
        self._leases: dict[object, int] = {}
        self._one_close = threading.Lock()
        self._stopped: str | None = None
        self.on_stop: Callable[[], object] = list
        self.forked_from = 0
        own(self)

    # ---- opening

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        read_only: bool,
        create: bool,
        overlay_bytes: int = OVERLAY_BYTES,
        compact_above: float | None = None,
        log_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EmbeddedBackend:
        """Open a directory and replay what its checkpoint does not cover; all, where the checkpoint is damaged.

        `progress` hears (records replayed, of how many). Raises as `logdb.open`.
        """
        try:
            return cls._opened(path, read_only, create, overlay_bytes, compact_above, log_options or {}, progress)
        except FileNotFoundError:  # of a log that is being trimmed, for a reader: it may try again
            raise
        except OSError as error:
            raise Unavailable(f"{path} cannot be opened: {described(error)}") from error

    @classmethod
    def _opened(
        cls,
        path: Path,
        read_only: bool,
        create: bool,
        overlay_bytes: int,
        compact_above: float | None,
        log_options: Mapping[str, Any],
        progress: Callable[[int, int], None] | None,
    ) -> EmbeddedBackend:
        directory = Directory.open(path, writable=not read_only, create=create)
        with contextlib.ExitStack() as undo:
            undo.callback(directory.close)
            opening = path, directory, read_only, overlay_bytes, compact_above, log_options, progress
            try:
                host = cls._open(*opening)
            except Corruption as damage:
                if read_only or damage.path != os.path.realpath(directory.map_path):
                    raise
                logger.warning("rebuilding the map: %s", damage)
                shutil.rmtree(directory.map_path)
                host = cls._open(*opening)
            undo.pop_all()
            return host

    @classmethod
    def _open(
        cls,
        path: Path,
        directory: Directory,
        read_only: bool,
        overlay_bytes: int,
        compact_above: float | None,
        log_options: Mapping[str, Any],
        progress: Callable[[int, int], None] | None,
    ) -> EmbeddedBackend:
        with contextlib.ExitStack() as undo:
            log = LocalLog(
                directory.log_path,
                directory.log_id,
                writable=not read_only,
                follow=read_only and directory.is_written(),
                **log_options,
            )
            undo.callback(log.close)
            checkpoint = Checkpoint(
                directory.map_path, directory.log_id, follow=read_only, disk=log_options.get("disk")
            )
            undo.callback(checkpoint.close)
            host = cls(
                str(path),
                log,
                checkpoint,
                directory=directory,
                read_only=read_only,
                overlay_bytes=overlay_bytes,
                compact_above=compact_above,
            )
            host._recover(progress)
            undo.pop_all()
            return host

    @classmethod
    def in_memory(cls) -> EmbeddedBackend:
        """An empty database that is gone when it is closed."""
        return cls(":memory:", MemoryLog(), None)

    def _recover(self, progress: Callable[[int, int], None] | None) -> None:
        log, coordinator = self.log, self.coordinator
        checkpoint = coordinator.map.checkpoint
        assert checkpoint is not None
        log.refresh()
        if checkpoint.covers > log.durable:
            raise Corruption(
                self.path, None, f"the checkpoint covers record {checkpoint.covers}, the log ends at {log.durable}"
            )
        coordinator.restore(checkpoint.covers, checkpoint.state)
        oldest = log.oldest_after_trim(log.oldest())
        if 0 < checkpoint.covers < oldest - 1:
            raise checkpoint.damaged(f"it covers record {checkpoint.covers}, the log begins at {oldest}")
        if coordinator.floor < oldest:  # the checkpoint, if there is one, is that of a rebuild that was killed
            begin_at_oldest(coordinator, log, log.durable)
        first, end = coordinator.applied + 1, log.durable + 1
        while coordinator.applied + 1 < end:
            stop = min(end, coordinator.applied + REPLAY_STRETCH + 1)
            with self.order_lock:
                coordinator.replay(log.scan(coordinator.applied + 1, stop))
            if coordinator.map.active.size > REPLAY_OVERLAYS * self.overlay_bytes:
                self.checkpoint()
            if progress is not None:
                progress(stop - first, end - first)
        if self._checkpointer is not None:
            self._checkpointer.maybe_checkpoint()
            self.compactor.look()

    @property
    def log_id(self) -> bytes:
        """The identity of the log, 16 bytes."""
        return b"" if self.directory is None else self.directory.log_id

    # ---- versions

    def version(self) -> int:
        """The newest version that may be read: durable and applied."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if self.read_only:
            try:
                return follow(self)
            except OSError as error:
                raise self._explained(error, 0) from error
        durable, applied = self.log.durable, self.coordinator.applied
        return durable if durable < applied else applied

    @property
    def session(self) -> int:
        """The newest version that was seen: here, the newest one."""
        return self.version()

    def at(self, version: int) -> int:
        """`version`, if it can be read. Raises VersionTrimmed, FutureVersion."""
        newest = self.version()
        if version > newest:
            raise FutureVersion(version, newest)
        oldest = self._oldest
        if version < oldest:
            raise VersionTrimmed(version, oldest)
        return version

    @property
    def _oldest(self) -> int:
        """The oldest version that nobody is about to compact away, unless who reads it has a lease already."""
        return max(self.coordinator.floor, self.compactor.floor)

    def at_time(self, when: int) -> int:
        """The newest version not younger than `when` (ns since the epoch). Raises VersionTrimmed, FutureVersion."""
        newest = self.version()
        if when > time.time_ns():
            raise FutureVersion(f"of the time {when / 1e9:.3f} (seconds since the epoch)", newest)
        version = min(self.log.last_at_time(when), newest)
        return self.at(version)

    def oldest(self) -> int:
        """The oldest version that can be read; 0 is the empty database."""
        self.version()
        return self.coordinator.floor

    def time_of(self, version: int) -> int | None:
        """When the record at `version` was ordered, ns since the epoch; None if compaction has removed it.

        Raises as `at`.
        """
        try:
            return self.log.time_of(self.at(version))
        except Trimmed:
            return None

    # ---- reading

    def get(self, key: bytes, at: int | None = None) -> bytes | None:
        """The value of `key` at a version (None: the newest). Raises VersionTrimmed, Corruption, DatabaseClosed."""
        if at is not None or self.closed or self.read_only:
            version = self.version() if at is None else at  # a follower may put another coordinator in its place
            coordinator = self.coordinator
        else:
            coordinator = self.coordinator
            durable, applied = self.log.durable, coordinator.applied
            version = durable if durable < applied else applied
        try:
            value = coordinator.map.get(key, version)
        except Exception as error:
            return self._get_again(key, at, version, error)
        return value if version >= coordinator.floor else self._get_again(key, at, version, None)

    def get_in_parts(self, key: bytes, at: int | None, most: int) -> bytes | OutgoingValue | None:
        """As `get`, but a value of more than `most` bytes is read in parts."""
        if at is None:
            return self.newest(lambda version: self._value(key, version, most))
        return self._value(key, at, most)

    def _value(self, key: bytes, at: int, most: int, attempts: int = 2) -> bytes | OutgoingValue | None:
        try:
            value: Any = self.coordinator.map.get(key, at, whole=False)
            if value.__class__ is Place:
                if value.length <= most:
                    value = self.coordinator.map.values.load(value)
                else:
                    self.log.wait_durable(value.gsn)
                    value = OutgoingValue(value, self.log.payload(value.gsn, PART_BYTES))
        except Exception as error:
            if attempts > 1 and isinstance(error, Trimmed):  # a compaction has moved it after it was looked up
                return self._value(key, at, most, attempts - 1)
            raise self._explained(error, at) from error
        if at < self.coordinator.floor:
            raise VersionTrimmed(at, self.coordinator.floor)
        return cast("bytes | OutgoingValue | None", value)

    def multi_get(self, keys: list[bytes], at: int | None = None) -> tuple[int, list[tuple[bytes, bytes]]]:
        """(the version read, those of `keys` that exist with their values). Raises as `get`."""
        if at is None:
            return self.newest(lambda version: (version, self._read_many(keys, version)))
        return at, self._read_many(keys, at)

    def exist(self, keys: Sequence[bytes], at: int) -> list[bool]:
        """Whether each of the keys exists at a version. Raises as `get`."""
        found = self.coordinator.map.exist(keys, at)
        if at < self.coordinator.floor:
            raise VersionTrimmed(at, self.coordinator.floor)
        return found

    def _read_many(self, keys: Sequence[bytes], at: int) -> list[tuple[bytes, bytes]]:
        try:
            values = self.coordinator.map.get_many(keys, at)
            found = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
        except Exception:
            return [(key, value) for key in keys if (value := self.get(key, at)) is not None]
        if at < self.coordinator.floor:
            raise VersionTrimmed(at, self.coordinator.floor)
        return found

    def newest(self, read: Callable[[int], T]) -> T:
        """`read(version)` at the newest version, again if a compaction overtakes it. Raises what `read` raises."""
        while True:
            version = self.version()
            try:
                return read(version)
            except VersionTrimmed:
                if version == self.version():
                    raise

    def _get_again(self, key: bytes, at: int | None, version: int, failure: Exception | None) -> bytes | None:
        if at is None:
            return self.newest(lambda version: self._read_again(key, version, failure))
        return self._read_again(key, version, failure)

    def _read_again(self, key: bytes, at: int, failure: Exception | None) -> bytes | None:
        """After a read that failed: a compaction may have moved the value after it was looked up."""
        if failure is None or isinstance(failure, Trimmed):
            try:
                value = self.coordinator.map.get(key, at)
            except Exception as again:
                raise self._explained(again, at) from again
            if at < self.coordinator.floor:
                raise VersionTrimmed(at, self.coordinator.floor)
            return value
        raise self._explained(failure, at) from failure

    def scan(
        self,
        start: bytes | None,
        end: bytes | None,
        at: int | None = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
    ) -> Iterator[Rows]:
        """Batches of (key, value) of [start, end) at a version (None: the newest now), in order. Raises as `get`.

        Ends when there were `limit`; there may be more in the last batch.
        """
        or_newer = at is None
        if at is None:
            at = self.version()
        if limit is None or limit > SHORT_ROWS:
            return self._range(start, end, at, reverse, limit, or_newer)
        return self._short_range(start, end, at, reverse, limit, or_newer)

    def multi_scan(
        self, ranges: Sequence[ScanRange], at: int | None = None, *, reverse: bool = False
    ) -> list[list[tuple[bytes, bytes]]]:
        """The rows of each range at a version (None: the newest now), in order. Raises as `get`."""
        holder = object()
        version = self.begin(holder, read_only=True) if at is None else at
        try:
            return [
                list(islice(chain.from_iterable(self.scan(start, end, version, reverse=reverse, limit=limit)), limit))
                for start, end, limit in ranges
            ]
        finally:
            self.end(holder)

    def _short_range(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int, or_newer: bool
    ) -> Iterator[Rows]:
        """As `_range`, in one batch, which needs no lease."""
        while limit:
            if self.closed:
                raise DatabaseClosed(self.path, self.forked_from)
            coordinator = self.coordinator
            try:
                rows = coordinator.map.first(start, end, at, reverse, limit)
            except Exception as error:
                if not (or_newer and isinstance(error, Trimmed)):
                    raise self._explained(error, at) from error
            else:
                if at >= coordinator.floor:
                    yield rows
                    return
                if not or_newer:
                    raise VersionTrimmed(at, coordinator.floor)
            at = self.version()

    def _range(
        self, start: bytes | None, end: bytes | None, at: int, reverse: bool, limit: int | None, or_newer: bool
    ) -> Iterator[Rows]:
        """`or_newer`: at the newest version instead, if `at` was compacted away before the first batch is asked for."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        lease = object()
        self._leases[lease] = at
        try:
            while or_newer and at < self._oldest:
                self._leases[lease] = at = self.version()
            for batch in self.coordinator.map.scan(start, end, at, reverse, limit):
                if at < self.coordinator.floor:
                    raise VersionTrimmed(at, self.coordinator.floor)
                yield batch
                if self.closed:
                    raise DatabaseClosed(self.path, self.forked_from)
            if at < self.coordinator.floor:
                raise VersionTrimmed(at, self.coordinator.floor)
        except Exception as error:
            raise self._explained(error, at) from error
        finally:
            self._leases.pop(lease, None)

    def history(self, key: bytes, at: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of `key` from a version (None: the newest now) back to the floor, newest first.

        Raises as `get`.
        """
        return self._versions(key, self.version() if at is None else at)

    def _versions(self, key: bytes, at: int) -> Iterator[tuple[int, bytes | None]]:
        lease = object()
        self._leases[lease] = self.coordinator.floor
        try:
            if at < self.coordinator.floor:
                raise VersionTrimmed(at, self.coordinator.floor)
            for entry in self.coordinator.map.history(key, at, self.coordinator.floor):
                yield entry
                if self.closed:
                    raise DatabaseClosed(self.path, self.forked_from)
        except Exception as error:
            raise self._explained(error, at) from error
        finally:
            self._leases.pop(lease, None)

    def _read_record(self, gsn: int, shard: int) -> LogRecord:
        self.log.wait_durable(gsn)
        return self.log.read_record(gsn, shard)

    def _explained(self, error: Exception, at: int) -> Exception:
        """The error to tell a caller who read at version `at`."""
        if self.closed:
            return DatabaseClosed(self.path, self.forked_from)
        if isinstance(error, Trimmed):
            return VersionTrimmed(at, self.coordinator.floor)
        if isinstance(error, LogFailed):
            return Unavailable(self._failure_text(error))
        if isinstance(error, OSError):
            return Unavailable(f"{self.path} cannot be read: {described(error)}")
        return error

    # ---- writing

    def new_txn_id(self) -> TxnId:
        """An id that no transaction has."""
        with self.order_lock:
            self._sequence += 1
            return TxnId(self._client, self._sequence)

    def receive(self, length: int) -> IncomingValue:
        """A large value that comes in parts, to be handed to `submit`. Raises Unavailable, ReadOnly, DatabaseClosed."""
        if self.closed or self.read_only or self._stopped is not None:
            self._refuse_write()
        try:
            return IncomingValue(self.log.receive(length))
        except LogFailed as error:
            raise Unavailable(self._failure_text(error)) from error

    def submit(
        self,
        writes: Mapping[bytes, bytes | IncomingValue | None],
        *,
        snapshot: int = 0,
        label: str = "",
        reads: Sequence[bytes] = (),
        ranges: Sequence[Range] = (),
        conditions: Sequence[Condition] = (),
        txn_id: TxnId | None = None,
    ) -> tuple[int, Verdict]:
        """Order a commit record and decide it: (version, verdict). Neither is durable yet (EMB-1 is up to the caller).

        Raises Unavailable (nothing was ordered), ReadOnly, DatabaseClosed, OutcomeUnknown (ordered and not decided).
        """
        values = cast("Mapping[bytes, Value]", writes)
        if label != "":
            check_label(label)
        large: Sequence[bytes | IncomingValue] = NO_LARGE
        digests = NO_LARGE
        for value in writes.values():
            if value is not None and len(value) > INLINE_VALUE_BYTES:
                large = [value for value in writes.values() if value is not None and len(value) > INLINE_VALUE_BYTES]
                digests = [value.digest if isinstance(value, IncomingValue) else digest(value) for value in large]
                break
        with self.order_lock:
            try:
                if self.closed or self.read_only or self._stopped is not None:
                    self._refuse_write()
                if txn_id is None:
                    self._sequence = sequence = self._sequence + 1
                    client = self._client
                else:
                    client, sequence = txn_id
                if large:
                    values = self._append_values(writes, large, digests)
                commit = Commit(client, sequence, values, snapshot, label, reads, ranges, conditions)
                payload = encode_commit(commit)
                if len(payload) > MAX_TRANSACTION_BYTES:
                    raise TransactionTooLarge(len(payload), MAX_TRANSACTION_BYTES, ", with what it has read,")
                gsn = self.log.order(((COMMIT, payload),))
                verdict = self.coordinator.deliver(gsn, commit)
            except (Unavailable, ReadOnly, DatabaseClosed, TransactionTooLarge):
                raise
            except LogFailed as error:
                self.stop(f"its log failed ({error})")
                raise Unavailable(self._failure_text(error)) from error
            except BaseException as error:
                if self._stop_unless_applied(error) and isinstance(error, Exception):
                    raise OutcomeUnknown(str(TxnId(client, sequence)), f"its decision failed ({error})") from error
                raise
            checkpointer, active = self._checkpointer, self.coordinator.map.active.size
            if checkpointer is not None and checkpointer.pacer.is_pressed:
                size = len(payload) + ENTRY_BYTES * len(writes)
                checkpointer.pacer.charge(gsn, size, active, self.log.sync_s)
        if checkpointer is not None and (active > self.overlay_bytes or large or not gsn % LOOK_EVERY):
            checkpointer.maybe_checkpoint()
        return gsn, verdict

    def _append_values(
        self,
        writes: Mapping[bytes, bytes | IncomingValue | None],
        large: Sequence[bytes | IncomingValue],
        digests: Sequence[bytes],
    ) -> dict[bytes, Value]:
        """Append the large values as records of their own; the writes with their places."""
        gsn = self.append_locked([(VALUE, value) for value in large if not isinstance(value, IncomingValue)])
        values: dict[bytes, Value] = {}
        digest_of = iter(digests)
        for key, value in writes.items():
            if value is None or len(value) <= INLINE_VALUE_BYTES:
                values[key] = cast("bytes | None", value)
            elif isinstance(value, IncomingValue):
                order = functools.partial(self.log.order_incoming, VALUE, value.payload)
                at = self._order(order, [(VALUE, b"")], self.coordinator.deliver_other)
                values[key] = Place(at, 0, len(value), next(digest_of))
            else:
                values[key] = Place(gsn, 0, len(value), next(digest_of))
                gsn += 1
        return values

    def acknowledge(self, gsn: int) -> None:
        """Return when `gsn` is durable. Raises OutcomeUnknown, after which only reopening helps."""
        try:
            self.log.wait_durable(gsn)
        except LogFailed as error:
            raise self.outcome_unknown(gsn, error) from error
        if self._checkpointer is not None:
            self._checkpointer.pacer.wait(gsn)

    def settle(self, gsn: int) -> None:
        """As `acknowledge`, for what is no commit. Raises Unavailable."""
        try:
            self.log.wait_durable(gsn)
        except LogFailed as error:
            self.stop(f"its log failed ({error})")
            raise Unavailable(self._failure_text(error)) from error

    def outcome_unknown(self, gsn: int, error: Exception) -> OutcomeUnknown:
        """The error for a commit record at `gsn` that did not become durable."""
        self.stop(f"its log failed ({error})")
        with self.order_lock:
            found = self.coordinator.ledger.id_at(gsn)
        return OutcomeUnknown("" if found is None else str(TxnId(*found)), self._failure_text(error))

    def write(
        self, writes: Mapping[bytes, bytes | None], label: str = "", conditions: Sequence[Condition] = ()
    ) -> tuple[int, Verdict]:
        """Write all if all conditions hold: (version, verdict), durable. Raises as `submit` and `acknowledge`."""
        written = self.submit(writes, label=label, conditions=conditions)
        self.acknowledge(written[0])
        return written

    def submit_work(self, work: Workspace) -> tuple[int, Verdict | None]:
        """Submit what a transaction has read and written, and let go of its snapshot:

        (the version to wait for, the verdict or None if it only read).
        """
        try:
            if not work.writes:
                return work.snapshot, None
            return self.submit(
                work.writes,
                snapshot=work.snapshot,
                label=work.label,
                reads=work.guarded_keys,
                ranges=work.read_set.ranges,
                txn_id=work.known_id,
            )
        finally:
            self._leases.pop(work, None)

    def commit(self, work: Workspace) -> int:
        """Commit what a transaction has read and written: its version, durable. Raises as `write`, ConflictError."""
        gsn, verdict = self.submit_work(work)
        if verdict is None:
            self.settle(gsn)
        else:
            self.acknowledge(gsn)
            if not verdict.committed:
                raise self.conflict(verdict, work.snapshot)
        return gsn

    def decided_first(self, txn_id: TxnId, gsn: int, verdict: Verdict) -> tuple[int, Verdict]:
        """Where a transaction stands that may have been sent before, and how it was decided when it came first.

        Decisions follow from the log, so the first one is made again. Raises OutcomeUnknown where compaction has
        removed what it follows from.
        """
        if verdict.reason is not Reason.DUPLICATE:
            return gsn, verdict
        coordinator, first = self.coordinator, verdict.first
        if first and not coordinator.ledger.is_aborted(first):
            return first, COMMITTED
        if first > coordinator.floor:
            with contextlib.suppress(Trimmed):
                commit = decode_commit(self._read_record(first, 0).payload)
                return first, validate(commit, first, coordinator.floor, coordinator.map)
        raise OutcomeUnknown(str(txn_id), "it was sent before, and what it was decided from was compacted away")

    def conflict(self, verdict: Verdict, snapshot: int) -> LogDBError:
        """The error for a transaction that aborted; what it names is durable."""
        if verdict.reason is Reason.TOO_OLD:
            return VersionTrimmed(snapshot, self.coordinator.floor)
        if verdict.reason in (Reason.DUPLICATE, Reason.DANGLING):
            return Unavailable(SETTLED)
        assert verdict.reason is Reason.CONFLICT, verdict
        winner = ""
        with contextlib.suppress(Trimmed):
            record = self.log.read_record(verdict.version, 0)
            if record.tag == COMMIT:
                winner = decode_commit(record.payload).label
        return ConflictError(verdict.key, verdict.version, winner, snapshot, in_range=verdict.in_range)

    def append(self, records: Sequence[Record]) -> int:
        """Order records that are no commits and apply them; returns the first GSN."""
        with self.order_lock:
            return self.append_locked(records)

    def append_copies(self, records: Sequence[Record]) -> int:
        """As `append`, of a compaction that tells the map by itself where its copies stand."""
        with self.order_lock:
            return self._order(functools.partial(self.log.order, records), records, self.coordinator.deliver_copy)

    def append_locked(self, records: Sequence[Record]) -> int:
        """As `append`, by who holds `order_lock`."""
        return self._order(functools.partial(self.log.order, records), records, self.coordinator.deliver_other)

    def _order(
        self, order: Callable[[], int], records: Sequence[Record], deliver: Callable[[int, int, bytes], None]
    ) -> int:
        """Have the log order the records, and apply them; returns the first GSN."""
        if self.closed or self.read_only or self._stopped is not None:
            self._refuse_write()
        if not records:
            return 0
        try:
            first = order()
            for gsn, (tag, payload) in enumerate(records, first):
                deliver(gsn, tag, payload)
        except Unavailable:
            raise
        except LogFailed as error:
            self.stop(f"its log failed ({error})")
            raise Unavailable(self._failure_text(error)) from error
        except BaseException as error:
            self._stop_unless_applied(error)
            raise
        return first

    def _stop_unless_applied(self, error: BaseException) -> bool:
        """EMB-2: a record that is ordered and not applied cannot be made up for. Whether there is one."""
        if self.coordinator.applied + 1 == self.log.end():
            return False
        self.stop(f"it was interrupted in the middle of a commit ({error!r})")
        return True

    def stop(self, why: str) -> None:
        """Take no more writes and checkpoints: what is in memory no longer follows from the log. What is in the log is
        safe. `on_stop` is called, by whichever thread this is."""
        if self._stopped is None:
            self._stopped = why
            self.on_stop()

    @property
    def why_stopped(self) -> str | None:
        """Why no more writes are taken, if the database must be opened again for that."""
        return self._stopped

    def check_running(self) -> None:
        """Raises Unavailable after `stop`."""
        if self._stopped is not None:
            raise Unavailable(f"{self.path} takes no more writes: {self._stopped}; close it and open it again")

    def append_decisions(self, *, always: bool = False) -> None:
        """Append a decision record if commits have aborted since the last one. By who holds `order_lock`."""
        if self.coordinator.applied + 1 < self.log.end():
            return  # the log is being replayed: a record at its end would be applied before its time
        decision = self.coordinator.undeclared()
        if decision.aborted or always:
            self.append_locked([(DECISION, encode_decision(decision))])

    def _refuse_write(self) -> None:
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened with read_only=True")
        self.check_running()

    def _failure_text(self, error: Exception) -> str:
        return f"the log of {self.path} failed ({error}); close it and open it again"

    # ---- transactions, pins, outcomes, the feed

    def begin(self, holder: object, *, read_only: bool) -> int:
        """The newest snapshot, the newest durable one for who only reads; it stays readable until `end(holder)`."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        read_only = read_only or self.read_only
        while True:
            snapshot = self.version() if read_only or self._stopped is not None else self.coordinator.applied
            self._leases[holder] = snapshot
            if snapshot >= self._oldest:
                return snapshot
            del self._leases[holder]  # a compaction came between the snapshot and its lease

    def begin_work(self, work: Workspace) -> EmbeddedBackend:
        """Give a transaction its snapshot, and what reads it."""
        work.snapshot = self.begin(work, read_only=work.read_only)
        return self

    def hold(self, holder: object, version: int) -> None:
        """Keep a version readable until `end(holder)`. Raises VersionTrimmed."""
        self._leases[holder] = version
        if version < self._oldest:
            del self._leases[holder]
            raise VersionTrimmed(version, self._oldest)

    def end(self, holder: object) -> None:
        """Let go of a snapshot."""
        self._leases.pop(holder, None)

    def has_record_of(self, txn_id: TxnId) -> bool:
        """Whether the log has a commit record of the transaction, or may have had one."""
        with self.order_lock:
            return self.coordinator.outcome(txn_id).status is not Status.NOT_FOUND

    def settled(self, gsn: int) -> None:
        """Return when everything up to `gsn`, which is durable, is applied."""
        if self.coordinator.applied < gsn:
            if self.read_only:
                follow(self)
            else:
                with self.order_lock:
                    pass
                if self.coordinator.applied < gsn:
                    raise Unavailable(f"{self.path} cannot follow its log: {self._stopped}; close it and open it again")

    def outcome(self, txn_id: TxnId, settle: bool = False) -> Outcome:
        """How a transaction ended, as far as that is durable. `settle`: one that the log has nothing of is aborted."""
        self.version()
        with self.order_lock:
            outcome = self.coordinator.outcome(txn_id)
        self.settled(self.log.end() - 1)  # a record whose decision failed is noted, and not decided
        if settle and outcome.status is Status.NOT_FOUND:
            self.acknowledge(self.submit(cast(Any, FENCE), txn_id=txn_id)[0])
            return self.outcome(txn_id)
        self.settle(outcome.version)
        return outcome

    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""
        self.version()
        return dict(self.coordinator.pins)

    def pin(self, name: str, version: int | None) -> int:
        """Keep a version (None: the newest) readable under a name until it is unpinned. Returns it.

        Raises ValueError, VersionTrimmed, FutureVersion.
        """
        self.version()
        if self.read_only:
            self._refuse_write()
        if version is None:
            return self.newest(lambda newest: self.pin(name, newest))
        if not version:
            raise ValueError("version 0 is the empty database: there is nothing to pin yet")
        with self.order_lock:  # a compaction looks at the pins under it
            self.at(version)
            gsn = self.append_locked([(PIN, encode_pin(name, version))])
        self.settle(gsn)
        return version

    def unpin(self, name: str) -> None:
        """Give up a pin. Raises KeyError."""
        self.version()
        if name not in self.coordinator.pins:
            raise KeyError(name)
        self.settle(self.append([(PIN, encode_pin(name, 0))]))

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> Feed:
        """Commits after `since` (None: from now on). Raises VersionTrimmed, FutureVersion."""
        return Feed(self, self.version() if since is None else self.at(since), prefix, keys)

    # ---- upkeep

    def checkpoint(self, progress: Callable[[int], None] | None = None, *, merge: bool = True) -> int:
        """Bring the checkpoint up to date; returns the GSN that it covers. `merge`: merge its runs, if that is due.

        Raises Unavailable on a full disk.
        """
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if self._checkpointer is None:
            return self.coordinator.applied
        try:
            return self._checkpointer.run(progress) if merge else self._checkpointer.write(progress)
        except Exception as error:
            raise self._explained(error, self.coordinator.applied) from error

    @property
    def leases(self) -> int:
        """How many reads, transactions and feeds keep a version from being compacted away now."""
        return len(self._leases)

    @property
    def pacer(self) -> Pacer | None:
        """What commits wait for beside the disk."""
        return None if self._checkpointer is None else self._checkpointer.pacer

    def maybe_checkpoint(self) -> None:
        """Write a checkpoint if one is due: for who has time."""
        if self._checkpointer is not None and self._checkpointer.is_due():
            self.checkpoint(merge=False)

    def compact(self, before: int | None, progress: Callable[[int], None] | None = None) -> Compacted:
        """Drop what only reads before `before` (None: the newest version) could see, as far as pins, readers of this
        process and what other processes hold let it.
        """
        self.version()
        if self.read_only:
            self._refuse_write()
        try:
            return self.compactor.run(before, progress or (lambda _: None))
        except Exception as error:
            raise self._explained(error, self.coordinator.applied if before is None else before) from error

    def leased(self) -> list[int]:
        """The versions that readers of this process need."""
        return list(self._leases.values())

    def close(self) -> None:
        """Make durable what was ordered and release everything. Raises OutcomeUnknown if that fails."""
        with contextlib.ExitStack() as steps:
            steps.enter_context(self._one_close)
            with self.order_lock:
                if self.closed:
                    return
                failed = self._stopped is not None
                checkpoint = self.coordinator.map.checkpoint
                grown = checkpoint is not None and self.coordinator.applied - checkpoint.covers > SUFFIX_AT_CLOSE
            if self.directory is not None:
                steps.callback(self.directory.close)
            if checkpoint is not None:
                steps.callback(checkpoint.close)
            steps.callback(self._close_log)
            steps.callback(self._mark_closed)
            self.compactor.begin_to_stop()
            if self._checkpointer is not None:
                self._checkpointer.stop()  # it may have begun a compaction
                self.compactor.join()
                if grown and not failed and checkpoint is not None:
                    with contextlib.suppress(Exception):  # the log has it all; only the next opening takes longer
                        self._checkpointer.run()
                        for _ in checkpoint.merge(closing=True):
                            pass

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. Log, checkpoint and the directory's lock are disowned on their own."""
        self.forked_from, self.closed = parent, True
        self.order_lock, self._one_close = threading.Lock(), threading.Lock()
        self.compactor.disown()

    def _close_log(self) -> None:
        try:
            self.log.close()
        except LogFailed as error:
            raise self.outcome_unknown(self.log.end() - 1, error) from error

    def _mark_closed(self) -> None:
        with self.order_lock:
            self.closed = True
