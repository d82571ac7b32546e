"""The order and the speculative records of one server, also after a restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from logdb.cores.effects import Create, Drop, Journal, Persist, ProtocolViolation, Trim
from logdb.log.contract import LogRecord, Record
from logdb.log.ziplog.records import header, wrap
from logdb.log.ziplog.storage.sessions import Sessions
from logdb.log.ziplog.storage.shard_log import ORDER, SPECULATIVE, TRIM_RECORDS, ShardLog
from tests.harness.planting import Plants, planted

CLIENT = 7


class Disk:
    """Performs the effects of a log; `sync` makes all of it durable."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self.journals: dict[str, list[Record]] = {}
        self.first: dict[str, int] = {}

    def sync(self, log: ShardLog) -> None:
        """Write everything, and tell the log."""
        written = []
        for effect in self.out:
            if isinstance(effect, Create):
                self.journals[effect.journal] = []
                self.first[effect.journal] = 1
            elif isinstance(effect, Drop):
                self.journals.pop(effect.journal, None)
            elif isinstance(effect, Persist):
                self.journals[effect.journal] += effect.records
                written.append(effect.journal)
            elif isinstance(effect, Trim):
                del self.journals[effect.journal][: effect.before - self.first[effect.journal]]
                self.first[effect.journal] = effect.before
        self.out.clear()
        for journal in written:
            log.persisted(journal, self.end(journal))

    def end(self, journal: str) -> int:
        return self.first[journal] + len(self.journals[journal])

    def mounted(self) -> Mapping[str, Journal]:
        """As a restarted server finds them."""
        return {
            name: Journal(
                self.first[name],
                self.end(name),
                [LogRecord(at, 0, *one) for at, one in enumerate(found, self.first[name])],
            )
            for name, found in self.journals.items()
        }


def log_of(disk: Disk) -> ShardLog:
    log = ShardLog(disk.out, 1 << 20)
    log = log.begin_view((f"{ORDER}1-x", f"{SPECULATIVE}1-x"), 0, 0, (), Sessions())
    disk.sync(log)
    return log


def restarted(disk: Disk, stable: int = 0) -> ShardLog:
    log = ShardLog([], 1 << 20)
    log.load(disk.mounted(), [(f"{ORDER}1-x", 0)], (0, Sessions()), stable, f"{SPECULATIVE}1-x")
    log.check()
    return log


def record(number: int) -> Record:
    return number, b"record %d" % number


def kept(log: ShardLog, cut: int = 0) -> list[tuple[int, int]]:
    """(GSN, sequence number) of all that a view would begin with."""
    return [(gsn, sequence) for gsn, _, sequence in map(header, log.to_keep(cut))]


def test_a_backup_follows_the_primary() -> None:
    disk = Disk()
    log = log_of(disk)
    log.speculate([10, 12], CLIENT, 1, [record(1), record(2)], "client")
    disk.sync(log)
    moved = log.accept(12, [wrap(10, CLIENT, 1, record(1)), wrap(12, CLIENT, 2, record(2))])
    assert moved == []
    assert not log.speculative
    disk.sync(log)
    assert log.durable == 12
    assert kept(log) == kept(restarted(disk)) == [(10, 1), (12, 2)]


def test_a_record_that_the_primary_placed_elsewhere_is_there_once() -> None:
    disk = Disk()
    log = log_of(disk)
    log.speculate([20], CLIENT, 1, [record(1)], "client")
    disk.sync(log)
    assert log.accept(14, [wrap(14, CLIENT, 1, record(1))]) == [("client", CLIENT, 1, 14)]
    disk.sync(log)
    assert kept(log) == kept(restarted(disk)) == [(14, 1)]


