"""The addresses of servers, with the credentials and the timeout that a client uses there."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, Final, NamedTuple

from logdb import Database
from logdb.api.backend import AsyncBackend
from logdb.clients.connecting import connect, connect_for_threads
from logdb.security.credentials import AnyPath, Credentials, credentials
from logdb.system.addresses import endpoints_of

TIMEOUT_S: Final = 30.0


class Endpoints(NamedTuple):
    """Servers of one database: their `addresses`, the client's `credentials`, and the timeout of a request in seconds
    (`timeout_s`).
    """

    addresses: tuple[str, ...]
    credentials: Credentials
    timeout_s: float

    @classmethod
    def of(
        cls,
        addresses: str | Iterable[str],
        *,
        timeout_s: float = TIMEOUT_S,
        ca: AnyPath | None = None,
        certificate: AnyPath | None = None,
        certificate_key: AnyPath | None = None,
        token: str | None = None,
    ) -> Endpoints:
        """Servers, for `export_snapshot`.

        `addresses`, `ca`, `certificate`, `certificate_key`, `token`: as `logdb.connect`. `timeout_s`: the timeout of a
        request in seconds. Raises ValueError.
        """
        given = credentials(ca=ca, certificate=certificate, certificate_key=certificate_key, token=token)
        return cls(tuple(endpoints_of(addresses)), given, timeout_s)

    def __str__(self) -> str:
        return ",".join(self.addresses)

    def connecting(self) -> Coroutine[Any, Any, AsyncBackend]:
        """Connect to the database (a coroutine). Raises Unavailable, AccessDenied, ProtocolMismatch, ValueError."""
        return connect(self.addresses, self.timeout_s, credentials=self.credentials)

    def database(self) -> Database:
        """Open the database on a connection of its own. Raises as `connecting`."""
        return Database(connect_for_threads(self.addresses, self.timeout_s, credentials=self.credentials))
