"""What an application asks of a log client, and what it gets: the requests of `cores.Call`, and their answers.

Each call ends in one `Answer`, whose result is the value named here or an exception of `logdb.log.contract` or
`logdb.errors`. A deadline is a time in ns; None waits for ever. What passes it ends with TimeoutError, but an append or
a reconfiguration that has left the client with LogFailed: whether it was done is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from logdb.log.contract import AppendId, Record
from logdb.log.scalog.messages import Reconfiguration
from logdb.log.scalog.policies import Policy


class Append(NamedTuple):
    """Append records, where the policy says or to `shard`. -> Done.

    Unavailable: nothing was and will be appended (the shard is finalized; the deadline passed before anything was
    sent). AppendUnknown: not known, or only some of the records were appended. NotOfThisShard: no such shard.
    """

    records: Sequence[Record]
    shard: int | None = None
    deadline: int | None = None


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
    the records of this shard; batches then pass over the GSNs of all others, and end at `messages.END` when the shard
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
    """-> messages.View, with everything that was decided before this was asked; TimeoutError."""

    deadline: int | None = None


class AtTime(NamedTuple):
    """-> int, the newest GSN that was ordered at `time` (ns since the epoch) or before; the GSN before the oldest
    readable one if all are younger. TimeoutError."""

    time: int
    deadline: int | None = None


class Reconfigure(NamedTuple):
    """Have the ordering layer carry out a change, once. -> int, its result.

    Unavailable: refused, nothing was done. LogFailed.
    """

    change: Reconfiguration
    deadline: int | None = None


class SetPolicy(NamedTuple):
    """Which shard the records of `Append` go to from now on. -> None."""

    policy: Policy


Request = (
    Append | Outcome | Read | Subscribe | Next | Close | Tail | Oldest | Trim | View | AtTime | Reconfigure | SetPolicy
)
