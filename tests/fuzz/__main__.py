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
from typing import Any

import logdb
from logdb.clients.log_client import connect
from logdb.log.engine import ENGINES, Right, engine_of
from logdb.log.requests import AddShard
from logdb.security.access import add
from logdb.security.certificates import Authority, hosts_of
from logdb.security.node_identity import Identity
from logdb.wire.envelopes import MAPPING
from tests.fuzz.running import fuzz_node, fuzz_single, listening, secured
from tests.harness.cluster_processes import Processes
from tests.harness.ports import free_addresses
from tests.harness.server_process import ServerProcess
from tests.sim.engines import simulation_of

SINGLE = "single"
"""The server of one directory."""
TOKENS_S = 1.5
"""Servers look at the tokens file again within a second."""
MAX_GROWTH_KIB = 700 << 10
"""Answers that wait for clients may take 512 MiB; more is a leak."""


def rss_kib(pid: int, what: str = "VmRSS") -> int:
    """Memory of a process; `VmHWM`: the most that it has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def show(role: str, sent: int) -> None:
    print(f"\r{role:<12}{sent:>9,}", end="", flush=True)


def single(path: Path, count: int, seed: int, *, tls: bool) -> str:
    """Send messages to the server of a directory. Returns what is wrong, "" if nothing is."""
    tokens = [add(path / "tokens.toml", right.label, right) for right in list(Right)[1:]]
    options, ca = ["--tokens", str(path / "tokens.toml")], None
    if tls:
        pem = Authority(path / "certificates").server(["127.0.0.1"])
        options += ["--certificate", str(pem), "--certificate-key", str(pem.with_suffix(".key"))]
        ca = pem.with_name("ca.pem")
    server = ServerProcess(path / "db", *options)
    pid = server.process.pid

    def alive() -> None:
        if server.process.poll() is not None:
            raise SystemExit(f"\nthe server has ended with {server.process.returncode}")

    try:
        before = rss_kib(pid)
        progress: Callable[[int], None] = lambda sent: show("single", sent)  # noqa: E731
        asyncio.run(fuzz_single(server.address, [*tokens, "wrong"], count, seed, alive, progress, ca=ca))
        with logdb.connect(server.address, token=tokens[-1], timeout=60, ca=ca) as db:
            db.put(b"alive", b"yes")
        return grown("single", before, pid)
    finally:
        server.close()


def secure(cluster: Processes) -> dict[str, Any]:
    """Give the servers of a cluster certificates and tokens. Returns what an administrator connects with."""
    tokens, authority = cluster.path / "tokens.toml", Authority(cluster.path)
    for name, role in cluster.roles.items():
        authority.server(hosts_of([cluster.addresses[name]]), Identity("test", role, name))
    with cluster.config.open("a") as file:
        file.write('[security]\nca = "ca.pem"\ncertificate = "{role}-{name}.pem"\nkey = "{role}-{name}.key"\n')
        file.write('tokens = "tokens.toml"\n')
    return {"ca": cluster.path / "ca.pem", "token": add(tokens, "operator", Right.ADMIN)}


def node(path: Path, engine: str, role: str, count: int, seed: int, *, tls: bool) -> str:
    """Send messages to the first server of a role. Returns what is wrong, "" if nothing is."""
    addresses = free_addresses()
    many = 2 if tls else 1
    policy = next(iter(simulation_of(engine).POLICIES))
    shape = {"ordering": 1, "storage": many, "aggregators": many, "mapping": many, "failures": 0}
    with Processes(path, engine=engine, policy=policy, **shape) as cluster:
        shown = secure(cluster) if tls else {}
        spare = [each for each in cluster.roles if each.endswith("2")]  # the fuzzer has their certificates
        cluster.start(*[each for each in cluster.roles if each not in spare])
        (founder,) = [cluster.addresses[each] for each in cluster.founders]
        name = next(each for each in cluster.roles if cluster.roles[each] == role)
        with connect([founder], **shown) as log:
            if AddShard in simulation_of(engine).CHANGES:
                while not log.configuration().spares:
                    time.sleep(0.05)
                log.add_shard()

        def alive() -> None:
            for each, process in cluster.running.items():
                if process.poll() is not None:
                    text = (path / f"{each}.log").read_text()[-2_000:]
                    raise SystemExit(f"\n{each} has ended with {process.returncode}:\n{text}")

        pid = cluster.running[name].pid
        with logdb.connect(founder, timeout=60, **shown) as db:
            for number in range(20):
                db.put(b"k%d" % number, b"v")
            before = rss_kib(pid)
            known = list(cluster.addresses.values())
            progress: Callable[[int], None] = lambda sent: show(role, sent)  # noqa: E731

            async def fuzzed() -> None:
                what = cluster.engine, cluster.addresses[name], role, known
                if tls:
                    tokens = [add(path / "tokens.toml", right.label, right) for right in list(Right)[1:]]
                    await asyncio.sleep(TOKENS_S)
                    identities = {each: cluster.addresses[each] for each in spare}
                    speakers = secured(cluster.engine, path, [*tokens, "wrong"], identities)
                    await fuzz_node(*what, speakers, count, seed, alive, progress)
                else:
                    async with listening(cluster.engine, addresses) as speakers:
                        await fuzz_node(*what, speakers, count, seed, alive, progress)

            asyncio.run(fuzzed())
            db.put(b"alive", b"yes")
            assert db.get(b"alive") == b"yes"
        alive()
        return grown(role, before, pid)


def grown(role: str, before: int, pid: int) -> str:
    now, most = rss_kib(pid), rss_kib(pid, "VmHWM")
    print(f"   memory {before >> 10} MiB before, {now >> 10} MiB after, {most >> 10} MiB at most")
    return f"the {role} server has grown to {most >> 10} MiB" if most - before > MAX_GROWTH_KIB else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, help="to each role (default: %(default)s)")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="of the cluster (default: %(default)s)")
    parser.add_argument("--role", action="append", help=f"only this one, or {SINGLE}; may be repeated")
    parser.add_argument("--tls", action="store_true", help="servers with certificates; speakers with each right")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="default: random")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    roles = [SINGLE, *engine_of(options.engine).roles, MAPPING]
    if unknown := set(options.role or ()) - set(roles):
        parser.error(f"--role is one of {', '.join(roles)}, not {', '.join(unknown)}")
    wrong = []
    for role in options.role or roles:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            count, seed = options.messages, options.seed
            if role == SINGLE:
                wrong.append(single(path, count, seed, tls=options.tls))
            else:
                wrong.append(node(path, options.engine, role, count, seed, tls=options.tls))
    print(*filter(None, wrong), sep="\n", end="\n" if any(wrong) else "")
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
