"""The deployment examples are consistent: the commands exist, the configurations are valid, and every name that one
part of a manifest refers to exists in another."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from logdb_cli import failing, servers
from logdb_cli.commands import cli

from logdb.node.config import ClusterFile

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
SYSTEMD = EXAMPLES / "systemd"
MANIFEST = EXAMPLES / "kubernetes" / "logdb.yaml"
CONFIG = "/etc/logdb/cluster.toml"


def options(words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The subcommand of `logdb` in these words, and its options. Raises if the command does not accept them."""
    command: click.Command = cli
    path: list[str] = []
    context = click.Context(cli, **cli.context_settings)  # click keeps the help option that a command has first
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        path.append(words[0])
        command = found
        words = words[1:]
        context = click.Context(command, parent=context, info_name=path[-1])
    with context:
        return path, command.make_context(path[-1], list(words), parent=context.parent).params


# ---- systemd


def unit() -> dict[str, list[str]]:
    """The settings of the unit; some are there more than once."""
    (file,) = SYSTEMD.glob("*.service")
    settings: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if line and line[0] not in "#[":
            key, _, value = line.partition("=")
            settings.setdefault(key, []).append(value)
    return settings


def instances() -> list[tuple[str, str]]:
    """(role, name) of every server of the configuration beside it."""
    return list(ClusterFile(SYSTEMD / "cluster.toml").servers)


@pytest.mark.parametrize("setting", ["ExecStart", "ExecStartPost"])
@pytest.mark.parametrize(("role", "name"), instances())
def test_a_unit_runs_its_server(setting: str, role: str, name: str) -> None:
    (line,) = unit()[setting]
    program, *words = shlex.split(line.replace("%j", role).replace("%i", name))
    assert Path(program).name == "logdb"
    path, given = options(words)
    assert path == (["serve", role] if setting == "ExecStart" else ["cluster", "health"])
    assert str(given["path"]) == CONFIG
    assert given["name"] == name
    assert given.get("role", role) == role


def test_a_unit_does_not_restart_after_a_permanent_failure() -> None:
    (file,) = SYSTEMD.glob("*@.service")
    assert file.name.split("@")[0].rpartition("-")[2] in servers.RoleCommands().list_commands(None)  # systemd's %j
    settings = unit()
    assert settings["RestartPreventExitStatus"] == [f"{failing.USAGE} {servers.STOPPED}"]
    assert settings["Restart"] == ["on-failure"]
    (state,) = settings["StateDirectory"]
    assert {server.data.parent for server in ClusterFile(SYSTEMD / "cluster.toml").servers.values()} == {
        Path("/var/lib") / state
    }


def test_three_machines_of_which_one_may_fail() -> None:
    file = ClusterFile(SYSTEMD / "cluster.toml")
    storage = [server.address for (role, _), server in file.servers.items() if role == "storage"]
    for line in re.findall(r"^# +(logdb cluster add-shard .*)$", file.path.read_text(), re.MULTILINE):
        path, given = options(shlex.split(line)[1:])
        members = given["servers"].split(",")
        assert path == ["cluster", "add-shard"]
        assert set(members) <= set(storage)
        assert len({member.rpartition(":")[0] for member in members}) == 2
        storage = [address for address in storage if address not in members]
    assert len(storage) == 2
    assert len({address.rpartition(":")[0] for address in storage}) == 2
    machines = {server.address.rpartition(":")[0] for server in file.servers.values()}
    assert len(machines) == 3
    for machine in machines:
        left = [role for (role, _), server in file.servers.items() if not server.address.startswith(f"{machine}:")]
        assert left.count("ordering") == 2
        assert left.count("mapping") >= 1
        assert left.count("storage") >= 2


# ---- Kubernetes


def objects() -> dict[tuple[str, str], Any]:
    """The objects of the manifest, by kind and name."""
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents)
    assert {one["metadata"]["namespace"] for one in documents} == {"logdb"}
    return found


@pytest.fixture
def configuration(tmp_path: Path) -> ClusterFile:
    (tmp_path / "cluster.toml").write_text(objects()["ConfigMap", "logdb"]["data"]["cluster.toml"])
    return ClusterFile(tmp_path / "cluster.toml")


