"""The tier has all that is trimmed here: when the store fails, when the process is killed, when copies write."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from random import Random

import pytest

import logdb
from logdb.backups.parts import Part
from logdb.backups.places import DirectoryPlace, Place
from logdb.embedded.cold import tier, uploader
from logdb.log.local.local_log import MIN_ALLOCATION_BYTES
from tests.embedded.cold.places import Killed, down, failing
from tests.embedded.cold.test_history import SMALL, States, check, check_feed, conflict, write
from tests.harness.opening import host_of, open_database


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks at the beginning and then not again, so that tests decide when segments are copied."""
    monkeypatch.setattr(uploader, "LOOK_S", 1e6)
    monkeypatch.setattr(uploader, "MAX_PAUSE_S", 1e6)


def filled(tmp_path: Path, states: States, seed: int = 1, compactions: int = 2) -> logdb.Database:
    db = open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "tier")
    random = Random(seed)
    for _ in range(compactions):
        write(db, random, states, 12)
        db.compact()
    return db


def copy_now(db: logdb.Database) -> None:
    cold = host_of(db).cold
    assert cold is not None
    assert cold.uploader is not None
    cold.uploader.copy()


def test_a_store_that_is_down_stops_trimming_and_not_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, states = failing(monkeypatch, tmp_path / "tier"), States()
    with filled(tmp_path, states) as db:
        place.before = down
        write(db, Random(2), states, 40)
        base = host_of(db).log.oldest()
        done = db.compact()
        write(db, Random(3), states, 5)
        assert host_of(db).log.oldest() == base == done.oldest_after
        stats = db.stats()
        assert stats.cold_failures == 1
        newest = db.version
        assert dict(db.at(newest).scan()) == states[newest]
        place.before = lambda kind, name: None
        db.compact()
        assert host_of(db).log.oldest() > base
        assert db.stats().cold_failures == 0
        check(db, states, Random(4))
        check_feed(db, states)


def test_commits_that_aborted_before_several_checkpoints_stay_aborted(tmp_path: Path) -> None:
    """Regression: a segment that is copied behind the floor got its aborted commits from the newest decision record
    first, and they were searched as if in order."""
    states = States()
    with open_database(tmp_path / "db", cold=tmp_path / "tier") as db:
        for number in range(12):
            db.put(b"k%02d" % number, b"%d" % number)
            conflict(db)
            states[db.version] = dict(db.scan())
            if number % 3 == 2:
                db.checkpoint()
        db.compact()
        found = [change for since in states for change in db.watch(since=since, timeout=0)]
        assert [change for change in found if b"lost" in change.changes] == []


def test_the_thread_trims_what_a_compaction_could_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, states = failing(monkeypatch, tmp_path / "tier"), States()
    monkeypatch.setattr(uploader, "LOOK_S", 0.01)
    with filled(tmp_path, states) as db:
        place.before = down
        write(db, Random(2), states, 10)
        base = host_of(db).log.oldest()
        floor = db.compact().floor
        place.before = lambda kind, name: None
        while host_of(db).log.oldest() == base:
            db.put(b"k00", b"again")
        assert host_of(db).log.oldest() >= floor


