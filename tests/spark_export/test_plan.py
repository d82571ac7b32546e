"""A pinned snapshot has exactly the rows of its version while the writer goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

import logdb
from logdb import Database
from logdb.api.inspection import verify
from logdb.embedded import snapshot_plan as planning
from logdb.embedded.external_leases import LeaseOwner, process_owner, sweep
from logdb.embedded.snapshot_plan import load, pin
from logdb.log import LocalLog
from logdb.log.contract import Trimmed
from spark_export.directory_source import pinned_snapshot, snapshot_plan
from tests.harness.opening import host_of
from tests.spark_export import histories

OpenSmall = Callable[..., Database]
FILL = b"y" * 3000


def fill(db: Database) -> int:
    """Fill segments. Returns the last version."""
    return [db.put(b"fill", FILL) for _ in range(60)][-1]


@pytest.mark.parametrize("seed", range(6))
def test_any_version_of_a_random_history(open_small: OpenSmall, seed: int) -> None:
    rng = Random(seed)
    db = open_small()
    versions = [0, *histories.write(db, rng, 250)]
    for _ in range(3):
        for version in [db.oldest_version, db.version, *rng.sample([v for v in versions if v >= db.oldest_version], 5)]:
            assert histories.snapshot(db.path, version) == list(db.at(version).scan())
        db.compact(rng.choice([v for v in versions if v >= db.oldest_version]))
        if rng.random() < 0.5:
            db.close()
            db = open_small()
        versions += histories.write(db, rng, 120)
    assert histories.snapshot(db.path) == list(db.scan())


def test_a_plan_outlives_a_compaction_that_trims_its_files(open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(1), 300)
    version = db.version
    expected = list(db.scan())
    with histories.planned(db.path, version=version) as plan:
        for seed in range(2, 5):
            histories.write(db, Random(seed), 200)
            db.compact()
        assert not all(Path(part.origin).exists() for part in plan.parts)
        db.close()
        assert histories.rows(plan) == expected
        again = pinned_snapshot(Path(plan.folder))
        assert histories.rows(again, b"a/") == [row for row in expected if row[0].startswith(b"a/")]
    assert not Path(plan.folder).exists()


def test_a_commit_that_aborted_before_the_floor_stays_aborted(open_small: OpenSmall) -> None:
    """Its record is still in the first file; the coordinator no longer lists it, but a decision record does."""
    db = open_small()
    histories.abort(db, b"contested", b"lost")
    for number in range(3):
        db.checkpoint()
        histories.abort(db, b"another-%d" % number, b"lost")
    floor = db.put(b"k", b"v")
    db.compact(floor)
    assert db.oldest_version == floor
    db.put(b"k", b"w")
    for version in (floor, db.version):
        assert histories.snapshot(db.path, version) == list(db.at(version).scan())
    db.compact()
    assert histories.snapshot(db.path) == list(db.scan())


def test_a_version_whose_only_copy_was_written_later(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"old", b"x" * 3000)
    db.put(b"old-and-large", b"y" * 9000)
    version = db.multi_put({b"k-%d" % n: b"z" * 3000 for n in range(60)})
    at = db.put(b"later", b"")
    db.compact(at)
    assert histories.snapshot(db.path, at) == list(db.at(at).scan())
    with pin(Path(db.path), version=at) as plan:
        assert plan.parts[0].first > version
        assert plan.parts[-1].end > at + 1


@pytest.mark.parametrize("floors", [("after",), ("dead", "after"), ("between", "after")])
def test_a_deleted_key_stays_deleted_after_several_compactions(open_small: OpenSmall, floors: tuple[str, ...]) -> None:
    """The first compaction copies a version behind its deletion; another one trims the deletion but not the copy."""
    db = open_small()
    db.put(b"dead", b"x")
    db.put(b"dead-and-large", b"x" * 9000)
    before = fill(db)
    at = {"dead": db.multi_put({b"dead": None, b"dead-and-large": None})}
    fill(db)
    at["between"] = db.put(b"dead", b"alive again")
    db.delete(b"dead")
    at["after"] = fill(db)
    db.compact(before)
    for floor in floors:
        fill(db)
        db.compact(at[floor])
    assert histories.snapshot(db.path) == [(b"fill", FILL)]
    db.compact()
    assert histories.snapshot(db.path) == [(b"fill", FILL)]
    db.close()
    logdb.rebuild(db.path)
    with logdb.open(db.path) as rebuilt:
        assert list(rebuilt.scan()) == [(b"fill", FILL)]


@pytest.mark.parametrize("same_segment", [True, False])
def test_a_large_value_that_was_trimmed_before_its_commit(open_small: OpenSmall, same_segment: bool) -> None:
    """There are two copies of one version: the commit, whose value was trimmed with the previous segment, and the
    valid copy."""
    db = open_small()
    rng = Random(1)
    log = host_of(db).log
    assert isinstance(log, LocalLog)
    while True:
        version = db.put(b"large", rng.randbytes(rng.randrange(4_097, 9_000)))
        if log.oldest_after_trim(version) == version:
            break
    if not same_segment:
        fill(db)
    db.compact(version)
    with pytest.raises(Trimmed):
        log.read_record(version - 1, 0)
    assert histories.snapshot(db.path, version) == list(db.at(version).scan())


def interrupted(db: Database, before: int | None = None) -> int:
    """Start a compaction that fails after its first copies. Returns their GSNs."""

    class Interrupted(Exception):
        pass

    def progress(count: int) -> None:
        assert count
        raise Interrupted

    with pytest.raises(Interrupted):
        db.compact(before, progress=progress)
    return host_of(db).machine.coordinator.relocated_from


def test_a_version_copied_by_a_failed_compaction_stays_deleted(open_small: OpenSmall) -> None:
    """The next compaction trims the deletion, but not the copy of the deleted version."""
    db = open_small()
    db.put(b"dead", b"x")
    before = fill(db)
    deleted = db.delete(b"dead")
    floor = fill(db)
    assert host_of(db).log.oldest_after_trim(floor) > deleted
    assert interrupted(db, before) > floor
    db.close()
    db = open_small()
    db.compact(floor)
    db.close()
    logdb.rebuild(db.path)
    with logdb.open(db.path) as rebuilt:
        assert list(rebuilt.scan()) == [(b"fill", FILL)]


def test_copies_of_a_failed_compaction_are_not_visible_at_older_versions(open_small: OpenSmall) -> None:
    db = open_small()
    floor = db.put(b"k", b"1")
    version = db.put(b"other", b"1")
    newer = db.put(b"k", b"2")
    fill(db)
    db.checkpoint()
    assert newer < interrupted(db)
    db.compact(floor)
    assert histories.snapshot(db.path, version) == list(db.at(version).scan()) == [(b"k", b"1"), (b"other", b"1")]


def test_versions_and_times(open_small: OpenSmall) -> None:
    db = open_small()
    first = db.put(b"k", b"1")
    between = db.time_of(first)
    assert between is not None
    db.put(b"k", b"2")
    db.compact(db.put(b"k", b"3"))
    with pytest.raises(logdb.VersionTrimmed, match="compacted away"):
        pin(Path(db.path), version=first)
    with pytest.raises(logdb.VersionTrimmed):
        pin(Path(db.path), time_ns=int(between.timestamp() * 1e9) + 1_000)
    with pytest.raises(logdb.FutureVersion, match="does not exist yet"):
        pin(Path(db.path), version=db.version + 1)
    with pytest.raises(logdb.FutureVersion):
        pin(Path(db.path), time_ns=time.time_ns() + 10**12)
    with pytest.raises(ValueError, match="not both"):
        pin(Path(db.path), version=1, time_ns=1)
    with pin(Path(db.path), time_ns=time.time_ns()) as plan:
        assert (plan.version, plan.floor) == (db.version, db.oldest_version)
        assert not list(Path(plan.folder).parent.glob("*.tmp"))
    assert not (Path(db.path) / "exports").exists()


def test_directories_without_a_database(tmp_path: Path) -> None:
    with pytest.raises(logdb.NotADatabase, match="does not exist"):
        pin(tmp_path / "nothing")
    with pytest.raises(logdb.NotADatabase, match=r"plan\.json"):
        load(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_plans_of_ended_processes_are_removed(open_small: OpenSmall) -> None:
    db = open_small()
    db.put(b"k", b"v")
    path = Path(db.path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = process_owner(child.pid)
    theirs, mine = pin(path, owner=owner), pin(path)
    reused = pin(path, owner=LeaseOwner(owner.host, os.getpid(), owner.started + 1))
    assert not Path(reused.folder).exists() or sweep(path) == 1
    assert Path(theirs.folder).exists()
    child.communicate(b"\n")
    assert sweep(path) == 1
    assert not Path(theirs.folder).exists()
    assert histories.rows(snapshot_plan(mine)) == [(b"k", b"v")]
    mine.close()
    mine.close()


def test_a_database_opens_with_a_plan_in_its_directory(open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(3), 50)
    expected = list(db.scan())
    with histories.planned(db.path) as plan:
        assert verify(db.path).damage == []
        db.close()
        assert verify(db.path).damage == []
        with logdb.open(db.path) as again:
            assert list(again.scan()) == expected
        assert histories.rows(plan) == expected


def test_a_plan_of_the_newest_version_is_made_again_if_a_compaction_overtakes_it(
    open_small: OpenSmall, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = open_small()
    db.put(b"k", b"1")
    files, first_time = planning.files, [True]

    def overtaken(host: Any, first: int, end: int) -> list[planning.PlannedFile]:
        *others, last = files(host, first, end)

        def put(link: Path) -> None:
            last.put(link)
            if first_time.pop():
                db.put(b"k", b"2")
                db.compact()

        return [*others, last._replace(put=put) if first_time else last]

    monkeypatch.setattr(planning, "files", overtaken)
    with histories.planned(db.path) as plan:
        assert not first_time
        assert plan.version == db.version
        assert histories.rows(plan) == [(b"k", b"2")]


def test_planning_while_another_process_writes_and_compacts(tmp_path: Path) -> None:
    """Each snapshot is consistent: a transaction writes the same number under all keys."""
    path = tmp_path / "db"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark_export.busy_writer", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        seen, trimmed = set(), 0
        while trimmed < 3:
            with histories.planned(path) as plan:
                found = histories.rows(plan)
                assert len(found) == 40
                assert len({value for _, value in found}) == 1
                seen.add(found[0][1])
                trimmed = max(trimmed, plan.parts[0].first > 1 and len(seen))
        writer.stdin.close()
        assert writer.wait() == 0
