"""The records of a compaction in a cluster, and their bytes (PROTOCOL.md, "Compaction").

BEGINNING names the oldest version to keep, the floor. From it on no version before the floor can be read or committed
upon. PART records are a checkpoint as of the BEGINNING: the state that a log trimmed to the floor would lack. ENDING
states that they are complete, so the log may be trimmed. PARTs and ENDING name their BEGINNING by its GSN, and are
ignored after another BEGINNING.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from logdb.cluster.messages import HeadRows, LedgerRows, MapRow, MapRows, Part, RecentRow, RecentRows
from logdb.store.records import MalformedRecord, Relocated, decode_relocation, encode_relocation
from logdb.txn.validation import Reason, Verdict

_FORMAT: Final = 1
_BEGINNING: Final = Struct("<BQQ")
_PART: Final = Struct("<BQB")
_ENDING: Final = Struct("<BQ")
_VERDICT: Final = Struct("<BQQBHI")  # reason, version, first, in range, key bytes, failed conditions
_U32: Final = Struct("<I")
_KINDS: Final = (HeadRows, MapRows, LedgerRows, RecentRows)
_REASONS: Final = (Reason.CONFLICT, Reason.CONDITION, Reason.TOO_OLD, Reason.DANGLING, Reason.NOT_A_NUMBER)


class CompactionBeginning(NamedTuple):
    """`by`: the client number of the server that appended it. `before`: the newest floor that it allows."""

    by: int
    before: int


def encode_beginning(beginning: CompactionBeginning) -> bytes:
    """The payload of a BEGINNING record."""
    return _BEGINNING.pack(_FORMAT, *beginning)


def decode_beginning(payload: bytes) -> CompactionBeginning:
    """The inverse. Raises MalformedRecord."""
    return CompactionBeginning(*_fixed(_BEGINNING, payload))


def encode_ending(began: int) -> bytes:
    """The payload of an ENDING record."""
    return _ENDING.pack(_FORMAT, began)


def decode_ending(payload: bytes) -> int:
    """The inverse. Raises MalformedRecord."""
    (began,) = _fixed(_ENDING, payload)
    return began


def _fixed(form: Struct, payload: bytes) -> tuple[int, ...]:
    if len(payload) != form.size or payload[0] != _FORMAT:
        raise MalformedRecord(f"a record of a compaction of {len(payload)} bytes: {payload[:16]!r}")
    return form.unpack(payload)[1:]


def encode_part(began: int, part: Part) -> bytes:
    """The payload of a PART record, without `copy` of the map's rows."""
    return _PART.pack(_FORMAT, began, _KINDS.index(type(part))) + encode_relocation(_entries(part))


def decode_part(payload: bytes) -> tuple[int, Part]:
    """The inverse: (GSN of the BEGINNING, part). Raises MalformedRecord."""
    try:
        form, began, kind = _PART.unpack_from(payload)
        if form != _FORMAT or kind >= len(_KINDS):
            raise MalformedRecord(f"a part of format {form} and kind {kind}")
        return began, _part(_KINDS[kind], decode_relocation(payload[_PART.size :]))
    except (struct.error, IndexError, UnicodeDecodeError, TypeError) as error:
        raise MalformedRecord(f"a part of a compaction: {error}") from error


def copies_of(payload: bytes, began: int) -> bytes | None:
    """The rows in a PART record, as the payload of a RELOCATION record; None for a part of something else than the map,
    or of another compaction than the one that began at `began`. Raises MalformedRecord."""
    try:
        form, part_began, kind = _PART.unpack_from(payload)
    except struct.error as error:
        raise MalformedRecord(f"a part of a compaction: {error}") from error
    if form != _FORMAT:
        raise MalformedRecord(f"a part of format {form}")
    return payload[_PART.size :] if part_began == began and _KINDS[kind] is MapRows else None


def encode_recent(label: str, verdict: Verdict | None) -> bytes:
    """A recent decision, as a row of a checkpoint."""
    return encode_relocation([Relocated(label.encode(), 0, _verdict_bytes(verdict))])


def decode_recent(raw: bytes) -> tuple[str, Verdict | None]:
    """The inverse. Raises MalformedRecord."""
    ((label, _, verdict),) = decode_relocation(raw)
    return label.decode(), _verdict(verdict)


def _entries(part: Part) -> Sequence[Relocated]:
    if isinstance(part, MapRows):
        return [Relocated(key, version, value) for key, version, value, _ in part.rows]
    if isinstance(part, RecentRows):
        return [Relocated(label.encode(), gsn, _verdict_bytes(verdict)) for gsn, label, verdict in part.rows]
    return [Relocated(key, 0, value) for key, value in part.rows]


def _part(kind: Any, entries: list[Relocated]) -> Part:
    if kind is MapRows:
        return MapRows(tuple([MapRow(*entry, 0) for entry in entries]))
    if kind is RecentRows:
        return RecentRows(tuple([RecentRow(gsn, label.decode(), _verdict(raw)) for label, gsn, raw in entries]))
    rows: Part = kind(tuple([(key, value) for key, _, value in entries]))
    return rows


def _verdict_bytes(verdict: Verdict | None) -> bytes | None:
    if verdict is None:
        return None
    reason, key, version, in_range, failed, first = verdict
    head = _VERDICT.pack(_REASONS.index(reason), version, first, in_range, len(key), len(failed))
    return b"".join((head, key, *map(_U32.pack, failed)))


def _verdict(raw: Any) -> Verdict | None:
    if raw is None:
        return None
    reason, version, first, in_range, length, count = _VERDICT.unpack_from(raw)
    end = _VERDICT.size + length
    if len(raw) != end + 4 * count:
        raise MalformedRecord(f"a verdict of {len(raw)} bytes")
    failed = tuple([number for (number,) in _U32.iter_unpack(raw[end:])])
    return Verdict(_REASONS[reason], raw[_VERDICT.size : end], version, bool(in_range), failed, first)