def test_a_kill_at_any_operation_on_the_store_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = failing(monkeypatch, tmp_path / "counted" / "tier")
    filled(tmp_path / "counted", States()).close()
    kinds = [(kind, name.rpartition(".")[2]) for kind, name in place.operations]
    last_of_each = {kind: at for at, kind in enumerate(kinds)}.values()
    for at in sorted({*last_of_each, kinds.index(("write", "log")) + 1}):
        root, states = tmp_path / f"killed-{at}", States()
        place = failing(monkeypatch, root / "tier")

        def kill(kind: str, name: str, place: object = place, at: int = at) -> None:
            if len(place.operations) > at:  # type: ignore[attr-defined]
                if kind == "write":  # half of an object that a store without renames may show
                    (root / "tier").mkdir(exist_ok=True)
                    (root / "tier" / f"{name}.tmp").write_bytes(b"half")
                raise Killed

        place.before = kill
        db = None
        with contextlib.suppress(Killed):
            db = filled(root, states)
        place.before = lambda kind, name: None
        shutil.copytree(root / "db", root / "left")  # what a kill leaves: nothing is flushed by closing
        if db is not None:
            db.close()
        (root / "left" / "LOCK").unlink(missing_ok=True)
        with open_database(root / "left", segment_bytes=SMALL, cold=root / "tier") as again:
            again.compact()
            write(again, Random(8), states, 5)
            again.compact()
            known = {version: state for version, state in states.items() if version <= again.version}
            check(again, known, Random(at), 4)
            check_feed(again, known)
        assert logdb.verify_backup(root / "tier").damage == []


def test_a_damaged_object_is_named_and_other_versions_are_read(tmp_path: Path) -> None:
    states = States()
    with filled(tmp_path, states, compactions=3) as db:
        first, second = sorted(states)[5], host_of(db).snapshots.oldest() - 1
        second = max(version for version in states if version < second)
        damaged = sorted((tmp_path / "tier").glob("*.log"))[0]
        data = bytearray(damaged.read_bytes())
        data[len(data) // 2] ^= 1
        damaged.write_bytes(data)
        with pytest.raises(logdb.Corruption) as caught:
            dict(db.at(first).scan())
        assert caught.value.path == str(damaged)
        assert dict(db.at(second).scan()) == states[second]
        assert [damage.path for damage in logdb.verify_backup(tmp_path / "tier").damage] == [str(damaged)]
        damaged.write_bytes(data[:-1])
        with pytest.raises(logdb.Corruption, match="bytes instead of"):
            db.at(first).get(b"k00")
        damaged.unlink()
        with pytest.raises(logdb.Corruption, match="the file is missing"):
            db.at(first).get(b"k00")
    aborted = damaged.with_suffix(".aborted")
    aborted.write_bytes(b"12345678")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        with pytest.raises(logdb.Corruption, match="does not match its checksum") as caught:
            db.at(first).get(b"k00")
        assert caught.value.path == str(aborted)


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    filled(tmp_path, States()).close()
    manifest = max((tmp_path / "tier").glob("cold-*.json"))
    fields = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**fields, "source": "elsewhere"}))
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        with pytest.raises(logdb.Corruption) as caught:
            _ = db.oldest_version
        assert caught.value.path == str(manifest)
        assert db.get(b"k00") == dict(db.scan()).get(b"k00")
    with pytest.raises(logdb.Corruption):
        logdb.restore(tmp_path / "tier", tmp_path / "restored")


def test_a_tier_belongs_to_one_database(tmp_path: Path) -> None:
    filled(tmp_path, States()).close()
    with pytest.raises(logdb.ColdTierError, match="cold tier of another database"):
        logdb.open(tmp_path / "other", cold=tmp_path / "tier")
    with logdb.open(tmp_path / "other") as db:
        assert db.stats().cold_bytes is None
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(logdb.ColdTierError, match=r"not empty \(it has 'letter.txt'\)"):
        logdb.open(tmp_path / "other", cold=tmp_path / "full")
    with pytest.raises(logdb.ColdTierError, match="in the directory of the database"):
        logdb.open(tmp_path / "other", cold=tmp_path / "other" / "tier")
    with pytest.raises(logdb.BackupError, match="is a cold tier"), logdb.open(tmp_path / "other") as db:
        logdb.backup(db, tmp_path / "tier")
    with pytest.raises(ValueError, match="in memory"):
        logdb.open(":memory:", cold=tmp_path / "tier")
    with pytest.raises(logdb.ReadOnly):
        logdb.open(tmp_path / "other", cold=tmp_path / "new", read_only=True)


