"""Damage on disk is reported and never returned, a checkpoint is rebuilt from the log, audits find wrong decisions."""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import logdb
from logdb.api.inspection import audit, verify
from logdb.embedded.directory import IDENTITY
from logdb.store.files import MANIFEST
from logdb.store.records import DECISION, Decision, encode_decision
from tests.harness.opening import host_of

LARGE = bytes(range(256)) * 20


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small, cleanly closed database with records of many kinds."""
    path = tmp_path_factory.mktemp("closed") / "db"
    with logdb.open(path) as db:
        db.put(b"a", b"1", label="first")
        db.multi_put({b"b": b"2", b"large": LARGE, b"k" * 600: b"long"})
        db.test_and_multi_put([logdb.absent(b"a")], {b"a": b"never"})
        db.delete(b"b")
        db.pin("here")
        db.checkpoint()
        db.put(b"a", b"3")
        db.run(lambda txn: txn.put(b"c", txn[b"a"]))
    return path


def contents(path: Path) -> list[tuple[bytes, bytes]]:
    with logdb.open(path, read_only=True) as db:
        return list(db.scan())


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        (byte,) = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte ^ 0xFF]))


def test_verification_of_a_sound_database_reports_no_damage(closed: Path) -> None:
    found = verify(closed)
    assert found.damage == []
    assert found.records >= 8
    assert found.keys == 4
    assert found.bytes_checked >= sum(file.stat().st_size for file in (closed / "log").iterdir())


def test_every_flipped_byte_of_the_log_is_reported_and_not_returned(closed: Path, tmp_path: Path) -> None:
    truth = contents(closed)
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    shutil.rmtree(path / "map")  # so that every read uses the log
    files = sorted(file for file in (path / "log").iterdir())
    assert {file.suffix for file in files} == {".log", ".idx", ""}
    for file in files:
        for offset in range(0, file.stat().st_size, 1 if file.stat().st_size < 1_000 else 7):
            flip(file, offset)
            try:
                damage = verify(path).damage
            except logdb.UnsupportedFormat as error:
                damage = [logdb.Corruption(error.path, 8, str(error))]
            assert damage, f"{file.name} byte {offset}"
            assert Path(damage[0].path) == file, f"{file.name} byte {offset}: {damage[0]}"
            try:
                served = contents(path)
            except logdb.LogDBError as error:
                assert file.name in str(error), f"{file.name} byte {offset}: {error}"
            else:
                assert served == truth, f"{file.name} byte {offset}"
            shutil.rmtree(path / "map", ignore_errors=True)
            flip(file, offset)
    assert verify(path).damage == []


def test_every_flipped_byte_of_the_identity_is_reported(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    file = path / IDENTITY
    for offset in range(file.stat().st_size):
        flip(file, offset)
        with pytest.raises((logdb.Corruption, logdb.UnsupportedFormat), match=IDENTITY):
            logdb.open(path, read_only=True)
        with pytest.raises((logdb.Corruption, logdb.UnsupportedFormat), match=IDENTITY):
            logdb.open(path)
        flip(file, offset)
    assert contents(path) == contents(closed)


@pytest.mark.parametrize("share", range(2))
def test_damage_in_the_checkpoint_is_found_and_repaired_from_the_log(closed: Path, tmp_path: Path, share: int) -> None:
    """For any byte of a run or of the manifest."""
    truth = contents(closed)
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    (run,) = (path / "map").glob("run-*.mdb")
    file, step = ((run, 3_907), (path / "map" / MANIFEST, 37))[share]
    for offset in range(0, file.stat().st_size, step):
        flip(file, offset)
        damage = verify(path).damage
        assert [Path(one.path) for one in damage] == [path / "map"], f"byte {offset}"
        logdb.rebuild(path)
        assert verify(path).damage == []
        assert contents(path) == truth
        shutil.rmtree(path)
        shutil.copytree(closed, path)


def test_damage_in_the_checkpoint_is_found_beside_its_writer(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    with logdb.open(path):
        assert verify(path).damage == []
        (run,) = (path / "map").glob("run-*.mdb")
        flip(run, run.stat().st_size - 1)
        (damage,) = verify(path).damage
        assert run.name in str(damage)


def test_a_directory_without_a_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(logdb.NotADatabase):
        verify(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(logdb.NotADatabase):
        verify(tmp_path)


def test_an_audit_agrees_with_a_correct_database(closed: Path) -> None:
    found = audit(closed)
    assert found.difference is None
    assert (found.aborted, found.trusted) == (1, 0)
    assert found.commits == 6


def test_an_audit_reports_the_first_wrong_decision(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    with logdb.open(path) as db:
        db.put(b"honest", b"1")
        victim = db.put(b"victim", b"1", label="the victim")
        host = host_of(db)
        lie = Decision(host.machine.coordinator.decided_through, host.machine.coordinator.applied, [victim])
        host.log.wait_durable(host.machine.append([(DECISION, encode_decision(lie))]))
    found = audit(path)
    assert found.difference is not None
    assert f"at version {victim} (the victim): its decision record says aborted" in found.difference


def test_an_audit_of_a_trimmed_log_reports_the_trusted_commits(tmp_path: Path) -> None:
    path = tmp_path / "db"
    from logdb.embedded import EmbeddedBackend

    host = EmbeddedBackend.open(path, read_only=False, create=True, log_options={"segment_bytes": 2_000})
    db = logdb.Database(host)
    for number in range(60):
        db.put(b"k%d" % (number % 7), b"%d" % number * 20)
        db.test_and_multi_put([logdb.equals(b"k0", b"no")], {b"k1": b"never"})
    db.compact(db.version - 10)
    for number in range(10):
        db.put(b"k%d" % (number % 7), b"%d" % number)
    db.close()
    found = audit(path)
    assert found.difference is None
    assert 0 < found.trusted < found.commits
    assert verify(path).damage == []


def test_a_rebuild_beside_a_reader_of_this_process(closed: Path, tmp_path: Path) -> None:
    """The reader continues with the removed runs, and sees later writes."""
    path = tmp_path / "db"
    shutil.copytree(closed, path)
    with logdb.open(path, read_only=True) as reader:
        truth = list(reader.scan())
        assert logdb.rebuild(path) > 0
        assert list(reader.scan()) == truth
        with logdb.open(path) as db:
            assert list(db.scan()) == truth
            db.put(b"after the rebuild", b"value")
            assert reader[b"after the rebuild"] == b"value"
    assert verify(path).damage == []


def test_settled_outcomes_of_any_sequence_number_are_not_damage(tmp_path: Path) -> None:
    """The smallest and the largest, of clients with other transactions and without; also compacted away."""
    path = tmp_path / "data"
    for client in (0, 1, (1 << 64) - 1):
        for sequences in ((0,), (1,), ((1 << 63) - 1,), (0, 1), (1, 0), (5, 0, (1 << 63) - 1)):
            with logdb.open(path) as db:
                for sequence in sequences:
                    assert db.outcome(f"{client:016x}-{sequence}", settle=True).status is not logdb.Status.NOT_FOUND
                    db.put(b"k", b"%d" % sequence)
                db.checkpoint()
            assert verify(path).damage == [], (client, sequences)
            with logdb.open(path) as db:
                db.compact()
                db.checkpoint()
            assert verify(path).damage == [], (client, sequences)
            shutil.rmtree(path)


def test_verifying_imports_nothing_from_the_current_directory(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example another package of this name."""
    for package in ("logdb", "logdb/log", "json"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('this is another package')")
    monkeypatch.chdir(tmp_path)
    assert verify(closed).damage == []


def test_a_checkpoint_that_could_not_be_checked_is_not_damaged(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def message() -> str:
        with pytest.raises(logdb.Unavailable, match="could not be checked, which says nothing about it") as caught:
            verify(closed)
        return str(caught.value)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/no/python")
        assert "/no/python: No such file or directory" in message()
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONHOME", "/no/python")
        assert message()
    for limited, least in (resource.RLIMIT_AS, 32 << 20), (resource.RLIMIT_NOFILE, 6):
        limit = partial(resource.setrlimit, limited, (least, resource.getrlimit(limited)[1]))
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", partial(subprocess.Popen, preexec_fn=limit))
            assert message()
    assert verify(closed).damage == []
