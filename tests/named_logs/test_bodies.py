"""Consumers of both faces, and the bodies that they take."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.named_logs import Entry


def test_an_async_consumer_takes_both_kinds_of_functions() -> None:
    async def main() -> list[bytes]:
        async with await logdb.aio.open(":memory:") as db:
            orders = db.log("orders")
            await orders.extend([b"1", b"2", b"3"])
            async with orders.consumer("billing") as consumer:
                await consumer.run(lambda txn, entry: txn.put(b"plain", entry.value), limit=1)
                assert await consumer.lag() == 2

                async def body(txn: logdb.aio.Transaction, entry: Entry) -> None:
                    assert await txn.get(b"plain") == b"1"
                    txn.put(b"async", entry.value)

                assert await consumer.run(body, until_end=True) == 2
            return [value async for _, value in db.scan(b"a", b"q")]

    assert asyncio.run(main()) == [b"3", b"1"]


def test_an_async_function_in_a_plain_consumer_is_refused() -> None:
    async def body(txn: object, entry: Entry) -> None: ...

    with logdb.open(":memory:") as db:
        db.log("orders").append(b"1")
        with pytest.raises(TypeError, match=r"logdb\.aio only"):
            db.log("orders").consumer("billing").run(body)


def test_a_reset_to_the_end_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry is appended and takes effect while the reset looks for the end."""
    at, calls = logdb.Database.at, count()

    def consume(db: logdb.Database) -> None:
        db.log("orders").append(b"2")
        assert db.log("orders").consumer("billing").run(lambda txn, entry: txn.add(entry.value, 1), timeout=0) == 2

    def overtaken(db: logdb.Database, *arguments: Any) -> logdb.Snapshot:
        snapshot = at(db, *arguments)
        if next(calls) == 0:
            with ThreadPoolExecutor() as pool:
                pool.submit(consume, db).result()
        return snapshot

    with logdb.open(":memory:") as db:
        orders = db.log("orders")
        orders.append(b"1")
        consumer = orders.consumer("billing")
        monkeypatch.setattr(logdb.Database, "at", overtaken)
        consumer.reset(to_end=True)
        assert (consumer.position, consumer.lag) == (orders.last, 0)


def test_tasks_that_share_a_transaction_append_ids_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = logdb.aio.Transaction.scan

    async def slow(txn: logdb.aio.Transaction, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        async for row in scan(txn, *arguments, **options):
            yield row

    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:

            async def body(txn: logdb.aio.Transaction) -> None:
                orders = txn.log("orders")
                await asyncio.gather(orders.append(b"5", txn_id=5), orders.append(b"3", txn_id=3))

            monkeypatch.setattr(logdb.aio.Transaction, "scan", slow)
            with pytest.raises(ValueError, match="3 comes after 5"):
                await db.run(body)

    asyncio.run(main())


def test_tasks_that_share_a_writer_do_not_fence_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    get = logdb.aio.Transaction.get

    async def slow(txn: logdb.aio.Transaction, key: bytes) -> bytes | None:
        await asyncio.sleep(0)
        return await get(txn, key)

    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            monkeypatch.setattr(logdb.aio.Transaction, "get", slow)
            orders = db.log("orders", exclusive=True)
            await asyncio.gather(*(orders.append(b"%d" % number) for number in range(8)))
            assert (await orders.count(), orders.epoch) == (8, 1)

    asyncio.run(main())


def test_a_consumer_that_runs_is_not_run_by_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would read the entries ahead, and let each take effect twice in one transaction."""
    scan = logdb.aio.Snapshot.scan

    async def slow(snapshot: logdb.aio.Snapshot, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        async for row in scan(snapshot, *arguments, **options):
            yield row

    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            orders = db.log("orders")
            await orders.extend([b"1", b"2"])
            monkeypatch.setattr(logdb.aio.Snapshot, "scan", slow)
            consumer, others = orders.consumer("billing"), asyncio.Event()

            async def body(txn: logdb.aio.Transaction, entry: Entry) -> None:
                await others.wait()
                txn.add(b"effects", 1)

            async def other() -> None:
                try:
                    with pytest.raises(logdb.LogDBError, match="is running"):
                        await consumer.run(lambda txn, entry: txn.add(b"effects", 1), batch=4, timeout=0)
                finally:
                    others.set()

            await asyncio.gather(consumer.run(body, batch=4, timeout=0), other())
            assert await db.get(b"effects") == b"2"
            assert await consumer.run(body, timeout=0) == 0

    asyncio.run(main())
