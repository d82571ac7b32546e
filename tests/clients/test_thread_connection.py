"""The client for threads: its threads receive the answers of each other, wait without events, and replace streams."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.clients import server_connection, thread_connection
from logdb.clients.connection import Connection
from logdb.clients.server_connection import ServerConnection
from logdb.transport import polled_stream
from logdb.transport.polled_stream import PolledStream
from logdb.wire.proto import database_pb2 as pb
from tests.harness.interrupts import InterruptedAt
from tests.harness.served import Served, connection_of
from tests.harness.server_process import ServerProcess

THREADS = 12


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(None)
    yield served
    served.close()


def increment(txn: logdb.Transaction) -> None:
    txn[b"k"] = b"%d" % (int(txn.get(b"k", b"0")) + 1)


def test_threads_share_a_stream(served: Served) -> None:
    """Also while one of them waits for changes, which come through it to the end."""
    with logdb.connect(served.address) as db:
        changes = db.watch(since=0, timeout=20)

        def follow() -> list[int]:
            return [change.version for _, change in zip(range(10 * THREADS), changes, strict=False)]

        def work(number: int) -> None:
            for _ in range(10):
                db.run(increment)
                assert db.get(b"%d" % number) is None

        with ThreadPoolExecutor(THREADS + 1) as pool:
            follower = pool.submit(follow)
            list(pool.map(work, range(THREADS)))
            assert len(follower.result(20)) == 10 * THREADS
        assert db[b"k"] == b"%d" % (10 * THREADS)


def test_closing_ends_threads_that_wait(served: Served) -> None:
    """One that receives for the others, and one that waits for it."""
    db = logdb.connect(served.address)
    waiting = threading.Barrier(3)

    def follow() -> list[Any]:
        changes = db.watch()
        waiting.wait()
        return list(changes)

    with ThreadPoolExecutor(2) as pool:
        followers = [pool.submit(follow) for _ in range(2)]
        waiting.wait()
        time.sleep(0.1)  # most runs: both wait
        begun = time.monotonic()
        db.close()
        assert [follower.result(20) for follower in followers] == [[], []]
        assert time.monotonic() - begun < 5


def test_a_stream_lost_meanwhile_is_replaced_before_something_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write on an idle client after its server has gone was never sent: its outcome is not unknown."""
    streams: list[PolledStream] = []

    def recorded(*arguments: Any) -> PolledStream:
        streams.append(PolledStream(*arguments))
        return streams[-1]

    monkeypatch.setattr(thread_connection, "PolledStream", recorded)
    process = ServerProcess(tmp_path / "data")
    try:
        with logdb.connect(process.address, timeout=1) as db:
            db.put(b"k", b"1")
            process.kill()
            while any(stream.is_connected for stream in streams):
                time.sleep(0.001)  # gRPC learns of it in a thread of its own
            with pytest.raises(logdb.Unavailable):
                db.put(b"k", b"2")
            process.start()
            assert db[b"k"] == b"1"
    finally:
        process.close()


def test_a_server_that_stops_answering(tmp_path: Path) -> None:
    """Each call ends at its deadline; the stream is replaced when the server answers again."""
    process = ServerProcess(tmp_path / "data")
    try:
        with logdb.connect(process.address, timeout=0.5) as db, ThreadPoolExecutor(4) as pool:
            db.put(b"k", b"1")
            process.pause()
            begun = time.monotonic()
            late = [pool.submit(db.get, b"k") for _ in range(4)]
            for each in late:
                with pytest.raises(logdb.Unavailable):
                    each.result(20)
            assert time.monotonic() - begun < 5
            process.resume()
            deadline = time.monotonic() + 20
            while True:
                try:
                    assert db[b"k"] == b"1"
                    break
                except logdb.Unavailable:
                    assert time.monotonic() < deadline
    finally:
        process.resume()
        process.close()


def test_a_call_ends_at_its_deadline_while_its_thread_connects_again(served: Served) -> None:
    """The call ended when the attempt did, which has the time of a whole call."""
    with logdb.connect(served.address, timeout=60) as db, ThreadPoolExecutor(1) as pool:
        connection = connection_of(db)

        async def ask() -> pb.Response:
            return await connection.call(pb.Request(at=pb.At()), timeout_s=0.3)

        served.stop()
        with socket.create_server(("127.0.0.1", served.port)):  # accepts, and does not answer
            late = pool.submit(connection.run, ask())
            with pytest.raises(logdb.Unavailable):
                late.result(20)


