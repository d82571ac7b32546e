from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AppendRequest(_message.Message):
    __slots__ = ("client", "sequence", "settled")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    settled: int
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., settled: _Optional[int] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("client", "ranges")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    client: int
    ranges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., ranges: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendRefused(_message.Message):
    __slots__ = ("client", "sequence", "leader")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    leader: str
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class AppendStatusRequest(_message.Message):
    __slots__ = ("client", "sequences")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class AppendStatus(_message.Message):
    __slots__ = ("client", "ordered")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    client: int
    ordered: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., ordered: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("request", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class ReadFailed(_message.Message):
    __slots__ = ("request", "why", "oldest", "leader", "explanation")
    class ReadError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ReadFailed.ReadError]
        BEHIND: _ClassVar[ReadFailed.ReadError]
        MISSING: _ClassVar[ReadFailed.ReadError]
        TRIMMED: _ClassVar[ReadFailed.ReadError]
        UNREADABLE: _ClassVar[ReadFailed.ReadError]
    UNSPECIFIED: ReadFailed.ReadError
    BEHIND: ReadFailed.ReadError
    MISSING: ReadFailed.ReadError
    TRIMMED: ReadFailed.ReadError
    UNREADABLE: ReadFailed.ReadError
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    request: int
    why: ReadFailed.ReadError
    oldest: int
    leader: str
    explanation: str
    def __init__(self, request: _Optional[int] = ..., why: _Optional[_Union[ReadFailed.ReadError, str]] = ..., oldest: _Optional[int] = ..., leader: _Optional[str] = ..., explanation: _Optional[str] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("request", "gsn", "tags", "max_bytes", "allow_follower", "is_urgent")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    IS_URGENT_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    tags: bytes
    max_bytes: int
    allow_follower: bool
    is_urgent: bool
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ..., tags: _Optional[bytes] = ..., max_bytes: _Optional[int] = ..., allow_follower: _Optional[bool] = ..., is_urgent: _Optional[bool] = ...) -> None: ...

