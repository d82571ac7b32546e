"""Leases of other processes, and of other users, hold a compaction back; where one is unreadable, none begins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.embedded import external_leases
from logdb.embedded.external_leases import (
    FOLDER,
    ExternalLease,
    external_needs,
    is_alive,
    make_folder,
    process_owner,
    sweep,
)
from tests.harness.forks import NOBODY, become_unprivileged, in_child, refused

READER, WRITER = NOBODY, NOBODY - 1
VERSIONS = 20


@pytest.fixture
def path() -> Iterator[Path]:
    """A directory that all users may use, with a database of the writer."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "data"
        path.mkdir()
        path.chmod(0o777)

        def fill() -> None:
            with logdb.open(path) as db:
                for number in range(VERSIONS):
                    db.put(b"k", b"%d" % number)

        as_user(WRITER, fill)
        yield path


def as_user(user: int, *calls: Callable[[], object], umask: int = 0o022) -> list[str]:
    """The answers of calls in a child, which root runs as another user."""

    def body() -> list[str]:
        become_unprivileged(user)
        os.umask(umask)
        return refused(*calls)

    return in_child(body)


def compacted(path: Path) -> Callable[[], int]:
    def compact() -> int:
        with logdb.open(path) as db:
            db.compact()
            return db.oldest_version

    return compact


def rights(path: Path) -> str:
    return f"{path.stat().st_mode & 0o7777:o}"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_a_lease_of_another_user_holds_the_writer_back(path: Path, umask: int) -> None:
    """The writer can read it, and only its owner can change it, whatever the umask of the reader."""
    owner = process_owner(os.getpid())
    assert as_user(READER, lambda: ExternalLease(path, 1, owner).move(5), umask=umask) == ["no error: None"]
    assert as_user(WRITER, compacted(path), lambda: external_needs(path)) == ["no error: 5", "no error: 1"]
    (file,) = (path / FOLDER).glob("*/hold")
    assert [rights(place) for place in (path / FOLDER, file.parent, file)] == ["1777", "755", "644"]
    assert as_user(WRITER, lambda: make_folder(path, owner).name.count("~")) == ["no error: 3"]  # beside the reader's


@pytest.mark.parametrize(("of_database", "expected"), [(0o755, "755"), (0o770, "1775"), (0o700, "755")])
def test_who_may_write_in_the_directory_may_make_a_need(path: Path, of_database: int, expected: str) -> None:
    path.chmod(of_database)
    before = path.stat()

    def body() -> None:
        os.umask(0o077)
        make_folder(path, process_owner(os.getpid()))

    in_child(body)  # root, for a database of another user
    assert rights(path / FOLDER) == expected
    made = (path / FOLDER).stat()
    assert (made.st_uid, made.st_gid) == (before.st_uid, before.st_gid)


def test_a_folder_that_cannot_be_read_keeps_a_compaction_from_beginning(path: Path) -> None:
    """Such a folder may have a lease. Once its owner has ended, it has none."""
    as_user(READER, lambda: ExternalLease(path, 5, process_owner(os.getppid())))
    (folder,) = (path / FOLDER).iterdir()
    file = folder / "hold"
    for place, error in (
        (folder, "Permission denied"),
        (file, "Permission denied"),
        (path / FOLDER, "cannot be listed"),
    ):
        before = place.stat().st_mode
        place.chmod(0)
        (answer,) = as_user(WRITER, compacted(path))
        assert answer.startswith("Unavailable: ")
        assert error in answer
        assert str(path / FOLDER if place == path / FOLDER else file) in answer
        if place != path / FOLDER:
            assert f"end process {os.getpid()} of " in answer
            assert f"or remove {folder}" in answer
        place.chmod(before)
    assert as_user(WRITER, compacted(path)) == ["no error: 5"]
    host, pid, started, unique = folder.name.split("~")
    folder.chmod(0)
    folder.rename(path / FOLDER / f"{host}~{pid}~{int(started) + 1}~{unique}")
    (answer,) = as_user(WRITER, compacted(path))
    assert int(answer.removeprefix("no error: ")) > VERSIONS
    assert sweep(path) == 1


def test_a_process_whose_start_may_not_be_read_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc is mounted with hidepid: processes of other users are not there."""
    first = process_owner(1)

    def hidden(pid: int) -> int:
        raise ProcessLookupError(pid)

    monkeypatch.setattr(external_leases, "_started", hidden)
    ended = first._replace(pid=in_child(os.getpid))
    is_of_another = os.stat("/proc/1").st_uid != (os.geteuid() or READER)
    expected = [f"no error: {is_of_another}", "no error: False"]
    assert as_user(READER, lambda: is_alive(first), lambda: is_alive(ended)) == expected
