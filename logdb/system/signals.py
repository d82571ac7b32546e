"""The signals that stop a server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_requests() -> Iterator[asyncio.Event]:
    """An event that the first SIGTERM or SIGINT sets. A second signal has its default effect and ends the process, even
    if the stop takes long."""
    loop, requested = asyncio.get_running_loop(), asyncio.Event()

    def restore() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    def request() -> None:
        requested.set()
        restore()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, request)
    try:
        yield requested
    finally:
        restore()
