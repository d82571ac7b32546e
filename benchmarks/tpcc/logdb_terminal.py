"""TPC-C on LogDB. A row is a key-value pair; its key is a letter for the table and the primary key, in order.

Two indexes stand beside the tables: the customers of a last name (`n`), and the orders of a customer (`p`). The sums
paid to a warehouse and a district (`ytd`) are counters with keys of their own, so that payments do not conflict there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import logdb
from benchmarks.tpcc.workload import Customer, Line, NewOrder, Payment, Row, Scale, StockLevel, initial_rows
from logdb.keys import prefix_range

LETTERS: Final = {
    "item": b"i", "warehouse": b"w", "stock": b"s", "district": b"d", "customer": b"c", "orders": b"o",
    "open_order": b"q", "line": b"l", "ytd": b"y",
}  # fmt: skip
NUMBERS: Final = [struct.Struct(f">{count}I") for count in range(5)]
BATCH: Final = 1_000
LAST_ORDERS: Final = 20
"""Orders that a stock-level transaction looks at."""


def key_of(table: str, *numbers: int) -> bytes:
    """The key of a row, or the prefix of all rows whose primary key begins with these numbers."""
    return LETTERS[table] + NUMBERS[len(numbers)].pack(*numbers)


def _after(prefix: bytes) -> bytes:
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def _number_at_the_end(key: bytes) -> int:
    return int.from_bytes(key[-4:], "big")


def _name_prefix(customer: Customer) -> bytes:
    return b"n" + NUMBERS[2].pack(customer.warehouse, customer.district) + customer.last_name.encode() + b"\0"


def _latest_first(warehouse: int, district: int, customer: int, order: int) -> bytes:
    """A key of the index of a customer's orders, which begins with the newest one."""
    return b"p" + NUMBERS[4].pack(warehouse, district, customer, 0xFFFFFFFF - order)


pack: Final = json.JSONEncoder(separators=(",", ":")).encode
unpack: Final = json.JSONDecoder().decode


def packed(columns: dict[str, Any]) -> bytes:
    """The columns as a value."""
    return pack(columns).encode()


def unpacked(value: bytes) -> dict[str, Any]:
    """The columns of a value."""
    row: dict[str, Any] = unpack(value.decode())
    return row