def test_of_two_copies_of_a_database_one_may_write(tmp_path: Path) -> None:
    states = States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        write(db, Random(2), states, 30)
        db.compact()
        with open_database(tmp_path / "copy", segment_bytes=SMALL) as copy:
            write(copy, Random(3), {}, 30)
            base = host_of(copy).log.oldest()
            copy.compact()
            assert host_of(copy).log.oldest() == base
            with pytest.raises(logdb.ColdTierError, match="another copy of this database"):
                copy_now(copy)
        write(db, Random(4), states, 30)
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(5))


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_that_may_not_write_reads_its_own_old_versions(tmp_path: Path, seed: int) -> None:
    """The compactions of the other one are in the manifest, at positions where the log of this one has other records,
    or none."""
    states = States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        for number in range(4):
            write(db, Random(number), {}, 5 + 5 * number)
            db.compact()
    with open_database(tmp_path / "copy", segment_bytes=SMALL) as copy:
        for number in range(3):
            write(copy, Random(10 * seed + number), states, 15)
            copy.compact()
            check(copy, states, Random(seed), 20)
        check_feed(copy, states)
    with open_database(tmp_path / "copy", segment_bytes=SMALL, read_only=True) as copy:
        check(copy, states, Random(seed), 20)


def test_a_copy_whose_newest_segment_is_in_the_tier_may_not_write(tmp_path: Path) -> None:
    """The other one has ended that segment with the same records; this one appends more to it."""
    states = States()
    with open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "tier") as db:
        db.put(b"k00", b"first")
        states[db.version] = {b"k00": b"first"}
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        db.compact()
    with open_database(tmp_path / "copy", segment_bytes=SMALL) as copy:
        with pytest.raises(logdb.ColdTierError, match="another copy of this database"):
            copy_now(copy)
        write(copy, Random(1), states, 20)
        for _ in range(2):
            copy.compact()
            write(copy, Random(2), states, 20)
        assert host_of(copy).log.oldest() == 1
        check(copy, states, Random(3), 20)


def test_a_segment_is_copied_from_the_opened_directory(tmp_path: Path) -> None:
    """A copy of the directory, which has written other records since, is at its path."""
    states, others = States(), States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    (tmp_path / "copy" / "COLD").unlink()
    with open_database(tmp_path / "copy", segment_bytes=SMALL) as copy:
        write(copy, Random(8), others, 60)
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        write(db, Random(9), states, 60)
        (tmp_path / "db").rename(tmp_path / "moved")
        (tmp_path / "copy").rename(tmp_path / "db")
        copy_now(db)
    with open_database(tmp_path / "moved", segment_bytes=SMALL) as db:
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(4), 20)
    assert logdb.verify_backup(tmp_path / "tier").damage == []


