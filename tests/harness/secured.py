"""Clusters behind mutual TLS, and the tokens of their clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import logdb
import logdb.log
from logdb.clients.log_client import RemoteLog
from logdb.log.engine import Right
from logdb.security.access import add
from logdb.security.authenticator import Security
from logdb.security.certificates import Authority, hosts_of
from logdb.security.node_identity import Identity
from logdb.system.addresses import location_of
from logdb.wire.envelopes import NODE
from tests.harness.clusters import Cluster


class Tokens:
    """A tokens file with a token for each right, and for ada's certificate the right to write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read, self.write, self.admin = (add(path, f"{right.label}er", right) for right in list(Right)[1:])
        with path.open("a") as file:
            file.write('\n[ada]\nright = "write"\n')


class SecureCluster(Cluster):
    """Servers with mutual TLS between them, and clients with tokens."""

    def __init__(self, path: Path, **shape: Any) -> None:
        super().__init__(path, **shape)
        self.certificates, self.tokens = path / "certificates", Tokens(path / "tokens.toml")
        authority = Authority(self.certificates)
        names = {process.address: name for name, process in self.processes.items()}
        files = {}
        for name, process in self.processes.items():
            pem = authority.server(hosts_of([process.address]), Identity("test", process.role, name))
            files[name] = Security(self.certificates / "ca.pem", pem, pem.with_suffix(".key"), self.tokens.path)
        for key, config in self.configs.items():
            self.configs[key] = replace(config, security=files[config.name], names=names)
        authority.client("client")
        authority.client("ada")
        self._write_file()

    def _write_file(self) -> None:
        """The configuration file of this cluster, so that commands accept its directory as one of `logdb cluster
        up`."""
        tables = [f'[cluster]\nname = "test"\nfailures = {self.members - 1}\n']
        for name, process in self.processes.items():
            roles = [config.role for config in process.servers]
            tables.append(f'[{process.role}.{name}]\nlisten = "{process.address}"\ndata = "{name}"\n')
            if process.role == NODE:
                tables.append(f"roles = {roles}\n")
        pem = "certificates/{role}-{name}"
        files = f'ca = "certificates/ca.pem"\ncertificate = "{pem}.pem"\nkey = "{pem}.key"\ntokens = "tokens.toml"\n'
        (self.path / "cluster.toml").write_text("\n".join([*tables, "[security]", files]))

    def credentials(self, token: str | None, certificate: str = "client") -> dict[str, Any]:
        """The arguments of `connect` with a token and a certificate."""
        client = self.certificates / f"{certificate}.pem"
        pair = {"certificate": client, "certificate_key": client.with_suffix(".key")}
        return {"ca": self.certificates / "ca.pem", **pair, "token": token}

    def connect(self) -> RemoteLog:
        return logdb.log.connect(
            [location_of(address) for address in self.ordering], **self.credentials(self.tokens.admin)
        )
