"""Tests that are coroutines: they have a time limit, and wait for conditions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

DEADLINE_S = 20


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own. Raises TimeoutError after 20 s."""

    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test

    asyncio.run(in_time())


async def until(condition: Callable[[], Any]) -> None:
    """Wait until `condition` returns a true value."""
    while not condition():
        await asyncio.sleep(0.001)
