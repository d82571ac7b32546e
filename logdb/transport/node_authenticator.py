"""Authentication of the servers of a cluster: by a certificate that names the server, and the hosts where it runs.

The certificate of the storage server s1 of the cluster demo has the URI logdb://demo/storage/s1 among its alternative
names, beside the host names and IP addresses under which the others reach it. Without such a URI it is a client's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from logdb.errors import AccessDenied, LogDBError
from logdb.security.authenticator import Authenticator, Grant, Security
from logdb.security.credentials import NONE, Credentials, credentials
from logdb.security.node_identity import SCHEME, Identity
from logdb.system.addresses import parsed
from logdb.wire.envelopes import CLIENT, Hello


class NodeAuthenticator:
    """Authenticates the streams of a server of a cluster: other servers by their certificates, clients by
    `authenticator`.

    `names`: the names of servers by their addresses; servers at other addresses are identified by their hosts.
    """

    def __init__(self, authenticator: Authenticator, names: Mapping[str, str]) -> None:
        self._authenticator, self._names = authenticator, names
        self.add_port, self.context = authenticator.add_port, authenticator.context
        self.demands_certificates = authenticator.demands_certificates

    def admit(self, context: Any, mine: Hello, theirs: Hello) -> Grant:
        """The grant for a new stream. Raises AccessDenied."""
        if theirs.role == CLIENT:
            return self._authenticator.admit(context)
        assert theirs.role is not None
        claimed = Identity(mine.cluster, theirs.role, self._names.get(theirs.address, ""))
        if self._authenticator.demands_certificates:
            mismatch = node_mismatch(context.auth_context(), claimed, theirs.address)
            if mismatch:
                raise AccessDenied(f"{theirs.address} must not connect as a server to {mine.address}: {mismatch}")
        return Grant(claimed.uri, None)


class Insecure(LogDBError, ValueError):
    """The certificates or tokens of a server are not valid. It must not start."""


def guard(security: Security | None, listen: str, names: Mapping[str, str]) -> tuple[NodeAuthenticator, Credentials]:
    """The authenticator of a server that listens there, and its own credentials. Raises Insecure."""
    files = security or Security()
    try:
        authenticator = NodeAuthenticator(Authenticator(files, listen, token_alone=True), names)
        if security is None:
            return authenticator, NONE
        return authenticator, credentials(ca=files.ca, certificate=files.certificate, certificate_key=files.key)
    except ValueError as error:
        raise Insecure(str(error)) from error


def node_mismatch(auth: Mapping[str, Sequence[bytes]], claimed: Identity, address: str) -> str:
    """Why a certificate does not belong to the server that its sender claims to be; "" if it does.

    `claimed.name` is "" if the listener does not know the name of the server at that address.
    """
    names = [name.decode("utf-8", "replace") for name in auth.get("x509_subject_alternative_name", ())]
    mine = [name for name in names if name.startswith(SCHEME)]
    if not any(_is(claimed, name) for name in mine):
        what = f"belongs to {', '.join(mine)}" if mine else "does not belong to a server"
        return f"the certificate {what}, but must belong to {claimed.uri}"
    host = parsed(address)[0].lower()
    if not any(_covers(name.lower(), host) for name in names if not name.startswith(SCHEME)):
        return f"the certificate of {mine[0]} is not valid for {host}, where that server claims to run"
    return ""


def _is(claimed: Identity, uri: str) -> bool:
    return uri == claimed.uri if claimed.name else uri.startswith(claimed.uri) and "/" not in uri[len(claimed.uri) :]


def _covers(name: str, host: str) -> bool:
    """Whether a name in a certificate, with `*` as its first label or without, matches the host."""
    return name == host or (name.startswith("*.") and host.partition(".")[2] == name[2:] and "." in name[2:])
