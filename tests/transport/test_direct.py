"""Direct connections: they carry the packets of a stream, accept only peers with a ticket, and are not needed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdb.security.credentials import NONE
from logdb.transport import direct
from logdb.transport import peers as peers_module
from logdb.transport.dialling import Stream, opened
from logdb.transport.direct import KEEPALIVE, Connection, DirectListener, connect, end_with
from logdb.transport.failures import aio
from logdb.transport.peers import Peers
from logdb.wire.envelopes import CLIENT, NOT_CONNECTED, VERSION, Hello
from logdb.wire.limits import MAX_PACKET_BYTES
from tests.harness.coroutines import run, until
from tests.harness.examples import view_request
from tests.harness.ports import free_addresses

ACCEPTED = frozenset([type(view_request(0))])


class Node:
    """A node, or a client, and the messages that it has received."""

    def __init__(self, address: str, role: str = "storage", cluster: str = "test") -> None:
        self.peers = Peers(Hello(VERSION, cluster, role, address, ("o:1",) if role != CLIENT else ()))
        self.port = self.peers.attach(address, ACCEPTED)
        self.port.receive = lambda sender, messages: self.got.extend(messages)
        self.lost: list[str] = []
        self.port.lost = self.lost.append
        self.address, self.got = address, list[Any]()


@asynccontextmanager
async def server_and_client() -> AsyncIterator[tuple[Node, Node]]:
    server, client = Node(next(free_addresses())), Node("client-1", CLIENT, cluster="")
    await server.peers.listen(server.address)
    try:
        yield server, client
    finally:
        await client.peers.close()
        await server.peers.close()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Connection, Connection]]:
    """Both ends of a connection: of the node that connects, and of the one that listens."""
    listener = DirectListener("127.0.0.1:0", None)
    with listener.ticket() as ticket:
        mine = await connect("127.0.0.1", listener.port, ticket.number, None)
        try:
            yield mine, await ticket.connection()
        finally:
            mine.abort()
            await listener.close()


def test_streams_between_nodes_and_of_clients_use_a_direct_connection() -> None:
    async def test() -> None:
        async with server_and_client() as (server, client):
            other = Node(next(free_addresses()))
            await other.peers.listen(other.address)
            other.port.send(server.address, view_request(1))
            client.port.send(server.address, view_request(2))
            await until(lambda: len(server.got) == 2)
            server.port.send(other.address, view_request(3))
            server.port.send(client.address, view_request(4))
            await until(lambda: other.got and client.got)
            assert (other.got, client.got) == ([view_request(3)], [view_request(4)])
            assert server.peers.direct_streams == server.peers.open_streams == 2
            await other.peers.close()
            await until(lambda: server.peers.direct_streams == 1)

    run(test())


def test_the_stream_carries_the_packets_if_the_port_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall: no message is lost."""

    async def refused(*_: object) -> Connection:
        raise ConnectionRefusedError

    monkeypatch.setattr(peers_module, "connect", refused)

    async def test() -> None:
        async with server_and_client() as (server, client):
            client.port.send(server.address, view_request(1))
            await until(lambda: server.got)
            server.port.send(client.address, view_request(2))
            await until(lambda: client.got)
            assert (server.peers.open_streams, server.peers.direct_streams) == (1, 0)

    run(test())


