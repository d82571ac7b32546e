"""Packets: the bytes that two nodes exchange over a stream, and the handshake with which a stream begins.

A node makes packets with `pack` and reads them with `unpack`; gRPC transports the bytes, with the method `EXCHANGE` and
the limit `MAX_PACKET_BYTES`. A node that opens a stream sends its `Hello` first; the other one answers with its own, or
with a `Refusal` from `refusal_reason`, and both check the other's Hello with it.

A packet is a concatenation of serialized messages, which protobuf parses as one message: so each message is serialized
once, and its size is known before it is assigned to a packet. A packet has the messages from one core to one other;
packets of several pairs of cores are sent together as a `bundle`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from logdb.cores.effects import Address
from logdb.log.engine import ENGINES, Right, all_engines, engine_of
from logdb.wire import codec
from logdb.wire.limits import MAX_FIELDS, MAX_PACKET_BYTES, MAX_PLAIN_BYTES, PACKET_BYTES, TooLargeToSend, WireError
from logdb.wire.proto import peers_pb2
from logdb.wire.schema import Packet
from logdb.wire.splitting import split

VERSION: Final = 18
"""Version of the schema and of the meaning of its messages. Nodes of different versions refuse each other."""

_SERVICE: Final = peers_pb2.DESCRIPTOR.services_by_name["Peers"]
EXCHANGE: Final = f"/{_SERVICE.full_name}/{_SERVICE.methods[0].name}"
"""gRPC's name of the method."""


MAPPING: Final = "mapping"
CLIENT: Final = "client"
NODE: Final = "node"
"""Roles in a Hello beside those of the engine. A node is a process with servers of several roles."""


class Hello(NamedTuple):
    """The first message of a stream, in both directions: which node its sender is.

    `cluster`: "" from a client that does not know it yet. `role`: None if this version, or the engine, does not have
    it; `roles`: of a node, those of its servers. `address`: where the sender listens; a client, which does not listen,
    has a unique name instead. `ordering`: the addresses of all founders (`logdb.log.engine`), so that a client needs
    one address only; `mapping`: of all mapping servers that the sender's configuration names. `right`: in an answer,
    what the receiver may do. `founding`: the ordering layer that the sender has met under the cluster's name
    (`paxos.Replica.cluster`), 0: none yet. `nonce`: of a server, drawn for the stream that it opens. `proof`: asks
    whether the receiver has opened a stream with this nonce, and confirms it in an answer. `engine`: of a server's log.
    `bundles`: the sender accepts bundles, as all nodes with this code do; older ones of the same version do not.
    `direct`: of a node that opens a stream, asks for a direct connection (`logdb.transport.direct`); `port` and
    `ticket`, in the answer: where it connects, and what it sends there.
    """

    version: int
    cluster: str
    role: str | None
    address: Address
    ordering: tuple[Address, ...] = ()
    mapping: tuple[Address, ...] = ()
    right: Right = Right.NONE
    founding: int = 0
    nonce: int = 0
    proof: int = 0
    engine: str = ENGINES[0]
    roles: tuple[str, ...] = ()
    bundles: bool = True
    direct: bool = False
    port: int = 0
    ticket: bytes = b""

    @property
    def servers(self) -> dict[str, Address]:
        """The addresses of the sender's servers, by role; of a client, none."""
        if self.role == NODE:
            return {role: f"{self.address}/{role}" for role in self.roles}
        return {} if self.role in (None, CLIENT) else {str(self.role): self.address}

    @property
    def founder(self) -> Address | None:
        """The address of its server that decides which servers belong to the cluster; None if it has none."""
        servers = self.servers
        return servers.get(engine_of(self.engine).founder_role) if servers else None

    @property
    def is_founder(self) -> bool:
        """Whether one of its servers is a founder."""
        return self.founder is not None

    def has_met(self, other: Hello) -> bool:
        """Whether this node accepts the ordering layer in the other's Hello as its own from now on: it has met none
        yet, and a founder has sent that Hello, or this node is a client, which stores nothing."""
        is_trusted = other.is_founder or self.role == CLIENT
        return other.founding != 0 and self.founding == 0 and is_trusted


class Refusal(NamedTuple):
    """The last message of a stream that its sender ends, with the reason. `denied`: the receiver lacks the right."""

    why: str
    denied: bool = False


