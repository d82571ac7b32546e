from logdb.wire.proto import mapping_pb2 as _mapping_pb2
from logdb.wire.proto import paxos_pb2 as _paxos_pb2
from logdb.wire.proto import scalog_pb2 as _scalog_pb2
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
UNSPECIFIED: Role
ORDERING: Role
STORAGE: Role
AGGREGATOR: Role
MAPPING: Role
CLIENT: Role

class Parcel(_message.Message):
    __slots__ = ("hello", "refusal", "denied", "sender", "receiver", "messages", "batches")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    refusal: str
    denied: bool
    sender: str
    receiver: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    batches: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., refusal: _Optional[str] = ..., denied: _Optional[bool] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., batches: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("version", "cluster", "role", "address", "ordering", "mapping", "founding", "nonce", "proof", "engine", "right")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    FOUNDING_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster: str
    role: Role
    address: str
    ordering: _containers.RepeatedScalarFieldContainer[str]
    mapping: _containers.RepeatedScalarFieldContainer[str]
    founding: int
    nonce: int
    proof: int
    engine: str
    right: int
    def __init__(self, version: _Optional[int] = ..., cluster: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., address: _Optional[str] = ..., ordering: _Optional[_Iterable[str]] = ..., mapping: _Optional[_Iterable[str]] = ..., founding: _Optional[int] = ..., nonce: _Optional[int] = ..., proof: _Optional[int] = ..., engine: _Optional[str] = ..., right: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("append", "appended", "replicate", "replicate_ack", "report", "updates", "pulled", "pull", "paxos_member_envelope", "rejected", "append_status_request", "append_status", "read_request", "read_response", "read_failed", "time_request", "time_response", "sessions_request", "sessions_response", "placements_request", "placements_response", "register", "register_aggregator", "update_request", "registration_reply", "tally", "suspect", "recovered", "caught_up", "suspect_aggregator", "view_request", "view_response", "tail_request", "tail_response", "change_request", "change_response", "not_leader", "unreachable", "report_request", "paxos_join_request", "paxos_join_reply", "mapping_reads", "mapping_answers", "mapping_await_verdicts", "mapping_verdicts", "mapping_busy", "mapping_slice_request", "mapping_slice", "mapping_slice_unavailable", "mapping_hold", "mapping_compact", "mapping_compacting", "mapping_compacted", "mapping_compare", "mapping_compared")
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ACK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PULLED_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    PAXOS_MEMBER_ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    APPEND_STATUS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    APPEND_STATUS_FIELD_NUMBER: _ClassVar[int]
    READ_REQUEST_FIELD_NUMBER: _ClassVar[int]
    READ_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    READ_FAILED_FIELD_NUMBER: _ClassVar[int]
    TIME_REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIME_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    UPDATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    REGISTRATION_REPLY_FIELD_NUMBER: _ClassVar[int]
    TALLY_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    VIEW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VIEW_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TAIL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    TAIL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CHANGE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CHANGE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    REPORT_REQUEST_FIELD_NUMBER: _ClassVar[int]
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
    append: _scalog_pb2.Append
    appended: _scalog_pb2.Appended
    replicate: _scalog_pb2.Replicate
    replicate_ack: _scalog_pb2.ReplicateAck
    report: _scalog_pb2.Report
    updates: _scalog_pb2.Updates
    pulled: _scalog_pb2.Pulled
    pull: _scalog_pb2.Pull
    paxos_member_envelope: _paxos_pb2.MemberEnvelope
    rejected: _scalog_pb2.Rejected
    append_status_request: _scalog_pb2.AppendStatusRequest
    append_status: _scalog_pb2.AppendStatus
    read_request: _scalog_pb2.ReadRequest
    read_response: _scalog_pb2.ReadResponse
    read_failed: _scalog_pb2.ReadFailed
    time_request: _scalog_pb2.TimeRequest
    time_response: _scalog_pb2.TimeResponse
    sessions_request: _scalog_pb2.SessionsRequest
    sessions_response: _scalog_pb2.SessionsResponse
    placements_request: _scalog_pb2.PlacementsRequest
    placements_response: _scalog_pb2.PlacementsResponse
    register: _scalog_pb2.Register
    register_aggregator: _scalog_pb2.RegisterAggregator
    update_request: _scalog_pb2.UpdateRequest
    registration_reply: _scalog_pb2.RegistrationReply
    tally: _scalog_pb2.Tally
    suspect: _scalog_pb2.Suspect
    recovered: _scalog_pb2.Recovered
    caught_up: _scalog_pb2.CaughtUp
    suspect_aggregator: _scalog_pb2.SuspectAggregator
    view_request: _scalog_pb2.ViewRequest
    view_response: _scalog_pb2.ViewResponse
    tail_request: _scalog_pb2.TailRequest
    tail_response: _scalog_pb2.TailResponse
    change_request: _scalog_pb2.ChangeRequest
    change_response: _scalog_pb2.ChangeResponse
    not_leader: _scalog_pb2.NotLeader
    unreachable: _scalog_pb2.Unreachable
    report_request: _scalog_pb2.ReportRequest
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
    def __init__(self, append: _Optional[_Union[_scalog_pb2.Append, _Mapping]] = ..., appended: _Optional[_Union[_scalog_pb2.Appended, _Mapping]] = ..., replicate: _Optional[_Union[_scalog_pb2.Replicate, _Mapping]] = ..., replicate_ack: _Optional[_Union[_scalog_pb2.ReplicateAck, _Mapping]] = ..., report: _Optional[_Union[_scalog_pb2.Report, _Mapping]] = ..., updates: _Optional[_Union[_scalog_pb2.Updates, _Mapping]] = ..., pulled: _Optional[_Union[_scalog_pb2.Pulled, _Mapping]] = ..., pull: _Optional[_Union[_scalog_pb2.Pull, _Mapping]] = ..., paxos_member_envelope: _Optional[_Union[_paxos_pb2.MemberEnvelope, _Mapping]] = ..., rejected: _Optional[_Union[_scalog_pb2.Rejected, _Mapping]] = ..., append_status_request: _Optional[_Union[_scalog_pb2.AppendStatusRequest, _Mapping]] = ..., append_status: _Optional[_Union[_scalog_pb2.AppendStatus, _Mapping]] = ..., read_request: _Optional[_Union[_scalog_pb2.ReadRequest, _Mapping]] = ..., read_response: _Optional[_Union[_scalog_pb2.ReadResponse, _Mapping]] = ..., read_failed: _Optional[_Union[_scalog_pb2.ReadFailed, _Mapping]] = ..., time_request: _Optional[_Union[_scalog_pb2.TimeRequest, _Mapping]] = ..., time_response: _Optional[_Union[_scalog_pb2.TimeResponse, _Mapping]] = ..., sessions_request: _Optional[_Union[_scalog_pb2.SessionsRequest, _Mapping]] = ..., sessions_response: _Optional[_Union[_scalog_pb2.SessionsResponse, _Mapping]] = ..., placements_request: _Optional[_Union[_scalog_pb2.PlacementsRequest, _Mapping]] = ..., placements_response: _Optional[_Union[_scalog_pb2.PlacementsResponse, _Mapping]] = ..., register: _Optional[_Union[_scalog_pb2.Register, _Mapping]] = ..., register_aggregator: _Optional[_Union[_scalog_pb2.RegisterAggregator, _Mapping]] = ..., update_request: _Optional[_Union[_scalog_pb2.UpdateRequest, _Mapping]] = ..., registration_reply: _Optional[_Union[_scalog_pb2.RegistrationReply, _Mapping]] = ..., tally: _Optional[_Union[_scalog_pb2.Tally, _Mapping]] = ..., suspect: _Optional[_Union[_scalog_pb2.Suspect, _Mapping]] = ..., recovered: _Optional[_Union[_scalog_pb2.Recovered, _Mapping]] = ..., caught_up: _Optional[_Union[_scalog_pb2.CaughtUp, _Mapping]] = ..., suspect_aggregator: _Optional[_Union[_scalog_pb2.SuspectAggregator, _Mapping]] = ..., view_request: _Optional[_Union[_scalog_pb2.ViewRequest, _Mapping]] = ..., view_response: _Optional[_Union[_scalog_pb2.ViewResponse, _Mapping]] = ..., tail_request: _Optional[_Union[_scalog_pb2.TailRequest, _Mapping]] = ..., tail_response: _Optional[_Union[_scalog_pb2.TailResponse, _Mapping]] = ..., change_request: _Optional[_Union[_scalog_pb2.ChangeRequest, _Mapping]] = ..., change_response: _Optional[_Union[_scalog_pb2.ChangeResponse, _Mapping]] = ..., not_leader: _Optional[_Union[_scalog_pb2.NotLeader, _Mapping]] = ..., unreachable: _Optional[_Union[_scalog_pb2.Unreachable, _Mapping]] = ..., report_request: _Optional[_Union[_scalog_pb2.ReportRequest, _Mapping]] = ..., paxos_join_request: _Optional[_Union[_paxos_pb2.JoinRequest, _Mapping]] = ..., paxos_join_reply: _Optional[_Union[_paxos_pb2.JoinReply, _Mapping]] = ..., mapping_reads: _Optional[_Union[_mapping_pb2.Reads, _Mapping]] = ..., mapping_answers: _Optional[_Union[_mapping_pb2.Answers, _Mapping]] = ..., mapping_await_verdicts: _Optional[_Union[_mapping_pb2.AwaitVerdicts, _Mapping]] = ..., mapping_verdicts: _Optional[_Union[_mapping_pb2.Verdicts, _Mapping]] = ..., mapping_busy: _Optional[_Union[_mapping_pb2.Busy, _Mapping]] = ..., mapping_slice_request: _Optional[_Union[_mapping_pb2.SliceRequest, _Mapping]] = ..., mapping_slice: _Optional[_Union[_mapping_pb2.Slice, _Mapping]] = ..., mapping_slice_unavailable: _Optional[_Union[_mapping_pb2.SliceUnavailable, _Mapping]] = ..., mapping_hold: _Optional[_Union[_mapping_pb2.Hold, _Mapping]] = ..., mapping_compact: _Optional[_Union[_mapping_pb2.Compact, _Mapping]] = ..., mapping_compacting: _Optional[_Union[_mapping_pb2.Compacting, _Mapping]] = ..., mapping_compacted: _Optional[_Union[_mapping_pb2.Compacted, _Mapping]] = ..., mapping_compare: _Optional[_Union[_mapping_pb2.Compare, _Mapping]] = ..., mapping_compared: _Optional[_Union[_mapping_pb2.Compared, _Mapping]] = ...) -> None: ...
