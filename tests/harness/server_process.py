"""`logdb serve` as a process that tests may kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.harness import slow_disk


class ServerProcess:
    """A server of the directory `path`, on the same port after `kill` and `start`. `options`: further options of `logdb
    serve`."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path, self.options = path, options
        self.address = "127.0.0.1:0"
        self._delay = path.with_name(f"{path.name}.delay")
        self.start()

    def start(self) -> None:
        slow: list[str | Path] = [sys.executable, "-m", "tests.harness.slow_disk", self._delay]
        serve: list[str | Path] = ["logdb_cli", "serve", "--db", self.path, "--listen", self.address, *self.options]
        self.process = subprocess.Popen([*slow, *serve], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("ready: "), ready
        self.address = ready.split()[-1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def delay_writes(self, seconds: float) -> None:
        """Delay each flush by this time."""
        slow_disk.set_delay(self._delay, seconds)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.resume()
        self.kill()
