"""The benchmark of Spark runs and reports all figures; timings are not checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks import spark


@pytest.mark.long
@pytest.mark.usefixtures("spark")
def test_it_measures_everything_and_writes_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARTITION_MIB", "PARTS_OF_THE_LOG"):
        monkeypatch.setattr(spark, name, getattr(spark, name)[-1:])
    scale = spark.Scale(rows=1_600, keys=100, cores=2, rounds=1)
    progress: list[str] = []
    figures = spark.measure(tmp_path, scale, progress.append)
    assert {goal.name for goal in spark.GOALS} | {goal.than for goal in spark.GOALS} <= {one.name for one in figures}
    assert all(figure.median > 0 and figure.rows > 0 for figure in figures)
    assert all(f"round 1 of 1: {figure.title}" in progress for figure in figures)
    full, again, plain = (newest(tmp_path / name) for name in ("export", "export-incremental", "fold"))
    assert full == again == plain == sorted(full, key=lambda row: row["key"])
    assert full == sorted(newest(tmp_path / "parquet-newest"), key=lambda row: row["key"])
    assert len(full) == 100
    spark.write(figures, scale, tmp_path / "to")
    assert json.loads((tmp_path / "to" / "spark.json").read_text())["scale"]["rows"] == 1_600
    assert "at most 0.5" in (tmp_path / "to" / "spark.md").read_text()
    assert (tmp_path / "to" / "spark.png").stat().st_size > 0
    assert spark.table(figures).row_count == len(figures)


@pytest.mark.parametrize(
    ("seconds", "verdict"), [((3.0, 9.0), "2.00 (1.00 to 3.00), at most 3: met"), ((30.0, 30.0), "MISSED")]
)
def test_a_goal_is_met_or_missed_by_the_median_of_its_ratios(seconds: tuple[float, ...], verdict: str) -> None:
    others = {goal.name for goal in spark.GOALS} | {goal.than for goal in spark.GOALS}
    few = {goal.name + spark.FEW for goal in spark.GOALS} | {goal.than + spark.FEW for goal in spark.GOALS}
    figures = [spark.Figure(name, name, (3.0, 3.0), 1, 0, 0) for name in others - {"scan"} | few]
    found = spark.verdicts([*figures, spark.Figure("scan", "scan", seconds, 1, 0, 0)])[0]
    assert verdict in str(found)


def test_the_fixed_start_of_a_stream_is_left_out() -> None:
    seconds = {"feed": 3.0, "feed-stream": 9.0, "feed-few": 1.0, "feed-stream-few": 5.0}
    others = {goal.name for goal in spark.GOALS} | {goal.than for goal in spark.GOALS}
    figures = [spark.Figure(name, name, (seconds.get(name, 1.0),), 1, 0, 0) for name in others | set(seconds)]
    verdict = next(verdict for verdict in spark.verdicts(figures) if verdict.goal.name == "feed-stream")
    assert verdict.ratio == (9 - 5) / (3 - 1)
    assert verdict.title.endswith("for each row more")


def newest(folder: Path) -> list[dict[str, Any]]:
    """The rows of Parquet files, in the order of their names."""
    files = sorted(folder.glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=["key", "value", "version"]).to_pylist()]
