"""Direct connections: TCP beside a stream of gRPC, which carries the packets of that stream in its place.

A message over grpc.aio passes a thread of gRPC at both nodes, which costs three times as much as the message itself.
So gRPC opens a stream, authenticates its peer and detects that it has failed; the packets travel over a connection of
their own, between the event loops of the two nodes.

The node that opens a stream asks for it (`Hello.direct`). The other one answers with a port of its `DirectListener` and
a ticket, a random number for this stream alone. The first node connects to that port at the same host, with TLS if the
stream has it, sends the ticket, and receives it back in the first packet. It reports on the stream whether it has
connected. If it has not (a firewall, a proxy that accepts everything), the stream carries the packets. If a connection
is lost and its stream is not, the next stream does: the node that listens ends the stream with ABORTED.

A packet is preceded by its length, 4 bytes; the length 0 ends a direction. The connection ends with its stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

from logdb.system.addresses import joined, parsed
from logdb.transport.connections import max_connections
from logdb.transport.failures import aio
from logdb.wire.limits import MAX_PACKET_BYTES

TICKET_BYTES: Final = 16
CONNECT_S: Final = 2.0
"""Maximum time to connect and to receive the ticket back; then the stream carries the packets."""
AGAIN_S: Final = 0.2
"""Maximum pause before the next attempt, if the listener has too many strangers."""
TICKET_S: Final = 3.0
"""Maximum time until a connection has sent its ticket."""
MAX_STRANGERS: Final = 64
"""Maximum number of connections that have not sent a ticket yet."""
ACCEPT_PAUSE_S: Final = 1.0
"""Pause after a connection could not be accepted."""
SHUTDOWN_S: Final = 1.0
"""Maximum time for what is written to leave when a connection ends."""
BUFFER_BYTES: Final = 1 << 18
"""Packets received and not read, or written and not sent, above which a connection waits."""
KEEPALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *[
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in {
            "TCP_KEEPIDLE": 2,
            "TCP_KEEPINTVL": 2,
            "TCP_KEEPCNT": 2,
            "TCP_USER_TIMEOUT": 10_000,
        }.items()
        if hasattr(socket, name)
    ],
]
"""Options of both ends: a firewall can forget a connection, and then drops what is sent. A silent peer is probed; after
ten seconds without an acknowledgement (the last option, in ms) the connection ends."""
_LENGTH_BYTES: Final = 4
_END: Final = bytes(_LENGTH_BYTES)

logger = logging.getLogger("logdb.transport")


class Connection(asyncio.Protocol):
    """One end of a connection. `read` and `write` are used by one task each.

    At the node that listens, `on_ticket` is called with the ticket of the peer, `on_closed` when the descriptor is free
    again. `was_lost`: it has ended, and neither node has ended it.
    """

    def __init__(
        self,
        on_ticket: Callable[[Connection, bytes], None] | None = None,
        on_closed: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        self._on_ticket, self._on_closed = on_ticket, on_closed
        self._transport: asyncio.Transport | None = None
        self._partial = bytearray()
        self._packets: deque[bytes] = deque()
        self._unread_bytes = 0
        self._is_paused = self._has_ended = self._is_lost = self.was_lost = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    # ---- the protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        for option in KEEPALIVE:
            transport.get_extra_info("socket").setsockopt(*option)

    def data_received(self, data: bytes) -> None:
        if self._on_ticket is not None:
            self._partial += data
            if len(self._partial) < TICKET_BYTES:
                return
            ticket, data = bytes(self._partial[:TICKET_BYTES]), bytes(self._partial[TICKET_BYTES:])
            self._partial.clear()
            redeem, self._on_ticket = self._on_ticket, None
            redeem(self, ticket)
        if self._has_ended:
            return
        if self._partial:
            self._partial += data
            taken = self._split(self._partial)
            del self._partial[:taken]
        else:
            taken = self._split(data)
            if taken < len(data):
                self._partial += data[taken:]
        if self._packets or self._has_ended:
            self._wake_reader()

    def _split(self, data: bytes | bytearray) -> int:
        """Take the complete packets from the beginning of `data`. Returns their size."""
        at, size = 0, len(data)
        while size - at >= _LENGTH_BYTES:
            begin = at + _LENGTH_BYTES
            length = int.from_bytes(data[at:begin], "big")
            if not length or length > MAX_PACKET_BYTES:
                if length:
                    logger.warning("direct connection ended: a packet of %s bytes", length)
                    self._lose()
                    self.abort()
                self._has_ended = True
                return size
            if size - begin < length:
                break
            at = begin + length
            self._packets.append(bytes(memoryview(data)[begin:at]))
            self._unread_bytes += length
        if self._unread_bytes > BUFFER_BYTES and not self._is_paused:
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()
        return at

    def eof_received(self) -> None:
        self._lose()
        self._wake_reader()

    def pause_writing(self) -> None:
        self._writer = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.done():
            writer.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._lose()
        self._is_lost = True
        self._partial.clear()
        self._wake_reader()
        self.resume_writing()
        self._on_closed(self)

    def _lose(self) -> None:
        if not self._has_ended:
            self.was_lost = self._has_ended = True

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # ---- for the two tasks of a stream

    async def read(self) -> Any:
        """The next packet; `aio.EOF` after the last one, when the peer has ended the connection or was lost."""
        while not self._packets:
            if self._has_ended:
                return aio.EOF
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        packet = self._packets.popleft()
        self._unread_bytes -= len(packet)
        if self._is_paused and self._unread_bytes <= BUFFER_BYTES and not self._is_lost:
            assert self._transport is not None
            self._is_paused = False
            self._transport.resume_reading()
        return packet

    async def write(self, packet: bytes) -> None:
        """Send a packet, and wait while too much is not sent yet. Raises ConnectionError."""
        self._write(_framed(packet))
        if self._writer is not None:
            await self._writer

    async def end(self) -> None:
        """Send that no more packets follow. Raises ConnectionError."""
        self._write(_END)

    def _write(self, data: bytes) -> None:
        if self._is_lost or self._transport is None or self._transport.is_closing():
            self._lose()
            raise ConnectionResetError("the connection was lost")
        self._transport.write(data)

    def send_ticket(self, ticket: bytes) -> None:
        """The first bytes of the node that connects."""
        self._write(ticket)

    def return_ticket(self, ticket: bytes) -> None:
        """The first packet of the node that listens."""
        self._write(_framed(ticket))

    def close(self) -> None:
        """End the connection once all is sent that was written, at the latest after SHUTDOWN_S."""
        self._has_ended = True
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(SHUTDOWN_S, self._transport.abort)

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()


def _framed(packet: bytes) -> bytes:
    return len(packet).to_bytes(_LENGTH_BYTES, "big") + packet


async def connect(host: str, port: int, ticket: bytes, context: ssl.SSLContext | None) -> Connection:
    """A connection to a listener, which has accepted the ticket. Raises OSError, also of TLS, and TimeoutError."""
    loop = asyncio.get_running_loop()
    tls: dict[str, Any] = {}
    if context is not None:
        tls = {"ssl": context, "server_hostname": host, "ssl_shutdown_timeout": SHUTDOWN_S}
    async with asyncio.timeout(CONNECT_S):
        while True:
            _, connection = await loop.create_connection(Connection, host, port, **tls)
            is_accepted = False
            try:
                connection.send_ticket(ticket)
                is_accepted = await connection.read() == ticket
            except ConnectionResetError:
                pass
            finally:
                if not is_accepted:
                    connection.abort()
            if is_accepted:
                return connection
            await asyncio.sleep(random.uniform(0, AGAIN_S))


def end_with(call: Any, connection: Connection) -> None:
    """End a connection some time after the stream that it was opened for: what the peer has sent still arrives."""
    loop = asyncio.get_running_loop()
    call.add_done_callback(lambda _: loop.call_later(SHUTDOWN_S, connection.abort))


class Ticket:
    """An invitation to one connection. `number`: what the peer has to send."""

    def __init__(self) -> None:
        self.number = secrets.token_bytes(TICKET_BYTES)
        self._redeemed: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    def redeem(self, connection: Connection) -> None:
        """The peer has connected."""
        self._redeemed.set_result(connection)

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._redeemed.done() and not self._redeemed.cancelled():
            self._redeemed.result().close()

    async def connection(self) -> Connection:
        """The connection of the peer, once it has sent the ticket."""
        return await asyncio.shield(self._redeemed)


class DirectListener:
    """Listens at a free port of the host of `address`. `context`: for TLS. `strangers`: the connections that have not
    sent a ticket yet."""

    def __init__(self, address: str, context: ssl.SSLContext | None) -> None:
        """Raises OSError."""
        host, _ = parsed(address)
        family, kind, protocol, _, target = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        self._context = context
        self._socket = socket.socket(family, kind, protocol)
        self._socket.setblocking(False)
        self._tickets: dict[bytes, Ticket] = {}
        self._connections: set[Connection] = set()
        self._max_connections = max_connections(descriptors=2)  # one of each two is for gRPC
        self.strangers: set[asyncio.Task[None]] = set()
        try:
            self._socket.bind(target)
            self._socket.listen(128)
        except BaseException:
            self._socket.close()
            raise
        self.port = int(self._socket.getsockname()[1])
        self.address = joined(host, self.port)
        self._task = asyncio.create_task(self._accept())

    @property
    def has_room(self) -> bool:
        """Whether one more connection leaves enough descriptors, if all tickets are redeemed."""
        return len(self._tickets) + len(self._connections) < self._max_connections

    @contextlib.contextmanager
    def ticket(self) -> Iterator[Ticket]:
        """A ticket. It is valid once and within the block, and its connection ends with the block."""
        ticket = Ticket()
        self._tickets[ticket.number] = ticket
        try:
            yield ticket
        finally:
            self._tickets.pop(ticket.number, None)
            ticket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except OSError as error:  # no descriptor is free, or the peer has gone
                logger.warning("direct connection not accepted", extra={"why": str(error)})
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self.strangers) >= MAX_STRANGERS:
                accepted.close()
                continue
            task = asyncio.create_task(self._greet(accepted))
            self.strangers.add(task)
            task.add_done_callback(self.strangers.discard)

    async def _greet(self, accepted: socket.socket) -> None:
        """Wait for the ticket of a connection."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {}
        if self._context is not None:
            tls = {"ssl": self._context, "ssl_handshake_timeout": TICKET_S, "ssl_shutdown_timeout": SHUTDOWN_S}
        transport: asyncio.BaseTransport | None = None
        known = loop.create_future()

        def redeem(one: Connection, number: bytes) -> None:
            ticket = self._tickets.pop(number, None)
            if not known.done():
                known.set_result(ticket is not None)
            if ticket is None:
                one.abort()
            else:
                self._connections.add(one)
                one.return_ticket(number)
                ticket.redeem(one)

        try:
            async with asyncio.timeout(TICKET_S):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: Connection(redeem, self._connections.discard), accepted, **tls
                )
                await asyncio.shield(known)
        except (OSError, TimeoutError):
            pass
        finally:
            if not known.done() or not known.result():
                accepted.close() if transport is None else cast(asyncio.Transport, transport).abort()

    async def close(self) -> None:
        """Accept no more connections; those with a ticket end with their streams."""
        tasks = [self._task, *self.strangers]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._socket.close()
