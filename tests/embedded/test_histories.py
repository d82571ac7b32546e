"""Recorded histories of concurrent transactions: strict serializability, a constant sum, no write skew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import logdb
from tests.harness.opening import open_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    with open_database(tmp_path, segment_bytes=60_000, overlay_bytes=30_000) as db:
        yield db


def together(db: logdb.Database, *bodies: Callable[[], None]) -> None:
    """Run the bodies in threads, beside a thread that checkpoints and compacts."""
    stop, wrong = threading.Event(), list[Exception]()

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            wrong.append(error)

    def upkeep() -> None:
        while not stop.wait(0.01):
            db.checkpoint()
            db.compact(before=max(db.oldest_version, db.version - 100))

    aside = threading.Thread(target=guarded, args=(upkeep,))
    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in (aside, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    aside.join()
    assert wrong == []


class Ran(NamedTuple):
    """A transaction: the newest version before its start, its own version, its reads and its appends."""

    before: int
    version: int
    reads: dict[bytes, bytes]
    appended: dict[bytes, bytes]


def test_list_append_is_strictly_serializable(db: logdb.Database) -> None:
    ran: list[Ran] = []

    def work(worker: int) -> None:
        random = Random(worker)
        for number in range(40):
            before = db.version

            def body(txn: logdb.Transaction, number: int = number) -> tuple[logdb.Transaction, Ran]:
                chosen = [b"l%d" % name for name in random.sample(range(4), 2)]
                reads = {key: txn.get(key, b"") or b"" for key in chosen}
                appended = {key: value + b"%d.%d;" % (worker, number) for key, value in reads.items()}
                txn.multi_put(dict(list(appended.items())[: random.randrange(3)]))
                return txn, Ran(before, 0, reads, dict(txn.writes))  # type: ignore[arg-type]

            txn, run = db.run(body)
            ran.append(run._replace(version=txn.version))

    together(db, *(lambda worker=worker: work(worker) for worker in range(4)))
    state: dict[bytes, bytes] = {}
    states = {0: dict(state)}
    for run in sorted((run for run in ran if run.appended), key=lambda run: run.version):
        assert run.before < run.version, "a commit was ordered before one that had returned when it began"
        assert run.reads == {key: state.get(key, b"") for key in run.reads}, "a read contradicts the order"
        state.update(run.appended)
        states[run.version] = dict(state)
    for run in ran:
        if not run.appended:
            assert run.before <= run.version
            at = states[max(version for version in states if version <= run.version)]
            assert run.reads == {key: at.get(key, b"") for key in run.reads}
    assert dict(db.scan()) == state


def test_the_sum_of_all_accounts_is_the_same_in_every_snapshot(db: logdb.Database) -> None:
    accounts = [b"a%d" % number for number in range(6)]
    db.multi_put(dict.fromkeys(accounts, b"100"))

    def transfer(txn: logdb.Transaction, random: Random) -> None:
        source, target = random.sample(accounts, 2)
        amount = random.randrange(1, 20)
        txn[source] = b"%d" % (int(txn[source]) - amount)
        txn[target] = b"%d" % (int(txn[target]) + amount)

    def move(worker: int) -> None:
        random = Random(worker)
        for _ in range(60):
            db.run(transfer, random)

    def watch() -> None:
        for number in range(150):
            if number % 3 == 0:
                held = list(db.multi_get(accounts).values())
            elif number % 3 == 1:
                held = [value for _, value in db.scan()]
            else:
                with db.transaction(read_only=True) as txn:
                    held = [txn[key] for key in accounts]
            assert sum(map(int, held)) == 600

    together(db, *(lambda worker=worker: move(worker) for worker in range(3)), watch)
    for item in db.watch(since=db.oldest_version, timeout=0):
        assert sum(int(value) for _, value in db.at(item.version).scan()) == 600


def test_write_skew_never_happens(db: logdb.Database) -> None:
    """Each doctor goes off call only if another one is on call; half of them check by a scan."""
    for round_ in range(25):
        doctors = [b"doctor/%d/%d" % (round_, number) for number in range(4)]
        db.multi_put(dict.fromkeys(doctors, b"on"))
        barrier = threading.Barrier(4)

        def leave(number: int, doctors: list[bytes] = doctors, barrier: threading.Barrier = barrier) -> None:
            def body(txn: logdb.Transaction) -> None:
                if number % 2:
                    on = [key for key, value in txn.scan(prefix=doctors[0][:-1]) if value == b"on"]
                else:
                    on = [key for key in doctors if txn[key] == b"on"]
                if len(on) > 1:
                    txn[doctors[number]] = b"off"

            barrier.wait()
            db.run(body)

        together(db, *(lambda number=number: leave(number) for number in range(4)))
        assert sum(value == b"on" for value in db.multi_get(doctors).values()) == 1
