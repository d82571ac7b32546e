"""Writers beside a checkpoint: through every interface they are slowed early and in proportion, never stopped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logdb
from logdb.embedded import EmbeddedBackend, checkpointer
from logdb.store.checkpoint import Checkpoint
from logdb.store.overlay import Overlay
from logdb.store.pacing import MAX_SYNCS, ROOM, Pacer
from tests.harness.opening import checkpointed, host_of, on_coroutines, open_database
from tests.harness.served import Served

OVERLAY = 100_000
SYNC_S = 0.002


class BlockedCheckpoints:
    """Checkpoints begin and then wait for `release`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self._released = threading.Event(), threading.Event()
        write = Checkpoint.write

        def blocked(checkpoint: Checkpoint, overlay: Overlay) -> Iterator[int]:
            self.begun.set()
            self._released.wait()
            yield from write(checkpoint, overlay)

        monkeypatch.setattr(Checkpoint, "write", blocked)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedCheckpoints]:
    blocked = BlockedCheckpoints(monkeypatch)
    yield blocked
    blocked.release()


def batches(count: int) -> list[dict[bytes, bytes]]:
    """Batches that each fill a tenth of an overlay."""
    return [{b"%05d %02d" % (number, place): b"v" * 150 for place in range(25)} for number in range(count)]


def within_a_minute(work: Callable[[], None]) -> bool:
    done = threading.Event()

    def run() -> None:
        work()
        done.set()

    threading.Thread(target=run, daemon=True).start()
    return done.wait(60)


def test_a_thread_can_write_while_a_checkpoint_hangs(tmp_path: Path, blocked: BlockedCheckpoints) -> None:
    """Regression: with twice the overlay in memory, a writer waited for the end of the checkpoint (23 s)."""
    with open_database(tmp_path, overlay_bytes=OVERLAY) as db:

        def write() -> None:
            for batch in batches(35):
                db.multi_put(batch)

        assert within_a_minute(write)
        assert blocked.begun.is_set()
        blocked.release()


def test_coroutines_can_write_while_a_checkpoint_hangs(tmp_path: Path, blocked: BlockedCheckpoints) -> None:
    with open_database(tmp_path, overlay_bytes=OVERLAY) as db:

        async def write() -> None:
            aio = on_coroutines(db)
            for batch in batches(35):
                await asyncio.gather(*[aio.put(key, value) for key, value in batch.items()])

        assert within_a_minute(lambda: asyncio.run(write()))
        assert blocked.begun.is_set()
        blocked.release()


