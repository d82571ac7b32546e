"""Multi-Paxos as a core without I/O: a replicated log of commands, used by the founders of every engine.

`PROTOCOL.md` in this folder is the specification; `Replica` is the interface.
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
