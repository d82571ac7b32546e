"""Summaries of a shard (PROTOCOL.md, DBS-17), and the history of an object from the records of its shard alone.

A shard's own records lack three facts about its objects: which of its commit records were applied, the writes and
range deletes of commits whose record is on another shard (that of the first key), and which PARTs count. Mapping
servers append SUMMARY records with these facts. They follow from the log, so any server may append them, any number of
times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from logdb.cluster.compaction.records import decode_part
from logdb.cluster.messages import MapRows
from logdb.cluster.placement import decode_placement
from logdb.errors import Unavailable, shown
from logdb.log.contract import LogRecord
from logdb.store.records import (
    COMMIT,
    PART,
    SUMMARY,
    DeletedRange,
    MalformedRecord,
    Relocated,
    Value,
    decode_commit,
    decode_deleted_range,
    decode_relocation,
    encode_deleted_range,
    encode_relocation,
)

HISTORY_KINDS: Final = frozenset({COMMIT, PART, SUMMARY})
"""The kinds of records of a shard that a history needs."""

_FORMAT: Final = 1
_SUMMARY: Final = Struct("<BIQQQQII")  # format, the numbers of a Summary, bytes of the placement, aborted
_FORMAT_WITH_DELETES: Final = 2
_COUNT: Final = Struct("<I")
_GSN: Final = Struct("<Q")


class Summary(NamedTuple):
    """A summary for the objects that the stated `placement` puts on `shard`.

    Of the commit records on `shard` with `after` < GSN <= `through`, `aborted` were not applied. `rows`, of this record
    and earlier ones on the shard, are the writes to these objects by commit records on other shards; `deletes` are the
    range deletes by these. If `began` is not
    0, the PARTs on this shard of the compaction with this BEGINNING restate these objects completely as of `floor`.
    """

    shard: int
    placement: bytes
    began: int = 0
    floor: int = 0
    after: int = 0
    through: int = 0
    aborted: Sequence[int] = ()
    rows: Sequence[Relocated] = ()
    deletes: Sequence[DeletedRange] = ()


def encode_summary(summary: Summary) -> bytes:
    """The payload of a SUMMARY record."""
    shard, placement, began, floor, after, through, aborted, rows, deletes = summary
    form = _FORMAT_WITH_DELETES if deletes else _FORMAT
    parts = [_SUMMARY.pack(form, shard, began, floor, after, through, len(placement), len(aborted)), placement]
    parts += map(_GSN.pack, aborted)
    if deletes:
        parts.append(_COUNT.pack(len(deletes)))
    parts += map(encode_deleted_range, deletes)
    return b"".join((*parts, encode_relocation(rows)))


def decode_summary(payload: bytes) -> Summary:
    """The inverse. Raises MalformedRecord."""
    try:
        form, shard, began, floor, after, through, length, count = _SUMMARY.unpack_from(payload)
        at = _SUMMARY.size + length
        placement, end = payload[_SUMMARY.size : at], at + 8 * count
        aborted = [gsn for (gsn,) in _GSN.iter_unpack(payload[at:end])]
        deletes: list[DeletedRange] = []
        if form == _FORMAT_WITH_DELETES:
            (delete_count,) = _COUNT.unpack_from(payload, end)
            end += _COUNT.size
            for _ in range(delete_count):
                deleted, end = decode_deleted_range(payload, end)
                deletes.append(deleted)
    except struct.error as error:
        raise MalformedRecord(f"a summary: {error}") from error
    if form not in (_FORMAT, _FORMAT_WITH_DELETES) or len(aborted) != count:
        raise MalformedRecord(f"a summary of format {form} and {len(payload)} bytes")
    return Summary(shard, placement, began, floor, after, through, aborted, decode_relocation(payload[end:]), deletes)


class ShardHistory:
    """The history of `key`, from the records of its shard in their order (`take`)."""

    def __init__(self, key: bytes, shard: int) -> None:
        self._key, self._shard = key, shard
        self._written: dict[int, Value] = {}
        self._restated: dict[int, dict[int, Value]] = {}
        self._summaries: list[Summary] = []

    def take(self, record: LogRecord) -> None:
        """Take the next record of the shard. Raises MalformedRecord."""
        key, (gsn, _, tag, payload) = self._key, record
        if tag == COMMIT:
            commit = decode_commit(payload, gsn)
            self._delete([DeletedRange(gsn, *deleted) for deleted in commit.deletes])
            if key in commit.writes:
                self._written[gsn] = commit.writes[key]
        elif tag == PART:
            began, part = decode_part(payload)
            if isinstance(part, MapRows):
                restated = self._restated.setdefault(began, {})
                restated.update({row.version: row.value for row in part.rows if row.key == key})
        elif tag == SUMMARY:
            summary = decode_summary(payload)
            if summary.shard == self._shard:
                for aborted in summary.aborted:
                    self._written.pop(aborted, None)
                self._delete(summary.deletes)
                self._written.update({row.version: row.value for row in summary.rows if row.key == key})
                self._summaries.append(summary._replace(aborted=(), rows=(), deletes=()))

    def _delete(self, deletes: Iterable[DeletedRange]) -> None:
        """Take range deletes. A version that the same commit has written may have come in an earlier summary."""
        for deleted in deletes:
            if deleted.has(self._key):
                self._written.setdefault(deleted.version, None)

    def versions(self, oldest: int) -> tuple[int, list[tuple[int, Value]]]:
        """(the version up to which the history is complete, the versions up to it, newest first). `oldest`: the first
        record of the log. Raises Unavailable if the records of the shard do not suffice."""
        placement = self._summaries[-1].placement if self._summaries else b""
        home = decode_placement(placement)(self._key) if placement else None
        if placement and home != self._shard:
            raise Unavailable(f"{shown(self._key)} is stated to live on shard {home}, not {self._shard}")
        current = [summary for summary in self._summaries if summary.placement == placement]
        began = floor = 0
        for summary in current:
            if summary.began > began:
                began, floor = summary.began, summary.floor
        through = max(floor - 1, 0)
        for summary in current:
            if summary.after <= through and not summary.began:
                through = max(through, summary.through)
        if floor < oldest > 1 or not through:
            what = f"the log begins with record {oldest}" if oldest > 1 else "it has no summary"
            raise Unavailable(
                f"the records of shard {self._shard} do not suffice for the history of {shown(self._key)} ({what}):"
                " only a mapping server has it"
            )
        found = {version: value for version, value in self._written.items() if version >= floor}
        found.update(self._restated.get(began, {}))
        history = []
        for version in sorted([version for version in found if version <= through], reverse=True):
            if version > floor or found[version] is not None:
                history.append((version, found[version]))
            if version <= floor:
                break
        return through, history
