"""The benchmark of Ziplog runs, each part for a moment; figures that depend on time are not checked."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.ziplog.driver import InsertClient, Inserted, Load, counting_corrections, moments_of
from benchmarks.ziplog.epochs import epoch_cost
from benchmarks.ziplog.measuring import ENGINES


@pytest.mark.long
def test_every_part_runs_and_every_statement_has_a_verdict(tmp_path: Path) -> None:
    arguments = ["ziplog", "--quick", "--json", "--dir", str(tmp_path), "--to", str(tmp_path / "to")]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/ziplog.json").read_text())
    assert (tmp_path / "to/ziplog.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "to/ziplog.md").read_text()
    assert all(one["verdict"] in page for one in results["statements"])
    assert list(results["commits"]["steps"]) == list(ENGINES)
    assert all(0 <= one["fast_share"] <= 1 for one in results["points"])
    assert all(one["commits_per_s"] > 0 for one in results["increments"])
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "journals were left behind"


def test_an_insert_with_two_gsns_of_one_member_is_counted_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InsertClient, "inserted", lambda self, answer, sender: None)
    first, second, third = (Inserted(1, 1, 1, ((5, gsns),), False) for gsns in ((10, 11), (10, 12), (20, 21)))
    with counting_corrections() as corrected:
        client = InsertClient.__new__(InsertClient)
        for answer, sender in ((first, "a"), (first, "b"), (second, "b")):
            client.inserted(answer, sender)
        assert corrected == {(1, 6)}
        client.inserted(third, "a")
    assert corrected == {(1, 5), (1, 6)}


@pytest.mark.parametrize("gap_s", [0.0, 0.01])
def test_clients_insert_at_their_rate(gap_s: float) -> None:
    load = Load("", clients=2, rate=200, seconds=10.0, gap_s=gap_s)
    moments = moments_of(load, random.Random(1))
    assert len(moments) == pytest.approx(1_000, rel=0.1)
    assert moments == sorted(moments)
    assert 0 <= moments[0] < moments[-1] < 10


def test_an_epoch_is_sent_once_to_every_server() -> None:
    few, many = epoch_cost(2, epochs=2), epoch_cost(20, epochs=2)
    assert 10 * few.bytes < many.bytes < 100 * few.bytes
