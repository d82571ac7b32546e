"""fork() with an open database: the child cannot use it, opens its own, and does not affect the parent's."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb
import logdb.aio
from logdb.api.inspection import verify
from logdb.embedded import snapshot_plan
from logdb.embedded.external_leases import FOLDER, ExternalLease, leased_versions, process_owner
from logdb.log import LocalLog
from logdb.system.directories import is_locked
from tests.harness.forks import Child, in_child, locks_held, refused

ROWS = 3_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    """A database with rows in its checkpoint and others after it."""
    with logdb.open(tmp_path / "data") as db:
        db.multi_put({b"k%04d" % number: b"v" for number in range(ROWS)})
        db.checkpoint()
        db.put(b"k0000", b"new")
        assert db.get(b"k1000") == b"v"
        yield db


def check(db: logdb.Database) -> None:
    """The parent's database is unchanged and accepts writes."""
    with pytest.raises(logdb.DatabaseInUse, match=f"process {os.getpid()} "):
        logdb.open(db.path)
    db.put(b"after", b"1")
    assert db.get(b"k1000") == b"v"
    assert sum(1 for _ in db.scan()) == ROWS + 1
    path = db.path
    db.close()
    assert verify(path).damage == []
    with logdb.open(path) as again:
        assert again[b"after"] == b"1"
        assert sum(1 for _ in again.scan()) == ROWS + 1


@contextlib.contextmanager
def opened(kind: str, tmp_path: Path) -> Iterator[logdb.Database]:
    """A database with a large value that has two versions, of a kind."""
    path = ":memory:" if kind == "in memory" else tmp_path / "data"
    with logdb.open(path, cold=tmp_path / "cold" if kind == "cold tier" else None) as db:
        db.multi_put({b"k%04d" % number: b"v" for number in range(ROWS)})
        for fill in (b"x", b"y"):
            db.put(b"large", 100_000 * fill)
        if kind != "in memory":
            db.checkpoint()
        if kind == "cold tier":
            db.compact()
        db.put(b"k0000", b"new")
        if kind == "reader":
            with logdb.open(path, read_only=True) as reader:
                yield reader
        else:
            yield db


@pytest.mark.parametrize("kind", ["directory", "in memory", "reader", "cold tier"])
def test_all_calls_of_a_child_fail_whatever_locks_are_held(kind: str, tmp_path: Path) -> None:
    """On what it inherits of its parent's database: views, iterators and transactions, too."""
    with opened(kind, tmp_path) as db:
        view, log = db.at(), db.log("events")
        past = db.at([version for version, _ in db.history(b"large")][1])
        begun: list[Iterator[object]] = [
            *(db.scan(), view.scan(), past.scan()),
            *(db.history(b"large"), past.history(b"large")),
            db.watch(since=0),
        ]
        txn = db.transaction()
        running = txn.__enter__()
        begun.append(running.scan())
        for items in begun:
            next(items)

        def body() -> list[str]:
            return refused(
                lambda: db.put(b"k", b"child"),
                lambda: db.multi_put({b"k": b"child"}),
                lambda: db.delete(b"k0000"),
                lambda: db.run(lambda txn: txn.put(b"k", b"child")),
                lambda: db.version,
                lambda: db.oldest_version,
                lambda: db.time_of(2),
                db.stats,
                lambda: db.outcome("0000000000000001-1", settle=True),
                lambda: db.pin("p"),
                db.compact,
                db.checkpoint,
                lambda: next(db.watch(since=0)),
                lambda: log.append(b"child"),
                lambda: list(log.read()),
                db.__enter__,
                *(
                    call
                    for reader in (db, view, past, running)
                    for call in (
                        lambda reader=reader: reader.get(b"k0000"),  # in memory
                        lambda reader=reader: reader.get(b"k1000"),  # in the checkpoint
                        lambda reader=reader: reader.get(b"large"),
                        lambda reader=reader: reader.multi_get([b"k0000", b"k1000"]),
                        lambda reader=reader: list(reader.scan()),
                        lambda reader=reader: list(reader.scan(limit=3)),
                        lambda reader=reader: reader.multi_scan([(None, b"k0001")]),
                    )
                ),
                *(lambda reader=reader: list(reader.history(b"large")) for reader in (db, view, past)),
                *(lambda items=items: list(items) for items in begun),
                lambda: txn.__exit__(None, None, None),
            )

        with locks_held(db, view, past, log, begun, txn):
            child = Child(body)
        expected = f"DatabaseClosed: {db.path} was opened by process {os.getpid()}, from which this one was forked"
        for number, answer in enumerate(child.result()):
            assert answer.startswith(expected), (number, answer)
            assert "open or connect again in this process" in answer
        with locks_held(db, view, past, log, begun, txn):
            child = Child(db.close)
        child.result()

        assert running.get(b"k0000") == b"new"
        txn.__exit__(None, None, None)
        assert [sum(1 for _ in items) for items in begun[:5]] == [ROWS, ROWS, ROWS, 1, 0]
        assert past.get(b"large") == 100_000 * b"x"


