"""What an application asks of a database client, and what it gets: the requests of `cores.Call`, and their answers.

Each call ends in one `Answer`, whose result is the value named here or an exception of `logdb.errors`. A deadline is a
time in ns; None waits for ever. A read that passes it ends with Unavailable, as does a commit of which no record was
or will be appended; any other commit with OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from logdb.cluster import messages
from logdb.cluster.messages import Consistency
from logdb.cores.effects import Address
from logdb.log import requests as log
from logdb.store.records import Condition, Range, TxnId
from logdb.txn.validation import Verdict

LINEARIZABLE, SESSION, SNAPSHOT = Consistency


class Get(NamedTuple):
    """The newest version of each key, all of one snapshot; `version` names it with SNAPSHOT, else it is a version that
    the answer must not be older than. -> Found.

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


class Scan(NamedTuple):
    """A page of the keys of [start, end) that exist. -> Page. Raises as Get. Go on with SNAPSHOT at its version."""

    start: bytes | None = None
    end: bytes | None = None
    reverse: bool = False
    rows: int = 1_000
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Page(NamedTuple):
    """(key, value) at `version`, in order. `more`: there may be others behind the last one."""

    version: int
    rows: tuple[tuple[bytes, bytes], ...]
    more: bool


class MultiScan(NamedTuple):
    """Pages of several ranges, all of one version. -> Pages. Raises as Get. Go on with SNAPSHOT at their version."""

    scans: tuple[messages.Scan, ...]
    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class Pages(NamedTuple):
    """Of the first of the ranges, at `version`."""

    version: int
    pages: tuple[Page, ...]


class History(NamedTuple):
    """A page of the versions of a key, newest first. -> Versions. Raises as Get. Go on below the last one."""

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
    """The version that a read of this consistency would see: a snapshot to begin with. -> int. Raises as Get."""

    consistency: Consistency = LINEARIZABLE
    version: int = 0
    deadline: int | None = None


class AtTime(NamedTuple):
    """The newest version not younger than `time` (ns since the epoch). -> int. VersionTrimmed, FutureVersion."""

    time: int
    deadline: int | None = None


class Oldest(NamedTuple):
    """The oldest version that can be read, and where it is written down. -> messages.Floor."""

    deadline: int | None = None


class RecordAt(NamedTuple):
    """The record of the log at a version that there is. -> LogRecord, None if it was compacted away. Unavailable,
    Corruption."""

    version: int
    deadline: int | None = None


class Pins(NamedTuple):
    """-> dict of versions by name."""

    deadline: int | None = None


class Pin(NamedTuple):
    """Keep `version` readable under a name; 0: no longer. -> int, the version that the name holds then: another one if
    somebody else has pinned it or a compaction was faster. VersionTrimmed, FutureVersion, Unavailable (do it again)."""

    name: str
    version: int
    deadline: int | None = None


class Aborted(NamedTuple):
    """Which commit records with `after` < GSN <= `through` were not applied. -> tuple of GSNs. Raises as Get."""

    after: int
    through: int
    deadline: int | None = None


class NewId(NamedTuple):
    """-> TxnId that no transaction has, for a Commit."""


class Commit(NamedTuple):
    """Commit a transaction; `txn_id` None: a new one. -> Committed.

    Unavailable: nothing was and will be written. OutcomeUnknown; TransactionTooLarge.
    """

    writes: Mapping[bytes, bytes | None]
    snapshot: int = 0
    label: str = ""
    reads: Sequence[bytes] = ()
    ranges: Sequence[Range] = ()
    conditions: Sequence[Condition] = ()
    txn_id: TxnId | None = None
    deadline: int | None = None


class Committed(NamedTuple):
    """How a transaction was decided, at `version`. `winner`: the label of the one that it conflicted with.

    The reason DANGLING: somebody has settled it before it came (`Settle`).
    """

    txn_id: TxnId
    version: int
    verdict: Verdict
    winner: str


class Outcome(NamedTuple):
    """How a transaction ended. -> coordinator.Outcome. NOT_FOUND is no promise: what its client has sent may still be
    under way. `Settle` ends that."""

    txn_id: TxnId
    deadline: int | None = None


class Settle(NamedTuple):
    """Have a transaction ended, one way or the other: if its commit record is not in the log yet it never will be
    applied. -> coordinator.Outcome, COMMITTED or ABORTED for ever. Unavailable, OutcomeUnknown (settle again)."""

    txn_id: TxnId
    deadline: int | None = None


class Hold(NamedTuple):
    """Ask that `version` stay readable while something is read at it; `holder` is whatever the application knows that
    by, and None ends it. -> None, at once. It is a courtesy: who was late is told VersionTrimmed when it reads."""

    holder: Hashable
    version: int | None


class Compact(NamedTuple):
    """Drop what only reads before `before`, a version, could see, as far as pins and what clients hold let it.
    `progress` is told now and then how many versions have been copied, and raises nothing. While there are more of
    them each time the deadline moves on.
    -> Compacted. FutureVersion, VersionTrimmed; Unavailable: do it again, what was begun is then brought to its end."""

    before: int
    deadline: int | None = None
    progress: Callable[[int], None] | None = None


class Compacted(NamedTuple):
    """What a compaction did: the oldest version left, the versions copied, the oldest record in the log before and
    after; bytes of what was looked at, of what was appended, and of the records that are needed no more."""

    floor: int
    copied: int
    oldest_before: int
    oldest_after: int
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0


class SetServers(NamedTuple):
    """Ask these mapping servers from now on. -> None, at once."""

    servers: tuple[Address, ...]


Read = Get | Scan | History | Version | Oldest | AtTime | RecordAt | Pins | Aborted | Outcome
Request = Read | NewId | Commit | Settle | Pin | Hold | Compact | SetServers
FOLLOWING = (log.Subscribe, log.Next, log.Close, log.Read)
"""Calls of the log's own client that this one takes too: for who follows the log itself, with `Aborted` beside it."""
