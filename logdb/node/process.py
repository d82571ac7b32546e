"""A process that runs a node until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logdb.node.node import Node, NodeConfig
from logdb.system.signals import stop_requests
from logdb.transport.connections import raise_open_files

logger = logging.getLogger("logdb.server")


async def serve(config: NodeConfig, ready: Callable[[Node], None]) -> None:
    """Run the node until SIGTERM or SIGINT, which stop it cleanly. `ready` is called when it accepts messages.

    Raises what prevents the start, or ends the node: DamagedJournals, Unavailable, DatabaseInUse, NotADatabase,
    LogFailed, ProtocolViolation, AssertionError.
    """
    raise_open_files()
    node, metrics = Node(config), None
    with stop_requests() as stop_request:
        try:
            await node.start()
            if config.first.metrics:
                from logdb.node.metrics import MetricsPort

                metrics = MetricsPort(node, config.first.metrics)
            ready(node)
            await _run(node, stop_request)
        finally:
            if metrics is not None:
                metrics.close()
            await node.close()


async def _run(node: Node, stop_request: asyncio.Event) -> None:
    running, requested = asyncio.create_task(node.run()), asyncio.create_task(stop_request.wait())
    await asyncio.wait((running, requested), return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        logger.info("stopping")
        await node.stop()
    requested.cancel()
    await running
