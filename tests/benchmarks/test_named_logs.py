"""The benchmark of named logs runs, with the servers that are installed; timings are not checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from benchmarks import named_logs
from benchmarks.__main__ import main

ABSENT = "logdb-no-such-program"
WAIT_S = 20


class Lossy:
    """A stream whose followers lose their first cancellation, as a client loses one that comes while it leaves
    `asyncio.wait_for` (before Python 3.12). `failure`: of an append; then none is lost."""

    name: ClassVar[str] = "lossy"
    program = ABSENT

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self._entries = asyncio.Queue[bytes]()

    async def start(self, directory: Path) -> None: ...

    async def append(self, entry: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self._entries.put_nowait(entry)

    async def follow(self, begun: Callable[[], object]) -> AsyncGenerator[bytes]:
        begun()
        has_lost = self.failure is not None
        while True:
            try:
                entry = await self._entries.get()
            except asyncio.CancelledError:
                if has_lost:
                    raise
                has_lost = True
            else:
                yield entry

    async def begin_to_consume(self) -> None: ...
    async def consume(self, count: int) -> None: ...
    async def stop(self) -> None: ...


def test_a_follower_that_loses_its_cancellation_is_ended() -> None:
    """The benchmark cancelled a follower of Redis once, and waited for its end without a limit."""

    async def measured() -> None:
        measuring = asyncio.create_task(named_logs.latencies(Lossy(), 2))
        await asyncio.wait((measuring,), timeout=WAIT_S)
        assert measuring.done(), "the benchmark waits for a follower that has lost its cancellation"
        assert len(measuring.result()) == 2

    asyncio.run(measured())


def test_no_follower_survives_an_append_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_logs, "SUBSCRIBERS", 3)

    async def failed() -> None:
        with pytest.raises(RuntimeError, match="the disk is full"):
            await named_logs.fan_out(Lossy(RuntimeError("the disk is full")), 1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(failed())


def test_a_quick_run_measures_the_installed_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_logs, "SUBSCRIBERS", 3)
    arguments = ["named-logs", "--quick", "--json", "--nats-server", ABSENT, "--dir", str(tmp_path)]
    done = CliRunner().invoke(main, [*arguments, "--to", str(tmp_path / "to")])
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads(done.stdout)
    assert results == json.loads((tmp_path / "to/named-logs.json").read_text())
    assert "NATS JetStream" in results["absent"]
    assert "NATS JetStream was left out" in (tmp_path / "to/named-logs.md").read_text()
    figures = [each["figure"] for each in results["measured"] if each["server"] == "LogDB"]
    assert len(figures) == len(set(figures)) == 6
    assert all(value > 0 for each in results["measured"] for value in each["values"])
    assert (tmp_path / "to/named-logs.png").read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [tmp_path / "to"], "the logs were left behind"
