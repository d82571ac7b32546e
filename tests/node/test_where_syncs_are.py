"""A server syncs in its loop while the disk is fast, else in a thread."""

from __future__ import annotations

import math
import threading

import pytest

import logdb
from logdb.embedded import acknowledgements
from logdb.log.contract import LogFailed
from logdb.log.local.local_log import LocalLog
from tests.harness.served import Served


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


def three_writes(served: Served) -> None:
    with logdb.connect(served.address) as db:
        for key in (b"1", b"2", b"3"):
            db.put(key, b"v")


def test_a_quick_disk_is_waited_for_in_the_loop(
    served: Served, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "HANDOVER_S", 1e9)
    three_writes(served)
    assert [name == "logdb-sync" for name in threads] == [True, False, False], "the first one measures the disk"


def test_a_slow_disk_is_waited_for_in_a_thread(
    served: Served, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "HANDOVER_S", 0.0)
    three_writes(served)
    assert threads == ["logdb-sync"] * 3


def test_records_of_a_failed_sync_in_the_loop_are_not_reported_as_durable(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgements, "HANDOVER_S", math.inf)

    def broken(log: LocalLog, gsn: int) -> None:
        raise LogFailed("planted")

    with logdb.connect(served.address) as db:
        with monkeypatch.context() as planted:
            planted.setattr(LocalLog, "wait_durable", broken)
            with pytest.raises(logdb.OutcomeUnknown, match="planted"):
                db.put(b"k", b"v")
        with pytest.raises(logdb.Unavailable):
            db.put(b"k", b"v")
