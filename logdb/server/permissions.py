"""The right that each verb of the service needs, and the right that the client of a stream has now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.errors import AccessDenied
from logdb.log.engine import Right
from logdb.security.authenticator import Grant, right_missing
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
VERB_RIGHTS: Final = {verb.name: _OTHER_THAN_READ.get(verb.name, Right.READ) for verb in _VERBS}
"""A commit needs only `Right.READ` if its transaction has no writes. An upload also needs the right of its request."""


class StreamRight:
    """The right of the client of a stream: `right`, which `refresh` updates when the grant has changed.

    `on_change`: called with each new right. `on_denied`: called with each error of `denied`.
    """

    def __init__(self, grant: Grant, on_denied: Callable[[AccessDenied], object]) -> None:
        self._grant, self.right, self._on_denied = grant, grant.right, on_denied
        self.on_change: Callable[[Right], object] = lambda right: None

    def refresh(self) -> Right:
        """The right that the grant gives now."""
        right = self._grant.right
        if right is not self.right:
            self.right = right
            self.on_change(right)
        return right

    def denied(self, needed: Right) -> AccessDenied:
        """The error for a request that needs another right."""
        error = AccessDenied(right_missing(repr(self._grant.name), self.right, needed))
        self._on_denied(error)
        return error
