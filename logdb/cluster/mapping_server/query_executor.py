"""The result of a question: a pure function of a replica, or of a map, and a version."""

from __future__ import annotations

from typing import Any, Final

from logdb.cluster.mapping_server.replica import Replica, size_of
from logdb.cluster.messages import (
    MAX_RANGES,
    Aborted,
    ColdCommits,
    ColdValue,
    CommitPage,
    Entries,
    Floor,
    Get,
    History,
    Measure,
    Measured,
    MultiRows,
    MultiScan,
    NotApplied,
    Oldest,
    Outcome,
    Pin,
    Pinned,
    Pins,
    Question,
    Result,
    Rows,
    Scan,
    Turn,
    ValuePart,
    VersionReply,
    Versions,
    VersionTrimmedReply,
)
from logdb.log.requests import END
from logdb.store.garbage import garbage_share
from logdb.store.key_map import KeyMap, Passed
from logdb.store.records import TxnId, Value
from logdb.txn.measures import encode_measures, measures_of

MAX_BATCHES: Final = 16
"""Maximum number of batches of a page: each counts as this part of it at least, since about 500 keys were looked at,
however few of them exist. The last batch of a range counts as what it has."""
MAX_EMPTY: Final = 2_048
"""The same for ranges without rows."""


class Budget:
    """The limit of the cost of an answer. `left`: bytes. `looked`: how many of those spent are not in the result, but
    stand for keys that were looked at."""

    __slots__ = ("left", "looked", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = self.left = max_bytes
        self.looked = 0

    def look(self, size: int) -> None:
        """Spend bytes that are not in the result."""
        self.left -= size
        self.looked += size


def answer(replica: Replica, question: Question, at: int, budget: Budget) -> Result:
    """The result as of version `at`, which the replica has applied; ranges end when the budget is spent."""
    coordinator = replica.coordinator
    if at < coordinator.floor or isinstance(question, ColdCommits | ColdValue):
        return VersionTrimmedReply(coordinator.floor)
    if isinstance(question, Get | Turn | Scan | MultiScan | History):
        return answer_from(replica.map, coordinator.floor, question, at, budget)
    if isinstance(question, Outcome):
        return coordinator.outcome(TxnId(*question))
    if isinstance(question, Pins):
        pins = sorted(coordinator.pins.items())
        return Pinned(tuple([Pin(name, min(version, END)) for name, version in pins]))  # one may be forged
    if isinstance(question, Aborted):
        if question.after + 1 < coordinator.floor:
            return VersionTrimmedReply(coordinator.floor)
        return NotApplied(tuple(coordinator.ledger.aborted_between(question.after, at)))
    if isinstance(question, Oldest):
        return Floor(coordinator.floor, replica.cleaned, replica.ended, replica.ending)
    if isinstance(question, Measure):
        return Measured(encode_measures(measures(replica)))
    return VersionReply()


def answer_from(
    key_map: KeyMap, floor: int, question: Get | Turn | Scan | MultiScan | History, at: int, budget: Budget
) -> Result:
    """As `answer`, from a map with the versions from `floor` on."""
    if isinstance(question, Scan):
        return _rows(key_map, question, at, budget)
    if isinstance(question, MultiScan):
        return _multi_rows(key_map, question, at, budget)
    if isinstance(question, History):
        return _versions(key_map, floor, question, at, budget.left)
    keys = question.keys if isinstance(question, Get) else (question.key,)
    found = [key_map.entry(key, at) for key in keys]
    return Entries(tuple([(0, None) if entry is None else entry[:2] for entry in found]))


def measures(replica: Replica) -> dict[str, Any]:
    """Numbers about a replica, by name. `log_bytes`: of the records that it has followed, without those freed."""
    live_bytes, logged = replica.map.live_bytes, replica.logged
    garbage = garbage_share(logged, live_bytes, logged - replica.logged_left)
    compacting_to = replica.coordinator.floor if replica.begun else 0
    own = {"log_bytes": logged, "garbage": garbage, "compacting_to": compacting_to}
    return measures_of(replica.coordinator) | own


def _rows(key_map: KeyMap, scan: Scan, at: int, budget: Budget) -> Rows:
    rows: list[tuple[bytes, Value]] = []
    in_batch = of_batch = budget.max_bytes // MAX_BATCHES
    for batch in key_map.scan(scan.start, scan.end, at, scan.reverse, scan.rows):
        budget.look(max(of_batch - in_batch, 0))  # of the batch before
        in_batch = 0
        for key, value in batch:
            rows.append((key, value))
            size = len(key) + size_of(value) + 16
            in_batch += size
            budget.left -= size
            if len(rows) >= scan.rows or budget.left <= 0:
                return Rows(tuple(rows), key if scan.reverse else key + b"\0")
        if isinstance(batch, Passed) and budget.left <= 0:
            return Rows(tuple(rows), batch.rest)
    if not rows:
        budget.look(budget.max_bytes // MAX_EMPTY)
    return Rows(tuple(rows), None)


def _multi_rows(key_map: KeyMap, question: MultiScan, at: int, budget: Budget) -> MultiRows:
    ranges: list[Rows] = []
    for scan in question.scans[:MAX_RANGES]:
        if budget.left <= 0:
            break
        of_range = Budget(budget.max_bytes)
        of_range.left = budget.left
        ranges.append(_rows(key_map, scan, at, of_range))
        budget.look(of_range.looked)
        budget.left -= bytes_of(ranges[-1])
    return MultiRows(tuple(ranges))


def _versions(key_map: KeyMap, floor: int, history: History, at: int, max_bytes: int) -> Versions:
    found: list[tuple[int, Value]] = []
    size = 0
    for version, value in key_map.history(history.key, at, floor):
        found.append((version, value))
        size += size_of(value) + 16
        if len(found) >= history.rows or size >= max_bytes:
            return Versions(tuple(found), version > floor)
    return Versions(tuple(found), False)


def bytes_of(result: Result) -> int:
    """The approximate size of a result in a message."""
    if isinstance(result, Entries):
        return 32 + sum([_inline(value) for _, value in result.entries])
    if isinstance(result, Rows):
        return 32 + sum([len(key) + _inline(value) for key, value in result.rows])
    if isinstance(result, MultiRows):
        return 32 + sum([bytes_of(rows) for rows in result.ranges])
    if isinstance(result, Versions):
        return 32 + sum([_inline(value) for _, value in result.versions])
    if isinstance(result, Measured):
        return 32 + len(result.numbers)
    if isinstance(result, NotApplied):
        return 32 + 8 * len(result.gsns)
    if isinstance(result, CommitPage):
        return 32 + sum([len(commit.record) + len(commit.place) + 16 for commit in result.commits])
    if isinstance(result, ValuePart):
        return 32 + len(result.data)
    return 64


def _inline(value: Any) -> int:
    return 16 + (len(value) if value.__class__ is bytes else 48)