def test_a_segment_that_was_not_sealed_keeps_those_behind_it_back(tmp_path: Path) -> None:
    """The directory was at another path for a moment: nothing is sealed in one that was moved."""
    states = States()
    with filled(tmp_path, states) as db:
        commits, path = host_of(db).commits, tmp_path / "db"
        for _ in range(3):
            version, _ = commits.submit({b"k": bytes(MIN_ALLOCATION_BYTES // 2)})
        path.rename(tmp_path / "moved")
        commits.acknowledge(version)
        (tmp_path / "moved").rename(path)
        states[db.version] = dict(db.scan())
        for _ in range(3):
            db.put(b"k", bytes(MIN_ALLOCATION_BYTES // 2))
        copy_now(db)
        db.compact()
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        db.compact()
        check(db, states, Random(4), 20)
    assert logdb.verify_backup(tmp_path / "tier").damage == []


def test_a_manifest_that_the_store_writes_late_replaces_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, states, late = failing(monkeypatch, tmp_path / "tier"), States(), []

    def time_out(kind: str, name: str) -> None:
        if kind == "write" and name.endswith(".json"):
            late.append(place.writing)
            raise logdb.Unavailable("no answer")

    with filled(tmp_path, states) as db:
        place.before = time_out
        write(db, Random(2), states, 20)
        db.compact()
        place.before = lambda kind, name: None
        write(db, Random(3), states, 20)
        db.compact()
        place.write(*late[0])
        check(db, states, Random(4))
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        write(db, Random(5), states, 20)
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(6))
    assert logdb.verify_backup(tmp_path / "tier").damage == []


def test_a_slow_reader_keeps_the_newest_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = States()
    with filled(tmp_path, states) as db:
        cold = host_of(db).cold
        assert cold is not None
        write(db, Random(2), states, 30)
        read = tier.read_manifest

        def slow(place: Place) -> tier.Manifest | None:
            found = read(place)
            monkeypatch.setattr(tier, "read_manifest", read)
            copy_now(db)
            return found

        monkeypatch.setattr(tier, "read_manifest", slow)
        before = cold.tier.known
        loaded = cold.tier.load()
        assert before != loaded == cold.tier.known == read(cold.tier.place)


def test_of_two_databases_that_begin_a_tier_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, states, other = failing(monkeypatch, tmp_path / "tier"), States(), []

    def meanwhile(kind: str, name: str) -> None:
        if kind == "write":
            place.before = lambda kind, name: None
            other.append(filled(tmp_path, states))

    place.before = meanwhile
    with pytest.raises(logdb.ColdTierError, match=r"the cold tier of another database .* use another place"):
        open_database(tmp_path / "second", cold=tmp_path / "tier")
    with other[0] as db:
        check(db, states, Random(1))
        write(db, Random(2), states, 20)
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(3))
    assert logdb.verify_backup(tmp_path / "tier").damage == []
    with logdb.open(tmp_path / "second") as db:
        assert db.stats().cold_bytes is None


@pytest.mark.parametrize("suffix", [".aborted", ".log", ".json"])
def test_of_two_copies_that_write_at_once_one_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    place, states = failing(monkeypatch, tmp_path / "tier"), States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with (
        open_database(tmp_path / "db", segment_bytes=SMALL) as db,
        open_database(tmp_path / "copy", segment_bytes=SMALL) as copy,
    ):
        write(copy, Random(3), {}, 30)

        def meanwhile(kind: str, name: str) -> None:
            if kind == "write" and name.endswith(suffix):
                place.before = lambda kind, name: None
                write(db, Random(2), states, 30)
                db.compact()

        place.before = meanwhile
        base = host_of(copy).log.oldest()
        copy.compact()
        assert host_of(copy).log.oldest() == base
        write(db, Random(4), states, 30)
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(5))
    assert logdb.verify_backup(tmp_path / "tier").damage == []
    assert len(list((tmp_path / "tier").glob("*.json"))) == 2


def test_a_copy_that_was_killed_before_it_withdrew_its_manifest(tmp_path: Path) -> None:
    states = States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        write(db, Random(1), states, 20)
        db.compact()
        place = DirectoryPlace(tmp_path / "tier")
        written = tier.read_manifest(place)
        assert written is not None
        copys = f"cold-{written.generation:010d}-00000000.json"
        place.write(copys, tier.encoded(written._replace(source="copy")))
        with open_database(tmp_path / "copy", segment_bytes=SMALL) as copy:
            with pytest.raises(logdb.ColdTierError, match=f"of one generation.*remove one of {copys} and"):
                copy_now(copy)
        write(db, Random(2), states, 20)
        db.compact()
        assert db.stats().cold_failures == 0
        check(db, states, Random(3))
    assert not (tmp_path / "tier" / copys).exists()


def test_a_manifest_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    states, folder = States(), tmp_path / "tier"
    filled(tmp_path, states).close()
    *_, newest = sorted(folder.glob("cold-*.json"))
    fields = json.loads(newest.read_text())
    del fields["crc32c"], fields["generation"]
    fields["format"] = 1
    for manifest in folder.glob("cold-*.json"):
        manifest.unlink()
    (folder / "cold.json").write_text(json.dumps({**fields, "crc32c": tier.checksum(fields)}))
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        check(db, states, Random(2))
        for seed in range(3):
            write(db, Random(seed), states, 20)
            db.compact()
        check(db, states, Random(4))
    assert not (folder / "cold.json").exists()


def test_a_tier_may_move_and_must_not_lack_records(tmp_path: Path) -> None:
    states = States()
    filled(tmp_path, states).close()
    shutil.copytree(tmp_path / "tier", tmp_path / "behind")
    shutil.move(tmp_path / "tier", tmp_path / "moved")
    with open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "moved") as db:
        write(db, Random(2), states, 30)
        db.compact()
        check(db, states, Random(3))
    with pytest.raises(logdb.ColdTierError, match="the records between are lost"):
        open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "behind")
    with open_database(tmp_path / "db", segment_bytes=SMALL) as db:
        check(db, states, Random(4))


