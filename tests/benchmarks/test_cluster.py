"""The benchmarks of a cluster run, each part for a moment; and the figures computed from their measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import cluster, hops
from benchmarks.__main__ import main
from benchmarks.servers.cluster import MultiPaxosNodes, ScalogNodes
from benchmarks.timelines import Event, Timeline
from benchmarks.traced import Note
from logdb.log.engine import ENGINE_OF_NODES


def quick(tmp_path: Path, part: str) -> Any:
    arguments = ["cluster", part, "--quick", "--json", "--dir", tmp_path, "--to", tmp_path / "to"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)[part]
    assert results == json.loads((tmp_path / f"to/cluster-{part}.json").read_text())
    assert (tmp_path / f"to/cluster-{part}.md").read_text().startswith("# ")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "journals were left behind"
    return results


def test_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SERVERS", (MultiPaxosNodes, ScalogNodes))
    results = quick(tmp_path, "served")
    assert {each["server"] for each in results["measured"]} == {"LogDB, 3 nodes, multipaxos", "LogDB, 3 nodes, scalog"}
    assert all(rate > 0 for each in results["measured"] for rate in each["rates"])
    assert (tmp_path / "to/cluster-served.png").read_bytes().startswith(b"\x89PNG")


def test_cost(tmp_path: Path) -> None:
    results = quick(tmp_path, "cost")
    assert [each["clients"] for each in results] == [1, 8, 64]
    assert set(results[0]["cpu_us"]) == {"ordering", "storage", "mapping", "client"}


def test_hops(tmp_path: Path) -> None:
    results = quick(tmp_path, "hops")
    assert 0 < results["commits"] <= 20
    assert set(results["hops"]) == {hop.name for hop in hops.HOPS}
    assert all(us > 0 for us in results["hops"].values())
    assert results["ratio"] > 0


def test_the_leader_is_killed(tmp_path: Path) -> None:
    results = quick(tmp_path, "leader")
    assert [event["what"] for event in results["events"]] == ["ordering leader killed"]
    assert results["acked"] == results["issued"] > 0
    assert results["failed"] == results["lost"] == 0
    assert (tmp_path / "to/cluster-leader.png").read_bytes().startswith(b"\x89PNG")


def test_a_node_is_killed(tmp_path: Path) -> None:
    results = quick(tmp_path, f"node-{ENGINE_OF_NODES}")
    assert [event["what"] for event in results["events"]] == ["leader's node killed"]
    assert results["lost"] == 0
    assert (tmp_path / f"to/cluster-node-{ENGINE_OF_NODES}.png").read_bytes().startswith(b"\x89PNG")


def test_shards_are_added_and_finalized(tmp_path: Path) -> None:
    results = quick(tmp_path, "shards")
    assert [event["what"] for event in results["events"]] == ["shard added", "shard finalized"]
    assert results["acked"] == results["issued"] > 0
    assert results["failed"] == results["lost"] == 0


# ---- what is computed


def test_every_part_can_be_selected() -> None:
    (parts,) = [each for each in main.commands["cluster"].params if each.name == "parts"]
    assert list(parts.type.choices) == list(cluster.PARTS)


STALL = Event("a stall", 2.0, 2.1)


def steady(stall_s: float, seconds: float = 6.0) -> Timeline:
    """100 a second, each acknowledged after 10 ms, or after the stall in which it would fall."""
    issued = [number / 100 for number in range(int(seconds * 100))]
    acked = [at + 0.01 for at in issued]
    end = STALL.happened + stall_s
    acked = [end + (at - 2.0) / 100 if STALL.happened < at < end else at for at in acked]
    return Timeline("", 100.0, seconds, [STALL], issued, acked, 0, 0)


def test_a_stall_is_measured() -> None:
    stalled, calm = steady(0.5), steady(0.0)
    assert stalled.silence_s(STALL) == pytest.approx(0.5, abs=0.02)
    assert calm.silence_s(STALL) == pytest.approx(0.01, abs=0.005)
    assert stalled.caught_up_s(STALL) == pytest.approx(0.6, abs=0.11)
    assert calm.caught_up_s(STALL) == pytest.approx(0.1, abs=0.11)
    later = [at + 0.5 if 4.0 < at < 4.5 else at for at in stalled.acked]
    assert stalled._replace(acked=sorted(later)).caught_up_s(STALL) == stalled.caught_up_s(STALL), "another stall"
    assert sum(stalled.rates()) == sum(calm.rates())
    assert min(stalled.rates()[21:25]) == 0.0


def test_a_dip_is_distinguished_from_noise() -> None:
    calm = steady(0.0)
    assert abs(calm.deviation(STALL)) < 3
    dipped = calm._replace(acked=[at for at in calm.acked if not 2.0 < at < 3.0 or round(at * 100) % 2])
    assert dipped.deviation(STALL) < -10


def notes_of_a_commit() -> dict[str, list[Note]]:
    """Each hop takes 10 ns; there are heartbeats and notes of another commit around it."""
    seen = """
        client   10 sent P Append    220 came M Verdicts
        s1        5 flushes          20 came C Append      25 flushed    30 flushes    40 flushed
                 41 sent L Report    50 sent B Replicate  180 came L Updates  190 sent M Pulled
        s2       60 came P Replicate 70 flushes            80 flushed    90 sent L Report
        o1       45 came P Report   100 came B Report     110 sent F Accept
                160 came F Accepted 170 sent P Updates    175 sent B Updates
        o2      120 came L Accept   130 flushes           140 flushed   150 sent L Accepted
        m1      200 came P Pulled   210 sent C Verdicts   300 came P Pulled
    """
    notes: dict[str, list[Note]] = {}
    words = seen.split()
    while words:
        if not words[0].isdigit():
            ones = notes[words.pop(0)] = []
        at, what = int(words.pop(0)), words.pop(0)
        ones.append(Note(at, what) if what.startswith("flush") else Note(at, what, words.pop(0), words.pop(0)))
    return notes


NAMES = {"P": "s1", "B": "s2", "L": "o1", "F": "o2", "M": "m1"}


def test_the_hops_of_a_commit_are_found() -> None:
    moments = hops.way(hops.Log(notes_of_a_commit(), NAMES), "o1", 0, 230)
    assert moments == list(range(0, 240, 10))
    assert len(moments) == len(hops.HOPS) + 1


def test_a_commit_with_missing_hops_is_left_out() -> None:
    notes = notes_of_a_commit()
    found = hops.split(hops.Log(notes, NAMES), "o1", [(0, 230), (400, 500)], [100.0], [200.0])
    assert (found.commits, found.hops) == (1, [0.01] * len(hops.HOPS))
    assert found.bare_us == 8 * 100 + 3 * 200
    del notes["o2"][0]
    with pytest.raises(RuntimeError, match="no commit could be followed"):
        hops.split(hops.Log(notes, NAMES), "o1", [(0, 230)], [1.0], [1.0])
