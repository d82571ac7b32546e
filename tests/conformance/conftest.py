"""Tests of the Database contract that take `world`, `db` or `embedded` run in each of the worlds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb
from tests.conformance.databases import FEW, SECURE_WORLDS, WORLDS
from tests.harness.worlds import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tls", action="store_true", help="The same behind TLS, where there are servers.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each world in turn, or those that the module of the test names itself."""
    worlds = SECURE_WORLDS if metafunc.config.getoption("tls", default=False) else WORLDS
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
