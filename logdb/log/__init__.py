"""The shared log: one contract (`contract`), several engines.

`local`   one process, one shard: the sequence number in its segments is the GSN.
`memory`  the reference engine: the contract in the fewest lines, for tests and `logdb.open(":memory:")`.
`scalog`  a cluster of servers, as pure cores. `connect` and `connect_async` give the log of one that runs.
"""

from importlib import import_module
from typing import Any

from logdb.log.contract import AppendId, AppendUnknown, Batch, Log, OrderedLog, Subscription, View
from logdb.log.local.local_log import LocalLog
from logdb.log.local.memory_log import MemoryLog

__all__ = [
    "AppendId",
    "AppendUnknown",
    "Batch",
    "LocalLog",
    "Log",
    "MemoryLog",
    "OrderedLog",
    "Subscription",
    "View",
    "connect",
    "connect_async",
]


def __getattr__(name: str) -> Any:
    """What stands on a higher floor, and needs gRPC, is loaded when it is asked for."""
    if name in ("connect", "connect_async"):
        return getattr(import_module("logdb.clients.log_client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
