"""Opening a stream to a server of a cluster, with the handshake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from logdb.cores.effects import Address
from logdb.errors import AccessDenied, Unavailable
from logdb.security.credentials import Credentials
from logdb.system.addresses import location_of
from logdb.transport.failures import aio
from logdb.wire.envelopes import EXCHANGE, Hello, Refusal, pack_hello, refusal_reason, unpack
from logdb.wire.limits import MAX_PACKET_BYTES, WireError

OPTIONS: Final = [
    ("grpc.max_send_message_length", MAX_PACKET_BYTES),
    ("grpc.max_receive_message_length", MAX_PACKET_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    # Detect within seconds that a peer's machine, or the network to it, has failed.
    ("grpc.keepalive_time_ms", 2_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
]
"""Options of the channels between nodes, and of the servers that accept them."""


class Refused(Unavailable):
    """A node has refused a stream and given its reason. Trying again fails until the reason is gone."""


class Stream(NamedTuple):
    """A stream after its handshake. `theirs`: the Hello of the node that answered."""

    channel: Any
    call: Any
    theirs: Hello


@asynccontextmanager
async def opened(
    address: Address, mine: Hello, credentials: Credentials, timeout_s: float | None = None
) -> AsyncIterator[Stream]:
    """A stream to the node of the server at an address, which ends with the block; the handshake may take `timeout_s`.

    Raises Refused, AccessDenied, WireError, TimeoutError, ValueError, OSError and the errors in `failures.BROKEN`.
    """
    async with credentials.channel(location_of(address), OPTIONS) as channel:
        call = channel.stream_stream(EXCHANGE)(metadata=credentials.metadata)
        try:
            async with asyncio.timeout(timeout_s):
                theirs = await shake_hands(mine, call)
            yield Stream(channel, call, theirs)
        finally:
            call.cancel()


async def shake_hands(mine: Hello, call: Any) -> Hello:
    """Send `mine` on a stream that this node has opened. Returns the other node's Hello.

    Raises Refused, AccessDenied, WireError, grpc.RpcError.
    """
    await call.write(pack_hello(mine))
    first = await call.read()
    if first is aio.EOF:
        raise WireError("the stream ended before a Hello came")
    theirs = unpack(first)
    if isinstance(theirs, Refusal):
        raise error_of(theirs)
    if not isinstance(theirs, Hello):
        raise WireError("a stream that does not begin with a Hello")
    reason = refusal_reason(mine, theirs)
    if reason:
        raise Refused(reason)
    return theirs


def error_of(refusal: Refusal) -> Refused | AccessDenied:
    """The error that a refusal causes at the node that receives it."""
    return AccessDenied(refusal.why) if refusal.denied else Refused(refusal.why)
