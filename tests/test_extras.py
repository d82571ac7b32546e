"""An extra installs all modules that it imports: no import needs another extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement

from tests.test_house import ROOT

NEEDS = {
    "": ["logdb", "logdb.aio", "logdb.log", "logdb.api.inspection", "logdb_cli.commands"],
    "cluster": ["logdb.clients.connecting", "logdb.node.process", "logdb.server.process", "examples.marketplace"],
    "dashboard": ["logdb.dashboard.hosting"],
    "spark": ["logdb_spark", "spark_export", "spark_export.cluster_source", "spark_export.server_source"],
    "delta": ["spark_export.delta", "deltalake"],
    "flights": ["examples.flights"],
    "docs": ["pdoc", "logdb_spark"],
}
"""The modules that must be importable with an extra; they import the rest."""

IMPORT = """
import importlib, sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for name in {modules!r}:
    importlib.import_module(name)
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """Of LogDB those that it declares now, of others those that they were installed with."""
    if name == "logdb":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        extra = [each for name in extras for each in project["optional-dependencies"][name]]
        return [Requirement(each) for each in (*project["dependencies"], *extra)]
    try:
        found = requires(name) or []
    except PackageNotFoundError:  # not for this system
        return []
    return [
        each
        for each in map(Requirement, found)
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in {"", *extras})
    ]


def brought(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """The distributions that come with one, by their normal names."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    yield name
    for each in requirements(name, extras):
        yield from brought(normal(each.name), frozenset(each.extras), seen)


@pytest.mark.parametrize("extra", NEEDS)
def test_an_extra_brings_what_it_needs(extra: str) -> None:
    here = set(brought("logdb", frozenset({extra} - {""}), set()))
    absent = {
        package
        for package, distributions in packages_distributions().items()
        if not here & {normal(distribution) for distribution in distributions}
    }
    assert "pytest" in absent
    program = IMPORT.format(absent=absent, modules=NEEDS[extra])
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
