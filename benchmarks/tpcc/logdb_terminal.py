"""TPC-C on LogDB. A row is a key-value pair: its key is made of the table's name and the primary key, its value of the
columns.

Columns that transactions only add to are counters with keys of their own, so that payments and deliveries do not
conflict there. Two indexes stand beside the tables: the customers of a last name (`named`), and the orders of a
customer (`ordered`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

import logdb
from benchmarks.tpcc.workload import DISTRICTS, Customer, NewOrder, Payment, Row, Scale, StockLevel, initial_rows
from logdb.keys import Subspace, pack, prefix_range, unpack
from logdb.tables import Msgpack

COUNTERS: Final = {
    "warehouse": ("ytd",), "district": ("ytd",), "customer": ("balance", "paid", "payments", "deliveries")
}  # fmt: skip
COLUMNS: Final = Msgpack()
BATCH: Final = 1_000
LAST_ORDERS: Final = 20
"""Orders that a stock-level transaction looks at."""


def pairs(rows: Iterable[Row]) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of rows, with those of the indexes."""
    for table, key, columns in rows:
        counters = {name: columns.pop(name) for name in COUNTERS.get(table, ())}
        yield pack((table, *key)), COLUMNS.encode(columns)
        for name, value in counters.items():
            yield pack((name, *key)), str(value).encode()
        if table == "customer":
            yield pack(("named", *key[:2], columns["last"], columns["first"], key[2])), b""
        elif table == "orders":
            yield pack(("ordered", *key[:2], columns["customer"], key[2])), b""


def load(db: logdb.Database, scale: Scale) -> None:
    """Put all rows that the tables begin with."""
    rest = pairs(initial_rows(scale))
    while batch := dict(islice(rest, BATCH)):
        db.multi_put(batch)


class LogDBTerminal:
    """See `Terminal`. It closes the database."""

    def __init__(self, db: logdb.Database) -> None:
        self.new_order = partial(db.run, _new_order)
        self.payment = partial(db.run, _payment)
        self.order_status = partial(db.run, _order_status, read_only=True)
        self.delivery = partial(db.run, _delivery)
        self.stock_level = partial(db.run, _stock_level, read_only=True)
        self.close = db.close


def _decoded(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, dict[str, Any]]:
    return {key: COLUMNS.decode(value) for key, value in rows}


def _new_order(txn: logdb.Transaction, order: NewOrder) -> int:
    warehouse, district, customer, lines = order
    place = warehouse, district
    district_key = pack(("district", *place))
    items = [pack(("item", line.item)) for line in lines]
    stocks = [pack(("stock", line.supplier, line.item)) for line in lines]
    others = [pack(("warehouse", warehouse)), pack(("customer", *place, customer))]
    rows = _decoded(txn.multi_get([district_key, *items, *stocks, *others]).items())
    if not rows.keys() >= set(items):
        return 0
    number: int = rows[district_key]["next_order"]
    txn[district_key] = COLUMNS.encode(rows[district_key] | {"next_order": number + 1})
    columns = {"customer": customer, "carrier": None, "lines": len(lines)}
    txn[pack(("orders", *place, number))] = COLUMNS.encode(columns)
    txn[pack(("open_order", *place, number))] = COLUMNS.encode({})
    txn[pack(("ordered", *place, customer, number))] = b""
    for at, (line, item, stock) in enumerate(zip(lines, items, stocks, strict=True), 1):
        row = rows[stock]
        left = row["quantity"] - line.quantity
        row["quantity"] = left if left >= 10 else left + 91
        row["ytd"] += line.quantity
        row["count"] += 1
        row["remote"] += line.supplier != warehouse
        txn[stock] = COLUMNS.encode(row)
        columns = line._asdict() | {"amount": line.quantity * rows[item]["price"], "delivered": 0}
        txn[pack(("line", *place, number, at))] = COLUMNS.encode(columns)
    return number


