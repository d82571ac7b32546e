"""Tasks of asyncio that share a transaction."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import logdb.aio
from logdb.tables import Json


@pytest.fixture(autouse=True)
def reads_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over a network, other tasks run before the answer to a read comes."""
    multi_get = logdb.aio.Transaction.multi_get

    async def slow(txn: logdb.aio.Transaction, keys: Any) -> Any:
        await asyncio.sleep(0)
        found = await multi_get(txn, keys)
        await asyncio.sleep(0)
        return found

    monkeypatch.setattr(logdb.aio.Transaction, "multi_get", slow)


def test_tasks_that_write_one_row_leave_one_entry() -> None:
    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            users = db.table("users", key=int, value=Json())
            await users.create_index("by_city", "city")
            await users.put(1, {"city": "London"})

            async def move(txn: logdb.aio.Transaction) -> None:
                await asyncio.gather(*(users.within(txn).put(1, {"city": city}) for city in ("Rome", "Paris")))

            await db.run(move)
            assert (await users.verify()).damage == []
            assert [row async for _, row in users.index("by_city").scan()] == [{"city": "Paris"}]

    asyncio.run(main())


def test_tasks_do_not_pass_a_unique_index() -> None:
    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            users = db.table("users", key=int, value=Json())
            await users.create_index("by_email", "email", unique=True)

            async def join(txn: logdb.aio.Transaction) -> None:
                await asyncio.gather(*(users.within(txn).put(number, {"email": "ada"}) for number in (1, 2)))

            with pytest.raises(logdb.UniqueViolation):
                await db.run(join)

    asyncio.run(main())
