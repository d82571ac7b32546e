"""The interface of a log client's core, the same for every engine: its configuration, its requests and their results.

A request is the `request` of a `Call` event. Each call ends with one `Answer`, whose result is the value after the
arrow or an exception of `logdb.log.contract` or `logdb.errors`. A deadline is a time in ns; None: no deadline. A call
that passes its deadline ends with TimeoutError, except for an append or a reconfiguration that the client has already
sent: its outcome is unknown, and it ends with LogFailed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from logdb.cores.effects import MILLISECOND, SECOND, Address
from logdb.log.contract import AppendId, Record
from logdb.log.policies import ANYWHERE, Policy

END: Final = (1 << 63) - 1
"""A GSN greater than that of any record."""

MAX_STREAMS: Final = 16
"""Maximum number of streams of an append."""

RECORD_OVERHEAD_BYTES: Final = 32
"""Added to the payload of each record when limits in bytes are checked."""

BYTES_A_SECOND: Final = 8 << 20
"""The minimum throughput, over the network and onto the disk, that is assumed of a busy server."""

PROMPT_BYTES: Final = 1 << 20
"""Messages up to this size are expected to be answered within the usual timeout."""


def record_bytes(records: Sequence[Record]) -> int:
    """The size of records for limits in bytes."""
    return sum(map(len, [payload for _, payload in records])) + RECORD_OVERHEAD_BYTES * len(records)


def transfer_ns(size: int) -> int:
    """The time (ns) to add to a timeout for `size` bytes. Resending a large message too early adds load."""
    return max(0, size - PROMPT_BYTES) * SECOND // BYTES_A_SECOND


# ---- the configuration of a client


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The configuration of a client. Sizes of records are those of `record_bytes`.

    `ordering`: the addresses of the founders; `local`: that of the one on the client's own node, "" if there is none;
    `neighbours`: the addresses that the engine's servers have, or would have, on the client's own node.
    `coalesce_calls`: collect all calls that the host has pending before a
    batch is sent, instead of sending the first at once. `linger_ns`: maximum time for which records wait for others
    while a batch to their segment is unacknowledged. `batch_bytes`: target size of a message to or from a server.
    `window_bytes`: maximum size of unacknowledged records for each segment. `buffer_bytes`: maximum size of all records
    in this client; further appends wait. `fetch_bytes`: maximum size of records fetched ahead for a subscription.

    `answer_timeout_ns`: time without a response after which a request is sent again, or to another server.
    `backoff_ns`, `max_backoff_ns`: initial and maximum delay before a rejected request is retried; it doubles.
    `suspect_after_ns`: time without a response after which a primary is reported as failed. `view_age_ns`: interval at
    which a client that appends refreshes its view of the shards.
    """

    address: Address
    ordering: tuple[Address, ...]
    local: Address = ""
    neighbours: frozenset[Address] = frozenset()
    policy: Policy = ANYWHERE
    coalesce_calls: bool = True
    linger_ns: int = 2 * MILLISECOND
    batch_bytes: int = 1 << 20
    window_bytes: int = 8 << 20
    buffer_bytes: int = 64 << 20
    fetch_bytes: int = 8 << 20
    answer_timeout_ns: int = SECOND // 2
    backoff_ns: int = 5 * MILLISECOND
    max_backoff_ns: int = SECOND // 2
    suspect_after_ns: int = 2 * SECOND
    view_age_ns: int = 5 * SECOND


# ---- the configuration of a log, common to all engines


class ShardState(Enum):
    """LIVE and FINALIZING shards accept appends; a FINALIZED shard never accepts one again."""

    LIVE = "live"
    FINALIZING = "finalizing"
    FINALIZED = "finalized"


class ConfiguredServer(Protocol):
    """A server that stores records. `server`: its number, which is never reused."""

    @property
    def server(self) -> int: ...

    @property
    def address(self) -> Address: ...


class ConfiguredShard(Protocol):
    """A shard. `joining`: numbers of members that still copy records appended before they joined; `replaced`: the
    servers that serve until the joining members have caught up; `holders`: members and replaced servers."""

    @property
    def shard(self) -> int: ...

    @property
    def state(self) -> ShardState: ...

    @property
    def members(self) -> Sequence[ConfiguredServer]: ...

    @property
    def joining(self) -> tuple[int, ...]: ...

    @property
    def replaced(self) -> Sequence[ConfiguredServer]: ...

    @property
    def holders(self) -> Sequence[ConfiguredServer]: ...


class Configuration(Protocol):
    """Shards and their servers. `version` grows with each change. `next_shard`: the number of the next new shard.
    `oldest`: the oldest readable GSN. `spares`: servers without a shard."""

    @property
    def version(self) -> int: ...

    @property
    def shards(self) -> Sequence[ConfiguredShard]: ...

    @property
    def next_shard(self) -> int: ...

    @property
    def oldest(self) -> int: ...

    @property
    def spares(self) -> Sequence[ConfiguredServer]: ...


# ---- changes of the shards and servers


class AddShard(NamedTuple):
    """Add a shard of `servers`, which are spares; empty: the founders choose as many spares as a shard needs.

    Result: the number of the shard."""

    servers: tuple[int, ...]


class AddStreamShard(NamedTuple):
    """Add a shard of stream replicas: as `AddShard`, but `servers` may be fewer. From now on it has a part of the
    streams."""

    servers: tuple[int, ...]


