"""The process that is killed: it consumes the log `orders`, with an effect for each entry.

The effect of an entry adds 1 to a counter of its own, in two keys, and moves the last position. Each line of the output
is the number of entries that this process has consumed.
"""

from __future__ import annotations

import sys
from typing import Any

import logdb
from logdb.named_logs import Consumer, Entry, NamedLog

COUNTS, COPIES = b"counts/", b"copies/"


def count(txn: Any, entry: Entry) -> None:
    """The effect of an entry."""
    for prefix in (COUNTS, COPIES):
        key = prefix + entry.value
        txn.put(key, b"%d" % (int(txn.get(key) or b"0") + 1))


def consumer_of(orders: NamedLog, kind: str) -> Consumer:
    """The consumer, or a member of the group, that all processes are."""
    return orders.group("billing", partitions=4, lease=0.2) if kind == "group" else orders.consumer("billing")


def main() -> None:
    where, kind = sys.argv[1:]
    db = logdb.connect(where) if ":" in where else logdb.open(where, create=False)
    orders = db.log("orders")
    with consumer_of(orders, kind) as consumer:
        for number in range(sys.maxsize):
            consumer.run(count, limit=1)
            print(number, flush=True)


if __name__ == "__main__":
    main()
