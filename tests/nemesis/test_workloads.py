"""The records that clients write of their operations."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import logdb
import logdb.aio
from logdb.errors import Unavailable
from tests.nemesis.history import Ops, Recorder
from tests.nemesis.workloads import Client, Running


class Repeating(random.Random):
    """Transactions run again after a conflict, and do not pause."""

    def random(self) -> float:
        return 0.3


class InTwoAttempts(Running):
    """A transaction whose first attempt is refused, and whose second one ends in its body."""

    def _transfer(self) -> tuple[Ops, Callable[[], Awaitable[None]]]:
        attempts: list[int] = []

        async def body(txn: logdb.aio.Transaction) -> None:
            value = await txn.get(b"k")
            if attempts:
                self.ops = [["r", "k", None if value is None else value.decode()]]
                raise Unavailable("planted")
            attempts.append(1)
            await self.db.put(b"k", b"another client's")
            txn.put(b"k", b"1")

        return [["r", "k", None]], lambda: self._transact(body)


def test_an_attempt_that_ends_early_is_not_recorded_with_the_snapshot_of_the_one_before(tmp_path: Path) -> None:
    """The nemesis reported that a read had not returned one snapshot."""

    async def run() -> None:
        async with await logdb.aio.open(":memory:") as db:
            client = Client(db, Recorder(tmp_path / "history", "c"), 1, 1.0, logdb.aio.connect)  # type: ignore[arg-type]
            client.draw = Repeating(1)
            await InTwoAttempts(client, "0", "transfer").run()

    asyncio.run(run())
    *_, last = [json.loads(line) for line in (tmp_path / "history").read_text().splitlines()]
    assert (last["type"], last["ops"]) == ("fail", [["r", "k", "another client's"]])
    assert "snapshot" not in last
    assert "txn" not in last
