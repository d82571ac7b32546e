"""The schema of the wire: `proto/peers.proto`, whose `Message` has one more field for each kind of each engine.

An engine's schema has a message `Kinds` with a `oneof` of all its kinds, by name and number. Here they become fields of
`Message`, so that a message of any engine costs the same, and no schema of the wire names an engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from logdb.log.engine import all_engines
from logdb.wire.proto import peers_pb2

KINDS: Final = "Kinds"


def _packet() -> Any:
    pool = DescriptorPool()
    known: set[str] = set()

    def add(file: Any) -> None:
        """The file, after those that it imports."""
        if file.name not in known:
            known.add(file.name)
            for imported in file.dependencies:
                add(imported)
            proto = FileDescriptorProto()
            file.CopyToProto(proto)
            pool.Add(proto)

    peers = FileDescriptorProto()
    peers_pb2.DESCRIPTOR.CopyToProto(peers)
    for file in peers_pb2.DESCRIPTOR.dependencies:
        add(file)
    (message,) = [one for one in peers.message_type if one.name == peers_pb2.Message.DESCRIPTOR.name]
    for engine in all_engines():
        schema = import_module(engine.wire.schema).DESCRIPTOR
        add(schema)
        peers.dependency.append(schema.name)
        kinds = DescriptorProto()
        schema.message_types_by_name[KINDS].CopyToProto(kinds)
        for field in kinds.field:
            message.field.add().CopyFrom(field)
    pool.Add(peers)
    return GetMessageClass(pool.FindMessageTypeByName(peers_pb2.Packet.DESCRIPTOR.full_name))


if TYPE_CHECKING:
    Packet = peers_pb2.Packet
else:
    Packet: Final = _packet()

MESSAGE: Final[Any] = Packet.DESCRIPTOR.fields_by_name["messages"].message_type
"""The descriptor of a message of any kind."""
