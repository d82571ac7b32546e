"""Conversion between the types of the database and those of `database.proto`, shared by several verbs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from logdb import errors
from logdb.api.results import Change
from logdb.embedded.large_values import IncomingValue, OutgoingValue
from logdb.errors import LogDBError, TransactionTooLarge, ValueTooLarge, shown
from logdb.store.conditions import check as check_condition
from logdb.store.folds import check_fold
from logdb.store.limits import MAX_KEY_BYTES, MAX_TRANSACTION_BYTES, MAX_VALUE_BYTES, check_key, check_size
from logdb.store.ranges import MAX_BOUND_BYTES, ScanRange
from logdb.store.records import Condition, Fold, Place, Range, are_appends, number_in
from logdb.txn.transaction import TransactionOver
from logdb.wire.limits import MAX_POSITION, WireError
from logdb.wire.proto import database_pb2 as pb

PROTOCOL: Final = 7
RELEASE: Final = metadata.version("logdb")
METHOD: Final = f"/{pb.DESCRIPTOR.services_by_name['Database'].full_name}/Calls"

BATCH_BYTES: Final = 1 << 20
"""Maximum size of the requests or responses that share a message; a larger one is sent alone."""
BATCH_CALLS: Final = 32
"""Maximum number of requests that share a message: with two messages in flight, client and server work in parallel."""
PAGE_BYTES: Final = 1 << 20
"""A page of a long answer ends after the item with which it reaches this size."""
PAGE_KEYS: Final = 16_384
"""Maximum number of keys in one request; the client requests the others next."""
PAGE_RANGES: Final = 1_000
"""Maximum number of ranges in one request; a range takes longer than a key."""
MAX_REQUESTS: Final = 4_096
"""Maximum number of requests in one message: an empty request takes two bytes in it and a hundred in memory."""
PART_BYTES: Final = 512 << 10
"""A larger request or value is sent in parts of this size; other requests are sent between two parts."""
WHOLE_BYTES: Final = 3 << 19
"""Maximum size of a response that is sent whole, such as a page of small rows."""
WINDOW_BYTES: Final = 2 << 20
"""Maximum size of the parts of a request that a client has sent and the server has not acknowledged."""
LARGE_BYTES: Final = 16 << 20
"""Minimum size of a value that is sent beside its request and becomes a segment of the log with an open file."""
MAX_REQUEST_BYTES: Final = MAX_TRANSACTION_BYTES + (64 << 20)
"""Maximum size of a request: a transaction of maximum size, with its read set."""
MAX_QUESTION_BYTES: Final = 16 << 20
"""Maximum size of a request without writes."""
MAX_MESSAGE_BYTES: Final = 4 << 20
"""Maximum size of a message: a batch that is almost full, and one more request or response that is sent whole."""
MESSAGE_OPTIONS: Final = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

Written = bytes | IncomingValue | None

NUMBERS: Final = {
    verb.name: tuple(
        field.name
        for field in (verb.message_type.fields if verb.message_type else ())
        if field.type == FieldDescriptor.TYPE_UINT64 and field.name not in ("client", "lease")
    )
    for verb in pb.Request.DESCRIPTOR.oneofs_by_name["verb"].fields
}
"""The fields of each verb that hold versions, times, sequence numbers and counts, and not random numbers."""


_NUMBERS: Final = {verb: attrgetter(*names) for verb, names in NUMBERS.items() if names}


def check_numbers(verb: str, arguments: Any) -> None:
    """Raises ValueError for a number that no version, time, sequence number or count can have."""
    get = _NUMBERS.get(verb)
    if get is None:
        return
    numbers: Any = get(arguments)
    if (numbers if numbers.__class__ is int else max(numbers)) > MAX_POSITION:
        name = next(name for name in NUMBERS[verb] if getattr(arguments, name) > MAX_POSITION)
        raise ValueError(f"{name} is {getattr(arguments, name)} in a request ({verb}), the limit is 2^63 - 1")


def _check_count(raw: bytes) -> None:
    """Walk over the requests of a message. Raises WireError for more than MAX_REQUESTS."""
    at, found, size = 0, 0, len(raw)
    try:
        while at < size:
            kind, at = raw[at] & 7, at + 1
            length, shift = raw[at] & 127, 7
            while raw[at] > 127 and shift < 70:
                at += 1
                length, shift = length | (raw[at] & 127) << shift, shift + 7
            at += 1 + (length if kind == 2 else 0)
            found += 1
            if found > MAX_REQUESTS or kind not in (0, 2):
                raise WireError(f"a message of {size:,} bytes with more than {MAX_REQUESTS:,} requests, or with none")
    except IndexError:
        raise WireError(f"a message of {size:,} bytes that was cut off") from None


def requests_of(raw: bytes) -> pb.Requests:
    """Raises WireError."""
    if len(raw) > 2 * MAX_REQUESTS:
        _check_count(raw)
    try:
        return pb.Requests.FromString(raw)
    except DecodeError as error:
        raise WireError(f"a message of {len(raw):,} bytes holds no requests ({error})") from error


def responses_of(raw: bytes) -> pb.Responses:
    """Raises WireError."""
    try:
        return pb.Responses.FromString(raw)
    except DecodeError as error:
        raise WireError(f"a message of {len(raw):,} bytes holds no responses ({error})") from error


def response_of(raw: bytes) -> pb.Response:
    """A response that was received in parts. Raises WireError."""
    try:
        return pb.Response.FromString(raw)
    except DecodeError as error:
        raise WireError(f"{len(raw):,} bytes received in parts are not a response ({error})") from error


def check_request(request: pb.Request, large: Sequence[bytes]) -> int:
    """The bytes of a request without its large values. Raises TransactionTooLarge if servers would reject it."""
    size = request.ByteSize()
    if size > PART_BYTES or large:
        limit = limit_of(request.WhichOneof("verb") or "")
        whole = size + sum(map(len, large))
        if whole > limit:
            raise TransactionTooLarge(whole, limit, ", as a message to the server,")
    return size


def limit_of(verb: str) -> int:
    """The maximum size of a request, in bytes."""
    return MAX_REQUEST_BYTES if verb in ("write", "commit") else MAX_QUESTION_BYTES


def uploads_of(request: pb.Request, size: int, large: Sequence[bytes]) -> Iterator[pb.Request]:
    """The messages that send a request with its large values in parts. `size`: of the request's own bytes."""
    verb = request.WhichOneof("verb") or ""
    for number, value in enumerate(large, 1):
        yield from _uploads(request.id, number, value, verb)
    if size > PART_BYTES:
        yield from _uploads(request.id, 0, request.SerializeToString(), verb)
    else:
        yield request


