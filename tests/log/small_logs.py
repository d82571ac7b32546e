"""Logs small enough to be damaged byte by byte, and checks of a reopened log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from logdb.errors import Corruption
from logdb.log import LocalLog
from logdb.log.contract import LogRecord
from logdb.log.segments import Disk

LOG_ID = bytes(range(16))
TAG = 7


def opened(
    path: Path, *, writable: bool = True, follow: bool = False, segment_bytes: int = 400, disk: Disk | None = None
) -> LocalLog:
    """The log in `path`, by default with a few records to a segment. Its clock counts from 1000."""
    ticks = iter(range(1000, 1 << 30))
    return LocalLog(
        path,
        LOG_ID,
        writable=writable,
        follow=follow,
        segment_bytes=segment_bytes,
        disk=disk,
        clock=lambda: next(ticks),
    )


def damage_of(log: LocalLog) -> list[Corruption]:
    """The results of a check of every frame."""
    watermark = log.store.damaged_watermark()
    found = [
        one for segment in log.store.segments for *_, batch in segment.check(log.store.durable_end) for one in batch
    ]
    return [*([watermark] if watermark else []), *(one for one in found if isinstance(one, Corruption))]


def payload_of(gsn: int) -> bytes:
    """The payload of record `gsn`. Lengths vary, and include 0."""
    return b"%d." % gsn * (gsn * 7 % 6)


def append(log: LocalLog, count: int) -> range:
    """Append the next `count` records in one batch."""
    first = log.end()
    return log.append([(TAG, payload_of(gsn)) for gsn in range(first, first + count)])


def records(log: LocalLog) -> list[LogRecord]:
    """All readable records."""
    return list(log.scan(log.oldest(), log.durable + 1))


def assert_prefix(log: LocalLog, minimum: int, maximum: int) -> None:
    """The log has exactly the appended records up to a GSN from `minimum` to `maximum`."""
    found = records(log)
    assert [record.gsn for record in found] == list(range(log.oldest(), log.durable + 1))
    assert [record.payload for record in found] == [payload_of(record.gsn) for record in found]
    assert all(record.tag == TAG for record in found)
    times = [record.time for record in found]
    assert all(a <= b for a, b in pairwise(times))
    assert minimum <= log.durable <= maximum
    log.store.check_invariants()
    assert damage_of(log) == []


def assert_continues(path: Path, disk: Disk, acknowledged: int, ordered: int) -> None:
    """The log in `path` opens with all acknowledged records, accepts appends, and has them at the next opening."""
    log = opened(path, disk=disk)
    assert_prefix(log, acknowledged, ordered)
    last = append(log, 3)[-1]
    append(log, 2)
    assert_prefix(log, last + 2, last + 2)
    log.close()
    log = opened(path, disk=disk)
    assert_prefix(log, last + 2, last + 2)
    log.close()


def segment_files(path: Path) -> Sequence[Path]:
    """The store files, oldest first."""
    return sorted(path.glob("*.log"))
