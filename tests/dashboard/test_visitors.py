"""Logging in, rights, and visitors that are hostile."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import logdb
from logdb.dashboard import hosting, visitors
from logdb.dashboard.hosting import served
from logdb.dashboard.visitors import ClusterSource, ServerSource, Visitors
from logdb.embedded import EmbeddedBackend
from logdb.security import access
from logdb.security.authenticator import Authenticator, Security
from logdb.security.certificates import Authority, hosts_of
from tests.dashboard.conftest import Site
from tests.dashboard.pages import Client
from tests.dashboard.test_pages import PAGES
from tests.harness.secured import Tokens


def test_without_a_token_nothing_is_shown(guarded: Site) -> None:
    guarded.db.put(b"k", b"secret")
    stranger = Client(guarded.url)
    for page in PAGES:
        answer = stranger.get(page)
        assert answer.status == 401
        assert "Log in" in answer.text
        assert "secret" not in answer.text
        assert "Keys" not in answer.text
    for token in ("x" * 43, "é", "", "a b", "\x00"):
        answer = stranger.log_in(token)
        assert answer.status in (400, 401, 403), token
        assert answer.headers["set-cookie"] is None
    stranger.cookie = f"logdb-{stranger.at.port}=forged"
    assert stranger.get("/keys").status == 401


def test_denied_visitors_do_not_flood_the_log(guarded: Site, caplog: pytest.LogCaptureFixture) -> None:
    stranger = Client(guarded.url)
    for _ in range(40):
        assert stranger.log_in("x" * 43).status == 403
    assert 1 <= len([record for record in caplog.records if record.name == "logdb.dashboard.application"]) < 40


def test_the_cookie_is_no_token(guarded: Site) -> None:
    assert guarded.tokens is not None
    client = Client(guarded.url)
    answer = client.log_in(guarded.tokens.read)
    assert answer.status == 303
    assert answer.headers["location"] == "/"
    attributes = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= attributes
    assert guarded.tokens.read not in answer.headers["set-cookie"]
    guarded.db.put(b"k", b"secret")
    assert "secret" in client.get("/keys").text
    other, session = Client(guarded.url), client.cookie
    assert client.ask("POST", "/logout").status == 303
    other.cookie = session
    assert other.get("/keys").status == 401


def test_a_withdrawn_token_ends_its_sessions(guarded: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0)
    assert guarded.tokens is not None
    guarded.db.put(b"k", b"secret")
    reader, writer = guarded.client(), guarded.client(guarded.tokens.write)
    assert "secret" in reader.get("/keys").text
    text = guarded.tokens.path.read_text()
    guarded.tokens.path.write_text(text.replace(access.hashed(guarded.tokens.read), access.hashed("other")))
    for page in PAGES:
        answer = reader.get(page)
        assert answer.status in (401, 403)
        assert "secret" not in answer.text
    assert "secret" in writer.get("/keys").text


def test_forms_of_other_sites_are_refused(guarded_server: Site) -> None:
    assert guarded_server.tokens is not None
    token = guarded_server.tokens.read
    client = Client(guarded_server.url)
    assert client.log_in(token, Origin="https://evil.example").status == 403
    assert client.log_in(token, Origin="null").status == 403
    assert client.log_in(token, Sec_Fetch_Site="cross-site").status == 403
    assert client.log_in(token, Origin=guarded_server.url.rstrip("/"), Sec_Fetch_Site="same-origin").status == 303
    assert client.ask("POST", "/logout", Origin="https://evil.example").status == 403
    assert client.get("/keys").status == 200


def test_names_of_other_hosts_are_refused(server: Site) -> None:
    """A page of another site whose name points to this machine is such a host."""
    server.db.put(b"k", b"secret")
    client = server.client()
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "", "[::1", "127.0.0.1@evil.example"):
        answer = client.ask("GET", "/keys", Host=host)
        assert answer.status in (400, 421), host
        assert "secret" not in answer.text
    for host in ("localhost", f"localhost:{client.at.port}", "127.0.0.1:1", "[::1]:80"):
        assert client.ask("GET", "/keys", Host=host).status == 200, host


def test_a_large_form_is_refused(guarded_server: Site) -> None:
    client = Client(guarded_server.url)
    assert client.log_in("x" * 5_000).status == 413
    many = "&".join(f"a{number}=1" for number in range(100))
    assert client.ask("POST", "/login", many).status == 400


def raw(url: str, text: bytes) -> socket.socket:
    client = Client(url)
    connection = socket.create_connection((client.at.hostname or "", client.at.port or 0), timeout=30)
    connection.sendall(text)
    return connection


def test_silent_connections_are_closed(server: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "REQUEST_S", 0.2)
    for beginning in (b"", b"GET / HT", b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\na"):
        with raw(server.url, beginning) as connection:
            while connection.recv(1 << 16):
                pass
    assert server.client().get().status == 200


def test_requests_have_a_limit(server: Site) -> None:
    with raw(server.url, b"GET /" + b"x" * 300_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        assert b" 400 " in connection.recv(1 << 16)
    assert server.client().get().status == 200


def test_connections_have_a_limit(server: Site) -> None:
    silent = [raw(server.url, b"") for _ in range(hosting.CONNECTIONS + 5)]
    try:
        assert server.client().get().status == 503
    finally:
        for connection in silent:
            connection.close()
    while server.client().get().status != 200:
        pass


def test_many_visitors_at_once(server: Site) -> None:
    site = server
    site.db.multi_put({b"k%d" % number: b"v" for number in range(500)})
    client = site.client()
    with ThreadPoolExecutor(12) as threads:
        found = list(threads.map(lambda at: client.get(PAGES[at % len(PAGES)]).status, range(60)))
    assert set(found) == {200}


def test_sessions_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "VISITORS", 2)
    monkeypatch.setattr(visitors, "SESSIONS", 3)
    tokens, now = Tokens(tmp_path / "tokens.toml"), 0.0
    backend = EmbeddedBackend.in_memory()
    with logdb.Database(backend):
        source = ServerSource(backend, Authenticator(Security(tokens=tokens.path)))
        sessions = Visitors(source, lambda: now)

        def is_in(session: str) -> bool:
            try:
                return bool(sessions.visitor(session).name)
            except visitors.TokenNeeded:
                return False

        mine = [sessions.log_in(tokens.read) for _ in range(4)]
        assert [is_in(session) for session in mine] == [False, True, True, True]
        assert sessions.visitor(mine[1]) is sessions.visitor(mine[2])
        other = sessions.log_in(tokens.write)
        assert is_in(mine[3])
        third = sessions.log_in(tokens.admin)
        assert [is_in(session) for session in (other, mine[3], third)] == [False, True, True]
        now += visitors.IDLE_S - 1
        assert is_in(third)
        now += 2
        assert [is_in(session) for session in (mine[3], third)] == [False, True]
        sessions.log_out(third)
        assert not is_in(third)
        assert not is_in("")


# ---- TLS


def test_https_and_certificates_of_visitors(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certs")
    pem = authority.server(hosts_of(["127.0.0.1:0"]))
    visitor = authority.client("ada")
    ca, tokens = tmp_path / "certs" / "ca.pem", Tokens(tmp_path / "tokens.toml")
    security = Security(ca, pem, pem.with_suffix(".key"), tokens.path)
    backend = EmbeddedBackend.in_memory()
    with logdb.Database(backend) as db:
        db.put(b"k", b"secret")
        with served(ServerSource(backend, Authenticator(security)), "127.0.0.1:0", security) as url:
            context = ssl.create_default_context(cafile=ca)
            with pytest.raises((ssl.SSLError, ConnectionError)):
                Client(url, context).get()
            context.load_cert_chain(visitor, visitor.with_suffix(".key"))
            client = Client(url, context)
            assert client.get("/keys").status == 401
            answer = client.log_in(tokens.read)
            assert answer.headers["set-cookie"].startswith("__Host-logdb=")
            assert "secure" in answer.headers["set-cookie"].lower()
            assert "secret" in client.get("/keys").text
            with pytest.raises((ConnectionError, OSError, ssl.SSLError, Exception)):
                Client(url.replace("https", "http")).get()


def test_an_open_cluster_is_shown_to_this_machine_only(cluster: Site) -> None:
    source = ClusterSource(cluster.db.path, None, {}, is_local=False)
    with pytest.raises(logdb.AccessDenied, match="admits every client"):
        source.visitor("any token")


def test_a_cluster_that_does_not_answer(guarded_cluster: Site, tmp_path: Path) -> None:
    source = ClusterSource("127.0.0.1:9", None, {}, is_local=True)
    with served(source, "127.0.0.1:0", Security()) as url:
        answer = Client(url).get()
        assert answer.status == 503
        assert "127.0.0.1:9" in answer.text


def test_a_dashboard_ends_while_it_is_used(tmp_path: Path) -> None:
    backend = EmbeddedBackend.open(tmp_path / "data", read_only=False, create=True)
    with logdb.Database(backend) as db:
        db.multi_put({b"k%d" % number: b"v" for number in range(100)})
        for _ in range(3):
            with served(ServerSource(backend, Authenticator()), "127.0.0.1:0", Security()) as url:
                client, stop = Client(url), threading.Event()

                def visit(client: Client = client, stop: threading.Event = stop) -> None:
                    while not stop.is_set():
                        try:
                            assert client.get("/keys").status in (200, 503)
                        except (OSError, AssertionError, Exception):
                            return

                thread = threading.Thread(target=visit)
                thread.start()
                assert client.get().status == 200
            stop.set()
            thread.join()
        assert db.get(b"k1") == b"v"
