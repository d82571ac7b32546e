"""Disk failures, a full disk and interrupts: acknowledged writes survive, and failed writes are reported."""

from __future__ import annotations

import contextlib
import errno
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

import logdb
from logdb.embedded import compactor
from logdb.log.segments import Disk
from logdb.store.checkpoint import Checkpoint
from tests.harness.opening import open_database

LARGE = b"large " * 2_000


class FailingDisk(Disk):
    """Fails the `fail_at`-th of the calls named in `calls`; with `permanent` also all later ones."""

    def __init__(self, calls: set[str], fail_at: int, code: int = errno.EIO, *, permanent: bool = True) -> None:
        self.calls, self.fail_at, self.code, self.permanent = calls, fail_at, code, permanent
        self.count = 0

    def _call(self, name: str) -> None:
        if name in self.calls:
            self.count += 1
            if self.count == self.fail_at or (self.permanent and self.count > self.fail_at > 0):
                raise OSError(self.code, "planted")

    def write(self, fd: int, data: bytes, offset: int) -> None:
        self._call("write")
        super().write(fd, data, offset)

    def sync(self, fd: int) -> None:
        self._call("sync")
        super().sync(fd)

    def allocate(self, fd: int, offset: int, length: int) -> None:
        self._call("allocate")
        super().allocate(fd, offset, length)


def commits(db: logdb.Database, model: dict[bytes, bytes], unknown: list[tuple[str, dict[bytes, bytes]]]) -> None:
    """Commit until the log fails. Adds acknowledged writes to `model`, and those with an unknown outcome to
    `unknown`."""
    for number in range(40):
        key = b"%d" % (number % 5)
        writes = {key: b"%d" % number, key + b"/large": b"%d" % number + LARGE}
        try:
            db.multi_put(writes)
        except logdb.OutcomeUnknown as error:
            assert error.advice is logdb.Advice.ASK_OUTCOME
            unknown.append((error.txn_id, writes))
            return
        model.update(writes)


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("nth", [1, 2, 3, 7, 12, 25])
def test_a_failed_write_or_sync(tmp_path: Path, call: str, nth: int) -> None:
    disk = FailingDisk({call}, 0)
    model: dict[bytes, bytes] = {}
    unknown: list[tuple[str, dict[bytes, bytes]]] = []
    db = open_database(tmp_path, disk=disk, segment_bytes=60_000)
    model[b"first"] = LARGE
    db.put(b"first", LARGE)
    disk.count, disk.fail_at = 0, nth
    with contextlib.suppress(logdb.Unavailable):
        commits(db, model, unknown)
    disk.fail_at = 0  # the disk works again, but the lost writes are unknown
    writes = [
        lambda: db.put(b"k", b"1"),
        lambda: db.delete(b"k"),
        lambda: db.test_and_multi_put([], {b"k": b"1"}),
        lambda: db.pin("name"),
        db.compact,
    ]
    for write in writes:
        with pytest.raises(logdb.Unavailable, match="close it and open it again"):
            write()
    assert dict(db.scan()) == model
    with db.transaction() as txn:
        assert dict(txn.scan()) == model
    for txn_id, _ in unknown:
        with pytest.raises(logdb.Unavailable):
            db.outcome(txn_id)
    db.close()
    with logdb.open(tmp_path) as again:
        for txn_id, written in unknown:
            outcome = again.outcome(txn_id)
            assert outcome.status in (logdb.Status.COMMITTED, logdb.Status.NOT_FOUND)
            if outcome.committed:
                model.update(written)
        assert dict(again.scan()) == model
        again.put(b"k", b"1")


def test_a_full_disk_rejects_writes_until_there_is_space(tmp_path: Path) -> None:
    disk = FailingDisk({"allocate"}, 0, errno.ENOSPC)
    with open_database(tmp_path, disk=disk, segment_bytes=60_000) as db:
        db.put(b"k", b"1")
        disk.count, disk.fail_at = 0, 1
        before, version = dict(db.scan()), db.version
        rejected = 0
        for number in range(20):
            try:
                version = db.put(b"large", b"%d" % number + LARGE)
                before = dict(db.scan())
            except logdb.Unavailable as error:
                assert "free some space and try again" in str(error)
                assert error.advice is logdb.Advice.RETRY
                rejected += 1
        assert rejected > 10
        assert dict(db.scan()) == before
        assert dict(db.at(version).scan()) == before
        disk.fail_at = 0
        db.put(b"large", b"again" + LARGE)
        expected = dict(db.scan())
        assert expected[b"large"] == b"again" + LARGE
    with logdb.open(tmp_path) as again:
        assert dict(again.scan()) == expected


