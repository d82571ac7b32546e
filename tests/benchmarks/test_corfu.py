"""The benchmark of Corfu runs, each part for a moment; figures that depend on time are not checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.corfu.effort import CORFU, SCALOG
from benchmarks.corfu.objects import ONE_SHARD
from benchmarks.corfu.pauses import Pauses
from benchmarks.statements import Statement
from benchmarks.timelines import Event, Timeline
from logdb.log.engine import ENGINES


@pytest.mark.long
def test_every_part_runs_and_every_statement_has_a_verdict(tmp_path: Path) -> None:
    arguments = ["corfu", "--quick", "--json", "--dir", str(tmp_path), "--to", str(tmp_path / "to")]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/corfu.json").read_text())
    assert (tmp_path / "to/corfu.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "to/corfu.md").read_text()
    assert results["statements"]
    assert all(one["verdict"] in page for one in results["statements"])
    assert {one["engine"] for one in results["scaling"]} == {CORFU, SCALOG}
    assert [one["engine"] for one in results["stores"]][: len(ENGINES)] == list(ENGINES)
    assert [one["system"] for one in results["objects"]] == list(ONE_SHARD)
    assert all(one["tokens_per_s"] > 0 for one in results["tokens"])
    assert all(one["executed_per_s"] >= 0 for one in results["machines"])
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "journals were left behind"


def pauses(acked: list[float], took: list[tuple[float, float]]) -> Pauses:
    events = [Event("shard added", 2.0, 2.1), Event("server replaced", 6.0, 6.0)]
    return Pauses(CORFU, Timeline("", 10.0, 10.0, events, [], acked, 0, 0), took)


def test_the_gap_of_an_event_is_the_longest_one_during_it_or_shortly_after() -> None:
    found = pauses([0.5, 0.6, 1.5, 2.5, 3.0, 6.5, 9.0, 10.0], [])
    assert found.calm_gap_s() == 0.9
    assert found.gap_s("shard added") == 3.5
    assert found.gap_s("server replaced") == 2.5


def test_the_slowest_append_of_an_event_was_under_way_then_or_began_shortly_after() -> None:
    found = pauses([], [(0.0, 1.9), (1.9, 0.3), (3.0, 0.2), (3.5, 1.0), (5.9, 0.05)])
    assert found.slowest_s("shard added") == 0.3
    assert found.slowest_s("server replaced") == 0.0


def test_a_statement_that_differs_says_why() -> None:
    assert Statement("", "", "", True, "noise").verdict == "agrees"
    assert Statement("", "", "", False, "noise").verdict == "differs; supposed cause: noise"
    assert Statement("", "", "", False, "").verdict == "differs; the cause is unknown"
