"""Checks of the machines' configuration without machines. `python -m tests.machines` creates them, which needs root."""

from __future__ import annotations

import os
import shutil

import pytest

from logdb.node.config import ClusterFile
from tests.machines import __main__ as machines


def test_what_a_computer_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "nsenter" else f"/usr/bin/{tool}")
    assert machines.main() == 2
    assert capsys.readouterr().err == (
        "error: machines of its own need nsenter, root, which this computer does not give\n"
    )


def test_they_start_what_the_unit_says() -> None:
    for role, name in ClusterFile(machines.EXAMPLE / "cluster.toml").servers:
        words = machines.of_unit("ExecStart", role, name)
        assert words == ["serve", role, "--config", str(machines.ETC / "cluster.toml"), "--name", name]
