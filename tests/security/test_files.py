"""The files: tokens and rights, certificates and keys. Errors name the file."""

from __future__ import annotations

import hmac
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from logdb.log.engine import Right
from logdb.security import access
from logdb.security.access import AccessFile, add, hashed
from logdb.security.certificates import Authority, hosts_of
from logdb.security.credentials import Credentials, credentials
from logdb.security.node_identity import Identity
from logdb.transport.node_authenticator import node_mismatch
from tests.harness.secured import Tokens
from tests.security.conftest import Files

# ---- tokens


def test_a_token_is_kept_hashed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    token = add(path, "ada", Right.WRITE)
    assert len(token) >= 43, "256 bits"
    assert token not in path.read_text()
    assert hashed(token) in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    other = add(path, "grace", Right.READ)
    file = AccessFile(path)
    assert (file.holder(token), file.holder(other), file.holder(token[:-1])) == ("ada", "grace", None)
    assert (file.right("ada", hashed(token)), file.right("grace", hashed(other))) == (2, 1)
    assert file.right("ada", "") is file.right("nobody", "") is file.right("ada", hashed(other)) is Right.NONE
    with pytest.raises(ValueError, match=r"has a table \[ada\] already"):
        add(path, "ada", Right.READ)


def test_tokens_are_compared_in_constant_time(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is compared with all known ones by `hmac.compare_digest`."""
    compared = []
    compare = hmac.compare_digest

    def counted(one: Any, other: Any) -> bool:
        compared.append((one, other))
        return compare(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", counted)
    file = AccessFile(tokens.path)
    for token in (tokens.read, tokens.admin, "none"):
        compared.clear()
        file.holder(token)
        assert len(compared) == 4


WRONG = {
    "no table": ("ada = 1\n", "'ada' must be a table"),
    "a name": ('["a b"]\nright = "read"\n', "'a b' must be a table"),
    "no right": ("[ada]\n", r'the right of \[ada\] must be "read", "write" or "admin"; it is None'),
    "an unknown right": ('[ada]\nright = "all"\n', "it is 'all'"),
    "an unknown key": ('[ada]\nright = "read"\nrole = "x"\n', r"role is not a key of \[ada\]"),
    "the token itself": ('[ada]\nright = "read"\ntoken = "hunter2"\n', "64 hexadecimal digits, not the token"),
    "twice the same": (
        "".join(f'[{name}]\nright = "read"\ntoken = "{hashed("x")}"\n' for name in "ab"),
        "two holders have the same token",
    ),
    "no TOML": ("[ada\n", "is not TOML"),
}


@pytest.mark.parametrize("wrong", sorted(WRONG))
def test_a_wrong_tokens_file(tmp_path: Path, wrong: str) -> None:
    text, what = WRONG[wrong]
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=what) as caught:
        AccessFile(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_file_that_becomes_invalid_is_ignored(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0)
    file = AccessFile(tokens.path)
    tokens.path.write_text("[ada\n")
    assert file.holder(tokens.write) == "writeer"
    tokens.path.unlink()
    assert file.holder(tokens.write) == "writeer"
    assert caplog.text.count("its earlier version stays in force") == 2
    tokens.path.write_text("")
    assert file.holder(tokens.write) is None


# ---- credentials


def test_invalid_credentials(files: Files, tmp_path: Path) -> None:
    ada, key = files.ada, files.ada.with_suffix(".key")
    ca = {"ca": files.ca}
    for options, what in (
        ({"ca": tmp_path / "no.pem"}, "no.pem cannot be read: No such file or directory"),
        ({"ca": key}, "ada.key holds no certificate"),
        ({"certificate": ada}, "name the CA of the server's certificate"),
        ({**ca, "certificate_key": key}, "a key needs its certificate"),
        ({**ca, "certificate": ada}, "hold no certificate with its key"),
        ({**ca, "certificate": ada, "certificate_key": files.server.with_suffix(".key")}, "is not that of the cert"),
        ({"token": ""}, "printable ASCII"),
        ({"token": "a b"}, "printable ASCII"),
        ({"token": "gar\nbage"}, "printable ASCII"),
    ):
        with pytest.raises(ValueError, match=what):
            credentials(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="token must be a str, not bytes"):
        credentials(token=b"x")  # type: ignore[arg-type]


def test_representations_do_not_contain_secrets(files: Files) -> None:
    options = repr(credentials(**files.credentials("ada"), token="hunter2"))
    assert "hunter2" not in options
    assert "PRIVATE" not in options


def test_a_token_is_sent_over_tls_or_loopback_only() -> None:
    with pytest.raises(ValueError, match="would be sent in the clear"):
        Credentials(token="x").check("10.0.0.1:7400")
    Credentials(token="x").check("127.0.0.1:7400")
    Credentials(ca=b"some", token="x").check("10.0.0.1:7400")
    Credentials().check("10.0.0.1:7400")


# ---- the authority


def test_certificates_of_an_authority_are_valid(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server(["db.example", "10.0.0.1", "::1"], Identity("demo", "storage", "s1"))
    client = authority.client("ada")
    assert [path.name for path in (server, client)] == ["storage-s1.pem", "ada.pem"]
    for path in tmp_path.glob("*.key"):
        assert path.stat().st_mode & 0o077 == 0
    found = x509.load_pem_x509_certificate(server.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["db.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "::1"]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["logdb://demo/storage/s1"]
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    context.load_cert_chain(client, client.with_suffix(".key"))


def test_existing_files_are_kept(tmp_path: Path) -> None:
    first = Authority(tmp_path).client("ada").read_bytes()
    again = Authority(tmp_path)
    assert again.client("ada").read_bytes() == first
    (tmp_path / "ada.pem").unlink()
    assert again.client("ada").read_bytes() != first


def test_an_incomplete_authority(tmp_path: Path, files: Files) -> None:
    Authority(tmp_path)
    (tmp_path / "ca.key").write_bytes((files.others / "ca.key").read_bytes())
    with pytest.raises(ValueError, match=r"ca\.key is not the key of .*ca\.pem"):
        Authority(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(ValueError, match=r"ca\.key is missing"):
        Authority(tmp_path)


@pytest.mark.parametrize("name", ["ca", "server", "a/b", "", "ä"])
def test_invalid_names_of_clients(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="must be a name of letters"):
        Authority(tmp_path).client(name)


def test_hosts_of_a_server() -> None:
    assert hosts_of(["db.example:7400", "0.0.0.0:7400"]) == ["db.example"]
    assert hosts_of(["127.0.0.1:7401"])[1:] == ["localhost", "127.0.0.1", "::1"]


# ---- identities of servers

CERTIFICATE = {
    "x509_subject_alternative_name": [b"s1.example", b"10.0.0.1", b"*.pods.example", b"logdb://demo/storage/s1"]
}
MINE = Identity("demo", "storage", "s1")


@pytest.mark.parametrize("address", ["s1.example:1", "S1.example:1", "10.0.0.1:1", "a.pods.example:1"])
def test_a_certificate_with_the_identity_of_the_server_is_accepted(address: str) -> None:
    assert node_mismatch(CERTIFICATE, MINE, address) == ""
    assert node_mismatch(CERTIFICATE, MINE._replace(name=""), address) == ""


@pytest.mark.parametrize(
    ("certificate", "claimed", "address", "reason"),
    [
        (
            CERTIFICATE,
            MINE._replace(role="ordering"),
            "s1.example:1",
            "belongs to logdb://demo/storage/s1, but must belong to logdb://demo",
        ),
        (CERTIFICATE, MINE._replace(cluster="dem"), "s1.example:1", "must belong to logdb://dem/storage/s1"),
        (CERTIFICATE, MINE._replace(name="s2"), "s1.example:1", "must belong to logdb://demo/storage/s2"),
        (CERTIFICATE, MINE._replace(name="s"), "s1.example:1", "must belong to logdb://demo/storage/s"),
        (CERTIFICATE, Identity("demo", "stor", ""), "s1.example:1", "must belong to logdb://demo/stor/"),
        (CERTIFICATE, MINE, "s2.example:1", "is not valid for s2.example"),
        (CERTIFICATE, MINE, "10.0.0.2:1", "is not valid for 10.0.0.2"),
        (CERTIFICATE, MINE, "a.b.pods.example:1", "is not valid for a.b.pods.example"),
        (CERTIFICATE, MINE, "pods.example:1", "is not valid for pods.example"),
        ({"x509_common_name": [b"s1"]}, MINE, "s1.example:1", "does not belong to a server"),
        ({}, MINE, "s1.example:1", "does not belong to a server"),
    ],
)
def test_other_certificates_are_rejected(
    certificate: dict[str, list[bytes]], claimed: Identity, address: str, reason: str
) -> None:
    assert reason in node_mismatch(certificate, claimed, address)


def test_a_wildcard_of_a_top_level_domain_is_ignored() -> None:
    certificate = {"x509_subject_alternative_name": [b"*.example", MINE.uri.encode()]}
    assert node_mismatch(certificate, MINE, "s1.example:1")
