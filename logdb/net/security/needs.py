"""Which right each message of a client needs. What is not here is only for servers to say."""

from __future__ import annotations

from typing import Final

from logdb.cluster import messages as mapping
from logdb.log.scalog import messages as m
from logdb.net.security.access import Right

NEEDS: Final[dict[type, Right]] = {
    m.AskTail: Right.READ,
    m.AskTime: Right.READ,
    m.AskView: Right.READ,
    m.Pull: Right.READ,
    m.Read: Right.READ,
    mapping.Reads: Right.READ,
    m.Append: Right.WRITE,
    m.AskFate: Right.WRITE,
    m.Suspect: Right.WRITE,
    mapping.Await: Right.WRITE,
    m.Change: Right.ADMIN,
}

BRINGS: Final[dict[Right, frozenset[type]]] = {
    right: frozenset(kind for kind, needed in NEEDS.items() if needed <= right) for right in Right
}
"""What a client with this right may bring."""
