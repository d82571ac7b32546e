"""The certificate that clients without one present, so that a token alone is enough to use a cluster.

gRPC's Python library requires a client certificate on all connections of a port or on none. Servers of a cluster share
their port with clients and must verify each other's certificates, so a client that has none presents this one. Its key
is public (the number 1). A server with a tokens file trusts this certificate beside its CA. The certificate grants no
right, and it is not a CA: certificates signed with its key are rejected (`test_anonymous_certificate.py`).
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