def test_it_stays_there_once_when_its_session_is_forgotten() -> None:
    """The void mark on disk tells a restarted server, where the sessions do not."""
    disk = Disk()
    log = log_of(disk)
    log.speculate([20], CLIENT, 1, [record(1)], "client")
    log.accept(14, [wrap(14, CLIENT, 1, record(1))])
    disk.sync(log)
    disk.sync(log)
    again = ShardLog([], 1 << 20)
    again.load(disk.mounted(), [(f"{ORDER}1-x", 0)], (14, Sessions()), 0, f"{SPECULATIVE}1-x")
    assert kept(again) == [(14, 1)]


PLANTED: Plants = {}


@planted(ShardLog, "_replay", PLANTED)
def restore_what_was_void(right: Callable[..., None], self: ShardLog, journal: Journal) -> None:
    right(self, journal._replace(records=[one for one in journal.records if any(one.payload[8:16])]))


def test_a_restart_that_ignores_void_marks_is_caught() -> None:
    """The bug is planted here because seeds seldom reach it: a checkpoint has to forget the session."""
    with PLANTED["restore what was void"](), pytest.raises(AssertionError):
        test_it_stays_there_once_when_its_session_is_forgotten()


def test_the_journal_of_speculative_records_is_trimmed() -> None:
    """Otherwise the journal grew for as long as a view lasted."""
    disk = Disk()
    log = log_of(disk)
    for number in range(1, 3 * TRIM_RECORDS):
        log.speculate([10 * number], CLIENT, number, [record(number)], "client")
        disk.sync(log)
        if number > 2:
            placed = number - 2  # at the same GSN, and another one now and then
            gsn = 10 * placed - placed % 2
            log.accept(gsn, [wrap(gsn, CLIENT, placed, record(placed))])
        while log.durable < log.end:
            disk.sync(log)
        disk.sync(log)
        assert len(disk.journals[f"{SPECULATIVE}1-x"]) < 2 * TRIM_RECORDS
        log.check()
    again = restarted(disk)
    assert kept(again) == kept(log)
    again.speculate([10 * number + 5], CLIENT, number + 1, [record(0)], "client")
    again.check()


def test_a_record_is_not_void_before_the_one_in_its_place_is_durable() -> None:
    """Found by seed 40134 on nodes: a restart lost the first record of an append, and kept the second."""
    disk = Disk()
    log = log_of(disk)
    log.speculate([20, 22], CLIENT, 1, [record(1), record(2)], "client")
    disk.sync(log)
    log.accept(15, [wrap(14, CLIENT, 1, record(1))])
    speculative = [one for one in disk.out if isinstance(one, Persist) and one.journal.startswith(SPECULATIVE)]
    assert speculative == []
    assert kept(restarted(disk)) == [(20, 1), (22, 2)]
    disk.sync(log)
    assert log.durable < 15, "the void mark is not durable"
    disk.sync(log)
    assert log.durable == 15
    assert kept(restarted(disk)) == [(14, 1), (22, 2)]


def test_a_skip_makes_nothing_void_before_the_order_in_front_of_it_is_durable() -> None:
    """Otherwise a power failure lost an acknowledged record: the skip's mark also covers those that the order moved."""
    disk = Disk()
    log = log_of(disk)
    log.speculate([20], CLIENT, 1, [record(1)], "client")
    log.speculate([25], CLIENT, 2, [record(2)], "client")
    disk.sync(log)
    log.accept(14, [wrap(14, CLIENT, 1, record(1))])
    log.accept(30, ())
    assert [one for one in disk.out if isinstance(one, Persist) and one.journal.startswith(SPECULATIVE)] == []
    assert kept(restarted(disk)) == [(20, 1), (25, 2)]
    while log.durable < 30:
        disk.sync(log)
    assert kept(restarted(disk)) == [(14, 1)]


def test_a_speculative_record_survives_a_restart_until_the_order_passes_it() -> None:
    disk = Disk()
    log = log_of(disk)
    log.speculate([20], CLIENT, 1, [record(1)], "client")
    disk.sync(log)
    assert kept(restarted(disk)) == [(20, 1)]
    log.accept(20, ())
    assert kept(log) == []
    assert log.durable < 20, "the skip is not durable before the record's end is"
    disk.sync(log)
    assert log.durable == 20
    assert kept(restarted(disk)) == []


