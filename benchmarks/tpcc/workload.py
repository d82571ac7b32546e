"""The five transactions of TPC-C and their inputs (clause 2), drawn from a seeded generator.

The tables are smaller than the specification says (clause 1.2), so that loading does not take longer than measuring;
the shares of the transactions and of remote warehouses are those of the specification. Amounts are integers: cents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

DISTRICTS: Final = 10
MIX: Final = (("new_order", 45), ("payment", 43), ("order_status", 4), ("delivery", 4), ("stock_level", 4))
INVALID_ITEM: Final = 0
"""An item that does not exist: its new order is rolled back (clause 2.4.1.4)."""
SYLLABLES: Final = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")


class Scale(NamedTuple):
    """Rows per warehouse or district. Each district begins with `orders` orders, of which the last third is open."""

    warehouses: int = 8
    customers: int = 100
    items: int = 1_000
    orders: int = 100


class Customer(NamedTuple):
    """A customer, chosen by `number` or, if that is 0, by `last_name`."""

    warehouse: int
    district: int
    number: int
    last_name: str


class Line(NamedTuple):
    """A line of a new order; `supplier` is the warehouse that delivers."""

    item: int
    supplier: int
    quantity: int


class NewOrder(NamedTuple):
    """Clause 2.4."""

    warehouse: int
    district: int
    customer: int
    lines: tuple[Line, ...]


class Payment(NamedTuple):
    """Clause 2.5."""

    warehouse: int
    district: int
    customer: Customer
    amount: int


class StockLevel(NamedTuple):
    """Clause 2.8."""

    warehouse: int
    district: int
    threshold: int


class Terminal(Protocol):
    """A connection that runs the transactions. Each method returns when its transaction is durable."""

    def new_order(self, order: NewOrder) -> int:
        """The number of the order, or 0 if an item does not exist and the order was rolled back."""
        ...

    def payment(self, payment: Payment) -> None: ...
    def order_status(self, customer: Customer) -> tuple[int, int]:
        """(balance, number of lines of the customer's last order). Clause 2.6."""
        ...

    def delivery(self, warehouse: int, carrier: int) -> int:
        """The number of orders delivered: the oldest one of each district. Clause 2.7."""
        ...

    def stock_level(self, level: StockLevel) -> int:
        """The number of items of the last 20 orders whose stock is below the threshold."""
        ...

    def close(self) -> None: ...


class Inputs:
    """Draws transactions for a terminal of a warehouse."""

    def __init__(self, scale: Scale, warehouse: int, rng: random.Random) -> None:
        self._scale, self._warehouse, self._rng = scale, warehouse, rng
        self._names = [name for name, share in MIX for _ in range(share)]

    def run_one(self, terminal: Terminal) -> str:
        """Run one transaction and return its name."""
        name = self._rng.choice(self._names)
        rng, warehouse = self._rng, self._warehouse
        match name:
            case "new_order":
                terminal.new_order(self._new_order())
            case "payment":
                terminal.payment(self._payment())
            case "order_status":
                terminal.order_status(self._customer(warehouse, self._district()))
            case "delivery":
                terminal.delivery(warehouse, rng.randint(1, 10))
            case _:
                terminal.stock_level(StockLevel(warehouse, self._district(), rng.randint(10, 20)))
        return name

    def _district(self) -> int:
        return self._rng.randint(1, DISTRICTS)

    def _skewed(self, spread: int, highest: int) -> int:
        """NURand of clause 2.1.6, over 1 to `highest`."""
        rng = self._rng
        return (rng.randint(0, spread) | rng.randint(1, highest)) % highest + 1

    def _other_warehouse(self) -> int:
        others = [number for number in range(1, self._scale.warehouses + 1) if number != self._warehouse]
        return self._rng.choice(others) if others else self._warehouse

    def _customer(self, warehouse: int, district: int) -> Customer:
        number = self._skewed(1023, self._scale.customers)
        by_name = self._rng.random() < 0.6
        return Customer(warehouse, district, 0 if by_name else number, last_name(number))

    def _new_order(self) -> NewOrder:
        rng = self._rng
        items = {self._skewed(8191, self._scale.items) for _ in range(rng.randint(5, 15))}
        lines = [
            Line(item, self._other_warehouse() if rng.random() < 0.01 else self._warehouse, rng.randint(1, 10))
            for item in sorted(items)
        ]
        if rng.random() < 0.01:
            lines[-1] = lines[-1]._replace(item=INVALID_ITEM)
        customer = self._skewed(1023, self._scale.customers)
        return NewOrder(self._warehouse, self._district(), customer, tuple(lines))

    def _payment(self) -> Payment:
        remote = self._rng.random() < 0.15
        customer = self._customer(self._other_warehouse() if remote else self._warehouse, self._district())
        return Payment(self._warehouse, self._district(), customer, self._rng.randint(100, 500_000))


def last_name(number: int) -> str:
    """Of a customer (clause 4.3.2.3): one name for each ten customers."""
    hundreds, rest = divmod(number // 10 % 1000, 100)
    return SYLLABLES[hundreds] + SYLLABLES[rest // 10] + SYLLABLES[rest % 10]


class Row(NamedTuple):
    """A row to load: a table's name, the values of its primary key, and its other columns."""

    table: str
    key: tuple[int, ...]
    columns: dict[str, int | str | None]


def initial_rows(scale: Scale) -> Iterator[Row]:
    """The rows that the tables begin with (clause 4.3), the same in every database."""
    rng = random.Random(20130101)
    for item in range(1, scale.items + 1):
        yield Row("item", (item,), {"name": f"item {item}", "price": rng.randint(100, 10_000), "data": "d" * 38})
    for warehouse in range(1, scale.warehouses + 1):
        yield Row("warehouse", (warehouse,), {"name": f"w{warehouse}", "tax": rng.randint(0, 2000), "ytd": 0})
        for item in range(1, scale.items + 1):
            yield Row("stock", (warehouse, item), {"quantity": rng.randint(10, 100), "ytd": 0, "count": 0, "remote": 0})
        for district in range(1, DISTRICTS + 1):
            yield from _district_rows(scale, warehouse, district, rng)


def _district_rows(scale: Scale, warehouse: int, district: int, rng: random.Random) -> Iterator[Row]:
    place = (warehouse, district)
    tax = rng.randint(0, 2000)
    yield Row("district", place, {"name": f"d{district}", "tax": tax, "ytd": 0, "next_order": scale.orders + 1})
    for number in range(1, scale.customers + 1):
        yield Row(
            "customer",
            (*place, number),
            {"last": last_name(number), "first": f"first {number:08d}", "discount": rng.randint(0, 5000),
             "credit": "BC" if rng.random() < 0.1 else "GC", "balance": -1000, "paid": 1000, "payments": 1,
             "deliveries": 0, "data": "c" * 200},
        )  # fmt: skip
    first_open = scale.orders - scale.orders // 3 + 1
    for order in range(1, scale.orders + 1):
        is_open, lines = order >= first_open, rng.randint(5, 15)
        customer = (order - 1) % scale.customers + 1
        carrier = None if is_open else rng.randint(1, 10)
        yield Row("orders", (*place, order), {"customer": customer, "carrier": carrier, "lines": lines})
        if is_open:
            yield Row("open_order", (*place, order), {})
        for line in range(1, lines + 1):
            item, amount = rng.randint(1, scale.items), 0 if not is_open else rng.randint(1, 999_999)
            columns: dict[str, int | str | None] = {"item": item, "supplier": warehouse, "quantity": 5}
            yield Row("line", (*place, order, line), columns | {"amount": amount, "delivered": 0 if is_open else 1})
