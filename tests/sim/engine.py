"""The log contract on a simulated cluster: blocking calls, in a world whose time passes only while a caller waits.

One thread at a time runs the world, a few events at once; in between the other threads make their calls and receive
their results. So a thread that waits for a record lets the append of another thread happen.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from logdb.clients.log_verbs import BlockingLog
from logdb.cores.effects import SECOND, Answer
from logdb.log.contract import (
    LogFailed,
)
from tests.sim.cluster import Shape
from tests.sim.engines import simulation_of
from tests.sim.world import World

EVENTS_AT_ONCE = 50


class SimulatedLog(BlockingLog):
    """A reconfigurable log on a cluster of its own. Timeouts are seconds of simulated time."""

    def __init__(self, engine: str, shape: Shape, seed: int = 1) -> None:
        self.world = World(seed)
        self.cluster = simulation_of(engine).Cluster(self.world, shape)
        self.cluster.start()
        self._process = self.cluster.clients[0]
        self._process.on_answer = self._answered
        self._changed = threading.Condition()
        self._requested: deque[tuple[int, Any]] = deque()
        self._results: dict[int, Any] = {}
        self._last = 0
        self._runs = False
        self._closed = False

    # ---- calls

    def _answered(self, answer: Answer) -> None:
        self._results[answer.call] = answer.result

    def call(self, request: Any, timeout: float | None = None) -> Any:
        """Return the result of a call, once the world has computed it. Raises the exception that is the result;
        LogFailed once closed."""
        with self._changed:
            self._last += 1
            number = self._last
            if timeout is not None:
                request = request._replace(deadline=self.world.now + int(timeout * SECOND))
            self._requested.append((number, request))
            while number not in self._results:
                if self._closed:
                    raise LogFailed("the log is closed")
                if self._runs:
                    self._changed.wait()
                else:
                    self._run_world()
            result = self._results.pop(number)
        if isinstance(result, Exception):
            raise result
        return result

    def _run_world(self) -> None:
        """Run the world for a while in this thread. Other threads can make calls meanwhile."""
        self._runs = True
        self._changed.release()
        try:
            while self._requested:
                self._process.call(*self._requested.popleft())
            for _ in range(EVENTS_AT_ONCE):
                self.world.step()
        finally:
            self._changed.acquire()
            self._runs = False
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
