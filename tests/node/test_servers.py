"""Servers and their directories: restarted, replaced, or with damage that their errors explain."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.log_client import RemoteLog
from logdb.errors import DatabaseInUse, NotADatabase, Unavailable
from logdb.log import connect, connect_async
from logdb.log.contract import GENESIS, RECENT, AppendId, AppendUnknown, LogFailed, Record
from logdb.log.record_clock import MAX_JUMP_NS, UNSET_NS
from logdb.node.clock import Clock
from logdb.node.host import Host
from logdb.node.node import Node, NodeConfig
from logdb.node.storage import DamagedJournals
from logdb.transport import peers
from logdb.wire import envelopes
from logdb.wire.envelopes import Hello
from logdb.wire.limits import MAX_RECORD_BYTES, TooLargeToSend
from tests.harness.clusters import Cluster
from tests.harness.ports import free_addresses

WAIT_S = 60


def numbered(first: int, count: int = 20) -> list[Record]:
    return [(1, b"%d" % number) for number in range(first, first + count)]


def payloads(log: RemoteLog, count: int) -> list[bytes]:
    subscription = log.subscribe(1)
    found: list[bytes] = []
    while len(found) < count:
        batch = subscription.poll(WAIT_S)
        assert batch is not None
        found += [record.payload for record in batch.records]
    return found


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**shape: Any) -> Cluster:
        made.append(Cluster(tmp_path, **shape))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


@pytest.mark.parametrize("name", ["o1", "s1", "s2", "a1"])
def test_each_role_goes_on_where_it_was(clusters: Callable[..., Cluster], name: str) -> None:
    cluster = clusters(storage=2, failures=1)
    cluster.start(shards=1)
    with cluster.connect() as log:
        for life in range(3):
            log.append(numbered(20 * life))
            in_shared_loop(cluster.end(name))
            in_shared_loop(cluster.begin(name))
        assert len(log.view().active) == 1, "no server was suspected"
        assert payloads(log, 60) == [payload for _, payload in numbered(0, 60)]


def test_a_whole_cluster_goes_on_where_it_was(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(replicas=3, storage=2, failures=1)
    cluster.start(shards=1)
    with cluster.connect() as log:
        log.append(numbered(0))
    in_shared_loop(cluster.end_all())
    in_shared_loop(cluster.begin_all())
    with cluster.connect() as log:
        log.append(numbered(20))
        assert payloads(log, 40) == [payload for _, payload in numbered(0, 40)]


def test_a_replaced_server_starts_again_as_a_spare(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(storage=3, failures=1, policy="remove-and-replace")
    cluster.start(shards=1)
    with cluster.connect() as log:
        log.append(numbered(0))
        (shard,) = log.configuration().shards
        old = shard.members[0]
        server = cluster.servers[cluster.name_of(old.address)]
        before = server.config.first.data.joinpath("SERVER").read_text()
        new = log.replace_server(old.server)
        while old.address not in [spare.address for spare in log.configuration().spares]:
            cluster.check()
        assert server.servers[0].wiped == 1
        assert server.config.first.data.joinpath("SERVER").read_text() != before
        assert [journal.name for journal in server.config.first.data.joinpath("journals").iterdir()] == ["meta.1@1"]
        assert new in log.members(shard.shard)
        log.append(numbered(20))
        assert payloads(log, 40) == [payload for _, payload in numbered(0, 40)]


def test_a_server_that_stops_while_it_wipes_itself_does_not_start_again(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, such a server started another core, or waited for a flush that had ended, and never stopped."""
    cluster = clusters(storage=3, failures=1, policy="remove-and-replace")
    cluster.start(shards=1)
    close, stops = Host.close, list[asyncio.Task[None]]()
    with cluster.connect() as log:
        (shard,) = log.configuration().shards
        name = cluster.name_of(shard.members[0].address)
        node = cluster.servers[name]

        async def close_beside_a_stop(host: Host) -> None:
            if host is node.servers[0].host and not stops:
                stops.append(asyncio.create_task(node.stop()))
                await asyncio.wait(stops)
            await close(host)

        monkeypatch.setattr(Host, "close", close_beside_a_stop)
        log.replace_server(shard.members[0].server)

        async def ended() -> None:
            async with asyncio.timeout(20):
                await asyncio.shield(cluster.running[name])

        in_shared_loop(ended())
        assert stops
        assert node.servers[0].wiped == 1


