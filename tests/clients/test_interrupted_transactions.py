"""After Ctrl-C in a transaction or a scan, or a cancelled scan, no snapshot stays leased: compaction would keep it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest

import logdb
import logdb.aio
from tests.harness.interrupts import InterruptedAtCall
from tests.harness.served import Served


@pytest.fixture(params=["embedded", "served"])
def db(request: pytest.FixtureRequest) -> Iterator[logdb.Database]:
    if request.param == "embedded":
        with logdb.open(":memory:") as db:
            yield db
    else:
        served = Served(None)
        with logdb.connect(served.address) as db:
            yield db
        served.close()


def reading(db: logdb.Database) -> None:
    with db.transaction(read_only=True) as txn:
        assert txn[b"k"] == b"v"


def writing(db: logdb.Database) -> None:
    with db.transaction() as txn:
        txn[b"k"] = txn[b"k"]


def running(db: logdb.Database) -> None:
    db.run(lambda txn: txn[b"k"], read_only=True)


def scanning(db: logdb.Database) -> None:
    assert sum(1 for _ in db.scan()) == 2
    assert len(db.multi_scan([(None, b"k"), (b"k", None)])) == 2
    assert len(list(db.history(b"k"))) >= 1


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited", "ignore:Exception ignored")
@pytest.mark.parametrize("work", [reading, writing, running, scanning])
def test_no_snapshot_stays_leased(db: logdb.Database, work: Callable[[logdb.Database], None]) -> None:
    db.multi_put({b"j": b"w", b"k": b"v"})
    with InterruptedAtCall(0) as counting:
        work(db)
    assert counting.calls > 10
    for at in range(1, counting.calls + 1):
        with contextlib.suppress(KeyboardInterrupt, logdb.Unavailable), InterruptedAtCall(at):
            work(db)
        assert db.stats().leased_snapshots == 0, at


@pytest.mark.parametrize("verb", ["scan", "history", "multi_get"])
def test_a_cancelled_answer_in_pages_keeps_no_snapshot(verb: str) -> None:
    served = Served(None)

    async def cancel() -> int | None:
        async with await logdb.aio.connect(served.address) as db:
            keys = [b"%d" % number for number in range(8)]
            await db.multi_put(dict.fromkeys(keys, b"v" * 400_000))
            for _ in range(8):
                await db.put(b"0", b"v" * 400_000)
            rows, versions = db.scan(), db.history(b"0")
            first = {"scan": rows.__anext__, "history": versions.__anext__, "multi_get": lambda: db.multi_get(keys)}
            reading = asyncio.ensure_future(first[verb]())
            while not (reading.done() or served.host.embedded.snapshots.leased()):
                await asyncio.sleep(0)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            return (await db.stats()).leased_snapshots

    try:
        assert asyncio.run(cancel()) == 0
    finally:
        served.close()