def _number(txn: logdb.Transaction, customer: Customer) -> int:
    """The customer's number: of those of a last name the middle one, by first names (clause 2.5.2.2)."""
    if customer.number:
        return customer.number
    named = Subspace("named", customer.warehouse, customer.district, customer.last_name)
    found = [key for key, _ in txn.scan(*named.range())]
    number: Any = unpack(found[(len(found) - 1) // 2])[-1]
    return int(number)


def _payment(txn: logdb.Transaction, payment: Payment) -> None:
    warehouse, district, customer, amount = payment
    payer = customer.warehouse, customer.district, _number(txn, customer)
    txn.add(pack(("ytd", warehouse)), amount)
    txn.add(pack(("ytd", warehouse, district)), amount)
    txn.add(pack(("balance", *payer)), -amount)
    txn.add(pack(("paid", *payer)), amount)
    txn.add(pack(("payments", *payer)), 1)
    customer_key = pack(("customer", *payer))
    row = COLUMNS.decode(txn[customer_key])
    if row["credit"] == "BC":
        note = f"{payer[2]},{payer[1]},{payer[0]},{district},{warehouse},{amount};"
        txn[customer_key] = COLUMNS.encode(row | {"data": (note + row["data"])[:500]})


def _order_status(txn: logdb.Transaction, customer: Customer) -> tuple[int, int]:
    place = customer.warehouse, customer.district
    number = _number(txn, customer)
    balance_key = pack(("balance", *place, number))
    balance = txn.multi_get([pack(("customer", *place, number)), balance_key])[balance_key]
    newest = txn.scan(*Subspace("ordered", *place, number).range(), reverse=True, limit=1)
    orders = [Subspace("line", *place, unpack(key)[-1]) for key, _ in newest]
    return int(balance), sum(1 for order in orders for _ in txn.scan(*order.range()))


def _delivery(txn: logdb.Transaction, warehouse: int, carrier: int) -> int:
    """Two journeys: the oldest order of each district; these orders with their lines."""
    districts = [Subspace("open_order", warehouse, district).range() for district in range(1, DISTRICTS + 1)]
    opened = [rows[0][0] for rows in txn.multi_scan(districts, limit=1) if rows]
    orders = [unpack(key)[1:] for key in opened]
    found = txn.multi_scan(prefix_range(pack((table, *order))) for table in ("orders", "line") for order in orders)
    for key, ((order_key, value),), lines in zip(opened, found, map(_decoded, found[len(opened) :]), strict=False):
        order = COLUMNS.decode(value)
        del txn[key]
        txn[order_key] = COLUMNS.encode(order | {"carrier": carrier})
        txn.multi_put({line_key: COLUMNS.encode(line | {"delivered": 1}) for line_key, line in lines.items()})
        payer = *unpack(key)[1:3], order["customer"]
        txn.add(pack(("balance", *payer)), sum(line["amount"] for line in lines.values()))
        txn.add(pack(("deliveries", *payer)), 1)
    return len(opened)


def _stock_level(txn: logdb.Transaction, level: StockLevel) -> int:
    place = level.warehouse, level.district
    next_order = COLUMNS.decode(txn[pack(("district", *place))])["next_order"]
    _, end = Subspace("line", *place).range()
    lines = _decoded(txn.scan(pack(("line", *place, next_order - LAST_ORDERS)), end))
    stocks = {pack(("stock", level.warehouse, line["item"])) for line in lines.values()}
    return sum(row["quantity"] < level.threshold for row in _decoded(txn.multi_get([*stocks]).items()).values())


def violations(db: logdb.Database, scale: Scale) -> list[str]:
    """Consistency conditions 1 to 4 (clause 3.3.2) that do not hold at the newest version."""
    snapshot = db.at(db.version)
    found: list[str] = []

    def rows(table: str, *place: int) -> dict[Any, dict[str, Any]]:
        """By the last number of the primary key."""
        return {
            unpack(key)[-1]: COLUMNS.decode(value) for key, value in snapshot.scan(*Subspace(table, *place).range())
        }

    for warehouse in range(1, scale.warehouses + 1):
        parts = [int(part) for _, part in snapshot.scan(*Subspace("ytd", warehouse).range())]
        if int(snapshot[pack(("ytd", warehouse))]) != sum(parts):
            found.append(f"condition 1: warehouse {warehouse}")
        for district, each in rows("district", warehouse).items():
            place = warehouse, district
            orders, opened = rows("orders", *place), list(rows("open_order", *place))
            lines = snapshot.scan(*Subspace("line", *place).range())
            if each["next_order"] - 1 != max(orders):
                found.append(f"condition 2: district {warehouse}, {district}")
            if opened and opened[-1] - opened[0] + 1 != len(opened):
                found.append(f"condition 3: district {warehouse}, {district}")
            if sum(order["lines"] for order in orders.values()) != sum(1 for _ in lines):
                found.append(f"condition 4: district {warehouse}, {district}")
    return found
