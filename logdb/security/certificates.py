"""A certificate authority for development: its key is stored beside the certificates, and its readers can forge any.

    ca.pem, ca.key                  the authority; created once
    ROLE-NAME.pem, ROLE-NAME.key    a server of a cluster, to others and to clients: see `nodes`
    server.pem, server.key          the server of one directory
    NAME.pem, NAME.key              a client; NAME is its common name

Existing files are kept; to renew a certificate, remove its two files. In production use an authority of your own.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from logdb.security.access import NAME
from logdb.security.node_identity import Identity
from logdb.system.addresses import is_loopback, parsed

CA_DAYS: Final = 3_650
DAYS: Final = 365
CLOCK_SKEW: Final = dt.timedelta(minutes=5)
"""The clocks of other machines may be behind."""
ANYWHERE: Final = ("0.0.0.0", "::")
"""Addresses to listen at on all interfaces; clients cannot connect to them."""


class Authority:
    """The authority whose files are in `path`, which are made if there are none. Raises ValueError, OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        if not (path / "ca.pem").exists():
            self._make()
        try:
            self._certificate = x509.load_pem_x509_certificate((path / "ca.pem").read_bytes())
            key = load_pem_private_key((path / "ca.key").read_bytes(), None)
        except FileNotFoundError as error:
            raise ValueError(f"{path / 'ca.key'} is missing, and without it nothing can be signed") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != self._certificate.public_key():
            raise ValueError(f"{path / 'ca.key'} is not the key of {path / 'ca.pem'}")
        self._key = key

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("LogDB development CA")
        builder = _builder(name, key, CA_DAYS).issuer_name(name)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        _write(self.path / "ca", builder.sign(key, hashes.SHA256()), key)

    def server(self, hosts: Sequence[str], identity: Identity | None = None, days: int = DAYS) -> Path:
        """A certificate for a server at these host names and addresses; of a cluster, if it has an identity."""
        names: list[x509.GeneralName] = [_host(host) for host in dict.fromkeys(hosts)]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH]
        stem = "server"
        if identity is not None:
            names.append(x509.UniformResourceIdentifier(identity.uri))
            uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
            stem = f"{identity.role}-{identity.name}"
        return self._sign(stem, stem, names, uses, days)

    def client(self, name: str, days: int = DAYS) -> Path:
        """A certificate for a client. Raises ValueError."""
        if not NAME.fullmatch(name) or name in ("ca", "server"):
            raise ValueError(f"{name!r} must be a name of letters, digits and _.@-, and neither ca nor server")
        return self._sign(name, name, [], [ExtendedKeyUsageOID.CLIENT_AUTH], days)

    def _sign(
        self, stem: str, name: str, names: Sequence[x509.GeneralName], uses: Iterable[x509.ObjectIdentifier], days: int
    ) -> Path:
        path = self.path / f"{stem}.pem"
        if path.exists():
            return path
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), key, days).issuer_name(self._certificate.subject)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        _write(self.path / stem, builder.sign(self._key, hashes.SHA256()), key)
        return path


def hosts_of(addresses: Iterable[str]) -> list[str]:
    """The hosts of these addresses to which clients can connect, and all names of loopback if one address is
    loopback."""
    hosts = [host for host, _ in map(parsed, addresses) if host not in ANYWHERE]
    return hosts + (["localhost", "127.0.0.1", "::1"] if any(map(is_loopback, addresses)) else [])


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise ValueError(f"{host!r} is neither a host name nor an IP address") from error


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _write(stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """The key, which only its owner may read, first: a certificate that is there has its key."""
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    fd = os.open(stem.with_name(stem.name + ".key"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, 0o600)
        file.write(secret)
    stem.with_name(stem.name + ".pem").write_bytes(certificate.public_bytes(Encoding.PEM))
