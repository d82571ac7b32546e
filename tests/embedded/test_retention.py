"""Compaction, pins and checkpoints, also after crashes, on a directory with small segments."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.embedded import EmbeddedBackend, recovery
from logdb.embedded.verification.verify import verify_files
from logdb.log.contract import Record
from logdb.store import checkpoint, runs
from logdb.store.relocating import Relocator
from logdb.store.values import Values
from tests.harness.opening import host_of, open_database

LARGE = b"large " * 2_000


@pytest.fixture
def db(tmp_path: Path) -> Iterator[logdb.Database]:
    with open_database(tmp_path / "db", segment_bytes=30_000) as db:
        yield db


def reopened(db: logdb.Database) -> logdb.Database:
    db.close()
    return open_database(Path(db.path), segment_bytes=30_000)


def rebuilt(db: logdb.Database) -> logdb.Database:
    db.close()
    logdb.rebuild(db.path)
    return open_database(Path(db.path), segment_bytes=30_000)


def test_compaction_keeps_live_versions_and_frees_disk_space(db: logdb.Database) -> None:
    db.put(b"live", b"1")
    db.put(b"live and large", LARGE)
    for number in range(300):
        db.put(b"k", b"%d" % number + b"x" * 1_000)
    files = len(list(Path(db.path, "log").glob("*.log")))
    before = dict(db.scan())
    compacted = db.compact()
    assert compacted.relocated >= 2
    assert compacted.oldest_after > compacted.oldest_before
    assert len(list(Path(db.path, "log").glob("*.log"))) < files / 2
    assert dict(db.scan()) == before
    with reopened(db) as again:
        assert dict(again.scan()) == before
    logdb.rebuild(db.path)
    with open_database(Path(db.path)) as rebuilt:
        assert dict(rebuilt.scan()) == before
        assert next(rebuilt.history(b"live")).version == 1


def test_compaction_reads_only_the_versions_that_it_copies(db: logdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: compaction also read older versions that it does not move, each from a relocation record."""
    keys = [b"%04d" % number for number in range(300)]
    db.multi_put(dict.fromkeys(keys, b"first"))
    for number in range(100):
        db.put(b"filling", b"%d" % number + b"x" * 1_000)
    db.compact()
    before = db.version
    db.multi_put(dict.fromkeys(keys, b"second"))
    fetched = []
    written = Values.written
    monkeypatch.setattr(Values, "written", lambda *args: fetched.append(args) or written(*args))
    compacted = db.compact(before)
    assert len(fetched) <= compacted.relocated < len(keys)
    assert db.at(before).multi_get(keys) == dict.fromkeys(keys, b"first")


def test_repeated_compactions_to_an_older_version_free_what_was_written_between_them(tmp_path: Path) -> None:
    """Regression: a compaction to a version removed nothing before the log had filled a file of 64 MiB."""
    with open_database(tmp_path, segment_bytes=64 << 20) as db:
        before, sizes = db.version, []
        for _ in range(6):
            newest = db.version
            for number in range(100):
                db.put(b"k", b"%d" % number + b"x" * 1_000)
            db.compact(before)
            assert db.oldest_version == before
            before = newest
            sizes.append(db.stats().log_bytes or 0)
        assert max(sizes[3:]) < 4 * 110_000


def test_live_versions_in_the_remaining_segment_can_be_read(db: logdb.Database) -> None:
    """Regression: the trim point was the floor, not the beginning of the first kept file."""
    db.put(b"large", LARGE)
    db.put(b"k", b"1")
    db.put(b"k", b"2")
    db.compact()
    assert db[b"large"] == LARGE


@pytest.mark.parametrize("where", [":memory:", "directory"])
def test_a_floor_between_large_values_and_their_commit(where: str, tmp_path: Path) -> None:
    with logdb.open(where if where == ":memory:" else tmp_path) as db:
        version = db.multi_put({b"a": LARGE, b"b": LARGE, b"c": LARGE})
        db.put(b"k", b"1")
        for before in range(1, version + 1):
            db.compact(before)
            assert (db[b"a"], db[b"b"], db[b"c"]) == (LARGE, LARGE, LARGE)


