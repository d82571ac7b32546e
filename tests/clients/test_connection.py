"""A client's connection over a stream that the test writes and reads: what is sent, and when a stream is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import grpc
import pytest

import logdb
from logdb.clients.connection import Connection
from logdb.clients.remote_backend import RemoteBackend
from logdb.security.credentials import Credentials
from logdb.store.records import TxnId
from logdb.wire.database_codec import PROTOCOL, RELEASE, failure_to
from logdb.wire.proto import database_pb2 as pb

DEADLINE_S = 30
TIMEOUT_S = 5


class ScriptedStream:
    """The server's side of a stream. `sent`: the requests of the client; `may_send`: whether it accepts another
    message, for which the client waits if `is_sending`."""

    def __init__(self, *, may_answer: bool = True) -> None:
        self.sent: list[pb.Request] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.is_sending = asyncio.Event()
        self.is_cancelled = False
        self._answers = asyncio.Queue[bytes | None]()
        if may_answer:
            self.welcome()

    def welcome(self) -> None:
        """Answer the Hello of the client."""
        self.answer(welcome=pb.Welcome(protocol=PROTOCOL, release=RELEASE, database=b"d", incarnation=1))

    def answer(self, *responses: pb.Response, **fields: Any) -> None:
        """Send a message to the client."""
        self._answers.put_nowait(pb.Responses(responses=responses, **fields).SerializeToString())

    def end(self) -> None:
        """End the stream."""
        self._answers.put_nowait(None)

    async def sends(self, number: int) -> pb.Request:
        """The request with this number, once it was sent."""
        while True:
            for request in self.sent:
                if request.id == number:
                    return request
            await asyncio.sleep(0)

    # ---- for the client

    async def write(self, raw: bytes) -> None:
        self.is_sending.set()
        await self.may_send.wait()
        self.is_sending.clear()
        self.sent.extend(pb.Requests.FromString(raw).requests)

    async def read(self) -> bytes | None:
        return await self._answers.get()

    async def code(self) -> Any:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    def cancel(self) -> None:
        self.is_cancelled = True


class ScriptedServer:
    """Stands for the credentials of a client. `streams`: those that it has opened; `opens`: makes the next one."""

    metadata = ()

    def __init__(self) -> None:
        self.streams: list[ScriptedStream] = []
        self.opens: Callable[[], ScriptedStream] = ScriptedStream

    def check(self, address: str) -> None:
        pass

    def channel(self, address: str, options: Any) -> Any:
        return self

    def stream_stream(self, method: str) -> Callable[..., ScriptedStream]:
        return lambda metadata: self._opened()

    def _opened(self) -> ScriptedStream:
        self.streams.append(self.opens())
        return self.streams[-1]

    async def close(self) -> None:
        pass


class SkewedLoop(asyncio.SelectorEventLoop):
    """`skew_s`: how far its time is ahead."""

    skew_s = 0.0

    def time(self) -> float:
        return super().time() + self.skew_s


def run(test: Callable[[Connection, ScriptedServer], Coroutine[Any, Any, None]]) -> None:
    async def in_time() -> None:
        server = ScriptedServer()
        connection = Connection(["127.0.0.1:7400"], TIMEOUT_S, cast(Credentials, server))
        async with asyncio.timeout(DEADLINE_S):
            await connection.open()
            try:
                await test(connection, server)
            finally:
                await connection.close()

    with asyncio.Runner(loop_factory=SkewedLoop) as runner:
        runner.run(in_time())


def write(sequence: int) -> tuple[pb.Request, TxnId]:
    return pb.Request(write=pb.Write(sequence=sequence)), TxnId(1, sequence)


def test_a_write_that_was_reported_as_never_sent_is_not_sent_later() -> None:
    """The deadline of the write passed while an earlier message waited for the server."""

    async def test(connection: Connection, server: ScriptedServer) -> None:
        (stream,) = server.streams
        stream.is_sending.clear()
        stream.may_send.clear()
        first = connection.call(*write(1))
        await stream.is_sending.wait()
        late = connection.call(*write(2), timeout_s=0.3)
        while not late.done():
            stream.answer()  # the server is not silent
            await asyncio.sleep(0.01)
        with pytest.raises(logdb.Unavailable):
            await late
        stream.may_send.set()
        last = connection.call(*write(3))
        await stream.sends(3)
        for number, answer in (1, first), (3, last):
            stream.answer(pb.Response(id=number, version=number))
            assert (await answer).version == number
        assert [request.write.sequence for request in stream.sent if request.HasField("write")] == [1, 3]

    run(test)


def test_a_stream_that_has_just_begun_is_not_silent() -> None:
    """The client replaced it again if an older call was late before another message had come."""

    async def test(connection: Connection, server: ScriptedServer) -> None:
        loop = cast(SkewedLoop, asyncio.get_running_loop())
        server.opens = lambda: ScriptedStream(may_answer=False)
        late = connection.call(*write(1))
        first = server.streams[0]
        await first.sends(1)
        first.end()
        while len(server.streams) < 2:
            await asyncio.sleep(0)
        second = server.streams[1]
        loop.skew_s = TIMEOUT_S - 1
        second.welcome()
        await second.sends(1)
        loop.skew_s = TIMEOUT_S
        with pytest.raises(logdb.OutcomeUnknown):
            await late
        for number in range(2, 5):
            answer = connection.call(*write(number))
            await second.sends(number)
            second.answer(pb.Response(id=number, version=number))
            assert (await answer).version == number
        assert not second.is_cancelled

    run(test)


def test_an_unpin_that_was_sent_twice_finds_no_pin() -> None:
    """The first one removed it, and its answer was lost: the client raised KeyError."""

    async def test(connection: Connection, server: ScriptedServer) -> None:
        unpin = asyncio.create_task(RemoteBackend(connection).unpin("name"))
        first = server.streams[0]
        request = await first.sends(1)
        first.end()
        while len(server.streams) < 2:
            await asyncio.sleep(0)
        second = server.streams[1]
        await second.sends(1)
        second.answer(pb.Response(id=request.id, failure=failure_to(KeyError("name"))))
        await unpin
        again = asyncio.create_task(RemoteBackend(connection).unpin("name"))
        await second.sends(2)
        second.answer(pb.Response(id=2, failure=failure_to(KeyError("name"))))
        with pytest.raises(KeyError):
            await again

    run(test)


def test_a_feed_from_now_on_has_the_commits_that_its_first_stream_has_acknowledged() -> None:
    """The request of the feed was sent again, and began behind them."""

    async def test(connection: Connection, server: ScriptedServer) -> None:
        backend = RemoteBackend(connection)
        first = server.streams[0]
        put = asyncio.create_task(backend.write({b"k": b"1"}))
        await first.sends(1)
        first.answer(pb.Response(id=1, version=5), newest=5)
        await put
        feed = backend.feed(None, None, None)
        assert not (await first.sends(2)).watch.HasField("since")
        put = asyncio.create_task(backend.write({b"k": b"2"}))
        await first.sends(3)
        first.answer(pb.Response(id=3, version=6), newest=6)
        await put
        first.end()
        while len(server.streams) < 2:
            await asyncio.sleep(0)
        assert (await server.streams[1].sends(2)).watch.since == 5
        await feed.close()

    run(test)
