"""What clients of the database and mapping servers say to each other, and what each message promises (PROTOCOL.md).

All are immutable and every one that is frequent is a batch. Numbers of reads are the client's own, drawn so that an
answer to an earlier client at its address answers nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from logdb.store.records import Value
from logdb.txn import coordinator
from logdb.txn.validation import Verdict


class Consistency(IntEnum):
    """What a read promises. `Read.version` is, in this order, the session's version, the same, and the one to read."""

    LINEARIZABLE = 0
    """It sees every commit that had been answered, to anybody, when the server was asked."""
    SESSION = 1
    """It sees everything that this client has seen."""
    SNAPSHOT = 2
    """It sees the log up to that version: no more and no less."""


# ---- what is read


class Get(NamedTuple):
    """The newest version of each key. -> Entries."""

    keys: tuple[bytes, ...]


class Scan(NamedTuple):
    """Keys of [start, end) that exist, in order, about as many rows as asked for at most. -> Rows."""

    start: bytes | None
    end: bytes | None
    reverse: bool
    rows: int


MAX_RANGES: Final = 500
"""Of a multi-scan, in one answer."""


class MultiScan(NamedTuple):
    """Several ranges of one version. -> MultiRows."""

    scans: tuple[Scan, ...]


class History(NamedTuple):
    """The versions of a key, newest first, back to what is live at the floor, about so many at most. -> Versions."""

    key: bytes
    rows: int


class AtTime(NamedTuple):
    """The newest version not younger than `time` (ns since the epoch); always linearizable. -> Itself; Beyond
    when the server's clock has not got there."""

    time: int


class Version(NamedTuple):
    """The version that such a read would see. -> Itself."""


class Oldest(NamedTuple):
    """The oldest version that can be read, as such a read would see it. -> Floor."""


class Pins(NamedTuple):
    """-> Pinned."""


class Outcome(NamedTuple):
    """How a transaction ended; always linearizable. -> coordinator.Outcome."""

    client: int
    sequence: int


class Aborted(NamedTuple):
    """Which commit records with `after` < GSN <= the version were not applied. -> NotApplied; Below if `after` is
    before the floor. With it a follower of the log needs no map."""

    after: int


Question = Get | Scan | MultiScan | History | AtTime | Version | Pins | Outcome | Aborted | Oldest


class Read(NamedTuple):
    """A question and at which version it is to be answered. `number` identifies it for the client.

    `applied`: of a snapshot, how far a server must have got in the log to answer it, if that is further. A client that
    has found a large value trimmed names the tail of the log, so that it is given the place of the copy.
    """

    number: int
    consistency: Consistency
    version: int
    question: Question
    applied: int = 0


class Reads(NamedTuple):
    """Client to server. A server that cannot answer one for a long time forgets it: the client asks again."""

    reads: tuple[Read, ...]


# ---- answers to reads


class Entries(NamedTuple):
    """(version, value) of each key, in the order asked for: (0, None) for one that never existed."""

    entries: tuple[tuple[int, Value], ...]


class Rows(NamedTuple):
    """(key, value) in the order asked for. `more`: there may be others behind the last one."""

    rows: tuple[tuple[bytes, Value], ...]
    more: bool


class MultiRows(NamedTuple):
    """The rows of the first of the ranges asked for: of one at least, if there are any."""

    ranges: tuple[Rows, ...]


class Versions(NamedTuple):
    """(version, value) newest first. `more`: there are older ones."""

    versions: tuple[tuple[int, Value], ...]
    more: bool


class VersionReply(NamedTuple):
    """The answer's version is what was asked for."""


class Pin(NamedTuple):
    """A version that is kept under a name."""

    name: str
    version: int


class Pinned(NamedTuple):
    """All pins, by name."""

    pins: tuple[Pin, ...]


class NotApplied(NamedTuple):
    """GSNs of commit records, in order."""

    gsns: tuple[int, ...]


class Floor(NamedTuple):
    """The oldest version that can be read, and where it is written down: the PART records between `began` and `ended`,
    the BEGINNING and the ENDING of the last compaction that was finished, say what stood before `cleaned`; zeros if
    there was none. While the next one is under way `cleaned` is less than the version."""

    version: int
    cleaned: int
    began: int
    ended: int


class VersionTrimmedReply(NamedTuple):
    """The version was compacted away; `oldest` is the oldest one left."""

    oldest: int


class FutureVersionReply(NamedTuple):
    """The version lies behind the tail of the log, `newest`, which was asked for after the read had come."""

    newest: int


Result = (
    Entries
    | Rows
    | MultiRows
    | Versions
    | VersionReply
    | Pinned
    | NotApplied
    | coordinator.Outcome
    | Floor
    | VersionTrimmedReply
    | FutureVersionReply
)


