"""The messages between clients and mapping servers, and the guarantees of each (PROTOCOL.md).

All are immutable, and every frequent one is a batch. A client numbers its reads from a random start, so that an answer
to an earlier client at its address matches no read.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from logdb.cores.effects import MILLISECOND
from logdb.store.records import Value
from logdb.txn import coordinator
from logdb.txn.validation import Verdict


class Consistency(IntEnum):
    """The guarantee of a read. `Read.version` is the session version, or for SNAPSHOT the version to read."""

    LINEARIZABLE = 0
    """The read sees every commit that was acknowledged, to any client, before the server received the read."""
    SESSION = 1
    """The read sees every version that this client has seen."""
    SNAPSHOT = 2
    """The read sees exactly the log up to its version."""


COLD_SHARD: Final = (1 << 32) - 1
"""The shard of a Place in the cold tier. Its GSN is the number of the segment."""

# ---- questions


class Get(NamedTuple):
    """The newest version of each key. -> Entries."""

    keys: tuple[bytes, ...]


TURN_NS: Final = 50 * MILLISECOND
"""Longest turn while others wait; transactions that take longer continue without one."""


class Turn(NamedTuple):
    """The newest version of a contended key, when it is the turn of `client`, the number of the client, for this number
    of transactions. Never with SNAPSHOT. -> Entries, which are empty at version 0 if the last turn of this client goes
    on: if no other client waits, and the transactions `may_go_on` without the value.
    """

    key: bytes
    client: int
    transactions: int
    may_go_on: bool = True


class Scan(NamedTuple):
    """The existing keys of [start, end), in order, about `rows` of them at most. -> Rows."""

    start: bytes | None
    end: bytes | None
    reverse: bool
    rows: int


MAX_RANGES: Final = 500
"""Maximum number of ranges of a multi-scan in one answer."""


class MultiScan(NamedTuple):
    """Several ranges of one version. -> MultiRows."""

    scans: tuple[Scan, ...]


class History(NamedTuple):
    """The versions of a key, newest first, back to the one live at the floor, about `rows` at most. -> Versions."""

    key: bytes
    rows: int


class AtTime(NamedTuple):
    """The newest version not younger than `time` (ns since the epoch); always linearizable. -> VersionReply;
    FutureVersionReply if the server's clock has not reached that time."""

    time: int


class Version(NamedTuple):
    """The version that a read of this consistency sees. -> VersionReply."""


class Oldest(NamedTuple):
    """The oldest version that servers can read. `in_cold_tier`: that the cold tier has, if there is one. -> Floor."""

    in_cold_tier: bool = False


class Pins(NamedTuple):
    """All pins. -> Pinned."""


class Measure(NamedTuple):
    """Numbers about the server, for its operators. -> Measured."""


class Outcome(NamedTuple):
    """How a transaction ended; always linearizable. -> coordinator.Outcome."""

    client: int
    sequence: int


class Aborted(NamedTuple):
    """Which commit records with `after` < GSN <= the version were not applied. -> NotApplied; VersionTrimmedReply if
    `after` is before the floor. For followers of the log, which have no map."""

    after: int


class ColdCommits(NamedTuple):
    """The commits of the cold tier after version `after`; never with SNAPSHOT. -> CommitPage; VersionTrimmedReply if
    the tier begins later, or there is none. For followers of a log that was trimmed."""

    after: int


class ColdValue(NamedTuple):
    """A large value of the cold tier from byte `offset` on, by its Place. -> ValuePart."""

    segment: int
    digest: bytes
    offset: int


Question = (
    Get
    | Turn
    | Scan
    | MultiScan
    | History
    | AtTime
    | Version
    | Pins
    | Outcome
    | Aborted
    | Oldest
    | Measure
    | ColdCommits
    | ColdValue
)


class Read(NamedTuple):
    """A question, and the version at which to answer it. `number` identifies it for the client.

    `applied`: for a snapshot, the server must have applied this version too. A client that has found a large value
    trimmed sets it to the tail of the log, so that the answer has the place of the copy.
    """

    number: int
    consistency: Consistency
    version: int
    question: Question
    applied: int = 0


class Reads(NamedTuple):
    """Client to server. A server drops a read that it cannot answer for a long time: the client sends it again."""

    reads: tuple[Read, ...]


# ---- answers to reads


class Entries(NamedTuple):
    """(version, value) of each key, in the order of the question: (0, None) for a key that never existed."""

    entries: tuple[tuple[int, Value], ...]


