"""Checks of a history and of the records that the servers hold at the end. A check raises `Failure`.

`Truth` is read from the servers at the end (`Healing.copies` of the engine). Records that were trimmed before are known
from the answers to clients: all answers about one GSN must agree (`check_agreement`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field

from logdb.errors import Unavailable
from logdb.log import requests as calls
from logdb.log.contract import AppendId, AppendUnknown, Batch, LogRecord, NotOfThisShard, Record, Trimmed
from tests.sim.history import KILLED, SCATTERED, History, Operation
from tests.sim.world import Failure

SMALL_BATCH_BYTES = 500
"""The smallest `batch_bytes` of a client."""


@dataclass(slots=True)
class Copy:
    """The records of a shard from `first` on, as stored on one of its servers.

    `owned`: the GSNs of the shard, as (first, count). `records`: without the engine's header of a payload.
    `authors`: by GSN, the identity of a record when an append is retried, such as (client, sequence number).
    """

    member: str
    shard: int
    first: int
    owned: list[tuple[int, int]]
    records: list[LogRecord]
    authors: dict[int, Hashable]


@dataclass(slots=True)
class Truth:
    """The log at the end: records `oldest` to `tail`, joined from all copies.

    `records`: (time, tag, payload), `owner`: the shard, `authors`: as in `Copy`, each by GSN.
    """

    oldest: int
    tail: int
    records: dict[int, tuple[int, int, bytes]] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    authors: dict[int, Hashable] = field(default_factory=dict)


def truth_of(copies: list[Copy], oldest: int, tail: int, *, is_dense: bool = True) -> Truth:
    """Join the copies. Raises Failure unless they agree and every GSN belongs to one shard and one record; in an engine
    whose GSNs are not dense, to one shard and record at most."""
    truth = Truth(oldest, tail)
    for copy in copies:
        owned = set()
        for first, count in copy.owned:
            for gsn in range(max(first, oldest), min(first + count, tail + 1)):
                owned.add(gsn)
                if truth.owner.setdefault(gsn, copy.shard) != copy.shard:
                    raise Failure("a GSN belongs to one shard", f"{gsn} belongs to {truth.owner[gsn]} and {copy.shard}")
        for record in copy.records:
            gsn = record.gsn
            if not oldest <= gsn <= tail:
                continue
            if gsn not in owned:
                raise Failure("a member returns only records of its shard", f"{copy.member} returns {gsn}")
            owned.discard(gsn)
            found, author = (record.time, record.tag, record.payload), copy.authors[gsn]
            if truth.records.setdefault(gsn, found) != found or truth.authors.setdefault(gsn, author) != author:
                known = truth.records[gsn], truth.authors[gsn]
                raise Failure(
                    "the same record at the same GSN", f"{copy.member} has {found} of {author} at {gsn}, not {known}"
                )
        lacking = [gsn for gsn in owned if gsn >= max(copy.first, oldest)]
        if lacking:
            raise Failure("a member has every record of its shard", f"{copy.member} lacks {sorted(lacking)[:10]}")
    missing = [gsn for gsn in range(oldest, tail + 1) if gsn not in truth.owner] if is_dense else []
    if missing:
        raise Failure("GSNs are dense", f"{missing[:10]} of {oldest} to {tail} belong to no shard")
    return truth


def check_unique(truth: Truth) -> None:
    """No record is in the log twice, neither by its author nor by its payload."""
    seen: dict[Hashable, int] = {}
    payloads: dict[Hashable, int] = {}
    for gsn, author in truth.authors.items():
        payload = truth.records[gsn][2]
        for what, where in ((author, seen), (payload, payloads)):
            if where.setdefault(what, gsn) != gsn:
                raise Failure("no record twice", f"{payload!r} is at {where[what]} and {gsn}")


def check_times(truth: Truth) -> None:
    """Times do not decrease along the log."""
    time = 0
    for gsn in sorted(truth.records):
        if truth.records[gsn][0] < time:
            raise Failure("times grow along the log", f"record {gsn} is older than the one before it")
        time = truth.records[gsn][0]


def check_agreement(history: History, truth: Truth) -> dict[int, Record]:
    """Return every record that a client has seen, by GSN. Raises Failure unless all agree and each record is at one GSN
    only (even if one of two was trimmed since)."""
    records: dict[int, Record] = {gsn: (tag, payload) for gsn, (_, tag, payload) in truth.records.items()}

    def add(gsn: int, record: Record, source: str) -> None:
        if records.setdefault(gsn, record) != record:
            raise Failure("the same record at the same GSN", f"{source}: {record} at {gsn}, which is {records[gsn]}")

    for operation in appends(history):
        for gsn, record in zip(operation.result.gsns, operation.request.records, strict=True):
            add(gsn, record, f"acknowledged to {operation.client}")
    for operation in history.operations:
        if type(operation.request) is calls.Read and isinstance(operation.result, LogRecord):
            found = operation.result
            if found.gsn != operation.request.gsn:
                raise Failure("a read returns the record asked for", f"{operation}")
            add(found.gsn, (found.tag, found.payload), f"read by {operation.client}")
    for operation, fates in outcomes(history):
        for gsn, record in fates:
            if gsn is not None:
                add(gsn, record, f"returned to {operation.client}, of an append of {operation.reads.client}")
    for following in history.followings:
        for gsn, _, record in following.records:
            add(gsn, record, f"delivered to a subscriber of {following.client}")
    for operation in history.operations:
        if type(operation.request) is calls.ReadStream and isinstance(operation.result, Batch):
            for record in operation.result.records:
                add(record.gsn, (record.tag, record.payload), f"read from a stream by {operation.client}")
    positions: dict[bytes, int] = {}
    for gsn, (_, payload) in records.items():
        if positions.setdefault(payload, gsn) != gsn:
            raise Failure("no record twice", f"{payload!r} is at {gsn}, and was at {positions[payload]}")
    return records


def appends(history: History) -> list[Operation]:
    """Return the acknowledged appends."""
    return [
        operation
        for operation in history.operations
        if type(operation.request) is calls.Append and type(operation.result) is calls.AppendResult
    ]


def outcomes(history: History) -> list[tuple[Operation, list[tuple[int | None, Record]]]]:
    """Return the answered requests for the outcome of an append, with the GSN (or None) of each record."""
    return [
        (operation, list(zip(operation.result, operation.reads.request.records, strict=True)))
        for operation in history.operations
        if type(operation.request) is calls.Outcome and isinstance(operation.result, list)
    ]


def in_the_log(history: History, truth: Truth) -> list[tuple[AppendId, list[int | None]]]:
    """Return the appends of unknown outcome whose records were all sent and are all in the log: the id, and the GSN of
    each record (None if it was not sent)."""
    positions = {payload: gsn for gsn, (_, _, payload) in truth.records.items()}
    found = []
    for operation in history.operations:
        if type(operation.request) is not calls.Append or not isinstance(operation.result, AppendUnknown):
            continue
        append_id = operation.result.append_id
        assert append_id is not None
        sent = [first > 0 for first, count in append_id.numbers for _ in range(count)]
        gsns = [positions.get(payload) for _, payload in operation.request.records]
        if sent == [gsn is not None for gsn in gsns]:
            found.append((append_id, gsns))
    return found


def check_acknowledged(history: History, truth: Truth) -> None:
    """Acknowledged records are at their GSN and on their shard, unless they were trimmed."""
    for operation in appends(history):
        result = operation.result
        for gsn, shard, (tag, payload) in zip(result.gsns, result.shards, operation.request.records, strict=True):
            if gsn > truth.tail:
                raise Failure("acknowledged records are present", f"{gsn} is behind the tail {truth.tail}")
            if gsn < truth.oldest or (gsn in history.trims and gsn not in truth.records):
                continue
            if gsn not in truth.records or truth.records[gsn][1:] != (tag, payload):
                raise Failure("acknowledged records are present", f"{payload!r} is not at {gsn}")
            if truth.owner[gsn] != shard:
                raise Failure("acknowledged records are on their shard", f"{gsn} is not on {shard}")


def check_refused(history: History, records: dict[int, Record]) -> None:
    """Records of refused appends were never in the log."""
    payloads = {payload for _, payload in records.values()}
    for operation in history.operations:
        if type(operation.request) is calls.Append and isinstance(operation.result, (Unavailable, NotOfThisShard)):
            for _, payload in operation.request.records:
                if payload in payloads:
                    raise Failure("refused records are not in the log", f"{payload!r}")
    for operation, fates in outcomes(history):
        for gsn, (_, payload) in fates:
            if gsn is None and payload in payloads:
                raise Failure("records that will never be in the log are not there", f"{payload!r}: {operation}")


def check_order(history: History, records: dict[int, Record]) -> None:
    """Appends and tails are linearizable: an operation that starts after another one has returned gets a larger GSN.

    Sorted by time: an append raises `newest` when it returns, and every later append and tail must be above that; a
    tail raises it likewise. Appends of unknown outcome count if their records are in the log.
    """
    events: list[tuple[int, int, list[int], Operation]] = []
    positions = {payload: gsn for gsn, (_, payload) in records.items()}
    for operation in history.operations:
        kind = type(operation.request)
        if kind is calls.Append and type(operation.result) is calls.AppendResult:
            gsns = operation.result.gsns
            events += [(operation.invoked, 0, gsns, operation), (operation.returned, 1, gsns, operation)]
        elif kind is calls.Tail and type(operation.result) is int:
            gsns = [operation.result]
            events += [(operation.invoked, 2, gsns, operation), (operation.returned, 1, gsns, operation)]
        elif kind is calls.Append:
            found = [positions[payload] for _, payload in operation.request.records if payload in positions]
            events += [(operation.invoked, 0, found, operation)]
    events.sort(key=lambda moment: moment[0])
    newest = 0
    for _, what, gsns, operation in events:
        if what == 1:
            newest = max([newest, *gsns])
        elif gsns and min(gsns) < newest + (what == 0):
            raise Failure("appends are linearizable", f"{operation} started after GSN {newest} had been returned")


def check_within_append(history: History) -> None:
    """The records of one append are in their order, unless the policy scattered them."""
    for operation in appends(history):
        result = operation.result
        if operation.reads != SCATTERED and list(result.gsns) != sorted(set(result.gsns)):
            raise Failure("the records of an append are in order", f"{operation}")


def check_followings(history: History, truth: Truth, records: dict[int, Record]) -> None:
    """Subscribers received every record of their tags, and no others, up to the tail."""
    for following in history.followings:
        delivered = {gsn for gsn, _, _ in following.records}
        tags = following.tags
        gone = {gsn for gsn in following.trimmed if gsn not in delivered}
        if not gone <= history.trims:
            raise Failure("only trimmed records are reported as trimmed", f"{sorted(gone - history.trims)[:10]}")
        unknown = [
            gsn for gsn in delivered - history.trims if truth.oldest <= gsn <= truth.tail and gsn not in truth.records
        ]
        if unknown:
            raise Failure("a subscriber receives existing records only", f"{following.client} got {unknown[:10]}")
        for gsn, record in records.items():
            if not following.start <= gsn < min(following.reached, truth.tail + 1):
                continue
            if gsn not in gone and (gsn in delivered) != (tags is None or record[0] in tags):
                what = "missed" if gsn not in delivered else "got"
                raise Failure("subscribers agree", f"a subscriber of {following.client} for {tags} {what} {gsn}")
        if isinstance(following.ended, Trimmed):
            check_trimmed(history, following.reached, following.ended)


def check_streams(history: History, records: dict[int, Record]) -> None:
    """A read of a stream returns the stream's records up to its end, and ends behind all that had been appended."""
    of_payload = {
        payload: operation.request.streams
        for operation in history.operations
        if type(operation.request) is calls.Append
        for _, payload in operation.request.records
    }
    by_stream: dict[int, list[int]] = {}
    for gsn, (_, payload) in sorted(records.items()):
        for stream in of_payload.get(payload, ()):
            by_stream.setdefault(stream, []).append(gsn)
    done = appends(history)
    for operation in history.operations:
        if type(operation.request) is not calls.ReadStream or not isinstance(operation.result, Batch):
            continue
        stream, batch = operation.request.stream, operation.result
        found = {record.gsn for record in batch.records}
        expected = {gsn for gsn in by_stream.get(stream, ()) if batch.first <= gsn < batch.end}
        if wrong := found - expected:
            raise Failure("a stream has its own records only", f"{operation} got {sorted(wrong)[:10]}")
        if missed := expected - found - history.trims:
            raise Failure("a read of a stream misses none of its records", f"{operation} missed {sorted(missed)[:10]}")
        payload_bytes = sum([len(record.payload) for record in batch.records])
        if payload_bytes + calls.RECORD_OVERHEAD_BYTES * (len(found) + len(batch.trimmed)) >= SMALL_BATCH_BYTES:
            continue  # there may have been no room for all
        for append in done:
            if stream in append.request.streams and append.returned < operation.invoked:
                late = [gsn for gsn in append.result.gsns if gsn >= batch.end]
                if late:
                    raise Failure("reads of streams are linearizable", f"{operation} ends before {late[:10]}")


