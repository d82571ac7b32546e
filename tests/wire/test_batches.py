"""The number of calls in one message, in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import logdb.aio
from logdb.clients import server_connection
from logdb.server import session
from logdb.wire.database_codec import BATCH_CALLS
from tests.harness.served import Served


def counting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, field: str) -> list[int]:
    """Counts the items of a field in each message that a function of a module decodes."""
    found: list[int] = []
    read: Callable[[bytes], Any] = getattr(module, name)

    def counted(raw: bytes) -> Any:
        message = read(raw)
        found.append(len(getattr(message, field)))
        return message

    monkeypatch.setattr(module, name, counted)
    return found


def test_calls_share_messages_but_not_too_many(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = counting(monkeypatch, session, "requests_of", "requests")
    responses = counting(monkeypatch, server_connection, "responses_of", "responses")

    async def main() -> None:
        async with await logdb.aio.connect(served.address) as db:
            await asyncio.gather(*[db.put(b"%d" % number, b"v") for number in range(3 * BATCH_CALLS)])

    asyncio.run(main())
    assert requests == [BATCH_CALLS] * 3
    assert sum(responses) == 3 * BATCH_CALLS
    assert max(responses) <= BATCH_CALLS
    assert len(responses) < 2 * BATCH_CALLS
