from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Segment(_message.Message):
    __slots__ = ("id", "primary", "base", "sealed")
    ID_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    id: int
    primary: int
    base: int
    sealed: int
    def __init__(self, id: _Optional[int] = ..., primary: _Optional[int] = ..., base: _Optional[int] = ..., sealed: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("server", "address")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class ShardConfig(_message.Message):
    __slots__ = ("shard", "epoch", "state", "quorum", "members", "segments", "reports_to", "joining", "replaced")
    class ShardState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ShardConfig.ShardState]
        LIVE: _ClassVar[ShardConfig.ShardState]
        FINALIZING: _ClassVar[ShardConfig.ShardState]
        FINALIZED: _ClassVar[ShardConfig.ShardState]
    UNSPECIFIED: ShardConfig.ShardState
    LIVE: ShardConfig.ShardState
    FINALIZING: ShardConfig.ShardState
    FINALIZED: ShardConfig.ShardState
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QUORUM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_TO_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    state: ShardConfig.ShardState
    quorum: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    reports_to: str
    joining: _containers.RepeatedScalarFieldContainer[int]
    replaced: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., state: _Optional[_Union[ShardConfig.ShardState, str]] = ..., quorum: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., reports_to: _Optional[str] = ..., joining: _Optional[_Iterable[int]] = ..., replaced: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("version", "shards", "next_shard", "oldest", "aggregators", "spares")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SHARD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    AGGREGATORS_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    version: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardConfig]
    next_shard: int
    oldest: int
    aggregators: _containers.RepeatedScalarFieldContainer[str]
    spares: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, version: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardConfig, _Mapping]]] = ..., next_shard: _Optional[int] = ..., oldest: _Optional[int] = ..., aggregators: _Optional[_Iterable[str]] = ..., spares: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("client", "sequence", "settled", "segment")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    settled: int
    segment: int
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., settled: _Optional[int] = ..., segment: _Optional[int] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("client", "segment", "ranges", "leaving")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    client: int
    segment: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    leaving: bool
    def __init__(self, client: _Optional[int] = ..., segment: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ..., leaving: _Optional[bool] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("client", "sequence", "segment", "why")
    class RejectReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Rejected.RejectReason]
        BUSY: _ClassVar[Rejected.RejectReason]
        SEALED: _ClassVar[Rejected.RejectReason]
        NOT_PRIMARY: _ClassVar[Rejected.RejectReason]
    UNSPECIFIED: Rejected.RejectReason
    BUSY: Rejected.RejectReason
    SEALED: Rejected.RejectReason
    NOT_PRIMARY: Rejected.RejectReason
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    segment: int
    why: Rejected.RejectReason
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., segment: _Optional[int] = ..., why: _Optional[_Union[Rejected.RejectReason, str]] = ...) -> None: ...

class AppendStatusRequest(_message.Message):
    __slots__ = ("client", "segment", "sequences")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    client: int
    segment: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., segment: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendStatus(_message.Message):
    __slots__ = ("client", "segment", "ordered", "never")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    NEVER_FIELD_NUMBER: _ClassVar[int]
    client: int
    segment: int
    ordered: _containers.RepeatedScalarFieldContainer[int]
    never: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., segment: _Optional[int] = ..., ordered: _Optional[_Iterable[int]] = ..., never: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request", "shard", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("request", "gsn", "time")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    time: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class ReadFailed(_message.Message):
    __slots__ = ("request", "why", "oldest", "explanation")
    class ReadError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ReadFailed.ReadError]
        HERE: _ClassVar[ReadFailed.ReadError]
        SHARD: _ClassVar[ReadFailed.ReadError]
        TRIMMED: _ClassVar[ReadFailed.ReadError]
        READABLE: _ClassVar[ReadFailed.ReadError]
    UNSPECIFIED: ReadFailed.ReadError
    HERE: ReadFailed.ReadError
    SHARD: ReadFailed.ReadError
    TRIMMED: ReadFailed.ReadError
    READABLE: ReadFailed.ReadError
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    request: int
    why: ReadFailed.ReadError
    oldest: int
    explanation: str
    def __init__(self, request: _Optional[int] = ..., why: _Optional[_Union[ReadFailed.ReadError, str]] = ..., oldest: _Optional[int] = ..., explanation: _Optional[str] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("request", "shard", "gsn", "tags", "max_bytes")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    gsn: int
    tags: bytes
    max_bytes: int
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., gsn: _Optional[int] = ..., tags: _Optional[bytes] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class Pulled(_message.Message):
    __slots__ = ("request", "shard", "first", "end", "owned", "final")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    first: int
    end: int
    owned: _containers.RepeatedScalarFieldContainer[int]
    final: bool
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., owned: _Optional[_Iterable[int]] = ..., final: _Optional[bool] = ...) -> None: ...

