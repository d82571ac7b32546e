"""The processes of a cluster file on this machine: finding, starting and stopping them.

A running server is found by the lock of its directory, which names its process and ends with it, and in the system's
list of processes, in case its directory was removed. There is no file with process numbers that could be out of date.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from logdb.admin.layout import Layout
from logdb.admin.server_query import ask
from logdb.clients.background_loop import in_shared_loop
from logdb.errors import Unavailable
from logdb.node.node import NodeConfig
from logdb.security.credentials import Credentials
from logdb.system.directories import holding_process, is_locked

POLL_S: Final = 0.05
START_S: Final = 120.0
"""Maximum time until a server is ready; it may have a long log to replay."""
STOP_S: Final = 20.0

Tick = Callable[[int, int], None]
"""(done, of how many)"""


def running(layout: Layout) -> dict[str, int]:
    """The processes of the servers that run here, by name: those that hold the lock of their directory, and those that
    `StartedServers` has started, whatever has become of it."""
    found = dict(_started(layout.file.path.absolute()))
    for node in layout.file.nodes.values():
        if (process := _holding_process(node)) is not None:
            found[node.name] = process
    return found


def _holding_process(node: NodeConfig) -> int | None:
    return next((held for server in node.servers if (held := holding_process(server.data)) is not None), None)


def _command(config: Path, role: str, name: str) -> list[str]:
    return [sys.executable, "-P", "-m", "logdb_cli", "serve", role, "--config", str(config), "--name", name]


def _started(config: Path) -> Iterator[tuple[str, int]]:
    """(name, process) of each server that was started from this file, as the system shows its arguments."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is of another user
            arguments = os.fsdecode(path.read_bytes()).split("\0")[:-1]
            if len(arguments) > 5 and arguments[1:] == _command(config, arguments[5], arguments[-1])[1:]:
                yield arguments[-1], int(path.parent.name)


class StartedServers:
    """Servers that this command starts; they outlive it. `end` stops them again."""

    def __init__(self, layout: Layout, credentials: Credentials) -> None:
        self._layout, self._credentials = layout, credentials
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, nodes: Sequence[NodeConfig], tick: Tick) -> None:
        """Start servers, and wait until all are ready. Raises Unavailable if one fails; OSError."""
        self._layout.log_path.mkdir(exist_ok=True)
        for node in nodes:
            self._processes[node.name] = self._spawn(node)
        in_shared_loop(self._wait(nodes, tick))

    def _spawn(self, node: NodeConfig) -> subprocess.Popen[bytes]:
        command = _command(self._layout.file.path.absolute(), node.role, node.name)
        with self._log_of(node).open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )

    def _log_of(self, node: NodeConfig) -> Path:
        return self._layout.log_path / f"{node.name}.log"

    async def _wait(self, nodes: Sequence[NodeConfig], tick: Tick) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_S
        waiting = list(nodes)
        tick(0, len(nodes))
        while waiting:
            waiting = [node for node in waiting if not await self._is_ready(node)]
            tick(len(nodes) - len(waiting), len(nodes))
            if waiting and loop.time() > deadline:
                raise Unavailable(f"{waiting[0].title} is not ready after {START_S:g} s: {self._last_line(waiting[0])}")
            await asyncio.sleep(POLL_S if waiting else 0)

    async def _is_ready(self, node: NodeConfig) -> bool:
        """Raises Unavailable if it has ended."""
        process = self._processes[node.name]
        if process.poll() is not None:
            raise Unavailable(f"{node.title} did not start: {self._last_line(node)}")
        if _holding_process(node) != process.pid:
            return False
        reply = await ask(node.address, node.first.cluster, credentials=self._credentials)
        return reply.serving and reply.hello is not None and reply.hello.address == node.address

    def _last_line(self, node: NodeConfig) -> str:
        """The last line of its log."""
        log = self._log_of(node)
        lines = log.read_text(errors="replace").splitlines()
        return f"{lines[-1].removeprefix('error: ') if lines else 'its log is empty'} (see {log})"

    def end(self, keep: Collection[str] = ()) -> None:
        """Stop the started servers but those to `keep`, and wait for them."""
        ending = [process for name, process in self._processes.items() if name not in keep]
        for process in ending:
            process.terminate()
        for process in ending:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def end(layout: Layout, tick: Tick, *, timeout_s: float = STOP_S, kill: bool = False) -> list[str]:
    """Stop the servers that run here (SIGTERM); with `kill`, kill those that still run after `timeout_s`.

    A server releases its lock before its process ends, so this waits for processes. Returns the servers that still run.
    """
    with ExitStack() as descriptors:
        ending = _StoppingServers(layout, descriptors)
        left = ending.wait(signal.SIGTERM, tick, timeout_s)
        if left and kill:
            left = ending.wait(signal.SIGKILL, tick, timeout_s)
    return left


class _StoppingServers:
    """The servers of this machine while they stop."""

    def __init__(self, layout: Layout, descriptors: ExitStack) -> None:
        self._layout, self._nodes = layout, tuple(layout.file.nodes.values())
        self._descriptors = descriptors
        self._found: dict[tuple[str, int], int] = {}  # (server, process) -> its descriptor

    def wait(self, number: signal.Signals, tick: Tick, timeout_s: float) -> list[str]:
        """Send the signal to every process, including one that takes its lock only now. Returns the servers that run
        after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        signalled: set[tuple[str, int]] = set()
        while True:
            locked = self._look()
            for found in self._alive() - signalled:
                with suppress(ProcessLookupError):  # it has just ended
                    signal.pidfd_send_signal(self._found[found], number)
                signalled.add(found)
            left = self._left(locked)
            tick(len(self._found) - len(left), len(self._found))
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(POLL_S)

    def _look(self) -> set[str]:
        """Find the processes. Returns the servers whose lock is held."""
        locked = {node.name for node in self._nodes if any(is_locked(server.data) for server in node.servers)}
        for name, process in running(self._layout).items():
            if (name, process) not in self._found:
                with suppress(ProcessLookupError):
                    descriptor = os.pidfd_open(process)
                    self._descriptors.callback(os.close, descriptor)
                    if running(self._layout).get(name) == process:  # its number was not given to another meanwhile
                        self._found[name, process] = descriptor
        return locked

    def _alive(self) -> set[tuple[str, int]]:
        polling = select.poll()
        for descriptor in self._found.values():
            polling.register(descriptor, select.POLLIN)
        ended = {descriptor for descriptor, _ in polling.poll(0)}
        return {found for found, descriptor in self._found.items() if descriptor not in ended}

    def _left(self, locked: set[str]) -> list[str]:
        alive = dict(self._alive())
        return [
            f"{node.title} ({f'process {alive[node.name]}' if node.name in alive else 'on another machine'})"
            for node in self._nodes
            if node.name in alive or node.name in locked
        ]
