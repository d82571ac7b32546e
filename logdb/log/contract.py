"""The contract of a shared log (Scalog, dissertation section 3.1), which every engine implements.

A log is a sequence of records in one total order. The position of a record is its global sequence number (GSN): an
integer that grows along the order. GSNs need not be consecutive. Each record is stored on one shard; an engine with
one shard numbers it 0.

An append has one of three outcomes: done (it returned), refused (`Unavailable`: nothing was or will be appended) or
unknown (`LogFailed`). If servers store the log, an unknown append has an id (`AppendUnknown.append_id`), and
`TraceableLog.outcome` finds out what became of it. A log of this process fails as a whole; opening it again shows which
records are durable.

A read has one of five results: the record, not yet (it waits, then raises `TimeoutError`), `Trimmed`,
`NotOfThisShard`, `Corruption`.

The conformance suite in `tests/conformance/` runs on every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from logdb.errors import LogDBError

__all__ = [
    "GENESIS",
    "RECENT",
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
    "RecordTrimmable",
    "ShardPolicy",
    "StreamLog",
    "Subscription",
    "TraceableLog",
    "Trimmed",
    "View",
]

GENESIS: Final = 0
"""The position before every record: an append after it may be ordered anywhere, and a subscription to it begins with
the oldest record that is left (RID_GENESIS of the dissertation)."""
RECENT: Final = -1
"""The position behind every record so far: a subscription to it begins with the first record that is ordered after
everything that had returned when it was opened (RID_RECENT of the dissertation)."""

Record = tuple[int, bytes]
"""(tag, payload): the tag, 1 to 255, is the record's kind; a subscriber can select records by their tags."""

ShardPolicy = Callable[[Record], int]
"""Chooses the shard of a record."""


def always_false() -> bool:
    """The default of `OrderedLog.wait_past`: the wait is never stopped."""
    return False


class LogRecord(NamedTuple):
    """A record read from a log. `time`: when it was ordered, ns since the epoch; `tag`: its kind."""

    gsn: int
    time: int
    tag: int
    payload: bytes

    @property
    def lsn(self) -> int:
        """The LSN of a record that was read from a journal: there `gsn` contains the LSN."""
        return self.gsn


class LogFailed(Exception):
    """An append failed and its outcome is unknown: a write or sync failed, and the log rejects appends until it is
    opened again; or the servers of the log did not answer in time."""


class Trimmed(LogDBError):
    """The record was trimmed. `oldest`: the oldest GSN that can be read."""

    def __init__(self, gsn: int, oldest: int) -> None:
        self.gsn, self.oldest = gsn, oldest
        super().__init__(f"record {gsn} was trimmed; the oldest one left is {oldest}")


def check_after(after: int | None, newest: int) -> None:
    """Raise ValueError if `after` is later than the `newest` GSN."""
    if after is not None and after > newest:
        raise ValueError(f"there is no record {after} yet; the newest is {newest}")


def first_position(gsn: int, oldest: Callable[[], int], tail: Callable[[], int]) -> int:
    """Where a subscription to `gsn`, or to `GENESIS` or `RECENT`, begins in a log with these verbs."""
    if gsn == GENESIS:
        return oldest()
    return tail() + 1 if gsn == RECENT else gsn


class NotOfThisShard(LogDBError):
    """The shard does not exist, or the record with that GSN is stored on another one."""

    def __init__(self, gsn: int, shard: int) -> None:
        self.gsn, self.shard = gsn, shard
        super().__init__(f"record {gsn} is not on shard {shard}")


