"""The event loop of a process: uvloop's if `logdb[uvloop]` is installed, otherwise asyncio's.

With uvloop a commit alone on three nodes takes about a fifth less CPU time, in the servers and in a synchronous client
(docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop that does not run yet."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` in such a loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)
