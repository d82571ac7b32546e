"""The right that each message of a client needs; messages that are not listed may only be sent by servers. Also the
right that each call needs, so that a client can refuse a call without a request."""

from __future__ import annotations

from typing import Final

from logdb.cluster import messages as mapping
from logdb.cluster.client import requests as database
from logdb.log import requests as log
from logdb.log.engine import Right, all_engines

MESSAGE_RIGHTS: Final[dict[type, Right]] = {
    **{kind: right for engine in all_engines() for kind, right in engine.wire.rights.items()},
    mapping.Reads: Right.READ,
    mapping.Hold: Right.READ,
    mapping.AwaitVerdicts: Right.WRITE,
    mapping.EndTurn: Right.WRITE,
    mapping.Compact: Right.ADMIN,
}

ALLOWED_MESSAGES: Final[dict[Right, frozenset[type]]] = {
    right: frozenset(kind for kind, needed in MESSAGE_RIGHTS.items() if needed <= right) for right in Right
}
"""The messages that a client with this right may send."""

CALL_RIGHTS: Final[dict[type, Right]] = {
    log.Append: Right.WRITE,
    log.Outcome: Right.WRITE,
    log.Trim: Right.ADMIN,
    log.Reconfigure: Right.ADMIN,
    database.Compact: Right.ADMIN,
    database.Commit: Right.WRITE,
    database.Pin: Right.WRITE,
    database.Settle: Right.WRITE,
}
"""Calls that are not listed need Right.READ."""
