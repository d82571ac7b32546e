"""A server process: opens a directory and serves it until SIGTERM or SIGINT, then answers all received requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from logdb.embedded import EmbeddedBackend
from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import OutcomeUnknown, Unavailable
from logdb.security.authenticator import Authenticator
from logdb.server.server import Server
from logdb.system.addresses import joined, parsed
from logdb.system.event_loop import run
from logdb.system.signals import stop_requests
from logdb.transport.connections import raise_open_files

log = logging.getLogger(__name__)

SWITCH_S: Final = 0.0005
"""Python's switch interval: a thread that has synced waits for it several times while the loop is busy. With the
default of 5 ms the slowest hundredth of the puts beside scans takes three times as long."""


Beside = Callable[[EmbeddedBackend], AbstractContextManager[object]]
"""Serves the same database in another way, until its block ends."""


def serve(
    path: Path,
    listen: str,
    authenticator: Authenticator,
    *,
    ready: Callable[[str], None],
    compact_above: float | None = None,
    sweep_interval: float | None = None,
    cold: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    beside: Beside = contextlib.nullcontext,
) -> None:
    """Serve the database in a directory until SIGTERM or SIGINT. `ready`: called with the address.
    `progress`, `compact_above`, `sweep_interval`, `cold`: as for `logdb.open`. `beside`: runs while the database is
    served.

    Raises as `logdb.open`; Unavailable, also when the database takes no more writes until it is opened again.
    """
    opening = functools.partial(
        EmbeddedBackend.open,
        path,
        read_only=False,
        create=True,
        compact_above=compact_above,
        cold=cold,
        progress=progress,
    )
    run(_serve(opening, sweep_interval, path, listen, authenticator, ready, beside))


async def _serve(
    opening: Callable[[], EmbeddedBackend],
    sweep_interval: float | None,
    path: Path,
    listen: str,
    authenticator: Authenticator,
    ready: Callable[[str], None],
    beside: Beside,
) -> None:
    raise_open_files()
    sys.setswitchinterval(SWITCH_S)
    with stop_requests() as stop_request:
        database = await asyncio.to_thread(opening)
        backend = CoroutineBackend(database, sync_in_loop=True)
        database.machine.on_stop = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, stop_request.set)
        try:
            if sweep_interval is not None:
                database.sweep_every(sweep_interval)
            server = Server(backend, authenticator)
            port = await server.start(listen)
            address = joined(parsed(listen)[0], port)
            log.info("serving", extra={"path": path, "address": address})
            with beside(database):
                ready(address)
                await stop_request.wait()
                log.info("stopping")
                await server.stop()
        finally:
            with contextlib.suppress(*(() if database.machine.stop_reason is None else (OutcomeUnknown,))):
                await backend.close()
        if database.machine.stop_reason is not None:
            raise Unavailable(
                f"the server has ended since {path} takes no more writes: {database.machine.stop_reason}; what was"
                " acknowledged is safe: start the server again, which rebuilds the rest, and see to the disk if it ends"
                " again"
            )
        log.info("stopped")
