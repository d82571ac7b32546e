"""`python -m tests.fuzz`: random messages to real servers of every role, and what becomes of them."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import logdb
from benchmarks.ports import free_addresses
from logdb.net.log_client import connect
from logdb.net.parcels import Role
from logdb.net.security.access import Right, add
from tests.fuzz.running import fuzz_node, fuzz_single
from tests.net.cluster_processes import Processes
from tests.net.server_process import ServerProcess

ROLES = {"single": "", "ordering": "o1", "storage": "s1", "aggregator": "a1", "mapping": "m1"}
MOST_GROWTH_KIB = 700 << 10
"""What waits for clients may take 512 MiB; beyond that memory has gone."""


def rss_kib(pid: int, what: str = "VmRSS") -> int:
    """Memory of a process; `VmHWM`: the most that it has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def show(role: str, sent: int) -> None:
    print(f"\r{role:<12}{sent:>9,}", end="", flush=True)


def single(path: Path, count: int, seed: int) -> str:
    """What is wrong, "" if nothing is."""
    tokens = [add(path / "tokens.toml", right.shown, right) for right in list(Right)[1:]]
    server = ServerProcess(path / "db", "--tokens", str(path / "tokens.toml"))
    pid = server.process.pid

    def alive() -> None:
        if server.process.poll() is not None:
            raise SystemExit(f"\nthe server has ended with {server.process.returncode}")

    try:
        before = rss_kib(pid)
        fuzzing = fuzz_single(server.address, [*tokens, "wrong"], count, seed, alive, lambda sent: show("single", sent))
        asyncio.run(fuzzing)
        with logdb.connect(server.address, token=tokens[-1], timeout=60) as db:
            db.put(b"alive", b"yes")
        return grown("single", before, pid)
    finally:
        server.close()


def node(path: Path, role: str, count: int, seed: int) -> str:
    """What is wrong, "" if nothing is."""
    addresses, name = free_addresses(), ROLES[role]
    shape = {"ordering": 1, "storage": 1, "aggregators": 1, "mapping": 1, "failures": 0}
    with Processes(path, policy="finalize-and-add", **shape) as cluster:
        cluster.start(*cluster.roles)
        with connect([cluster.addresses["o1"]]) as log:
            while not log.configuration().spares:
                time.sleep(0.05)
            log.add_shard()

        def alive() -> None:
            for each, process in cluster.running.items():
                if process.poll() is not None:
                    text = (path / f"{each}.log").read_text()[-2_000:]
                    raise SystemExit(f"\n{each} has ended with {process.returncode}:\n{text}")

        pid = cluster.running[name].pid
        with logdb.connect(cluster.addresses["o1"], timeout=60) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            before = rss_kib(pid)
            known = list(cluster.addresses.values())
            listen: Callable[[], str] = lambda: next(addresses)  # noqa: E731
            progress: Callable[[int], None] = lambda sent: show(role, sent)  # noqa: E731
            at = cluster.addresses[name]
            asyncio.run(fuzz_node(at, Role(role), known, listen, count, seed, alive, progress))
            db.put(b"alive", b"yes")
            assert db.get(b"alive") == b"yes"
        alive()
        return grown(role, before, pid)


def grown(role: str, before: int, pid: int) -> str:
    now, most = rss_kib(pid), rss_kib(pid, "VmHWM")
    print(f"   memory {before >> 10} MiB before, {now >> 10} MiB after, {most >> 10} MiB at most")
    return f"the {role} server has grown to {most >> 10} MiB" if most - before > MOST_GROWTH_KIB else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="to each role (default: %(default)s)")
    parser.add_argument("--role", choices=ROLES, action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: random")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    wrong = []
    for role in options.role or ROLES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            count, seed = options.messages, options.seed
            wrong.append(single(path, count, seed) if role == "single" else node(path, role, count, seed))
    print(*filter(None, wrong), sep="\n", end="\n" if any(wrong) else "")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
