"""Every record survives encoding and decoding; a decoder returns a record or raises MalformedRecord for any bytes."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.store import conditions
from logdb.store.limits import MAX_VALUE_BYTES
from logdb.store.records import (
    ITEMS_AT_ONCE,
    Commit,
    Compaction,
    Condition,
    Decision,
    Fold,
    MalformedRecord,
    Place,
    Relocated,
    TxnId,
    Value,
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
    has_folds,
    unversioned_key,
)

u64 = st.integers(0, (1 << 64) - 1)
keys = st.one_of(st.binary(min_size=1, max_size=20), st.sampled_from([b"k" * 8192, b"\xff" * 300]))
lengths = st.integers(0, MAX_VALUE_BYTES + 1)
places = st.builds(Place, u64, st.integers(0, (1 << 32) - 1), lengths, st.binary(min_size=16, max_size=16))
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
    st.lists(
        st.tuples(st.one_of(st.just(b""), keys), st.one_of(st.none(), keys)).filter(
            lambda deleted: deleted[1] is None or deleted[0] < deleted[1]
        ),
        max_size=2,
    ),
    st.just(0),
    st.just([]),
)
folds = st.lists(st.builds(Fold, st.integers(1, 3), keys, st.integers(-(10**99), 10**99)), max_size=3)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


prefixes = st.one_of(st.just(b""), keys.filter(lambda key: len(key) < 99))
appends = st.dictionaries(st.builds(unversioned_key, prefixes, st.integers(0, 3)), values.filter(bool), max_size=3)


def with_appends(commit: Commit, appends: dict[bytes, Value]) -> Commit:
    writes = {key: value for key, value in commit.writes.items() if key not in appends}
    return commit._replace(writes={**writes, **appends}, appended=len(appends))


@given(st.builds(with_appends, commits, appends), u64.filter(bool))
def test_appends_get_the_version_of_their_record(commit: Commit, gsn: int) -> None:
    ordered = decode_commit(encode_commit(commit), gsn)
    plain = len(commit.writes) - commit.appended
    made = {key[:-12] + gsn.to_bytes(8) + key[-4:]: value for key, value in list(commit.writes.items())[plain:]}
    assert ordered.writes == {**dict(list(commit.writes.items())[:plain]), **made}
    assert ordered.appended == 0
    assert commit.ordered_at(gsn).writes == ordered.writes


def test_an_older_decoder_refuses_a_record_with_appends() -> None:
    """An older decoder knows the flags 1 and 2."""
    payload = encode_commit(Commit(1, 2, {unversioned_key(b"p/", 0): b"v"}, appended=1))
    assert payload[1] not in (0, 1, 3)


@pytest.mark.parametrize(
    ("writes", "appended"),
    [
        ({b"short": b"v"}, 1),
        ({unversioned_key(b"p", 0): b"v"}, 2),
        ({b"p" + bytes(7) + b"\1" + bytes(4): b"v"}, 1),
        ({unversioned_key(b"p", 0): None}, 1),
    ],
    ids=["a short key", "more than there are", "a key with a version", "a deletion"],
)
def test_writes_that_cannot_be_appends(writes: dict[bytes, Value], appended: int) -> None:
    with pytest.raises(MalformedRecord):
        decode_commit(encode_commit(Commit(1, 2, writes, appended=appended)), 7)


def with_folds(commit: Commit, folds: list[Fold]) -> Commit:
    return commit._replace(folds=[fold for fold in folds if fold.key not in commit.writes])


with_all = st.builds(with_folds, st.builds(with_appends, commits, appends), folds)


@pytest.mark.parametrize(
    "fold",
    [Fold(0, b"k", 1), Fold(4, b"k", 1), Fold(1, b"written", 1)],
    ids=["no operator", "an unknown operator", "of a key that is written"],
)
def test_folds_that_no_client_makes(fold: Fold) -> None:
    with pytest.raises(MalformedRecord, match="no fold"):
        decode_commit(encode_commit(Commit(1, 2, {b"written": b""}, folds=[fold])), 0)


def test_a_record_tells_that_it_has_folds() -> None:
    assert has_folds(encode_commit(Commit(1, 2, {}, folds=[Fold(1, b"k", 1)])))
    assert not has_folds(encode_commit(Commit(1, 2, {b"k": b"1"}, label="x", appended=0)))


@given(with_all)
def test_commit(commit: Commit) -> None:
    payload = encode_commit(commit)
    decoded = decode_commit(payload, 0)
    if any(
        (commit.label, commit.reads, commit.ranges, commit.conditions, commit.deletes, commit.appended, commit.folds)
    ):
        assert decoded == commit
    else:  # the snapshot of a commit without reads is not stored
        assert decoded == commit._replace(snapshot=0, reads=(), ranges=(), conditions=(), deletes=(), folds=())
    for cut in {1, len(payload) // 2, len(payload) - 1}:
        with pytest.raises(MalformedRecord):
            decode_commit(payload[:cut], 0)
    with pytest.raises(MalformedRecord):
        decode_commit(payload + b"\0", 0)


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
    assert decode_compaction(encode_compaction(Compaction(floor, sessions, pins))) == (floor, sessions, pins, [])


def test_a_compaction_record_of_format_1_marks_all_earlier_numbers_as_used() -> None:
    payload = struct.pack("<BQIIQQ", 1, 8, 1, 0, 7, 5)
    assert decode_compaction(payload) == Compaction(8, {7: (0, 6)}, {}, [])


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
    encode_commit(Commit(1, 2, {b"k": b"v", unversioned_key(b"p/", 0): b"v"}, appended=1)),
    encode_decision(Decision(1, 9, [3, 4])),
    encode_relocation([Relocated(b"k", 3, b"v"), Relocated(b"l", 4, Place(1, 0, 9, b"d" * 16))]),
    encode_compaction(Compaction(3, {1: (0, 2, 5, 9)}, {"pin": 4})),
    encode_pin("name", 4),
]
DECODERS: list[Callable[[bytes], object]] = [
    partial(decode_commit, gsn=0),
    partial(decode_commit, gsn=9),
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
    decoded = decode_commit(encode_commit(commit), 0)
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
