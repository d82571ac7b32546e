"""Sending them to servers, and what is found: a server that has ended, one that does not answer, memory that grows."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any, Final

import grpc

from logdb.cluster import messages as mapping
from logdb.errors import LogDBError
from logdb.log.scalog import messages as m
from logdb.net import codec
from logdb.net.parcels import EXCHANGE, VERSION, Hello, Role, pack
from logdb.net.peers import BROKEN, OPTIONS, Peers, aio, shake_hands
from logdb.net.proto import database_pb2 as pb
from logdb.net.security.needs import NEEDS
from logdb.net.takes import ONLY_FROM, TAKES
from tests.fuzz.making import Maker
from tests.net.raw import Raw

SEND_S: Final = 5.0
"""A stream that takes nothing for so long is given up: its answers were not read."""
ANSWER_S: Final = 60.0
"""A server that answers nothing for so long has been brought to a halt."""
NOT_SENT: Final = {m.Change, mapping.Compact}
"""An administrator may change the cluster."""
Progress = Callable[[int], None]


async def _give(call: Any, data: bytes) -> bool:
    """Whether the stream still stands."""
    try:
        async with asyncio.timeout(SEND_S):
            await call.write(data)
    except (*BROKEN, TimeoutError):
        return False
    return not call.done()


async def _drain(call: Any) -> None:
    with contextlib.suppress(*BROKEN):
        while await call.read() is not aio.EOF:
            pass


class Impostor:
    """A node that listens at an address of its own, so that it is believed to be a server of some role."""

    def __init__(self, address: str, role: Role) -> None:
        self.address, self.role = address, role
        self.peers = Peers(Hello(VERSION, "test", role, address), TAKES[role])

    def hello(self) -> Hello:
        """For one stream."""
        nonce = random.getrandbits(64) | 1
        self.peers._nonces = {nonce}
        return Hello(VERSION, "test", self.role, self.address, nonce=nonce)


async def fuzz_node(
    address: str,
    role: Role,
    texts: list[str],
    listen: Callable[[], str],
    count: int,
    seed: int,
    alive: Callable[[], None],
    progress: Progress = lambda sent: None,
) -> int:
    """Send `count` messages to the server of a cluster, as clients and as servers of every role that are none of the
    cluster's. `alive` raises when a server has ended. Returns how many reached it."""
    rng = random.Random(seed)
    maker = Maker(rng, texts)
    impostors = [Impostor(listen(), other) for other in (Role.STORAGE, Role.AGGREGATOR, Role.MAPPING)]
    for impostor in impostors:
        await impostor.peers.listen(impostor.address)
    sent = 0
    try:
        while sent < count:
            speaker = rng.choice([None, None, *impostors])
            allowed = set(NEEDS) - NOT_SENT if speaker is None else TAKES[role]
            kinds = sorted(
                [
                    kind
                    for kind in TAKES[role] & allowed
                    if speaker is None or speaker.role in ONLY_FROM.get(kind, (speaker.role,))
                ],
                key=lambda kind: kind.__name__,
            ) or sorted(TAKES[role], key=lambda kind: kind.__name__)
            hello = (
                Hello(VERSION, "test", Role.CLIENT, f"client-{rng.getrandbits(40)}")
                if speaker is None
                else speaker.hello()
            )
            async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
                call: Any = channel.stream_stream(EXCHANGE)()
                try:
                    async with asyncio.timeout(ANSWER_S):
                        await shake_hands(hello, call)
                except TimeoutError:
                    raise AssertionError(f"{address} no longer answers after {sent} messages") from None
                except (*BROKEN, LogDBError):
                    alive()
                    sent += 1
                    continue
                reading = asyncio.create_task(_drain(call)) if rng.random() < 0.8 else None
                for _ in range(rng.randrange(1, 60)):
                    messages = [maker.message(rng.choice(kinds)) for _ in range(rng.randrange(1, 8))]
                    try:
                        parcels = pack(hello.address, address, messages)
                    except codec.WireError:
                        continue
                    broken = False
                    for data in parcels:
                        data = maker.changed(data) if rng.random() < 0.1 else data
                        broken = broken or not await _give(call, data)
                    sent += len(messages)
                    if broken:
                        break
                call.cancel()
                if reading is not None:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
            alive()
            progress(sent)
    finally:
        for impostor in impostors:
            await impostor.peers.close()
    return sent


async def fuzz_single(
    address: str,
    tokens: list[str],
    count: int,
    seed: int,
    alive: Callable[[], None],
    progress: Progress = lambda sent: None,
) -> int:
    """The same to the server of one directory, with the rights of these tokens."""
    rng = random.Random(seed)
    maker = Maker(rng, ())
    sent = 0
    while sent < count:
        async with Raw(address, rng.choice(tokens), client=rng.choice([1, 2, 77, (1 << 64) - 1])) as raw:
            reading = asyncio.create_task(_drain(raw.stream)) if rng.random() < 0.8 else None
            for _ in range(rng.randrange(1, 60)):
                requests = [maker.request() for _ in range(rng.randrange(1, 40))]
                seen = 1 << 62 if rng.random() < 0.005 else rng.choice([0, 1, 5])
                data = pb.Requests(seen=seen, requests=requests).SerializeToString()
                data = maker.changed(data) if rng.random() < 0.1 else data
                sent += len(requests)
                if not await _give(raw.stream, data):
                    break
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        alive()
        progress(sent)
    return sent

