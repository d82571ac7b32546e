"""vScalog (dissertation section 3.4.3): an object lives on one shard, is read there from any replica, and stays there.

Some values are small, which a mapping server has, and some large, which are on the shard alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import logdb
import logdb.aio
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import RemoteLog
from logdb.cluster.compaction.records import decode_part
from logdb.cluster.messages import MapRows
from logdb.log.contract import NotOfThisShard
from logdb.log.requests import ConfiguredServer
from logdb.store.records import COMMIT, PART, VALUE, Place, decode_commit
from tests.harness.clusters import Cluster

Value = bytes | None
PLACEMENT = logdb.ByPrefix({b"cart/": 1, b"user/": 2})
KEY, OTHER = b"cart/7", b"user/7"
VERSIONS: list[Value] = [b"small", b"large " * 2_000, None, b"x" * 4_097, b"newest" * 1_000]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters that tolerate the failure of one server of a shard, and have a mapping server."""
    made = []

    def make(shards: int, **shape: Any) -> Cluster:
        made.append(Cluster(tmp_path, **{"aggregators": 0, "mapping": 1, "failures": 1, **shape}))
        made[-1].start(shards)
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def connect(cluster: Cluster) -> logdb.Database:
    return logdb.connect(cluster.ordering, placement=PLACEMENT, timeout=60)


def write(db: logdb.Database, key: bytes = KEY) -> list[tuple[int, Value]]:
    """Give an object its versions; its history, newest first."""
    return [(db.delete(key) if value is None else db.put(key, value), value) for value in VERSIONS][::-1]


def members(log: RemoteLog, shard: int) -> Sequence[ConfiguredServer]:
    return next(config.members for config in log.configuration().shards if config.shard == shard)


def names(cluster: Cluster, log: RemoteLog, shard: int) -> list[str]:
    return [cluster.name_of(member.address) for member in members(log, shard)]


def parts(log: RemoteLog, key: bytes) -> list[int]:
    """Where a compaction has restated versions of a key."""
    found, first, tail = [], log.oldest(), log.tail()
    subscription = log.subscribe(first, {PART})
    while first <= tail:
        batch = subscription.poll(60)
        assert batch is not None
        for record in batch.records:
            _, part = decode_part(record.payload)
            if isinstance(part, MapRows) and any(row.key == key for row in part.rows):
                found.append(record.gsn)
        first = batch.end
    subscription.close()
    return found


def stop(cluster: Cluster, *servers: str) -> None:
    for name in servers:
        in_shared_loop(cluster.end(name))


def test_all_records_of_an_object_are_on_its_shard(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, storage=4)
    with connect(cluster) as db, cluster.connect() as log:
        for key, shard in ((KEY, 1), (OTHER, 2)):
            for version, value in write(db, key):
                commit = log.read_record(version, shard)
                assert commit.tag == COMMIT
                with pytest.raises(NotOfThisShard):
                    log.read_record(version, 3 - shard)
                stored = decode_commit(commit.payload, commit.gsn).writes[key]
                if isinstance(stored, Place):
                    assert log.read_record(stored.gsn, shard)[2:] == (VALUE, value)
                else:
                    assert stored == value


