"""One question to one server, on a stream of its own: a client asks the cluster as a whole, an operator each server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from grpc_health.v1 import health_pb2, health_pb2_grpc

from logdb.cores.effects import Address
from logdb.errors import LogDBError
from logdb.log.engine import engine_of
from logdb.security.credentials import NONE, Credentials
from logdb.transport.dialling import OPTIONS, opened
from logdb.transport.failures import BROKEN, aio, failure_of
from logdb.wire.envelopes import CLIENT, VERSION, Envelope, Hello, pack, unpack
from logdb.wire.limits import WireError

TIMEOUT_S: Final = 2.0
"""Maximum time for all of a server's answers."""
NOT_READY: Final = "it is not ready yet"


class Answer(NamedTuple):
    """The answer of a server. `hello`: None if none was received. `role`: of the server at the address. `serving`: the
    report of its health service. `answer`: to the request, None if none was received. `why`: the failure, or ""."""

    hello: Hello | None
    serving: bool
    answer: Any
    why: str
    role: str = ""


Question = Callable[[str, Hello], Any]
"""Returns the message to send to the server of this role behind this Hello, or None."""


async def ask(
    address: Address, cluster: str, question: Question | None = None, *, credentials: Credentials = NONE
) -> Answer:
    """Ask the server at an address for its Hello, its health and the answer to a question. `cluster`: its name, or
    "" if it is not known."""
    mine = Hello(VERSION, cluster, CLIENT, f"operator-{secrets.token_hex(8)}")
    hello, serving, role = None, False, ""
    try:
        async with asyncio.timeout(TIMEOUT_S), opened(address, mine, credentials) as stream:
            hello = stream.theirs
            serving = await _is_serving(stream.channel)
            role, target = _server_at(address, hello)
            message = None if question is None else question(role, hello)
            answer = None if message is None else await _answer(stream.call, mine.address, target, message)
    except (LogDBError, *BROKEN, OSError, TimeoutError) as error:
        return Answer(hello, serving, None, (await failure_of(address, error, credentials)).reason, role)
    return Answer(hello, serving, answer, "" if serving else NOT_READY, role)


def _server_at(address: Address, hello: Hello) -> tuple[str, Address]:
    """(role, address) of the server at an address; at that of a node, its founder or else any of its servers."""
    servers = hello.servers
    for role, other in servers.items():
        if other == address:
            return role, other
    if hello.founder is not None:
        return engine_of(hello.engine).founder_role, hello.founder
    return next(iter(servers.items()), ("", hello.address))


async def health(address: Address, credentials: Credentials) -> str:
    """Why the server at an address does not serve, "" if it does, by its health service alone."""
    try:
        async with asyncio.timeout(TIMEOUT_S), credentials.channel(address, OPTIONS) as channel:
            return "" if await _is_serving(channel) else NOT_READY
    except (LogDBError, *BROKEN, OSError, TimeoutError) as error:
        return (await failure_of(address, error, credentials)).reason


async def _is_serving(channel: Any) -> bool:
    health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return bool(health.status == health_pb2.HealthCheckResponse.SERVING)


async def _answer(call: Any, name: Address, address: Address, question: Any) -> Any:
    (envelope,) = pack(name, address, [question])
    await call.write(envelope)
    answer = await call.read()
    received = None if answer is aio.EOF else unpack(answer)
    if not isinstance(received, Envelope) or not received.messages:
        raise WireError("the stream ended before an answer came")
    return received.messages[0]
