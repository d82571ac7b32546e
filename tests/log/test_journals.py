"""The journals of a node on real files: effects of cores reach the disk, and records survive any crash."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from logdb.cores.effects import (
    Create,
    Drop,
    JournalRange,
    Persist,
    Persisted,
    ProtocolViolation,
    Send,
    SendRanges,
    SendStored,
    Trim,
    Unreadable,
)
from logdb.errors import Corruption
from logdb.log.contract import LogFailed, LogRecord
from logdb.log.segments import segment
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES
from logdb.node.journals import MIN_ALLOCATION_BYTES, Journals
from tests.harness.faulty_disk import Fault
from tests.harness.forks import NOBODY, become_unprivileged, in_child, refused
from tests.log.faulty_tree import CrashedTree, FaultyTree, write_tree

IDENTITY = bytes(range(16))
Fresh = Callable[[], Path]


class Packet(NamedTuple):
    """A message that contains records."""

    title: str
    records: object = ()


def opened(path: Path, disk: FaultyTree | None = None) -> Journals:
    journals = Journals(path, IDENTITY, segment_bytes=300, disk=disk or FaultyTree(path))
    journals.check_invariants()
    return journals


def filled(path: Path) -> Journals:
    """ "meta" with records 1 to 6, of tags 1 and 2 in turn."""
    journals = opened(path)
    journals.perform(Create("meta", 1), 100)
    journals.perform(Persist("meta", 1, [(1 + at % 2, b"%d" % at) for at in range(6)]), 100)
    journals.sync()
    return journals


# ---- effects of cores


def test_persisted_records_are_found_again(fresh: Fresh) -> None:
    path = fresh()
    journals = opened(path)
    journals.perform(Create("meta", 1), 5)
    journals.perform(Persist("meta", 1, [(7, b"a"), (8, b"b")]), 5)
    journals.perform(Create("segment-3", 40), 6)
    journals.perform(Persist("segment-3", 40, [(9, b"c")]), 6)
    assert sorted(journals.sync()) == [Persisted("meta", 3), Persisted("segment-3", 41)]
    assert journals.sync() == []
    journals.close()
    found = opened(path).found()
    assert {name: (first, end) for name, (first, end, _) in found.items()} == {"meta": (1, 3), "segment-3": (40, 41)}
    assert list(found["meta"].records) == [LogRecord(1, 5, 7, b"a"), LogRecord(2, 5, 8, b"b")]
    assert found["segment-3"].records[0] == LogRecord(40, 6, 9, b"c")


def test_an_empty_journal_continues_at_its_first_lsn(fresh: Fresh) -> None:
    path = fresh()
    journals = opened(path)
    journals.perform(Create("segment-3", 40), 5)
    journals.sync()
    journals.close()
    again = opened(path)
    assert again.found()["segment-3"][:2] == (40, 40)
    assert list(again.found()["segment-3"].records) == []
    again.perform(Persist("segment-3", 40, [(9, b"c")]), 6)
    assert again.sync() == [Persisted("segment-3", 41)]


def test_a_slice_is_read_without_earlier_records(fresh: Fresh) -> None:
    records = filled(fresh()).found()["meta"].records
    assert len(records) == 6
    assert [record.lsn for record in records[3:]] == [4, 5, 6]
    assert records[3:][1].payload == b"4"
    assert list(records[6:]) == []
    with pytest.raises(ValueError):
        records[::2]


def test_times_never_decrease_in_a_journal(fresh: Fresh) -> None:
    path = fresh()
    filled(path).close()
    again = opened(path)
    again.perform(Persist("meta", 7, [(1, b"x")]), 50)
    again.sync()
    assert again.found()["meta"].records[6].time == 100


def test_impossible_effects_are_rejected(fresh: Fresh) -> None:
    journals = filled(fresh())
    for effect in (Create("meta", 1), Persist("meta", 8, [(1, b"x")]), Persist("other", 1, [(1, b"x")]), Drop("other")):
        with pytest.raises(ProtocolViolation):
            journals.perform(effect, 100)
    with pytest.raises(ProtocolViolation):
        journals.fetch(SendStored("a", Packet("p"), "meta", 5, 8))


def test_trimming_removes_whole_files(fresh: Fresh) -> None:
    path = fresh()
    journals = filled(path)
    for number in range(7, 100):
        journals.perform(Persist("meta", number, [(1, bytes(20))]), 100)
    journals.sync()
    files = len(list((path / "meta.1@1").iterdir()))
    journals.perform(Trim("meta", 90), 100)
    journals.sync()
    assert len(list((path / "meta.1@1").iterdir())) < files / 2
    journals.close()
    assert 80 < opened(path).found()["meta"].first <= 90


def test_a_dropped_journal_can_be_created_again(fresh: Fresh) -> None:
    path = fresh()
    journals = filled(path)
    journals.perform(Persist("meta", 7, [(1, b"x")]), 100)
    journals.perform(Drop("meta"), 100)
    journals.perform(Create("meta", 1), 100)
    journals.perform(Persist("meta", 1, [(1, b"new")]), 100)
    assert journals.sync() == [Persisted("meta", 2)]
    assert [folder.name for folder in path.iterdir()] == ["meta.2@1"]
    journals.close()
    again = opened(path)
    assert [record.payload for record in again.found()["meta"].records] == [b"new"]
    again.wipe()
    assert list(path.iterdir()) == []


def test_a_flush_does_not_report_journals_dropped_meanwhile(fresh: Fresh) -> None:
    journals = filled(fresh())
    journals.perform(Persist("meta", 7, [(1, b"x")]), 100)
    taken = journals.take()
    journals.perform(Drop("meta"), 100)
    journals.perform(Create("meta", 1), 100)
    journals.flush(taken)
    assert journals.complete(taken) == []


def test_records_written_during_a_flush_wait_for_the_next(fresh: Fresh) -> None:
    journals = filled(fresh())
    journals.perform(Persist("meta", 7, [(1, b"x")]), 100)
    taken = journals.take()
    journals.perform(Persist("meta", 8, [(1, b"y")]), 100)
    journals.flush(taken)
    assert journals.complete(taken) == [Persisted("meta", 8)]
    assert journals.sync() == [Persisted("meta", 9)]


def test_a_small_journal_uses_little_space(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "ALLOCATE_BYTES", 16 << 20)
    path = fresh()
    journals = Journals(path, IDENTITY)  # on a real disk
    journals.perform(Create("meta", 1), 0)
    file = path / "meta.1@1" / f"{1:020d}.log"
    assert file.stat().st_size < 2 * MIN_ALLOCATION_BYTES
    for number in range(1, 40):
        journals.perform(Persist("meta", number, [(1, bytes(1 << 20))]), 0)
    assert file.stat().st_size <= 64 << 20


# ---- reading for messages


def test_stored_records_go_into_a_message(fresh: Fresh) -> None:
    journals = filled(fresh())
    sent = journals.fetch(SendStored("a", Packet("p"), "meta", 2, 4))
    assert sent == Send("a", Packet("p", [(2, b"1"), (1, b"2")]))


def test_ranges_get_their_numbers_and_times_and_are_filtered_by_tag(fresh: Fresh) -> None:
    journals = filled(fresh())
    stretches = [JournalRange("meta", 4, 7, 1000, 8), JournalRange("meta", 1, 2, 2000, 9)]
    sent = journals.fetch(SendRanges("a", Packet("p"), stretches, frozenset({1})))
    assert sent == Send("a", Packet("p", [LogRecord(1001, 8, 1, b"4"), LogRecord(2000, 9, 1, b"0")]))


def test_damage_in_a_record_that_is_left_out_is_reported(fresh: Fresh) -> None:
    """The damage may be in its tag."""
    path = fresh()
    journals = filled(path)
    file = path / "meta.1@1" / f"{1:020d}.log"
    content = bytearray(file.read_bytes())
    content[STORE_HEADER_BYTES + FRAME_BYTES - 1] ^= 3  # the tag of the first record: 1 becomes 2
    file.write_bytes(content)
    effect = SendRanges("a", Packet("p"), [JournalRange("meta", 1, 4, 1, 8)], frozenset({1}))
    answer = journals.fetch(effect)
    assert isinstance(answer, Unreadable)
    assert answer.effect == effect


def test_damaged_records_are_reported_and_not_sent(fresh: Fresh) -> None:
    path = fresh()
    journals = filled(path)
    file = path / "meta.1@1" / f"{1:020d}.log"
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    effect = SendStored("a", Packet("p"), "meta", 1, 7)
    answer = journals.fetch(effect)
    assert isinstance(answer, Unreadable)
    assert answer.effect == effect
    assert "does not match its checksum" in answer.reason


def test_a_node_with_damaged_journals_does_not_start(fresh: Fresh) -> None:
    path = fresh()
    filled(path).close()
    file = path / "meta.1@1" / f"{1:020d}.log"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(Corruption):
        opened(path)


def test_the_journals_of_another_node_are_rejected(fresh: Fresh) -> None:
    path = fresh()
    filled(path).close()
    with pytest.raises(Corruption):
        Journals(path, bytes(16))


# ---- a disk that fails


def test_a_journal_that_cannot_be_listed_is_not_called_damaged() -> None:
    """The advice against damage is to remove the directory."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        path = Path(directory) / "journals"
        filled(path).close()
        folder = path / "meta.1@1"
        if os.geteuid() == 0:
            for file in (path, folder, *folder.iterdir()):
                os.chown(file, NOBODY, NOBODY)
        folder.chmod(0o311)

        def body() -> list[str]:
            become_unprivileged()
            return refused(lambda: opened(path))

        why = "Permission denied; have its owner allow it, or run as its owner"
        assert in_child(body) == [f"LogFailed: {folder}: {why}"]
        folder.chmod(0o755)
        assert len(opened(path).found()["meta"].records) == 6


