"""Replicated state machines on a shared log: an application gives a deterministic machine, and gets replicas of it.

with logdb.smr.connect("127.0.0.1:7401", Counter()) as replica:
    replica.execute(b"add 5")  # on every replica, once, in one order
    replica.query(lambda counter: counter.value)  # linearizable

`open` keeps the log in a directory or in memory, `connect` uses the log of a cluster, `replicate` any log of the
contract (`logdb.log.Log`). `MAX_COMMAND_BYTES`: the maximum size of a command.
"""

from logdb.smr.async_replica import AsyncReplica
from logdb.smr.errors import (
    CommandExpired,
    CommandFailed,
    CommandId,
    CommandTooLarge,
    CommandUnknown,
    Diverged,
    ForeignRecord,
    ReplicaStopped,
    SnapshotMissing,
)
from logdb.smr.machine import Machine
from logdb.smr.opening import connect, connect_async, open, open_async, replicate, replicate_async
from logdb.smr.replica import MAX_COMMAND_BYTES, Reading, Replica

__all__ = [
    "MAX_COMMAND_BYTES",
    "AsyncReplica",
    "CommandExpired",
    "CommandFailed",
    "CommandId",
    "CommandTooLarge",
    "CommandUnknown",
    "Diverged",
    "ForeignRecord",
    "Machine",
    "Reading",
    "Replica",
    "ReplicaStopped",
    "SnapshotMissing",
    "connect",
    "connect_async",
    "open",
    "open_async",
    "replicate",
    "replicate_async",
]
