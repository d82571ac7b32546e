"""Torn tails are cut off, damage is reported: every length and every byte of small logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from logdb.errors import Corruption, UnsupportedFormat
from logdb.log import LocalLog
from logdb.log.contract import LogRecord
from logdb.log.segments.format import FRAME_BYTES, STORE_HEADER_BYTES, frame_head, salt_of
from tests.harness.faulty_disk import FaultyDisk, contents, materialize
from tests.log.small_logs import (
    TAG,
    append,
    assert_continues,
    assert_prefix,
    damage_of,
    opened,
    payload_of,
    records,
    segment_files,
)

Fresh = Callable[[], Path]


def killed_after(path: Path, batches: list[int]) -> dict[str, bytes]:
    """The files of a log that was killed after these batches, each of them synced."""
    log = opened(path, disk=FaultyDisk())
    for size in batches:
        append(log, size)
    image = contents(path)
    log.close()
    return image


def without_watermark(image: dict[str, bytes]) -> dict[str, bytes]:
    """The image after a power failure, which may lose the watermark because it is never synced."""
    return image | {"durable": bytes(16)}


def ends_of(path: Path, image: dict[str, bytes]) -> tuple[str, list[int]]:
    """The last store file's name, and the offset where each of its records ends."""
    log = opened(materialize(image, path), writable=False, disk=FaultyDisk())
    last = log.store.segments[-1]
    ends = [*list(last.offsets)[1:], last.length]
    log.close()
    return last.path.name, ends


@pytest.mark.parametrize("zeroed", [True, False], ids=["zeroed", "shortened"])
def test_a_tail_torn_at_every_byte(fresh: Fresh, zeroed: bool) -> None:
    image = without_watermark(killed_after(fresh(), [4, 1, 3]))
    name, ends = ends_of(fresh(), image)
    whole = image[name]
    for cut in range(ends[4], ends[-1] + 1):  # the last batch, which may not have been acknowledged
        left = whole[:cut] + (bytes(len(whole) - cut) if zeroed else b"")
        kept = 8 - sum(end > cut for end in ends)
        assert_continues(materialize(image | {name: left}, fresh()), FaultyDisk(), kept, kept)


def test_holes_in_the_last_batch(fresh: Fresh) -> None:
    """Pages are written in any order: records after a hole in the last batch are cut off."""
    image = without_watermark(killed_after(fresh(), [4, 1, 3]))
    name, ends = ends_of(fresh(), image)
    for at in range(ends[4], ends[-1]):
        if image[name][at]:
            left = bytearray(image[name])
            left[at] = 0
            kept = 8 - sum(end > at for end in ends)
            assert_continues(materialize(image | {name: bytes(left)}, fresh()), FaultyDisk(), kept, kept)


def test_damage_before_the_watermark_is_not_a_torn_tail(fresh: Fresh) -> None:
    image = killed_after(fresh(), [4, 1, 3])
    name, ends = ends_of(fresh(), image)
    for cut in range(ends[4], ends[-1]):
        path = materialize(image | {name: image[name][:cut]}, fresh())
        for writable in (False, True):
            with pytest.raises(Corruption) as raised:
                opened(path, writable=writable, disk=FaultyDisk())
            assert (raised.value.path, raised.value.offset) == (
                str(path / name),
                max([STORE_HEADER_BYTES, *(end for end in ends if end <= cut)]),
            )


def test_damage_before_a_later_batch_is_not_a_torn_tail(fresh: Fresh) -> None:
    """Without a watermark: frames written after the damaged frame was durable prove the damage."""
    image = without_watermark(killed_after(fresh(), [4, 1, 3]))
    name, ends = ends_of(fresh(), image)
    for at in range(STORE_HEADER_BYTES, ends[4]):
        left = bytearray(image[name])
        left[at] ^= 0xFF
        path = materialize(image | {name: bytes(left)}, fresh())
        with pytest.raises(Corruption) as raised:
            opened(path, disk=FaultyDisk())
        assert raised.value.path == str(path / name)
        assert raised.value.offset == max([STORE_HEADER_BYTES, *(end for end in ends if end <= at)])
        assert contents(path) == image | {name: bytes(left)}, "a failed opening changes no file"


def test_damage_in_a_full_segment_without_index_is_not_a_torn_tail(fresh: Fresh) -> None:
    """Without a watermark and without the index: any record in the next segment proves the damage."""
    image = without_watermark(killed_after(fresh(), [40, 1, 60]))
    names = sorted(name for name in image if name.endswith(".log"))
    assert len(names) == 3
    del image[names[0].replace(".log", ".idx")], image[names[1].replace(".log", ".idx")]
    for name in names[:2]:
        for at in range(STORE_HEADER_BYTES, len(image[name]), 13):
            left = bytearray(image[name])
            left[at] ^= 0xFF
            path = materialize(image | {name: bytes(left)}, fresh())
            with pytest.raises(Corruption, match=name):
                opened(path, disk=FaultyDisk())


def test_every_byte_of_a_closed_log(fresh: Fresh) -> None:
    """The damage is reported by opening, reading or `check`. It is never returned, nor mistaken for the log's end."""
    source = fresh()
    log = opened(source, disk=FaultyDisk())
    for size in (3, 20, 2, 1):
        append(log, size)
    good = records(log)
    log.close()
    image = contents(source)
    assert len(segment_files(source)) == 3
    path = materialize(image, fresh())
    for name, content in image.items():
        for at in range(len(content)):
            for mask in (0xFF, content[at] or 0x01):  # turned over, and cleared
                (path / name).write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
                damage = found_damage(path, good)
                where = [each for each in damage if each.path == str(path / name)]
                assert where, f"byte {at} of {name}: {damage}"
                assert all(each.offset is not None and each.offset <= at for each in where)
        (path / name).write_bytes(content)
    assert found_damage(path, good) == []