def test_a_pin_limits_compaction_and_survives_a_restart(db: logdb.Database) -> None:
    with pytest.raises(ValueError, match="nothing to pin"):
        db.pin("too early")
    version = db.put(b"k", b"pinned")
    assert db.pin("month-end") == version
    for number in range(100):
        db.put(b"k", b"%d" % number + LARGE)
    assert db.compact().floor == version
    db = reopened(db)
    assert db.pins == {"month-end": version}
    assert db.at(version)[b"k"] == b"pinned"
    assert db.compact().floor == version
    db.unpin("month-end")
    assert db.compact().floor > version
    with pytest.raises(logdb.VersionTrimmed) as caught:
        db.at(version)
    assert caught.value.oldest == db.oldest_version
    with pytest.raises(logdb.VersionTrimmed):
        db.pin("too late", version)
    with pytest.raises(KeyError):
        db.unpin("month-end")
    for name in ("", "x" * 401):
        with pytest.raises(ValueError, match="name"):
            db.pin(name)
    with pytest.raises(TypeError):
        db.pin(b"bytes")  # type: ignore[arg-type]
    db.close()


def test_running_readers_limit_compaction(db: logdb.Database) -> None:
    db.multi_put({b"%04d" % number: b"old" for number in range(3_000)})
    snapshot = db.version
    rows = db.scan()
    next(rows)
    with db.transaction() as txn:
        db.multi_put({b"%04d" % number: b"new" for number in range(3_000)})
        db.put(b"k", b"1")
        assert db.compact().floor == snapshot
        assert txn[b"1000"] == b"old"
    assert db.compact().floor == snapshot
    assert sum(value == b"old" for _, value in rows) == 2_999
    assert db.compact().floor > snapshot


def test_the_error_of_a_stale_snapshot_names_compaction(db: logdb.Database) -> None:
    for number in range(10):
        db.put(b"k", b"%d" % number)
    stale = db.at(3)
    floor = db.compact(8).floor
    reads = [
        lambda: stale.get(b"k"),
        lambda: list(stale.scan()),
        lambda: stale.multi_get([b"k"]),
        lambda: list(stale.history(b"k")),
    ]
    for read in reads:
        with pytest.raises(logdb.VersionTrimmed) as caught:
            read()
        assert (caught.value.version, caught.value.oldest) == (3, floor)
    assert [entry.value for entry in db.history(b"k")] == [b"9", b"8", b"7"]


def test_reads_continue_while_compaction_moves_their_values(db: logdb.Database) -> None:
    expected = {b"%03d" % number: b"%d" % number + LARGE for number in range(40)}
    db.multi_put(expected)
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        try:
            while not stop.is_set():
                for key, value in expected.items():
                    if db[key] != value:
                        wrong.append(key)
                if dict(db.scan(prefix=b"0")) != expected:
                    wrong.append("scan")
        except Exception as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for round_ in range(12):
        for number in range(5):
            db.put(b"z", b"%d" % (round_ * 10 + number) + LARGE)
        db.compact()
    stop.set()
    for reader in readers:
        reader.join()
    assert wrong == []


