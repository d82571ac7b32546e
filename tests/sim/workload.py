"""The applications: they append, read, subscribe, request the tail, trim, and request a point in time.

Each client process has an `Application`, which makes calls at random intervals, a few at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from logdb.cores.effects import MILLISECOND, Answer
from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendUnknown, Batch, LogRecord, NotOfThisShard, Record, Trimmed
from logdb.log.engine import all_engines
from logdb.log.policies import Anywhere, ByRecord, Fixed, Nearest
from tests.sim.history import KILLED, SCATTERED, Following, History, Operation
from tests.sim.limits import RECORD_BYTES
from tests.sim.process import Process
from tests.sim.world import Failure, World

WEIGHTS = {
    "append": 40,
    "append to a shard": 15,
    "append with a deadline": 8,
    "outcome": 6,
    "outcome of another client's append": 4,
    "read": 20,
    "read ahead": 4,
    "read of a wrong shard": 3,
    "subscribe": 6,
    "subscribe with tags": 5,
    "close a subscription": 3,
    "tail": 10,
    "trim": 4,
    "time": 4,
    "view": 3,
    "oldest": 2,
    "policy": 4,
}
"""The kinds of calls, and their relative frequency. A seed uses some of them."""


class ByTag:
    """The shard of a record is that of its tag. (A class, since the repr of a function contains its address.)"""

    def __call__(self, record: Record) -> int:
        return 1 + record[0] % 3

    def __repr__(self) -> str:
        return "by tag"


BY_TAG = ByTag()


@dataclass(frozen=True, slots=True)
class Load:
    """`think_ns`: mean time between two calls of an application. `records`, `bytes`: of the largest batch.
    `is_dense`: GSNs follow each other without gaps. `large`: the share of records of up to `limits.RECORD_BYTES`."""

    doing: tuple[str, ...]
    think_ns: int = 5 * MILLISECOND
    under_way: int = 4
    records: int = 5
    bytes: int = 60
    subscriptions: int = 2
    is_dense: bool = True
    large: float = 0.0


class Application:
    """Drives one client process. `stopping`: no new calls except those that continue subscriptions."""

    def __init__(self, world: World, process: Process, load: Load, history: History) -> None:
        self.world, self.process, self.load, self.history = world, process, load, history
        self.draw = world.draw(f"application {process.address}")
        self.open: dict[int, tuple[str, Operation]] = {}
        self.following: dict[int, Following] = {}
        self.stopping = False
        self.busy = 0
        self._calls = 0
        self._weights = [WEIGHTS[what] for what in load.doing]
        self._acknowledged: list[tuple[int, int, Record]] = []
        self._scattered: str | None = None
        process.on_answer = self.answered
        world.after(int(load.think_ns * self.draw.random()), self._act)

    # ---- acting

    def _act(self, _: None) -> None:
        if self.stopping:
            return
        if self.process.core is not None and self.busy < self.load.under_way:
            (what,) = self.draw.choices(self.load.doing, self._weights)
            self.world.counts[what] += 1
            self.DO[what](self)
        self.world.after(int(self.draw.expovariate(1) * self.load.think_ns) + 1, self._act)

    def put(self, kind: str, request: Any, reads: Any = None) -> None:
        """Make a call. The method `_<kind>_done` handles its result."""
        self._calls += 1
        operation = self.history.invoke(request, self.process.address)
        operation.reads = reads
        self.open[self._calls] = (kind, operation)
        if kind != "next":
            self.busy += 1
        self.process.call(self._calls, request)

    def records(self) -> list[Record]:
        """A batch of records whose payloads are unique."""
        draw = self.draw
        batch = []
        for number in range(draw.choice((1, 1, 1, 2, self.load.records))):
            name = f"{self.process.address}/{self.process.lives}/{self._calls}/{number}/"
            tag = draw.randint(1, 4)
            is_large = self.load.large and draw.random() < self.load.large
            size = draw.randint(0, RECORD_BYTES if is_large else self.load.bytes)
            batch.append((tag, name.encode().ljust(size, b"x")))
        return batch

    def append(self) -> None:
        """Append to any shard, without a deadline."""
        self.put("append", calls.Append(self.records()), self._scattered)

    def _append_by_deadline(self) -> None:
        deadline = self.process.now + int(self.draw.random() * 100 * MILLISECOND)
        self.put("append", calls.Append(self.records(), None, deadline), self._scattered)

    def _append_to_shard(self) -> None:
        self.put("append", calls.Append(self.records(), self.draw.randint(1, 4)))

    def _outcome(self) -> None:
        """Request the outcome of an unknown append, from the client that made it if it is still running."""
        core: Any = self.process.core
        mine = [one for one in self._unknown() if one.result.append_id.client == core.number]
        if mine:
            operation = self.draw.choice(mine)
            self.put("outcome", calls.Outcome(operation.result.append_id), operation)

    def _outcome_of_another(self) -> None:
        if unknown := self._unknown():
            operation = self.draw.choice(unknown)
            deadline = self.process.now + int(self.draw.random() * 400 * MILLISECOND)
            self.put("outcome", calls.Outcome(operation.result.append_id, deadline), operation)

    def _unknown(self) -> list[Operation]:
        appends = (one for one in self.history.operations if type(one.request) is calls.Append)
        return [one for one in appends if isinstance(one.result, AppendUnknown)]

    def _read(self) -> None:
        if self._acknowledged:
            gsn, shard, record = self.draw.choice(self._acknowledged)
            self.put("read", calls.Read(gsn, shard), record)

    def _read_ahead(self) -> None:
        gsn = max((gsn for gsn, _, _ in self._acknowledged), default=0) + self.draw.randint(1, 10)
        deadline = self.process.now + int(self.draw.random() * 200 * MILLISECOND)
        self.put("read", calls.Read(gsn, self.draw.randint(1, 3), deadline))

    def _read_wrong(self) -> None:
        if self._acknowledged:
            gsn, shard, _ = self.draw.choice(self._acknowledged)
            self.put("read", calls.Read(gsn, shard + 1), "wrong")

    def _subscribe(self, tags: frozenset[int] | None = None) -> None:
        if len(self.following) < self.load.subscriptions:
            known = [gsn for gsn, _, _ in self._acknowledged] or [1]
            start = self.draw.choice((1, self.draw.choice(known), max(known) + self.draw.randint(0, 5)))
            self.put("subscribe", calls.Subscribe(start, tags))

    def _subscribe_tags(self) -> None:
        self._subscribe(frozenset(self.draw.sample((1, 2, 3, 4), self.draw.randint(1, 3))))

    def _close(self) -> None:
        if self.following:
            self.put("close", calls.Close(self.draw.choice(list(self.following))))

    def _tail(self) -> None:
        self.put("tail", calls.Tail())

    def _trim(self) -> None:
        if self._acknowledged:
            newest = self._acknowledged[-3:] if self.draw.random() < 0.3 else self._acknowledged
            gsn = self.draw.choice(newest)[0]
            self.history.highest_trim = max(self.history.highest_trim, gsn)
            self.put("trim", calls.Trim(gsn))

    def _time(self) -> None:
        self.put("time", calls.AtTime(self.world.now - int(self.draw.random() * 300 * MILLISECOND)))

    def _view(self) -> None:
        self.put("view", calls.View())

    def _oldest(self) -> None:
        self.put("oldest", calls.Oldest())

    def _policy(self) -> None:
        policies = (Anywhere(), Nearest(), Fixed(self.draw.randint(1, 3)), ByRecord(BY_TAG))
        policy = self.draw.choice(policies)
        self._scattered = SCATTERED if isinstance(policy, ByRecord) else None
        if self._scattered:  # appends that wait in the client included
            for kind, operation in self.open.values():
                if kind == "append":
                    operation.reads = SCATTERED
        self.put("policy", calls.SetPolicy(policy))

    DO: ClassVar[dict[str, Callable[[Application], None]]] = {
        "append": append,
        "append to a shard": _append_to_shard,
        "append with a deadline": _append_by_deadline,
        "outcome": _outcome,
        "outcome of another client's append": _outcome_of_another,
        "read": _read,
        "read ahead": _read_ahead,
        "read of a wrong shard": _read_wrong,
        "subscribe": _subscribe,
        "subscribe with tags": _subscribe_tags,
        "close a subscription": _close,
        "tail": _tail,
        "trim": _trim,
        "time": _time,
        "view": _view,
        "oldest": _oldest,
        "policy": _policy,
    }

    # ---- answers

    def answered(self, answer: Answer) -> None:
        """A call was answered."""
        kind, operation = self.open.pop(answer.call)
        self.history.complete(operation, answer.result)
        if kind != "next":
            self.busy -= 1
        expected, _ = ANSWERS[kind]
        if not isinstance(answer.result, expected):
            raise Failure("an answer has a type that its call allows", f"{operation.request!r}: {answer.result!r}")
        if isinstance(answer.result, Exception):
            self.world.counts[f"returned {type(answer.result).__name__}"] += 1
        done = ANSWERS[kind][1]
        if done is not None:
            done(self, operation, answer.result)

    def _append_done(self, operation: Operation, result: Any) -> None:
        if isinstance(result, calls.AppendResult):
            records = operation.request.records
            if not len(result.gsns) == len(result.shards) == len(records):
                raise Failure("an append is answered for each of its records", f"{operation!r}")
            self._acknowledged += zip(result.gsns, result.shards, records, strict=True)

    def _subscribe_done(self, operation: Operation, result: Any) -> None:
        if isinstance(result, int):
            request = operation.request
            following = Following(self.process.address, request.gsn, request.tags, request.gsn)
            self.history.followings.append(following)
            self.following[result] = following
            self._next(result)

    def _next(self, subscription: int) -> None:
        deadline = None if self.draw.random() < 0.7 else self.process.now + int(self.draw.random() * 50 * MILLISECOND)
        self.put("next", calls.Next(subscription, deadline))
        if self._calls % 2 and self.process.core is not None:
            self.put("expedite", calls.Expedite(subscription))

    def _next_done(self, operation: Operation, result: Any) -> None:
        subscription = operation.request.subscription
        following = self.following.get(subscription)
        if following is None:
            return
        if isinstance(result, Exception):
            following.ended = result
            del self.following[subscription]
            if isinstance(result, Trimmed) and not self.stopping:
                self.put("close", calls.Close(subscription))
            return
        if result is not None:
            if result.first != following.reached or result.end < result.first:
                raise Failure("the next batch begins where the last one ended", f"{following!r}: {result!r}")
            gsn = result.first - 1
            for record in result.records:
                if not gsn < record.gsn < result.end:
                    raise Failure("a batch is in order", f"{result!r}")
                gsn = record.gsn
                following.records.append((gsn, record.time, (record.tag, record.payload)))
            if self.load.is_dense and following.tags is None and len(result.records) != result.end - result.first:
                raise Failure("GSNs are dense", f"a batch without them: {result!r}")
            following.trimmed.update(result.trimmed)
            following.reached = result.end
        self._next(subscription)

    def _read_stream_done(self, operation: Operation, result: Any) -> None:
        if isinstance(result, Batch):
            request = operation.request
            gsns = [record.gsn for record in result.records]
            if (
                result.first != request.gsn
                or gsns != sorted(set(gsns))
                or not all(result.first <= gsn < result.end for gsn in gsns)
            ):
                raise Failure("a batch of a stream is in order", f"{request!r}: {result!r}")
            operation.reads[request.stream] = result.end

    def _close_done(self, operation: Operation, result: Any) -> None:
        following = self.following.pop(operation.request.subscription, None)
        if following is not None:
            following.ended = "closed"

    # ---- end of the process

    def killed(self) -> None:
        """Its process was killed: the results of its open calls are lost."""
        for _, operation in self.open.values():
            self.history.complete(operation, KILLED)
        self.open.clear()
        self.busy = 0
        self._scattered = None
        for following in self.following.values():
            following.ended = KILLED
        self.following.clear()


Done = Any
Viewed = tuple(type(engine.operations.empty_configuration) for engine in all_engines())
"""The types of configurations of clusters."""
ANSWERS: dict[str, tuple[Any, Done]] = {
    "append": ((calls.AppendResult, Unavailable, AppendUnknown, NotOfThisShard), Application._append_done),
    "outcome": ((list, AppendUnknown), None),
    "read": ((LogRecord, Trimmed, NotOfThisShard, TimeoutError), None),
    "read a stream": ((Batch, Trimmed), Application._read_stream_done),
    "subscribe": ((int, Trimmed), Application._subscribe_done),
    "next": ((Batch, type(None), Trimmed, StopIteration), Application._next_done),
    "expedite": ((type(None),), None),
    "close": ((type(None),), Application._close_done),
    "tail": ((int,), None),
    "trim": ((int, ValueError), None),
    "time": ((int,), None),
    "view": ((Viewed,), None),
    "oldest": ((int,), None),
    "policy": ((type(None),), None),
}
"""The results that each kind of call may have, and the method that handles them."""


def load_of(draw: random.Random) -> Load:
    """The load of a seed: a random part of all that applications do."""
    optional = [what for what in WEIGHTS if what != "append"]
    doing = ["append", *(what for what in optional if draw.random() < 0.7)]
    return Load(
        tuple(doing),
        think_ns=draw.choice((2, 5, 15)) * MILLISECOND,
        under_way=draw.choice((1, 4, 10)),
        records=draw.choice((2, 5, 30)),
        bytes=draw.choice((30, 60, 300)),
        subscriptions=draw.choice((1, 2, 4)),
    )