def check_record_trims(history: History, truth: Truth) -> None:
    """No server has a record that was trimmed by itself, once that has returned."""
    left = [gsn for gsn in sorted(history.trimmed) if gsn in truth.records]
    if left:
        raise Failure("trimmed records stay trimmed", f"{left[:10]}")


def check_trimmed(history: History, gsn: int, error: Trimmed) -> None:
    """`Trimmed` is returned only for records that were trimmed."""
    if gsn in history.trims and error.oldest <= max(history.highest_trim, 1):
        return
    if gsn >= error.oldest or error.oldest > max(history.highest_trim, 1):
        detail = f"{gsn}: {error}, but trims went to {history.highest_trim}"
        raise Failure("only trimmed records are reported as trimmed", detail)


def check_reads(history: History, truth: Truth) -> None:
    """Reads never return "absent" for existing records."""
    for operation in history.operations:
        request, result = operation.request, operation.result
        if type(request) is not calls.Read or not operation.returned:
            continue
        if isinstance(result, Trimmed):
            check_trimmed(history, request.gsn, result)
        elif isinstance(result, TimeoutError):
            if request.deadline is None:
                raise Failure("only calls with a deadline time out", f"{operation}")
        elif isinstance(result, NotOfThisShard):
            if isinstance(operation.reads, tuple):  # otherwise the shard and the record may be newer
                raise Failure("a read never reports an existing record as absent", f"{operation}")
        elif isinstance(result, LogRecord):
            if operation.reads == "wrong":
                raise Failure("a shard returns its own records only", f"{operation}")
            time = truth.records.get(request.gsn, (result.time,))[0]
            if truth.owner.get(request.gsn, request.shard) != request.shard or time != result.time:
                raise Failure("a read returns the record asked for", f"{operation}")


