"""Ctrl-C in the middle of opening, compacting or closing: the database opens again, in this process too, with all."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import logdb
from logdb.api.inspection import audit, verify
from tests.harness.forks import in_child

HERE = str(Path(logdb.__file__).parent)
SAMPLES = 40


class Interrupting:
    """While it is entered, Ctrl-C comes when the `at`-th call of a function of LogDB's begins; `calls`: how many did.

    Python looks for signals there. It does not before it leaves a `with`, where a trace of lines could interrupt.
    """

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __enter__(self) -> Interrupting:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        # Python discards exceptions raised in __del__.
        if frame.f_code.co_filename.startswith(HERE) and frame.f_code.co_name != "__del__":
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt


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
    with Interrupting(0) as counting:
        work(path)
    step = max(1, counting.calls // SAMPLES)

    def interrupt_each() -> int:
        interrupted = 0
        for at in range(1, counting.calls, step):
            try:
                with Interrupting(at):
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

    with logdb.open(path) as db, Interrupting(0) as counting:
        work(db, [])
    done = 1
    for at in range(1, counting.calls):
        ids: list[str] = []
        told = None
        with logdb.open(path) as db:
            with contextlib.suppress(KeyboardInterrupt), Interrupting(at):
                work(db, ids)
            with contextlib.suppress(logdb.Unavailable):
                db.checkpoint()
            with contextlib.suppress(logdb.Unavailable):
                told = db.outcome(ids[0]).status if ids else None
        with logdb.open(path) as db:
            outcome = db.outcome(ids[0]) if ids else None
            done += outcome is not None and outcome.committed
            assert db[b"k"] == b"%d" % done, at
            assert told in (None, outcome and outcome.status), at
    assert done > 1
    assert audit(path).difference is None
