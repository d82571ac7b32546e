"""Compactions overtake the snapshots in which consumers and readers of a log look for entries."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.named_logs import Entry


def record(txn: Any, entry: Entry) -> None:
    txn.add(b"effects of " + entry.value, 1)


def test_a_compaction_disturbs_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    at, calls = logdb.Database.at, count()

    def overtaken(db: logdb.Database, *arguments: Any) -> logdb.Snapshot:
        snapshot = at(db, *arguments)
        if next(calls) % 2 == 0:
            db.put(b"other", b"value")
            db.compact()
        return snapshot

    with logdb.open(":memory:") as db:
        orders = db.log("orders")
        positions = orders.extend([b"a", b"b", b"c"], txn_id=7)
        monkeypatch.setattr(logdb.Database, "at", overtaken)
        assert [entry.value for entry in orders.subscribe(timeout=0)] == [b"a", b"b", b"c"]
        with orders.consumer("one") as consumer:
            assert consumer.run(record, until_end=True) == 3
            assert consumer.run(record, timeout=0) == 0
            assert (consumer.position, consumer.lag) == (positions[2], 0)
        with orders.group("all", partitions=2) as member:
            assert member.run(record, until_end=True) == 3
        assert [state.lag for state in orders.consumers()] == [0, 0, 0]
        assert (len(orders), orders.first, orders.last) == (3, positions[0], positions[2])
        assert orders.stats().entries == 3
        orders.truncate(before=positions[2])
        with pytest.raises(ValueError, match="6 comes after 7"):
            orders.append(b"d", txn_id=6)
        assert db[b"effects of a"] == b"2"


def test_a_compaction_disturbs_no_reader_on_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    at, calls = logdb.aio.Database.at, count()

    async def overtaken(db: logdb.aio.Database, *arguments: Any) -> logdb.aio.Snapshot:
        snapshot = await at(db, *arguments)
        if next(calls) % 2 == 0:
            await db.put(b"other", b"value")
            await db.compact()
        return snapshot

    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            orders = db.log("orders")
            positions = await orders.extend([b"a", b"b", b"c"], txn_id=7)
            monkeypatch.setattr(logdb.aio.Database, "at", overtaken)
            assert [entry.value async for entry in orders.subscribe(timeout=0)] == [b"a", b"b", b"c"]
            async with orders.consumer("one") as consumer:
                assert await consumer.run(record, until_end=True) == 3
                assert await consumer.run(record, timeout=0) == 0
                assert (await consumer.position(), await consumer.lag()) == (positions[2], 0)
            async with orders.group("all", partitions=2) as member:
                assert await member.run(record, until_end=True) == 3
            assert [state.lag for state in await orders.consumers()] == [0, 0, 0]
            assert (await orders.first(), await orders.last()) == (positions[0], positions[2])
            assert (await orders.count(), (await orders.stats()).entries) == (3, 3)
            await orders.truncate(before=positions[2])
            with pytest.raises(ValueError, match="6 comes after 7"):
                await orders.append(b"d", txn_id=6)
            assert await db.get(b"effects of a") == b"2"

    asyncio.run(main())
