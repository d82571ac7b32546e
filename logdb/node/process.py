"""A process that runs one server of a cluster until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from logdb.log.engine import ServerConfig
from logdb.node.server import Server
from logdb.system.signals import stop_requests
from logdb.transport.connections import raise_open_files

logger = logging.getLogger("logdb.server")


async def serve(config: ServerConfig, ready: Callable[[Server], None]) -> None:
    """Run the server until SIGTERM or SIGINT, which stop it cleanly. `ready` is called when it accepts messages.

    Raises what prevents the start, or ends the server: DamagedJournals, Unavailable, DatabaseInUse, NotADatabase,
    LogFailed, ProtocolViolation, AssertionError.
    """
    raise_open_files()
    server, metrics = Server(config), None
    with stop_requests() as stop_request:
        try:
            await server.start()
            if config.metrics:
                from logdb.node.metrics import MetricsPort

                metrics = MetricsPort(server, config.metrics)
            ready(server)
            await _run(server, stop_request)
        finally:
            if metrics is not None:
                metrics.close()
            await server.close()


async def _run(server: Server, stop_request: asyncio.Event) -> None:
    running, requested = asyncio.create_task(server.run()), asyncio.create_task(stop_request.wait())
    await asyncio.wait((running, requested), return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        logger.info("stopping")
        await server.stop()
    requested.cancel()
    await running