def _uploads(request: int, number: int, data: bytes, verb: str) -> Iterator[pb.Request]:
    for at in range(0, len(data), PART_BYTES):
        part = data[at : at + PART_BYTES]
        upload = pb.Upload(number=number, length=len(data), offset=at, data=part, verb=verb)
        yield pb.Request(id=request, upload=upload)


_VALUE_KEY: Final = bytes((pb.Response.VALUE_FIELD_NUMBER << 3 | 2,))


def parts_of(response: pb.Response, value: OutgoingValue | None = None) -> Iterator[bytes]:
    """The bytes of a response in parts; `value`: it is in the response, at its end. Raises as `OutgoingValue.parts`."""
    raw = response.SerializeToString()
    if value is None:
        yield from (raw[at : at + PART_BYTES] for at in range(0, len(raw), PART_BYTES))
    else:
        yield raw + _VALUE_KEY + _varint(value.length)
        yield from value.parts()


def _varint(number: int) -> bytes:
    groups = []
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups, number])


# ---- writes


def fill_request(writes: pb.Writes, items: Mapping[bytes, bytes | None]) -> list[bytes]:
    """Fill in writes, as `fill_writes`. Returns the large values, which are not filled in and are sent separately."""
    large = {at: value for at, value in enumerate(items.values()) if value is not None and len(value) >= LARGE_BYTES}
    if not large:
        fill_writes(writes, items)
        return []
    fill_writes(writes, {key: b"" if at in large else value for at, (key, value) in enumerate(items.items())})
    writes.uploaded.extend(large)
    return list(large.values())