def test_a_transaction_of_a_child_is_refused(db: logdb.Database) -> None:
    txn = db.transaction()
    running = txn.__enter__()
    running.put(b"t", running.get(b"k1000") or b"")
    for answer in in_child(lambda: refused(lambda: running.get(b"k0000"), lambda: txn.__exit__(None, None, None))):
        assert answer.startswith(f"DatabaseClosed: {db.path} was opened by process {os.getpid()}")
    txn.__exit__(None, None, None)
    assert db.get(b"t") == b"v"
    db.delete(b"t")
    check(db)


@pytest.mark.parametrize("in_memory", [False, True])
def test_what_a_closed_database_has_begun_is_refused(in_memory: bool, tmp_path: Path) -> None:
    """As in a child. A change feed ends."""
    with logdb.open(":memory:" if in_memory else tmp_path / "data") as db:
        db.multi_put({b"k%d" % number: b"v" for number in range(10)})
        for _ in range(2):
            db.put(b"large", b"v" * 100_000)
        feed, txn = db.watch(since=0), db.transaction()
        running = txn.__enter__()
        next(feed)
        assert running.get(b"k1") == b"v"
    closed = f"DatabaseClosed: {db.path} is closed"
    assert list(feed) == []
    for answer in refused(
        lambda: running.get(b"k1"),
        lambda: running.get(b"k2"),
        lambda: running.multi_get([b"k1"]),
        lambda: list(running.scan(limit=1)),
        lambda: list(running.scan()),
        lambda: txn.__exit__(None, None, None),
    ):
        assert answer.startswith(closed)


def test_closing_in_a_child_does_not_affect_the_parents_lock_and_log(db: logdb.Database) -> None:
    with db.transaction() as txn:
        txn.put(b"k0000", b"newest")
        in_child(db.close)
    in_child(db.close)
    check(db)


def test_objects_closed_before_the_fork_close_nothing_in_the_child(db: logdb.Database) -> None:
    """Their descriptors' numbers may belong to other files now."""
    db.close()
    files = [os.open(db.path, os.O_RDONLY) for _ in range(20)]

    def body() -> list[int]:
        db.close()
        return [file for file in files if os.fstat(file).st_ino != os.stat(db.path).st_ino]

    assert in_child(body) == []
    for file in files:
        os.close(file)


def test_a_child_that_outlives_its_parent_holds_no_lock(db: logdb.Database) -> None:
    hold, release = os.pipe()
    os.set_inheritable(release, True)

    def body() -> bytes:
        os.close(release)
        return os.read(hold, 1)

    child = Child(body)
    check(db)
    os.write(release, b"x")
    assert child.result() == b"x"
    os.close(hold)
    os.close(release)