def check_tails(history: History, truth: Truth) -> None:
    """A tail is the GSN of an existing record; the oldest GSN never decreases and follows the trims; versions of views
    grow."""
    if truth.oldest > max(1, history.highest_trim):
        raise Failure("only trimmed records are gone", f"{truth.oldest} > {history.highest_trim}")
    for operation in history.operations:
        kind, result = type(operation.request), operation.result
        if kind is calls.Tail and type(result) is int and result > truth.tail:
            raise Failure("a tail exists", f"{operation}, but the log ends at {truth.tail}")
        if kind in (calls.Oldest, calls.Trim) and type(result) is int and result > max(1, history.highest_trim):
            raise Failure("only trimmed records are gone", f"{operation}")
    for kind, name in ((calls.Oldest, "the oldest GSN"), (calls.View, "the version of the view")):
        check_grows(history, kind, name)


def check_grows(history: History, kind: type, name: str) -> None:
    """An answer is not smaller than any that was returned before the request."""
    events = []
    for operation in history.operations:
        result = operation.result
        value = getattr(result, "version", result)
        same = type(operation.request) is kind or (kind is calls.Oldest and type(operation.request) is calls.Trim)
        if same and type(value) is int:
            events += [(operation.invoked, False, value), (operation.returned, True, value)]
    newest = 0
    invoked: dict[int, int] = {}
    for operation in history.operations:
        invoked[operation.returned] = operation.invoked
    floors: dict[int, int] = {}
    for moment, returned, value in sorted(events):
        if not returned:
            floors[moment] = newest
        else:
            if value < floors[invoked[moment]]:
                raise Failure(f"{name} never goes back", f"{value} after {floors[invoked[moment]]}")
            newest = max(newest, value)