def test_clients_can_write_while_a_checkpoint_hangs(
    tmp_path: Path, blocked: BlockedCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = EmbeddedBackend.open
    monkeypatch.setattr(EmbeddedBackend, "open", lambda path, **options: opened(path, **options, overlay_bytes=OVERLAY))
    served = Served(tmp_path)
    try:
        with logdb.connect(served.address) as db:

            def write() -> None:
                for batch in batches(35):
                    db.multi_put(batch)

            assert within_a_minute(write)
            assert blocked.begun.is_set()
    finally:
        blocked.release()
        served.close()


def test_commits_that_wait_for_the_checkpoint_are_acknowledged_at_its_end(
    tmp_path: Path, blocked: BlockedCheckpoints
) -> None:
    async def write(db: logdb.Database) -> list[int]:
        aio = on_coroutines(db)
        pending = [asyncio.ensure_future(aio.multi_put(batch)) for batch in batches(30)]
        await asyncio.sleep(0)
        blocked.release()
        await aio.close()
        return await asyncio.gather(*pending)

    with open_database(tmp_path, overlay_bytes=OVERLAY) as db:
        versions = asyncio.run(write(db))
        assert versions == sorted(versions)
        assert len(versions) == 30


def test_a_checkpoint_is_due_when_the_log_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: only the overlay counted, so large values and aborted commits made the log suffix too long."""
    monkeypatch.setattr(checkpointer, "SUFFIX_RECORDS", 2_000)
    monkeypatch.setattr(checkpointer, "SUFFIX_BYTES", 1 << 20)

    def covers(db: logdb.Database) -> int:
        host = checkpointed(db)
        assert host.machine.coordinator.map.checkpoint is not None
        return host.machine.coordinator.map.checkpoint.covers

    with open_database(tmp_path / "large", overlay_bytes=1 << 30, segment_bytes=100_000) as db:
        for _ in range(20):
            db.put(b"large", b"l" * 100_000)
        assert covers(db) > 0
    with open_database(tmp_path / "aborted", overlay_bytes=1 << 30, segment_bytes=100_000) as db:
        for _ in range(5_000):
            host_of(db).commits.submit({b"never": b"1"}, conditions=[logdb.exists(b"never")])
        assert covers(db) > 2_000


# ---- the pacer alone, in virtual time


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pacer(time: Time) -> Pacer:
    return Pacer(OVERLAY, time)


def waited(pacer: Pacer, time: Time, size: int, active: int) -> float:
    pacer.charge(1, size, active, SYNC_S)
    left = pacer.owed(1, 1)
    time.now += left
    pacer.paid(1)
    return left


def test_without_a_checkpoint_nothing_waits(pacer: Pacer, time: Time) -> None:
    assert waited(pacer, time, 50_000, 10 * OVERLAY) == 0
    pacer.begin(OVERLAY)
    assert waited(pacer, time, 50_000, 0) > 0
    pacer.end()
    assert waited(pacer, time, 50_000, 0) == 0


def test_larger_commits_wait_longer_and_the_wait_grows_with_the_overlay(pacer: Pacer, time: Time) -> None:
    pacer.begin(OVERLAY)
    waits = []
    for active in (0, OVERLAY // 2, OVERLAY, int(1.25 * OVERLAY)):
        waits += [waited(pacer, time, 10, active), waited(pacer, time, 100, active)]
    small, large = waits[::2], waits[1::2]
    assert small == sorted(small)
    assert len(set(small)) == len(small)
    assert [wait / 10 for wait in large] == pytest.approx(small, rel=1e-6)


def test_no_call_waits_longer_than_ten_syncs(pacer: Pacer, time: Time) -> None:
    pacer.begin(OVERLAY)
    for _ in range(50):
        pacer.charge(1, 10 * OVERLAY, int(ROOM * OVERLAY), SYNC_S)
        assert pacer.owed(1, 1) <= MAX_SYNCS * SYNC_S + 1e-9


def test_a_small_commit_does_not_wait_for_a_large_one(pacer: Pacer) -> None:
    pacer.begin(OVERLAY)
    pacer.charge(1, 500, 0, 1.0)
    pacer.charge(2, 5, 0, 1.0)
    large, small = pacer.owed(1, 1), pacer.owed(2, 2)
    assert 0 < small < large / 10


def test_the_time_that_a_commit_took_counts(pacer: Pacer, time: Time) -> None:
    pacer.begin(OVERLAY)
    pacer.charge(1, 100, 0, 1.0)
    time.now += 1.0
    assert pacer.owed(1, 1) == 0


def test_merging_that_is_behind_slows_writers_too(pacer: Pacer, time: Time) -> None:
    pacer.merged(0.4)
    assert not pacer.is_pressed
    pacer.merged(1.0)
    assert pacer.is_pressed
    slow = waited(pacer, time, 100, 0)
    pacer.merged(2.0)
    assert waited(pacer, time, 100, 0) == pytest.approx(2 * slow)
    pacer.merged(0.0)
    assert not pacer.is_pressed


@pytest.mark.parametrize("drain", [10_000, 50_000, 400_000, 5_000_000], ids=lambda drain: f"{drain} bytes/s")
@pytest.mark.parametrize("writers", [1, 8])
def test_memory_is_bounded_and_writers_go_as_fast_as_checkpoints(drain: int, writers: int) -> None:
    """Writers that can write 1.25 MB per second, and checkpoints of any speed."""
    time = Time()
    pacer = Pacer(OVERLAY, time)
    size, syncing = 2_500 // writers, [time.now] * writers
    active = frozen = written = gsn = 0
    waits: dict[int, int] = {}
    most = 0.0
    begun = time.now
    while time.now < begun + 120:
        time.now += 0.001
        if frozen > 0:
            frozen -= drain // 1_000
            pacer.took(drain // 1_000)
            if frozen <= 0:
                pacer.end()
        if frozen <= 0 and active > OVERLAY:
            frozen, active = active, 0
            pacer.begin(frozen)
        for number in range(writers):
            if syncing[number] <= time.now:
                pacer.paid(waits.pop(number, 0))
                gsn += 1
                active += size
                written += size
                left = 0.0
                if pacer.is_pressed:
                    pacer.charge(gsn, size, active, SYNC_S)
                    left = pacer.owed(gsn, gsn)
                    waits[number] = gsn
                syncing[number] = time.now + max(left, SYNC_S)
        most = max(most, (active + max(frozen, 0)) / OVERLAY)
    assert most < 5
    assert written / 120 > 0.8 * min(drain, 1_250_000)
