"""The database against a plain dictionary of versions, on random histories, and at the end the views of every version.

The model knows nothing of logs, maps or checkpoints: it keeps the whole state after each commit, and decides
transactions by looking at what was committed since they began.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from operator import add
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import logdb
from logdb.embedded import EmbeddedBackend
from logdb.store.ranges import after_prefix
from tests.harness.opening import host_of
from tests.model.views import folded

State = dict[bytes, bytes]
Rows = list[tuple[bytes, bytes]]
Changes = dict[bytes, bytes | None]

KEYS = [b"a", b"b", b"b\x00", b"c", b"\xff", b"l" * 480, b"l" * 480 + b"1", b"l" * 1000]
keys = st.sampled_from(KEYS)
numbers = st.sampled_from([b"7", b"-3", b"010"])
values = st.one_of(st.binary(max_size=4), numbers, st.sampled_from([b"x" * 700, b"y" * 5_000, b"z" * 9_000]))
changes = st.dictionaries(keys, st.one_of(st.none(), values), min_size=1, max_size=5)
parts = st.floats(0, 1)
OPERATIONS: dict[str, Callable[[int, int], int]] = {"add": add, "min": min, "max": max}
operations, operands = st.sampled_from(sorted(OPERATIONS)), st.integers(-20, 20)
bounds = st.one_of(st.none(), st.sampled_from([*KEYS, b"bb", b"l" * 700, b"zz"]))
prefixes = st.sampled_from([b"", b"b", b"l", b"l" * 480, b"\xff"])
SMALL_SEGMENTS = {"segment_bytes": 6_000}


def is_number(value: bytes | None) -> bool:
    """Whether a fold works on it; a key that does not exist counts as a number."""
    return value is None or re.fullmatch(rb"-?[0-9]+", value) is not None


def fold(value: bytes | None, operation: str, operand: int) -> bytes:
    return b"%d" % (operand if value is None else OPERATIONS[operation](int(value), operand))


class InTransaction:
    """A transaction under way, and what the model says that it has read and will write."""

    def __init__(self, committing: Any, txn: logdb.Transaction, snapshot: int) -> None:
        self.committing, self.txn, self.snapshot = committing, txn, snapshot
        self.keys: set[bytes] = set()
        self.ranges: list[tuple[bytes, bytes | None]] = []
        self.writes: Changes = {}
        self.folds: list[tuple[bytes, str, int]] = []
        self.deletes: list[tuple[bytes | None, bytes | None]] = []

    def sees(self, state: State) -> State:
        merged: Changes = {**state, **self.writes, **self.folded(state)}
        return {key: value for key, value in merged.items() if value is not None}

    def finds_numbers(self, state: State) -> bool:
        return all(is_number(state.get(key)) for key, _, _ in self.folds)

    def folded(self, state: State) -> Changes:
        found: Changes = {}
        for key, operation, operand in self.folds:
            found[key] = fold(found.get(key, state.get(key)), operation, operand)
        return found

    def write(self, written: Changes) -> None:
        self.writes.update(written)
        self.folds = [fold for fold in self.folds if fold[0] not in written]

    def has_read(self, key: bytes) -> bool:
        return key in self.keys or any(low <= key and (high is None or key < high) for low, high in self.ranges)


class DatabaseMachine(RuleBasedStateMachine):
    """Every rule does one thing to the database and to the model, and compares."""

    @initialize()
    def create(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.states: dict[int, State] = {0: {}}
        self.commits: dict[int, Changes] = {}
        self.deletes: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
        self.pins: dict[str, int] = {}
        self.floor = 0
        self.transactions: list[InTransaction] = []
        self.outcomes: dict[str, bool] = {}
        self.db = self.open()

    def open(self) -> logdb.Database:
        path = self.folder / "db"
        return logdb.Database(EmbeddedBackend.open(path, read_only=False, create=True, log_options=SMALL_SEGMENTS))

    def state_at(self, version: int) -> State:
        return self.states[max(known for known in self.states if known <= version)]

    @property
    def state(self) -> State:
        return self.state_at(self.db.version)

    def version_at(self, part: float) -> int:
        """The readable version that is so far on from the floor to the newest."""
        return self.floor + round(part * (self.db.version - self.floor))

    def committed(self, version: int, written: Changes) -> None:
        assert version > max(self.states)
        after = {key: value for key, value in {**self.state_at(version), **written}.items() if value is not None}
        self.states[version] = after
        self.commits[version] = dict(written)

    # ---- writing

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes) -> None:
        self.committed(self.db.put(key, value), {key: value})

    @rule(key=keys)
    def delete(self, key: bytes) -> None:
        self.committed(self.db.delete(key), {key: None})

    @rule(written=changes)
    def multi_put(self, written: Changes) -> None:
        self.committed(self.db.multi_put(written), written)

    @rule(key=keys, other=keys, value=values, wrong=st.booleans(), written=changes)
    def test_and_multi_put(self, key: bytes, other: bytes, value: bytes, wrong: bool, written: Changes) -> None:
        held = self.state.get(key)
        expected = held if held is not None and not wrong else value
        version = max((known for known, changed in self.commits.items() if other in changed), default=0)
        version = version if other in self.state else 0
        conditions = {
            logdb.equals(key, expected): held == expected,
            logdb.exists(other): other in self.state,
            logdb.version_less(other, version + 1): True,
            logdb.version_equals(other, version + wrong): not wrong,
        }
        tested = self.db.test_and_multi_put(conditions, written)
        assert tested.committed is all(conditions.values())
        assert set(tested.failed) == {condition for condition, holds in conditions.items() if not holds}
        if tested.committed:
            self.committed(tested.version, written)

    @rule(low=bounds, high=bounds)
    def delete_range(self, low: bytes | None, high: bytes | None) -> None:
        version = self.db.delete_range(low, high)
        self.committed(version, deletion_of(low, high))
        self.deletes[version] = [(low, high)]

    @rule(prefix=prefixes)
    def delete_prefix(self, prefix: bytes) -> None:
        version = self.db.delete_prefix(prefix)
        self.committed(version, {key: None for key in KEYS if key.startswith(prefix)})
        self.deletes[version] = [(prefix, after_prefix(prefix) if prefix else None)]

    @rule(key=keys, operation=operations, operand=operands)
    def fold(self, key: bytes, operation: str, operand: int) -> None:
        before = self.state.get(key)
        try:
            version = getattr(self.db, operation)(key, operand)
        except logdb.NotANumber:
            assert not is_number(before)
        else:
            self.committed(version, {key: fold(before, operation, operand)})

    # ---- transactions

    @precondition(lambda self: len(self.transactions) < 3)
    @rule()
    def begin(self) -> None:
        committing = self.db.transaction()
        self.transactions.append(InTransaction(committing, committing.__enter__(), self.db.version))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), key=keys)
    def read_in_transaction(self, data: st.DataObject, key: bytes) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        state = self.state_at(own.snapshot)
        if own.finds_numbers(state):
            assert own.txn.get(key) == own.sees(state).get(key)
        else:
            try:
                assert own.txn.get(key) == {**state, **own.writes}.get(key)
            except logdb.NotANumber:
                assert not is_number(state[key])
                assert key in {key for key, _, _ in own.folds}
        if key not in own.writes:
            own.keys.add(key)

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), low=bounds, high=bounds, reverse=st.booleans())
    def scan_in_transaction(self, data: st.DataObject, low: bytes | None, high: bytes | None, reverse: bool) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        if not own.finds_numbers(self.state_at(own.snapshot)):
            return
        seen = own.sees(self.state_at(own.snapshot))
        assert list(own.txn.scan(low, high, reverse=reverse)) == rows_of(seen, low, high, reverse)
        own.ranges.append((low or b"", high))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), written=changes)
    def write_in_transaction(self, data: st.DataObject, written: Changes) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        own.txn.multi_put(written)
        own.write(written)

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), key=keys, operation=operations, operand=operands)
    def fold_in_transaction(self, data: st.DataObject, key: bytes, operation: str, operand: int) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        try:
            getattr(own.txn, operation)(key, operand)
        except logdb.NotANumber:
            assert not is_number(own.writes[key])
        else:
            if key in own.writes:
                own.writes[key] = fold(own.writes[key], operation, operand)
            else:
                own.folds.append((key, operation, operand))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data(), low=bounds, high=bounds)
    def delete_range_in_transaction(self, data: st.DataObject, low: bytes | None, high: bytes | None) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        own.txn.delete_range(low, high)
        own.write(deletion_of(low, high))
        own.deletes.append((low, high))

    @precondition(lambda self: self.transactions)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        own = data.draw(st.sampled_from(self.transactions))
        self.transactions.remove(own)
        since = {version: changed for version, changed in self.commits.items() if version > own.snapshot}
        lost_to = {version for version, changed in since.items() for key in changed if own.has_read(key)}
        # A range delete conflicts with every range that overlaps it, whatever keys they have.
        lost_to_ranges = {
            version
            for version, deleted in self.deletes.items()
            if version > own.snapshot and any(overlap(one, other) for one in deleted for other in own.ranges)
        }
        txn_id = own.txn.id
        try:
            own.committing.__exit__(None, None, None)
        except logdb.NotANumber:
            assert not own.finds_numbers(self.state)
        except logdb.ConflictError as error:
            assert own.writes or own.deletes or own.folds
            assert error.version in lost_to | lost_to_ranges
            assert error.key in self.commits[error.version] or error.version in self.deletes
            self.outcomes[txn_id] = False
        else:
            has_written = own.writes or own.folds or any(is_range(*deleted) for deleted in own.deletes)
            assert not has_written or not lost_to | lost_to_ranges
            if has_written:
                self.committed(own.txn.version, {**own.writes, **own.folded(self.state)})
                self.deletes[own.txn.version] = own.deletes
                self.outcomes[txn_id] = True

    @precondition(lambda self: self.transactions)
    @rule()
    def give_up(self) -> None:
        for own in self.transactions:
            own.committing.__exit__(ValueError, None, None)
        self.transactions = []

    # ---- upkeep: none of it changes an answer

    @rule()
    def checkpoint(self) -> None:
        self.db.checkpoint()

    @rule(part=parts)
    def compact(self, part: float) -> None:
        before = self.version_at(part)
        held_back = [*self.pins.values(), *(own.snapshot for own in self.transactions)]
        self.floor = max(self.floor, min([before, *held_back]))
        assert self.db.compact(before).floor == self.floor

    @precondition(lambda self: self.db.version)
    @rule(part=parts, name=st.sampled_from(["one", "two"]))
    def pin(self, part: float, name: str) -> None:
        version = max(1, self.version_at(part))
        self.db.pin(name, version)
        self.pins[name] = version

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pins)))
        self.db.unpin(name)
        del self.pins[name]

    @precondition(lambda self: not self.transactions)
    @rule(how=st.sampled_from(["close", "rebuild", "crash"]))
    def reopen(self, how: str) -> None:
        if how == "crash":  # what a kill leaves: the files as they are
            shutil.copytree(self.folder / "db", self.folder / "copy")
        self.db.close()
        if how == "crash":
            shutil.rmtree(self.folder / "db")
            (self.folder / "copy").rename(self.folder / "db")
        if how == "rebuild":
            logdb.rebuild(self.folder / "db")
        self.db = self.open()

    # ---- reading

    @rule(low=bounds, high=bounds, reverse=st.booleans(), limit=st.one_of(st.none(), st.integers(0, 4)))
    def scan(self, low: bytes | None, high: bytes | None, reverse: bool, limit: int | None) -> None:
        expected = rows_of(self.state, low, high, reverse)[:limit]
        assert list(self.db.scan(low, high, reverse=reverse, limit=limit)) == expected

    @rule(
        spans=st.lists(st.tuples(bounds, bounds), max_size=3),
        reverse=st.booleans(),
        limit=st.one_of(st.none(), st.integers(0, 4)),
    )
    def multi_scan(self, spans: list[tuple[bytes | None, bytes | None]], reverse: bool, limit: int | None) -> None:
        expected = [rows_of(self.state, low, high, reverse)[:limit] for low, high in spans]
        assert self.db.multi_scan(spans, reverse=reverse, limit=limit) == expected

    @rule(part=parts, key=keys)
    def travel(self, part: float, key: bytes) -> None:
        version = self.version_at(part)
        snapshot = self.db.at(version)
        assert snapshot.multi_get(KEYS) == self.state_at(version)
        expected = [(known, changed[key]) for known, changed in self.commits.items() if key in changed]
        expected = sorted((entry for entry in expected if entry[0] <= version), reverse=True)
        live = [entry for entry in expected if entry[0] > self.floor]
        at_floor = [entry for entry in expected if entry[0] <= self.floor][:1]
        live += [(known, value) for known, value in at_floor if value is not None]
        assert list(snapshot.history(key)) == live

    @precondition(lambda self: self.floor)
    @rule(part=parts)
    def travel_too_far(self, part: float) -> None:
        version = round(part * (self.floor - 1))
        for read in (self.db.at, lambda version: self.db.watch(since=version)):
            try:
                read(version)
            except logdb.VersionTrimmed as error:
                assert error.oldest == self.floor
            else:
                raise AssertionError("a version below the floor was readable")

    @invariant()
    def is_the_state(self) -> None:
        assert self.db.multi_get(KEYS) == self.state
        assert self.db.oldest_version == self.floor
        assert self.db.pins == self.pins
        self.check()

    def check(self) -> None:
        host_of(self.db).machine.coordinator.check_invariants()

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.give_up()
            self.the_views_agree()
            self.db.close()
            shutil.rmtree(self.folder)

    def the_views_agree(self) -> None:
        """The fold of the log, the scan and the replayed feed of every version that is left."""
        for txn_id, committed in self.outcomes.items():
            status = self.db.outcome(txn_id).status
            assert status in (logdb.Status.FORGOTTEN, logdb.Status.COMMITTED if committed else logdb.Status.ABORTED)
        feed = list(self.db.watch(since=self.floor, timeout=0))
        seen = {item.version for item in feed}
        assert seen == {version for version in self.commits if version > self.floor and self.changes_keys(version)}
        replayed = dict(self.db.at(self.floor).scan())
        with_keys = dict(replayed)
        for item in self.db.watch(since=self.floor, timeout=0, deleted_keys=True):
            assert set(item.changes) <= self.commits[item.version].keys()
            with_keys = {k: v for k, v in {**with_keys, **item.changes}.items() if v is not None}
            assert with_keys == self.state_at(item.version)
        for version in [self.floor, *(item.version for item in feed)]:
            for item in feed:
                if item.version == version:
                    item.applied_to(replayed)
            expected = sorted(self.state_at(version).items())
            assert list(self.db.at(version).scan()) == expected, version
            assert sorted(replayed.items()) == expected, version
            assert self.rows_of_the_log(version) == expected, version

    def changes_keys(self, version: int) -> bool:
        """Whether a commit has written keys, or deleted a range that is not empty."""
        deletes = self.deletes.get(version)
        return deletes is None or bool(self.commits[version]) or any(is_range(*deleted) for deleted in deletes)

    def rows_of_the_log(self, version: int) -> Rows:
        return [(key, value) for key, value, _ in folded(host_of(self.db).log, version, self.commits)]


def is_range(low: bytes | None, high: bytes | None) -> bool:
    return high is None or (low or b"") < high


def overlap(one: tuple[bytes | None, bytes | None], other: tuple[bytes | None, bytes | None]) -> bool:
    ends = [end for _, end in (one, other) if end is not None]
    return is_range(*one) and is_range(*other) and (not ends or max(one[0] or b"", other[0] or b"") < min(ends))


def deletion_of(low: bytes | None, high: bytes | None) -> Changes:
    """The deletions of keys of the model that a range delete stands for."""
    return {key: None for key in KEYS if (low or b"") <= key and (high is None or key < high)}


def rows_of(state: State, low: bytes | None, high: bytes | None, reverse: bool) -> Rows:
    rows = [row for row in state.items() if (low or b"") <= row[0] and (high is None or row[0] < high)]
    return sorted(rows, reverse=reverse)


TestDatabase = DatabaseMachine.TestCase
TestDatabase.settings = settings(max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck))
