"""Reads of the newest snapshot, which no lease protects: a compaction may overtake them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from logdb.errors import VersionTrimmed

T = TypeVar("T")


def at_newest(db: Any, read: Callable[[Any], T]) -> T:
    """`read(snapshot)` of the newest snapshot of `db`; again with a newer one if a compaction has overtaken it."""
    while True:
        try:
            return read(db.at())
        except VersionTrimmed:
            continue


async def at_newest_async(db: Any, read: Callable[[Any], Awaitable[T]]) -> T:
    """As `at_newest`, for asyncio."""
    while True:
        try:
            return await read(await db.at())
        except VersionTrimmed:
            continue