def test_a_checkpoint_during_the_replay_skips_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the checkpoint appended a decision record at the log's end and counted it as applied, so the rest of
    the replay was skipped."""
    with logdb.open(tmp_path) as db:
        for number in range(300):
            host_of(db).commits.submit({b"%03d" % number: b"1"})
            host_of(db).commits.submit({b"never": b"1"}, conditions=[logdb.exists(b"never")])
        db.put(b"last", b"1")
        expected = dict(db.scan())
        shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("map", "copy"))
    monkeypatch.setattr(recovery, "REPLAY_STRETCH", 100)
    with open_database(tmp_path / "copy", overlay_bytes=1) as replayed:
        assert dict(replayed.scan()) == expected
        assert replayed.version >= 601
    with logdb.open(tmp_path / "copy") as again:
        assert dict(again.scan()) == expected


def test_a_kill_between_two_slices_of_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SLICE_ROWS", 10)
    with logdb.open(tmp_path / "db") as db:
        db.multi_put({b"%03d" % number: b"old" for number in range(100)} | {b"l" * 2_000: b"old"})
        db.checkpoint()
        old = db.version
        for number in range(100):
            db.put(b"%03d" % number, b"new %d" % number)
        db.delete(b"050")
        db.put(b"l" * 2_000 + b"1", LARGE)
        expected, history = dict(db.scan()), list(db.history(b"050"))

        class KilledError(Exception):
            pass

        def kill(count: int) -> None:
            kill.slices += 1
            if kill.slices == 4:
                shutil.copytree(tmp_path / "db", tmp_path / "killed")
                raise KilledError

        kill.slices = 0
        with pytest.raises(KilledError):
            db.checkpoint(progress=kill)
        assert dict(db.scan()) == expected
        assert db.checkpoint() == db.version
        assert dict(db.scan()) == expected
        assert dict(db.at(old).scan())[b"000"] == b"old"
    assert verify_files(tmp_path / "killed", None)[3] == []
    with logdb.open(tmp_path / "killed") as killed:
        assert dict(killed.scan()) == expected
        assert list(killed.history(b"050")) == history
        assert set(dict(killed.at(old).scan()).values()) == {b"old"}
        killed.checkpoint()
        assert dict(killed.scan(reverse=True)) == expected
    assert verify_files(tmp_path / "killed", None)[3] == []


def test_an_id_that_was_issued_before_a_compaction_commits_after_it_once(db: logdb.Database) -> None:
    """Also after a restart and a rebuild: a compaction rejects only ids that were used before it, not all older ids."""
    embedded = host_of(db)
    early, never, used = embedded.new_txn_id(), embedded.new_txn_id(), embedded.new_txn_id()
    embedded.commits.submit({b"used": b"1"}, txn_id=used)
    for number in range(300):
        db.put(b"k", b"%d" % number + b"x" * 1_000)
    assert db.compact().oldest_after > 1
    version, verdict = embedded.commits.submit({b"early": b"1"}, txn_id=early)
    assert verdict.committed
    embedded.machine.wait_durable(version)
    for open_again in (reopened, rebuilt):
        assert db[b"early"] == b"1"
        assert db.outcome(str(early)) == logdb.Outcome(logdb.Status.COMMITTED, version)
        assert db.outcome(str(never)).status is logdb.Status.NOT_FOUND
        assert db.outcome(str(used)).status is logdb.Status.FORGOTTEN
        db = open_again(db)
    assert db.outcome(str(early)) == logdb.Outcome(logdb.Status.COMMITTED, version)
    assert db.outcome(str(never)).status is logdb.Status.NOT_FOUND
    db.close()


def test_an_id_that_was_used_before_the_floor_and_sent_again_behind_it_is_forgotten(db: logdb.Database) -> None:
    """Regression: a rebuilt map took the second record for the first. It called the transaction aborted, and the map
    from before damaged."""
    commits = host_of(db).commits
    used = [host_of(db).new_txn_id() for _ in range(4)]
    for txn_id in used:
        commits.submit({b"once": b"1"}, txn_id=txn_id)
    for number in range(300):
        db.put(b"k", b"%d" % number + b"x" * 1_000)
    floor = db.version
    for txn_id in used[1:3]:
        assert not commits.submit({b"once": b"2"}, txn_id=txn_id)[1].committed
    assert db.compact(before=floor).floor == floor
    db.close()
    assert verify_files(Path(db.path), None)[3] == []
    with rebuilt(db) as again:
        assert [again.outcome(str(txn_id)).status for txn_id in used] == [logdb.Status.FORGOTTEN] * 4
        assert again[b"once"] == b"1"
    assert verify_files(Path(db.path), None)[3] == []


def test_a_kill_before_and_between_the_steps_of_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MAP-4: the runs cover the record that moved the floor before the pruned run replaces them."""
    monkeypatch.setattr(runs, "CHUNK_ROWS", 20)
    relocate = checkpoint.Checkpoint.relocate
    killed: list[tuple[int, Path]] = []

    def copying(tables: checkpoint.Checkpoint, relocator: Relocator) -> Generator[list[Record] | None, int, None]:
        def copy() -> None:
            killed.append((tables.covers, tmp_path / f"killed {len(killed)}"))
            shutil.copytree(tmp_path / "db", killed[-1][1])

        steps = relocate(tables, relocator)
        with contextlib.suppress(StopIteration):
            records = next(steps)
            while True:
                sent = yield records
                copy()
                records = steps.send(sent)
        copy()

    with logdb.open(tmp_path / "db") as db:
        for round_ in range(3):
            db.multi_put({b"%03d" % number: b"%d" % round_ for number in range(100)})
            db.delete(b"%03d" % round_)
        db.checkpoint()
        monkeypatch.setattr(checkpoint.Checkpoint, "relocate", copying)
        floor = db.compact().floor
        expected, history = dict(db.scan()), list(db.history(b"001"))
    assert len(killed) > 5
    assert {covers > floor for covers, _ in killed[-2:]} == {True}
    for covers, path in killed:
        with logdb.open(path) as again:
            assert dict(again.scan()) == dict(again.at(floor).scan()) == expected
            if covers > floor:
                assert list(again.history(b"001")) == history
                with pytest.raises(logdb.VersionTrimmed):
                    again.at(floor - 1)
        assert verify_files(path, None)[3] == []


def test_reads_continue_while_checkpoints_and_prunings_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SLICE_ROWS", 20)
    monkeypatch.setattr(runs, "CHUNK_ROWS", 20)
    with open_database(tmp_path, overlay_bytes=20_000) as db:
        stop, wrong = threading.Event(), list[object]()

        def compact() -> None:
            while not stop.is_set():
                db.compact()

        thread = threading.Thread(target=compact)
        thread.start()
        try:
            for number in range(400):
                db.multi_put({b"%d/%d" % (number % 40, place): b"%d" % number for place in range(10)})
                if db.get(b"%d/3" % (number % 40)) != b"%d" % number:
                    wrong.append(number)
        finally:
            stop.set()
            thread.join()
        assert wrong == []
        expected = dict(db.scan())
        assert len(expected) == 400
    logdb.rebuild(tmp_path)
    with logdb.open(tmp_path) as rebuilt:
        assert dict(rebuilt.scan()) == expected


