"""Certificates, made once, and a server that requires them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from logdb.security import credentials
from logdb.security.authenticator import Authenticator, Security
from logdb.security.certificates import Authority
from logdb.security.node_identity import Identity
from tests.harness.secured import Tokens
from tests.harness.served import Served

HOSTS = ["localhost", "127.0.0.1"]
Serve = Callable[..., Served]


class Files:
    """Certificates signed by two authorities."""

    def __init__(self, path: Path) -> None:
        self.path, self.ca, self.server, self.ada = path, path / "ca.pem", path / "server.pem", path / "ada.pem"
        authority = Authority(path)
        authority.server(HOSTS)
        authority.client("ada")
        authority.client("grace")
        authority.server(HOSTS, Identity("test", "storage", "s1"))
        self.others = path / "others"
        other = Authority(self.others)
        other.server(HOSTS)
        other.client("ada")
        self._authority = authority

    def credentials(self, certificate: str = "", *, ca: Path | None = None) -> dict[str, Any]:
        """The arguments of `connect`."""
        if not certificate:
            return {"ca": ca or self.ca}
        path = self.path / f"{certificate}.pem"
        return {"ca": ca or self.ca, "certificate": path, "certificate_key": path.with_suffix(".key")}

    def another(self, path: Path, hosts: list[str], days: int = 1) -> Path:
        """A server's certificate of the same authority."""
        path.mkdir()
        for name in ("ca.pem", "ca.key"):
            (path / name).write_bytes((self.path / name).read_bytes())
        return Authority(path).server(hosts, days=days)

    def security(self, server: Path | None = None, **more: Path | None) -> Security:
        """The security settings of a server."""
        certificate = server or self.server
        return Security(certificate=certificate, key=certificate.with_suffix(".key"), **more)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path / "tokens.toml")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a database in memory with these security settings."""
    servers: list[Served] = []

    def begin(security: Security | None = None) -> Served:
        servers.append(Served(None, Authenticator(security)))
        return servers[-1]

    yield begin
    for server in servers:
        server.close()


@pytest.fixture
def _whatever_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_check_dates", lambda pem, path: None)
