"""Streams between cores: messages arrive or are lost, queues are bounded, invalid messages end their stream."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from logdb.cluster.messages import Cursor, Section, SliceRequest
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Engine, Right, all_engines
from logdb.node.metrics import NodeMetrics
from logdb.transport import peers as peers_module
from logdb.transport import unread_answers
from logdb.transport.dialling import Refused, shake_hands
from logdb.transport.peers import Peers
from logdb.txn.ledger import Ledger
from logdb.wire.envelopes import CLIENT, EXCHANGE, MAPPING, VERSION, Hello, Refusal, pack, pack_hello, unpack
from logdb.wire.limits import WireError
from logdb.wire.sanity_checks import check_sense
from tests.harness.coroutines import run, until
from tests.harness.examples import (
    MAPPING_REQUEST,
    OPERATOR_REQUESTS,
    REPLICATION,
    number_of,
    replication,
    tail_request,
    view_request,
)
from tests.harness.ports import free_addresses

TAKES = frozenset(map(type, (view_request(0), MAPPING_REQUEST, REPLICATION)))


class Node:
    """A node's peers, and the messages that they deliver."""

    def __init__(self, address: str, role: str = "storage", cluster: str = "test", version: int = VERSION) -> None:
        ordering = (address,) if role == "ordering" else ("o:1",)
        self.peers = Peers(Hello(version, cluster, role, address, ordering))
        self.port = self.peers.attach(address, TAKES)
        self.port.receive = lambda sender, messages: self.got.extend((sender, message) for message in messages)
        self.address = address
        self.got: list[tuple[str, Any]] = []

    async def listen(self) -> Node:
        await self.peers.listen(self.address)
        return self

    async def close(self) -> None:
        await self.peers.close()


def two_addresses() -> tuple[str, str]:
    addresses = free_addresses()
    return next(addresses), next(addresses)


def test_messages_go_both_ways_on_one_stream() -> None:
    async def test() -> None:
        one, two = [await Node(address).listen() for address in two_addresses()]
        for number in range(100):
            one.port.send(two.address, view_request(number))
        await until(lambda: len(two.got) == 100)
        assert two.got == [(one.address, view_request(number)) for number in range(100)]
        assert one.peers.traffic.sent_packets < 10, "ready messages share one packet"
        two.port.send(one.address, view_request(7))
        await until(lambda: one.got)
        assert one.got == [(two.address, view_request(7))]
        assert (one.peers.open_streams, two.peers.open_streams) == (1, 1)
        await one.close()
        await two.close()

    run(test())


def test_a_client_is_answered_on_its_stream_and_forgotten_with_it() -> None:
    async def test() -> None:
        server = await Node(next(free_addresses())).listen()
        client = Node("client-1", CLIENT, cluster="")
        server.port.send("client-1", view_request(0))
        assert server.peers.traffic.dropped_messages == 1, "no client has that name"
        client.port.send(server.address, view_request(1))
        await until(lambda: server.got)
        server.port.send("client-1", view_request(2))
        await until(lambda: client.got)
        assert client.got == [(server.address, view_request(2))]
        await client.close()
        await until(lambda: server.peers.known == 0)
        await server.close()

    run(test())


def test_clients_of_one_address_share_their_limits() -> None:
    async def test() -> None:
        server = await Node(next(free_addresses())).listen()
        clients = [Node(f"client-{number}", CLIENT, cluster="") for number in (1, 2)]
        for client in clients:
            client.port.send(server.address, view_request(1))
        await until(lambda: len(server.got) == 2)
        one, two = [server.peers._peers[client.address].share for client in clients]
        assert one.user is two.user
        much = 2 * unread_answers.USER_STREAMS * unread_answers.STREAM_BYTES
        one.add(much)
        assert not two.has_room()
        clients[1].port.send(server.address, view_request(2))
        one.remove(much)
        assert two.has_room()
        await until(lambda: len(server.got) == 3)
        for client in clients:
            await client.close()
        await until(lambda: not server.peers._to_clients._users)
        await server.close()

    run(test())


def test_a_peer_that_comes_back_is_reached_again() -> None:
    async def test() -> None:
        mine, theirs = two_addresses()
        one = await Node(mine).listen()
        for life in range(2):
            one.port.send(theirs, view_request(life))
            await asyncio.sleep(0.02)
            two = await Node(theirs).listen()
            while not two.got:
                one.port.send(theirs, view_request(10 + life))
                await asyncio.sleep(0.01)
            assert (one.address, view_request(10 + life)) in two.got
            await two.close()
        await one.close()

    run(test())


