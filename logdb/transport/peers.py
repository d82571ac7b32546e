"""The streams of a node to others: messages leave in packets, and arrive in packets. gRPC opens a stream; a direct
connection beside it carries the packets where the peer can be reached so (`direct.py`).

A node has one core (a client, a server) or several, the servers of a node that share one address; each attaches with a
`Port`. Messages between cores of one node are calls; all cores share the streams to other nodes.

A peer that listens is dialled when a message for it is queued; a client, which does not listen and whose address is a
name, is answered on the stream that it has opened. A stream serves both directions. Two nodes that have dialled each
other at the same time have two streams: the node with the larger address finishes its own, and the other one stays. A
stream is finished without loss: its node writes nothing more to it, and reads until the other node has ended it too.

The queue for a peer is bounded in bytes: the oldest messages are dropped first, and all of them when the peer cannot be
reached; the protocols expect loss and resend what matters. All messages of all cores of this node that are ready when
the peer's stream accepts data leave in one write, up to PACKET_BYTES.

Each stream has two tasks, one that reads and one that writes; a message has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import grpc

from logdb.cores.effects import Address
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Right
from logdb.security.authenticator import Authenticator, Grant, user_of
from logdb.security.credentials import NONE, Credentials
from logdb.security.permissions import ALLOWED_MESSAGES, MESSAGE_RIGHTS
from logdb.system.addresses import cannot_listen, location_of, parsed
from logdb.transport.accepted_messages import is_from_another_role
from logdb.transport.backoff import Backoff
from logdb.transport.dialling import OPTIONS, Refused, error_of, opened
from logdb.transport.direct import CONNECT_S, Connection, DirectListener, Ticket, connect, end_with
from logdb.transport.failures import BROKEN, aio, failure_of, reason_of
from logdb.transport.listener import Listener
from logdb.transport.node_authenticator import NodeAuthenticator
from logdb.transport.refusals import Refusals
from logdb.transport.request_slices import slices
from logdb.transport.unread_answers import TURN_S, StreamAnswers, UnreadAnswers
from logdb.wire.envelopes import (
    BUNDLED_BYTES,
    CLIENT,
    CONNECTED,
    EXCHANGE,
    MAPPING,
    NOT_CONNECTED,
    Bundle,
    Envelope,
    Hello,
    Refusal,
    bundle,
    pack,
    pack_hello,
    pack_refusal,
    refusal_reason,
    unpack,
)
from logdb.wire.limits import MAX_PACKET_BYTES, PACKET_BYTES, WireError
from logdb.wire.sanity_checks import check_sense

Receive = Callable[[Address, Sequence[Any]], None]
"""Accepts the messages of a packet, with the address of their sender."""
Inspect = Callable[[Sequence[Any]], None]
Read = Callable[[], Awaitable[Any]]
Write = Callable[[bytes], Awaitable[Any]]
EndWriting = Callable[[], Awaitable[Any]]


class Channel(Protocol):
    """A carrier of the packets of a stream: its call of gRPC, or a direct connection."""

    async def read(self) -> Any:
        """The next packet, or `aio.EOF`."""

    async def write(self, packet: bytes) -> Any:
        """Send a packet, and wait while the peer does not accept more."""


QUEUE_BYTES: Final = 2 * MAX_PACKET_BYTES
"""Maximum size of the queue for one peer. It has room for two of the largest packets, so that a small message does not
displace a large record."""
HANDSHAKE_S: Final = 3.0
DIRECT_PAUSE_S: Final = 60.0
"""Pause after a direct connection could not be made or was lost: the next streams to this peer carry their packets
themselves."""
LOST_S: Final = 0.5
"""Maximum time until a stream ends whose direct connection was lost because the peer has ended or failed."""
GRACE_S: Final = 1.0
"""Time for streams to end when the node stops."""
FINISH_S: Final = 3.0
"""Maximum time for what is under way on a stream that one of its nodes finishes."""
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
REFUSED_PAUSE_S: Final = 10.0
"""Pauses between attempts to dial a peer: the first, the longest, and the one after a refusal."""

logger = logging.getLogger("logdb.transport")


class Traffic:
    """Counters of what was sent and received."""

    def __init__(self) -> None:
        self.sent_bytes = self.received_bytes = self.sent_packets = self.received_packets = self.dropped_messages = 0


class Port:
    """The access of one core to the streams of its node.

    `receive` is called with the messages for the core, in their order; `lost` with the address of each peer whose last
    stream has ended or that cannot be reached. `accepts`: the kinds of messages that the core handles; a message of
    another kind ends its stream, so no core receives one.
    """

    def __init__(self, peers: Peers, address: Address, accepts: frozenset[type]) -> None:
        self.address, self.accepts = address, accepts
        self.receive: Receive = lambda sender, messages: None
        self.lost: Callable[[Address], None] = lambda peer: None
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._inbox: list[tuple[Address, Any]] = []

    def send(self, to: Address, message: Any) -> None:
        """Queue a message. Never waits; a message that cannot be delivered is dropped."""
        self._peers.send(self.address, to, message)

    def deliver(self, sender: Address, message: Any) -> None:
        """Accept a message of another core of this node, which this core handles in a later step of the loop."""
        if not self._inbox:
            self._loop.call_soon(self._handle_inbox)
        self._inbox.append((sender, message))

    def _handle_inbox(self) -> None:
        inbox, self._inbox = self._inbox, []
        for sender, message in inbox:
            self.receive(sender, (message,))


class _Packet(NamedTuple):
    """Serialized messages from one core to one other."""

    sender: Address
    receiver: Address
    data: bytes


class _Stream:
    """An open stream. `has_work`: set when its writer may have something to do. `is_incoming`: the peer has opened it.
    `takes_bundles`: the peer does. `is_direct`: its packets pass a direct connection. `founding`: the ordering layer of
    its handshake. `is_finishing`: nothing more is written to it."""

    __slots__ = ("founding", "has_work", "is_direct", "is_finishing", "is_incoming", "takes_bundles", "writer")

    def __init__(self, *, is_incoming: bool, takes_bundles: bool, is_direct: bool, founding: int) -> None:
        self.is_incoming, self.takes_bundles, self.is_direct = is_incoming, takes_bundles, is_direct
        self.founding = founding
        self.is_finishing = False
        self.has_work = asyncio.Event()
        self.writer: asyncio.Task[None] | None = None

    def finish(self) -> None:
        """Write nothing more than what is being written."""
        self.is_finishing = True
        self.has_work.set()

    def cancel(self) -> None:
        """End it at once."""
        assert self.writer is not None
        self.is_finishing = True
        self.writer.cancel()


class _Peer:
    """Another node, or a client. `queue`: packets to send; `share`: their account, with those that are being sent.
    `streams`: the open streams, the newest last; `user`: the name of its certificate or token on the stream that it has
    opened; `dialler`: the task that opens a stream to the peer. `failing`: the last attempt to reach it has failed.
    `addresses`: of its cores that messages were sent to."""

    __slots__ = (
        "address",
        "addresses",
        "dialler",
        "failing",
        "queue",
        "queued_bytes",
        "share",
        "streams",
        "user",
    )

    def __init__(self, address: Address, share: StreamAnswers) -> None:
        self.address, self.share = address, share
        self.addresses: set[Address] = set()
        self.queue: deque[_Packet] = deque()
        self.queued_bytes = 0
        self.streams: list[_Stream] = []
        self.dialler: asyncio.Task[None] | None = None
        self.failing = False
        self.user = ""

    @property
    def stream(self) -> _Stream | None:
        """The stream that is written to: the newest, because an older one may have ended unnoticed."""
        for stream in reversed(self.streams):
            if not stream.is_finishing:
                return stream
        return None

    @property
    def incoming(self) -> _Stream | None:
        """The stream that the peer has opened."""
        for stream in reversed(self.streams):
            if stream.is_incoming and not stream.is_finishing:
                return stream
        return None

    def wake(self) -> None:
        """Have the queue written."""
        stream = self.stream
        if stream is not None and self.queue:
            stream.has_work.set()

    def put(self, packet: _Packet) -> int:
        """Queue a packet. Returns the number of older ones that were dropped."""
        size = len(packet.data)
        self.queue.append(packet)
        self.queued_bytes += size
        self.share.add(size)
        dropped, before = 0, self.queued_bytes
        while self.queued_bytes > QUEUE_BYTES and len(self.queue) > 1:
            self.queued_bytes -= len(self.queue.popleft().data)
            dropped += 1
        if dropped:
            self.share.remove(before - self.queued_bytes)
        return dropped

    def take(self, *, bundles: bool) -> tuple[bytes, int]:
        """Remove packets from the queue, which is not empty. Returns them as one, of at most PACKET_BYTES unless it is
        a single one, and their account. `bundles`: of several pairs of cores, else of the first pair only."""
        queue, size, room = self.queue, 0, PACKET_BYTES
        taken: dict[tuple[Address, Address], list[bytes]] = {}
        while queue:
            sender, receiver, data = queue[0]
            chunks = taken.get((sender, receiver))
            room -= len(data) + (BUNDLED_BYTES if chunks is None else 0)
            if taken and (room < 0 or (chunks is None and not bundles)):
                break
            queue.popleft()
            size += len(data)
            if chunks is None:
                taken[sender, receiver] = [data]
            else:
                chunks.append(data)
        self.queued_bytes -= size
        packets = [b"".join(chunks) if len(chunks) > 1 else chunks[0] for chunks in taken.values()]
        return bundle(packets) if len(packets) > 1 else packets[0], size

    def clear(self) -> int:
        """Drop the queue. Returns the number of packets."""
        dropped = len(self.queue)
        self.queue.clear()
        self.share.remove(self.queued_bytes)
        self.queued_bytes = 0
        return dropped


class Peers:
    """All streams of the node that `hello` presents. Made, and used, in one event loop.

    `credentials`: what this node presents to the nodes that it dials; `authenticator`: decides which streams to accept;
    `inspect`: checks the messages of clients, and raises AccessDenied.

    `on_founded` is called with the ordering layer that this node has met, when it first meets one, and may raise
    Unavailable to refuse it. `denied` is called when a peer has refused this node's stream for lack of rights.
    """

    def __init__(
        self,
        hello: Hello,
        *,
        credentials: Credentials = NONE,
        authenticator: NodeAuthenticator | None = None,
        inspect: Inspect | None = None,
    ) -> None:
        self.hello, self.traffic = hello, Traffic()
        self.on_founded: Callable[[int], None] = lambda founding: None
        self.denied: Callable[[AccessDenied], None] = lambda error: None
        self._credentials, self._authenticator, self._inspect = (
            credentials,
            authenticator or NodeAuthenticator(Authenticator(), {}),
            inspect,
        )
        self._ports: dict[Address, Port] = {}
        self._to_servers, self._to_clients = UnreadAnswers(), UnreadAnswers()
        self.refusals = Refusals(logger)
        self._nonces: set[int] = set()
        self._peers: dict[Address, _Peer] = {}
        self._listener: Listener | None = None
        self._direct: DirectListener | None = None
        self._direct_after: dict[Address, float] = {}  # when to try direct connections again, as the loop's time
        self._closed = False

    def attach(self, address: Address, accepts: frozenset[type]) -> Port:
        """The port of a core of this node."""
        port = self._ports[address] = Port(self, address, accepts)
        return port

    # ---- sending

    def send(self, sender: Address, to: Address, message: Any) -> None:
        """Queue a message of a core of this node. Never waits; a message that cannot be delivered is dropped."""
        local = self._ports.get(to)
        if local is not None:
            local.deliver(sender, message)
            return
        location = location_of(to)
        peer = self._peers.get(location)
        if peer is None:
            if self._closed or ":" not in to:
                self.traffic.dropped_messages += 1
                return
            peer = self._known(location)
        try:
            packets = pack(sender, to, (message,))
        except WireError as error:
            self.traffic.dropped_messages += 1
            logger.error("a message cannot be sent", extra={"peer": to, "why": str(error)})
            return
        peer.addresses.add(to)
        for packet in packets:
            self.traffic.dropped_messages += peer.put(_Packet(sender, to, packet))
        peer.wake()
        if peer.stream is None and peer.dialler is None:
            self._begin_to_dial(peer)

    def _known(self, address: Address) -> _Peer:
        """The peer at an address, an entry for it if it is new. Answers for clients count against a limit."""
        peer = self._peers.get(address)
        if peer is None:
            answers = self._to_servers if ":" in address else self._to_clients
            share = answers.share(lambda: self._end_stalled(address), address)
            peer = self._peers[address] = _Peer(address, share)
        return peer

    def _end_stalled(self, address: Address) -> None:
        logger.warning("stream ended: its client does not read answers while others wait", extra={"peer": address})
        peer = self._peers[address]
        if peer.incoming is not None:
            peer.incoming.cancel()

    @property
    def queued_bytes(self) -> int:
        """Size of the queues for all peers."""
        return sum([peer.queued_bytes for peer in list(self._peers.values())])

    @property
    def known(self) -> int:
        """Number of peers with a stream or a queue."""
        return len(self._peers)

    @property
    def open_streams(self) -> int:
        """Number of open streams."""
        return sum([len(peer.streams) for peer in list(self._peers.values())])

    @property
    def direct_streams(self) -> int:
        """Number of open streams whose packets pass a direct connection."""
        return sum([stream.is_direct for peer in list(self._peers.values()) for stream in peer.streams])

    async def _write(self, peer: _Peer, stream: _Stream, write: Write, grant: Grant | None) -> None:
        """Send the queue, until the stream is finished. A client that has lost the right to read is sent nothing more,
        not even answers to earlier requests. Raises AccessDenied."""
        traffic = self.traffic
        while not stream.is_finishing:
            await stream.has_work.wait()
            stream.has_work.clear()
            while peer.queue and peer.stream is stream:
                if grant is not None:
                    grant.require(Right.READ)
                packet, size = peer.take(bundles=stream.takes_bundles)
                traffic.sent_packets += 1
                traffic.sent_bytes += len(packet)
                try:
                    await write(packet)
                finally:
                    peer.share.remove(size)

    # ---- receiving

    async def _read(self, peer: _Peer, theirs: Hello, read: Read, founding: int, grant: Grant | None) -> None:
        """Deliver messages until the stream ends. It also ends, with the next message, when this node has met an
        ordering layer since the handshake: the next stream's handshake then includes it. `grant`: of a client.

        A server's messages are delivered in turns with all other work of the node: it may have sent many that each take
        long. Raises WireError, AccessDenied.
        """
        traffic, time, spent_s = self.traffic, asyncio.get_running_loop().time, 0.0
        roles = {address: role for role, address in theirs.servers.items()} or {theirs.address: CLIENT}
        while (data := await read()) is not aio.EOF:
            traffic.received_packets += 1
            traffic.received_bytes += len(data)
            content = unpack(data)
            if isinstance(content, Refusal):
                raise error_of(content)
            for one in map(unpack, content.packets) if isinstance(content, Bundle) else (content,):
                port = self._check(peer, roles, one, grant)
                assert isinstance(one, Envelope)
                if founding != self.hello.founding:
                    return
                if grant is None:
                    since = time()
                    port.receive(one.sender, one.messages)
                    spent_s += time() - since
                    if spent_s >= TURN_S:
                        spent_s = 0.0
                        await asyncio.sleep(0)
                else:
                    await self._deliver(peer, port, one.messages, grant)

    def _check(
        self,
        peer: _Peer,
        roles: Mapping[Address, str],
        content: Hello | Refusal | Envelope | Bundle,
        grant: Grant | None,
    ) -> Port:
        """The port of the core that accepts the messages of this peer. Raises WireError, AccessDenied."""
        port = self._ports.get(content.receiver) if isinstance(content, Envelope) else None
        if not isinstance(content, Envelope) or port is None:
            raise WireError(f"{peer.address} sent a packet that is not for {self.hello.address}")
        role = roles.get(content.sender)
        if role is None:
            raise WireError(f"{peer.address} sent a packet of {content.sender}")
        for message in content.messages:
            if type(message) not in port.accepts:
                raise WireError(
                    f"{content.sender} sent a {type(message).__name__}, which {port.address} does not accept"
                )
            if role != CLIENT and is_from_another_role(message, role):
                raise WireError(f"{content.sender} ({role}) sent a {type(message).__name__}, which other roles send")
        check_sense(content.messages)
        if grant is not None:
            _check_rights(peer.address, grant, content.messages)
            if self._inspect is not None:
                self._inspect(content.messages)
        return port

    async def _deliver(self, peer: _Peer, port: Port, messages: Sequence[Any], grant: Grant) -> None:
        """Deliver a client's messages as fast as the client reads the answers, and in turns with other clients."""
        time, user = asyncio.get_running_loop().time, peer.share.user
        since = time()
        turn_ends = since + user.left_s
        for message in messages:
            for part in slices(message):
                if time() > turn_ends or not peer.share.has_room():
                    user.spend(time() - since)
                    await user.let_others()
                    await peer.share.until_room()
                    _check_rights(peer.address, grant, (part,))
                    since = time()
                    turn_ends = since + user.left_s
                port.receive(peer.address, (part,))
        user.spend(time() - since)

    async def _talk(
        self,
        peer: _Peer,
        theirs: Hello,
        channel: Channel,
        founding: int,
        *,
        end_writing: EndWriting | None = None,
        grant: Grant | None = None,
    ) -> None:
        """Read and write until the stream ends or is cancelled. `founding`: of its handshake. `end_writing`: of a
        stream that this node has opened, lets the peer read to the end and end the stream."""
        if peer.failing:
            peer.failing = False
            logger.info("peer reached again", extra={"peer": peer.address})
        stream = _Stream(
            is_incoming=end_writing is None,
            takes_bundles=theirs.bundles,
            is_direct=isinstance(channel, Connection),
            founding=founding,
        )
        stream.writer = writer = asyncio.create_task(self._write(peer, stream, channel.write, grant))
        reader = asyncio.create_task(self._read(peer, theirs, channel.read, founding, grant))
        peer.streams.append(stream)
        self._finish_duplicates(peer)
        peer.wake()
        try:
            done, _ = await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()
            if writer.cancelled():
                return
            # One of the two nodes finishes the stream: what is being written still leaves.
            stream.finish()
            peer.wake()
            await asyncio.wait((writer,), timeout=FINISH_S)
            if end_writing is not None and not reader.done():
                await end_writing()
                await asyncio.wait((reader,), timeout=FINISH_S)
                if reader.done():
                    reader.result()
        finally:
            peer.streams.remove(stream)
            peer.wake()
            writer.cancel()
            reader.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)
            if not peer.streams:
                self._report_lost(peer)

    def _finish_duplicates(self, peer: _Peer) -> None:
        """Finish the stream that this node has opened if the peer has opened one too and has the smaller address."""
        if peer.incoming is not None and peer.address < self.hello.address:
            for stream in peer.streams:
                if not stream.is_incoming:
                    stream.finish()

    def _report_lost(self, peer: _Peer) -> None:
        if not self._closed:
            for port in self._ports.values():
                for address in peer.addresses or (peer.address,):
                    port.lost(address)

    # ---- the ordering layer

    def found(self, founding: int) -> None:
        """Set the ordering layer of this node. Older streams end, so their peers ask again: a founder answers nothing
        before it is a member."""
        self.hello = self.hello._replace(founding=founding)
        for stream in [stream for peer in self._peers.values() for stream in peer.streams]:
            if stream.founding != founding:
                stream.finish()

    def _meet(self, mine: Hello, theirs: Hello) -> int:
        """The ordering layer for a new stream. Raises Unavailable."""
        if theirs.founding == self.hello.founding:
            return theirs.founding  # which this node may have learned after it sent `mine`
        if not self.hello.has_met(theirs):
            return mine.founding
        self.on_founded(theirs.founding)
        self.found(theirs.founding)
        return theirs.founding

    # ---- streams that this node opens

    def _begin_to_dial(self, peer: _Peer) -> None:
        peer.dialler = asyncio.create_task(self._dial(peer))
        peer.dialler.add_done_callback(lambda dialler: self._dialled(peer, dialler))

    def _dialled(self, peer: _Peer, dialler: asyncio.Task[None]) -> None:
        peer.dialler = None
        if not dialler.cancelled() and dialler.exception() is not None:
            logger.error("dialling failed", extra={"peer": peer.address}, exc_info=dialler.exception())
        self._forget(peer)

    async def _dial(self, peer: _Peer) -> None:
        """Keep a stream to the peer until the queue is empty, or the peer has opened one."""
        backoff, time = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S), asyncio.get_running_loop().time
        while peer.queue and peer.stream is None:
            begun = time()
            try:
                await self._open(peer)
            except (Refused, AccessDenied) as error:
                self._not_reached(peer, str(error))
                if isinstance(error, AccessDenied):
                    self.denied(error)
                await asyncio.sleep(REFUSED_PAUSE_S * random.uniform(0.5, 1))
                continue
            except (*BROKEN, WireError, OSError, TimeoutError, ValueError, Unavailable) as error:
                reason = "" if peer.failing else (await failure_of(peer.address, error, self._credentials)).reason
                self._not_reached(peer, reason)
            except Exception as error:
                if not peer.failing:
                    logger.error("dialling failed", extra={"peer": peer.address}, exc_info=error)
                self._not_reached(peer, reason_of(error))
            if time() - begun > HANDSHAKE_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def _not_reached(self, peer: _Peer, reason: str) -> None:
        if peer.stream is not None:  # the peer has opened one
            return
        self.traffic.dropped_messages += peer.clear()
        if not peer.failing:
            peer.failing = True
            logger.warning("peer not reached", extra={"peer": peer.address, "why": reason})
        self._report_lost(peer)

    async def _open(self, peer: _Peer) -> None:
        """Open a stream, and use it until it ends."""
        nonce = 0 if self.hello.role == CLIENT else secrets.randbits(64)
        self._nonces.add(nonce)
        mine = self.hello
        try:
            may_be_direct = asyncio.get_running_loop().time() >= self._direct_after.get(peer.address, 0.0)
            asking = mine._replace(nonce=nonce, direct=may_be_direct)
            async with opened(peer.address, asking, self._credentials, HANDSHAKE_S) as stream:
                self._nonces.discard(nonce)
                call, theirs = stream.call, stream.theirs
                if theirs.address != peer.address:
                    raise Refused(f"the node at {peer.address} calls itself {theirs.address}: use that address")
                founding = self._meet(mine, theirs)
                connection = await self._connect(peer, theirs, call)
                if connection is None:
                    await self._talk(peer, theirs, call, founding, end_writing=call.done_writing)
                    return
                try:
                    with contextlib.suppress(ConnectionError):
                        await self._talk(peer, theirs, connection, founding, end_writing=connection.end)
                finally:
                    connection.close()
                if connection.was_lost and await _is_open(call):
                    self._pause_direct(peer, "it was lost")
        finally:
            self._nonces.discard(nonce)

    async def _connect(self, peer: _Peer, theirs: Hello, call: Any) -> Connection | None:
        """The direct connection beside a stream, None if there is none; the peer learns which."""
        if not theirs.port:
            return None
        connection = None
        host, _ = parsed(peer.address)
        try:
            connection = await connect(host, theirs.port, theirs.ticket, self._credentials.context())
        except (OSError, TimeoutError) as error:
            self._pause_direct(peer, f"port {theirs.port}: {reason_of(error)}")
        else:
            end_with(call, connection)
        await call.write(NOT_CONNECTED if connection is None else CONNECTED)
        return connection

    def _pause_direct(self, peer: _Peer, reason: str) -> None:
        logger.info("no direct connection; messages pass gRPC", extra={"peer": peer.address, "why": reason})
        now = asyncio.get_running_loop().time()
        self._direct_after = {address: after for address, after in self._direct_after.items() if after > now}
        self._direct_after[peer.address] = now + DIRECT_PAUSE_S

    # ---- streams that others open

    async def listen(self, address: str) -> int:
        """Listen at an address. Returns the port. Raises Unavailable."""
        self._listener = Listener(EXCHANGE, self._exchange, OPTIONS, descriptors=2)
        port = await self._listener.listen(address, self._authenticator.add_port)
        try:
            self._direct = DirectListener(address, self._authenticator.context)
        except OSError as error:
            raise cannot_listen(address, error) from error
        return port

    async def report_health(self, *, is_serving: bool) -> None:
        """Set the answer of this node's health service."""
        if self._listener is not None:
            await self._listener.report_health(is_serving=is_serving)

    async def _exchange(self, requests: Any, context: Any) -> None:
        del requests  # `context.read` is the same
        with contextlib.ExitStack() as connections:
            channel: Channel = context
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    first = await context.read()
                if first is aio.EOF:
                    return
                theirs = unpack(first)
                if not isinstance(theirs, Hello):
                    raise WireError("a stream that does not begin with a Hello")
                grant = await self._greet(theirs, context)
                if grant is None:
                    return
                founding = self._meet(self.hello, theirs)
                answer = self.hello._replace(right=grant.right)
                if theirs.direct and self._direct is not None and self._direct.has_room:
                    ticket = connections.enter_context(self._direct.ticket())
                    offer = answer._replace(port=self._direct.port, ticket=ticket.number)
                    await context.write(pack_hello(offer))
                    chosen = await _chosen(theirs, context, ticket)
                    if chosen is None:
                        return
                    channel = chosen
                    if channel is context:
                        connections.close()
                else:
                    await context.write(pack_hello(answer))
                await self._admit(theirs, context, channel, founding, grant)
                if isinstance(channel, Connection) and channel.was_lost:
                    context.set_code(grpc.StatusCode.ABORTED)
            except AccessDenied as error:
                self.refusals.add("access denied", context.peer(), error)
                with contextlib.suppress(*BROKEN, ConnectionError):
                    await channel.write(pack_refusal(str(error), denied=True))
            except (*BROKEN, ConnectionError):
                pass
            except (WireError, TimeoutError, Unavailable) as error:
                self.refusals.add("stream ended", context.peer(), str(error) or "no Hello came")

    async def _greet(self, theirs: Hello, context: Any) -> Grant | None:
        """The grant for a stream that the peer has opened; None after a refusal, or an answer that ends the stream.
        Raises AccessDenied, TimeoutError."""
        reason = refusal_reason(self.hello, theirs)
        if not reason and theirs.proof and theirs.proof not in self._nonces:
            reason = f"{self.hello.address} has not opened that stream"
        if reason or theirs.proof:
            await context.write(pack_refusal(reason) if reason else pack_hello(self.hello._replace(proof=theirs.proof)))
            return None
        grant = self._authenticator.admit(context, self.hello, theirs)
        if theirs.role != CLIENT and not self._authenticator.demands_certificates:
            known, mapping = self.hello.mapping, theirs.servers.get(MAPPING)
            if mapping is not None and known and mapping not in known:
                raise AccessDenied(f"{mapping} is not one of the mapping servers of {self.hello.address}")
            async with asyncio.timeout(HANDSHAKE_S):
                await self._verify(theirs)
        self._check_name(theirs, grant)
        return grant

    async def _verify(self, theirs: Hello) -> None:
        """Without certificates: ask the server at the address in `theirs` whether it has opened this stream. Raises
        AccessDenied, TimeoutError."""
        reason = "it does not confirm it"
        try:
            if not theirs.nonce:
                raise WireError("a server's stream has no nonce")
            async with opened(theirs.address, self.hello._replace(proof=theirs.nonce), NONE) as stream:
                answer = stream.theirs
            if (answer.proof, answer.servers) == (theirs.nonce, theirs.servers):
                return
        except (*BROKEN, WireError, OSError, ValueError, Unavailable, AccessDenied) as error:
            reason = reason_of(error)
        raise AccessDenied(f"the server at {theirs.address} has not opened this stream: {reason}")

    def _check_name(self, theirs: Hello, grant: Grant) -> None:
        """Refuse a stream under the address of a connected peer that has authenticated with another name: it would
        receive that peer's messages. Raises AccessDenied."""
        peer = self._peers.get(theirs.address)
        if peer is not None and peer.incoming is not None and peer.user != grant.name:
            raise AccessDenied(f"another user is connected as {theirs.address}")

    async def _admit(self, theirs: Hello, context: Any, channel: Channel, founding: int, grant: Grant) -> None:
        """Use a stream that the peer has opened, or its connection. An older one is cancelled: the peer has replaced
        it. Raises AccessDenied."""
        self._check_name(theirs, grant)  # another user may have connected during the handshake
        peer = self._known(theirs.address)
        if peer.incoming is not None:
            peer.incoming.cancel()
        peer.user = grant.name
        client = grant if theirs.role == CLIENT else None
        if client is not None:
            peer.share.move(user_of(grant, context.peer()))
        try:
            await self._talk(peer, theirs, channel, founding, grant=client)
        except (*BROKEN, ConnectionError):
            pass
        finally:
            self._forget(peer)

    def _forget(self, peer: _Peer) -> None:
        """Remove the entry of a peer without a stream and without a queue."""
        if peer.streams or peer.dialler is not None or self._peers.get(peer.address) is not peer:
            return
        if peer.queue and ":" in peer.address and not self._closed:
            self._begin_to_dial(peer)
        else:
            self.traffic.dropped_messages += peer.clear()
            peer.share.give_up()
            del self._peers[peer.address]

    # ---- the end

    async def close(self) -> None:
        """End all streams. The queues are dropped."""
        self._closed = True
        peers = list(self._peers.values())
        diallers = [peer.dialler for peer in peers if peer.dialler is not None]
        for task in diallers:
            task.cancel()
        for stream in [stream for peer in peers for stream in peer.streams]:
            stream.cancel()
        await asyncio.gather(*diallers, return_exceptions=True)
        if self._direct is not None:
            await self._direct.close()
        if self._listener is not None:
            await self._listener.stop(GRACE_S)


