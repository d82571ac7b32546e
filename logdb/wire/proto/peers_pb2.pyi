from logdb.wire.proto import mapping_pb2 as _mapping_pb2
from logdb.wire.proto import paxos_pb2 as _paxos_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Role]
    ORDERING: _ClassVar[Role]
    STORAGE: _ClassVar[Role]
    AGGREGATOR: _ClassVar[Role]
    MAPPING: _ClassVar[Role]
    CLIENT: _ClassVar[Role]
    NODE: _ClassVar[Role]
UNSPECIFIED: Role
ORDERING: Role
STORAGE: Role
AGGREGATOR: Role
MAPPING: Role
CLIENT: Role
NODE: Role

class Packet(_message.Message):
    __slots__ = ("hello", "refusal", "denied", "sender", "receiver", "messages", "batches", "connected", "packets")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    refusal: str
    denied: bool
    sender: str
    receiver: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    connected: bool
    packets: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., refusal: _Optional[str] = ..., denied: _Optional[bool] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., batches: _Optional[_Iterable[bytes]] = ..., connected: _Optional[bool] = ..., packets: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "cluster", "role", "roles", "address", "ordering", "mapping", "founding", "nonce", "proof", "engine", "bundles", "direct", "port", "ticket", "right")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    DIRECT_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster: str
    role: Role
    roles: _containers.RepeatedScalarFieldContainer[Role]
    address: str
    ordering: _containers.RepeatedScalarFieldContainer[str]
    mapping: _containers.RepeatedScalarFieldContainer[str]
    founding: int
    nonce: int
    proof: int
    engine: str
    bundles: bool
    direct: bool
    port: int
    ticket: bytes
    right: int
    def __init__(self, version: _Optional[int] = ..., cluster: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., roles: _Optional[_Iterable[_Union[Role, str]]] = ..., address: _Optional[str] = ..., ordering: _Optional[_Iterable[str]] = ..., mapping: _Optional[_Iterable[str]] = ..., founding: _Optional[int] = ..., nonce: _Optional[int] = ..., proof: _Optional[int] = ..., engine: _Optional[str] = ..., bundles: _Optional[bool] = ..., direct: _Optional[bool] = ..., port: _Optional[int] = ..., ticket: _Optional[bytes] = ..., right: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("paxos_member_envelope", "paxos_join_request", "paxos_join_reply", "mapping_reads", "mapping_answers", "mapping_await_verdicts", "mapping_verdicts", "mapping_busy", "mapping_slice_request", "mapping_slice", "mapping_slice_unavailable", "mapping_hold", "mapping_compact", "mapping_compacting", "mapping_compacted", "mapping_compare", "mapping_compared", "mapping_end_turn", "mapping_recalling")
    PAXOS_MEMBER_ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    PAXOS_JOIN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    PAXOS_JOIN_REPLY_FIELD_NUMBER: _ClassVar[int]
    MAPPING_READS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_AWAIT_VERDICTS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_VERDICTS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_BUSY_FIELD_NUMBER: _ClassVar[int]
    MAPPING_SLICE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MAPPING_SLICE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_SLICE_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_HOLD_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACT_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACTING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPARE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPARED_FIELD_NUMBER: _ClassVar[int]
    MAPPING_END_TURN_FIELD_NUMBER: _ClassVar[int]
    MAPPING_RECALLING_FIELD_NUMBER: _ClassVar[int]
    paxos_member_envelope: _paxos_pb2.MemberEnvelope
    paxos_join_request: _paxos_pb2.JoinRequest
    paxos_join_reply: _paxos_pb2.JoinReply
    mapping_reads: _mapping_pb2.Reads
    mapping_answers: _mapping_pb2.Answers
    mapping_await_verdicts: _mapping_pb2.AwaitVerdicts
    mapping_verdicts: _mapping_pb2.Verdicts
    mapping_busy: _mapping_pb2.Busy
    mapping_slice_request: _mapping_pb2.SliceRequest
    mapping_slice: _mapping_pb2.Slice
    mapping_slice_unavailable: _mapping_pb2.SliceUnavailable
    mapping_hold: _mapping_pb2.Hold
    mapping_compact: _mapping_pb2.Compact
    mapping_compacting: _mapping_pb2.Compacting
    mapping_compacted: _mapping_pb2.Compacted
    mapping_compare: _mapping_pb2.Compare
    mapping_compared: _mapping_pb2.Compared
    mapping_end_turn: _mapping_pb2.EndTurn
    mapping_recalling: _mapping_pb2.Recalling
    def __init__(self, paxos_member_envelope: _Optional[_Union[_paxos_pb2.MemberEnvelope, _Mapping]] = ..., paxos_join_request: _Optional[_Union[_paxos_pb2.JoinRequest, _Mapping]] = ..., paxos_join_reply: _Optional[_Union[_paxos_pb2.JoinReply, _Mapping]] = ..., mapping_reads: _Optional[_Union[_mapping_pb2.Reads, _Mapping]] = ..., mapping_answers: _Optional[_Union[_mapping_pb2.Answers, _Mapping]] = ..., mapping_await_verdicts: _Optional[_Union[_mapping_pb2.AwaitVerdicts, _Mapping]] = ..., mapping_verdicts: _Optional[_Union[_mapping_pb2.Verdicts, _Mapping]] = ..., mapping_busy: _Optional[_Union[_mapping_pb2.Busy, _Mapping]] = ..., mapping_slice_request: _Optional[_Union[_mapping_pb2.SliceRequest, _Mapping]] = ..., mapping_slice: _Optional[_Union[_mapping_pb2.Slice, _Mapping]] = ..., mapping_slice_unavailable: _Optional[_Union[_mapping_pb2.SliceUnavailable, _Mapping]] = ..., mapping_hold: _Optional[_Union[_mapping_pb2.Hold, _Mapping]] = ..., mapping_compact: _Optional[_Union[_mapping_pb2.Compact, _Mapping]] = ..., mapping_compacting: _Optional[_Union[_mapping_pb2.Compacting, _Mapping]] = ..., mapping_compacted: _Optional[_Union[_mapping_pb2.Compacted, _Mapping]] = ..., mapping_compare: _Optional[_Union[_mapping_pb2.Compare, _Mapping]] = ..., mapping_compared: _Optional[_Union[_mapping_pb2.Compared, _Mapping]] = ..., mapping_end_turn: _Optional[_Union[_mapping_pb2.EndTurn, _Mapping]] = ..., mapping_recalling: _Optional[_Union[_mapping_pb2.Recalling, _Mapping]] = ...) -> None: ...
