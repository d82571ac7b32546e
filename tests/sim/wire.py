"""The wire between processes in seeds with small limits: messages are bytes and take time.

Those that are too large are split, as between real servers, and a full queue drops the oldest ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from logdb.cores.effects import SECOND, Address
from logdb.wire import limits
from logdb.wire.envelopes import Envelope, pack, unpack
from tests.sim.world import Failure

if TYPE_CHECKING:
    from tests.sim.world import World


class Link:
    """The queue from one process to another. `is_busy`: a packet is being sent. `arrives_at`: when the last one
    arrives."""

    __slots__ = ("arrives_at", "is_busy", "queue", "queued_bytes")

    def __init__(self) -> None:
        self.arrives_at = 0
        self.queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self.is_busy = False


Deliver = Callable[[Address, Address, Any, Link], None]


class Wire:
    """All links. `queue_bytes`: of a link, beyond which the oldest packets are dropped; `bytes_a_second`: its speed."""

    def __init__(self, world: World, queue_bytes: int, bytes_a_second: int) -> None:
        self._world = world
        self._queue_bytes, self._bytes_a_second = queue_bytes, bytes_a_second
        self._links: dict[tuple[Address, Address], Link] = {}

    def send(self, sender: Address, to: Address, message: Any, deliver: Deliver) -> None:
        """Have the parts of a message delivered. A real stream would drop one that is too large, each time that it is
        sent."""
        try:
            packets = pack(sender, to, (message,))
        except limits.WireError as error:
            raise Failure("what a core sends is not too large", f"{sender} to {to}: {error}") from error
        self._world.counts["message split"] += len(packets) > 1
        link = self._links.setdefault((sender, to), Link())
        for packet in packets:
            link.queue.append(packet)
            link.queued_bytes += len(packet)
            while link.queued_bytes > self._queue_bytes and len(link.queue) > 1:
                link.queued_bytes -= len(link.queue.popleft())
                self._world.counts["message dropped from a full queue"] += 1
        self._next(link, deliver)

    def _next(self, link: Link, deliver: Deliver) -> None:
        if link.is_busy or not link.queue:
            return
        packet = link.queue.popleft()
        link.queued_bytes -= len(packet)
        link.is_busy = True

        def sent(_: Any) -> None:
            link.is_busy = False
            envelope = received(packet)
            for message in envelope.messages:
                deliver(envelope.sender, envelope.receiver, message, link)
            self._next(link, deliver)

        self._world.after(len(packet) * SECOND // self._bytes_a_second, sent)

    def end(self, dead: Address) -> None:
        """The process has died: nothing that waits for it, or that it has not sent, arrives."""
        for addresses, link in self._links.items():
            if dead in addresses:
                link.queue.clear()
                link.queued_bytes = 0


def received(packet: bytes) -> Envelope:
    """The messages of a packet."""
    try:
        envelope = unpack(packet)
    except limits.WireError as error:
        raise Failure("what is sent can be received", str(error)) from error
    assert isinstance(envelope, Envelope)
    return envelope
