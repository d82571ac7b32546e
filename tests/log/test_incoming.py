"""Records received in parts: their bytes are those of any other record, and nothing remains of incomplete ones."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from google_crc32c import value

from logdb.errors import Corruption, Unavailable
from logdb.log import LocalLog
from logdb.log.contract import LogFailed
from logdb.log.segments import incoming
from logdb.log.segments.format import joined_checksum
from tests.harness.faulty_disk import Fault, FaultyDisk
from tests.log.small_logs import append, opened, payload_of, records, segment_files

Fresh = Callable[[], Path]


def received(log: LocalLog, payload: bytes) -> int:
    """The record of this payload, received byte by byte."""
    coming = log.receive(len(payload))
    for byte in payload:
        coming.write(bytes([byte]))
    return log.order_incoming(7, coming)


def leftovers(path: Path) -> list[Path]:
    return list(path.glob(f"{incoming.PREFIX}*"))


def test_checksums_of_two_parts() -> None:
    rng = random.Random(1)
    for _ in range(50):
        first, second = rng.randbytes(rng.randrange(40)), rng.randbytes(rng.choice([0, 1, 2, 63, 4_096, 100_001]))
        assert joined_checksum(value(first), value(second), len(second)) == value(first + second)


def test_incoming_records_are_read_like_others(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path, disk=FaultyDisk())
    payloads = [b"first", *(os.urandom(size) for size in (1, 200, 5_000))]
    wanted = {}
    for payload in payloads:
        wanted[received(log, payload)] = payload
        wanted.update((gsn, payload_of(gsn)) for gsn in append(log, 3))
    log.wait_durable(log.end() - 1)
    for _ in range(2):
        assert {record.gsn: record.payload for record in records(log)} == wanted
        for gsn, payload in wanted.items():
            for size in (1, 3, 10_000):
                tag, length, parts = log.payload(gsn, size)
                assert (tag, length, b"".join(parts)) == (7, len(payload), payload)
        log.store.check_invariants()
        assert leftovers(path) == []
        log.close()
        log = opened(path, disk=FaultyDisk())
    assert len(segment_files(path)) == len(payloads), "a segment continues after its first record"
    reader = opened(path, writable=False, follow=True, disk=FaultyDisk())
    assert {record.gsn: record.payload for record in records(reader)} == wanted
    reader.close()
    log.close()


def test_a_follower_reads_incoming_records(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path)
    append(log, 2)
    reader = opened(path, writable=False, follow=True)
    for size in (10, 1_000, 10):
        gsn = received(log, bytes(size))
        append(log, 1)
        assert reader.refresh() == gsn + 1
        assert reader.read_record(gsn, 0).payload == bytes(size)
    reader.close()
    log.close()


def test_damage_is_detected_with_the_last_part(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path)
    append(log, 2)
    gsn = received(log, bytes(1_000))
    log.wait_durable(gsn)
    file = segment_files(path)[-1]
    data = bytearray(file.read_bytes())
    data[500] ^= 1
    with file.open("r+b") as raw:
        raw.write(data)
    parts = log.payload(gsn, 100)[2]
    for _ in range(9):
        next(parts)
    with pytest.raises(Corruption, match=r"does not match its checksum"):
        next(parts)
    log.close()


def test_incomplete_payloads_are_removed_at_the_next_opening(fresh: Fresh) -> None:
    path = fresh()
    log = opened(path)
    append(log, 2)
    log.receive(10).write(b"1234")
    discarded = log.receive(10)
    discarded.discard()
    discarded.discard()
    with pytest.raises(ValueError, match="discarded"):
        discarded.write(b"1")
    assert len(leftovers(path)) == 1
    log.close()
    opened(path, writable=False).close()
    assert len(leftovers(path)) == 1, "a reader changes no file"
    opened(path).close()
    assert leftovers(path) == []


@pytest.mark.parametrize("kind", ["create", "allocate", "write", "sync"])
def test_a_full_disk_rejects_an_incoming_payload(fresh: Fresh, kind: str) -> None:
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    append(log, 2)
    disk.fault = Fault(frozenset({kind}), 0, OSError(errno.ENOSPC, "No space left on device"))
    coming = None
    with pytest.raises(Unavailable, match="free some space"):
        coming = log.receive(4)
        coming.write(b"1234")
    disk.fault = None
    if coming is not None:
        coming.discard()
    assert leftovers(path) == []
    gsn = received(log, b"5678")
    append(log, 1)
    assert log.read_record(gsn, 0).payload == b"5678"
    log.close()


@pytest.mark.parametrize("kind", ["write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_failure_during_the_ordering(fresh: Fresh, kind: str, number: int) -> None:
    """On a full disk the log continues without the record; a failing disk ends it. Earlier records stay."""
    path, disk = fresh(), FaultyDisk()
    log = opened(path, disk=disk)
    last = append(log, 2)[-1]
    coming = log.receive(4)
    coming.write(b"1234")
    disk.fault = Fault(frozenset({kind}), 0, OSError(number, os.strerror(number)))
    disk.seen = 0
    with pytest.raises(Unavailable if number == errno.ENOSPC else LogFailed):
        log.order_incoming(7, coming)
    disk.fault = None
    assert leftovers(path) == []
    assert len(segment_files(path)) == 1
    if number == errno.ENOSPC:
        last = append(log, 30)[-1]
        log.close()
    else:
        log.store.abandon()
    log = opened(path, disk=FaultyDisk())
    assert [record.gsn for record in records(log)] == list(range(1, last + 1))
    log.close()


def test_an_interrupt_during_the_ordering(fresh: Fresh) -> None:
    """Wherever it occurs, the log continues, and ordered records are complete."""
    for nth in range(8):
        path, disk = fresh(), FaultyDisk()
        log = opened(path, disk=disk)
        last = append(log, 2)[-1]
        coming = log.receive(4)
        coming.write(b"1234")
        kinds = frozenset({"write", "sync", "rename", "sync_directory"})
        disk.fault = Fault(kinds, nth // 2, KeyboardInterrupt(), after=bool(nth % 2))
        disk.seen = 0
        with pytest.raises(KeyboardInterrupt):
            log.order_incoming(7, coming)
        disk.fault = None
        coming.discard()
        last = append(log, 40)[-1]
        log.close()
        log = opened(path, disk=FaultyDisk())
        assert [record.gsn for record in records(log)] == list(range(1, last + 1))
        log.close()
