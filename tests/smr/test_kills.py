"""Processes with replicas are killed: each of their commands takes effect once, also if another process repeats it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from logdb import smr
from logdb.log.engine import ENGINES
from logdb.system.addresses import location_of
from tests.harness.clusters import Cluster
from tests.smr.machines import Journal

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = 5
KILLS = 2


@pytest.mark.parametrize("cluster", ENGINES[:1], indirect=True)
def test_a_killed_process_is_continued_by_another_one(cluster: Cluster) -> None:
    """Its commands are repeated under their ids: those before the kill, too."""
    address = location_of(cluster.ordering[0])
    reserved: dict[int, smr.CommandId] = {}
    results: dict[int, int] = {}
    at = 0
    with smr.connect(address, Journal()) as observer:
        for _ in range(KILLS):
            command = [sys.executable, "-m", "tests.smr.replica_process", address, str(at), str(at + 1_000)]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                try:
                    for line in process.stdout:
                        event, number, value = line.split()
                        at = int(number)
                        if event == "reserved":
                            reserved[at] = smr.CommandId.parse(value)
                            if len(reserved) % COMMANDS == 0:
                                break
                        else:
                            results[at] = int(value)
                finally:
                    process.kill()
            for number in list(reserved)[-3:]:
                result = int(observer.execute(b"%d" % number, command_id=reserved[number]))
                assert results.setdefault(number, result) == result
            at += 1
        entries = observer.query(lambda journal: list(journal.entries))
    assert entries == [str(number) for number in reserved]
    assert results == {number: place for place, number in enumerate(reserved, 1)}
