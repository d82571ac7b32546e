"""The worlds for the contract of a database. Each has a database, and an event that must not change any answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import logdb
import logdb.aio
from logdb.clients.background_loop import in_shared_loop
from logdb.log.engine import Shape
from logdb.security.authenticator import Authenticator, Security
from logdb.security.certificates import Authority
from logdb.system.addresses import location_of
from tests.harness.blocking import BlockingDatabase, Loop
from tests.harness.clusters import Cluster
from tests.harness.secured import SecureCluster, Tokens
from tests.harness.served import Served

TIMEOUT_S = 60.0


class World(Protocol):
    """A database, and an event between two calls that must not change any answer."""

    db: logdb.Database

    def disturb(self) -> logdb.Database:
        """Let the event of this world happen, and return the database to use from now on."""

    def close(self) -> None: ...


class InMemory:
    """A database in memory, without events."""

    def __init__(self, path: Path) -> None:
        self.db = logdb.open(":memory:")

    def disturb(self) -> logdb.Database:
        return self.db

    def close(self) -> None:
        self.db.close()


class InDirectory(InMemory):
    """A database in a directory, its map in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path / "db"
        self.db = logdb.open(self.path)


class Checkpointed(InDirectory):
    """Everything is moved into the checkpoint."""

    def disturb(self) -> logdb.Database:
        self.db.checkpoint()
        return self.db


class Reopened(InDirectory):
    """The database is closed, and opened again: a replay of the whole log."""

    def disturb(self) -> logdb.Database:
        self.db.close()
        self.db = logdb.open(self.path, create=False)
        return self.db


class Rebuilt(Reopened):
    """The checkpoint is removed and rebuilt from the log."""

    def disturb(self) -> logdb.Database:
        self.db.close()
        logdb.rebuild(self.path)
        self.db = logdb.open(self.path, create=False)
        return self.db


class OnAsyncio:
    """A directory, opened by `logdb.aio` in a loop of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path / "db"
        self._loop = Loop()
        self.db: Any = BlockingDatabase(self._loop.run(logdb.aio.open(self.path)), self._loop)

    def disturb(self) -> logdb.Database:
        self.db.checkpoint()
        return self.db  # type: ignore[no-any-return]

    def close(self) -> None:
        self.db.close()
        self._loop.close()


class OnServer:
    """A database of `logdb.connect`. To disturb it, the server stops and another one starts."""

    def __init__(self, path: Path) -> None:
        self.served = Served(path / "db")
        self.db = logdb.connect(self.served.address)

    def disturb(self) -> logdb.Database:
        self.served.stop()
        self.served.start()
        return self.db

    def close(self) -> None:
        self.db.close()
        self.served.close()


class OnServerAsyncio:
    """A database of `logdb.aio.connect`."""

    def __init__(self, path: Path) -> None:
        self.served = Served(path / "db")
        self.loop = Loop()
        self.db = BlockingDatabase(self.loop.run(logdb.aio.connect(self.served.address)), self.loop)

    def disturb(self) -> logdb.Database:
        self.db.checkpoint()
        return self.db  # type: ignore[return-value]

    def close(self) -> None:
        self.db.close()
        self.loop.close()
        self.served.close()


class OnCluster:
    """A cluster of this shape. To disturb it, a mapping server restarts from its directory and the log."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = Cluster.of_shape(path, shape)
        self.cluster.start(shape.shards)
        self.db = logdb.connect(self.cluster.ordering[0])

    def disturb(self) -> logdb.Database:
        in_shared_loop(self._restart("m1"))
        return self.db

    async def _restart(self, name: str) -> None:
        await self.cluster.end(name)
        await self.cluster.begin(name)

    def close(self) -> None:
        self.db.close()
        self.cluster.check()
        self.cluster.close()


