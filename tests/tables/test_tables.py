"""Tables and their indexes in this process: rows, queries, unique fields, what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest

import logdb
from logdb import keys
from logdb.tables import Dataclass, IndexState, Json, Msgpack, Table
from logdb.tables.operations import Definition, Step, perform

Row = dict[str, Any]


@pytest.fixture
def db() -> Iterator[logdb.Database]:
    with logdb.open(":memory:") as db:
        yield db


@pytest.fixture
def users(db: logdb.Database) -> Table[int, Row]:
    return db.table("users", key=int, value=Json())


def stored(db: logdb.Database, name: str) -> list[tuple[Any, ...]]:
    """The index entries of a table, as tuples."""
    return [keys.unpack(key)[2:] for key, _ in db.scan(*keys.Subspace(name, 1).range())]


def test_rows_are_under_the_keys_that_the_format_says(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    users.create_index("by_email", "email", unique=True)
    users.put(7, {"city": "Rome", "email": "ada"})
    users.put(8, {"city": "Rome"})
    assert db[keys.pack(("users", 0, 7))] == b'{"city":"Rome","email":"ada"}'
    assert stored(db, "users") == [
        ("by_city", "Rome", 7),
        ("by_city", "Rome", 8),
        ("by_email", None, 8),
        ("by_email", "ada"),
    ]
    assert db[keys.pack(("users", 1, "by_email", "ada"))] == keys.pack((7,))


def test_a_query_has_a_range_a_prefix_a_direction_and_a_limit(users: Table[int, Row]) -> None:
    users.create_index("by_place", "country", "city")
    places = [("DE", "Bonn"), ("DE", "Berlin"), ("FR", "Paris"), ("IT", "Rome"), (None, "Atlantis")]
    for number, (country, city) in enumerate(places):
        users.put(number, {"country": country, "city": city})
    index = users.index("by_place")
    assert [key for key, _ in index.scan()] == [4, 1, 0, 2, 3]
    assert [key for key, _ in index.scan(reverse=True, limit=2)] == [3, 2]
    assert [key for key, _ in index.scan(prefix="DE")] == [1, 0]
    assert [key for key, _ in index.scan(prefix=("DE", "Bonn"))] == [0]
    assert [key for key, _ in index.scan(("DE", "Berlin"), "IT")] == [1, 0, 2]
    assert [key for key, _ in index.scan("FR")] == [2, 3]
    assert [row["city"] for _, row in index.scan(prefix=(None,))] == ["Atlantis"]
    assert list(index.scan(limit=0)) == []
    assert list(index.scan("X", "A")) == []


def test_a_prefix_does_not_find_a_longer_text(users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    for number, city in enumerate(["a", "a\0", "a\0b", "ab"]):
        users.put(number, {"city": city})
    assert [key for key, _ in users.index("by_city").scan(prefix="a")] == [0]


def test_pages_join(users: Table[int, Row]) -> None:
    users.create_index("by_half", "half")
    users.multi_put({number: {"half": number // 2} for number in range(600)})
    index = users.index("by_half")
    assert [key for key, _ in index.scan()] == list(range(600))
    assert [key for key, _ in index.scan(reverse=True)] == list(reversed(range(600)))
    assert [key for key, _ in index.scan(10, 200, limit=300)] == list(range(20, 320))


def test_entries_follow_rows(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    users[1] = {"city": "Rome"}
    users[1] = {"city": "Bonn"}
    assert stored(db, "users") == [("by_city", "Bonn", 1)]
    users[1] = {"city": "Bonn", "age": 5}
    assert users.index("by_city").scan().__next__() == (1, {"city": "Bonn", "age": 5})
    del users[1]
    del users[1]
    assert stored(db, "users") == []


def test_a_unique_index_refuses_a_second_row(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_email", "email", unique=True)
    users.put(1, {"email": "ada"})
    users.put(1, {"email": "ada", "age": 5})
    with pytest.raises(logdb.UniqueViolation) as caught:
        users.put(2, {"email": "ada"})
    error = caught.value
    assert (error.table, error.index, error.fields, error.key, error.holder) == (
        "users", "by_email", ("ada",), (2,), (1,),
    )  # fmt: skip
    with pytest.raises(logdb.UniqueViolation):
        users.multi_put({3: {"email": "bob"}, 4: {"email": "bob"}})
    assert list(users.scan()) == [(1, {"email": "ada", "age": 5})]
    assert users.index("by_email").get("ada") == (1, {"email": "ada", "age": 5})
    assert users.index("by_email").get("bob") is None
    users.delete(1)
    users.put(2, {"email": "ada"})
    assert users.verify().damage == []


def test_rows_exchange_a_unique_value_in_one_write(users: Table[int, Row]) -> None:
    users.create_index("by_email", "email", unique=True)
    users.multi_put({1: {"email": "a"}, 2: {"email": "b"}})
    users.multi_put({1: {"email": "b"}, 2: {"email": "a"}})
    assert users.index("by_email").get("a") == (2, {"email": "a"})
    users.multi_put({1: None, 3: {"email": "b"}})
    assert users.index("by_email").get("b") == (3, {"email": "b"})
    assert users.verify() == (1, 1, 2, [])


def test_several_rows_have_none_in_a_unique_index(users: Table[int, Row]) -> None:
    users.create_index("by_email", "email", unique=True)
    users.multi_put({1: {}, 2: {"email": None}, 3: {"email": "c"}})
    assert [key for key, _ in users.index("by_email").scan()] == [1, 2, 3]
    with pytest.raises(ValueError, match="use scan"):
        users.index("by_email").get(None)


def test_two_transactions_that_add_one_unique_value_conflict(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_email", "email", unique=True)
    with pytest.raises(logdb.ConflictError):
        with db.transaction() as txn:
            users.within(txn).put(1, {"email": "ada"})
            users.put(2, {"email": "ada"})
    assert [key for key, _ in users.scan()] == [2]


def test_a_transaction_sees_its_own_rows_in_indexes(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    users.put(1, {"city": "Rome"})
    with db.transaction() as txn:
        rows = users.within(txn)
        rows[2] = {"city": "Rome"}
        assert [key for key, _ in rows.index("by_city").scan(prefix="Rome")] == [1, 2]
        rows.delete(1)
        rows.put(2, {"city": "Bonn"})
        assert [key for key, _ in rows.index("by_city").scan()] == [2]
        assert (rows[2], 1 in rows, rows.get(9, "none")) == ({"city": "Bonn"}, False, "none")
    assert users.verify().damage == []
    assert [key for key, _ in users.index("by_city").scan()] == [2]


def test_old_versions_have_their_indexes(users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    version = users.put(1, {"city": "Rome"})
    users.put(1, {"city": "Bonn"})
    then = users.at(version)
    assert list(then.index("by_city").scan(prefix="Rome")) == [(1, {"city": "Rome"})]
    assert (then[1], then.multi_get([1, 2]), list(then.scan())) == (
        {"city": "Rome"}, {1: {"city": "Rome"}}, [(1, {"city": "Rome"})],
    )  # fmt: skip


@dataclasses.dataclass
class Visit:
    at: dt.datetime
    page: str
    seconds: float


def test_dataclasses_are_found_by_their_own_types(db: logdb.Database) -> None:
    visits = db.table("visits", key=(str, int), value=Dataclass(Visit))
    visits.create_index("by_time", "at")
    visits.create_index("by_seconds", "seconds")
    noon = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
    for hour, user in enumerate(["ada", "bob", "ada"]):
        visits.put((user, hour), Visit(noon + dt.timedelta(hours=hour), "/", 10 - hour))
    later = visits.index("by_time").scan(noon + dt.timedelta(minutes=30))
    assert [key for key, _ in later] == [("bob", 1), ("ada", 2)]
    assert [key for key, _ in visits.index("by_seconds").scan()] == [("ada", 2), ("bob", 1), ("ada", 0)]
    assert [key for key, _ in visits.scan(prefix=("ada",))] == [("ada", 0), ("ada", 2)]
    assert [key for key, _ in visits.scan(("ada", 1), ("bob", 1))] == [("ada", 2)]
    assert visits[("ada", 2)].seconds == 8.0
    with pytest.raises(ValueError, match="no field 'when'"):
        visits.create_index("by_when", "when")


def test_a_whole_key_is_a_prefix(db: logdb.Database) -> None:
    visits = db.table("visits", key=(str, int), value=Json())
    visits.multi_put({("ada", number): {} for number in (1, 2, 256)})
    assert [key for key, _ in visits.scan(prefix=("ada", 1))] == [("ada", 1)]
    assert [key for key, _ in visits.scan(prefix=())] == [("ada", 1), ("ada", 2), ("ada", 256)]


def test_a_row_that_its_codec_refuses_is_named(db: logdb.Database) -> None:
    """And can be deleted, with its entry of an index."""
    visits: Table[tuple[str, int], Row] = db.table("visits", key=(str, int), value=Msgpack())
    visits.create_index("by_time", "at")
    time = msgpack.Timestamp(1_700_000_000, 123_456_789)
    with pytest.raises(ValueError, match=r"the row \('a', 1\) of the table 'visits' cannot be stored: the time 2023"):
        visits.put(("a", 1), {"at": time})
    key = keys.pack(("visits", 0, "a", 1))
    visits.put(("a", 1), {"at": dt.datetime.fromtimestamp(1_700_000_000.123456, dt.UTC)})
    db.put(key, msgpack.packb({"at": time}))  # by another program
    for read in (lambda: visits[("a", 1)], lambda: list(visits.scan()), lambda: list(visits.index("by_time").scan())):
        with pytest.raises(ValueError, match=r"the row \('a', 1\) of the table 'visits' cannot be read: the time 2023"):
            read()
    visits.delete(("a", 1))
    assert stored(db, "visits") == []


def test_fields_of_fields_and_lists_are_indexed(users: Table[int, Row]) -> None:
    users.create_index("by_street", "address.street")
    users.create_index("by_tags", "tags")
    users.put(1, {"address": {"street": "B"}, "tags": ["x", "y"]})
    users.put(2, {"address": {"street": "A"}, "tags": ["x"]})
    users.put(3, {"address": "unknown"})
    assert [key for key, _ in users.index("by_street").scan()] == [3, 2, 1]
    assert [key for key, _ in users.index("by_tags").scan(prefix=(("x", "y"),))] == [1]


def test_a_field_that_has_no_key_is_refused(users: Table[int, Row]) -> None:
    users.create_index("by_address", "address")
    with pytest.raises(TypeError, match="index 'by_address' of the table 'users' cannot hold"):
        users.put(1, {"address": {"street": "A"}})
    with pytest.raises(logdb.KeyTooLarge):
        users.put(1, {"address": "x" * 9_000})
    assert list(users.scan()) == []


def test_an_index_on_rows_that_it_cannot_hold_is_not_created(db: logdb.Database, users: Table[int, Row]) -> None:
    users.multi_put({number: {"city": "Rome"} for number in range(100)})
    users.put(99, {"city": {"name": "Rome"}})
    with pytest.raises(TypeError, match="by_city"):
        users.create_index("by_city", "city")
    assert (users.indexes, stored(db, "users")) == ({}, [])


def test_two_rows_that_are_equal_prevent_a_unique_index(db: logdb.Database, users: Table[int, Row]) -> None:
    users.multi_put({number: {"n": number % 90} for number in range(100)})
    with pytest.raises(logdb.UniqueViolation) as caught:
        users.create_index("by_n", "n", unique=True)
    assert {caught.value.key, caught.value.holder} == {(0,), (90,)}
    assert users.indexes == {}
    assert stored(db, "users") == []
    users.put(101, {"n": 5})


def test_an_index_can_be_declared_again_but_not_otherwise(users: Table[int, Row]) -> None:
    users.put(1, {"city": "Rome"})
    users.create_index("by_city", "city")
    users.create_index("by_city", "city")
    with pytest.raises(logdb.TableMismatch, match="by_city"):
        users.create_index("by_city", "city", unique=True)
    assert users.indexes["by_city"].state is IndexState.READABLE
    users.drop_index("by_city")
    with pytest.raises(KeyError, match="by_city"):
        users.drop_index("by_city")
    with pytest.raises(KeyError, match="no index"):
        list(users.index("by_city").scan())
    users.create_index("by_city", "city", unique=True)
    assert users.index("by_city").get("Rome") == (1, {"city": "Rome"})


def test_a_table_is_opened_as_it_was_created(db: logdb.Database, users: Table[int, Row]) -> None:
    users.put(1, {})
    for key, codec in [(str, Json()), ((int,), Json()), (int, Msgpack())]:
        other = db.table("users", key=key, value=codec)
        one = (1,) if isinstance(key, tuple) else key(1)
        for attempt in (
            lambda: other.put(one, {}),
            lambda: other.get(one),
            lambda: list(other.scan()),
            lambda: other.create_index("i", "f"),
            lambda: other.indexes,
        ):
            with pytest.raises(logdb.TableMismatch):
                attempt()
    assert list(users.scan()) == [(1, {})]


def test_a_table_does_not_begin_among_other_keys(db: logdb.Database, users: Table[int, Row]) -> None:
    db.put(keys.pack(("users", "ada")), b"")
    with pytest.raises(logdb.TableMismatch, match="not of a table"):
        users.put(1, {})


def test_names_that_continue_each_other_are_different_tables(db: logdb.Database) -> None:
    names = ["a", "a\0", "a\0b", "ab"]
    for name in names:
        table = db.table(name, key=str, value=Json())
        table.create_index("i", "f")
        table.put(name, {"f": name})
    for name in names:
        assert list(db.table(name, key=str, value=Json()).scan()) == [(name, {"f": name})]
        assert list(db.table(name, key=str, value=Json()).index("i").scan()) == [(name, {"f": name})]


@pytest.mark.parametrize(
    ("key", "error"), [("1", TypeError), (True, TypeError), ((1,), TypeError), (None, TypeError), (1.0, TypeError)]
)
def test_a_key_of_another_type_is_refused(users: Table[int, Row], key: Any, error: type[Exception]) -> None:
    for call in (users.get, users.delete, lambda key: users.put(key, {}), lambda key: users.multi_get([key])):
        with pytest.raises(error):
            call(key)


def test_arguments_are_checked(db: logdb.Database, users: Table[int, Row]) -> None:
    with pytest.raises(TypeError, match="delete"):
        users.put(1, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        db.table("t", key=list, value=Json())
    with pytest.raises(ValueError):
        db.table("t", key=(), value=Json())
    with pytest.raises(ValueError):
        db.table("", key=int, value=Json())
    with pytest.raises(ValueError):
        users.create_index("none")
    with pytest.raises(ValueError):
        users.scan(1, prefix=(1,))
    with pytest.raises(ValueError):
        users.index("i").scan(1, prefix=1)
    with pytest.raises(ValueError):
        users.index("i").scan(limit=-1)
    with pytest.raises(KeyError):
        users[5]


def test_rows_written_past_the_table_are_found_by_verify(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    users.create_index("by_email", "email", unique=True)
    users.multi_put({1: {"city": "Rome", "email": "a"}, 2: {"city": "Bonn", "email": "b"}})
    assert users.verify() == (1, 2, 4, [])
    db.put(keys.pack(("users", 0, 1)), b'{"city":"Paris","email":"b"}')
    db.delete(keys.pack(("users", 0, 2)))
    found = {(one.index_name, one.key, one.what.split()[0]) for one in users.verify().damage}
    assert found == {
        ("by_city", (1,), "the"),
        ("by_city", (2,), "the"),
        ("by_email", (1,), "the"),
        ("by_email", (2,), "the"),
    }
    with pytest.raises(logdb.Corruption, match="has no row"):
        list(users.index("by_city").scan(prefix="Bonn"))


def test_a_table_without_indexes_writes_without_reading_rows(db: logdb.Database, users: Table[int, Row]) -> None:
    users.put(1, {})
    with db.transaction() as txn:
        users.within(txn).put(1, {"n": 1})
        users.put(1, {"n": 2})
    assert users[1] == {"n": 1}


def test_verify_reports_what_it_cannot_read(db: logdb.Database, users: Table[int, Row]) -> None:
    users.create_index("by_city", "city")
    users.put(1, {"city": "Rome"})
    db.put(keys.pack(("users", 0, 1)), b"no JSON")
    db.put(keys.pack(("users", 1, "by_city")) + b"\xfe", b"")
    assert [one.key for one in users.verify().damage] == [(1,), ()]


def test_an_index_that_is_being_built_is_not_queried(db: logdb.Database, users: Table[int, Row]) -> None:
    users.multi_put({number: {"n": number} for number in range(50)})
    definition = Definition[int, Any]("users", int, Json())
    index = definition.index("by_n", ("n",), False)
    db.run(lambda txn: perform(definition.begin_index(txn, index), txn))
    db.run(lambda txn: perform(definition.build_step(txn, "by_n", Step()), txn))
    users.put(60, {"n": 60})
    with pytest.raises(logdb.IndexUnavailable, match="being built"):
        list(users.index("by_n").scan())
    assert (users.indexes["by_n"].state, users.verify()) == (IndexState.BUILDING, (1, 1, 17, []))
    users.create_index("by_n", "n")
    assert users.verify() == (1, 1, 51, [])


@pytest.mark.parametrize("meanwhile", ["create_index", "drop_index"])
def test_an_index_that_another_program_builds_or_drops_meanwhile_is_created(
    db: logdb.Database, users: Table[int, Row], monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    users.multi_put({number: {"n": number} for number in range(50)})
    another, arguments = db.table("users", key=int, value=Json()), ["by_n", "n"]
    interruptions = [lambda: getattr(another, meanwhile)(*arguments[: 1 + (meanwhile == "create_index")])]

    def interrupted() -> Step:
        """Called between the transaction that declares the index and the first step."""
        if interruptions:
            interruptions.pop()()
        return Step()

    monkeypatch.setattr("logdb.tables.table.Step", interrupted)
    users.create_index("by_n", "n")
    assert users.indexes["by_n"].state is IndexState.READABLE
    assert users.verify() == (1, 1, 50, [])


def test_a_step_is_shorter_after_a_conflict_and_after_large_rows() -> None:
    step = Step()
    assert [step.begun(), step.begun(), step.begun()] == [16, 8, 4]
    step.done(10)
    step.committed()
    assert step.begun() == 8
    step.done(2 << 20)
    step.committed()
    assert [step.begun() for _ in range(5)] == [4, 2, 1, 1, 1]


def test_an_index_is_built_while_rows_change(db: logdb.Database, users: Table[int, Row]) -> None:
    users.multi_put({number: {"n": number} for number in range(2_000)})
    stop = threading.Event()

    def write() -> None:
        for number in itertools.cycle(range(0, 2_000, 7)):
            users.put(number, {"n": -number})
            if stop.is_set():
                return

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        try:
            users.create_index("by_n", "n")
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    assert users.verify() == (1, 1, 2_000, [])


def test_programs_that_create_one_index_share_the_work(db: logdb.Database, users: Table[int, Row]) -> None:
    users.multi_put({number: {"n": number} for number in range(2_000)})
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(users.create_index, "by_n", "n", unique=True) for _ in range(3)]:
            done.result()
    assert users.verify() == (1, 1, 2_000, [])
