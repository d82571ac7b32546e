"""One Spark session for all tests: a process can have no second one, and two processes need no two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what needs Spark in one of the processes that share the tests (pytest-xdist)."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from spark_export import session  # Arrow and Spark are slow to import, and few tests need them

    spark = session(cores=2, memory="1g", name="tests")
    yield spark
    spark.stop()
