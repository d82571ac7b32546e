"""Servers and clusters behind TLS, and the same as worlds of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import logdb
import logdb.log
from logdb.net.log_client import RemoteLog
from logdb.net.security.certificates import Authority, hosts_of
from logdb.net.security.gate import Gate, Security
from logdb.net.security.nodes import Identity
from tests.net.clustered import OnCluster, OnClusterOfMany
from tests.net.clusters import Cluster
from tests.net.security.conftest import Tokens
from tests.net.serving import OnServer, Served

TIMEOUT_S = 60.0


class SecureCluster(Cluster):
    """Servers with mutual TLS between them, and clients with tokens."""

    def __init__(self, path: Path, **shape: int) -> None:
        super().__init__(path, **shape)
        self.certificates, self.tokens = path / "certificates", Tokens(path / "tokens.toml")
        authority = Authority(self.certificates)
        names = {config.address: name for name, config in self.configs.items()}
        for name, config in self.configs.items():
            pem = authority.server(hosts_of([config.address]), Identity("test", config.role.value, name))
            files = Security(self.certificates / "ca.pem", pem, pem.with_suffix(".key"), self.tokens.path)
            self.configs[name] = replace(config, security=files, names=names)
        authority.client("client")
        authority.client("ada")
        self._write_file()

    def _write_file(self) -> None:
        """The file of this cluster, with which the command takes its directory for one of `logdb cluster up`."""
        tables = [f'[cluster]\nname = "test"\nfailures = {self.members - 1}\n']
        for name, config in self.configs.items():
            tables.append(f'[{config.role.value}.{name}]\nlisten = "{config.address}"\ndata = "{name}"\n')
        pem = "certificates/{role}-{name}"
        files = f'ca = "certificates/ca.pem"\ncertificate = "{pem}.pem"\nkey = "{pem}.key"\ntokens = "tokens.toml"\n'
        (self.path / "cluster.toml").write_text("\n".join([*tables, "[security]", files]))

    def shown(self, token: str | None, certificate: str = "client") -> dict[str, Any]:
        """The arguments of `connect` for who has both."""
        client = self.certificates / f"{certificate}.pem"
        pair = {"certificate": client, "certificate_key": client.with_suffix(".key")}
        return {"ca": self.certificates / "ca.pem", **pair, "token": token}

    def connect(self) -> RemoteLog:
        return logdb.log.connect(self.ordering, **self.shown(self.tokens.admin))


class OnSecureServer(OnServer):
    """The client has a token."""

    def __init__(self, path: Path) -> None:
        pem = Authority(path / "certificates").server(["127.0.0.1"])
        tokens = Tokens(path / "tokens.toml")
        files = Security(certificate=pem, key=pem.with_suffix(".key"), tokens=tokens.path)
        self.served = Served(path / "db", Gate(files))
        ca = pem.with_name("ca.pem")
        self.db = logdb.connect(self.served.address, ca=ca, token=tokens.admin, timeout=TIMEOUT_S)


class OnSecureCluster(OnCluster):
    """The client has a token, and no certificate."""

    def __init__(self, path: Path) -> None:
        self.cluster = cluster = SecureCluster(path, mapping=1)
        cluster.start(1)
        shown = {"ca": cluster.certificates / "ca.pem", "token": cluster.tokens.admin}
        self.db = logdb.connect(cluster.ordering[0], **shown, timeout=TIMEOUT_S)


class OnSecureClusterOfMany(OnClusterOfMany):
    """The client has a certificate, and no token; what that may is in the tokens file."""

    def __init__(self, path: Path) -> None:
        self.cluster = cluster = SecureCluster(path, replicas=3, storage=4, aggregators=0, mapping=2, failures=1)
        text = cluster.tokens.path.read_text()
        cluster.tokens.path.write_text(text.replace('[ada]\nright = "write"', '[ada]\nright = "admin"'))
        cluster.start(2)
        self.db = logdb.connect(cluster.mapping, **cluster.shown(None, "ada"), timeout=TIMEOUT_S)
        self._settled = False


WORLDS = {
    "served by TLS": OnSecureServer,
    "cluster by TLS": OnSecureCluster,
    "cluster of many by TLS": OnSecureClusterOfMany,
}
