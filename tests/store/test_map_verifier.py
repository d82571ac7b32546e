"""Damage to the runs of a map is found before they are read, or when a damaged row is read."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from logdb.errors import Corruption
from logdb.node.checkpoints import Checkpoints, check
from logdb.store import map_verifier
from logdb.store.checkpoint import Checkpoint
from logdb.store.files import MANIFEST
from logdb.store.map_verifier import NOTE, FileChecksum, find_damage, forget, note
from logdb.store.overlay import Overlay
from logdb.store.records import Place, Value
from tests.harness.forks import allow_files, in_child
from tests.harness.forks import refused as refused_to

PAGE = 4096
VALUES = {b"key %05d" % number: b"value %05d " % number * 20 for number in range(1_000)}
OTHERS = {b"large": Place(1, 1, 9_000, bytes(16)), b"long" * 200: b"v" * 3_000}


def written(path: Path, others: dict[bytes, Value]) -> Path:
    """Two runs of VALUES and others."""
    with closing(Checkpoint(path, b"log", inline=True)) as checkpoint:
        for version in (1, 2):
            overlay = Overlay()
            overlay.apply(version, {**VALUES, **others})
            checkpoint.begin(version)
            assert sum(checkpoint.write(overlay)) == len(VALUES) + len(others)
            checkpoint.finish(version, [(b"row %d" % version, b"state")])
    return path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows in every table."""
    return written(tmp_path_factory.mktemp("sound") / "map", OTHERS)


@pytest.fixture
def tables(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "map")
    return tmp_path / "map"


def change_a_value(data: bytearray) -> None:
    data[:] = data.replace(VALUES[b"key 00500"], VALUES[b"key 00500"].replace(b"500", b"501"))


def leaf(data: bytes, key: bytes) -> int:
    """Offset of the leaf page of a run with this key."""
    return data.rindex(key + VALUES[key]) // PAGE * PAGE


def swap_pages(data: bytearray) -> None:
    """Two leaf pages change places; their rows are unchanged."""
    one, other = (leaf(data, key) for key in (b"key 00300", b"key 00700"))
    one_page, other_page = data[one + 8 : one + PAGE], data[other + 8 : other + PAGE]
    data[one + 8 : one + PAGE], data[other + 8 : other + PAGE] = other_page, one_page


def lose_a_page(data: bytearray) -> None:
    at = leaf(data, b"key 00500")
    data[at : at + PAGE] = bytes(PAGE)


def change_the_last_byte(data: bytearray) -> None:
    data[-1] ^= 1


def cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def cut_one_byte(data: bytearray) -> None:
    del data[-1]


def extend(data: bytearray) -> None:
    data.extend(bytes(PAGE))


def empty(data: bytearray) -> None:
    del data[:]


DAMAGES = [change_a_value, swap_pages, lose_a_page, change_the_last_byte, cut, cut_one_byte, extend, empty]


def damage(file: Path, how: Callable[[bytearray], None]) -> None:
    data = bytearray(file.read_bytes())
    how(data)
    assert data != file.read_bytes()
    with file.open("r+b") as opened:  # in place, as real damage: the inode stays the same
        opened.write(data)
        opened.truncate()


def refused(tables: Path) -> str:
    """Openings for reading and for writing find the damage; a mapping server starts with an empty map."""
    found = []
    for follow in (True, False):
        with pytest.raises(Corruption, match="opening the database for writing rebuilds it") as error:
            Checkpoint(tables, b"log", inline=True, follow=follow)
        found.append(str(error.value))
    assert found[0] == found[1]
    asyncio.run(check(tables))
    assert not tables.exists()
    return found[0]


@pytest.mark.parametrize("run", [1, 2])
@pytest.mark.parametrize("how", DAMAGES)
def test_damage_to_a_run_is_found_before_anything_is_read(
    tables: Path, how: Callable[[bytearray], None], run: int
) -> None:
    damage(tables / f"run-{run}.mdb", how)
    assert f"run-{run}.mdb" in refused(tables)


