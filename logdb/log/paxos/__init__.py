"""Multi-Paxos as a core without I/O: the replicated log of commands under Scalog's ordering layer.

`PROTOCOL.md` beside this file is the specification, `Replica` the face.
"""

from logdb.log.paxos.face import (
    JOURNAL,
    TIMERS,
    Chosen,
    Config,
    Confirmed,
    Deposed,
    Elected,
    Notice,
    NotLeader,
    Outcome,
    Restore,
)
from logdb.log.paxos.messages import Knock, Said, Welcome
from logdb.log.paxos.replica import Replica

__all__ = [
    "Chosen",
    "Config",
    "Confirmed",
    "Deposed",
    "Elected",
    "JOURNAL",
    "Knock",
    "NotLeader",
    "Notice",
    "Outcome",
    "Replica",
    "Restore",
    "Said",
    "TIMERS",
    "Welcome",
]
