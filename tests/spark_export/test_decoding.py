"""Frames are located, verified and decoded in batches, with the same results as one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from google_crc32c import value as crc32c

from logdb import Database
from logdb.errors import Corruption
from logdb.log.segments.format import frame_head
from logdb.store.records import (
    COMMIT,
    COMMIT_HEAD,
    RELOCATION,
    RELOCATION_HEAD,
    Commit,
    Relocated,
    encode_commit,
    encode_relocation,
)
from spark_export import frames, places
from spark_export.checksums import are_whole, combined
from spark_export.decoding import EVERYTHING, decoded, items
from spark_export.places import Records
from spark_export.snapshot_source import SnapshotPlan
from tests.spark_export import histories

OpenSmall = Callable[..., Database]
SALT = 0x5EED


@pytest.mark.parametrize("seed", range(4))
def test_checksums_of_parts_combine_to_the_checksum_of_all(seed: int) -> None:
    rng = Random(seed)
    some = [rng.randbytes(rng.choice([0, 1, 25, 255, 256, 300, 70_000])) for _ in range(rng.randrange(1, 90))]
    crcs, sizes = np.array([crc32c(one) for one in some], np.uint32), np.array([len(one) for one in some])
    assert combined(crcs, sizes) == crc32c(b"".join(some))


def test_a_part_whose_length_has_several_bytes() -> None:
    some = [b"x" * 17, bytes(1 << 24), b"yz"]
    crcs, sizes = np.array([crc32c(one) for one in some], np.uint32), np.array([len(one) for one in some])
    assert combined(crcs, sizes) == crc32c(b"".join(some))


@pytest.mark.parametrize("first", [1, (1 << 32) - 3])
def test_any_changed_byte_is_detected(first: int) -> None:
    payloads = [b"", b"a", b"abc" * 9, b"", bytes(20)]
    written = [frame_head(first + n, SALT, 0, n, 1, payload) + payload for n, payload in enumerate(payloads)]
    gsns = np.arange(first, first + len(written))
    offsets = np.array([0, *accumulate(map(len, written))])
    log = b"".join(written)
    assert are_whole(log, offsets, gsns, SALT)
    assert not are_whole(log, offsets, gsns + 1, SALT)
    assert not are_whole(log, offsets, gsns, SALT + 1)
    for at in range(len(log)):
        damaged = bytearray(log)
        damaged[at] ^= 1 << at % 8
        assert not are_whole(bytes(damaged), offsets, gsns, SALT), at


def rows(plan: SnapshotPlan) -> list[pa.Table]:
    """The decoded rows of each part."""
    return [
        pa.Table.from_batches(batches)
        for part in plan.parts
        if (batches := list(decoded(plan, part, EVERYTHING, copies=True)))
    ]


def test_an_index_is_used_only_if_the_frames_agree(open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(1), 120)
    db.close()
    with histories.planned(db.path) as plan:
        expected = rows(plan)
        indices = [Path(plan.folder, part.link).with_suffix(".idx") for part in plan.parts]
        contents = [index.read_bytes() for index in indices]
        middle = len(contents[0]) // 8 * 4
        for wrong in (
            contents[1],
            contents[0][:middle],
            contents[0][: middle + 3],
            contents[0][:middle] + contents[0][middle + 4 :],
            contents[0][:middle] + b"\xff" * 4 + contents[0][middle + 4 :],
            contents[0] + contents[0][-4:],
            contents[0][:64],
            b"",
        ):
            for index in indices:
                index.unlink()
                index.write_bytes(wrong)
            assert rows(plan) == expected
        for index in indices:
            index.unlink()
        assert rows(plan) == expected


@pytest.mark.parametrize(("count", "size"), [(1, 1 << 20), (7, 1 << 20), (1_000, 1), (1_000, 5_000)])
def test_frames_are_decoded_in_batches(
    open_small: OpenSmall, monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    db = open_small()
    histories.write(db, Random(2), 40)
    with histories.planned(db.path) as plan:
        expected = rows(plan)
        monkeypatch.setattr(frames, "FRAMES", count)
        monkeypatch.setattr(frames, "CHUNK_BYTES", size)
        assert rows(plan) == expected


def test_records_up_to_a_version_are_skipped(open_small: OpenSmall) -> None:
    db = open_small()
    histories.write(db, Random(4), 60)
    with histories.planned(db.path) as plan:
        (part, *_) = plan.parts
        everything = pa.Table.from_batches(decoded(plan, part, EVERYTHING, copies=True)).to_pylist()
        with open(part.origin, "r+b") as file:
            file.seek(70)
            file.write(b"!")
        for after in (1, 5, part.end - 2, part.end - 1, part.end + 7):
            batches = list(decoded(plan, part, EVERYTHING, copies=True, after=after))
            assert [row for batch in batches for row in batch.to_pylist()] == [
                row for row in everything if row["gsn"] > after
            ]


@pytest.fixture
def planned(open_small: OpenSmall) -> Iterator[SnapshotPlan]:
    """The plan of a closed database."""
    db = open_small()
    histories.write(db, Random(5), 60)
    db.close()
    with histories.planned(db.path) as plan:
        yield plan


def test_a_file_that_ends_before_its_last_record(planned: SnapshotPlan) -> None:
    part = planned.parts[0]
    ends = frames.SegmentFile(planned.folder, planned.log_id, part).offsets
    for size in (int(ends[-2]), int(ends[-2]) - 1):
        with open(part.origin, "r+b") as file:
            file.truncate(size)
        with pytest.raises(Corruption, match=r"record \d+ does not match its checksum"):
            list(decoded(planned, part, EVERYTHING, copies=True))


def test_a_frame_with_a_wrong_magic_number_is_named(planned: SnapshotPlan) -> None:
    """The checksum does not cover the first bytes of a frame."""
    part = planned.parts[0]
    begins = int(frames.SegmentFile(planned.folder, planned.log_id, part).offsets[3])
    with open(part.origin, "r+b") as file:
        file.seek(begins)
        (first,) = file.read(1)
        file.seek(begins)
        file.write(bytes((first ^ 1,)))
    with pytest.raises(Corruption, match=f"record {part.first + 3} does not match its checksum"):
        list(decoded(planned, part, EVERYTHING, copies=True))


# ---- records of several items


@pytest.fixture(params=[1, 3, 1_000], ids=["in step", "some in step", "one by one"])
def _walking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "IN_STEP", request.param)


class Written(NamedTuple):
    """Frames in memory."""

    data: bytes

    def damaged(self, offset: int, what: str) -> Corruption:
        return Corruption("memory", offset, what)


def decoded_items(records: list[tuple[int, bytes]]) -> list[tuple[bytes, bytes | None, int]]:
    """Decode records, given as (tag, payload), to (key, value, version) in their order."""
    written = [frame_head(n, SALT, 0, n, tag, payload) + payload for n, (tag, payload) in enumerate(records, 1)]
    gsns, starts = np.arange(1, len(written) + 1), np.array([0, *accumulate(map(len, written))])[:-1]
    none = np.array([], np.int64)
    written_records = Records(Written(b"".join(written)), gsns, starts)
    batches = items(written_records, none, 10**6, EVERYTHING, True, None, None)
    return [(row["key"], row["value"], row["version"]) for batch in batches for row in batch.to_pylist()]


def several(count: int, number: int) -> dict[bytes, bytes | None]:
    """A transaction's writes."""
    return {b"%d-%d" % (number, n): None if n % 5 == 4 else bytes(n % 7) for n in range(count)}


