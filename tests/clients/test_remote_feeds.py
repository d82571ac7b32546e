"""Change feeds of a client of a server: where they begin, and what is left of them."""

from __future__ import annotations

import asyncio
import gc

import pytest

import logdb
import logdb.aio
from logdb.clients.remote_backend import RemoteFeed
from tests.harness.served import Served


def feeds() -> int:
    gc.collect()
    return sum(isinstance(each, RemoteFeed) for each in gc.get_objects())


def test_a_feed_that_is_refused_or_dropped_is_freed(served: Served) -> None:
    """A client kept each of them until its end."""
    with logdb.connect(served.address) as db:
        for number in range(3):
            db.put(b"k", b"%d" % number)
        db.compact()
        for _ in range(5):
            with pytest.raises(logdb.VersionTrimmed):
                db.watch(since=0)
            db.watch()
        assert not feeds()


def test_a_feed_from_now_on_does_not_begin_later_after_a_cancellation(served: Served) -> None:
    """The next poll asked for the changes after the version that was newest then, and passed over those before."""

    async def test() -> None:
        async with await logdb.aio.connect(served.address) as db:
            changes = db.watch(timeout=5)
            begun = asyncio.ensure_future(changes)
            await asyncio.sleep(0)
            begun.cancel()
            with pytest.raises(asyncio.CancelledError):
                await begun
            await db.put(b"k", b"1")
            with pytest.raises(logdb.Unavailable, match="watch again"):
                async for _ in changes:
                    pass

    asyncio.run(test())
