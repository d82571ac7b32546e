"""Named logs: sequences of entries inside the database, in the order of its log.

orders = db.log("orders")
position = orders.append(b"...")
with db.transaction() as txn:
    txn[b"stock/7"] = b"3"
    txn.log("orders").append(b"...")
for entry in orders.read(after=position): ...
with orders.consumer("billing") as consumer:
    consumer.run(lambda txn, entry: txn.put(b"invoice/7", entry.value))
"""

from logdb.named_logs.async_consumer import AsyncConsumer, AsyncGroupConsumer
from logdb.named_logs.async_log import AsyncExclusiveLog, AsyncNamedLog, AsyncTransactionLog
from logdb.named_logs.consumer import Consumer, GroupConsumer
from logdb.named_logs.cursors import ConsumerState
from logdb.named_logs.layout import Entry, LogStats, Position
from logdb.named_logs.log import ExclusiveLog, NamedLog, TransactionLog
from logdb.named_logs.retention import Retention

__all__ = [
    "AsyncConsumer",
    "AsyncExclusiveLog",
    "AsyncGroupConsumer",
    "AsyncNamedLog",
    "AsyncTransactionLog",
    "Consumer",
    "ConsumerState",
    "Entry",
    "ExclusiveLog",
    "GroupConsumer",
    "LogStats",
    "NamedLog",
    "Position",
    "Retention",
    "TransactionLog",
]
