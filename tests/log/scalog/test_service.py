"""The bytes of `envelopes.py` agree with the schema's service: a client with generated code can exchange messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from logdb.log.scalog import messages as scalog
from logdb.wire.envelopes import (
    EXCHANGE,
    VERSION,
    Envelope,
    Hello,
    pack,
    pack_hello,
    pack_refusal,
    refusal_reason,
    unpack,
)
from logdb.wire.limits import MAX_PACKET_BYTES
from logdb.wire.proto import peers_pb2
from logdb.wire.schema import Packet

SERVER = Hello(VERSION, "orders", "storage", "127.0.0.1:7400")
OPTIONS = [("grpc.max_receive_message_length", MAX_PACKET_BYTES), ("grpc.max_send_message_length", MAX_PACKET_BYTES)]


async def exchange(packets: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """A node that answers a hello, and each read of GSN n with a record of n bytes."""
    async for data in packets:
        packet = unpack(data)
        if isinstance(packet, Hello):
            reason = refusal_reason(SERVER, packet)
            yield pack_refusal(reason) if reason else pack_hello(SERVER)
            if reason:
                return
        elif isinstance(packet, Envelope):
            found = [scalog.ReadResponse(ask.request, ask.gsn, 5, ((1, bytes(ask.gsn)),)) for ask in packet.messages]
            for answer in pack(packet.receiver, packet.sender, found):
                yield answer


async def answers_to(*packets: Packet) -> list[Packet]:
    """Send packets as a client that has only the schema. Returns the answers of the node."""
    server = grpc.aio.server(options=OPTIONS)
    service, method = EXCHANGE[1:].split("/")
    handler = grpc.stream_stream_rpc_method_handler(exchange)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            exchanging = channel.stream_stream(EXCHANGE, Packet.SerializeToString, Packet.FromString)
            call = exchanging(iter(packets), timeout=30)
            return [packet async for packet in call]
    finally:
        await server.stop(None)


def hello(version: int) -> Packet:
    """A client's first packet."""
    return Packet(hello={"version": version, "role": "CLIENT", "address": "client-5"})


def test_an_exchange_of_messages() -> None:
    reads = Packet(
        sender="client-5",
        receiver="127.0.0.1:7400",
        messages=[{"read_request": {"request": 1, "shard": 1, "gsn": gsn}} for gsn in (16, 5 << 20)],
    )
    welcome, small, large = asyncio.run(answers_to(hello(VERSION), reads))
    assert welcome.hello.cluster == "orders"
    assert welcome.hello.role == peers_pb2.STORAGE
    assert (small.sender, small.receiver) == ("127.0.0.1:7400", "client-5")
    assert small.messages[0].read_response.gsn == 16
    assert len(large.batches[0]) == (5 << 20) + 9


def test_another_version_is_refused() -> None:
    (refusal,) = asyncio.run(answers_to(hello(VERSION + 1), hello(VERSION)))
    assert f"client-5 speaks version {VERSION + 1} of LogDB's protocol" in refusal.refusal
    assert "upgrade LogDB at 127.0.0.1:7400" in refusal.refusal