class AppendId(NamedTuple):
    """The id of an append, for `TraceableLog.outcome`. `str` and `AppendId.parse` convert it, so that other processes
    can use it.

    `client`: the random number of the client. `numbers`: the sequence numbers of the records, in order, as runs (first
    number, count); a first number of 0 means that the records were never sent.
    """

    client: int
    numbers: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"{self.client:016x}-" + ",".join(f"{first}+{count}" for first, count in self.numbers)

    @classmethod
    def parse(cls, text: str) -> AppendId:
        """Parse `text`, the result of `str`. Raises ValueError."""
        client, dash, runs = text.partition("-")
        try:
            numbers = [run.partition("+") for run in runs.split(",")]
            found = cls(int(client, 16), tuple((int(first), int(count)) for first, _, count in numbers))
        except ValueError:
            dash = ""
        if not dash or str(found) != text:
            raise ValueError(f"{text!r} is not an append id such as 00c0ffee00c0ffee-17+3")
        return found


class AppendUnknown(LogFailed):
    """The records of an append may be in the log or not. `append_id`: its id, for `TraceableLog.outcome`. `why`: the
    cause."""

    def __init__(self, why: str, append_id: AppendId) -> None:
        self.why, self.append_id = why, append_id
        super().__init__(f"the outcome of append {append_id} is unknown: {why}")

    def __reduce__(self) -> tuple[object, ...]:
        return AppendUnknown, (self.why, self.append_id)


class Batch(NamedTuple):
    """The `records` of the subscribed tags with `first` <= GSN < `end`, in order. The next batch begins at `end`, so a
    missing batch would be noticed. `trimmed`: the GSNs of records of any tag that were trimmed one by one
    (`RecordTrimmable`)."""

    first: int
    end: int
    records: list[LogRecord]
    trimmed: tuple[int, ...] = ()


class View(NamedTuple):
    """The numbers of the shards that accept appends (`active`) and of those that are read-only (`finalized`)."""

    active: frozenset[int]
    finalized: frozenset[int]


