"""A reader of the change feed that continues through all faults, so that it sees all commits of the database.

Compactions may drop versions later; the checks still have them from here.
"""

from __future__ import annotations

import threading
import time

import logdb
from logdb.api.results import Change
from logdb.errors import Unavailable

LISTENS_S = 0.5


class Follower:
    """A thread that watches from the first version on. `failure`: an error that no fault explains."""

    def __init__(self, endpoints: str) -> None:
        self._endpoints = endpoints
        self.seen: list[Change] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The newest version that it has received."""
        return self.seen[-1].version if self.seen else 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with logdb.connect(self._endpoints, timeout=5.0) as db:
                    while not self._stopping.is_set():
                        self.seen.extend(db.watch(since=self.version, timeout=LISTENS_S))
            except Unavailable:
                continue
            except BaseException as failure:
                self.failure = failure
                return

    def reach(self, version: int, bound_s: float) -> bool:
        """Whether it reaches that version in time."""
        until = time.monotonic() + bound_s
        while self.version < version and self.failure is None and time.monotonic() < until:
            time.sleep(0.05)
        return self.version >= version

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
