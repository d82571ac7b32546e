"""`logdb.connect` to a cluster: any node is an entry point, servers may stop, and errors are one line."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import logdb
import logdb.aio
from logdb.clients import connecting
from logdb.clients.background_loop import in_shared_loop
from logdb.clients.cluster_backend import ClusterAccess, ClusterBackend
from logdb.cores.effects import SECOND
from logdb.log.requests import ClientConfig
from logdb.wire.envelopes import VERSION
from tests.harness.blocking import Loop
from tests.harness.clusters import Cluster

LARGE = b"large " * 2_000
HOUR = 3_600 * SECOND


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """3 ordering replicas, one storage server, 2 mapping servers. Each test has its own keys, and leaves all servers
    running."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), replicas=3, mapping=2)
    cluster.start(1)
    yield cluster
    cluster.check()
    cluster.close()


def stop(cluster: Cluster, *names: str) -> None:
    for name in names:
        in_shared_loop(cluster.end(name))


def begin(cluster: Cluster, *names: str) -> None:
    for name in names:
        in_shared_loop(cluster.begin(name))


def test_any_node_is_an_entry_point(cluster: Cluster) -> None:
    for number, config in enumerate(cluster.configs.values()):
        with logdb.connect(f"127.0.0.1:1, {config.address}") as db:
            db.put(b"any/%d" % number, b"1")
    with logdb.connect([config.address for config in cluster.configs.values()]) as db:
        assert len(list(db.scan(prefix=b"any/"))) == len(cluster.configs)


