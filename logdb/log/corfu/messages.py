"""The messages of Corfu beside those of `logdb.log.paxos`. `PROTOCOL.md` describes how they work together.

Messages may be lost, duplicated and reordered. Requests to storage units carry the epoch of the sender's projection; a
unit that is sealed for it rejects them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from logdb.cores.effects import Address
from logdb.log.contract import LogRecord, Record
from logdb.log.corfu.projection import View

# ---- storage units, sequencers and the auxiliary


class Report(NamedTuple):
    """Storage unit to all replicas of the auxiliary, with each heartbeat and after changes: its state.

    `server`: its number, 0 before it has one; `nonce`: of its disk. `version`: of the newest projection that it has.
    `sealed`: the newest epoch that it rejects. `copied`: it has all entries of its shard before this position, at which
    it joined the shard; 0 if it still copies them. `last`: the GSN of its last record. `decided`: the first position of
    its shard, from the one on at which it joined, that it does not have durably; 0: it has no shard.
    """

    server: int
    nonce: int
    version: int
    sealed: int
    copied: int
    last: int
    decided: int = 0


class SequencerReport(NamedTuple):
    """Sequencer to all replicas of the auxiliary, with each heartbeat. `nonce`: of this process, since a restarted
    sequencer does not remember what it has assigned. `epoch`: for which it assigns positions, 0 for none."""

    nonce: int
    epoch: int


class Update(NamedTuple):
    """Leader of the auxiliary to a storage unit or sequencer: the newest projection. `server`: the unit's number.
    `is_released`: no projection contains the unit any more; it wipes its disk."""

    server: int
    nonce: int
    view: View
    is_released: bool


class Seal(NamedTuple):
    """Leader of the auxiliary to a storage unit: reject all messages of `epoch` and earlier ones."""

    epoch: int


class Sealed(NamedTuple):
    """The unit `server` rejects `epoch`, durably; everything that it accepted before is durable. `highest`: its highest
    position that was ever written; `last`: the GSN of the last record there; `time`: the latest time of its records."""

    server: int
    epoch: int
    highest: int
    last: int
    time: int


# ---- clients and the auxiliary


class TailRequest(NamedTuple):
    """An operator requests the state of the log."""

    request: int


class TailResponse(NamedTuple):
    """`last`: the GSN of the last record, as far as reported by the units; `cut`: the number of epochs."""

    request: int
    last: int
    oldest: int
    cut: int
    interval_ns: int = 0
    unreachable: tuple[int, ...] = ()


class ViewRequest(NamedTuple):
    """Request the projection, with every change that was decided before."""

    request: int


class ViewResponse(NamedTuple):
    """The projection."""

    request: int
    view: View


class ChangeRequest(NamedTuple):
    """Carry out a change once. `kind`: the name of a command; `numbers`: its fields."""

    request: int
    kind: str
    numbers: tuple[int, ...]


class ChangeResponse(NamedTuple):
    """The result of a change; `error`: why it was rejected, "" if it was not."""

    request: int
    result: int
    error: str


class NotLeader(NamedTuple):
    """This replica does not lead. `leader`: the one that does, "" if unknown."""

    request: int
    leader: Address


# ---- clients and the sequencer


class TokenRequest(NamedTuple):
    """Assign positions in `epoch`, one for each entry. `places`: the shard of each, 0 for any; at most `MAX_TOKENS`.
    `streams`: (index of the entry, stream) for each stream of an entry."""

    request: int
    epoch: int
    places: tuple[int, ...]
    streams: tuple[tuple[int, int], ...] = ()


class TokenResponse(NamedTuple):
    """The position of each entry, and the time of their records. The client fills the other positions from `first` to
    `end` - 1, which were skipped to reach the requested shards. `previous`: for each of the requested streams, the
    position that was assigned to it before, 0 if there is none in this epoch (COR-17)."""

    request: int
    epoch: int
    first: int
    end: int
    positions: tuple[int, ...]
    time: int
    previous: tuple[int, ...] = ()


class TokenRefused(NamedTuple):
    """This process does not assign positions in that epoch. `epoch`: for which it does, 0 for none."""

    request: int
    epoch: int


class StreamTailRequest(NamedTuple):
    """Request the last position that was assigned to a stream in `epoch`."""

    request: int
    epoch: int
    stream: int


class StreamTailResponse(NamedTuple):
    """`position`: 0 if the epoch has none."""

    request: int
    position: int


# ---- clients and storage units


class WriteRequest(NamedTuple):
    """Write an entry at a position. `sequence`: of the first record, numbered by its `client`. `time`: of the token.
    `streams`: (stream, previous position) for each stream of the entry."""

    request: int
    epoch: int
    position: int
    time: int
    client: int
    sequence: int
    streams: tuple[tuple[int, int], ...]
    records: Sequence[Record]


class FillRequest(NamedTuple):
    """Complete the entry at a position: a unit without one copies it from the unit before it in the chain; the head
    writes junk. Also sent by units that copy entries."""

    request: int
    epoch: int
    position: int


class DeleteRequest(NamedTuple):
    """Delete the records of one entry with these GSNs. The unit must have the entry."""

    request: int
    epoch: int
    gsns: tuple[int, ...]


class Deleted(NamedTuple):
    """The unit returns these records no more, durably."""

    request: int


class Written(NamedTuple):
    """The unit has an entry at this position, durably: `count` records of `client`, numbered from `sequence` on; all 0
    for junk. Answers `WriteRequest` and `FillRequest`, whichever entry was written first. `streams`: of the entry; the
    filler continues at their replicas."""

    request: int
    position: int
    client: int
    sequence: int
    count: int  # type: ignore[assignment]  # tuple.count is not used
    streams: tuple[tuple[int, int], ...] = ()


class CommitRequest(NamedTuple):
    """All stream replicas of an entry have it: the log replica may return it to readers (COR-16)."""

    request: int
    epoch: int
    position: int


class Committed(NamedTuple):
    """The log replica has set the commit bit."""

    request: int


class OpenRequest(NamedTuple):
    """Request the positions of a unit from `first` to `end` - 1 that are not decided or not committed. `first`: at
    which the unit joined, in the projection of the client, which fills the positions in the chains of that projection.
    """

    request: int
    epoch: int
    first: int
    end: int


class OpenPositions(NamedTuple):
    """The first of them; none: all are committed or have junk."""

    request: int
    positions: tuple[int, ...]


class Reason(Enum):
    """Why a storage unit rejects a request: SEALED: its epoch is over. TRIMMED: the position was trimmed. ABSENT: the
    position is decided, and has no such record. UNREADABLE: the record is damaged here. BUSY: too many requests wait,
    or the unit does not know the projection yet. UNASSIGNED: the sequencer has not assigned the position, or has an
    earlier time, or does not answer. INVALID: no entry is like this.
    """

    SEALED = 1
    TRIMMED = 2
    ABSENT = 3
    UNREADABLE = 4
    BUSY = 5
    UNASSIGNED = 6
    INVALID = 7


class Rejected(NamedTuple):
    """A storage unit rejects a request. `epoch`: the newest one that it rejects; `oldest`: the oldest readable GSN."""

    request: int
    why: Reason
    epoch: int
    oldest: int
    explanation: str = ""


class HighestRequest(NamedTuple):
    """Request the last record of a unit, if it accepts `epoch`."""

    request: int
    epoch: int


class HighestResponse(NamedTuple):
    """`last`: the GSN of the last record that the unit has durably."""

    request: int
    last: int


class TimeRequest(NamedTuple):
    """Request the last record of a unit with this time or an earlier one, at a position before `end` (0: any)."""

    request: int
    epoch: int
    time: int
    end: int


class TimeResponse(NamedTuple):
    """`last`: its GSN, 0 if there is none."""

    request: int
    last: int


class StatusRequest(NamedTuple):
    """Which of these records of a client does the unit have? `sequences`: (first, count)."""

    client: int
    sequences: tuple[tuple[int, int], ...]


class Status(NamedTuple):
    """The positions of the first entries of the unit with some of these records. Other units may not have them yet."""

    client: int
    positions: tuple[int, ...]


class ReadRequest(NamedTuple):
    """Read a record. The unit waits until the position is written."""

    request: int
    epoch: int
    gsn: int


class ReadResponse(NamedTuple):
    """The record, in a list of one."""

    request: int
    gsn: int
    time: int
    records: Sequence[Record] = ()


class Entry(NamedTuple):
    """An entry: see `Written`. `time`: of its records, ns since the epoch. `streams`: see `WriteRequest`."""

    position: int
    time: int
    client: int
    sequence: int
    count: int  # type: ignore[assignment]  # tuple.count is not used
    streams: tuple[tuple[int, int], ...] = ()


class Pull(NamedTuple):
    """Request the entries at the positions `first`, `first` + `step`, and so on, before `end` (0: no end) and before
    the first one that is missing. `tags`: only records with these. If the first one is missing, the unit sends an empty
    response as soon as it has an entry at `known` or behind (0: at once). Also sent by units, to copy entries, then
    with `uncommitted`: for readers, an entry that is not committed is missing. For a former unit, `epoch` is the last
    one in which it was in the chain."""

    request: int
    epoch: int
    first: int
    step: int
    end: int
    known: int
    tags: frozenset[int] | None
    max_bytes: int
    uncommitted: bool = False


class Pulled(NamedTuple):
    """The entries, and the records of all of them in order. `highest`: the highest position of the unit. `deleted`: the
    GSNs of records of these entries that were trimmed. `uncommitted`: the positions of those that are not committed."""

    request: int
    highest: int
    entries: tuple[Entry, ...]
    deleted: tuple[int, ...] = ()
    uncommitted: tuple[int, ...] = ()
    records: Sequence[LogRecord] = ()


class StreamPull(NamedTuple):
    """Request the entries of a stream at positions from `first` to `end` - 1 of a stream replica."""

    request: int
    epoch: int
    stream: int
    first: int
    end: int
    max_bytes: int


class StreamPulled(NamedTuple):
    """All entries of the stream at the replica from `first` of the request to `end` - 1; otherwise as `Pulled`."""

    request: int
    end: int
    entries: tuple[Entry, ...]
    deleted: tuple[int, ...] = ()
    records: Sequence[LogRecord] = ()
