"""The messages that each role accepts. Another message ends the stream that brings it: its sender has a wrong address,
and a core that received a message for another role would stop its server."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from logdb.cluster import messages as mapping
from logdb.log.engine import Engine, all_engines
from logdb.wire.envelopes import CLIENT, MAPPING

_OF_MAPPING: Final = frozenset(
    {
        mapping.SliceRequest,
        mapping.AwaitVerdicts,
        mapping.Compact,
        mapping.Compare,
        mapping.Compared,
        mapping.EndTurn,
        mapping.Hold,
        mapping.SliceUnavailable,
        mapping.Reads,
        mapping.Slice,
    }
)
_OF_CLIENTS: Final = frozenset(
    {mapping.Answers, mapping.Busy, mapping.Compacted, mapping.Compacting, mapping.Recalling, mapping.Verdicts}
)
_ONLY_OF_MAPPING: Final = _OF_MAPPING - {mapping.Compare, mapping.Compared}


def accepted_by(role: str, engine: Engine) -> frozenset[type]:
    """The messages that the core of a server of this role, or of a client, accepts."""
    if role == MAPPING:
        return engine.wire.client_accepts | _OF_MAPPING
    if role == CLIENT:
        return engine.wire.client_accepts | _OF_CLIENTS
    return engine.roles[role].accepts


def _only_from() -> dict[type, frozenset[str]]:
    senders: dict[type, set[str]] = defaultdict(set)
    for engine in all_engines():
        for role in engine.roles.values():
            for kind in role.sends:
                senders[kind].add(role.name)
        for kind in engine.wire.client_sends:
            senders[kind].add(MAPPING)
    for kind in _ONLY_OF_MAPPING:
        senders[kind].add(MAPPING)
    return {kind: frozenset(roles) for kind, roles in senders.items()}


ONLY_FROM: Final = _only_from()
"""The roles whose servers send a message, for messages that not all roles send."""

_IS_OPERATORS: Final = {
    kind: judge for engine in all_engines() for kind, judge in engine.wire.operator_requests.items()
}


def is_from_another_role(message: Any, role: str) -> bool:
    """Whether no server of this role sends this message."""
    kind = type(message)
    if kind in ONLY_FROM and role not in ONLY_FROM[kind]:
        return True
    return kind in _IS_OPERATORS and _IS_OPERATORS[kind](message)
