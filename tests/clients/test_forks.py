"""fork() and clients: an inherited one is refused, and a child connects if gRPC was not in use before the fork.

Each program is a process of its own, since this one has used gRPC.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.clusters import Cluster
from tests.harness.server_process import ServerProcess

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 120.0

HELPERS = """
import asyncio, multiprocessing, os, sys, time
import logdb, logdb.aio, logdb.log
from tests.harness.forks import locks_held

address = sys.argv[1]

def refused(call):
    try:
        return f"no error: {call()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def fork(body):
    child = os.fork()
    if child == 0:
        body()
        sys.exit(0)  # a normal end of the program, which also frees inherited objects
    return child

def end(*children):
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
"""


def run(tmp_path: Path, program: str, *arguments: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(HELPERS + textwrap.dedent(program))
    command = [sys.executable, str(script), *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    try:
        output = process.communicate(timeout=TIMEOUT_S)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert not output, output
    assert process.returncode == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path_factory.mktemp("served") / "data")
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), replicas=1, mapping=1)
    cluster.start(1)
    yield cluster
    cluster.close()


DATABASE = """
    db = logdb.connect(address)
    db.multi_put({b"k%d" % number: b"v" * 1000 for number in range(2_000)})
    view, rows, feed = db.at(), db.scan(prefix=b"k"), db.watch(since=0)
    next(rows), next(feed)
    context = db.transaction()
    txn = context.__enter__()
    txn.put(b"t", txn.get(b"k1"))
    unread = db.transaction().__enter__()

    def body():
        begun = time.monotonic()
        calls = [
            lambda: db.put(b"k", b"child"),
            lambda: db.get(b"k1"),
            lambda: db.multi_get([b"k1"]),
            lambda: list(db.scan()),
            lambda: db.multi_scan([(None, b"k1")]),
            lambda: list(rows),
            lambda: list(feed),
            lambda: list(db.history(b"k1")),
            lambda: view.get(b"k1"),
            lambda: txn.get(b"k2"),
            lambda: list(txn.scan(limit=3)),
            lambda: unread.get(b"k2"),
            lambda: unread.multi_get([b"k2"]),
            lambda: unread.multi_scan([(None, b"k1")]),
            lambda: list(unread.scan(limit=3)),
            lambda: context.__exit__(None, None, None),
            lambda: db.run(lambda txn: txn.put(b"k", b"child")),
            lambda: db.version,
            lambda: next(db.watch(since=0)),
            lambda: db.compact(),
            lambda: db.__enter__(),
        ]
        for number, call in enumerate(calls):
            answer = refused(call)
            expected = f"DatabaseClosed: {db.path} was opened by process {os.getppid()}, from which this one was forked"
            assert answer.startswith(expected), (number, answer)
        db.close()
        answer = refused(lambda: logdb.connect(address))
        assert answer.startswith(f"Unavailable: process {os.getppid()}, from which this one was forked, had"), answer
        assert "'spawn' or 'forkserver'" in answer
        assert time.monotonic() - begun < 60

    with locks_held(db, view, rows, feed, context, txn, unread):
        children = fork(body), fork(body)
    end(*children)
    assert db.get(b"k") is None
    context.__exit__(None, None, None)
    assert db.get(b"t") == b"v" * 1000
    assert sum(1 for _ in rows) == 1_999
    db.close()
"""


def test_an_inherited_client_of_a_server(server: ServerProcess, tmp_path: Path) -> None:
    run(tmp_path, DATABASE, server.address)


def test_an_inherited_client_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    run(tmp_path, DATABASE, next(iter(cluster.configs.values())).address)


LOG = """
    log = logdb.log.connect(address)
    version = log.append([(9, b"parent")])[0]

    def body():
        for call in (lambda: log.append([(9, b"child")]), lambda: log.tail(), lambda: log.read_record(version, 0)):
            assert f"was opened by process {os.getppid()}" in refused(call), refused(call)
        log.close()
        assert "gRPC does not outlive a fork" in refused(lambda: logdb.log.connect(address))

    end(fork(body))
    assert log.tail() == version
    log.close()
"""


def test_an_inherited_log(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "log", replicas=1)
    cluster.start(1)
    try:
        run(tmp_path, LOG, next(iter(cluster.configs.values())).address)
    finally:
        cluster.close()


@pytest.mark.parametrize("place", ["server", "cluster"])
def test_an_inherited_client_of_coroutines(place: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """At the fork a transaction waits for its first answer, and a change feed for the version that it begins after."""
    found = request.getfixturevalue(place)
    run(
        tmp_path,
        """
        async def main():
            async with await logdb.aio.connect(address) as db:
                await db.put(b"aio", b"parent")

                feed, context = db.watch(), db.transaction()
                txn = await context.__aenter__()
                reading = asyncio.ensure_future(txn.get(b"aio"))
                await asyncio.sleep(0)

                async def begun(feed):
                    return await feed

                async def use():
                    calls = db.put(b"aio", b"child"), db.get(b"aio"), db.version(), txn.get(b"aio")
                    for call in (*calls, begun(feed), anext(aiter(feed))):
                        try:
                            raise AssertionError(await call)
                        except logdb.DatabaseClosed as error:
                            assert f"was opened by process {os.getppid()}" in str(error)
                    await db.close()

                child = os.fork()
                if child == 0:
                    try:
                        asyncio.run(use())
                    except BaseException as error:
                        print(repr(error), flush=True)
                    os._exit(0)  # the loop above is the parent's
                end(child)
                assert await reading == await db.get(b"aio") == b"parent"
                await context.__aexit__(None, None, None)

        asyncio.run(main())
        """,
        found.address if isinstance(found, ServerProcess) else next(iter(found.configs.values())).address,
    )


def test_workers_that_connect_after_the_fork(server: ServerProcess, tmp_path: Path) -> None:
    """A preforking server: the parent imports, even opens a directory, and leaves connecting to its workers."""
    run(
        tmp_path,
        """
        import grpc.aio, logdb.clients.connecting

        def body():
            with logdb.connect(address) as db:
                db.put(b"worker/%d" % os.getpid(), b"1")

        workers = [fork(body) for _ in range(3)]
        end(*workers)
        with logdb.connect(address) as db:
            for worker in workers:
                assert db.get(b"worker/%d" % worker) == b"1"
        """,
        server.address,
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(server: ServerProcess, tmp_path: Path, method: str) -> None:
    """With fork, if the parent has not connected before; with the others, always."""
    run(
        tmp_path,
        """
        def work(address, number):
            with logdb.connect(address) as db:
                db.put(b"work/%d" % number, b"1")

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[2])
            if sys.argv[2] != "fork":
                db = logdb.connect(address)
            workers = [context.Process(target=work, args=(address, number)) for number in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert [worker.exitcode for worker in workers] == [0, 0]
            with logdb.connect(address) as db:
                assert len(list(db.scan(prefix=b"work/"))) == 2
        """,
        server.address,
        method,
    )


def test_a_client_whose_loop_was_closed_first(server: ServerProcess, tmp_path: Path) -> None:
    """The hook of fork() frees no objects of the client; it also runs in `subprocess` with `preexec_fn`."""
    program = """
    import subprocess

    async def leave():
        db = await logdb.aio.connect(address)
        await db.put(b"left", b"v")
        return db

    left = asyncio.run(leave())
    subprocess.run(["true"], check=True, preexec_fn=lambda: None)
    os._exit(0)
    """
    run(tmp_path, program, server.address)