class OnNodes(OnCluster):
    """Equal nodes, each with a server of every role in one process. To disturb it, one of them restarts."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = Cluster.of_shape(path, shape)
        self.cluster.start(shape.shards)
        self.db = logdb.connect(",".join(location_of(address) for address in self.cluster.mapping))

    def disturb(self) -> logdb.Database:
        in_shared_loop(self._restart("n2"))
        return self.db


class OnClusterOfMany(OnCluster):
    """Several servers of each role. To disturb it, the first of several shards is finalized, once; where there is one
    shard only, a founder restarts. `options`: of the client."""

    def __init__(self, path: Path, shape: Shape, **options: Any) -> None:
        self.cluster = Cluster.of_shape(path, shape)
        self.cluster.start(shape.shards)
        self.db = logdb.connect(",".join(self.cluster.mapping), **options)
        self._disturbed = False

    def disturb(self) -> logdb.Database:
        if not self._disturbed:
            self._disturbed = True
            with self.cluster.connect() as log:
                shards = log.view().active
                if len(shards) > 1:
                    log.finalize_shard(min(shards))
                    return self.db
            in_shared_loop(self._restart(self.cluster.founders[-1]))
        return self.db


class OnMaskingCluster(OnCluster):
    """A cluster that masks the loss of a server, through `logdb.aio`. To disturb it, the last storage server ends and
    does not come back."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = Cluster.of_shape(path, shape, suspect_after_ms=500)
        self.cluster.start(shape.shards)
        self.loop = Loop()
        endpoint = self.cluster.configs[self.cluster.storage[0]].address
        self.db = BlockingDatabase(self.loop.run(logdb.aio.connect(endpoint)), self.loop)

    def disturb(self) -> logdb.Database:
        if (last := self.cluster.storage[-1]) in self.cluster.servers:
            in_shared_loop(self.cluster.end(last))
        return self.db

    def close(self) -> None:
        super().close()
        self.loop.close()


class OnSecureServer(OnServer):
    """The client has a token."""

    def __init__(self, path: Path) -> None:
        pem = Authority(path / "certificates").server(["127.0.0.1"])
        tokens = Tokens(path / "tokens.toml")
        files = Security(certificate=pem, key=pem.with_suffix(".key"), tokens=tokens.path)
        self.served = Served(path / "db", Authenticator(files))
        ca = pem.with_name("ca.pem")
        self.db = logdb.connect(self.served.address, ca=ca, token=tokens.admin, timeout=TIMEOUT_S)


class OnSecureCluster(OnCluster):
    """The client has a token, and no certificate."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = cluster = SecureCluster.of_shape(path, shape)
        cluster.start(shape.shards)
        options = {"ca": cluster.certificates / "ca.pem", "token": cluster.tokens.admin}
        self.db = logdb.connect(cluster.ordering[0], **options, timeout=TIMEOUT_S)


class OnSecureNodes(OnNodes):
    """The client has a token, and no certificate."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = cluster = SecureCluster.of_shape(path, shape)
        cluster.start(shape.shards)
        options = {"ca": cluster.certificates / "ca.pem", "token": cluster.tokens.admin}
        self.db = logdb.connect(location_of(cluster.ordering[-1]), **options, timeout=TIMEOUT_S)


class OnSecureClusterOfMany(OnClusterOfMany):
    """The client has a certificate, and no token. The tokens file says what the certificate's owner may do."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self.cluster = cluster = SecureCluster.of_shape(path, shape)
        text = cluster.tokens.path.read_text()
        cluster.tokens.path.write_text(text.replace('[ada]\nright = "write"', '[ada]\nright = "admin"'))
        cluster.start(shape.shards)
        self.db = logdb.connect(cluster.mapping, **cluster.credentials(None, "ada"), timeout=TIMEOUT_S)
        self._disturbed = False


WORLDS: dict[str, Callable[[Path], World]] = {
    "memory": InMemory,
    "directory": InDirectory,
    "checkpointed": Checkpointed,
    "reopened": Reopened,
    "rebuilt": Rebuilt,
    "asyncio": OnAsyncio,
    "served": OnServer,
    "served asyncio": OnServerAsyncio,
}
SECURE_WORLDS: dict[str, Callable[[Path], World]] = {"served by TLS": OnSecureServer}
"""`tests.conformance.databases` adds secure clusters, one for every engine."""
