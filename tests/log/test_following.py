"""A reader beside a writer sees exactly the durable records, across rotation, trim, close and restart of the writer."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.errors import Corruption, Unavailable
from logdb.log.contract import LogFailed, Trimmed
from tests.harness.faulty_disk import FaultyDisk, contents, materialize
from tests.log.small_logs import TAG, append, opened, payload_of, records, segment_files

Fresh = Callable[[], Path]


def assert_sees(path: Path, durable: int, first: int = 1) -> None:
    """A reader that opens the log now sees exactly the records from `first` to `durable`."""
    log = opened(path, writable=False, follow=True)
    assert log.tail() == durable
    assert [(r.gsn, r.payload) for r in records(log)] == [(g, payload_of(g)) for g in range(first, durable + 1)]
    log.close()


def test_a_follower_reads_exactly_the_durable_records(fresh: Fresh) -> None:
    """One reader follows all the time, others open at every operation of the writer's disk, also during a rotation."""
    path = fresh()
    seen: list[int] = []

    class Watched(FaultyDisk):
        def write(self, fd: int, data: bytes, offset: int) -> None:
            self.look()
            super().write(fd, data, offset)
            self.look()

        def sync(self, fd: int) -> None:
            self.look()
            super().sync(fd)
            self.look()

        def look(self) -> None:
            if follower is not None:
                assert_sees(path, writer.durable)
                assert follower.tail() == writer.durable
                assert [r.payload for r in records(follower)] == [payload_of(g) for g in range(1, writer.durable + 1)]
                seen.append(writer.durable)

    follower = None
    writer = opened(path, disk=Watched())
    follower = opened(path, writable=False, follow=True)
    for size in (1, 5, 30, 1, 12, 40, 2):
        append(writer, size)
        assert follower.tail() == writer.durable
    first = writer.end()
    for _ in range(20):  # ordered over several rotations, not synced
        writer.order([(TAG, payload_of(gsn)) for gsn in range(writer.end(), writer.end() + 3)])
    assert follower.tail() == first - 1
    assert_sees(path, first - 1)
    writer.wait_durable(writer.end() - 1)
    last = writer.durable
    assert follower.tail() == last
    assert len(segment_files(path)) > 4
    writer.close()
    follower.close()
    assert_sees(path, last)
    assert len(set(seen)) > 5


def test_a_restart_of_the_writer(fresh: Fresh) -> None:
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    append(writer, 10)
    follower = opened(path, writable=False, follow=True)
    for _ in range(3):
        writer.close()
        writer = opened(path, disk=FaultyDisk())
        assert follower.tail() == writer.durable
        append(writer, 30)
        append(writer, 1)
        assert follower.tail() == writer.durable
        assert len(records(follower)) == writer.durable
    writer.close()
    follower.close()


def test_a_trim_of_records_that_the_follower_has_not_read(fresh: Fresh) -> None:
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    append(writer, 3)
    follower = opened(path, writable=False, follow=True)
    subscription = follower.subscribe(1)
    assert subscription.poll(0) is not None
    for _ in range(8):
        append(writer, 20)
    writer.trim(100)
    oldest = writer.oldest_after_trim(writer.oldest())
    assert oldest > 60
    assert follower.tail() == writer.durable
    assert follower.oldest() == oldest
    assert [r.gsn for r in records(follower)] == list(range(oldest, writer.durable + 1))
    with pytest.raises(Trimmed) as raised:
        subscription.poll(0)
    assert (raised.value.gsn, raised.value.oldest) == (4, oldest)
    for gsn in (1, 4, oldest - 1):
        with pytest.raises(Trimmed):
            follower.read_record(gsn, 0)
    assert_sees(path, writer.durable, oldest)
    writer.close()
    follower.close()


def test_a_trim_of_files_that_the_follower_has_open(fresh: Fresh) -> None:
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    for _ in range(4):
        append(writer, 20)
    follower = opened(path, writable=False, follow=True)
    writer.trim(70)
    assert len(records(follower)) == 80, "the follower can still read the files that it has open"
    append(writer, 20)
    assert follower.tail() == 100
    assert len(records(follower)) == 100
    writer.close()
    follower.close()