@pytest.mark.parametrize(("pause_s", "expected"), [(60.0, 1), (0.0, 2)])
def test_the_pause_of_direct_connections_outlasts_the_stream(
    pause_s: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause was forgotten with a peer that had no queue: each stream began two seconds later."""
    tries: list[int] = []

    async def refused(host: str, port: int, ticket: bytes, context: object) -> Connection:
        tries.append(port)
        raise ConnectionRefusedError

    monkeypatch.setattr(peers_module, "connect", refused)
    monkeypatch.setattr(peers_module, "DIRECT_PAUSE_S", pause_s)

    async def test() -> None:
        async with server_and_client() as (server, client):
            for number in range(2):
                client.port.send(server.address, view_request(number))
                await until(lambda: len(server.got) > number)
                await server.peers.close()
                await until(lambda: not client.peers.known)
                await server.peers.listen(server.address)
            assert len(tries) == expected

    run(test())


@pytest.mark.parametrize("answer", [b"", bytes(20), b"\0\0\0\x10" + bytes(16)])
def test_the_stream_carries_the_packets_if_the_ticket_does_not_come_back(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a proxy that accepts connections and loses them: the client waited without end."""
    monkeypatch.setattr(direct, "CONNECT_S", 0.1)

    async def other(_: DirectListener, accepted: socket.socket) -> None:
        with accepted:
            await asyncio.get_running_loop().sock_sendall(accepted, answer)
            await asyncio.sleep(0.2)

    monkeypatch.setattr(DirectListener, "_greet", other)

    async def test() -> None:
        async with server_and_client() as (server, client):
            client.port.send(server.address, view_request(1))
            await until(lambda: server.got)
            server.port.send(client.address, view_request(2))
            await until(lambda: client.got)
            assert (server.peers.open_streams, server.peers.direct_streams) == (1, 0)
            monkeypatch.undo()
            await server.peers.close()
            await until(lambda: client.lost)
            await server.peers.listen(server.address)
            client.port.send(server.address, view_request(3))  # not tried again at once
            await until(lambda: len(server.got) == 2)
            assert (server.peers.open_streams, server.peers.direct_streams) == (1, 0)

    run(test())


class End(NamedTuple):
    """A connection of a proxy to one of the two nodes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def reset(client: End, server: End) -> None:
    await client.reader.read(1)


async def reset_client(client: End, server: End) -> None:
    await client.reader.read(1)
    client.writer.transport.abort()
    await server.reader.read()


async def reset_server(client: End, server: End) -> None:
    await client.reader.read(1)
    server.writer.transport.abort()
    await client.reader.read()


async def end_within_packet(client: End, server: End) -> None:
    server.writer.write(await client.reader.read(10))
    server.writer.write_eof()
    await server.reader.read()


async def end_towards_client(client: End, server: End) -> None:
    client.writer.write_eof()
    while data := await client.reader.read(100):
        server.writer.write(data)
    server.writer.write_eof()
    await server.reader.read()


class Proxy:
    """Passes the exchange of each ticket, and then loses the connection. `count`: of connections."""

    def __init__(self, lose: Callable[[End, End], Awaitable[None]]) -> None:
        self.count, self._lose = 0, lose

    async def connect(self, host: str, port: int, ticket: bytes, context: Any) -> Connection:
        """As `direct.connect`."""
        self.count += 1

        async def serve(*ends: Any) -> None:
            client, server = End(*ends), End(*await asyncio.open_connection(host, port))
            server.writer.write(await client.reader.readexactly(16))
            client.writer.write(await server.reader.readexactly(20))
            with contextlib.suppress(ConnectionError):
                await self._lose(client, server)
            for end in (client, server):
                end.writer.transport.abort()

        listening = await asyncio.start_server(serve, host, 0)
        try:
            return await connect(host, listening.sockets[0].getsockname()[1], ticket, context)
        finally:
            listening.close()


@pytest.mark.parametrize("lose", [reset, reset_client, reset_server, end_within_packet, end_towards_client])
def test_the_next_stream_carries_the_packets_after_a_connection_was_lost(
    lose: Callable[[End, End], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall that forgets connections. Clients connected without end, and nothing arrived."""
    proxy = Proxy(lose)
    monkeypatch.setattr(peers_module, "connect", proxy.connect)
    monkeypatch.setattr(peers_module, "LOST_S", 0.05)
    monkeypatch.setattr(direct, "SHUTDOWN_S", 0.05)

    async def test() -> None:
        async with server_and_client() as (server, client):
            while not server.got:
                client.port.send(server.address, view_request(1))
                await asyncio.sleep(0.01)
            assert proxy.count == 1
            assert (server.peers.open_streams, server.peers.direct_streams) == (1, 0)

    run(test())


def test_a_server_that_starts_again_is_connected_to_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its streams end and its connections are lost, in any order."""
    monkeypatch.setattr(peers_module, "LOST_S", 60.0)

    async def test() -> None:
        async with server_and_client() as (server, client):
            for number in range(3):
                client.port.send(server.address, view_request(number))
                await until(lambda: server.peers.direct_streams)
                await server.peers.close()
                await until(lambda: len(client.lost) > number)
                await server.peers.listen(server.address)

    run(test())


def test_an_attempt_to_dial_that_fails_in_an_unknown_way_is_not_repeated_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client dialled 138 times a second. Other failures drop the queue, and a pause follows."""

    async def unexpected(*_: object) -> Connection:
        raise OverflowError("port must be 0-65535")

    monkeypatch.setattr(peers_module, "connect", unexpected)

    async def test() -> None:
        async with server_and_client() as (server, client):
            client.port.send(server.address, view_request(1))
            await until(lambda: not client.peers.known)
            assert client.lost == [server.address]
            assert [record.message for record in caplog.records] == ["dialling failed", "peer not reached"]

    run(test())


def test_a_connection_is_tried_again_while_the_listener_has_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a server starts again, and all of its clients come at once."""
    monkeypatch.setattr(direct, "MAX_STRANGERS", 0)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        with listener.ticket() as ticket:
            asyncio.get_running_loop().call_later(0.3, monkeypatch.undo)
            mine = await connect("127.0.0.1", listener.port, ticket.number, None)
            assert await ticket.connection()
            mine.abort()
        await listener.close()

    run(test())


def test_packets_that_have_come_together_are_delivered_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that had many slow requests of another one did nothing else until it had answered all."""
    events, packets, read = list[Any](), list[Any](), Connection.read
    monkeypatch.setattr(peers_module, "TURN_S", 0.0)

    async def read_two(connection: Connection) -> Any:
        """As after a pause in which two packets have come."""
        if not events:
            return await read(connection)
        if not packets:
            packets.extend([await read(connection), await read(connection)])
        return packets.pop(0)

    monkeypatch.setattr(Connection, "read", read_two)

    async def test() -> None:
        async with server_and_client() as (server, _):
            other = Node(next(free_addresses()))
            await other.peers.listen(other.address)

            def receive(sender: str, messages: Any) -> None:
                events.extend(messages)
                asyncio.get_running_loop().call_soon(events.append, "another task")

            server.port.receive = receive
            for number in range(3):
                sent = other.peers.traffic.sent_packets
                other.port.send(server.address, view_request(number))
                await until(lambda: other.peers.traffic.sent_packets > sent)
            await until(lambda: view_request(2) in events)
            at = events.index(view_request(2))
            assert events[at - 2 : at] == [view_request(1), "another task"]
            await other.peers.close()

    run(test())


def test_the_loss_of_a_connection_is_the_loss_of_its_stream() -> None:
    async def test() -> None:
        async with server_and_client() as (server, client):
            client.port.send(server.address, view_request(1))
            await until(lambda: server.got)
            await server.peers.close()
            await until(lambda: client.lost)
            assert client.lost == [server.address]
            assert not client.peers.direct_streams

    run(test())


def test_a_connection_ends_with_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC detects peers that do not answer: what it ends must not stay open."""
    monkeypatch.setattr(direct, "SHUTDOWN_S", 0.01)

    async def test() -> None:
        async with pair() as (mine, theirs):
            end_with(FailedCall(), mine)
            assert await mine.read() is aio.EOF
            assert await theirs.read() is aio.EOF

    run(test())


class FailedCall:
    """A call of gRPC that has ended."""

    def add_done_callback(self, callback: Callable[[FailedCall], None]) -> None:
        callback(self)


@pytest.mark.parametrize("first", [b"\0" * 16, b"\0" * 15, b"GET / HTTP/1.1\r\n\r\n", b""])
def test_a_connection_without_a_ticket_is_ended(first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "TICKET_S", 0.1)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(first)
        with listener.ticket() as ticket:
            assert await reader.read() == b""
            writer.close()
            mine = await connect("127.0.0.1", listener.port, ticket.number, None)
            await ticket.connection()
            mine.abort()
        await listener.close()

    run(test())


def test_a_ticket_is_valid_once_and_until_its_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "CONNECT_S", 0.5)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        with listener.ticket() as ticket:
            one = await connect("127.0.0.1", listener.port, ticket.number, None)
            await ticket.connection()
            with pytest.raises(TimeoutError):
                await connect("127.0.0.1", listener.port, ticket.number, None)
        assert await one.read() is aio.EOF
        with pytest.raises(TimeoutError):
            await connect("127.0.0.1", listener.port, ticket.number, None)
        await listener.close()

    run(test())


@asynccontextmanager
async def offered(server: Node) -> AsyncIterator[Stream]:
    """A client's stream that has been offered a ticket."""
    async with opened(server.address, Hello(VERSION, "", CLIENT, "client-9", direct=True), NONE) as stream:
        yield stream


def test_a_ticket_is_not_valid_when_the_stream_carries_the_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket was valid as long as the stream: a connection behind it stayed open, and carried nothing."""
    monkeypatch.setattr(direct, "CONNECT_S", 0.2)

    async def test() -> None:
        async with server_and_client() as (server, _):
            async with offered(server) as (_, call, theirs):
                await call.write(NOT_CONNECTED)
                await until(lambda: server.peers.open_streams)
                with pytest.raises(TimeoutError):
                    await connect("127.0.0.1", theirs.port, theirs.ticket, None)
            async with offered(server) as (_, call, theirs):
                mine = await connect("127.0.0.1", theirs.port, theirs.ticket, None)
                await call.write(NOT_CONNECTED)
                assert await mine.read() is aio.EOF

    run(test())


def test_a_stream_that_ends_while_its_node_connects_is_not_refused() -> None:
    """A program that was done within two seconds left a warning at each server."""

    async def test() -> None:
        async with server_and_client() as (server, _), offered(server) as (_, call, _):
            await call.done_writing()
            assert await call.read() is aio.EOF
            assert server.peers.refusals.count == 0

    run(test())


def test_silent_connections_do_not_exhaust_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "TICKET_S", 0.2)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        silent = []
        for _ in range(2 * direct.MAX_STRANGERS):
            silent.append(await asyncio.open_connection("127.0.0.1", listener.port))
        ended = [asyncio.create_task(reader.read()) for reader, _ in silent]
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert len(listener.strangers) <= direct.MAX_STRANGERS
        await asyncio.gather(*ended, return_exceptions=True)
        for _, writer in silent:
            writer.close()
        with listener.ticket() as ticket:
            mine = await connect("127.0.0.1", listener.port, ticket.number, None)
            await ticket.connection()
            mine.abort()
        await listener.close()

    run(test())


def test_streams_beyond_the_limit_of_descriptors_carry_their_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client with many streams had all descriptors of a server, which then committed nothing."""
    monkeypatch.setattr(direct, "max_connections", lambda descriptors: 4 // descriptors)

    async def test() -> None:
        async with server_and_client() as (server, client), contextlib.AsyncExitStack() as others:
            for number, expected in enumerate([1, 2, 2]):
                other = Node(f"client-{number + 2}", CLIENT, cluster="")
                others.push_async_callback(other.peers.close)
                other.port.send(server.address, view_request(number))
                await until(lambda: len(server.got) > number)
                assert (server.peers.open_streams, server.peers.direct_streams) == (number + 1, expected)
            await others.aclose()
            await until(lambda: not server.peers.open_streams)
            client.port.send(server.address, view_request(3))
            await until(lambda: server.peers.direct_streams == 1)

    run(test())


def test_a_ticket_counts_until_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after its stream, while the peer reads what was sent."""
    monkeypatch.setattr(direct, "max_connections", lambda descriptors: 2 // descriptors)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        with listener.ticket():
            assert not listener.has_room
        assert listener.has_room
        with listener.ticket() as ticket:
            mine = await connect("127.0.0.1", listener.port, ticket.number, None)
            (await ticket.connection()).return_ticket(bytes(40_000_000))
            assert not listener.has_room
        assert not listener.has_room
        mine.abort()
        await until(lambda: listener.has_room)
        await listener.close()

    run(test())


def test_a_connection_ends_after_its_stream_although_its_peer_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that read by drops kept what it was sent in the memory of the server, beyond all limits."""
    monkeypatch.setattr(direct, "SHUTDOWN_S", 0.01)
    monkeypatch.setattr(direct, "max_connections", lambda descriptors: 1)

    async def test() -> None:
        listener = DirectListener("127.0.0.1:0", None)
        with listener.ticket() as ticket:
            mine = await connect("127.0.0.1", listener.port, ticket.number, None)
            for _ in range(2):  # it does not read beyond the first, which has no reader
                (await ticket.connection()).return_ticket(bytes(20_000_000))
        await until(lambda: listener.has_room)
        mine.abort()
        await listener.close()

    run(test())


def test_packets_of_any_size_arrive_in_order_however_slowly_they_are_read() -> None:
    sizes = [1, 100, 70_000, 3_000_000, 5, 40_000_000, 9]

    async def test() -> None:
        async with pair() as (mine, theirs):
            sending = asyncio.create_task(send_all(mine, sizes))
            for size in sizes:
                await asyncio.sleep(0.01)
                assert len(await theirs.read()) == size
            assert await theirs.read() is aio.EOF
            await sending

    run(test())


async def send_all(connection: Connection, sizes: list[int]) -> None:
    for size in sizes:
        await connection.write(bytes(size))
    await connection.end()


def test_a_writer_waits_for_a_reader_that_does_not_read() -> None:
    async def test() -> None:
        async with pair() as (mine, theirs):
            written = 0

            async def write() -> None:
                nonlocal written
                while True:
                    await mine.write(bytes(100_000))
                    written += 1

            writing = asyncio.create_task(write())
            before = -1
            while written > before:
                before = written
                await asyncio.sleep(0.1)
            assert not writing.done()
            for _ in range(before):
                await theirs.read()
            await until(lambda: written > before)
            writing.cancel()

    run(test())


@pytest.mark.parametrize("length", [MAX_PACKET_BYTES + 1, 2**32 - 1])
def test_a_packet_that_is_too_long_ends_the_connection(length: int) -> None:
    async def test() -> None:
        async with pair() as (mine, theirs):
            mine.send_ticket(length.to_bytes(4, "big") + b"x")
            assert await theirs.read() is aio.EOF
            assert await mine.read() is aio.EOF
            with pytest.raises(ConnectionError):
                await mine.write(b"x")

    run(test())


class Sink(asyncio.Transport):
    """Accepts everything."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def test_a_connection_that_a_firewall_has_forgotten_is_detected() -> None:
    """Without probes it looked alive for a quarter of an hour. Both ends are objects of this class."""
    with socket.socket() as one:
        Connection().connection_made(Sink({"socket": one}))
        for level, name, value in KEEPALIVE:
            assert one.getsockopt(level, name) == value


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=10), st.lists(st.integers(1, 50)))
def test_packets_do_not_depend_on_how_their_bytes_arrive(packets: list[bytes], sizes: list[int]) -> None:
    async def test() -> None:
        tickets: list[bytes] = []
        connection = Connection(lambda _, ticket: tickets.append(ticket))
        with socket.socket() as unused:
            connection.connection_made(Sink({"socket": unused}))
        data = b"t" * 16 + b"".join(len(packet).to_bytes(4, "big") + packet for packet in packets) + bytes(4)
        for size in [*sizes, len(data)]:
            if data:
                connection.data_received(data[:size])
                data = data[size:]
        assert tickets == [b"t" * 16]
        assert [await connection.read() for _ in packets] == packets
        assert await connection.read() is aio.EOF

    asyncio.run(test())


def test_the_port_cannot_be_opened_at_a_foreign_address() -> None:
    async def test() -> None:
        with pytest.raises(OSError):
            DirectListener("192.0.2.1:7400", None)

    run(test())


def test_a_transport_of_another_loop_is_accepted() -> None:
    """uvloop's is not derived from asyncio's: servers on it had no direct connections, asyncio's clients no answers."""
    with socket.socket() as end:
        other = SimpleNamespace(set_write_buffer_limits=lambda high: None, get_extra_info=lambda name: end)
        Connection().connection_made(other)  # type: ignore[arg-type]
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
