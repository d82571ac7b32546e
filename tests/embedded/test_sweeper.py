"""Sweeps in the background of a process."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import logdb
import logdb.aio
from logdb.errors import Unavailable
from logdb.retention.sweep import LABEL
from tests.harness.opening import host_of

Sweeps = Callable[[], list[threading.Thread]]


@pytest.fixture
def sweeps() -> Sweeps:
    """The threads that sweep and were not there before the test."""
    before = set(threading.enumerate())
    return lambda: [thread for thread in threading.enumerate() if thread.name == "logdb-sweep" and thread not in before]


def until_deleted(db: logdb.Database, since: int, key: bytes) -> None:
    for change in db.watch(keys=[key], since=since, timeout=20):
        if change.changes[key] is None:
            assert change.label == LABEL
            return
    raise AssertionError("the key does not expire")


@pytest.mark.parametrize("where", ["memory", "directory"])
def test_what_has_expired_is_deleted_in_the_background(where: str, tmp_path: Path, sweeps: Sweeps) -> None:
    path = ":memory:" if where == "memory" else str(tmp_path / "db")
    with logdb.open(path, sweep_interval=0.002) as db:
        version = db.put(b"k", b"v", ttl=0.002)
        until_deleted(db, version, b"k")
        assert len(sweeps()) == 1
        while not (found := db.stats()).expired_keys:  # the sweep has not ended
            pass
        assert (found.expired_keys, found.truncated_logs) == (1, 0)
    assert sweeps() == []


def test_a_later_opening_continues(tmp_path: Path, sweeps: Sweeps) -> None:
    with logdb.open(tmp_path / "db", sweep_interval=None) as db:
        version = db.put(b"k", b"v", ttl=0.001)
        assert sweeps() == []
    with logdb.open(tmp_path / "db", read_only=True, sweep_interval=0.001):
        assert sweeps() == []
    with logdb.open(tmp_path / "db", sweep_interval=0.002) as db:
        until_deleted(db, version, b"k")


def test_asyncio(tmp_path: Path, sweeps: Sweeps) -> None:
    async def expire() -> None:
        async with await logdb.aio.open(tmp_path / "db", sweep_interval=0.002) as db:
            version = await db.put(b"k", b"v", ttl=0.002)
            changes = aiter(db.watch(keys=[b"k"], since=version, timeout=20))
            assert (await anext(changes)).changes == {b"k": None}

    asyncio.run(expire())
    assert sweeps() == []


def test_an_unreferenced_database_is_swept_no_more(sweeps: Sweeps) -> None:
    db = logdb.open(":memory:", sweep_interval=1_000)
    (thread,) = sweeps()
    del db
    gc.collect()
    thread.join(20)
    assert not thread.is_alive()


def test_a_sweep_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with logdb.open(":memory:", sweep_interval=None) as db:
        backend = host_of(db)
        right, failures = backend.time_of, iter([True, True])

        def time_of(version: int) -> int | None:
            if next(failures, False):
                raise Unavailable("the disk is full")
            return right(version)

        monkeypatch.setattr(backend, "time_of", time_of)
        version = db.put(b"k", b"v", ttl=0.001)
        backend.sweep_every(0.001)
        until_deleted(db, version, b"k")
    assert caplog.text.count("could not be deleted; it is tried again: the disk is full") == 2


def test_a_sweep_beyond_its_bound_is_continued_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.retention.sweep.MAX_ROWS", 10)
    with logdb.open(":memory:", sweep_interval=None) as db:
        version = db.multi_put({b"%d" % n: b"v" for n in range(95)}, ttl=0.001)
        while db.sweep() != (10, 0, False):
            pass
        backend = host_of(db)
        backend.sweep_every(0.05)
        last = sorted(b"%d" % n for n in range(95))
        for key in last:
            if key in db:
                until_deleted(db, version, key)
        assert list(db.scan(b"0", b"a")) == []


@pytest.mark.parametrize("interval", [0, -1, "1", float("nan")])
def test_bad_intervals_are_refused(interval: object) -> None:
    with pytest.raises((ValueError, TypeError), match="sweep_interval"):
        logdb.open(":memory:", sweep_interval=interval)  # type: ignore[arg-type]
