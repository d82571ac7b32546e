"""The house keeps its shape: imports point down, engines do not know each other, every file says why it exists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from logdb.log.engine import ENGINES

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "logdb"

FLOORS = [
    ["logdb.system.forking", "logdb.api.timestamps"],
    ["logdb.errors"],
    ["logdb.system"],
    ["logdb.log.contract"],
    ["logdb.log.segments"],
    ["logdb.backups.places"],
    ["logdb.backups.parts"],
    ["logdb.backups.manifests"],
    ["logdb.log.record_clock", "logdb.log.policies"],
    ["logdb.cores.effects"],
    ["logdb.backups.archiving"],
    ["logdb.log.requests", "logdb.log.parked_requests"],
    ["logdb.cores"],
    ["logdb.log.paxos"],
    ["logdb.log.engine"],
    ["logdb.log.local", "logdb.log.scalog", "logdb.log.multipaxos"],
    ["logdb.store"],
    ["logdb.keys"],
    ["logdb.named_logs"],
    ["logdb.retention"],
    ["logdb.txn"],
    ["logdb.tables"],
    ["logdb.api.results"],
    ["logdb.api.backend"],
    ["logdb.cluster"],
    ["logdb.embedded"],
    ["logdb.security"],
    ["logdb.wire"],
    ["logdb.transport"],
    ["logdb.node"],
    ["logdb.clients", "logdb.server"],
    ["logdb.log"],
    ["logdb.smr"],
    ["logdb.admin"],
    ["logdb.api"],
    ["logdb.backups"],
    ["logdb.aio"],
    ["logdb.dashboard"],
    ["logdb"],
    ["logdb_cli", "logdb_spark", "spark_export", "benchmarks", "examples"],
]
"""From the ground up. A module belongs to the longest name that begins its own; an import may only point down, or stay
within one name. Names that share a floor do not import each other."""

PURE = {
    package: {"os", "socket", "lmdb", "time.sleep", "asyncio", "threading"}
    for package in (
        "logdb.txn",
        "logdb.retention",
        "logdb.cluster",
        "logdb.log.scalog",
        "logdb.log.multipaxos",
        "logdb.log.paxos",
        "logdb.smr.core",
    )
}
"""Modules that a package must not import: decisions use neither disks nor sockets."""


def modules() -> list[Path]:
    folders = ("logdb", "cli", "logdb_spark", "spark_export", "benchmarks", "examples")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "cli":
        parts[0] = "logdb_cli"
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> tuple[int, str]:
    found = [
        (len(name), floor, name)
        for floor, names in enumerate(FLOORS)
        for name in names
        if module == name or module.startswith(name + ".")
    ]
    assert found, f"{module} stands on no floor: name it in FLOORS"
    _, floor, name = max(found)
    return floor, name


def imports_of(path: Path) -> list[tuple[int, str]]:
    """(line, module) of every import in the file, of modules and of names that are modules."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                stem = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*stem, *([node.module] if node.module else [])])
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                path_of = ROOT / whole.replace(".", "/")
                is_module = path_of.with_suffix(".py").exists() or (path_of / "__init__.py").exists()
                found.append((node.lineno, whole if is_module else base))
    return found


def wrong_imports(path: Path) -> list[str]:
    module = name_of(path)
    floor, name = floor_of(module)
    wrong = []
    for line, target in imports_of(path):
        if target.split(".")[0] not in ("logdb", "logdb_cli", "logdb_spark", "spark_export", "benchmarks", "examples"):
            continue
        target_floor, target_name = floor_of(target)
        if target_name != name and target_floor >= floor and floor < len(FLOORS) - 1:
            wrong.append(f"{path.relative_to(ROOT)}:{line}: {module} imports {target}, which is not below it")
    return wrong


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_point_down(path: Path) -> None:
    assert wrong_imports(path) == []


def test_an_import_that_points_up_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_house.ROOT", tmp_path)
    path = tmp_path / "logdb" / "store" / "mapping.py"
    path.parent.mkdir(parents=True)
    path.write_text("from logdb.txn.validation import validate\nfrom logdb.errors import LogDBError\n")
    assert len(wrong_imports(path)) == 1


MEASURES_AN_ENGINE = {
    "benchmarks.corfu.positions",
    "benchmarks.cuts",
    "benchmarks.log_client",
    "benchmarks.storage_server",
    "benchmarks.ziplog.driver",
    "benchmarks.ziplog.epochs",
}
"""Benchmarks of the cores of one engine, which no other has."""


def engines_named(path: Path) -> list[str]:
    """Where a module outside an engine's room imports from that room, or names the engine."""
    module, wrong = name_of(path), []
    for engine in ENGINES:
        room = f"logdb.log.{engine}"
        if (module + ".").startswith(room + ".") or module in MEASURES_AN_ENGINE:
            continue
        lines = [line for line, target in imports_of(path) if (target + ".").startswith(room + ".")]
        if module != "logdb.log.engine" and not module.startswith("benchmarks."):
            names = (engine, room)
            lines += [
                node.lineno
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(names)
            ]
        wrong += [f"{path.relative_to(ROOT)}:{line}: {module} names the engine {engine}" for line in lines]
    return wrong


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_nothing_outside_its_room_names_an_engine(path: Path) -> None:
    assert engines_named(path) == []


