"""The streams of a node to others, over gRPC: messages leave in parcels, and arrive in parcels.

A node has one core (a client, a server) or several, the servers of a node that share one address; each attaches with a
`Port`. Messages between cores of one node are calls; all cores share the streams to other nodes.

A peer that listens is dialled when a message for it is queued; a client, which does not listen and whose address is a
name, is answered on the stream that it has opened. Between two nodes that both listen either stream serves both
directions, so usually there is one. The queue for a peer is bounded in bytes: the oldest messages are dropped first,
and all of them when the peer cannot be reached; the protocols expect loss and resend what matters. All messages from
one core to one other that are ready when a stream accepts data leave in one parcel.

Each stream has two tasks, one that reads and one that writes; a message has none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from logdb.cores.effects import Address
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Right
from logdb.security.authenticator import Authenticator, Grant, user_of
from logdb.security.credentials import NONE, Credentials
from logdb.security.permissions import ALLOWED_MESSAGES, MESSAGE_RIGHTS
from logdb.system.addresses import location_of
from logdb.transport.accepted_messages import is_from_another_role
from logdb.transport.backoff import Backoff
from logdb.transport.dialling import OPTIONS, Refused, error_of, opened
from logdb.transport.failures import BROKEN, aio, failure_of, reason_of
from logdb.transport.listener import Listener
from logdb.transport.node_authenticator import NodeAuthenticator
from logdb.transport.refusals import Refusals
from logdb.transport.request_slices import slices
from logdb.transport.unread_answers import StreamAnswers, UnreadAnswers
from logdb.wire.envelopes import (
    CLIENT,
    EXCHANGE,
    MAPPING,
    Envelope,
    Hello,
    Refusal,
    pack,
    pack_hello,
    pack_refusal,
    refusal_reason,
    unpack,
)
from logdb.wire.limits import MAX_PARCEL_BYTES, PARCEL_BYTES, WireError
from logdb.wire.sanity_checks import check_sense

Receive = Callable[[Address, Sequence[Any]], None]
"""Accepts the messages of a parcel, with the address of their sender."""
Inspect = Callable[[Sequence[Any]], None]
Read = Callable[[], Awaitable[Any]]
Write = Callable[[bytes], Awaitable[Any]]

QUEUE_BYTES: Final = 2 * MAX_PARCEL_BYTES
"""Maximum size of the queue for one peer. It has room for two of the largest parcels, so that a small message does not
displace a large record."""
HANDSHAKE_S: Final = 3.0
GRACE_S: Final = 1.0
"""Time for streams to end when the node stops."""
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
REFUSED_PAUSE_S: Final = 10.0
"""Pauses between attempts to dial a peer: the first, the longest, and the one after a refusal."""

logger = logging.getLogger("logdb.transport")


class Traffic:
    """Counters of what was sent and received."""

    def __init__(self) -> None:
        self.sent_bytes = self.received_bytes = self.sent_parcels = self.received_parcels = self.dropped_messages = 0


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


class _Parcel(NamedTuple):
    """Serialized messages from one core to one other."""

    sender: Address
    receiver: Address
    data: bytes


class _Peer:
    """Another node, or a client. `queue`: parcels to send; `share`: their account, with those that are being sent.
    `streams`: the writers of the open streams, `incoming`: that of the stream which the peer has opened, under the name
    `user` by its certificate or token; `dialler`: the task that opens a stream to the peer. `failing`: the last attempt
    to reach it has failed. `addresses`: of its cores that messages were sent to."""

    __slots__ = (
        "address",
        "addresses",
        "dialler",
        "failing",
        "incoming",
        "queue",
        "queued_bytes",
        "ready",
        "share",
        "streams",
        "user",
    )

    def __init__(self, address: Address, share: StreamAnswers) -> None:
        self.address, self.share = address, share
        self.addresses: set[Address] = set()
        self.queue: deque[_Parcel] = deque()
        self.queued_bytes = 0
        self.ready = asyncio.Event()
        self.streams: set[asyncio.Task[None]] = set()
        self.incoming: asyncio.Task[None] | None = None
        self.dialler: asyncio.Task[None] | None = None
        self.failing = False
        self.user = ""

    def put(self, parcel: _Parcel) -> int:
        """Queue a parcel. Returns the number of older ones that were dropped."""
        size = len(parcel.data)
        self.queue.append(parcel)
        self.queued_bytes += size
        self.share.add(size)
        self.ready.set()
        dropped, before = 0, self.queued_bytes
        while self.queued_bytes > QUEUE_BYTES and len(self.queue) > 1:
            self.queued_bytes -= len(self.queue.popleft().data)
            dropped += 1
        if dropped:
            self.share.remove(before - self.queued_bytes)
        return dropped

    def take(self) -> bytes:
        """Remove parcels from the queue, which is not empty, and return them as one of at most PARCEL_BYTES."""
        queue = self.queue
        sender, receiver, data = queue.popleft()
        chunks, size = [data], len(data)
        while queue and queue[0].receiver == receiver and queue[0].sender == sender:
            if size + len(queue[0].data) > PARCEL_BYTES:
                break
            chunks.append(queue.popleft().data)
            size += len(chunks[-1])
        self.queued_bytes -= size
        if not queue:
            self.ready.clear()
        return b"".join(chunks) if len(chunks) > 1 else data

    def clear(self) -> int:
        """Drop the queue. Returns the number of parcels."""
        dropped = len(self.queue)
        self.queue.clear()
        self.share.remove(self.queued_bytes)
        self.queued_bytes = 0
        self.ready.clear()
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
            parcels = pack(sender, to, (message,))
        except WireError as error:
            self.traffic.dropped_messages += 1
            logger.error("a message cannot be sent", extra={"peer": to, "why": str(error)})
            return
        peer.addresses.add(to)
        for parcel in parcels:
            self.traffic.dropped_messages += peer.put(_Parcel(sender, to, parcel))
        if not peer.streams and peer.dialler is None:
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

    async def _write(self, peer: _Peer, write: Write, grant: Grant | None) -> None:
        """Send the queue. A client that has lost the right to read is sent nothing more, not even answers to earlier
        requests. Raises AccessDenied."""
        traffic = self.traffic
        while True:
            await peer.ready.wait()
            if grant is not None:
                grant.require(Right.READ)
            if peer.queue:
                parcel = peer.take()
                traffic.sent_parcels += 1
                traffic.sent_bytes += len(parcel)
                try:
                    await write(parcel)
                finally:
                    peer.share.remove(len(parcel))

    # ---- receiving

    async def _read(self, peer: _Peer, theirs: Hello, read: Read, founding: int, grant: Grant | None) -> None:
        """Deliver messages until the stream ends. It also ends, with the next message, when this node has met an
        ordering layer since the handshake: the next stream's handshake then includes it. `grant`: of a client.

        Raises WireError, AccessDenied.
        """
        traffic = self.traffic
        roles = {address: role for role, address in theirs.servers.items()} or {theirs.address: CLIENT}
        while (data := await read()) is not aio.EOF:
            traffic.received_parcels += 1
            traffic.received_bytes += len(data)
            mail = unpack(data)
            if isinstance(mail, Refusal):
                raise error_of(mail)
            port = self._ports.get(mail.receiver) if isinstance(mail, Envelope) else None
            if not isinstance(mail, Envelope) or port is None:
                raise WireError(f"{peer.address} sent a parcel that is not for {self.hello.address}")
            role = roles.get(mail.sender)
            if role is None:
                raise WireError(f"{peer.address} sent a parcel of {mail.sender}")
            for message in mail.messages:
                if type(message) not in port.accepts:
                    raise WireError(
                        f"{mail.sender} sent a {type(message).__name__}, which {port.address} does not accept"
                    )
                if role != CLIENT and is_from_another_role(message, role):
                    raise WireError(f"{mail.sender} ({role}) sent a {type(message).__name__}, which other roles send")
            check_sense(mail.messages)
            if grant is not None:
                _check_rights(peer.address, grant, mail.messages)
                if self._inspect is not None:
                    self._inspect(mail.messages)
            if founding != self.hello.founding:
                return
            if grant is None:
                port.receive(mail.sender, mail.messages)
            else:
                await self._deliver(peer, port, mail.messages, grant)

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
        read: Read,
        write: Write,
        founding: int,
        *,
        incoming: bool,
        grant: Grant | None = None,
    ) -> None:
        """Read and write until the stream ends, or its writer is cancelled. `founding`: of its handshake."""
        if peer.failing:
            peer.failing = False
            logger.info("peer reached again", extra={"peer": peer.address})
        writer = asyncio.create_task(self._write(peer, write, grant))
        reader = asyncio.create_task(self._read(peer, theirs, read, founding, grant))
        peer.streams.add(writer)
        if incoming:
            peer.incoming = writer
        try:
            done, _ = await asyncio.wait((writer, reader), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()
        finally:
            peer.streams.discard(writer)
            if peer.incoming is writer:
                peer.incoming = None
            writer.cancel()
            reader.cancel()
            await asyncio.gather(writer, reader, return_exceptions=True)
            if not peer.streams:
                self._report_lost(peer)

    def _report_lost(self, peer: _Peer) -> None:
        if not self._closed:
            for port in self._ports.values():
                for address in peer.addresses or (peer.address,):
                    port.lost(address)

    # ---- the ordering layer

    def found(self, founding: int) -> None:
        """Set the ordering layer of this node. Older streams end with the next message on them."""
        self.hello = self.hello._replace(founding=founding)

    def _meet(self, mine: Hello, theirs: Hello) -> int:
        """The ordering layer for a new stream. Raises Unavailable."""
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
        """Keep a stream to the peer until the queue is empty."""
        backoff, time = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S), asyncio.get_running_loop().time
        while peer.queue and not peer.streams:
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
            if time() - begun > HANDSHAKE_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def _not_reached(self, peer: _Peer, reason: str) -> None:
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
            async with opened(peer.address, mine._replace(nonce=nonce), self._credentials, HANDSHAKE_S) as stream:
                self._nonces.discard(nonce)
                call, theirs = stream.call, stream.theirs
                if theirs.address != peer.address:
                    raise Refused(f"the node at {peer.address} calls itself {theirs.address}: use that address")
                await self._talk(peer, theirs, call.read, call.write, self._meet(mine, theirs), incoming=False)
        finally:
            self._nonces.discard(nonce)

    # ---- streams that others open

    async def listen(self, address: str) -> int:
        """Listen at an address. Returns the port. Raises Unavailable."""
        self._listener = Listener(EXCHANGE, self._exchange, OPTIONS)
        return await self._listener.listen(address, self._authenticator.add_port)

    async def report_health(self, *, is_serving: bool) -> None:
        """Set the answer of this node's health service."""
        if self._listener is not None:
            await self._listener.report_health(is_serving=is_serving)

    async def _exchange(self, requests: Any, context: Any) -> None:
        del requests  # `context.read` is the same
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                first = await context.read()
            if first is aio.EOF:
                return
            theirs = unpack(first)
            if not isinstance(theirs, Hello):
                raise WireError("a stream that does not begin with a Hello")
            reason = refusal_reason(self.hello, theirs)
            if not reason and theirs.proof and theirs.proof not in self._nonces:
                reason = f"{self.hello.address} has not opened that stream"
            if reason or theirs.proof:
                await context.write(
                    pack_refusal(reason) if reason else pack_hello(self.hello._replace(proof=theirs.proof))
                )
                return
            grant = self._authenticator.admit(context, self.hello, theirs)
            if theirs.role != CLIENT and not self._authenticator.demands_certificates:
                known, mapping = self.hello.mapping, theirs.servers.get(MAPPING)
                if mapping is not None and known and mapping not in known:
                    raise AccessDenied(f"{mapping} is not one of the mapping servers of {self.hello.address}")
                async with asyncio.timeout(HANDSHAKE_S):
                    await self._verify(theirs)
            self._check_name(theirs, grant)
            founding = self._meet(self.hello, theirs)
            await context.write(pack_hello(self.hello._replace(right=grant.right)))
            await self._admit(theirs, context, founding, grant)
        except AccessDenied as error:
            self.refusals.add("access denied", context.peer(), error)
            with contextlib.suppress(*BROKEN):
                await context.write(pack_refusal(str(error), denied=True))
        except BROKEN:
            pass
        except (WireError, TimeoutError, Unavailable) as error:
            self.refusals.add("stream ended", context.peer(), str(error) or "no Hello came")

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

    async def _admit(self, theirs: Hello, context: Any, founding: int, grant: Grant) -> None:
        """Use a stream that the peer has opened. An older one is cancelled: the peer has replaced it."""
        peer = self._known(theirs.address)
        if peer.incoming is not None:
            peer.incoming.cancel()
        peer.user = grant.name
        client = grant if theirs.role == CLIENT else None
        if client is not None:
            peer.share.move(user_of(grant, context.peer()))
        try:
            await self._talk(peer, theirs, context.read, context.write, founding, incoming=True, grant=client)
        except BROKEN:
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
        for task in [*diallers, *[writer for peer in peers for writer in peer.streams]]:
            task.cancel()
        await asyncio.gather(*diallers, return_exceptions=True)
        if self._listener is not None:
            await self._listener.stop(GRACE_S)


def _check_rights(address: Address, grant: Grant, messages: Sequence[Any]) -> None:
    """Raises AccessDenied; WireError for a message that only servers send."""
    allowed = ALLOWED_MESSAGES[grant.right]
    for message in messages:
        if type(message) not in allowed:
            needed = MESSAGE_RIGHTS.get(type(message))
            if needed is None:
                raise WireError(f"{address} sent a {type(message).__name__}, which only servers send")
            grant.require(needed)
