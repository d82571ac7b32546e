"""The certificate whose key is public: it allows a connection with a token, and grants no right by itself."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import NameOID

from logdb.security import anonymous_certificate
from logdb.security.access import NAME
from logdb.security.credentials import Credentials
from logdb.wire.envelopes import CLIENT
from tests.harness.coroutines import run, until
from tests.harness.examples import REPORT
from tests.harness.secured import Tokens
from tests.security.test_peers import READING, Node, Nodes, listening

KEY = load_pem_private_key(anonymous_certificate.key(), None)
assert isinstance(KEY, ec.EllipticCurvePrivateKey)
OURS = x509.load_pem_x509_certificate(anonymous_certificate.CERTIFICATE)


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    return Nodes(tmp_path_factory.mktemp("nodes"))


def signed(name: str, *, authority: bool = False) -> bytes:
    """A certificate of this name that is signed with the anonymous key, and has that key itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(OURS.subject, subject, KEY.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(dt.datetime(2000, 1, 1)).not_valid_after(dt.datetime(2999, 1, 1))
    names = [x509.UniformResourceIdentifier("logdb://test/storage/s2"), x509.DNSName("127.0.0.1")]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


FORGED = {
    "signed by the anonymous key": signed("ada"),
    "signed by the anonymous certificate, with the chain": signed("ada") + anonymous_certificate.CERTIFICATE,
    "signed by a certificate that claims to be an authority": signed("ada")
    + signed(anonymous_certificate.NAME, authority=True),
    "with the anonymous name": signed(anonymous_certificate.NAME),
}


def test_it_is_neither_an_authority_nor_the_holder_of_a_right() -> None:
    assert OURS.public_key() == KEY.public_key()
    assert not OURS.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not OURS.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert NAME.fullmatch(anonymous_certificate.NAME) is None


@pytest.mark.parametrize("forged", sorted(FORGED))
def test_certificates_signed_with_its_key_are_rejected(nodes: Nodes, tokens: Tokens, forged: str) -> None:
    """Neither as a client that the tokens file names, nor as a server, with any token."""

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        presented = Credentials(
            (nodes.path / "ca.pem").read_bytes(), FORGED[forged], anonymous_certificate.key(), tokens.admin
        )
        for role, name, message in (
            (CLIENT, "client-1", READING),
            ("storage", nodes.addresses["s2"], REPORT),
        ):
            bad = Node(name, role, presented)
            bad.port.send(s1.address, message)
            await until(lambda bad=bad: bad.peers.traffic.dropped_messages)
            assert (s1.got, bad.denials) == ([], [])
            await bad.peers.close()
        await s1.peers.close()

    run(test())


@pytest.mark.parametrize(
    ("role", "token", "reason"),
    [
        ("storage", True, "the certificate does not belong to a server, but must belong to logdb://test/storage/s2"),
        (CLIENT, False, "a token is needed here, and none came"),
    ],
    ids=["server", "client"],
)
def test_it_grants_no_right_by_itself(nodes: Nodes, tokens: Tokens, role: str, token: bool, reason: str) -> None:
    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        presented = Credentials((nodes.path / "ca.pem").read_bytes(), token=tokens.admin if token else "")
        bad = Node(nodes.addresses["s2"] if role == "storage" else "client-1", role, presented)
        bad.port.send(s1.address, READING)
        await until(lambda: bad.denials)
        assert reason in bad.denials[0]
        assert s1.got == []
        await bad.peers.close()
        await s1.peers.close()

    run(test())
