"""A replica: the threads between a log and the core, and the face for threads.

One thread reads the log and applies it; it is the only one that changes the machine. One appends commands, as many as
have arrived, one append after the other. One asks for the tail of the log, once for all queries that have arrived.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from logdb.errors import Unavailable
from logdb.log.contract import AppendUnknown, Log, LogFailed, Record, Subscription, Trimmed
from logdb.smr.core.outbox import Outbox, Pending
from logdb.smr.core.records import CHUNK, TAGS, digest_record, open_record, verify_record
from logdb.smr.core.sessions import Failure, Forgotten, Outcome
from logdb.smr.core.snapshots import SnapshotFinder, chunks
from logdb.smr.core.state import ReplicaState
from logdb.smr.errors import (
    CommandExpired,
    CommandFailed,
    CommandId,
    CommandTooLarge,
    CommandUnknown,
    Diverged,
    ReplicaStopped,
    SnapshotMissing,
    check_id,
)
from logdb.smr.machine import Machine
from logdb.store.arguments import checked_wait
from logdb.system.forking import forked_text, own

M = TypeVar("M", bound=Machine)
T = TypeVar("T")

log = logging.getLogger(__name__)

MAX_COMMAND_BYTES: Final = 16 << 20
SNAPSHOT_BYTES: Final = 64 << 20
"""A replica takes a snapshot after this many bytes of commands since the last one."""
MAX_SPREAD: Final = 0.25
"""By this share at most, a replica takes its snapshot later, so that the replicas do not all take one at once."""
TRIM_ATTEMPTS: Final = 10
FIRST_PAUSE_S: Final = 0.01
MAX_PAUSE_S: Final = 1.0


class Reading(NamedTuple, Generic[T]):
    """The `value` of a stale query, from the state at `position`."""

    position: int
    value: T


class _Query(NamedTuple):
    """A query that waits until its replica has applied the log up to `position`. `number`: breaks ties."""

    position: int
    number: int
    read: Callable[[Any], object]
    waiter: Future[Any]


def newest_snapshot(log: Log) -> tuple[SnapshotFinder, int]:
    """Find the newest complete snapshot in the log. Returns it, and the oldest position before the search."""
    while True:
        finder = SnapshotFinder()
        try:
            first, tail = log.oldest(), log.tail()
            if tail < first:
                return finder, first
            subscription = log.subscribe(first, {CHUNK})
            try:
                for batch in subscription:
                    for record in batch.records:
                        finder.add(record)
                    if batch.end > tail:
                        return finder, first
            finally:
                subscription.close()
        except Trimmed:
            continue  # by a replica with a newer snapshot


class Replica(Generic[M]):
    """A replica of a machine, for any number of threads. `logdb.smr.open`, `connect` and `replicate` make it."""

    def __init__(self, log: Log, machine: M, *, snapshot_bytes: int | None, release: Callable[[], object]) -> None:
        self._log, self._release = log, release
        self._state = ReplicaState(machine)
        self._outbox = Outbox()
        self._snapshot_at = None if snapshot_bytes is None else snapshot_bytes * (1 + random.uniform(0, MAX_SPREAD))
        self._stopped: ReplicaStopped | None = None
        self._torn: ReplicaStopped | None = None  # why the state is not that of a prefix of the log
        self._stopping = threading.Event()
        self._closing = threading.Lock()
        self._state_lock = threading.Lock()
        self._queries: list[_Query] = []
        self._outgoing = threading.Condition()
        self._asked = threading.Condition()
        self._questions: list[_Query] = []
        self._numbers = itertools.count()
        self._snapshotting = threading.Lock()
        self._subscription: Subscription | None = None
        self._threads: list[threading.Thread] = []
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork() by process `parent`: be stopped. The log is disowned on its own."""
        self._stopped = ReplicaStopped(f"it was {forked_text(parent)}")
        self._state_lock, self._closing, self._snapshotting = threading.Lock(), threading.Lock(), threading.Lock()
        self._outgoing, self._asked = threading.Condition(), threading.Condition()
        self._threads, self._release = [], _nothing

    def start(self) -> Replica[M]:
        """Restore the newest snapshot of the log, and start the threads. Raises SnapshotMissing, ForeignRecord, and the
        errors of the log."""
        self._subscription = self._subscribed()
        for work in (self._read, self._append_commands, self._ask_tails):
            thread = threading.Thread(target=self._run, args=(work,), name=f"logdb-smr-{work.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    # ---- the face

    @property
    def applied(self) -> int:
        """The position up to which this replica has applied the log."""
        return self._state.applied

    @property
    def failure(self) -> BaseException | None:
        """The reason why this replica has stopped by itself, such as Diverged or an exception of the machine; else
        None."""
        return None if self._stopped is None else self._stopped.__cause__

    def execute(self, command: bytes, *, command_id: CommandId | None = None, timeout: float | None = None) -> bytes:
        """Apply `command` on all replicas, once, and return its result.

        The command is ordered after every command that had returned on any replica. `command_id`: repeat the command of
        this id (from `CommandUnknown` or `reserve`); if it was applied before, its first result is returned, whatever
        `command` is now. `timeout`: seconds; None: wait until the log accepts it.

        Raises CommandFailed (its result is an exception), CommandUnknown, CommandExpired, CommandTooLarge,
        ReplicaStopped and TimeoutError (both: it had no effect and never will).
        """
        timeout = checked_wait(timeout)
        pending = self.begin(command, command_id)
        result: bytes = self._waited(pending, timeout)
        return result

    def submit(self, command: bytes, *, command_id: CommandId | None = None) -> Future[bytes]:
        """As `execute`, without waiting: returns a future of the result of `command`. `command_id`: as of `execute`.

        Commands that one thread submits are applied in this order. Raises CommandTooLarge, ReplicaStopped; the future
        raises the errors of `execute`.
        """
        waiter: Future[bytes] = self.begin(command, command_id).waiter
        return waiter

    def reserve(self, *, timeout: float | None = None) -> CommandId:
        """Return the id of a command that is executed later. A program that stores the id before it executes the
        command can repeat the command after its own crash.

        Replicas keep the results of the last 16,384 commands of a session, for an hour after the session's last one.
        `timeout`: seconds. Raises TimeoutError, ReplicaStopped.
        """
        timeout = checked_wait(timeout)
        pending = self.begin(None)
        reserved: CommandId = self._waited(pending, timeout)
        return reserved

    def query(self, read: Callable[[M], T], *, timeout: float | None = None) -> T:
        """Return `read(machine)`, linearizable: the machine has applied every command that had returned on any replica.

        `read` must not change the machine, nor keep a reference into its state; no command is applied meanwhile.
        `timeout`: seconds. Raises TimeoutError, ReplicaStopped, and what `read` raises.
        """
        timeout = checked_wait(timeout)
        return self._answer(self.ask(read), timeout)

    def stale_query(self, read: Callable[[M], T], *, after: int = 0, timeout: float | None = None) -> Reading[T]:
        """Return `read(machine)` without asking the log, and the position of the state that it has read.

        `after`: wait until this position is applied, such as an earlier reading's; 0: read at once. `read`, `timeout`:
        as of `query`. Raises TimeoutError, ReplicaStopped, and what `read` raises.
        """
        timeout = checked_wait(timeout)
        return self._answer(self.ask_stale(read, after), timeout)

    def snapshot(self) -> int:
        """Write a snapshot into the log, and trim the log up to it; returns its position. Replicas do so by themselves
        from time to time. Raises ReplicaStopped, LogFailed."""
        with self._snapshotting:
            return self._write_snapshot()

    def verify(self) -> int:
        """Let all replicas compare their states at one position, which is returned. Each takes a snapshot for it, and
        stops with Diverged when it reads another digest than its own.

        Raises ReplicaStopped, and the errors of the log.
        """
        self._check_running()
        (position,) = self._appended(lambda: [verify_record()])
        return position

    def close(self) -> None:
        """Stop this replica. Commands under way end with CommandUnknown."""
        self._stop(ReplicaStopped("it is closed"))
        with self._closing:
            release, self._release = self._release, _nothing
            release()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()

    def __enter__(self) -> Replica[M]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---- what both faces use

    def begin(self, command: bytes | None, command_id: CommandId | None = None) -> Pending:
        """Queue `command` (None: reserve an id), with the id `command_id`; its `waiter` is a future.

        Raises TypeError, ValueError, CommandTooLarge, ReplicaStopped.
        """
        if command is not None:
            if not isinstance(command, bytes):
                raise TypeError(f"a command is bytes, not {type(command).__name__}")
            if len(command) > MAX_COMMAND_BYTES:
                raise CommandTooLarge(len(command), MAX_COMMAND_BYTES)
        if command_id is not None and not isinstance(command_id, CommandId):
            raise TypeError(f"command_id is a CommandId, not {command_id!r}; CommandId.parse makes one of a string")
        if command_id is not None:
            check_id(command_id)
        pending = Pending(command, Future(), command_id)
        with self._outgoing:
            self._check_running()
            self._outbox.add(pending)
            self._outgoing.notify_all()
        return pending

    def give_up(self, pending: Pending, why: str) -> Exception:
        """The error of a caller that waits for `pending` no longer, because of `why`: CommandUnknown or, if the command
        was not sent, TimeoutError."""
        with self._outgoing:
            may_be_applied = self._outbox.keep(pending)
        if may_be_applied and pending.command_id is not None:
            return CommandUnknown(pending.command_id, why)
        return TimeoutError(f"the command was not sent: {why}; it has no effect")

    def ask(self, read: Callable[[M], T]) -> Future[T]:
        """A future of a linearizable query, `read`. Raises ReplicaStopped."""
        query = _Query(0, next(self._numbers), read, Future())
        with self._asked:
            self._check_running()
            self._questions.append(query)
            self._asked.notify()
        return query.waiter

    def ask_stale(self, read: Callable[[M], T], after: int) -> Future[Reading[T]]:
        """A future of a stale query, `read`, at the position `after` or later. Raises TypeError, ReplicaStopped."""
        if not isinstance(after, int):
            raise TypeError(f"after is a position, not {after!r}")
        query = _Query(
            after, next(self._numbers), lambda machine: Reading(self._state.applied, read(machine)), Future()
        )
        self._enqueue([query])
        return query.waiter

    def _waited(self, pending: Pending, timeout: float | None) -> Any:
        try:
            return pending.waiter.result(timeout)
        except TimeoutError:
            if pending.waiter.done():
                return pending.waiter.result()
            raise self.give_up(pending, f"it has no result after {timeout} seconds") from None
        except BaseException:
            if not pending.waiter.done():  # Ctrl-C
                self.give_up(pending, "interrupted")
            raise

    @staticmethod
    def _answer(waiter: Future[T], timeout: float | None) -> T:
        try:
            return waiter.result(timeout)
        except TimeoutError:
            if waiter.done():
                return waiter.result()
            waiter.cancel()
            raise TimeoutError(f"the query has no answer after {timeout} seconds") from None

    # ---- threads

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            if self._stopped is None:
                log.exception("a replica of a state machine has stopped")
            self._stop(_stopped_by(error))

    def _read(self) -> None:
        while self._stopped is None:
            assert self._subscription is not None
            try:
                batch = self._subscription.poll(None)
            except Trimmed:
                self._subscription.close()
                self._subscription = self._subscribed()
                continue
            except StopIteration:
                return
            if batch is None:
                continue
            with self._changing_state():
                outcomes, digests, conflicts = self._state.apply(batch, self._outbox.mine)
                if conflicts:
                    self._torn = _stopped_by(Diverged(conflicts[0]))
                else:
                    self._answer_queries()
            if digests:  # also before this replica stops, so that the others read a digest that differs
                self._appended(lambda digests=digests: [digest_record(digest) for digest in digests])  # type: ignore[misc]
            if conflicts:
                raise Diverged(conflicts[0])
            if outcomes:
                with self._outgoing:
                    done = [(pending, out) for at, out in outcomes for pending in self._outbox.read(at, out)]
                    self._outgoing.notify_all()
                for pending, outcome in done:
                    _settle(pending, outcome)
            if self._snapshot_at is not None and self._state.bytes_since_snapshot >= self._snapshot_at:
                self._begin_snapshot()

    @contextmanager
    def _changing_state(self) -> Iterator[None]:
        """The lock of the state. After an exception no query and no snapshot gets the lock before it fails."""
        with self._state_lock:
            try:
                yield
            except BaseException as error:
                self._torn = _stopped_by(error)
                raise

    def _subscribed(self) -> Subscription:
        """Restore a newer snapshot, if there is one, and continue after it. Raises SnapshotMissing."""
        while True:
            found, oldest = newest_snapshot(self._log)
            if found.position > self._state.applied:
                with self._changing_state():
                    self._state.restore(found.position, found.data)
                    self._answer_queries()
                with self._outgoing:
                    done, lost = self._outbox.restored(found.position, self._state.sessions)
                    self._outgoing.notify_all()
                for pending, outcome in done:
                    _settle(pending, outcome)
                for pending in lost:
                    assert pending.command_id is not None
                    why = "the replica has continued with a snapshot that has no result of it"
                    _fail(pending.waiter, CommandUnknown(pending.command_id, why))
            try:
                subscription = self._log.subscribe(self._state.applied + 1, TAGS)
            except Trimmed as error:
                if oldest > self._state.applied + 1:
                    raise SnapshotMissing(error.oldest) from error
                continue  # trimmed since, by a replica with a newer snapshot
            if self._stopped is not None:
                subscription.close()
            return subscription

    def _append_commands(self) -> None:
        while True:
            with self._outgoing:
                self._outgoing.wait_for(lambda: self._stopped is not None or not self._outbox.is_idle)
                if self._stopped is not None:
                    return
                needs_session = self._outbox.needs_session
            if needs_session:
                (number,) = self._appended(lambda: [open_record()])
                with self._outgoing:
                    self._outbox.open_session(number)
            with self._outgoing:
                batch, reserved = self._outbox.next_batch()
            for pending in reserved:
                _succeed(pending.waiter, pending.command_id)
            if batch:
                self._appended(lambda batch=batch: self._unread(batch))  # type: ignore[misc]

    def _unread(self, batch: list[Pending]) -> list[Record]:
        with self._outgoing:
            return self._outbox.records([pending for pending in batch if self._outbox.is_sent(pending)])

    def _appended(self, records: Callable[[], list[Record]]) -> Sequence[int]:
        """Append until it has succeeded, or `records` returns none. Raises ReplicaStopped, LogFailed."""
        pause = FIRST_PAUSE_S
        while to_append := records():
            self._check_running()
            try:
                return self._log.append(to_append)
            except (AppendUnknown, Unavailable, TimeoutError) as error:
                log.info("an append of a replica is repeated: %s", error)
            self._stopping.wait(pause)
            pause = min(2 * pause, MAX_PAUSE_S)
        return ()

    def _ask_tails(self) -> None:
        while True:
            with self._asked:
                self._asked.wait_for(lambda: self._stopped is not None or self._questions)
                if self._stopped is not None:
                    return
                questions, self._questions = self._questions, []
            tail = self._tail()
            self._enqueue([query._replace(position=tail) for query in questions])

    def _tail(self) -> int:
        pause = FIRST_PAUSE_S
        while True:
            self._check_running()
            try:
                return self._log.tail()
            except (Unavailable, TimeoutError) as error:
                log.info("a replica asks for the tail again: %s", error)
            self._stopping.wait(pause)
            pause = min(2 * pause, MAX_PAUSE_S)

    def _enqueue(self, queries: list[_Query]) -> None:
        with self._state_lock:
            for query in queries:
                if stopped := self._stopped or self._torn:
                    _fail(query.waiter, _copy_of(stopped))
                else:
                    heapq.heappush(self._queries, query)
            if self._torn is None:
                self._answer_queries()

    def _answer_queries(self) -> None:
        """Answer the queries whose positions are applied, under `_state_lock`."""
        queries = self._queries
        while queries and queries[0].position <= self._state.applied:
            query = heapq.heappop(queries)
            try:
                value = query.read(self._state.machine)
            except BaseException as error:
                _fail(query.waiter, error)
            else:
                _succeed(query.waiter, value)

    # ---- snapshots

    def _begin_snapshot(self) -> None:
        if not self._snapshotting.acquire(blocking=False):
            return
        self._state.bytes_since_snapshot = 0

        def write() -> None:
            try:
                self._write_snapshot(*taken)
            except (LogFailed, ReplicaStopped, TimeoutError) as error:
                log.info("a snapshot was not written: %s", error)
            finally:
                self._snapshotting.release()

        try:
            with self._state_lock:
                taken = (self._state.applied, self._state.encode())
            threading.Thread(target=write, name="logdb-smr-snapshot", daemon=True).start()
        except BaseException:
            self._snapshotting.release()
            raise

    def _write_snapshot(self, position: int | None = None, data: bytes = b"") -> int:
        if position is None:
            with self._state_lock:
                self._check_running()
                if self._torn is not None:
                    raise _copy_of(self._torn)
                position, data = self._state.applied, self._state.encode()
        for record in chunks(random.getrandbits(64), position, data):
            self._appended(lambda record=record: [record])  # type: ignore[misc]
        for attempt in range(TRIM_ATTEMPTS):
            try:
                self._log.trim(position + 1)
                break
            except (Unavailable, LogFailed, TimeoutError) as error:
                log.info("the log was not trimmed (attempt %s): %s", attempt + 1, error)
                if self._stopping.wait(MAX_PAUSE_S):
                    break
        return position

    # ---- the end

    def _check_running(self) -> None:
        if self._stopped is not None:
            raise self._error()

    def _error(self) -> ReplicaStopped:
        assert self._stopped is not None
        return _copy_of(self._stopped)

    def _stop(self, stopped: ReplicaStopped) -> None:
        """Stop once: end all waiting calls and threads."""
        with self._outgoing, self._asked:
            if self._stopped is not None:
                return
            self._stopped = stopped
        self._stopping.set()
        with self._outgoing:
            sent, unsent = self._outbox.sent(), list(self._outbox.unsent)
            self._outbox.unsent.clear()
            self._outgoing.notify_all()
        with self._asked:
            questions, self._questions = self._questions, []
            self._asked.notify_all()
        if self._subscription is not None:
            with suppress(LogFailed):
                self._subscription.close()
        with self._state_lock:
            questions += self._queries
            self._queries = []
        for pending in sent:
            assert pending.command_id is not None
            _fail(pending.waiter, CommandUnknown(pending.command_id, f"the replica has stopped: {stopped.why}"))
        for waiter in [pending.waiter for pending in unsent] + [query.waiter for query in questions]:
            _fail(waiter, self._error())


def _nothing() -> None:
    """Release nothing."""


def _stopped_by(error: BaseException) -> ReplicaStopped:
    stopped = ReplicaStopped(f"{type(error).__name__}: {error}")
    stopped.__cause__ = error
    return stopped


def _copy_of(stopped: ReplicaStopped) -> ReplicaStopped:
    """The error for another caller, with a traceback of its own."""
    error = ReplicaStopped(stopped.why)
    error.__cause__ = stopped.__cause__
    return error


def _settle(pending: Pending, outcome: Outcome) -> None:
    assert pending.command_id is not None
    if isinstance(outcome, bytes):
        _succeed(pending.waiter, outcome)
    elif isinstance(outcome, Failure):
        _fail(pending.waiter, CommandFailed(*outcome))
    else:
        assert outcome is Forgotten.FORGOTTEN
        _fail(pending.waiter, CommandExpired(pending.command_id))


def _succeed(waiter: Future[Any], value: object) -> None:
    with suppress(InvalidStateError):  # cancelled
        waiter.set_result(value)


def _fail(waiter: Future[Any], error: BaseException) -> None:
    with suppress(InvalidStateError):
        waiter.set_exception(error)
