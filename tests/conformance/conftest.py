"""Tests of the Database contract that take `world`, `db` or `embedded` run in each of the worlds. Of the clusters,
`world` is one of every engine, each of another kind, in turn from test to test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import logdb
from tests.conformance.databases import FEW, IN_SESSIONS, SECURE_WORLDS, WORLDS, in_turn
from tests.harness.worlds import World


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tls", action="store_true", help="Run the worlds with servers behind TLS.")
    parser.addoption("--all-worlds", action="store_true", help="Run each test in all kinds of clusters of all engines.")
    parser.addoption("--sessions", action="store_true", help="Run the worlds with clients that keep causality only.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test in each world, or in those that its module names."""
    worlds = SECURE_WORLDS if metafunc.config.getoption("tls", default=False) else WORLDS
    worlds = IN_SESSIONS if metafunc.config.getoption("sessions", default=False) else worlds
    worlds = getattr(metafunc.module, "WORLDS", worlds)
    if "world" in metafunc.fixturenames:
        if worlds is WORLDS and not metafunc.config.getoption("all_worlds", default=False):
            worlds = in_turn(metafunc.function.__name__)
        metafunc.parametrize("world", [pytest.param(worlds[name], id=name) for name in sorted(worlds)], indirect=True)
    if "db" in metafunc.fixturenames:
        few = {name: worlds[name] for name in FEW if name in worlds} or worlds
        metafunc.parametrize("db", [pytest.param(few[name], id=name) for name in few], indirect=True)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A world, closed after the test."""
    world = request.param(tmp_path)
    yield world
    world.close()


@pytest.fixture(params=["memory", "directory"])
def embedded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[logdb.Database]:
    """An empty database of this process, for tests below its interface."""
    world = WORLDS[request.param](tmp_path)
    yield world.db
    world.close()


@pytest.fixture
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[logdb.Database]:
    """An empty database, for tests that do not depend on its history."""
    world = request.param(tmp_path)
    yield world.db
    world.close()
