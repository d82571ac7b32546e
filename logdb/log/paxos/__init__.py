"""Multi-Paxos as a core without I/O: the replicated log of commands under Scalog's ordering layer.

`PROTOCOL.md` beside this file is the specification. `Replica` is the face.
"""

from logdb.log.paxos.replica import (
    Chosen,
    Config,
    Confirmed,
    Deposed,
    Elected,
    Notice,
    NotLeader,
    Outcome,
    Replica,
    Restore,
)

__all__ = [
    "Chosen",
    "Config",
    "Confirmed",
    "Deposed",
    "Elected",
    "NotLeader",
    "Notice",
    "Outcome",
    "Replica",
    "Restore",
]