class Envelope(NamedTuple):
    """Messages from one core to another, in the order in which they were sent."""

    sender: Address
    receiver: Address
    messages: list[Any]


class Bundle(NamedTuple):
    """Packets that are envelopes, not unpacked yet, of one or several pairs of cores."""

    packets: tuple[bytes, ...]


_FIELDS: Final = 4
"""Fields of a packet with one message, as every packet larger than PACKET_BYTES is: its addresses, the message, the
batch."""

_MESSAGE_KEY: Final = bytes((Packet.MESSAGES_FIELD_NUMBER << 3 | 2,))


def _numbers() -> Iterator[tuple[str, int]]:
    yield MAPPING, peers_pb2.MAPPING
    yield CLIENT, peers_pb2.CLIENT
    yield NODE, peers_pb2.NODE
    for engine in all_engines():
        yield from ((role.name, role.number) for role in engine.roles.values())


_ROLES: Final = dict(_numbers())
_ROLE_OF: Final = {number: role for role, number in _ROLES.items()}
assert len(_ROLE_OF) == len(_ROLES) == len(set(_numbers())), "roles of two engines that differ in their numbers"


def pack(sender: Address, receiver: Address, messages: Iterable[Any]) -> list[bytes]:
    """The messages as packets, as few as PACKET_BYTES allows; a message that is too large is split if it can be.
    Raises WireError, among them TooLargeToSend."""
    try:
        head = Packet(sender=sender, receiver=receiver).SerializeToString()
    except (TypeError, ValueError) as error:
        raise WireError(f"{sender!r} or {receiver!r} is not an address") from error
    packets = []
    chunks, size = [head], len(head)
    for message in messages:
        for chunk in _chunks(message):
            if (size + len(chunk) > PACKET_BYTES and len(chunks) > 1) or len(chunks) == MAX_FIELDS // 4:
                packets.append(b"".join(chunks))
                chunks, size = [head], len(head)
            chunks.append(chunk)
            size += len(chunk)
    if len(chunks) > 1:
        packets.append(b"".join(chunks))
    return packets


def _chunks(message: Any) -> Iterator[bytes]:
    try:
        chunk = codec.encode(message)
    except TooLargeToSend:
        parts = split(message)
        if not parts:
            raise
        for part in parts:
            yield from _chunks(part)
    else:
        yield chunk


CONNECTED: Final = Packet(connected=True).SerializeToString()
NOT_CONNECTED: Final = Packet(connected=False).SerializeToString()
"""The packets of a node that has received a ticket: whether it has connected."""

BUNDLED_BYTES: Final = 4
"""Maximum size that a bundle adds to each of its packets: key and length of a field of at most PACKET_BYTES."""


def bundle(packets: Sequence[bytes]) -> bytes:
    """These packets as one, of at most PACKET_BYTES together with BUNDLED_BYTES for each."""
    return Packet(packets=packets).SerializeToString()


def unpack(data: bytes) -> Hello | Refusal | Envelope | Bundle:
    """The content of a packet. Raises WireError."""
    if len(data) > PACKET_BYTES:
        _check_size(data, _FIELDS)
    elif data.count(_MESSAGE_KEY) > MAX_FIELDS:
        _check_size(data, MAX_FIELDS)
    try:
        packet = Packet.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data):,} bytes that are not a packet: {data[:16]!r}...") from error
    if packet.HasField("hello"):
        hello = packet.hello
        if hello.port > 65_535:
            raise WireError(f"a Hello with the port {hello.port}")
        role, others = _ROLE_OF.get(hello.role), (tuple(hello.ordering), tuple(hello.mapping))
        roles = [_ROLE_OF.get(number) for number in hello.roles]
        engine = hello.engine or ENGINES[0]
        right = Right(min(hello.right, Right.ADMIN))
        numbers = hello.founding, hello.nonce, hello.proof
        return Hello(
            hello.version,
            hello.cluster,
            role if engine in ENGINES and None not in roles else None,
            hello.address,
            *others,
            right,
            *numbers,
            engine,
            tuple(str(one) for one in roles),
            hello.bundles,
            hello.direct,
            hello.port,
            hello.ticket,
        )
    if packet.refusal:
        return Refusal(packet.refusal, packet.denied)
    if packet.packets:
        return Bundle(tuple(packet.packets))
    return Envelope(packet.sender, packet.receiver, codec.decode(packet))


