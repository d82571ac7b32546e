"""The streams of one core to others, over gRPC: messages go out in parcels, and come in by the parcel.

A peer that listens is dialled when there is something to send; who does not listen (a client, whose address is a mere
name) is answered on the stream that it has opened. Between two that both listen either stream serves both directions,
so usually there is one. What waits for a peer is kept in a queue of bounded bytes, the oldest are dropped first, and
all of it when the peer cannot be reached: the protocols expect loss and send again what matters. Everything that is
ready when a stream can take more goes out in one parcel.

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
from typing import Any, Final

from logdb.cores.effects import Address
from logdb.errors import AccessDenied, Unavailable
from logdb.log.engine import Right
from logdb.security.authenticator import Authenticator, Grant, user_of
from logdb.security.credentials import NONE, Credentials
from logdb.security.permissions import BRINGS, NEEDS
from logdb.transport.accepted_messages import is_of_others
from logdb.transport.backoff import Backoff
from logdb.transport.dialling import OPTIONS, Refused, error_of, opened
from logdb.transport.failures import BROKEN, aio, failure_of, reason_of
from logdb.transport.listener import Listener
from logdb.transport.node_authenticator import NodeAuthenticator
from logdb.transport.refusals import Refusals
from logdb.transport.request_slices import portions
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
    unpack,
    why_not,
)
from logdb.wire.limits import MAX_PARCEL_BYTES, PARCEL_BYTES, WireError
from logdb.wire.sanity_checks import check_sense

Receive = Callable[[Address, Sequence[Any]], None]
"""Takes the messages of a parcel and who has sent them."""
Inspect = Callable[[Sequence[Any]], None]
Read = Callable[[], Awaitable[Any]]
Write = Callable[[bytes], Awaitable[Any]]

QUEUE_BYTES: Final = 2 * MAX_PARCEL_BYTES
"""So much may wait for one peer: with less, a large record that waits would go for the sake of a small message."""
HANDSHAKE_S: Final = 3.0
GRACE_S: Final = 1.0
"""Streams are told that they end, and have so long to do so."""
FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 1.0
REFUSED_PAUSE_S: Final = 10.0
"""Pauses between attempts to dial a peer: the first, the longest, and the one after a refusal."""

logger = logging.getLogger("logdb.transport")


class Traffic:
    """What has gone through, for whoever looks."""

    def __init__(self) -> None:
        self.sent_bytes = self.received_bytes = self.sent_parcels = self.received_parcels = self.dropped_messages = 0


class _Peer:
    """Another core. `queue`: parcels that wait; `share`: the account of those and of what is being sent. `streams`: the
    writers of those that are open, `incoming` that of the one that the peer itself has opened, who it was by its
    certificate or token `who`; `dialler`: the task that opens ours. `failing`: it could not be reached."""

    __slots__ = (
        "address",
        "dialler",
        "failing",
        "incoming",
        "queue",
        "queued_bytes",
        "ready",
        "share",
        "streams",
        "who",
    )

    def __init__(self, address: Address, share: StreamAnswers) -> None:
        self.address, self.share = address, share
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.ready = asyncio.Event()
        self.streams: set[asyncio.Task[None]] = set()
        self.incoming: asyncio.Task[None] | None = None
        self.dialler: asyncio.Task[None] | None = None
        self.failing = False
        self.who = ""

    def put(self, parcel: bytes) -> int:
        """Queue it. Returns how many older ones had to go."""
        self.queue.append(parcel)
        self.queued_bytes += len(parcel)
        self.share.add(len(parcel))
        self.ready.set()
        dropped, before = 0, self.queued_bytes
        while self.queued_bytes > QUEUE_BYTES and len(self.queue) > 1:
            self.queued_bytes -= len(self.queue.popleft())
            dropped += 1
        if dropped:
            self.share.remove(before - self.queued_bytes)
        return dropped

    def take(self) -> bytes:
        """What waits, as one parcel of reasonable size. There must be something."""
        queue = self.queue
        parcels, size = [queue.popleft()], 0
        size = len(parcels[0])
        while queue and size + len(queue[0]) <= PARCEL_BYTES:
            parcels.append(queue.popleft())
            size += len(parcels[-1])
        self.queued_bytes -= size
        if not queue:
            self.ready.clear()
        return b"".join(parcels) if len(parcels) > 1 else parcels[0]

    def clear(self) -> int:
        """Give up what waits. Returns how many parcels."""
        dropped = len(self.queue)
        self.queue.clear()
        self.share.remove(self.queued_bytes)
        self.queued_bytes = 0
        self.ready.clear()
        return dropped


class Peers:
    """All streams of the core that `hello` presents. It must be made in the loop that it works in.

    `receive` is given what comes; messages of kinds that are not in `takes` end their stream: no core sees them.
    `founded` is told which ordering layer this node has met, when it first has, and may refuse to go by it.
    `credentials`: what this node shows to those that it dials; `authenticator`: who may come; `inspect`: looks at what
    clients bring, and raises AccessDenied. `denied` hears that this node may not do what it has tried, `lost` of peers
    whose last stream has ended or that cannot be reached.
    """

    def __init__(
        self,
        hello: Hello,
        takes: frozenset[type],
        *,
        credentials: Credentials = NONE,
        authenticator: NodeAuthenticator | None = None,
        inspect: Inspect | None = None,
    ) -> None:
        self.hello, self.traffic = hello, Traffic()
        self.receive: Receive = lambda sender, messages: None
        self.founded: Callable[[int], None] = lambda founding: None
        self.denied: Callable[[AccessDenied], None] = lambda error: None
        self.lost: Callable[[Address], None] = lambda peer: None
        self._credentials, self._authenticator, self._inspect = (
            credentials,
            authenticator or NodeAuthenticator(Authenticator(), {}),
            inspect,
        )
        self._takes = takes
        self._to_servers, self._to_clients = UnreadAnswers(), UnreadAnswers()
        self.refusals = Refusals(logger)
        self._nonces: set[int] = set()
        self._peers: dict[Address, _Peer] = {}
        self._listener: Listener | None = None
        self._closed = False

    # ---- sending

    def send(self, to: Address, message: Any) -> None:
        """Queue a message. Never waits; what cannot be delivered is lost."""
        peer = self._peers.get(to)
        if peer is None:
            if self._closed or ":" not in to:
                self.traffic.dropped_messages += 1
                return
            peer = self._known(to)
        try:
            parcels = pack(self.hello.address, to, (message,))
        except WireError as error:
            self.traffic.dropped_messages += 1
            logger.error("a message cannot be sent", extra={"peer": to, "why": str(error)})
            return
        for parcel in parcels:
            self.traffic.dropped_messages += peer.put(parcel)
        if not peer.streams and peer.dialler is None:
            self._begin_to_dial(peer)

    def _known(self, address: Address) -> _Peer:
        """The peer at an address. What waits for clients has a limit, which is asked before more is made for them."""
        peer = self._peers.get(address)
        if peer is None:
            answers = self._to_servers if ":" in address else self._to_clients
            share = answers.share(lambda: self._end_stalled(address), address)
            peer = self._peers[address] = _Peer(address, share)
        return peer

    def _end_stalled(self, address: Address) -> None:
        logger.warning("stream ended: its client takes no answers, and others wait", extra={"peer": address})
        peer = self._peers[address]
        if peer.incoming is not None:
            peer.incoming.cancel()

    @property
    def queued_bytes(self) -> int:
        """What waits for all peers."""
        return sum([peer.queued_bytes for peer in list(self._peers.values())])

    @property
    def known(self) -> int:
        """How many peers there are, with a stream or with messages that wait for one."""
        return len(self._peers)

    @property
    def open_streams(self) -> int:
        """How many there are."""
        return sum([len(peer.streams) for peer in list(self._peers.values())])

    async def _write(self, peer: _Peer, write: Write, grant: Grant | None) -> None:
        """Send what is queued. The one place where messages leave: a client that may not read any more is sent nothing,
        whatever it had asked for before. Raises AccessDenied."""
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

    async def _read(self, peer: _Peer, role: str, read: Read, founding: int, grant: Grant | None) -> None:
        """Hand on what comes, until the stream ends, which is when this node has met an ordering layer since it began:
        the next one tells the other side. `role`: of the peer; `grant`: of a client. Raises WireError, AccessDenied."""
        me, traffic, takes = self.hello.address, self.traffic, self._takes
        while (data := await read()) is not aio.EOF:
            traffic.received_parcels += 1
            traffic.received_bytes += len(data)
            mail = unpack(data)
            if isinstance(mail, Refusal):
                raise error_of(mail)
            if not isinstance(mail, Envelope) or mail.sender != peer.address or mail.receiver != me:
                raise WireError(f"{peer.address} sent a parcel that does not belong on its stream to {me}")
            for message in mail.messages:
                if type(message) not in takes:
                    raise WireError(f"{peer.address} sent a {type(message).__name__}, which {me} does not take")
                if role != CLIENT and is_of_others(message, role):
                    raise WireError(f"{peer.address} ({role}) sent a {type(message).__name__}, as others do")
            check_sense(mail.messages)
            if grant is not None:
                _check_rights(peer.address, grant, mail.messages)
                if self._inspect is not None:
                    self._inspect(mail.messages)
            if founding != self.hello.founding:
                return
            if grant is None:
                self.receive(mail.sender, mail.messages)
            else:
                await self._hand_over(peer, mail.messages, grant)

    async def _hand_over(self, peer: _Peer, messages: Sequence[Any], grant: Grant) -> None:
        """What a client asks reaches the core as fast as the client takes the answers, and in turns with others."""
        time, user = asyncio.get_running_loop().time, peer.share.user
        since = time()
        turn_ends = since + user.left_s
        for message in messages:
            for part in portions(message):
                if time() > turn_ends or not peer.share.has_room():
                    user.spend(time() - since)
                    await user.let_others()
                    await peer.share.until_room()
                    _check_rights(peer.address, grant, (part,))
                    since = time()
                    turn_ends = since + user.left_s
                self.receive(peer.address, (part,))
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
        """Read and write until the stream ends, or somebody cancels its writer. `founding`: what it began with."""
        assert theirs.role is not None
        if peer.failing:
            peer.failing = False
            logger.info("peer reached again", extra={"peer": peer.address})
        writer = asyncio.create_task(self._write(peer, write, grant))
        reader = asyncio.create_task(self._read(peer, theirs.role, read, founding, grant))
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
            if not peer.streams and not self._closed:
                self.lost(peer.address)

    # ---- which ordering layer

    def found(self, founding: int) -> None:
        """This node is of this ordering layer. Streams that began before it knew end with what comes next on them."""
        self.hello = self.hello._replace(founding=founding)

    def _meet(self, mine: Hello, theirs: Hello) -> int:
        """The ordering layer that a stream begins with. Raises Unavailable."""
        if not self.hello.has_met(theirs):
            return mine.founding
        self.founded(theirs.founding)
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
        """Keep a stream to the peer as long as there is something to send."""
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

    def _not_reached(self, peer: _Peer, why: str) -> None:
        self.traffic.dropped_messages += peer.clear()
        if not peer.failing:
            peer.failing = True
            logger.warning("peer not reached", extra={"peer": peer.address, "why": why})
        if not self._closed:
            self.lost(peer.address)

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
        """What the health service of this node answers from now on."""
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
            why = why_not(self.hello, theirs)
            if not why and theirs.proof and theirs.proof not in self._nonces:
                why = f"{self.hello.address} has not opened that stream"
            if why or theirs.proof:
                await context.write(pack_refusal(why) if why else pack_hello(self.hello._replace(proof=theirs.proof)))
                return
            grant = self._authenticator.admit(context, self.hello, theirs)
            if theirs.role != CLIENT and not self._authenticator.demands_certificates:
                known = self.hello.mapping
                if theirs.role == MAPPING and known and theirs.address not in known:
                    raise AccessDenied(f"{theirs.address} is none of the mapping servers of {self.hello.address}")
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
        """Where servers have no certificates: ask at the address that a peer claims whether the server there has opened
        this stream. Raises AccessDenied, TimeoutError."""
        why = "it does not say so"
        try:
            if not theirs.nonce:
                raise WireError("a server's stream without a nonce")
            async with opened(theirs.address, self.hello._replace(proof=theirs.nonce), NONE) as stream:
                answer = stream.theirs
            if (answer.proof, answer.role) == (theirs.nonce, theirs.role):
                return
        except (*BROKEN, WireError, OSError, ValueError, Unavailable, AccessDenied) as error:
            why = reason_of(error)
        raise AccessDenied(f"the server at {theirs.address} has not opened this stream: {why}")

    def _check_name(self, theirs: Hello, grant: Grant) -> None:
        """Nobody takes the place of another one: what is for them would go to him. Raises AccessDenied."""
        peer = self._peers.get(theirs.address)
        if peer is not None and peer.incoming is not None and peer.who != grant.who:
            raise AccessDenied(f"somebody else is here as {theirs.address}")

    async def _admit(self, theirs: Hello, context: Any, founding: int, grant: Grant) -> None:
        """Talk on a stream that the peer has opened. An older one is given up: the peer has."""
        peer = self._known(theirs.address)
        if peer.incoming is not None:
            peer.incoming.cancel()
        peer.who = grant.who
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
        """Nothing is kept of a peer that is neither connected nor sent to."""
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
        """End all streams. What waits is lost."""
        self._closed = True
        peers = list(self._peers.values())
        diallers = [peer.dialler for peer in peers if peer.dialler is not None]
        for task in [*diallers, *[writer for peer in peers for writer in peer.streams]]:
            task.cancel()
        await asyncio.gather(*diallers, return_exceptions=True)
        if self._listener is not None:
            await self._listener.stop(GRACE_S)


def _check_rights(address: Address, grant: Grant, messages: Sequence[Any]) -> None:
    """Raises AccessDenied; WireError for what no client has to say."""
    allowed = BRINGS[grant.right]
    for message in messages:
        if type(message) not in allowed:
            needed = NEEDS.get(type(message))
            if needed is None:
                raise WireError(f"{address} sent a {type(message).__name__}, as only servers do")
            grant.require(needed)
