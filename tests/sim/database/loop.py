"""An event loop of asyncio in virtual time: coroutines of the hosts of cores run in the simulation unchanged."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from logdb.cores.effects import MILLISECOND
from tests.sim.process import Process


class Loop(asyncio.AbstractEventLoop):
    """The loop of one life of a process: it stops while the process is paused, and ends with it.

    A second of the loop takes `second_ns` of virtual time.
    """

    def __init__(self, process: Process, second_ns: int) -> None:
        self._process, self._world, self._second_ns = process, process.world, second_ns
        self._life = process.lives

    @property
    def is_ended(self) -> bool:
        """Whether its process has died."""
        return self._process.core is None or self._process.lives != self._life

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make it the running loop."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(before)

    def _run(self, handle: asyncio.Handle) -> None:
        if self.is_ended or handle.cancelled():
            return
        if self._process.paused:
            self._world.after(MILLISECOND, self._run, handle)
            return
        with self.running():
            handle._run()

    # ---- the interface of an event loop

    def time(self) -> float:
        return self._world.now / self._second_ns

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._world.after(0, self._run, handle)
        return handle

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._world.at(int(when * self._second_ns), self._run, handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Any:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._world.after(int(delay * self._second_ns), self._run, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled handles are skipped when they are due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Any, **options: Any) -> Any:
        return asyncio.Task(coroutine, loop=self, **options)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks of a process that has died are dropped; any other error is raised."""
        error = context.get("exception")
        if error is not None and not self.is_ended:
            raise error
