"""Finding a cluster through servers of which some do not answer as they should."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from logdb.errors import Unavailable
from logdb.transport.discovery import client_hello, discover
from logdb.wire.envelopes import EXCHANGE


def test_a_server_that_ends_the_stream_without_a_hello_is_one_of_those_that_cannot_be_used() -> None:
    """The others were not tried, and the error named no server."""

    async def ended(requests: Any, context: Any) -> None:
        await context.read()

    async def test() -> None:
        server = grpc.aio.server()
        service, method = EXCHANGE[1:].split("/")
        handlers = {method: grpc.stream_stream_rpc_method_handler(ended)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        with pytest.raises(Unavailable, match=rf"{address} \(.*before a Hello.*\), 127\.0\.0\.1:1 \(.*refused\)"):
            await discover([address, "127.0.0.1:1"], client_hello(), 0.3)
        await server.stop(0)

    asyncio.run(test())