def test_messages_for_an_unreachable_peer_are_dropped_after_a_while() -> None:
    async def test() -> None:
        mine, theirs = two_addresses()
        one = Node(mine)
        for number in range(50):
            one.port.send(theirs, view_request(number))
        await until(lambda: one.peers.traffic.dropped_messages == 50)
        assert one.peers.queued_bytes == 0
        await until(lambda: one.peers.known == 0)
        await one.close()

    run(test())


def test_a_queue_is_bounded_and_drops_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "QUEUE_BYTES", 10_000)

    async def test() -> None:
        mine, theirs = two_addresses()
        one, two = await Node(mine).listen(), Node(theirs)
        for number in range(100):
            one.port.send(theirs, replication(number, 1_000))
        assert 8_000 < one.peers.queued_bytes <= 10_000
        dropped = one.peers.traffic.dropped_messages
        assert dropped > 85
        await two.listen()
        await until(lambda: len(two.got) == 100 - dropped)
        assert [number_of(message) for _, message in two.got] == list(range(dropped, 100))
        await one.close()
        await two.close()

    run(test())


def test_a_large_queued_record_is_not_dropped_for_small_messages() -> None:
    async def test() -> None:
        mine, theirs = two_addresses()
        one, two = await Node(mine).listen(), Node(theirs)
        one.port.send(theirs, replication(1, 64 << 20))
        for number in range(100):
            one.port.send(theirs, replication(number, 1_000))
        assert one.peers.traffic.dropped_messages == 0
        await one.close()
        await two.close()

    run(test())


@pytest.mark.parametrize(
    ("hello_fields", "reason"),
    [
        ({"version": VERSION + 1}, "upgrade LogDB at"),
        ({"cluster": "other"}, "is of cluster 'other'"),
    ],
)
def test_an_incompatible_peer_is_refused(hello_fields: dict[str, Any], reason: str) -> None:
    async def test() -> None:
        mine, theirs = two_addresses()
        node = await Node(mine).listen()
        hello = Hello(**{"version": VERSION, "cluster": "test", "role": "storage", "address": theirs, **hello_fields})
        async with grpc.aio.insecure_channel(mine) as channel:
            call: Any = channel.stream_stream(EXCHANGE)()
            with pytest.raises(Refused, match=reason):
                await shake_hands(hello, call)
        assert node.peers.open_streams == 0
        await node.close()

    run(test())


def test_a_node_sends_its_name_and_the_ordering_replicas() -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        async with grpc.aio.insecure_channel(node.address) as channel:
            call: Any = channel.stream_stream(EXCHANGE)()
            theirs = await shake_hands(Hello(VERSION, "", CLIENT, "client-1"), call)
            assert theirs == Hello(VERSION, "test", "storage", node.address, ("o:1",), right=Right.ADMIN)
            call.cancel()
        await node.close()

    run(test())


def test_the_founding_of_an_ordering_layer_is_adopted_once_and_passed_on() -> None:
    """Servers adopt it from ordering replicas, and clients from any node; older streams are reopened."""

    async def test() -> None:
        addresses = free_addresses()
        replica, server = Node(next(addresses), "ordering"), Node(next(addresses))
        server.peers.hello = server.peers.hello._replace(ordering=(replica.address,))
        kept: list[int] = []
        server.peers.on_founded = kept.append
        for node in (replica, server):
            await node.listen()
        client = Node("client-1", CLIENT, cluster="")
        for node in (server, client):
            node.port.send(replica.address, view_request(1))
        await until(lambda: len(replica.got) == 2)
        replica.peers.found(7)
        while not kept or client.peers.hello.founding != 7:
            for node in (server, client):
                node.port.send(replica.address, view_request(2))
            await asyncio.sleep(0.01)
        assert kept == [7]
        fresh = await Node(next(addresses)).listen()
        late = Node("client-2", CLIENT, cluster="")
        for node in (fresh, late):
            node.port.send(server.address, view_request(3))
        await until(lambda: len([0 for _, message in server.got if message == view_request(3)]) == 2)
        assert (fresh.peers.hello.founding, late.peers.hello.founding) == (0, 7)
        for node in (replica, server, client, fresh, late):
            await node.close()

    run(test())


def test_streams_of_before_the_founding_end_with_it() -> None:
    """Requests on them are not answered, so the nodes that sent them learn at once that they have to ask again."""

    async def test() -> None:
        replica = await Node(next(free_addresses()), "ordering").listen()
        client = Node("client-1", CLIENT, cluster="")
        lost: list[str] = []
        client.port.lost = lost.append
        client.port.send(replica.address, view_request(1))
        await until(lambda: replica.got)
        replica.peers.found(7)
        await until(lambda: lost)
        assert lost == [replica.address]
        for node in (client, replica):
            await node.close()

    run(test())