def test_a_flush_waits_for_space_on_a_full_disk(fresh: Fresh) -> None:
    path = fresh()
    full = OSError(errno.ENOSPC, "full")
    disk = FaultyTree(path)
    journals = opened(path, disk)
    journals.perform(Create("meta", 1), 0)
    journals.perform(Persist("meta", 1, [(1, b"a")]), 0)
    journals.sync()
    disk.fault = Fault(frozenset({"allocate"}), 0, full, forever=True)
    journals.perform(Persist("meta", 2, [(1, bytes(1000))]), 0)
    journals.perform(Persist("meta", 3, [(1, b"c")]), 0)
    journals.perform(Create("segment-1", 1), 0)
    journals.perform(Persist("segment-1", 1, [(1, b"d")]), 0)
    assert journals.sync() == []
    assert journals.refusal is not None
    journals.check_invariants()
    disk.fault = None
    assert sorted(journals.sync()) == [Persisted("meta", 4), Persisted("segment-1", 2)]
    assert journals.refusal is None
    journals.close()
    assert [record.payload for record in opened(path).found()["meta"].records] == [b"a", bytes(1000), b"c"]


def test_a_failed_sync_ends_the_journals(fresh: Fresh) -> None:
    path = fresh()
    disk = FaultyTree(path)
    journals = opened(path, disk)
    journals.perform(Create("meta", 1), 0)
    journals.perform(Persist("meta", 1, [(1, b"a")]), 0)
    disk.fault = Fault(frozenset({"sync"}), 0, OSError(errno.EIO, "broken"))
    with pytest.raises(LogFailed):
        journals.sync()
    with pytest.raises(LogFailed):
        journals.perform(Persist("meta", 2, [(1, b"b")]), 0)


