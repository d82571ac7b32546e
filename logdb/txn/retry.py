"""Running a function as a transaction, and again until it commits: bounded attempts, backoff with jitter."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from logdb.errors import ConflictError, LogDBError
from logdb.store.arguments import check_attempts, check_body
from logdb.store.limits import check_label
from logdb.txn.transaction import Transaction

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
    body: Callable[Concatenate[Transaction, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call `body(txn, *args, **kwargs)` in a transaction and return what it returns, again after each conflict.

    `body` may run several times: it should have no effect but on `txn`. After 50 attempts the last ConflictError is
    raised; any other exception aborts and is raised at once. `run` inside `body`, on the same database, is a
    LogDBError: give `txn` to what belongs to the transaction.
    """
    return attempt(db, getattr(body, "__name__", ""), ATTEMPTS, body, *args, **kwargs)


def attempt(
    db: Transactional,
    label: str,
    attempts: int,
    body: Callable[Concatenate[Transaction, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """As `run`, with the transaction's label and the bound on attempts given."""
    check_body(body)
    pause = pauses(attempts)
    outer = _running.get()
    if db in outer:
        raise nested()
    running = _running.set((*outer, db))
    try:
        while True:
            try:
                with db.transaction(label=label) as txn:
                    result = body(txn, *args, **kwargs)
                    if isinstance(result, CoroutineType):
                        result.close()
                        raise TypeError("an async function runs in a transaction of logdb.aio only")
                    return result
            except ConflictError:
                wait = next(pause, None)
                if wait is None:
                    raise
                if wait:
                    time.sleep(wait)
    finally:
        _running.reset(running)


def transactional(
    body: Callable[..., Any] | None = None, *, label: str | None = None, attempts: int = ATTEMPTS
) -> Callable[..., Any]:
    """Make a function `body(txn, ...)` one that is called as `body(db, ...)` and runs in a transaction.

    After a conflict the function runs again: at most `attempts` times (default: 50), after random pauses that grow to
    0.1 s. So it must have no effect but on `txn`. For `async def` the result is a coroutine function, to be called with
    a database of `logdb.aio`. `label`: names the transaction in the conflicts of others (default: the function's name).

    Raises TypeError, ValueError; a call raises the last ConflictError, what the function raises, and what a transaction
    raises at its end; and LogDBError inside another transaction that runs this way on the same database: pass that
    transaction on.
    """
    check_attempts(attempts)
    if label is not None:
        check_label(label)

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        check_body(body)
        name = getattr(body, "__name__", "") if label is None else label
        import inspect

        if inspect.iscoroutinefunction(body):

            @functools.wraps(body)
            async def in_coroutine(db: Any, /, *args: Any, **kwargs: Any) -> Any:
                return await db.attempt(name, attempts, body, *args, **kwargs)

            return in_coroutine

        @functools.wraps(body)
        def in_transaction(db: Transactional, /, *args: Any, **kwargs: Any) -> Any:
            if isinstance(db, Transaction):
                return body(db, *args, **kwargs)
            return attempt(db, name, attempts, body, *args, **kwargs)

        return in_transaction

    return decorate if body is None else decorate(body)
