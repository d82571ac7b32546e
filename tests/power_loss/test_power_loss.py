"""A small sample of `python -m tests.power_loss`, and bugs that it must find."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logdb
from logdb.store import checking
from logdb.store.checkpoint import TABLES
from tests.power_loss.planted import PLANTED
from tests.power_loss.recording import torn
from tests.power_loss.replaying import Lost, check, positions, record


def test_nothing_acknowledged_is_lost_and_nothing_made_up(tmp_path: Path) -> None:
    recorded = record(tmp_path / "recorded", seed=1)
    kinds = {operation.kind for operation in recorded.disk.operations}
    assert kinds >= {"map", "sync", "write", "store", "rename", "unlink", "create"}
    assert sum(check(recorded, position, 1, 1, tmp_path) for position in positions(recorded)[::16]) > 50


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    with PLANTED[bug]():
        recorded = record(tmp_path / "recorded", seed=2, lives=1, steps=6)
    kinds = [operation.kind for operation in recorded.disk.operations]
    ends = [at for at in positions(recorded)[1:-1] if kinds[at - 1] == "map" != kinds[at]]
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


def test_commits_of_the_map_keep_the_contract_that_they_are_modelled_by(tmp_path: Path) -> None:
    """LMDB overwrites no page that the meta pages before can reach: whatever is torn, the file is sound."""
    recorded = record(tmp_path / "recorded", seed=3, lives=1, steps=6)
    commits = [commit for commit in recorded.disk.commits if commit.before]
    assert len(commits) > 10
    rng = random.Random(3)
    for commit in commits:
        (tmp_path / "data.mdb").write_bytes(torn(commit, rng))
        checking.walk(tmp_path / "data.mdb", TABLES)