def test_a_server_replaced_while_it_was_down_serves_records_that_another_one_has_lost(
    clusters: Callable[..., Cluster],
) -> None:
    """f = 1: one server is merely down, and the other one loses its disk before a successor has copied anything."""
    cluster = clusters(storage=3, failures=1, policy="remove-and-replace")
    cluster.start(shards=1)
    with cluster.connect() as log:
        log.append(numbered(0, 50))
        away, lost = log.configuration().shards[0].members
        for member in (away, lost):
            in_shared_loop(cluster.end(cluster.name_of(member.address)))
        log.replace_server(away.server)
        shutil.rmtree(cluster.configs[cluster.name_of(lost.address)].data)
        assert log.configuration().shards[0].replaced == (away,)
        for member in (away, lost):
            in_shared_loop(cluster.begin(cluster.name_of(member.address)))
        while log.configuration().shards[0].joining:
            cluster.check()
        log.replace_server(lost.server)
        log.append(numbered(50))
        assert payloads(log, 70) == [payload for _, payload in numbered(0, 70)]


def test_another_client_gets_the_outcome_of_an_append_whose_client_has_ended(
    clusters: Callable[..., Cluster],
) -> None:
    cluster = clusters(storage=2, failures=1)
    cluster.start(shards=1)
    log = cluster.connect()
    log.append(numbered(0, 3))
    in_shared_loop(cluster.end("s2"))
    host = cluster.servers["s1"].servers[0].host
    assert host is not None
    own: Any = host.core
    before = own.shard.own().end
    under_way: list[futures.Future[Any]] = []
    with futures.ThreadPoolExecutor(64) as pool:
        while own.shard.own().end == before:  # others go to the server that is down
            assert len(under_way) < 64
            under_way.append(pool.submit(log.append, [(1, b"late %d" % len(under_way))]))
            futures.wait(under_way[-1:], timeout=0.1)
        log.close()
    errors = {number: one.exception() for number, one in enumerate(under_way)}
    ids = {number: error.append_id for number, error in errors.items() if isinstance(error, AppendUnknown)}
    in_shared_loop(cluster.begin("s2"))
    found: dict[int, Sequence[int | None]] = {}
    with cluster.connect() as other:
        while not found:
            for number, append_id in ids.items():
                with contextlib.suppress(AppendUnknown):
                    found[number] = other.outcome(AppendId.parse(str(append_id)), 1)
        for number, (gsn,) in found.items():
            assert gsn is not None
            assert other.read_record(gsn, 1).payload == b"late %d" % number
    number = min(found)

    async def ask() -> Sequence[int | None]:
        async with await connect_async(cluster.ordering[:1]) as log:
            return await log.outcome(ids[number])

    assert in_shared_loop(ask()) == found[number]


