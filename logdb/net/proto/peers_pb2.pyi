from logdb.net.proto import mapping_pb2 as _mapping_pb2
from logdb.net.proto import paxos_pb2 as _paxos_pb2
from logdb.net.proto import scalog_pb2 as _scalog_pb2
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
    __slots__ = ("append", "appended", "replicate", "held", "report", "updates", "pulled", "pull", "paxos_said", "refused", "ask_fate", "fate", "read", "found", "not_found", "ask_time", "time_is", "ask_sessions", "sessions_are", "ask_placements", "placements", "register", "register_aggregator", "ask", "you", "tally", "suspect", "recovered", "caught_up", "suspect_aggregator", "ask_view", "view_is", "ask_tail", "tail_is", "change", "changed", "not_leader", "unreachable", "ask_report", "paxos_knock", "paxos_welcome", "mapping_reads", "mapping_answers", "mapping_await", "mapping_verdicts", "mapping_busy", "mapping_ask_slice", "mapping_slice", "mapping_nothing", "mapping_hold", "mapping_compact", "mapping_compacting", "mapping_compacted", "mapping_compare", "mapping_compared")
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PULLED_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    PAXOS_SAID_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ASK_FATE_FIELD_NUMBER: _ClassVar[int]
    FATE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    ASK_TIME_FIELD_NUMBER: _ClassVar[int]
    TIME_IS_FIELD_NUMBER: _ClassVar[int]
    ASK_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_ARE_FIELD_NUMBER: _ClassVar[int]
    ASK_PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    PLACEMENTS_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    YOU_FIELD_NUMBER: _ClassVar[int]
    TALLY_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    CAUGHT_UP_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    ASK_VIEW_FIELD_NUMBER: _ClassVar[int]
    VIEW_IS_FIELD_NUMBER: _ClassVar[int]
    ASK_TAIL_FIELD_NUMBER: _ClassVar[int]
    TAIL_IS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    ASK_REPORT_FIELD_NUMBER: _ClassVar[int]
    PAXOS_KNOCK_FIELD_NUMBER: _ClassVar[int]
    PAXOS_WELCOME_FIELD_NUMBER: _ClassVar[int]
    MAPPING_READS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_AWAIT_FIELD_NUMBER: _ClassVar[int]
    MAPPING_VERDICTS_FIELD_NUMBER: _ClassVar[int]
    MAPPING_BUSY_FIELD_NUMBER: _ClassVar[int]
    MAPPING_ASK_SLICE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_SLICE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_NOTHING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_HOLD_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACT_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACTING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPACTED_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPARE_FIELD_NUMBER: _ClassVar[int]
    MAPPING_COMPARED_FIELD_NUMBER: _ClassVar[int]
    append: _scalog_pb2.Append
    appended: _scalog_pb2.Appended
    replicate: _scalog_pb2.Replicate
    held: _scalog_pb2.Held
    report: _scalog_pb2.Report
    updates: _scalog_pb2.Updates
    pulled: _scalog_pb2.Pulled
    pull: _scalog_pb2.Pull
    paxos_said: _paxos_pb2.Said
    refused: _scalog_pb2.Refused
    ask_fate: _scalog_pb2.AskFate
    fate: _scalog_pb2.Fate
    read: _scalog_pb2.Read
    found: _scalog_pb2.Found
    not_found: _scalog_pb2.NotFound
    ask_time: _scalog_pb2.AskTime
    time_is: _scalog_pb2.TimeIs
    ask_sessions: _scalog_pb2.AskSessions
    sessions_are: _scalog_pb2.SessionsAre
    ask_placements: _scalog_pb2.AskPlacements
    placements: _scalog_pb2.Placements
    register: _scalog_pb2.Register
    register_aggregator: _scalog_pb2.RegisterAggregator
    ask: _scalog_pb2.Ask
    you: _scalog_pb2.You
    tally: _scalog_pb2.Tally
    suspect: _scalog_pb2.Suspect
    recovered: _scalog_pb2.Recovered
    caught_up: _scalog_pb2.CaughtUp
    suspect_aggregator: _scalog_pb2.SuspectAggregator
    ask_view: _scalog_pb2.AskView
    view_is: _scalog_pb2.ViewIs
    ask_tail: _scalog_pb2.AskTail
    tail_is: _scalog_pb2.TailIs
    change: _scalog_pb2.Change
    changed: _scalog_pb2.Changed
    not_leader: _scalog_pb2.NotLeader
    unreachable: _scalog_pb2.Unreachable
    ask_report: _scalog_pb2.AskReport
    paxos_knock: _paxos_pb2.Knock
    paxos_welcome: _paxos_pb2.Welcome
    mapping_reads: _mapping_pb2.Reads
    mapping_answers: _mapping_pb2.Answers
    mapping_await: _mapping_pb2.Await
    mapping_verdicts: _mapping_pb2.Verdicts
    mapping_busy: _mapping_pb2.Busy
    mapping_ask_slice: _mapping_pb2.AskSlice
    mapping_slice: _mapping_pb2.Slice
    mapping_nothing: _mapping_pb2.Nothing
    mapping_hold: _mapping_pb2.Hold
    mapping_compact: _mapping_pb2.Compact
    mapping_compacting: _mapping_pb2.Compacting
    mapping_compacted: _mapping_pb2.Compacted
    mapping_compare: _mapping_pb2.Compare
    mapping_compared: _mapping_pb2.Compared
    def __init__(self, append: _Optional[_Union[_scalog_pb2.Append, _Mapping]] = ..., appended: _Optional[_Union[_scalog_pb2.Appended, _Mapping]] = ..., replicate: _Optional[_Union[_scalog_pb2.Replicate, _Mapping]] = ..., held: _Optional[_Union[_scalog_pb2.Held, _Mapping]] = ..., report: _Optional[_Union[_scalog_pb2.Report, _Mapping]] = ..., updates: _Optional[_Union[_scalog_pb2.Updates, _Mapping]] = ..., pulled: _Optional[_Union[_scalog_pb2.Pulled, _Mapping]] = ..., pull: _Optional[_Union[_scalog_pb2.Pull, _Mapping]] = ..., paxos_said: _Optional[_Union[_paxos_pb2.Said, _Mapping]] = ..., refused: _Optional[_Union[_scalog_pb2.Refused, _Mapping]] = ..., ask_fate: _Optional[_Union[_scalog_pb2.AskFate, _Mapping]] = ..., fate: _Optional[_Union[_scalog_pb2.Fate, _Mapping]] = ..., read: _Optional[_Union[_scalog_pb2.Read, _Mapping]] = ..., found: _Optional[_Union[_scalog_pb2.Found, _Mapping]] = ..., not_found: _Optional[_Union[_scalog_pb2.NotFound, _Mapping]] = ..., ask_time: _Optional[_Union[_scalog_pb2.AskTime, _Mapping]] = ..., time_is: _Optional[_Union[_scalog_pb2.TimeIs, _Mapping]] = ..., ask_sessions: _Optional[_Union[_scalog_pb2.AskSessions, _Mapping]] = ..., sessions_are: _Optional[_Union[_scalog_pb2.SessionsAre, _Mapping]] = ..., ask_placements: _Optional[_Union[_scalog_pb2.AskPlacements, _Mapping]] = ..., placements: _Optional[_Union[_scalog_pb2.Placements, _Mapping]] = ..., register: _Optional[_Union[_scalog_pb2.Register, _Mapping]] = ..., register_aggregator: _Optional[_Union[_scalog_pb2.RegisterAggregator, _Mapping]] = ..., ask: _Optional[_Union[_scalog_pb2.Ask, _Mapping]] = ..., you: _Optional[_Union[_scalog_pb2.You, _Mapping]] = ..., tally: _Optional[_Union[_scalog_pb2.Tally, _Mapping]] = ..., suspect: _Optional[_Union[_scalog_pb2.Suspect, _Mapping]] = ..., recovered: _Optional[_Union[_scalog_pb2.Recovered, _Mapping]] = ..., caught_up: _Optional[_Union[_scalog_pb2.CaughtUp, _Mapping]] = ..., suspect_aggregator: _Optional[_Union[_scalog_pb2.SuspectAggregator, _Mapping]] = ..., ask_view: _Optional[_Union[_scalog_pb2.AskView, _Mapping]] = ..., view_is: _Optional[_Union[_scalog_pb2.ViewIs, _Mapping]] = ..., ask_tail: _Optional[_Union[_scalog_pb2.AskTail, _Mapping]] = ..., tail_is: _Optional[_Union[_scalog_pb2.TailIs, _Mapping]] = ..., change: _Optional[_Union[_scalog_pb2.Change, _Mapping]] = ..., changed: _Optional[_Union[_scalog_pb2.Changed, _Mapping]] = ..., not_leader: _Optional[_Union[_scalog_pb2.NotLeader, _Mapping]] = ..., unreachable: _Optional[_Union[_scalog_pb2.Unreachable, _Mapping]] = ..., ask_report: _Optional[_Union[_scalog_pb2.AskReport, _Mapping]] = ..., paxos_knock: _Optional[_Union[_paxos_pb2.Knock, _Mapping]] = ..., paxos_welcome: _Optional[_Union[_paxos_pb2.Welcome, _Mapping]] = ..., mapping_reads: _Optional[_Union[_mapping_pb2.Reads, _Mapping]] = ..., mapping_answers: _Optional[_Union[_mapping_pb2.Answers, _Mapping]] = ..., mapping_await: _Optional[_Union[_mapping_pb2.Await, _Mapping]] = ..., mapping_verdicts: _Optional[_Union[_mapping_pb2.Verdicts, _Mapping]] = ..., mapping_busy: _Optional[_Union[_mapping_pb2.Busy, _Mapping]] = ..., mapping_ask_slice: _Optional[_Union[_mapping_pb2.AskSlice, _Mapping]] = ..., mapping_slice: _Optional[_Union[_mapping_pb2.Slice, _Mapping]] = ..., mapping_nothing: _Optional[_Union[_mapping_pb2.Nothing, _Mapping]] = ..., mapping_hold: _Optional[_Union[_mapping_pb2.Hold, _Mapping]] = ..., mapping_compact: _Optional[_Union[_mapping_pb2.Compact, _Mapping]] = ..., mapping_compacting: _Optional[_Union[_mapping_pb2.Compacting, _Mapping]] = ..., mapping_compacted: _Optional[_Union[_mapping_pb2.Compacted, _Mapping]] = ..., mapping_compare: _Optional[_Union[_mapping_pb2.Compare, _Mapping]] = ..., mapping_compared: _Optional[_Union[_mapping_pb2.Compared, _Mapping]] = ...) -> None: ...
