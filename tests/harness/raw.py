"""A client of one server that sends any bytes or messages, over a stream of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from logdb.security.credentials import credentials
from logdb.wire.database_codec import MESSAGE_OPTIONS, METHOD, PROTOCOL
from logdb.wire.proto import database_pb2 as pb


class Raw:
    """`async with Raw(address) as raw`: after the handshake."""

    def __init__(self, address: str, token: str = "", client: int = 77, ca: Path | None = None) -> None:
        shown = credentials(ca=ca, token=token or None)
        self._channel = shown.channel(address, [*MESSAGE_OPTIONS, ("grpc.use_local_subchannel_pool", 1)])
        self.stream: Any = self._channel.stream_stream(METHOD)(metadata=shown.metadata)
        self._parts: dict[int, bytes] = {}
        self._hello = pb.Hello(protocol=PROTOCOL, release="test", client=client, timeout_ms=1_000)

    async def __aenter__(self) -> Raw:
        await self.stream.write(pb.Requests(hello=self._hello).SerializeToString())
        self.welcome = pb.Responses.FromString(await self.stream.read()).welcome
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.cancel()
        await self._channel.close()

    async def send(self, *requests: pb.Request, seen: int = 0) -> None:
        """Send one message. Requests without an id are numbered from 1 on."""
        for number, request in enumerate(requests, 1):
            request.id = request.id or number
        await self.stream.write(pb.Requests(seen=seen, requests=requests).SerializeToString())

    async def answers(self, count: int) -> dict[int, pb.Response]:
        """Receive this number of answers, by id. An answer in parts counts when it is complete."""
        found: dict[int, pb.Response] = {}
        parts = self._parts
        while len(found) < count:
            raw = await self.stream.read()
            assert isinstance(raw, bytes), f"the stream ended after {len(found)} answers"
            for response in pb.Responses.FromString(raw).responses:
                if response.HasField("part"):
                    parts[response.id] = parts.get(response.id, b"") + response.part.data
                    if not response.part.more:
                        found[response.id] = pb.Response.FromString(parts.pop(response.id))
                elif not response.HasField("progress"):
                    found[response.id] = response
        return found

    async def ask(self, *requests: pb.Request) -> list[pb.Response]:
        """The answers to requests, in their order."""
        await self.send(*requests)
        answers = await self.answers(len(requests))
        return [answers[request.id] for request in requests]
