"""The benchmark of Spark runs and says what it should; its timings are nobody's business here."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import spark


@pytest.mark.usefixtures("spark")
def test_it_measures_everything_and_writes_the_results(tmp_path: Path) -> None:
    scale = spark.Scale(rows=1_600, keys=100, rounds=1)
    said: list[str] = []
    figures = spark.measure(tmp_path, scale, said.append)
    assert {goal.name for goal in spark.GOALS} | {goal.than for goal in spark.GOALS} <= {one.name for one in figures}
    assert all(figure.seconds > 0 and figure.rows > 0 for figure in figures)
    assert all(figure.title in said for figure in figures)
    full, again = (pq.read_table(path, columns=["key", "version"]).to_pylist() for path in exports(tmp_path))
    assert full == again == sorted(full, key=lambda row: row["key"])
    assert len(full) == 100
    spark.write(figures, scale, tmp_path / "to")
    assert json.loads((tmp_path / "to" / "spark.json").read_text())["scale"]["rows"] == 1_600
    assert "goal: at most 0.5" in (tmp_path / "to" / "spark.md").read_text()
    assert spark.table(figures).row_count == len(figures)


def exports(folder: Path) -> list[Path]:
    """The full export and the incremental one: the last two that have a manifest."""
    made = sorted(folder.glob("export-*"), key=lambda path: int(path.name.split("-")[1]))
    return [path for path in made if (path / "_manifest.json").exists()][-2:]
