"""The contract of a shared log (Scalog, dissertation section 3.1), which every engine keeps.

A log is a sequence of records in one total order. The place of a record is its global sequence number (GSN): an integer
that grows along the order, of which a consumer must not assume that every one is used. A record lives on one shard; an
engine with one shard calls it 0.

An append ends in one of three ways: done (it returned), refused (`Unavailable`: nothing was or will be appended) or
unknown (`LogFailed`). Where servers keep the log, an unknown append has an id (`AppendUnknown.append_id`) by which it
can be asked for (`TraceableLog.outcome`); a log of this process fails as a whole, and whoever opens it again reads what
is there. A read ends in one of five: the record, not yet (it waits; `TimeoutError` when told to wait no longer),
`Trimmed`, `NotOfThisShard`, `Corruption`.

The conformance suite in `tests/conformance/` runs on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from logdb.errors import LogDBError

__all__ = [
    "AppendId",
    "AppendUnknown",
    "Batch",
    "IncomingPayload",
    "Log",
    "LogFailed",
    "LogRecord",
    "NotOfThisShard",
    "OrderedLog",
    "Reconfigurable",
    "Record",
    "ShardPolicy",
    "Subscription",
    "TraceableLog",
    "Trimmed",
    "View",
]

Record = tuple[int, bytes]
"""(tag, payload): the tag, 1 to 255, is the record's kind, by which a subscriber may choose."""

ShardPolicy = Callable[[Record], int]
"""Which shard a record goes to."""


def never() -> bool:
    """No."""
    return False


class LogRecord(NamedTuple):
    """One record as the log returns it: `lsn` its GSN (in a segment, its sequence number there), `time` ns since the
    epoch, `tag` its kind."""

    lsn: int
    time: int
    tag: int
    payload: bytes


class LogFailed(Exception):
    """An append failed and its outcome is unknown: a write or sync failed, and nothing more can be made durable until
    the log is opened again, or the servers of the log did not answer in time."""


class Trimmed(LogDBError):
    """The record was trimmed. `oldest` is the oldest GSN that can be read."""

    def __init__(self, gsn: int, oldest: int) -> None:
        self.gsn, self.oldest = gsn, oldest
        super().__init__(f"record {gsn} was trimmed; the oldest one left is {oldest}")


def check_after(after: int | None, newest: int) -> None:
    """For an engine that knows its newest record: whether records can be ordered after `after`. Raises ValueError."""
    if after is not None and after > newest:
        raise ValueError(f"there is no record {after} yet; the newest is {newest}")


class NotOfThisShard(LogDBError):
    """The shard does not exist, or the record with that GSN lives on another one."""

    def __init__(self, gsn: int, shard: int) -> None:
        self.gsn, self.shard = gsn, shard
        super().__init__(f"record {gsn} is not on shard {shard}")


class AppendId(NamedTuple):
    """The id of an append, for `outcome`, also in other processes: `str(id)` and `AppendId.parse`.

    `client`: the random number of the client. `numbers`: the sequence numbers of the records, in their order, as runs
    (first number, count); a first number of 0 means that these records were never sent.
    """

    client: int
    numbers: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"{self.client:016x}-" + ",".join(f"{first}+{count}" for first, count in self.numbers)

    @classmethod
    def parse(cls, text: str) -> AppendId:
        """The id that `str` made the `text` of. Raises ValueError."""
        client, dash, runs = text.partition("-")
        try:
            numbers = [run.partition("+") for run in runs.split(",")]
            found = cls(int(client, 16), tuple((int(first), int(count)) for first, _, count in numbers))
        except ValueError:
            dash = ""
        if not dash or str(found) != text:
            raise ValueError(f"{text!r} is no id of an append, as 00c0ffee00c0ffee-17+3")
        return found