def test_damage_to_the_manifest_is_found(tables: Path) -> None:
    content = (tables / MANIFEST).read_bytes()
    for at in range(len(content)):
        for bit in (1, 128):
            (tables / MANIFEST).write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            with pytest.raises(Corruption, match="its list of runs is not what was written"):
                Checkpoint(tables, b"log", inline=True, follow=True)
    for cut_off in (b"", content[: len(content) // 2], content + content):
        (tables / MANIFEST).write_bytes(cut_off)
        with pytest.raises(Corruption, match="its list of runs is not what was written"):
            Checkpoint(tables, b"log", inline=True, follow=True)
    refused(tables)


def test_a_run_that_is_missing_is_named(tables: Path) -> None:
    (tables / "run-1.mdb").unlink()
    assert "run-1.mdb is missing" in refused(tables)


def test_runs_in_each_others_place_are_found(tables: Path) -> None:
    one, other = tables / "run-1.mdb", tables / "run-2.mdb"
    os.rename(one, tables / "aside")
    os.rename(other, one)
    os.rename(tables / "aside", other)
    assert "run-1.mdb" in refused(tables)


def test_a_page_of_another_run_is_found(tables: Path) -> None:
    """Its rows are intact, but belong to the other run, as in a block that an earlier file has left."""
    data, other = ((tables / f"run-{run}.mdb").read_bytes() for run in (2, 1))
    at, other_at = leaf(data, b"key 00500"), leaf(other, b"key 00500")
    assert at == other_at
    (tables / "run-2.mdb").write_bytes(data[:at] + other[at : at + PAGE] + data[at + PAGE :])
    assert "run-2.mdb is not what was written" in refused(tables)


def test_the_runs_of_another_log_are_not_read(tables: Path) -> None:
    with pytest.raises(Corruption, match="another log"):
        Checkpoint(tables, b"other", inline=True, follow=True)


def test_runs_that_are_whole_stay(tables: Path) -> None:
    asyncio.run(check(tables))
    with closing(Checkpoint(tables, b"log", inline=True)) as checkpoint:
        found = [(key, next(rows).value) for key, rows in checkpoint.everything() if key in VALUES]
        assert found == sorted(VALUES.items())


def test_a_directory_without_a_map_is_not_damaged(tmp_path: Path) -> None:
    asyncio.run(check(tmp_path))
    assert tmp_path.exists()


def test_a_map_that_was_made_and_has_no_manifest_yet_is_empty_for_readers_too(tmp_path: Path) -> None:
    """The state after a process was killed before or during its first checkpoint."""
    path = tmp_path / "map"
    for left in ([], ["run-1.mdb"], ["run-1.mdb", "RUNS.new"]):
        path.mkdir(exist_ok=True)
        for name in left:
            (path / name).write_bytes(b"half of it")
        for follow in (True, False):
            with closing(Checkpoint(path, b"log", follow=follow)) as checkpoint:
                assert checkpoint.covers == 0
                assert checkpoint.chunk(None, None, False, 10) == []
        assert not list(path.glob("run-*"))


def test_a_row_that_is_damaged_while_it_is_used_is_not_read(tmp_path: Path) -> None:
    tables = written(tmp_path, {})
    with closing(Checkpoint(tables, b"log", inline=True)) as checkpoint:
        damage(tables / "run-2.mdb", change_a_value)
        reads: list[Callable[[], object]] = [
            lambda: checkpoint.live_value(b"key 00500"),
            lambda: checkpoint.row(b"key 00500", 2),
            lambda: checkpoint.live_chunk(None, None, False, 10_000),
            lambda: checkpoint.live_chunk(None, None, True, 10_000),
            lambda: list(checkpoint.everything()),
        ]
        for read in reads:
            with pytest.raises(Corruption, match="key 00500"):
                read()
        assert checkpoint.live_value(b"key 00499") == VALUES[b"key 00499"]


# ---- what is read, and when


FILES = {name: name.encode() * 1_000 for name in ("run-1.mdb", "run-2.mdb", "run-3.mdb")}


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose checksums are computed."""
    read, crc_of = list[str](), map_verifier.crc_of
    monkeypatch.setattr(map_verifier, "crc_of", lambda file: read.append(file.name) or crc_of(file))
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return read


def checksums(path: Path) -> dict[str, FileChecksum]:
    return {name: FileChecksum(len(content), map_verifier.crc_of(path / name)) for name, content in FILES.items()}


def test_a_file_is_read_once_and_again_when_it_may_be_another(tmp_path: Path, looked: list[str]) -> None:
    files = checksums(tmp_path)
    looked.clear()
    for change, expected in (
        (lambda: None, list(FILES)),
        (lambda: None, []),
        (lambda: os.utime(tmp_path / "run-2.mdb"), ["run-2.mdb"]),
        (lambda: None, []),
        (lambda: forget(tmp_path), list(FILES)),
        (lambda: (tmp_path / NOTE).write_bytes(b"\xff\x00nonsense\nrun-1.mdb"), list(FILES)),
        (lambda: shutil.copy(tmp_path / "run-1.mdb", tmp_path / "run-1.mdb.new"), []),
        (lambda: os.replace(tmp_path / "run-1.mdb.new", tmp_path / "run-1.mdb"), ["run-1.mdb"]),
    ):
        change()
        assert find_damage(tmp_path, files) is None
        assert looked == expected
        looked.clear()
    assert find_damage(tmp_path, files, ignore_note=True) is None
    assert looked == list(FILES)


def test_a_note_from_before_a_reboot_is_ignored(
    tmp_path: Path, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = checksums(tmp_path)
    note(tmp_path, files)
    looked.clear()
    boot = tmp_path / "boot_id"
    boot.write_text("another start\n")
    monkeypatch.setattr(map_verifier, "BOOT_ID", boot)
    for _ in range(2):
        assert find_damage(tmp_path, files) is None
    assert looked == list(FILES)
    boot.unlink()  # a system without boot ids
    for count in (1, 2):
        assert find_damage(tmp_path, files) is None
        assert looked == list(FILES) * (1 + count)


def test_a_note_for_other_content_is_ignored(tmp_path: Path, looked: list[str]) -> None:
    """A file that matches one manifest need not match another one."""
    files = checksums(tmp_path)
    note(tmp_path, files)
    size, crc = files["run-2.mdb"]
    assert (
        find_damage(tmp_path, files | {"run-2.mdb": FileChecksum(size, crc ^ 1)}) == "run-2.mdb is not what was written"
    )


def test_a_damaged_file_is_not_listed_in_the_note(tmp_path: Path, looked: list[str]) -> None:
    files = checksums(tmp_path)
    (tmp_path / "run-3.mdb").write_bytes(FILES["run-3.mdb"][:-1] + b"!")
    for _ in range(2):
        assert find_damage(tmp_path, files) == "run-3.mdb is not what was written"
    (tmp_path / "run-3.mdb").write_bytes(b"")
    assert find_damage(tmp_path, files) == "run-3.mdb has 0 bytes, and was written with 9,000"
    (tmp_path / "run-3.mdb").unlink()
    with pytest.raises(FileNotFoundError):
        find_damage(tmp_path, files)


def test_a_note_that_cannot_be_written_is_left_out(tmp_path: Path, looked: list[str]) -> None:
    """The note's path is a directory."""
    files = checksums(tmp_path)
    (tmp_path / NOTE).mkdir()
    note(tmp_path, files)
    looked.clear()
    for count in (1, 2):
        assert find_damage(tmp_path, files) is None
        assert looked == list(FILES) * count
    assert sorted(itertools.chain([NOTE], FILES)) == sorted(file.name for file in tmp_path.iterdir())


def test_a_server_without_file_descriptors_keeps_its_map(tables: Path) -> None:
    """An error of the operating system is not damage."""

    def body() -> str:
        allow_files(0)
        return refused_to(lambda: Checkpoints(tables, b"log", 1_000, 1.0, print))[0]

    before = {file.name: file.read_bytes() for file in tables.iterdir()}
    assert "Too many open files" in in_child(body)
    assert {file.name: file.read_bytes() for file in tables.iterdir()} == before
