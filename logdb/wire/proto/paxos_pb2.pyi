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

class PreVote(_message.Message):
    __slots__ = ("ballot", "commit")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    commit: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., commit: _Optional[int] = ...) -> None: ...

class PreVoted(_message.Message):
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
    __slots__ = ("ballot", "matched", "again", "awaits_commit")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    AWAITS_COMMIT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    matched: int
    again: bool
    awaits_commit: bool
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., matched: _Optional[int] = ..., again: _Optional[bool] = ..., awaits_commit: _Optional[bool] = ...) -> None: ...

class Learn(_message.Message):
    __slots__ = ("ballot", "commit")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    commit: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., commit: _Optional[int] = ...) -> None: ...

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

class Rejected(_message.Message):
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

class ReadIndex(_message.Message):
    __slots__ = ("ballot", "number")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class ReadIndexed(_message.Message):
    __slots__ = ("ballot", "number", "slot")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    slot: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("accept", "accepted", "probe", "probed", "pre_vote", "pre_voted", "prepare", "promise", "install", "installed", "rejected", "read_index", "read_indexed", "learn")
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTED_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    PROMISE_FIELD_NUMBER: _ClassVar[int]
    INSTALL_FIELD_NUMBER: _ClassVar[int]
    INSTALLED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    READ_INDEX_FIELD_NUMBER: _ClassVar[int]
    READ_INDEXED_FIELD_NUMBER: _ClassVar[int]
    LEARN_FIELD_NUMBER: _ClassVar[int]
    accept: Accept
    accepted: Accepted
    probe: Probe
    probed: Probed
    pre_vote: PreVote
    pre_voted: PreVoted
    prepare: Prepare
    promise: Promise
    install: Install
    installed: Installed
    rejected: Rejected
    read_index: ReadIndex
    read_indexed: ReadIndexed
    learn: Learn
    def __init__(self, accept: _Optional[_Union[Accept, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., probed: _Optional[_Union[Probed, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ..., pre_voted: _Optional[_Union[PreVoted, _Mapping]] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., promise: _Optional[_Union[Promise, _Mapping]] = ..., install: _Optional[_Union[Install, _Mapping]] = ..., installed: _Optional[_Union[Installed, _Mapping]] = ..., rejected: _Optional[_Union[Rejected, _Mapping]] = ..., read_index: _Optional[_Union[ReadIndex, _Mapping]] = ..., read_indexed: _Optional[_Union[ReadIndexed, _Mapping]] = ..., learn: _Optional[_Union[Learn, _Mapping]] = ...) -> None: ...

class MemberEnvelope(_message.Message):
    __slots__ = ("cluster", "roster", "message")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    cluster: int
    roster: _containers.RepeatedScalarFieldContainer[int]
    message: Message
    def __init__(self, cluster: _Optional[int] = ..., roster: _Optional[_Iterable[int]] = ..., message: _Optional[_Union[Message, _Mapping]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("nonces", "cluster", "incarnation")
    NONCES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    nonces: _containers.RepeatedScalarFieldContainer[int]
    cluster: int
    incarnation: int
    def __init__(self, nonces: _Optional[_Iterable[int]] = ..., cluster: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("founders", "roster", "promised", "leads", "last")
    FOUNDERS_FIELD_NUMBER: _ClassVar[int]
    ROSTER_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    founders: _containers.RepeatedScalarFieldContainer[int]
    roster: _containers.RepeatedScalarFieldContainer[int]
    promised: Ballot
    leads: bool
    last: int
    def __init__(self, founders: _Optional[_Iterable[int]] = ..., roster: _Optional[_Iterable[int]] = ..., promised: _Optional[_Union[Ballot, _Mapping]] = ..., leads: _Optional[bool] = ..., last: _Optional[int] = ...) -> None: ...