@pytest.mark.parametrize(
    "line",
    [
        "from logdb.log.scalog import messages",
        "def f():\n    import logdb.log.scalog.client.log_client",
        "from logdb.log import scalog",
        'kind = "scalog"',
        'import_module("logdb.log.scalog.engine")',
    ],
)
def test_a_module_that_names_an_engine_is_seen(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_house.ROOT", tmp_path)
    (tmp_path / "logdb" / "log" / "scalog").mkdir(parents=True)
    (tmp_path / "logdb" / "log" / "scalog" / "__init__.py").write_text("")
    path = tmp_path / "logdb" / "cluster" / "line.py"
    path.parent.mkdir()
    path.write_text(line + "\n")
    assert engines_named(path)


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules that import each other."""
    reached: dict[str, set[str]] = {}
    for module, targets in imports.items():
        seen, todo = set[str](), list(targets)
        while todo:
            if (target := todo.pop()) not in seen:
                seen.add(target)
                todo += imports.get(target, ())
        reached[module] = seen
    found = [{other for other in reached[module] if module in reached.get(other, ())} for module in imports]
    return [circle for at, circle in enumerate(found) if circle and circle not in found[:at]]


def test_no_modules_import_each_other() -> None:
    imports = {
        name_of(path): {target for _, target in imports_of(path)} - {name_of(path)}
        for path in modules()
        if name_of(path).startswith("logdb.")
    }
    assert circles(imports) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_pure_packages_do_no_io(path: Path) -> None:
    for package, banned in PURE.items():
        if name_of(path).startswith(package + "."):
            assert not banned & {target for _, target in imports_of(path)}


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_every_file_says_why_it_exists(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_every_package_is_installed() -> None:
    """An editable install finds packages that are not listed, so no other test would miss them."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    tops = ("logdb", "cli", "logdb_spark", "spark_export")
    folders = {path.parent.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")}
    assert sorted(".".join(folder.parts) for folder in folders) == sorted(
        name.replace("logdb_cli", "cli") for name in listed
    )


def test_every_package_is_typed() -> None:
    """`py.typed` counts for the subpackages, too; without package data it would not be installed."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for name in ("logdb", "logdb_cli", "logdb_spark", "spark_export"):
        folder = name.replace("logdb_cli", "cli")
        assert (ROOT / folder / "py.typed").exists()
        assert "py.typed" in data[name]


def test_the_face_is_sorted_and_whole() -> None:
    import logdb

    names = [name for name in logdb.__all__ if not name.isupper()]
    assert names == sorted(names, key=lambda name: (name.islower() or "_" in name, name))
    assert all(hasattr(logdb, name) for name in logdb.__all__)


def test_every_public_error_gives_advice() -> None:
    import logdb

    things = [thing for thing in vars(logdb).values() if isinstance(thing, type)]
    errors = [thing for thing in things if issubclass(thing, logdb.LogDBError)]
    assert len(errors) > 10
    assert all(isinstance(error.advice, logdb.Advice) for error in errors)
    drawn = __import__("logdb.errors").errors.__doc__
    assert all(error.__name__ in drawn for error in errors)


OTHER_NUMBERS = {"CRC", "RNG", "SHA", "UTF"}
"""Names of standards that look like families of invariants."""


def listed_invariants(text: str) -> dict[str, str]:
    """The invariants in ARCHITECTURE.md's list, each with the file that defines it."""
    listed = {}
    several = re.compile(r"([A-Z]{3,4})-(\d+)(?:\s(?:to|and)\s\1-(\d+))?\s\(`([\w/.]+)`\)")
    for family, first, last, path in several.findall(text):
        listed.update({f"{family}-{number}": path for number in range(int(first), int(last or first) + 1)})
    return listed


def numbers_in(path: Path) -> set[str]:
    found = re.findall(r"\b([A-Z]{3,4})-(\d+)\b", path.read_text())
    return {f"{family}-{number}" for family, number in found if family not in OTHER_NUMBERS}


def test_every_invariant_is_in_the_list_of_the_architecture() -> None:
    listed = listed_invariants((ROOT / "ARCHITECTURE.md").read_text().rpartition("## Invariants")[2])
    assert [name for name, path in listed.items() if name not in numbers_in(PACKAGE / path)] == []
    cited = {name for path in PACKAGE.rglob("*") if path.suffix in (".py", ".md") for name in numbers_in(path)}
    assert cited ^ listed.keys() == set()


def test_a_range_of_invariants_is_read_as_its_members() -> None:
    assert listed_invariants("A-1, ABC-1 to ABC-3 (`a/b.md`), XYZ-7 (`c.py`)") == {
        "ABC-1": "a/b.md",
        "ABC-2": "a/b.md",
        "ABC-3": "a/b.md",
        "XYZ-7": "c.py",
    }
