"""Records in memory and in journals with gaps."""

from __future__ import annotations

from logdb.cores.effects import Create, Drop, Effect, Journal, JournalRange, Persist, Trim
from logdb.log.contract import Record
from logdb.log.multipaxos.record_store import RecordStore


def records(first: int, end: int) -> list[Record]:
    return [(1, b"%d" % number) for number in range(first, end)]


def journal(first: int, end: int) -> Journal:
    return Journal(first, end, [])


def payloads(effects: list[Effect]) -> dict[str, list[int]]:
    """The payloads written to each journal."""
    written: dict[str, list[int]] = {}
    for effect in effects:
        if isinstance(effect, Persist):
            numbers = [int(payload) for _, payload in effect.records]
            assert numbers == list(range(effect.first, effect.first + len(numbers)))
            written.setdefault(effect.journal, []).extend(numbers)
    return written


def test_records_are_written_together_and_kept_in_memory_until_they_are_durable() -> None:
    out: list[Effect] = []
    store = RecordStore({}, out, cache_bytes=0)
    store.append(1, records(1, 4))
    store.append(4, records(4, 6))
    assert not out
    store.flush()
    assert out[0] == Create("records-1", 1)
    assert payloads(out) == {"records-1": [1, 2, 3, 4, 5]}
    assert [record.lsn for record in store.cached(2, 6) or ()] == [2, 3, 4, 5]
    assert not store.ranges(2, 6)
    store.persisted("records-1", 4)
    assert store.cached(2, 6) is None
    assert [record.lsn for record in store.cached(4, 6) or ()] == [4, 5]
    assert store.ranges(2, 6) == [JournalRange("records-1", 2, 4, 2, 0)]
    assert store.is_durable(1, 4)
    assert not store.is_durable(1, 5)


def test_records_that_a_journal_has_are_not_written_again() -> None:
    out: list[Effect] = []
    store = RecordStore({"records-1": journal(1, 8), "paxos": journal(1, 90)}, out, cache_bytes=0)
    store.reset(5)
    store.append(5, records(5, 10))
    store.flush()
    assert payloads(out) == {"records-1": [8, 9]}


def test_records_that_are_not_flushed_stay_in_memory_though_a_journal_has_them() -> None:
    """After a restart, while older records are copied (seed 390362718954 of the simulator)."""
    out: list[Effect] = []
    store = RecordStore({"records-1": journal(1, 8), "records-20": journal(20, 25)}, out, cache_bytes=0)
    store.reset(20)
    store.append(20, records(20, 27))
    store.store(8, records(8, 10))
    store.persisted("records-1", 10)
    store.check()
    store.flush()
    assert payloads(out) == {"records-1": [8, 9], "records-20": [25, 26]}
    store.persisted("records-20", 27)
    store.check()
    assert store.cached(26, 27) is None


def test_a_gap_is_skipped_and_filled_later() -> None:
    """MPX-5."""
    out: list[Effect] = []
    store = RecordStore({"records-1": journal(1, 8)}, out, cache_bytes=0)
    store.reset(20)
    store.append(20, records(20, 22))
    store.flush()
    assert store.missing(1) == (8, 20)
    assert store.missing(30) is None
    store.store(8, records(8, 15))
    assert store.missing(1) == (15, 20)
    store.store(15, records(15, 22))
    assert store.missing(1) is None
    assert payloads(out) == {"records-20": [20, 21], "records-1": list(range(8, 20))}
    store.persisted("records-1", 20)
    assert not store.is_durable(1, 22)
    store.persisted("records-20", 22)
    assert store.is_durable(1, 22)
    assert store.ranges(18, 22) == [JournalRange("records-1", 18, 20, 18, 0), JournalRange("records-20", 20, 22, 20, 0)]
    store.check()


def test_a_replica_without_a_disk_copies_from_the_oldest_record_on() -> None:
    out: list[Effect] = []
    store = RecordStore({}, out, cache_bytes=0)
    store.reset(20)
    assert store.missing(6) == (6, 20)
    store.store(6, records(6, 9))
    store.append(20, records(20, 21))
    store.flush()
    assert [effect for effect in out if isinstance(effect, Create)] == [
        Create("records-6", 6),
        Create("records-20", 20),
    ]
    assert store.missing(6) == (9, 20)


def test_trimmed_journals_are_dropped() -> None:
    out: list[Effect] = []
    store = RecordStore({"records-1": journal(1, 8), "records-12": journal(12, 30)}, out, cache_bytes=0)
    store.reset(30)
    store.trim(5)
    store.trim(5)
    store.trim(14)
    assert out == [Trim("records-1", 5), Drop("records-1"), Trim("records-12", 14)]
    assert store.missing(14) is None


def test_records_that_are_not_durable_are_not_trimmed() -> None:
    out: list[Effect] = []
    store = RecordStore({}, out, cache_bytes=1 << 20)
    store.append(1, records(1, 10))
    store.flush()
    store.persisted("records-1", 4)
    out.clear()
    store.trim(8)
    store.persisted("records-1", 10)
    store.trim(8)
    assert out == [Trim("records-1", 4), Trim("records-1", 8)]


def test_journals_have_different_names() -> None:
    """A journal keeps its name when its first records are trimmed; a new journal gets another name."""
    out: list[Effect] = []
    store = RecordStore({"records-3": journal(9, 12)}, out, cache_bytes=0)
    store.reset(12)
    store.store(3, records(3, 9))
    assert out[0] == Create("records-3-1", 3)