class Rows(NamedTuple):
    """(key, value) in the order of the question. `rest`: the bound of the rest of the range, its start, or its end when
    `reverse`; None: there is none. There may be no rows before it."""

    rows: tuple[tuple[bytes, Value], ...]
    rest: bytes | None


class MultiRows(NamedTuple):
    """The rows of the first ranges of the question: of at least one, if it has any."""

    ranges: tuple[Rows, ...]


class Versions(NamedTuple):
    """(version, value) newest first. `more`: there are older ones."""

    versions: tuple[tuple[int, Value], ...]
    more: bool


class VersionReply(NamedTuple):
    """The version of the answer is the result."""


class Pin(NamedTuple):
    """A version that is kept under a name."""

    name: str
    version: int


class Pinned(NamedTuple):
    """All pins, by name."""

    pins: tuple[Pin, ...]


class Measured(NamedTuple):
    """Numbers by name, as `encode_measures` makes them: new ones need no new message."""

    numbers: str


class NotApplied(NamedTuple):
    """GSNs of commit records, in order."""

    gsns: tuple[int, ...]


class Floor(NamedTuple):
    """The oldest version that can be read, and the last compaction that ended: the PART records between its BEGINNING
    `began` and its ENDING `ended` replace the log before `cleaned`; zeros if there was none. While the next compaction
    is under way `cleaned` is less than `version`."""

    version: int
    cleaned: int
    began: int
    ended: int


class VersionTrimmedReply(NamedTuple):
    """The version was compacted away; `oldest` is the oldest one left."""

    oldest: int


class ColdCommit(NamedTuple):
    """A commit of the cold tier: its version, its time (ns since the epoch) and its record, without folds. Without a
    record that is too large for a page: then `place` is where it is, as `PLACE` packs it."""

    version: int
    time: int
    record: bytes
    place: bytes = b""


class CommitPage(NamedTuple):
    """All commits after the requested version and before version `end`. `more`: the tier has version `end`."""

    commits: tuple[ColdCommit, ...]
    end: int
    more: bool


class ValuePart(NamedTuple):
    """The next bytes of a value."""

    data: bytes


class NotReadable(NamedTuple):
    """An old version cannot be read. `damaged`: the file of the cold tier that is damaged or missing, "" if the store
    failed. `why`: for people."""

    damaged: str
    why: str


class FutureVersionReply(NamedTuple):
    """The version is greater than the tail of the log, `newest`, requested after the read was received."""

    newest: int


Result = (
    Entries
    | Rows
    | MultiRows
    | Versions
    | VersionReply
    | Pinned
    | Measured
    | NotApplied
    | coordinator.Outcome
    | Floor
    | VersionTrimmedReply
    | FutureVersionReply
    | CommitPage
    | ValuePart
    | NotReadable
)


class Answered(NamedTuple):
    """The answer to the read `number`, as of `version` (0 with VersionTrimmedReply, FutureVersionReply, NotReadable).

    If a value is a `Place` the client reads it from the log; if its shard is COLD_SHARD, from segment `gsn` of the cold
    tier, with ColdValue.
    """

    number: int
    version: int
    result: Result


class Answers(NamedTuple):
    """Server to client."""

    answers: tuple[Answered, ...]


class Busy(NamedTuple):
    """Server to client: it rejects these reads, because it has no state yet or has very many reads of this client. The
    client sends them to another server, or later."""

    numbers: tuple[int, ...]


class Recalling(NamedTuple):
    """Server to client: these reads will be answered from the cold tier, which may take long. The client sends them to
    the same server again while it does not answer."""

    numbers: tuple[int, ...]


# ---- verdicts


class AwaitedTransaction(NamedTuple):
    """A transaction whose verdict is requested. `gsn`: of a commit record of it, 0 if unknown."""

    client: int
    sequence: int
    gsn: int


class AwaitVerdicts(NamedTuple):
    """Client to server: push the verdicts of these transactions when they are decided. The client may repeat it, also
    to other servers; a server drops it after a long time."""

    waits: tuple[AwaitedTransaction, ...]


class Decided(NamedTuple):
    """The verdict of a transaction: that of its first commit record, at `version` (DBS-6).

    `winner`: the label of the transaction that it conflicted with. An old verdict may be CONFLICT without a key.
    DUPLICATE at version 0: its record, if it had one, was compacted away. `is_contended`: another client has just been
    refused, or has committed, because of a key that this transaction writes; advice, and part of no state.
    """

    client: int
    sequence: int
    version: int
    verdict: Verdict
    winner: str
    is_contended: bool = False


