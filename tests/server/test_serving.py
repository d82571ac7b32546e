"""A database behind a server: results while servers, streams and clients stop and restart."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import logdb
import logdb.aio
from logdb.clients import server_connection
from logdb.errors import Advice
from logdb.log.segments import Disk
from logdb.security.authenticator import Authenticator, Grant
from logdb.server import server
from logdb.server.outbox import Outbox
from logdb.server.session import Session
from logdb.transport import unread_answers
from logdb.transport.listener import Listener
from logdb.wire.database_codec import METHOD, PAGE_BYTES, PROTOCOL
from logdb.wire.proto import database_pb2 as pb
from tests.harness.ports import free_addresses
from tests.harness.served import Served, connection_of
from tests.harness.server_process import ServerProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "db")
    yield process
    process.close()


# ---- restarts of servers


def test_writes_survive_kills_and_are_applied_once(process: ServerProcess) -> None:
    """The server is killed three times during writes: each write is applied once, and no writer gets an error."""

    async def main() -> None:
        async with await logdb.aio.connect(process.address, timeout=60) as db:
            acknowledged: dict[int, int] = {}
            enough = asyncio.Event()

            async def write(worker: int) -> None:
                number = worker
                while not enough.is_set():
                    version = await db.put(b"%d" % number, b"v")
                    assert version not in acknowledged
                    acknowledged[version] = number
                    number += 16

            writers = [asyncio.create_task(write(worker)) for worker in range(16)]
            for round_ in range(1, 4):
                while len(acknowledged) < 200 * round_:
                    await asyncio.sleep(0.001)
                process.kill()
                await asyncio.to_thread(process.start)
            enough.set()
            await asyncio.gather(*writers)
            written = [(change.version, *change.changes) async for change in db.watch(since=0, timeout=0)]
            assert written == sorted((version, b"%d" % number) for version, number in acknowledged.items())

    asyncio.run(main())


def test_reads_and_transactions_survive_a_restart(process: ServerProcess) -> None:
    with logdb.connect(process.address, timeout=60) as db:
        db.multi_put({b"%05d" % number: b"v" * 1_000 for number in range(3_000)})
        rows = db.scan()
        first = next(rows)
        with db.transaction() as txn:
            assert txn[b"00000"] == b"v" * 1_000
            process.kill()
            process.start()
            assert db.get(b"00001") == b"v" * 1_000
            assert txn[b"00002"] == b"v" * 1_000
            txn[b"00003"] = b"w"
        assert [first, *rows] == [(b"%05d" % number, b"v" * 1_000) for number in range(3_000)]
        assert db[b"00003"] == b"w"


def test_a_watch_continues_after_a_restart(process: ServerProcess) -> None:
    with logdb.connect(process.address, timeout=60) as db:
        versions = [db.put(b"k", b"1")]
        changes = db.watch(since=0)
        assert next(changes).version == versions[0]
        process.kill()
        process.start()
        versions.append(db.put(b"k", b"2"))
        assert next(changes).version == versions[1]


def test_a_write_that_was_not_answered_has_an_outcome(process: ServerProcess) -> None:
    db = logdb.connect(process.address, timeout=1)
    db.put(b"k", b"1")
    process.pause()
    with pytest.raises(logdb.OutcomeUnknown, match="has not answered within 1 s") as caught:
        db.put(b"k", b"2")
    with pytest.raises(logdb.Unavailable) as other:
        db.get(b"k")
    assert caught.value.advice is Advice.ASK_OUTCOME
    assert other.value.advice is Advice.RETRY
    process.resume()
    again = logdb.connect(process.address)
    outcome = again.outcome(caught.value.txn_id)
    assert outcome.committed is (again[b"k"] == b"2")
    assert db.outcome(caught.value.txn_id) == again.outcome(caught.value.txn_id)
    again.close()
    db.close()


def test_a_transaction_that_was_not_answered_has_an_outcome(process: ServerProcess) -> None:
    with logdb.connect(process.address, timeout=1) as db:
        with pytest.raises(logdb.OutcomeUnknown) as caught, db.transaction() as txn:
            txn[b"k"] = b"1"
            txn_id = txn.id
            process.pause()
        assert caught.value.txn_id == txn_id
        process.resume()
        assert db.outcome(txn_id).committed is (b"k" in db)


def test_without_a_server_calls_end_at_their_deadline(served: Served) -> None:
    with logdb.connect(served.address, timeout=0.5) as db:
        db.put(b"k", b"1")
        served.stop()
        for call in (lambda: db.get(b"k"), lambda: db.put(b"k", b"2"), lambda: list(db.scan()), lambda: db.version):
            began = time.monotonic()
            with pytest.raises(logdb.Unavailable) as caught:
                call()
            assert time.monotonic() - began > 0.4
            assert str(caught.value) == f"{served.address} cannot be reached: connection refused (for 0.5 s)"
        served.start()
        assert db[b"k"] == b"1"


def test_another_database_at_the_same_address_is_rejected(served: Served, tmp_path: Path) -> None:
    with logdb.connect(served.address, timeout=0.5) as db:
        db.put(b"k", b"1")
        served.stop()
        served.path = tmp_path / "another"
        served.start()
        with pytest.raises(logdb.Unavailable, match="has another database"):
            db.put(b"k", b"2")
    with logdb.connect(served.address) as other:
        assert other.version == 0


def test_a_stopping_server_takes_the_rest_of_a_message_whose_turn_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop dropped the requests behind the first turn of a long message, and their outcome was unknown."""
    served, end, stops = Served(tmp_path / "db"), Listener.stop, list[asyncio.Task[None]]()

    async def main() -> None:
        async with await logdb.aio.connect(served.address, timeout=2) as db:
            answers = await asyncio.gather(*(db.put(b"%d" % number, b"v") for number in range(20)))
            assert sorted(answers) == list(range(1, 21))

    async def stop_within(user: unread_answers.UserQuota) -> None:
        if not stops:
            stops.append(asyncio.create_task(served.server.stop()))
        await ending.wait()
        await asyncio.sleep(0)

    async def noted(listener: Listener, grace_s: float) -> None:
        ending.set()
        await end(listener, grace_s)

    ending = asyncio.Event()
    monkeypatch.setattr(unread_answers, "TURN_S", -1)
    monkeypatch.setattr(unread_answers.UserQuota, "let_others", stop_within)
    monkeypatch.setattr(Listener, "stop", noted)
    try:
        asyncio.run(main())
    finally:
        served.close()


