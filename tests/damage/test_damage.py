"""A small sample of `python -m tests.damage`, and the files that live as long as a reading of a snapshot."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

import logdb
from logdb.embedded.external_leases import ExternalLease, process_owner
from logdb.embedded.snapshot_plan import PLAN, load, pin, read_aborted
from logdb.log.engine import ENGINES
from logdb.store import checkpoint, map_verifier, row_checksums
from spark_export.manifest import MANIFEST, File, Manifest, read_manifest, write_manifest
from tests.damage import embedded, servers


def test_every_file_of_an_embedded_database(tmp_path: Path) -> None:
    sound = embedded.make(tmp_path / "sound")
    cases = list(embedded.check(sound, tmp_path, seed=1, samples=1))
    assert {case.split(" ")[0].split("/")[-1] for case in cases} >= {
        *("LOGDB", "LOCK", "durable", "RUNS", "SUM"),
        *(file.name for file in sound.glob("map/run-*.mdb")),
    }
    assert len(list(sound.glob("map/run-*.mdb"))) > 2
    assert {"map/RUNS removed", "map/RUNS and map/SUM swapped"} <= set(cases)


def test_missing_checks_of_rows_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: neither the file nor a row of the map is looked at before it is served."""
    sound = embedded.make(tmp_path / "db")
    with logdb.open(sound) as db:
        truth = embedded.contents(db)
    monkeypatch.setattr(map_verifier, "find_damage", lambda *_, **__: None)
    for module in (checkpoint, row_checksums):
        monkeypatch.setattr(module, "extend", lambda *_: map_verifier.RESIDUE)
    value = b"0 of " + embedded.KEYS[6] * 3
    (tables,) = (file for file in sound.glob("map/run-*.mdb") if value in file.read_bytes())
    tables.write_bytes(tables.read_bytes().replace(value, b"1" + value[1:]))
    with pytest.raises(embedded.Served, match="a wrong answer"):
        embedded.judge(sound, tables.relative_to(sound), truth, verified=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_files_of_servers(tmp_path: Path, engine: str) -> None:
    names = {case.split("/")[0] for case in servers.check(tmp_path, 2, 2, engine)}
    assert "m1" in names
    assert len(names) > 1


def test_files_of_a_plan(tmp_path: Path) -> None:
    sound = embedded.make(tmp_path / "db")
    rng = random.Random(3)
    with pin(sound) as plan:
        aborted = [read_aborted(Path(plan.folder), part) for part in plan.parts]
        assert any(aborted)
        files = [Path(plan.folder) / PLAN, *Path(plan.folder).glob("*.aborted")]
        for file in files:
            content = file.read_bytes()
            for _, damaged in embedded.damages(content, rng, 20):
                file.write_bytes(damaged)
                if damaged == content:
                    continue
                with pytest.raises(logdb.Corruption, match=str(file)):
                    again = load(Path(plan.folder))
                    assert [read_aborted(Path(again.folder), part) for part in again.parts] == aborted
            file.write_bytes(content)
        assert load(Path(plan.folder)) == plan


def test_a_hold_that_says_nothing_keeps_compaction_from_going_on(tmp_path: Path) -> None:
    sound = embedded.make(tmp_path / "db")
    rng = random.Random(4)
    with logdb.open(sound) as db:
        hold = ExternalLease(sound, db.version, process_owner(os.getpid()))
        (file,) = (sound / "exports").glob("*/hold")
        content = file.read_bytes()
        for _, damaged in embedded.damages(content, rng, 20):
            file.write_bytes(damaged)
            if damaged != content:
                with pytest.raises(logdb.Corruption, match=str(file)):
                    db.compact()
        file.write_bytes(content)
        db.compact()
        hold.close()


def test_the_manifest_of_an_export(tmp_path: Path) -> None:
    file = tmp_path / MANIFEST
    one = File("part-00000.parquet", 10, 1_000, "ab" * 32, "6b", None, False)
    manifest = Manifest("00000000-0000-0000-0000-000000000001", 120, 1_700_000_000_000_000_000, None, None, (one,))
    write_manifest(file, manifest)
    assert read_manifest(file) == manifest
    content = file.read_bytes()
    for what, damaged in embedded.damages(content, random.Random(5), 200):
        file.write_bytes(damaged)
        try:
            assert read_manifest(file) == manifest, what
        except logdb.LogDBError as error:
            assert str(file) in str(error), what
