"""CPU time of a client's process for a transaction that reads and writes a key, and for one that reads ten keys one by
one. The clients take turns in one process: LogDB's client for threads, the same in an event loop for which the thread
waits, LogDB's client for asyncio, and psycopg with PostgreSQL if that is installed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import logdb
import logdb.aio
from benchmarks.tpcc.servers import Postgres, has_postgres
from benchmarks.tpcc.workload import Scale as Rows
from logdb.api.database import Database
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.connecting import connect
from tests.harness.server_process import ServerProcess

KEYS: Final = [b"key-%d" % number for number in range(10)]
TIMEOUT_S: Final = 60.0
WORK: Final = ("read-modify-write", "ten reads")


class Scale(NamedTuple):
    """How much is measured: in each round each client runs `transactions` of each kind."""

    rounds: int
    transactions: int


FULL: Final = Scale(rounds=7, transactions=300)
QUICK: Final = Scale(rounds=1, transactions=3)

Turn = Callable[[str, int], None]
"""Runs so many transactions of a kind."""


class Measured(NamedTuple):
    """Median CPU time of a transaction in microseconds, by kind."""

    client: str
    cpu_us: dict[str, float]


def measure(directory: Path, scale: Scale, progress: Callable[[str], object]) -> list[Measured]:
    """Measure in `directory`."""
    with ExitStack() as stack:
        server = ServerProcess(directory / "data")
        stack.callback(server.close)
        turns: dict[str, Turn] = {
            "LogDB, threads": stack.enter_context(_threads(logdb.connect(server.address, timeout=TIMEOUT_S))),
            "LogDB, thread that waits for a loop": stack.enter_context(_threads(_in_loop(server.address))),
            "LogDB, asyncio": stack.enter_context(_coroutines(server.address)),
        }
        if has_postgres():
            turns["psycopg"] = stack.enter_context(_psycopg(directory / "postgres"))
        spent: dict[tuple[str, str], list[float]] = {}
        for number in range(-1, scale.rounds):
            progress(f"round {max(number, 0) + 1} of {scale.rounds}")
            for client, turn in turns.items():
                for work in WORK:
                    begun = time.process_time()
                    turn(work, scale.transactions)
                    if number >= 0:  # the round before the first one only warms up
                        took_us = 1e6 * (time.process_time() - begun) / scale.transactions
                        spent.setdefault((client, work), []).append(took_us)
    return [Measured(client, {work: statistics.median(spent[client, work]) for work in WORK}) for client in turns]


def lines(measured: list[Measured]) -> list[str]:
    """For people."""
    return [
        f"{client}: " + ", ".join(f"{work} {cpu_us[work]:,.0f} us of CPU" for work in WORK)
        for client, cpu_us in measured
    ]


def _in_loop(address: str) -> Database:
    return Database(BlockingBackend.open(connect([address], TIMEOUT_S)))


@contextmanager
def _threads(db: Database) -> Iterator[Turn]:
    def increment(txn: logdb.Transaction) -> None:
        txn[KEYS[0]] = b"%d" % (int(txn.get(KEYS[0], b"0")) + 1)

    def read(txn: logdb.Transaction) -> None:
        for key in KEYS:
            txn.get(key)

    def turn(work: str, count: int) -> None:
        for _ in range(count):
            db.run(increment if work == WORK[0] else read)

    with db:
        yield turn


@contextmanager
def _coroutines(address: str) -> Iterator[Turn]:
    async def increment(txn: logdb.aio.Transaction) -> None:
        txn[KEYS[0]] = b"%d" % (int(await txn.get(KEYS[0], b"0")) + 1)

    async def read(txn: logdb.aio.Transaction) -> None:
        for key in KEYS:
            await txn.get(key)

    async def turns(work: str, count: int) -> None:
        for _ in range(count):
            await db.run(increment if work == WORK[0] else read)

    with asyncio.Runner() as runner:
        db = runner.run(logdb.aio.connect(address, timeout=TIMEOUT_S))
        yield lambda work, count: runner.run(turns(work, count))
        runner.run(db.close())


@contextmanager
def _psycopg(directory: Path) -> Iterator[Turn]:
    import psycopg

    server = Postgres()
    server.start(directory, Rows(warehouses=1, customers=10, items=10, orders=10))
    try:
        with psycopg.connect(server.address) as connection:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            run: Any = connection.execute
            run("CREATE TABLE kv (key TEXT PRIMARY KEY, value INT)")
            for key in KEYS:
                run("INSERT INTO kv VALUES (%s, 0)", (key.decode(),))
            connection.commit()

            def turn(work: str, count: int) -> None:
                for _ in range(count):
                    with connection.transaction():
                        for key in KEYS if work == WORK[1] else KEYS[:1]:
                            (value,) = run("SELECT value FROM kv WHERE key = %s", (key.decode(),)).fetchone()
                        if work == WORK[0]:
                            run("UPDATE kv SET value = %s WHERE key = %s", (value + 1, key.decode()))

            yield turn
    finally:
        server.stop()
