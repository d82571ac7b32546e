"""The long load and the trial of designs run and report all figures; timings are not checked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import counters, long_load, map_designs
from benchmarks.__main__ import main
from benchmarks.counters import MIB
from benchmarks.fresh import CHECKOUT, key_of
from benchmarks.loading import shuffled, value_of
from benchmarks.long_load import Load, Phase

PHASES = ("load", "overwrite", "delete", "compact", "after")


def test_a_quick_run_measures_every_engine(tmp_path: Path) -> None:
    arguments = [
        "long-load",
        "--quick",
        "--json",
        "--order",
        "random",
        "--dir",
        str(tmp_path),
        "--to",
        str(tmp_path / "to"),
    ]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results, written = json.loads(done.stdout), json.loads((tmp_path / "to/long-load.json").read_text())
    assert (results["loads"], results["aims"]) == (written["loads"], written["aims"])
    assert [load["engine"] for load in results["loads"]] == list(long_load.ENGINES)
    for load in results["loads"]:
        assert set(load["phases"]) == set(PHASES), load["engine"]
        assert all(load["phases"][name]["written"] > 0 for name in ("load", "overwrite"))
        assert load["phases"]["overwrite"]["gets"] > 0
        assert 0 < load["compacted"] <= load["largest"]
        assert 0 < load["anonymous_mib"] <= load["all_mib"]
        assert load["open_after_kill_s"] > 0
    assert len(results["aims"]) == 8
    page = (tmp_path / "to/long-load.md").read_text()
    assert "## 5,000 keys, random" in page
    assert (tmp_path / "to/long-load-5000-random.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the databases were left behind"


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "long-load", "--keys", "1000000", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while not list(tmp_path.rglob("db")) and process.poll() is None:
            time.sleep(0.01)
        assert _mentioning(tmp_path) - {process.pid}
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Traceback" not in output
    assert list(tmp_path.iterdir()) == []
    assert not _mentioning(tmp_path)


def test_an_engine_ends_with_the_benchmark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "long-load", "--keys", "1000000", "--dir", str(tmp_path)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not list(tmp_path.rglob("db")) and process.poll() is None:
            time.sleep(0.01)
        process.kill()
    while _mentioning(tmp_path):
        time.sleep(0.01)


def _mentioning(path: Path) -> set[int]:
    """The processes that have the path among their arguments."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(os.fsencode(path)) for word in words):
            found.add(int(entry.name))
    return found


