"""A database of this process: a directory or memory, with no server and no event loop.

The write path (`commits.py`): `submit` orders the commit record and has the coordinator decide it, both under the order
lock of the state machine, so the order of decisions is that of the log; then the caller waits until the record is
durable, and only then acknowledges. The read path (`reads.py`): every read names a version; the newest one that is
durable and applied is `StateMachine.version`.

Invariants:

EMB-1  A committed version that is returned, and a value read outside a writing transaction, is durable.
EMB-2  All records are applied, in the order of the log: an interrupt or error between the two steps of `submit` stops
       the state machine, which writes no checkpoint and returns no outcome any more; the next opening decides.
EMB-3  No read is answered from before the floor: a compaction stops at the oldest lease of scans and transactions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from logdb.api.backend import Progress
from logdb.api.results import Compacted
from logdb.backups.places import Place, place_of
from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.cold.history import ColdHistory, attached_to, checked_place
from logdb.embedded.cold.reads import VERBS, TieredReads
from logdb.embedded.cold.tiered_log import TieredLog
from logdb.embedded.commits import Commits
from logdb.embedded.compactor import Compactor
from logdb.embedded.directory import Directory
from logdb.embedded.external_leases import external_needs
from logdb.embedded.feed import Feed
from logdb.embedded.reads import Reads
from logdb.embedded.recovery import recover
from logdb.embedded.shared_tail import SharedTail
from logdb.embedded.snapshots import Snapshots
from logdb.embedded.state_machine import OVERLAY_BYTES, StateMachine
from logdb.embedded.sweeper import SweepThread
from logdb.errors import Corruption, DatabaseClosed, Unavailable
from logdb.log.contract import LogFailed, OrderedLog
from logdb.log.local.local_log import LocalLog
from logdb.log.local.memory_log import MemoryLog
from logdb.store.checkpoint import Checkpoint
from logdb.system.disk import described
from logdb.system.forking import own
from logdb.system.memory import resident_bytes
from logdb.txn.measures import measures_of
from logdb.txn.transaction import Workspace

logger = logging.getLogger("logdb")

CHECKPOINT_AT_CLOSE: Final = 10_000
"""A database is checkpointed when it is closed if its log has grown by more records than this since the last one."""


class EmbeddedBackend(Reads):
    """A `Backend` of parts, each of which has the verbs of one subject: `machine`, `snapshots`, `commits`, `compactor`,
    and `checkpointer` (None in memory and for a reader). Reads are inherited: a bound get would take 6% longer.

    `path`: the directory, or ":memory:". `incarnation`: drawn at each opening; versions that are not durable belong to
    one incarnation, and the next one may use their numbers for other transactions. `cold`: the cold tier, if there is
    one.
    """

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
        self.incarnation = secrets.randbits(63) + 1
        machine = StateMachine(path, log, checkpoint, read_only=read_only, overlay_bytes=overlay_bytes)
        super().__init__(machine, Snapshots(machine))
        self.checkpointer: Checkpointer | None = None
        if checkpoint is not None and not read_only:
            self.checkpointer = Checkpointer(self.machine, checkpoint)
        self.commits = Commits(self.machine, self.snapshots, self.checkpointer)
        self.compactor = Compactor(self.machine, self.snapshots, self.checkpointer, directory, compact_above)
        if self.checkpointer is not None:
            self.checkpointer.on_rest = self.compactor.look
        self._tail = SharedTail(machine)
        self._sweeps: SweepThread | None = None
        self.cold: ColdHistory | None = None
        self._checkpoint = checkpoint
        self._one_close = threading.Lock()
        own(self)

        # The other verbs of `Backend` are bound methods of the parts, so that a call costs no extra layer.
        self.version = self.machine.version
        self.oldest, self.at = self.snapshots.oldest, self.snapshots.at
        self.at_time, self.time_of = self.snapshots.at_time, self.snapshots.time_of
        self.new_txn_id, self.write = self.commits.new_txn_id, self.commits.write
        self.commit, self.outcome = self.commits.commit, self.commits.outcome
        self.end = self.snapshots.end
        self.pins, self.pin, self.unpin = self.snapshots.pins, self.snapshots.pin, self.snapshots.unpin

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
        cold: str | os.PathLike[str] | None = None,
        log_options: Mapping[str, Any] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EmbeddedBackend:
        """Open a directory and replay the records after its checkpoint; all records, where the checkpoint is damaged.

        `progress`: called with the number of records replayed, and of those to replay. Raises as `logdb.open`.
        """
        try:
            place = None if cold is None else checked_place(path, cold)
            options = log_options or {}
            return cls._opened(path, read_only, create, overlay_bytes, compact_above, place, options, progress)
        except FileNotFoundError:  # the log was trimmed while a reader opened it: the caller may try again
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
        place: Place | None,
        log_options: Mapping[str, Any],
        progress: Callable[[int, int], None] | None,
    ) -> EmbeddedBackend:
        directory = Directory.open(path, writable=not read_only, create=create)
        with contextlib.ExitStack() as undo:
            undo.callback(directory.close)
            opening = path, directory, read_only, overlay_bytes, compact_above, place, log_options, progress
            try:
                backend = cls._open(*opening)
            except Corruption as damage:
                if read_only or damage.path != os.path.realpath(directory.map_path):
                    raise
                logger.warning("rebuilding the map: %s", damage)
                shutil.rmtree(directory.map_path)
                backend = cls._open(*opening)
            undo.pop_all()
            return backend

    @classmethod
    def _open(
        cls,
        path: Path,
        directory: Directory,
        read_only: bool,
        overlay_bytes: int,
        compact_above: float | None,
        place: Place | None,
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
            backend = cls(
                str(directory.path),
                log,
                checkpoint,
                directory=directory,
                read_only=read_only,
                overlay_bytes=overlay_bytes,
                compact_above=compact_above,
            )
            recover(backend.machine, backend.checkpointer, progress)
            backend._attach_cold(place)  # before the first compaction
            if backend.checkpointer is not None:
                backend.checkpointer.maybe_checkpoint()
                backend.compactor.look()
            undo.pop_all()
            return backend

    @classmethod
    def in_memory(cls) -> EmbeddedBackend:
        """An empty database; closing it discards it."""
        return cls(":memory:", MemoryLog(), None)

    def _attach_cold(self, place: Place | None) -> None:
        """Use a cold tier from now on (None: that of the directory, if it has one). Raises ColdTierError, Corruption,
        Unavailable, ReadOnly."""
        path = Path(self.path)
        attached = attached_to(path)
        if place is None and attached is None:
            return
        is_new = place is not None and place.location() != attached
        if is_new:
            self.machine.check_writable()
        assert self.directory is not None
        cold = ColdHistory(self.machine, place or place_of(attached or ""), self.directory, writable=not self.read_only)
        if is_new:
            cold.attach()
        reads = TieredReads(self.machine, self.snapshots, cold)
        for verb in VERBS:
            setattr(self, verb, getattr(reads, verb))
        self.compactor.release = cold.release
        self.cold = cold
        cold.start()

    # ---- properties

    @property
    def records(self) -> OrderedLog | TieredLog:
        """The log, with the records of the cold tier if there is one."""
        return self.log if self.cold is None else self.cold.log

    @property
    def closed(self) -> bool:
        """Whether `close` has been called, or this is a child of fork() that has inherited it."""
        return self.machine.closed

    @property
    def forked_from(self) -> int:
        """In a child of fork() that has inherited it, the process that opened it; else 0."""
        return self.machine.forked_from

    @property
    def session(self) -> int:
        """The newest version seen through this backend: here, the newest one."""
        return self.machine.version()

    @property
    def log_id(self) -> bytes:
        """The identity of the log, 16 bytes; empty in memory."""
        return b"" if self.directory is None else self.directory.log_id

    # ---- transactions and the feed

    def begin_work(self, work: Workspace) -> EmbeddedBackend:
        """Lease a transaction's snapshot; returns what reads it."""
        self.snapshots.begin_work(work)
        return self

    def feed(self, since: int | None, prefix: bytes | None, keys: Collection[bytes] | None) -> Feed:
        """Commits after `since` (None: from now on). Raises VersionTrimmed, FutureVersion."""
        after = self.machine.version() if since is None else self.at(since)
        return Feed(self.machine, after, prefix, keys, self._tail, self.cold)

    # ---- upkeep

    def sweep_every(self, interval_s: float) -> None:
        """Delete in the background what has expired, every `interval_s` seconds until `close`. Call it once."""
        self._sweeps = SweepThread(self, interval_s)
        self._sweeps.start()

    def measures(self) -> dict[str, Any]:
        """See `Backend.measures`."""
        machine = self.machine
        machine.version()
        return {
            **measures_of(machine.coordinator),
            "log_bytes": machine.log.size(),
            "garbage": self.compactor.garbage,
            "sync_s": machine.log.sync_s,
            "leased_snapshots": len(self.snapshots.leased()),
            "process_bytes": resident_bytes(),
            **({} if self.cold is None else self.cold.measures()),
            **({} if self._sweeps is None else self._sweeps.measures()),
            "exports": 0 if self.directory is None else external_needs(self.directory.path),
            "compacting_to": self.snapshots.compacting_to,
        }

    def checkpoint(self, progress: Progress = None) -> int:
        """Bring the checkpoint up to date and merge its runs; returns the GSN that it covers.

        `progress`: called with the number of keys written since its last call. Raises Unavailable (a full disk).
        """
        machine = self.machine
        if machine.closed:
            raise DatabaseClosed(self.path, machine.forked_from)
        if self.checkpointer is None:
            return machine.coordinator.applied
        try:
            return self.checkpointer.run(progress)
        except Exception as error:
            raise machine.explained(error, machine.coordinator.applied) from error

    def compact(self, before: int | None, progress: Progress = None) -> Compacted:
        """Drop what only reads before `before` (None: the newest version) could see, as far as pins, readers of this
        process and leases of other processes allow.

        `progress`: called with the number of versions copied since its last call.
        """
        machine = self.machine
        machine.version()
        if self.read_only:
            machine.check_writable()
        try:
            return self.compactor.run(before, progress or (lambda _: None))
        except Exception as error:
            raise machine.explained(error, machine.coordinator.applied if before is None else before) from error

    # ---- the end

    def close(self) -> None:
        """Sync all ordered records and release everything. Raises OutcomeUnknown if that fails."""
        machine, checkpoint = self.machine, self._checkpoint
        with contextlib.ExitStack() as steps:
            steps.enter_context(self._one_close)
            if self._sweeps is not None:
                self._sweeps.stop()
            with machine.order_lock:
                if machine.closed:
                    return
                failed = machine.stop_reason is not None
                applied = machine.coordinator.applied
                is_due = checkpoint is not None and applied - checkpoint.covers > CHECKPOINT_AT_CLOSE
            if self.directory is not None:
                steps.callback(self.directory.close)
            if checkpoint is not None:
                steps.callback(checkpoint.close)
            steps.callback(self._close_log)
            steps.callback(self._mark_closed)
            self.compactor.begin_to_stop()
            if self.cold is not None:
                steps.callback(self.cold.close)
            if self.checkpointer is not None:
                self.checkpointer.stop()  # it may have begun a compaction
                self.compactor.join()
                if is_due and not failed and checkpoint is not None:
                    with contextlib.suppress(Exception):  # the log is complete; only the next opening takes longer
                        self.checkpointer.run()
                        for _ in checkpoint.merge(closing=True):
                            pass

    def disown(self, parent: int) -> None:
        """In a child of fork(): replace locks. Machine, log, checkpoint and the directory's lock are disowned on their
        own."""
        self._one_close = threading.Lock()
        self.compactor.disown()
        if self._sweeps is not None:
            self._sweeps.disown()

    def _close_log(self) -> None:
        try:
            self.log.close()
        except LogFailed as error:
            raise self.commits.outcome_unknown(self.log.end() - 1, error) from error

    def _mark_closed(self) -> None:
        with self.machine.order_lock:
            self.machine.refuse()
