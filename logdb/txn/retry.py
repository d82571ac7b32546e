"""Running a function as a transaction, and again until it commits: bounded attempts, backoff with jitter."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from logdb.errors import ConflictError, LogDBError
from logdb.store.arguments import check_attempts, check_body, check_flag, checked_wait
from logdb.store.limits import check_label
from logdb.txn.transaction import Transaction, Workspace

ATTEMPTS = 50
FIRST_PAUSE_S = 0.0005
LONGEST_PAUSE_S = 0.1

_running: ContextVar[tuple[Transactional, ...]] = ContextVar("running", default=())
"""The databases on which this thread runs a transaction."""

P = ParamSpec("P")
T = TypeVar("T")


class Transactional(Protocol):
    """A database that begins transactions."""

    def transaction(
        self, *, read_only: bool = False, label: str = "", guard_writes: bool = False
    ) -> AbstractContextManager[Transaction]: ...


class RunOptions(NamedTuple):
    """How a function runs in a transaction: the transaction's `label` and whether it only reads, the maximum number of
    `attempts`, and the time in seconds after which no other one begins (None: no limit)."""

    label: str = ""
    attempts: int = ATTEMPTS
    read_only: bool = False
    timeout_s: float | None = None


def run_options(
    body: Callable[..., Any], label: str | None, attempts: int, read_only: bool, timeout: float | None
) -> RunOptions:
    """The options that a caller gives. The label is by default the function's qualified name.

    Raises TypeError, ValueError.
    """
    check_attempts(attempts)
    check_flag("read_only", read_only)
    if label is None:
        label = getattr(body, "__qualname__", "").rpartition("<locals>.")[2]
    else:
        check_label(label)
    return RunOptions(label, attempts, read_only, checked_wait(timeout))


class Attempts:
    """The attempts of one run: counts them, keeps the conflicts, and decides whether another one follows."""

    def __init__(self, options: RunOptions) -> None:
        self._pauses = pauses(options.attempts)
        self._deadline = None if options.timeout_s is None else time.monotonic() + options.timeout_s
        self._conflicts: list[ConflictError] = []

    def begin(self, txn: Workspace) -> None:
        """Show a transaction which attempt it is, and how the earlier ones ended."""
        txn.attempt, txn.conflicts = len(self._conflicts) + 1, tuple(self._conflicts)

    def pause(self, conflict: ConflictError) -> float:
        """The pause in seconds until the next attempt. Raises the conflict if it was the last one."""
        self._conflicts.append(conflict)
        conflict.attempts = len(self._conflicts)
        wait = next(self._pauses, None)
        if wait is None or (self._deadline is not None and time.monotonic() + wait >= self._deadline):
            raise conflict
        return wait


def pauses(attempts: int) -> Iterator[float]:
    """The pauses between `attempts` attempts in seconds: 0, then random below a bound that doubles (full jitter)."""
    bound = FIRST_PAUSE_S
    for attempt in range(attempts - 1):
        yield 0.0 if attempt == 0 else random.uniform(0, bound)
        bound = min(2 * bound, LONGEST_PAUSE_S)


def nested() -> LogDBError:
    """The error of a `run` inside a function called by `run`."""
    return LogDBError(
        "run was called by a function that run has called, on the same database: the inner transaction would commit"
        " again with each retry of the outer one; pass the outer transaction on, or call run when it has ended"
    )


def run(
    db: Transactional,
    body: Callable[..., T],
    *args: Any,
    read_only: bool = False,
    label: str | None = None,
    attempts: int = ATTEMPTS,
    timeout: float | None = None,
    **kwargs: Any,
) -> T:
    """Call `body(txn, *args, **kwargs)` in a transaction and return what it returns, again after each conflict.

    `body` may run several times: it should have no effect but on `txn`. After the last of `attempts`, or when `timeout`
    seconds have passed, the last ConflictError is raised; any other exception aborts and is raised at once.
    `read_only`, `label`: as `Database.transaction`; the label is by default the function's qualified name. `run` inside
    `body`, on the same database, is a LogDBError: give `txn` to what belongs to the transaction.
    """
    check_body(body)
    return attempt(db, run_options(body, label, attempts, read_only, timeout), body, *args, **kwargs)


def attempt(
    db: Transactional,
    options: RunOptions,
    body: Callable[Concatenate[Transaction, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """As `run`, with its options."""
    check_body(body)
    attempts = Attempts(options)
    outer = _running.get()
    if db in outer:
        raise nested()
    try:
        _running.set((*outer, db))  # an interrupt (Ctrl-C) may come right after the call
        while True:
            try:
                with db.transaction(read_only=options.read_only, label=options.label) as txn:
                    attempts.begin(txn)
                    result = body(txn, *args, **kwargs)
                    if isinstance(result, CoroutineType):
                        result.close()
                        raise TypeError("an async function runs in a transaction of logdb.aio only")
                    return result
            except ConflictError as conflict:
                if wait := attempts.pause(conflict):
                    time.sleep(wait)
    finally:
        _running.set(outer)


def transactional(
    body: Callable[..., Any] | None = None,
    *,
    read_only: bool = False,
    label: str | None = None,
    attempts: int = ATTEMPTS,
    timeout: float | None = None,
) -> Callable[..., Any]:
    """Make a function `body(txn, ...)` one that is called as `body(db, ...)` and runs in a transaction.

    After a conflict the function runs again: at most `attempts` times (default: 50), after random pauses that grow to
    0.1 s, and not when `timeout` seconds have passed. So it must have no effect but on `txn`. For `async def` the
    result is a coroutine function, to be called with a database of `logdb.aio`. `read_only`: the transaction only
    reads. `label`: names the transaction in the conflicts of others (default: the function's qualified name).

    A plain function that awaits nothing may also be called with a database of `logdb.aio`; the result is a coroutine
    then. Called with a transaction, the function is part of that transaction.

    Raises TypeError, ValueError; a call raises the last ConflictError, what the function raises, and what a transaction
    raises at its end; and LogDBError inside another transaction that runs this way on the same database: pass that
    transaction on.
    """
    run_options(transactional, label, attempts, read_only, timeout)  # arguments are checked before there is a function

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        check_body(body)
        options = run_options(body, label, attempts, read_only, timeout)
        import inspect

        if inspect.iscoroutinefunction(body):

            @functools.wraps(body)
            async def in_coroutine(db: Any, /, *args: Any, **kwargs: Any) -> Any:
                if isinstance(db, Workspace):
                    return await body(db, *args, **kwargs)
                return await db.attempt(options, body, *args, **kwargs)

            return in_coroutine

        @functools.wraps(body)
        def in_transaction(db: Any, /, *args: Any, **kwargs: Any) -> Any:
            if isinstance(db, Workspace):
                return body(db, *args, **kwargs)
            if hasattr(type(db), "attempt"):  # a database of logdb.aio
                return db.attempt(options, body, *args, **kwargs)
            return attempt(db, options, body, *args, **kwargs)

        return in_transaction

    return decorate if body is None else decorate(body)
