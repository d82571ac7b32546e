"""Multi-Paxos as a core without I/O: the replicated log of commands under Scalog's ordering layer.

`PROTOCOL.md` beside this file is the specification, `Replica` the face.
"""

from logdb.log.paxos.interface import (
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
from logdb.log.paxos.messages import JoinReply, JoinRequest, MemberEnvelope
from logdb.log.paxos.replica import Replica

__all__ = [
    "Chosen",
    "Config",
    "Confirmed",
    "Deposed",
    "Elected",
    "JOURNAL",
    "JoinRequest",
    "NotLeader",
    "Notice",
    "Outcome",
    "Replica",
    "Restore",
    "MemberEnvelope",
    "TIMERS",
    "JoinReply",
]
