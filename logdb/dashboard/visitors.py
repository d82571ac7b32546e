"""The visitors of the pages: their tokens, their sessions, and the database that each of them may read.

The dashboard has no right of its own. A visitor has the right of the token that was entered, which is checked again
with every page. Without a tokens file every visitor whom the address and TLS admit may read.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from logdb.admin.changes import Operator
from logdb.admin.layout import Layout
from logdb.admin.status import ClusterStatus
from logdb.api.database import Database
from logdb.api.opening import connect
from logdb.clients.background_loop import in_shared_loop
from logdb.dashboard.overview import Measured, Samples
from logdb.embedded import EmbeddedBackend
from logdb.errors import AccessDenied, LogDBError
from logdb.log.engine import Right
from logdb.security.authenticator import Authenticator, Grant
from logdb.security.credentials import Credentials, credentials
from logdb.system.addresses import endpoints_of
from logdb.transport.discovery import client_hello, discover

TIMEOUT_S: Final = 5.0
VISITORS: Final = 32
"""Visitors at once; the one that was away for the longest time has to log in again."""
SESSIONS: Final = 8
"""Sessions of one token at once."""
IDLE_S: Final = 12 * 3600.0


class TokenNeeded(AccessDenied):
    """A visitor without a token may see nothing here."""

    def __init__(self) -> None:
        super().__init__("enter a token")


class Visitor(Measured, Protocol):
    """A reader of the pages. `name`: for the pages, "" without a token. `samples`: of the rates that were measured."""

    name: str
    samples: Samples

    def require_right(self) -> None:
        """Raises AccessDenied if the visitor may not read any more."""

    def close(self) -> None:
        """End it."""


class Source(Protocol):
    """Where the pages come from. `title`: for the pages."""

    title: str

    def visitor(self, token: str) -> Visitor:
        """The visitor with this token, "" without one. Raises TokenNeeded, AccessDenied, Unavailable."""


# ---- a server of one directory, in this process


class ServerVisitor:
    """A visitor of the server that runs in this process."""

    def __init__(self, database: Database, grant: Grant) -> None:
        self.name, self.database, self.samples = grant.name, database, Samples()
        self._grant = grant

    def require_right(self) -> None:
        """See `Visitor`."""
        self._grant.require(Right.READ)

    def status(self) -> None:
        """None: it is no cluster."""

    def close(self) -> None:
        """The server closes its database."""


class ServerSource:
    """The server of the directory `title`, which runs in this process."""

    def __init__(self, backend: EmbeddedBackend, authenticator: Authenticator) -> None:
        self.title = backend.path
        self._database, self._authenticator = Database(backend), authenticator

    def visitor(self, token: str) -> ServerVisitor:
        """See `Source`."""
        if not token and self._authenticator.needs_tokens:
            raise TokenNeeded
        return ServerVisitor(self._database, self._authenticator.grant(token))


# ---- a cluster


class ClusterVisitor:
    """A visitor of a cluster, with connections of its own."""

    def __init__(self, endpoints: list[str], files: dict[str, Any], token: str, operator: Callable[[], Operator]):
        self.name, self.samples = "", Samples()
        self._endpoints, self._files, self._token, self._operator = endpoints, files, token, operator
        self._lock = threading.Lock()
        self._database: Database | None = None
        self._is_closed = False

    def require_right(self) -> None:
        """The servers check each request."""

    @property
    def database(self) -> Database:
        """See `Visitor`."""
        with self._lock:
            if self._is_closed:
                raise TokenNeeded
            if self._database is None:
                self._database = connect(self._endpoints, timeout=TIMEOUT_S, token=self._token or None, **self._files)
            return self._database

    def status(self) -> ClusterStatus:
        """See `Visitor`."""
        return self._operator().status()

    def close(self) -> None:
        """See `Visitor`."""
        with self._lock:
            self._is_closed = True
            if self._database is not None:
                self._database.close()


class ClusterSource:
    """The cluster at `endpoints`, or that of the directory `path` on this machine. `files`: the credentials of the
    dashboard (`ca`, `certificate`, `certificate_key`), as for `logdb.connect`. `is_local`: only programs of this
    machine reach the pages, or visitors that a certificate has identified. Raises ValueError."""

    def __init__(self, endpoints: str, path: Path | None, files: dict[str, Any], *, is_local: bool) -> None:
        self._endpoints, self._path, self._files, self._is_local = endpoints_of(endpoints), path, files, is_local
        self._without_token = credentials(**files)
        self.title = endpoints if path is None else str(path)

    def visitor(self, token: str) -> ClusterVisitor:
        """See `Source`."""
        is_open = self._is_open()
        if is_open and not self._is_local:
            raise AccessDenied(
                "the cluster admits every client, so its dashboard must listen at a loopback address, or require"
                " certificates"
            )
        if not is_open:
            if not token:
                raise TokenNeeded
            self._ask(credentials(**self._files, token=token))
        shown = credentials(**self._files, token=token or None)
        return ClusterVisitor(self._endpoints, self._files, token, lambda: self._operator(shown))

    def _operator(self, shown: Credentials) -> Operator:
        layout = None if self._path is None else Layout(self._path)
        return Operator(self._endpoints, layout, credentials=shown)

    def _is_open(self) -> bool:
        """Whether the cluster admits the dashboard without a token. A TLS handshake that fails for want of a
        certificate looks like a server that is down. Raises Unavailable."""
        if self._without_token.ca is not None and self._without_token.certificate is None and self._is_local:
            return False
        try:
            self._ask(self._without_token)
        except AccessDenied:
            return False
        except LogDBError:
            if self._without_token.ca is None or self._without_token.certificate is not None:
                raise
            return False
        return True

    def _ask(self, shown: Credentials) -> None:
        """Raises AccessDenied, Unavailable."""
        hello = in_shared_loop(discover(self._endpoints, client_hello(), TIMEOUT_S, shown))
        if hello.right < Right.READ:
            raise AccessDenied("the token has no right to read")


# ---- sessions


class _Member(NamedTuple):
    visitor: Visitor
    sessions: OrderedDict[str, float]


class Visitors:
    """The visitors of a source and their sessions, for any number of threads. `clock`: seconds that never go back."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self.source, self._clock = source, clock
        self._lock = threading.Lock()
        self._members: OrderedDict[str, _Member] = OrderedDict()
        self._anonymous: Visitor | None = None

    def visitor(self, session: str) -> Visitor:
        """The visitor of a session ("": there is none). Raises TokenNeeded, AccessDenied, Unavailable."""
        found = self._of_session(session)
        if found is not None:
            try:
                found.require_right()
            except AccessDenied:
                self.log_out(session)
                raise
            return found
        with self._lock:
            if self._anonymous is not None:
                return self._anonymous
        made = self.source.visitor("")
        with self._lock:
            if self._anonymous is None:
                self._anonymous = made
                return made
            anonymous = self._anonymous
        made.close()
        return anonymous

    def _of_session(self, session: str) -> Visitor | None:
        hashed, now = _hashed(session), self._clock()
        with self._lock:
            for name, member in self._members.items():
                used = member.sessions.get(hashed)
                if used is None:
                    continue
                if now - used > IDLE_S:
                    del member.sessions[hashed]
                    return None
                member.sessions[hashed] = now
                member.sessions.move_to_end(hashed)
                self._members.move_to_end(name)
                return member.visitor
        return None

    def log_in(self, token: str) -> str:
        """A session of the visitor with this token. Raises TokenNeeded, AccessDenied, Unavailable, ValueError."""
        made = self.source.visitor(token)
        session, name = secrets.token_urlsafe(32), _hashed(token)
        ended: list[Visitor] = []
        with self._lock:
            member = self._members.get(name)
            if member is None:
                member = self._members[name] = _Member(made, OrderedDict())
            else:
                ended.append(made)
            self._members.move_to_end(name)
            member.sessions[_hashed(session)] = self._clock()
            while len(member.sessions) > SESSIONS:
                member.sessions.popitem(last=False)
            while len(self._members) > VISITORS:
                ended.append(self._members.popitem(last=False)[1].visitor)
        for visitor in ended:
            visitor.close()
        return session

    def log_out(self, session: str) -> None:
        """End the session, and the visitor with its last one."""
        hashed = _hashed(session)
        with self._lock:
            name = next((name for name, member in self._members.items() if hashed in member.sessions), None)
            if name is None:
                return
            member = self._members[name]
            del member.sessions[hashed]
            if member.sessions:
                return
            del self._members[name]
        member.visitor.close()

    def close(self) -> None:
        """End all visitors."""
        with self._lock:
            visitors = [member.visitor for member in self._members.values()]
            visitors += [self._anonymous] if self._anonymous is not None else []
            self._members.clear()
            self._anonymous = None
        for visitor in visitors:
            visitor.close()


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
