"""Named logs: sequences of entries inside the database, in the order of its log.

orders = db.log("orders")
position = orders.append(b"...")
with db.transaction() as txn:
    txn[b"stock/7"] = b"3"
    txn.log("orders").append(b"...")
for entry in orders.read(after=position): ...
"""

from logdb.named_logs.async_log import AsyncNamedLog, AsyncTransactionLog
from logdb.named_logs.layout import Entry, Position
from logdb.named_logs.log import NamedLog, TransactionLog

__all__ = ["AsyncNamedLog", "AsyncTransactionLog", "Entry", "NamedLog", "Position", "TransactionLog"]
