"""Backups of a directory: its log, in ranges, as it was; what is missing or damaged is named."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import time_ns
from types import SimpleNamespace
from typing import Any

import pytest

import logdb
from logdb.api import inspection
from logdb.backups import restoring, taking
from logdb.backups.manifests import Backup, manifest_name, read_backup, write_manifest
from logdb.backups.parts import Part, read_part
from logdb.backups.places import DirectoryPlace, place_of
from logdb.backups.taking import back_up
from logdb.system.disk import Disk
from tests.harness.faulty_disk import Fault, FaultyDisk
from tests.harness.opening import host_of, open_database

SMALL = 2_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def state(db: logdb.Database) -> dict[bytes, bytes]:
    return dict(db.scan())


def restored(place: Path, path: Path, version: int | None = None) -> logdb.Database:
    logdb.restore(place, path, version=version)
    return logdb.open(path, create=False)


def filled(path: Path, steps: int = 40, **options: int) -> logdb.Database:
    db = open_database(path, **options)
    for step in range(steps):
        db.multi_put({b"k%02d" % (step % 20): b"%d" % step * 50, b"step": b"%d" % step})
    return db


def test_a_backup_during_writes_has_the_state_of_its_version(tmp_path: Path, place: Path) -> None:
    """Writers move money between accounts; compactions run, too."""
    db = open_database(tmp_path / "db", segment_bytes=20_000)
    db.multi_put({b"%d" % n: b"100" for n in range(10)})
    stop = threading.Event()

    def move(seed: int) -> None:
        random = Random(seed)
        while not stop.is_set():

            def body(txn: logdb.Transaction) -> None:
                one, other = (b"%d" % n for n in random.sample(range(10), 2))
                txn.put(one, b"%d" % (int(txn[one]) - 1))
                txn.put(other, b"%d" % (int(txn[other]) + 1))

            db.run(body, attempts=1_000)

    writers = [threading.Thread(target=move, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    states = {}
    try:
        for step in range(6):
            made = back_up(db, place_of(place), part_bytes=SMALL)
            states[made.version] = dict(db.at(made.version).scan())
            if step == 3:
                db.compact()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    for version, expected in states.items():
        with restored(place, tmp_path / f"{version}", version) as opened:
            assert opened.version == version
            assert state(opened) == expected
            assert sum(map(int, expected.values())) == 1_000
    assert logdb.verify_backup(place).damage == []


def test_a_restored_directory_has_the_same_history(tmp_path: Path, place: Path) -> None:
    with open_database(tmp_path / "db") as db:
        versions = [db.put(b"k", b"%d" % n, label=f"write {n}") for n in range(5)]
        db.pin("here", versions[1])
        txn_id = host_of(db).new_txn_id()
        db.run(lambda txn: txn.put(b"k", b"last"))
        logdb.backup(db, place)
        with restored(place, tmp_path / "restored") as copy:
            assert list(copy.history(b"k")) == list(db.history(b"k"))
            assert [copy.time_of(version) for version in versions] == [db.time_of(version) for version in versions]
            assert copy.pins == db.pins
            assert list(copy.watch(since=0, timeout=0)) == list(db.watch(since=0, timeout=0))
            following = str(txn_id._replace(sequence=txn_id.sequence + 1))
            assert db.outcome(following).committed
            assert copy.outcome(following) == db.outcome(following)
    assert inspection.verify(tmp_path / "restored").damage == []


def test_a_trimmed_log_begins_a_new_chain(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db", segment_bytes=1_000) as db:
        back_up(db, place_of(place))
        for step in range(100):
            db.put(b"again", b"%d" % step * 100)
        db.compact()
        for step in range(100):
            db.put(b"again", b"%d" % step * 100)
        db.compact()
        between = db.put(b"later", b"it")
        made = logdb.backup(db, place)
        assert made.is_full
        assert 0 < made.oldest < between <= made.version
        db.put(b"after", b"it")
        following = logdb.backup(db, place)
        assert not following.is_full
        for version in (made.oldest, made.version, following.version):
            with restored(place, tmp_path / f"{version}", version) as copy:
                assert copy.version == version
                assert state(copy) == dict(db.at(version).scan())
                copy.put(b"k", b"v")
            assert inspection.verify(tmp_path / f"{version}").damage == []
    with pytest.raises(logdb.VersionTrimmed, match=f"the oldest version left is {made.oldest}"):
        logdb.restore(place, tmp_path / "none", version=made.oldest - 1)


def test_a_pin_keeps_the_chain(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db", segment_bytes=1_000) as db:
        db.pin("backup", logdb.backup(db, place).version)
        filled_again = [db.put(b"again", b"%d" % step * 100) for step in range(100)]
        db.compact()
        assert not logdb.backup(db, place).is_full
        with restored(place, tmp_path / "then", filled_again[50]) as copy:
            assert state(copy) == dict(db.at(filled_again[50]).scan())


def test_an_old_chain_can_be_removed(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db:
        logdb.backup(db, place)
        db.put(b"k", b"v")
        logdb.backup(db, place, full=True)
        expected = state(db)
    for file in place.glob("000001*"):
        file.unlink()
    with restored(place, tmp_path / "restored") as copy:
        assert state(copy) == expected


def test_another_process_can_back_up_a_database_in_use(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db, logdb.open(tmp_path / "db", read_only=True) as reader:
        logdb.backup(reader, place)
        db.put(b"k", b"v")
        logdb.backup(reader, place)
        with restored(place, tmp_path / "restored") as copy:
            assert state(copy) == state(db)


# ---- what does not belong together


def test_another_database_is_refused(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db, filled(tmp_path / "other") as other:
        logdb.backup(db, place)
        with pytest.raises(logdb.BackupError, match="another database"):
            logdb.backup(other, place)
        with logdb.open(":memory:") as memory, pytest.raises(logdb.BackupError, match="made from the directory"):
            logdb.backup(memory, place)


def test_a_copy_that_went_another_way_is_refused(tmp_path: Path, place: Path) -> None:
    """Two databases with the same log id: one was copied with `cp` before the backup."""
    filled(tmp_path / "db").close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with logdb.open(tmp_path / "db") as db:
        db.put(b"k", b"one way")
        logdb.backup(db, place)
    with logdb.open(tmp_path / "copy") as copy:
        with pytest.raises(logdb.BackupError, match="another history"):
            logdb.backup(copy, place)
        for _ in range(3):
            copy.put(b"k", b"another way")
        with pytest.raises(logdb.BackupError, match="another history"):
            logdb.backup(copy, place)


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db:
        logdb.backup(db, place)
        for name in ("db", "backup"):
            with pytest.raises(logdb.BackupError, match="is not empty"):
                logdb.restore(place, tmp_path / name)
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(logdb.BackupError, match="is a file"):
            logdb.restore(place, tmp_path / "file")
        with pytest.raises(logdb.BackupError, match="has no complete backup"):
            logdb.restore(tmp_path / "nothing", tmp_path / "new")
        with pytest.raises(logdb.FutureVersion):
            logdb.restore(place, tmp_path / "new", version=db.version + 1)
        assert not (tmp_path / "new").exists()


def test_two_backups_at_once_are_refused(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db, place_of(place).lock():
        with pytest.raises(logdb.BackupError, match="in use by another backup"):
            logdb.backup(db, place)


# ---- damage


def chain_of_three(tmp_path: Path, place: Path) -> None:
    with open_database(tmp_path / "db") as db:
        for round in range(3):
            for step in range(40):
                db.put(b"k%02d" % step, b"%d" % round * 100)
            back_up(db, place_of(place), part_bytes=SMALL)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda file: file.unlink(),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-7]),
    "flipped": lambda file: file.write_bytes(file.read_bytes()[:400] + b"?" + file.read_bytes()[401:]),
    "empty": lambda file: file.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_named(tmp_path: Path, place: Path, damage: str) -> None:
    chain_of_three(tmp_path, place)
    for file in sorted(place.glob("*.log"))[::4]:
        before = file.read_bytes()
        DAMAGES[damage](file)
        (found,) = logdb.verify_backup(place).damage
        assert found.path == str(file)
        with pytest.raises(logdb.Corruption, match=file.name):
            logdb.restore(place, tmp_path / "restored")
        assert list((tmp_path / "restored").glob("*")) in ([], [tmp_path / "restored" / "LOCK"])
        file.write_bytes(before)
    with restored(place, tmp_path / "restored") as copy:
        assert len(state(copy)) == 40


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_named(tmp_path: Path, place: Path, damage: str) -> None:
    chain_of_three(tmp_path, place)
    DAMAGES[damage](place / "000002.json")
    with pytest.raises(logdb.Corruption, match="000002"):
        logdb.verify_backup(place)
    with pytest.raises(logdb.Corruption, match="000002"):
        logdb.restore(place, tmp_path / "restored")


def test_a_part_of_another_backup_is_no_substitute(tmp_path: Path, place: Path) -> None:
    """The manifest's checksum and the record numbers in the frames both say so."""
    chain_of_three(tmp_path, place)
    first, second, *_ = sorted(place.glob("*.log"))
    first.write_bytes(second.read_bytes())
    document = json.loads((place / "000001.json").read_bytes())
    assert len(document["parts"]) > 2
    assert logdb.verify_backup(place).damage[0].path == str(first)


