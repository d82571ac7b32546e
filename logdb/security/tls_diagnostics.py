"""Why TLS has failed, in one line that says what to do about it.

gRPC tells what is wrong with a server's certificate. It does not tell that a server wants TLS, or that it does not like
the client's certificate: then the connection just ends. So it is tried once more, to see how far a handshake gets.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from typing import Final

from logdb.security.credentials import Credentials
from logdb.system.addresses import parsed

TIMEOUT_S: Final = 2.0
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""With which a client of HTTP/2, and so of gRPC, begins; the server answers with its settings."""
NO_GRPC: Final = "failed parsing http/2"
"""What gRPC says, in small letters, of who speaks something else."""
_ENDED: Final = ("socket closed", "connection reset", "broken pipe", "eof")

_ITS: Final = {
    "certificate has expired": "its certificate has expired: renew it there",
    "certificate is not yet valid": "its certificate is not valid yet: look at the clocks of both machines",
    "unsupported certificate purpose": "its certificate is one of a client: give that server one of its own",
    "wrong_version_number": "it speaks no TLS: connect without a CA, or start it with a certificate and key",
    "certificate_verify_failed": "its certificate is not of the CA that was given: take the CA of that server",
}


async def why_no_tls(address: str, details: str, credentials: Credentials) -> str:
    """The reason of a failed attempt to connect, "" if it has nothing to do with TLS. `details`: what gRPC has said."""
    said = details.lower()
    if "hostname verification" in said:
        host = parsed(address)[0]
        return f"its certificate is not valid for {host}: use a name that is in it, or have one made with that name"
    for sign, line in _ITS.items():
        if sign in said:
            return line
    if not any(sign in said for sign in _ENDED):
        return ""
    heard = await _handshake(address, credentials)
    if heard is None:
        return ""
    if credentials.ca is None:
        return "it speaks TLS: name the CA of its certificate (ca, --ca, LOGDB_CA)"
    if heard:
        return ""
    if credentials.certificate is None:
        return "it wants to see a certificate: give one with its key (certificate, --certificate, LOGDB_CERTIFICATE)"
    return f"it does not accept the certificate in {credentials.shown}: take one of the CA that the server names"


async def _handshake(address: str, credentials: Credentials) -> bytes | None:
    """What a server says after a handshake, whoever it is: b"" if it does not like the certificate, None: no TLS."""
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
    """Believes everybody: nothing secret is said."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if credentials.certificate is not None and credentials.key is not None:
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone; OpenSSL wants a file
            file.write(credentials.key + b"\n" + credentials.certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return context
