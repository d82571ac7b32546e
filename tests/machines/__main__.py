"""Run examples/systemd on three machines, lose one of them, and go on: `python -m tests.machines`.

A machine is a network namespace on a bridge, with an /etc, a /var/lib and an /etc/hosts of its own: db1.example,
db2.example and db3.example, where the example's units run as systemd would start them, and one for the operator. The
configuration is the example's, byte for byte; so are the commands. It needs root, since only root makes machines; all
of them live in namespaces of this command and end with it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from logdb.node.config import ClusterFile
from tests.nemesis.network import inside

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "systemd"
UNIT = (EXAMPLE / "logdb-storage@.service").read_text()
ETC = Path("/etc/logdb")
NEEDED = ("unshare", "nsenter", "ip", "mount", "sysctl")
NETWORK = "10.77.0"
WAIT_S = 120


def lacks() -> list[str]:
    """The tools that this computer lacks."""
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    return [*missing, *([] if os.geteuid() == 0 else ["root"])]


def run(*command: str | Path) -> str:
    """The output of a command. Raises CalledProcessError."""
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=True, timeout=WAIT_S)
    return done.stdout


class Machine:
    """A network namespace with some directories of its own. `name`: by which the others know it."""

    def __init__(self, number: int, name: str, home: Path, hosts: str) -> None:
        self.name, self._home = name, home
        space = f"machine{number}"
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"m{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", f"m{number}", "master", "br0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        self._cable = f"m{number}"
        self.etc = home / "etc" / "logdb"
        shutil.copytree("/etc", home / "etc", symlinks=True, ignore=shutil.ignore_patterns("ssl", "alternatives"))
        (home / "etc" / "hosts").write_text(hosts)
        (home / "etc" / "resolv.conf").unlink(missing_ok=True)
        (home / "etc" / "resolv.conf").write_text("")
        self.etc.mkdir()
        (home / "var" / "logdb").mkdir(parents=True)
        self._enter = ["nsenter", f"--net=/run/netns/{space}", "unshare", "--mount", "sh", "-ec"]
        self._mounts = f"mount --bind {home}/etc /etc; mount --bind {home}/var /var/lib; exec "
        self.servers: dict[tuple[str, str], subprocess.Popen[bytes]] = {}

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs `logdb` on the machine with these words."""
        return [*self._enter, self._mounts + shlex.join([sys.executable, "-m", "logdb_cli", *words])]

    def start(self, role: str, name: str) -> None:
        """As systemd would."""
        with (self._home / f"{name}.log").open("ab") as log:
            self.servers[role, name] = subprocess.Popen(
                self.command(of_unit("ExecStart", role, name)), stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Until all its servers answer, as systemd would."""
        for role, name in self.servers:
            run(*self.command(of_unit("ExecStartPost", role, name)))

    def lose(self) -> None:
        """Disconnect the machine and end its processes."""
        run("ip", "link", "set", self._cable, "down")
        self.end()

    def end(self) -> None:
        """Kill its servers."""
        for process in self.servers.values():
            process.kill()
        for process in self.servers.values():
            process.wait()
        self.servers.clear()


def of_unit(setting: str, role: str, name: str) -> list[str]:
    """The arguments for `logdb` in a line of the unit."""
    (line,) = re.findall(rf"^{setting}=\S+/logdb (.*)$", UNIT, re.MULTILINE)
    return shlex.split(line.replace("%j", role).replace("%i", name))


class Operator:
    """An operator at a separate machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._shown = {
            "LOGDB_CA": str(ETC / "ca.pem"),
            "LOGDB_CERTIFICATE": str(ETC / "operator.pem"),
            "LOGDB_CERTIFICATE_KEY": str(ETC / "operator.key"),
            "LOGDB_TOKEN": (machine.etc / "token").read_text().strip(),
        }

    def types(self, line: str) -> str:
        """A line of a shell. Returns what it prints."""
        print(f"$ {line}", flush=True)
        done = subprocess.run(
            self._machine.command(shlex.split(line)[1:]),
            stdout=subprocess.PIPE,
            env=os.environ | self._shown,
            text=True,
            check=True,
            timeout=WAIT_S,
        )
        print(done.stdout, end="", flush=True)
        return done.stdout


def set_up(home: Path) -> tuple[dict[str, Machine], Operator]:
    """The machines, with nothing on them but their configuration and what proves who they are."""
    file = ClusterFile(EXAMPLE / "cluster.toml")
    names = sorted({server.address.rpartition(":")[0] for server in file.servers.values()})
    hosts = "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate([*names, "operator"], 1))
    machines = {name: Machine(number, name, home / name, hosts) for number, name in enumerate([*names, "operator"], 1)}
    logdb = [sys.executable, "-m", "logdb_cli"]
    made = home / "made"
    run(*logdb, "certificates", "--config", EXAMPLE / "cluster.toml", "--to", made, "--client", "operator")
    token = run(*logdb, "token", "operator", "--right", "admin", "--tokens", made / "tokens.toml")
    operator = machines.pop("operator")
    (operator.etc / "token").write_text(token)
    for name in ("ca.pem", "operator.pem", "operator.key"):
        shutil.copy(made / name, operator.etc)
    for (role, name), server in file.servers.items():
        machine = machines[server.address.rpartition(":")[0]]
        certificates = machine.etc / "certificates"
        certificates.mkdir(exist_ok=True)
        for path in (made / "ca.pem", made / f"{role}-{name}.pem", made / f"{role}-{name}.key"):
            shutil.copy(path, certificates)
        shutil.copy(EXAMPLE / "cluster.toml", machine.etc)
        shutil.copy(made / "tokens.toml", machine.etc)
    return machines, Operator(operator)


def show(home: Path) -> None:
    """All of it."""
    run("ip", "link", "set", "br0", "up")
    machines, operator = set_up(home)
    try:
        for (role, name), server in ClusterFile(EXAMPLE / "cluster.toml").servers.items():
            machines[server.address.rpartition(":")[0]].start(role, name)
        for machine in machines.values():
            machine.wait()
            print(f"{machine.name}: {', '.join(f'logdb-{role}@{name}' for role, name in machine.servers)}")
        for line in re.findall(r"^# +(logdb cluster .*)$", (EXAMPLE / "cluster.toml").read_text(), re.MULTILINE):
            operator.types(line)
        where = "--endpoints db1.example:7402,db2.example:7402"
        operator.types(f"logdb multi-put {where} alice 10 bob 0")
        print("(db1.example is lost)")
        machines["db1.example"].lose()
        assert operator.types(f"logdb get {where} alice") == "10\n"
        operator.types(f"logdb multi-put {where} alice 7 bob 3")
        assert operator.types(f"logdb get {where} bob") == "3\n"
        operator.types("logdb cluster status --endpoints db2.example:7401")
    except BaseException:
        for log in sorted(home.glob("*/*.log")):
            sys.stderr.write("".join(f"{log.stem}: {line}\n" for line in log.read_text().splitlines()[-5:]))
        raise
    finally:
        for machine in machines.values():
            machine.end()
    print("one of three machines is gone, and nothing that was written with it")


def main() -> int:
    """Make a network of this command's own, and show it there."""
    missing = lacks()
    if missing:
        sys.stderr.write(f"error: machines of its own need {', '.join(missing)}, which this computer does not give\n")
        return 2
    code = inside(["-m", "tests.machines"])
    if code is not None:
        return code
    with tempfile.TemporaryDirectory(prefix="logdb-machines-") as home:
        show(Path(home))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
