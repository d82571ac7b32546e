"""Damage to the tables of a mapping server is found before anything is read from them, or when it is."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.errors import Corruption
from logdb.net.checkpoints import check
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.records import Place, Value

PAGE = 4096
BRANCH = 1
VALUES = {b"key %05d" % number: b"value %05d " % number * 20 for number in range(1_000)}


OTHERS = {b"large": Place(1, 1, 9_000, bytes(16)), b"long" * 200: b"v" * 3_000}


def written(path: Path, others: dict[bytes, Value]) -> Path:
    """A checkpoint of VALUES and others, each in two versions."""
    checkpoint = Checkpoint(path, b"log", inline=True)
    for version in (1, 2):
        overlay = Overlay()
        overlay.apply(version, {**VALUES, **others})
        checkpoint.begin(version)
        assert sum(checkpoint.write(overlay)) == len(VALUES) + len(others)
        checkpoint.finish(version, [(b"row %d" % version, b"state")])
    checkpoint.close()
    return path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Rows in every table."""
    return written(tmp_path / "map", OTHERS)


def live_leaf(data: bytes, key: bytes) -> int:
    """Where the leaf of the table `live` with this key begins."""
    return data.rindex(key + VALUES[key]) // PAGE * PAGE


def change_a_value(data: bytearray) -> None:
    data[:] = data.replace(VALUES[b"key 00500"], VALUES[b"key 00500"].replace(b"500", b"501"))


def lose_a_row(data: bytearray) -> None:
    """A leaf says that it has one row less."""
    at = live_leaf(data, b"key 00500") + 12
    struct.pack_into("<H", data, at, struct.unpack_from("<H", data, at)[0] - 2)


def swap_pages(data: bytearray) -> None:
    """Whole leaves, all their rows as they were written, stand in each other's place."""
    one, other = (live_leaf(data, key) for key in (b"key 00300", b"key 00700"))
    one_page, other_page = data[one + 8 : one + PAGE], data[other + 8 : other + PAGE]
    data[one + 8 : one + PAGE], data[other + 8 : other + PAGE] = other_page, one_page


def lose_a_page(data: bytearray) -> None:
    at = live_leaf(data, b"key 00500")
    data[at : at + PAGE] = bytes(PAGE)


def turn_in_circles(data: bytearray) -> None:
    """Each branch leads to itself."""
    for at in range(2 * PAGE, len(data), PAGE):
        number, _, flags, lower = struct.unpack_from("<QHHH", data, at)
        if flags == BRANCH and number == at // PAGE:
            for place in range(at + 16, at + lower, 2):
                struct.pack_into("<HH", data, at + struct.unpack_from("<H", data, place)[0], number, 0)


def lose_free_pages(data: bytearray) -> None:
    """The list of free pages, which a table never shows, has one entry less."""
    newest = max(0, PAGE, key=lambda meta: struct.unpack_from("<Q", data, meta + 136)[0])
    (root,) = struct.unpack_from("<Q", data, newest + 80)
    (lower,) = struct.unpack_from("<H", data, root * PAGE + 12)
    struct.pack_into("<H", data, root * PAGE + 12, lower - 2)


def cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


DAMAGES = [change_a_value, lose_a_row, swap_pages, lose_a_page, turn_in_circles, lose_free_pages, cut]


def damage(tables: Path, how: Callable[[bytearray], None]) -> None:
    file = tables / "data.mdb"
    data = bytearray(file.read_bytes())
    how(data)
    assert data != file.read_bytes()
    with file.open("r+b") as opened:  # as damage comes: the file stays the one that may be in use
        opened.write(data)
        opened.truncate()


@pytest.mark.parametrize("how", DAMAGES)
def test_damage_is_found_before_anything_is_read(tables: Path, how: Callable[[bytearray], None]) -> None:
    damage(tables, how)
    asyncio.run(check(tables))
    assert not tables.exists()


def test_tables_that_are_whole_stay(tables: Path) -> None:
    asyncio.run(check(tables))
    checkpoint = Checkpoint(tables, b"log", inline=True)
    assert [(key, rows[0].value) for key, rows in checkpoint.everything() if key in VALUES] == sorted(VALUES.items())
    checkpoint.close()


def test_what_was_never_written_is_no_damage(tmp_path: Path) -> None:
    asyncio.run(check(tmp_path))
    assert tmp_path.exists()


def test_a_row_that_is_damaged_while_it_is_used_is_not_read(tmp_path: Path) -> None:
    tables = written(tmp_path, {})
    checkpoint = Checkpoint(tables, b"log", inline=True)
    damage(tables, change_a_value)
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
    checkpoint.close()
