"""The verbs of a cluster's log, each written once: the request that it makes, and its result.

`BlockingLog` has them for threads, `AwaitedLog` for coroutines; a subclass sends the requests to a client core.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from logdb.cores.effects import SECOND
from logdb.errors import AccessDenied
from logdb.log import requests as calls
from logdb.log.contract import (
    GENESIS,
    RECENT,
    AppendId,
    Batch,
    LogRecord,
    NotOfThisShard,
    Record,
    ShardPolicy,
    View,
    first_position,
)
from logdb.log.policies import ByRecord
from logdb.log.requests import END, MAX_STREAMS, Configuration, ShardState
from logdb.store.arguments import checked_wait
from logdb.wire.limits import check_record

P = ParamSpec("P")
T = TypeVar("T")


class Exchange(NamedTuple, Generic[T]):
    """A request of `logdb.log.requests`, and the function that makes the verb's result of its answer.

    `timeout`: seconds; None: that of the log, or none if the verb `waits` for something to happen. `late`: the message
    of its TimeoutError.
    """

    request: Any
    result: Callable[[Any], T]
    timeout: float | None = None
    waits: bool = False
    late: str = ""


def _same(answer: Any) -> Any:
    return answer


def _no_result(answer: Any) -> None:
    return None


# ---- the verbs


def append(records: Sequence[Record], after: int | None = None) -> Exchange[Sequence[int]]:
    """The GSNs of the records, once they are durable and ordered; `after`: as of `Log.append`. Raises Unavailable,
    AppendUnknown, TooLargeToSend."""
    return Exchange(calls.Append(_checked(records), after=after), lambda answer: answer.gsns)


def append_to_shard(
    records: Sequence[Record], shard: int, after: int | None = None
) -> Exchange[tuple[Sequence[int], int]]:
    """As `append`, on this shard. Raises NotOfThisShard as well."""
    return Exchange(calls.Append(_checked(records), shard, after=after), lambda answer: (answer.gsns, shard))


def append_to_streams(records: Sequence[Record], streams: Collection[int]) -> Exchange[Sequence[int]]:
    """As `append`; the `records` belong to these `streams`, 1 to 16 numbers from 1 on. Raises ValueError as well."""
    checked = tuple(sorted(set(streams)))
    if not checked or len(checked) > MAX_STREAMS or not all(0 < stream <= END for stream in checked):
        raise ValueError(f"records belong to 1 to {MAX_STREAMS} streams, which have numbers from 1 on: {checked}")
    return Exchange(calls.Append(_checked(records), streams=checked), lambda answer: answer.gsns)


def read_stream(stream: int, gsn: int = 1, timeout: float | None = None) -> Exchange[Batch]:
    """The records of `stream` from `gsn` on: all that were in it when this was called, if the batch has room for them.
    The next ones are at its `end` or behind. `timeout`: seconds, None: that of the log. Raises Trimmed, Corruption,
    TimeoutError, Unavailable."""
    return Exchange(calls.ReadStream(stream, max(1, gsn)), _same, timeout)


def outcome(append_id: AppendId, timeout: float | None = None) -> Exchange[Sequence[int | None]]:
    """The outcome of an append that was `AppendUnknown`: the GSN of each record; None: it is not in the log, and never
    will be. Raises TypeError."""
    if not isinstance(append_id, AppendId):
        raise TypeError(f"append_id must be an AppendId, not {type(append_id).__name__}")
    return Exchange(calls.Outcome(append_id), _same, timeout)


def read_record(gsn: int, shard: int, timeout: float | None = None) -> Exchange[LogRecord]:
    """The record, once there is one. `timeout`: seconds, None: wait. Raises Trimmed, NotOfThisShard, Corruption,
    TimeoutError."""
    late = f"record {gsn} was not appended within {timeout} seconds"
    return Exchange(calls.Read(gsn, shard), _same, timeout, waits=True, late=late)


def subscribe(gsn: int, tags: Collection[int] | None = None) -> Exchange[int]:
    """The number of a subscription to every record from `gsn` on, or to those of these tags. Raises Trimmed."""
    return Exchange(calls.Subscribe(gsn, None if tags is None else frozenset(tags)), _same, waits=True)


def trim(gsn: int) -> Exchange[None]:
    """Allow records before `gsn` to be removed. Raises ValueError past the tail."""
    return Exchange(calls.Trim(gsn), _no_result)


def tail() -> Exchange[int]:
    """A GSN at or after every append that had returned."""
    return Exchange(calls.Tail(), _same)


def oldest() -> Exchange[int]:
    """The oldest GSN that can be read."""
    return Exchange(calls.Oldest(), _same)


def last_at_time(time: int) -> Exchange[int]:
    """The newest GSN that was ordered at `time` (ns since the epoch) or before."""
    return Exchange(calls.AtTime(time), _same)


def set_shard_policy(policy: ShardPolicy) -> Exchange[None]:
    """Set the policy that chooses the shard of each record of `append`. The client's event loop calls it. Raises
    TypeError."""
    if not callable(policy):
        raise TypeError(f"policy must be a function of a record, not {type(policy).__name__}")
    return Exchange(calls.SetPolicy(ByRecord(policy)), _no_result, waits=True)


def configuration() -> Exchange[Configuration]:
    """Shards, servers, aggregators and spares, with every change that had returned."""
    return Exchange(calls.View(), _same)


def view() -> Exchange[View]:
    """The shards that take appends, and those that are finalized."""
    return Exchange(calls.View(), _view_of)


def reconfigure(change: Any) -> Exchange[int]:
    """Carry out a change, once. Returns its result. Raises Unavailable, LogFailed."""
    return Exchange(calls.Reconfigure(change), _same)


def add_shard() -> Exchange[int]:
    """Add a shard of spare servers; returns its number."""
    return reconfigure(calls.AddShard(()))


def add_stream_shard() -> Exchange[int]:
    """Add a shard of stream replicas, of spare servers; returns its number. From now on the streams are on all of them.
    Raises Unavailable if the engine cannot do this."""
    return reconfigure(calls.AddStreamShard(()))


def finalize_shard(shard: int, grace: int = 0) -> Exchange[None]:
    """Make a shard read-only after `grace` more cuts."""
    return Exchange(calls.Reconfigure(calls.FinalizeShard(shard, grace)), _no_result)


def replace_server(server: int) -> Exchange[int]:
    """Replace a server by a spare one; returns the number of the new server."""
    return reconfigure(calls.ReplaceServer(server, 0))


def add_replica(shard: int) -> Exchange[int]:
    """Add a server to a finalized shard; returns its number."""
    return reconfigure(calls.AddReplica(shard, 0))


def set_cut_interval(seconds: float) -> Exchange[None]:
    """Set the minimum interval between two ordering decisions."""
    return Exchange(calls.Reconfigure(calls.SetCutInterval(round(seconds * SECOND))), _no_result)


def trim_records(gsns: Collection[int]) -> Exchange[None]:
    """Allow the records with these `gsns` to be removed. Raises ValueError for one behind the tail, Unavailable if the
    engine cannot do this, LogFailed."""
    return Exchange(calls.Reconfigure(calls.TrimRecords(tuple(gsns))), _no_result)


def members(shard: int) -> Exchange[tuple[int, ...]]:
    """The servers of a shard. Raises NotOfThisShard."""

    def members_of(found: Configuration) -> tuple[int, ...]:
        for config in found.shards:
            if config.shard == shard:
                return tuple([member.server for member in config.members])
        raise NotOfThisShard(0, shard)

    return Exchange(calls.View(), members_of)


def _checked(records: Iterable[Record]) -> Sequence[Record]:
    """Raises TypeError, ValueError, TooLargeToSend."""
    checked = tuple(records)
    for tag, payload in checked:
        if not isinstance(tag, int) or not isinstance(payload, bytes):
            kinds = f"({type(tag).__name__}, {type(payload).__name__})"
            raise TypeError(f"a record is a pair of its tag and its payload, (int, bytes), not {kinds}")
        if not 0 < tag < 256:
            raise ValueError(f"the tag of a record is a number from 1 to 255, not {tag}")
        check_record(len(payload))
    return checked


def _view_of(found: Configuration) -> View:
    final = frozenset(config.shard for config in found.shards if config.state is ShardState.FINALIZED)
    return View(frozenset(config.shard for config in found.shards) - final, final)


# ---- for threads


def _blocking(verb: Callable[P, Exchange[T]]) -> Callable[Concatenate[BlockingLog, P], T]:
    @wraps(verb)
    def called(self: BlockingLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        request, result, timeout, waits, late = verb(*args, **kwargs)
        try:
            return result(self.call(request, self.timeout if timeout is None and not waits else checked_wait(timeout)))
        except TimeoutError as error:
            if late:
                raise TimeoutError(late) from error
            raise

    return called


class BlockingLog(ABC):
    """The verbs of `logdb.log.contract.Reconfigurable` over `call`, for threads. `timeout`: see `RemoteLog`."""

    timeout: float | None = None

    @abstractmethod
    def call(self, request: Any, timeout: float | None = None) -> Any:
        """The answer to a request of `logdb.log.requests`; raises it if it is an exception."""

    append = _blocking(append)
    append_to_shard = _blocking(append_to_shard)
    append_to_streams = _blocking(append_to_streams)
    read_stream = _blocking(read_stream)
    outcome = _blocking(outcome)
    read_record = _blocking(read_record)
    trim = _blocking(trim)
    tail = _blocking(tail)
    oldest = _blocking(oldest)
    last_at_time = _blocking(last_at_time)
    set_shard_policy = _blocking(set_shard_policy)
    configuration = _blocking(configuration)
    view = _blocking(view)
    reconfigure = _blocking(reconfigure)
    add_shard = _blocking(add_shard)
    add_stream_shard = _blocking(add_stream_shard)
    finalize_shard = _blocking(finalize_shard)
    replace_server = _blocking(replace_server)
    add_replica = _blocking(add_replica)
    set_cut_interval = _blocking(set_cut_interval)
    trim_records = _blocking(trim_records)
    members = _blocking(members)
    _subscribe = _blocking(subscribe)

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> BlockingSubscription:
        """Every record from `gsn` on, or those of these tags; `GENESIS`: from the oldest one that is left; `RECENT`:
        those that are ordered from now on. Raises Trimmed."""
        first = first_position(gsn, self.oldest, self.tail)
        return BlockingSubscription(self, lambda end: self._subscribe(end or first, tags))


class BlockingSubscription:
    """An endless iterator of batches, which waits at the end of the log. `begin`: opens it, after the batch that ends
    there (0: before the first one), and returns its number."""

    def __init__(self, log: BlockingLog, begin: Callable[[int], int]) -> None:
        self._log, self._begin = log, begin
        self._number = begin(0)
        self._end = 0
        self._is_interrupted = self._closed = False

    def poll(self, timeout: float | None) -> Batch | None:
        """The next batch; None if there was none in time. Raises Trimmed, Corruption; StopIteration after close."""
        if self._is_interrupted and not self._closed:
            self._log.call(calls.Close(self._number))
            self._number = self._begin(self._end)
            self._is_interrupted = False
        try:
            batch: Batch | None = self._log.call(calls.Next(self._number), checked_wait(timeout))
        except Exception as error:
            self._is_interrupted = isinstance(error, AccessDenied)
            raise
        except BaseException:  # Ctrl-C: as after AccessDenied, the core goes on, and the batch is lost
            self._is_interrupted = True
            raise
        if batch is not None:
            self._end = batch.end
        return batch

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.poll(None)
        assert batch is not None
        return batch

    def close(self) -> None:
        """End it; a waiting `poll` raises StopIteration."""
        self._closed = True
        self._log.call(calls.Close(self._number))


# ---- for coroutines


def _awaited(verb: Callable[P, Exchange[T]]) -> Callable[Concatenate[AwaitedLog, P], Coroutine[Any, Any, T]]:
    @wraps(verb)
    async def called(self: AwaitedLog, /, *args: P.args, **kwargs: P.kwargs) -> T:
        request, result, timeout, waits, late = verb(*args, **kwargs)
        try:
            return result(
                await self.call(request, self.timeout if timeout is None and not waits else checked_wait(timeout))
            )
        except TimeoutError as error:
            if late:
                raise TimeoutError(late) from error
            raise

    return called


class AwaitedLog(ABC):
    """The verbs of `logdb.log.contract.Reconfigurable` over `answer`, to be awaited. `timeout`: see `RemoteLog`."""

    timeout: float | None = None

    @abstractmethod
    async def answer(self, request: Any, timeout: float | None = None) -> Any:
        """The answer to a request of `logdb.log.requests`, which may be an exception."""

    async def call(self, request: Any, timeout: float | None = None) -> Any:
        """As `answer`, but an exception is raised."""
        answer = await self.answer(request, timeout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    append = _awaited(append)
    append_to_shard = _awaited(append_to_shard)
    append_to_streams = _awaited(append_to_streams)
    read_stream = _awaited(read_stream)
    outcome = _awaited(outcome)
    read_record = _awaited(read_record)
    trim = _awaited(trim)
    tail = _awaited(tail)
    oldest = _awaited(oldest)
    last_at_time = _awaited(last_at_time)
    set_shard_policy = _awaited(set_shard_policy)
    configuration = _awaited(configuration)
    view = _awaited(view)
    reconfigure = _awaited(reconfigure)
    add_shard = _awaited(add_shard)
    add_stream_shard = _awaited(add_stream_shard)
    finalize_shard = _awaited(finalize_shard)
    replace_server = _awaited(replace_server)
    add_replica = _awaited(add_replica)
    set_cut_interval = _awaited(set_cut_interval)
    trim_records = _awaited(trim_records)
    members = _awaited(members)
    _subscribe = _awaited(subscribe)

    async def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> AwaitedSubscription:
        """Every record from `gsn` on, or those of these tags; `GENESIS`: from the oldest one that is left; `RECENT`:
        those that are ordered from now on. Raises Trimmed."""
        if gsn == GENESIS:
            gsn = await self.oldest()
        elif gsn == RECENT:
            gsn = await self.tail() + 1
        number = await self._subscribe(gsn, tags)
        return AwaitedSubscription(self, number, lambda end: self._subscribe(end or gsn, tags))


class AwaitedSubscription:
    """An endless asynchronous iterator of batches, which waits at the end of the log. `begin`: as of
    `BlockingSubscription`."""

    def __init__(self, log: AwaitedLog, number: int, begin: Callable[[int], Awaitable[int]]) -> None:
        self._log, self._number, self._begin = log, number, begin
        self._requested: deque[asyncio.Future[Any]] = deque()
        self._end = 0
        self._is_denied = self._closed = False

    async def poll(self, timeout: float | None) -> Batch | None:
        """The next batch; None if there was none in time. Raises Trimmed, Corruption; StopAsyncIteration if closed."""
        wait_s, requested = checked_wait(timeout), self._requested
        if self._is_denied and not self._closed:
            await self._log.call(calls.Close(self._number))
            self._number = await self._begin(self._end)
            self._is_denied = False
        batch = requested.popleft() if requested else asyncio.ensure_future(self._log.answer(calls.Next(self._number)))
        try:
            done, _ = await asyncio.wait((batch,), timeout=wait_s)
        except asyncio.CancelledError:
            requested.append(batch)  # it comes all the same, and is that of the next poll
            raise
        if not done:
            requested.append(batch)
            return None
        answer = batch.result()
        if isinstance(answer, StopIteration):
            raise StopAsyncIteration
        if isinstance(answer, Exception):
            self._is_denied = isinstance(answer, AccessDenied)  # the core goes on, and the batch is lost
            raise answer
        found: Batch = answer
        self._end = found.end
        return found

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await self.poll(None)
        assert batch is not None
        return batch

    async def close(self) -> None:
        """End it; a waiting `poll` raises StopAsyncIteration."""
        self._closed = True
        await self._log.call(calls.Close(self._number))