class TimeRequest(_message.Message):
    __slots__ = ("request", "shard", "time")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    time: int
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class TimeResponse(_message.Message):
    __slots__ = ("request", "gsn", "known")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    known: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ..., known: _Optional[int] = ...) -> None: ...

class Replicate(_message.Message):
    __slots__ = ("shard", "segment", "first", "settled")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    shard: int
    segment: int
    first: int
    settled: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shard: _Optional[int] = ..., segment: _Optional[int] = ..., first: _Optional[int] = ..., settled: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplicateAck(_message.Message):
    __slots__ = ("shard", "server", "segment", "end", "again")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    shard: int
    server: int
    segment: int
    end: int
    again: bool
    def __init__(self, shard: _Optional[int] = ..., server: _Optional[int] = ..., segment: _Optional[int] = ..., end: _Optional[int] = ..., again: _Optional[bool] = ...) -> None: ...

class SessionsRequest(_message.Message):
    __slots__ = ("shard", "segment", "before")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    shard: int
    segment: int
    before: int
    def __init__(self, shard: _Optional[int] = ..., segment: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class SessionsResponse(_message.Message):
    __slots__ = ("shard", "segment", "before", "first", "following", "marks", "runs")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    segment: int
    before: int
    first: int
    following: int
    marks: _containers.RepeatedScalarFieldContainer[int]
    runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shard: _Optional[int] = ..., segment: _Optional[int] = ..., before: _Optional[int] = ..., first: _Optional[int] = ..., following: _Optional[int] = ..., marks: _Optional[_Iterable[int]] = ..., runs: _Optional[_Iterable[int]] = ...) -> None: ...