def found_damage(path: Path, good: list[LogRecord]) -> list[Corruption]:
    """The damage reported by opening, checking and reading. Records that are returned must be the written ones."""
    try:
        log = opened(path, writable=False, disk=FaultyDisk())
    except Corruption as damage:
        return [damage]
    named = damage_of(log)
    for lsn in range(1, len(good) + 1):
        try:
            assert log.read_record(lsn, 0, timeout=0) == good[lsn - 1]
        except Corruption as damage:
            named.append(damage)
    log.close()
    return named


def test_a_writer_reports_damage(fresh: Fresh) -> None:
    """Opening for writing rebuilds the index and the watermark, and reports all other damage."""
    source = fresh()
    log = opened(source, disk=FaultyDisk())
    for size in (3, 20, 2, 1):
        append(log, size)
    good = records(log)
    log.close()
    image = contents(source)
    for name, content in image.items():
        for at in range(0, len(content), 3):
            flipped = content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]
            path = materialize(image | {name: flipped}, fresh())
            try:
                log = opened(path, disk=FaultyDisk())
            except Corruption as damage:
                assert damage.path == str(path / name)
                assert contents(path) == image | {name: flipped}
                continue
            if name.endswith(".log"):
                with pytest.raises(Corruption, match=name):
                    records(log)
                log.close()
            else:
                assert records(log) == good
                log.close()
                assert contents(path) == image


def test_missing_files(fresh: Fresh) -> None:
    source = fresh()
    log = opened(source, disk=FaultyDisk())
    for _ in range(6):
        append(log, 20)
    log.close()
    image = contents(source)
    names = sorted(name for name in image if name.endswith(".log"))
    assert len(names) == 6
    for name in names[1:]:  # without the first it is a trimmed log
        path = materialize({other: image[other] for other in image if other != name}, fresh())
        with pytest.raises(Corruption):
            opened(path, disk=FaultyDisk())
    path = materialize({"durable": image["durable"]}, fresh())
    with pytest.raises(Corruption, match="the segment files are gone; the log had 120 records"):
        opened(path, disk=FaultyDisk())
    path = materialize({}, fresh())
    with pytest.raises(FileNotFoundError):
        opened(path, writable=False)


def test_a_closed_file_that_was_shortened(fresh: Fresh) -> None:
    source = fresh()
    log = opened(source, disk=FaultyDisk())
    append(log, 5)
    log.close()
    (file,) = segment_files(source)
    image = contents(source)
    for length in range(len(image[file.name])):
        path = materialize(image | {file.name: image[file.name][:length]}, fresh())
        with pytest.raises(Corruption) as raised:
            opened(path, disk=FaultyDisk())
        assert raised.value.offset is not None
        assert raised.value.offset <= length


def test_a_format_from_the_future(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fresh()
    with monkeypatch.context() as patch:
        patch.setattr("logdb.log.segments.format.FORMAT_VERSION", 2)
        log = opened(path, disk=FaultyDisk())
        append(log, 2)
        image = contents(path)
        log.close()
    for writable in (False, True):
        with pytest.raises(UnsupportedFormat) as raised:
            opened(path, writable=writable, disk=FaultyDisk())
        assert (raised.value.found, raised.value.supported) == (2, 1)
    killed = materialize(image, fresh())
    with pytest.raises(UnsupportedFormat, match=r"reads up to 1; upgrade LogDB"):
        opened(killed, disk=FaultyDisk())


def test_a_segment_of_another_log(fresh: Fresh) -> None:
    path = fresh()
    opened(path, disk=FaultyDisk()).close()
    with pytest.raises(Corruption) as raised:
        LocalLog(path, bytes(16), disk=FaultyDisk())
    assert raised.value.offset == 0


def test_a_value_with_frames_of_another_log_is_not_evidence(fresh: Fresh) -> None:
    """The torn tail contains a copy of another log's frames, with LSNs that would prove damage."""
    first = 3
    foreign = b"".join(
        frame_head(gsn, salt_of(bytes(16)), 0, 1000 + gsn, TAG, b"payload") + b"payload" for gsn in range(first, 30)
    )
    path = fresh()
    disk = FaultyDisk()
    log = opened(path, disk=disk, segment_bytes=1 << 16)
    append(log, 2)
    image = without_watermark(contents(path))
    (name,) = (name for name in image if name.endswith(".log"))
    log.append([(TAG, foreign + b"the end")])
    whole = contents(path)[name]
    log.close()
    end = len(image[name].rstrip(b"\0"))
    torn = whole[: end + FRAME_BYTES + len(foreign)]
    assert_continues(materialize(image | {name: torn}, fresh()), FaultyDisk(), 2, 2)


def test_a_log_without_its_watermark(fresh: Fresh) -> None:
    """The watermark is a hint and can be rebuilt; `check` reports that it is missing."""
    source = fresh()
    log = opened(source, disk=FaultyDisk())
    append(log, 30)
    log.close()
    image = contents(source)
    for left in (b"", image["durable"][:9]):
        path = materialize(image | {"durable": left}, fresh())
        log = opened(path, writable=False, disk=FaultyDisk())
        assert [damage.path for damage in damage_of(log)] == [str(path / "durable")]
        log.close()
        log = opened(path, disk=FaultyDisk())
        assert_prefix(log, 30, 30)
        log.close()
        assert contents(path) == image


def test_payloads_differ() -> None:
    """The other tests distinguish records by their payloads."""
    assert len({payload_of(gsn) for gsn in range(1, 200) if payload_of(gsn)}) > 150