def test_damage_is_not_mistaken_for_a_trim(fresh: Fresh) -> None:
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    append(writer, 2)
    follower = opened(path, writable=False, follow=True)
    append(writer, 4)
    file = segment_files(path)[0]
    content = bytearray(file.read_bytes())
    content[follower.store.segments[0].length + 26] ^= 1
    file.write_bytes(content)
    for _ in range(3):
        append(writer, 20)
    with pytest.raises(Corruption, match=file.name):
        follower.refresh()
    follower.close()
    writer.close()


def test_a_log_that_is_being_created(fresh: Fresh) -> None:
    """At every operation of the creation: the reader gets Unavailable, or sees the empty log."""
    disk = FaultyDisk()
    path = fresh()
    opened(path, disk=disk).close()
    outcomes: list[object] = []

    class Looking(FaultyDisk):
        def look(self) -> None:
            try:
                log = opened(looked_at, writable=False, follow=True)
            except (Unavailable, FileNotFoundError) as error:
                outcomes.append(type(error))
            else:
                outcomes.append(log.tail())
                log.close()

        def sync(self, fd: int) -> None:
            self.look()
            super().sync(fd)

        def sync_directory(self, path: Path) -> None:
            self.look()
            super().sync_directory(path)

        def allocate(self, fd: int, offset: int, length: int) -> None:
            self.look()
            super().allocate(fd, offset, length)

    looked_at = fresh()
    log = opened(looked_at, disk=Looking())
    append(log, 1)
    assert outcomes[0] is FileNotFoundError
    assert Unavailable in outcomes
    assert outcomes[-1] == 0
    log.close()


def test_refreshing_from_many_threads(fresh: Fresh) -> None:
    """SEG-2 in a follower: `durable` never decreases, and all records before it can be read."""
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    append(writer, 1)
    follower = opened(path, writable=False, follow=True)
    errors: list[BaseException] = []
    done = threading.Event()

    def follow() -> None:
        last = 0
        try:
            while last < 600:
                now = follower.refresh()
                assert now >= last
                assert follower.read_record(now, 0).payload == payload_of(now)
                last = now
                if done.is_set():
                    assert now >= 600 or follower.refresh() >= 600
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=follow, daemon=True) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        while writer.durable < 600:
            append(writer, 1 + writer.durable % 7)
        done.set()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
    follower.close()
    assert follower.refresh() >= 600
    writer.close()


def test_closing_ends_waiting_followers(fresh: Fresh) -> None:
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    follower = opened(path, writable=False, follow=True)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            follower.read_record(1, 0)
        except LogFailed as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    follower.close()
    thread.join(60)
    assert [str(error) for error in ended] == ["the log is closed"]
    writer.close()


def test_another_process(fresh: Fresh) -> None:
    """Both ways: a reader process waits for records that this one appends, across rotations."""
    path = fresh()
    writer = opened(path, disk=FaultyDisk())
    append(writer, 1)
    program = (
        "import sys; from pathlib import Path; from tests.log.small_logs import opened, payload_of\n"
        "log = opened(Path(sys.argv[1]), writable=False, follow=True)\n"
        "print('ready', flush=True)\n"
        "for gsn in range(1, 151):\n"
        "    assert log.read_record(gsn, 0, timeout=60).payload == payload_of(gsn)\n"
        "log.close(); print('read all', flush=True)\n"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        while writer.durable < 150:
            append(writer, 7)
        assert reader.stdout.readline() == "read all\n"
    assert reader.returncode == 0
    writer.close()


def test_a_reader_of_a_killed_log_changes_nothing(fresh: Fresh) -> None:
    """`follow` without a writer, after a kill: the records that the watermark covers; nothing is changed."""
    source = fresh()
    writer = opened(source, disk=FaultyDisk())
    append(writer, 25)
    image = contents(source)
    writer.close()
    path = materialize(image, fresh())
    assert_sees(path, 25)
    assert contents(path) == image


def test_a_writer_that_starts_beside_a_reader_that_opens(fresh: Fresh) -> None:
    """After a kill, the writer releases the blocks behind the last record, which the reader is looking at."""
    program = (
        "import sys; from pathlib import Path; from logdb.system.disk import Disk\n"
        "from tests.log.small_logs import append, opened\n"
        "path = Path(sys.argv[1])\n"
        "append(opened(path), 5)\n"
        "class Restarting(Disk):\n"
        "    def sync(self, fd):\n"
        "        opened(path).close()\n"
        "reader = opened(path, writable=False, disk=Restarting())\n"
        "print(reader.durable)\n"
    )
    command = [sys.executable, "-c", program, str(fresh())]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
