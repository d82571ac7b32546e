"""What an application tells and asks the client of a log that servers keep, on any engine: its configuration, the
requests of `cores.Call`, and their results.

Each call ends in one `Answer`, whose result is the value named here or an exception of `logdb.log.contract` or
`logdb.errors`. A deadline is a time in ns; None waits for ever. What passes it ends with TimeoutError, but an append or
a reconfiguration that has left the client with LogFailed: whether it was done is not known.
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
"""A GSN after all others."""

RECORD_BYTES: Final = 32
"""What a record counts for beside its payload where bytes are bounded."""


def bytes_of(records: Sequence[Record]) -> int:
    """What records count for where bytes are bounded."""
    return sum(map(len, [payload for _, payload in records])) + RECORD_BYTES * len(records)


# ---- what a client is told


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """What a client is told. Bytes of records are their payloads and 32 each.

    `gathers`: a batch leaves when the host has told of everything that is called at this moment, not with the first
    of it. `linger_ns`: so long records wait for others while a batch to their segment is under way. `batch_bytes`:
    about so much goes into one message, to or from a server. `window_bytes`: so much may be under way to a segment,
    `buffer_bytes` be in this client altogether (what is beyond waits), and `fetch_bytes` be fetched for a
    subscription.
    `answer_timeout_ns`: after so long without an answer ask again, or another. `backoff_ns`, `max_backoff_ns`: the
    wait before what was refused is tried again, which doubles. `suspect_after_ns`: a primary that is silent for so
    long is reported. `view_age_ns`: who appends looks for new shards so often.
    """

    address: Address
    ordering: tuple[Address, ...]
    policy: Policy = ANYWHERE
    gathers: bool = True
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


# ---- the configuration of a log, as any engine shows it


class ShardState(Enum):
    """A live shard takes appends, a finalizing one still does, a finalized one never again."""

    LIVE = "live"
    FINALIZING = "finalizing"
    FINALIZED = "finalized"


class ConfiguredServer(Protocol):
    """A server that holds records. `server`: its number, which no other server ever gets."""

    @property
    def server(self) -> int: ...

    @property
    def address(self) -> Address: ...


class ConfiguredShard(Protocol):
    """A shard. `joining`: numbers of members that still copy what was appended before they came; `replaced`: servers
    that serve until these have it; `holders`: members and replaced."""

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
    """Shards and their servers. `version` grows with each change. `next_shard`: shards from this number on have never
    existed. `oldest`: the oldest readable GSN. `spares`: servers that wait for a shard."""

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
    """A new shard of `servers` (spares); empty: of as many spares as a shard has, chosen by the ordering layer.

    Result: the shard."""

    servers: tuple[int, ...]


class FinalizeShard(NamedTuple):
    """No appends any more, after `grace` more cuts (0: at once). Result: the shard."""

    shard: int
    grace: int


class ReplaceServer(NamedTuple):
    """Let a spare (`by`, 0: any) take the place of `server` in the shard. Its segment is sealed; what it holds stays
    until the successor has caught up.

    Result: the new server."""

    server: int
    by: int


class AddReplica(NamedTuple):
    """One more replica (`server`, 0: any spare) for a finalized shard. Result: the new server."""

    shard: int
    server: int


class SetCutInterval(NamedTuple):
    """Let at least so much time pass between two cuts (0: order as soon as the last cut is chosen). Result: it."""

    interval_ns: int


# ---- requests


class Append(NamedTuple):
    """Append records, where the policy says or to `shard`, after every append that had returned; with `after`, only
    after that record (`Log.append`). -> Done.

    Unavailable: nothing was and will be appended (the shard is finalized; the deadline passed before anything was
    sent). AppendUnknown: not known, or only some of the records were appended. NotOfThisShard: no such shard.
    """

    records: Sequence[Record]
    shard: int | None = None
    deadline: int | None = None
    after: int | None = None


class Done(NamedTuple):
    """What became of an append: the GSN and the shard of each record."""

    gsns: list[int]
    shards: list[int]


class Outcome(NamedTuple):
    """What became of an append, of this client or another one. -> list[int | None]: of each record its GSN, None: it is
    not in the log and never will be; AppendUnknown after the deadline."""

    id: AppendId
    deadline: int | None = None


class Read(NamedTuple):
    """The record at `gsn`, once the log has got there; `size`: of its payload, if known. -> LogRecord, its `lsn` being
    the GSN.

    Trimmed, NotOfThisShard, Corruption (no replica can read it), TimeoutError.
    """

    gsn: int
    shard: int
    deadline: int | None = None
    size: int = 0


class Subscribe(NamedTuple):
    """Follow the log from `gsn` on, all records or those of these tags. -> int, the subscription; Trimmed.

    `fetch_bytes`: so much is fetched ahead, None: what the client is told; a shard gives 64 KiB at least. `shard`: only
    the records of this shard; batches then pass over the GSNs of all others, and end at `END` when the shard
    is finalized and has no more.
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


class Close(NamedTuple):
    """End a subscription. -> None."""

    subscription: int


class Tail(NamedTuple):
    """-> int, a GSN at or after every append that had returned; TimeoutError."""

    deadline: int | None = None


class Oldest(NamedTuple):
    """-> int, the oldest GSN that can be read; TimeoutError."""

    deadline: int | None = None


class Trim(NamedTuple):
    """Records before `gsn` may go. -> int, the oldest readable GSN; ValueError past the tail, LogFailed."""

    gsn: int
    deadline: int | None = None


class View(NamedTuple):
    """-> Configuration, with everything that was decided before this was asked; TimeoutError."""

    deadline: int | None = None


class AtTime(NamedTuple):
    """-> int, the newest GSN that was ordered at `time` (ns since the epoch) or before; the GSN before the oldest
    readable one if all are younger. TimeoutError."""

    time: int
    deadline: int | None = None


class Reconfigure(NamedTuple):
    """Have a change carried out, once: one of those below, as far as the engine offers it, or one of the engine's own.
    -> int, its result.

    Unavailable: refused, nothing was done. LogFailed.
    """

    change: Any
    deadline: int | None = None


class SetPolicy(NamedTuple):
    """Which shard the records of `Append` go to from now on. -> None."""

    policy: Policy


Request = (
    Append | Outcome | Read | Subscribe | Next | Close | Tail | Oldest | Trim | View | AtTime | Reconfigure | SetPolicy
)