def test_records_placed_together_are_dropped_from_the_first_that_is_passed() -> None:
    """Otherwise the rest would come before those that are inserted again."""
    disk = Disk()
    log = log_of(disk)
    log.speculate([20, 22, 24], CLIENT, 1, [record(1), record(2), record(3)], "client")
    log.accept(21, ())
    assert kept(log) == []
    disk.sync(log)
    assert kept(restarted(disk)) == []


def test_a_skip_without_speculative_records_needs_no_disk() -> None:
    log = log_of(Disk())
    log.accept(100, ())
    assert log.durable == log.end == log.frontier == 100


def test_nothing_is_placed_at_or_below_the_frontier() -> None:
    log = log_of(Disk())
    log.accept(100, ())
    with pytest.raises(ProtocolViolation, match="ZIP-3"):
        log.speculate([100], CLIENT, 1, [record(1)], "client")
    with pytest.raises(ProtocolViolation, match="ZIP-3"):
        log.place([100], CLIENT, 1, [record(1)])


def test_a_view_without_records_may_begin_before_what_was_passed() -> None:
    """The view of a shard that never had records begins at 0, whatever its servers have passed and restarted since."""
    disk = Disk()
    log_of(disk).accept(100, ())
    assert kept(restarted(disk, stable=100)) == []


def test_a_new_view_drops_what_its_source_does_not_have() -> None:
    disk = Disk()
    log = log_of(disk)
    log.place([10, 12], CLIENT, 1, [record(1), record(2)])
    disk.sync(log)
    log = log.begin_view((f"{ORDER}2-x", f"{SPECULATIVE}2-x"), 10, 10, (), Sessions())
    log.accept(30, [wrap(30, CLIENT, 2, record(2))])
    disk.sync(log)
    assert [header(one)[0] for one in log.store.behind(0)] == [10, 30]
    again = ShardLog([], 1 << 20)
    again.load(disk.mounted(), [(f"{ORDER}1-x", 0), (f"{ORDER}2-x", 10)], (0, Sessions()), 0, f"{SPECULATIVE}2-x")
    assert kept(again) == [(10, 1), (30, 2)]
    assert again.sessions.find(CLIENT, 2) == 30


def test_records_placed_together_are_dropped_together_after_a_crash() -> None:
    """The order has passed the first one, and the note that all of them are void was not durable. If the view kept the
    others, the first one would be inserted again behind them (ZIP-13)."""
    disk = Disk()
    log = log_of(disk)
    log.speculate([20, 22, 24], CLIENT, 1, [record(1), record(2), record(3)], "client")
    log.speculate([26], CLIENT, 4, [record(4)], "client")
    disk.sync(log)
    log.accept(21, [wrap(21, 8, 1, record(5))])
    disk.sync(log)
    assert kept(log) == kept(restarted(disk)) == [(21, 1), (26, 4)]


def test_what_was_placed_together_is_known_after_older_records_were_trimmed() -> None:
    disk = Disk()
    log = log_of(disk)
    for number in range(TRIM_RECORDS):
        log.speculate([10 + number], CLIENT, number, [record(1)], "client")
    last = 9 + TRIM_RECORDS
    log.speculate([last + 1, last + 3], CLIENT, 100, [record(1), record(2)], "client")
    log.accept(last, [wrap(10 + number, CLIENT, number, record(1)) for number in range(TRIM_RECORDS)])
    disk.sync(log)
    log.skip(last)
    disk.sync(log)
    assert disk.first[log.speculative_journal] > 1
    log.accept(last + 2, [wrap(last + 2, 8, 1, record(5))])
    disk.sync(log)
    assert kept(log, last) == kept(restarted(disk), last) == [(last + 2, 1)]
