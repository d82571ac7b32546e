"""Tests use public names. `LOOKS` lists the files with exceptions and their number of lines; it may only shrink."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PUBLIC = {"_replace", "_fields", "_asdict", "_exit", "_get_running_loop", "_set_running_loop"}
"""Underscored names that are public: of named tuples, of `os`, and of `asyncio.events` for who writes a loop."""


LOOKS: dict[str, int] = {
    "cli/test_logs.py": 1,
    "clients/test_background_loop.py": 1,
    "clients/test_blocking_backend.py": 2,
    "clients/test_connecting.py": 2,
    "clients/test_speculation.py": 4,
    "cores/test_context.py": 1,
    "conformance/test_database_transactions.py": 1,
    "embedded/test_retention.py": 1,
    "fuzz/running.py": 1,
    "harness/opening.py": 1,
    "harness/served.py": 1,
    "harness/stage.py": 1,
    "log/scalog/test_aggregator.py": 1,
    "log/scalog/test_client_appends.py": 1,
    "log/scalog/test_engine.py": 2,
    "log/scalog/test_storage_membership.py": 2,
    "log/scalog/test_storage_replication.py": 1,
    "log/test_journals.py": 1,
    "log/ziplog/test_members.py": 1,
    "security/test_server.py": 1,
    "server/test_large_values.py": 1,
    "server/test_limits.py": 1,
    "server/test_serving.py": 1,
    "spark_export/test_endpoints.py": 2,
    "spark_export/test_runs.py": 3,
    "spark_export/test_source.py": 1,
    "spark_export/test_writing.py": 1,
    "store/test_scans.py": 1,
    "system/test_forking.py": 1,
    "transport/test_peers.py": 2,
    "txn/test_speculation.py": 1,
}
"""Lines by file. This list may only shrink: what several tests need has a public face, or gets one."""


def own_names(tree: ast.AST) -> set[str]:
    """The functions of the file and the attributes of its classes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            names.add(node.attr)
    return names


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def private_places(source: str) -> Iterator[int]:
    """The line of each look at a private attribute of something that the file does not define."""
    tree = ast.parse(source)
    own = own_names(tree) | PUBLIC
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or is_self(node.value):
            continue
        if is_private(node.attr) and node.attr not in own:
            yield node.lineno


def is_list_of_bugs(path: Path) -> bool:
    """Bugs are planted in the middle of things: such a file replaces private methods, and may."""
    return path.name.startswith("planted") or path.name == "bugs.py"


def counted() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if not is_list_of_bugs(path):
            found[path.relative_to(ROOT / "tests").as_posix()] += len(set(private_places(path.read_text())))
    return +found


def test_tests_look_at_what_is_public() -> None:
    """A number that is too large is wrong as well: lower it."""
    assert counted() == LOOKS


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ("assert db._host.closed", True),
        ("send = Session._send", True),
        ("core._commits._order = None", True),
        ("row = row._replace(name=1)", False),
        ("assert self._mine", False),
        ("super()._note()", False),
        ("other._mine()", False),
        ("cls.__name__", False),
    ],
)
def test_a_look_at_what_is_private_is_seen(line: str, is_seen: bool) -> None:
    source = f"class Here:\n    def _mine(self):\n        {line}\n"
    assert bool(list(private_places(source))) is is_seen
