"""Connecting to a database: the server at an address is that of one directory, or any node of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc

from logdb.clients.background_loop import in_shared_loop
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.cluster_backend import ClusterAccess, ClusterBackend
from logdb.clients.connection import Connection
from logdb.clients.lazy_snapshot import RequestBackend
from logdb.clients.remote_backend import RemoteBackend
from logdb.clients.server_connection import Answer, ServerConnection
from logdb.clients.thread_connection import ThreadConnection
from logdb.cluster.placement import Placement
from logdb.cores.effects import Address
from logdb.errors import Unavailable
from logdb.security.credentials import NONE, Credentials
from logdb.transport import polled_stream
from logdb.transport.dialling import Refused
from logdb.transport.discovery import ask, client_hello, discover
from logdb.transport.failures import BROKEN, is_another_service
from logdb.wire.envelopes import Hello
from logdb.wire.limits import WireError

FIRST_TIMEOUT_S: Final = 3.0
"""Timeout of the first request to an address; later ones get twice as long."""


async def connect(
    endpoints: Sequence[Address],
    timeout_s: float,
    placement: Placement | None = None,
    session: int | None = None,
    credentials: Credentials = NONE,
) -> RequestBackend:
    """The database of the first endpoint that answers, for the coroutines of this loop. Raises Unavailable,
    AccessDenied, ProtocolMismatch, ValueError."""
    cluster = await _cluster(endpoints, timeout_s, placement, session, credentials)
    return cluster or await _opened(Connection(endpoints, timeout_s, credentials), placement, session)


def connect_for_threads(
    endpoints: Sequence[Address],
    timeout_s: float,
    placement: Placement | None = None,
    session: int | None = None,
    credentials: Credentials = NONE,
) -> BlockingBackend:
    """As `connect`, for threads."""
    if not polled_stream.IS_AVAILABLE:
        return BlockingBackend.open(connect(endpoints, timeout_s, placement, session, credentials))
    cluster = in_shared_loop(_cluster(endpoints, timeout_s, placement, session, credentials))
    if cluster is not None:
        return BlockingBackend(cluster)
    connection = ThreadConnection(endpoints, timeout_s, credentials)
    return BlockingBackend.open(_opened(connection, placement, session), connection)


async def _opened(
    connection: ServerConnection[Answer], placement: Placement | None, session: int | None
) -> RemoteBackend:
    """The database of a server. Raises as `connect`."""
    backend = await RemoteBackend.connect(connection, session)
    if placement is not None:
        await backend.close()
        raise ValueError(f"{backend.path} is one server, which has no shards to place keys on")
    return backend


async def _cluster(
    endpoints: Sequence[Address],
    timeout_s: float,
    placement: Placement | None,
    session: int | None,
    credentials: Credentials,
) -> ClusterBackend | None:
    """The database if its servers are a cluster. Raises as `connect`."""
    for endpoint in endpoints:
        credentials.check(endpoint)
    node = await _node_of_cluster(endpoints, timeout_s, credentials)
    if node is not None:
        nodes = await _nodes(node, timeout_s, credentials)
        return ClusterBackend(",".join(endpoints), nodes, timeout_s, placement, session)
    return None


async def _node_of_cluster(endpoints: Sequence[Address], timeout_s: float, credentials: Credentials) -> Hello | None:
    """The first node of a cluster that answers. None if another kind of server answers, or no endpoint can be reached:
    then `RemoteBackend` raises the error. Raises Unavailable, Refused, AccessDenied, ValueError."""
    loop, request_s = asyncio.get_running_loop(), FIRST_TIMEOUT_S
    deadline = loop.time() + timeout_s
    while True:
        slow = []
        for endpoint in endpoints:
            try:
                async with asyncio.timeout(min(request_s, timeout_s)):
                    return await ask(endpoint, client_hello(), credentials)
            except TimeoutError:
                slow.append(endpoint)
            except grpc.aio.AioRpcError as error:
                if is_another_service(error):
                    return None
            except (*BROKEN, WireError, OSError):
                pass
        if not slow:
            return None
        if loop.time() >= deadline:
            raise Unavailable(f"{', '.join(slow)}: no answer within {timeout_s:g} s")
        request_s *= 2


async def _nodes(node: Hello, timeout_s: float, credentials: Credentials) -> ClusterAccess:
    """The addresses that a client needs. If the node's Hello names no mapping servers, an ordering replica's Hello
    does."""
    if not node.mapping and node.ordering:
        node = await discover(node.ordering, client_hello(node.cluster), timeout_s, credentials)
    if not node.mapping:
        raise Refused(
            f"{node.address} belongs to the cluster {node.cluster!r}, which has no mapping servers and is a log, no "
            "database: use logdb.log.connect"
        )
    return ClusterAccess(node.cluster, node.ordering, node.mapping, credentials, node.right, node.engine)
