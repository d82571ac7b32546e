"""Tables and indexes in every world: embedded, on a server, on clusters, in both faces."""

from __future__ import annotations

from typing import Any

import pytest

import logdb
from logdb.tables import Json
from tests.harness.worlds import World


def test_rows_and_indexes_survive_what_happens(world: World) -> None:
    users = world.db.table("users", key=int, value=Json())
    users.multi_put({number: {"city": "Rome" if number % 2 else "Bonn", "n": number} for number in range(40)})
    users.create_index("by_city", "city")
    users.create_index("by_n", "n", unique=True)
    before = users.put(1, {"city": "Paris", "n": 1})
    users = world.disturb().table("users", key=int, value=Json())
    users.put(3, {"city": "Paris", "n": 100})
    users.delete(5)
    assert [key for key, _ in users.index("by_city").scan("C")] == [1, 3, *range(7, 40, 2)]
    assert [key for key, _ in users.index("by_city").scan(prefix="Paris", reverse=True, limit=1)] == [3]
    assert users.index("by_n").get(100) == (3, {"city": "Paris", "n": 100})
    assert users.index("by_n").get(5) is None
    with pytest.raises(logdb.UniqueViolation):
        users.put(4, {"n": 2})
    assert (users.get(4), users.get(5, "none")) == ({"city": "Bonn", "n": 4}, "none")
    assert users.multi_get([5, 6]) == {6: {"city": "Bonn", "n": 6}}
    assert [key for key, _ in users.scan(2, 5)] == [2, 3, 4]
    assert [key for key, _ in users.at(before).index("by_city").scan(prefix="Paris")] == [1]
    assert users.verify() == (1, 2, 78, [])
    users.drop_index("by_n")
    assert users.indexes.keys() == {"by_city"}
    users.put(4, {"city": "Rome", "n": 2})
    assert users.verify() == (1, 1, 39, [])


def test_a_transaction_writes_rows_of_two_tables(db: logdb.Database) -> None:
    users = db.table("users", key=str, value=Json())
    orders = db.table("orders", key=(str, int), value=Json())
    orders.create_index("by_item", "item")
    users.put("ada", {"orders": 0})

    def order(txn: logdb.Transaction, user: str, item: str) -> int:
        row = users.within(txn)[user]
        number: int = row["orders"] + 1
        users.within(txn).put(user, {"orders": number})
        orders.within(txn).put((user, number), {"item": item})
        return number

    assert [db.run(order, "ada", item) for item in ("pen", "ink", "pen")] == [1, 2, 3]
    assert [key for key, _ in orders.index("by_item").scan(prefix="pen")] == [("ada", 1), ("ada", 3)]
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as txn:
            orders.within(txn).put(("bob", 1), {"item": "pen"})
            found: list[Any] = [key for key, _ in orders.within(txn).index("by_item").scan(prefix="pen")]
            assert found == [("ada", 1), ("ada", 3), ("bob", 1)]
            raise ZeroDivisionError
    assert orders.verify() == (1, 1, 3, [])
