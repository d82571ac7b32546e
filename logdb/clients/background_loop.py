"""The one event loop of a process whose program has none: a thread that starts when it is first needed, and stays.

gRPC's asyncio is made for one loop in a process, so all synchronous clients share this one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from logdb.errors import LogDBError
from logdb.system.event_loop import new_event_loop
from logdb.system.forking import keep_for_ever

T = TypeVar("T")

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop. Its thread is started by the first call."""
    global _loop  # noqa: PLW0603 - there is one for the process
    if _loop is not None:
        return _loop
    with _starting:
        if _loop is None:
            loop = new_event_loop()
            threading.Thread(target=loop.run_forever, name="logdb-loop", daemon=True).start()
            _loop = loop  # an interrupt before this line leaves a thread without work
        return _loop


def _forget_loop() -> None:
    """In a child of fork(), which does not have the thread."""
    global _loop, _starting
    if _loop is not None:
        keep_for_ever(_loop)
    _loop, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)


class _Handover:
    """A coroutine that runs in a loop, while a thread waits."""

    __slots__ = ("_done", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def start(self) -> None:
        """Called in the loop."""
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the thread may have been interrupted
        self._done.release()

    def result(self) -> Any:
        """Wait for the result, in the thread. Raises the exception of the coroutine."""
        self._done.acquire()
        assert self._task is not None
        return self._task.result()

    @property
    def has_ended(self) -> bool:
        """Whether the coroutine has."""
        return self._task is not None and self._task.done()

    def cancel(self) -> None:
        """Called in the loop."""
        if self._task is None:
            self._work.close()
        else:
            self._task.cancel()


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop runs in this thread."""
    return events._get_running_loop() is loop


def in_callback() -> LogDBError:
    """The error of a call that waits for a client in a function that this client has called."""
    return LogDBError(
        "a function that a client of servers calls (progress, placement, a policy) may not wait for that client, which"
        " does nothing else meanwhile: note what is needed, and call when it has returned"
    )


def in_shared_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine there (or in `loop`) and wait for its result. Ctrl-C cancels it. Raises LogDBError in that
    loop."""
    loop = loop or shared_loop()
    if is_running_here(loop):
        work.close()
        raise in_callback()
    handover = _Handover(work)
    try:
        loop.call_soon_threadsafe(handover.start)
        result: T = handover.result()
    except BaseException:
        if not handover.has_ended:  # the thread was interrupted
            loop.call_soon_threadsafe(handover.cancel)
        raise
    return result


def begin_in_shared_loop(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Start a coroutine there (or in `loop`), from any thread, also the loop's own; its result is ignored."""
    (loop or shared_loop()).call_soon_threadsafe(_Handover(work).start)


class LoopRunner:
    """Runs the coroutines of a backend in its event loop; None: the one of this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. Ctrl-C cancels it."""
        return in_shared_loop(work, self._loop)

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start a coroutine; its result is ignored."""
        begin_in_shared_loop(work, self._loop)

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function that waits for nothing."""
        (self._loop or shared_loop()).call_soon_threadsafe(function, *args)
