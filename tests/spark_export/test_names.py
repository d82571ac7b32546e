"""The package has two names, and says what is missing to import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import logdb_spark
import spark_export

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
try:
    import logdb_spark
except ModuleNotFoundError as error:
    print(error.name, error)
"""


def test_both_names_have_the_same_things() -> None:
    assert logdb_spark.__all__ == spark_export.__all__
    for name in spark_export.__all__:
        assert getattr(logdb_spark, name) is getattr(spark_export, name)


@pytest.mark.parametrize("absent", ["pyarrow", "numpy"])
def test_a_missing_extra_is_named(absent: str) -> None:
    program = WITHOUT.format(absent=absent)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert done.stdout.startswith(absent)
    assert "logdb_spark needs" in done.stdout
    assert "pip install 'logdb[spark]'" in done.stdout


def test_a_missing_module_of_its_own_is_no_missing_extra() -> None:
    program = WITHOUT.format(absent="spark_export")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "spark_export No module named 'spark_export'\n"
