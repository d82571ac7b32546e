"""The contract `StreamLog` (`logdb/log/contract.py`), on the engines that have streams; the others refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from logdb.errors import Unavailable
from logdb.log.contract import Reconfigurable, StreamLog, Trimmed
from logdb.log.requests import AddStreamShard
from tests.conformance.logs import (
    ENGINE_OF,
    RECONFIGURABLE,
    Clock,
    a_shard,
    all_records,
    changed_by,
    numbered,
)
from tests.sim.engines import simulation_of


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reconfigurable]:
    engine = RECONFIGURABLE[request.param](tmp_path / "log", Clock())
    yield engine
    engine.close()


def payloads(log: StreamLog, stream: int, gsn: int = 1) -> list[bytes]:
    """The records of a stream from a GSN on."""
    return [record.payload for record in log.read_stream(stream, gsn).records]


@changed_by(AddStreamShard)
def test_a_stream_has_its_own_records_in_the_order_of_the_log(log: Reconfigurable) -> None:
    assert isinstance(log, StreamLog)
    with pytest.raises(Unavailable, match="no shard of streams"):
        log.append_to_streams(numbered(1), [1])
    active = log.view().active
    log.add_stream_shard()
    assert log.view().active == active
    gsns = [*log.append_to_streams([(1, b"a")], [1]), *log.append([(1, b"b")])]
    gsns += log.append_to_streams([(1, b"c"), (2, b"d")], [2, 1])
    assert gsns == sorted(gsns)
    assert [payloads(log, stream) for stream in (1, 2, 3)] == [[b"a", b"c", b"d"], [b"c", b"d"], []]
    assert [record.payload for record in all_records(log)] == [b"a", b"b", b"c", b"d"]
    assert log.read_record(gsns[0], a_shard(log)).payload == b"a" or len(active) > 1


@changed_by(AddStreamShard)
def test_a_read_continues_at_the_end_of_the_last_one(log: Reconfigurable) -> None:
    assert isinstance(log, StreamLog)
    log.add_stream_shard()
    got, at = [], 1
    for number in range(4):
        log.append_to_streams([(1, b"%d" % number)], [7])
        batch = log.read_stream(7, at)
        assert batch.first == at < batch.end
        got += [record.payload for record in batch.records]
        at = batch.end
    assert got == [b"0", b"1", b"2", b"3"]
    assert not log.read_stream(7, at).records


@changed_by(AddStreamShard)
def test_streams_stay_whole_when_a_shard_of_streams_is_added(log: Reconfigurable) -> None:
    assert isinstance(log, StreamLog)
    log.add_stream_shard()
    log.append_to_streams([(1, b"a")], [1, 2])
    log.add_stream_shard()
    log.append_to_streams([(1, b"b")], [1, 2])
    assert [payloads(log, stream) for stream in (1, 2)] == [[b"a", b"b"]] * 2


@changed_by(AddStreamShard)
def test_a_trimmed_stream_is_reported_as_trimmed(log: Reconfigurable) -> None:
    assert isinstance(log, StreamLog)
    log.add_stream_shard()
    first, second = [log.append_to_streams([(1, name)], [3])[0] for name in (b"a", b"b")]
    log.trim(second)
    with pytest.raises(Trimmed):
        log.read_stream(3, first)
    assert payloads(log, 3, second) == [b"b"]


@pytest.mark.parametrize("streams", [[], [0], range(1, 18)])
def test_an_append_to_no_stream_or_too_many_is_an_error(streams: list[int], tmp_path: Path) -> None:
    (name, *_) = [name for name, engine in ENGINE_OF.items() if AddStreamShard in simulation_of(engine).CHANGES]
    log = RECONFIGURABLE[name](tmp_path / "log", Clock())
    assert isinstance(log, StreamLog)
    with closing(log), pytest.raises(ValueError, match="streams"):
        log.append_to_streams(numbered(1), streams)


OTHERS = {
    engine: name
    for name, engine in ENGINE_OF.items()
    if name.endswith("over-grpc-alone") and AddStreamShard not in simulation_of(engine).CHANGES
}


def test_engines_without_streams_refuse(tmp_path: Path) -> None:
    for name in OTHERS.values():
        log = RECONFIGURABLE[name](tmp_path / name, Clock())
        assert isinstance(log, StreamLog)
        with closing(log):
            with pytest.raises(Unavailable, match="has no streams"):
                log.append_to_streams(numbered(1), [1])
            with pytest.raises(Unavailable, match="has no streams"):
                log.read_stream(1)
