"""The shared log: one contract (`contract`), several engines.

`local`   one process, one shard: the sequence number in its segments is the GSN.
`memory`  the reference engine: the contract in the fewest lines, for tests and `logdb.open(":memory:")`.
"""

from logdb.log.contract import Batch, Log, OrderedLog, Subscription, View
from logdb.log.local import LocalLog
from logdb.log.memory import MemoryLog

__all__ = ["Batch", "LocalLog", "Log", "MemoryLog", "OrderedLog", "Subscription", "View"]