def test_a_slow_node_is_retried(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow node is not mistaken for a server of another kind."""
    monkeypatch.setattr(connecting, "FIRST_TIMEOUT_S", 0.000_1)
    with logdb.connect(cluster.ordering, timeout=60) as db:
        assert db.get(b"slow") is None


# ---- errors


@pytest.fixture
def web() -> Iterator[str]:
    """An HTTP server."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def refusal(*args: object, **options: object) -> str:
    """The one-line error of a failed connect."""
    with pytest.raises(logdb.Unavailable) as caught:
        logdb.connect(*args, **options)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_wrong_port_is_one_line(web: str) -> None:
    assert "127.0.0.1:1 cannot be reached: connection refused" in refusal("127.0.0.1:1,127.0.0.1:2")
    assert f"{web} cannot be reached: it does not speak gRPC" in refusal(web)


def test_a_cluster_that_is_down_is_not_mistaken_for_a_single_server() -> None:
    """A single server would reject the placement."""
    assert "127.0.0.1:1 cannot be reached: connection refused" in refusal("127.0.0.1:1", placement=logdb.ByHash((1,)))


def test_another_version_is_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.transport.discovery.VERSION", VERSION + 1)
    address = cluster.ordering[0]
    assert refusal(address).endswith(f"{address} speaks version {VERSION}: upgrade LogDB at {address}")


def test_a_log_without_mapping_servers_is_not_a_database(tmp_path: Path) -> None:
    log = Cluster(tmp_path, aggregators=0)
    log.start(1)
    try:
        assert "no mapping servers and is a log, no database: use logdb.log.connect" in refusal(log.ordering[0])
    finally:
        log.close()


def test_invalid_arguments(cluster: Cluster) -> None:
    for wrong in (-1, True, "1"):
        with pytest.raises((TypeError, ValueError)):
            logdb.connect(cluster.ordering, session=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"strict" or "session", not \'causal\''):
        logdb.connect(cluster.ordering, consistency="causal")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reads see every commit anyway"):
        logdb.connect(cluster.ordering, consistency="strict", session=1)


def test_an_exception_of_a_placement_is_raised(cluster: Cluster) -> None:
    def fail(key: bytes) -> int:
        raise ZeroDivisionError

    for placement, error in ((fail, ZeroDivisionError), (lambda key: "1", TypeError), (lambda key: True, TypeError)):
        with logdb.connect(cluster.ordering, placement=placement) as db:  # type: ignore[arg-type]
            with pytest.raises(error):
                db.put(b"placed", b"1")
            assert b"placed" not in db
    with logdb.connect(cluster.ordering, placement=logdb.ByHash((99,))) as db:
        db.put(b"placed", LARGE)
        assert db[b"placed"] == LARGE, "another shard stores records of a missing one"


# ---- sessions


def test_a_session_continues_in_another_client(cluster: Cluster) -> None:
    with (
        logdb.connect(cluster.ordering) as one,
        logdb.connect(cluster.ordering, consistency="session") as other,
    ):
        assert (one.session, other.session) == (0, 0)
        version = one.put(b"session", b"1")
        assert one.session == version
        with logdb.connect(cluster.ordering, session=one.session) as third:
            assert third[b"session"] == b"1"
            assert third.session >= version
        last = other.put(b"session/other", b"1")
        assert other[b"session"] == b"1"
    assert other.session >= last, "the session remains after the client is closed"


def test_a_session_waits_for_a_version_that_does_not_exist(cluster: Cluster) -> None:
    with logdb.connect(cluster.ordering, session=1 << 40, timeout=0.5) as db, pytest.raises(logdb.Unavailable):
        db.get(b"k")


def test_a_session_read_sends_no_request_to_the_log(cluster: Cluster) -> None:
    with (
        logdb.connect(cluster.ordering, session=0) as db,
        logdb.connect(cluster.ordering, timeout=0.5) as short_timeout,
    ):
        db.put(b"quiet", b"1")
        stop(cluster, "o1", "o2", "o3")
        try:
            assert db[b"quiet"] == b"1"
            assert list(db.scan(prefix=b"quiet")) == [(b"quiet", b"1")]
            with db.transaction(read_only=True) as txn:
                assert txn[b"quiet"] == b"1"
            with pytest.raises(logdb.Unavailable, match=r"\(0.5 s\)"):
                short_timeout.get(b"quiet")
        finally:
            begin(cluster, "o1", "o2", "o3")


# ---- servers that stop


def test_clients_continue_while_a_quorum_runs(cluster: Cluster) -> None:
    followed: list[logdb.Change] = []
    with logdb.connect(cluster.ordering, timeout=60) as db:
        changes = db.watch(prefix=b"count", since=db.version)
        follower = threading.Thread(target=lambda: followed.extend(islice(changes, 60)))
        follower.start()

        def count(txn: logdb.Transaction) -> None:
            txn[b"count"] = b"%d" % (int(txn.get(b"count") or b"0") + 1)

        def counting() -> None:
            for _ in range(20):
                db.run(count)

        counters = [threading.Thread(target=counting) for _ in range(3)]
        for counter in counters:
            counter.start()
        for name in ("m1", "m2", "o1", "o2", "o3"):
            stop(cluster, name)
            db.put(b"without", name.encode())
            assert db[b"without"] == name.encode()
            begin(cluster, name)
        stop(cluster, "s1")
        begin(cluster, "s1")
        for thread in (*counters, follower):
            thread.join()
        assert db[b"count"] == b"60"
    assert [change.changes for change in followed] == [{b"count": b"%d" % number} for number in range(1, 61)]


def test_a_client_leaves_a_stopped_server_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not wait for the timeout of an answer, which is an hour here."""
    monkeypatch.setattr("logdb.clients.cluster_backend.ClientConfig", partial(ClientConfig, answer_timeout_ns=HOUR))
    with logdb.connect(cluster.ordering, timeout=60) as db:
        for name in ("m1", "m2", "o1", "o2", "o3"):
            db.put(b"left", name.encode())
            stop(cluster, name)
            assert db[b"left"] == name.encode()
            db.put(b"left", b"again")
            begin(cluster, name)


def test_replaced_mapping_servers_are_found(cluster: Cluster) -> None:
    """The only mapping server in the client's configuration has been replaced."""

    async def read() -> bytes | None:
        nodes = ClusterAccess("test", tuple(cluster.ordering), ("127.0.0.1:1",))
        host = ClusterBackend("elsewhere", nodes, 60)
        try:
            await host.write({b"elsewhere": b"1"})
            return await host.get(b"elsewhere")
        finally:
            await host.close()

    assert in_shared_loop(read()) == b"1"


def test_an_unknown_outcome_can_be_requested_later(cluster: Cluster) -> None:
    with logdb.connect(cluster.ordering, timeout=2) as db:
        stop(cluster, "m1", "m2")
        with pytest.raises(logdb.OutcomeUnknown) as caught:
            db.put(b"unknown", b"1")
        begin(cluster, "m1", "m2")
    with logdb.connect(cluster.ordering, timeout=60) as db:
        assert db[b"unknown"] == b"1"
        assert db.outcome(caught.value.txn_id).committed


def test_reads_without_servers_time_out(cluster: Cluster) -> None:
    with logdb.connect(cluster.ordering, timeout=0.5) as db:
        stop(cluster, "m1", "m2")
        try:
            for read in (lambda: db.get(b"k"), lambda: list(db.scan()), lambda: next(db.watch(since=0)), db.at):
                with pytest.raises(logdb.Unavailable, match="no mapping server answered"):
                    read()
        finally:
            begin(cluster, "m1", "m2")


# ---- leases


@pytest.mark.parametrize("how", ["transaction", "scan", "history"])
def test_a_compaction_keeps_versions_that_are_being_read(cluster: Cluster, how: str) -> None:
    keys = [b"held/%s/%d" % (how.encode(), number) for number in range(300)]
    with logdb.connect(cluster.ordering) as db, logdb.connect(cluster.ordering) as other:
        before = dict.fromkeys(keys, b"1")
        db.multi_put(before)
        if how == "history":
            with ThreadPoolExecutor(30) as pool:
                list(pool.map(lambda _: db.put(keys[0], b"1"), range(300)))
        with db.transaction() as txn:
            if how == "transaction":
                first, rows = txn[keys[0]], iter(())
            else:
                rows = db.history(keys[0]) if how == "history" else db.scan(prefix=keys[0][:-1])
                first = next(rows)
            read = db.session  # records such as summaries may have followed the last write
            other.multi_put(dict.fromkeys(keys))
            assert other.compact().floor <= read
            if how == "transaction":
                assert txn.multi_get(keys) == before
            else:
                assert len([first, *rows]) == (301 if how == "history" else 300)
        while other.compact().floor <= read:
            """Servers keep released leases for a while."""


def test_a_progress_callback_may_abort_the_wait_for_a_compaction(cluster: Cluster) -> None:
    class Aborted(Exception):
        """Raised by the callback."""

    def abort(copied: int) -> None:
        raise Aborted

    with logdb.connect(cluster.ordering) as db:
        for number in range(20):
            db.put(b"progress", b"%d" % number)
        with pytest.raises(Aborted):
            db.compact(progress=abort)
        assert db[b"progress"] == b"19"
        reported: list[int] = []
        db.compact(progress=reported.append)
        assert reported


# ---- asyncio


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_a_feed_starts_at_the_version_of_its_request(cluster: Cluster, loop: Loop) -> None:
    """The feed does not start at the later version at which servers answer the request."""
    db = loop.run(logdb.aio.connect(cluster.ordering, timeout=60))
    tasks = []

    async def begun() -> None:
        changes = db.watch(prefix=b"from now", timeout=10)
        tasks.append(asyncio.ensure_future(db.put(b"from now", b"1")))
        tasks.append(asyncio.ensure_future(anext(aiter(changes))))
        await asyncio.wait(tasks, timeout=0.2)  # the servers are stopped, so neither can end, unless there is a bug

    async def ended() -> tuple[int, logdb.Change]:
        return await tasks[0], await tasks[1]

    stop(cluster, "m1", "m2")
    loop.run(begun())
    begin(cluster, "m1", "m2")
    version, change = loop.run(ended())
    assert change.version == version
    loop.run(db.close())


def test_a_cancelled_poll_loses_no_change(cluster: Cluster, loop: Loop) -> None:
    async def followed() -> list[dict[bytes, bytes | None]]:
        async with await logdb.aio.connect(cluster.ordering) as db:
            feed = db._host.feed(await db.version(), b"polled", None)
            writing = asyncio.ensure_future(asyncio.gather(*(db.put(b"polled/%d" % n, LARGE) for n in range(20))))
            found = []
            while len(found) < 20:
                polling = asyncio.ensure_future(feed.poll(None))
                for _ in range(3):
                    await asyncio.sleep(0)
                if polling.done():
                    found.append(polling.result().changes)
                else:
                    polling.cancel()
                    await asyncio.sleep(0.001)
            await writing
            await feed.close()
            return found

    found = loop.run(followed())
    assert sorted(key for changes in found for key in changes) == sorted(b"polled/%d" % n for n in range(20))
    assert all(value == LARGE for changes in found for value in changes.values())


def test_transactions_of_many_coroutines_are_batched(cluster: Cluster, loop: Loop) -> None:
    async def committed() -> int:
        async with await logdb.aio.connect(cluster.ordering) as db:
            await db.put(b"together", b"1")
            peers = db._host._client._peers
            before = peers.traffic.sent_packets
            await asyncio.gather(*(db.put(b"together/%d" % number, b"1") for number in range(300)))
            return peers.traffic.sent_packets - before

    assert loop.run(committed()) < 100


def test_closing_ends_waiting_feeds_and_finishes_sent_writes(cluster: Cluster, loop: Loop) -> None:
    async def closed() -> tuple[list[logdb.Change], int]:
        db = await logdb.aio.connect(cluster.ordering)
        changes = await db.watch(prefix=b"nothing")

        async def seen() -> list[logdb.Change]:
            return [change async for change in changes]

        waiting = asyncio.ensure_future(seen())
        writing = asyncio.ensure_future(db.put(b"last", b"1"))
        await asyncio.sleep(0)
        await db.close()
        await db.close()
        with pytest.raises(logdb.DatabaseClosed):
            await db.get(b"last")
        return await waiting, await writing

    items, version = loop.run(closed())
    assert items == []
    with logdb.connect(cluster.ordering) as db:
        assert db.at(version)[b"last"] == b"1"
