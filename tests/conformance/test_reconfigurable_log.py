"""The contract `Reconfigurable` (`logdb/log/contract.py`): appends continue while shards are added and finalized."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, NotOfThisShard, Reconfigurable, TraceableLog
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, SetCutInterval
from tests.conformance.logs import (
    ENGINE_OF,
    JOIN_S,
    RECONFIGURABLE,
    Clock,
    a_shard,
    all_records,
    changed_by,
    follow,
    numbered,
    read,
)
from tests.sim.engines import simulation_of

CHANGES: dict[type, Callable[[Reconfigurable, int], object]] = {
    AddShard: lambda log, shard: log.add_shard(),
    FinalizeShard: lambda log, shard: log.finalize_shard(shard),
    ReplaceServer: lambda log, shard: log.replace_server(log.members(shard)[0]),
    AddReplica: lambda log, shard: log.add_replica(shard),
    SetCutInterval: lambda log, shard: log.set_cut_interval(0.01),
}


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reconfigurable]:
    engine = RECONFIGURABLE[request.param](tmp_path / "log", Clock())
    yield engine
    engine.close()


class Appending:
    """A thread that appends continuously, and must not get an error."""

    def __init__(self, log: Reconfigurable) -> None:
        self.log = log
        self.gsns: list[int] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._append, daemon=True)

    def _append(self) -> None:
        while not self._stopping:
            self.gsns.extend(self.log.append([(2, b"%d" % len(self.gsns))]))

    def __enter__(self) -> Appending:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        before = len(self.gsns)
        while self._thread.is_alive() and len(self.gsns) < before + 5:
            self.log.tail()
        self._stopping = True
        self._thread.join(JOIN_S)
        assert len(self.gsns) >= before + 5, "the thread ended with an error"

    def check(self) -> None:
        """Check that all records are in the log, once and in order."""
        records = [record for record in all_records(self.log) if record.tag == 2]
        assert [(record.gsn, record.payload) for record in records] == [
            (gsn, b"%d" % number) for number, gsn in enumerate(self.gsns)
        ]


@changed_by()
def test_it_can_be_changed(log: Reconfigurable) -> None:
    assert isinstance(log, Reconfigurable)


@changed_by(AddShard)
def test_adding_a_shard_while_appends_go_on(log: Reconfigurable) -> None:
    before = log.view().active
    with Appending(log) as appending:
        shard = log.add_shard()
        assert log.view().active == before | {shard}
        gsns, _ = log.append_to_shard(numbered(2), shard)
    assert [log.read_record(gsn, shard).payload for gsn in gsns] == [b"0", b"1"]
    appending.check()


@changed_by(AddShard, FinalizeShard)
def test_finalizing_a_shard_while_appends_go_on(log: Reconfigurable) -> None:
    old = a_shard(log)
    gsns, _ = log.append_to_shard(numbered(3), old)
    subscription = log.subscribe(1)
    with Appending(log) as appending:
        log.add_shard()
        log.finalize_shard(old)
        assert old in log.view().finalized
        with pytest.raises(Unavailable, match=f"shard {old} is finalized"):
            log.append_to_shard(numbered(1), old)
    assert [log.read_record(gsn, old).payload for gsn in gsns] == [b"0", b"1", b"2"]
    with pytest.raises(NotOfThisShard):
        log.read_record(log.tail(), old)
    assert next(subscription).first == 1
    appending.check()


@changed_by(AddShard, FinalizeShard)
def test_a_grace_counts_cuts(log: Reconfigurable) -> None:
    old = a_shard(log)
    with Appending(log) as appending:
        log.add_shard()
        log.finalize_shard(old, grace=20)
        while old not in log.view().finalized:
            log.tail()
    appending.check()


@changed_by(ReplaceServer)
def test_replacing_a_server_while_appends_go_on(log: Reconfigurable) -> None:
    shard = a_shard(log)
    gsns, _ = log.append_to_shard(numbered(3), shard)
    members = log.members(shard)
    if len(members) == 1:
        with pytest.raises(Unavailable):
            log.replace_server(members[0])
        return
    with Appending(log) as appending:
        new = log.replace_server(members[0])
        assert set(log.members(shard)) == {*members[1:], new}
        more, _ = log.append_to_shard(numbered(3), shard)
    assert [log.read_record(gsn, shard).payload for gsn in (*gsns, *more)] == [b"0", b"1", b"2"] * 2
    appending.check()


@changed_by(AddShard, FinalizeShard, AddReplica)
def test_more_replicas_of_a_finalized_shard(log: Reconfigurable) -> None:
    shard = a_shard(log)
    gsns, _ = log.append_to_shard(numbered(3), shard)
    with pytest.raises(Unavailable, match="only a finalized one can have more replicas"):
        log.add_replica(shard)
    before = log.members(shard)
    log.add_shard()
    log.finalize_shard(shard)
    new = log.add_replica(shard)
    assert log.members(shard) == (*before, new)
    assert [log.read_record(gsn, shard).payload for gsn in gsns] == [b"0", b"1", b"2"]


@changed_by(SetCutInterval)
def test_the_interval_of_cuts_while_appends_go_on(log: Reconfigurable) -> None:
    with Appending(log) as appending:
        log.set_cut_interval(0.02)
        log.append(numbered(1, 3))
        log.set_cut_interval(0)
    with pytest.raises(Unavailable, match="0 to 10 s between two cuts"):
        log.set_cut_interval(11)
    appending.check()


@changed_by()
def test_the_outcome_of_an_unknown_append_can_be_requested(log: Reconfigurable) -> None:
    assert isinstance(log, TraceableLog)
    unknown: dict[bytes, AppendUnknown] = {}
    for number in range(1000):
        try:
            log.call(calls.Append([(3, b"%d" % number)] * 2), number % 20 * 1e-4)  # type: ignore[attr-defined]
        except AppendUnknown as error:
            unknown[b"%d" % number] = error
        except Unavailable:
            continue
        if len(unknown) >= 5:
            break
    assert unknown
    gsns = {payload: log.outcome(error.append_id) for payload, error in unknown.items()}
    found = {record.gsn: record.payload for record in all_records(log)}
    assert {payload: [gsn for gsn, it in found.items() if it == payload] for payload in gsns} == gsns
    foreign = AppendId(1, ((1, 1),))
    with pytest.raises(AppendUnknown, match="1 of its records were not found"):
        log.outcome(foreign, 0.05)


@changed_by()
def test_impossible_changes_are_refused(log: Reconfigurable) -> None:
    with pytest.raises(Unavailable):
        log.finalize_shard(1000)
    with pytest.raises(Unavailable):
        log.replace_server(1000)
    with pytest.raises(NotOfThisShard):
        log.members(1000)
    with pytest.raises(Unavailable):
        for _ in range(10):
            log.add_shard()


NOT_OFFERED = [
    (name, kind) for name, engine in ENGINE_OF.items() for kind in CHANGES if kind not in simulation_of(engine).CHANGES
]


def test_a_change_that_the_engine_does_not_offer_is_refused(tmp_path: Path) -> None:
    for name, kind in NOT_OFFERED:
        log = RECONFIGURABLE[name](tmp_path / f"{name} {kind.__name__}", Clock())
        with closing(log), pytest.raises(Unavailable):
            CHANGES[kind](log, a_shard(log))


@changed_by(AddShard, FinalizeShard)
def test_finalized_shards_are_removed_when_all_their_records_are_trimmed(log: Reconfigurable) -> None:
    old = a_shard(log)
    log.append_to_shard(numbered(3), old)
    new = log.add_shard()
    log.finalize_shard(old)
    gsns, _ = log.append_to_shard(numbered(2), new)
    log.trim(gsns[0])
    assert old not in log.view().finalized
    assert [record.gsn for record in follow(log, gsns[0], 2)] == list(gsns)
    with pytest.raises(Unavailable):
        log.append_to_shard(numbered(1), old)
    (gsn,) = log.append(numbered(1))
    assert read(log, gsn).gsn == gsn
