from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Requests(_message.Message):
    __slots__ = ("hello", "seen", "requests")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    seen: int
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., seen: _Optional[int] = ..., requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ...) -> None: ...

class Responses(_message.Message):
    __slots__ = ("welcome", "newest", "responses")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    newest: int
    responses: _containers.RepeatedCompositeFieldContainer[Response]
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., newest: _Optional[int] = ..., responses: _Optional[_Iterable[_Union[Response, _Mapping]]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "release", "client", "timeout_ms", "database")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    release: str
    client: int
    timeout_ms: int
    database: bytes
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., client: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., database: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "release", "database", "refusal", "denied", "incarnation")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    release: str
    database: bytes
    refusal: str
    denied: str
    incarnation: int
    def __init__(self, protocol: _Optional[int] = ..., release: _Optional[str] = ..., database: _Optional[bytes] = ..., refusal: _Optional[str] = ..., denied: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("id", "get", "write", "multi_get", "begin", "commit", "end", "scan", "history", "at", "outcome", "watch", "pin", "unpin", "facts", "compact", "checkpoint", "layout", "frames", "aborted", "multi_scan", "upload", "cancel")
    ID_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    WRITE_FIELD_NUMBER: _ClassVar[int]
    MULTI_GET_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SCAN_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    UNPIN_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    COMPACT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    MULTI_SCAN_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    id: int
    get: Get
    write: Write
    multi_get: MultiGet
    begin: Begin
    commit: Commit
    end: End
    scan: Scan
    history: History
    at: At
    outcome: Outcome
    watch: Watch
    pin: Pin
    unpin: Unpin
    facts: Facts
    compact: Compact
    checkpoint: Checkpoint
    layout: Layout
    frames: Frames
    aborted: Aborted
    multi_scan: MultiScan
    upload: Upload
    cancel: Cancel
    def __init__(self, id: _Optional[int] = ..., get: _Optional[_Union[Get, _Mapping]] = ..., write: _Optional[_Union[Write, _Mapping]] = ..., multi_get: _Optional[_Union[MultiGet, _Mapping]] = ..., begin: _Optional[_Union[Begin, _Mapping]] = ..., commit: _Optional[_Union[Commit, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., scan: _Optional[_Union[Scan, _Mapping]] = ..., history: _Optional[_Union[History, _Mapping]] = ..., at: _Optional[_Union[At, _Mapping]] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ..., watch: _Optional[_Union[Watch, _Mapping]] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ..., unpin: _Optional[_Union[Unpin, _Mapping]] = ..., facts: _Optional[_Union[Facts, _Mapping]] = ..., compact: _Optional[_Union[Compact, _Mapping]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., layout: _Optional[_Union[Layout, _Mapping]] = ..., frames: _Optional[_Union[Frames, _Mapping]] = ..., aborted: _Optional[_Union[Aborted, _Mapping]] = ..., multi_scan: _Optional[_Union[MultiScan, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("number", "length", "offset", "data", "verb")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    VERB_FIELD_NUMBER: _ClassVar[int]
    number: int
    length: int
    offset: int
    data: bytes
    verb: str
    def __init__(self, number: _Optional[int] = ..., length: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., verb: _Optional[str] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: int
    def __init__(self, request: _Optional[int] = ...) -> None: ...

class Get(_message.Message):
    __slots__ = ("key", "at")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    at: int
    def __init__(self, key: _Optional[bytes] = ..., at: _Optional[int] = ...) -> None: ...

class MultiGet(_message.Message):
    __slots__ = ("keys", "at", "lease", "snapshot_of")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_OF_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    at: int
    lease: int
    snapshot_of: int
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., at: _Optional[int] = ..., lease: _Optional[int] = ..., snapshot_of: _Optional[int] = ...) -> None: ...

class Scan(_message.Message):
    __slots__ = ("start", "end", "at", "reverse", "limit", "lease", "resumes")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    at: int
    reverse: bool
    limit: int
    lease: int
    resumes: bool
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., at: _Optional[int] = ..., reverse: _Optional[bool] = ..., limit: _Optional[int] = ..., lease: _Optional[int] = ..., resumes: _Optional[bool] = ...) -> None: ...

class ScanRange(_message.Message):
    __slots__ = ("start", "end", "limit")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    limit: int
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., limit: _Optional[int] = ...) -> None: ...

class MultiScan(_message.Message):
    __slots__ = ("ranges", "at", "reverse", "lease", "snapshot_of", "resumes")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_OF_FIELD_NUMBER: _ClassVar[int]
    RESUMES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[ScanRange]
    at: int
    reverse: bool
    lease: int
    snapshot_of: int
    resumes: bool
    def __init__(self, ranges: _Optional[_Iterable[_Union[ScanRange, _Mapping]]] = ..., at: _Optional[int] = ..., reverse: _Optional[bool] = ..., lease: _Optional[int] = ..., snapshot_of: _Optional[int] = ..., resumes: _Optional[bool] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("key", "at", "lease")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    at: int
    lease: int
    def __init__(self, key: _Optional[bytes] = ..., at: _Optional[int] = ..., lease: _Optional[int] = ...) -> None: ...

class Writes(_message.Message):
    __slots__ = ("keys", "values", "deleted", "uploaded")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    deleted: _containers.RepeatedScalarFieldContainer[int]
    uploaded: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., deleted: _Optional[_Iterable[int]] = ..., uploaded: _Optional[_Iterable[int]] = ...) -> None: ...

class Write(_message.Message):
    __slots__ = ("sequence", "writes", "label", "conditions", "deletes", "appended", "folds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    CONDITIONS_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    FOLDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    writes: Writes
    label: str
    conditions: _containers.RepeatedCompositeFieldContainer[Condition]
    deletes: _containers.RepeatedCompositeFieldContainer[Range]
    appended: int
    folds: _containers.RepeatedCompositeFieldContainer[Fold]
    def __init__(self, sequence: _Optional[int] = ..., writes: _Optional[_Union[Writes, _Mapping]] = ..., label: _Optional[str] = ..., conditions: _Optional[_Iterable[_Union[Condition, _Mapping]]] = ..., deletes: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., appended: _Optional[int] = ..., folds: _Optional[_Iterable[_Union[Fold, _Mapping]]] = ...) -> None: ...

class Fold(_message.Message):
    __slots__ = ("operator", "key", "operand")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERAND_FIELD_NUMBER: _ClassVar[int]
    operator: int
    key: bytes
    operand: bytes
    def __init__(self, operator: _Optional[int] = ..., key: _Optional[bytes] = ..., operand: _Optional[bytes] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("operator", "key", "value", "version", "large")
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    operator: int
    key: bytes
    value: bytes
    version: int
    large: Large
    def __init__(self, operator: _Optional[int] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ..., large: _Optional[_Union[Large, _Mapping]] = ...) -> None: ...

class Large(_message.Message):
    __slots__ = ("length", "digest")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    length: int
    digest: bytes
    def __init__(self, length: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Begin(_message.Message):
    __slots__ = ("lease", "read_only", "at", "key")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    lease: int
    read_only: bool
    at: int
    key: bytes
    def __init__(self, lease: _Optional[int] = ..., read_only: _Optional[bool] = ..., at: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("sequence", "lease", "snapshot", "label", "reads", "ranges", "writes", "incarnation", "deletes", "appended", "folds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DELETES_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    FOLDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    lease: int
    snapshot: int
    label: str
    reads: _containers.RepeatedScalarFieldContainer[bytes]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    writes: Writes
    incarnation: int
    deletes: _containers.RepeatedCompositeFieldContainer[Range]
    appended: int
    folds: _containers.RepeatedCompositeFieldContainer[Fold]
    def __init__(self, sequence: _Optional[int] = ..., lease: _Optional[int] = ..., snapshot: _Optional[int] = ..., label: _Optional[str] = ..., reads: _Optional[_Iterable[bytes]] = ..., ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., writes: _Optional[_Union[Writes, _Mapping]] = ..., incarnation: _Optional[int] = ..., deletes: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., appended: _Optional[int] = ..., folds: _Optional[_Iterable[_Union[Fold, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: int
    def __init__(self, lease: _Optional[int] = ...) -> None: ...

class At(_message.Message):
    __slots__ = ("version", "time", "time_of")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TIME_OF_FIELD_NUMBER: _ClassVar[int]
    version: int
    time: int
    time_of: int
    def __init__(self, version: _Optional[int] = ..., time: _Optional[int] = ..., time_of: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("client", "sequence", "settle")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SETTLE_FIELD_NUMBER: _ClassVar[int]
    client: int
    sequence: int
    settle: bool
    def __init__(self, client: _Optional[int] = ..., sequence: _Optional[int] = ..., settle: _Optional[bool] = ...) -> None: ...

class Watch(_message.Message):
    __slots__ = ("since", "prefix", "has_keys", "keys", "wait_ms")
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    HAS_KEYS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    since: int
    prefix: bytes
    has_keys: bool
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    wait_ms: int
    def __init__(self, since: _Optional[int] = ..., prefix: _Optional[bytes] = ..., has_keys: _Optional[bool] = ..., keys: _Optional[_Iterable[bytes]] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("name", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Unpin(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class Facts(_message.Message):
    __slots__ = ("measures",)
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    measures: bool
    def __init__(self, measures: _Optional[bool] = ...) -> None: ...

class Compact(_message.Message):
    __slots__ = ("before",)
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    before: int
    def __init__(self, before: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Layout(_message.Message):
    __slots__ = ("version", "since")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    version: int
    since: int
    def __init__(self, version: _Optional[int] = ..., since: _Optional[int] = ...) -> None: ...

class Frames(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Aborted(_message.Message):
    __slots__ = ("first", "end")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    first: int
    end: int
    def __init__(self, first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Response(_message.Message):
    __slots__ = ("id", "version", "value", "wanted", "failure", "values", "rows", "entries", "undone", "ended", "changes", "facts", "compacted", "progress", "laid", "page", "not_applied", "multi_rows", "part")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    UNDONE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LAID_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_APPLIED_FIELD_NUMBER: _ClassVar[int]
    MULTI_ROWS_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    id: int
    version: int
    value: bytes
    wanted: bool
    failure: Failure
    values: Values
    rows: Rows
    entries: Entries
    undone: Undone
    ended: Ended
    changes: Changes
    facts: Known
    compacted: Compacted
    progress: int
    laid: Laid
    page: Page
    not_applied: NotApplied
    multi_rows: MultiRows
    part: Part
    def __init__(self, id: _Optional[int] = ..., version: _Optional[int] = ..., value: _Optional[bytes] = ..., wanted: _Optional[bool] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., values: _Optional[_Union[Values, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ..., entries: _Optional[_Union[Entries, _Mapping]] = ..., undone: _Optional[_Union[Undone, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., changes: _Optional[_Union[Changes, _Mapping]] = ..., facts: _Optional[_Union[Known, _Mapping]] = ..., compacted: _Optional[_Union[Compacted, _Mapping]] = ..., progress: _Optional[int] = ..., laid: _Optional[_Union[Laid, _Mapping]] = ..., page: _Optional[_Union[Page, _Mapping]] = ..., not_applied: _Optional[_Union[NotApplied, _Mapping]] = ..., multi_rows: _Optional[_Union[MultiRows, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("data", "more")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    more: bool
    def __init__(self, data: _Optional[bytes] = ..., more: _Optional[bool] = ...) -> None: ...

class Values(_message.Message):
    __slots__ = ("values", "missing")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    missing: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[bytes]] = ..., missing: _Optional[_Iterable[int]] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("keys", "values", "more", "rest")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    rest: bytes
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., values: _Optional[_Iterable[bytes]] = ..., more: _Optional[bool] = ..., rest: _Optional[bytes] = ...) -> None: ...

class MultiRows(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[Rows]
    def __init__(self, ranges: _Optional[_Iterable[_Union[Rows, _Mapping]]] = ...) -> None: ...

class Entries(_message.Message):
    __slots__ = ("versions", "values", "deleted", "more")
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    deleted: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    def __init__(self, versions: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[bytes]] = ..., deleted: _Optional[_Iterable[int]] = ..., more: _Optional[bool] = ...) -> None: ...

class Undone(_message.Message):
    __slots__ = ("failed",)
    FAILED_FIELD_NUMBER: _ClassVar[int]
    failed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, failed: _Optional[_Iterable[int]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...

class Changes(_message.Message):
    __slots__ = ("changes",)
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[Change]
    def __init__(self, changes: _Optional[_Iterable[_Union[Change, _Mapping]]] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("version", "time", "label", "writes", "deleted")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    version: int
    time: int
    label: str
    writes: Writes
    deleted: _containers.RepeatedCompositeFieldContainer[Range]
    def __init__(self, version: _Optional[int] = ..., time: _Optional[int] = ..., label: _Optional[str] = ..., writes: _Optional[_Union[Writes, _Mapping]] = ..., deleted: _Optional[_Iterable[_Union[Range, _Mapping]]] = ...) -> None: ...

class Known(_message.Message):
    __slots__ = ("oldest", "pins", "measures")
    class PinsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    MEASURES_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    pins: _containers.ScalarMap[str, int]
    measures: str
    def __init__(self, oldest: _Optional[int] = ..., pins: _Optional[_Mapping[str, int]] = ..., measures: _Optional[str] = ...) -> None: ...

class Compacted(_message.Message):
    __slots__ = ("floor", "relocated", "oldest_before", "oldest_after", "read_bytes", "written_bytes", "freed_bytes")
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    RELOCATED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AFTER_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREED_BYTES_FIELD_NUMBER: _ClassVar[int]
    floor: int
    relocated: int
    oldest_before: int
    oldest_after: int
    read_bytes: int
    written_bytes: int
    freed_bytes: int
    def __init__(self, floor: _Optional[int] = ..., relocated: _Optional[int] = ..., oldest_before: _Optional[int] = ..., oldest_after: _Optional[int] = ..., read_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., freed_bytes: _Optional[int] = ...) -> None: ...

class Laid(_message.Message):
    __slots__ = ("firsts", "sizes", "end", "sample")
    FIRSTS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    firsts: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    end: int
    sample: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, firsts: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., end: _Optional[int] = ..., sample: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("frames", "next")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    frames: bytes
    next: int
    def __init__(self, frames: _Optional[bytes] = ..., next: _Optional[int] = ...) -> None: ...

class NotApplied(_message.Message):
    __slots__ = ("gsns",)
    GSNS_FIELD_NUMBER: _ClassVar[int]
    gsns: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, gsns: _Optional[_Iterable[int]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Detail
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Detail, _Mapping]] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    details: _containers.MessageMap[str, Detail]
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[_Mapping[str, Detail]] = ...) -> None: ...

class Detail(_message.Message):
    __slots__ = ("number", "text", "raw", "flag")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RAW_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    number: int
    text: str
    raw: bytes
    flag: bool
    def __init__(self, number: _Optional[int] = ..., text: _Optional[str] = ..., raw: _Optional[bytes] = ..., flag: _Optional[bool] = ...) -> None: ...
