"""Settings of all tests: one Spark session, no time limits, the same examples for each run in CI, Ctrl-C that arrives.

A process can have only one Spark session, and two processes need no two. Hypothesis fails an example that takes more
than 200 ms, which on a busy machine any example can. In CI its examples are a function of the test, so that runs of
one commit agree. A shell ignores SIGINT in what it starts in the background, and every process that a test starts would
inherit that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import logdb.system.grpc_fork  # noqa: F401 - before gRPC is loaded: it turns off what gRPC does at a fork

if TYPE_CHECKING:
    from tests.harness.served import Served

settings.register_profile(
    "logdb", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("logdb")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="Run the tests that take a minute, too.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes a minute (`--long`), and keep what needs Spark in one of the processes that share the tests
    (pytest-xdist)."""
    if not config.getoption("long"):
        long = {item for item in items if item.get_closest_marker("long")}
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from spark_export import session  # Arrow and Spark are slow to import, and few tests need them

    spark = session(cores=2, memory="1g", name="tests")
    yield spark
    spark.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    from tests.harness.served import Served

    served = Served(tmp_path / "served")
    yield served
    served.close()
