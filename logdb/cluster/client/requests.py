"""The requests of an application to a database client (`cores.Call`), and their results.

Each call ends in one `Answer`, whose result is the type named here or an exception of `logdb.errors`. A deadline is a
time in ns; None: no limit. At its deadline a read ends with Unavailable, as does a commit of which no record was
or will be appended; any other commit ends with OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from logdb.cluster import messages
from logdb.cluster.messages import Consistency
from logdb.cores.effects import Address
from logdb.log import requests as log
from logdb.store.records import Condition, Fold, Place, Range, TxnId
from logdb.txn.validation import Verdict

LINEARIZABLE, SESSION, SNAPSHOT = Consistency


class Get(NamedTuple):
    """The newest version of each key, all of one snapshot. `version`: that snapshot with SNAPSHOT, else the minimum
    version of the answer. -> Found.

    VersionTrimmed, FutureVersion, Corruption, Unavailable.
    """

    keys: Sequence[bytes]
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Found(NamedTuple):
    """(version, value) of each key at `version`: (0, None) where it never existed, (n, None) where it was deleted."""

    version: int
    entries: tuple[tuple[int, bytes | None], ...]


class TakeTurn(NamedTuple):
    """Wait until the transaction `holder`, any value of the application, may begin with a contended key. -> Found, of
    that key; None if it follows another transaction of this client, on whose writes it should speculate, or if it is to
    read the key itself. Unavailable. The turn ends with a Commit that names the holder, or with its LeaseVersion(None).
    `is_contended`: others contend for the key; if no transaction that waits says so, all of them may begin.
    `may_follow`: the transaction can speculate.
    """

    key: bytes
    holder: Hashable
    is_contended: bool = True
    may_follow: bool = False
    consistency: Consistency = LINEARIZABLE
    deadline: int | None = None


class Scan(NamedTuple):
    """A page of the existing keys of [start, end). -> Page. Raises as Get. Next page: SNAPSHOT at its version."""

    start: bytes | None = None
    end: bytes | None = None
    reverse: bool = False
    rows: int = 1_000
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Page(NamedTuple):
    """(key, value) at `version`, in order. `rest`: the bound of the rest of the range, its start, or its end when
    `reverse`; None: there is none. There may be no rows before it."""

    version: int
    rows: tuple[tuple[bytes, bytes], ...]
    rest: bytes | None


class MultiScan(NamedTuple):
    """Pages of several ranges, all of one version. -> Pages. Raises as Get. Further pages need SNAPSHOT at it."""

    scans: tuple[messages.Scan, ...]
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Pages(NamedTuple):
    """Pages of the first of the ranges, at `version`."""

    version: int
    pages: tuple[Page, ...]


class History(NamedTuple):
    """A page of the versions of a key, newest first. -> Versions. Raises as Get. Next page: below the last one."""

    key: bytes
    rows: int = 1_000
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Versions(NamedTuple):
    """(version, value) of a key up to `version`; None where it was deleted. `more`: there are older ones."""

    version: int
    entries: tuple[tuple[int, bytes | None], ...]
    more: bool


class Version(NamedTuple):
    """The version that a read of this consistency sees. -> int. Raises as Get."""

    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class AtTime(NamedTuple):
    """The newest version not younger than `time` (ns since the epoch). -> int. VersionTrimmed, FutureVersion."""

    time: int
    deadline: int | None = None


class Oldest(NamedTuple):
    """The oldest version that mapping servers have, and the last compaction. -> messages.Floor. `in_cold_tier`: the
    oldest version that can be read. Raises as Get."""

    in_cold_tier: bool = False
    deadline: int | None = None


class RecordAt(NamedTuple):
    """The record of the log at an existing version. -> LogRecord, None if it was compacted away. Unavailable,
    Corruption."""

    version: int
    deadline: int | None = None


class Pins(NamedTuple):
    """-> dict of versions by name."""

    deadline: int | None = None


class Measure(NamedTuple):
    """Numbers about the mapping server that answers. -> text, as of `measures.encode_measures`. Unavailable."""

    deadline: int | None = None


class Pin(NamedTuple):
    """Keep `version` readable under a name; 0 removes the pin. -> int, the version that the name pins afterwards:
    another one if another client has pinned the name, or a compaction was ordered first. VersionTrimmed,
    FutureVersion, Unavailable (do it again)."""

    name: str
    version: int
    deadline: int | None = None


class Aborted(NamedTuple):
    """Which commit records with `after` < GSN <= `through` were not applied. -> tuple of GSNs. Raises as Get."""

    after: int
    through: int
    deadline: int | None = None


class ColdCommits(NamedTuple):
    """The commits of the cold tier after version `after`. -> messages.CommitPage. VersionTrimmed (it begins later, or
    there is none), Corruption, Unavailable."""

    after: int
    deadline: int | None = None


class ColdValue(NamedTuple):
    """A large value of the cold tier. -> bytes. Corruption, Unavailable."""

    place: Place
    deadline: int | None = None


class NewId(NamedTuple):
    """Allocate a transaction id for a Commit. -> TxnId."""


class Commit(NamedTuple):
    """Commit a transaction; without `txn_id`, with a new id. -> Committed. `holder`: the transaction, if it may have
    taken a turn (`TakeTurn`). `appended`: the number of last writes whose keys get the version of the commit.

    Unavailable: nothing was or will be written. OutcomeUnknown; TransactionTooLarge.
    """

    writes: Mapping[bytes, bytes | None]
    snapshot: int = 0
    label: str = ""
    reads: Sequence[bytes] = ()
    ranges: Sequence[Range] = ()
    conditions: Sequence[Condition] = ()
    txn_id: TxnId | None = None
    holder: Hashable = None
    deadline: int | None = None
    deletes: Sequence[Range] = ()
    appended: int = 0
    folds: Sequence[Fold] = ()


class Committed(NamedTuple):
    """How a transaction was decided, at `version`. `winner`: the label of the one that it conflicted with.
    `is_contended`: another client contends for a key that it writes.

    The reason DANGLING: it was settled before its commit record was ordered (`Settle`).
    """

    txn_id: TxnId
    version: int
    verdict: Verdict
    winner: str
    is_contended: bool = False


class Outcome(NamedTuple):
    """How a transaction ended. -> coordinator.Outcome. NOT_FOUND is not final: its commit record may still come.
    `Settle` makes it final."""

    txn_id: TxnId
    deadline: int | None = None


class Settle(NamedTuple):
    """Make the outcome of a transaction final: if its commit record is not in the log yet it will never be applied.
    -> coordinator.Outcome, COMMITTED or ABORTED, which is final. Unavailable, OutcomeUnknown (settle again)."""

    txn_id: TxnId
    deadline: int | None = None


class LeaseVersion(NamedTuple):
    """Lease `version` for `holder`, any value of the application, so that it stays readable; None releases it. -> None,
    at once. A lease may come too late for a compaction: a read then raises VersionTrimmed."""

    holder: Hashable
    version: int | None


class Compact(NamedTuple):
    """Drop the versions that only reads before the version `before` can see, as far as pins and leases allow.
    `progress` is called with the number of versions copied, and must not raise. Each progress extends the deadline.
    -> Compacted. FutureVersion, VersionTrimmed; Unavailable: do it again, which continues the same compaction."""

    before: int
    deadline: int | None = None
    progress: Callable[[int], None] | None = None


class Compacted(NamedTuple):
    """The result of a compaction: the oldest version left, the number of versions copied, the oldest record of the log
    before and after, and the bytes read, appended and freed."""

    floor: int
    copied: int
    oldest_before: int
    oldest_after: int
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0


class SetServers(NamedTuple):
    """Use these mapping servers from now on. -> None, at once."""

    servers: tuple[Address, ...]


Read = (
    Get
    | Scan
    | History
    | Version
    | Oldest
    | AtTime
    | RecordAt
    | Pins
    | Measure
    | Aborted
    | ColdCommits
    | ColdValue
    | Outcome
)
Request = Read | TakeTurn | NewId | Commit | Settle | Pin | LeaseVersion | Compact | SetServers
FOLLOWING = (log.Subscribe, log.Next, log.Close, log.Read)
"""Requests to the log that this client accepts too: for followers of the log, which also use `Aborted`."""
