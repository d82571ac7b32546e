"""Scratch folders: private, shared by the readers of a version, checked, and removed when their applications end."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

import logdb
from logdb import Database
from logdb.embedded.external_leases import process_owner, sweep
from spark_export import export_snapshot, runs, scratch, servers
from spark_export.application import Application, this_process
from spark_export.scratch import IDLE_S, base, private, remove, sweep_base, used
from spark_export.snapshot_source import close_sources
from tests.harness.forks import NOBODY, become_unprivileged, in_child, refused
from tests.harness.served import Served
from tests.spark_export import histories, planning

OpenSmall = Callable[..., Database]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A server whose database has a history."""
    served = Served(tmp_path / "served")
    with logdb.connect(served.address) as db:
        histories.write(db, Random(61), 100)
    yield served.address
    close_sources()
    served.close()


IN_ANOTHER_NAMESPACE = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--pid", "--fork"]
IN_ANOTHER_NAMESPACE += ["--mount-proc", sys.executable, "-c"]


def test_a_symbolic_link_instead_of_the_folder_is_not_followed(served: str, temporary: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    for folder in ("exports/gone~1~1~x", "runs-0"):
        (mine / folder).mkdir(parents=True)
        os.utime(mine / folder, (0, 0))
    base(None).symlink_to(mine)
    with pytest.raises(logdb.Unavailable, match=f"{base(None)} cannot be used .*: it must be a directory of this user"):
        planning.read(served)
    assert sorted(entry.name for entry in mine.rglob("*")) == ["exports", "gone~1~1~x", "runs-0"]


def test_a_folder_that_others_can_use_is_refused(served: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base(None).mkdir()
    base(None).chmod(0o777)
    with pytest.raises(logdb.Unavailable, match=f"{base(None)} belongs to another user, or others can write to it"):
        planning.read(served)
    base(None).chmod(0o755)
    planning.read(served)
    assert base(None).stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    base(None).mkdir(0o700)
    with pytest.raises(logdb.Unavailable, match="belongs to another user"):
        planning.read(served)


def test_only_this_user_has_access(served: str, temporary: Path, open_small: OpenSmall, tmp_path: Path) -> None:
    planning.read(served, scratch=str(tmp_path / "named"))
    assert not list(temporary.iterdir())
    planning.read(served)
    db = open_small()
    db.put(b"k", b"v")
    planning.read(db.path)
    roots = base(None), base(str(tmp_path / "named"))
    folders = [*roots, *(folder for root in roots for folder in root.iterdir())]
    folders += (Path(db.path) / "exports").glob("runs-*")
    assert len(folders) == 5
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_loads_of_one_version_share_their_runs(served: str, temporary: Path, open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(62), 100)
    for where, folder in ((served, temporary), (db.path, Path(db.path) / "exports")):
        planning.read(where)
        made = sorted(folder.rglob("*.arrow"))
        for _ in range(7):
            planning.read(where)
        assert sorted(folder.rglob("*.arrow")) == made
        assert len(made) == 1


def test_another_version_has_its_own_folder(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"1")
    with histories.planned(db.path) as first:
        db.put(b"k", b"2")
        with histories.planned(db.path) as second, histories.planned(db.path) as third:
            assert first.scratch != second.scratch == third.scratch


LOCKER = """
import sys
from pathlib import Path
from spark_export.application import this_process
from spark_export.scratch import used
with used(Path(sys.argv[1]), this_process()):
    print("locked", flush=True)
    input()
"""
ME = this_process()


def test_a_folder_that_another_process_uses_stays(tmp_path: Path) -> None:
    folder, other = tmp_path / "base" / "runs-1", tmp_path / "base" / "runs-2"
    command = [*IN_ANOTHER_NAMESPACE, LOCKER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"locked\n"
        os.utime(folder / "in-use", (0, 0))
        with used(other, ME):
            remove(folder)
            assert folder.exists()
        user.communicate(b"\n")
    remove(other)
    os.utime(folder / "in-use", (time.time() - IDLE_S / 2,) * 2)
    with used(other, ME):
        assert folder.exists()
    os.utime(folder / "in-use", (time.time() - IDLE_S * 2,) * 2)
    remove(other)
    with used(other, ME):
        assert not folder.exists()
    remove(other)
    assert not folder.parent.exists()


def test_a_removal_that_was_overtaken_leaves_the_folder_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the lock is locked, another process removes the folder, and a task makes it again."""
    folder, lock = tmp_path / "base" / "runs-1", fcntl.flock
    with used(folder, ME):
        (folder / "old").touch()
    with ExitStack() as task:

        def overtaken(fd: int, operation: int) -> None:
            monkeypatch.undo()
            remove(folder)
            task.enter_context(used(folder, ME))
            (folder / "new").touch()
            lock(fd, operation)

        monkeypatch.setattr(fcntl, "flock", overtaken)
        remove(folder)
        assert sorted(file.name for file in folder.iterdir() if file.name != f"application~{ME}") == ["in-use", "new"]
    remove(folder)
    assert not folder.exists()


def test_a_task_that_begins_during_a_removal_has_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock may be the first file that is removed."""
    folder, rmtree = tmp_path / "base" / "runs-1", shutil.rmtree
    with used(folder, ME):
        (folder / "runs").mkdir()
    with ExitStack() as task:

        def interrupted(path: Path, *, ignore_errors: bool) -> None:
            (path / "in-use").unlink()
            task.enter_context(used(folder, ME))
            (folder / "runs").mkdir(exist_ok=True)
            (folder / "runs" / "new").touch()
            rmtree(path, ignore_errors=ignore_errors)

        monkeypatch.setattr(shutil, "rmtree", interrupted)
        remove(folder)
        monkeypatch.undo()
        assert (folder / "runs" / "new").exists()
        assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_folders_of_other_users_stay() -> None:
    """Two users read the same directory."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)

        def use(user: int) -> list[str]:
            def body() -> list[str]:
                become_unprivileged(user)

                def work() -> None:
                    with used(Path(directory) / "exports" / f"runs-{user}", this_process()):
                        pass

                return refused(work)

            return in_child(body)

        assert [use(user) for user in (NOBODY, NOBODY - 1)] == [["no error: None"]] * 2
        left = 2 if os.geteuid() == 0 else 1  # without root both are of one user, whose first process has ended
        assert len(list((Path(directory) / "exports").iterdir())) == left


def test_an_export_removes_its_folder(served: str, temporary: Path, open_small: OpenSmall, tasks: list[str]) -> None:
    db = open_small()
    histories.write(db, Random(63), 50)
    export_snapshot(servers(served), temporary / "one")
    export_snapshot(db.path, temporary / "other")
    assert sorted(entry.name for entry in temporary.iterdir()) == ["one", "other"]
    assert not (Path(db.path) / "exports").exists()


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_run_is_rebuilt(open_small: OpenSmall, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_small()
    db.multi_put({b"k%d" % number: b"%d" % number * 100 for number in range(100)})
    expected = planning.read(db.path)
    (run,) = (Path(db.path) / "exports").glob("runs-*/runs-*/*.arrow")
    content = bytearray(run.read_bytes())
    content[len(content) // 2] ^= 1
    run.write_bytes({"flipped": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
    monkeypatch.setattr(runs, "_whole", set())  # as in another process
    assert planning.read(db.path) == expected


def test_a_process_of_another_pid_namespace_counts_as_alive(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"v")
    script = (
        "import sys; from pathlib import Path; from logdb.embedded.snapshot_plan import pin;"
        "plan = pin(Path(sys.argv[1])); print('pinned', flush=True); input()"
    )
    command = [*IN_ANOTHER_NAMESPACE, script, db.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"pinned\n"
        assert sweep(Path(db.path)) == 0
        reader.communicate(b"\n")


def test_private_directories_are_created_concurrently(tmp_path: Path) -> None:
    assert private(tmp_path / "a" / "b")
    assert not private(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(logdb.Unavailable, match="cannot be used for temporary files"):
        private(tmp_path / "file")
    assert scratch.fresh() != scratch.fresh()


def marks(folder: Path) -> int:
    """The number of applications that have a mark in a folder; -1 if it is gone."""
    return len(list(folder.glob("application~*"))) if folder.exists() else -1


def test_a_folder_is_removed_with_the_last_application_that_has_used_it(tmp_path: Path) -> None:
    """The creation of the next folder removes those of a killed process and of an earlier application of the JVM."""
    alone, shared, later = (tmp_path / "base" / f"runs-{name}" for name in ("alone", "shared", "later"))
    mine = Application(ME.process, "app-2")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        theirs = Application(process_owner(process.pid), "app-9")
        for folder in (alone, shared):
            with used(folder, theirs), used(folder, theirs):
                assert marks(folder) == 1
        with used(shared, Application(ME.process, "app-1")):
            assert marks(shared) == 2
        with used(later, mine):
            assert (marks(alone), marks(shared), marks(later)) == (1, 1, 1)
        remove(later)
        process.kill()
        process.wait()
        with used(later, mine):
            assert (marks(alone), marks(shared), marks(later)) == (-1, -1, 1)
    remove(later)
    assert not later.parent.exists()


def test_an_idle_folder_of_another_machine_or_without_a_mark_is_removed(tmp_path: Path) -> None:
    far = Application(ME.process._replace(host="elsewhere-1"), "app-9")
    foreign, unmarked, later = (tmp_path / "base" / f"runs-{name}" for name in ("foreign", "unmarked", "later"))
    with used(foreign, far), used(unmarked, ME):
        next(unmarked.glob("application~*")).unlink()
    with used(later, ME):
        assert (marks(foreign), marks(unmarked)) == (1, 0)
    remove(later)
    for folder in (foreign, unmarked):
        os.utime(folder / "in-use", (time.time() - IDLE_S * 2,) * 2)
    with used(later, ME):
        assert (marks(foreign), marks(unmarked)) == (-1, -1)


def test_the_sweep_at_the_end_follows_no_link(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "runs-0").mkdir(parents=True)
    (tmp_path / "mine" / "runs-0" / "application~h~1~1~x").touch()
    sweep_base(lambda _: True)
    base(None).symlink_to(tmp_path / "mine")
    sweep_base(lambda _: True)
    assert (tmp_path / "mine" / "runs-0" / "application~h~1~1~x").exists()


APPLICATION = """
import sys
from pathlib import Path
from spark_export import session
from spark_export.scratch import base
spark = session(cores=1)
rows = spark.read.format("logdb").option("endpoints", sys.argv[1]).load()
assert rows.count() > 10
assert rows.first() and rows.take(2) and rows.limit(1).collect() and rows.where("version > 0").first()
(folder,) = base(None).iterdir()
(mark,) = folder.glob("application~*")
assert mark.name.endswith(spark.sparkContext.applicationId), mark
"""


@pytest.mark.long
@pytest.mark.parametrize("stop", ["", "spark.stop()"])
def test_the_folders_of_an_application_are_removed_at_its_end(served: str, temporary: Path, stop: str) -> None:
    command = [sys.executable, "-c", APPLICATION + stop, served]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not base(None).exists()