class PlacementsRequest(_message.Message):
    __slots__ = ("shard", "server", "after")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    server: int
    after: int
    def __init__(self, shard: _Optional[int] = ..., server: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class ShardCut(_message.Message):
    __slots__ = ("number", "previous", "time", "ranges")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    number: int
    previous: int
    time: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, number: _Optional[int] = ..., previous: _Optional[int] = ..., time: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class PlacementsResponse(_message.Message):
    __slots__ = ("shard", "trimmed", "ends", "oldest", "entries", "complete")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    shard: int
    trimmed: int
    ends: _containers.RepeatedScalarFieldContainer[int]
    oldest: int
    entries: _containers.RepeatedCompositeFieldContainer[ShardCut]
    complete: bool
    def __init__(self, shard: _Optional[int] = ..., trimmed: _Optional[int] = ..., ends: _Optional[_Iterable[int]] = ..., oldest: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[ShardCut, _Mapping]]] = ..., complete: _Optional[bool] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("token", "address")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    token: int
    address: str
    def __init__(self, token: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class RegisterAggregator(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("shard", "epoch", "config", "links", "head", "last", "oldest")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    config: ShardConfig
    links: _containers.RepeatedCompositeFieldContainer[ShardCut]
    head: int
    last: int
    oldest: int
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., config: _Optional[_Union[ShardConfig, _Mapping]] = ..., links: _Optional[_Iterable[_Union[ShardCut, _Mapping]]] = ..., head: _Optional[int] = ..., last: _Optional[int] = ..., oldest: _Optional[int] = ...) -> None: ...

class Updates(_message.Message):
    __slots__ = ("view", "updates")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    view: int
    updates: _containers.RepeatedCompositeFieldContainer[Update]
    def __init__(self, view: _Optional[int] = ..., updates: _Optional[_Iterable[_Union[Update, _Mapping]]] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("token", "address", "after")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    token: int
    address: str
    after: int
    def __init__(self, token: _Optional[int] = ..., address: _Optional[str] = ..., after: _Optional[int] = ...) -> None: ...

class RegistrationReply(_message.Message):
    __slots__ = ("token", "server", "gone", "update")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    token: int
    server: int
    gone: bool
    update: Update
    def __init__(self, token: _Optional[int] = ..., server: _Optional[int] = ..., gone: _Optional[bool] = ..., update: _Optional[_Union[Update, _Mapping]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("shard", "epoch", "server", "placed", "ends")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    server: int
    placed: int
    ends: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., server: _Optional[int] = ..., placed: _Optional[int] = ..., ends: _Optional[_Iterable[int]] = ...) -> None: ...

class ShardTally(_message.Message):
    __slots__ = ("shard", "epoch", "placed", "ends")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    placed: int
    ends: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., placed: _Optional[int] = ..., ends: _Optional[_Iterable[int]] = ...) -> None: ...

class Tally(_message.Message):
    __slots__ = ("address", "shards")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    address: str
    shards: _containers.RepeatedCompositeFieldContainer[ShardTally]
    def __init__(self, address: _Optional[str] = ..., shards: _Optional[_Iterable[_Union[ShardTally, _Mapping]]] = ...) -> None: ...

class Suspect(_message.Message):
    __slots__ = ("shard", "epoch", "server", "silent")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    server: int
    silent: bool
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., server: _Optional[int] = ..., silent: _Optional[bool] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("shard", "server")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    server: int
    def __init__(self, shard: _Optional[int] = ..., server: _Optional[int] = ...) -> None: ...

class Unreachable(_message.Message):
    __slots__ = ("server",)
    SERVER_FIELD_NUMBER: _ClassVar[int]
    server: int
    def __init__(self, server: _Optional[int] = ...) -> None: ...

class Recovered(_message.Message):
    __slots__ = ("shard", "epoch", "server")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    epoch: int
    server: int
    def __init__(self, shard: _Optional[int] = ..., epoch: _Optional[int] = ..., server: _Optional[int] = ...) -> None: ...

class CaughtUp(_message.Message):
    __slots__ = ("shard", "server")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    server: int
    def __init__(self, shard: _Optional[int] = ..., server: _Optional[int] = ...) -> None: ...

class SuspectAggregator(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ViewRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class ViewResponse(_message.Message):
    __slots__ = ("request", "view")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    request: int
    view: View
    def __init__(self, request: _Optional[int] = ..., view: _Optional[_Union[View, _Mapping]] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("request", "allow_follower")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    request: int
    allow_follower: bool
    def __init__(self, request: _Optional[int] = ..., allow_follower: _Optional[bool] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("request", "last", "oldest", "view", "cut", "unreachable", "interval_ns")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    oldest: int
    view: int
    cut: int
    unreachable: _containers.RepeatedScalarFieldContainer[int]
    interval_ns: int
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ..., oldest: _Optional[int] = ..., view: _Optional[int] = ..., cut: _Optional[int] = ..., unreachable: _Optional[_Iterable[int]] = ..., interval_ns: _Optional[int] = ...) -> None: ...

class ChangeRequest(_message.Message):
    __slots__ = ("id", "change")
    ID_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    id: int
    change: Reconfiguration
    def __init__(self, id: _Optional[int] = ..., change: _Optional[_Union[Reconfiguration, _Mapping]] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("id", "result", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: int
    result: int
    error: str
    def __init__(self, id: _Optional[int] = ..., result: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("request", "leader")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    request: int
    leader: str
    def __init__(self, request: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class Reconfiguration(_message.Message):
    __slots__ = ("add_shard", "finalize_shard", "replace_server", "add_replica", "trim_log", "seal_segment", "open_segment", "set_parent", "assign_shard", "drop_aggregator", "set_cut_interval")
    ADD_SHARD_FIELD_NUMBER: _ClassVar[int]
    FINALIZE_SHARD_FIELD_NUMBER: _ClassVar[int]
    REPLACE_SERVER_FIELD_NUMBER: _ClassVar[int]
    ADD_REPLICA_FIELD_NUMBER: _ClassVar[int]
    TRIM_LOG_FIELD_NUMBER: _ClassVar[int]
    SEAL_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OPEN_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    SET_PARENT_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_SHARD_FIELD_NUMBER: _ClassVar[int]
    DROP_AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    SET_CUT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    add_shard: AddShard
    finalize_shard: FinalizeShard
    replace_server: ReplaceServer
    add_replica: AddReplica
    trim_log: TrimLog
    seal_segment: SealSegment
    open_segment: OpenSegment
    set_parent: SetParent
    assign_shard: AssignShard
    drop_aggregator: DropAggregator
    set_cut_interval: SetCutInterval
    def __init__(self, add_shard: _Optional[_Union[AddShard, _Mapping]] = ..., finalize_shard: _Optional[_Union[FinalizeShard, _Mapping]] = ..., replace_server: _Optional[_Union[ReplaceServer, _Mapping]] = ..., add_replica: _Optional[_Union[AddReplica, _Mapping]] = ..., trim_log: _Optional[_Union[TrimLog, _Mapping]] = ..., seal_segment: _Optional[_Union[SealSegment, _Mapping]] = ..., open_segment: _Optional[_Union[OpenSegment, _Mapping]] = ..., set_parent: _Optional[_Union[SetParent, _Mapping]] = ..., assign_shard: _Optional[_Union[AssignShard, _Mapping]] = ..., drop_aggregator: _Optional[_Union[DropAggregator, _Mapping]] = ..., set_cut_interval: _Optional[_Union[SetCutInterval, _Mapping]] = ...) -> None: ...

class AddShard(_message.Message):
    __slots__ = ("servers",)
    SERVERS_FIELD_NUMBER: _ClassVar[int]
    servers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, servers: _Optional[_Iterable[int]] = ...) -> None: ...

class FinalizeShard(_message.Message):
    __slots__ = ("shard", "grace")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    shard: int
    grace: int
    def __init__(self, shard: _Optional[int] = ..., grace: _Optional[int] = ...) -> None: ...

class ReplaceServer(_message.Message):
    __slots__ = ("server", "by")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    server: int
    by: int
    def __init__(self, server: _Optional[int] = ..., by: _Optional[int] = ...) -> None: ...

class AddReplica(_message.Message):
    __slots__ = ("shard", "server")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    server: int
    def __init__(self, shard: _Optional[int] = ..., server: _Optional[int] = ...) -> None: ...

class TrimLog(_message.Message):
    __slots__ = ("gsn",)
    GSN_FIELD_NUMBER: _ClassVar[int]
    gsn: int
    def __init__(self, gsn: _Optional[int] = ...) -> None: ...

class SealSegment(_message.Message):
    __slots__ = ("segment",)
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    segment: int
    def __init__(self, segment: _Optional[int] = ...) -> None: ...

class OpenSegment(_message.Message):
    __slots__ = ("server",)
    SERVER_FIELD_NUMBER: _ClassVar[int]
    server: int
    def __init__(self, server: _Optional[int] = ...) -> None: ...

class SetParent(_message.Message):
    __slots__ = ("aggregator", "parent")
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    aggregator: str
    parent: str
    def __init__(self, aggregator: _Optional[str] = ..., parent: _Optional[str] = ...) -> None: ...

class AssignShard(_message.Message):
    __slots__ = ("shard", "aggregator")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    shard: int
    aggregator: str
    def __init__(self, shard: _Optional[int] = ..., aggregator: _Optional[str] = ...) -> None: ...

class DropAggregator(_message.Message):
    __slots__ = ("aggregator",)
    AGGREGATOR_FIELD_NUMBER: _ClassVar[int]
    aggregator: str
    def __init__(self, aggregator: _Optional[str] = ...) -> None: ...

class SetCutInterval(_message.Message):
    __slots__ = ("interval_ns",)
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    interval_ns: int
    def __init__(self, interval_ns: _Optional[int] = ...) -> None: ...

class Kinds(_message.Message):
    __slots__ = ("append", "appended", "replicate", "replicate_ack", "report", "updates", "pulled", "pull", "rejected", "append_status_request", "append_status", "read_request", "read_response", "read_failed", "time_request", "time_response", "sessions_request", "sessions_response", "placements_request", "placements_response", "register", "register_aggregator", "update_request", "registration_reply", "tally", "suspect", "recovered", "caught_up", "suspect_aggregator", "view_request", "view_response", "tail_request", "tail_response", "change_request", "change_response", "not_leader", "unreachable", "report_request")
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_FIELD_NUMBER: _ClassVar[int]
    REPLICATE_ACK_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    PULLED_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
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
    append: Append
    appended: Appended
    replicate: Replicate
    replicate_ack: ReplicateAck
    report: Report
    updates: Updates
    pulled: Pulled
    pull: Pull
    rejected: Rejected
    append_status_request: AppendStatusRequest
    append_status: AppendStatus
    read_request: ReadRequest
    read_response: ReadResponse
    read_failed: ReadFailed
    time_request: TimeRequest
    time_response: TimeResponse
    sessions_request: SessionsRequest
    sessions_response: SessionsResponse
    placements_request: PlacementsRequest
    placements_response: PlacementsResponse
    register: Register
    register_aggregator: RegisterAggregator
    update_request: UpdateRequest
    registration_reply: RegistrationReply
    tally: Tally
    suspect: Suspect
    recovered: Recovered
    caught_up: CaughtUp
    suspect_aggregator: SuspectAggregator
    view_request: ViewRequest
    view_response: ViewResponse
    tail_request: TailRequest
    tail_response: TailResponse
    change_request: ChangeRequest
    change_response: ChangeResponse
    not_leader: NotLeader
    unreachable: Unreachable
    report_request: ReportRequest
    def __init__(self, append: _Optional[_Union[Append, _Mapping]] = ..., appended: _Optional[_Union[Appended, _Mapping]] = ..., replicate: _Optional[_Union[Replicate, _Mapping]] = ..., replicate_ack: _Optional[_Union[ReplicateAck, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., updates: _Optional[_Union[Updates, _Mapping]] = ..., pulled: _Optional[_Union[Pulled, _Mapping]] = ..., pull: _Optional[_Union[Pull, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., append_status_request: _Optional[_Union[AppendStatusRequest, _Mapping]] = ..., append_status: _Optional[_Union[AppendStatus, _Mapping]] = ..., read_request: _Optional[_Union[ReadRequest, _Mapping]] = ..., read_response: _Optional[_Union[ReadResponse, _Mapping]] = ..., read_failed: _Optional[_Union[ReadFailed, _Mapping]] = ..., time_request: _Optional[_Union[TimeRequest, _Mapping]] = ..., time_response: _Optional[_Union[TimeResponse, _Mapping]] = ..., sessions_request: _Optional[_Union[SessionsRequest, _Mapping]] = ..., sessions_response: _Optional[_Union[SessionsResponse, _Mapping]] = ..., placements_request: _Optional[_Union[PlacementsRequest, _Mapping]] = ..., placements_response: _Optional[_Union[PlacementsResponse, _Mapping]] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., register_aggregator: _Optional[_Union[RegisterAggregator, _Mapping]] = ..., update_request: _Optional[_Union[UpdateRequest, _Mapping]] = ..., registration_reply: _Optional[_Union[RegistrationReply, _Mapping]] = ..., tally: _Optional[_Union[Tally, _Mapping]] = ..., suspect: _Optional[_Union[Suspect, _Mapping]] = ..., recovered: _Optional[_Union[Recovered, _Mapping]] = ..., caught_up: _Optional[_Union[CaughtUp, _Mapping]] = ..., suspect_aggregator: _Optional[_Union[SuspectAggregator, _Mapping]] = ..., view_request: _Optional[_Union[ViewRequest, _Mapping]] = ..., view_response: _Optional[_Union[ViewResponse, _Mapping]] = ..., tail_request: _Optional[_Union[TailRequest, _Mapping]] = ..., tail_response: _Optional[_Union[TailResponse, _Mapping]] = ..., change_request: _Optional[_Union[ChangeRequest, _Mapping]] = ..., change_response: _Optional[_Union[ChangeResponse, _Mapping]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., unreachable: _Optional[_Union[Unreachable, _Mapping]] = ..., report_request: _Optional[_Union[ReportRequest, _Mapping]] = ...) -> None: ...
