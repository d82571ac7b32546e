"""Errors of the system while a database is opened or read are reported as such, not as damage."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.api.inspection import info, verify
from logdb.embedded.snapshot_plan import pin
from logdb.store.checkpoint import Checkpoint
from logdb.store.files import MANIFEST
from logdb.store.manifest import decode_manifest
from logdb.store.map_verifier import NOTE
from tests.harness.forks import allow_files, become_unprivileged, in_child, open_files, refused

ROWS = 10


@pytest.fixture
def path() -> Iterator[Path]:
    """A database with a checkpoint, in a directory that another user can enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "data"
        with logdb.open(path) as db:
            db.multi_put({b"k%d" % number: b"v" for number in range(ROWS)})
            db.checkpoint()
        yield path


def opening(path: Path, read_only: bool) -> Callable[[], bytes | None]:
    def opened() -> bytes | None:
        with logdb.open(path, read_only=read_only) as db:
            return db.get(b"k1")

    return opened


def check_whole(path: Path) -> None:
    """The checkpoint exists and was not rebuilt."""
    with logdb.open(path, read_only=True) as db:
        assert db.get(b"k1") == b"v"
    assert verify(path).keys == ROWS


def answer_of(*calls: Callable[[], object]) -> list[str]:
    return in_child(lambda: refused(*calls))


def test_without_the_right_to_write_in_the_map(path: Path) -> None:
    path.chmod(0o777)
    (path / "log").chmod(0o777)

    def body() -> list[str]:
        for file in (path / "map").iterdir():
            file.chmod(0o444)
        become_unprivileged()
        return refused(opening(path, read_only=True))

    assert in_child(body) == ["no error: b'v'"]
    check_whole(path)


def test_without_the_right_to_list_the_log(path: Path) -> None:
    (path / "log").chmod(0o711)
    calls: list[Callable[[], object]] = [opening(path, read_only=True), lambda: verify(path), lambda: pin(path)]
    if os.geteuid():
        (path / "log").chmod(0o311)

    def body() -> list[str]:
        become_unprivileged()
        return refused(*calls)

    for answer in in_child(body):
        assert answer.startswith(f"Unavailable: {path} c")
        assert answer.endswith(f": {path}/log: Permission denied; have its owner allow it, or run as its owner")
    (path / "log").chmod(0o755)
    check_whole(path)


def test_without_the_right_to_list_the_map(path: Path) -> None:
    """Reading needs no list; sizes do, and are not reported as 0."""
    (path / "map").chmod(0o711 if os.geteuid() == 0 else 0o311)

    def sizes() -> object:
        with logdb.open(path, read_only=True) as db:
            return info(db)

    def body() -> list[str]:
        become_unprivileged()
        return refused(opening(path, read_only=True), lambda: verify(path), sizes)

    opened, *answers = in_child(body)
    assert opened == "no error: b'v'"
    for answer in answers:
        assert answer.startswith(f"Unavailable: {path} c")
        assert answer.endswith(f": {path}/map: Permission denied; have its owner allow it, or run as its owner")
    (path / "map").chmod(0o755)
    check_whole(path)


@pytest.mark.parametrize("read_only", [True, False])
def test_without_files_or_memory(path: Path, read_only: bool) -> None:
    """With each limit of open files up to a sufficient one; and with too little address space for the file of a run."""
    (run,) = (path / "map").glob("run-*.mdb")
    before = run.stat().st_ino

    def body() -> list[str]:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 8 * resource.getpagesize(), resource.RLIM_INFINITY))
        return refused(lambda: Checkpoint(path / "map", log_id, follow=read_only))

    log_id = decode_manifest((path / "map" / MANIFEST).read_bytes()).log_id
    for note in (path / "map" / NOTE, None):  # without the note the file is read first
        (answer,) = in_child(body)
        assert answer.startswith(f"Unavailable: the checkpoint in {path}/map cannot be opened (Cannot allocate memory)")
        assert "ulimit -v" in answer
        if note is not None:
            note.unlink()

    def with_files(count: int) -> tuple[str, set[int]]:
        """The answer, and the files that it has left open."""

        def body() -> tuple[str, set[int]]:
            before = open_files()
            allow_files(count)
            (answer,) = refused(opening(path, read_only))
            return answer, open_files() - before

        return in_child(body)

    count, answers = 0, []
    while (found := with_files(count))[0] != "no error: b'v'":
        answer, left_open = found
        assert not left_open, answer
        answers.append(answer)
        count += 1
    assert len(answers) > 3
    for answer in answers:
        assert answer.startswith("Unavailable: ")
        assert "Too many open files" in answer
        assert "ulimit -n" in answer
    assert run.stat().st_ino == before
    check_whole(path)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_refused_damaged_log_is_closed(path: Path, read_only: bool) -> None:
    """An opening that reads a damaged record last."""
    (segment,) = (path / "log").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)

    def body() -> tuple[list[str], set[int]]:
        before = open_files()
        return refused(opening(path, read_only)), open_files() - before

    (answer,), left_open = in_child(body)
    assert answer.startswith(f"Corruption: {segment} is damaged")
    assert not left_open


def test_a_lock_without_a_written_owner_is_released(path: Path) -> None:
    """As on a full disk; here the limit of file sizes is 0."""

    def body() -> list[str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        answers = refused(opening(path, read_only=False))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return answers + refused(opening(path, read_only=False))

    first, second = in_child(body)
    assert first.startswith(f"Unavailable: {path} cannot be written: ")
    assert second == "no error: b'v'"