# ---- power failures


@dataclass
class Life:
    """A journal from its creation to its drop. `number` distinguishes it from others of its name."""

    number: int
    first: int
    end: int
    durable: int
    trimmed: int

    def payload(self, name: str, number: int) -> bytes:
        return b"%s/%d/%d" % (name.encode(), self.number, number) + bytes(number * 7 % 23)


class Script:
    """A workload. `marks`: the number of disk operations and the state of all journals after each step."""

    def __init__(self, path: Path) -> None:
        self.disk = FaultyTree(path)
        self.journals = opened(path, self.disk)
        self.lives: dict[str, Life] = {}
        self.all_lives: dict[int, Life] = {}
        self.marks: list[tuple[int, dict[str, Life]]] = [(0, {})]

    def _mark(self) -> None:
        self.marks.append((self.disk.position(), deepcopy(self.lives)))

    def create(self, name: str, first: int) -> None:
        self.journals.perform(Create(name, first), 0)
        life = self.lives[name] = Life(len(self.all_lives), first, first, first, first)
        self.all_lives[life.number] = life
        self._mark()

    def persist(self, name: str, count: int) -> None:
        life = self.lives[name]
        records = [(1, life.payload(name, number)) for number in range(life.end, life.end + count)]
        self.journals.perform(Persist(name, life.end, records), 0)
        life.end += count
        self._mark()

    def sync(self) -> None:
        for name, end in self.journals.sync():
            self.lives[name].durable = end
        self._mark()

    def trim(self, name: str, before: int) -> None:
        self.journals.perform(Trim(name, before), 0)
        self.lives[name].trimmed = before
        self._mark()

    def drop(self, name: str) -> None:
        self.journals.perform(Drop(name), 0)
        del self.lives[name]
        self._mark()


