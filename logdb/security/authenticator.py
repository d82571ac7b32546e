"""The listening side: which certificate and token whoever comes must have, and what that lets them do.

Who has a token has its right, whatever certificate they show. Who has none is known by the common name of their
certificate, which gRPC asks of everybody or of nobody; in a cluster who has a token may show that of `nobody`. Where no
tokens file is named, the CA's certificates are all equal: who has one may do everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from logdb.errors import AccessDenied
from logdb.log.engine import Right
from logdb.security import anonymous_certificate
from logdb.security.access import AccessFile, hashed
from logdb.security.credentials import AUTHORIZATION, BEARER, ca_of, pair_of
from logdb.system.addresses import DEFAULT_ADDRESS, cannot_listen, is_loopback


@dataclass(frozen=True, slots=True)
class Security:
    """The files of a server. `certificate` with `key` (None: in the same file): its TLS. `ca`: everybody must show a
    certificate of it. `tokens`: see `access`."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    tokens: Path | None = None

    def check(self, listen: str) -> None:
        """Raises ValueError if this does not do for a server at that address."""
        if self.certificate is None and (self.ca is not None or self.key is not None):
            raise ValueError("a server that asks for certificates needs one itself: give its certificate and key")
        if is_loopback(listen):
            return
        if self.certificate is None:
            raise ValueError(
                f"{listen} can be reached from other machines: give the server a certificate and key, with tokens or"
                " the CA of its clients' certificates, or listen at a loopback address such as 127.0.0.1:7400"
            )
        if self.ca is None and self.tokens is None:
            raise ValueError(
                f"{listen} can be reached from other machines, and everybody there could do everything: give the"
                " server tokens, or the CA of its clients' certificates"
            )


class Grant:
    """What a stream may do. `who`: a name, "" where nobody is asked for one. `shown`: the hash of the token with which
    the stream began, "" without one."""

    __slots__ = ("_access", "_shown", "who")

    def __init__(self, who: str, access: AccessFile | None, shown: str = "") -> None:
        self.who, self._access, self._shown = who, access, shown

    @property
    def right(self) -> Right:
        """Now: the tokens file may have changed."""
        if self._access is None:
            return Right.ADMIN
        return self._access.right(self.who, self._shown)

    def require(self, needed: Right) -> None:
        """Raises AccessDenied."""
        mine = self.right
        if mine < needed:
            raise AccessDenied(lacking(repr(self.who), mine, needed))


def lacking(who: str, mine: Right, needed: Right) -> str:
    """What to say to somebody who may not do what they want to."""
    if not mine:
        return f"{who} has no right here any more: ask for a new token"
    return f'{who} may {_MAY[mine]}, and this needs the right "{needed.label}": ask whoever keeps the tokens file'


_MAY: Final = {Right.READ: "only read", Right.WRITE: "read and write", Right.ADMIN: "do everything"}


class Authenticator:
    """Authenticates the streams of one server. `token_alone`: a client with a token needs no certificate of the CA."""

    def __init__(
        self, security: Security | None = None, listen: str = DEFAULT_ADDRESS, *, token_alone: bool = False
    ) -> None:
        """Read the files, for a server that listens at that address. Raises ValueError, also if they do not suffice for
        that address."""
        security = security or Security()
        security.check(listen)
        self.demands_certificates = security.ca is not None
        self._access = None if security.tokens is None else AccessFile(security.tokens)
        self._tls: Any = None
        if security.certificate is not None:
            pem, key = pair_of(security.certificate, security.key)
            ca = None if security.ca is None else ca_of(security.ca)
            if ca is not None and token_alone and self._access is not None:
                ca += b"\n" + anonymous_certificate.CERTIFICATE
            self._tls = grpc.ssl_server_credentials([(key, pem)], ca, self.demands_certificates)

    def add_port(self, server: Any, address: str) -> int:
        """Open a port of a gRPC server. Returns the port. Raises Unavailable."""
        try:
            if self._tls is None:
                return int(server.add_insecure_port(address))
            return int(server.add_secure_port(address, self._tls))
        except RuntimeError as error:
            raise cannot_listen(address, error) from error

    def admit(self, context: Any) -> Grant:
        """Who opens this stream. Raises AccessDenied."""
        token = _token(context.invocation_metadata())
        names = common_names(context.auth_context())
        if self._access is None:
            return Grant(names[0] if names else "", None)
        if token:
            holder = self._access.holder(token)
            if holder is None:
                raise AccessDenied("the token is not known here: it is wrong, was withdrawn, or is for another server")
            return Grant(holder, self._access, hashed(token))
        if not names:
            raise AccessDenied("a token is needed here, and none came: give one (token, --token-file, LOGDB_TOKEN)")
        grant = Grant(names[0], self._access)
        if not grant.right:
            what = "give a token as well, or have the tokens file name it"
            raise AccessDenied(f"the certificate of {names[0]!r} gives no right here: {what}")
        return grant


def user_of(grant: Grant, peer: str) -> str:
    """Whose limits hold for a stream: a name's, else an address's. `peer`: as gRPC has it."""
    return f"name {grant.who}" if grant.who else peer.rpartition(":")[0]


def _token(metadata: Sequence[tuple[str, Any]] | None) -> str:
    for key, value in metadata or ():
        if key == AUTHORIZATION and isinstance(value, str) and value.startswith(BEARER):
            return value.removeprefix(BEARER).strip()
    return ""


def common_names(auth: Mapping[str, Sequence[bytes]]) -> list[str]:
    """Of the certificate that was shown and verified, if any was that is somebody's."""
    names = [name.decode("utf-8", "replace") for name in auth.get("x509_common_name", ())]
    return [name for name in names if name != anonymous_certificate.NAME]