def test_an_object_is_read_from_any_replica_of_its_shard_alone(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(2, storage=4)
    with connect(cluster) as db, cluster.connect() as log:
        history = write(db)
        write(db, OTHER)
        stop(cluster, *names(cluster, log, 2))
        one, other = names(cluster, log, 1)
        for away in (one, other):
            stop(cluster, away)
            assert list(db.history(KEY)) == history
            assert db[KEY] == VERSIONS[-1]
            assert [db.at(version).get(KEY) for version, _ in history] == [value for _, value in history]
            in_shared_loop(cluster.begin(away))
        with logdb.connect(cluster.ordering, timeout=1) as impatient, pytest.raises(logdb.Unavailable):
            impatient.get(OTHER)


def test_all_records_of_an_object_are_on_its_shard_after_compactions(clusters: Callable[..., Cluster]) -> None:
    """For any requester, since the placement is in the log. The history can be read from one replica of the shard
    alone, and agrees with the shard's records."""
    cluster = clusters(2, storage=4)
    with connect(cluster) as db, cluster.connect() as log, logdb.connect(cluster.ordering, timeout=60) as stranger:
        history = write(db)
        for round_ in range(2):
            write(db, OTHER)
            db.put(KEY, b"small again %d" % round_)
            db.put(b"elsewhere", b"")
            stranger.compact()
            history = list(db.history(KEY))
            assert len(history) == 1
            stated = parts(log, KEY)
            assert stated
            for gsn in stated:
                assert log.read_record(gsn, 1).tag == PART
                with pytest.raises(NotOfThisShard):
                    log.read_record(gsn, 2)
        assert parts(log, OTHER)
        assert all(log.read_record(gsn, 2).tag == PART for gsn in parts(log, OTHER))
        history = write(db) + history
        stop(cluster, *names(cluster, log, 2))
        one, other = names(cluster, log, 1)
        for away in (one, other):
            stop(cluster, away)
            assert list(db.history(KEY)) == history
            in_shared_loop(cluster.begin(away))


def write_both(db: logdb.Database, round_: int) -> None:
    """Transactions of objects of two shards, whichever is the first, some of which are not applied."""
    for first, second in ((KEY, OTHER), (OTHER, KEY)):
        db.multi_put({first: b"first %d" % round_, second: b"second %d" % round_})
        db.multi_put({first: b"large one " * 1_000, second: b"large two " * 1_000})
        assert not db.test_and_multi_put([logdb.exists(b"nothing")], {first: b"no", second: b"no" * 3_000}).committed
        with pytest.raises(logdb.ConflictError), db.transaction() as txn:
            txn.get(KEY)
            db.multi_put({first: None, second: b"between"})
            txn.put(first, b"refused")
            txn.put(second, b"refused " * 1_000)


def test_a_history_is_read_from_one_replica_of_its_shard_alone(clusters: Callable[..., Cluster]) -> None:
    """With every mapping server, and the shard of the other object, down. Transactions over both shards, some of them
    refused, deletions, large values, and a compaction in between."""
    cluster = clusters(2, storage=4, mapping=2, decide_ms=200)

    def alone(key: bytes, timeout: float = 60) -> logdb.ShardHistory:
        return logdb.shard_history(cluster.ordering, key, placement=PLACEMENT, timeout=timeout)

    with connect(cluster) as db, cluster.connect() as log:
        write(db)
        write_both(db, 1)
        db.compact()
        write_both(db, 2)
        last = write(db, OTHER)[0][0]  # the version of the database also counts the summaries
        histories = {key: list(db.history(key)) for key in (KEY, OTHER)}
        for key in (KEY, OTHER):
            while alone(key).through < last:
                cluster.check()
            assert alone(key).entries == histories[key]
        stop(cluster, "m1", "m2", *names(cluster, log, 2))
        one, other = names(cluster, log, 1)
        for away in (one, other):
            stop(cluster, away)
            assert alone(KEY).entries == histories[KEY]
            in_shared_loop(cluster.begin(away))
        again = in_shared_loop(logdb.aio.shard_history(cluster.ordering, KEY, placement=PLACEMENT))
        assert again.entries == histories[KEY]
        with pytest.raises(logdb.Unavailable, match="user/7' on shard 2"):
            alone(OTHER, timeout=1)
        with pytest.raises(ValueError, match="names no shard"):
            alone(b"elsewhere")


def test_an_object_stays_through_remove_and_replace(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, storage=4, policy="remove-and-replace")
    with connect(cluster) as db, cluster.connect() as log:
        history = write(db)
        old = members(log, 1)
        for member in old:
            stop(cluster, cluster.name_of(member.address))
            log.replace_server(member.server)
            history = write(db) + history
            while log.configuration().shards[0].joining:
                cluster.check()
        assert not set(members(log, 1)) & set(old)
        assert {log.read_record(version, 1).tag for version, _ in history} == {COMMIT}
        for name in names(cluster, log, 1):
            stop(cluster, name)
            assert list(db.history(KEY)) == history
            in_shared_loop(cluster.begin(name))


def test_an_object_stays_when_failures_are_masked(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(1, storage=3, policy="mask", suspect_after_ms=500)
    with connect(cluster) as db, cluster.connect() as log:
        history = write(db)
        for name in names(cluster, log, 1):
            stop(cluster, name)
            history = write(db) + history
            assert list(db.history(KEY)) == history
            in_shared_loop(cluster.begin(name))
        assert {log.read_record(version, 1).tag for version, _ in history} == {COMMIT}