def test_a_stopping_server_ends_a_stream_whose_client_was_just_connecting(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop waited ten seconds for it, and then dropped the requests that it had received on it meanwhile."""
    admit, end = Authenticator.admit, Listener.stop
    is_connecting, is_stopping = threading.Event(), threading.Event()

    def admitted(authenticator: Authenticator, context: Any) -> Grant:
        is_connecting.set()
        return admit(authenticator, context)

    async def noted(listener: Listener, grace_s: float) -> None:
        is_stopping.set()
        await end(listener, grace_s)

    async def main() -> None:
        async with grpc.aio.insecure_channel(served.address) as channel:
            stream: Any = channel.stream_stream(METHOD)()
            await asyncio.to_thread(is_connecting.wait)
            stop = asyncio.create_task(asyncio.to_thread(served.stop))
            await asyncio.to_thread(is_stopping.wait)
            hello = pb.Hello(protocol=PROTOCOL, release="test", client=77, timeout_ms=1_000)
            await stream.write(pb.Requests(hello=hello).SerializeToString())
            assert isinstance(await stream.read(), bytes)
            with pytest.raises(grpc.aio.AioRpcError, match="the server is stopping"):
                await stream.read()
            await stop

    monkeypatch.setattr(Authenticator, "admit", admitted)
    monkeypatch.setattr(Listener, "stop", noted)
    asyncio.run(main())


def test_a_stopping_server_does_not_wait_for_a_client_that_sends_no_hello(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: such a client held up the stop for ten seconds."""
    admit, is_connecting = Authenticator.admit, threading.Event()

    def admitted(authenticator: Authenticator, context: Any) -> Grant:
        is_connecting.set()
        return admit(authenticator, context)

    async def main() -> None:
        async with grpc.aio.insecure_channel(served.address) as channel:
            stream: Any = channel.stream_stream(METHOD)()
            await asyncio.to_thread(is_connecting.wait)
            stop = asyncio.create_task(asyncio.to_thread(served.stop))
            done, _ = await asyncio.wait((stop,), timeout=30)
            stream.cancel()
            await stop
            assert done

    monkeypatch.setattr(Authenticator, "admit", admitted)
    monkeypatch.setattr(server, "HANDSHAKE_S", 3_600.0)
    monkeypatch.setattr(server, "DRAIN_S", 3_600.0)
    asyncio.run(main())


def test_a_stopping_server_answers_received_requests(process: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        server_connection, "BATCH_CALLS", 500
    )  # all requests are in one message, so one answer shows that all were received

    async def main() -> None:
        async with await logdb.aio.connect(process.address, timeout=20) as db:
            puts = [asyncio.create_task(db.put(b"%d" % number, b"v")) for number in range(500)]
            await puts[0]
            process.process.terminate()
            answers = await asyncio.gather(*puts, return_exceptions=True)
            assert process.process.wait(20) == 0
            acknowledged = {answer for answer in answers if isinstance(answer, int)}
            assert not [answer for answer in answers if not isinstance(answer, int | logdb.Unavailable)]
            with logdb.open(process.path) as local:
                assert {change.version for change in local.watch(since=0, timeout=0)} == acknowledged
            process.start()

    asyncio.run(main())


def test_the_next_endpoint_is_tried(served: Served) -> None:
    unused = next(free_addresses())
    with logdb.connect([unused, served.address]) as db:
        db.put(b"k", b"1")
        served.stop()
        served.start()
        assert db[b"k"] == b"1"
    with logdb.connect(f"{unused}, {served.address}") as db:
        assert db.path == f"{unused},{served.address}"


# ---- peers other than LogDB servers


def test_a_port_without_a_listener() -> None:
    with pytest.raises(logdb.Unavailable, match=r"127\.0\.0\.1:1 cannot be reached: connection refused"):
        logdb.connect("127.0.0.1:1")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100)])
