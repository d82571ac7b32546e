"""The messages of the Multi-Paxos engine beside those of `logdb.log.paxos`. `PROTOCOL.md` describes the protocol.

All are immutable; positions are integers. Every message may be lost, duplicated or reordered.
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

    The client never requests numbers below `settled` again.
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
    """Replica to client: the request that starts at `sequence` was rejected. Earlier copies of it may be accepted.

    `leader`: the replica for the next attempt, "" if the sender knows no leader; the sender if its buffer is full.
    """

    client: int
    sequence: int
    leader: Address


class AppendStatusRequest(NamedTuple):
    """Client to any replica: a request for the GSNs of records of `client`. `sequences`: (first sequence number,
    count)."""

    client: int
    sequences: tuple[tuple[int, int], ...]


class AppendStatus(NamedTuple):
    """Replica to client: the requested records that are in its log; the others may be appended later. `ordered`:
    (first sequence number, count, first GSN)."""

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
    """The reason why a replica sends no record. BEHIND: it does not lead and has not applied the log up to the record.
    MISSING: it is still copying the record from another replica. TRIMMED: the record was trimmed. UNREADABLE: the bytes
    are damaged at this replica."""

    BEHIND = "behind"
    MISSING = "missing"
    TRIMMED = "trimmed"
    UNREADABLE = "unreadable"


class ReadFailed(NamedTuple):
    """The answer to a `ReadRequest` or `Pull` without records. `oldest`: the oldest readable GSN. `leader`: "" if the
    sender knows no leader."""

    request: int
    why: ReadError
    oldest: int
    leader: Address
    explanation: str = ""


class Pull(NamedTuple):
    """Client or replica to any replica: records from `gsn` on with these tags (None: all), about `max_bytes` of them.

    The leader answers when the log has reached `gsn`; a second request with the same number replaces the first.
    `allow_follower`: so does a replica that follows a leader, up to a heartbeat later; `is_urgent`: at once.
    """

    request: int
    gsn: int
    tags: frozenset[int] | None
    max_bytes: int
    allow_follower: bool = False
    is_urgent: bool = False


class Pulled(NamedTuple):
    """The records with `first` <= GSN < `end` that have the requested tags, as they are stored."""

    request: int
    first: int
    end: int
    records: Sequence[LogRecord] = ()


class TimeRequest(NamedTuple):
    """Client to leader: a request for the GSNs between which the log passes `time` (ns since the epoch)."""

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
    """Client or server to the leader: a request for the end of the log, including every append that has returned.
    `allow_follower`: a replica that follows the leader may answer, after the leader has confirmed the request."""

    request: int
    allow_follower: bool = False


class TailResponse(NamedTuple):
    """`last`: the newest GSN. `oldest`: the oldest readable GSN. `cut`: the number of ordered batches. After receiving
    the request, the sender, or the leader that it follows, has confirmed with a quorum that it leads."""

    request: int
    last: int
    oldest: int
    cut: int

    @property
    def interval_ns(self) -> int:
        """0: batches are ordered without a minimum interval."""
        return 0

    @property
    def unreachable(self) -> tuple[int, ...]:
        """(): clients do not report unreachable replicas."""
        return ()


class NotLeader(NamedTuple):
    """The answer to a `TailRequest`, `TimeRequest` or `TrimRequest` that reached a replica which does not lead.
    `leader`: "" if the sender knows no leader."""

    request: int
    leader: Address


class TrimRequest(NamedTuple):
    """Client to leader: trim the records before `gsn`."""

    request: int
    gsn: int


class TrimResponse(NamedTuple):
    """`oldest`: the oldest readable GSN. `error`: the reason for a rejection, "" if the log was trimmed."""

    request: int
    oldest: int
    error: str


class ViewRequest(NamedTuple):
    """Client or server to any replica: a request for the configuration."""

    request: int


class ViewResponse(NamedTuple):
    """`replicas`: the addresses of all replicas. `copying`: the numbers of those that are still copying records."""

    request: int
    oldest: int
    replicas: tuple[Address, ...]
    copying: tuple[int, ...]


class Copying(NamedTuple):
    """Replica to the other replicas, repeated until `missing` is 0: the number of records that it still has to copy."""

    missing: int


class DurableRequest(NamedTuple):
    """Replica to another replica, before it uses a snapshot (MPX-9): a request for a response when all records before
    `gsn` are durable at the receiver."""

    gsn: int


class DurableResponse(NamedTuple):
    """The sender has all records from its oldest one to `gsn` - 1 durably in its record journals. A replica that does
    not have them sends no response; the request is repeated."""

    gsn: int
