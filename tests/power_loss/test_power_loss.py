"""A small sample of `python -m tests.power_loss`, and bugs that it must find."""

from __future__ import annotations

from pathlib import Path

import pytest

import logdb
from tests.power_loss.planted import PLANTED
from tests.power_loss.recording import is_of_map
from tests.power_loss.replaying import Lost, check, positions, record


def test_nothing_acknowledged_is_lost_and_nothing_made_up(tmp_path: Path) -> None:
    recorded = record(tmp_path / "recorded", seed=1)
    kinds = {(is_of_map(one), one.kind) for one in recorded.disk.operations}
    assert kinds >= {(False, kind) for kind in ("sync", "write", "store", "rename", "unlink", "create")}
    assert kinds >= {(True, kind) for kind in ("sync", "write", "rename", "unlink", "create", "sync_directory")}
    assert sum(check(recorded, position, 1, 1, tmp_path) for position in positions(recorded)[::16]) > 50


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    with PLANTED[bug]():
        recorded = record(tmp_path / "recorded", seed=2, lives=1, steps=6)
    of_map = [is_of_map(one) for one in recorded.disk.operations]
    ends = [at for at in positions(recorded)[1:-1] if of_map[at - 1] and not of_map[at]]
    with pytest.raises(Lost):
        for position in [*ends, *positions(recorded)[::2]]:
            check(recorded, position, 2, 0, tmp_path / str(position))


@pytest.mark.parametrize("left", [[], ["LOCK"], ["LOCK", "LOGDB.tmp"], ["LOCK", "LOGDB"]], ids=len)
def test_a_failure_while_a_database_is_made(tmp_path: Path, left: list[str]) -> None:
    """Its files are there as far as they were synced; an identity that was not is half there, by its first name."""
    logdb.open(tmp_path / "whole").close()
    path = tmp_path / "db"
    path.mkdir()
    for name in left:
        source = tmp_path / "whole" / name.removesuffix(".tmp")
        (path / name).write_bytes(source.read_bytes()[: 10 if name.endswith(".tmp") else None])
    with logdb.open(path) as db:
        db.put(b"k", b"v")
    with logdb.open(path, read_only=True) as db:
        assert db[b"k"] == b"v"