class EndTurn(NamedTuple):
    """Client to server: this number of the transactions of its turn at a key end without a commit record. If it is
    lost the turn ends by itself."""

    key: bytes
    client: int
    transactions: int


class Verdicts(NamedTuple):
    """Server to client. Sent once for each AwaitVerdicts: if it is lost the client sends that again."""

    verdicts: tuple[Decided, ...]


# ---- compaction


class Hold(NamedTuple):
    """Client or new server to all servers: begins or renews a lease on `version` and later ones, so that no compaction
    removes them; None ends it. The lease expires without renewals."""

    version: int | None


class Compact(NamedTuple):
    """Client to server: drop the versions that only reads before `before` can see, and report the result. The client
    repeats it until the result comes, also to another server, which then takes the compaction over."""

    request: int
    before: int


class Compacting(NamedTuple):
    """Server to client: the compaction is under way. `copied`: the number of versions copied so far."""

    request: int
    copied: int


class Compacted(NamedTuple):
    """Server to client: the oldest version left, the number of versions copied, the oldest record of the log before and
    after, and the bytes read, appended and freed. `why`: the reason of a failure, "" for success."""

    request: int
    floor: int
    copied: int
    oldest_before: int
    oldest_after: int
    why: str
    read_bytes: int
    written_bytes: int
    freed_bytes: int


# ---- checkpoints from server to server


class Section(IntEnum):
    """The parts of a checkpoint, in this order."""

    HEAD = 0
    MAP = 1
    LEDGER = 2
    RECENT = 3


class HeadRows(NamedTuple):
    """All rows of `Replica.head`."""

    rows: tuple[tuple[bytes, bytes], ...]


class MapRow(NamedTuple):
    """A version of a key. `copy`: the GSN of a record with a copy of it, 0 if none."""

    key: bytes
    version: int
    value: Value
    copy: int


class MapRows(NamedTuple):
    """Versions by key, newest first."""

    rows: tuple[MapRow, ...]


class LedgerRows(NamedTuple):
    """Rows of `Ledger.rows`."""

    rows: tuple[tuple[bytes, bytes], ...]


class RecentRow(NamedTuple):
    """A recent commit record: its label if it was applied, else the label of the winner and the verdict."""

    gsn: int
    label: str
    verdict: Verdict | None


class RecentRows(NamedTuple):
    """Rows by GSN."""

    rows: tuple[RecentRow, ...]


Part = HeadRows | MapRows | LedgerRows | RecentRows


class Cursor(NamedTuple):
    """The position in a checkpoint: after the row `after` of the section. For MAP, after version `below` of the key
    `after`, or from that key on if `below` is 0."""

    section: Section
    after: bytes
    below: int = 0


class SliceRequest(NamedTuple):
    """Server to server: requests a slice of the checkpoint at `version` from `cursor` on; None: the first slice.

    The state at a version does not change, so any server that has applied it can continue what another one began.
    """

    request: int
    version: int
    cursor: Cursor | None


class Slice(NamedTuple):
    """Rows of one section, of a server with the floor `floor`. `next`: the cursor of the next one, None at the end."""

    request: int
    version: int
    floor: int
    part: Part
    next: Cursor | None


class SliceUnavailable(NamedTuple):
    """The server has not applied that version, or has no state yet: another one may have it."""

    request: int


# ---- comparing servers


class Compare(NamedTuple):
    """Server to server: a digest of a part of the sender's state at `version`, with the floor `floor`: its decisions on
    the commit records with `after` < GSN <= `version`, and the keys of its map in [start, end) (`Replica.excerpt`).
    """

    request: int
    floor: int
    after: int
    version: int
    start: bytes
    end: bytes
    digest: bytes


class Compared(NamedTuple):
    """Server to server: whether its state is the same. A server with another floor, or that has not applied the
    version, does not reply."""

    request: int
    is_same: bool


Message = (
    Reads
    | Answers
    | Busy
    | AwaitVerdicts
    | Verdicts
    | EndTurn
    | Hold
    | Compact
    | Compacting
    | Compacted
    | SliceRequest
    | Slice
    | SliceUnavailable
    | Compare
    | Compared
)
