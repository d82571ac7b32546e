"""The entries of a unit: a sparse index over a dense journal, rebuilt at a start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from logdb.cores.effects import Effect, Journal, Persist, Trim
from logdb.log.contract import LogRecord, Record
from logdb.log.corfu.messages import Entry
from logdb.log.corfu.projection import gsn_at
from logdb.log.corfu.storage.entry_store import MAX_FOUND, EntryStore


class Stored:
    """A store, and the records that it has written."""

    def __init__(self, cache_bytes: int = 0) -> None:
        self.out: list[Effect] = []
        self.store = EntryStore(self.out, cache_bytes)

    def add(self, position: int, *payloads: bytes, client: int = 7, time: int = 0) -> None:
        """Write an entry, durably."""
        entry = Entry(position, time or position * 10, client, position * 100, len(payloads))
        self.store.add(entry, [(1, payload) for payload in payloads])
        self.store.durable = self.store.next

    def records(self) -> list[Record]:
        """All records of the journal."""
        return [record for effect in self.out if isinstance(effect, Persist) for record in effect.records]

    def reopened(self, count: int | None = None, oldest: int = 0) -> EntryStore:
        """A store with the first `count` records of the journal."""
        records = self.records()[:count]
        stored = [LogRecord(lsn, 0, tag, payload) for lsn, (tag, payload) in enumerate(records, 1)]
        store = EntryStore([], 0)
        store.load(Journal(1, len(stored) + 1, stored), oldest)
        return store


def content(store: EntryStore) -> list[tuple[Any, ...]]:
    """All that an index says of its entries."""
    found = [at for position in range(100) if (at := store.durable_at(position)) is not None]
    return [(store.entry(at), store.end(at), store.ranges_of(store.entry(at))) for at in found]


def test_a_position_is_written_once() -> None:
    stored = Stored()
    stored.add(5, b"a")
    with pytest.raises(AssertionError, match="COR-1"):
        stored.add(5, b"b")


def test_the_index_is_rebuilt_from_the_journal() -> None:
    stored = Stored()
    for position in (4, 2, 9, 3):
        stored.add(position, *[b"%d" % position] * position)
    stored.add(7, client=0)
    again = stored.reopened()
    assert content(again) == content(stored.store)
    assert (again.next, again.highest, again.last, again.time) == (24, 9, gsn_at(9, 8), 90)


def test_an_entry_without_its_description_does_not_count_and_later_ones_do() -> None:
    stored = Stored()
    stored.add(1, b"a", b"b")
    torn = stored.reopened(2)
    assert (content(torn), torn.next) == ([], 3)
    whole = Stored()
    whole.add(2, b"c")
    garbage: list[Record] = [(1, b"a"), (1, b"b")]
    stored.out[:] = [Persist("entries", 1, [*garbage, *whole.records()])]
    again = stored.reopened()
    assert [entry.position for entry, _, _ in content(again)] == [2]
    assert again.ranges_of(again.entry(0))[0][:3] == ("entries", 3, 4)


def test_what_is_not_durable_is_not_there_yet() -> None:
    stored = Stored()
    stored.add(1, b"a")
    stored.store.add(Entry(2, 20, 7, 200, 1), [(1, b"b")])
    assert (stored.store.find(2), stored.store.durable_at(2)) == (1, None)
    assert stored.store.last_durable() == gsn_at(1)
    assert [one.position for one in stored.store.consecutive(1, 1, 0, 1000)] == [1]


def test_consecutive_entries_end_at_a_hole() -> None:
    stored = Stored()
    for position in (1, 3, 5, 9):
        stored.add(position, b"x" * 10)
    store = stored.store
    assert [one.position for one in store.consecutive(1, 2, 0, 1000)] == [1, 3, 5]
    assert [one.position for one in store.consecutive(1, 2, 4, 1000)] == [1, 3]
    assert [one.position for one in store.consecutive(1, 2, 0, 1)] == [1]
    assert store.consecutive(7, 2, 0, 1000) == []


def test_the_last_record_at_a_time_is_found_between_junk() -> None:
    stored = Stored()
    for position in range(1, 30):
        stored.add(position, *([] if position % 3 else [b"a", b"b"]), client=0 if position % 3 else 7)
    for time in range(0, 320, 7):
        expected = max([position for position in range(3, 30, 3) if position * 10 <= time], default=0)
        assert stored.store.last_at(time, 0) == (gsn_at(expected, 1) if expected else 0)
    assert stored.store.last_at(999, 9) == gsn_at(6, 1)


def test_trimming_deletes_the_beginning_of_the_journal_and_keeps_the_tail() -> None:
    stored = Stored()
    for position in (1, 4, 2, 3):
        stored.add(position, b"x")
    store = stored.store
    store.trim_index(3)
    store.trim_journal()
    assert stored.out[-1] == Trim("entries", 3)
    assert [entry.position for entry, _, _ in content(store)] == [3, 4]
    store.trim_index(5)
    store.trim_journal()
    assert (stored.out[-1], store.last_durable(), store.highest) == (Trim("entries", 9), gsn_at(4), 4)
    assert content(stored.reopened(oldest=4)) == content(stored.reopened(oldest=4))[-1:]


def test_the_entries_of_a_client_are_found_by_sequence_number() -> None:
    stored = Stored()
    stored.add(1, b"a", b"b")
    stored.add(2, b"c", client=8)
    stored.add(3, b"d")
    found = stored.store.of_client
    assert [one.position for one in found(7, ((101, 1), (300, 5)))] == [1, 3]
    assert [one.position for one in found(7, ((102, 100),))] == []


def test_a_status_looks_at_few_of_the_requested_runs_for_each_entry() -> None:
    """A request with 256 runs took a unit with 100,000 entries of the client seconds, so that it seemed to be lost."""

    class Runs(list[tuple[int, int]]):
        looks = 0

        def __iter__(self) -> Iterator[tuple[int, int]]:
            for one in super().__iter__():
                self.looks += 1
                yield one

        def __getitem__(self, at: Any) -> Any:
            self.looks += 1
            return super().__getitem__(at)

    stored = Stored()
    for position in range(1, 101):
        stored.add(position, b"x")
    runs = Runs([(position * 100 + 50, 1) for position in range(1, 256)])
    runs[70] = 7_100, 1
    assert [one.position for one in stored.store.of_client(7, runs)] == [71]
    assert runs.looks < 100 * 20


def test_entries_count_for_the_limit_of_a_pull_even_if_they_have_no_bytes() -> None:
    stored = Stored()
    for position in range(1, 401):
        stored.add(position, client=0)
    for position in range(401, 501):
        stored.add(position, *[b""] * 50)
    assert len(stored.store.consecutive(1, 1, 0, 3_200)) == 50
    assert len(stored.store.consecutive(401, 1, 0, 3_200)) == 2
    assert len(stored.reopened().consecutive(401, 1, 0, 3_200)) == 2


def test_a_status_names_a_limited_number_of_entries() -> None:
    stored = Stored()
    for position in range(1, MAX_FOUND + 9):
        stored.add(position, b"x")
    assert len(stored.store.of_client(7, ((0, 1 << 40),))) == MAX_FOUND
