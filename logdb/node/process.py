"""A process that is one server: from its start to a signal that ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Final

from logdb.log.engine import ServerConfig
from logdb.node.server import Server
from logdb.transport.connections import raise_open_files

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger("logdb.server")


async def serve(config: ServerConfig, ready: Callable[[Server], None]) -> None:
    """Run the server until SIGTERM or Ctrl-C, which end it cleanly; `ready` is called when it takes messages.

    Raises what keeps it from starting, and what ends it: Damaged, Unavailable, DatabaseInUse, NotADatabase, LogFailed,
    ProtocolViolation, AssertionError.
    """
    raise_open_files()
    server = Server(config)
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, ending.set)
    metrics = None
    try:
        await server.start()
        if config.metrics:
            from logdb.node.metrics import MetricsPort

            metrics = MetricsPort(server, config.metrics)
        ready(server)
        await _run(server, ending)
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        if metrics is not None:
            metrics.close()
        await server.close()


async def _run(server: Server, ending: asyncio.Event) -> None:
    running, asked = asyncio.create_task(server.run()), asyncio.create_task(ending.wait())
    await asyncio.wait((running, asked), return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        logger.info("stopping")
        await server.stop()
    asked.cancel()
    await running
