"""The rooms of the tests: each is a folder of its own, and shares with others through `tests.harness` alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from logdb.log.engine import ENGINES, engine_of

ROOT = Path(__file__).resolve().parent.parent

BRIDGES = {
    ("conformance", "sim"): "the log contract is tried on simulated clusters",
    ("fuzz", "sim"): "the simulation of an engine names its policies and changes",
    ("log", "sim"): "bugs planted for the simulator are caught by tests of the core, too",
    ("sim", "log"): "bugs planted in Paxos are caught by its tests and by the simulator",
    ("machines", "nemesis"): "machines are network namespaces in both",
    ("nemesis", "sim"): "histories of real and of simulated clusters have the same judges",
    ("wire", "sim"): "every message of a simulated run passes the codec",
}
"""(room, another one that it imports): why. This list may only shrink."""


def python_files() -> list[Path]:
    return sorted(path for folder in ("tests", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


def room_of(parts: tuple[str, ...]) -> str:
    """The folder of tests that a file or a module belongs to; "" for what lies in none."""
    if parts[0] == "benchmarks":
        return "the benchmarks"
    return parts[1] if len(parts) > 1 and (ROOT / "tests" / parts[1]).is_dir() else ""


def imported(path: Path, *packages: str) -> Iterator[tuple[int, str]]:
    """(line, module) of each import from these packages."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] in packages)


def is_allowed(room: str, target: str) -> bool:
    if target in (room, "harness"):
        return True
    if target == "the benchmarks":
        return room == "benchmarks"
    return (room, target) in BRIDGES


def wrong_imports(path: Path) -> list[str]:
    parts = path.relative_to(ROOT).parts
    room = room_of(parts)
    return [
        f"{'/'.join(parts)}:{line}: {name} belongs to another room; what rooms share stands in tests/harness"
        for line, name in imported(path, "tests", "benchmarks")
        if not is_allowed(room, room_of(tuple(name.split("."))))
    ]


def test_rooms_share_through_the_harness() -> None:
    assert [wrong for path in python_files() for wrong in wrong_imports(path)] == []


def test_every_bridge_is_used() -> None:
    used = {
        (room_of(path.relative_to(ROOT).parts), room_of(tuple(name.split("."))))
        for path in python_files()
        for _, name in imported(path, "tests", "benchmarks")
    }
    assert set(BRIDGES) <= used


QUOTES_AN_ENGINE = {
    "benchmarks/test_benchmarks.py": "a benchmark of one engine is called after it",
    "benchmarks/test_corfu.py": "a benchmark of one engine is called after it",
    "benchmarks/test_ziplog.py": "a benchmark of one engine is called after it",
    "log/engines/test_another_engine.py": "what the command says lists the engines",
    "test_house.py": "planted",
    "test_rooms.py": "planted",
    "wire/test_generated.py": "the files of a schema lie in the folder of its engine",
}
"""Files that have the name of an engine in a string: why."""


def engines_named(path: Path) -> set[str]:
    """The engines that a file imports, or has in a string, though it is in none of their rooms."""
    relative = path.relative_to(ROOT)
    module = ".".join(relative.with_suffix("").parts)
    strings = set() if relative.relative_to("tests").as_posix() in QUOTES_AN_ENGINE else set(strings_in(path))
    found = set()
    for engine in ENGINES:
        rooms = (f"tests.log.{engine}.", f"tests.sim.{engine}.")
        if module.startswith(rooms):
            continue
        packages = (f"logdb.log.{engine}.", *rooms)
        imports = any(f"{name}.".startswith(packages) for _, name in imported(path, "logdb", "tests"))
        if imports or any(text.startswith((engine, f"logdb.log.{engine}", f"tests.sim.{engine}")) for text in strings):
            found.add(engine)
    return found


def strings_in(path: Path) -> Iterator[str]:
    """The strings of a file, without its docstrings."""
    tree = ast.parse(path.read_text())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node.value


def test_suites_take_engines_by_name() -> None:
    """A suite uses an engine only through `Engine` and the module of its simulation."""
    tests = [path for path in python_files() if path.is_relative_to(ROOT / "tests")]
    assert {path.relative_to(ROOT).as_posix(): engines_named(path) for path in tests if engines_named(path)} == {}


def test_the_simulation_of_an_engine_is_in_its_room() -> None:
    assert {engine: engine_of(engine).simulation for engine in ENGINES} == {
        engine: f"tests.sim.{engine}" for engine in ENGINES
    }


@pytest.mark.parametrize(
    "line",
    [
        "from logdb.log.scalog.messages import View",
        "from logdb.log import scalog",
        "from tests.sim.scalog.cluster import Cluster",
        'engine = engine_of("scalog")',
        'module = import_module("logdb.log.scalog.messages")',
    ],
)
@pytest.mark.parametrize(
    ("file", "is_seen"),
    [("tests/sim/run.py", True), ("tests/sim/scalog/cluster.py", False), ("tests/log/test_format.py", True)],
)
def test_an_engine_that_is_named_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, file: str, is_seen: bool
) -> None:
    monkeypatch.setattr("tests.test_rooms.ROOT", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"{line}\n")
    assert bool(engines_named(tmp_path / file)) is is_seen


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("tests/cli/test_logs.py", "from tests.net.clusters import Cluster"),
        ("tests/cli/test_logs.py", "from benchmarks.clusters import Cluster"),
        ("tests/cli/test_logs.py", "from tests import net"),
        ("tests/harness/served.py", "import tests.net.clusters"),
        ("tests/test_aio.py", "from tests.net.clusters import Cluster"),
        ("tests/sim/engine.py", "from tests.conformance.logs import read"),
        ("benchmarks/clusters.py", "from tests.net.clusters import Cluster"),
    ],
)
def test_an_import_of_another_room_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    monkeypatch.setattr("tests.test_rooms.ROOT", tmp_path)
    for room in ("cli", "net", "harness", "sim", "conformance"):
        (tmp_path / "tests" / room).mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / file).write_text(f"{line}\nfrom tests.harness.ports import free_ports\n")
    assert len(wrong_imports(tmp_path / file)) == 1
