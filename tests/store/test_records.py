"""Every record survives encoding and decoding; a decoder returns a record or raises MalformedRecord for any bytes."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.store import conditions
from logdb.store.records import (
    ITEMS_AT_ONCE,
    Commit,
    Compaction,
    Condition,
    Decision,
    MalformedRecord,
    Place,
    Relocated,
    TxnId,
    decode_commit,
    decode_compaction,
    decode_decision,
    decode_pin,
    decode_relocation,
    encode_commit,
    encode_compaction,
    encode_decision,
    encode_pin,
    encode_relocation,
)

u64 = st.integers(0, (1 << 64) - 1)
keys = st.one_of(st.binary(min_size=1, max_size=20), st.sampled_from([b"k" * 8192, b"\xff" * 300]))
places = st.builds(Place, u64, st.integers(0, (1 << 32) - 1), u64, st.binary(min_size=16, max_size=16))
values = st.one_of(st.none(), st.binary(max_size=30), places)
made = st.one_of(
    st.builds(conditions.equals, keys, st.one_of(st.binary(max_size=9), st.just(b"x" * 5_000))),
    st.builds(conditions.absent, keys),
    st.builds(conditions.exists, keys),
    st.builds(conditions.version_equals, keys, u64),
    st.builds(conditions.version_less, keys, u64),
    st.builds(conditions.version_greater, keys, u64),
)
commits = st.builds(
    Commit,
    u64,
    u64,
    st.dictionaries(keys, values, max_size=4),
    u64,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    st.lists(keys, max_size=3),
    st.lists(st.tuples(st.one_of(st.just(b""), keys), st.one_of(st.none(), keys)), max_size=3),
    st.lists(made, max_size=3),
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(commits)
def test_commit(commit: Commit) -> None:
    payload = encode_commit(commit)
    decoded = decode_commit(payload)
    if commit.label or commit.reads or commit.ranges or commit.conditions:
        assert decoded == commit
    else:  # the snapshot of a commit without reads is not stored
        assert decoded == commit._replace(snapshot=0, reads=(), ranges=(), conditions=())
    for cut in {1, len(payload) // 2, len(payload) - 1}:
        with pytest.raises(MalformedRecord):
            decode_commit(payload[:cut])
    with pytest.raises(MalformedRecord):
        decode_commit(payload + b"\0")


@given(u64, u64, st.lists(u64, max_size=5))
def test_decision(after: int, through: int, aborted: list[int]) -> None:
    assert decode_decision(encode_decision(Decision(after, through, aborted))) == (after, through, aborted)


@given(st.lists(st.builds(Relocated, keys, u64, values), max_size=5))
def test_relocation(entries: list[Relocated]) -> None:
    assert decode_relocation(encode_relocation(entries)) == entries


bounds = st.lists(u64, min_size=2, max_size=8, unique=True)
stretches = bounds.map(lambda bounds: tuple(sorted(bounds)[len(bounds) % 2 :]))


@given(u64, st.dictionaries(u64, stretches, max_size=4), st.dictionaries(names, u64, max_size=4))
def test_compaction(floor: int, sessions: dict[int, tuple[int, ...]], pins: dict[str, int]) -> None:
    assert decode_compaction(encode_compaction(Compaction(floor, sessions, pins))) == (floor, sessions, pins)


def test_a_compaction_record_of_format_1_marks_all_earlier_numbers_as_used() -> None:
    payload = struct.pack("<BQIIQQ", 1, 8, 1, 0, 7, 5)
    assert decode_compaction(payload) == Compaction(8, {7: (0, 6)}, {})


@pytest.mark.parametrize("bounds", [(), (1,), (1, 2, 3), (2, 1), (1, 2, 2, 3)])
def test_bounds_that_are_not_ranges_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(MalformedRecord, match="are not ranges"):
        decode_compaction(encode_compaction(Compaction(8, {7: bounds}, {})))


@given(names, u64)
def test_pin(name: str, version: int) -> None:
    assert decode_pin(encode_pin(name, version)) == (name, version)


ENCODED = [
    encode_commit(Commit(1, 2, {b"k": b"v", b"d": None, b"l": Place(1, 0, 9, b"d" * 16)})),
    encode_commit(
        Commit(1, 2, {b"k": b"v"}, 7, "label", [b"r"], [(b"a", None), (b"b", b"c")], [Condition(16, b"k", 5)])
    ),
    encode_decision(Decision(1, 9, [3, 4])),
    encode_relocation([Relocated(b"k", 3, b"v"), Relocated(b"l", 4, Place(1, 0, 9, b"d" * 16))]),
    encode_compaction(Compaction(3, {1: (0, 2, 5, 9)}, {"pin": 4})),
    encode_pin("name", 4),
]
DECODERS: list[Callable[[bytes], object]] = [
    decode_commit,
    decode_decision,
    decode_relocation,
    decode_compaction,
    decode_pin,
]


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.data())
def test_decoders_accept_any_bytes(decode: Callable[[bytes], object], data: st.DataObject) -> None:
    payload = bytearray(data.draw(st.one_of(st.binary(max_size=60), st.sampled_from(ENCODED))))
    flips = st.lists(st.tuples(st.integers(0, max(len(payload) - 1, 0)), st.integers(0, 255)), max_size=3)
    for position, byte in data.draw(flips) if payload else []:
        payload[position] = byte
    with contextlib.suppress(MalformedRecord):
        decode(bytes(payload))


@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 63) - 1))
def test_txn_id(client: int, sequence: int) -> None:
    assert TxnId.parse(str(TxnId(client, sequence))) == (client, sequence)


@pytest.mark.parametrize("reads", [[], [b"r"]])
@pytest.mark.parametrize("count", [ITEMS_AT_ONCE - 1, ITEMS_AT_ONCE, ITEMS_AT_ONCE + 1, 3 * ITEMS_AT_ONCE])
def test_a_commit_of_many_writes(count: int, reads: list[bytes]) -> None:
    kinds = (b"value", None, Place(1, 2, 3, b"d" * 16))
    commit = Commit(1, 2, {b"%d" % key: kinds[key % 3] for key in range(count)}, 7 * len(reads), reads=reads)
    decoded = decode_commit(encode_commit(commit))
    assert (decoded.writes, decoded.snapshot, list(decoded.reads)) == (commit.writes, commit.snapshot, reads)


def test_encoding_many_writes_needs_little_more_memory_than_the_payload() -> None:
    """As a list of parts it needed three times the memory."""
    commit = Commit(1, 2, {b"%09d" % key: b"v" * 20 for key in range(50 * ITEMS_AT_ONCE)})
    tracemalloc.start()
    try:
        payload = encode_commit(commit)
        assert tracemalloc.get_traced_memory()[1] < 1.5 * len(payload)
    finally:
        tracemalloc.stop()