def test_a_scan_beside_new_keys(tmp_path: Path) -> None:
    with logdb.open(":memory:") as db:
        stop = threading.Event()
        wrong: list[Exception] = []

        def scan() -> None:
            try:
                while not stop.is_set():
                    list(db.scan(limit=30, reverse=True))
            except Exception as error:
                wrong.append(error)

        thread = threading.Thread(target=scan)
        thread.start()
        for number in range(3_000):
            db.put(b"%05d" % number, b"1")
            if number % 500 == 499:
                for gone in range(number - 400, number):
                    db.delete(b"%05d" % gone)
                db.compact()
        stop.set()
        thread.join()
        assert wrong == []


def test_rebuild_returns_the_covered_version(tmp_path: Path) -> None:
    with logdb.open(tmp_path) as db:
        version = db.put(b"k", b"1")
    seen: list[tuple[int, int]] = []
    assert logdb.rebuild(tmp_path, progress=lambda done, of: seen.append((done, of))) == version
    assert seen == [(1, 1)]
    host_ = EmbeddedBackend.open(tmp_path, read_only=False, create=False)
    assert host_.machine.coordinator.map.active.newest == {}
    host_.close()
    with pytest.raises(logdb.NotADatabase):
        logdb.rebuild(tmp_path / "nothing")


def test_a_killed_rebuild_of_a_trimmed_log_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the killed rebuild had written a checkpoint, and the rest was decided from a map that lacked the
    versions of the trimmed prefix."""
    with open_database(tmp_path / "db", segment_bytes=4_000) as db:
        db.put(b"old", b"1")
        for number in range(100):
            db.put(b"fill", b"%d" % number + b"x" * 100)
        for number in range(60):
            assert db.test_and_multi_put([logdb.equals(b"old", b"1")], {b"%d" % number: b"1"}).committed
        expected = dict(db.scan())
        db.compact()
        assert host_of(db).log.oldest_after_trim(host_of(db).log.oldest()) > 1
        assert dict(db.scan()) == expected
        version = host_of(db).machine.coordinator.compacted_at
    monkeypatch.setattr(recovery, "REPLAY_STRETCH", 10)
    shutil.rmtree(tmp_path / "db" / "map")

    class KilledError(Exception):
        pass

    def kill(done: int, of: int) -> None:
        raise KilledError

    with pytest.raises(KilledError):
        EmbeddedBackend.open(tmp_path / "db", read_only=False, create=False, progress=kill)
    with open_database(tmp_path / "db") as again:
        assert dict(again.scan()) == expected
        assert again.version >= version
    assert verify_files(tmp_path / "db", None)[3] == []


def test_closing_beside_a_checkpoint_and_another_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: both calls of `close` released the directory and removed it from the table of open directories, and
    the checkpoint lost its write transaction."""
    monkeypatch.setattr(checkpoint, "SLICE_ROWS", 10)
    db = open_database(tmp_path / "db")
    db.multi_put({b"%03d" % number: b"1" for number in range(100)})
    in_slice, go_on = threading.Event(), threading.Event()
    put = checkpoint.Checkpoint._put_all
    failures: list[BaseException] = []

    def put_slowly(*args: object) -> None:
        in_slice.set()
        go_on.wait()
        put(*args)  # type: ignore[arg-type]

    def noting(function: Callable[[], object]) -> Callable[[], None]:
        def noted() -> None:
            try:
                function()
            except BaseException as error:
                failures.append(error)

        return noted

    monkeypatch.setattr(checkpoint.Checkpoint, "_put_all", put_slowly)
    checkpointing = threading.Thread(target=noting(db.checkpoint))
    checkpointing.start()
    assert in_slice.wait(10)
    closing = [threading.Thread(target=noting(db.close)) for _ in range(3)]
    for thread in closing:
        thread.start()
    while not host_of(db).closed:
        pass
    go_on.set()
    for thread in (checkpointing, *closing):
        thread.join()
    # The checkpoint was cancelled, or had ended before the close; no other error is allowed.
    assert [type(failure) for failure in failures] in ([], [logdb.DatabaseClosed])
    with open_database(tmp_path / "db") as again:
        assert len(list(again.scan())) == 100
        assert again.checkpoint() == again.version