def check_points_in_time(history: History, truth: Truth) -> None:
    """A point in time separates the records ordered by then from those ordered later, among those that existed."""
    for operation in history.operations:
        if type(operation.request) is not calls.AtTime or type(operation.result) is not int:
            continue
        time, gsn = operation.request.time, operation.result
        if gsn > truth.tail or (gsn in truth.records and truth.records[gsn][0] > time):
            raise Failure("a point in time", f"{operation}: record {gsn} is younger")
    for operation in history.operations:
        if type(operation.request) is not calls.AtTime or type(operation.result) is not int:
            continue
        for other in appends(history):
            if other.returned > operation.invoked:
                continue
            for gsn in other.result.gsns:
                record = truth.records.get(gsn)
                if gsn > operation.result and record is not None and record[0] <= operation.request.time:
                    raise Failure("a point in time", f"{operation}: record {gsn} is as old")


def excuse_losses(history: History, truth: Truth, losable: Collection[int]) -> int:
    """Judge calls as not answered whose records the log has lost, as it may. Returns the number of records."""
    excused: set[int] = set()
    for operation in history.operations:
        request, result = operation.request, operation.result
        expected: Iterable[tuple[int | None, Record | None]] = ()
        if isinstance(result, calls.AppendResult):
            expected = zip(result.gsns, request.records, strict=True)
        elif type(request) is calls.Outcome and isinstance(result, list):
            expected = zip(result, operation.reads.request.records, strict=True)
        elif type(request) is calls.Read and isinstance(result, NotOfThisShard):
            expected = ((request.gsn, None),)
        missing = {gsn for gsn, record in expected if gsn in losable and _is_lost(truth, gsn, record)}
        if missing:
            excused |= missing
            operation.result = KILLED
    return len(excused)


def _is_lost(truth: Truth, gsn: int, record: Record | None) -> bool:
    """Whether the log has nothing at this GSN, or another record than this one."""
    now = truth.records.get(gsn)
    return now is None or (record is not None and now[1:] != record)


def check_all(history: History, truth: Truth) -> None:
    """Run all checks."""
    check_unique(truth)
    check_times(truth)
    records = check_agreement(history, truth)
    check_acknowledged(history, truth)
    check_refused(history, records)
    check_within_append(history)
    check_order(history, records)
    check_followings(history, truth, records)
    check_record_trims(history, truth)
    check_streams(history, records)
    check_reads(history, truth)
    check_tails(history, truth)
    check_points_in_time(history, truth)


def check_answered(history: History) -> None:
    """Every call has been answered, except those of killed clients."""
    for operation in history.operations:
        if not operation.returned and type(operation.request) is not calls.Next:
            raise Failure("every call is answered", f"{operation}")


__all__ = ["KILLED", "Copy", "Truth", "check_all", "check_answered", "excuse_losses", "truth_of"]