class FinalizeShard(NamedTuple):
    """Stop accepting appends after `grace` more cuts (0: immediately). Result: the number of the shard."""

    shard: int
    grace: int


class ReplaceServer(NamedTuple):
    """Replace `server` by a spare (`by`; 0: any). Its segment is sealed; its records stay readable until the new server
    has caught up.

    Result: the number of the new server."""

    server: int
    by: int


class AddReplica(NamedTuple):
    """Add a replica (`server`; 0: any spare) to a finalized shard. Result: the number of the new server."""

    shard: int
    server: int


class TrimRecords(NamedTuple):
    """Allow the log to delete these records, wherever they are in the log. ValueError for one behind the tail.

    Result: their number."""

    gsns: tuple[int, ...]


class SetCutInterval(NamedTuple):
    """Set the minimum time between two cuts (0: the next cut follows as soon as the last one is chosen).

    Result: `interval_ns`."""

    interval_ns: int


# ---- requests


class Append(NamedTuple):
    """Append records to the shards that the policy chooses, or to `shard`. They are ordered after every append that had
    returned; with `after`, only after that record (`Log.append`). `streams`: the streams of all of them, in an engine
    that has streams. -> AppendResult.

    Unavailable: nothing was or will be appended (the shard is finalized; the deadline passed before anything was
    sent). AppendUnknown: the outcome is unknown, or only some of the records were appended. NotOfThisShard: no such
    shard.
    """

    records: Sequence[Record]
    shard: int | None = None
    deadline: int | None = None
    after: int | None = None
    streams: tuple[int, ...] = ()


class AppendResult(NamedTuple):
    """The GSN and the shard of each appended record."""

    gsns: list[int]
    shards: list[int]


class Outcome(NamedTuple):
    """The outcome of an append of this client or another one. -> list[int | None]: the GSN of each record, None for a
    record that is not in the log and never will be; AppendUnknown after the deadline."""

    id: AppendId
    deadline: int | None = None


class Read(NamedTuple):
    """Read the record at `gsn`; waits until the log has reached `gsn`. `size`: the size of its payload in bytes, 0 if
    unknown. -> LogRecord.

    Trimmed, NotOfThisShard, Corruption (no replica can read it), TimeoutError.
    """

    gsn: int
    shard: int
    deadline: int | None = None
    size: int = 0


class ReadStream(NamedTuple):
    """Read a stream, from `gsn` on: all records that were in it when the read began, as far as one answer has room for
    them. -> Batch: the next ones are at its `end` or behind. Trimmed, Corruption, TimeoutError, Unavailable if the
    engine has no streams."""

    stream: int
    gsn: int
    deadline: int | None = None


class Subscribe(NamedTuple):
    """Subscribe to the log from `gsn` on: all records, or those with one of `tags`. -> int, the number of the
    subscription; Trimmed.

    `fetch_bytes`: maximum size of records fetched ahead, None: that of the configuration; at least 64 KiB for each
    shard. `shard`: only the records of this shard; batches then skip the GSNs of all others, and the last batch ends at
    `END` once the shard is finalized and has no more records.
    """

    gsn: int
    tags: frozenset[int] | None = None
    fetch_bytes: int | None = None
    shard: int | None = None


class Next(NamedTuple):
    """The next batch of a subscription. -> Batch, or None after the deadline; Trimmed, Corruption; StopIteration
    (as a value, not raised) once the subscription is closed."""

    subscription: int
    deadline: int | None = None


class Expedite(NamedTuple):
    """The next batch of a subscription is awaited: deliver it as soon as its first record is ordered, at the cost of a
    message. Without that, a batch may come a little later, together with something else. -> None."""

    subscription: int


class Close(NamedTuple):
    """Close a subscription. -> None."""

    subscription: int


class Tail(NamedTuple):
    """-> int, a GSN not less than that of any append that had returned; TimeoutError."""

    deadline: int | None = None


class Oldest(NamedTuple):
    """-> int, the oldest GSN that can be read; TimeoutError."""

    deadline: int | None = None


class Trim(NamedTuple):
    """Allow the log to delete records before `gsn`. -> int, the oldest readable GSN; ValueError past the tail,
    LogFailed."""

    gsn: int
    deadline: int | None = None


class View(NamedTuple):
    """-> Configuration, with every change that had been decided before this call; TimeoutError."""

    deadline: int | None = None


class AtTime(NamedTuple):
    """-> int, the newest GSN ordered at or before `time` (ns since the epoch); the GSN before the oldest readable one
    if all records are newer. TimeoutError."""

    time: int
    deadline: int | None = None


class Reconfigure(NamedTuple):
    """Carry out a change exactly once: one of those above, if the engine offers it, or one of the engine's own.
    -> int, its result.

    Unavailable: rejected, nothing was done. LogFailed: the outcome is unknown.
    """

    change: Any
    deadline: int | None = None


class SetPolicy(NamedTuple):
    """Set the policy that chooses the shard for the records of each following `Append`. -> None."""

    policy: Policy


Request = (
    Append
    | Outcome
    | Read
    | ReadStream
    | Subscribe
    | Next
    | Expedite
    | Close
    | Tail
    | Oldest
    | Trim
    | View
    | AtTime
    | Reconfigure
    | SetPolicy
)
