"""Dashboards of a server and of a cluster, with tokens and without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import logdb
from logdb.dashboard.hosting import served
from logdb.dashboard.visitors import ClusterSource, ServerSource
from logdb.embedded import EmbeddedBackend
from logdb.security.authenticator import Authenticator, Security
from tests.dashboard.pages import Client
from tests.harness.clusters import Cluster
from tests.harness.secured import SecureCluster, Tokens


class Site(NamedTuple):
    """A dashboard, and its database for a writer. `tokens`: those of visitors, None without."""

    url: str
    db: logdb.Database
    tokens: Tokens | None

    def client(self, token: str = "") -> Client:
        """A visitor, logged in with this token or, where tokens are needed, with that of a reader."""
        client = Client(self.url)
        if self.tokens is not None:
            assert client.log_in(token or self.tokens.read).status == 303
        return client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Site]:
    backend = EmbeddedBackend.open(tmp_path / "data", read_only=False, create=True)
    with logdb.Database(backend) as db:
        with served(ServerSource(backend, Authenticator()), "127.0.0.1:0", Security()) as url:
            yield Site(url, db, None)


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[Site]:
    tokens = Tokens(tmp_path / "tokens.toml")
    backend = EmbeddedBackend.open(tmp_path / "data", read_only=False, create=True)
    authenticator = Authenticator(Security(tokens=tokens.path))
    with logdb.Database(backend) as db:
        with served(ServerSource(backend, authenticator), "127.0.0.1:0", Security()) as url:
            yield Site(url, db, tokens)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Site]:
    cluster = Cluster(tmp_path / "cluster", mapping=1, aggregators=0)
    cluster.start(1)
    with logdb.connect(cluster.ordering) as db:
        source = ClusterSource(",".join(cluster.ordering), None, {}, is_local=True)
        with served(source, "127.0.0.1:0", Security()) as url:
            yield Site(url, db, None)
    cluster.close()


@pytest.fixture
def guarded_cluster(tmp_path: Path) -> Iterator[Site]:
    cluster = SecureCluster(tmp_path, mapping=1, aggregators=0)
    cluster.start(1)
    ca = cluster.certificates / "ca.pem"
    with logdb.connect(cluster.ordering, ca=ca, token=cluster.tokens.write) as db:
        source = ClusterSource(",".join(cluster.ordering), None, {"ca": ca}, is_local=True)
        with served(source, "127.0.0.1:0", Security()) as url:
            yield Site(url, db, cluster.tokens)
    cluster.close()


@pytest.fixture(params=["server", "guarded_server", "cluster", "guarded_cluster"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["guarded_server", "guarded_cluster"])
def guarded(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found
