"""A materialized view: a table of totals that a consumer keeps from a log of events.

The total of a product and the cursor change in one transaction, so the view is that of a prefix of the log at any
version, also after a crash, and `position` says which. A view with another definition is built beside the old one, by a
consumer of its own; when it has caught up, one transaction makes it the view that readers use.

    python3 -m examples.materialized_view [DIRECTORY or HOST:PORT]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import logdb
from logdb.named_logs import Entry
from logdb.tables import Json, Table

PRODUCTS = ["apples", "pears", "plums"]
Definition = Callable[[dict[str, Any]], tuple[str, int]]


def pieces(event: dict[str, Any]) -> tuple[str, int]:
    """The first definition of the view: the number of pieces of each product."""
    return event["product"], event["pieces"]


def cents(event: dict[str, Any]) -> tuple[str, int]:
    """The second definition of the view: the price of all pieces."""
    return event["product"], event["pieces"] * event["cents"]


def totals(db: logdb.Database, view: str) -> Table[str, Any]:
    """The table of a view."""
    return db.table(f"totals {view}", key=str, value=Json())


def keep(db: logdb.Database, view: str, definition: Definition) -> int:
    """Bring a view up to date with the log. Returns the number of events."""
    table = totals(db, view)

    def add(txn: logdb.Transaction, entry: Entry) -> None:
        product, amount = definition(json.loads(entry.value))
        rows = table.within(txn)
        rows.put(product, rows.get(product, 0) + amount)

    with db.log("sales").consumer(f"totals {view}") as consumer:
        return consumer.run(add, until_end=True, batch=50)


def current(db: logdb.Database) -> dict[str, int]:
    """The view that readers use."""
    return dict(totals(db, db[b"view"].decode()).scan())


def append(db: logdb.Database, draw: random.Random, count: int) -> None:
    """Some sales."""
    events = [
        {"product": draw.choice(PRODUCTS), "pieces": draw.randint(1, 9), "cents": draw.randint(1, 99)}
        for _ in range(count)
    ]
    db.log("sales").extend([json.dumps(event).encode() for event in events])


def expected(db: logdb.Database, definition: Definition) -> dict[str, int]:
    """The view, computed from the whole log."""
    found = Counter[str]()
    for entry in db.log("sales").read():
        product, amount = definition(json.loads(entry.value))
        found[product] += amount
    return dict(found)


def main(argv: list[str] | None = None) -> None:
    """Keep a view, and replace it by one with another definition."""
    where = (sys.argv[1:] if argv is None else argv) or [tempfile.mkdtemp(prefix="logdb-view-")]
    draw = random.Random(1)
    with logdb.connect(where[0]) if ":" in where[0] else logdb.open(where[0]) as db:
        db.put(b"view", b"pieces")
        for _ in range(3):
            append(db, draw, 100)
            keep(db, "pieces", pieces)
            assert current(db) == expected(db, pieces)
        print("pieces:", current(db))
        keep(db, "cents", cents)
        append(db, draw, 100)
        keep(db, "cents", cents)
        db.put(b"view", b"cents")
        db.log("sales").consumer("totals pieces").delete()
        print("cents:", current(db))
        assert current(db) == expected(db, cents)
        assert [state.name for state in db.log("sales").consumers()] == ["totals cents"]


if __name__ == "__main__":
    main()
