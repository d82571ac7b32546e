"""The mixed run ends, and distinguishes growth from fluctuation."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import mixed
from benchmarks.__main__ import main
from benchmarks.mixed import MIX, Mixed, Sample
from logdb.embedded.commits import Commits


def judged(tmp_path: Path, *options: str) -> dict[str, Any]:
    """A short run; its latencies are not checked."""
    arguments = ["mixed", "--minutes", "0.04", "--keys", "200", "--json", *options]
    done = CliRunner().invoke(main, [*arguments, "--dir", str(tmp_path), "--to", str(tmp_path / "to")])
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert (done.exit_code == 1) == any(trend["grows"] for trend in result["trends"])
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the database was left behind"
    return result


@pytest.mark.parametrize("where", mixed.WHERE)
def test_a_run_ends_and_reports_memory_disk_and_latency(where: str, tmp_path: Path) -> None:
    result = judged(tmp_path, "--where", where)
    assert result["operations"]["compaction"] > 0
    assert result["operations"]["transaction"] > 0
    assert len(result["samples"]) > 1
    assert all(sample["anonymous"] > 1 and sample["disk"] > 0 for sample in result["samples"])
    assert result["trends"][0]["title"].startswith("anonymous memory")
    assert json.loads((tmp_path / f"to/mixed-{where}.json").read_text()) == result
    assert (tmp_path / f"to/mixed-{where}.png").read_bytes().startswith(b"\x89PNG")


def test_a_planted_leak_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []
    submit = Commits.submit

    begun = time.monotonic()

    def leaking(*arguments: Any, **options: Any) -> Any:
        while len(kept) < 200 * (time.monotonic() - begun):  # 40 MB/s, however busy the machine is
            kept.append(b"x" * 200_000)
        return submit(*arguments, **options)

    monkeypatch.setattr(Commits, "submit", leaking)
    memory = judged(tmp_path)["trends"][0]
    assert memory["grows"], memory
    assert kept


def samples(memory: float = 0, disk: float = 0, latency: float = 0) -> list[Sample]:
    """Ten minutes of sawteeth and noise, with the given growth per minute."""
    draw = random.Random(1)
    return [
        Sample(
            second,
            50 + second % 23 + memory * second / 60,
            200.0,
            100 + second % 20 + disk * second / 60,
            {kind: (draw.uniform(1, 3) + latency * second / 60, 9.0) for kind in MIX},
        )
        for second in range(600)
    ]


def growing(**growth: float) -> list[str]:
    return [trend.title for trend in Mixed("embedded", 10, {}, samples(**growth)).trends if trend.grows]


def test_fluctuation_is_level() -> None:
    assert growing() == []
    assert growing(memory=-5, disk=-9, latency=-0.1) == []


def test_growth_is_reported() -> None:
    assert growing(memory=2) == ["anonymous memory, MiB"]
    assert growing(disk=5) == ["disk, MiB"]
    assert growing(latency=5) == [f"p99 of {kind}, ms" for kind in MIX]


def test_only_the_second_half_counts() -> None:
    warming = [sample._replace(anonymous=min(sample.anonymous, sample.at)) for sample in samples()]
    assert not any(trend.grows for trend in Mixed("embedded", 10, {}, warming).trends)


def test_too_short_a_run_has_no_trend() -> None:
    assert not any(trend.grows for trend in Mixed("embedded", 10, {}, samples()[-1:]).trends)
