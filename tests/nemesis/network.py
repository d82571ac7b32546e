"""Hosts on a network that can be partitioned: one network namespace for each, all on one bridge, with nft rules.

Their addresses are in 127.0.0.0/8, routed between namespaces, so servers may listen there without certificates. The
bridge drops packets where it forwards them. A slow link is a token bucket at both of its ends with a bounded queue. All
of it is in a network namespace of the process that creates it (`inside`), and ends with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

BRIDGE = "127.77.255.1"
PORT = 7400
METRICS_PORT = 9400
"""Where servers listen for gRPC, and for HTTP. Direct connections have other ports at both ends."""
NEEDED = ("unshare", "nsenter", "ip", "nft", "ss", "tc", "mkfs.ext4", "losetup")
INSIDE = "LOGDB_NEMESIS_INSIDE"


def lacks() -> list[str]:
    """The missing requirements of this machine for faults of networks and disks."""
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    return [*missing, *([] if os.geteuid() == 0 else ["root"])]


def inside(arguments: Sequence[str]) -> int | None:
    """Run this program again in namespaces of its own; its processes and mounts end with it.

    Returns None in that run, otherwise its exit code.
    """
    if os.environ.get(INSIDE):
        _prepare()
        return None
    command = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
    with subprocess.Popen([*command, *arguments], env=os.environ | {INSIDE: "1"}) as child:
        signal.signal(signal.SIGTERM, lambda *_: child.kill())
        with contextlib.suppress(KeyboardInterrupt):  # the child has received the signal, too
            child.wait()
    return child.returncode


def _prepare() -> None:
    _run("mount", "--make-rprivate", "/")
    Path("/run/netns").mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "none", "/run/netns")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "del", "127.0.0.1/8", "dev", "lo")
    _run("ip", "link", "add", "br0", "type", "bridge")
    _route_loopback("br0")
    _run("ip", "address", "add", f"{BRIDGE}/16", "dev", "br0")
    _run("ip", "link", "set", "br0", "up")


def _run(*command: str, input_: str | None = None) -> None:
    done = subprocess.run(command, input=input_, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def _route_loopback(device: str, *prefix: str) -> None:
    for name in ("all", device):
        _run(*prefix, "sysctl", "-qw", f"net.ipv4.conf.{name}.route_localnet=1")


class Rule(NamedTuple):
    """A share of the packets from one host to another is lost; with `is_direct`, only those of direct connections."""

    source: str
    target: str
    percent: int = 100
    is_direct: bool = False


class Network:
    """Hosts by name. Changes take effect at once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._rules: dict[object, list[Rule]] = {}
        _run("nft", "add", "table", "bridge", "nemesis")
        chain = "{ type filter hook forward priority 0; }"
        _run("nft", f"add chain bridge nemesis forward {chain}")

    def address(self, host: str) -> str:
        """The address of a host, which is created on first use."""
        if host not in self._numbers:
            self._add(host, len(self._numbers) + 1)
        number = self._numbers[host]
        return f"127.77.{number // 250}.{number % 250 + 1}"

    def _add(self, host: str, number: int) -> None:
        self._numbers[host] = number
        _run("ip", "netns", "add", host)
        _run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
        _run("ip", "link", "set", f"v{number}", "master", "br0", "up")
        _run("ip", "-n", host, "link", "set", "lo", "up")
        _run("ip", "-n", host, "address", "del", "127.0.0.1/8", "dev", "lo")
        _route_loopback("eth0", *self.command(host))
        _run("ip", "-n", host, "address", "add", f"{self.address(host)}/16", "dev", "eth0")
        _run("ip", "-n", host, "link", "set", "eth0", "up")

    def command(self, host: str) -> list[str]:
        """The prefix of a command that is to run there. (`ip netns exec` would also give it mounts of its own.)"""
        return ["nsenter", f"--net=/run/netns/{host}"]

    def lose(self, cause: object, rules: Iterable[Rule]) -> None:
        """Lose packets by these rules, until `restore` is called with the same cause."""
        self._rules[cause] = list(rules)
        self._apply()

    def restore(self, cause: object) -> None:
        """Remove the rules of this cause."""
        self._rules.pop(cause, None)
        self._apply()

    def _apply(self) -> None:
        lines = ["flush chain bridge nemesis forward"]
        for rule in (rule for rules in self._rules.values() for rule in rules):
            chance = "" if rule.percent >= 100 else f"numgen random mod 100 < {rule.percent} "
            addresses = f"ip saddr {self.address(rule.source)} ip daddr {self.address(rule.target)}"
            direct = f"tcp sport != {PORT} tcp dport != {PORT} " if rule.is_direct else ""
            lines.append(f"add rule bridge nemesis forward {addresses} {direct}{chance}drop")
        _run("nft", "-f", "-", input_="\n".join(lines) + "\n")

    def reset_direct(self, host: str) -> None:
        """Reset the direct connections of a host that exist now, as a firewall or a router that restarts may do."""
        ports = f"sport != :{PORT} and dport != :{PORT} and sport != :{METRICS_PORT} and dport != :{METRICS_PORT}"
        _run(*self.command(host), "ss", "--kill", "--tcp", "--numeric", "state", "established", f"( {ports} )")

    def slow(self, host: str, kbit: int, delay_ms: int) -> None:
        """Queue the packets of a host in both directions, for a bounded time."""
        bucket = ("root", "tbf", "rate", f"{kbit}kbit", "burst", "3000", "latency", f"{delay_ms}ms")
        for command in self._ends(host):
            _run(*command, *bucket)

    def hasten(self, host: str) -> None:
        """Undo `slow`."""
        for command in self._ends(host, "del"):
            _run(*command, "root")

    def _ends(self, host: str, action: str = "replace") -> list[list[str]]:
        here = ["tc", "qdisc", action, "dev", f"v{self._numbers[host]}"]
        return [here, ["tc", "-n", host, "qdisc", action, "dev", "eth0"]]