def _check_size(data: bytes, max_fields: int) -> None:
    """Check the number and sizes of a packet's fields before protobuf makes objects of them. Raises WireError."""
    size, at, plain = len(data), 0, 0
    if size > MAX_PACKET_BYTES:
        raise WireError(f"a packet of {size:,} bytes, the limit is {MAX_PACKET_BYTES:,}")
    try:
        for _ in range(max_fields):
            start, key = at, data[at]
            if key & 0x87 != 2:
                raise WireError(f"a packet of {size:,} bytes with a field that packets do not have")
            length, shift, at = data[at + 1] & 127, 7, at + 2
            while data[at - 1] > 127 and shift < 35:
                length, shift, at = length | (data[at] & 127) << shift, shift + 7, at + 1
            at += length
            plain += at - start - (length if key >> 3 == Packet.BATCHES_FIELD_NUMBER else 0)
            if at >= size:
                break
    except IndexError:
        at = size + 1
    if at > size:
        raise WireError(f"a packet of {size:,} bytes that was cut off")
    if at < size:
        raise WireError(f"a packet of {size:,} bytes with more than {max_fields:,} fields")
    if plain > MAX_PLAIN_BYTES:
        raise WireError(f"a packet of {plain:,} bytes beside its records, the limit is {MAX_PLAIN_BYTES:,}")


# ---- the handshake


def pack_hello(hello: Hello) -> bytes:
    """The first packet of a stream."""
    assert hello.role is not None
    engine = "" if hello.engine == ENGINES[0] else hello.engine
    roles = [_ROLES[role] for role in hello.roles]
    wire = {**hello._asdict(), "role": _ROLES[hello.role], "engine": engine, "roles": roles}
    return Packet(hello=wire).SerializeToString()


def pack_refusal(reason: str, *, denied: bool = False) -> bytes:
    """The last packet of a stream that this node refuses or ends. `reason`: a sentence for people."""
    assert reason, "a refusal has a reason"
    return Packet(refusal=reason, denied=denied).SerializeToString()


def refusal_reason(mine: Hello, theirs: Hello) -> str:
    """Why these two nodes refuse each other, "" if they do not."""
    if theirs.version != mine.version:
        older = theirs if theirs.version < mine.version else mine
        return (
            f"{theirs.address} speaks version {theirs.version} of LogDB's protocol, {mine.address} speaks version "
            f"{mine.version}: upgrade LogDB at {older.address}"
        )
    if theirs.role is None:
        return f"{theirs.address} has a role that {mine.address} does not know"
    if not theirs.address:
        return f"a node ({theirs.role}) has connected to {mine.address} without an address"
    if theirs.address == mine.address:
        return f"a node has connected to {mine.address} under that same address"
    if theirs.role != CLIENT and ":" not in theirs.address:
        return f"a server ({theirs.role}) has connected to {mine.address} under a name, {theirs.address!r}"
    founder = theirs.founder
    if founder is not None and mine.role != CLIENT and mine.ordering and founder not in mine.ordering:
        return f"{founder} is not one of the ordering replicas in the configuration of {mine.address}"
    if theirs.role == CLIENT and ":" in theirs.address:
        return f"a client has connected to {mine.address} under the address of a server, {theirs.address}"
    if theirs.cluster != mine.cluster and not any(it.role == CLIENT and not it.cluster for it in (mine, theirs)):
        return (
            f"{theirs.address} is of cluster {theirs.cluster!r}, {mine.address} is of cluster {mine.cluster!r}: "
            "one of them has a wrong address in its configuration"
        )
    if CLIENT not in (mine.role, theirs.role) and theirs.engine != mine.engine:
        return (
            f"{theirs.address} runs the log {theirs.engine}, {mine.address} runs {mine.engine}: they must have the "
            "same `engine` in their cluster.toml"
        )
    if theirs.founding != mine.founding and theirs.founding and mine.founding:
        return (
            f"{theirs.address} and {mine.address} have met different ordering layers ({theirs.founding:x} and "
            f"{mine.founding:x}) as cluster {mine.cluster!r}: one was founded again after all of its replicas had "
            "lost their data. Restore their directories, or begin again with empty directories of all servers"
        )
    return ""