@pytest.mark.usefixtures("_walking")
def test_records_of_all_lengths_in_the_order_of_the_log() -> None:
    rng = Random(3)
    records, expected = [], []
    for gsn in range(1, 60):
        writes = several(rng.choice([0, 1, 1, 2, 3, 9, 40]), gsn)
        if rng.random() < 0.3:
            copies = [Relocated(key, rng.randrange(1, gsn + 1), value) for key, value in writes.items()]
            records.append((RELOCATION, encode_relocation(copies)))
            expected += [(copy.key, copy.value, copy.version) for copy in copies]
        else:
            label, reads = rng.choice([("", ()), ("why", ()), ("", (b"r", b"s"))])
            records.append((COMMIT, encode_commit(Commit(1, gsn, writes, label=label, reads=reads))))
            expected += [(key, value, gsn) for key, value in writes.items()]
    assert decoded_items(records) == expected


MANY = encode_commit(Commit(1, 2, several(4, 0)))
LABELLED = encode_commit(Commit(1, 2, several(4, 0), label="label"))
COPIES = encode_relocation([Relocated(b"k%d" % n, 1, b"v") for n in range(4)])


@pytest.mark.usefixtures("_walking")
@pytest.mark.parametrize(
    ("tag", "payload", "reason"),
    [
        (COMMIT, encode_commit(Commit(1, 2, {b"k": b"v"})) + b"!", "its item does not fill it"),
        (COMMIT, MANY[: COMMIT_HEAD.size - 1], "it is too short"),
        (COMMIT, LABELLED[: COMMIT_HEAD.size + 4], "it is too short"),
        (COMMIT, b"\x02" + MANY[1:], "its format or its flags are unknown"),
        (COMMIT, MANY[:1] + b"\x06" + MANY[2:], "its format or its flags are unknown"),
        (COMMIT, MANY[:-1], "an item ends behind it"),
        (COMMIT, MANY[:-10], "an item ends behind it"),
        (COMMIT, LABELLED[:-1], "an item ends behind it"),
        (COMMIT, MANY + b"!", "there is something after its items"),
        (RELOCATION, COPIES[: RELOCATION_HEAD.size - 1], "it is too short"),
        (RELOCATION, b"\x02" + COPIES[1:], "its format or its flags are unknown"),
        (RELOCATION, COPIES[:-3], "an item ends behind it"),
        (RELOCATION, COPIES + b"!", "there is something after its items"),
    ],
)
def test_a_malformed_record_is_named(tag: int, payload: bytes, reason: str) -> None:
    good = (COMMIT, MANY)
    with pytest.raises(Corruption, match=rf"record 3 cannot be decoded \({reason}\)"):
        decoded_items([good, good, (tag, payload), good])