class AppendUnknown(LogFailed):
    """The records of an append may be in the log or not. `append_id`: for `TraceableLog.outcome`. `why`: the cause."""

    def __init__(self, why: str, append_id: AppendId) -> None:
        self.why, self.append_id = why, append_id
        super().__init__(f"the outcome of append {append_id} is unknown: {why}")

    def __reduce__(self) -> tuple[object, ...]:
        return AppendUnknown, (self.why, self.append_id)


class Batch(NamedTuple):
    """Consecutive `records` of the subscribed tags: those with `first` <= GSN < `end`.

    The next batch begins at `end`, so a gap would show.
    """

    first: int
    end: int
    records: list[LogRecord]


class View(NamedTuple):
    """The numbers of the shards that take appends (`active`), and of those that are read-only (`finalized`)."""

    active: frozenset[int]
    finalized: frozenset[int]


class Subscription(Protocol):
    """An endless iterator of batches that waits at the end of the log."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def poll(self, timeout: float | None) -> Batch | None:
        """The next batch, or None if there was none within `timeout` seconds (None: wait for it).

        Raises Trimmed when the log was trimmed past the position, Corruption, and StopIteration after close.
        """

    def close(self) -> None:
        """End the subscription; a `poll` that waits ends with StopIteration."""


class IncomingPayload(Protocol):
    """The payload of a large record, `length` bytes, which comes in parts."""

    length: int

    def write(self, data: bytes) -> None:
        """Add the next bytes; the last ones are on the medium when it returns. One thread at a time.

        Raises Unavailable when the disk has no room, OSError.
        """

    def discard(self) -> None:
        """Give up the record, unless it was ordered. Twice is harmless."""


@runtime_checkable
class Log(Protocol):
    """A totally ordered, durable log of records."""

    def append(self, records: Sequence[Record], after: int | None = None) -> Sequence[int]:
        """Append `records`, pairs (tag, payload), in this order. Returns their GSNs once they are durable and ordered.

        In an engine with one shard no other record comes between them. A policy that scatters them over several shards
        keeps their order in each. `after` None: the records are ordered after every append that had returned when this
        was called. Otherwise they are ordered after record `after`, whose GSN the caller has been given, and no other
        order is promised (dissertation 4.2.2, InsertAfter): an engine that can do that faster does.

        Raises Unavailable (nothing was appended), LogFailed (unknown); ValueError if the engine sees that no record
        `after` exists.
        """

    def append_to_shard(
        self, records: Sequence[Record], shard: int, after: int | None = None
    ) -> tuple[Sequence[int], int]:
        """Append `records` to a `shard` that the caller chooses. Returns (GSNs, shard). `after`: as `append`.

        Raises as `append`, NotOfThisShard, and Unavailable for a shard that is finalized.
        """

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        """The record at `gsn` on `shard`. Linearizable: waits until the log has reached `gsn`, never says "absent".

        Raises Trimmed, NotOfThisShard, Corruption, TimeoutError after `timeout` seconds.
        """

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        """Every record from `gsn` on, in order; with `tags`, only those kinds. Raises Trimmed."""

    def trim(self, gsn: int) -> None:
        """Let records before `gsn` go. Raises ValueError past the tail, LogFailed."""

    def tail(self) -> int:
        """A GSN at or after that of every append that had returned when this was called; 0 for an empty log."""

    def oldest(self) -> int:
        """The oldest GSN that can be read, or would be if it had been appended."""

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Choose the shard of each record of `append` by a `policy`, a function of the record.

        A shard that takes no appends is replaced by another one.
        """

    def view(self) -> View:
        """The shards, with every change that had returned when this was called."""

    def close(self) -> None:
        """Release what the log holds. Waiting calls end."""


@runtime_checkable
class TraceableLog(Log, Protocol):
    """A log whose appends can be asked for after they have ended as unknown (`AppendUnknown`)."""

    def outcome(self, append_id: AppendId, timeout: float | None = None) -> Sequence[int | None]:
        """What became of an append: for each of its records its GSN, or None if it is certain that the record is not in
        the log and never will be.

        The client that appended goes on by itself until that is certain, and tells it of its last unknown appends.
        Once it has ended, any other client can be asked: it finds what is in the log. Raises AppendUnknown when it is
        not known after `timeout` seconds (None: that of the log).
        """


