"""A whole cluster with mutual TLS between all its servers, and clients of each right, on real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from logdb_cli.commands import cli

import logdb
import logdb.log
from logdb.admin import server_query
from logdb.clients import core_client
from logdb.clients.background_loop import in_shared_loop
from logdb.errors import AccessDenied, Unavailable
from logdb.log.contract import LogFailed
from logdb.log.requests import Reconfigure
from logdb.node.metrics import MetricsPort
from logdb.node.node import Node, NodeConfig
from logdb.security import access
from logdb.security.certificates import Authority
from logdb.store.limits import MAX_KEY_BYTES
from logdb.store.records import (
    COMMIT,
    COMPACTION,
    DECISION,
    PIN,
    VALUE,
    Condition,
    Decision,
    encode_commit,
    encode_decision,
)
from logdb.transport import peers
from logdb.transport.node_authenticator import Insecure
from tests.harness.clusters import Cluster
from tests.harness.forged import BEFORE, FORGED
from tests.harness.ports import free_addresses
from tests.harness.secured import SecureCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    cluster = SecureCluster(tmp_path_factory.mktemp("cluster"), storage=2, mapping=1, failures=1)
    cluster.start(1)
    yield cluster
    cluster.check()
    cluster.close()


def test_the_log(cluster: SecureCluster) -> None:
    with (
        logdb.log.connect(cluster.ordering, **cluster.credentials(cluster.tokens.write)) as writer,
        logdb.log.connect(cluster.mapping, **cluster.credentials(cluster.tokens.read)) as reader,
    ):
        (gsn,) = writer.append([(VALUE, b"x")])
        assert reader.read_record(gsn, 1).payload == b"x"
        assert reader.tail() >= gsn
        for call in (
            lambda: reader.append([(VALUE, b"y")]),
            lambda: reader.trim(1),
            lambda: writer.trim(1),
            lambda: writer.finalize_shard(1),
            lambda: writer.require(Reconfigure),
            writer.add_shard,
        ):
            with pytest.raises(AccessDenied, match=r"this client may .* and this needs the right"):
                call()
        assert reader.tail() == writer.tail() == gsn


POISON = {
    **FORGED,
    "of no kind": (200, b"x"),
    "a decision": (DECISION, encode_decision(Decision(0, 1, ()))),
    "a compaction": (COMPACTION, b""),
    "no commit": (COMMIT, b"x"),
    "a commit with a trailing byte": (COMMIT, encode_commit(BEFORE) + b"x"),
    "no number": (COMMIT, encode_commit(BEFORE._replace(sequence=0))),
    "no key": (COMMIT, encode_commit(BEFORE._replace(writes={b"": b"v"}))),
    "a large key": (COMMIT, encode_commit(BEFORE._replace(writes={bytes(MAX_KEY_BYTES + 1): b"v"}))),
    "no key read": (COMMIT, encode_commit(BEFORE._replace(snapshot=1, reads=[b""]))),
    "a condition of no kind": (COMMIT, encode_commit(BEFORE._replace(conditions=[Condition(99, b"k", None)]))),
    "no pin": (PIN, b"x"),
}


@pytest.mark.parametrize("poison", sorted(POISON))
def test_no_client_stops_the_servers_of_a_database(
    cluster: SecureCluster, poison: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a record that they cannot read: the storage server rejects it, also one of another kind."""
    kind = POISON[poison][0]
    with logdb.log.connect(cluster.ordering, **cluster.credentials(cluster.tokens.admin), timeout=0.5) as log:
        tail = log.tail()
        if kind not in (COMMIT, PIN):
            with pytest.raises(AccessDenied, match=f"clients write no records of kind {kind} there"):
                log.append([POISON[poison]])
            monkeypatch.setattr("logdb.clients.log_client.check_kinds", lambda records: None)
        with pytest.raises(LogFailed):
            log.append([POISON[poison]])
    with cluster.connect() as log:
        assert log.tail() == tail
    cluster.check()


