"""The files of an examination: every item comes back once, from the partition of its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdb.embedded.verification import spills
from logdb.embedded.verification.spills import Part, Spill, spilled

PARTITIONS = 12
"""More than ten: the number of a partition may begin with that of another one."""


def test_each_item_is_read_once_from_the_partition_of_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spills, "BUFFER_BYTES", 5_000)
    writers = [Spill(tmp_path, f"a-{number}", PARTITIONS) for number in range(2)]
    added = Part([], [], [], [])
    for number in range(300):
        key, writer = b"%d" % (number // 2), writers[number % 2]
        items = Part([(key, number, b"v")], [(key, 0, number)], [(key, number, 1, None)], [(key, [(number, 0, b"v")])])
        for of_kind, mine, all_ in zip(writer.of(key), items, added, strict=True):
            of_kind += mine
            all_ += mine
        writer.added(len(items), len(key))
    assert list(tmp_path.iterdir()), "nothing is written before the end"
    for writer in writers:
        writer.flush()
    partitions = [list(spilled(tmp_path, partition)) for partition in range(PARTITIONS)]
    assert not list(tmp_path.iterdir())
    keys = [[{item[0] for part in parts for item in part[kind]} for parts in partitions] for kind in range(len(added))]
    assert all(of_kind == keys[0] for of_kind in keys), "the items of a key are in several partitions"
    assert all(keys[0])
    assert sum(map(len, keys[0])) == 150, "two writers disagree about a key"
    for kind, expected in enumerate(added):
        found = [item for parts in partitions for part in parts for item in part[kind]]
        assert sorted(found) == sorted(expected)
