"""Processes that consume a log are killed: each entry takes effect once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import logdb
from tests.harness.served import Served
from tests.named_logs.consuming import COPIES, COUNTS, consumer_of, count

ROOT = Path(__file__).resolve().parent.parent.parent
KILLS = 2


@contextmanager
def consumers(number: int, where: str, kind: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that consume the log, killed at the end."""
    command = [sys.executable, "-m", "tests.named_logs.consuming", where, kind]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(number)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.communicate()


def lines(process: subprocess.Popen[bytes], number: int) -> None:
    """Wait for lines of output: entries that have been consumed."""
    assert process.stdout is not None
    for _ in range(number):
        assert process.stdout.readline()


def check(db: logdb.Database, entries: int, kind: str) -> None:
    """Consume the rest, and compare the effects."""
    orders = db.log("orders")
    with consumer_of(orders, kind) as consumer:
        while sum(state.lag for state in orders.consumers()):
            consumer.run(count, timeout=0.2, batch=10)
    counts = {key: int(value) for prefix in (COUNTS, COPIES) for key, value in db.scan(prefix=prefix)}
    assert counts == {prefix + b"%d" % number: 1 for prefix in (COUNTS, COPIES) for number in range(entries)}


@pytest.mark.parametrize("kind", ["consumer", "group"])
def test_consumers_of_a_server_are_killed(kind: str, served: Served) -> None:
    draw, appended = Random(7), 0
    with logdb.connect(served.address) as db:
        for _ in range(KILLS):
            for _ in range(6):
                key = b"key %d" % draw.randrange(20)
                db.log("orders").extend([b"%d" % number for number in range(appended, appended + 10)], key=key)
                appended += 10
            effects = db.watch(COUNTS, since=db.version)
            with consumers(2, served.address, kind):
                for _ in range(draw.randint(1, 20)):
                    next(effects)
        check(db, appended, kind)


def test_a_consumer_is_killed_with_its_database(tmp_path: Path) -> None:
    path, draw = tmp_path / "db", Random(7)
    with logdb.open(path) as db:
        db.log("orders").extend([b"%d" % number for number in range(100)])
    for _ in range(KILLS):
        with consumers(1, str(path), "consumer") as (process,):
            lines(process, draw.randint(1, 9))
    with logdb.open(path) as db:
        check(db, 100, "consumer")