@runtime_checkable
class Reconfigurable(Log, Protocol):
    """A log whose shards and servers can be changed while appends go on (§3.3.4).

    A change that was refused (there is no spare server, say) raises Unavailable, and nothing was done; one that may or
    may not have been done LogFailed. Neither it nor a failure of a server reaches those who append without naming a
    shard, as long as there is one that takes appends.
    """

    def add_shard(self) -> int:
        """A new shard of spare servers. Returns its number. Appends may go there from now on."""

    def finalize_shard(self, shard: int, grace: int = 0) -> None:
        """Have a shard take no appends any more, after `grace` more cuts of the log (0: at once). It stays readable.

        Returns when that is decided; with a grace, the shard takes appends for a little while after.
        """

    def replace_server(self, server: int) -> int:
        """Put a spare server in the place of this one, which serves until that has caught up and then is wiped.
        Returns the new one's number."""

    def add_replica(self, shard: int) -> int:
        """One more server for a finalized shard, which answers its readers as soon as it has copied the shard. Returns
        its number."""

    def set_cut_interval(self, seconds: float) -> None:
        """Order new records only every so many seconds (0: at once): fewer and larger cuts, for a longer wait."""

    def members(self, shard: int) -> tuple[int, ...]:
        """The servers of a shard, by number. Raises NotOfThisShard."""


@runtime_checkable
class OrderedLog(Log, Protocol):
    """A log of this process: `append` taken apart, so that decisions follow the order and acknowledgements the disk.

    Invariants: `order` numbers records without waiting for the disk, in the order of the calls; `durable` grows, and
    only over records that are on the medium; after a failed write or sync it never grows again.
    """

    durable: int
    """The last GSN that is durable, with all before it."""

    sync_s: float
    """How long a sync takes: a running median, in seconds."""

    def order(self, records: Sequence[Record]) -> int:
        """Give `records` consecutive GSNs and return the first. Raises Unavailable, LogFailed."""

    def receive(self, length: int) -> IncomingPayload:
        """The payload, of `length` bytes, of a record that comes in parts. Raises Unavailable, LogFailed, OSError."""

    def order_incoming(self, tag: int, incoming: IncomingPayload) -> int:
        """As `order`, of one record with this `tag`, whose payload `incoming` comes from `receive` and is complete."""

    def payload(self, gsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts of `part_bytes`) of the durable record `gsn`.

        The parts stay readable when the log is trimmed. Raises Trimmed, Corruption, which may come with the last part.
        """

    def wait_durable(self, gsn: int) -> None:
        """Return when `gsn` is durable. Callers share one sync. Raises LogFailed."""

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = never) -> bool:
        """Wait until `durable` > `gsn`; False after `timeout` seconds, or once `stopped()`. Asks nobody to sync.

        Raises LogFailed once the log has failed or is closed.
        """

    def wake(self) -> None:
        """Have those who wait in `wait_past` ask `stopped` again."""

    def end(self) -> int:
        """The GSN that the next record will get."""

    def size(self, first: int = 0) -> int:
        """The bytes of the log's files, from the one that holds record `first` on."""

    def begin_file(self) -> int:
        """Let the next record begin a file, so that `trim` can remove all before it; returns its GSN.

        Raises Unavailable, LogFailed.
        """

    def left_by_trim(self, gsn: int) -> int:
        """The oldest GSN that `trim(gsn)` would leave on the medium: it removes whole files."""

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1, without waiting. Raises Trimmed, Corruption."""

    def refresh(self) -> int:
        """Learn what another process has made durable; returns `durable`."""

    def last_at_time(self, time: int) -> int:
        """The last durable GSN not younger than `time` (ns since the epoch); `oldest()` - 1 if all are younger."""

    def time_of(self, gsn: int) -> int:
        """When the durable record `gsn` was ordered, ns since the epoch. Grows along the log. Raises Trimmed."""
