"""`logdb serve --dashboard` and `logdb cluster dashboard` as processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import logdb
from logdb.security.certificates import Authority, hosts_of
from tests.dashboard.conftest import Site
from tests.dashboard.pages import Client


def started(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "logdb_cli", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def url_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("dashboard: "), line
    return line.split()[-1]


def refusal(*words: object) -> str:
    """The one line of a command that fails."""
    process = started(*words)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 2, error
    assert out == ""
    (line,) = error.splitlines()
    return line


def test_a_server_with_pages(tmp_path: Path) -> None:
    process = started("serve", "--db", tmp_path / "data", "--listen", "127.0.0.1:0", "--dashboard", "127.0.0.1:0")
    try:
        url = url_of(process)
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with logdb.connect(address) as db:
            db.put(b"greeting", b"hello")
            assert "hello" in Client(url).get("/keys").text
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()
    with logdb.open(tmp_path / "data") as found:
        assert found[b"greeting"] == b"hello"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_pages_of_a_cluster(cluster: Site, number: int) -> None:
    cluster.db.put(b"greeting", b"hello")
    process = started("cluster", "dashboard", "--endpoints", cluster.db.path, "--listen", "127.0.0.1:0")
    try:
        assert "hello" in Client(url_of(process)).get("/keys").text
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == ""
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def test_addresses_that_are_not_protected_are_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert "name a certificate" in refusal("serve", "--db", data, "--listen", "127.0.0.1:0", "--dashboard", "0.0.0.0:0")
    at = ("cluster", "dashboard", "--endpoints", "127.0.0.1:9")
    assert "--https-certificate" in refusal(*at, "--listen", "0.0.0.0:0")
    authority = Authority(tmp_path / "certs")
    pem, client = authority.server(hosts_of(["127.0.0.1:0"])), authority.client("ada")
    ca = tmp_path / "certs" / "ca.pem"
    assert "--https-certificate" in refusal(*at, "--https-ca", ca)
    own = ("--ca", ca, "--certificate", client, "--certificate-key", client.with_suffix(".key"))
    https = ("--https-certificate", pem, "--https-key", pem.with_suffix(".key"))
    assert "--https-ca" in refusal(*at, *own, *https)
    assert "not an address" in refusal(*at, "--listen", "nowhere")
