"""`logdb bench`: a short workload against a database of your own, on your own disk. Peers are compared in
`benchmarks/`.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import click

import logdb
from logdb import Database, Transaction

from . import rendering
from .failing import BadInput
from .session import Session, as_json, database

PREFIX: Final = b"bench/"
GROUP: Final = 10
HOT: Final = 10


class Measured(NamedTuple):
    """One row of the result."""

    workload: str
    operations: int
    seconds: float
    rate: float
    unit: str
    p50_us: float
    p99_us: float


class Workload(NamedTuple):
    """`step(db, i)` is done once for each of the operations, by all threads together."""

    name: str
    unit: str
    share: int
    step: Callable[[Database, int], object]


@click.command()
@click.option(
    "-n",
    "--operations",
    type=click.IntRange(min=10),
    default=10_000,
    show_default=True,
    help="Number of puts and gets.",
)
@click.option("--threads", type=click.IntRange(1, 1000), default=1, show_default=True, help="Number of threads.")
@click.option(
    "--value-bytes",
    type=click.IntRange(0, logdb.MAX_VALUE_BYTES),
    default=100,
    show_default=True,
    help="Size of a value.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the keys' order and of the values.")
@click.option("--force", is_flag=True, help="Also run in a database that is not empty; overwrites the keys bench/...")
@as_json
@database
@click.pass_obj
def bench(
    session: Session, operations: int, threads: int, value_bytes: int, seed: int, force: bool, as_json: bool
) -> None:
    """Measure durable puts, gets, multi-puts, multi-gets, transactions and a scan. The keys bench/... stay
    in the database.
    """
    with session.open(read_only=False, create=True) as db:
        if not force and next(db.scan(limit=1), None) is not None:
            raise BadInput(
                f"{db.path} is not empty; give a new directory, or --force to write the keys bench/... in it"
            )
        randomness = random.Random(seed)
        value = randomness.randbytes(value_bytes)
        keys = [PREFIX + f"{number:010}".encode() for number in range(operations)]
        shuffled = randomness.sample(keys, operations)
        measured = []
        with rendering.progress("measuring", "operations") as tick:
            workloads = _workloads(keys, shuffled, value)
            for position, workload in enumerate(workloads):
                tick(position, len(workloads) + 1)
                measured.append(_run(db, workload, max(1, operations // workload.share), threads))
            tick(len(workloads), len(workloads) + 1)
            measured.append(_scan(db))
    rendering.rows(Measured._fields, measured, as_json=as_json)


def _workloads(keys: list[bytes], shuffled: list[bytes], value: bytes) -> list[Workload]:
    def group(number: int) -> list[bytes]:
        first = number * GROUP % len(keys)
        return shuffled[first : first + GROUP]

    def increment(txn: Transaction, number: int) -> None:
        key = keys[number % HOT]
        txn[key] = (txn.get(key) or b"")[:-8] + number.to_bytes(8)

    return [
        Workload("put", "puts/s", 1, lambda db, i: db.put(keys[i], value)),
        Workload(
            "multi-put of 10",
            "multi-puts/s",
            GROUP,
            lambda db, i: db.multi_put(dict.fromkeys(group(i), value)),
        ),
        Workload("get", "gets/s", 1, lambda db, i: db.get(shuffled[i])),
        Workload("multi-get of 10", "multi-gets/s", GROUP, lambda db, i: db.multi_get(group(i))),
        Workload("read-modify-write, 10 hot keys", "commits/s", GROUP, lambda db, i: db.run(increment, i)),
    ]


def _run(db: Database, workload: Workload, operations: int, threads: int) -> Measured:
    numbers = itertools.count()
    latencies: list[list[float]] = [[] for _ in range(threads)]
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(mine: list[float]) -> None:
        try:
            while (number := next(numbers)) < operations and not stop.is_set():
                begun = time.perf_counter()
                workload.step(db, number)
                mine.append(time.perf_counter() - begun)
        except Exception as error:
            failures.append(error)
            stop.set()

    workers = [threading.Thread(target=work, args=(mine,)) for mine in latencies]
    begun = time.perf_counter()
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        stop.set()
    seconds = time.perf_counter() - begun
    if failures:
        raise failures[0]
    return _measured(workload.name, workload.unit, sorted(itertools.chain(*latencies)), seconds)


def _scan(db: Database) -> Measured:
    begun = time.perf_counter()
    rows = sum(1 for _ in db.scan(prefix=PREFIX))
    seconds = time.perf_counter() - begun
    return Measured("scan", rows, seconds, rows / seconds, "rows/s", 0.0, 0.0)


def _measured(name: str, unit: str, latencies: list[float], seconds: float) -> Measured:
    def percentile(share: float) -> float:
        return latencies[min(len(latencies) - 1, int(share * len(latencies)))] * 1e6

    count = len(latencies)
    return Measured(name, count, seconds, count / seconds, unit, percentile(0.5), percentile(0.99))
