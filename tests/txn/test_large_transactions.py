"""A transaction of many writes costs the same for each of them, in whatever order, and so does a scan in it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logdb
from logdb.txn.transaction import Transaction

KEYS = 20_000
Model = dict[bytes, bytes]


class Counted(bytes):
    """A key that counts how often keys are compared."""

    compared = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.compared += 1
        return bytes.__lt__(self, other)

    __hash__ = bytes.__hash__


class Writes(dict[bytes, bytes | None]):
    """The writes of a transaction, which count how many of them are looked at."""

    looked_at = 0

    def __getitem__(self, key: bytes) -> bytes | None:
        self.looked_at += 1
        return super().__getitem__(key)


@pytest.fixture
def txn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Transaction]:
    """A transaction that takes counted keys."""
    monkeypatch.setattr("logdb.txn.transaction.check_key", lambda key: None)
    with logdb.open(":memory:") as db, db.transaction() as txn:
        txn.writes = Writes()
        yield txn


def random_keys(seed: int) -> list[Counted]:
    keys = [Counted(b"%09d" % number) for number in range(0, 2 * KEYS, 2)]
    random.Random(seed).shuffle(keys)
    return keys


def test_a_put_compares_no_keys(txn: Transaction) -> None:
    Counted.compared = 0
    for key in random_keys(1):
        txn.put(key, b"v")
    assert Counted.compared == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_after_each_put_neither_sorts_nor_reads_all_again(txn: Transaction, reverse: bool) -> None:
    keys = random_keys(2)
    for key in keys:
        txn.put(key, b"v")
    assert len(list(txn.scan(limit=1))) == 1
    assert isinstance(txn.writes, Writes)
    Counted.compared, txn.writes.looked_at = 0, 0
    scans = 500
    for key in keys[:scans]:
        txn.put(Counted(b"%09d" % (int(key) + 1)), b"new")
        start, end = (None, key + b"\0") if reverse else (bytes(key), None)
        assert next(txn.scan(start, end, reverse=reverse, limit=1)) == (key, b"v")
    assert Counted.compared < scans * 8 * math.log2(KEYS)
    assert txn.writes.looked_at < scans * 20


def test_the_first_rows_of_an_endless_scan_cost_as_little(txn: Transaction) -> None:
    for key in random_keys(3):
        txn.put(key, b"v")
    assert isinstance(txn.writes, Writes)
    txn.writes.looked_at = 0
    assert next(txn.scan()) == (b"%09d" % 0, b"v")
    assert txn.writes.looked_at < 20


def test_a_range_delete_looks_at_the_writes_in_its_range(txn: Transaction, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.txn.transaction.range_to_delete", lambda start, end: [(start, end)])
    keys = random_keys(4)
    for key in keys:
        txn.put(key, b"v")
    txn.delete_range(keys[0], Counted(keys[0] + b"\0"))  # sorts the writes
    Counted.compared = 0
    deletes = 1_000
    for key in keys[1 : deletes + 1]:
        txn.delete_range(key, Counted(key + b"\0"))
    assert Counted.compared < deletes * 16 * math.log2(KEYS)
    assert len(txn.deletes) == deletes + 1
    assert len(txn.writes) == KEYS - deletes - 1
    assert txn.get(keys[1]) is None
    assert txn.get(keys[-1]) == b"v"


small = st.integers(0, 200).map(lambda number: b"%03d" % number)
written = st.dictionaries(small, st.one_of(st.none(), st.binary(max_size=2)), max_size=120)


@given(
    st.dictionaries(small, st.binary(max_size=2), max_size=120),
    written,
    written,
    st.tuples(st.none() | small, st.none() | small, st.booleans(), st.none() | st.integers(1, 150)),
)
def test_own_writes_are_read_in_every_position(
    before: Model,
    first: dict[bytes, bytes | None],
    more: dict[bytes, bytes | None],
    asked: tuple[bytes | None, bytes | None, bool, int | None],
) -> None:
    """Also those that were made after a scan had put the others in order."""
    start, end, reverse, limit = asked
    model = dict(before)
    with logdb.open(":memory:") as db:
        db.multi_put({**before, b"999": b"last"})
        model[b"999"] = b"last"
        with db.transaction() as txn:
            for writes in (first, more):
                txn.multi_put(writes)
                for key, value in writes.items():
                    model.pop(key, None)
                    if value is not None:
                        model[key] = value
                rows = sorted(model.items(), reverse=reverse)
                rows = [row for row in rows if (start or b"") <= row[0] and (end is None or row[0] < end)]
                assert list(txn.scan(start, end, reverse=reverse, limit=limit)) == rows[:limit]
