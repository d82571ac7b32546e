"""Programs: transactions as `logdb.aio` runs them, with speculative reads of writes of the same process.

All code above the client core is real: `Database.attempt`, `LazySnapshotReader`, `Speculation`, `ClusterBackend`. Each
attempt of a program's body is one operation of the history. The result of a program, or its own exception, must follow
from committed values: speculative ones may only lead to a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from logdb import aio
from logdb.clients.cluster_backend import ClusterBackend
from logdb.cluster.client import requests
from logdb.cores.effects import MILLISECOND
from logdb.errors import ConflictError, FutureVersion, OutcomeUnknown, Unavailable, VersionTrimmed
from logdb.txn.retry import RunOptions
from logdb.txn.speculation import Speculation
from logdb.txn.transaction import Workspace
from tests.sim.database.history import Op
from tests.sim.database.keys import CELLS, LISTS, elements_of
from tests.sim.database.loop import Loop
from tests.sim.world import Failure

if TYPE_CHECKING:
    from tests.sim.database.workload import Application

SECOND_NS = 100 * MILLISECOND
"""The length of a second of the clients: writes of the last one are read speculatively."""
ATTEMPTS = 2
"""Of those that conflict: the pause between the first two is none, and nothing of it is random."""


class Refused(Exception):
    """An exception of a program, raised for the values that it has read."""


class Host(ClusterBackend):
    """The backend of a client whose core runs in a simulated process. Operations of each transaction are recorded in
    `ops`."""

    def __init__(self, application: Application, loop: Loop) -> None:
        self.path, self.timeout_s, self._closed, self._forked_from = "simulated", 1e9, False, 0
        self._application, self._loop = application, loop
        self._placement = None
        self._newest = requests.LINEARIZABLE
        self.speculation = Speculation(loop.time, self.takes_turns)
        self._committing, self._feeds = set(), set()
        self.ops: dict[Workspace, Op] = {}
        self._now: Op | None = None

    @property
    def _core(self) -> Any:  # type: ignore[override]
        return self._application.process.core

    def put(self, request: Any, timeout_s: float | None) -> asyncio.Future[Any]:
        waiter = self._loop.create_future()
        self._application.put(request, waiter)
        return waiter

    async def commit(self, work: Workspace) -> int:
        op = self._now = self.ops[work]
        op.snapshot, op.is_speculative = work.snapshot, work.speculated is not None
        version = await super().commit(work)
        if op.status == "open":
            op.version, op.is_linearizable = version, True
            self._application.end(op, "ok")
        return version

    async def _commit(self, request: requests.Commit) -> requests.Committed:
        op, application = self._now, self._application
        assert op is not None
        op.txn = await self.put(requests.NewId(), None)
        op.writes, op.conditions, op.label = dict(request.writes), tuple(request.conditions), request.label
        deadline = application.deadline(op)
        try:
            committed = await super()._commit(request._replace(txn_id=op.txn, deadline=deadline))
        except (Unavailable, OutcomeUnknown) as error:
            op.error, op.seen = error, {} if op.is_speculative else op.seen
            application.end(op, "fail" if isinstance(error, Unavailable) else "info")
            raise
        op.version, op.verdict, op.winner = committed.version, committed.verdict, committed.winner
        if op.is_speculative and not committed.verdict.committed:
            op.seen = {}
        application.end(op, "ok" if committed.verdict.committed else "fail")
        return committed


class Programs:
    """The programs of one life of a client. `running`: by number the worker of each, and its attempt under way."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._loop = Loop(application.process, SECOND_NS)
        self._host = Host(application, self._loop)
        self._database = aio.Database(self._host)
        self._last = 0
        self.running: dict[int, tuple[int, Op | None]] = {}

    @property
    def is_ended(self) -> bool:
        """Whether its process has died."""
        return self._loop.is_ended

    def run(self, worker: int) -> None:
        """Begin a program."""
        self._last += 1
        self.running[self._last] = worker, None
        task = self._loop.create_task(self._run(self._last))
        task.add_done_callback(partial(self._ended, self._last))

    def _ended(self, number: int, task: asyncio.Task[None]) -> None:
        task.result()
        worker, _ = self.running.pop(number)
        self._application.has_run(worker)

    async def _run(self, number: int) -> None:
        draw = self._application.draw
        keys = draw.sample(LISTS, draw.choice((1, 1, 1, 2)))
        if draw.random() < 0.3:
            keys = draw.sample(CELLS, draw.choice((1, 2)))
        action = draw.choice(("append", "append", "append", "delete", "nothing", "refuse"))
        delivered: Op | None = None
        try:
            delivered = await self._database.attempt(RunOptions("run", ATTEMPTS), self._body, number, keys, action)
        except Refused as refused:
            (delivered,) = refused.args
        except VersionTrimmed as error:
            op = self.running[number][1]
            if op is not None:
                self._application.refused(op, error)
        except FutureVersion as error:
            raise Failure("an answer has a type that its call allows", f"{self.running[number][1]}: {error}") from error
        except (ConflictError, Unavailable, OutcomeUnknown):
            pass
        if delivered is not None and delivered.status == "open":
            self._application.end(delivered, "fail")
        self._forget(number)

    def _forget(self, number: int) -> None:
        """End an attempt under way as failed, without its reads."""
        worker, op = self.running[number]
        if op is not None and op.status == "open":
            op.seen = {}
            self._application.end(op, "fail")
        self.running[number] = worker, None

    async def _body(self, txn: aio.Transaction, number: int, keys: list[bytes], action: str) -> Op:
        """Read some keys, and append to the first one, delete it, or only read."""
        self._forget(number)
        application = self._application
        op = application.invoke("run")
        self.running[number] = self.running[number][0], op
        self._host.ops[txn] = op
        for key in keys:
            op.seen[key] = await txn.get(key)
            op.snapshot, op.is_speculative = txn.snapshot, txn.speculated is not None
        if action == "append":
            txn.put(keys[0], b",".join([*elements_of(op.seen[keys[0]]), application.name()]))
        elif action == "delete":
            txn.delete(keys[0])
        elif action == "refuse":
            raise Refused(op)
        return op

    def killed(self) -> Iterator[int]:
        """The workers whose process has died; their operations under way have unknown outcomes."""
        for worker, op in self.running.values():
            if op is not None and op.status == "open":
                if op.is_speculative or op.txn is None:
                    op.seen = {}
                self._application.end(op, "fail" if op.txn is None else "info")
            yield worker
        self.running.clear()