def no_new_threads(patched: pytest.MonkeyPatch, name: str) -> list[str]:
    """Let threads of this name not start. Returns the list of those that were tried."""
    start, refused = threading.Thread.start, list[str]()

    def refuse(thread: threading.Thread) -> None:
        if thread.name == name:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        start(thread)

    patched.setattr(threading.Thread, "start", refuse)
    return refused


def test_a_commit_succeeds_although_no_thread_can_start_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it raised RuntimeError after its record was ordered, and so did the close."""
    refused = no_new_threads(monkeypatch, "logdb-checkpoint")
    with open_database(tmp_path, overlay_bytes=1_000) as db:
        for number in range(10):
            db.put(b"%d" % number, b"v" * 1_000)
    assert refused
    with logdb.open(tmp_path) as again:
        assert len(dict(again.scan())) == 10


def test_a_compaction_for_which_no_thread_can_start_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the opening raised RuntimeError."""
    with logdb.open(tmp_path) as db:
        db.put(b"k", b"v")
    monkeypatch.setattr(compactor, "is_worth_compacting", lambda *_: True)
    refused = no_new_threads(monkeypatch, "logdb-compact")
    with logdb.open(tmp_path, compact_above=0.1) as db:
        assert db.get(b"k") == b"v"
    assert refused


def test_a_checkpoint_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_database(tmp_path) as db:
        db.put(b"old", b"1")
        db.checkpoint()
        db.multi_put({b"%d" % number: b"1" for number in range(100)})
        with monkeypatch.context() as patched:

            def full(*_: object) -> None:
                raise lmdb.MapFullError("planted")

            patched.setattr(Checkpoint, "_put_all", full)
            with pytest.raises(logdb.Unavailable):
                db.checkpoint()
            db.put(b"0", b"2")
            with pytest.raises(logdb.Unavailable):
                db.checkpoint()
            expected = dict(db.scan())
            assert expected[b"0"] == b"2"
        assert db.checkpoint() == db.version
        assert dict(db.scan()) == expected
    with logdb.open(tmp_path) as again:
        assert dict(again.scan()) == expected


@pytest.fixture
def interrupted() -> Iterator[threading.Event]:
    """SIGALRM raises KeyboardInterrupt in the main thread, as Ctrl-C does. The event is set even if Python discards the
    exception, as it does in a `__del__` that the garbage collector calls."""
    interrupted = threading.Event()

    def interrupt(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield interrupted
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_random_points_of_a_commit_loop(tmp_path: Path, interrupted: threading.Event) -> None:
    acknowledged: dict[int, int] = {}
    number = 0
    delays = random.Random(7)
    for _ in range(60):
        interrupted.clear()
        db = open_database(tmp_path, segment_bytes=60_000)
        stop = threading.Event()

        def beside(db: logdb.Database = db, stop: threading.Event = stop) -> None:
            with contextlib.suppress(logdb.LogDBError):
                while not stop.is_set():
                    db.put(b"beside", b"1")

        thread = threading.Thread(target=beside)
        thread.start()
        try:
            signal.setitimer(signal.ITIMER_REAL, delays.uniform(0.0003, 0.006))
            while not interrupted.is_set():
                number += 1
                slot = number % 5
                value = b"%d" % number
                db.multi_put({b"a%d" % slot: value, b"b%d" % slot: value + LARGE})
                acknowledged[slot] = number
        except KeyboardInterrupt:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        stop.set()
        thread.join(30)
        assert not thread.is_alive(), "the committing thread hangs"
        db.close()
        with logdb.open(tmp_path) as db:
            for slot, least in acknowledged.items():
                value = db[b"a%d" % slot]
                assert int(value) >= least
                assert db[b"b%d" % slot] == value + LARGE