class Answered(NamedTuple):
    """The answer to the read `number`, as of `version` (0 with Below and Beyond).

    A value that is a `Place` the client reads from the log itself.
    """

    number: int
    version: int
    result: Result


class Answers(NamedTuple):
    """Server to client."""

    answers: tuple[Answered, ...]


class Busy(NamedTuple):
    """Server to client: it still has to get a checkpoint, or has very many reads of this client; these reads are better
    asked elsewhere, or later."""

    numbers: tuple[int, ...]


# ---- verdicts


class AwaitedTransaction(NamedTuple):
    """A transaction whose verdict is wanted. `gsn`: where a commit record of it stands in the log, 0: not known."""

    client: int
    sequence: int
    gsn: int


class AwaitVerdicts(NamedTuple):
    """Client to server: push the verdicts of these transactions as soon as there are any. May be said again, and to
    other servers; a server forgets it after a long time."""

    waits: tuple[AwaitedTransaction, ...]


class Decided(NamedTuple):
    """The verdict of a transaction: that of its first commit record, which stands at `version` (DBS-6).

    `winner`: the label of the transaction that it conflicted with. Of long ago the verdict may say CONFLICT and no key.
    DUPLICATE at version 0: its record, if there was one, was compacted away.
    """

    client: int
    sequence: int
    version: int
    verdict: Verdict
    winner: str


class Verdicts(NamedTuple):
    """Server to client. Told once for each Await, so a client whose was lost asks again."""

    verdicts: tuple[Decided, ...]


# ---- compaction


class Hold(NamedTuple):
    """Client to all servers: please let nothing be compacted away that a read at `version` or later needs; None: no
    more. It is forgotten after a while, so who goes on reading says it again."""

    version: int | None


class Compact(NamedTuple):
    """Client to server: have what only reads before `before` could see dropped, and tell what came of it. Said again
    until it is done, also to another server, which then finishes what the first one has begun."""

    request: int
    before: int


class Compacting(NamedTuple):
    """Server to client: it is under way, and so many versions have been copied."""

    request: int
    copied: int


class Compacted(NamedTuple):
    """Server to client: the oldest version left, how many were copied, the oldest record of the log before and after,
    and the bytes of what was looked at, of what was appended, and of the records that are needed no more. `why`: what
    kept it from being done, "" if nothing did."""

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
    """Those of `Coordinator.head`, all of them."""

    rows: tuple[tuple[bytes, bytes], ...]


class MapRow(NamedTuple):
    """A version of a key. `copy`: the record that holds a copy of it, 0: none."""

    key: bytes
    version: int
    value: Value
    copy: int


class MapRows(NamedTuple):
    """By key, newest first."""

    rows: tuple[MapRow, ...]


class LedgerRows(NamedTuple):
    """Those of `Ledger.rows`."""

    rows: tuple[tuple[bytes, bytes], ...]


class RecentRow(NamedTuple):
    """A recent commit record: its label, or that of the winner and the verdict."""

    gsn: int
    label: str
    verdict: Verdict | None


class RecentRows(NamedTuple):
    """By GSN."""

    rows: tuple[RecentRow, ...]


Part = HeadRows | MapRows | LedgerRows | RecentRows


class Cursor(NamedTuple):
    """Where in a checkpoint to go on: behind `after` of the section; MAP: behind version `below` of the key `after`, or
    from that key on if `below` is 0."""

    section: Section
    after: bytes
    below: int = 0


class SliceRequest(NamedTuple):
    """Server to server: a part of a checkpoint at `version`, from `cursor` on; None: the beginning of a new one.

    What stands at a version does not change, so any server that has got there can go on with what another one began.
    """

    request: int
    version: int
    cursor: Cursor | None


class Slice(NamedTuple):
    """Rows of one section, of a server whose floor is `floor`. `next`: where to go on, None at the end."""

    request: int
    version: int
    floor: int
    part: Part
    next: Cursor | None


class SliceUnavailable(NamedTuple):
    """This server has not got that far, or has nothing itself yet: ask another."""

    request: int


# ---- comparing servers


class Compare(NamedTuple):
    """Server to server: what the sender, whose floor is `floor`, holds at `version`. `digest`: of what it decided of
    the commit records with `after` < GSN <= `version`, and of the keys of its map in [start, end) (`Replica.excerpt`).
    """

    request: int
    floor: int
    after: int
    version: int
    start: bytes
    end: bytes
    digest: bytes


class Compared(NamedTuple):
    """Server to server: whether it holds the same. One that has another floor, or has not got that far, is silent."""

    request: int
    is_same: bool


Message = (
    Reads
    | Answers
    | Busy
    | AwaitVerdicts
    | Verdicts
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