def sets() -> list[str]:
    return [name for kind, name in objects() if kind == "StatefulSet"]


def test_every_pod_has_its_table(configuration: ClusterFile) -> None:
    pods = {(name, f"{name}-{n}") for name in sets() for n in range(objects()["StatefulSet", name]["spec"]["replicas"])}
    assert pods == set(configuration.servers)
    service = objects()["Service", "logdb"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    for (_, pod), server in configuration.servers.items():
        assert server.address == f"{pod}.logdb.logdb.svc.cluster.local:{ports['grpc']}"
        assert server.listen == f"0.0.0.0:{ports['grpc']}"
        assert server.metrics == f"0.0.0.0:{ports['metrics']}"


@pytest.mark.parametrize("name", sets())
def test_a_pod_runs_its_server_and_asks_it(name: str, configuration: ClusterFile) -> None:
    spec = objects()["StatefulSet", name]["spec"]
    template = spec["template"]
    assert spec["serviceName"] == "logdb"
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert objects()["Service", "logdb"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert container["env"] == [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    pod = f"{name}-0"
    path, given = options([word.replace("$(POD_NAME)", pod) for word in container["args"]])
    assert (path, str(given["path"]), given["name"]) == (["serve", name], CONFIG, pod)
    for probe in ("startupProbe", "readinessProbe"):
        shell, flag, script = container[probe]["exec"]["command"]
        assert (shell, flag) == ("sh", "-c")
        words = shlex.split(script.replace("$POD_NAME", pod))
        assert words[:2] == ["exec", "logdb"]
        path, given = options(words[2:])
        assert (path, given["role"], given["name"]) == (["cluster", "health"], name, pod)
        assert str(given["path"]) == CONFIG
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["livenessProbe"]["tcpSocket"]["port"] in named
    assert set(named.values()) == {port["port"] for port in objects()["Service", "logdb"]["spec"]["ports"]}
    budget = objects()["PodDisruptionBudget", name]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("name", sets())
def test_the_paths_of_a_server_are_mounted(name: str, configuration: ClusterFile) -> None:
    spec = objects()["StatefulSet", name]["spec"]
    pod = spec["template"]["spec"]
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in pod["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    claims = {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    assert set(mounts) == set(volumes) | claims
    assert mounts["configuration"] == Path(CONFIG)
    assert volumes["configuration"]["configMap"]["name"] == "logdb"
    server = configuration.server(name, f"{name}-0")
    assert mounts["data"] in server.data.parents
    security = server.security
    assert security is not None
    assert security.tokens is not None
    assert {security.ca.parent, security.certificate.parent, security.key.parent} == {mounts["certificates"]}
    assert security.tokens.parent == mounts["tokens"]
    assert security.certificate.name == f"{name}-{name}-0.pem"
    made = dict(re.findall(r"create secret generic (\S+) --from-file=(\S+)", MANIFEST.read_text()))
    assert {volume["secret"]["secretName"] for volume in volumes.values() if "secret" in volume} == set(made)


def test_the_commands_in_the_manifest_exist() -> None:
    comment = "\n".join(line.lstrip("# ") for line in MANIFEST.read_text().split("\napiVersion")[0].splitlines())
    commands = re.findall(r"^logdb .*$", comment.replace("\\\n", ""), re.MULTILINE)
    assert len(commands) == 3
    for line in commands:
        words = shlex.split(line, comments=True)[1:]
        if words[0].startswith("-"):
            words = words[words.index("cluster") :]  # the words before are options of `logdb` itself
        path, _ = options(words)
        assert path in (["certificates"], ["token"], ["cluster", "add-shard"])


def test_the_image_runs_as_the_user_of_the_pods() -> None:
    dockerfile = (MANIFEST.parent / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)
    assert 'ENTRYPOINT ["logdb"]' in dockerfile
    for name in sets():
        pod = objects()["StatefulSet", name]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == int(user)
        assert pod["containers"][0]["image"].startswith("logdb:")
