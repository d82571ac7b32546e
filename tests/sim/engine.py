"""The log contract on a simulated cluster: blocking calls, in a world whose time passes only while a caller waits.

One thread at a time runs the world, a few events at once; in between the other threads make their calls and receive
their results. So a thread that waits for a record lets the append of another thread happen.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from logdb.cores.effects import SECOND, Answer
from logdb.log import requests as calls
from logdb.log.contract import (
    AppendId,
    Batch,
    LogFailed,
    LogRecord,
    NotOfThisShard,
    Record,
    ShardPolicy,
    Subscription,
    View,
)
from logdb.log.policies import ByRecord
from logdb.log.requests import ConfiguredShard, ShardState
from tests.sim.cluster import Shape
from tests.sim.engines import simulation_of
from tests.sim.world import World

EVENTS_AT_ONCE = 50


class SimulatedLog:
    """A reconfigurable log on a cluster of its own. Timeouts are seconds of simulated time."""

    def __init__(self, engine: str, shape: Shape, seed: int = 1) -> None:
        self.world = World(seed)
        self.cluster = simulation_of(engine).Cluster(self.world, shape)
        self.cluster.start()
        self._process = self.cluster.clients[0]
        self._process.on_answer = self._answered
        self._turn = threading.Condition()
        self._asked: deque[tuple[int, Any]] = deque()
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
        with self._turn:
            self._last += 1
            number = self._last
            if timeout is not None:
                request = request._replace(deadline=self.world.now + int(timeout * SECOND))
            self._asked.append((number, request))
            while number not in self._results:
                if self._closed:
                    raise LogFailed("the log is closed")
                if self._runs:
                    self._turn.wait()
                else:
                    self._let_go_on()
            result = self._results.pop(number)
        if isinstance(result, Exception):
            raise result
        return result

    def _let_go_on(self) -> None:
        """Run the world for a while in this thread. Other threads can make calls meanwhile."""
        self._runs = True
        self._turn.release()
        try:
            while self._asked:
                self._process.call(*self._asked.popleft())
            for _ in range(EVENTS_AT_ONCE):
                self.world.step()
        finally:
            self._turn.acquire()
            self._runs = False
            self._turn.notify_all()

    # ---- the contract

    def append(self, records: Sequence[Record], after: int | None = None) -> Sequence[int]:
        gsns: list[int] = self.call(calls.Append(records, after=after)).gsns
        return gsns

    def append_to_shard(
        self, records: Sequence[Record], shard: int, after: int | None = None
    ) -> tuple[Sequence[int], int]:
        return self.call(calls.Append(records, shard, after=after)).gsns, shard

    def outcome(self, append_id: AppendId, timeout: float | None = None) -> Sequence[int | None]:
        found: list[int | None] = self.call(calls.Outcome(append_id), timeout)
        return found

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        try:
            record: LogRecord = self.call(calls.Read(gsn, shard), timeout)
        except TimeoutError as error:
            raise TimeoutError(f"record {gsn} was not appended within {timeout} seconds") from error
        return record

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        number = self.call(calls.Subscribe(gsn, None if tags is None else frozenset(tags)))
        return SimulatedSubscription(self, number)

    def trim(self, gsn: int) -> None:
        self.call(calls.Trim(gsn))

    def tail(self) -> int:
        tail: int = self.call(calls.Tail())
        return tail

    def oldest(self) -> int:
        oldest: int = self.call(calls.Oldest())
        return oldest

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        self.call(calls.SetPolicy(ByRecord(policy)))

    def view(self) -> View:
        shards = self._shards()
        final = frozenset(shard for shard, config in shards.items() if config.state is ShardState.FINALIZED)
        return View(frozenset(shards) - final, final)

    def _shards(self) -> dict[int, ConfiguredShard]:
        return {config.shard: config for config in self.call(calls.View()).shards}

    def close(self) -> None:
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    # ---- changes

    def add_shard(self) -> int:
        shard: int = self.call(calls.Reconfigure(calls.AddShard(())))
        return shard

    def finalize_shard(self, shard: int, grace: int = 0) -> None:
        self.call(calls.Reconfigure(calls.FinalizeShard(shard, grace)))

    def replace_server(self, server: int) -> int:
        new: int = self.call(calls.Reconfigure(calls.ReplaceServer(server, 0)))
        return new

    def add_replica(self, shard: int) -> int:
        new: int = self.call(calls.Reconfigure(calls.AddReplica(shard, 0)))
        return new

    def set_cut_interval(self, seconds: float) -> None:
        self.call(calls.Reconfigure(calls.SetCutInterval(round(seconds * SECOND))))

    def members(self, shard: int) -> tuple[int, ...]:
        config = self._shards().get(shard)
        if config is None:
            raise NotOfThisShard(0, shard)
        return tuple(member.server for member in config.members)


class SimulatedSubscription:
    """A subscription of the client."""

    def __init__(self, log: SimulatedLog, number: int) -> None:
        self._log, self._number = log, number

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.poll(None)
        assert batch is not None
        return batch

    def poll(self, timeout: float | None) -> Batch | None:
        batch: Batch | None = self._log.call(calls.Next(self._number), timeout)
        return batch

    def close(self) -> None:
        self._log.call(calls.Close(self._number))
