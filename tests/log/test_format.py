"""The bytes of the log: round trips, decoders of arbitrary bytes, and FORMAT.md's example."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logdb.log.segments
from logdb.errors import Corruption, LogDBError
from logdb.log import LocalLog
from logdb.log.contract import LogRecord
from logdb.log.segments import format
from logdb.log.segments.format import (
    BODY_AT,
    FRAME,
    FRAME_BYTES,
    FRAME_MAGIC,
    INDEX_HEADER_BYTES,
    PART_BYTES,
    STORE_HEADER_BYTES,
    claims_durable,
    contains_frame,
    frame_head,
    index_header,
    is_sealed,
    read_frame,
    store_header,
    walk_frames,
)
from tests.harness.faulty_disk import FaultyDisk, contents, materialize
from tests.log.small_logs import LOG_ID, append, opened, payload_of

Fresh = Callable[[], Path]
U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
FRAMES = st.builds(
    lambda lsn, salt, unsynced, time, tag, payload: (lsn, salt, unsynced, time, tag, payload),
    U64, U32, U32, U64, st.integers(0, 255), st.binary(max_size=200),
)  # fmt: skip
FORMAT_MD = Path(logdb.log.segments.__file__).with_name("FORMAT.md")


def framed(lsn: int, salt: int, unsynced: int, time: int, tag: int, payload: bytes) -> bytes:
    return frame_head(lsn, salt, unsynced, time, tag, payload) + payload


@given(FRAMES, st.binary(max_size=30), st.binary(max_size=30))
def test_a_frame_is_decoded(frame: tuple[int, int, int, int, int, bytes], before: bytes, after: bytes) -> None:
    lsn, salt, _, time, tag, payload = frame
    data = before + framed(*frame) + after
    end = len(data) - len(after)
    assert read_frame(data, len(before), len(data), lsn, salt) == LogRecord(lsn, time, tag, payload)
    assert read_frame(data, len(before), end, lsn, salt) is not None
    assert read_frame(data, len(before), end - 1, lsn, salt) is None
    assert read_frame(data, len(before), end, lsn + 1, salt) is None, "of another LSN"
    assert read_frame(data, len(before), end, lsn, salt ^ 1) is None, "of another log"


@given(FRAMES, st.data())
def test_a_changed_frame_is_invalid(frame: tuple[int, int, int, int, int, bytes], data: st.DataObject) -> None:
    good = framed(*frame)
    at = data.draw(st.integers(0, len(good) - 1))
    flipped = data.draw(st.integers(1, 255))
    bad = good[:at] + bytes([good[at] ^ flipped]) + good[at + 1 :]
    assert read_frame(bad, 0, len(bad), frame[0], frame[1]) is None
    assert read_frame(good[:at], 0, at, frame[0], frame[1]) is None


@pytest.mark.parametrize("length", [PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 7])
def test_every_part_of_a_long_payload_is_verified(length: int) -> None:
    payload = bytes(range(256)) * (length // 256 + 1)
    good = framed(5, 9, 0, 77, 3, payload[:length])
    assert read_frame(good, 0, len(good), 5, 9) == LogRecord(5, 77, 3, payload[:length])
    for at in (BODY_AT, FRAME_BYTES, FRAME_BYTES + PART_BYTES - 1, FRAME_BYTES + PART_BYTES, len(good) - 1):
        if at < len(good):
            bad = bytearray(good)
            bad[at] ^= 1
            assert read_frame(bytes(bad), 0, len(bad), 5, 9) is None, at


@given(st.lists(st.binary(max_size=50), max_size=10), U32, st.integers(1, 1 << 40), st.binary(max_size=40))
def test_a_walk_finds_every_frame_and_no_other(payloads: list[bytes], salt: int, first: int, after: bytes) -> None:
    frames = [framed(first + n, salt, n, n, 1, payload) for n, payload in enumerate(payloads)]
    data = b"".join(frames) + b"\0" + after
    found = list(walk_frames(data, 0, len(data), first, salt))
    assert [record.payload for _, record in found] == payloads
    assert [offset for offset, _ in found] == [*itertools.accumulate(map(len, frames), initial=0)][: len(frames)]


SOUP = st.lists(
    st.one_of(
        st.binary(max_size=60),
        st.just(FRAME_MAGIC),
        st.just(FRAME_MAGIC + b"\xff" * 21),
        st.builds(framed, st.integers(1, 40), st.just(5), st.integers(0, 40), U64, st.just(1), st.binary(max_size=20)),
    ),
    max_size=12,
).map(b"".join)


@settings(max_examples=300)
@given(SOUP, st.integers(-1, 300), st.integers(0, 40))
def test_decoders_accept_any_bytes(soup: bytes, offset: int, lsn: int) -> None:
    """No exception, and no record that was not written, whatever the bytes."""
    offset = max(0, min(offset, len(soup)))
    for at, record in walk_frames(soup, offset, len(soup), lsn, 5):
        assert framed(record.gsn, 5, 0, 0, 0, b"")[:4] == soup[at : at + 4]
        assert soup[at + FRAME_BYTES :].startswith(record.payload)
    witness = claims_durable(soup, offset, len(soup), lsn, 5)
    assert witness is None or soup[witness : witness + 4] == FRAME_MAGIC
    assert contains_frame(soup, len(soup), lsn, 5) in (True, False)


def test_an_impossible_length_costs_nothing() -> None:
    """The frame claims four gigabytes; the end of the file is checked before anything is read."""
    bad = FRAME_MAGIC + b"\xff" * (FRAME_BYTES - 4)
    assert read_frame(bad, 0, len(bad), 1, 0) is None
    assert claims_durable(bytes(100) + bad, 0, 100 + len(bad), 1, 0) is None


def test_a_torn_value_full_of_magics_is_searched_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claims a frame up to the end of the file: the checksums of 2 MiB of them took 10 s, of 4 MiB 40 s."""
    read = 0

    def counted(data: bytes) -> int:
        nonlocal read
        read += len(data)
        return int(google_crc32c.value(data))

    def extended(crc: int, data: bytes) -> int:
        nonlocal read
        read += len(data)
        return int(google_crc32c.extend(crc, data))

    monkeypatch.setattr(format, "value", counted)
    monkeypatch.setattr(format, "extend", extended)
    count = 10_000
    size = count * FRAME_BYTES
    torn = b"".join([FRAME.pack(FRAME_MAGIC, 1, at, 0, 1, 1) for at in range(size - FRAME_BYTES, -1, -FRAME_BYTES)])
    assert claims_durable(torn, 0, size, 1, 7) is None
    assert size < read < 20_000 * count


