"""Sweeps of a database of this process in the background: what has expired is deleted every few seconds."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from typing import Any

from logdb.errors import DatabaseClosed
from logdb.retention.sweep import Host, Steps, Sweeper, Swept, answer_to

logger = logging.getLogger("logdb")


class SweepThread:
    """Sweeps a database every `interval_s` seconds, from `start` until `stop`, or until the database is garbage.

    A sweep that ends at its bound is continued after a pause as long as it took. `expired_keys`, `truncated_logs`: what
    its sweeps have deleted.
    """

    def __init__(self, host: Host, interval_s: float) -> None:
        self._host, self._interval_s = weakref.ref(host), interval_s
        self.expired_keys = self.truncated_logs = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logdb-sweep", daemon=True)
        weakref.finalize(host, self._begin_to_stop)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def measures(self) -> dict[str, Any]:
        """Numbers for `Backend.measures`."""
        return {"expired_keys": self.expired_keys, "truncated_logs": self.truncated_logs}

    def stop(self) -> None:
        """End after the commit under way, and wait for that."""
        self._begin_to_stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _begin_to_stop(self) -> None:
        self._stopping.set()

    def disown(self) -> None:
        """In a child of fork(), which has no such thread: replace the lock of the event."""
        self._stopping = threading.Event()

    def _run(self) -> None:
        sweeper, pause_s = Sweeper(), self._interval_s
        while not self._stopping.wait(pause_s):
            began = time.monotonic()
            swept = None
            try:
                swept = self._carry_out(sweeper.sweep(time.monotonic_ns()))
            except DatabaseClosed:
                return
            except Exception as error:
                logger.warning("what has expired could not be deleted; it is tried again: %s", error)
            is_over = swept is None or swept.is_complete
            pause_s = self._interval_s if is_over else time.monotonic() - began

    def _carry_out(self, steps: Steps) -> Swept | None:
        answer = None
        try:
            while not self._stopping.is_set() and (host := self._host()) is not None:
                answer = answer_to(host, steps.send(answer))
                del host
        except StopIteration as ended:
            swept: Swept = ended.value
            self.expired_keys += swept.expired_keys
            self.truncated_logs += swept.truncated_logs
            return swept
        return None
