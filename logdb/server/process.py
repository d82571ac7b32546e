"""A server process: opens a directory, serves it, and stops when it is told to, without losing what it has taken."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from logdb.embedded import EmbeddedBackend
from logdb.embedded.async_backend import CoroutineBackend
from logdb.errors import OutcomeUnknown, Unavailable
from logdb.security.authenticator import Authenticator, Security
from logdb.server.server import Server
from logdb.system.addresses import parsed
from logdb.transport.connections import raise_open_files

log = logging.getLogger(__name__)

SWITCH_S: Final = 0.0005
"""A thread that has synced waits so long for the interpreter, several times, while the loop has work. With Python's
usual 5 ms the latest hundredth of the puts beside scans waited three times as long."""


def checked_authenticator(listen: str, security: Security) -> Authenticator:
    """Who is let in by a server that listens there. Raises ValueError: also if that is more than it should be."""
    security.check(listen)
    return Authenticator(security)


def serve(
    path: Path,
    listen: str,
    authenticator: Authenticator,
    *,
    ready: Callable[[str], None],
    compact_above: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Serve the database in a directory until SIGTERM or SIGINT. `ready` hears the address, `progress` of the replay.
    `compact_above`: as for `logdb.open`.

    Raises as `logdb.open`; Unavailable, also when the database takes no more writes until it is opened again.
    """
    opening = functools.partial(
        EmbeddedBackend.open, path, read_only=False, create=True, compact_above=compact_above, progress=progress
    )
    asyncio.run(_serve(opening, path, listen, authenticator, ready))


async def _serve(
    opening: Callable[[], EmbeddedBackend],
    path: Path,
    listen: str,
    authenticator: Authenticator,
    ready: Callable[[str], None],
) -> None:
    raise_open_files()
    sys.setswitchinterval(SWITCH_S)
    with _told_to_stop() as told:
        database = await asyncio.to_thread(opening)
        host = CoroutineBackend(database, sync_in_loop=True)
        database.on_stop = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, told.set)
        try:
            server = Server(host, authenticator)
            port = await server.start(listen)
            address = f"{listen.rpartition(':')[0]}:{port}" if not parsed(listen)[1] else listen
            log.info("serving %s at %s", path, address)
            ready(address)
            await told.wait()
            log.info("stopping: answering what was taken")
            await server.stop()
        finally:
            with contextlib.suppress(*(() if database.why_stopped is None else (OutcomeUnknown,))):
                await host.close()
        if database.why_stopped is not None:
            raise Unavailable(
                f"the server has ended since {path} takes no more writes: {database.why_stopped}; what was acknowledged"
                " is safe: start the server again, which rebuilds the rest, and see to the disk if it ends again"
            )
        log.info("stopped")


@contextlib.contextmanager
def _told_to_stop() -> Iterator[asyncio.Event]:
    """Set by the first SIGTERM or SIGINT; a second one does what it always does."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)

    def tell() -> None:
        told.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, tell)
    try:
        yield told
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
