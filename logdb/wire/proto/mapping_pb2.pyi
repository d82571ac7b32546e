from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class VersionedValues(_message.Message):
    __slots__ = ("versions", "values", "kinds")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: bytes
    def __init__(self, versions: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[bytes] = ...) -> None: ...

class KeyedValues(_message.Message):
    __slots__ = ("keys", "values", "kinds")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: bytes
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[bytes] = ...) -> None: ...

class CopiedValues(_message.Message):
    __slots__ = ("keys", "numbers", "values", "kinds")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: bytes
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., numbers: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[bytes] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("key", "client", "transactions", "may_go_on")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    MAY_GO_ON_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    client: int
    transactions: int
    may_go_on: bool
    def __init__(self, key: _Optional[bytes] = ..., client: _Optional[int] = ..., transactions: _Optional[int] = ..., may_go_on: _Optional[bool] = ...) -> None: ...

class Scan(_message.Message):
    __slots__ = ("start", "end", "reverse", "rows")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    reverse: bool
    rows: int
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., reverse: _Optional[bool] = ..., rows: _Optional[int] = ...) -> None: ...

class MultiScan(_message.Message):
    __slots__ = ("scans",)
    SCANS_FIELD_NUMBER: _ClassVar[int]
    scans: _containers.RepeatedCompositeFieldContainer[Scan]
    def __init__(self, scans: _Optional[_Iterable[_Union[Scan, _Mapping]]] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("key", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    rows: int
    def __init__(self, key: _Optional[bytes] = ..., rows: _Optional[int] = ...) -> None: ...

class AtTime(_message.Message):
    __slots__ = ("time",)
    TIME_FIELD_NUMBER: _ClassVar[int]
    time: int
    def __init__(self, time: _Optional[int] = ...) -> None: ...

class Version(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Oldest(_message.Message):
    __slots__ = ("in_cold_tier",)
    IN_COLD_TIER_FIELD_NUMBER: _ClassVar[int]
    in_cold_tier: bool
    def __init__(self, in_cold_tier: _Optional[bool] = ...) -> None: ...

class Pins(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Measure(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AskOutcome(_message.Message):
    __slots__ = ("client", "sequence")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Aborted(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class ColdCommits(_message.Message):
    __slots__ = ("after",)
    AFTER_FIELD_NUMBER: _ClassVar[int]
    after: int
    def __init__(self, after: _Optional[int] = ...) -> None: ...

class ColdValue(_message.Message):
    __slots__ = ("segment", "digest", "offset")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    segment: int
    digest: bytes
    offset: int
    def __init__(self, segment: _Optional[int] = ..., digest: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("get", "scan", "history", "at_time", "version", "pins", "outcome", "aborted", "oldest", "multi_scan", "turn", "measure", "cold_commits", "cold_value")
    GET_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    AT_TIME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    MULTI_SCAN_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    COLD_COMMITS_FIELD_NUMBER: _ClassVar[int]
    COLD_VALUE_FIELD_NUMBER: _ClassVar[int]
    get: Get
    scan: Scan
    history: History
    at_time: AtTime
    version: Version
    pins: Pins
    outcome: AskOutcome
    aborted: Aborted
    oldest: Oldest
    multi_scan: MultiScan
    turn: Turn
    measure: Measure
    cold_commits: ColdCommits
    cold_value: ColdValue
    def __init__(self, get: _Optional[_Union[Get, _Mapping]] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., history: _Optional[_Union[History, _Mapping]] = ..., at_time: _Optional[_Union[AtTime, _Mapping]] = ..., version: _Optional[_Union[Version, _Mapping]] = ..., pins: _Optional[_Union[Pins, _Mapping]] = ..., outcome: _Optional[_Union[AskOutcome, _Mapping]] = ..., aborted: _Optional[_Union[Aborted, _Mapping]] = ..., oldest: _Optional[_Union[Oldest, _Mapping]] = ..., multi_scan: _Optional[_Union[MultiScan, _Mapping]] = ..., turn: _Optional[_Union[Turn, _Mapping]] = ..., measure: _Optional[_Union[Measure, _Mapping]] = ..., cold_commits: _Optional[_Union[ColdCommits, _Mapping]] = ..., cold_value: _Optional[_Union[ColdValue, _Mapping]] = ...) -> None: ...

class Read(_message.Message):
    __slots__ = ("number", "consistency", "version", "question", "applied")
    class Consistency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Read.Consistency]
        LINEARIZABLE: _ClassVar[Read.Consistency]
        SESSION: _ClassVar[Read.Consistency]
        SNAPSHOT: _ClassVar[Read.Consistency]
    UNSPECIFIED: Read.Consistency
    LINEARIZABLE: Read.Consistency
    SESSION: Read.Consistency
    SNAPSHOT: Read.Consistency
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    number: int
    consistency: Read.Consistency
    version: int
    question: Question
    applied: int
    def __init__(self, number: _Optional[int] = ..., consistency: _Optional[_Union[Read.Consistency, str]] = ..., version: _Optional[int] = ..., question: _Optional[_Union[Question, _Mapping]] = ..., applied: _Optional[int] = ...) -> None: ...

class Reads(_message.Message):
    __slots__ = ("reads",)
    READS_FIELD_NUMBER: _ClassVar[int]
    reads: _containers.RepeatedCompositeFieldContainer[Read]
    def __init__(self, reads: _Optional[_Iterable[_Union[Read, _Mapping]]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: VersionedValues
    def __init__(self, entries: _Optional[_Union[VersionedValues, _Mapping]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("rows", "rest")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    rows: KeyedValues
    rest: bytes
    def __init__(self, rows: _Optional[_Union[KeyedValues, _Mapping]] = ..., rest: _Optional[bytes] = ...) -> None: ...

class MultiRows(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[Rows]
    def __init__(self, ranges: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ...) -> None: ...

class Versions(_message.Message):
    __slots__ = ("versions", "more")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    versions: VersionedValues
    more: bool
    def __init__(self, versions: _Optional[_Union[VersionedValues, _Mapping]] = ..., more: _Optional[bool] = ...) -> None: ...

class VersionReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Pin(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Pinned(_message.Message):
    __slots__ = ("pins",)
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[Pin]
    def __init__(self, pins: _Optional[_Iterable[_Union[Pin, _Mapping]]] = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("numbers",)
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    numbers: str
    def __init__(self, numbers: _Optional[str] = ...) -> None: ...

class NotApplied(_message.Message):
    __slots__ = ("gsns",)
    GSNS_FIELD_NUMBER: _ClassVar[int]
    gsns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, gsns: _Optional[_Iterable[int]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("status", "version")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Outcome.Status]
        COMMITTED: _ClassVar[Outcome.Status]
        ABORTED: _ClassVar[Outcome.Status]
        NOT_FOUND: _ClassVar[Outcome.Status]
        FORGOTTEN: _ClassVar[Outcome.Status]
    UNSPECIFIED: Outcome.Status
    COMMITTED: Outcome.Status
    ABORTED: Outcome.Status
    NOT_FOUND: Outcome.Status
    FORGOTTEN: Outcome.Status
    STATUS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    status: Outcome.Status
    version: int
    def __init__(self, status: _Optional[_Union[Outcome.Status, str]] = ..., version: _Optional[int] = ...) -> None: ...

class Floor(_message.Message):
    __slots__ = ("version", "cleaned", "began", "ended")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLEANED_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    version: int
    cleaned: int
    began: int
    ended: int
    def __init__(self, version: _Optional[int] = ..., cleaned: _Optional[int] = ..., began: _Optional[int] = ..., ended: _Optional[int] = ...) -> None: ...

class VersionTrimmedReply(_message.Message):
    __slots__ = ("oldest",)
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    def __init__(self, oldest: _Optional[int] = ...) -> None: ...

class FutureVersionReply(_message.Message):
    __slots__ = ("newest",)
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    newest: int
    def __init__(self, newest: _Optional[int] = ...) -> None: ...

class ColdCommit(_message.Message):
    __slots__ = ("version", "time", "record", "place")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    version: int
    time: int
    record: bytes
    place: bytes
    def __init__(self, version: _Optional[int] = ..., time: _Optional[int] = ..., record: _Optional[bytes] = ..., place: _Optional[bytes] = ...) -> None: ...

class CommitPage(_message.Message):
    __slots__ = ("commits", "end", "more")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[ColdCommit]
    end: int
    more: bool
    def __init__(self, commits: _Optional[_Iterable[_Union[ColdCommit, _Mapping]]] = ..., end: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class ValuePart(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class NotReadable(_message.Message):
    __slots__ = ("damaged", "why")
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    damaged: str
    why: str
    def __init__(self, damaged: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("entries", "rows", "versions", "version_reply", "pinned", "not_applied", "outcome", "version_trimmed_reply", "future_version_reply", "floor", "multi_rows", "measured", "commit_page", "value_part", "not_readable")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_REPLY_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    NOT_APPLIED_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    VERSION_TRIMMED_REPLY_FIELD_NUMBER: _ClassVar[int]
    FUTURE_VERSION_REPLY_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    MULTI_ROWS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_PAGE_FIELD_NUMBER: _ClassVar[int]
    VALUE_PART_FIELD_NUMBER: _ClassVar[int]
    NOT_READABLE_FIELD_NUMBER: _ClassVar[int]
    entries: Entries
    rows: Rows
    versions: Versions
    version_reply: VersionReply
    pinned: Pinned
    not_applied: NotApplied
    outcome: Outcome
    version_trimmed_reply: VersionTrimmedReply
    future_version_reply: FutureVersionReply
    floor: Floor
    multi_rows: MultiRows
    measured: Measured
    commit_page: CommitPage
    value_part: ValuePart
    not_readable: NotReadable
    def __init__(self, entries: _Optional[_Union[Entries, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., versions: _Optional[_Union[Versions, _Mapping]] = ..., version_reply: _Optional[_Union[VersionReply, _Mapping]] = ..., pinned: _Optional[_Union[Pinned, _Mapping]] = ..., not_applied: _Optional[_Union[NotApplied, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., version_trimmed_reply: _Optional[_Union[VersionTrimmedReply, _Mapping]] = ..., future_version_reply: _Optional[_Union[FutureVersionReply, _Mapping]] = ..., floor: _Optional[_Union[Floor, _Mapping]] = ..., multi_rows: _Optional[_Union[MultiRows, _Mapping]] = ..., measured: _Optional[_Union[Measured, _Mapping]] = ..., commit_page: _Optional[_Union[CommitPage, _Mapping]] = ..., value_part: _Optional[_Union[ValuePart, _Mapping]] = ..., not_readable: _Optional[_Union[NotReadable, _Mapping]] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("number", "version", "result")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    number: int
    version: int
    result: Result
    def __init__(self, number: _Optional[int] = ..., version: _Optional[int] = ..., result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("answers",)
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[Answered]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answered, _Mapping]]] = ...) -> None: ...

class Busy(_message.Message):
    __slots__ = ("numbers",)
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class Recalling(_message.Message):
    __slots__ = ("numbers",)
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class AwaitedTransaction(_message.Message):
    __slots__ = ("client", "sequence", "gsn")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GSN_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    gsn: int
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., gsn: _Optional[int] = ...) -> None: ...

class AwaitVerdicts(_message.Message):
    __slots__ = ("waits",)
    WAITS_FIELD_NUMBER: _ClassVar[int]
    waits: _containers.RepeatedCompositeFieldContainer[AwaitedTransaction]
    def __init__(self, waits: _Optional[_Iterable[_Union[AwaitedTransaction, _Mapping]]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("reason", "key", "version", "in_range", "failed", "first")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Verdict.Reason]
        COMMITTED: _ClassVar[Verdict.Reason]
        CONFLICT: _ClassVar[Verdict.Reason]
        CONDITION: _ClassVar[Verdict.Reason]
        DUPLICATE: _ClassVar[Verdict.Reason]
        TOO_OLD: _ClassVar[Verdict.Reason]
        DANGLING: _ClassVar[Verdict.Reason]
        NOT_A_NUMBER: _ClassVar[Verdict.Reason]
    UNSPECIFIED: Verdict.Reason
    COMMITTED: Verdict.Reason
    CONFLICT: Verdict.Reason
    CONDITION: Verdict.Reason
    DUPLICATE: Verdict.Reason
    TOO_OLD: Verdict.Reason
    DANGLING: Verdict.Reason
    NOT_A_NUMBER: Verdict.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IN_RANGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    reason: Verdict.Reason
    key: bytes
    version: int
    in_range: bool
    failed: _containers.RepeatedScalarFieldContainer[int]
    first: int
    def __init__(self, reason: _Optional[_Union[Verdict.Reason, str]] = ..., key: _Optional[bytes] = ..., version: _Optional[int] = ..., in_range: _Optional[bool] = ..., failed: _Optional[_Iterable[int]] = ..., first: _Optional[int] = ...) -> None: ...

class Decided(_message.Message):
    __slots__ = ("client", "sequence", "version", "verdict", "winner", "is_contended")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WINNER_FIELD_NUMBER: _ClassVar[int]
    IS_CONTENDED_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    version: int
    verdict: Verdict
    winner: str
    is_contended: bool
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., version: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ..., winner: _Optional[str] = ..., is_contended: _Optional[bool] = ...) -> None: ...

class EndTurn(_message.Message):
    __slots__ = ("key", "client", "transactions")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    client: int
    transactions: int
    def __init__(self, key: _Optional[bytes] = ..., client: _Optional[int] = ..., transactions: _Optional[int] = ...) -> None: ...

class Verdicts(_message.Message):
    __slots__ = ("verdicts",)
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[Decided]
    def __init__(self, verdicts: _Optional[_Iterable[_Union[Decided, _Mapping]]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Compact(_message.Message):
    __slots__ = ("request", "before")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    request: int
    before: int
    def __init__(self, request: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class Compacting(_message.Message):
    __slots__ = ("request", "copied")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    request: int
    copied: int
    def __init__(self, request: _Optional[int] = ..., copied: _Optional[int] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("request", "floor", "copied", "oldest_before", "oldest_after", "why", "read_bytes", "written_bytes", "freed_bytes")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    COPIED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AFTER_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    request: int
    floor: int
    copied: int
    oldest_before: int
    oldest_after: int
    why: str
    read_bytes: int
    written_bytes: int
    freed_bytes: int
    def __init__(self, request: _Optional[int] = ..., floor: _Optional[int] = ..., copied: _Optional[int] = ..., oldest_before: _Optional[int] = ..., oldest_after: _Optional[int] = ..., why: _Optional[str] = ..., read_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., freed_bytes: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("section", "after", "below")
    class Section(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[Cursor.Section]
        HEAD: _ClassVar[Cursor.Section]
        MAP: _ClassVar[Cursor.Section]
        LEDGER: _ClassVar[Cursor.Section]
        RECENT: _ClassVar[Cursor.Section]
    UNSPECIFIED: Cursor.Section
    HEAD: Cursor.Section
    MAP: Cursor.Section
    LEDGER: Cursor.Section
    RECENT: Cursor.Section
    SECTION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BELOW_FIELD_NUMBER: _ClassVar[int]
    section: Cursor.Section
    after: bytes
    below: int
    def __init__(self, section: _Optional[_Union[Cursor.Section, str]] = ..., after: _Optional[bytes] = ..., below: _Optional[int] = ...) -> None: ...

class SliceRequest(_message.Message):
    __slots__ = ("request", "version", "cursor")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    request: int
    version: int
    cursor: Cursor
    def __init__(self, request: _Optional[int] = ..., version: _Optional[int] = ..., cursor: _Optional[_Union[Cursor, _Mapping]] = ...) -> None: ...

class HeadRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, rows: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MapRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: CopiedValues
    def __init__(self, rows: _Optional[_Union[CopiedValues, _Mapping]] = ...) -> None: ...

class LedgerRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, rows: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RecentRow(_message.Message):
    __slots__ = ("gsn", "label", "verdict")
    GSN_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    gsn: int
    label: str
    verdict: Verdict
    def __init__(self, gsn: _Optional[int] = ..., label: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, _Mapping]] = ...) -> None: ...

class RecentRows(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[RecentRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[RecentRow, _Mapping]]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("head_rows", "map_rows", "ledger_rows", "recent_rows")
    HEAD_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAP_ROWS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ROWS_FIELD_NUMBER: _ClassVar[int]
    RECENT_ROWS_FIELD_NUMBER: _ClassVar[int]
    head_rows: HeadRows
    map_rows: MapRows
    ledger_rows: LedgerRows
    recent_rows: RecentRows
    def __init__(self, head_rows: _Optional[_Union[HeadRows, _Mapping]] = ..., map_rows: _Optional[_Union[MapRows, _Mapping]] = ..., ledger_rows: _Optional[_Union[LedgerRows, _Mapping]] = ..., recent_rows: _Optional[_Union[RecentRows, _Mapping]] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("request", "version", "floor", "part", "next")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    request: int
    version: int
    floor: int
    part: Part
    next: Cursor
    def __init__(self, request: _Optional[int] = ..., version: _Optional[int] = ..., floor: _Optional[int] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., next: _Optional[_Union[Cursor, _Mapping]] = ...) -> None: ...

class SliceUnavailable(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class Compare(_message.Message):
    __slots__ = ("request", "floor", "after", "version", "start", "end", "digest")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    floor: int
    after: int
    version: int
    start: bytes
    end: bytes
    digest: bytes
    def __init__(self, request: _Optional[int] = ..., floor: _Optional[int] = ..., after: _Optional[int] = ..., version: _Optional[int] = ..., start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Compared(_message.Message):
    __slots__ = ("request", "is_same")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    IS_SAME_FIELD_NUMBER: _ClassVar[int]
    request: int
    is_same: bool
    def __init__(self, request: _Optional[int] = ..., is_same: _Optional[bool] = ...) -> None: ...