def fill_writes(writes: pb.Writes, items: Mapping[bytes, bytes | None]) -> None:
    """Fill in writes; None deletes. In place, since protobuf copies a message that is assigned to a field."""
    values = items.values()
    writes.keys.extend(items)
    if None in values:
        writes.values.extend([value or b"" for value in values])
        writes.deleted.extend([at for at, value in enumerate(values) if value is None])
    else:
        writes.values.extend(values)  # type: ignore[arg-type]


def writes_from(writes: pb.Writes) -> dict[bytes, bytes | None]:
    """Raises WireError."""
    keys, values = writes.keys[:], writes.values[:]  # lists: a walk through protobuf's own containers takes longer
    if len(keys) != len(values):
        raise WireError(f"{len(keys)} keys are written with {len(values)} values")
    items: dict[bytes, bytes | None] = dict(zip(keys, values, strict=True))
    for at in writes.deleted:
        if at >= len(keys):
            raise WireError(f"write {at} of {len(keys)} is deleted")
        items[keys[at]] = None
    return items


def checked_writes(writes: pb.Writes, received: Sequence[IncomingValue] = ()) -> dict[bytes, Written]:
    """The writes of a client; `received`: its large values. Raises WireError, ValueError, LimitExceeded."""
    items: dict[bytes, Written] = dict(writes_from(writes))
    if writes.uploaded or received:
        if len(writes.uploaded) != len(received) or max(writes.uploaded) >= len(writes.keys):
            raise WireError(f"{len(writes.uploaded)} large values are written, {len(received)} have come")
        items.update(zip([writes.keys[at] for at in writes.uploaded], received, strict=True))
    size = 0
    for key, value in items.items():
        if not 0 < len(key) <= MAX_KEY_BYTES:
            check_key(key)
        size += len(key)
        if value is not None:
            if len(value) > MAX_VALUE_BYTES:
                raise ValueTooLarge(len(value), MAX_VALUE_BYTES, f" of key {shown(key)}")
            size += len(value)
    check_size(size)
    return items


def checked_appended(writes: Mapping[bytes, object], appended: int) -> int:
    """The number of appends among the last of a client's writes. Raises WireError."""
    if appended and not are_appends(writes, appended):
        raise WireError(f"of {len(writes)} writes the last {appended} are not appends")
    return appended


def ranges_from(ranges: Iterable[pb.Range]) -> list[Range]:
    """Raises WireError."""
    found: list[Range] = [(each.start, each.end if each.HasField("end") else None) for each in ranges]
    for start, end in found:
        if len(start) > MAX_BOUND_BYTES or len(end or b"") > MAX_BOUND_BYTES:
            raise WireError(f"a range is bounded by more than {MAX_BOUND_BYTES:,} bytes")
    return found


def deletes_from(ranges: Iterable[pb.Range]) -> list[Range]:
    """The ranges to delete. Raises WireError."""
    found = ranges_from(ranges)
    if any(end is not None and start >= end for start, end in found):
        raise WireError("a range to delete is empty")
    return found


def keys_to(ranges: Iterable[Range]) -> list[pb.Range]:
    """Ranges of keys."""
    return [pb.Range(start=start, end=end) for start, end in ranges]


def conditions_to(conditions: Iterable[Condition]) -> list[pb.Condition]:
    """The conditions of a write."""
    converted = []
    for operator, key, operand in conditions:
        condition = pb.Condition(operator=operator, key=key)
        if isinstance(operand, Place):
            condition.large.length, condition.large.digest = operand.length, operand.digest
        elif isinstance(operand, bytes):
            condition.value = operand
        elif operand is not None:
            condition.version = operand
        converted.append(condition)
    return converted


def conditions_from(conditions: Iterable[pb.Condition]) -> list[Condition]:
    """Raises TypeError, ValueError, KeyTooLarge."""
    tested = []
    for each in conditions:
        kind = each.WhichOneof("operand")
        operand: Any = None if kind is None else getattr(each, kind)
        if kind == "large":
            operand = Place(0, 0, operand.length, operand.digest)
        condition = Condition(each.operator, each.key, operand)
        check_condition(condition)
        tested.append(condition)
    return tested


def folds_to(folds: Iterable[Fold]) -> list[pb.Fold]:
    """The folds of a write."""
    return [pb.Fold(operator=operator, key=key, operand=b"%d" % operand) for operator, key, operand in folds]


