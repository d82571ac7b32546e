"""Writers, builders and droppers of indexes side by side, in random interleavings of their reads and commits.

An operation of a table is a generator of reads, so the simulation decides which transaction goes on after each of them;
one seed draws everything. The model is a dictionary of rows for each version. After each commit the indexes must be
those of the rows of that version.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import logdb
from logdb import keys
from logdb.tables import IndexState, Json, Table, operations
from logdb.tables.operations import Definition, Get, Operation, Step, perform
from logdb.tables.verification import verify_tables
from tests.tables.planted import PLANTED

Rows = dict[int, dict[str, Any]]
Changes = dict[int, int | None]

KEYS = range(6)
VALUES = [None, 1, 2, 3]
DELETED = 0
INDEXES = {"unique": True, "plain": False}
EVENTS = 60
ACTORS = 4
SEEDS = 200
TRIES = 3_000


class Actor:
    """A transaction under way: an operation, and what it changes when it commits."""

    def __init__(self, simulation: Simulation, operation: Callable[[Any], Operation[Any]], changes: Changes) -> None:
        self._simulation, self.changes = simulation, changes
        self.snapshot = simulation.db.version
        self._committing = simulation.db.transaction()
        self._txn = self._committing.__enter__()
        self._operation = operation(self._txn)
        self._answer: Any = None
        self.is_over = False

    def advance(self) -> None:
        """Perform the next read, or commit."""
        try:
            request = self._operation.send(self._answer)
        except StopIteration:
            self.is_over = True
            try:
                self._committing.__exit__(None, None, None)
            except logdb.ConflictError:
                return
            self._simulation.committed(self._txn.version, self.changes)
        except (logdb.UniqueViolation, KeyError) as error:
            self.abort(error)
            if isinstance(error, logdb.UniqueViolation):
                self._simulation.check_violation(self, error)
        else:
            if isinstance(request, Get):
                self._answer = self._txn.multi_get(list(request.keys))
            else:
                self._answer = self._txn.multi_scan(request.ranges, reverse=request.reverse, limit=request.limit)

    def abort(self, error: Exception) -> None:
        self.is_over = True
        self._committing.__exit__(type(error), error, None)


class Simulation:
    """Transactions on one table, by programs that share nothing but the database."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.db = logdb.open(":memory:")
        self.states: dict[int, Rows] = {0: {}}
        self.actors: list[Actor] = []
        self.programs = [Definition[int, Any]("t", int, Json()) for _ in range(2)]
        self.names = self.draw.choice([["unique"], ["unique"], ["plain"], sorted(INDEXES)])
        if rows := {key: self.draw.choice(VALUES) for key in KEYS if self.draw.random() < 0.5}:
            self.committed(self.table.multi_put({key: {"n": n} for key, n in rows.items()}), rows)

    @property
    def table(self) -> Table[int, Any]:
        return self.db.table("t", key=int, value=Json())

    @property
    def rows(self) -> Rows:
        return self.states[max(self.states)]

    def run(self) -> None:
        events = [self.advance, self.write, self.declare, self.build, self.begin_drop, self.drop, self.kill]
        for event in self.draw.choices(events, [60, 15, 5, 12, 2, 3, 2], k=EVENTS):
            needs_actor = event in (self.advance, self.kill)
            if self.actors if needs_actor else len(self.actors) < ACTORS:
                event()
            self.actors = [actor for actor in self.actors if not actor.is_over]
        self.finish()

    # ---- events

    def begin(self, operation: Callable[[Any], Operation[Any]], changes: Changes | None = None) -> None:
        self.actors.append(Actor(self, operation, changes or {}))

    def write(self) -> None:
        changes: Changes = {
            self.draw.choice(KEYS): self.draw.choice([*VALUES, DELETED]) for _ in range(self.draw.randint(1, 2))
        }
        rows = {key: None if n == DELETED else {"n": n} for key, n in changes.items()}
        program = self.draw.choice(self.programs)
        self.begin(lambda txn: program.write(txn, rows), changes)

    def declare(self) -> None:
        program, name = self.draw.choice(self.programs), self.draw.choice(self.names)
        self.begin(lambda txn: program.begin_index(txn, program.index(name, ("n",), INDEXES[name])))

    def build(self) -> None:
        program, name, limit = self.draw.choice(self.programs), self.draw.choice(self.names), self.draw.randint(1, 3)
        self.begin(lambda txn: program.build_step(txn, name, Step(limit)))

    def begin_drop(self) -> None:
        program, name = self.draw.choice(self.programs), self.draw.choice(self.names)
        self.begin(lambda txn: program.begin_drop(txn, name))

    def drop(self) -> None:
        program, name = self.draw.choice(self.programs), self.draw.choice(self.names)
        self.begin(lambda txn: program.drop_step(txn, name))

    def advance(self) -> None:
        actor = self.draw.choice(self.actors)
        actor.advance()
        if self.draw.random() < 0.6:
            while not actor.is_over:
                actor.advance()

    def kill(self) -> None:
        self.draw.choice(self.actors).abort(RuntimeError())

    # ---- checks

    def committed(self, version: int, changes: Changes) -> None:
        if version <= max(self.states):
            assert not changes  # a transaction that wrote nothing
            return
        rows = dict(self.rows)
        for key, n in changes.items():
            if n == DELETED:
                rows.pop(key, None)
            else:
                rows[key] = {"n": n}
        self.states[version] = rows
        self.check_indexes()

    def check_violation(self, actor: Actor, error: logdb.UniqueViolation) -> None:
        """Two rows had the value, in the actor's snapshot or with what it was to write."""
        rows = self.states[max(version for version in self.states if version <= actor.snapshot)]
        holders = {key for key, row in rows.items() if (row["n"],) == error.fields}
        holders |= {key for key, n in actor.changes.items() if (n,) == error.fields}
        assert len(holders) > 1, error

    def check_indexes(self) -> None:
        """The invariant, by the model and by `verify`, at the newest version."""
        rows, table = self.rows, self.table
        assert dict(table.scan()) == rows
        for name, index in table.indexes.items():
            if index.state is IndexState.READABLE:
                expected = sorted(rows, key=lambda key: (rows[key]["n"] is not None, rows[key]["n"] or 0, key))
                assert [key for key, _ in table.index(name).scan()] == expected
                if index.unique:
                    values = [row["n"] for row in rows.values() if row["n"] is not None]
                    assert len(values) == len(set(values))
        with self.db.transaction(read_only=True) as txn:
            assert perform(verify_tables(), txn).damage == []

    def finish(self) -> None:
        """An index can be created after all of that, unless two rows prevent it."""
        for actor in self.actors:
            actor.abort(RuntimeError())
        values = [row["n"] for row in self.rows.values() if row["n"] is not None]
        for name, unique in INDEXES.items():
            try:
                self.table.create_index(name, "n", unique=unique)
            except logdb.UniqueViolation:
                assert unique
                assert len(values) != len(set(values))
            else:
                assert self.table.indexes[name].state is IndexState.READABLE
        self.check_indexes()
        assert not list(self.db.scan(*keys.Subspace("t", 2).range()))
        self.db.close()


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drop takes several steps even for a few entries."""
    monkeypatch.setattr(operations, "LONGEST_STEP", 2)


@pytest.mark.parametrize("first", range(0, SEEDS, 100))
def test_indexes_are_those_of_the_rows_at_every_version(first: int) -> None:
    for seed in range(first, first + 100):
        Simulation(seed).run()


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[bug](monkeypatch)
    for seed in range(TRIES):
        try:
            Simulation(seed).run()
        except (AssertionError, logdb.LogDBError, KeyError):
            return
    pytest.fail(f"{TRIES} seeds did not fail")
