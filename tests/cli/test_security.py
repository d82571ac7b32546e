"""`logdb certificates`, `logdb token`, a server for other machines and its clients: real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509

from tests.cli.test_serving import ask, serving


@pytest.fixture(autouse=True)
def _somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CA", "CERTIFICATE", "CERTIFICATE_KEY", "TOKEN", "TOKEN_FILE"):
        monkeypatch.delenv(f"LOGDB_{name}", raising=False)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """A server at all addresses of this machine, with TLS and tokens."""
    ask("certificates", "--to", "certificates", "--host", "localhost", "--host", "127.0.0.1", "--client", "ada")
    for right in ("read", "write"):
        Path(f"{right}.token").write_text(ask("token", f"{right}er", "--right", right, "--tokens", "tokens.toml"))
    tls = ["--certificate", "certificates/server.pem", "--certificate-key", "certificates/server.key"]
    server = serving(tmp_path / "db", "--listen", "0.0.0.0:0", *tls, "--tokens", "tokens.toml")
    assert server.stdout is not None
    yield f"localhost:{server.stdout.readline().rpartition(':')[2].strip()}"
    server.kill()
    server.communicate()


def test_a_server_for_other_machines(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = ["--endpoints", endpoint, "--ca", "certificates/ca.pem"]
    assert ask("put", *there, "--token-file", "write.token", "a", "1") == "version 1\n"
    assert ask(*there, "--token-file", "read.token", "get", "a") == "1\n"
    assert 'may only read, and this needs the right "write"' in ask(
        *there, "--token-file", "read.token", "put", "a", "2", code=3
    )
    assert "a token is needed here, and none came" in ask(*there, "get", "a", code=3)
    assert "it speaks TLS: name the CA of its certificate" in ask("--endpoints", endpoint, "get", "a", code=3)
    monkeypatch.setenv("LOGDB_ENDPOINTS", endpoint)
    monkeypatch.setenv("LOGDB_CA", "certificates/ca.pem")
    monkeypatch.setenv("LOGDB_TOKEN", Path("read.token").read_text().strip())
    assert ask("get", "a") == "1\n"
    assert ask("put", "--token-file", "write.token", "a", "2") == "version 2\n"
    monkeypatch.setenv("LOGDB_TOKEN_FILE", "write.token")
    assert ask("put", "a", "3") == "version 3\n"


def test_a_token_is_never_an_argument() -> None:
    """Every user of the machine can read arguments."""
    assert "--token\n" not in ask("--help")
    assert "No such option" in ask("--token", "secret", "get", "a", code=2)


def test_unusable_files_are_named(endpoint: str) -> None:
    there = ["--endpoints", endpoint]
    assert "no.pem cannot be read: No such file" in ask(*there, "--ca", "no.pem", "get", "a", code=2)
    assert "no.token cannot be read: No such file" in ask(*there, "--token-file", "no.token", "get", "a", code=2)
    ca = [*there, "--ca", "certificates/ca.pem"]
    assert "hold no certificate with its key" in ask(
        *ca, "--certificate", "certificates/ada.pem", "--certificate-key", "read.token", "get", "a", code=2
    )
    assert "would be sent in the clear" in ask(
        "--endpoints", "db.example:7400", "--token-file", "read.token", "get", "a", code=2
    )


def test_certificates_of_a_cluster(tmp_path: Path) -> None:
    Path("cluster.toml").write_text(
        '[cluster]\nname = "demo"\n[ordering.o1]\nlisten = "10.0.0.1:7401"\n'
        '[storage.s1]\nlisten = "0.0.0.0:7411"\naddress = "s1.example:7411"\n'
        '[security]\nca = "c/ca.pem"\ncertificate = "c/{role}-{name}.pem"\nkey = "c/{role}-{name}.key"\n'
    )
    made = ["c/ca.pem", "c/ordering-o1.pem", "c/storage-s1.pem", "c/ada.pem"]
    for _ in range(2):
        told = ask("certificates", "--to", "c", "--config", "cluster.toml", "--client", "ada")
        assert told.splitlines() == made
    found = x509.load_pem_x509_certificate(Path("c/storage-s1.pem").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [name.value for name in names] == ["s1.example", "logdb://demo/storage/s1"]


def test_mistakes(tmp_path: Path) -> None:
    assert "neither ca nor server" in ask("certificates", "--to", "c", "--client", "server", code=2)
    assert "is neither a host name" in ask("certificates", "--to", "c", "--host", "ä", code=2)
    assert "cannot be read" in ask("certificates", "--to", "c", "--config", "no.toml", code=2)
    ask("token", "ada", "--right", "read", "--tokens", "t.toml")
    assert "has a table [ada] already" in ask("token", "ada", "--right", "read", "--tokens", "t.toml", code=2)
    assert "must be a name" in ask("token", "a b", "--right", "read", "--tokens", "t.toml", code=2)
    Path("t.toml").write_text("[ada")
    assert "t.toml is not TOML" in ask("token", "grace", "--right", "read", "--tokens", "t.toml", code=2)
    assert "t.toml is not TOML" in ask("serve", "--db", "db", "--tokens", "t.toml", code=2)


def test_without_cryptography_the_message_says_what_to_install() -> None:
    code = "import sys; sys.modules['cryptography'] = None; from logdb_cli import main; main()"
    command = [sys.executable, "-c", code, "certificates", "--to", "c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "error: cryptography is not installed: pip install 'logdb[cluster]'\n"