@given(st.lists(st.integers(0, 6), min_size=2, max_size=8), st.data())
def test_later_frames_prove_that_a_record_was_durable(sizes: list[int], data: st.DataObject) -> None:
    """The frames of a batch count those before them in it; a frame proves that the records before its batch were
    durable."""
    sizes = [size + 1 for size in sizes]
    total = sum(sizes)
    unsynced = [place for size in sizes for place in range(size)]
    payload = b"p" * data.draw(st.integers(0, 9) | st.sampled_from([16_384, 20_000]))
    file = b"".join(framed(lsn, 9, unsynced[lsn - 1], 1, 1, payload) for lsn in range(1, total + 1))
    lost = data.draw(st.integers(1, total))
    offset = (lost - 1) * (FRAME_BYTES + len(payload))
    damaged = file[:offset] + bytes([file[offset] ^ 1]) + file[offset + 1 :]
    witness = claims_durable(damaged, offset, len(damaged), lost, 9)
    starts = [1 + sum(sizes[:batch]) for batch in range(len(sizes))]
    later = [start for start in starts if start > lost]
    expected = (later[0] - 1) * (FRAME_BYTES + len(payload)) if later else None
    assert witness == expected


@given(U64, st.binary(min_size=16, max_size=16), U64, U64, st.data())
def test_headers_have_checksums(base: int, log_id: bytes, count: int, length: int, data: st.DataObject) -> None:
    for header in (store_header(base, log_id), index_header(base, log_id, count, length, b"entries")):
        assert len(header) == STORE_HEADER_BYTES == INDEX_HEADER_BYTES
        assert is_sealed(header, 64)
        at = data.draw(st.integers(0, 63))
        assert not is_sealed(header[:at] + bytes([header[at] ^ 1 << at % 8]) + header[at + 1 :], 64)
        assert not is_sealed(header[:at], 64)


IMAGE: dict[str, bytes] = {}


def image() -> dict[str, bytes]:
    """The files of a closed log of two segments."""
    if not IMAGE:
        with tempfile.TemporaryDirectory() as directory:
            log = opened(Path(directory) / "log", disk=FaultyDisk())
            for size in (2, 25, 3):
                append(log, size)
            log.close()
            IMAGE.update(contents(Path(directory) / "log"))
    return IMAGE


@settings(max_examples=150)
@given(st.data())
def test_opening_damaged_files(data: st.DataObject) -> None:
    """Any file replaced by other bytes, shortened or extended: the log returns its records or a clear error."""
    files = image()
    name = data.draw(st.sampled_from(sorted(files)))
    good = files[name]
    mutated = data.draw(
        st.one_of(
            st.binary(max_size=200),
            st.integers(0, len(good)).map(lambda cut: good[:cut]),
            st.binary(min_size=1, max_size=100).map(lambda more: good + more),
            st.tuples(st.integers(0, len(good)), st.binary(max_size=20)).map(
                lambda at: good[: at[0]] + at[1] + good[at[0] + len(at[1]) :]
            ),
        )
    )
    writable = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as directory:
        path = materialize(files | {name: mutated}, Path(directory) / "log")
        try:
            log = opened(path, writable=writable, disk=FaultyDisk())
        except LogDBError as error:
            assert isinstance(error, Corruption)
            assert error.path.startswith(str(path))
            return
        try:
            got = [(record.gsn, record.payload) for record in log.scan(1, log.durable + 1)]
        except Corruption as error:
            assert error.path == str(path / name)
        else:
            assert got == [(gsn, payload_of(gsn)) for gsn in range(1, 31)]
        log.close()


def dumps() -> dict[str, bytes]:
    """The hex dumps of FORMAT.md, by the file name above each."""
    found = re.findall(r"^`(\S+)`\n\n((?:    [0-9a-f]{8}  .*\n)+)", FORMAT_MD.read_text(), re.MULTILINE)
    return {name: b"".join(bytes.fromhex(line[12:]) for line in dump.splitlines()) for name, dump in found}


def test_the_example_in_format_md(fresh: Fresh) -> None:
    path = fresh()
    ticks = itertools.count(0x17B2C3D4E5F60718)
    log = LocalLog(path, LOG_ID, clock=lambda: next(ticks), disk=FaultyDisk())
    log.append([(1, b"LogDB")])
    log.append([(7, b"")])
    log.close()
    assert contents(path) == dumps()
    log = opened(materialize(dumps(), fresh()), disk=FaultyDisk())
    assert [(r.tag, r.payload, r.time) for r in log.scan(1, 3)] == [
        (1, b"LogDB", 0x17B2C3D4E5F60718),
        (7, b"", 0x17B2C3D4E5F60719),
    ]
    log.close()
