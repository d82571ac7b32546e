"""The replicated state: the state of the log after the commands up to a slot, a function of the commands (MPX-2).

The state contains no records: they are in the journals of the replicas (`record_store.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from logdb.cores.effects import ProtocolViolation
from logdb.log.contract import Record
from logdb.log.multipaxos.commands import Batch, Command, Fragment, Trim, decode
from logdb.log.multipaxos.log_index import LogIndex
from logdb.log.multipaxos.records import wrap
from logdb.log.multipaxos.sessions import Run, Sessions
from logdb.log.requests import record_bytes


@dataclass(slots=True)
class Applied:
    """The effect of a command. `first`: the GSN of the first of the `records` that it ordered, in stored form.
    `appends`: (client, first sequence number of the request, its runs). `trim`: (id of the request, error)."""

    first: int
    records: list[Record] = field(default_factory=list)
    appends: list[tuple[int, int, list[Run]]] = field(default_factory=list)
    trim: tuple[int, str] | None = None


class LogState:
    """The state after a command. `oldest`: the oldest readable GSN. `time`: of the newest record, ns since the epoch.
    `batches`: number of commands that have ordered records. `fragments`: the parts so far of an incomplete command."""

    def __init__(self) -> None:
        self.oldest = 1
        self.time = 0
        self.batches = 0
        self.sessions = Sessions()
        self.index = LogIndex()
        self.fragments: list[bytes] = []

    @property
    def next_gsn(self) -> int:
        """The GSN of the next record."""
        return self.index.end

    def apply(self, value: bytes) -> Applied:
        """Carry out the command of a chosen value."""
        return self._apply(decode(value))

    def _apply(self, command: Command) -> Applied:
        if isinstance(command, Fragment):
            return self._join(command)
        self.fragments.clear()
        applied = Applied(self.next_gsn)
        if isinstance(command, Batch):
            self._order(command, applied)
        else:
            self._trim(command, applied)
        return applied

    def _join(self, fragment: Fragment) -> Applied:
        """Add a part of a command. A part counts only after the parts before it, because a deposed leader may have
        proposed only some parts (MPX-4)."""
        if fragment.position == 0:
            self.fragments.clear()
        if fragment.position != len(self.fragments):
            self.fragments.clear()
            return Applied(self.next_gsn)
        self.fragments.append(fragment.data)
        if len(self.fragments) < fragment.count:
            return Applied(self.next_gsn)
        command = decode(b"".join(self.fragments))
        if isinstance(command, Fragment):
            raise ProtocolViolation("MPX-4: a command in parts contains a part")
        return self._apply(command)

    def _order(self, batch: Batch, applied: Applied) -> None:
        """Assign GSNs to the records that are not in the log yet."""
        time = max(self.time, batch.time)
        for client, sequence, settled, records in batch.appends:
            self.sessions.settle(client, settled)
            runs = self.sessions.find(client, sequence, len(records))
            for at, run in enumerate(runs):
                if run.gsn:
                    continue
                start = run.sequence - sequence
                fresh = records[start : start + run.count]
                runs[at] = run._replace(gsn=self.next_gsn)
                self.sessions.add(client, runs[at])
                self.index.add(time, len(fresh), record_bytes(fresh))
                applied.records += wrap(time, fresh)
            applied.appends.append((client, sequence, runs))
        if applied.records:
            self.time = time
            self.batches += 1

    def _trim(self, trim: Trim, applied: Applied) -> None:
        error = ""
        if trim.gsn > self.next_gsn:
            error = f"cannot trim to {trim.gsn}: the newest record is {self.next_gsn - 1}"
        elif trim.gsn > self.oldest:
            self.oldest = trim.gsn
            self.index.trim(trim.gsn)
        applied.trim = trim.id, error

    # ---- snapshots

    def to_bytes(self) -> bytes:
        """A snapshot, between two commands. Replicas that have applied the same commands get the same bytes."""
        assert not self.fragments, "MPX-4"
        saved = [self.oldest, self.time, self.batches, self.sessions.to_json(), self.index.to_json()]
        return json.dumps(saved, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> LogState:
        """The state of a snapshot. Raises ProtocolViolation."""
        state = cls()
        try:
            state.oldest, state.time, state.batches, sessions, index = json.loads(snapshot)
            state.sessions, state.index = Sessions.from_json(sessions), LogIndex.from_json(index)
        except (ValueError, TypeError) as error:
            raise ProtocolViolation(f"not a snapshot: {error}") from error
        return state

    def check(self) -> None:
        """Raises AssertionError."""
        assert 1 <= self.oldest <= self.next_gsn, "MPX-6"
