"""The commands of the replicated log, in bytes: the values of `logdb.log.paxos`.

All integers are little-endian. The first byte is the kind of the command:

    BATCH     time=u64 appends=u32, then for each append
              client=u64 sequence=u64 settled=u64 records=u32 tag=u8*records length=u32*records payload*records
    TRIM      id=u64 gsn=u64
    FRAGMENT  position=u32 count=u32 bytes         one of `count` parts of a command that is too large for one value
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, calcsize, error, pack, unpack_from
from typing import NamedTuple

from logdb.cores.effects import ProtocolViolation
from logdb.log.contract import Record

_BATCH, _TRIM, _FRAGMENT = 1, 2, 3
_HEAD = Struct("<BQI")
_APPEND = Struct("<QQQI")
_TRIM_LOG = Struct("<BQQ")
_PART = Struct("<BII")


class Append(NamedTuple):
    """The records of one `AppendRequest`. They get consecutive GSNs."""

    client: int
    sequence: int
    settled: int
    records: Sequence[Record]


class Batch(NamedTuple):
    """Order the records of these appends at `time` (ns since the epoch), except those that are in the log already."""

    time: int
    appends: Sequence[Append]


class Trim(NamedTuple):
    """Trim the records before `gsn`. `id`: the number of the client's request."""

    id: int
    gsn: int


class Fragment(NamedTuple):
    """Part `position` (from 0) of the `count` parts of a command."""

    position: int
    count: int  # type: ignore[assignment]  # tuple.count is not used
    data: bytes


Command = Batch | Trim | Fragment


def encode(command: Batch | Trim) -> bytes:
    """The bytes of a command."""
    if isinstance(command, Trim):
        return _TRIM_LOG.pack(_TRIM, *command)
    parts = [_HEAD.pack(_BATCH, command.time, len(command.appends))]
    for client, sequence, settled, records in command.appends:
        tags, payloads = zip(*records, strict=True)
        parts.append(_APPEND.pack(client, sequence, settled, len(records)))
        parts.append(bytes(tags))
        parts.append(pack(f"<{len(records)}I", *map(len, payloads)))
        parts += payloads
    return b"".join(parts)


def values_of(command: bytes, fragment_bytes: int) -> list[bytes]:
    """The values to propose for a command, in order: the command, or its fragments if it is larger than one."""
    if len(command) <= fragment_bytes:
        return [command]
    starts = range(0, len(command), fragment_bytes)
    return [
        _PART.pack(_FRAGMENT, position, len(starts)) + command[start : start + fragment_bytes]
        for position, start in enumerate(starts)
    ]


def decode(value: bytes) -> Command:
    """The command of a value. Raises ProtocolViolation."""
    try:
        kind = value[0]
        if kind == _BATCH:
            return _decode_batch(value)
        if kind == _TRIM:
            return Trim(*_TRIM_LOG.unpack(value)[1:])
        if kind == _FRAGMENT:
            _, position, count = _PART.unpack_from(value)
            return Fragment(position, count, value[_PART.size :])
    except (IndexError, error) as problem:
        raise ProtocolViolation(f"a value of {len(value)} bytes is not a command: {problem}") from problem
    raise ProtocolViolation(f"a value starts with {kind}, which is not a command")


def _decode_batch(value: bytes) -> Batch:
    _, time, count = _HEAD.unpack_from(value)
    at, appends = _HEAD.size, []
    for _ in range(count):
        client, sequence, settled, size = _APPEND.unpack_from(value, at)
        at += _APPEND.size
        tags = value[at : at + size]
        at += size
        layout = f"<{size}I"
        lengths = unpack_from(layout, value, at)
        at += calcsize(layout)
        records = []
        for tag, length in zip(tags, lengths, strict=True):
            records.append((tag, value[at : at + length]))
            at += length
        appends.append(Append(client, sequence, settled, records))
    if at != len(value):
        raise ProtocolViolation(f"a batch of {at} bytes in a value of {len(value)}")
    return Batch(time, appends)
