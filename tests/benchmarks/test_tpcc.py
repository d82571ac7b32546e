"""TPC-C on a database in a directory: the transactions keep the consistency conditions of the specification."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import logdb
from benchmarks.tpcc import embedded, logdb_terminal, sqlite_terminal
from benchmarks.tpcc.logdb_terminal import COLUMNS, LogDBTerminal, _delivery, _payment
from benchmarks.tpcc.measuring import Measured, Turn, rows
from benchmarks.tpcc.sqlite_terminal import SqliteTerminal
from benchmarks.tpcc.workload import (
    DISTRICTS,
    MIX,
    Customer,
    Inputs,
    Line,
    NewOrder,
    Payment,
    Scale,
    StockLevel,
    Terminal,
    last_name,
)
from logdb.keys import Subspace, pack

SCALE = Scale(warehouses=2, customers=30, items=60, orders=12)


class Recorded:
    """Notes what a terminal returns."""

    def __init__(self, terminal: Terminal) -> None:
        self.results: list[Any] = []
        for name in (*(name for name, _ in MIX), "close"):
            setattr(self, name, self._noted(getattr(terminal, name)))

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.results.append(result := method(*arguments))
            return result

        return noted

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class Counted:
    """Notes the reads of a transaction."""

    def __init__(self, reader: Any) -> None:
        self.reads: list[str] = []
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        self.reads.append(name)
        return getattr(self._reader, name)


@pytest.fixture
def db(tmp_path: Path) -> logdb.Database:
    opened = logdb.open(tmp_path / "db")
    logdb_terminal.load(opened, SCALE)
    return opened


def test_a_mix_of_all_transactions_keeps_the_conditions(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    assert logdb_terminal.violations(db, SCALE) == []
    inputs = [Inputs(SCALE, warehouse, random.Random(warehouse)) for warehouse in (1, 2)]
    done = Counter(each.run_one(terminal) for _ in range(150) for each in inputs)
    assert set(done) == {name for name, _ in MIX}
    assert logdb_terminal.violations(db, SCALE) == []
    terminal.close()


def test_sqlite_returns_the_same(db: logdb.Database, tmp_path: Path) -> None:
    sqlite_terminal.load(tmp_path / "sqlite", SCALE)
    sqlite = SqliteTerminal(tmp_path / "sqlite")
    terminals = [Recorded(LogDBTerminal(db)), Recorded(sqlite)]
    for terminal in terminals:
        inputs = Inputs(SCALE, 1, random.Random(7))
        for _ in range(150):
            inputs.run_one(terminal)
        terminal.close()
    assert terminals[0].results == terminals[1].results


def test_embedded_databases_take_turns(tmp_path: Path) -> None:
    effort = embedded.Effort(SCALE, threads=(1, 2), rounds=1, turn_s=0.05)
    measured, violations = embedded.measure(effort, tmp_path, lambda text: None)
    assert [each.threads for each in measured] == [1, 2]
    assert violations == []
    assert all(min(each.rates.values()) > 0 for each in measured)


def test_a_lost_order_and_a_lost_payment_break_conditions(db: logdb.Database) -> None:
    db.delete(pack(("orders", 1, 1, SCALE.orders)))
    db.put(pack(("ytd", 2)), b"7")
    broken = ["condition 2: district 1, 1", "condition 4: district 1, 1", "condition 1: warehouse 2"]
    assert logdb_terminal.violations(db, SCALE) == broken
    db.close()


def test_an_order_is_placed_paid_delivered_and_shown(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    number = terminal.new_order(NewOrder(1, 3, 5, (Line(1, 1, 2), Line(2, 2, 3))))
    assert number == SCALE.orders + 1
    customer = Customer(1, 3, 5, "")
    assert terminal.order_status(customer) == (-1000, 2)
    terminal.payment(Payment(1, 3, customer, 400))
    assert terminal.order_status(customer) == (-1400, 2)
    stock = COLUMNS.decode(db[pack(("stock", 2, 2))])
    assert (stock["count"], stock["remote"], stock["ytd"]) == (1, 1, 3)
    while terminal.delivery(1, 4):
        pass
    assert terminal.order_status(customer)[0] > -1400
    assert COLUMNS.decode(db[pack(("orders", 1, 3, number))])["carrier"] == 4
    terminal.close()


def test_an_order_of_an_item_that_does_not_exist_changes_nothing(db: logdb.Database) -> None:
    terminal, before = LogDBTerminal(db), dict(db.scan())
    assert terminal.new_order(NewOrder(1, 1, 1, (Line(1, 1, 2), Line(0, 1, 1)))) == 0
    assert dict(db.scan()) == before
    terminal.close()


def test_payments_of_one_district_do_not_conflict(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    with db.transaction() as txn:
        _payment(txn, Payment(1, 3, Customer(1, 3, 5, ""), 400))
        terminal.payment(Payment(1, 3, Customer(1, 3, 6, ""), 70))
        terminal.new_order(NewOrder(1, 3, 7, (Line(1, 1, 2),)))
    assert (db[pack(("ytd", 1))], db[pack(("ytd", 1, 3))]) == (b"470", b"470")
    assert logdb_terminal.violations(db, SCALE) == []
    terminal.close()


def test_a_delivery_does_not_conflict_with_payments_of_the_same_customers(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    with db.transaction() as txn:
        assert _delivery(txn, 1, 4) == DISTRICTS
        for customer in range(1, SCALE.customers + 1):
            terminal.payment(Payment(1, 3, Customer(1, 3, customer, ""), 400))
    delivered = [value for _, value in db.scan(*Subspace("deliveries", 1, 3).range())]
    assert sorted(delivered) == [b"0"] * (SCALE.customers - 1) + [b"1"]
    assert logdb_terminal.violations(db, SCALE) == []
    terminal.close()


def test_a_delivery_reads_in_two_journeys(db: logdb.Database) -> None:
    with db.transaction() as txn:
        counted = txn.reader = Counted(txn.reader)
        assert _delivery(txn, 1, 4) == DISTRICTS
    assert counted.reads == ["multi_scan", "multi_scan"]
    db.close()


def test_a_customer_is_found_by_last_name(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    terminal.payment(Payment(1, 1, Customer(1, 1, 0, last_name(15)), 50))
    paid = [n for n in range(1, 31) if db[pack(("payments", 1, 1, n))] == b"2"]
    assert len(paid) == 1
    assert last_name(paid[0]) == last_name(15)
    terminal.close()


def test_stock_below_a_threshold_is_counted(db: logdb.Database) -> None:
    terminal = LogDBTerminal(db)
    assert terminal.stock_level(StockLevel(1, 1, 0)) == 0
    ordered = {COLUMNS.decode(value)["item"] for _, value in db.scan(*Subspace("line", 1, 1).range())}
    assert terminal.stock_level(StockLevel(1, 1, 1_000)) == len(ordered)
    terminal.close()


def test_rows_of_the_result_compare_with_the_first_database() -> None:
    measured = [
        Measured("A", [Turn({"payment": 10, "new_order": 10}, 2.0, 1.0, 0.5)], []),
        Measured("B", [Turn({"payment": 40}, 2.0, 1.0, 0.5)], []),
    ]
    assert rows(measured) == [
        ("A", "10", "300", "50.0", "25.0", ""),
        ("B", "20", "0", "25.0", "12.5", "0.50 (0.50 to 0.50)"),
    ]