def pairs(rows: Iterable[Row]) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of rows, with those of the indexes."""
    for table, key, columns in rows:
        counted = table in ("warehouse", "district")
        yield key_of(table, *key), packed({name: one for name, one in columns.items() if not counted or name != "ytd"})
        if counted:
            yield key_of("ytd", *key), str(columns["ytd"]).encode()
        if table == "customer":
            name = Customer(key[0], key[1], 0, str(columns["last"]))
            yield _name_prefix(name) + str(columns["first"]).encode() + NUMBERS[1].pack(key[2]), b""
        elif table == "orders":
            assert isinstance(columns["customer"], int)
            yield _latest_first(key[0], key[1], columns["customer"], key[2]), b""


def load(db: logdb.Database, scale: Scale) -> None:
    """Put all rows that the tables begin with."""
    rest = pairs(initial_rows(scale))
    while batch := dict(islice(rest, BATCH)):
        db.multi_put(batch)


class LogDBTerminal:
    """See `Terminal`. It closes the database."""

    def __init__(self, db: logdb.Database) -> None:
        self._db = db

    def new_order(self, order: NewOrder) -> int:
        return self._db.run(_new_order, order)

    def payment(self, payment: Payment) -> None:
        self._db.run(_payment, payment)

    def order_status(self, customer: Customer) -> tuple[int, int]:
        with self._db.transaction(read_only=True) as txn:
            return _order_status(txn, customer)

    def delivery(self, warehouse: int, carrier: int) -> int:
        return self._db.run(_delivery, warehouse, carrier)

    def stock_level(self, level: StockLevel) -> int:
        with self._db.transaction(read_only=True) as txn:
            return _stock_level(txn, level)

    def close(self) -> None:
        self._db.close()


def _row(txn: logdb.Transaction, key: bytes) -> dict[str, Any]:
    value = txn.get(key)
    assert value is not None, key
    return unpacked(value)


def _new_order(txn: logdb.Transaction, order: NewOrder) -> int:
    warehouse, district, customer, lines = order
    district_key = key_of("district", warehouse, district)
    items = [key_of("item", line.item) for line in lines]
    stocks = [key_of("stock", line.supplier, line.item) for line in lines]
    customer_key = key_of("customer", warehouse, district, customer)
    found = txn.multi_get([key_of("warehouse", warehouse), district_key, customer_key, *items, *stocks])
    if any(item not in found for item in items):
        return 0
    row = unpacked(found[district_key])
    number: int = row["next_order"]
    txn[district_key] = packed(row | {"next_order": number + 1})
    txn[key_of("orders", warehouse, district, number)] = packed(
        {"customer": customer, "carrier": None, "lines": len(lines)}
    )
    txn[key_of("open_order", warehouse, district, number)] = packed({})
    txn[_latest_first(warehouse, district, customer, number)] = b""
    for at, (line, item, stock) in enumerate(zip(lines, items, stocks, strict=True), 1):
        price = unpacked(found[item])["price"]
        txn[stock] = packed(_taken(unpacked(found[stock]), line, warehouse))
        txn[key_of("line", warehouse, district, number, at)] = packed(
            {"item": line.item, "supplier": line.supplier, "quantity": line.quantity,
             "amount": line.quantity * price, "delivered": 0}
        )  # fmt: skip
    return number


def _taken(stock: dict[str, Any], line: Line, warehouse: int) -> dict[str, Any]:
    left = stock["quantity"] - line.quantity
    return {
        "quantity": left if left >= 10 else left + 91,
        "ytd": stock["ytd"] + line.quantity,
        "count": stock["count"] + 1,
        "remote": stock["remote"] + (line.supplier != warehouse),
    }


def _number(txn: logdb.Transaction, customer: Customer) -> int:
    """The customer's number: of those of a last name the middle one, by first names (clause 2.5.2.2)."""
    if customer.number:
        return customer.number
    prefix = _name_prefix(customer)
    found = [_number_at_the_end(key) for key, _ in txn.scan(prefix=prefix)]
    return found[(len(found) - 1) // 2]


def _payment(txn: logdb.Transaction, payment: Payment) -> None:
    customer, amount = payment.customer, payment.amount
    number = _number(txn, customer)
    txn.add(key_of("ytd", payment.warehouse), amount)
    txn.add(key_of("ytd", payment.warehouse, payment.district), amount)
    key = key_of("customer", customer.warehouse, customer.district, number)
    paid = _row(txn, key)
    changed = {"balance": paid["balance"] - amount, "paid": paid["paid"] + amount, "payments": paid["payments"] + 1}
    if paid["credit"] == "BC":
        note = f"{number},{customer.district},{customer.warehouse},{payment.district},{payment.warehouse},{amount};"
        changed["data"] = (note + paid["data"])[:500]
    txn[key] = packed(paid | changed)


def _order_status(txn: logdb.Transaction, customer: Customer) -> tuple[int, int]:
    warehouse, district = customer.warehouse, customer.district
    number = _number(txn, customer)
    balance: int = _row(txn, key_of("customer", warehouse, district, number))["balance"]
    prefix = b"p" + NUMBERS[3].pack(warehouse, district, number)
    for key, _ in txn.scan(prefix=prefix, limit=1):
        order = 0xFFFFFFFF - _number_at_the_end(key)
        return balance, sum(1 for _ in txn.scan(prefix=key_of("line", warehouse, district, order)))
    return balance, 0


def _delivery(txn: logdb.Transaction, warehouse: int, carrier: int) -> int:
    """Three journeys: the oldest order of each district; these with their lines; their customers."""
    districts = [prefix_range(key_of("open_order", warehouse, district)) for district in range(1, 11)]
    opened = [rows[0][0] for rows in txn.multi_scan(districts, limit=1) if rows]
    places = [NUMBERS[3].unpack(key[1:]) for key in opened]
    wanted = [prefix_range(key_of(table, *place)) for table in ("orders", "line") for place in places]
    found = txn.multi_scan(wanted)
    amounts: dict[bytes, int] = {}
    for key, place, ((order_key, value),), lines in zip(opened, places, found, found[len(places) :], strict=False):
        del txn[key]
        order = unpacked(value)
        txn[order_key] = packed(order | {"carrier": carrier})
        rows = [(line_key, unpacked(line)) for line_key, line in lines]
        for line_key, line in rows:
            txn[line_key] = packed(line | {"delivered": 1})
        amounts[key_of("customer", *place[:2], order["customer"])] = sum(line["amount"] for _, line in rows)
    for key, value in txn.multi_get(list(amounts)).items():
        customer = unpacked(value)
        changed = {"balance": customer["balance"] + amounts[key], "deliveries": customer["deliveries"] + 1}
        txn[key] = packed(customer | changed)
    return len(opened)


def _stock_level(txn: logdb.Transaction, level: StockLevel) -> int:
    next_order = _row(txn, key_of("district", level.warehouse, level.district))["next_order"]
    first = key_of("line", level.warehouse, level.district, max(1, next_order - LAST_ORDERS))
    lines = txn.scan(first, _after(key_of("line", level.warehouse, level.district)))
    items = {unpacked(value)["item"] for _, value in lines}
    stocks = txn.multi_get([key_of("stock", level.warehouse, item) for item in items])
    return sum(1 for value in stocks.values() if unpacked(value)["quantity"] < level.threshold)


def violations(db: logdb.Database, scale: Scale) -> list[str]:
    """Consistency conditions 1 to 4 (clause 3.3.2) that do not hold at the newest version."""
    snapshot = db.at(db.version)
    found: list[str] = []

    def rows(table: str, *numbers: int) -> list[tuple[int, dict[str, Any]]]:
        prefix = key_of(table, *numbers)
        return [(_number_at_the_end(key), unpacked(value)) for key, value in snapshot.scan(prefix=prefix)]

    for warehouse in range(1, scale.warehouses + 1):
        districts = rows("district", warehouse)
        (_, total), *parts = snapshot.scan(prefix=key_of("ytd", warehouse))
        if int(total) != sum(int(part) for _, part in parts):
            found.append(f"condition 1: warehouse {warehouse}")
        for district, each in districts:
            orders = rows("orders", warehouse, district)
            opened = [number for number, _ in rows("open_order", warehouse, district)]
            if each["next_order"] - 1 != max(number for number, _ in orders):
                found.append(f"condition 2: district {warehouse}, {district}")
            if opened and opened[-1] - opened[0] + 1 != len(opened):
                found.append(f"condition 3: district {warehouse}, {district}")
            if sum(order["lines"] for _, order in orders) != len(rows("line", warehouse, district)):
                found.append(f"condition 4: district {warehouse}, {district}")
    return found