class Subscription(Protocol):
    """An endless iterator of batches that waits at the end of the log."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...

    def poll(self, timeout: float | None) -> Batch | None:
        """The next batch, or None if there is none within `timeout` seconds (None: no limit).

        Raises Trimmed if the log was trimmed past the subscription's position, Corruption, and StopIteration after
        `close`.
        """

    def close(self) -> None:
        """End the subscription; a waiting `poll` raises StopIteration."""


class IncomingPayload(Protocol):
    """The payload of a large record, `length` bytes, which is received in parts."""

    length: int

    def write(self, data: bytes) -> None:
        """Append `data` to the payload; once the payload is complete, it is on the medium when this returns. For one
        thread at a time.

        Raises Unavailable if the disk is full, OSError.
        """

    def discard(self) -> None:
        """Discard the payload, unless its record was ordered. Can be called repeatedly."""


@runtime_checkable
class Log(Protocol):
    """A totally ordered, durable log of records."""

    def append(self, records: Sequence[Record], after: int | None = None) -> Sequence[int]:
        """Append `records`, pairs (tag, payload), in this order. Returns their GSNs once they are durable and ordered.

        In an engine with one shard, they are consecutive. A policy that distributes them over several shards keeps
        their order on each shard. With `after=None`, the records are ordered after every append that had returned when
        this was called. Otherwise they are ordered after the record with the GSN `after`, which the caller has obtained
        from the log, and no other order is guaranteed (dissertation 4.2.2, InsertAfter); some engines do this faster.

        Raises Unavailable (nothing was appended), LogFailed (outcome unknown); ValueError if the engine detects that
        there is no record `after`.
        """

    def append_to_shard(
        self, records: Sequence[Record], shard: int, after: int | None = None
    ) -> tuple[Sequence[int], int]:
        """Append `records` to `shard`. Returns (GSNs, shard). `after`: see `append`.

        Raises the errors of `append`, NotOfThisShard, and Unavailable for a finalized shard.
        """

    def read_record(self, gsn: int, shard: int, timeout: float | None = None) -> LogRecord:
        """Read the record at `gsn` on `shard`. Linearizable: waits until the log has reached `gsn`, and never reports a
        record as absent.

        Raises Trimmed, NotOfThisShard, Corruption, TimeoutError after `timeout` seconds.
        """

    def subscribe(self, gsn: int, tags: Collection[int] | None = None) -> Subscription:
        """Subscribe to every record from `gsn` on, in order; with `tags`, only to records with these. `GENESIS`: from
        the oldest one that is left; `RECENT`: to those that are ordered from now on. Raises Trimmed."""

    def trim(self, gsn: int) -> None:
        """Allow the log to delete records before `gsn`. Raises ValueError past the tail, LogFailed."""

    def tail(self) -> int:
        """A GSN not less than that of any append that had returned when this was called; 0 for an empty log."""

    def oldest(self) -> int:
        """The oldest GSN that is not trimmed, whether or not a record has it yet."""

    def set_shard_policy(self, policy: ShardPolicy) -> None:
        """Let `policy` choose the shard of each record of `append`. If that shard accepts no appends, the
        engine uses another one."""

    def view(self) -> View:
        """The shards, including every change that had returned when this was called."""

    def close(self) -> None:
        """Close the log and release its resources. Waiting calls end."""


@runtime_checkable
class TraceableLog(Log, Protocol):
    """A log that can report the outcome of an append that ended with `AppendUnknown`."""

    def outcome(self, append_id: AppendId, timeout: float | None = None) -> Sequence[int | None]:
        """The outcome of an append: for each of its records the GSN, or None if the record is not in the log and never
        will be.

        The client that appended continues until the outcome is certain, and returns it for its latest unknown appends.
        After that client has ended, any other client can find out which of the records are in the log. Raises
        AppendUnknown if the outcome is not certain after `timeout` seconds (None: the timeout of the log).
        """


@runtime_checkable
class Reconfigurable(Log, Protocol):
    """A log whose shards and servers can be changed during appends (§3.3.4).

    A change raises Unavailable if it is rejected (for example, because there is no spare server) and LogFailed if its
    outcome is unknown. Neither a change nor the failure of a server makes an append without a given shard fail, as long
    as some shard accepts appends.
    """

    def add_shard(self) -> int:
        """Add a shard of spare servers; returns its number. The shard accepts appends from now on."""

    def finalize_shard(self, shard: int, grace: int = 0) -> None:
        """Make a shard read-only after `grace` more cuts of the log (0: immediately).

        Returns once the change is decided; with `grace`, the shard still accepts appends for a short time after that.
        """

    def replace_server(self, server: int) -> int:
        """Replace a server by a spare one; returns the number of the new server. The old server serves until the new
        one has caught up, and is then wiped."""

    def add_replica(self, shard: int) -> int:
        """Add a server to a finalized shard; returns its number. It serves reads as soon as it has copied the shard."""

    def set_cut_interval(self, seconds: float) -> None:
        """Set the minimum interval in seconds between two ordering decisions (0: none). A longer interval means fewer,
        larger cuts and a higher append latency."""

    def members(self, shard: int) -> tuple[int, ...]:
        """The numbers of the servers of a shard. Raises NotOfThisShard."""


@runtime_checkable
class RecordTrimmable(Log, Protocol):
    """A log that can trim single records (Corfu, section 2.6). An engine that cannot raises Unavailable."""

    def trim_records(self, gsns: Collection[int]) -> None:
        """Allow the log to delete the records with these `gsns`, wherever they are. Once this has returned, a read of
        one raises Trimmed, and a subscription that passes it has its GSN in `Batch.trimmed`; if this raises LogFailed,
        either may happen. Trimming a record again has no effect.

        Raises ValueError for a GSN behind the tail, Unavailable, LogFailed.
        """


@runtime_checkable
class StreamLog(Log, Protocol):
    """A log with materialized streams (vCorfu; dissertation 3.4.3): the records of a stream, such as the updates of one
    object, are also stored together. An engine without them raises Unavailable. Streams have numbers from 1 on."""

    def add_stream_shard(self) -> int:
        """Add a shard of spare servers as stream replicas; returns its number. The streams are divided among all such
        shards. Raises Unavailable, LogFailed."""

    def append_to_streams(self, records: Sequence[Record], streams: Collection[int]) -> Sequence[int]:
        """Append `records` to the log and to each of `streams`, at most 16, at once. Returns their GSNs.

        Raises as `append`, Unavailable if the log has no shard of streams, ValueError for no stream or more than 16, or
        a number below 1."""

    def read_stream(self, stream: int, gsn: int = 1, timeout: float | None = None) -> Batch:
        """Read `stream` from `gsn` on, from one stream replica. Linearizable: the batch has all records that were in
        the stream when this was called, in the order of the log, or as many as it has room for. The next ones are at
        its `end` or behind.

        Raises Trimmed, Corruption, Unavailable, TimeoutError after `timeout` seconds."""


@runtime_checkable
class OrderedLog(Log, Protocol):
    """A log of this process, which splits `append` into `order` and `wait_durable`: a caller can decide as soon as the
    order is known, and acknowledge once the record is durable.

    Invariants: `order` numbers records in the order of the calls, without waiting for the disk; `durable` never
    decreases and only covers records that are on the medium; after a failed write or sync it stays the same.
    """

    durable: int
    """The last GSN up to which all records are durable."""

    sync_s: float
    """The running median of the duration of a sync, in seconds."""

    def order(self, records: Sequence[Record]) -> int:
        """Assign consecutive GSNs to `records`; returns the first. Raises Unavailable, LogFailed."""

    def receive(self, length: int) -> IncomingPayload:
        """Begin to receive a payload of `length` bytes in parts. Raises Unavailable, LogFailed, OSError."""

    def order_incoming(self, tag: int, incoming: IncomingPayload) -> int:
        """Like `order`, for one record with `tag` and the complete payload `incoming`, which `receive` returned.

        Raises LogFailed.
        """

    def payload(self, gsn: int, part_bytes: int) -> tuple[int, int, Iterator[bytes]]:
        """(tag, length, the payload in parts of `part_bytes`) of the durable record `gsn`.

        The parts stay readable if the log is trimmed meanwhile. Raises Trimmed, and Corruption, possibly only with the
        last part.
        """

    def wait_durable(self, gsn: int) -> None:
        """Wait until `gsn` is durable. Concurrent callers share one sync. Raises LogFailed."""

    def wait_past(self, gsn: int, timeout: float | None, stopped: Callable[[], bool] = always_false) -> bool:
        """Wait until `durable` > `gsn`; False after `timeout` seconds, or once `stopped()`. Does not cause a sync.

        Raises LogFailed if the log has failed or is closed.
        """

    def wake(self) -> None:
        """Make all waiting calls of `wait_past` check `stopped` again."""

    def end(self) -> int:
        """The GSN that the next record will get."""

    @property
    def unsynced_bytes(self) -> int:
        """Size of the records in memory that are ordered and not durable yet."""

    def size(self, first: int = 0) -> int:
        """The size in bytes of the log's files from the one that contains record `first` on."""

    def begin_file(self) -> int:
        """Start a new file with the next record, so that `trim` can delete all records before it; returns its GSN.

        Raises Unavailable, LogFailed.
        """

    def oldest_after_trim(self, gsn: int) -> int:
        """The oldest GSN that would remain on the medium after `trim(gsn)`, which deletes only whole files."""

    def scan(self, first: int, end: int) -> Iterator[LogRecord]:
        """Durable records `first` to `end` - 1, without waiting. Raises Trimmed, Corruption."""

    def refresh(self) -> int:
        """Update `durable` with what another process has made durable; returns it."""

    def last_at_time(self, time: int) -> int:
        """The last durable GSN ordered at or before `time` (ns since the epoch); `oldest()` - 1 if all are newer."""

    def time_of(self, gsn: int) -> int:
        """When the durable record `gsn` was ordered, ns since the epoch; strictly increasing. Raises Trimmed."""