def test_a_peer_that_does_not_speak_grpc(greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        stop = threading.Event()

        def answer() -> None:
            while not stop.is_set():
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(greeting)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with pytest.raises(logdb.Unavailable, match=address) as caught:
                logdb.connect(address, timeout=2)
            assert len(str(caught.value).splitlines()) == 1
        finally:
            stop.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def test_another_grpc_server() -> None:
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with pytest.raises(logdb.Unavailable, match="cannot be reached: it is a gRPC server of another kind"):
        logdb.connect(f"127.0.0.1:{port}")
    other.stop(0)


def test_another_version_of_the_protocol(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PROTOCOL", PROTOCOL + 1)
    monkeypatch.setattr(server, "RELEASE", "9.9")
    with pytest.raises(logdb.ProtocolMismatch) as caught:
        logdb.connect(served.address)
    assert str(caught.value) == (
        f"{served.address} speaks protocol {PROTOCOL + 1} (LogDB 9.9), this client speaks {PROTOCOL}"
        f" (LogDB {server_connection.RELEASE}); install the same version on both sides"
    )
    served.stop()  # after it has counted
    assert served.server.refusals.count == 1


def test_invalid_endpoints() -> None:
    for wrong in ("", "localhost", "localhost:0", "localhost:65536", "a:b", []):
        with pytest.raises(ValueError):
            logdb.connect(wrong)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(ValueError):
            logdb.connect("127.0.0.1:1", timeout=timeout)
    with pytest.raises(TypeError):
        logdb.connect("127.0.0.1:1", timeout="1")  # type: ignore[arg-type]


# ---- clients


def test_many_coroutines(served: Served) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(served.address) as db:
            await db.put(b"n", b"0")

            async def add(txn: logdb.aio.Transaction) -> None:
                value = await txn.get(b"n")
                assert value is not None
                txn[b"n"] = b"%d" % (int(value) + 1)

            async def work(worker: int) -> None:
                for number in range(10):
                    key = b"%d/%d" % (worker, number)
                    version = await db.put(key, key)
                    assert await db.get(key) == key
                    assert (await db.multi_get([key])).version >= version
                if worker % 8 == 0:
                    await db.run(add)

            await asyncio.gather(*(work(worker) for worker in range(64)))
            assert await db.get(b"n") == b"8"
            assert len([row async for row in db.scan(prefix=b"1")]) == 11 * 10

    asyncio.run(main())


def test_many_threads(served: Served) -> None:
    with logdb.connect(served.address) as db, ThreadPoolExecutor(64) as pool:

        def work(worker: int) -> None:
            for number in range(5):
                key = b"%d/%d" % (worker, number)
                db.put(key, key)
                assert db[key] == key

        list(pool.map(work, range(64)))
        assert len(list(db.scan())) == 64 * 5


def test_transactions_at_hot_keys_take_turns(served: Served) -> None:
    """After a conflict over a key, transactions that begin with it rarely abort."""

    async def main() -> None:
        async with await logdb.aio.connect(served.address) as db:
            await db.put(b"hot", b"0")
            attempts = 0

            async def add(txn: logdb.aio.Transaction) -> None:
                nonlocal attempts
                attempts += 1
                value = await txn.get(b"hot")
                assert value is not None
                txn[b"hot"] = b"%d" % (int(value) + 1)

            await asyncio.gather(*(db.run(add) for _ in range(200)))
            assert await db.get(b"hot") == b"200"
            assert attempts < 200 + 200 + 50

    asyncio.run(main())


def test_a_cancelled_call_does_not_fail_others(served: Served) -> None:
    async def main() -> None:
        async with await logdb.aio.connect(served.address) as db:
            puts = [asyncio.create_task(db.put(b"%d" % number, b"v")) for number in range(20)]
            await asyncio.sleep(0)
            puts[3].cancel()
            answers = await asyncio.gather(*puts, return_exceptions=True)
            assert [number for number, answer in enumerate(answers) if not isinstance(answer, int)] == [3]

    asyncio.run(main())


def test_ctrl_c_ends_a_client_that_waits(served: Served) -> None:
    code = (
        "import sys, logdb\n"
        "with logdb.connect(sys.argv[1]) as db:\n"
        "    db.put(b'k', b'1')\n"
        "    try:\n"
        "        print('waiting', flush=True)\n"
        "        for _ in db.watch(): pass\n"
        "    except KeyboardInterrupt:\n"
        "        print(db.get(b'k'), flush=True)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code, served.address], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n"
    client.send_signal(signal.SIGINT)
    assert client.communicate(timeout=20)[0] == "b'1'\n"
    assert client.returncode == 0


def test_the_leases_of_a_killed_client_are_released(served: Served) -> None:
    code = (
        "import os, sys, logdb\n"
        "db = logdb.connect(sys.argv[1])\n"
        "with db.transaction() as txn:\n"
        "    txn.get(b'k')\n"
        "    print('begun', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with logdb.connect(served.address) as db:
        db.put(b"k", b"1")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        client = subprocess.Popen([sys.executable, "-c", code, served.address], **pipes)  # type: ignore[call-overload]
        assert client.stdout.readline() == b"begun\n"
        db.put(b"k", b"2")
        assert db.compact().floor == 1
        client.kill()
        client.communicate()
        while served.host.embedded.snapshots.leased():
            time.sleep(0.001)
        assert db.compact().floor > 1


def test_a_stream_cancelled_while_it_ends_releases_its_leases(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC cancels the handler of a lost stream, which may be ending already."""
    send, run = Outbox.send, Session.run
    ending, ended = threading.Event(), threading.Event()
    streams: list[asyncio.Task[None]] = []

    async def slow_to_end(self: Outbox) -> None:
        try:
            await send(self)
        finally:
            ending.set()
            await asyncio.Event().wait()

    async def noted(self: Session) -> None:
        streams.append(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await run(self)
        finally:
            ended.set()

    monkeypatch.setattr(Outbox, "send", slow_to_end)
    monkeypatch.setattr(Session, "run", noted)
    db = logdb.connect(served.address)
    with db.transaction() as txn:
        assert txn.get(b"k") is None
        assert served.host.embedded.snapshots.leased()
        db.close()
        assert ending.wait(20)
        served.loop.call(streams[0].cancel)
        assert ended.wait(20)
        assert not served.host.embedded.snapshots.leased()
        txn.close()


def test_closing_ends_waiting_calls(served: Served) -> None:
    db = logdb.connect(served.address)
    threads = threading.active_count()
    seen: list[logdb.Change] = []
    changes = db.watch()
    watcher = threading.Thread(target=lambda: seen.extend(changes))
    watcher.start()
    db.close()
    watcher.join()
    db.close()
    assert seen == []
    assert threading.active_count() == threads
    for call in (lambda: db.get(b"k"), lambda: db.put(b"k", b"1"), lambda: db.at(1), db.__enter__, db.watch):
        with pytest.raises(logdb.DatabaseClosed):
            call()


# ---- contents of messages


def test_large_values_and_pages(served: Served) -> None:
    large = bytes(logdb.MAX_VALUE_BYTES)
    with logdb.connect(served.address, timeout=60) as db:
        page = bytes(PAGE_BYTES)
        db.multi_put({b"a": large, b"b": page, b"c": b"small"})
        assert db.multi_get([b"a", b"none", b"b", b"c"]) == {b"a": large, b"b": page, b"c": b"small"}
        db.put(b"a", b"1")
        assert [(key, len(value)) for key, value in db.scan()] == [(b"a", 1), (b"b", len(page)), (b"c", 5)]
        assert [key for key, _ in db.scan(reverse=True, limit=2)] == [b"c", b"b"]
        assert [len(entry.value or b"") for entry in db.history(b"a")] == [1, len(large)]
        (both, last) = db.watch(since=0, timeout=0)
        assert (len(both.changes), last.changes) == (3, {b"a": b"1"})
        with pytest.raises(logdb.ValueTooLarge):
            db.put(b"k", large + b"1")
        assert not served.host.embedded.snapshots.leased()


def test_the_read_set_of_a_transaction_has_a_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.wire.database_codec.MAX_REQUEST_BYTES", 2 << 20)
    with logdb.connect(served.address) as db:
        with pytest.raises(logdb.TransactionTooLarge, match="as a message to the server") as caught:
            db.put(b"k", bytes(3 << 20))
        assert caught.value.limit == 2 << 20
        db.put(b"k", b"1")


def test_a_compaction_keeps_the_version_of_an_open_scan(served: Served) -> None:
    with logdb.connect(served.address) as db:
        db.multi_put({b"%05d" % number: b"v" * 1_000 for number in range(3_000)})
        rows = db.scan()
        entries = db.history(b"00000")
        assert (next(rows)[0], next(entries).version) == (b"00000", 1)
        db.multi_put({b"%05d" % number: None for number in range(3_000)})
        assert db.compact().floor == 1
        assert len(list(rows)) == 2_999
        assert db.compact().floor > 1


def test_a_compaction_keeps_the_versions_of_an_open_history(served: Served) -> None:
    """Only the newest one was leased, and the second page ended the history with VersionTrimmed."""
    with logdb.connect(served.address) as db:
        versions = [db.put(b"k", bytes(PAGE_BYTES // 2 + number)) for number in range(5)]
        history = db.history(b"k")
        assert next(history).version == versions[-1]
        assert db.compact().floor <= versions[0]
        assert [entry.version for entry in history] == versions[-2::-1]
        assert db.compact().floor >= versions[-1]


def test_a_history_at_a_version_can_be_read_during_a_compaction(served: Served) -> None:
    """A page leased the oldest version, which a compaction under way does not keep."""
    with logdb.connect(served.address) as db:
        versions = [db.put(b"k", bytes(PAGE_BYTES // 2 + number)) for number in range(5)]
        served.host.embedded.snapshots.compacting_to = versions[-1]
        assert [entry.version for entry in db.at(versions[-1]).history(b"k")] == versions[::-1]
        served.host.embedded.snapshots.compacting_to = 0


def test_a_watcher_overtaken_by_compaction_gets_an_error(served: Served) -> None:
    with logdb.connect(served.address) as db:
        for _ in range(5):
            db.put(b"k", bytes(PAGE_BYTES))
        changes = db.watch(since=0)
        assert next(changes).version
        db.compact()
        with pytest.raises(logdb.VersionTrimmed):
            list(changes)


def test_a_read_waits_for_the_session_version_of_its_client(served: Served) -> None:
    with logdb.connect(served.address) as first:
        first.put(b"k", b"1")
        assert first.session == 1
    with (
        logdb.connect(served.address, timeout=20, session=2) as db,
        logdb.connect(served.address, timeout=0.3, session=2) as impatient,
    ):
        with pytest.raises(logdb.Unavailable, match=r"version 2 is not readable here|not answered"):
            impatient.get(b"k")
        writer = threading.Timer(0.2, lambda: served.loop.run(_write(served)))
        writer.start()
        assert db.get(b"k") == b"2"
        writer.join()


async def _write(served: Served) -> None:
    await served.host.write({b"k": b"2"})


def test_a_transaction_that_is_sent_twice_is_applied_once(served: Served) -> None:
    """Both answers are equal, for commits and for aborts."""
    with logdb.connect(served.address) as db:
        connection = connection_of(db)

        async def twice(**verb: object) -> list[tuple[int, bool, list[int]]]:
            answers = [await connection.call(pb.Request(**verb)) for _ in range(2)]
            return [(one.version, one.HasField("undone"), list(one.undone.failed)) for one in answers]

        def sent(**verb: object) -> list[tuple[int, bool, list[int]]]:
            return connection.run(twice(**verb))

        put = pb.Write(sequence=1_000, writes=pb.Writes(keys=[b"a"], values=[b"1"]))
        first, second = sent(write=put)
        assert first == second == (1, False, [])
        test = pb.Write(sequence=1_001, writes=put.writes, conditions=[pb.Condition(operator=2, key=b"a")])
        first, second = sent(write=test)
        assert first == second
        assert first[1:] == (True, [0])
        db.put(b"a", b"2")
        commit = pb.Commit(sequence=1_002, snapshot=1, reads=[b"a"], writes=put.writes)
        for _ in range(2):
            with pytest.raises(logdb.ConflictError) as caught:
                sent(commit=commit)
            assert caught.value.key == b"a"
        add = pb.Write(sequence=1_003, folds=[pb.Fold(operator=1, key=b"n", operand=b"5")])
        first, _ = sent(write=add)
        db.put(b"n", b"no number any more")
        assert sent(write=add) == [first, first]
        refused = pb.Write(sequence=1_004, folds=add.folds)
        with pytest.raises(logdb.NotANumber):
            sent(write=refused)
        db.delete(b"n")
        sent(write=refused)  # nothing was written under its number before
        assert db[b"n"] == b"5"
        db.delete(b"n")
        db.compact()
        for write in (put, test, add):
            with pytest.raises(logdb.OutcomeUnknown, match="compacted away") as unknown:
                sent(write=write)
            assert db.outcome(unknown.value.txn_id).status is logdb.Status.FORGOTTEN
        assert dict(db.scan()) == {b"a": b"2"}


def test_a_write_refused_on_retry_has_an_unknown_outcome(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with logdb.connect(served.address) as db:
        connection, host = connection_of(db), served.host.embedded
        submit = host.commits.submit

        def refused(*_: Any, **__: Any) -> None:
            raise logdb.Unavailable("no space left")

        def unanswered(*arguments: Any, **options: Any) -> Any:
            monkeypatch.setattr(host.commits, "submit", refused)
            submitted = submit(*arguments, **options)
            connection._stream.cancel()  # type: ignore[union-attr]
            return submitted

        monkeypatch.setattr(host.commits, "submit", unanswered)
        with pytest.raises(logdb.OutcomeUnknown, match="no space left") as unknown:
            db.put(b"k", b"1")
        assert db.outcome(unknown.value.txn_id).committed
        with pytest.raises(logdb.Unavailable, match="no space left"):
            db.put(b"k", b"2")


def test_the_load_is_read_while_clients_connect(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(session: Session) -> int:
        if len(others) < 3:
            others.append(logdb.connect(served.address))
        return 0

    others: list[logdb.Database] = []
    with logdb.connect(served.address) as db:
        assert db.version == 0
        monkeypatch.setattr(Session, "waiting", property(waiting))
        assert served.server.load().streams == 1
        assert len(others) == 1
        others[0].close()


def test_health(served: Served) -> None:
    with grpc.insecure_channel(served.address) as channel:
        ask = health_pb2_grpc.HealthStub(channel)
        for service in ("", "logdb.api.database.Database"):
            answer = ask.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_disk_that_cannot_be_read_is_the_servers_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the nemesis: a feed ended with a raw OSError, which its client treated as a bug and did not retry."""
    served = Served(tmp_path / "data")
    try:
        with logdb.connect(served.address, timeout=30) as db:
            db.put(b"k", b"v")
            failing = OSError(errno.EIO, "Input/output error")
            monkeypatch.setattr(Disk, "map", lambda *_, **__: (_ for _ in ()).throw(failing))
            with pytest.raises(logdb.Unavailable, match=r"could not read: .*Input/output error"):
                list(db.watch(since=0, timeout=0))
            monkeypatch.undo()
            assert len(list(db.watch(since=0, timeout=0))) == 1
    finally:
        served.close()
