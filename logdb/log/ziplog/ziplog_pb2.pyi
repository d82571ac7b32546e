from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Member(_message.Message):
    __slots__ = ("server", "address", "valid", "is_synced", "is_complete")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VALID_FIELD_NUMBER: _ClassVar[int]
    IS_SYNCED_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    valid: int
    is_synced: bool
    is_complete: bool
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ..., valid: _Optional[int] = ..., is_synced: _Optional[bool] = ..., is_complete: _Optional[bool] = ...) -> None: ...

class Spare(_message.Message):
    __slots__ = ("server", "address")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class ShardConfig(_message.Message):
    __slots__ = ("shard", "view", "members", "since", "first", "bound", "is_draining", "is_drained", "former")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINING_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINED_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    view: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    since: int
    first: int
    bound: int
    is_draining: bool
    is_drained: bool
    former: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, shard: _Optional[int] = ..., view: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., since: _Optional[int] = ..., first: _Optional[int] = ..., bound: _Optional[int] = ..., is_draining: _Optional[bool] = ..., is_drained: _Optional[bool] = ..., former: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("version", "shards", "next_shard", "oldest", "spares", "set_version", "base", "left", "origin", "interval_ns")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SHARD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    SET_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    version: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardConfig]
    next_shard: int
    oldest: int
    spares: _containers.RepeatedCompositeFieldContainer[Spare]
    set_version: int
    base: int
    left: int
    origin: int
    interval_ns: int
    def __init__(self, version: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardConfig, _Mapping]]] = ..., next_shard: _Optional[int] = ..., oldest: _Optional[int] = ..., spares: _Optional[_Iterable[_Union[Spare, _Mapping]]] = ..., set_version: _Optional[int] = ..., base: _Optional[int] = ..., left: _Optional[int] = ..., origin: _Optional[int] = ..., interval_ns: _Optional[int] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("version", "base", "end", "shares")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    version: int
    base: int
    end: int
    shares: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, version: _Optional[int] = ..., base: _Optional[int] = ..., end: _Optional[int] = ..., shares: _Optional[_Iterable[int]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("server", "nonce", "shard", "view", "is_frozen", "is_synced", "stable", "epoch", "version", "change", "records", "wanted", "suspects", "may_lack")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    IS_FROZEN_FIELD_NUMBER: _ClassVar[int]
    IS_SYNCED_FIELD_NUMBER: _ClassVar[int]
    STABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    SUSPECTS_FIELD_NUMBER: _ClassVar[int]
    MAY_LACK_FIELD_NUMBER: _ClassVar[int]
    server: int
    nonce: int
    shard: int
    view: int
    is_frozen: bool
    is_synced: bool
    stable: int
    epoch: int
    version: int
    change: int
    records: int
    wanted: int
    suspects: _containers.RepeatedScalarFieldContainer[int]
    may_lack: bool
    def __init__(self, server: _Optional[int] = ..., nonce: _Optional[int] = ..., shard: _Optional[int] = ..., view: _Optional[int] = ..., is_frozen: _Optional[bool] = ..., is_synced: _Optional[bool] = ..., stable: _Optional[int] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ..., change: _Optional[int] = ..., records: _Optional[int] = ..., wanted: _Optional[int] = ..., suspects: _Optional[_Iterable[int]] = ..., may_lack: _Optional[bool] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("change", "server", "nonce", "config", "epoch", "opened", "oldest", "left")
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    change: int
    server: int
    nonce: int
    config: ShardConfig
    epoch: Epoch
    opened: int
    oldest: int
    left: int
    def __init__(self, change: _Optional[int] = ..., server: _Optional[int] = ..., nonce: _Optional[int] = ..., config: _Optional[_Union[ShardConfig, _Mapping]] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ..., opened: _Optional[int] = ..., oldest: _Optional[int] = ..., left: _Optional[int] = ...) -> None: ...

class Freeze(_message.Message):
    __slots__ = ("shard", "view")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    shard: int
    view: int
    def __init__(self, shard: _Optional[int] = ..., view: _Optional[int] = ...) -> None: ...

class Placed(_message.Message):
    __slots__ = ("first", "gsns")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    GSNS_FIELD_NUMBER: _ClassVar[int]
    first: int
    gsns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first: _Optional[int] = ..., gsns: _Optional[_Iterable[int]] = ...) -> None: ...

class Insert(_message.Message):
    __slots__ = ("client", "shard", "view", "sequence", "settled", "floor", "version")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    client: int
    shard: int
    view: int
    sequence: int
    settled: int
    floor: int
    version: int
    def __init__(self, client: _Optional[int] = ..., shard: _Optional[int] = ..., view: _Optional[int] = ..., sequence: _Optional[int] = ..., settled: _Optional[int] = ..., floor: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Inserted(_message.Message):
    __slots__ = ("client", "shard", "view", "placed", "is_stable")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    IS_STABLE_FIELD_NUMBER: _ClassVar[int]
    client: int
    shard: int
    view: int
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    is_stable: bool
    def __init__(self, client: _Optional[int] = ..., shard: _Optional[int] = ..., view: _Optional[int] = ..., placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ..., is_stable: _Optional[bool] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("client", "shard", "view", "numbers")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    client: int
    shard: int
    view: int
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., shard: _Optional[int] = ..., view: _Optional[int] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class Stale(_message.Message):
    __slots__ = ("client", "sequence", "version")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    version: int
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class FrontierRequest(_message.Message):
    __slots__ = ("request", "shard", "view")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    view: int
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., view: _Optional[int] = ...) -> None: ...

class FrontierResponse(_message.Message):
    __slots__ = ("request", "shard", "version", "frontier", "last", "stable", "is_open")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STABLE_FIELD_NUMBER: _ClassVar[int]
    IS_OPEN_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    version: int
    frontier: int
    last: int
    stable: int
    is_open: bool
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., version: _Optional[int] = ..., frontier: _Optional[int] = ..., last: _Optional[int] = ..., stable: _Optional[int] = ..., is_open: _Optional[bool] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("client", "sequences")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("client", "shard", "placed")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    client: int
    shard: int
    placed: _containers.RepeatedCompositeFieldContainer[Placed]
    def __init__(self, client: _Optional[int] = ..., shard: _Optional[int] = ..., placed: _Optional[_Iterable[_Union[Placed, _Mapping]]] = ...) -> None: ...

class Replicate(_message.Message):
    __slots__ = ("shard", "view", "after", "end", "stable", "version")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STABLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    shard: int
    view: int
    after: int
    end: int
    stable: int
    version: int
    def __init__(self, shard: _Optional[int] = ..., view: _Optional[int] = ..., after: _Optional[int] = ..., end: _Optional[int] = ..., stable: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Stored(_message.Message):
    __slots__ = ("shard", "view", "end", "durable", "last")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    shard: int
    view: int
    end: int
    durable: int
    last: int
    def __init__(self, shard: _Optional[int] = ..., view: _Optional[int] = ..., end: _Optional[int] = ..., durable: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Sessions(_message.Message):
    __slots__ = ("shard", "view", "end", "first", "following", "sessions")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    view: int
    end: int
    first: int
    following: int
    sessions: str
    def __init__(self, shard: _Optional[int] = ..., view: _Optional[int] = ..., end: _Optional[int] = ..., first: _Optional[int] = ..., following: _Optional[int] = ..., sessions: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request", "shard", "gsn", "is_reached")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    IS_REACHED_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    gsn: int
    is_reached: bool
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., gsn: _Optional[int] = ..., is_reached: _Optional[bool] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("request", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class ReadFailed(_message.Message):
    __slots__ = ("request", "why", "oldest", "explanation")
    class ReadError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ReadFailed.ReadError]
        BEHIND: _ClassVar[ReadFailed.ReadError]
        TRIMMED: _ClassVar[ReadFailed.ReadError]
        UNREADABLE: _ClassVar[ReadFailed.ReadError]
    UNSPECIFIED: ReadFailed.ReadError
    BEHIND: ReadFailed.ReadError
    TRIMMED: ReadFailed.ReadError
    UNREADABLE: ReadFailed.ReadError
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
    __slots__ = ("request", "shard", "gsn", "tags", "max_bytes", "wanted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    gsn: int
    tags: bytes
    max_bytes: int
    wanted: int
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., gsn: _Optional[int] = ..., tags: _Optional[bytes] = ..., max_bytes: _Optional[int] = ..., wanted: _Optional[int] = ...) -> None: ...

class Pulled(_message.Message):
    __slots__ = ("request", "first", "end", "version")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    end: int
    version: int
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("request", "last", "oldest", "cut", "interval_ns")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    oldest: int
    cut: int
    interval_ns: int
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ..., oldest: _Optional[int] = ..., cut: _Optional[int] = ..., interval_ns: _Optional[int] = ...) -> None: ...

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

class ChangeRequest(_message.Message):
    __slots__ = ("request", "kind", "numbers")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    request: int
    kind: str
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., kind: _Optional[str] = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class ChangeResponse(_message.Message):
    __slots__ = ("request", "result", "error")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request: int
    result: int
    error: str
    def __init__(self, request: _Optional[int] = ..., result: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("request", "leader")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    request: int
    leader: str
    def __init__(self, request: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class Kinds(_message.Message):
    __slots__ = ("ziplog_report", "ziplog_update", "ziplog_freeze", "ziplog_insert", "ziplog_inserted", "ziplog_refused", "ziplog_stale", "ziplog_frontier_request", "ziplog_frontier_response", "ziplog_status_request", "ziplog_status", "ziplog_replicate", "ziplog_stored", "ziplog_sessions", "ziplog_read_request", "ziplog_read_response", "ziplog_read_failed", "ziplog_pull", "ziplog_pulled", "ziplog_tail_request", "ziplog_tail_response", "ziplog_view_request", "ziplog_view_response", "ziplog_change_request", "ziplog_change_response", "ziplog_not_leader")
    ZIPLOG_REPORT_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_UPDATE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_FREEZE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_INSERT_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_INSERTED_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_REFUSED_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_STALE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_FRONTIER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_FRONTIER_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_STATUS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_STATUS_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_REPLICATE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_STORED_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_READ_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_READ_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_READ_FAILED_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_PULL_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_PULLED_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_TAIL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_TAIL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_VIEW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_VIEW_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_CHANGE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_CHANGE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ZIPLOG_NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    ziplog_report: Report
    ziplog_update: Update
    ziplog_freeze: Freeze
    ziplog_insert: Insert
    ziplog_inserted: Inserted
    ziplog_refused: Refused
    ziplog_stale: Stale
    ziplog_frontier_request: FrontierRequest
    ziplog_frontier_response: FrontierResponse
    ziplog_status_request: StatusRequest
    ziplog_status: Status
    ziplog_replicate: Replicate
    ziplog_stored: Stored
    ziplog_sessions: Sessions
    ziplog_read_request: ReadRequest
    ziplog_read_response: ReadResponse
    ziplog_read_failed: ReadFailed
    ziplog_pull: Pull
    ziplog_pulled: Pulled
    ziplog_tail_request: TailRequest
    ziplog_tail_response: TailResponse
    ziplog_view_request: ViewRequest
    ziplog_view_response: ViewResponse
    ziplog_change_request: ChangeRequest
    ziplog_change_response: ChangeResponse
    ziplog_not_leader: NotLeader
    def __init__(self, ziplog_report: _Optional[_Union[Report, _Mapping]] = ..., ziplog_update: _Optional[_Union[Update, _Mapping]] = ..., ziplog_freeze: _Optional[_Union[Freeze, _Mapping]] = ..., ziplog_insert: _Optional[_Union[Insert, _Mapping]] = ..., ziplog_inserted: _Optional[_Union[Inserted, _Mapping]] = ..., ziplog_refused: _Optional[_Union[Refused, _Mapping]] = ..., ziplog_stale: _Optional[_Union[Stale, _Mapping]] = ..., ziplog_frontier_request: _Optional[_Union[FrontierRequest, _Mapping]] = ..., ziplog_frontier_response: _Optional[_Union[FrontierResponse, _Mapping]] = ..., ziplog_status_request: _Optional[_Union[StatusRequest, _Mapping]] = ..., ziplog_status: _Optional[_Union[Status, _Mapping]] = ..., ziplog_replicate: _Optional[_Union[Replicate, _Mapping]] = ..., ziplog_stored: _Optional[_Union[Stored, _Mapping]] = ..., ziplog_sessions: _Optional[_Union[Sessions, _Mapping]] = ..., ziplog_read_request: _Optional[_Union[ReadRequest, _Mapping]] = ..., ziplog_read_response: _Optional[_Union[ReadResponse, _Mapping]] = ..., ziplog_read_failed: _Optional[_Union[ReadFailed, _Mapping]] = ..., ziplog_pull: _Optional[_Union[Pull, _Mapping]] = ..., ziplog_pulled: _Optional[_Union[Pulled, _Mapping]] = ..., ziplog_tail_request: _Optional[_Union[TailRequest, _Mapping]] = ..., ziplog_tail_response: _Optional[_Union[TailResponse, _Mapping]] = ..., ziplog_view_request: _Optional[_Union[ViewRequest, _Mapping]] = ..., ziplog_view_response: _Optional[_Union[ViewResponse, _Mapping]] = ..., ziplog_change_request: _Optional[_Union[ChangeRequest, _Mapping]] = ..., ziplog_change_response: _Optional[_Union[ChangeResponse, _Mapping]] = ..., ziplog_not_leader: _Optional[_Union[NotLeader, _Mapping]] = ...) -> None: ...
