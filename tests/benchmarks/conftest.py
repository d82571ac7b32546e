"""Benchmarks that take a minute even in short run on request only."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="Run the benchmarks that take a minute, too.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "whole: a whole benchmark, which takes a minute; run with --whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("whole", default=False):
        whole = [item for item in items if item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if item not in set(whole)]
