from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Unit(_message.Message):
    __slots__ = ("server", "address", "since", "is_leaving", "joined")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    IS_LEAVING_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    since: int
    is_leaving: bool
    joined: int
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ..., since: _Optional[int] = ..., is_leaving: _Optional[bool] = ..., joined: _Optional[int] = ...) -> None: ...

class Former(_message.Message):
    __slots__ = ("server", "address", "since", "joined", "left", "end", "time", "is_sealed")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    IS_SEALED_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    since: int
    joined: int
    left: int
    end: int
    time: int
    is_sealed: bool
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ..., since: _Optional[int] = ..., joined: _Optional[int] = ..., left: _Optional[int] = ..., end: _Optional[int] = ..., time: _Optional[int] = ..., is_sealed: _Optional[bool] = ...) -> None: ...

class Spare(_message.Message):
    __slots__ = ("server", "address")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    server: int
    address: str
    def __init__(self, server: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class ShardConfig(_message.Message):
    __slots__ = ("shard", "units", "size", "is_live", "holds_streams", "former")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_LIVE_FIELD_NUMBER: _ClassVar[int]
    HOLDS_STREAMS_FIELD_NUMBER: _ClassVar[int]
    FORMER_FIELD_NUMBER: _ClassVar[int]
    shard: int
    units: _containers.RepeatedCompositeFieldContainer[Unit]
    size: int
    is_live: bool
    holds_streams: bool
    former: _containers.RepeatedCompositeFieldContainer[Former]
    def __init__(self, shard: _Optional[int] = ..., units: _Optional[_Iterable[_Union[Unit, _Mapping]]] = ..., size: _Optional[int] = ..., is_live: _Optional[bool] = ..., holds_streams: _Optional[bool] = ..., former: _Optional[_Iterable[_Union[Former, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "shards")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    first: int
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first: _Optional[int] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...

class View(_message.Message):
    __slots__ = ("version", "epoch", "shards", "next_shard", "oldest", "spares", "ranges", "start", "time", "last", "sequencer", "nonce", "streams")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_SHARD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    SPARES_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    version: int
    epoch: int
    shards: _containers.RepeatedCompositeFieldContainer[ShardConfig]
    next_shard: int
    oldest: int
    spares: _containers.RepeatedCompositeFieldContainer[Spare]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    start: int
    time: int
    last: int
    sequencer: str
    nonce: int
    streams: _containers.RepeatedCompositeFieldContainer[Range]
    def __init__(self, version: _Optional[int] = ..., epoch: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[ShardConfig, _Mapping]]] = ..., next_shard: _Optional[int] = ..., oldest: _Optional[int] = ..., spares: _Optional[_Iterable[_Union[Spare, _Mapping]]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., start: _Optional[int] = ..., time: _Optional[int] = ..., last: _Optional[int] = ..., sequencer: _Optional[str] = ..., nonce: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[Range, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("server", "nonce", "version", "sealed", "copied", "last", "decided")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    server: int
    nonce: int
    version: int
    sealed: int
    copied: int
    last: int
    decided: int
    def __init__(self, server: _Optional[int] = ..., nonce: _Optional[int] = ..., version: _Optional[int] = ..., sealed: _Optional[int] = ..., copied: _Optional[int] = ..., last: _Optional[int] = ..., decided: _Optional[int] = ...) -> None: ...

class SequencerReport(_message.Message):
    __slots__ = ("nonce", "epoch")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    epoch: int
    def __init__(self, nonce: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("server", "nonce", "view", "is_released")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    IS_RELEASED_FIELD_NUMBER: _ClassVar[int]
    server: int
    nonce: int
    view: View
    is_released: bool
    def __init__(self, server: _Optional[int] = ..., nonce: _Optional[int] = ..., view: _Optional[_Union[View, _Mapping]] = ..., is_released: _Optional[bool] = ...) -> None: ...

class Seal(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Sealed(_message.Message):
    __slots__ = ("server", "epoch", "highest", "last", "time")
    SERVER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    server: int
    epoch: int
    highest: int
    last: int
    time: int
    def __init__(self, server: _Optional[int] = ..., epoch: _Optional[int] = ..., highest: _Optional[int] = ..., last: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class TailResponse(_message.Message):
    __slots__ = ("request", "last", "oldest", "cut", "interval_ns", "unreachable")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_NS_FIELD_NUMBER: _ClassVar[int]
    UNREACHABLE_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    oldest: int
    cut: int
    interval_ns: int
    unreachable: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ..., oldest: _Optional[int] = ..., cut: _Optional[int] = ..., interval_ns: _Optional[int] = ..., unreachable: _Optional[_Iterable[int]] = ...) -> None: ...

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

class TokenRequest(_message.Message):
    __slots__ = ("request", "epoch", "places", "streams")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    places: _containers.RepeatedScalarFieldContainer[int]
    streams: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., places: _Optional[_Iterable[int]] = ..., streams: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenResponse(_message.Message):
    __slots__ = ("request", "epoch", "first", "end", "positions", "time", "previous")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    first: int
    end: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    time: int
    previous: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., time: _Optional[int] = ..., previous: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenRefused(_message.Message):
    __slots__ = ("request", "epoch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class WriteRequest(_message.Message):
    __slots__ = ("request", "epoch", "position", "time", "client", "sequence", "streams")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    position: int
    time: int
    client: int
    sequence: int
    streams: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ..., time: _Optional[int] = ..., client: _Optional[int] = ..., sequence: _Optional[int] = ..., streams: _Optional[_Iterable[int]] = ...) -> None: ...

class FillRequest(_message.Message):
    __slots__ = ("request", "epoch", "position")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    position: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Written(_message.Message):
    __slots__ = ("request", "position", "client", "sequence", "count", "streams")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    request: int
    position: int
    client: int
    sequence: int
    count: int
    streams: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., position: _Optional[int] = ..., client: _Optional[int] = ..., sequence: _Optional[int] = ..., count: _Optional[int] = ..., streams: _Optional[_Iterable[int]] = ...) -> None: ...

class Rejected(_message.Message):
    __slots__ = ("request", "why", "epoch", "oldest", "explanation")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Rejected.Reason]
        SEALED: _ClassVar[Rejected.Reason]
        TRIMMED: _ClassVar[Rejected.Reason]
        ABSENT: _ClassVar[Rejected.Reason]
        UNREADABLE: _ClassVar[Rejected.Reason]
        BUSY: _ClassVar[Rejected.Reason]
        UNASSIGNED: _ClassVar[Rejected.Reason]
        INVALID: _ClassVar[Rejected.Reason]
    UNSPECIFIED: Rejected.Reason
    SEALED: Rejected.Reason
    TRIMMED: Rejected.Reason
    ABSENT: Rejected.Reason
    UNREADABLE: Rejected.Reason
    BUSY: Rejected.Reason
    UNASSIGNED: Rejected.Reason
    INVALID: Rejected.Reason
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    request: int
    why: Rejected.Reason
    epoch: int
    oldest: int
    explanation: str
    def __init__(self, request: _Optional[int] = ..., why: _Optional[_Union[Rejected.Reason, str]] = ..., epoch: _Optional[int] = ..., oldest: _Optional[int] = ..., explanation: _Optional[str] = ...) -> None: ...

class HighestRequest(_message.Message):
    __slots__ = ("request", "epoch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class HighestResponse(_message.Message):
    __slots__ = ("request", "last")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class TimeRequest(_message.Message):
    __slots__ = ("request", "epoch", "time", "end")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    time: int
    end: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., time: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TimeResponse(_message.Message):
    __slots__ = ("request", "last")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    request: int
    last: int
    def __init__(self, request: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("client", "sequences")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("client", "positions")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    client: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, client: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("request", "epoch", "gsn")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    gsn: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class ReadResponse(_message.Message):
    __slots__ = ("request", "gsn", "time")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    request: int
    gsn: int
    time: int
    def __init__(self, request: _Optional[int] = ..., gsn: _Optional[int] = ..., time: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("position", "time", "client", "sequence", "count", "streams")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    position: int
    time: int
    client: int
    sequence: int
    count: int
    streams: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, position: _Optional[int] = ..., time: _Optional[int] = ..., client: _Optional[int] = ..., sequence: _Optional[int] = ..., count: _Optional[int] = ..., streams: _Optional[_Iterable[int]] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("request", "epoch", "first", "step", "end", "known", "tags", "max_bytes", "uncommitted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    first: int
    step: int
    end: int
    known: int
    tags: bytes
    max_bytes: int
    uncommitted: bool
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., step: _Optional[int] = ..., end: _Optional[int] = ..., known: _Optional[int] = ..., tags: _Optional[bytes] = ..., max_bytes: _Optional[int] = ..., uncommitted: _Optional[bool] = ...) -> None: ...

class Pulled(_message.Message):
    __slots__ = ("request", "highest", "entries", "deleted", "uncommitted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    UNCOMMITTED_FIELD_NUMBER: _ClassVar[int]
    request: int
    highest: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    deleted: _containers.RepeatedScalarFieldContainer[int]
    uncommitted: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., highest: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., deleted: _Optional[_Iterable[int]] = ..., uncommitted: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamTailRequest(_message.Message):
    __slots__ = ("request", "epoch", "stream")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    stream: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., stream: _Optional[int] = ...) -> None: ...

class StreamTailResponse(_message.Message):
    __slots__ = ("request", "position")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    request: int
    position: int
    def __init__(self, request: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("request", "epoch", "position")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    position: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class OpenRequest(_message.Message):
    __slots__ = ("request", "epoch", "first", "end")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    first: int
    end: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class OpenPositions(_message.Message):
    __slots__ = ("request", "positions")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    request: int
    positions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamPull(_message.Message):
    __slots__ = ("request", "epoch", "stream", "first", "end", "max_bytes")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    stream: int
    first: int
    end: int
    max_bytes: int
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., stream: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class StreamPulled(_message.Message):
    __slots__ = ("request", "end", "entries", "deleted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    request: int
    end: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    deleted: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., end: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., deleted: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteRequest(_message.Message):
    __slots__ = ("request", "epoch", "gsns")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GSNS_FIELD_NUMBER: _ClassVar[int]
    request: int
    epoch: int
    gsns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., epoch: _Optional[int] = ..., gsns: _Optional[_Iterable[int]] = ...) -> None: ...

class Deleted(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class Kinds(_message.Message):
    __slots__ = ("corfu_report", "corfu_sequencer_report", "corfu_update", "corfu_seal", "corfu_sealed", "corfu_tail_request", "corfu_tail_response", "corfu_view_request", "corfu_view_response", "corfu_change_request", "corfu_change_response", "corfu_not_leader", "corfu_token_request", "corfu_token_response", "corfu_token_refused", "corfu_write_request", "corfu_fill_request", "corfu_written", "corfu_rejected", "corfu_highest_request", "corfu_highest_response", "corfu_time_request", "corfu_time_response", "corfu_status_request", "corfu_status", "corfu_read_request", "corfu_read_response", "corfu_pull", "corfu_pulled", "corfu_delete_request", "corfu_deleted", "corfu_stream_tail_request", "corfu_stream_tail_response", "corfu_commit_request", "corfu_committed", "corfu_open_request", "corfu_open_positions", "corfu_stream_pull", "corfu_stream_pulled")
    CORFU_REPORT_FIELD_NUMBER: _ClassVar[int]
    CORFU_SEQUENCER_REPORT_FIELD_NUMBER: _ClassVar[int]
    CORFU_UPDATE_FIELD_NUMBER: _ClassVar[int]
    CORFU_SEAL_FIELD_NUMBER: _ClassVar[int]
    CORFU_SEALED_FIELD_NUMBER: _ClassVar[int]
    CORFU_TAIL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_TAIL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_VIEW_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_VIEW_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_CHANGE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_CHANGE_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    CORFU_TOKEN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_TOKEN_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_TOKEN_REFUSED_FIELD_NUMBER: _ClassVar[int]
    CORFU_WRITE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_FILL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CORFU_REJECTED_FIELD_NUMBER: _ClassVar[int]
    CORFU_HIGHEST_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_HIGHEST_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_TIME_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_TIME_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_STATUS_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_STATUS_FIELD_NUMBER: _ClassVar[int]
    CORFU_READ_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_READ_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_PULL_FIELD_NUMBER: _ClassVar[int]
    CORFU_PULLED_FIELD_NUMBER: _ClassVar[int]
    CORFU_DELETE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_DELETED_FIELD_NUMBER: _ClassVar[int]
    CORFU_STREAM_TAIL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_STREAM_TAIL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    CORFU_COMMIT_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CORFU_OPEN_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CORFU_OPEN_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    CORFU_STREAM_PULL_FIELD_NUMBER: _ClassVar[int]
    CORFU_STREAM_PULLED_FIELD_NUMBER: _ClassVar[int]
    corfu_report: Report
    corfu_sequencer_report: SequencerReport
    corfu_update: Update
    corfu_seal: Seal
    corfu_sealed: Sealed
    corfu_tail_request: TailRequest
    corfu_tail_response: TailResponse
    corfu_view_request: ViewRequest
    corfu_view_response: ViewResponse
    corfu_change_request: ChangeRequest
    corfu_change_response: ChangeResponse
    corfu_not_leader: NotLeader
    corfu_token_request: TokenRequest
    corfu_token_response: TokenResponse
    corfu_token_refused: TokenRefused
    corfu_write_request: WriteRequest
    corfu_fill_request: FillRequest
    corfu_written: Written
    corfu_rejected: Rejected
    corfu_highest_request: HighestRequest
    corfu_highest_response: HighestResponse
    corfu_time_request: TimeRequest
    corfu_time_response: TimeResponse
    corfu_status_request: StatusRequest
    corfu_status: Status
    corfu_read_request: ReadRequest
    corfu_read_response: ReadResponse
    corfu_pull: Pull
    corfu_pulled: Pulled
    corfu_delete_request: DeleteRequest
    corfu_deleted: Deleted
    corfu_stream_tail_request: StreamTailRequest
    corfu_stream_tail_response: StreamTailResponse
    corfu_commit_request: CommitRequest
    corfu_committed: Committed
    corfu_open_request: OpenRequest
    corfu_open_positions: OpenPositions
    corfu_stream_pull: StreamPull
    corfu_stream_pulled: StreamPulled
    def __init__(self, corfu_report: _Optional[_Union[Report, _Mapping]] = ..., corfu_sequencer_report: _Optional[_Union[SequencerReport, _Mapping]] = ..., corfu_update: _Optional[_Union[Update, _Mapping]] = ..., corfu_seal: _Optional[_Union[Seal, _Mapping]] = ..., corfu_sealed: _Optional[_Union[Sealed, _Mapping]] = ..., corfu_tail_request: _Optional[_Union[TailRequest, _Mapping]] = ..., corfu_tail_response: _Optional[_Union[TailResponse, _Mapping]] = ..., corfu_view_request: _Optional[_Union[ViewRequest, _Mapping]] = ..., corfu_view_response: _Optional[_Union[ViewResponse, _Mapping]] = ..., corfu_change_request: _Optional[_Union[ChangeRequest, _Mapping]] = ..., corfu_change_response: _Optional[_Union[ChangeResponse, _Mapping]] = ..., corfu_not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., corfu_token_request: _Optional[_Union[TokenRequest, _Mapping]] = ..., corfu_token_response: _Optional[_Union[TokenResponse, _Mapping]] = ..., corfu_token_refused: _Optional[_Union[TokenRefused, _Mapping]] = ..., corfu_write_request: _Optional[_Union[WriteRequest, _Mapping]] = ..., corfu_fill_request: _Optional[_Union[FillRequest, _Mapping]] = ..., corfu_written: _Optional[_Union[Written, _Mapping]] = ..., corfu_rejected: _Optional[_Union[Rejected, _Mapping]] = ..., corfu_highest_request: _Optional[_Union[HighestRequest, _Mapping]] = ..., corfu_highest_response: _Optional[_Union[HighestResponse, _Mapping]] = ..., corfu_time_request: _Optional[_Union[TimeRequest, _Mapping]] = ..., corfu_time_response: _Optional[_Union[TimeResponse, _Mapping]] = ..., corfu_status_request: _Optional[_Union[StatusRequest, _Mapping]] = ..., corfu_status: _Optional[_Union[Status, _Mapping]] = ..., corfu_read_request: _Optional[_Union[ReadRequest, _Mapping]] = ..., corfu_read_response: _Optional[_Union[ReadResponse, _Mapping]] = ..., corfu_pull: _Optional[_Union[Pull, _Mapping]] = ..., corfu_pulled: _Optional[_Union[Pulled, _Mapping]] = ..., corfu_delete_request: _Optional[_Union[DeleteRequest, _Mapping]] = ..., corfu_deleted: _Optional[_Union[Deleted, _Mapping]] = ..., corfu_stream_tail_request: _Optional[_Union[StreamTailRequest, _Mapping]] = ..., corfu_stream_tail_response: _Optional[_Union[StreamTailResponse, _Mapping]] = ..., corfu_commit_request: _Optional[_Union[CommitRequest, _Mapping]] = ..., corfu_committed: _Optional[_Union[Committed, _Mapping]] = ..., corfu_open_request: _Optional[_Union[OpenRequest, _Mapping]] = ..., corfu_open_positions: _Optional[_Union[OpenPositions, _Mapping]] = ..., corfu_stream_pull: _Optional[_Union[StreamPull, _Mapping]] = ..., corfu_stream_pulled: _Optional[_Union[StreamPulled, _Mapping]] = ...) -> None: ...
