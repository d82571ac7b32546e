"""A server of a cluster that counts its messages, stream writes, wake-ups, thread handovers, syncs and CPU time.

`python -m benchmarks.counted DIRECTORY ROLE ... --name NAME` is `logdb serve ROLE ... --name NAME`. At each SIGUSR1 it
appends its counts so far to DIRECTORY/NAME.counts, as one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import runpy
import selectors
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.traced import kind_of
from logdb.node.disk_worker import DiskWorker
from logdb.node.host import Host
from logdb.transport.peers import Port, Traffic

Messages = dict[tuple[str, str, str], int]
"""How many, by (kind, address of the sender, address of the receiver)."""


class Counts(NamedTuple):
    """Of one process since it started.

    `sent`, `received`: messages of its cores. `writes`: to streams. `turns`: of the event loop; `wakeups`: those before
    which it waited. `handovers`: jobs for the disk's thread, and signals of other threads (the disk's, gRPC's) to the
    loop. `syncs`: fdatasync and fsync. `switches`: voluntary context switches of all threads. `cpu_ns`: of all threads.
    """

    sent: Messages
    received: Messages
    writes: int = 0
    turns: int = 0
    wakeups: int = 0
    handovers: int = 0
    syncs: int = 0
    switches: int = 0
    cpu_ns: int = 0

    def __sub__(self, earlier: Counts) -> Counts:
        sent, received = (dict(Counter(now) - Counter(then)) for now, then in zip(self[:2], earlier[:2], strict=True))
        numbers = [after - before for after, before in zip(self[2:], earlier[2:], strict=True)]
        return Counts(sent, received, *numbers)

    def to_json(self) -> str:
        """One line."""
        messages = [[[*key, number] for key, number in counted.items()] for counted in self[:2]]
        return json.dumps([*messages, *self[2:]])

    @classmethod
    def from_json(cls, line: str) -> Counts:
        """Reverses `to_json`."""
        sent, received, *numbers = json.loads(line)
        messages = [{(a, b, c): number for a, b, c, number in counted} for counted in (sent, received)]
        return cls(messages[0], messages[1], *numbers)


class Counting:
    """The counts of this process, while `counting` is entered."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[str, str, str]] = Counter()
        self.received: Counter[tuple[str, str, str]] = Counter()
        self.traffic: list[Traffic] = []
        self.turns = self.wakeups = self.handovers = self.syncs = 0

    def now(self) -> Counts:
        """The counts so far."""
        return Counts(
            dict(self.sent),
            dict(self.received),
            sum([traffic.sent_packets for traffic in self.traffic]),
            self.turns,
            self.wakeups,
            self.handovers,
            self.syncs,
            resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw,
            time.process_time_ns(),
        )


_IS_PIPE: Final[dict[int, bool]] = {}


def _is_between_threads(fd: int) -> bool:
    """Whether it is a socket pair, with which another thread wakes the loop (asyncio's own, or gRPC's)."""
    if fd not in _IS_PIPE:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as found:
            _IS_PIPE[fd] = found.family == socket.AF_UNIX
    return _IS_PIPE.get(fd, False)


@contextlib.contextmanager
def counting() -> Iterator[Counting]:
    """Count in this process, from now on."""
    counts = Counting()
    patched: list[tuple[Any, str, Any]] = []

    def patch(owner: Any, name: str, replacement: Any) -> None:
        patched.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    send, receive, flush, init = Port.send, Host.receive, DiskWorker.flush, Traffic.__init__
    select, fdatasync, fsync = selectors.DefaultSelector.select, os.fdatasync, os.fsync

    def counted_send(self: Port, to: str, message: Any) -> None:
        counts.sent[kind_of(message), self.address, to] += 1
        send(self, to, message)

    def counted_receive(self: Host, sender: str, messages: Sequence[Any]) -> None:
        if sender != self.address:
            for message in messages:
                counts.received[kind_of(message), sender, self.address] += 1
        receive(self, sender, messages)

    def counted_flush(self: DiskWorker, *arguments: Any) -> None:
        counts.handovers += 1
        flush(self, *arguments)

    def counted_init(self: Traffic) -> None:
        init(self)
        counts.traffic.append(self)

    def counted_select(self: Any, timeout: float | None = None) -> Any:
        ready = select(self, timeout)
        counts.turns += 1
        counts.wakeups += timeout is None or timeout > 0
        counts.handovers += sum([_is_between_threads(key.fd) for key, _ in ready])
        return ready

    def counted_fdatasync(fd: int) -> None:
        counts.syncs += 1
        fdatasync(fd)

    def counted_fsync(fd: int) -> None:
        counts.syncs += 1
        fsync(fd)

    patch(Port, "send", counted_send)
    patch(Host, "receive", counted_receive)
    patch(DiskWorker, "flush", counted_flush)
    patch(Traffic, "__init__", counted_init)
    patch(selectors.DefaultSelector, "select", counted_select)
    patch(os, "fdatasync", counted_fdatasync)
    patch(os, "fsync", counted_fsync)
    try:
        yield counts
    finally:
        for owner, name, original in patched:
            setattr(owner, name, original)


if __name__ == "__main__":
    path = Path(sys.argv[1], f"{sys.argv[-1]}.counts")
    sys.argv[1] = "serve"
    entered = counting()
    counts = entered.__enter__()

    def write(*_: object) -> None:
        """Append the counts so far."""
        with path.open("a") as file:
            file.write(counts.now().to_json() + "\n")

    signal.signal(signal.SIGUSR1, write)
    runpy.run_module("logdb_cli", run_name="__main__")
