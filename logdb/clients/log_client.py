"""The shared log of a cluster, for programs: `connect` for threads, `connect_async` for asyncio.

Beneath both is the client core of the log's engine, hosted in an event loop: the program's own, or the one of
`background_loop.py`. A call is put to the core, and its answer taken to whoever waits for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from concurrent import futures
from random import Random
from typing import Any, Final

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.core_client import HostedClient, Waiter, given, settle
from logdb.cores.effects import SECOND, Address, Journal
from logdb.errors import AccessDenied
from logdb.log import requests as calls
from logdb.log.contract import (
    AppendId,
    AppendUnknown,
    Batch,
    LogFailed,
    LogRecord,
    NotOfThisShard,
    Record,
    ShardPolicy,
    View,
)
from logdb.log.engine import LogClientCore, engine_of
from logdb.log.policies import ByRecord
from logdb.log.requests import ClientConfig, Configuration, ShardState
from logdb.node.host import Build
from logdb.security.credentials import NONE, AnyPath, Credentials, credentials
from logdb.security.record_permissions import check_kinds
from logdb.system.addresses import endpoints_of
from logdb.system.forking import own
from logdb.transport.dialling import Refused
from logdb.transport.discovery import client_hello, discover
from logdb.wire.envelopes import Hello
from logdb.wire.limits import check_record

TIMEOUT_S: Final = 30.0


class Connection(HostedClient):
    """The core of a log client in the loop that runs."""

    def __init__(self, node: Hello, credentials: Credentials) -> None:
        engine = engine_of(node.engine)

        def build(address: Address) -> Build:
            config = ClientConfig(address=address, ordering=node.ordering)

            def built(journals: Mapping[str, Journal], rng: Random) -> LogClientCore:
                self._core = engine.client(config, journals, rng)
                return self._core

            return built

        self.is_of_database = bool(node.mapping)
        super().__init__(node.cluster, engine, build, _over, credentials, node.right)

    def _ended(self, ended: asyncio.Future[Any]) -> None:
        """Who waits for an append is told by what to ask for it, elsewhere."""
        for call in list(self._waiting):
            if (append_id := self._core.append_id(call)) is not None:
                self._settle(call, AppendUnknown(str(_over(ended.exception())), append_id))
        super()._ended(ended)

    @classmethod
    async def open(cls, addresses: str | Sequence[str], timeout: float, credentials: Credentials = NONE) -> Connection:
        """Find the cluster. Raises Unavailable, AccessDenied, ValueError."""
        theirs = await discover(endpoints_of(addresses), client_hello(), timeout, credentials)
        if not theirs.ordering:
            raise Refused(f"the server at {theirs.address} belongs to no shared log")
        return cls(theirs, credentials)

    def put(self, request: Any, timeout: float | None, waiter: Waiter) -> None:
        """Put a call; nothing goes out that the servers of a database would not take."""
        if self.is_of_database and isinstance(request, calls.Append):
            try:
                check_kinds(request.records)
            except AccessDenied as error:
                settle(waiter, error)
                return
        super().put(request, timeout, waiter)


def _over(failure: BaseException | None) -> LogFailed:
    return LogFailed("the log is closed" if failure is None else f"the client has failed: {failure}")


def _check(records: Sequence[Record]) -> Sequence[Record]:
    """Raises TooLargeToSend."""
    if records:
        check_record(max([len(payload) for _, payload in records]))
    return records


def _as_view(view: Configuration) -> View:
    final = frozenset(config.shard for config in view.shards if config.state is ShardState.FINALIZED)
    return View(frozenset(config.shard for config in view.shards) - final, final)


def _members(view: Configuration, shard: int) -> tuple[int, ...]:
    for config in view.shards:
        if config.shard == shard:
            return tuple([member.server for member in config.members])
    raise NotOfThisShard(0, shard)


def _not_appended(gsn: int, timeout: float | None) -> TimeoutError:
    return TimeoutError(f"record {gsn} was not appended within {timeout} seconds")


# ---- asyncio


class AsyncRemoteLog:
    """The log of a cluster: the verbs of `logdb.log.contract.Reconfigurable`, to be awaited.

    `timeout` (seconds): of every call that does not wait for something to happen. One that it cuts short ends with
    TimeoutError or, when something may have been done, LogFailed.
    """

    def __init__(self, connection: Connection, timeout: float | None) -> None:
        self._connection, self._timeout = connection, timeout

    async def call(self, request: Any, timeout: float | None = None) -> Any:
        """What a request of `logdb.log.requests` comes to."""
        return given(await self.answer(request, timeout))

    async def answer(self, request: Any, timeout: float | None = None) -> Any:
        """The same; an exception is returned, not raised."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._connection.put(request, timeout, waiter)
        return await waiter

    async def append(self, records: Sequence[Record], after: int | None = None) -> Sequence[int]:
        """The GSNs of the records, once they are durable and ordered; `after`: as of `Log.append`. Raises Unavailable,
        AppendUnknown, TooLargeToSend."""
        gsns: list[int] = (await self.call(calls.Append(_check(records), after=after), self._timeout)).gsns
        return gsns

    async def append_to_shard(
        self, records: Sequence[Record], shard: int, after: int | None = None
    ) -> tuple[Sequence[int], int]:
        """The same on this shard. Raises NotOfThisShard as well."""
        return (await self.call(calls.Append(_check(records), shard, after=after), self._timeout)).gsns, shard

    async def outcome(self, append_id: AppendId, timeout: float | None = None) -> Sequence[int | None]:
        """What became of an append that was `AppendUnknown`: of each record its GSN, None: never in the log."""
        timeout = self._timeout if timeout is None else timeout
        gsns: list[int | None] = await self.call(calls.Outcome(append_id), timeout)
        return gsns

    async def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        """The record, once there is one. Raises Trimmed, NotOfThisShard, Corruption, TimeoutError."""
        try:
            record: LogRecord = await self.call(calls.Read(gsn, shard), timeout)
        except TimeoutError as error:
            raise _not_appended(gsn, timeout) from error
        return record

    async def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> AsyncRemoteSubscription:
        """Every record from `gsn` on, or those of these tags. Raises Trimmed."""
        number = await self.call(calls.Subscribe(gsn, None if tags is None else frozenset(tags)))
        return AsyncRemoteSubscription(self, number)

    async def trim(self, gsn: int) -> None:
        """Records before `gsn` may go. Raises ValueError past the tail."""
        await self.call(calls.Trim(gsn), self._timeout)

    async def tail(self) -> int:
        """A GSN at or after every append that had returned."""
        tail: int = await self.call(calls.Tail(), self._timeout)
        return tail

    async def oldest(self) -> int:
        """The oldest GSN that can be read."""
        oldest: int = await self.call(calls.Oldest(), self._timeout)
        return oldest

    async def last_at_time(self, time: int) -> int:
        """The newest GSN that was ordered at `time` (ns since the epoch) or before."""
        gsn: int = await self.call(calls.AtTime(time), self._timeout)
        return gsn

    async def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Which shard the records of `append` go to."""
        await self.call(calls.SetPolicy(ByRecord(policy)))

    async def configuration(self) -> Configuration:
        """Shards, servers, aggregators and spares, with every change that had returned."""
        view: Configuration = await self.call(calls.View(), self._timeout)
        return view

    async def view(self) -> View:
        """The shards that take appends, and those that are finalized."""
        return _as_view(await self.configuration())

    async def reconfigure(self, change: Any) -> int:
        """Have a change carried out, once. Returns its result. Raises Unavailable, LogFailed."""
        result: int = await self.call(calls.Reconfigure(change), self._timeout)
        return result

    async def add_shard(self) -> int:
        """A new shard of spare servers."""
        return await self.reconfigure(calls.AddShard(()))

    async def finalize_shard(self, shard: int, grace: int = 0) -> None:
        """Have a shard take no appends any more, after `grace` more cuts."""
        await self.reconfigure(calls.FinalizeShard(shard, grace))

    async def replace_server(self, server: int) -> int:
        """Put a spare server in the place of this one. Returns its number."""
        return await self.reconfigure(calls.ReplaceServer(server, 0))

    async def add_replica(self, shard: int) -> int:
        """One more server for a finalized shard. Returns its number."""
        return await self.reconfigure(calls.AddReplica(shard, 0))

    async def set_cut_interval(self, seconds: float) -> None:
        """Order new records only every so many seconds."""
        await self.reconfigure(calls.SetCutInterval(round(seconds * SECOND)))

    async def members(self, shard: int) -> tuple[int, ...]:
        """The servers of a shard. Raises NotOfThisShard."""
        return _members(await self.configuration(), shard)

    async def close(self) -> None:
        """Leave the cluster. Waiting calls end with LogFailed."""
        await self._connection.close()

    async def __aenter__(self) -> AsyncRemoteLog:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class AsyncRemoteSubscription:
    """An endless iterator of batches, which waits at the end of the log."""

    def __init__(self, log: AsyncRemoteLog, number: int) -> None:
        self._log, self._number = log, number

    async def poll(self, timeout: float | None) -> Batch | None:
        """The next batch; None if there was none in time. Raises Trimmed, Corruption; StopAsyncIteration if closed."""
        answer = await self._log.answer(calls.Next(self._number), timeout)
        if isinstance(answer, StopIteration):
            raise StopAsyncIteration
        batch: Batch | None = given(answer)
        return batch

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        batch = await self.poll(None)
        assert batch is not None
        return batch

    async def close(self) -> None:
        """End it; who waits in it hears so."""
        await self._log.call(calls.Close(self._number))


async def connect_async(
    addresses: str | Sequence[str],
    *,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> AsyncRemoteLog:
    """As `logdb.log.connect`, for asyncio: the methods of the log are coroutines."""
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    return AsyncRemoteLog(await Connection.open(addresses, TIMEOUT_S if timeout is None else timeout, shown), timeout)


# ---- threads


class RemoteLog:
    """The log of a cluster, as `logdb.log.contract.Reconfigurable` says, for any number of threads."""

    def __init__(self, connection: Connection, timeout: float | None) -> None:
        self._connection, self._timeout = connection, timeout
        self._closing = threading.Lock()
        self._closed = False
        own(self)

    def disown(self, parent: int) -> None:
        """In a child of fork(). The connection is disowned on its own."""
        self._closing, self._closed = threading.Lock(), True

    @property
    def is_of_database(self) -> bool:
        """Whether there are mapping servers: then programs append transactions and their values, and nothing else."""
        return self._connection.is_of_database

    def require(self, kind: type) -> None:
        """Raises AccessDenied if the servers do not let this client make requests of that kind."""
        self._connection.require(kind)

    def call(self, request: Any, timeout: float | None = None) -> Any:
        """What a request of `logdb.log.requests` comes to."""
        waiter: futures.Future[Any] = futures.Future()
        self._connection.put_from_thread(request, timeout, waiter)
        return given(waiter.result())

    def append(self, records: Sequence[Record], after: int | None = None) -> Sequence[int]:
        """The GSNs of the records, once they are durable and ordered; `after`: as of `Log.append`. Raises Unavailable,
        AppendUnknown, TooLargeToSend."""
        gsns: list[int] = self.call(calls.Append(_check(records), after=after), self._timeout).gsns
        return gsns

    def append_to_shard(
        self, records: Sequence[Record], shard: int, after: int | None = None
    ) -> tuple[Sequence[int], int]:
        """The same on this shard. Raises NotOfThisShard as well."""
        return self.call(calls.Append(_check(records), shard, after=after), self._timeout).gsns, shard

    def outcome(self, append_id: AppendId, timeout: float | None = None) -> Sequence[int | None]:
        """What became of an append that was `AppendUnknown`: of each record its GSN, None: never in the log."""
        timeout = self._timeout if timeout is None else timeout
        gsns: list[int | None] = self.call(calls.Outcome(append_id), timeout)
        return gsns

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        """The record, once there is one. Raises Trimmed, NotOfThisShard, Corruption, TimeoutError."""
        try:
            record: LogRecord = self.call(calls.Read(gsn, shard), timeout)
        except TimeoutError as error:
            raise _not_appended(gsn, timeout) from error
        return record

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> RemoteSubscription:
        """Every record from `gsn` on, or those of these tags. Raises Trimmed."""
        return RemoteSubscription(self, self.call(calls.Subscribe(gsn, None if tags is None else frozenset(tags))))

    def trim(self, gsn: int) -> None:
        """Records before `gsn` may go. Raises ValueError past the tail."""
        self.call(calls.Trim(gsn), self._timeout)

    def tail(self) -> int:
        """A GSN at or after every append that had returned."""
        tail: int = self.call(calls.Tail(), self._timeout)
        return tail

    def oldest(self) -> int:
        """The oldest GSN that can be read."""
        oldest: int = self.call(calls.Oldest(), self._timeout)
        return oldest

    def last_at_time(self, time: int) -> int:
        """The newest GSN that was ordered at `time` (ns since the epoch) or before."""
        gsn: int = self.call(calls.AtTime(time), self._timeout)
        return gsn

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Which shard the records of `append` go to. It is called in another thread."""
        self.call(calls.SetPolicy(ByRecord(policy)))

    def configuration(self) -> Configuration:
        """Shards, servers, aggregators and spares, with every change that had returned."""
        view: Configuration = self.call(calls.View(), self._timeout)
        return view

    def view(self) -> View:
        """The shards that take appends, and those that are finalized."""
        return _as_view(self.configuration())

    def reconfigure(self, change: Any) -> int:
        """Have a change carried out, once. Returns its result. Raises Unavailable, LogFailed."""
        result: int = self.call(calls.Reconfigure(change), self._timeout)
        return result

    def add_shard(self) -> int:
        """A new shard of spare servers."""
        return self.reconfigure(calls.AddShard(()))

    def finalize_shard(self, shard: int, grace: int = 0) -> None:
        """Have a shard take no appends any more, after `grace` more cuts."""
        self.reconfigure(calls.FinalizeShard(shard, grace))

    def replace_server(self, server: int) -> int:
        """Put a spare server in the place of this one. Returns its number."""
        return self.reconfigure(calls.ReplaceServer(server, 0))

    def add_replica(self, shard: int) -> int:
        """One more server for a finalized shard. Returns its number."""
        return self.reconfigure(calls.AddReplica(shard, 0))

    def set_cut_interval(self, seconds: float) -> None:
        """Order new records only every so many seconds."""
        self.reconfigure(calls.SetCutInterval(round(seconds * SECOND)))

    def members(self, shard: int) -> tuple[int, ...]:
        """The servers of a shard. Raises NotOfThisShard."""
        return _members(self.configuration(), shard)

    def close(self) -> None:
        """Leave the cluster. Waiting calls end with LogFailed."""
        with self._closing:
            if not self._closed:
                self._closed = True
                in_shared_loop(self._connection.close())

    def __enter__(self) -> RemoteLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class RemoteSubscription:
    """An endless iterator of batches, which waits at the end of the log."""

    def __init__(self, log: RemoteLog, number: int) -> None:
        self._log, self._number = log, number

    def poll(self, timeout: float | None) -> Batch | None:
        """The next batch; None if there was none in time. Raises Trimmed, Corruption; StopIteration after close."""
        batch: Batch | None = self._log.call(calls.Next(self._number), timeout)
        return batch

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self.poll(None)
        assert batch is not None
        return batch

    def close(self) -> None:
        """End it; who waits in it hears so."""
        self._log.call(calls.Close(self._number))


def connect(
    addresses: str | Sequence[str],
    *,
    timeout: float | None = TIMEOUT_S,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> RemoteLog:
    """Connect to the shared log of a cluster. Returns its log (`Log`, with the operations on shards and servers), for
    threads.

    `addresses`: "HOST:PORT" of any of its servers, several with commas between, or a list. `timeout`: seconds for each
    call that does not wait for a record; None: no bound. `ca`, `certificate`, `certificate_key`, `token`: as
    `logdb.connect`. Raises Unavailable, AccessDenied, ValueError.
    """
    shown = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
    opening = Connection.open(addresses, TIMEOUT_S if timeout is None else timeout, shown)
    return RemoteLog(in_shared_loop(opening), timeout)