@pytest.mark.parametrize("name", ["", "sub", "sub/folder", "../link/sub"])
def test_a_backup_in_the_directory_of_its_database_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "db")
    with filled(tmp_path / "db", 1) as db:
        before = sorted((tmp_path / "db").rglob("*"))
        with pytest.raises(logdb.BackupError, match="in the directory of the database"):
            logdb.backup(db, tmp_path / "db" / name)
        assert sorted((tmp_path / "db").rglob("*")) == before
        with pytest.raises(ValueError, match="must not be empty"):
            logdb.backup(db, "")


# ---- interruptions


@pytest.mark.parametrize("kind", ["create", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interrupted_backup_counts_for_nothing_and_continues(tmp_path: Path, kind: str, after: bool) -> None:
    """Ctrl-C at every operation on the place, in the first backup and in the second."""
    with open_database(tmp_path / "db") as db:
        for round in range(2):
            for step in range(40):
                db.put(b"k%02d" % step, b"%d" % round * 100)
            for nth in range(50):
                place = tmp_path / f"{nth}"
                disk = FaultyDisk(Fault(frozenset({kind}), nth, KeyboardInterrupt(), after=after))
                before = logdb.list_backups(place)
                try:
                    back_up(db, DirectoryPlace(place, disk), part_bytes=SMALL)
                except KeyboardInterrupt:
                    left = logdb.list_backups(place)
                    is_done = left != before
                    assert len(left) - len(before) == is_done
                    written = sum(operation.kind == "create" for operation in disk.operations)
                    again = FaultyDisk()
                    made = back_up(db, DirectoryPlace(place, again), part_bytes=SMALL)
                    repeated = sum(operation.kind == "create" for operation in again.operations)
                    assert repeated <= len(made.parts) + 1 - max(written - 1, 0) + 1, "whole parts are kept"
                assert logdb.verify_backup(place).damage == []
                with restored(place, tmp_path / f"r{round}-{nth}") as copy:
                    assert state(copy) == state(db)
                    assert copy.version == db.version
                if not disk.hits:
                    break
            else:
                pytest.fail("there are more operations than faults were planted")


@pytest.mark.parametrize("steps", [20, 60], ids=["shorter", "longer"])
def test_a_backup_continues_no_attempt_of_a_lost_history(tmp_path: Path, place: Path, steps: int) -> None:
    """The directory was put back to an earlier state after a backup had been interrupted."""
    before, after = tmp_path / "before", tmp_path / "after"
    with logdb.open(before) as db:
        db.put(b"k", b"first")
        back_up(db, place_of(place), part_bytes=SMALL)
    shutil.copytree(before, after)
    with logdb.open(before) as db:
        for number in range(40):
            db.put(b"k%02d" % number, b"lost" * 25)
        disk = FaultyDisk(Fault(frozenset({"create"}), 2, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            back_up(db, DirectoryPlace(place, disk), part_bytes=SMALL)
    with logdb.open(after) as db:
        for number in range(steps):
            db.put(b"k%02d" % number, b"kept" * 25)
        back_up(db, place_of(place), part_bytes=SMALL)
        with restored(place, tmp_path / "restored") as copy:
            assert state(copy) == state(db)


def test_the_folders_of_a_new_place_survive_a_power_failure(tmp_path: Path) -> None:
    """The cold tier trims the log when its files are durable: so must be the names of all folders above them."""
    disk = FaultyDisk()
    DirectoryPlace(tmp_path / "one" / "two", disk).write("file", b"content")
    synced = [operation.name for operation in disk.operations if operation.kind == "sync_directory"]
    assert synced == ["one", tmp_path.name, "two"]


def test_a_full_disk_is_reported(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db:
        full = OSError(errno.ENOSPC, "No space left on device")
        disk = FaultyDisk(Fault(frozenset({"write"}), 2, full, forever=True))
        with pytest.raises(logdb.Unavailable, match="free some space and try again"):
            back_up(db, DirectoryPlace(place, disk), part_bytes=SMALL)
        assert logdb.list_backups(place) == []
        assert not list(place.glob("*.tmp"))
        back_up(db, place_of(place), part_bytes=SMALL)
        with restored(place, tmp_path / "restored") as copy:
            assert state(copy) == state(db)


def test_an_interrupted_restore_is_no_database_and_can_be_repeated(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_of_three(tmp_path, place)
    monkeypatch.setattr(restoring, "TICK_RECORDS", 10)

    def interrupt(done: int, total: int | None) -> None:
        if done > 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        logdb.restore(place, tmp_path / "restored", progress=interrupt)
    with pytest.raises(logdb.NotADatabase):
        logdb.open(tmp_path / "restored", create=False)
    with restored(place, tmp_path / "restored") as copy:
        assert len(state(copy)) == 40


class Killed(BaseException):
    pass


@pytest.mark.parametrize("is_killed", [False, True], ids=["Ctrl-C", "kill"])
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_restore_that_ends_while_it_moves_files_can_be_repeated(
    tmp_path: Path, place: Path, moved: int, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain_of_three(tmp_path, place)
    path, left = tmp_path / "restored", moved
    rename = Disk.rename

    def interrupted(disk: Disk, old: Path, new: Path) -> None:
        nonlocal left
        if new.parent == path:
            left -= 1
            if left < 0:
                raise Killed
        rename(disk, old, new)

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "rename", interrupted)
        if is_killed:
            patch.setattr(restoring, "remove_leftovers", lambda path: None)
        with pytest.raises(Killed):
            logdb.restore(place, path)
    assert (path / restoring.STAGING).exists() == is_killed
    with pytest.raises(logdb.NotADatabase):
        logdb.open(path, create=False)
    with restored(place, path) as copy:
        assert len(state(copy)) == 40


def test_what_was_written_after_a_lost_part_is_not_kept(tmp_path: Path, place: Path) -> None:
    with filled(tmp_path / "db") as db:
        disk = FaultyDisk(Fault(frozenset({"create"}), 4, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            back_up(db, DirectoryPlace(place, disk), part_bytes=SMALL)
        left = sorted(place.glob("*.log"))
        assert len(left) == 4
        left[1].unlink()
        (place / (left[2].name + ".tmp")).write_bytes(b"")
        made = back_up(db, place_of(place), part_bytes=SMALL)
        assert [part.name for part in made.parts][:4] == [file.name for file in left]
        assert not list(place.glob("*.tmp"))
        with restored(place, tmp_path / "restored") as copy:
            assert state(copy) == state(db)


# ---- times, and object stores


def test_a_write_after_a_backup_was_begun_comes_after_that_time(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_database(tmp_path / "db") as db:
        before = db.put(b"k", b"before")
        begun = time_ns()
        monkeypatch.setattr(taking, "time", SimpleNamespace(time_ns=lambda: begun))
        after = db.put(b"k", b"after")
        at = db.time_of(after)
        assert at is not None
        back_up(db, place_of(place))
    for when, version in ((begun / 1e9, before), (at, after)):
        with logdb.open(":memory:") as into:
            assert logdb.restore(place, into, time=when).version == version


def test_a_time_between_two_writes(tmp_path: Path, place: Path) -> None:
    with open_database(tmp_path / "db") as db:
        versions = [db.put(b"k", b"%d" % n) for n in range(6)]
        times = [db.time_of(version) for version in versions]
        back_up(db, place_of(place), part_bytes=100)
        versions += [db.put(b"k", b"%d" % n) for n in range(6, 12)]
        times += [db.time_of(version) for version in versions[6:]]
        back_up(db, place_of(place), part_bytes=100)
    for version, time in zip(versions, times, strict=True):
        with logdb.open(":memory:") as into:
            assert logdb.restore(place, into, time=time).version == version
    with pytest.raises(logdb.BackupError, match="have nothing from"):
        logdb.restore(place, tmp_path / "none", time=0)
    with pytest.raises(logdb.FutureVersion):
        logdb.restore(place, tmp_path / "none", time=4e9)
    with pytest.raises(ValueError, match="not both"):
        logdb.restore(place, tmp_path / "none", time=0, version=1)


def test_an_object_store(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/folder"
    with filled(tmp_path / "db") as db:
        assert logdb.list_backups(url) == []
        logdb.backup(db, url)
        db.put(b"k", b"v")
        made = logdb.backup(db, url)
        assert (made.number, made.is_full) == (2, False)
        assert logdb.verify_backup(url).damage == []
        logdb.restore(url, tmp_path / "restored")
        with logdb.open(tmp_path / "restored", create=False) as copy:
            assert state(copy) == state(db)
    place_of(url).remove(made.parts[0].name)
    with pytest.raises(logdb.Corruption, match="the file is missing"):
        logdb.restore(url, tmp_path / "other")
    with pytest.raises(logdb.BackupError, match="cannot be opened"):
        logdb.list_backups("unheard-of://place")


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_place_without_any_file_is_away_and_not_damaged(is_empty: bool, tmp_path: Path) -> None:
    if is_empty:
        (tmp_path / "gone").mkdir()
    with pytest.raises(logdb.Unavailable, match="gone has no files, also not 000001-1"):
        read_part(place_of(tmp_path / "gone"), Part("000001-1", 1, 2, 0, 0, 10, 0), b"")


def test_a_file_that_is_removed_while_the_directory_is_listed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are listed."""
    listed = DirectoryPlace(place)
    for name in "abc":
        listed.write(name, name.encode())
    entries = list(os.scandir(place))
    monkeypatch.setattr(os, "scandir", lambda _: entries)
    (place / "b").unlink()
    assert listed.sizes() == {"a": 1, "c": 1}


NAMES = ["../x.log", "/x.log", "a/b.log", ".log", "..log", "x", "x.log\n", 5]


def backup(name: Any) -> Backup:
    part = Part(name, 1, 2, 0, 0, 100, 0)
    return Backup(1, "log", True, "00" * 16, 0, 1, 1, None, 0, "db", (part,))


@pytest.mark.parametrize("name", NAMES)
def test_a_part_outside_the_place_is_refused(place: Path, name: Any) -> None:
    write_manifest(DirectoryPlace(place), backup("000001-1.log"))
    assert read_backup(DirectoryPlace(place), manifest_name(1)) == backup("000001-1.log")
    write_manifest(DirectoryPlace(place), backup(name))
    with pytest.raises(logdb.Corruption, match="it is not the manifest of a backup"):
        read_backup(DirectoryPlace(place), manifest_name(1))


def test_a_manifest_that_is_nested_too_deeply(place: Path, tmp_path: Path) -> None:
    with open_database(tmp_path / "db") as db:
        db.put(b"k", b"v")
        logdb.backup(db, place)
        (place / manifest_name(1)).write_text("[" * 100_000 + "]" * 100_000)
        for use in (lambda: logdb.backup(db, place), lambda: logdb.restore(place, tmp_path / "new")):
            with pytest.raises(logdb.Corruption, match=r"000001\.json"):
                use()
