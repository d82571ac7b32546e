"""Which messages each role takes. Others end the stream that brings them: who sends them has a wrong address, and a
core that was sent what is not for it would stop its server."""

from __future__ import annotations

from typing import Any, Final

from logdb.cluster import messages as mapping
from logdb.log import paxos
from logdb.log.scalog import messages as m
from logdb.net.parcels import Role

_LOG_CLIENT: Final = frozenset(
    {
        m.Appended,
        m.Changed,
        m.Fate,
        m.Found,
        m.NotFound,
        m.NotLeader,
        m.Pulled,
        m.Refused,
        m.TailIs,
        m.TimeIs,
        m.ViewIs,
    }
)

TAKES: Final[dict[Role, frozenset[type]]] = {
    Role.ORDERING: frozenset(
        {
            paxos.Knock,
            paxos.Said,
            paxos.Welcome,
            m.Ask,
            m.AskReport,
            m.AskTail,
            m.AskView,
            m.CaughtUp,
            m.Change,
            m.Recovered,
            m.Register,
            m.RegisterAggregator,
            m.Report,
            m.Suspect,
            m.SuspectAggregator,
            m.Tally,
            m.Unreachable,
        }
    ),
    Role.STORAGE: frozenset(
        {
            m.Append,
            m.AskFate,
            m.AskPlacements,
            m.AskReport,
            m.AskSessions,
            m.AskTime,
            m.Held,
            m.Placements,
            m.Pull,
            m.Read,
            m.Replicate,
            m.SessionsAre,
            m.Update,
            m.Updates,
            m.You,
        }
    ),
    Role.AGGREGATOR: frozenset({m.Report, m.Tally, m.Updates, m.ViewIs}),
    Role.MAPPING: _LOG_CLIENT
    | {mapping.Reads, mapping.Await, mapping.Hold, mapping.Compact, mapping.AskSlice, mapping.Slice, mapping.Nothing}
    | {mapping.Compare, mapping.Compared},
    Role.CLIENT: _LOG_CLIENT | {mapping.Answers, mapping.Busy, mapping.Verdicts, mapping.Compacting, mapping.Compacted},
}

_ONLY: Final[dict[Role, tuple[type, ...]]] = {
    Role.ORDERING: (
        paxos.Knock,
        paxos.Said,
        paxos.Welcome,
        m.AskReport,
        m.You,
        m.ViewIs,
        m.TailIs,
        m.Changed,
        m.NotLeader,
    ),
    Role.STORAGE: (
        m.Replicate,
        m.Held,
        m.AskSessions,
        m.SessionsAre,
        m.AskPlacements,
        m.Placements,
        m.Appended,
        m.Refused,
        m.Fate,
        m.Found,
        m.NotFound,
        m.Pulled,
        m.TimeIs,
    ),
    Role.MAPPING: (
        m.Append,
        m.AskFate,
        m.AskTime,
        m.Change,
        m.Pull,
        m.Read,
        m.Unreachable,
        mapping.AskSlice,
        mapping.Await,
        mapping.Compact,
        mapping.Hold,
        mapping.Nothing,
        mapping.Reads,
        mapping.Slice,
    ),
}
ONLY_FROM: Final[dict[type, frozenset[Role]]] = {
    **{kind: frozenset({role}) for role, kinds in _ONLY.items() for kind in kinds},
    m.Update: frozenset({Role.ORDERING, Role.AGGREGATOR}),
    m.Updates: frozenset({Role.ORDERING, Role.AGGREGATOR}),
    m.Tally: frozenset({Role.ORDERING, Role.AGGREGATOR}),
}
"""Which servers send a message, where not all may: a server that another role's messages come from is none."""


def is_of_others(message: Any, role: Role) -> bool:
    """Whether no server of that role sends this. Of changes mapping servers need one: to trim what was compacted."""
    kind = type(message)
    if kind is m.Change:
        return role is not Role.MAPPING or type(message.change) is not m.TrimLog
    return kind in ONLY_FROM and role not in ONLY_FROM[kind]
