"""The worlds in which the Database contract is tried: whoever implements it joins `WORLDS`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

import logdb
from tests.conformance.on_asyncio import OnAsyncio
from tests.net.clustered import OnCluster, OnClusterOfMany, OnMaskingCluster
from tests.net.security.secured import WORLDS as SECURE
from tests.net.serving import OnServer, OnServerAsyncio


class World(Protocol):
    """A database, and what may happen to it between two calls without any answer changing."""

    db: logdb.Database

    def settle(self) -> logdb.Database:
        """Go through whatever this world is about, and return the database to go on with."""

    def close(self) -> None: ...


class InMemory:
    """A database in memory, to which nothing happens."""

    def __init__(self, path: Path) -> None:
        self.db = logdb.open(":memory:")

    def settle(self) -> logdb.Database:
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

    def settle(self) -> logdb.Database:
        self.db.checkpoint()
        return self.db


class Reopened(InDirectory):
    """The database is closed, and opened again: a replay of the whole log."""

    def settle(self) -> logdb.Database:
        self.db.close()
        self.db = logdb.open(self.path, create=False)
        return self.db


class Rebuilt(Reopened):
    """The checkpoint is thrown away and made anew from the log."""

    def settle(self) -> logdb.Database:
        self.db.close()
        logdb.rebuild(self.path)
        self.db = logdb.open(self.path, create=False)
        return self.db


WORLDS = {
    "memory": InMemory,
    "directory": InDirectory,
    "checkpointed": Checkpointed,
    "reopened": Reopened,
    "rebuilt": Rebuilt,
    "asyncio": OnAsyncio,
    "served": OnServer,
    "served asyncio": OnServerAsyncio,
    "cluster": OnCluster,
    "cluster of many": OnClusterOfMany,
    "cluster that masks": OnMaskingCluster,
}


FEW = ("memory", "directory", "served", "cluster")
"""Where a test of what has nothing to do with a world's past is tried."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tls", action="store_true", help="The same behind TLS, where there are servers.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each world in turn, or those that the module of the test names itself."""
    worlds = SECURE if metafunc.config.getoption("tls", default=False) else WORLDS
    worlds = getattr(metafunc.module, "WORLDS", worlds)
    if "world" in metafunc.fixturenames:
        metafunc.parametrize("world", [pytest.param(worlds[name], id=name) for name in sorted(worlds)], indirect=True)
    if "db" in metafunc.fixturenames:
        few = {name: worlds[name] for name in FEW if name in worlds} or worlds
        metafunc.parametrize("db", [pytest.param(few[name], id=name) for name in few], indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """One of them."""
    world = request.param(tmp_path)
    yield world
    world.close()


@pytest.fixture(params=["memory", "directory"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[logdb.Database]:
    """An empty database of this process, for what goes behind its face."""
    world = WORLDS[request.param](tmp_path)
    yield world.db
    world.close()


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[logdb.Database]:
    """An empty database, where nothing of its past matters to the test."""
    world = request.param(tmp_path)
    yield world.db
    world.close()
