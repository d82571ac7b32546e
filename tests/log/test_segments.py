"""Segment files in ordinary life: rotation, preallocation, index, maps, trim, times."""

from __future__ import annotations

import errno
import threading
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logdb.errors import Corruption
from logdb.log import LocalLog
from logdb.log.contract import Trimmed
from logdb.log.segments import Disk
from logdb.log.segments import segment as segment_module
from logdb.log.segments.segment import Segment
from tests.harness.faulty_disk import FaultyDisk, contents
from tests.log.small_logs import TAG, append, assert_prefix, damage_of, opened, payload_of, records, segment_files

Fresh = Callable[[], Path]


def test_rotation(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    for _ in range(40):
        append(log, 4)
    log.store.check_invariants()
    files = segment_files(path)
    assert len(files) > 5
    segments = log.store.segments
    assert [file.stem for file in files] == [f"{each.base:020d}" for each in segments]
    for each in segments[:-1]:
        assert each.path.stat().st_size == each.length, "the unused blocks are given back"
        assert each.index_path.stat().st_size == 64 + 4 * len(each.offsets)
        assert each.length <= 400 + 256
    assert not segments[-1].index_path.exists()
    assert_prefix(log, 160, 160)
    log.close()


def test_a_batch_larger_than_a_segment_is_in_one_segment(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    append(log, 1)
    log.append([(TAG, b"x" * 300) for _ in range(20)])
    assert [each.end - each.base for each in log.store.segments] == [1, 20]
    append(log, 1)
    assert len(segment_files(path)) == 3
    log.close()


def test_preallocation(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends do not change the length of the file until it is closed and unused blocks are released."""
    monkeypatch.setattr(segment_module, "ALLOCATE_BYTES", 1 << 16)
    path = fresh()
    disk = FaultyDisk()
    log = opened(path, disk=disk, segment_bytes=1 << 20)
    (file,) = segment_files(path)
    size = file.stat().st_size
    assert size >= 1 << 16
    before = disk.count("allocate"), disk.count("truncate")
    for _ in range(100):
        append(log, 3)
    assert (disk.count("allocate"), disk.count("truncate")) == before
    assert file.stat().st_size == size
    log.close()
    assert file.stat().st_size == log.store.segments[0].length < size
    log = opened(path, disk=disk, segment_bytes=1 << 20)
    append(log, 1)
    assert file.stat().st_size >= 1 << 16
    assert_prefix(log, 301, 301)
    log.close()


def test_the_index_avoids_reading_frames_and_is_rebuilt(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    for _ in range(5):
        append(log, 20)
    log.close()
    image = contents(path)
    walked: list[str] = []
    walk = Segment.walk

    def watched(self: Segment, end: int | None = None) -> None:
        before = self.end
        walk(self, end)
        if self.end > before:
            walked.append(self.path.stem)

    monkeypatch.setattr(Segment, "walk", watched)
    log = opened(path, disk=FaultyDisk())
    assert walked == []
    assert_prefix(log, 100, 100)
    log.close()
    for index in sorted(path.glob("*.idx")):
        for content in (None, b"", image[index.name][:70], image[index.name] + b"more", b"\0" * 80):
            if content is None:
                index.unlink()
            else:
                index.write_bytes(content)
            walked.clear()
            log = opened(path, disk=FaultyDisk())
            assert walked == [index.stem]
            assert [record.payload for record in records(log)] == [payload_of(gsn) for gsn in range(1, 101)]
            log.close()
            assert contents(path) == image, "rebuilt with the same bytes"


def test_an_index_of_another_segment(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    for _ in range(3):
        append(log, 20)
    log.close()
    image = contents(path)
    first, second, _ = sorted(path.glob("*.idx"))
    first.write_bytes(image[second.name])
    log = opened(path, writable=False, disk=FaultyDisk())
    assert [damage.path for damage in damage_of(log)] == [str(first)]
    assert len(records(log)) == 60
    log.close()
    opened(path, disk=FaultyDisk()).close()
    assert contents(path) == image


def test_a_segment_that_was_closed_and_extended(fresh: Fresh) -> None:
    """Its index covers a part of it; after a kill or another close, no record is missing."""
    path = fresh()
    for turn in range(1, 8):
        log = opened(path, disk=FaultyDisk(), segment_bytes=1 << 16)
        append(log, turn)
        last = log.durable
        log.close()
    assert last == 28
    log = opened(path, disk=FaultyDisk(), segment_bytes=1 << 16)
    append(log, 5)
    for writable in (False, True):  # the writer above is not closed, as after a kill
        other = opened(path, writable=writable, disk=FaultyDisk(), segment_bytes=1 << 16)
        assert_prefix(other, 33, 33)
        if not writable:
            other.close()
    other.close()
    assert len(segment_files(path)) == 1


def test_maps_stay_valid_while_the_file_grows(fresh: Fresh) -> None:
    """Readers and scans that started earlier continue while the file grows."""
    log = opened(fresh(), disk=FaultyDisk(), segment_bytes=1 << 16)
    append(log, 10)
    scan = log.scan(1, 11)
    got = [next(scan)]
    for turn in range(60):
        last = append(log, 3)[-1]
        assert log.read_record(last, 0).payload == payload_of(last)
        assert log.read_record(turn + 1, 0).payload == payload_of(turn + 1)
    got.extend(scan)
    assert [record.payload for record in got] == [payload_of(gsn) for gsn in range(1, 11)]
    assert_prefix(log, 190, 190)
    log.close()


def test_trim_removes_whole_files(fresh: Fresh) -> None:
    path = fresh()
    disk = FaultyDisk()
    log = opened(path, disk=disk)
    for _ in range(10):
        append(log, 12)
    bases = [each.base for each in log.store.segments]
    log.trim(bases[3] - 1)
    assert log.store.base == bases[2] == log.oldest_after_trim(bases[3] - 1)
    log.trim(bases[3])
    assert [int(file.stem) for file in segment_files(path)] == bases[3:]
    assert len(list(path.glob("*.idx"))) == len(bases) - 4
    log.trim(121)
    assert len(segment_files(path)) == 1, "the last stays"
    assert log.oldest_after_trim(1) == log.store.base
    append(log, 30)
    log.close()
    log = opened(path, disk=disk)
    assert log.oldest() == log.store.base == bases[-1]
    assert_prefix(log, 150, 150)
    with pytest.raises(Trimmed):
        log.read_record(1, 0)
    log.close()


def test_readers_while_the_log_is_trimmed(fresh: Fresh) -> None:
    """A scan returns the right records or raises Trimmed; a closed descriptor is never read."""
    log = opened(fresh(), disk=FaultyDisk())
    errors: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                try:
                    for record in log.scan(log.oldest(), log.durable + 1):
                        assert record.payload == payload_of(record.gsn)
                except Trimmed:
                    pass
        except BaseException as error:
            errors.append(error)

    append(log, 20)
    threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(25):
        append(log, 12)
        log.trim(log.durable - 5)
    done.set()
    for thread in threads:
        thread.join(60)
    assert errors == []
    log.close()


def test_damaged_times_are_detected(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    append(log, 30)
    assert [log.time_of(gsn) for gsn in (1, 30)] == [1000, 1000]
    append(log, 1)
    assert log.last_at_time(1000) == 30
    (offset, *_) = log.store.segments[0].offsets
    file = segment_files(path)[0]
    content = bytearray(file.read_bytes())
    content[offset + 16] ^= 1
    file.write_bytes(content)
    with pytest.raises(Corruption, match=file.name):
        log.time_of(1)
    with pytest.raises(Corruption, match=file.name):
        log.last_at_time(999)
    log.close()


def test_a_clock_that_goes_back_during_a_restart(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    for _ in range(10):
        append(log, 1)
    last = log.time_of(10)
    log.close()
    log = opened(path, disk=FaultyDisk())  # its clock begins at 1000 again
    append(log, 1)
    assert log.time_of(11) == last + 1
    log.close()


def test_the_files_of_a_range(fresh: Fresh) -> None:
    """`files`, by which readers split the work."""
    log = opened(fresh(), disk=FaultyDisk())
    for _ in range(5):
        append(log, 20)
    parts = log.store.files(15, 90)
    assert (parts[0][1], parts[-1][2]) == (15, 90)
    assert all(a[2] == b[1] for a, b in pairwise(parts))
    assert log.store.files(101, 200) == []
    log.close()


def test_unknown_files_are_ignored(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    append(log, 3)
    log.close()
    for name in ("notes.log", "00000000000000000002.log.bak", "00000000000000000001.tmp"):
        (path / name).write_bytes(b"not ours")
    log = opened(path, disk=FaultyDisk())
    append(log, 40)
    assert_prefix(log, 43, 43)
    log.close()
    assert (path / "notes.log").read_bytes() == b"not ours"


def test_a_file_truncated_during_the_mapping_is_mapped_again(tmp_path: Path) -> None:
    """The writer seals and truncates the segment after the call of `size`: mmap rejects the old length."""

    class TruncatingDisk(Disk):
        lies = 1

        def size(self, fd: int) -> int:
            known = super().size(fd)
            if self.lies and known > 1_000:
                self.lies -= 1
                return known + (1 << 20)
            return known

    log = LocalLog(tmp_path / "log", b"i" * 16, segment_bytes=1 << 20)
    log.append([(1, b"x" * 2_000)])
    log.close()
    disk = TruncatingDisk()
    disk.lies = 0
    log = LocalLog(tmp_path / "log", b"i" * 16, disk=disk)
    log.append([(1, b"y" * (32 << 20))])
    disk.lies = 1
    assert log.read_record(2, 0).payload == b"y" * (32 << 20)
    assert disk.lies == 0
    log.close()


def test_a_file_truncated_before_the_mapping_is_followed(tmp_path: Path) -> None:
    """The same for a follower: it reads up to the size that the file had."""

    class TruncatingDisk(Disk):
        lies = 0

        def size(self, fd: int) -> int:
            known = super().size(fd)
            if self.lies:
                self.lies -= 1
                return known + (1 << 20)
            return known

    log = LocalLog(tmp_path / "log", b"i" * 16, segment_bytes=1 << 20)
    log.append([(1, b"first")])
    disk = TruncatingDisk()
    follower = LocalLog(tmp_path / "log", b"i" * 16, writable=False, follow=True, disk=disk)
    log.append([(1, b"second")])
    disk.lies = 1
    assert follower.refresh() == 2
    assert disk.lies == 0
    assert follower.read_record(2, 0).payload == b"second"
    follower.close()
    log.close()


def test_a_record_that_is_left_out_is_not_copied(tmp_path: Path) -> None:
    """A mapping server does not read large values, and its storage server does not copy them."""
    size = 8 << 20
    log = LocalLog(tmp_path / "log", bytes(16))
    log.append([(1, b"a"), (2, bytes(size)), (1, b"b")])
    assert [record.payload for record in log.store.scan(1, 4, frozenset({1}))] == [b"a", b"b"]
    tracemalloc.start()
    try:
        list(log.store.scan(1, 4, frozenset({1})))
        left_out = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        list(log.store.scan(1, 4))
        copied = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        log.close()
    assert left_out < size // 4
    assert copied < 1.5 * size, "one copy, not one more for the checksum"


@pytest.mark.parametrize("failing", ["size", "map"])
def test_a_segment_that_cannot_be_opened_keeps_no_descriptor(tmp_path: Path, failing: str) -> None:
    class Failing(Disk):
        """A disk that notes its open descriptors, and one of whose methods fails."""

        def __init__(self) -> None:
            self.descriptors: set[int] = set()
            self.has_failed = False

        def open(self, path: Path, *, writable: bool) -> int:
            fd = super().open(path, writable=writable)
            self.descriptors.add(fd)
            return fd

        def close(self, fd: int) -> None:
            super().close(fd)
            self.descriptors.remove(fd)

        def fail(self, *_: Any, **__: Any) -> Any:
            self.has_failed = True
            raise OSError(errno.EMFILE, "Too many open files")

    LocalLog(tmp_path / "log", bytes(16)).close()
    (path,) = segment_files(tmp_path / "log")
    disk = Failing()
    setattr(disk, failing, disk.fail)
    with pytest.raises(OSError, match="Too many open files"):
        Segment.open(path, bytes(16), disk, writable=False)
    assert disk.has_failed
    assert not disk.descriptors


def test_a_large_record_is_written_without_a_copy(tmp_path: Path) -> None:
    payload = b"v" * (8 << 20)
    log = LocalLog(tmp_path / "log", b"i" * 16)
    around = [(TAG, b"before"), (TAG, payload), (TAG, b"after"), (TAG, payload)]
    tracemalloc.start()
    try:
        log.append(around)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    log.close()
    log = LocalLog(tmp_path / "log", b"i" * 16)
    assert [(record.tag, record.payload) for record in log.scan(1, 5)] == around
    log.close()
