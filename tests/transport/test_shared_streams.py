"""Streams that cores share: what is ready for all of them leaves in one write, and two nodes keep one stream."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from logdb.security.authenticator import Authenticator
from logdb.security.credentials import NONE, Credentials
from logdb.system.addresses import role_in
from logdb.transport import peers as peers_module
from logdb.transport.dialling import OPTIONS, Stream, opened, shake_hands
from logdb.transport.listener import Listener
from logdb.transport.peers import Peers
from logdb.wire.envelopes import (
    CLIENT,
    EXCHANGE,
    MAPPING,
    NODE,
    VERSION,
    Bundle,
    Envelope,
    Hello,
    pack_hello,
    unpack,
)
from logdb.wire.limits import PACKET_BYTES
from tests.harness.coroutines import run, until
from tests.harness.examples import number_of, replication, view_request
from tests.harness.ports import free_addresses

STORAGE = "storage"
ROLES = (STORAGE, MAPPING)
TAKES = frozenset({type(view_request(0))})


class Node:
    """A node with two cores, and the messages that they receive, by sender and receiver."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.peers = Peers(Hello(VERSION, "test", NODE, address, roles=ROLES))
        self.ports = {role: self.peers.attach(f"{address}/{role}", TAKES) for role in ROLES}
        self.got: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
        for port in self.ports.values():
            port.receive = lambda sender, messages, to=port.address: self.got[sender, to].extend(messages)  # type: ignore[misc]

    async def listen(self) -> Node:
        await self.peers.listen(self.address)
        return self

    def send(self, to: str, *numbers: int) -> None:
        """Messages from each core to each core of the node `to`, in turns."""
        for number in numbers:
            for port in self.ports.values():
                for role in ROLES:
                    port.send(f"{to}/{role}", view_request(number))

    def has_got(self, sender: str, numbers: range) -> bool:
        """Whether each core has got these messages from each core of that node, in any order, and no others."""
        pairs = [(f"{sender}/{one}", f"{self.address}/{other}") for one in ROLES for other in ROLES]
        wanted = [view_request(number) for number in numbers]
        return all(sorted(self.got[pair]) == wanted for pair in pairs)


@contextlib.asynccontextmanager
async def connected(node: Node, **fields: Any) -> AsyncIterator[Any]:
    """The stream of a client, after the handshake."""
    async with grpc.aio.insecure_channel(node.address, options=OPTIONS) as channel:
        call: Any = channel.stream_stream(EXCHANGE)()
        await shake_hands(Hello(VERSION, "test", CLIENT, "client-1", **fields), call)
        await until(lambda: node.peers.open_streams)  # the node answers the handshake before it uses the stream
        yield call
        call.cancel()


def two_addresses() -> tuple[str, str]:
    """The smaller one first."""
    addresses = free_addresses()
    one, two = sorted((next(addresses), next(addresses)))
    return one, two


# ---- one write


def test_messages_of_several_cores_leave_in_one_write() -> None:
    async def test() -> None:
        one, two = [await Node(address).listen() for address in two_addresses()]
        one.send(two.address, *range(20))
        await until(lambda: two.has_got(one.address, range(20)))
        for pair, got in two.got.items():
            assert got == [view_request(number) for number in range(20)], f"{pair} in the order in which they were sent"
        assert (one.peers.traffic.sent_packets, two.peers.traffic.received_packets) == (1, 1)
        for node in (one, two):
            await node.peers.close()

    run(test())


@pytest.mark.parametrize("bundles", [True, False], ids=["this build", "an older build of the same version"])
def test_only_a_node_that_takes_bundles_is_sent_one(bundles: bool) -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        async with connected(node, bundles=bundles) as call:
            for port in (*node.ports.values(), *node.ports.values()):
                port.send("client-1", view_request(7))
            got: list[Envelope] = []
            kinds = set()
            while sum(len(mail.messages) for mail in got) < 4:
                mail = unpack(await call.read())
                kinds.add(type(mail))
                found = map(unpack, mail.packets) if isinstance(mail, Bundle) else (mail,)
                got += [one for one in found if isinstance(one, Envelope)]
            assert kinds == {Bundle if bundles else Envelope}
            assert {role_in(mail.sender) for mail in got} == set(ROLES)
            assert len(got) == (2 if bundles else 4)
        await node.peers.close()

    run(test())