def test_a_client_that_dials_two_nodes_at_once_keeps_both_streams() -> None:
    async def test() -> None:
        addresses = free_addresses()
        nodes = [await Node(next(addresses)).listen() for _ in range(2)]
        client = Node("client-1", CLIENT, cluster="")
        lost: list[str] = []
        client.port.lost = lost.append
        for node in nodes:
            node.peers.found(7)
            client.port.send(node.address, view_request(1))
        await until(lambda: all(node.got for node in nodes))
        for node in nodes:
            node.port.send("client-1", view_request(2))
        await until(lambda: len(client.got) == 2 or lost)
        assert not lost
        for node in (client, *nodes):
            await node.close()

    run(test())


def test_a_node_that_cannot_store_the_founding_opens_no_stream() -> None:
    async def test() -> None:
        replica, server = Node(next(free_addresses()), "ordering"), Node(next(free_addresses()))
        server.peers.hello = server.peers.hello._replace(ordering=(replica.address,))

        def keep(_: int) -> None:
            raise Unavailable("no space left")

        server.peers.on_founded = keep
        replica.peers.found(7)
        for node in (replica, server):
            await node.listen()
        replica.port.send(server.address, view_request(1))
        server.port.send(replica.address, view_request(1))
        await until(lambda: server.peers.traffic.dropped_messages)
        assert server.got == replica.got == []
        for node in (replica, server):
            await node.close()

    run(test())


@pytest.mark.parametrize(
    "packet",
    [
        b"\xff\xff\xff",
        pack_hello(Hello(VERSION, "test", CLIENT, "client-1")),
        pack("another", "HERE", [view_request(1)])[0],
        pack("client-1", "another", [view_request(1)])[0],
        pack("client-1", "HERE", [tail_request(1)])[0],
    ],
    ids=["no packet", "a second hello", "from another", "to another", "a kind that is not accepted"],
)
def test_invalid_packets_end_their_stream_and_reach_no_core(packet: bytes) -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        async with grpc.aio.insecure_channel(node.address) as channel:
            call: Any = channel.stream_stream(EXCHANGE)()
            await shake_hands(Hello(VERSION, "test", CLIENT, "client-1"), call)
            here = len(b"HERE").to_bytes() + b"HERE"
            await call.write(packet.replace(here, len(node.address).to_bytes() + node.address.encode()))
            assert await call.read() is peers_module.aio.EOF
        assert node.got == []
        await until(lambda: not node.peers.open_streams)
        await node.close()

    run(test())


def test_a_server_without_a_certificate_is_verified_at_its_address() -> None:
    """A stream that only claims a server's address is refused; messages of the server itself arrive."""

    async def test() -> None:
        addresses = free_addresses()
        node, server = [await Node(next(addresses)).listen() for _ in range(2)]
        unused = next(addresses)
        for claimed in (server.address, unused):
            for nonce in (0, 7):
                async with grpc.aio.insecure_channel(node.address) as channel:
                    call: Any = channel.stream_stream(EXCHANGE)()
                    hello = Hello(VERSION, "test", "storage", claimed, nonce=nonce)
                    with pytest.raises(AccessDenied, match=f"the server at {claimed} has not opened this stream"):
                        await shake_hands(hello, call)
        assert node.peers.refusals.count == 4
        server.port.send(node.address, view_request(1))
        await until(lambda: node.got)
        assert node.got == [(server.address, view_request(1))]
        for each in (node, server):
            await each.close()

    run(test())


def test_the_metrics_count_what_is_refused() -> None:
    """A stream without a Hello, one that claims the address of a server, and a message that its sender may not send."""

    async def test() -> None:
        addresses = free_addresses()
        node, other = await Node(next(addresses)).listen(), await Node(next(addresses), MAPPING).listen()
        exporting = SimpleNamespace(peers=node.peers, worker=None, servers=())

        def counted() -> float:
            families = NodeMetrics(exporting).collect()  # type: ignore[arg-type]
            samples = [sample for family in families for sample in family.samples]
            (refused,) = [sample.value for sample in samples if sample.name == "logdb_refused_total"]
            return refused

        assert counted() == 0
        claims = Hello(VERSION, "test", "storage", next(addresses), nonce=7)
        (no_hello,) = pack(claims.address, node.address, [view_request(1)])
        for number, first in enumerate((no_hello, pack_hello(claims)), 1):
            async with grpc.aio.insecure_channel(node.address) as channel:
                call: Any = channel.stream_stream(EXCHANGE)()
                await call.write(first)
                await call.read()
            assert counted() == number
        other.port.send(node.address, REPLICATION)
        await until(lambda: counted() == 3)
        for each in (node, other):
            await each.close()

    run(test())


