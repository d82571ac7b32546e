"""The certificate of a client without one, so that a token alone suffices for a client of a cluster.

gRPC's Python library requires certificates from all clients or from none, and the servers of a cluster, which listen on
one port for servers and clients, must verify each other's. So a client without a certificate presents this one, whose
key is the number 1 and public. A server with a tokens file trusts this certificate beside its CA. It carries no right,
and since it is not an authority, certificates signed with its key are rejected
(`tests/security/test_anonymous_certificate.py`).
"""

from __future__ import annotations

import functools
from typing import Final

NAME: Final = "(no certificate)"
"""Its common name, which no table of a tokens file can have."""

CERTIFICATE: Final = b"""\
-----BEGIN CERTIFICATE-----
MIIBXzCCAQWgAwIBAgIBATAKBggqhkjOPQQDAjAbMRkwFwYDVQQDDBAobm8gY2Vy
dGlmaWNhdGUpMCAXDTAwMDEwMTAwMDAwMFoYDzk5OTkxMjMxMjM1OTU5WjAbMRkw
FwYDVQQDDBAobm8gY2VydGlmaWNhdGUpMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
QgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n60p8
D54WK84zV2sxXs7LtkBoN79R9aM4MDYwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8E
BAMCB4AwFgYDVR0lAQH/BAwwCgYIKwYBBQUHAwIwCgYIKoZIzj0EAwIDSAAwRQIg
fc5UfbaU4kKQy4Z6Ts1p60cNp9NOfJTSfcG7NYYe5UYCIQDB8URTkQHpXKFldads
zPfayY3L02jfoVAR432/AOoPug==
-----END CERTIFICATE-----
"""


@functools.cache
def key() -> bytes:
    """Its key, PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    secret = ec.derive_private_key(1, ec.SECP256R1())
    return secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
