"""Scans of a transaction: what they have read, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

import pytest

import logdb
import logdb.aio
from logdb.txn.transaction import TransactionOver

KEYS = [b"%02d" % number for number in range(20)]
OWN = {"nothing": {}, "a write": {b"05+": b"own"}, "a deletion": {b"05": None}}
"""The writes of the transaction before it scans."""


@pytest.fixture
def db() -> Iterator[logdb.Database]:
    with logdb.open(":memory:") as db:
        db.multi_put(dict.fromkeys(KEYS, b"1"))
        yield db


@pytest.mark.parametrize("own", OWN)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 0, 1, 3, 8, 9, 300])
@pytest.mark.parametrize("taken", [0, 1, 3, None])
def test_what_a_scan_has_read_is_what_it_has_passed(
    db: logdb.Database, own: str, reverse: bool, limit: int | None, taken: int | None
) -> None:
    """`taken`: the number of rows that the caller takes, None: all."""
    with db.transaction() as txn:
        txn.multi_put(OWN[own])
        there = sorted(dict.fromkeys(KEYS) | OWN[own], reverse=reverse)
        keys = [key for key in there if b"03" <= key < b"11" and OWN[own].get(key, b"") is not None]
        rows = txn.scan(b"03", b"11", reverse=reverse, limit=limit)
        assert txn.read_set.ranges == []
        found = [key for key, _ in islice(rows, taken)]
        assert found == keys[:limit][:taken]
        if len(found) == limit or len(found) == taken:
            last = found[-1] if found else None
            expected = [] if last is None else [(last, b"11") if reverse else (b"03", last + b"\0")]
        else:
            expected = [(b"03", b"11")]
        assert txn.read_set.ranges == expected
        txn.close()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [None, 3, 4, 10])
def test_a_write_during_a_scan_shows_behind_the_last_row(db: logdb.Database, reverse: bool, limit: int | None) -> None:
    with db.transaction() as txn:
        rows = txn.scan(b"02+", b"05+", reverse=reverse, limit=limit)
        passed = [next(rows)[0] for _ in range(3)]
        assert passed == sorted(KEYS[3:6], reverse=reverse)
        for key in (b"02z", b"05\0", b"04", b"02", b"06"):
            txn.put(key, b"own")
        own = b"02z" if reverse else b"05\0"
        assert list(rows) == ([] if limit == 3 else [(own, b"own")])
        whole, part = (b"02+", b"05+"), (b"03", b"05+") if reverse else (b"02+", b"05\0")
        four = (own, b"05+") if reverse else (b"02+", own + b"\0")
        assert txn.read_set.ranges == [{3: part, 4: four}.get(limit or 0, whole)]
        txn.close()


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_scan_ends_with_its_transaction(db: logdb.Database, rows: int) -> None:
    """Also one that has not begun, and one of a range without rows, which returned none."""
    with db.transaction() as txn:
        scans = [txn.scan(limit=10), txn.scan(), txn.scan(b"x"), txn.scan(b"x", limit=10)]
        for scan in scans[:2]:
            assert len(list(islice(scan, rows))) == rows
    for scan in scans:
        with pytest.raises(TransactionOver):
            next(scan)


def test_a_scan_of_coroutines_has_read_what_it_has_passed() -> None:
    async def main() -> None:
        async with await logdb.aio.open(":memory:") as db:
            await db.multi_put(dict.fromkeys(KEYS, b"1"))
            async with db.transaction() as txn:
                for reverse, expected in (False, (b"03", b"05\0")), (True, (b"08", b"11")):
                    txn.read_set.spans.clear()
                    rows = txn.scan(b"03", b"11", reverse=reverse, limit=5)
                    for _ in range(3):
                        await anext(rows)
                    assert txn.read_set.ranges == [expected]
                txn.read_set.spans.clear()
                assert [key async for key, _ in txn.scan(b"03", b"05", limit=5)] == KEYS[3:5]
                assert txn.read_set.ranges == [(b"03", b"05")]
                left = txn.scan(limit=5)
                await anext(left)
            with pytest.raises(TransactionOver):
                await anext(left)

    asyncio.run(main())
