"""Authentication by a server: the certificate and token that a client must present, and the right that it gets.

A client with a token has the right of the token, with any certificate. A client without a token is identified by the
common name of its certificate. gRPC requires certificates from all clients or from none; in a cluster a client with a
token may present the anonymous certificate. Without a tokens file, every certificate of the CA has all rights.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from logdb.errors import AccessDenied
from logdb.log.engine import Right
from logdb.security import anonymous_certificate
from logdb.security.access import AccessFile, hashed
from logdb.security.credentials import AUTHORIZATION, BEARER, ca_of, load_pair, pair_of
from logdb.system.addresses import DEFAULT_ADDRESS, cannot_listen, is_loopback


@dataclass(frozen=True, slots=True)
class Security:
    """The files of a server. `certificate` with `key` (None: in the same file): for TLS. `ca`: clients must present a
    certificate that it has signed. `tokens`: see `access`."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    tokens: Path | None = None

    def check(self, listen: str) -> None:
        """Raises ValueError if the files do not suffice for a server at that address."""
        if self.certificate is None and (self.ca is not None or self.key is not None):
            raise ValueError("a server that requires client certificates needs its own: name its certificate and key")
        if is_loopback(listen):
            return
        if self.certificate is None:
            raise ValueError(
                f"{listen} can be reached from other machines: name a certificate and key, with tokens or"
                " the CA of its clients' certificates, or listen at a loopback address such as 127.0.0.1:7400"
            )
        if self.ca is None and self.tokens is None:
            raise ValueError(
                f"{listen} can be reached from other machines, where every client would have all rights: name a"
                " tokens file, or the CA of its clients' certificates"
            )


class Grant:
    """The right of a stream. `name`: of the client, "" without authentication. `token_hash`: of the token with which
    the stream began, "" without one."""

    __slots__ = ("_access", "_token_hash", "name")

    def __init__(self, name: str, access: AccessFile | None, token_hash: str = "") -> None:
        self.name, self._access, self._token_hash = name, access, token_hash

    @property
    def right(self) -> Right:
        """The current right; the tokens file may have changed."""
        if self._access is None:
            return Right.ADMIN
        return self._access.right(self.name, self._token_hash)

    def require(self, needed: Right) -> None:
        """Raises AccessDenied."""
        mine = self.right
        if mine < needed:
            raise AccessDenied(right_missing(repr(self.name), mine, needed))


def right_missing(name: str, mine: Right, needed: Right) -> str:
    """The message for a client whose right does not suffice."""
    if not mine:
        return f"{name} no longer has a right here: ask for a new token"
    return (
        f'{name} may {_MAY[mine]}, and this needs the right "{needed.label}": ask the administrator of the tokens file'
    )


_MAY: Final = {Right.READ: "only read", Right.WRITE: "read and write", Right.ADMIN: "do everything"}


class Authenticator:
    """Authenticates the streams of one server. `token_alone`: a client with a token needs no certificate of the CA.
    `context`: for TLS without gRPC, with the same demands; None without TLS."""

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
        self.context: ssl.SSLContext | None = None
        if security.certificate is not None:
            pem, key = pair_of(security.certificate, security.key)
            ca = None if security.ca is None else ca_of(security.ca)
            if ca is not None and token_alone and self._access is not None:
                ca += b"\n" + anonymous_certificate.CERTIFICATE
            self._tls = grpc.ssl_server_credentials([(key, pem)], ca, self.demands_certificates)
            self.context = _server_context(key, pem, ca)

    def add_port(self, server: Any, address: str) -> int:
        """Open a port of a gRPC server. Returns the port. Raises Unavailable."""
        try:
            if self._tls is None:
                return int(server.add_insecure_port(address))
            return int(server.add_secure_port(address, self._tls))
        except RuntimeError as error:
            raise cannot_listen(address, error) from error

    def admit(self, context: Any) -> Grant:
        """The grant for a new stream. Raises AccessDenied."""
        return self.grant(_token(context.invocation_metadata()), common_names(context.auth_context()))

    @property
    def needs_tokens(self) -> bool:
        """Whether there is a tokens file."""
        return self._access is not None

    def grant(self, token: str, names: Sequence[str] = ()) -> Grant:
        """The grant of a client with a token ("": without one) and a certificate with these common names. Raises
        AccessDenied."""
        if self._access is None:
            return Grant(names[0] if names else "", None)
        if token:
            holder = self._access.holder(token)
            if holder is None:
                raise AccessDenied("the token is not known here: it is wrong, was revoked, or is for another server")
            return Grant(holder, self._access, hashed(token))
        if not names:
            raise AccessDenied("a token is needed here, and none came: provide one (token, --token-file, LOGDB_TOKEN)")
        grant = Grant(names[0], self._access)
        if not grant.right:
            advice = "add a token, or an entry for it in the tokens file"
            raise AccessDenied(f"the certificate of {names[0]!r} has no right here: {advice}")
        return grant


def _server_context(key: bytes, certificate: bytes, ca: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_pair(context, key, certificate)
    if ca is not None:
        context.load_verify_locations(cadata=ca.decode("ascii", "replace"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def user_of(grant: Grant, peer: str) -> str:
    """The user whose limits apply to a stream: a name, or an address without one. `peer`: from gRPC."""
    return f"name {grant.name}" if grant.name else peer.rpartition(":")[0]


def _token(metadata: Sequence[tuple[str, Any]] | None) -> str:
    for key, value in metadata or ():
        if key == AUTHORIZATION and isinstance(value, str) and value.startswith(BEARER):
            return value.removeprefix(BEARER).strip()
    return ""


def common_names(auth: Mapping[str, Sequence[bytes]]) -> list[str]:
    """The common names of the verified certificate, without the anonymous one's."""
    names = [name.decode("utf-8", "replace") for name in auth.get("x509_common_name", ())]
    return [name for name in names if name != anonymous_certificate.NAME]