async def _is_open(call: Any) -> bool:
    """Whether the stream of a direct connection that was lost has not ended, or has ended for the loss alone. Otherwise
    its peer has ended or failed, and the connection with it."""
    try:
        async with asyncio.timeout(LOST_S):
            return await call.code() is grpc.StatusCode.ABORTED
    except TimeoutError:
        return True


async def _chosen(theirs: Hello, context: Any, ticket: Ticket) -> Channel | None:
    """The carrier of the packets of a stream whose peer has received a ticket: the connection, if the peer reports that
    it has connected. None if the peer has ended the stream. Raises WireError."""
    reported: Any = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_S + HANDSHAKE_S):
            reported = await context.read()
            if reported == CONNECTED:
                return await ticket.connection()
    if reported is aio.EOF:
        return None
    if reported == NOT_CONNECTED:
        return context  # type: ignore[no-any-return]  # of gRPC
    raise WireError(f"{theirs.address} has not reported whether it has connected")


def _check_rights(address: Address, grant: Grant, messages: Sequence[Any]) -> None:
    """Raises AccessDenied; WireError for a message that only servers send."""
    allowed = ALLOWED_MESSAGES[grant.right]
    for message in messages:
        if type(message) not in allowed:
            needed = MESSAGE_RIGHTS.get(type(message))
            if needed is None:
                raise WireError(f"{address} sent a {type(message).__name__}, which only servers send")
            grant.require(needed)