def test_a_bundle_has_at_most_the_size_of_a_packet_and_keeps_the_order_of_each_pair() -> None:
    async def test() -> None:
        node = await Node(next(free_addresses())).listen()
        sizes = [1_000, PACKET_BYTES // 2, 300_000, 3 * PACKET_BYTES, 10, 200_000, PACKET_BYTES - 120, 50] * 3
        async with connected(node) as call:
            for number, size in enumerate(sizes):
                for port in node.ports.values():
                    port.send("client-1", replication(number, size))
            got: dict[str, list[int]] = {f"{node.address}/{role}": [] for role in ROLES}
            while any(len(numbers) < len(sizes) for numbers in got.values()):
                data = await call.read()
                mail = unpack(data)
                found = [unpack(one) for one in mail.packets] if isinstance(mail, Bundle) else [mail]
                messages = [message for one in found if isinstance(one, Envelope) for message in one.messages]
                assert len(data) <= PACKET_BYTES or len(messages) == 1
                for one in found:
                    assert isinstance(one, Envelope)
                    got[one.sender] += [number_of(message) for message in one.messages]
            assert all(numbers == list(range(len(sizes))) for numbers in got.values())
            assert node.peers.traffic.sent_packets < 2 * len(sizes)
        await until(lambda: not node.peers.queued_bytes)
        await node.peers.close()

    run(test())


# ---- one stream


class Dials:
    """The streams that nodes open, other than to confirm one: `begun` and `ended`, by the address of the node that has
    opened it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        monkeypatch.setattr(peers_module, "opened", self._opened)

    @contextlib.asynccontextmanager
    async def _opened(
        self, address: str, mine: Hello, credentials: Credentials, timeout_s: float | None = None
    ) -> AsyncIterator[Stream]:
        async with opened(address, mine, credentials, timeout_s) as stream:
            if mine.proof:
                yield stream
                return
            self.begun.append(mine.address)
            try:
                yield stream
            finally:
                self.ended.append(mine.address)


def test_nodes_that_dial_each_other_keep_the_stream_of_the_smaller_address_and_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both nodes send all the time, so that messages are under way on the stream that ends."""
    dials = Dials(monkeypatch)

    async def test() -> None:
        one, two = [await Node(address).listen() for address in two_addresses()]
        open_streams = set()
        number = 0
        while not dials.ended or (one.peers.open_streams, two.peers.open_streams) != (1, 1):
            one.send(two.address, number)
            two.send(one.address, number)
            open_streams.add(one.peers.open_streams)
            number += 1
            await asyncio.sleep(0)
        assert sorted(dials.begun) == [one.address, two.address], "both have dialled"
        assert dials.ended == [two.address]
        assert 2 in open_streams
        await until(lambda: two.has_got(one.address, range(number)) and one.has_got(two.address, range(number)))
        assert one.peers.traffic.dropped_messages == two.peers.traffic.dropped_messages == 0
        for node in (one, two):
            await node.peers.close()

    run(test())


@pytest.mark.parametrize("is_smaller", [True, False])
def test_a_node_that_has_started_again_is_answered_on_its_new_stream(
    monkeypatch: pytest.MonkeyPatch, is_smaller: bool
) -> None:
    """The older stream to the node may seem open for seconds, because neither end has closed it."""
    monkeypatch.setattr(peers_module, "FINISH_S", 60)

    async def test() -> None:
        addresses = two_addresses()
        node = await Node(addresses[not is_smaller]).listen()
        hello = Hello(VERSION, "test", NODE, addresses[is_smaller], roles=ROLES)
        silent = asyncio.Event()
        handshakes = []

        async def serve(_: Any, context: Any) -> None:
            theirs = unpack(await context.read())
            assert isinstance(theirs, Hello)
            handshakes.append(theirs)
            await context.write(pack_hello(hello._replace(proof=theirs.proof)))
            if not theirs.proof:
                await silent.wait()

        listener = Listener(EXCHANGE, serve, OPTIONS)
        await listener.listen(hello.address, Authenticator().add_port)
        node.ports[STORAGE].send(f"{hello.address}/{STORAGE}", view_request(1))
        await until(lambda: node.peers.open_streams and not node.peers.queued_bytes)
        async with opened(node.address, hello._replace(nonce=secrets.randbits(64)), NONE) as stream:
            await until(lambda: node.peers.open_streams == 2)
            node.ports[STORAGE].send(f"{hello.address}/{STORAGE}", view_request(2))
            mail = unpack(await stream.call.read())
            assert isinstance(mail, Envelope)
            assert mail.messages == [view_request(2)]
        assert len([theirs for theirs in handshakes if not theirs.proof]) == 1, "the node has dialled once"
        silent.set()
        await node.peers.close()
        await listener.stop(0)

    run(test())
