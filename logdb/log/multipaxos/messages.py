"""Every message of the Multi-Paxos engine beside those of `logdb.log.paxos`. `PROTOCOL.md` says how they work together.

All are immutable and hold positions as integers. No message relies on another one to arrive, to arrive once, or to
arrive in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from logdb.cores.effects import Address
from logdb.log.contract import LogRecord, Record

# ---- appending


class AppendRequest(NamedTuple):
    """Client to leader: append `records`, which have the sequence numbers from `sequence` on.

    The client does not ask again for numbers below `settled`.
    """

    client: int
    sequence: int
    settled: int
    records: Sequence[Record]


class AppendResponse(NamedTuple):
    """Leader to client: records of the client are in the log. `ranges`: (first sequence number, count, first GSN)."""

    client: int
    ranges: tuple[tuple[int, int, int], ...]


class AppendRefused(NamedTuple):
    """Replica to client: the request that begins with `sequence` was not taken. That says nothing about earlier copies
    of it.

    `leader`: the replica to ask instead, "" if it is not known; the sender itself if its buffer is full.
    """

    client: int
    sequence: int
    leader: Address


class AppendStatusRequest(NamedTuple):
    """Client to any replica: where are these records of `client`? `sequences`: (first sequence number, count)."""

    client: int
    sequences: tuple[tuple[int, int], ...]


class AppendStatus(NamedTuple):
    """Replica to client: the records that it knows to be in the log; the others may still come. `ordered`: (first
    sequence number, count, first GSN)."""

    client: int
    ordered: tuple[tuple[int, int, int], ...]


# ---- reading


class ReadRequest(NamedTuple):
    """Client to any replica: the record at `gsn`."""

    request: int
    gsn: int


class ReadResponse(NamedTuple):
    """The record at `gsn`, as it is stored."""

    request: int
    gsn: int
    records: Sequence[Record] = ()


class ReadError(Enum):
    """Why a replica sends no record. BEHIND: it does not lead and has not applied the log so far. MISSING: it still
    copies the record from another replica. TRIMMED: the record is gone. UNREADABLE: its bytes are damaged here."""

    BEHIND = "behind"
    MISSING = "missing"
    TRIMMED = "trimmed"
    UNREADABLE = "unreadable"


class ReadFailed(NamedTuple):
    """The answer to a `ReadRequest` or `Pull` without records. `oldest`: the oldest readable GSN. `leader`: the leader,
    "" if it is not known."""

    request: int
    why: ReadError
    oldest: int
    leader: Address
    explanation: str = ""


class Pull(NamedTuple):
    """Client or replica to any replica: records from `gsn` on with these tags (None: all), about `max_bytes` of them.

    The leader answers when the log has reached `gsn`; a second request with the same number replaces the first.
    """

    request: int
    gsn: int
    tags: frozenset[int] | None
    max_bytes: int


class Pulled(NamedTuple):
    """The records with `first` <= GSN < `end` that have the requested tags, as they are stored."""

    request: int
    first: int
    end: int
    records: Sequence[LogRecord] = ()


class TimeRequest(NamedTuple):
    """Client to leader: between which GSNs does the log pass `time` (ns since the epoch)?"""

    request: int
    time: int


class TimeResponse(NamedTuple):
    """Records before `first` were ordered at the time or before; records from `end` on later. `oldest`: the oldest
    readable GSN."""

    request: int
    first: int
    end: int
    oldest: int


# ---- state of the log


class TailRequest(NamedTuple):
    """Anyone to the leader: the end of the log, including every append that has returned."""

    request: int


class TailResponse(NamedTuple):
    """`last`: the newest GSN. `oldest`: the oldest readable GSN. `cut`: how many batches of records were ordered. The
    sender has confirmed with a quorum, after the request came, that it leads."""

    request: int
    last: int
    oldest: int
    cut: int

    @property
    def interval_ns(self) -> int:
        """Batches are ordered without a pause between them."""
        return 0

    @property
    def unreachable(self) -> tuple[int, ...]:
        """Clients report no replicas."""
        return ()


class NotLeader(NamedTuple):
    """The answer to a `TailRequest`, `TimeRequest` or `TrimRequest` that reached a replica which does not lead.
    `leader`: "" if it is not known."""

    request: int
    leader: Address


class TrimRequest(NamedTuple):
    """Client to leader: records before `gsn` may go."""

    request: int
    gsn: int


class TrimResponse(NamedTuple):
    """`oldest`: the oldest readable GSN. `error`: why nothing was trimmed, "" if it was."""

    request: int
    oldest: int
    error: str


class ViewRequest(NamedTuple):
    """Anyone to any replica: the configuration."""

    request: int


class ViewResponse(NamedTuple):
    """`replicas`: the addresses of all. `copying`: numbers of those that still copy records from the others."""

    request: int
    oldest: int
    replicas: tuple[Address, ...]
    copying: tuple[int, ...]


class Copying(NamedTuple):
    """Replica to the other replicas, again and again until `missing` is 0: so many records are still to be copied."""

    missing: int


class DurableRequest(NamedTuple):
    """Replica to another replica: are all your records before `gsn` durable? Sent before a snapshot is used (MPX-9)."""

    gsn: int


class DurableResponse(NamedTuple):
    """Yes: the sender has all records from its oldest one to `gsn` - 1 in its record journals, durably. There is no
    answer otherwise; the request is repeated."""

    gsn: int
