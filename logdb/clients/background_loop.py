"""The one event loop of a process whose program has none: a thread that starts when it is first needed, and stays.

gRPC's asyncio is made for one loop in a process, so all synchronous clients share this one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from logdb.system.event_loop import new_event_loop
from logdb.system.forking import keep_for_ever

T = TypeVar("T")

_starting = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def shared_loop() -> asyncio.AbstractEventLoop:
    """The loop. Its thread is started by the first call."""
    global _loop  # noqa: PLW0603 - there is one for the process
    with _starting:
        if _loop is None:
            _loop = new_event_loop()
            threading.Thread(target=_loop.run_forever, name="logdb-loop", daemon=True).start()
        return _loop


def _forget_loop() -> None:
    """In a child of fork(), which does not have the thread."""
    global _loop, _starting
    if _loop is not None:
        keep_for_ever(_loop)
    _loop, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)


def in_shared_loop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Run a coroutine there (or in `loop`) and wait for its result. Ctrl-C cancels it."""
    future = asyncio.run_coroutine_threadsafe(work, loop or shared_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def begin_in_shared_loop(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Start a coroutine there (or in `loop`), from any thread, also the loop's own; its result is ignored."""
    asyncio.run_coroutine_threadsafe(work, loop or shared_loop())


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