def folds_from(folds: Iterable[pb.Fold], writes: Mapping[bytes, object]) -> list[Fold]:
    """The folds beside `writes`. Raises WireError, TypeError, ValueError, KeyTooLarge."""
    made = []
    for each in folds:
        operand = number_in(each.operand)
        if operand is None or each.key in writes:
            raise WireError(f"a fold of key {shown(each.key)} has no number, or the same request writes the key")
        made.append(Fold(each.operator, each.key, operand))
        check_fold(made[-1])
    return made


# ---- answers


def ranges_to(ranges: Iterable[ScanRange]) -> list[pb.ScanRange]:
    """The ranges of a multi-scan."""
    return [pb.ScanRange(start=start, end=end, limit=limit) for start, end, limit in ranges]


def values_to(keys: Sequence[bytes], found: Mapping[bytes, bytes]) -> pb.Values:
    """The values of the first keys; those that do not exist are missing."""
    return pb.Values(
        values=[found.get(key, b"") for key in keys],
        missing=[at for at, key in enumerate(keys) if key not in found],
    )


def values_from(keys: Sequence[bytes], values: pb.Values) -> list[tuple[bytes, bytes]]:
    """(key, value) of the keys that exist."""
    rows = list(zip(keys, values.values, strict=False))
    if values.missing:
        missing = set(values.missing)
        return [row for at, row in enumerate(rows) if at not in missing]
    return rows


def entries_from(entries: pb.Entries) -> list[tuple[int, bytes | None]]:
    """Raises WireError."""
    if len(entries.versions) != len(entries.values):
        raise WireError(f"{len(entries.versions)} versions have {len(entries.values)} values")
    deleted = set(entries.deleted)
    return [
        (version, None if at in deleted else value)
        for at, (version, value) in enumerate(zip(entries.versions, entries.values, strict=True))
    ]


def change_to(change: Change) -> pb.Change:
    """One commit of the feed."""
    converted = pb.Change(version=change.version, time=change.time, label=change.label)
    fill_writes(converted.writes, change.changes)
    if change.deleted:
        converted.deleted.extend(keys_to(change.deleted))
    return converted


def change_from(change: pb.Change) -> Change:
    """Raises WireError."""
    deleted = tuple(ranges_from(change.deleted))
    return Change(change.version, change.time, change.label, writes_from(change.writes), deleted)


# ---- failures


def _family(kind: type[LogDBError]) -> list[type[LogDBError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _family(child))]


KINDS: Final[dict[str, type[Exception]]] = {
    **{kind.__name__: kind for kind in _family(LogDBError) if kind.__module__ == errors.__name__},
    **{kind.__name__: kind for kind in (TransactionOver, WireError, ValueError, TypeError, KeyError)},
}
"""The exceptions that the client raises with their own class."""


def failure_to(error: Exception) -> pb.Failure:
    """An error with its attributes; the message of an error outside LogDB begins with its class."""
    kind = type(error)
    if KINDS.get(kind.__name__) is not kind:
        return pb.Failure(kind="", message=_text(f"{kind.__name__}: {error}"))
    failure = pb.Failure(kind=kind.__name__, message=_text(error.args[0]) if error.args else "")
    for name, value in vars(error).items():
        detail = failure.details[name]
        if isinstance(value, bool):
            detail.flag = value
        elif isinstance(value, int) and -MAX_POSITION <= value <= MAX_POSITION:
            detail.number = value
        elif isinstance(value, bytes):
            detail.raw = value
        elif value is not None:
            detail.text = _text(value)
    return failure


def _text(thing: object) -> str:
    """The text as valid UTF-8, which protobuf requires: a path may contain other bytes."""
    return str(thing).encode(errors="replace").decode()


class ServerFailed(LogDBError):
    """An error of the server whose class this client does not have."""


def failure_from(failure: pb.Failure) -> Exception:
    """The error that the server raised: of the same class, with the same message and attributes."""
    kind = KINDS.get(failure.kind, ServerFailed)
    error = kind.__new__(kind)
    error.args = (failure.message,)
    for name, detail in failure.details.items():
        value = detail.WhichOneof("value")
        vars(error)[name] = None if value is None else getattr(detail, value)
    return error