def test_the_database(cluster: SecureCluster) -> None:
    with (
        logdb.connect(cluster.ordering, **cluster.credentials(cluster.tokens.write)) as writer,
        logdb.connect(cluster.mapping, **cluster.credentials(cluster.tokens.read)) as reader,
    ):
        version = writer.put(b"k", b"1")
        with writer.transaction() as txn:
            txn[b"k"] = (txn[b"k"] or b"") + b"2"
        writer.pin("p")
        assert reader[b"k"] == b"12"
        assert reader.at(version)[b"k"] == b"1"
        assert dict(reader.scan(prefix=b"k")) == {b"k": b"12"}
        for call in (
            lambda: reader.put(b"k", b"3"),
            lambda: reader.pin("q"),
            reader.compact,
            writer.compact,
        ):
            with pytest.raises(AccessDenied, match=r"this client may .* and this needs the right"):
                call()
        assert reader[b"k"] == b"12"
        writer.unpin("p")


def test_a_client_needs_only_a_token(cluster: SecureCluster) -> None:
    ca, tokens = cluster.certificates / "ca.pem", cluster.tokens
    with logdb.connect(cluster.ordering, ca=ca, token=tokens.write) as db:
        db.put(b"by token", b"1")
        with pytest.raises(AccessDenied, match='may read and write, and this needs the right "admin"'):
            db.compact()
    with logdb.log.connect(cluster.mapping, ca=ca, token=tokens.read) as log:
        assert log.read_record(log.tail(), 1).tag == COMMIT
        with pytest.raises(AccessDenied, match='may only read, and this needs the right "write"'):
            log.append([(VALUE, b"x")])


@pytest.mark.parametrize("connect", [logdb.connect, logdb.log.connect], ids=["database", "log"])
def test_a_rejected_client_gets_the_reason(cluster: SecureCluster, connect: Any, tmp_path: Path) -> None:
    options = cluster.credentials(cluster.tokens.read)
    bare = {"ca": options["ca"]}
    Authority(tmp_path).client("client")
    strange = {**options, "certificate": tmp_path / "client.pem", "certificate_key": tmp_path / "client.key"}
    for wrong, error, message in (
        ({**options, "token": "wrong"}, AccessDenied, "the token is not known here"),
        ({**options, "token": None}, AccessDenied, "the certificate of 'client' has no right here"),
        ({}, Unavailable, "it speaks TLS: name the CA"),
        (bare, AccessDenied, "a token is needed here, and none came"),
        ({**bare, "token": "wrong"}, AccessDenied, "the token is not known here"),
        ({**options, "ca": tmp_path / "ca.pem"}, Unavailable, "its certificate is not signed by the given CA"),
        (strange, Unavailable, r"it rejects the certificate in .*client\.pem"),
    ):
        with pytest.raises(error, match=message) as caught:
            connect(cluster.ordering, **wrong)
        assert "\n" not in str(caught.value)


def run_command(cluster: SecureCluster, *words: object, token: str = "", code: int = 0) -> str:
    """`logdb cluster ...`, with the CA and perhaps a token. Returns its output, or its error line."""
    ca = ["--ca", str(cluster.certificates / "ca.pem")]
    done = CliRunner().invoke(cli, [*ca, "cluster", *map(str, words)], env={"LOGDB_TOKEN": token})
    assert done.exit_code == code, done.stderr
    assert done.stderr.count("\n") == (1 if code else 0)
    return done.stderr if code else done.stdout


def test_the_commands_of_an_operator(cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_query, "TIMEOUT_S", 60.0)
    tokens, here = cluster.tokens, ("--dir", cluster.path)
    for name, config in cluster.configs.items():
        asked = (config.role, "--name", name, "--config", cluster.path / "cluster.toml")
        assert run_command(cluster, "health", *asked) == f"{config.role} {name} serves\n"
    (endpoint,) = run_command(cluster, "endpoints", *here).split()
    assert endpoint == cluster.ordering[0]
    for where in (here, ("--endpoints", endpoint)):
        seen = json.loads(run_command(cluster, "status", "--json", "--interval", 0.1, *where, token=tokens.read))
        assert sorted(server["role"] for server in seen["servers"]) == sorted(
            config.role for config in cluster.configs.values()
        )
        assert {server["state"] for server in seen["servers"]} == {"leads", "serves"}
        for token, message in (
            ("", "a token is needed here, and none came"),
            ("wrong", "the token is not known here"),
            (tokens.write, 'this client may read and write, and this needs the right "admin"'),
        ):
            assert message in run_command(cluster, "add-shard", *where, token=token, code=3)
    assert f"no server answers: {endpoint} (a token is needed" in run_command(
        cluster, "status", "--endpoints", endpoint, code=3
    )
    assert "a shard has 2 servers, and there are 0 spares" in run_command(
        cluster, "add-shard", "--endpoints", endpoint, token=tokens.admin, code=3
    )
    before = (cluster.path / "cluster.toml").read_text()
    assert "may only read" in run_command(cluster, "replace-server", "s1", *here, token=tokens.read, code=3)
    assert (cluster.path / "cluster.toml").read_text() == before


