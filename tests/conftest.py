"""One Spark session for all tests: a process can have no second one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from spark_export import session  # Arrow and Spark are slow to import, and few tests need them

    spark = session(cores=2, memory="1g", name="tests")
    yield spark
    spark.stop()
