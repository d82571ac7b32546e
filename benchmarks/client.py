"""CPU time of a client's process for a transaction that reads and writes a key, and for one that reads ten keys one by
one. The clients take turns in one process: LogDB's client for threads, the same in an event loop for which the thread
waits, LogDB's client for asyncio, and psycopg with PostgreSQL if that is installed. At a cluster: the clients for
threads and for asyncio.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

import logdb
import logdb.aio
from benchmarks.clusters import PROCESSES, Cluster, nodes_of
from benchmarks.tpcc.servers import Postgres, has_postgres
from benchmarks.tpcc.workload import Scale as Rows
from logdb.api.database import Database
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.blocking_backend import BlockingBackend
from logdb.clients.connecting import connect
from tests.harness.server_process import ServerProcess

KEYS: Final = [b"key-%d" % number for number in range(10)]
TIMEOUT_S: Final = 60.0
ONE_KEY, NEW_KEY, READS = WORK = ("read-modify-write of one key", "of a new key", "ten reads")
"""The kinds of transactions. A client of LogDB reads a key that it has just written without a request."""


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
    """Measure a server in `directory`."""
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
        return _in_turns(turns, scale, progress)


def measure_cluster(
    directory: Path, layout: str, engine: str, scale: Scale, progress: Callable[[str], object]
) -> list[Measured]:
    """Measure a cluster in `directory`: three "nodes", or "processes" for each server."""
    shape = nodes_of(engine, 3) if layout == "nodes" else PROCESSES[engine]
    with Cluster(directory / "cluster", shape) as cluster, ExitStack() as stack:
        turns = {
            "threads": stack.enter_context(_threads(logdb.connect(cluster.endpoints, timeout=TIMEOUT_S))),
            "asyncio": stack.enter_context(_coroutines(cluster.endpoints)),
        }
        return _in_turns(turns, scale, progress)


def _in_turns(turns: dict[str, Turn], scale: Scale, progress: Callable[[str], object]) -> list[Measured]:
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


def _keys_of(work: str) -> Iterator[bytes]:
    """The key of each transaction."""
    return map(b"new-%d".__mod__, count(time.monotonic_ns())) if work == NEW_KEY else repeat(KEYS[0])


@contextmanager
def _threads(db: Database) -> Iterator[Turn]:
    def increment(txn: logdb.Transaction, key: bytes) -> None:
        txn[key] = b"%d" % (int(txn.get(key, b"0")) + 1)

    def read(txn: logdb.Transaction, _: bytes) -> None:
        for key in KEYS:
            txn.get(key)

    def turn(work: str, number: int) -> None:
        for key in islice(_keys_of(work), number):
            db.run(read if work == READS else increment, key)

    with db:
        yield turn


@contextmanager
def _coroutines(addresses: str) -> Iterator[Turn]:
    async def increment(txn: logdb.aio.Transaction, key: bytes) -> None:
        txn[key] = b"%d" % (int(await txn.get(key, b"0")) + 1)

    async def read(txn: logdb.aio.Transaction, _: bytes) -> None:
        for key in KEYS:
            await txn.get(key)

    async def turns(work: str, number: int) -> None:
        for key in islice(_keys_of(work), number):
            await db.run(read if work == READS else increment, key)

    db = in_shared_loop(logdb.aio.connect(addresses, timeout=TIMEOUT_S))  # gRPC works in one loop of a process
    yield lambda work, number: in_shared_loop(turns(work, number))
    in_shared_loop(db.close())


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
            upsert = "INSERT INTO kv VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value"

            def turn(work: str, number: int) -> None:
                for key in islice(_keys_of(work), number):
                    with connection.transaction():
                        for one in KEYS if work == READS else (key,):
                            row = run("SELECT value FROM kv WHERE key = %s", (one.decode(),)).fetchone()
                        if work != READS:
                            run(upsert, (key.decode(), row[0] + 1 if row else 1))

            yield turn
    finally:
        server.stop()
