"""The errors of `logdb serve ROLE`: one line, and an exit code by which a supervisor can decide."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

from logdb.cores.effects import ProtocolViolation
from logdb.errors import DatabaseInUse, Unavailable
from logdb.log.contract import LogFailed
from logdb.node.storage import DamagedJournals
from logdb.system.logging_setup import Pairs

CONFIG = '[cluster]\nname = "demo"\n[ordering.o1]\nlisten = "127.0.0.1:7401"\n'
ENDS = {
    "a taken address": (Unavailable("cannot listen at 127.0.0.1:7401: Address already in use"), 3, "in use"),
    "a taken directory": (DatabaseInUse("data/o1", "process 7"), 3, "data/o1 is open for writing by process 7"),
    "a failed disk": (LogFailed("d/x: Input/output error"), 3, "o1: its disk failed (d/x: Input/output error)"),
    "a disk that fails early": (OSError(5, "Input/output error", "d/x"), 3, "disk failed (d/x: Input/output error; "),
    "damage": (DamagedJournals("data/o1/journals/x is damaged at byte 8: no"), 4, "is damaged at byte 8"),
    "a contradiction": (ProtocolViolation("SCA-3: a link\nthat does not link"), 4, "SCA-3: a link that does not link"),
    "an assertion": (AssertionError(), 4, "ordering o1 has stopped in an impossible state (an assertion)"),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    error, code, what = ENDS[end]

    async def serve(*_: Any) -> None:
        raise error

    monkeypatch.setattr("logdb.node.process.serve", serve)
    monkeypatch.setattr("logdb_cli.servers.log_to_stderr", lambda name: None)
    (tmp_path / "c.toml").write_text(CONFIG)
    done = CliRunner().invoke(cli, ["serve", "ordering", "--config", str(tmp_path / "c.toml"), "--name", "o1"])
    assert done.exit_code == code
    assert done.stderr.startswith("error: ")
    assert what in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_line_of_the_log() -> None:
    record = logging.LogRecord("logdb.transport", logging.WARNING, "", 0, "peer %s", ("not reached",), None)
    record.created = 1_795_266_307.1234
    record.peer, record.why = "127.0.0.1:7401", 'it said "no"'
    assert Pairs("s1").format(record) == (
        'time=2026-11-21T13:05:07.123Z level=warning server=s1 event="peer not reached" peer=127.0.0.1:7401 '
        'why="it said \\"no\\""'
    )
