"""Finding a cluster: any of its nodes says in its `Hello` which cluster it belongs to, and where the others are."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from logdb.cores.effects import Address
from logdb.errors import LogDBError, Unavailable
from logdb.security.credentials import NONE, Credentials
from logdb.transport.peers import BROKEN, OPTIONS, explain, is_another_service, shake_hands, tls_reason
from logdb.wire.envelopes import CLIENT, EXCHANGE, VERSION, Hello
from logdb.wire.limits import WireError

PAUSE_S: Final = 0.1
"""Between two rounds of asking everybody."""
ANSWER_S: Final = 3.0


def client_hello(cluster: str = "") -> Hello:
    """A client, under a name that no other has."""
    return Hello(VERSION, cluster, CLIENT, f"client-{secrets.token_hex(8)}")


async def discover(addresses: Sequence[Address], mine: Hello, timeout: float, credentials: Credentials = NONE) -> Hello:
    """Who answers first of these. Raises Refused, AccessDenied, ValueError (a token without TLS), and Unavailable when
    nobody has answered within `timeout` seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        silent, hopeless = [], True
        for address in addresses:
            try:
                async with asyncio.timeout(max(0.01, min(ANSWER_S, deadline - loop.time()))):
                    return await ask(address, mine, credentials)
            except (*BROKEN, OSError, TimeoutError) as error:
                why = await tls_reason(address, error, credentials)
                hopeless = hopeless and (bool(why) or is_another_service(error))
                silent.append(f"{address} ({why or explain(error)})")
        if hopeless:
            raise Unavailable(f"no server can be talked to: {', '.join(silent)}")
        if loop.time() + PAUSE_S >= deadline:
            raise Unavailable(f"no server answers within {timeout:g} seconds: {', '.join(silent)}")
        await asyncio.sleep(PAUSE_S)


async def mapping_servers(
    addresses: Sequence[Address], mine: Hello, credentials: Credentials = NONE
) -> tuple[Address, ...]:
    """Those of which any of these nodes knows, as far as it answers. Raises nothing."""

    async def known(address: Address) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(ANSWER_S):
                return (await ask(address, mine, credentials)).mapping
        except (*BROKEN, OSError, TimeoutError, LogDBError, WireError, ValueError):
            return ()

    told = await asyncio.gather(*[known(address) for address in addresses])
    return tuple(dict.fromkeys([address for servers in told for address in servers]))


async def ask(address: Address, mine: Hello, credentials: Credentials = NONE) -> Hello:
    """Who is there. Raises Refused, AccessDenied, WireError, ValueError, OSError and those of BROKEN."""
    async with credentials.channel(address, OPTIONS) as channel:
        call = channel.stream_stream(EXCHANGE)(metadata=credentials.metadata)
        try:
            return await shake_hands(mine, call)
        finally:
            call.cancel()


def addresses_of(text: str | Sequence[str]) -> list[Address]:
    """ "host:port,host:port" taken apart. Raises ValueError."""
    parts = [part.strip() for part in (text.split(",") if isinstance(text, str) else text)]
    for part in parts:
        host, _, port = part.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f'addresses are written "host:port", several with commas between them; {part!r} is none')
    return parts
