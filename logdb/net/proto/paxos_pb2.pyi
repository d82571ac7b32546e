from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Ballot(_message.Message):
    __slots__ = ("round", "member")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    round: int
    member: int
    def __init__(self, round: _Optional[int] = ..., member: _Optional[int] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("ballot", "value")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    value: bytes
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., value: _Optional[bytes] = ...) -> None: ...

class Canvass(_message.Message):
    __slots__ = ("ballot", "commit")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    commit: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., commit: _Optional[int] = ...) -> None: ...

class Canvassed(_message.Message):
    __slots__ = ("ballot",)
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("ballot", "first")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    first: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., first: _Optional[int] = ...) -> None: ...

class Promise(_message.Message):
    __slots__ = ("ballot", "first", "entries", "last")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    first: int
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    last: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., first: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., last: _Optional[int] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("ballot", "first", "values", "commit")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    first: int
    values: _containers.RepeatedScalarFieldContainer[bytes]
    commit: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., first: _Optional[int] = ..., values: _Optional[_Iterable[bytes]] = ..., commit: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("ballot", "matched", "again")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    matched: int
    again: bool
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., matched: _Optional[int] = ..., again: _Optional[bool] = ...) -> None: ...

class Install(_message.Message):
    __slots__ = ("ballot", "slot", "size", "offset", "data")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    slot: int
    size: int
    offset: int
    data: bytes
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., slot: _Optional[int] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Installed(_message.Message):
    __slots__ = ("ballot", "slot", "offset")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    slot: int
    offset: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., slot: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("ballot", "promised")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    promised: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., promised: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("ballot", "number")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class Probed(_message.Message):
    __slots__ = ("ballot", "number")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...
