"""Where a write is synced: in the server's loop if nobody else could miss the loop meanwhile, else in a thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import logdb
from logdb.embedded import coroutines
from logdb.log.contract import LogFailed
from logdb.log.local import LocalLog
from tests.net.serving import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with closing(Served(tmp_path / "served")) as served:
        yield served


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of those in which syncs were made."""
    names: list[str] = []
    wait_durable = LocalLog.wait_durable

    def noted(log: LocalLog, gsn: int) -> None:
        names.append(threading.current_thread().name)
        wait_durable(log, gsn)

    monkeypatch.setattr(LocalLog, "wait_durable", noted)
    return names


def in_thread(threads: list[str]) -> list[bool]:
    found = [name == "logdb-sync" for name in threads]
    threads.clear()
    return found


def test_a_lone_write_is_synced_in_the_loop(
    served: Served, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "HANDOVER_S", 1e9)
    with logdb.connect(served.address) as db:
        for key in (b"1", b"2", b"3"):
            db.put(key, b"v")
        assert in_thread(threads) == [True, False, False], "the first one tells how quick the disk is"
        with db.transaction() as txn:
            txn[b"1"] = txn[b"2"]
        assert in_thread(threads) == [False]
        with db.transaction() as other:
            assert other[b"1"] == b"v"
            db.put(b"4", b"v")
        assert in_thread(threads) == [True], "whose transaction runs is not to wait"
        with logdb.connect(served.address) as second:
            second.put(b"5", b"v")
        assert in_thread(threads) == [True], "there was another client"


def test_a_slow_disk_is_waited_for_in_a_thread(
    served: Served, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "HANDOVER_S", 0.0)
    with logdb.connect(served.address) as db:
        for key in (b"1", b"2", b"3"):
            db.put(key, b"v")
    assert in_thread(threads) == [True, True, True]


def test_a_lone_write_whose_sync_fails_is_not_known_to_be_durable(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coroutines, "HANDOVER_S", math.inf)

    def broken(log: LocalLog, gsn: int) -> None:
        raise LogFailed("planted")

    with logdb.connect(served.address) as db:
        with monkeypatch.context() as planted:
            planted.setattr(LocalLog, "wait_durable", broken)
            with pytest.raises(logdb.OutcomeUnknown, match="planted"):
                db.put(b"k", b"v")
        with pytest.raises(logdb.Unavailable):
            db.put(b"k", b"v")
