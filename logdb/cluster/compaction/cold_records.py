"""COLD records: what the cold tier of a cluster has, stated in the log (PROTOCOL.md, "The cold tier").

The first ATTACHED says that there is a tier. A TARGET says up to which version it is copied next, and a COPIED that the
next segment is in the store and was read back. So the content of every segment follows from the log, and a server that
writes one again writes the same bytes.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, NamedTuple

from logdb.store.records import MalformedRecord

_ATTACHED, _TARGET, _COPIED = range(3)
_FORMAT: Final = 1
_HEAD: Final = Struct("<BB")
_U64: Final = Struct("<Q")
_SEGMENT: Final = Struct("<QQQQB")  # number, version, end, time, is_base
_STATE: Final = Struct("<16sQ")  # log id, target; a segment and its cursor follow

LOG_ID_BYTES: Final = 16


class Attached(NamedTuple):
    """The cluster has a cold tier from here on. `log_id`: of its files, random."""

    log_id: bytes


class Target(NamedTuple):
    """The tier is to be copied up to `version`."""

    version: int


class Copied(NamedTuple):
    """The segments up to `number` are in the store. The tier has every version up to `version` from its first one on.

    `end`: the number of the next record in the files. `time`: of the last record copied, ns since the epoch. `after`:
    while the rows of the first version are copied, where the next segment begins among the keys; else None.
    """

    number: int
    version: int
    end: int
    time: int
    after: bytes | None


class ColdState(NamedTuple):
    """The state of the tier, by the log. `target`: the version up to which it is being copied; `copied.version` if the
    tier has it."""

    log_id: bytes
    target: int
    copied: Copied

    def encode(self) -> bytes:
        """As a row of a checkpoint."""
        return _STATE.pack(self.log_id, self.target) + _copied_bytes(self.copied)

    @classmethod
    def decode(cls, raw: bytes) -> ColdState:
        """The inverse."""
        log_id, target = _STATE.unpack_from(raw)
        return cls(log_id, target, _copied(raw[_STATE.size :]))

    @property
    def has_base(self) -> bool:
        """Whether all rows of the first version were copied."""
        return self.copied.after is None

    def after(self, gsn: int, record: Target | Copied) -> ColdState:
        """The state after a record at `gsn`. A record that another server has appended, too, changes nothing."""
        if isinstance(record, Copied):
            return self._replace(copied=record) if record.number == self.copied.number + 1 else self
        version = min(record.version, gsn - 1)
        is_next = self.has_base and self.target == self.copied.version < version
        return self._replace(target=version) if is_next else self


def first_state(record: Attached, floor: int, time: int) -> ColdState:
    """The state after the first ATTACHED, written at `time` (ns since the epoch). The tier begins with the rows of the
    oldest readable version; with nothing if every version is readable."""
    return ColdState(record.log_id, floor, Copied(0, floor, 1, time, b"" if floor else None))


def encode_cold(record: Attached | Target | Copied) -> bytes:
    """The payload of a COLD record."""
    if isinstance(record, Attached):
        return _HEAD.pack(_FORMAT, _ATTACHED) + record.log_id
    if isinstance(record, Target):
        return _HEAD.pack(_FORMAT, _TARGET) + _U64.pack(record.version)
    return _HEAD.pack(_FORMAT, _COPIED) + _copied_bytes(record)


def decode_cold(payload: bytes) -> Attached | Target | Copied:
    """The inverse. Raises MalformedRecord."""
    try:
        form, kind = _HEAD.unpack_from(payload)
        rest = payload[_HEAD.size :]
        if form == _FORMAT and kind == _ATTACHED and len(rest) == LOG_ID_BYTES:
            return Attached(rest)
        if form == _FORMAT and kind == _TARGET:
            return Target(*_U64.unpack(rest))
        if form == _FORMAT and kind == _COPIED:
            return _copied(rest)
    except struct.error as error:
        raise MalformedRecord(f"a record of the cold tier: {error}") from error
    raise MalformedRecord(f"a record of the cold tier of format {form}, kind {kind} and {len(payload)} bytes")


def _copied_bytes(copied: Copied) -> bytes:
    number, version, end, time, after = copied
    return _SEGMENT.pack(number, version, end, time, after is not None) + (after or b"")


def _copied(raw: bytes) -> Copied:
    number, version, end, time, is_base = _SEGMENT.unpack_from(raw)
    return Copied(number, version, end, time, raw[_SEGMENT.size :] if is_base else None)
