"""The records of a replicated state machine, and their bytes.

OPEN      opens a session, whose number is the GSN of the record; no content but the format
COMMANDS  commands of one session with consecutive numbers
CHUNK     one part of a snapshot
VERIFY    every replica computes the digest of its state here
DIGEST    the digest of one replica at a VERIFY
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from logdb.log.contract import LogRecord, Record
from logdb.smr.errors import ForeignRecord

OPEN: Final = 32
COMMANDS: Final = 33
CHUNK: Final = 34
VERIFY: Final = 35
DIGEST: Final = 36
TAGS: Final = frozenset({OPEN, COMMANDS, CHUNK, VERIFY, DIGEST})

FORMAT: Final = 1
_FORMAT: Final = bytes([FORMAT])
_COMMANDS: Final = Struct("<BQQQI")  # format, session, acknowledged, first number, count
_CHUNK: Final = Struct("<BQQII")  # format, snapshot, position, part, parts
_DIGEST: Final = Struct("<BQ")  # format, position of the VERIFY
_LENGTH_BYTES: Final = 4


class Commands(NamedTuple):
    """`payloads`: the commands `first`, `first` + 1, ... of the session `session`, whose commands before `acknowledged`
    will not be repeated."""

    session: int
    acknowledged: int
    first: int
    payloads: Sequence[bytes]


class Chunk(NamedTuple):
    """Part `part` (from 0 on) of the `parts` of a snapshot. `snapshot`: its random number; `position`: the GSN up to
    which it has applied the log."""

    snapshot: int
    position: int
    part: int
    parts: int
    data: bytes


class Digest(NamedTuple):
    """The digest of a replica's state at the VERIFY record at `position`."""

    position: int
    digest: bytes


def open_record() -> Record:
    """A record that opens a session."""
    return OPEN, _FORMAT


def verify_record() -> Record:
    """A record at which all replicas compute their digests."""
    return VERIFY, _FORMAT


def commands_record(commands: Commands) -> Record:
    """The record of commands."""
    payloads = commands.payloads
    count = len(payloads)
    head = _COMMANDS.pack(FORMAT, commands.session, commands.acknowledged, commands.first, count)
    lengths = struct.pack(f"<{count}I", *map(len, payloads))
    return COMMANDS, b"".join((head, lengths, *payloads))


def decode_commands(record: LogRecord) -> Commands:
    """The commands of a COMMANDS record. Raises ForeignRecord."""
    payload = record.payload
    try:
        form, session, acknowledged, first, count = _COMMANDS.unpack_from(payload)
        at = _COMMANDS.size
        if form != FORMAT or count * _LENGTH_BYTES > len(payload) - at:
            raise ForeignRecord(record.gsn, f"it has format {form} and {count} commands")
        lengths = struct.unpack_from(f"<{count}I", payload, at)
    except struct.error as error:
        raise ForeignRecord(record.gsn, str(error)) from error
    at += count * _LENGTH_BYTES
    payloads = []
    for length in lengths:
        payloads.append(payload[at : at + length])
        at += length
    if at != len(payload):
        raise ForeignRecord(record.gsn, f"its commands end at byte {at} of {len(payload)}")
    return Commands(session, acknowledged, first, payloads)


def chunk_record(chunk: Chunk) -> Record:
    """The record of a part of a snapshot."""
    return CHUNK, _CHUNK.pack(FORMAT, chunk.snapshot, chunk.position, chunk.part, chunk.parts) + chunk.data


def decode_chunk(record: LogRecord) -> Chunk:
    """The part of a snapshot in a CHUNK record. Raises ForeignRecord."""
    try:
        form, snapshot, position, part, parts = _CHUNK.unpack_from(record.payload)
    except struct.error as error:
        raise ForeignRecord(record.gsn, str(error)) from error
    if form != FORMAT or part >= parts or position >= record.gsn:
        raise ForeignRecord(record.gsn, f"it has format {form} and is part {part} of {parts} at position {position}")
    return Chunk(snapshot, position, part, parts, record.payload[_CHUNK.size :])


def digest_record(digest: Digest) -> Record:
    """The record of a replica's digest."""
    return DIGEST, _DIGEST.pack(FORMAT, digest.position) + digest.digest


def decode_digest(record: LogRecord) -> Digest:
    """The digest in a DIGEST record. Raises ForeignRecord."""
    try:
        form, position = _DIGEST.unpack_from(record.payload)
    except struct.error as error:
        raise ForeignRecord(record.gsn, str(error)) from error
    if form != FORMAT:
        raise ForeignRecord(record.gsn, f"it has format {form}")
    return Digest(position, record.payload[_DIGEST.size :])