def test_a_callback_cannot_wait_for_the_thread_that_calls_it(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner call waited until its deadline for an answer that its own thread had to receive."""

    def checkpoint(progress: Callable[[int], None]) -> int:
        progress(1)
        return 7

    with logdb.connect(served.address, timeout=5) as db:
        monkeypatch.setattr(served.host.embedded, "checkpoint", checkpoint)
        with pytest.raises(logdb.LogDBError, match="may not wait"):
            db.checkpoint(progress=lambda _: print(db.version))
        assert db.checkpoint(progress=lambda _: None) == 7


@pytest.mark.parametrize("verb", ["multi_get", "multi_scan"])
def test_the_first_read_of_a_transaction_takes_its_snapshot_in_one_journey(
    served: Served, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its two requests leave before an answer comes; all later reads are of the same version."""
    with logdb.connect(served.address) as db, logdb.connect(served.address) as other:
        db.multi_put({b"a": b"1", b"b": b"1"})
        events: list[str] = []
        call, responses_of = ServerConnection.call, server_connection.responses_of

        def calling(self: ServerConnection[Any], request: pb.Request, *args: Any, **options: Any) -> Any:
            events.append(request.WhichOneof("verb") or "")
            return call(self, request, *args, **options)

        def receiving(raw: bytes) -> pb.Responses:
            events.append("answer")
            return responses_of(raw)

        monkeypatch.setattr(ServerConnection, "call", calling)
        monkeypatch.setattr(server_connection, "responses_of", receiving)
        with db.transaction() as txn:
            if verb == "multi_get":
                assert txn.multi_get([b"a", b"none"]) == {b"a": b"1"}
            else:
                assert txn.multi_scan([(b"a", b"a\0"), (b"b", None)]) == [[(b"a", b"1")], [(b"b", b"1")]]
            assert events[:2] == ["begin", verb]
            assert set(events[2:]) == {"answer"}
            other.put(b"a", b"2")
            assert txn[b"a"] == b"1"
            assert txn.multi_get([b"b"]) == {b"b": b"1"}
        with pytest.raises(logdb.ConflictError), db.transaction() as txn:
            assert txn.multi_get([b"a"]) == {b"a": b"2"}
            other.put(b"a", b"3")
            txn[b"b"] = b"2"


def test_a_first_read_of_more_than_a_page(served: Served) -> None:
    with logdb.connect(served.address) as db:
        rows = {b"%05d" % number: bytes(1_000) for number in range(3_000)}
        db.multi_put(rows)
        with db.transaction(read_only=True) as txn:
            assert txn.multi_get([b"none", *rows]) == rows
        with db.transaction(read_only=True) as txn:
            first, second = txn.multi_scan([(None, b"01"), (b"01", None)])
            assert dict(first + second) == rows


def test_a_first_read_that_fails_leaves_no_lease(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with logdb.connect(served.address) as db:
        db.put(b"a", b"1")
        with db.transaction(read_only=True) as txn:
            with monkeypatch.context() as patched:
                patched.setattr(served.host.embedded, "get", lambda key, at: 1 / 0)
                with pytest.raises(logdb.LogDBError):
                    txn.multi_get([b"a"])
            assert txn.multi_get([b"a"]) == {b"a": b"1"}
        version = db.put(b"a", b"2")
        db.put(b"a", b"3")
        db.compact()
        assert db.oldest_version > version


def test_an_interrupted_call_leaves_a_usable_connection(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with logdb.connect(served.address) as db:
        db.put(b"k", b"1")
        wait = polled_stream.PolledStream.wait

        def interrupted(stream: polled_stream.PolledStream) -> Any:
            wait(stream)
            raise KeyboardInterrupt

        monkeypatch.setattr(polled_stream.PolledStream, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            db.put(b"k", b"2")
        monkeypatch.undo()
        assert db.get(b"k") in (b"1", b"2")
        db.run(increment)


def interrupted_at(nth: int) -> InterruptedAt:
    """At the nth line of the connection's code."""
    spared = ("run", "_give_up")  # their lines need what Python promises itself
    return InterruptedAt(nth, ("thread_connection.py", "polled_stream.py", "server_connection.py"), spared)


def test_an_interrupt_anywhere_leaves_a_usable_connection(served: Served) -> None:
    """At each line: no lock, no turn of the driver and no half of a message stays behind."""
    nth = 0
    with logdb.connect(served.address, timeout=3) as db, ThreadPoolExecutor(1) as pool:
        while True:
            nth += 1
            assert db.get(b"k") in (None, b"1")
            at = interrupted_at(nth)
            try:
                with at:
                    db.put(b"k", b"1")
            except KeyboardInterrupt:
                pass
            if not at.where:
                break
            try:
                pool.submit(db.put, b"other", b"%d" % nth).result(2)
            except Exception as error:
                pytest.fail(f"{error!r} after an interrupt at {at.where}")
            assert db[b"other"] == b"%d" % nth
    assert nth > 50


def test_interrupted_calls_of_the_main_thread_leave_no_descriptor_and_no_lock(served: Served) -> None:
    """Ctrl-C while other threads use the connection: their calls go on."""
    descriptors = Path("/proc/self/fd")
    is_over, armed = threading.Event(), threading.Event()

    def interrupt() -> None:
        """One signal each time that the main thread waits for it."""
        while armed.wait(20) and not is_over.is_set():
            armed.clear()
            time.sleep(0.02)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def work(number: int) -> None:
        while not is_over.is_set():
            db.put(b"%d" % number, b"1")

    with logdb.connect(served.address, timeout=5) as db, ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(work, number) for number in range(2)]
        pool.submit(interrupt)
        before = len(os.listdir(descriptors))
        for _ in range(20):
            with pytest.raises(KeyboardInterrupt):
                armed.set()
                while True:
                    db.put(b"k", b"1")
        is_over.set()
        armed.set()
        for worker in workers:
            worker.result(10)
        gc.collect()
        assert len(os.listdir(descriptors)) <= before + 8


def test_an_iterator_that_is_dropped_releases_its_lease(served: Served) -> None:
    with logdb.connect(served.address) as db:
        db.multi_put({b"%05d" % number: bytes(1_000) for number in range(3_000)})
        rows = db.scan()
        next(rows)
        del rows
        version = db.put(b"k", b"1")
        db.put(b"k", b"2")
        db.compact()
        assert db.oldest_version > version


def test_with_another_grpc_threads_wait_for_an_event_loop(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polled_stream, "IS_AVAILABLE", False)
    with logdb.connect(served.address) as db:
        connection: object = connection_of(db)
        assert isinstance(connection, Connection)
        db.run(increment)
        assert db[b"k"] == b"1"