def worked(path: Path) -> Script:
    script = Script(path)
    script.create("meta", 1)
    script.create("seg", 500)
    for _ in range(3):
        script.persist("meta", 2)
        script.persist("seg", 5)
        script.persist("meta", 1)
        script.sync()
    script.trim("seg", 510)
    script.persist("seg", 3)
    script.sync()
    script.drop("meta")
    script.persist("seg", 1)
    script.create("meta", 4)
    script.persist("meta", 2)
    script.sync()
    script.drop("seg")
    script.sync()
    script.persist("meta", 9)
    script.sync()
    return script


def assert_survived(journals: Journals, script: Script, before: dict[str, Life], after: dict[str, Life]) -> None:
    """Durable records that were not trimmed are present; all present records were written."""
    found = journals.found()
    for name, life in before.items():
        if name in after and after[name].number == life.number:
            assert name in found
            first, end, records = found[name]
            assert first <= max(life.trimmed, after[name].trimmed)
            assert end >= life.durable
            assert end == life.first or records[end - first - 1].payload == life.payload(name, end - 1)
    for name, (first, end, records) in found.items():
        lives = [life for life in script.all_lives.values() if life.first <= first and life.end >= end]
        payloads = [record.payload for record in records]
        assert any(payloads == [life.payload(name, number) for number in range(first, end)] for life in lives)


def kill(journals: Journals) -> None:
    """End as after a kill: no file is closed or synced."""
    for kept in journals._kept.values():
        assert kept.store is not None
        kept.store.abandon()


def assert_continues(journals: Journals, path: Path) -> None:
    ends = {}
    for name, (_, end, _) in journals.found().items():
        journals.perform(Persist(name, end, [(1, b"more")]), 0)
        ends[name] = end + 1
    assert dict(journals.sync()) == ends
    kill(journals)
    again = opened(path)
    assert {name: journal.end for name, journal in again.found().items()} == ends
    kill(again)


def test_persisted_records_survive_any_power_failure(fresh: Fresh) -> None:
    script = worked(fresh())
    rng = random.Random(7)
    for position in range(len(script.disk.operations) + 1):
        before = [lives for at, lives in script.marks if at <= position][-1]
        after = [lives for at, lives in script.marks if at > position][:1] or [before]
        for tree in CrashedTree(script.disk.operations[:position]).images(rng, 2):
            path = write_tree(tree, fresh())
            journals = opened(path)
            assert_survived(journals, script, before, after[0])
            assert_continues(journals, path)