def test_a_tier_that_was_removed_stops_trimming(tmp_path: Path) -> None:
    states = States()
    with filled(tmp_path, states) as db:
        shutil.rmtree(tmp_path / "tier")
        write(db, Random(2), states, 20)
        base = host_of(db).log.oldest()
        db.compact()
        assert host_of(db).log.oldest() == base
        with pytest.raises(logdb.ColdTierError, match="has lost its manifest"):
            copy_now(db)


def test_damage_of_the_log_does_not_get_into_the_tier(tmp_path: Path) -> None:
    states = States()
    with open_database(tmp_path / "db", segment_bytes=SMALL, cold=tmp_path / "tier") as db:
        write(db, Random(1), states, 40)
        segment = sorted((tmp_path / "db" / "log").glob("*.log"))[0]
        with segment.open("r+b") as file:
            file.seek(300)
            file.write(b"\xff\xfe\xfd")
        with pytest.raises(logdb.Corruption) as caught:
            copy_now(db)
        assert caught.value.path == str(segment)
        assert not list((tmp_path / "tier").glob("*.log"))


def test_a_database_is_restored_from_the_tier_alone(tmp_path: Path) -> None:
    states = States()
    with filled(tmp_path, states, compactions=3) as db:
        time_of = {version: db.time_of(version) for version in states}
    shutil.rmtree(tmp_path / "db")
    newest = logdb.restore(tmp_path / "tier", tmp_path / "restored").version
    assert newest >= sorted(states)[-1]
    with logdb.open(tmp_path / "restored", cold=tmp_path / "second") as db:
        assert dict(db.scan()) == states[max(states)]
        db.put(b"new", b"1")
        db.compact()
        assert dict(db.at(newest).scan()) == states[max(states)]
    for version in sorted(states)[::15]:
        target = tmp_path / f"at-{version}"
        logdb.restore(tmp_path / "tier", target, version=version)
        with logdb.open(target) as db:
            assert (db.version, dict(db.scan())) == (version, states[version])
            assert db.time_of(version) == time_of[version]
    early = sorted(states)[15]
    assert time_of[early] is not None
    assert logdb.restore(tmp_path / "tier", tmp_path / "by-time", time=time_of[early]).version == early
    assert [backup.version for backup in logdb.list_backups(tmp_path / "tier")] == [newest] * 3


def test_a_manifest_that_could_not_be_written_is_damaged(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path / "tier")

    def manifest(name: str) -> tier.Manifest:
        segment = tier.ColdSegment(Part(name, 1, 2, 0, 0, 100, 0), 0)
        return tier.Manifest(0, "00" * 16, "db", (segment,), (tier.Era(1, 0, 0),))

    place.write("cold.json", tier.encoded(manifest("1-00000000.log")))
    assert tier.read_manifest(place) == manifest("1-00000000.log")
    for content in (tier.encoded(manifest("../x.log")), tier.encoded(manifest("/x.log")), b"[" * 100_000):
        place.write("cold.json", content)
        with pytest.raises(logdb.Corruption, match="it is not the manifest of a cold tier"):
            tier.read_manifest(place)
