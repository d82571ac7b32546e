"""Sending them to servers, and what is found: a server that has ended, one that does not answer, memory that grows."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from logdb.errors import LogDBError
from logdb.log.engine import Engine, Right
from logdb.security.certificates import Authority, hosts_of
from logdb.security.credentials import NONE, Credentials, credentials
from logdb.security.node_identity import Identity
from logdb.security.permissions import MESSAGE_RIGHTS
from logdb.transport.accepted_messages import ONLY_FROM, accepted_by
from logdb.transport.dialling import OPTIONS, shake_hands
from logdb.transport.failures import BROKEN, aio
from logdb.transport.peers import Peers
from logdb.wire import codec
from logdb.wire.envelopes import CLIENT, EXCHANGE, MAPPING, VERSION, Hello, pack
from logdb.wire.proto import database_pb2 as pb
from tests.fuzz.making import Maker
from tests.harness.raw import Raw

SEND_S: Final = 5.0
"""A stream that takes nothing for so long is given up: its answers were not read."""
ANSWER_S: Final = 60.0
"""A server that answers nothing for so long has been brought to a halt."""
NOT_SENT: Final = {kind for kind, right in MESSAGE_RIGHTS.items() if right is Right.ADMIN}
"""An administrator may change the cluster."""
Progress = Callable[[int], None]


async def _give(call: Any, data: bytes) -> bool:
    """Whether the stream is still open."""
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


class Outsider:
    """A client with these credentials."""

    def __init__(self, engine: Engine, credentials: Credentials = NONE) -> None:
        self._engine, self.credentials = engine, credentials

    def hello(self) -> Hello:
        """For one stream."""
        return Hello(VERSION, "test", CLIENT, f"client-{random.getrandbits(40)}")

    def brings(self, role: str) -> set[type]:
        """The messages to try."""
        return accepted_by(role, self._engine) & (set(MESSAGE_RIGHTS) - NOT_SENT)


class Impostor:
    """A server of some role. Other servers recognize it by its certificate, or by a listener at its address."""

    def __init__(self, engine: Engine, address: str, role: str, credentials: Credentials = NONE) -> None:
        self._engine, self.address, self.role, self.credentials = engine, address, role, credentials
        self.peers = Peers(Hello(VERSION, "test", role, address))

    def hello(self) -> Hello:
        """For one stream."""
        nonce = random.getrandbits(64) | 1
        self.peers._nonces = {nonce}
        return Hello(VERSION, "test", self.role, self.address, nonce=nonce)

    def brings(self, role: str) -> set[type]:
        """The messages to try, without those that a mapping server may use to write compactions and to trim the log."""
        wire = self._engine.wire
        taken = accepted_by(role, self._engine) - wire.appends - set(wire.operator_requests)
        return {kind for kind in taken if self.role in ONLY_FROM.get(kind, (self.role,))}


@asynccontextmanager
async def listening(engine: Engine, addresses: Iterator[str]) -> AsyncIterator[list[Outsider | Impostor]]:
    """The speakers without certificates: clients, and servers of every role that are not in the cluster."""
    roles = [role for role in (*engine.roles, MAPPING) if role != engine.founder_role]
    impostors = [Impostor(engine, next(addresses), role) for role in roles]
    for impostor in impostors:
        await impostor.peers.listen(impostor.address)
    try:
        yield [Outsider(engine), Outsider(engine), *impostors]
    finally:
        for impostor in impostors:
            await impostor.peers.close()


def secured(
    engine: Engine, certificates: Path, tokens: Sequence[str], servers: Mapping[str, str]
) -> list[Outsider | Impostor]:
    """The speakers over TLS: clients with each of these tokens, with a certificate without a right, or with nothing;
    and the certificates of these servers (names and addresses), which do not run."""
    authority = Authority(certificates)
    ca, stranger = certificates / "ca.pem", authority.client("stranger")
    shown = [credentials(ca=ca, token=token) for token in tokens]
    shown += [credentials(ca=ca, certificate=stranger, certificate_key=stranger.with_suffix(".key"))]
    shown += [credentials(ca=ca)]
    speakers: list[Outsider | Impostor] = [Outsider(engine, one) for one in shown]
    roles = {role.letter: role.name for role in engine.roles.values()} | {"m": MAPPING}
    for name, address in servers.items():
        role = roles[name[0]]
        pem = authority.server(hosts_of([address]), Identity("test", role, name))
        files = credentials(ca=ca, certificate=pem, certificate_key=pem.with_suffix(".key"))
        speakers.append(Impostor(engine, address, role, files))
    return speakers


async def fuzz_node(
    engine: Engine,
    address: str,
    role: str,
    texts: list[str],
    speakers: Sequence[Outsider | Impostor],
    count: int,
    seed: int,
    alive: Callable[[], None],
    progress: Progress = lambda sent: None,
) -> int:
    """Send `count` messages to the server of a cluster, as each of the speakers. `alive` raises when a server has
    ended. Returns how many reached it."""
    rng = random.Random(seed)
    maker = Maker(rng, texts)
    sent = 0
    while sent < count:
        speaker = rng.choice(speakers)
        kinds = sorted(speaker.brings(role) or accepted_by(role, engine), key=lambda kind: kind.__name__)
        hello = speaker.hello()
        async with speaker.credentials.channel(address, OPTIONS) as channel:
            call: Any = channel.stream_stream(EXCHANGE)(metadata=speaker.credentials.metadata)
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
                    packets = pack(hello.address, address, messages)
                except codec.WireError:
                    continue
                broken = False
                for data in packets:
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
    return sent


async def fuzz_single(
    address: str,
    tokens: list[str],
    count: int,
    seed: int,
    alive: Callable[[], None],
    progress: Progress = lambda sent: None,
    ca: Path | None = None,
) -> int:
    """The same to the server of one directory, with the rights of these tokens; over TLS if a CA is given."""
    rng = random.Random(seed)
    maker = Maker(rng, ())
    sent = 0
    while sent < count:
        async with Raw(address, rng.choice(tokens), client=rng.choice([1, 2, 77, (1 << 64) - 1]), ca=ca) as raw:
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
