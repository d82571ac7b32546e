"""The subscription of a mapping server to the log: batches go to the replica in order (DBS-2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cluster.log_adapter import LogAdapter, ignore_result
from logdb.cluster.mapping_server.replica import FOLLOWED, DecidedCommit, Replica
from logdb.cores.context import ClientContext, Timer
from logdb.log import requests as log_requests
from logdb.log.contract import Batch


def _no_pause() -> int:
    return 0


class LogFollower:
    """Applies the log to a replica. `records`: the number of records received.

    `on_applied` takes the commits that a batch has decided; `on_failed` the reason why the log cannot be followed,
    an exception. `pause_ns()` returns how long to wait before the next batch is requested, in ns; the host sets it, to
    bound memory while its disk is behind.
    """

    def __init__(
        self,
        context: ClientContext,
        log: LogAdapter,
        replica: Replica,
        on_applied: Callable[[list[DecidedCommit]], None],
        on_failed: Callable[[Any], None],
    ) -> None:
        self._context, self._log, self._replica = context, log, replica
        self._on_applied, self._on_failed = on_applied, on_failed
        self.records = 0
        self.pause_ns: Callable[[], int] = _no_pause
        self._subscription = 0
        self._is_expedited = False
        self._resume = Timer(self._request_batch)

    def start(self) -> None:
        """Subscribe from the record after the last one applied."""
        self._log.call(log_requests.Subscribe(self._replica.applied + 1, FOLLOWED), self._on_subscribed)

    def _on_subscribed(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._on_failed(result)
        else:
            self._subscription = result
            self._request_batch()

    def expedite(self) -> None:
        """A client waits for the next batch."""
        if self._subscription and not self._is_expedited:
            self._is_expedited = True
            self._log.call(log_requests.Expedite(self._subscription), ignore_result)

    def _request_batch(self) -> None:
        self._is_expedited = False
        self._log.call(log_requests.Next(self._subscription), self._on_batch)

    def _on_batch(self, result: Any) -> None:
        if not isinstance(result, Batch):
            self._on_failed(result)
            return
        self.records += len(result.records)
        self._on_applied(self._replica.apply(result))
        if pause_ns := self.pause_ns():
            self._context.set_timer(self._resume, self._context.now + pause_ns)
        else:
            self._request_batch()