def test_messages_of_other_servers_are_refused() -> None:
    async def test() -> None:
        addresses = free_addresses()
        node, other = await Node(next(addresses)).listen(), await Node(next(addresses), MAPPING).listen()
        other.port.send(node.address, view_request(1))
        await until(lambda: node.got)
        other.port.send(node.address, REPLICATION)
        await until(lambda: node.peers.refusals.count)
        assert node.got == [(other.address, view_request(1))]
        for each in (node, other):
            await each.close()

    run(test())


@pytest.mark.parametrize(
    ("role", "change", "is_accepted"),
    [
        (MAPPING, MAPPING_REQUEST, True),
        *((MAPPING, request, False) for request in OPERATOR_REQUESTS),
        ("storage", MAPPING_REQUEST, False),
        (CLIENT, OPERATOR_REQUESTS[0], True),
    ],
)
def test_only_mapping_servers_may_request_a_change_and_only_one_kind(role: str, change: Any, is_accepted: bool) -> None:
    async def test() -> None:
        addresses = free_addresses()
        node = await Node(next(addresses)).listen()
        if role == CLIENT:
            other = Node("client-1", role, cluster="")
        else:
            other = await Node(next(addresses), role).listen()
        other.port.send(node.address, view_request(1))
        await until(lambda: node.got)
        other.port.send(node.address, change)
        await until(lambda: len(node.got) == 2 or node.peers.refusals.count)
        assert (len(node.got) == 2) == is_accepted
        for each in (node, other):
            await each.close()

    run(test())


def test_a_stream_begins_with_a_hello() -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        async with grpc.aio.insecure_channel(node.address) as channel:
            call: Any = channel.stream_stream(EXCHANGE)()
            await call.write(pack("client-1", node.address, [view_request(1)])[0])
            assert await call.read() is peers_module.aio.EOF
        assert node.got == []
        await node.close()

    run(test())


def test_a_second_stream_of_a_peer_replaces_the_first() -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        calls: list[Any] = []
        async with grpc.aio.insecure_channel(node.address) as channel:
            for _ in range(2):
                calls.append(channel.stream_stream(EXCHANGE)())
                await shake_hands(Hello(VERSION, "test", CLIENT, "client-1"), calls[-1])
            await until(lambda: node.peers.open_streams == 1)
            node.port.send("client-1", view_request(5))
            mail = unpack(await calls[1].read())
            assert not isinstance(mail, Hello | Refusal)
            assert mail.messages == [view_request(5)]
        await until(lambda: node.peers.known == 0)
        await node.close()

    run(test())


def test_a_node_with_another_address_is_rejected() -> None:
    async def test() -> None:
        mine, theirs = two_addresses()
        one, two = Node(mine), await Node(theirs).listen()
        other = theirs.replace("127.0.0.1", "localhost")
        one.port.send(other, view_request(1))
        await until(lambda: one.peers.traffic.dropped_messages)
        assert two.got == []
        await one.close()
        await two.close()

    run(test())


def test_an_address_in_use() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(Unavailable, match=f"cannot listen at {address}: Address already in use"):
                await Node(address).listen()

    run(test())


@pytest.mark.parametrize("runs", [((5, 2), (6, 1)), ((5, 2), (1, 1)), ((5, 0),)])
@pytest.mark.parametrize("engine", all_engines(), ids=lambda engine: engine.name)
def test_a_request_about_overlapping_runs_of_records_is_rejected(engine: Engine, runs: Any) -> None:
    """A million overlapping runs would cost a server each record a million times."""
    for kind, field in engine.wire.sliced_fields.items():
        request = kind(**{name: 1 for name in kind._fields if name != field}, **{field: ((1, 2), (3, 2**60))})
        check_sense([request])
        with pytest.raises(WireError, match="overlap or do not ascend"):
            check_sense([request._replace(**{field: runs})])


@pytest.mark.parametrize("after", [b"a", b"a123", b"s" + bytes(16), b"t" + bytes(8), b"?"])
def test_a_slice_after_an_invalid_row_key_is_rejected(after: bytes) -> None:
    """Such a request would end the mapping server that receives it."""
    with pytest.raises(WireError, match="not a row key"):
        check_sense([SliceRequest(1, 5, Cursor(Section.LEDGER, after))])


@pytest.mark.parametrize("after", [b"", b"a" + bytes(8), b"s" + bytes(8), b"t" + bytes(16)])
def test_a_slice_from_a_row_of_a_ledger_on(after: bytes) -> None:
    check_sense([SliceRequest(1, 5, Cursor(Section.LEDGER, after)), SliceRequest(1, 5, None)])
    assert list(Ledger().rows(after, 5)) == []
