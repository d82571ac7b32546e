"""The state of a replica: the machine, the sessions and the position, made by applying the log in order."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from logdb.log.contract import Batch, LogRecord
from logdb.smr.core.records import (
    CHUNK,
    COMMANDS,
    DIGEST,
    FORMAT,
    OPEN,
    VERIFY,
    Digest,
    decode_chunk,
    decode_commands,
    decode_digest,
)
from logdb.smr.core.sessions import Failure, Forgotten, Outcome, Result, Sessions
from logdb.smr.errors import CommandId, ForeignRecord
from logdb.smr.machine import Machine

M = TypeVar("M", bound=Machine)

OF_THE_PROCESS: Final = (MemoryError, OSError, RecursionError)
"""Exceptions of `apply` that depend on the process: another replica may not have them."""
MAX_MESSAGE_CHARACTERS: Final = 10_000
KEPT_DIGESTS: Final = 16
_SNAPSHOT: Final = Struct("<BQ")  # format, time


class Applied(NamedTuple):
    """The effects of a batch. `outcomes`: of the commands of the sessions that the caller asked about; `digests`: of
    this replica, to be appended. `conflicts`: the positions at which another replica has another digest."""

    outcomes: list[tuple[CommandId, Outcome]]
    digests: list[Digest]
    conflicts: list[int]


class ReplicaState(Generic[M]):
    """The machine and the sessions after all records up to `applied`.

    `time`: the latest time of a record, ns since the epoch. `bytes_since_snapshot`: of the commands after the beginning
    of the newest snapshot in the log.
    """

    def __init__(self, machine: M) -> None:
        self.machine, self.sessions = machine, Sessions()
        self.applied = self.time = self.bytes_since_snapshot = 0
        self._digests: dict[int, bytes] = {}

    def apply(self, batch: Batch, mine: Container[int]) -> Applied:
        """Apply the next batch. `mine`: the sessions whose outcomes are returned.

        Raises ForeignRecord, and the exceptions of the machine that do not count as results. Then the state is that
        of no prefix of the log.
        """
        assert batch.first <= self.applied + 1 < batch.end, (batch.first, batch.end, self.applied)
        applied = Applied([], [], [])
        for record in batch.records:
            if record.gsn <= self.applied:
                continue
            self.time = max(self.time, record.time)
            if record.tag == COMMANDS:
                self._apply_commands(record, mine, applied.outcomes)
            elif record.tag == OPEN:
                if record.payload != bytes([FORMAT]):
                    raise ForeignRecord(record.gsn, "its format is unknown")
                self.sessions.open(record.gsn, self.time)
            elif record.tag == CHUNK:
                if decode_chunk(record).part == 0:
                    self.bytes_since_snapshot = 0
            elif record.tag == VERIFY:
                applied.digests.append(self._digest(record.gsn))
            elif record.tag == DIGEST:
                theirs = decode_digest(record)
                if self._digests.get(theirs.position, theirs.digest) != theirs.digest:
                    applied.conflicts.append(theirs.position)
        self.applied = batch.end - 1
        return applied

    def _apply_commands(
        self, record: LogRecord, mine: Container[int], outcomes: list[tuple[CommandId, Outcome]]
    ) -> None:
        number_of_session, acknowledged, first, payloads = decode_commands(record)
        self.bytes_since_snapshot += len(record.payload)
        session = self.sessions.use(number_of_session, self.time)
        is_mine = number_of_session in mine
        for number, payload in enumerate(payloads, first):
            outcome: Outcome
            if session is None or number < session.floor:
                outcome = Forgotten.FORGOTTEN
            elif (known := session.results.get(number)) is not None:
                outcome = known
            else:
                outcome = session.results[number] = self._result(payload)
                session.newest = max(session.newest, number)
            if is_mine:
                outcomes.append((CommandId(number_of_session, number), outcome))
        if session is not None:
            session.raise_floor(acknowledged)

    def _result(self, payload: bytes) -> Result:
        try:
            result = self.machine.apply(payload, self.time)
            if isinstance(result, bytes):
                return result
            return Failure("TypeError", f"apply returned {type(result).__name__}, not bytes")
        except OF_THE_PROCESS:
            raise
        except Exception as error:
            message = str(error)[:MAX_MESSAGE_CHARACTERS]
            return Failure(type(error).__name__, message.encode("utf-8", "backslashreplace").decode())

    def _digest(self, position: int) -> Digest:
        digest = hashlib.sha256(self.machine.snapshot()).digest()
        self._digests[position] = digest
        if len(self._digests) > KEPT_DIGESTS:
            del self._digests[next(iter(self._digests))]
        return Digest(position, digest)

    def encode(self) -> bytes:
        """The snapshot at `applied`."""
        machine = self.machine.snapshot()
        if not isinstance(machine, bytes):
            raise TypeError(f"snapshot() of the machine returned {type(machine).__name__}, not bytes")
        return b"".join((_SNAPSHOT.pack(FORMAT, self.time), self.sessions.encode(), machine))

    def restore(self, position: int, snapshot: bytes) -> None:
        """Replace everything by the snapshot at `position`. Raises ForeignRecord, and what the machine raises."""
        assert position >= self.applied
        try:
            form, time = _SNAPSHOT.unpack_from(snapshot)
            if form != FORMAT:
                raise ForeignRecord(position, f"the snapshot has format {form}")
            sessions, at = Sessions.decode(snapshot, _SNAPSHOT.size)
        except (struct.error, UnicodeDecodeError) as error:
            raise ForeignRecord(position, f"the snapshot is damaged: {error}") from error
        self.machine.restore(snapshot[at:])
        self.sessions, self.time, self.applied = sessions, time, position
        self.bytes_since_snapshot = 0
        self._digests.clear()

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        self.sessions.check_invariants()
        assert all(number <= self.applied for number in self.sessions)
