"""The contract `RecordTrimmable` (`logdb/log/contract.py`), on the engines that can trim single records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logdb.errors import Unavailable
from logdb.log.contract import Reconfigurable, RecordTrimmable, Trimmed
from logdb.log.requests import TrimRecords
from tests.conformance.logs import ENGINE_OF, RECONFIGURABLE, Clock, a_shard, changed_by, numbered, read
from tests.sim.engines import simulation_of


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reconfigurable]:
    engine = RECONFIGURABLE[request.param](tmp_path / "log", Clock())
    yield engine
    engine.close()


@changed_by(TrimRecords)
def test_trimmed_records_are_reported_and_the_others_stay(log: Reconfigurable) -> None:
    assert isinstance(log, RecordTrimmable)
    shard = a_shard(log)
    gsns, _ = log.append_to_shard(numbered(5), shard)
    log.trim_records([gsns[1], gsns[3]])
    for gsn in (gsns[1], gsns[3]):
        with pytest.raises(Trimmed):
            log.read_record(gsn, shard)
    assert [read(log, gsn).payload for gsn in (gsns[0], gsns[2], gsns[4])] == [b"0", b"2", b"4"]
    found, trimmed, at = [], set(), 0
    for batch in log.subscribe(gsns[0], {1}):
        found += batch.records
        trimmed.update(batch.trimmed)
        at = batch.end
        if at > gsns[-1]:
            break
    assert [record.payload for record in found] == [b"0", b"2", b"4"]
    assert trimmed == {gsns[1], gsns[3]}
    assert log.oldest() <= gsns[0]


@changed_by(TrimRecords)
def test_a_trim_can_be_repeated_and_appends_go_on(log: Reconfigurable) -> None:
    assert isinstance(log, RecordTrimmable)
    gsns = log.append(numbered(3))
    for _ in range(2):
        log.trim_records(gsns)
    (more,) = log.append(numbered(1))
    assert more > gsns[-1]
    assert read(log, more).payload == b"0"
    log.trim(more)
    log.trim_records(gsns)


@changed_by(TrimRecords)
def test_a_record_that_does_not_exist_yet_is_not_trimmed(log: Reconfigurable) -> None:
    assert isinstance(log, RecordTrimmable)
    (gsn,) = log.append(numbered(1))
    with pytest.raises(ValueError, match="cannot trim record"):
        log.trim_records([gsn, gsn + 1])
    assert read(log, gsn).payload == b"0"


def test_other_engines_refuse(tmp_path: Path) -> None:
    names = {engine: name for name, engine in ENGINE_OF.items() if name.endswith("-alone") and "over" not in name}
    others = {engine: name for engine, name in names.items() if TrimRecords not in simulation_of(engine).CHANGES}
    assert others
    for name in others.values():
        log = RECONFIGURABLE[name](tmp_path / name, Clock())
        assert isinstance(log, RecordTrimmable)
        with closing(log), pytest.raises(Unavailable):
            log.trim_records(log.append(numbered(1)))
