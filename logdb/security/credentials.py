"""Credentials of a client: the CA to trust, the certificate and the token to present."""

from __future__ import annotations

import datetime as dt
import ssl
import tempfile
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

import grpc

from logdb.security import anonymous_certificate
from logdb.system.addresses import is_loopback
from logdb.system.grpc_fork import claim_grpc

AnyPath = str | PathLike[str]
AUTHORIZATION: Final = "authorization"
BEARER: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class Credentials:
    """`ca`: PEM of the CA to trust, None: no TLS. `certificate` and `key`: PEM, None: the anonymous certificate.
    `certificate_path`: the file of the certificate, for messages."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    token: str = field(default="", repr=False)
    certificate_path: str = ""

    def channel(self, address: str, options: Any) -> Any:
        """A channel of grpc.aio. Raises ValueError if a token would be sent without TLS."""
        return self._channel(grpc.aio, address, options)

    def blocking_channel(self, address: str, options: Any) -> Any:
        """A channel of gRPC for threads. Raises ValueError if a token would be sent without TLS."""
        return self._channel(grpc, address, options)

    def _channel(self, module: Any, address: str, options: Any) -> Any:
        self.check(address)
        claim_grpc()
        if self.ca is None:
            return module.insecure_channel(address, options)
        return module.secure_channel(address, grpc.ssl_channel_credentials(self.ca, *self._pair), options)

    @property
    def _pair(self) -> tuple[bytes | None, bytes]:
        if self.certificate is None:
            return anonymous_certificate.key(), anonymous_certificate.CERTIFICATE
        return self.key, self.certificate

    def context(self) -> ssl.SSLContext | None:
        """For TLS without gRPC: as in `channel`, the server has to present a certificate of the CA for its host."""
        if self.ca is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.ca.decode("ascii", "replace"))
        load_pair(context, *self._pair)
        return context

    def check(self, address: str) -> None:
        """Raises ValueError if a token would be sent without TLS to another machine."""
        if self.token and self.ca is None and not is_loopback(address):
            raise ValueError(f"a token for {address} would be sent in the clear: name the CA of its certificate (ca)")

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call."""
        return ((AUTHORIZATION, BEARER + self.token),) if self.token else ()


def load_pair(context: ssl.SSLContext, key: bytes | None, certificate: bytes) -> None:
    """Present this certificate."""
    with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone; OpenSSL wants a file
        file.write((key or b"") + b"\n" + certificate)
        file.flush()
        context.load_cert_chain(file.name)


NONE: Final = Credentials()


def credentials(
    *,
    ca: AnyPath | None = None,
    certificate: AnyPath | None = None,
    certificate_key: AnyPath | None = None,
    token: str | None = None,
) -> Credentials:
    """The credentials in these files; without `certificate_key` the key is in the certificate's file.

    Raises ValueError, TypeError.
    """
    if token is not None and not isinstance(token, str):
        raise TypeError(f"token must be a str, not {type(token).__name__}")
    if token is not None and not (token.isascii() and token.isprintable() and token and " " not in token):
        raise ValueError("a token consists of printable ASCII characters without blanks")
    if certificate is None and certificate_key is not None:
        raise ValueError("a key needs its certificate")
    if ca is None and certificate is not None:
        raise ValueError("a client certificate needs TLS: also name the CA of the server's certificate (ca)")
    trusted = None if ca is None else ca_of(ca)
    if certificate is None:
        return Credentials(trusted, token=token or "")
    return Credentials(trusted, *pair_of(certificate, certificate_key), token or "", str(certificate))


def ca_of(path: AnyPath) -> bytes:
    """The PEM of the CA. Raises ValueError."""
    pem = _contents(path)
    try:
        ssl.create_default_context(cadata=pem.decode("ascii", "replace"))
    except ssl.SSLError as error:
        raise ValueError(f"{path} holds no certificate (PEM)") from error
    return pem


def pair_of(certificate: AnyPath, key: AnyPath | None) -> tuple[bytes, bytes]:
    """The PEM of a certificate, with its chain, and of its key. Raises ValueError: also where it is not valid now."""
    pem, secret = _contents(certificate), _contents(certificate if key is None else key)
    _check_pair(pem, secret, certificate, certificate if key is None else key)
    _check_dates(pem, certificate)
    return pem, secret


def _contents(path: AnyPath) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def _check_pair(pem: bytes, secret: bytes, certificate: AnyPath, key: AnyPath) -> None:
    if b"ENCRYPTED" in secret:
        raise ValueError(f"the key in {key} is protected by a password; use a key without one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"the key in {key} is not that of the certificate in {certificate}") from error
        raise ValueError(f"{certificate} and {key} hold no certificate with its key (PEM)") from error


def _check_dates(pem: bytes, certificate: AnyPath) -> None:
    from cryptography import x509

    now, found = dt.datetime.now(dt.UTC), x509.load_pem_x509_certificate(pem)
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    if not begin <= now <= end:
        when = f"has expired: {end:%Y-%m-%d %H:%M}" if now > end else f"is valid only from {begin:%Y-%m-%d %H:%M} on"
        raise ValueError(f"the certificate in {certificate} {when} (UTC)")