def test_a_client_whose_token_is_withdrawn(cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads end with the reason, and appends with an unknown outcome; the client works again when the token is back."""
    monkeypatch.setattr(access, "LOOK_S", 0)
    for module in (core_client, peers):
        monkeypatch.setattr(module, "REFUSED_PAUSE_S", 0.01)
    text = cluster.tokens.path.read_text()
    with logdb.log.connect(cluster.ordering, **cluster.credentials(cluster.tokens.write), timeout=2) as log:
        tail = log.tail()
        cluster.tokens.path.write_text("")
        for _ in range(2):
            with pytest.raises(AccessDenied, match=r"no longer has a right here|the token is not known here"):
                log.tail()
        with pytest.raises((AccessDenied, LogFailed)):
            log.append([(VALUE, b"x")])
        cluster.tokens.path.write_text(text)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with contextlib.suppress(AccessDenied, TimeoutError, LogFailed):
                assert log.tail() >= tail
                break
        assert log.append([(VALUE, b"x")])


def test_metrics_beyond_this_machine_are_for_certificates(
    cluster: SecureCluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    address = next(free_addresses())
    metrics = MetricsPort(cluster.servers["o1"], address.replace("127.0.0.1", "0.0.0.0"))
    try:
        ours = ssl.create_default_context(cafile=cluster.certificates / "ca.pem")
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{address}/metrics", timeout=20)
        with pytest.raises(OSError):
            urllib.request.urlopen(f"https://{address}/metrics", context=ours, timeout=20)
        client = cluster.certificates / "client.pem"
        ours.load_cert_chain(client, client.with_suffix(".key"))
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))):  # a connection without a request
            with urllib.request.urlopen(f"https://{address}/metrics", context=ours, timeout=20) as answer:
                assert b"logdb_leader 1.0" in answer.read()
        assert "a request for metrics failed" in caplog.text
        assert "Traceback" not in capfd.readouterr().err
    finally:
        metrics.close()


@pytest.mark.parametrize(
    ("file", "message"),
    [("certificate", "cannot be read: No such file"), ("tokens", "cannot be read: No such file"), ("", "")],
    ids=["no certificate", "no tokens", "loopback alone"],
)
def test_a_server_whose_files_are_wrong_does_not_start(
    cluster: SecureCluster, tmp_path: Path, file: str, message: str
) -> None:
    config = replace(cluster.configs["s1"], data=tmp_path / "data", listen=next(free_addresses()))
    assert config.security is not None
    wrong = (
        replace(config, security=replace(config.security, **{file: tmp_path / "none"}))
        if file
        else replace(config, security=None, listen="0.0.0.0:7400")
    )
    server = Node(NodeConfig((wrong,)))
    try:
        with pytest.raises(Insecure, match=message or "can be reached from other machines"):
            in_shared_loop(server.start())
    finally:
        in_shared_loop(server.close())


def test_the_command_prints_one_line(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    security = '[security]\nca = "ca.pem"\ncertificate = "{role}-{name}.pem"\nkey = "{role}-{name}.key"\n'
    config.write_text(f'[cluster]\nname = "demo"\n[ordering.o1]\nlisten = "{next(free_addresses())}"\n{security}')
    done = CliRunner().invoke(cli, ["serve", "ordering", "--config", str(config), "--name", "o1"])
    assert done.exit_code == 2
    assert done.stderr == (
        f"error: ordering o1: {tmp_path}/ordering-o1.pem cannot be read: No such file or directory\n"
    )


def test_connecting_to_the_log_of_a_database_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without security settings."""
    plain = Cluster(tmp_path, mapping=1)
    plain.start(1)
    try:
        with logdb.log.connect(plain.ordering, timeout=0.5) as log:
            with pytest.raises(AccessDenied, match="this log is that of a database"):
                log.append([(200, b"x")])
            monkeypatch.setattr("logdb.clients.log_client.check_kinds", lambda records: None)
            with pytest.raises(LogFailed):
                log.append([(200, b"x")])
        with logdb.connect(plain.ordering) as db:
            assert db.at(db.put(b"k", b"1")).get(b"k") == b"1"
        plain.check()
    finally:
        plain.close()