@pytest.mark.parametrize("where", ["log", "LOCK"])
def test_a_child_forked_while_a_file_is_locked_does_not_keep_the_lock(
    db: logdb.Database, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction in another thread locks the leases, and a reader the lock of the directory for a moment."""
    hold, release = os.pipe()
    children: list[Child] = []

    def body() -> bytes:
        os.close(release)
        return os.read(hold, 1)

    def locked(fd: int, operation: int) -> None:
        plain(fd, operation)
        if not children:
            children.append(Child(body))

    path, plain = Path(db.path), fcntl.flock
    db.close()
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", locked)
        if where == "log":
            with leased_versions(path):
                pass
        else:
            assert not is_locked(path)
    fd = os.open(path / where, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the child lives
    finally:
        os.close(fd)
        os.write(release, b"x")
        assert children[0].result() == b"x"
        os.close(hold)
        os.close(release)


def test_a_child_opens_the_directory_itself(db: logdb.Database) -> None:
    """The child can read beside its parent, and write when the parent has closed."""

    def body() -> tuple[int, bytes | None, list[str]]:
        with logdb.open(db.path, read_only=True) as mine:
            rows = sum(1 for _ in mine.scan())
            return rows, mine.get(b"k1000"), refused(lambda: logdb.open(db.path))

    for _ in range(3):
        rows, value, (writing,) = in_child(body)
        assert (rows, value) == (ROWS, b"v")
        assert writing.startswith(f"DatabaseInUse: {db.path} is open for writing by process {os.getpid()} ")
    in_grandchild = in_child(lambda: in_child(body))
    assert in_grandchild[:2] == (ROWS, b"v")
    check(db)


def test_after_the_parent_has_closed_a_child_writes(db: logdb.Database) -> None:
    """As the workers of a server whose parent reads the database first."""
    db.close()

    def body() -> int:
        with logdb.open(db.path) as mine:
            return mine.put(b"child", b"1")

    version = in_child(body)
    with logdb.open(db.path) as again:
        assert (again.version, again[b"child"]) == (version, b"1")


def test_children_forked_amid_writes_checkpoints_and_reads(tmp_path: Path) -> None:
    """At the time of the fork another thread may hold any lock."""
    done = threading.Event()
    failures: list[BaseException] = []

    def repeat(step: object, call: object) -> None:
        assert callable(call)
        try:
            while not done.is_set():
                call()
        except BaseException as error:
            failures.append(error)

    with logdb.open(tmp_path / "data") as db:
        db.multi_put({b"k%04d" % number: b"v" for number in range(ROWS)})
        db.checkpoint()
        numbers = iter(range(1 << 30))
        calls = [
            lambda: db.put(b"n%d" % next(numbers), b"v"),
            db.checkpoint,
            lambda: list(db.scan()),
            lambda: db.get(b"k1000"),
            db.compact,
        ]
        threads = [threading.Thread(target=repeat, args=(None, call)) for call in calls]
        for thread in threads:
            thread.start()

        def body() -> tuple[list[str], bytes | None]:
            answers = refused(lambda: db.put(b"k", b"child"), lambda: db.get(b"k1000"))
            db.close()
            with logdb.open(db.path, read_only=True) as mine:
                return answers, mine.get(b"k1000")

        try:
            for _ in range(15):
                answers, value = in_child(body)
                assert value == b"v"
                assert all(answer.startswith("DatabaseClosed: ") for answer in answers), answers
        finally:
            done.set()
            for thread in threads:
                thread.join()
        assert failures == []
    assert verify(tmp_path / "data").damage == []


def test_in_memory(tmp_path: Path) -> None:
    with logdb.open(":memory:") as db:
        db.put(b"k", b"1")
        (answer,) = in_child(lambda: refused(lambda: db.put(b"k", b"2")))
        assert answer.startswith("DatabaseClosed: :memory: was opened by process")
        assert db.get(b"k") == b"1"


def test_asyncio(tmp_path: Path) -> None:
    """A child of a process whose coroutines have a database, while a commit is under way."""

    async def main() -> None:
        async with await logdb.aio.open(tmp_path / "data") as db:
            await db.put(b"k", b"1")
            changes = aiter(db.watch(since=0))
            await anext(changes)
            under_way = [asyncio.ensure_future(db.put(b"n%d" % number, b"1")) for number in range(20)]
            await asyncio.sleep(0)

            async def use() -> list[str]:
                answers = []
                for call in (db.put(b"k", b"2"), db.get(b"k"), db.version(), db.at(1), anext(changes)):
                    try:
                        answers.append(repr(await call))
                    except logdb.DatabaseClosed as error:
                        answers.append(str(error))
                await db.close()
                async with await logdb.aio.open(tmp_path / "data", read_only=True) as mine:
                    assert await mine.get(b"k") == b"1"
                return answers

            with locks_held(db, changes):
                child = Child(lambda: asyncio.run(use()))
            for answer in child.result():
                assert f"was opened by process {os.getpid()}" in answer
            await asyncio.gather(*under_way)
            await changes.aclose()
            assert await db.get(b"k") == b"1"

    asyncio.run(main())
    with logdb.open(tmp_path / "data") as db:
        assert db.version == 21


def test_a_log_without_a_database(tmp_path: Path) -> None:
    log = LocalLog(tmp_path / "log", b"i" * 16)
    log.append([(1, b"parent")])
    answers = in_child(lambda: refused(lambda: log.append([(1, b"child")]), lambda: list(log.scan(1, 2)), log.close))
    assert "was opened by process" in answers[0]
    assert answers[1].startswith("LogFailed: ")
    assert answers[2] == "no error: None"
    assert list(log.append([(1, b"parent again")])) == [2]
    log.close()


MULTIPROCESSING = """
    import multiprocessing, sys
    import logdb

    def work(path, number):
        with logdb.open(path, read_only=True) as db:
            print(f"{number} {db[b'k'].decode()}\\n", end="", flush=True)

    if __name__ == "__main__":
        path, method = sys.argv[1:]
        context = multiprocessing.get_context(method)
        with logdb.open(path) as db:
            db[b"k"] = b"v"
            db.checkpoint()
            workers = [context.Process(target=work, args=(path, number)) for number in range(2)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert [worker.exitcode for worker in workers] == [0, 0]
            db[b"k"] = b"w"
        with logdb.open(path) as db:
            assert db[b"k"] == b"w"
"""

PREFORKING = """
    import os, sys
    import logdb

    path = sys.argv[1]
    db = logdb.open(path)
    db[b"k"] = b"v"
    db.checkpoint()
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            try:
                db[b"k"] = b"child"
            except logdb.DatabaseClosed:
                print(f"{number} refused\\n", end="", flush=True)
            with logdb.open(path, read_only=True) as mine:
                print(f"{number} {mine[b'k'].decode()}\\n", end="", flush=True)
            sys.exit(0)  # a normal exit, which frees inherited objects
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert db[b"k"] == b"v"
    db[b"k"] = b"w"
    db.close()
    with logdb.open(path) as db:
        assert db[b"k"] == b"w"
"""


def run(tmp_path: Path, program: str, *arguments: str) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    command = [sys.executable, str(script), str(tmp_path / "data"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(tmp_path: Path, method: str) -> None:
    assert run(tmp_path, MULTIPROCESSING, method) == ["0 v", "1 v"]


def test_preforked_workers_that_end_as_programs_do(tmp_path: Path) -> None:
    assert run(tmp_path, PREFORKING) == ["0 refused", "0 v", "1 refused", "1 v"]


def test_a_child_keeps_the_files_that_its_parent_needs(db: logdb.Database) -> None:
    """Plans of snapshots, and leases."""
    path = Path(db.path)
    hold = ExternalLease(path, 1, process_owner(os.getpid()))
    with snapshot_plan.pin(path) as planned:
        folders = set((path / FOLDER).iterdir())

        def body() -> list[str]:
            planned.close()
            hold.close()
            return refused(lambda: hold.move(2))

        assert len(in_child(body)) == 1
        assert set((path / FOLDER).iterdir()) == folders
        with leased_versions(path) as versions:
            assert versions == [1]
        assert snapshot_plan.load(Path(planned.folder))._replace(process=0) == planned._replace(process=0)
    hold.close()
    assert not (path / FOLDER).exists()
    check(db)
