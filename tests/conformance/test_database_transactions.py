"""The Database contract, transactions: snapshots, own writes, phantoms, conflicts and retries."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import logdb
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cluster.messages import Answers
from logdb.cores.effects import Effect, Event, Send
from logdb.store.key_map import KeyMap
from logdb.txn.retry import ATTEMPTS, LONGEST_PAUSE_S, pauses
from tests.harness.worlds import World

Rows = list[tuple[bytes, bytes]]


def test_a_transaction_reads_one_snapshot(world: World) -> None:
    world.db.multi_put({b"a": b"1", b"b": b"1"})
    db = world.disturb()
    with db.transaction() as txn:
        assert txn[b"a"] == b"1"
        db.multi_put({b"a": b"2", b"b": b"2", b"c": b"2"})
        db.checkpoint()
        assert txn[b"b"] == b"1"
        assert b"c" not in txn
        assert list(txn.scan()) == [(b"a", b"1"), (b"b", b"1")]
        assert txn.multi_get([b"a", b"b", b"c"]) == {b"a": b"1", b"b": b"1"}
    assert db[b"a"] == b"2"


def test_a_transaction_sees_its_own_writes(world: World) -> None:
    world.db.multi_put({b"a": b"1", b"b": b"1", b"d": b"1"})
    db = world.disturb()
    with db.transaction() as txn:
        txn[b"a"] = b"2"
        del txn[b"b"]
        txn.put(b"c", b"2")
        txn.multi_put({b"e": b"2", b"d": None})
        expected = [(b"a", b"2"), (b"c", b"2"), (b"e", b"2")]
        assert (txn[b"a"], txn.get(b"b"), txn.get(b"b", b"default"), txn[b"c"]) == (b"2", None, b"default", b"2")
        assert b"b" not in txn
        with pytest.raises(KeyError):
            txn[b"d"]
        assert list(txn.scan()) == expected
        assert list(txn.scan(reverse=True)) == expected[::-1]
        assert list(txn.scan(b"b", b"d")) == [(b"c", b"2")]
        assert list(txn.scan(limit=2, reverse=True)) == expected[:0:-1]
        assert dict(db.scan()) == {b"a": b"1", b"b": b"1", b"d": b"1"}
    assert list(world.disturb().scan()) == expected


def test_own_writes_are_merged_into_scans_of_any_length(world: World) -> None:
    world.db.multi_put({b"%05d" % number: b"old" for number in range(0, 6_000, 2)})
    db = world.disturb()
    with db.transaction() as txn:
        for number in range(1, 6_000, 7):
            txn[b"%05d" % number] = b"new"
        for number in range(0, 6_000, 6):
            txn.delete(b"%05d" % number)
        expected = {b"%05d" % number: b"old" for number in range(0, 6_000, 2)}
        expected |= {b"%05d" % number: b"new" for number in range(1, 6_000, 7)}
        for number in range(0, 6_000, 6):
            del expected[b"%05d" % number]
        rows = sorted(expected.items())
        assert list(txn.scan()) == rows
        assert list(txn.scan(reverse=True)) == rows[::-1]
        assert (
            list(txn.scan(b"01000", b"05000", limit=2_100, reverse=True))
            == [row for row in rows[::-1] if b"01000" <= row[0] < b"05000"][:2_100]
        )


def test_writes_made_during_a_scan_show_where_it_has_not_been(db: logdb.Database) -> None:
    db.multi_put({b"%04d" % number: b"1" for number in range(3_000)})
    with db.transaction() as txn:
        rows = txn.scan()
        assert next(rows) == (b"0000", b"1")
        txn[b"2999a"] = b"2"
        txn.delete(b"2500")
        rest = [key for key, _ in rows]
        assert rest[-1] == b"2999a"
        assert b"2500" not in rest


def test_an_exception_aborts(db: logdb.Database) -> None:
    with pytest.raises(RuntimeError), db.transaction() as txn:
        txn[b"k"] = b"1"
        raise RuntimeError
    assert b"k" not in db
    assert db.version == 0


def test_a_transaction_that_has_ended(db: logdb.Database) -> None:
    db.put(b"k", b"1")
    with db.transaction() as txn:
        rows = txn.scan()
        txn[b"k"] = b"2"
    assert txn.version == db.version
    again = [(b"k", None)]
    for use in (
        *(lambda: txn.get(b"k"), lambda: txn.put(b"k", b"3"), lambda: txn.delete(b"k")),
        *(lambda: next(rows), lambda: txn.multi_scan(again), lambda: txn.multi_scan([])),
    ):
        with pytest.raises(logdb.LogDBError, match="the transaction is over"):
            use()
    assert db[b"k"] == b"2"


# Each reads and consumes a part of its rows; then another transaction writes.
def everything(txn: logdb.Transaction) -> Rows:
    return list(txn.scan())


def taking(count: int, **bounds: object) -> Callable[[logdb.Transaction], Rows]:
    def read(txn: logdb.Transaction) -> Rows:
        rows: Iterator[tuple[bytes, bytes]] = txn.scan(**bounds)  # type: ignore[arg-type]
        return [next(rows) for _ in range(count)]

    return read


def listing(**bounds: object) -> Callable[[logdb.Transaction], Rows]:
    return lambda txn: list(txn.scan(**bounds))  # type: ignore[arg-type]


def several(*ranges: tuple[bytes | None, bytes | None], **options: Any) -> Callable[[logdb.Transaction], Rows]:
    return lambda txn: [row for rows in txn.multi_scan(ranges, **options) for row in rows]


def backwards(*ranges: tuple[bytes | None, bytes | None]) -> Callable[[logdb.Transaction], Rows]:
    return several(*ranges, limit=1, reverse=True)


ROWS = {b"b": b"1", b"d": b"1", b"f": b"1", b"h": b"1"}
PHANTOMS: list[tuple[str, Callable[[logdb.Transaction], Rows], dict[bytes, bytes | None], bytes | None]] = [
    ("insert inside", listing(start=b"b", end=b"g"), {b"e": b"2"}, b"e"),
    ("delete inside", listing(start=b"b", end=b"g"), {b"d": None}, b"d"),
    ("change inside", listing(start=b"b", end=b"g"), {b"d": b"2"}, b"d"),
    ("insert at the start", listing(start=b"a", end=b"g"), {b"a": b"2"}, b"a"),
    ("insert at the end", listing(start=b"a", end=b"g"), {b"g": b"2"}, None),
    ("insert before the end", listing(start=b"a", end=b"g"), {b"f\xff": b"2"}, b"f\xff"),
    ("insert before the start", listing(start=b"b", end=b"g"), {b"a\xff": b"2"}, None),
    ("insert after the last row", everything, {b"z": b"2"}, b"z"),
    ("insert before the first row", everything, {b"\x00": b"2"}, b"\x00"),
    ("insert in an empty range", listing(start=b"m", end=b"n"), {b"m": b"2"}, b"m"),
    ("insert after an empty range", listing(start=b"m", end=b"n"), {b"n": b"2"}, None),
    ("delete of an absent key", listing(start=b"m", end=b"n"), {b"m": None}, b"m"),
    ("limit: inside", listing(limit=2), {b"c": b"2"}, b"c"),
    ("limit: before the first", listing(limit=2), {b"a": b"2"}, b"a"),
    ("limit: the last row", listing(limit=2), {b"d": None}, b"d"),
    ("limit: after the last row", listing(limit=2), {b"d\x00": b"2"}, None),
    ("limit not reached", listing(limit=9), {b"z": b"2"}, b"z"),
    ("limit 0", listing(limit=0), {b"b": b"2"}, None),
    ("reverse, limit: inside", listing(limit=2, reverse=True), {b"g": b"2"}, b"g"),
    ("reverse, limit: after the last", listing(limit=2, reverse=True), {b"z": b"2"}, b"z"),
    ("reverse, limit: the last row", listing(limit=2, reverse=True), {b"f": b"2"}, b"f"),
    ("reverse, limit: before the last row", listing(limit=2, reverse=True), {b"e\xff": b"2"}, None),
    ("reverse, bounds: at the end", listing(end=b"f", limit=1, reverse=True), {b"f": b"2"}, None),
    ("reverse, bounds: at the start", listing(start=b"c", reverse=True), {b"c": b"2"}, b"c"),
    ("reverse, bounds: before the start", listing(start=b"c", reverse=True), {b"b": b"2"}, None),
    ("consumed in part: inside", taking(2), {b"c": b"2"}, b"c"),
    ("consumed in part: beyond", taking(2), {b"f": b"2"}, None),
    ("consumed in part, reverse: inside", taking(2, reverse=True), {b"g": b"2"}, b"g"),
    ("consumed in part, reverse: beyond", taking(2, reverse=True), {b"d": b"2"}, None),
    ("prefix: inside", listing(prefix=b"d"), {b"dd": b"2"}, b"dd"),
    ("prefix: after", listing(prefix=b"d"), {b"e": b"2"}, None),
    ("several: inside the first", several((b"a", b"c"), (b"f", b"g")), {b"bb": b"2"}, b"bb"),
    ("several: inside the second", several((b"a", b"c"), (b"f", b"g")), {b"f": None}, b"f"),
    ("several: between them", several((b"a", b"c"), (b"f", b"g")), {b"c": b"2", b"d": None}, None),
    ("several: in an empty one", several((b"a", b"c"), (b"m", None)), {b"z": b"2"}, b"z"),
    ("several, limit: inside", several((b"a", b"c"), (b"c", None), limit=1), {b"cc": b"2"}, b"cc"),
    ("several, limit: after the last row", several((b"a", b"c"), (b"c", None), limit=1), {b"e": b"2"}, None),
    ("several, limit not reached", several((b"a", b"c"), (b"c", None), limit=2), {b"bb": b"2"}, b"bb"),
    ("several, limit 0", several((b"a", b"c"), (b"c", None), limit=0), {b"b": b"2"}, None),
    ("several, reverse: before the last row", backwards((None, b"e"), (b"g", None)), {b"b": b"2"}, None),
    ("several, reverse: after the last", backwards((None, b"e"), (b"g", None)), {b"z": b"2"}, b"z"),
    ("prefix of 0xff: inside", listing(prefix=b"\xff"), {b"\xff\xff": b"2"}, b"\xff\xff"),
]


SOME = 16
UNDISTURBED = 4


@pytest.mark.parametrize("first", range(0, len(PHANTOMS), SOME), ids=lambda first: PHANTOMS[first][0])
def test_phantoms(world: World, first: int) -> None:
    """Several cases on the same rows, since a database for each would take long to create."""
    db = world.db
    for number, (name, read, written, conflict) in enumerate(PHANTOMS[first : first + SOME]):
        db.multi_put(dict.fromkeys(dict(db.scan())) | ROWS)
        if number % UNDISTURBED == 0:
            db = world.disturb()
        version = 0
        try:
            with db.transaction() as txn:
                read(txn)
                txn[b"~result"] = b"1"
                version = db.multi_put(written, label="the winner")
                db.checkpoint()
        except logdb.ConflictError as error:
            assert conflict is not None, name
            assert (error.key, error.version, error.winner) == (conflict, version, "the winner"), name
            assert "in a range that was scanned" in str(error)
            assert b"~result" not in db
        else:
            assert conflict is None, name
            assert db[b"~result"] == b"1"


def test_a_read_key_that_changed(db: logdb.Database) -> None:
    db.put(b"k", b"1")
    snapshot = db.version
    changed = 0
    with pytest.raises(logdb.ConflictError, match=r"key b'k' was changed by 'spoiler' at version") as caught:
        with db.transaction(label="victim") as txn:
            txn.get(b"k")
            txn[b"other"] = b"1"
            db.put(b"k", b"2", label="spoiler")
            db.put(b"k", b"3", label="not the newest that it saw, but the one that wins")
            changed = db.put(b"k", b"2", label="spoiler")
    error = caught.value
    assert (error.key, error.snapshot, error.winner) == (b"k", snapshot, "spoiler")
    assert error.version == changed
    assert error.advice is logdb.Advice.RETRY


@pytest.mark.parametrize("change", ["write", "delete", "create", "write the same value"])
def test_every_change_of_a_read_key_conflicts(db: logdb.Database, change: str) -> None:
    if change != "create":
        db.put(b"k", b"1")
    with pytest.raises(logdb.ConflictError), db.transaction() as txn:
        txn.get(b"k")
        txn[b"other"] = b"1"
        if change == "delete":
            db.delete(b"k")
        else:
            db.put(b"k", b"1" if change == "write the same value" else b"2")


def test_changes_that_do_not_conflict(db: logdb.Database) -> None:
    db.multi_put({b"k": b"1", b"other": b"1"})
    with db.transaction() as txn:
        txn.get(b"k")
        txn[b"mine"] = b"1"
        db.put(b"other", b"2")
    with db.transaction() as blind:
        blind[b"k"] = b"blind"
        db.put(b"k", b"2")
    assert db[b"k"] == b"blind"
    with db.transaction() as reader:
        reader.get(b"k")
        db.put(b"k", b"3")
    with db.transaction() as rereader:
        rereader[b"k"] = b"4"
        assert rereader[b"k"] == b"4"
        db.put(b"k", b"5")


def test_guarded_writes_conflict(db: logdb.Database) -> None:
    with pytest.raises(logdb.ConflictError) as caught, db.transaction(guard_writes=True) as txn:
        txn[b"k"] = b"1"
        db.put(b"k", b"2")
    assert caught.value.key == b"k"
    with db.transaction(guard_writes=True) as txn:
        txn[b"k"] = b"3"
    assert db[b"k"] == b"3"


def test_a_read_only_transaction_rejects_writes(world: World) -> None:
    world.db.put(b"k", b"1")
    db = world.disturb()
    version = db.version
    with db.transaction(read_only=True) as txn:
        assert txn[b"k"] == b"1"
        for write in (lambda: txn.put(b"k", b"2"), lambda: txn.delete(b"k"), lambda: txn.multi_put({b"k": b"2"})):
            with pytest.raises(logdb.ReadOnly):
                write()
    assert db.version == version
    with db.transaction() as txn:
        list(txn.scan())
    assert db.version == version == txn.version


def test_an_aborted_transaction_has_no_effect(world: World) -> None:
    world.db.put(b"k", b"1")
    with pytest.raises(logdb.ConflictError), world.db.transaction() as txn:
        txn[b"copy"] = txn[b"k"]
        txn[b"large"] = b"x" * 10_000
        world.db.put(b"k", b"2")
    db = world.disturb()
    assert dict(db.scan()) == {b"k": b"2"}
    assert list(db.history(b"copy")) == []
    assert [change.changes for change in db.watch(since=0, timeout=0)] == [{b"k": b"1"}, {b"k": b"2"}]


class Orders:
    """A function of an application, for its qualified name."""

    @staticmethod
    def place(txn: logdb.Transaction, seen: list[Any], db: logdb.Database, losses: int) -> None:
        seen.append((txn.attempt, [conflict.winner for conflict in txn.conflicts], txn.label))
        txn.get(b"k")
        if txn.attempt <= losses:
            db.put(b"k", b"%d" % txn.attempt, label=f"spoiler {txn.attempt}")
        txn.put(b"k", b"mine")


def test_run_shows_its_attempts(db: logdb.Database) -> None:
    seen: list[Any] = []
    db.run(Orders.place, seen, db, losses=2)
    assert seen == [
        (1, [], "Orders.place"),
        (2, ["spoiler 1"], "Orders.place"),
        (3, ["spoiler 1", "spoiler 2"], "Orders.place"),
    ]
    assert db[b"k"] == b"mine"


@pytest.mark.parametrize(("options", "attempts"), [({"attempts": 3}, 3), ({"timeout": 0}, 1)])
def test_run_ends_after_its_attempts_or_its_time(db: logdb.Database, options: dict[str, Any], attempts: int) -> None:
    seen: list[Any] = []
    with pytest.raises(logdb.ConflictError) as caught:
        db.run(lambda txn: Orders.place(txn, seen, db, 100), label="hopeless", **options)
    assert caught.value.attempts == len(seen) == attempts
    assert {label for _, _, label in seen} == {"hopeless"}


def test_run_can_only_read(db: logdb.Database) -> None:
    db.put(b"k", b"1")
    assert db.run(lambda txn: txn.get(b"k"), read_only=True) == b"1"
    with pytest.raises(logdb.ReadOnly):
        db.run(lambda txn: txn.put(b"k", b"2"), read_only=True)

    @logdb.transactional(read_only=True, timeout=5)
    def write(txn: logdb.Transaction) -> None:
        txn.put(b"k", b"2")

    with pytest.raises(logdb.ReadOnly):
        write(db)


def test_transactional_retries_until_it_commits(db: logdb.Database) -> None:
    attempts = []

    @logdb.transactional
    def double(txn: logdb.Transaction, key: bytes) -> int:
        value = int(txn.get(key) or b"1")
        attempts.append(value)
        if len(attempts) < 4:
            db.put(key, b"%d" % (value + 1))
        txn[key] = b"%d" % (value * 2)
        return value * 2

    assert double(db, b"k") == 8
    assert attempts == [1, 2, 3, 4]
    assert db[b"k"] == b"8"
    assert next(iter(db.watch(since=db.version - 1))).label == "double"
    with db.transaction() as txn:
        assert double(txn, b"k") == 16
    assert db[b"k"] == b"16"


def test_run_retries_and_passes_arguments(db: logdb.Database) -> None:
    calls = []

    def body(txn: logdb.Transaction, amount: int, *, factor: int) -> int:
        txn.get(b"k")
        calls.append(amount)
        if len(calls) == 1:
            db.put(b"k", b"1")
        txn[b"k"] = b"%d" % (amount * factor)
        return amount * factor

    assert db.run(body, 3, factor=2) == 6
    assert calls == [3, 3]
    with pytest.raises(ZeroDivisionError):
        db.run(lambda txn: 1 // 0)


def test_retries_are_bounded(db: logdb.Database) -> None:
    attempts = []

    @logdb.transactional(label="hopeless", attempts=5)
    def hopeless(txn: logdb.Transaction) -> None:
        attempts.append(txn.label)
        txn.get(b"k")
        db.put(b"k", b"1")
        txn[b"mine"] = b"1"

    with pytest.raises(logdb.ConflictError):
        hopeless(db)
    assert attempts == ["hopeless"] * 5
    assert b"mine" not in db
    with pytest.raises(ValueError):
        logdb.transactional(attempts=0)


def test_pauses_are_random_under_a_bound_that_doubles() -> None:
    runs = [list(pauses(ATTEMPTS)) for _ in range(20)]
    assert all(len(run) == ATTEMPTS - 1 and run[0] == 0.0 for run in runs)
    assert all(0 <= pause <= LONGEST_PAUSE_S for run in runs for pause in run)
    assert max(run[1] for run in runs) < max(run[20] for run in runs)
    assert len({run[10] for run in runs}) > 1


def test_concurrent_increments_are_all_counted(db: logdb.Database) -> None:
    @logdb.transactional
    def increment(txn: logdb.Transaction) -> None:
        txn[b"n"] = b"%d" % (int(txn.get(b"n") or b"0") + 1)

    threads = [threading.Thread(target=lambda: [increment(db) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db[b"n"] == b"100"


def test_a_transaction_id_is_available_before_the_commit_and_constant(world: World) -> None:
    with world.db.transaction() as first:
        first[b"a"] = b"1"
        early = first.id
        world.db.put(b"b", b"1")
        assert first.id == early
    with world.db.transaction() as second:
        second[b"a"] = b"2"
    db = world.disturb()
    assert db.outcome(early).version == first.version
    assert second.version > first.version


def test_an_id_must_be_read_before_the_end(db: logdb.Database) -> None:
    with db.transaction() as early:
        early.put(b"k", b"1")
        txn_id = early.id
    assert early.id == txn_id
    assert db.outcome(txn_id).committed
    with db.transaction() as late:
        late.put(b"k", b"2")
    with pytest.raises(logdb.LogDBError, match="before it ends"):
        late.id  # noqa: B018


class RowsRead:
    """Runs a scan, and returns the number of map rows read for it.

    A client of a cluster that gets no answer for half a second retries, perhaps at another server, and the rows are
    read again. So rows count once for each request, and belong to the scan that sent it. A scan is repeated if its
    answer was made together with one to an earlier scan.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rows: dict[int, int] = {}
        self._earlier: set[int] = set()
        self._read = 0
        self._is_mixed = False
        batch, first, handle = KeyMap._batch, KeyMap.first, MappingServer.handle

        def reading(*arguments: Any) -> Any:
            found = batch(*arguments)
            self._read += len(found[0])
            return found

        def reading_first(*arguments: Any) -> Any:
            before = self._read
            found = first(*arguments)
            if self._read == before:  # without a batch
                self._read += len(found or ())
            return found

        def handling(server: MappingServer, event: Event, now: int) -> list[Effect]:
            before = self._read
            effects = handle(server, event, now)
            sent = [effect.message for effect in effects if isinstance(effect, Send)]
            self._answered([one.number for message in sent if isinstance(message, Answers) for one in message.answers])
            self._read = before
            return effects

        monkeypatch.setattr(KeyMap, "_batch", reading)
        monkeypatch.setattr(KeyMap, "first", reading_first)
        monkeypatch.setattr(MappingServer, "handle", handling)

    def _answered(self, numbers: list[int]) -> None:
        """The rows that were read since the event are those of these requests."""
        if len(set(numbers)) > 1:
            self._is_mixed = True
        elif numbers and numbers[0] not in self._earlier:
            self._rows[numbers[0]] = max(self._rows.get(numbers[0], 0), self._read // len(numbers))

    def __call__(self, scan: Callable[[], object]) -> int:
        while True:
            self._earlier |= self._rows.keys()
            self._rows.clear()
            self._read, self._is_mixed = 0, False
            scan()
            if not self._is_mixed:
                break
        found = self._read + sum(self._rows.values())
        assert found, "this world does not read its map in this process"
        return found


@pytest.mark.parametrize("reverse", [False, True])
def test_limited_scans_beside_own_writes(world: World, reverse: bool) -> None:
    """Own deletions remove rows, so that more of the snapshot must be read."""
    rng = random.Random(5)
    keys = [b"%03d" % number for number in range(60)]
    world.db.multi_put(dict.fromkeys(keys[::2], b"old"))
    db = world.disturb()
    for _ in range(6):
        with db.transaction() as txn:
            expected = dict.fromkeys(keys[::2], b"old")
            for key in rng.sample(keys, 30):
                if rng.random() < 0.7:
                    txn.delete(key)
                    expected.pop(key, None)
                else:
                    txn[key] = expected[key] = b"new"
            rows = sorted(expected.items(), reverse=reverse)
            for limit in (0, 1, 2, 7, len(rows), 100):
                assert list(txn.scan(reverse=reverse, limit=limit)) == rows[:limit]
                low, high = sorted(rng.sample(keys, 2))
                inside = [row for row in rows if low <= row[0] < high]
                assert list(txn.scan(low, high, reverse=reverse, limit=limit)) == inside[:limit]
                ranges = [(None, None), (low, high), (high, low)]
                assert txn.multi_scan(ranges, reverse=reverse, limit=limit) == [rows[:limit], inside[:limit], []]
            txn.close()


def test_a_limit_reaches_the_map(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`txn.scan(limit=1)` once sent all of 1,000 rows, 250 kB, to the client, and read 256 rows of the map."""
    world.db.multi_put({b"%04d" % number: b"v" * 250 for number in range(1_000)})
    db = world.disturb()
    rows_read = RowsRead(monkeypatch)
    assert rows_read(lambda: list(db.scan(limit=1))) == 1
    assert rows_read(lambda: list(db.scan(limit=10, reverse=True))) == 10
    assert rows_read(lambda: list(db.at().scan(b"0500", limit=2))) == 2
    assert rows_read(lambda: db.multi_scan([(None, None), (b"05", None)], limit=3)) == 6
    with db.transaction(read_only=True) as txn:
        assert rows_read(lambda: list(txn.scan(limit=3))) == 3
        assert rows_read(lambda: txn.multi_scan([(None, None), (b"05", None)], limit=3)) == 6
    with db.transaction() as txn:
        assert rows_read(lambda: list(txn.scan(limit=1))) == 1
        assert rows_read(lambda: list(txn.scan(b"0500", limit=10))) == 10
        txn.delete(b"0000")
        txn.delete(b"0001")
        assert rows_read(lambda: list(txn.scan(limit=1))) <= 10
        assert rows_read(lambda: list(txn.scan(limit=900))) <= 1_000


def test_a_limited_scan_extended_by_own_deletions_guards_only_the_rows_passed(world: World) -> None:
    keys = [b"%02d" % number for number in range(20)]
    world.db.multi_put(dict.fromkeys(keys, b"1"))
    db = world.disturb()

    def take(other: bytes) -> None:
        with db.transaction() as txn:
            for key in keys[:5]:
                txn.delete(key)
            assert [key for key, _ in txn.scan(limit=2)] == keys[5:7]
            db.put(other, b"2")

    take(keys[7])
    take(b"06\x00")
    with pytest.raises(logdb.ConflictError):
        take(keys[6])
    with pytest.raises(logdb.ConflictError):
        take(b"05\x00")


def test_run_inside_run_is_refused(db: logdb.Database, tmp_path: Path) -> None:
    """An inner `run` would commit with each retry of the outer one, up to 50 times for each of its 50 attempts."""

    @logdb.transactional
    def count(txn: logdb.Transaction) -> None:
        txn[b"n"] = b"%d" % (int(txn.get(b"n") or b"0") + 1)

    def calls(txn: logdb.Transaction, run: Callable[[], object]) -> None:
        txn[b"outer"] = b"1"
        run()

    for nested in (lambda: db.run(count), lambda: count(db)):
        with pytest.raises(logdb.LogDBError, match="pass the outer transaction on") as caught:
            db.run(calls, nested)
        assert caught.value.advice is logdb.errors.Advice.GIVE_UP
    assert dict(db.scan()) == {}

    with logdb.open(tmp_path / "other") as other, ThreadPoolExecutor(1) as thread:
        db.run(calls, lambda: other.run(count))
        db.run(calls, lambda: thread.submit(db.run, count).result())
        assert other[b"n"] == db[b"n"] == b"1"

    def joined(txn: logdb.Transaction) -> None:
        count(txn)
        count(txn)

    db.run(joined)
    assert db[b"n"] == b"3"
