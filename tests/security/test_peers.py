"""Streams between servers, on real sockets: a node needs a server's certificate to connect as that server, and a
core receives only the messages of a client that its right allows."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logdb.errors import AccessDenied
from logdb.log.engine import Right
from logdb.security import access
from logdb.security.authenticator import Authenticator, Security
from logdb.security.certificates import Authority
from logdb.security.credentials import NONE, Credentials, credentials
from logdb.security.node_identity import Identity
from logdb.transport.dialling import opened
from logdb.transport.direct import DirectListener, connect
from logdb.transport.node_authenticator import NodeAuthenticator
from logdb.transport.peers import Peers
from logdb.wire.envelopes import CLIENT, NOT_CONNECTED, VERSION, Hello, Refusal, unpack
from tests.harness.coroutines import run, until
from tests.harness.examples import APPEND, MAPPING_REQUEST, REPORT, RESPONSE, tail_request
from tests.harness.ports import free_addresses
from tests.harness.secured import Tokens

READING, WRITING, ADMINISTERING = tail_request(1), APPEND, MAPPING_REQUEST
TAKES = frozenset(map(type, (READING, WRITING, ADMINISTERING, REPORT, RESPONSE)))


class Nodes:
    """Certificates of the nodes of a cluster and of its clients, and the nodes that a test has started."""

    def __init__(self, path: Path) -> None:
        self.path = path
        authority = Authority(path)
        for role, name in (("ordering", "o1"), ("storage", "s1"), ("storage", "s2")):
            authority.server(["127.0.0.1"], Identity("test", role, name))
        authority.server(["127.0.0.1"], Identity("other", "storage", "s9"))
        authority.server(["127.0.0.2"], Identity("test", "storage", "s7"))
        authority.client("ada")
        Authority(path / "others").server(["127.0.0.1"], Identity("test", "storage", "s1"))
        addresses = free_addresses()
        self.addresses = {name: next(addresses) for name in ("o1", "s1", "s2")}

    def credentials(self, name: str, token: str | None = None) -> Credentials:
        pem = self.path / f"{name}.pem"
        key = pem.with_suffix(".key")
        return credentials(ca=self.path / "ca.pem", certificate=pem, certificate_key=key, token=token)

    def authenticator(self, name: str, tokens: Path | None = None) -> NodeAuthenticator:
        pem = self.path / f"{name}.pem"
        security = Security(self.path / "ca.pem", pem, pem.with_suffix(".key"), tokens)
        return NodeAuthenticator(
            Authenticator(security, token_alone=True), {address: name for name, address in self.addresses.items()}
        )


class Node:
    """A node of a cluster, or a client."""

    def __init__(
        self,
        address: str,
        role: str,
        presented: Credentials,
        authenticator: NodeAuthenticator | None = None,
        cluster: str = "test",
    ) -> None:
        self.peers = Peers(Hello(VERSION, cluster, role, address), credentials=presented, authenticator=authenticator)
        self.port = self.peers.attach(address, TAKES)
        self.port.receive = lambda sender, messages: self.got.extend(messages)
        self.peers.denied = lambda error: self.denials.append(str(error))
        self.denials: list[str] = []
        self.address, self.got = address, list[Any]()


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path / "certificates")


async def listening(nodes: Nodes, tokens: Path | None = None) -> Node:
    """The storage server s1."""
    node = Node(
        nodes.addresses["s1"], "storage", nodes.credentials("storage-s1"), nodes.authenticator("storage-s1", tokens)
    )
    await node.peers.listen(node.address)
    return node


def test_servers_accept_each_other(nodes: Nodes) -> None:
    async def test() -> None:
        s1 = await listening(nodes)
        o1 = Node(
            nodes.addresses["o1"], "ordering", nodes.credentials("ordering-o1"), nodes.authenticator("ordering-o1")
        )
        await o1.peers.listen(o1.address)
        o1.port.send(s1.address, REPORT)
        await until(lambda: s1.got)
        s1.port.send(o1.address, READING)
        await until(lambda: o1.got)
        assert (s1.got, o1.got) == ([REPORT], [READING])
        await o1.peers.close()
        await s1.peers.close()

    run(test())


IMPOSTORS = {
    "a client": (
        "ada",
        "storage",
        "s2",
        "the certificate does not belong to a server, but must belong to logdb://test/storage/s2",
    ),
    "another role": (
        "storage-s1",
        "ordering",
        "o1",
        "belongs to logdb://test/storage/s1, but must belong to logdb://test/ordering/o1",
    ),
    "another name": (
        "storage-s1",
        "storage",
        "s2",
        "belongs to logdb://test/storage/s1, but must belong to logdb://test/storage/s2",
    ),
    "another cluster": (
        "storage-s9",
        "storage",
        "",
        "belongs to logdb://other/storage/s9, but must belong to logdb://test/storage/",
    ),
    "another host": ("storage-s7", "storage", "", "is not valid for 127.0.0.1, where that server claims to run"),
}


@pytest.mark.parametrize("impostor", sorted(IMPOSTORS))
def test_a_certificate_of_another_identity_is_rejected(
    nodes: Nodes, impostor: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, role, name, why = IMPOSTORS[impostor]

    async def test() -> None:
        s1 = await listening(nodes)
        address = nodes.addresses.get(name) or next(free_addresses())
        bad = Node(address, role, nodes.credentials(certificate))
        bad.port.send(s1.address, REPORT)
        await until(lambda: bad.denials)
        assert f"{address} must not connect as a server to {s1.address}: the certificate" in bad.denials[0]
        assert why in bad.denials[0]
        assert s1.got == []
        assert s1.peers.open_streams == 0
        await bad.peers.close()
        await s1.peers.close()

    run(test())
    assert "access denied" in caplog.text


@pytest.mark.parametrize("certificate", ["others/storage-s1", ""])
def test_connections_without_a_certificate_of_the_cluster_are_rejected(nodes: Nodes, certificate: str) -> None:
    async def test() -> None:
        s1 = await listening(nodes)
        presented = (
            nodes.credentials(certificate) if certificate else Credentials(ca=(nodes.path / "ca.pem").read_bytes())
        )
        for credentials_, role, name in ((presented, "storage", nodes.addresses["s2"]), (NONE, CLIENT, "client-1")):
            bad = Node(name, role, credentials_)
            bad.port.send(s1.address, READING)
            await until(lambda bad=bad: bad.peers.traffic.dropped_messages)
            assert s1.got == []
            await bad.peers.close()
        await s1.peers.close()

    run(test())


@pytest.mark.parametrize("certificate", ["others/storage-s1", "storage-s7", "ada"])
def test_a_server_verifies_the_certificate_of_the_server_that_it_calls(nodes: Nodes, certificate: str) -> None:
    """The caller sends nothing to another server at that address."""

    async def test() -> None:
        bad = Node(nodes.addresses["s1"], "storage", NONE, nodes.authenticator(certificate))
        await bad.peers.listen(bad.address)
        o1 = Node(nodes.addresses["o1"], "ordering", nodes.credentials("ordering-o1"))
        o1.port.send(bad.address, REPORT)
        await until(lambda: o1.peers.traffic.dropped_messages)
        assert (bad.got, o1.peers.traffic.sent_packets) == ([], 0)
        await o1.peers.close()
        await bad.peers.close()

    run(test())


# ---- clients


def test_a_client_cannot_use_the_name_of_a_server(nodes: Nodes) -> None:
    """The client would receive the messages of that server."""

    async def test() -> None:
        s1 = await listening(nodes)
        client = Node(nodes.addresses["o1"], CLIENT, nodes.credentials("ada"))
        client.port.send(s1.address, READING)
        await until(lambda: client.peers.traffic.dropped_messages)
        s1.port.send(nodes.addresses["o1"], RESPONSE)
        await until(lambda: s1.peers.traffic.dropped_messages)
        assert client.got == s1.got == []
        await client.peers.close()
        await s1.peers.close()

    run(test())


@pytest.mark.parametrize("right", ["read", "write", "admin"])
def test_a_core_receives_the_messages_that_the_right_allows(nodes: Nodes, tokens: Tokens, right: str) -> None:
    """Although this client does not check its rights itself."""
    needs = {READING: Right.READ, WRITING: Right.WRITE, ADMINISTERING: Right.ADMIN}

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        for message, needed in needs.items():
            client = Node(f"client-{needed}", CLIENT, nodes.credentials("ada", getattr(tokens, right)))
            client.port.send(s1.address, message)
            if needed <= Right[right.upper()]:
                await until(lambda: s1.got)
                assert s1.got.pop() == message
            else:
                await until(lambda client=client: client.denials)
                assert f'this needs the right "{needed.label}"' in client.denials[0]
            await client.peers.close()
        assert s1.got == []
        await s1.peers.close()

    run(test())


def test_no_right_allows_a_client_to_send_messages_of_servers(nodes: Nodes, tokens: Tokens) -> None:
    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        client = Node("client-1", CLIENT, nodes.credentials("ada", tokens.admin))
        client.port.send(s1.address, READING)
        await until(lambda: s1.got)
        client.port.send(s1.address, REPORT)
        await until(lambda: not s1.peers.open_streams)
        assert s1.got == [READING]
        await client.peers.close()
        await s1.peers.close()

    run(test())


def test_a_withdrawn_token_ends_the_rights_of_its_stream(
    nodes: Nodes, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0)

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        client = Node("client-1", CLIENT, nodes.credentials("ada", tokens.write))
        client.port.send(s1.address, WRITING)
        await until(lambda: s1.got)
        tokens.path.write_text("")
        client.port.send(s1.address, WRITING)
        await until(lambda: client.denials)
        assert client.denials == ["'writeer' no longer has a right here: ask for a new token"]
        assert s1.got == [WRITING]
        await client.peers.close()
        await s1.peers.close()

    run(test())


def test_a_delayed_answer_is_not_sent_after_the_right_is_withdrawn(
    nodes: Nodes, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOK_S", 0)

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        client = Node("client-1", CLIENT, nodes.credentials("ada", tokens.read))
        client.port.send(s1.address, READING)
        await until(lambda: s1.got)
        tokens.path.write_text("")
        s1.port.send("client-1", RESPONSE)
        await until(lambda: client.denials)
        assert client.denials == ["'reader' no longer has a right here: ask for a new token"]
        assert client.got == []
        await client.peers.close()
        await s1.peers.close()

    run(test())


def test_a_client_does_not_replace_the_stream_of_another_user(nodes: Nodes, tokens: Tokens) -> None:
    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        one = Node("client-1", CLIENT, nodes.credentials("ada", tokens.read))
        one.port.send(s1.address, READING)
        await until(lambda: s1.got)
        other = Node("client-1", CLIENT, nodes.credentials("ada", tokens.write))
        other.port.send(s1.address, READING)
        await until(lambda: other.denials)
        assert other.denials == ["another user is connected as client-1"]
        s1.port.send("client-1", RESPONSE)
        await until(lambda: one.got)
        assert other.got == []
        for node in (one, other, s1):
            await node.peers.close()

    run(test())


def test_a_client_does_not_replace_the_stream_that_another_user_has_opened_meanwhile(
    nodes: Nodes, tokens: Tokens
) -> None:
    """The name was checked when the Hello came; a client may take five seconds to say whether it has connected."""

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        hello = Hello(VERSION, "test", CLIENT, "client-1", direct=True)
        async with opened(s1.address, hello, nodes.credentials("ada", tokens.write)) as other:
            one = Node("client-1", CLIENT, nodes.credentials("ada", tokens.read))
            one.port.send(s1.address, READING)
            await until(lambda: s1.got)
            await other.call.write(NOT_CONNECTED)
            assert unpack(await other.call.read()) == Refusal("another user is connected as client-1", denied=True)
            s1.port.send("client-1", RESPONSE)
            await until(lambda: one.got)
        for node in (one, s1):
            await node.peers.close()

    run(test())


def test_errors_of_a_denied_client(nodes: Nodes, tokens: Tokens) -> None:
    from logdb.transport.discovery import ask, client_hello

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        assert (await ask(s1.address, client_hello(), nodes.credentials("ada", tokens.read))).right is Right.READ
        assert (await ask(s1.address, client_hello(), nodes.credentials("ada"))).right is Right.WRITE
        with pytest.raises(AccessDenied, match="the token is not known here"):
            await ask(s1.address, client_hello(), nodes.credentials("ada", "wrong"))
        await s1.peers.close()

    run(test())


@pytest.mark.parametrize("name", ["s1's", "ada's", "anonymous"])
def test_direct_connections_use_the_certificates_of_their_streams(nodes: Nodes, tmp_path: Path, name: str) -> None:
    """Also for a client that has a token and no certificate."""
    tokens = Tokens(tmp_path / "tokens.toml")
    anonymous = credentials(ca=nodes.path / "ca.pem", token=tokens.read)

    async def test() -> None:
        s1 = await listening(nodes, tokens.path)
        one = {
            "s1's": lambda: Node(nodes.addresses["s2"], "storage", nodes.credentials("storage-s2")),
            "ada's": lambda: Node("client-1", CLIENT, nodes.credentials("ada"), cluster=""),
            "anonymous": lambda: Node("client-1", CLIENT, anonymous, cluster=""),
        }[name]()
        one.port.send(s1.address, READING)
        await until(lambda: s1.got)
        s1.port.send(one.address, READING)
        await until(lambda: one.got)
        assert s1.peers.direct_streams == one.peers.direct_streams == 1
        await one.peers.close()
        await s1.peers.close()

    run(test())


@pytest.mark.parametrize("certificate", ["none", "others/storage-s1", "no TLS", "ada"])
def test_a_ticket_is_accepted_only_behind_a_certificate_of_the_cluster(nodes: Nodes, certificate: str) -> None:
    """A ticket that an attacker has read somewhere does not suffice."""

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", nodes.authenticator("storage-s1").context)
        context = None
        if certificate == "none":
            context = ssl.create_default_context(cafile=str(nodes.path / "ca.pem"))
        elif certificate != "no TLS":
            context = replace(nodes.credentials(certificate), ca=(nodes.path / "ca.pem").read_bytes()).context()
        with listener.ticket() as ticket, contextlib.suppress(OSError):
            connection = await connect("127.0.0.1", listener.port, ticket.number, context)
            accepted = asyncio.create_task(ticket.connection())
            await asyncio.wait((accepted, asyncio.create_task(connection.read())), return_when=asyncio.FIRST_COMPLETED)
            assert accepted.done() == (certificate == "ada")
            accepted.cancel()
            connection.abort()
        await listener.close()

    run(test())


def test_a_direct_connection_is_not_made_to_a_server_with_another_certificate(nodes: Nodes) -> None:
    """Neither of another CA, nor for another host: it would receive the ticket."""

    async def test() -> None:
        for pem in ("others/storage-s1", "storage-s7"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(nodes.path / f"{pem}.pem", nodes.path / f"{pem}.key")
            listener = DirectListener("127.0.0.1:0", context)
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect("127.0.0.1", listener.port, b"", nodes.credentials("ada").context())
            await listener.close()

    run(test())
