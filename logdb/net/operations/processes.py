"""The servers of a cluster file that run on this machine: who runs, starting some, ending some.

Who runs is told by the lock of a server's directory, which names its process and goes with it; nothing is noted down
that could be out of date.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from logdb.directories import holding_process
from logdb.errors import Unavailable
from logdb.net.config import AnyServerConfig
from logdb.net.loops import in_shared_loop
from logdb.net.operations.asking import ask
from logdb.net.operations.layout import Layout
from logdb.net.security.credentials import Credentials

POLL_S: Final = 0.05
START_S: Final = 120.0
"""So long a server may take to be ready; it can have much to replay."""
STOP_S: Final = 20.0

Tick = Callable[[int, int], None]
"""(done, of how many)"""


def running(servers: Iterable[AnyServerConfig]) -> dict[str, int]:
    """The processes of those that run here, by name."""
    found = {server.name: holding_process(server.data) for server in servers}
    return {name: process for name, process in found.items() if process is not None}


class Started:
    """Servers that this command has started, until they are ready; they outlive it. `end` undoes it."""

    def __init__(self, layout: Layout, credentials: Credentials) -> None:
        self._layout, self._credentials = layout, credentials
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, servers: Sequence[AnyServerConfig], tick: Tick) -> None:
        """Start them, and wait until all are ready. Raises Unavailable for one that cannot; OSError."""
        self._layout.log_path.mkdir(exist_ok=True)
        for server in servers:
            self._processes[server.name] = self._spawn(server)
        in_shared_loop(self._wait(servers, tick))

    def _spawn(self, server: AnyServerConfig) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "logdb_cli", "serve", server.role.value]
        command += ["--config", str(self._layout.file.path.absolute()), "--name", server.name]
        with self._log_of(server).open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )

    def _log_of(self, server: AnyServerConfig) -> Path:
        return self._layout.log_path / f"{server.name}.log"

    async def _wait(self, servers: Sequence[AnyServerConfig], tick: Tick) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_S
        waiting = list(servers)
        tick(0, len(servers))
        while waiting:
            waiting = [server for server in waiting if not await self._is_ready(server)]
            tick(len(servers) - len(waiting), len(servers))
            if waiting and loop.time() > deadline:
                raise Unavailable(f"{_title(waiting[0])} is not ready after {START_S:g} s: {self._why(waiting[0])}")
            await asyncio.sleep(POLL_S if waiting else 0)

    async def _is_ready(self, server: AnyServerConfig) -> bool:
        """Raises Unavailable if it has ended."""
        process = self._processes[server.name]
        if process.poll() is not None:
            raise Unavailable(f"{_title(server)} did not start: {self._why(server)}")
        if holding_process(server.data) != process.pid:
            return False
        heard = await ask(server.address, server.cluster, credentials=self._credentials)
        return heard.serving and heard.hello is not None and heard.hello.address == server.address

    def _why(self, server: AnyServerConfig) -> str:
        """The last thing that it has said."""
        log = self._log_of(server)
        lines = log.read_text(errors="replace").splitlines()
        return f"{lines[-1].removeprefix('error: ') if lines else 'it has said nothing'} (see {log})"

    def end(self) -> None:
        """End those that have been started, and wait for them."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _title(server: AnyServerConfig) -> str:
    return f"{server.role.value} {server.name}"


def end(servers: Sequence[AnyServerConfig], tick: Tick, *, patience_s: float = STOP_S, kill: bool = False) -> list[str]:
    """Have those that run here end cleanly, or be killed if they do not. Returns what still runs after that time."""
    at_first = running(servers)
    _signal(at_first.values(), signal.SIGTERM)
    left = _gone(servers, len(at_first), tick, patience_s)
    if left and kill:
        _signal(left.values(), signal.SIGKILL)
        left = _gone(servers, len(at_first), tick, patience_s)
    return [f"{_title(server)} (process {left[server.name]})" for server in servers if server.name in left]


def _gone(servers: Sequence[AnyServerConfig], count: int, tick: Tick, patience_s: float) -> dict[str, int]:
    """Wait until they are gone, or that time is over. Returns who is left."""
    deadline = time.monotonic() + patience_s
    while True:
        left = running(servers)
        tick(count - len(left), count)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