class Pulled(_message.Message):
    __slots__ = ("request", "first", "end")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    end: int
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TimeRequest(_message.Message):
    __slots__ = ("request", "time")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    request: int
    time: int
    def __init__(self, request: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class TimeResponse(_message.Message):
    __slots__ = ("request", "first", "end", "oldest")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    end: int
    oldest: int
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., oldest: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("request", "allow_follower")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FOLLOWER_FIELD_NUMBER: _ClassVar[int]
    request: int
    allow_follower: bool
    def __init__(self, request: _Optional[int] = ..., allow_follower: _Optional[bool] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("request", "last", "oldest", "cut")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    oldest: int
    cut: int
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ..., oldest: _Optional[int] = ..., cut: _Optional[int] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("request", "leader")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    request: int
    leader: str
    def __init__(self, request: _Optional[int] = ..., leader: _Optional[str] = ...) -> None: ...

class TrimRequest(_message.Message):
    __slots__ = ("request", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class TrimResponse(_message.Message):
    __slots__ = ("request", "oldest", "error")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request: int
    oldest: int
    error: str
    def __init__(self, request: _Optional[int] = ..., oldest: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class ViewRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class ViewResponse(_message.Message):
    __slots__ = ("request", "oldest", "replicas", "copying")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    COPYING_FIELD_NUMBER: _ClassVar[int]
    request: int
    oldest: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    copying: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., oldest: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ..., copying: _Optional[_Iterable[int]] = ...) -> None: ...

class Copying(_message.Message):
    __slots__ = ("missing",)
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: int
    def __init__(self, missing: _Optional[int] = ...) -> None: ...

class DurableRequest(_message.Message):
    __slots__ = ("gsn",)
    GSN_FIELD_NUMBER: _ClassVar[int]
    gsn: int
    def __init__(self, gsn: _Optional[int] = ...) -> None: ...

class DurableResponse(_message.Message):
    __slots__ = ("gsn",)
    GSN_FIELD_NUMBER: _ClassVar[int]
    gsn: int
    def __init__(self, gsn: _Optional[int] = ...) -> None: ...

class Kinds(_message.Message):
    __slots__ = ("multipaxos_append_request", "multipaxos_append_response", "multipaxos_append_refused", "multipaxos_append_status_request", "multipaxos_append_status", "multipaxos_read_request", "multipaxos_read_response", "multipaxos_read_failed", "multipaxos_pull", "multipaxos_pulled", "multipaxos_time_request", "multipaxos_time_response", "multipaxos_tail_request", "multipaxos_tail_response", "multipaxos_not_leader", "multipaxos_trim_request", "multipaxos_trim_response", "multipaxos_view_request", "multipaxos_view_response", "multipaxos_copying", "multipaxos_durable_request", "multipaxos_durable_response")
    MULTIPAXOS_APPEND_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_APPEND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_APPEND_REFUSED_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_APPEND_STATUS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_APPEND_STATUS_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_READ_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_READ_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_READ_FAILED_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_PULL_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_PULLED_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TIME_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TIME_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TAIL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TAIL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TRIM_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_TRIM_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_VIEW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_VIEW_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_COPYING_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_DURABLE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MULTIPAXOS_DURABLE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    multipaxos_append_request: AppendRequest
    multipaxos_append_response: AppendResponse
    multipaxos_append_refused: AppendRefused
    multipaxos_append_status_request: AppendStatusRequest
    multipaxos_append_status: AppendStatus
    multipaxos_read_request: ReadRequest
    multipaxos_read_response: ReadResponse
    multipaxos_read_failed: ReadFailed
    multipaxos_pull: Pull
    multipaxos_pulled: Pulled
    multipaxos_time_request: TimeRequest
    multipaxos_time_response: TimeResponse
    multipaxos_tail_request: TailRequest
    multipaxos_tail_response: TailResponse
    multipaxos_not_leader: NotLeader
    multipaxos_trim_request: TrimRequest
    multipaxos_trim_response: TrimResponse
    multipaxos_view_request: ViewRequest
    multipaxos_view_response: ViewResponse
    multipaxos_copying: Copying
    multipaxos_durable_request: DurableRequest
    multipaxos_durable_response: DurableResponse
    def __init__(self, multipaxos_append_request: _Optional[_Union[AppendRequest, _Mapping]] = ..., multipaxos_append_response: _Optional[_Union[AppendResponse, _Mapping]] = ..., multipaxos_append_refused: _Optional[_Union[AppendRefused, _Mapping]] = ..., multipaxos_append_status_request: _Optional[_Union[AppendStatusRequest, _Mapping]] = ..., multipaxos_append_status: _Optional[_Union[AppendStatus, _Mapping]] = ..., multipaxos_read_request: _Optional[_Union[ReadRequest, _Mapping]] = ..., multipaxos_read_response: _Optional[_Union[ReadResponse, _Mapping]] = ..., multipaxos_read_failed: _Optional[_Union[ReadFailed, _Mapping]] = ..., multipaxos_pull: _Optional[_Union[Pull, _Mapping]] = ..., multipaxos_pulled: _Optional[_Union[Pulled, _Mapping]] = ..., multipaxos_time_request: _Optional[_Union[TimeRequest, _Mapping]] = ..., multipaxos_time_response: _Optional[_Union[TimeResponse, _Mapping]] = ..., multipaxos_tail_request: _Optional[_Union[TailRequest, _Mapping]] = ..., multipaxos_tail_response: _Optional[_Union[TailResponse, _Mapping]] = ..., multipaxos_not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., multipaxos_trim_request: _Optional[_Union[TrimRequest, _Mapping]] = ..., multipaxos_trim_response: _Optional[_Union[TrimResponse, _Mapping]] = ..., multipaxos_view_request: _Optional[_Union[ViewRequest, _Mapping]] = ..., multipaxos_view_response: _Optional[_Union[ViewResponse, _Mapping]] = ..., multipaxos_copying: _Optional[_Union[Copying, _Mapping]] = ..., multipaxos_durable_request: _Optional[_Union[DurableRequest, _Mapping]] = ..., multipaxos_durable_response: _Optional[_Union[DurableResponse, _Mapping]] = ...) -> None: ...
