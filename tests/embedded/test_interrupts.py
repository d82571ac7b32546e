"""Ctrl-C during opening, compaction or closing: the database can be opened again, also in this process, with all
acknowledged writes."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import logdb
from logdb.api.inspection import audit, verify
from logdb.txn.retry import attempt
from tests.harness.forks import in_child
from tests.harness.interrupts import InterruptedAtCall

SAMPLES = 40


def writing(path: Path) -> None:
    with logdb.open(path):
        pass


def reading(path: Path) -> None:
    with logdb.open(path, read_only=True):
        pass


def compacting(path: Path) -> None:
    with logdb.open(path) as db:
        db.compact()


@pytest.mark.parametrize("work", [writing, reading, compacting])
def test_at_any_call(tmp_path: Path, work: Callable[[Path], None]) -> None:
    path = tmp_path / "data"
    with logdb.open(path) as db:
        db.multi_put({b"k%d" % number: b"v" for number in range(20)})
        db.checkpoint()
        db.put(b"k0", b"new")
    with InterruptedAtCall(0) as counting:
        work(path)
    step = max(1, counting.calls // SAMPLES)

    def interrupt_each() -> int:
        interrupted = 0
        for at in range(1, counting.calls, step):
            try:
                with InterruptedAtCall(at):
                    work(path)
            except KeyboardInterrupt:
                interrupted += 1
            gc.collect()
            assert str(path / "map") not in Path("/proc/self/maps").read_text(), at  # LMDB's files are closed
            with logdb.open(path) as db:
                assert db[b"k0"] == b"new", at
                assert sum(1 for _ in db.scan()) == 20, at
        return interrupted

    # In a child, since Python prints exceptions that are raised while generators end.
    assert in_child(interrupt_each) > SAMPLES // 2
    assert verify(path).damage == []


def test_a_commit_at_any_call(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with logdb.open(path) as db:
        db.put(b"k", b"0")

    def work(db: logdb.Database, ids: list[str]) -> None:
        with db.transaction() as txn:
            ids.append(txn.id)
            txn[b"k"] = b"%d" % (int(txn[b"k"]) + 1)

    with logdb.open(path) as db, InterruptedAtCall(0) as counting:
        work(db, [])
    done = 1
    for at in range(1, counting.calls):
        ids: list[str] = []
        reported = None
        with logdb.open(path) as db:
            with contextlib.suppress(KeyboardInterrupt), InterruptedAtCall(at):
                work(db, ids)
            with contextlib.suppress(logdb.Unavailable):
                db.checkpoint()
            with contextlib.suppress(logdb.Unavailable):
                reported = db.outcome(ids[0]).status if ids else None
        with logdb.open(path) as db:
            outcome = db.outcome(ids[0]) if ids else None
            done += outcome is not None and outcome.committed
            assert db[b"k"] == b"%d" % done, at
            assert reported in (None, outcome and outcome.status), at
    assert done > 1
    assert audit(path).difference is None


def test_a_run_is_over_after_an_interrupt_at_any_call() -> None:
    """After one between the mark of a run and its `try`, each later run of the thread was refused as one inside it."""
    with logdb.open(":memory:") as db:
        for nth in itertools.count(1):
            calls = 0

            def interrupt(frame: FrameType, event: str, _: object, nth: int = nth) -> None:
                """Python handles signals when a function is called, and after each call of one of C."""
                nonlocal calls
                calls += event in ("call", "c_return") and frame.f_code is attempt.__code__
                if calls == nth:
                    raise KeyboardInterrupt

            try:
                sys.setprofile(interrupt)
                db.run(lambda txn: None, read_only=True)
            except KeyboardInterrupt:
                sys.setprofile(None)
            else:
                sys.setprofile(None)
                break
            assert db.run(lambda txn: nth, read_only=True) == nth
        assert nth > 5
