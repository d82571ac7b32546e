"""The shared log: the contract (`contract`) and its engines.

`local`: a log in a directory of one process, and the reference engine in memory (`logdb.open(":memory:")`). The engines
that servers run are listed in `engine.ENGINES`; `connect` and `connect_async` return the log of a running cluster.
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
    """Import `connect` and `connect_async` on first use: they need gRPC and modules that import this one."""
    if name in ("connect", "connect_async"):
        return getattr(import_module("logdb.clients.log_client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
