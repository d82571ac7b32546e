"""The log of a database and the state that follows from it: records are ordered, and applied in that order."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from logdb.embedded.follower import follow
from logdb.errors import DatabaseClosed, ReadOnly, Unavailable, VersionTrimmed
from logdb.log.contract import LogFailed, LogRecord, OrderedLog, Record, Trimmed
from logdb.store.checkpoint import Checkpoint
from logdb.store.key_map import KeyMap
from logdb.store.records import DECISION, encode_decision
from logdb.store.values import Values
from logdb.system.disk import described
from logdb.system.forking import keep_for_ever, own
from logdb.txn.coordinator import Coordinator

OVERLAY_BYTES: Final = 128 << 20


class ClosedMap(KeyMap):
    """The map of a closed database: each use raises DatabaseClosed. So no read of an open one checks for that first.
    Programs that look at all objects, such as profilers of memory, may ask for its class.

    `forked_from`: as of `StateMachine`.
    """

    def __init__(self, path: str, forked_from: int) -> None:
        self._closed = path, forked_from

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return ClosedMap
        raise DatabaseClosed(*object.__getattribute__(self, "_closed"))


class StateMachine:
    """A log, and the coordinator and map that apply it.

    `order_lock`: held while a record is ordered and applied. `read_only`: the log is written by another process, and
    followed here. `overlay_bytes`: size of the map's overlay above which a checkpoint is due. `forked_from`: in a child
    of fork(), the process that opened it; else 0. `stop_reason`: why no more writes are accepted until the database is
    opened again; None while they are. `on_stop`: called once by `stop`, in any thread.
    """

    def __init__(
        self,
        path: str,
        log: OrderedLog,
        checkpoint: Checkpoint | None,
        *,
        read_only: bool = False,
        overlay_bytes: int = OVERLAY_BYTES,
    ) -> None:
        self.path, self.log, self.read_only, self.overlay_bytes = path, log, read_only, overlay_bytes
        self.coordinator = Coordinator(KeyMap(Values(self.read_record), checkpoint))
        self.order_lock = threading.Lock()
        self.closed = False
        self.forked_from = 0
        self.stop_reason: str | None = None
        self.on_stop: Callable[[], object] = list
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(): be closed. The log and the checkpoint are disowned on their own."""
        keep_for_ever(self.coordinator.map)  # freeing it takes long, and copies its memory
        self.forked_from = parent
        self.refuse()
        self.order_lock = threading.Lock()

    def refuse(self) -> None:
        """Be closed: each use raises DatabaseClosed, except reads under way in other threads."""
        self.closed = True
        self.coordinator.map = ClosedMap(self.path, self.forked_from)

    # ---- what has been applied

    def version(self) -> int:
        """The newest version that can be read: durable and applied. Raises DatabaseClosed, Corruption, Unavailable."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if self.read_only:
            try:
                return follow(self)
            except OSError as error:
                raise self.explained(error, 0) from error
        durable, applied = self.log.durable, self.coordinator.applied
        return durable if durable < applied else applied

    def wait_applied(self, gsn: int) -> None:
        """Return when everything up to `gsn`, which is durable, is applied. Raises Unavailable."""
        if self.coordinator.applied < gsn:
            if self.read_only:
                follow(self)
            else:
                with self.order_lock:
                    pass
                if self.coordinator.applied < gsn:
                    raise Unavailable(
                        f"{self.path} cannot follow its log: {self.stop_reason}; close it and open it again"
                    )

    def read_record(self, gsn: int, shard: int) -> LogRecord:
        """A record, when it is durable. Raises Trimmed, LogFailed, Corruption."""
        self.log.wait_durable(gsn)
        return self.log.read_record(gsn, shard)

    # ---- ordering and applying

    def append(self, records: Sequence[Record]) -> int:
        """Order and apply records other than commits; returns the first GSN. Raises Unavailable, ReadOnly,
        DatabaseClosed."""
        with self.order_lock:
            return self.append_locked(records)

    def append_copies(self, records: Sequence[Record]) -> int:
        """As `append`, for copies of a compaction, which moves the places in the map itself."""
        with self.order_lock:
            return self.order(functools.partial(self.log.order, records), records, self.coordinator.deliver_copy)

    def append_locked(self, records: Sequence[Record]) -> int:
        """As `append`; the caller holds `order_lock`."""
        return self.order(functools.partial(self.log.order, records), records, self.coordinator.deliver_other)

    def append_decisions(self, *, always: bool = False) -> None:
        """Append a decision record if commits have aborted since the last one. The caller holds `order_lock`."""
        if self.coordinator.applied + 1 < self.log.end():
            return  # during a replay a record at the log's end would be applied too early
        decision = self.coordinator.undeclared()
        if decision.aborted or always:
            self.append_locked([(DECISION, encode_decision(decision))])

    def order(
        self, order: Callable[[], int], records: Sequence[Record], deliver: Callable[[int, int, bytes], None]
    ) -> int:
        """Call `order`, which orders `records` in the log, and apply them with `deliver`; returns the first GSN. The
        caller holds `order_lock`."""
        self.check_writable()
        if not records:
            return 0
        try:
            first = order()
            for gsn, (tag, payload) in enumerate(records, first):
                deliver(gsn, tag, payload)
        except Unavailable:
            raise
        except LogFailed as error:
            raise self.log_failed(error) from error
        except BaseException as error:
            self.stop_unless_applied(error)
            raise
        return first

    def wait_durable(self, gsn: int) -> None:
        """Return when `gsn` is durable. Raises Unavailable; for commits see `Commits.acknowledge`."""
        try:
            self.log.wait_durable(gsn)
        except LogFailed as error:
            raise self.log_failed(error) from error

    # ---- stopping

    def stop(self, reason: str) -> None:
        """Accept no more writes and checkpoints: the state in memory may no longer follow from the log."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.on_stop()

    def stop_unless_applied(self, error: BaseException) -> bool:
        """Stop if a record was ordered and not applied (EMB-2); returns whether there is one."""
        if self.coordinator.applied + 1 == self.log.end():
            return False
        self.stop(f"it was interrupted in the middle of a commit ({error!r})")
        return True

    def check_writable(self) -> None:
        """Raises DatabaseClosed, ReadOnly, Unavailable."""
        if self.closed:
            raise DatabaseClosed(self.path, self.forked_from)
        if self.read_only:
            raise ReadOnly(f"{self.path} was opened with read_only=True")
        self.check_running()

    def check_running(self) -> None:
        """Raises Unavailable after `stop`."""
        if self.stop_reason is not None:
            raise Unavailable(f"{self.path} takes no more writes: {self.stop_reason}; close it and open it again")

    # ---- errors

    def log_failed(self, error: LogFailed) -> Unavailable:
        """Stop, since the log has failed; returns the error for the caller."""
        self.stop(f"its log failed ({error})")
        return Unavailable(self.failure_text(error))

    def failure_text(self, error: BaseException) -> str:
        """The message for a failure of the log."""
        return f"the log of {self.path} failed ({error}); close it and open it again"

    def explained(self, error: Exception, at: int) -> Exception:
        """The error to raise for one that a read at version `at` has met."""
        if self.closed:
            return DatabaseClosed(self.path, self.forked_from)
        if isinstance(error, Trimmed):
            return VersionTrimmed(at, self.coordinator.floor)
        if isinstance(error, LogFailed):
            return Unavailable(self.failure_text(error))
        if isinstance(error, OSError):
            return Unavailable(f"{self.path} cannot be read: {described(error)}")
        return error
