"""Which right each verb of the service needs."""

from __future__ import annotations

from typing import Final

from logdb.log.engine import Right
from logdb.wire.proto import database_pb2 as pb

_OTHER_THAN_READ: Final = {
    "end": Right.NONE,
    "cancel": Right.NONE,
    "write": Right.WRITE,
    "pin": Right.WRITE,
    "unpin": Right.WRITE,
    "compact": Right.ADMIN,
    "checkpoint": Right.ADMIN,
}

_VERBS: Final = pb.Request.DESCRIPTOR.oneofs_by_name["verb"].fields
NEEDS: Final = {verb.name: _OTHER_THAN_READ.get(verb.name, Right.READ) for verb in _VERBS}
"""Of a commit: `Right.READ`, if it only ends a transaction that has read. Of an upload: also that of its request."""
