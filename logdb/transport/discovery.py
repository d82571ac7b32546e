"""Finding a cluster: the `Hello` of any of its servers names the cluster and the addresses of the other servers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from logdb.cores.effects import Address
from logdb.errors import LogDBError, Unavailable
from logdb.security.credentials import NONE, Credentials
from logdb.transport.dialling import opened
from logdb.transport.failures import BROKEN, failure_of
from logdb.wire.envelopes import CLIENT, VERSION, Hello
from logdb.wire.limits import WireError

PAUSE_S: Final = 0.1
"""Pause between two rounds of attempts."""
ANSWER_S: Final = 3.0
"""Maximum time for one server's answer."""


def client_hello(cluster: str = "") -> Hello:
    """The Hello of a client, with a name of its own."""
    return Hello(VERSION, cluster, CLIENT, f"client-{secrets.token_hex(8)}")


async def discover(addresses: Sequence[Address], mine: Hello, timeout: float, credentials: Credentials = NONE) -> Hello:
    """The Hello of the first of these servers that answers; tries one after another, for `timeout` seconds.

    Raises Refused, AccessDenied, ValueError (a token without TLS), Unavailable.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while True:
        failures, is_permanent = [], True
        for address in addresses:
            try:
                async with asyncio.timeout(max(0.01, min(ANSWER_S, deadline - loop.time()))):
                    return await ask(address, mine, credentials)
            except (*BROKEN, WireError, OSError, TimeoutError) as error:
                failure = await failure_of(address, error, credentials)
                is_permanent = is_permanent and failure.is_permanent
                failures.append(f"{address} ({failure.reason})")
        if is_permanent:
            raise Unavailable(f"no server can be used: {', '.join(failures)}")
        if loop.time() + PAUSE_S >= deadline:
            raise Unavailable(f"no server answers within {timeout:g} seconds: {', '.join(failures)}")
        await asyncio.sleep(PAUSE_S)


async def mapping_servers(
    addresses: Sequence[Address], mine: Hello, credentials: Credentials = NONE
) -> tuple[Address, ...]:
    """The mapping servers that these nodes name, leaving out nodes that do not answer."""

    async def known(address: Address) -> tuple[Address, ...]:
        try:
            async with asyncio.timeout(ANSWER_S):
                return (await ask(address, mine, credentials)).mapping
        except (*BROKEN, OSError, TimeoutError, LogDBError, WireError, ValueError):
            return ()

    answers = await asyncio.gather(*[known(address) for address in addresses])
    return tuple(dict.fromkeys([address for servers in answers for address in servers]))


async def ask(address: Address, mine: Hello, credentials: Credentials = NONE) -> Hello:
    """The Hello of the server at an address. Raises as `dialling.opened`."""
    async with opened(address, mine, credentials) as stream:
        return stream.theirs
