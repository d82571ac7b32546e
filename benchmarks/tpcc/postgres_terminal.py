"""TPC-C on PostgreSQL: serializable transactions, tried again when PostgreSQL aborts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

from benchmarks.tpcc.workload import Customer, NewOrder, Payment, Row, Scale, StockLevel, initial_rows

PLACE: Final = "warehouse INT, district INT"
TABLES: Final = {
    "item": ("id INT", "name TEXT, price INT, data TEXT"),
    "warehouse": ("id INT", "name TEXT, tax INT, ytd BIGINT"),
    "stock": ("warehouse INT, item INT", "quantity INT, ytd INT, count INT, remote INT"),
    "district": (PLACE, "name TEXT, tax INT, ytd BIGINT, next_order INT"),
    "customer": (
        f"{PLACE}, id INT",
        "last TEXT, first TEXT, discount INT, credit TEXT, balance BIGINT, paid BIGINT, payments INT, deliveries INT, "
        "data TEXT",
    ),
    "orders": (f"{PLACE}, id INT", "customer INT, carrier INT, lines INT"),
    "open_order": (f"{PLACE}, id INT", ""),
    "line": (f"{PLACE}, order_id INT, number INT", "item INT, supplier INT, quantity INT, amount INT, delivered INT"),
}
"""(columns of the primary key, other columns)."""
INDEXES: Final = (
    "CREATE INDEX ON customer (warehouse, district, last, first)",
    "CREATE INDEX ON orders (warehouse, district, customer, id)",
)
IN_PLACE: Final = "warehouse = %s AND district = %s"


def load(address: str, scale: Scale) -> None:
    """Make the tables and copy all rows that they begin with."""
    import psycopg

    with psycopg.connect(address) as connection:
        rows: dict[str, list[Row]] = {}
        for row in initial_rows(scale):
            rows.setdefault(row.table, []).append(row)
        for table, (key, columns) in TABLES.items():
            names = ", ".join(column.split()[0] for column in key.split(", "))
            fields = ", ".join(part for part in (key, columns) if part)
            connection.execute(f"CREATE TABLE {table} ({fields}, PRIMARY KEY ({names}))")
            with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                for row in rows[table]:
                    copy.write_row((*row.key, *row.columns.values()))
        for statement in INDEXES:
            connection.execute(statement)
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ANALYZE")


class SqlTerminal(ABC):
    """See `Terminal`: the transactions in SQL."""

    _connection: Any

    @abstractmethod
    def _run(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """Call `body(execute, ...)` in a transaction."""

    def new_order(self, order: NewOrder) -> int:
        return int(self._run(_new_order, order))

    def payment(self, payment: Payment) -> None:
        self._run(_payment, payment)

    def order_status(self, customer: Customer) -> tuple[int, int]:
        balance, lines = self._run(_order_status, customer)
        return balance, lines

    def delivery(self, warehouse: int, carrier: int) -> int:
        return int(self._run(_delivery, warehouse, carrier))

    def stock_level(self, level: StockLevel) -> int:
        return int(self._run(_stock_level, level))

    def close(self) -> None:
        self._connection.close()


class PostgresTerminal(SqlTerminal):
    """See `Terminal`."""

    def __init__(self, address: str) -> None:
        import psycopg

        self._connection = psycopg.connect(address)
        self._connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        self._again = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)

    def _run(self, body: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                with self._connection.transaction():
                    return body(self._connection.execute, *arguments)
            except self._again:
                continue


Execute = Callable[[str, Sequence[object]], Any]


def _new_order(execute: Execute, order: NewOrder) -> int:
    place = (order.warehouse, order.district)
    wanted = [line.item for line in order.lines]
    marks = ", ".join(["%s"] * len(wanted))
    prices = dict(execute(f"SELECT id, price FROM item WHERE id IN ({marks})", wanted).fetchall())
    if len(prices) < len(wanted):
        return 0
    execute("SELECT tax FROM warehouse WHERE id = %s", (order.warehouse,)).fetchone()
    execute(f"SELECT discount, last, credit FROM customer WHERE {IN_PLACE} AND id = %s", (*place, order.customer))
    advance = f"UPDATE district SET next_order = next_order + 1 WHERE {IN_PLACE} RETURNING next_order - 1"
    (number,) = execute(advance, place).fetchone()
    execute("INSERT INTO orders VALUES (%s, %s, %s, %s, NULL, %s)", (*place, number, order.customer, len(order.lines)))
    execute("INSERT INTO open_order VALUES (%s, %s, %s)", (*place, number))
    for line in order.lines:
        execute(
            "UPDATE stock SET quantity = CASE WHEN quantity - %s >= 10 THEN quantity - %s ELSE quantity - %s + 91 END,"
            " ytd = ytd + %s, count = count + 1, remote = remote + %s WHERE warehouse = %s AND item = %s",
            (*[line.quantity] * 4, int(line.supplier != order.warehouse), line.supplier, line.item),
        )
    rows = [
        (*place, number, at, line.item, line.supplier, line.quantity, line.quantity * prices[line.item], 0)
        for at, line in enumerate(order.lines, 1)
    ]
    marks = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s, %s)"] * len(rows))
    execute(f"INSERT INTO line VALUES {marks}", [value for row in rows for value in row])
    return int(number)


def _number(execute: Execute, customer: Customer) -> int:
    if customer.number:
        return customer.number
    named = f"SELECT id FROM customer WHERE {IN_PLACE} AND last = %s ORDER BY first"
    found = execute(named, (customer.warehouse, customer.district, customer.last_name)).fetchall()
    return int(found[(len(found) - 1) // 2][0])


def _payment(execute: Execute, payment: Payment) -> None:
    customer, amount = payment.customer, payment.amount
    number = _number(execute, customer)
    execute("UPDATE warehouse SET ytd = ytd + %s WHERE id = %s", (amount, payment.warehouse))
    execute(f"UPDATE district SET ytd = ytd + %s WHERE {IN_PLACE}", (amount, payment.warehouse, payment.district))
    note = f"{number},{customer.district},{customer.warehouse},{payment.district},{payment.warehouse},{amount};"
    execute(
        "UPDATE customer SET balance = balance - %s, paid = paid + %s, payments = payments + 1,"
        " data = CASE WHEN credit = 'BC' THEN substr(%s || data, 1, 500) ELSE data END"
        f" WHERE {IN_PLACE} AND id = %s",
        (amount, amount, note, customer.warehouse, customer.district, number),
    )


def _order_status(execute: Execute, customer: Customer) -> tuple[int, int]:
    place = (customer.warehouse, customer.district)
    number = _number(execute, customer)
    (balance,) = execute(f"SELECT balance FROM customer WHERE {IN_PLACE} AND id = %s", (*place, number)).fetchone()
    newest = f"SELECT id FROM orders WHERE {IN_PLACE} AND customer = %s ORDER BY id DESC LIMIT 1"
    order = execute(newest, (*place, number)).fetchone()
    if order is None:
        return balance, 0
    lines = execute(f"SELECT * FROM line WHERE {IN_PLACE} AND order_id = %s", (*place, order[0]))
    return balance, len(lines.fetchall())


def _delivery(execute: Execute, warehouse: int, carrier: int) -> int:
    delivered = 0
    for district in range(1, 11):
        place = (warehouse, district)
        oldest = f"SELECT id FROM open_order WHERE {IN_PLACE} ORDER BY id LIMIT 1"
        found = execute(oldest, place).fetchone()
        if found is None:
            continue
        order = (*place, found[0])
        execute(f"DELETE FROM open_order WHERE {IN_PLACE} AND id = %s", order)
        changed = f"UPDATE orders SET carrier = %s WHERE {IN_PLACE} AND id = %s RETURNING customer"
        (customer,) = execute(changed, (carrier, *order)).fetchone()
        lines = f"UPDATE line SET delivered = 1 WHERE {IN_PLACE} AND order_id = %s RETURNING amount"
        amount = sum(row[0] for row in execute(lines, order).fetchall())
        paid = f"UPDATE customer SET balance = balance + %s, deliveries = deliveries + 1 WHERE {IN_PLACE} AND id = %s"
        execute(paid, (amount, *place, customer))
        delivered += 1
    return delivered


def _stock_level(execute: Execute, level: StockLevel) -> int:
    place = (level.warehouse, level.district)
    (next_order,) = execute(f"SELECT next_order FROM district WHERE {IN_PLACE}", place).fetchone()
    low = (
        "SELECT count(DISTINCT stock.item) FROM line JOIN stock ON stock.item = line.item AND stock.warehouse = %s"
        " WHERE line.warehouse = %s AND line.district = %s AND order_id >= %s AND order_id < %s AND stock.quantity < %s"
    )
    asked = (level.warehouse, *place, next_order - 20, next_order, level.threshold)
    return int(execute(low, asked).fetchone()[0])
