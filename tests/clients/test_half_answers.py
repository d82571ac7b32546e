"""An answer in parts whose stream ends: a client keeps nothing of it while it connects again."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

import logdb
import logdb.aio
from logdb.wire.database_codec import METHOD, PROTOCOL, RELEASE, requests_of
from logdb.wire.proto import database_pb2 as pb

HALF = 3_000_000


def allocated() -> int:
    return tracemalloc.get_traced_memory()[0]


class HalfServer:
    """Sends half of the answer to the first request, and ends that stream when `ends` is set; it accepts no others."""

    def __init__(self) -> None:
        self.began, self.ends, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.before = 0
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details: Any) -> Any:
        return grpc.stream_stream_rpc_method_handler(self._calls) if details.method == METHOD else None

    def _calls(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        if self.ends.is_set():
            self.ended.set()
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        next(requests)
        welcome = pb.Welcome(protocol=PROTOCOL, release=RELEASE, database=b"d", incarnation=1)
        yield pb.Responses(welcome=welcome).SerializeToString()
        (request,) = requests_of(next(requests)).requests
        self.before = allocated()
        self.began.set()
        half = pb.Response(id=request.id, part=pb.Part(data=bytes(HALF), more=True))
        message = pb.Responses(responses=[half]).SerializeToString()
        del half
        yield message
        del message
        self.ends.wait()

    def close(self) -> None:
        self.ends.set()
        self._server.stop(None).wait()


@pytest.fixture
def server() -> Iterator[HalfServer]:
    server = HalfServer()
    tracemalloc.start()
    yield server
    tracemalloc.stop()
    server.close()


def get_with_threads(address: str) -> None:
    with logdb.connect(address, timeout=1) as db:
        db.get(b"k")


def get_with_coroutines(address: str) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(address, timeout=1) as db:
            await db.get(b"k")

    asyncio.run(main())


@pytest.mark.parametrize("get", [get_with_threads, get_with_coroutines])
def test_half_an_answer_is_not_kept(server: HalfServer, get: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(get, server.address)
        assert server.began.wait(20)
        while allocated() < server.before + HALF and not getting.done():
            threading.Event().wait(0.001)
        server.ends.set()
        assert server.ended.wait(20), "it did not connect again"
        assert allocated() < server.before + HALF / 2
        with pytest.raises(logdb.Unavailable):
            getting.result(20)