def test_a_damaged_journal_stops_only_its_server(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(storage=4, failures=1, suspect_after_ms=2_000)
    cluster.start(shards=1)
    with cluster.connect() as log:
        log.append([(1, b"precious" * 10)] * 10)
        (shard,) = log.configuration().shards
        name = cluster.name_of(shard.members[0].address)
        in_shared_loop(cluster.end(name))
        (spoilt,) = [path for path in (cluster.path / name).rglob("*.log") if b"precious" in path.read_bytes()]
        data = bytearray(spoilt.read_bytes())
        data[data.index(b"precious")] ^= 1
        spoilt.write_bytes(data)
        with pytest.raises(DamagedJournals) as damaged:
            in_shared_loop(cluster.begin(name))
        assert f"{spoilt} is damaged at byte" in str(damaged.value)
        assert f"Remove the directory {cluster.path / name} and start again" in str(damaged.value)
        in_shared_loop(cluster.end(name))
        log.append(numbered(0))
        assert payloads(log, 30)[:10] == [b"precious" * 10] * 10


def test_an_ordering_replica_without_its_journal_does_not_start(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    cluster.start(shards=1)
    in_shared_loop(cluster.end("o1"))
    for path in (cluster.path / "o1" / "journals").iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(DamagedJournals, match="the only ordering replica"):
        in_shared_loop(cluster.begin("o1"))


def test_a_newly_founded_ordering_layer_gets_no_record_of_the_old_log(
    clusters: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new layer would assign GSNs from 1 on again, at which its servers have older records."""
    whys: list[str] = []

    def refusal_reason(mine: Hello, theirs: Hello) -> str:
        whys.append(envelopes.refusal_reason(mine, theirs))
        return whys[-1]

    monkeypatch.setattr(peers, "refusal_reason", refusal_reason)
    cluster = clusters(storage=2, failures=1, mapping=1)
    cluster.start(shards=1)
    with logdb.connect(cluster.mapping[0], timeout=WAIT_S) as db:
        db.put(b"before", b"")
        in_shared_loop(cluster.end_all())
        kept = cluster.configs["o1"].data.rename(cluster.path / "kept")
        in_shared_loop(cluster.begin_all())
        strangers = {config.address for name, config in cluster.configs.items() if name != "o1"}
        while strangers:
            met = [why for why in list(whys) if "have met different ordering layers" in why]
            strangers = {address for address in strangers if not any(address in why for why in met)}
        with connect(cluster.ordering) as stranger:
            assert stranger.configuration().spares == stranger.configuration().shards == ()
        in_shared_loop(cluster.end("o1"))
        shutil.rmtree(cluster.configs["o1"].data)
        kept.rename(cluster.configs["o1"].data)
        in_shared_loop(cluster.begin("o1"))
        db.put(b"after", b"")
        assert [key for key, _ in db.scan()] == [b"after", b"before"]


def test_a_directory_belongs_to_one_server(clusters: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = clusters()
    cluster.start(shards=1)

    async def start(config: Any) -> None:
        server = Node(NodeConfig((config,)))
        try:
            await server.start()
        finally:
            await server.close()

    with pytest.raises(DatabaseInUse):
        in_shared_loop(start(cluster.configs["s1"]))
    in_shared_loop(cluster.end("a1"))
    moved = type(cluster.configs["a1"])(
        **{name: getattr(cluster.configs["a1"], name) for name in ("name", "cluster", "listen", "address", "ordering")},
        data=tmp_path / "s1",
    )
    in_shared_loop(cluster.end("s1"))
    with pytest.raises(NotADatabase, match="belongs to storage s1 of cluster test, not to aggregator a1"):
        in_shared_loop(start(moved))


def test_the_embedded_parts_load_without_grpc() -> None:
    code = "import sys, logdb, logdb.log, logdb_cli.commands; print([name for name in sys.modules if 'grpc' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=WAIT_S)
    assert done.stdout == "[]\n"


# ---- clients


def test_no_server_answers() -> None:
    address = next(free_addresses())
    with pytest.raises(Unavailable, match=f"no server answers within 0.2 seconds: {address} .connection refused"):
        connect(address, timeout=0.2)


def test_any_server_returns_the_addresses_of_the_cluster(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters(replicas=3)
    cluster.start(shards=1)
    dead = next(free_addresses())
    for name, config in cluster.configs.items():
        with connect(f"{dead},{config.address}") as log:
            assert list(log.append([(1, name.encode())]))


def test_an_unreachable_cluster_is_tried_until_the_deadline(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    cluster.start(shards=1)
    with connect(cluster.ordering[0], timeout=0.2) as log:
        log.append(numbered(0))
        in_shared_loop(cluster.end_all())
        with pytest.raises(TimeoutError):
            log.tail()
        with pytest.raises((LogFailed, Unavailable)):
            log.append(numbered(0))


def test_a_closed_log(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    cluster.start(shards=1)
    log = cluster.connect()
    log.close()
    log.close()
    with pytest.raises(LogFailed, match="closed"):
        log.append(numbered(0))


@pytest.mark.parametrize("number", [1 << 63, 1 << 64])
def test_a_number_that_no_message_can_carry_is_refused_at_once(clusters: Callable[..., Cluster], number: int) -> None:
    cluster = clusters()
    cluster.start(1)
    with cluster.connect() as log:
        (gsn,) = log.append([(1, b"a")])
        for ask in (
            lambda: log.read_record(number, 1),
            lambda: log.read_record(1, number),
            lambda: log.subscribe(number),
            lambda: log.trim(number),
            lambda: log.last_at_time(number),
            lambda: log.append_to_shard([(1, b"b")], number),
            lambda: log.finalize_shard(number),
            lambda: log.finalize_shard(1, number),
            lambda: log.replace_server(number),
        ):
            with pytest.raises(ValueError, match=r"must be at most 2\^63 - 1, not"):
                ask()
        assert log.tail() == gsn


def test_a_record_that_is_too_large_is_refused_before_anything_happens(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    cluster.start(shards=1)
    with cluster.connect() as log:
        with pytest.raises(TooLargeToSend):
            log.append([(1, b"small"), (1, bytes(MAX_RECORD_BYTES))])
        assert log.tail() == 0


def test_the_same_for_asyncio(clusters: Callable[..., Cluster]) -> None:
    cluster = clusters()
    cluster.start(shards=1)

    async def use() -> None:
        async with await connect_async(cluster.ordering[0]) as log:
            gsns = await asyncio.gather(*[log.append([(number, b"x")]) for number in range(1, 30)])
            assert sorted(gsn for (gsn,) in gsns) == list(range(1, 30))
            (shard,) = (await log.view()).active
            assert (await log.read_record(1, shard)).payload == b"x"
            with pytest.raises(TimeoutError, match="record 99 was not appended within 0 seconds"):
                await log.read_record(99, shard, timeout=0)
            subscription = await log.subscribe(1, tags=[3, 5])
            seen = 0
            async for batch in subscription:
                seen += len(batch.records)
                if seen == 2:
                    break
            await subscription.close()
            with pytest.raises(StopAsyncIteration):
                await subscription.poll(None)
            assert await log.last_at_time(time.time_ns()) == await log.tail() == 29
            assert await log.members(shard)
            await log.trim(10)
            assert await log.oldest() == 10
            recent = await log.subscribe(RECENT)
            assert (await anext(await log.subscribe(GENESIS))).first == 10
            await log.append([(1, b"recent")])
            assert [record.gsn for record in (await anext(recent)).records] == [30]

    in_shared_loop(use())


def test_time_always_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, passed = [10_000], [0]
    monkeypatch.setattr("logdb.node.clock.time.time_ns", lambda: wall[0])
    monkeypatch.setattr("logdb.node.clock.since_boot", lambda: passed[0])
    clock = Clock()
    assert clock() == 10_000
    wall[0], passed[0] = 12_000, 2_000
    assert clock() == 12_000
    wall[0], passed[0] = 5_000, 2_400
    assert clock() == 12_200
    wall[0], passed[0] = 12_300, 9_700
    assert clock() == 15_850
    wall[0], passed[0] = 19_000, 9_800
    assert clock() == 19_000


def test_a_clock_that_jumps_ahead_is_not_followed_until_it_is_right(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begin = UNSET_NS + 1
    wall, passed = [begin], [0]
    monkeypatch.setattr("logdb.node.clock.time.time_ns", lambda: wall[0])
    monkeypatch.setattr("logdb.node.clock.since_boot", lambda: passed[0])
    clock = Clock()
    wall[0], passed[0] = begin + MAX_JUMP_NS, 5
    assert clock() == begin + MAX_JUMP_NS
    jumped = wall[0] = begin + 50 * 366 * MAX_JUMP_NS
    assert [clock(), clock()] == [begin + MAX_JUMP_NS] * 2
    passed[0] = 12
    assert clock() == begin + MAX_JUMP_NS + 7
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    wall[0], passed[0] = begin + MAX_JUMP_NS + 20, 14
    assert clock() == wall[0]
    wall[0], passed[0] = 1, 0
    just_set = Clock()
    wall[0] = jumped
    assert just_set() == jumped, "a clock that was not set yet"
