"""Why TLS has failed, in one line that says what to do about it.

gRPC reports what is wrong with a server's certificate. It does not report that a server requires TLS, or rejects the
client's certificate: then the connection just ends. So this module connects once more, to see how far the handshake
gets.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from logdb.security.credentials import Credentials, load_pair
from logdb.system.addresses import parsed

TIMEOUT_S: Final = 2.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""The first bytes of a client of HTTP/2, and so of gRPC; the server answers with its settings."""
NO_GRPC: Final = "failed parsing http/2"
"""Part of gRPC's message, in lower case, about a server of another protocol."""
_ENDED: Final = ("socket closed", "connection reset", "broken pipe", "eof")

_ITS: Final = {
    "certificate has expired": "its certificate has expired: renew it there",
    "certificate is not yet valid": "its certificate is not valid yet: check the clocks of both machines",
    "unsupported certificate purpose": "its certificate is a client's: issue a server certificate for it",
    "wrong_version_number": "it does not speak TLS: connect without a CA, or start it with a certificate and key",
    "certificate_verify_failed": "its certificate is not signed by the given CA: use the CA of that server",
}


async def tls_failure(address: str, details: str, credentials: Credentials) -> str:
    """The reason of a failed connection attempt, "" if it is not related to TLS. `details`: gRPC's message."""
    said = details.lower()
    if "hostname verification" in said:
        host = parsed(address)[0]
        return f"its certificate is not valid for {host}: use a name that it contains, or issue one with that name"
    for sign, line in _ITS.items():
        if sign in said:
            return line
    if not any(sign in said for sign in _ENDED):
        return ""
    first_bytes = await _handshake(address, credentials)
    if first_bytes is None:
        return ""
    if credentials.ca is None:
        return "it speaks TLS: name the CA of its certificate (ca, --ca, LOGDB_CA)"
    if first_bytes:
        return ""
    if credentials.certificate is None:
        return "it requires a certificate: present one with its key (certificate, --certificate, LOGDB_CERTIFICATE)"
    return f"it rejects the certificate in {credentials.certificate_path}: use one of the CA that the server trusts"


async def _handshake(address: str, credentials: Credentials) -> bytes | None:
    """The server's first bytes after a TLS handshake: b"" if it rejects the certificate, None if it has no TLS."""
    host, port = parsed(address)
    writer = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=_context(credentials), server_hostname=host)
            writer.write(_PREFACE)
            return await reader.read(9)
    except TimeoutError:
        return None
    except OSError:  # of TLS as well
        return None if writer is None else b""
    finally:
        if writer is not None:
            writer.transport.abort()


def _context(credentials: Credentials) -> ssl.SSLContext:
    """Accepts any certificate: nothing secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if credentials.certificate is not None and credentials.key is not None:
        load_pair(context, credentials.key, credentials.certificate)
    return context
