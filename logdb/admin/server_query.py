"""One question to one server, on a stream of its own: what a client asks of the cluster as a whole, an operator has to
ask of each server alone."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from grpc_health.v1 import health_pb2, health_pb2_grpc

from logdb.cores.effects import Address
from logdb.errors import LogDBError
from logdb.security.credentials import NONE, Credentials
from logdb.transport.peers import BROKEN, OPTIONS, aio, explain, shake_hands, tls_reason
from logdb.wire.envelopes import CLIENT, EXCHANGE, VERSION, Envelope, Hello, pack, unpack
from logdb.wire.limits import WireError

TIMEOUT_S: Final = 2.0
"""Who has not answered within so long does not."""


class Answer(NamedTuple):
    """What came of it. `hello`: who answered, None: nobody. `serving`: its health. `answer`: None if it gave none.
    `why`: what was wrong, "" if nothing was."""

    hello: Hello | None
    serving: bool
    answer: Any
    why: str


Question = Callable[[Hello], Any]
"""What to ask who has said Hello; None: nothing."""


async def ask(
    address: Address, cluster: str, question: Question | None = None, *, credentials: Credentials = NONE
) -> Answer:
    """Who is at that address, how it is, and what it answers. `cluster`: it must be of that one, if that is known."""
    name = f"operator-{secrets.token_hex(8)}"
    hello, serving = None, False
    try:
        async with asyncio.timeout(TIMEOUT_S), credentials.channel(address, OPTIONS) as channel:
            call = channel.stream_stream(EXCHANGE)(metadata=credentials.metadata)
            try:
                hello = await shake_hands(Hello(VERSION, cluster, CLIENT, name), call)
                serving = await _is_serving(channel)
                asked = None if question is None else question(hello)
                answer = None if asked is None else await _answer(call, name, hello.address, asked)
            finally:
                call.cancel()
    except (LogDBError, *BROKEN, OSError, TimeoutError) as error:
        return Answer(hello, serving, None, await _why(address, error, credentials))
    return Answer(hello, serving, answer, "" if serving else "it is not ready yet")


async def health(address: Address, credentials: Credentials) -> str:
    """Why the server there does not serve, "" if it does. Who it is, is not asked."""
    try:
        async with asyncio.timeout(TIMEOUT_S), credentials.channel(address, OPTIONS) as channel:
            return "" if await _is_serving(channel) else "it is not ready yet"
    except (LogDBError, *BROKEN, OSError, TimeoutError) as error:
        return await _why(address, error, credentials)


async def _why(address: Address, error: Exception, credentials: Credentials) -> str:
    return await tls_reason(address, error, credentials) or explain(error)


async def _is_serving(channel: Any) -> bool:
    health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return bool(health.status == health_pb2.HealthCheckResponse.SERVING)


async def _answer(call: Any, name: Address, address: Address, question: Any) -> Any:
    (parcel,) = pack(name, address, [question])
    await call.write(parcel)
    answer = await call.read()
    mail = None if answer is aio.EOF else unpack(answer)
    if not isinstance(mail, Envelope) or not mail.messages:
        raise WireError("the stream ended before an answer came")
    return mail.messages[0]
