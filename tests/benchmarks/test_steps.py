"""The benchmark of steps runs, and its counts fit together; figures that depend on time are not checked."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import steps
from benchmarks.__main__ import main
from benchmarks.counted import Counts, counting
from logdb.log.engine import ENGINES
from logdb.transport.peers import Port


@pytest.mark.parametrize(("engine", "nodes"), [(ENGINES[0], "3"), (ENGINES[1], "")])
def test_the_steps_of_a_commit_and_a_get_are_counted(tmp_path: Path, engine: str, nodes: str) -> None:
    arguments = ["steps", "--engine", engine, *(["--nodes", nodes] if nodes else []), "--quick", "--json"]
    done = CliRunner().invoke(
        main, [*arguments, "--dir", str(tmp_path), "--to", str(tmp_path / "to")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    name = f"steps-{engine}" + (f"-{nodes}-nodes" if nodes else "")
    assert results == json.loads((tmp_path / f"to/{name}.json").read_text())
    page = (tmp_path / f"to/{name}.md").read_text()
    places = (", asked at another node", ", asked at the leader's node") if nodes else ("",)
    operations = [
        *[f"{kind}{place}" for kind in ("A commit", "A get") for place in places],
        "A second without operations",
    ]
    assert [each["operation"] for each in results["steps"]] == operations
    assert page.count("\n## ") == len(operations)
    for each in results["steps"]:
        hops: Counter[str] = Counter()
        for hop in each["hops"]:
            hops[hop["kind"]] += hop["messages"]
        total = each["work"]["all"]
        sent = sum([hop["messages"] for hop in each["hops"] if not hop["is_call"]])
        assert sent == pytest.approx(total["sent"]), "messages of one operation are counted differently in its tables"
        assert total["cpu_us"] > 0
        assert total["wakeups"] <= total["turns"]
        if each["operation"].startswith("A get"):
            assert min(hops["Reads"], hops["Answers"]) >= 1
        elif each["operation"].startswith("A commit"):
            assert min(hops["AwaitVerdicts"], hops["Verdicts"]) >= 1
            assert total["syncs"] >= 2, "a commit is durable on two servers"
            assert total["writes"] >= 3
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "journals were left behind"


def test_counts_are_subtracted_and_written() -> None:
    key, other = ("Append", "a", "b"), ("Report", "b", "c")
    before = Counts({key: 1}, {}, 1, 2, 3, 4, 5, 6, 7)
    after = Counts({key: 4, other: 2}, {other: 1}, 11, 12, 13, 14, 15, 16, 17)
    assert after - before == Counts({key: 3, other: 2}, {other: 1}, *[10] * 7)
    assert Counts.from_json(after.to_json()) == after


def test_counting_ends(tmp_path: Path) -> None:
    send, sync = Port.send, os.fdatasync
    with (tmp_path / "file").open("wb") as file:
        with counting() as counts:
            os.fdatasync(file.fileno())
            assert Port.send is not send
        os.fdatasync(file.fileno())
    assert counts.now().syncs == 1
    assert (Port.send, os.fdatasync) == (send, sync)


def test_a_message_within_a_node_is_a_call() -> None:
    assert steps.is_call("127.0.0.1:1/ordering", "127.0.0.1:1/storage")
    assert not steps.is_call("127.0.0.1:1/ordering", "127.0.0.1:2/ordering")
    assert not steps.is_call("client-1", "client-1")