def load(engine: str, order: str = "random", keys: int = 1_000_000, **changes: Any) -> Load:
    """A load that meets every target."""
    written = keys * long_load.ROW_BYTES
    phase = Phase(keys, 10.0, 5.0, written, 0.1, 0.01, 1.0, 1.0, [(1.0, 2.0, 0.1)])
    data = (keys - keys // 2) * long_load.ROW_BYTES
    phases = dict.fromkeys(PHASES, phase._replace(seconds=20.0 if engine != "LogDB" else 10.0))
    return Load(engine, keys, order, phases, 1.0, 1.0, 1.0, 9 * data, data, 100.0, 200.0, [])._replace(**changes)


def missed(*loads: Load) -> list[str]:
    return [aim.title.split(": ")[1] for aim in long_load.aims(loads) if not aim.met]


def test_a_missed_target_is_reported() -> None:
    peers = [load(name) for name in long_load.ENGINES if name != "LogDB"]
    assert missed(load("LogDB"), *peers) == []
    slow = load("LogDB")
    phases = {
        name: phase._replace(seconds=41.0, written=phase.written * 7, worst_s=0.6)
        for name, phase in slow.phases.items()
    }
    changes = {"phases": phases, "open_after_kill_s": 6.0, "anonymous_mib": 700.0, "compacted": slow.compacted * 3}
    aims = long_load.aims([slow._replace(**changes), *peers])
    assert not any(aim.met for aim in aims)
    assert len(aims) == 8
    assert all(str(aim).endswith(": NO") for aim in aims)


@pytest.mark.parametrize(
    ("keys", "order", "limit"),
    [(1_000_000, "random", 6), (5_000_000, "random", 6), (20_000_000, "random", 12), (20_000_000, "sequential", 4)],
)
def test_how_much_may_be_written_depends_on_the_keys(keys: int, order: str, limit: float) -> None:
    aims = long_load.aims([load("LogDB", order, keys)])
    assert aims[0].bound == limit
    assert len(aims) == 5, "without peers there is nothing to compare with"


def test_shuffled_numbers_come_once_each_and_in_disorder() -> None:
    for count in (1, 2, 3, 1_000, 1_024):
        assert sorted(shuffled(count, 1)) == list(range(count))
    assert list(shuffled(1_000, 1)) != list(shuffled(1_000, 2))
    numbers = list(shuffled(1_000, 1))
    ascents = sum(one < other for one, other in pairwise(numbers))
    assert 400 < ascents < 600


def test_values_name_their_keys_and_change() -> None:
    one, other = value_of(7), value_of(7)
    assert one.startswith(key_of(7))
    assert (len(one), one != other) == (100, True)


# ---- the trial of designs


def test_every_design_is_tried(tmp_path: Path) -> None:
    arguments = [
        "map-designs",
        "--keys",
        "1000",
        "--batch",
        "100",
        "--json",
        "--dir",
        str(tmp_path),
        "--to",
        str(tmp_path / "to"),
    ]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    trials = json.loads(done.stdout)
    assert [trial["design"] for trial in trials] == list(map_designs.DESIGNS)
    assert all(trial["overwrite_written"] > 0 and trial["space"] > 0 and trial["gets"] > 0 for trial in trials)
    assert sum(line.startswith("| ") for line in (tmp_path / "to/map-designs.md").read_text().splitlines()) == 6
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the files were left behind"


@pytest.mark.parametrize("design", map_designs.DESIGNS)
def test_a_design_answers_as_a_dictionary_does(design: str, tmp_path: Path) -> None:
    log = map_designs.Log(tmp_path / "log")
    kind, _ = map_designs.DESIGNS[design]
    tables, truth = kind(tmp_path / "map", log, 3), dict[bytes, bytes]()
    for number in range(30):
        pairs = {key_of(key): b"%d-%d" % (number, key) for key in shuffled(50, number) if key % 3 == number % 3}
        truth.update(pairs)
        tables.write(sorted(log.append(list(pairs.items()))))
    assert all(tables.get(key) == value for key, value in truth.items())
    rows = sorted(truth.items())
    for begin in (0, 17, 48, 50):
        assert tables.scan(key_of(begin), 5) == rows[begin : begin + 5]


# ---- what the system counts


def test_written_bytes_are_counted_once(tmp_path: Path) -> None:
    """With large folios, `/proc/self/io` counts 2 MiB for each of these pages."""
    if counters.disk_statistics(tmp_path) is None:
        return
    file, pages = tmp_path / "file", 64
    file.write_bytes(random.randbytes(64 * MIB))
    least = min(overwritten(file, pages) for _ in range(5))  # others may write to the same disk meanwhile
    assert pages * 4096 <= least < 16 * pages * 4096


def overwritten(file: Path, pages: int) -> int:
    """Bytes written for this number of pages of 4 KiB spread over the file."""
    before = counters.written_bytes(file.parent)
    fd = os.open(file, os.O_RDWR)
    for number in range(pages):
        os.pwrite(fd, random.randbytes(4096), number * MIB)
    os.close(fd)
    return counters.written_bytes(file.parent) - before


def test_disk_and_memory_are_counted(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_bytes(random.randbytes(MIB))
    assert MIB <= counters.disk_bytes(tmp_path) < 2 * MIB
    held = counters.memory(os.getpid())
    assert 1 < held.anonymous < held.all
