"""The wheel has all files of the packages, and works without the checkout once it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = {"logdb": "logdb", "logdb_cli": "cli", "logdb_spark": "logdb_spark", "spark_export": "spark_export"}
NEWER = ("python3.12", "python3.13")

USE = """
import sys
site, data = sys.argv[1:]
sys.path.insert(0, site)
import logdb, logdb_cli, logdb_spark, spark_export
assert all(one.__file__.startswith(site) for one in (logdb, logdb_cli, logdb_spark, spark_export))
from importlib.metadata import distribution
(command,) = distribution("logdb").entry_points.select(group="console_scripts", name="logdb")
sys.argv[:] = ["logdb", "--db", data, "put", "k", "v"]
command.load()()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of a wheel that is built from a copy: building leaves files in the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS.values():
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    (wheel,) = copy.glob("*.whl")
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def test_it_has_all_files_of_the_packages(site: Path) -> None:
    for package, folder in FOLDERS.items():
        files = [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()]
        files = [path for path in files if path.suffix != ".pyc"]
        assert [str(path) for path in files if not (site / package / path).exists()] == []


def test_it_has_nothing_else(site: Path) -> None:
    (metadata,) = site.glob("*.dist-info")
    assert {path.name for path in site.iterdir()} == {*FOLDERS, metadata.name}
    assert (metadata / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    said = message_from_string((metadata / "METADATA").read_text())
    assert said["Requires-Python"] == PROJECT["project"]["requires-python"]


def test_what_is_installed_from_it_works(site: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE, str(site), str(tmp_path / "data")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "version 1\n"), done.stderr


def test_newer_interpreters_compile_it(site: Path, tmp_path: Path) -> None:
    """As far as this machine has them."""
    for python in filter(None, map(shutil.which, NEWER)):
        if subprocess.run([python, "-V"], check=False, capture_output=True).returncode:
            continue  # a shim of pyenv for a version that is not active
        target = tmp_path / Path(python).name
        shutil.copytree(site, target)
        subprocess.run([python, "-m", "compileall", "-q", target], check=True)
