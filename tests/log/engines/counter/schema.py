"""The module that protoc would generate from the engine's .proto file."""

from __future__ import annotations

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

INT64 = FieldDescriptorProto.TYPE_INT64
MESSAGES = {
    "Put": ["request"],
    "Numbered": ["request", "first"],
    "EndRequest": ["request"],
    "EndResponse": ["request", "last"],
}

_file = FileDescriptorProto(name="counter.proto", package="counter", syntax="proto3")
for name, fields in MESSAGES.items():
    kind = _file.message_type.add(name=name)
    for number, field in enumerate(fields, 1):
        kind.field.add(name=field, number=number, type=INT64, label=FieldDescriptorProto.LABEL_OPTIONAL)
kind.field.add(name="labels", number=3, type=INT64, label=FieldDescriptorProto.LABEL_REPEATED)
kinds = _file.message_type.add(name="Kinds")
kinds.oneof_decl.add(name="kind")
WIRE_NAMES = ("counter_put", "counter_numbered", "counter_end_request", "counter_end_response")
for number, (name, wire_name) in enumerate(zip(MESSAGES, WIRE_NAMES, strict=True), 10_000):
    kinds.field.add(
        name=wire_name,
        number=number,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".counter.{name}",
        label=FieldDescriptorProto.LABEL_OPTIONAL,
        oneof_index=0,
    )
DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_file.SerializeToString())
