"""Commands on their way into the log: numbered, packed into records, sent again until the replica has read them.

SMR-5: a client acknowledges a number only when it and all before it have been read from the log. So a command that may
be sent again always has its result in the session, or is not applied yet.
SMR-6: the numbers that are sent and not yet read lie within half of WINDOW, so that none leaves the window.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Any, Final

from logdb.log.contract import Record
from logdb.smr.core.records import Commands, commands_record
from logdb.smr.core.sessions import WINDOW, Forgotten, Outcome, Sessions
from logdb.smr.errors import CommandId

MAX_BATCH_BYTES: Final = 1 << 20
MAX_IN_FLIGHT: Final = WINDOW // 2


class Pending:
    """A command that waits for its result. `waiter`: whatever the host wants to find with it. `command_id`: None until
    it is numbered; `has_own_id`: the caller has named the id. `payload`: None to reserve an id only. `place`: in the
    order of the calls."""

    __slots__ = ("command_id", "has_own_id", "payload", "place", "waiter")

    def __init__(self, payload: bytes | None, waiter: Any, command_id: CommandId | None = None) -> None:
        self.payload, self.waiter, self.command_id = payload, waiter, command_id
        self.has_own_id = command_id is not None
        self.place = 0


class Outbox:
    """The commands of one replica. `session`: the number of its session, None while it has none."""

    def __init__(self) -> None:
        self.session: int | None = None
        self.unsent: deque[Pending] = deque()
        self._sent: dict[CommandId, list[Pending]] = {}
        self._own: dict[int, None] = {}  # the numbers of `session` that are sent and not yet read, in order
        self._kept: set[int] = set()  # the numbers of `session` that a caller may repeat
        self._next = 1
        self._added = 0
        self._ended = 0  # the last session that has ended
        self._sessions: dict[int, int] = {}  # session: commands that are sent and not yet read

    @property
    def mine(self) -> dict[int, int]:
        """The sessions that have commands under way."""
        return self._sessions

    def sent(self) -> list[Pending]:
        """The commands that may be in the log and were not read yet."""
        return [pending for waiting in self._sent.values() for pending in waiting]

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to send now. After the end of a session, all of its commands are read first, so that
        they are sent again in their order."""
        is_waiting = self._is_full() or self._ended in self._sessions
        return not self.unsent or (is_waiting and not self.unsent[0].has_own_id)

    @property
    def needs_session(self) -> bool:
        """Whether the next command waits for a session."""
        return bool(self.unsent) and not self.unsent[0].has_own_id and self.session is None

    def add(self, pending: Pending) -> None:
        """Add a command at the end."""
        self._added += 1
        pending.place = self._added
        self.unsent.append(pending)

    def open_session(self, number: int) -> None:
        """From now on, number the commands of the session `number`."""
        assert self.session is None
        self.session, self._next = number, 1
        self._own, self._kept = {}, set()

    def next_batch(self) -> tuple[list[Pending], list[Pending]]:
        """Number the next commands; from now on they are sent. Returns them, and those that only reserve an id."""
        reserved: list[Pending] = []
        batch: list[Pending] = []
        size = 0
        while not self.is_idle and not self.needs_session and size < MAX_BATCH_BYTES:
            pending = self.unsent.popleft()
            if pending.command_id is None:
                assert self.session is not None
                pending.command_id = CommandId(self.session, self._next)
                self._next += 1
                if pending.payload is None:
                    self._kept.add(pending.command_id.number)
                    reserved.append(pending)
                    continue
                self._own[pending.command_id.number] = None
            assert pending.payload is not None
            waiting = self._sent.setdefault(pending.command_id, [])
            waiting.append(pending)
            session = pending.command_id.session
            self._sessions[session] = self._sessions.get(session, 0) + 1
            batch.append(pending)
            size += len(pending.payload)
        return batch, reserved

    def records(self, batch: list[Pending]) -> list[Record]:
        """The records of the sent commands `batch`: one for each run of consecutive numbers."""
        records: list[Record] = []
        at = 0
        while at < len(batch):
            session, first = _id_of(batch[at])
            payloads: list[bytes] = []
            while at < len(batch) and _id_of(batch[at]) == (session, first + len(payloads)):
                payload = batch[at].payload
                assert payload is not None
                payloads.append(payload)
                at += 1
            acknowledged = self._acknowledged() if session == self.session else 0
            records.append(commands_record(Commands(session, acknowledged, first, payloads)))
        return records

    def read(self, command_id: CommandId, outcome: Outcome) -> list[Pending]:
        """The replica has read a command: return those that wait for its outcome. A command whose session had ended is
        numbered anew, unless its caller has named the id."""
        waiting = self._sent.pop(command_id, None)
        if waiting is None:
            return []
        session, number = command_id
        self._sessions[session] -= len(waiting)
        if not self._sessions[session]:
            del self._sessions[session]
        if session == self.session:
            self._own.pop(number, None)
        if outcome is not Forgotten.FORGOTTEN:
            return waiting
        if session == self.session:  # its numbers count no longer, so that none keeps the next session waiting
            self._ended, self.session, self._own, self._kept = session, None, {}, set()
        done = [pending for pending in waiting if pending.has_own_id]
        for pending in waiting:
            if not pending.has_own_id:
                pending.command_id = None
                insort(self.unsent, pending, key=lambda each: each.place)
        return done

    def restored(self, position: int, sessions: Sessions) -> tuple[list[tuple[Pending, Outcome]], list[Pending]]:
        """The replica has continued with a snapshot at `position`: return the commands whose outcomes `sessions` has,
        and those whose outcomes are lost."""
        done: list[tuple[Pending, Outcome]] = []
        lost: list[Pending] = []
        for command_id in list(self._sent):
            number_of_session, number = command_id
            session = sessions.find(number_of_session)
            if session is None:
                if number_of_session > position:
                    continue
                lost += self._sent[command_id]
                self._drop(command_id)
            elif (result := session.results.get(number)) is not None:
                done += [(pending, result) for pending in self.read(command_id, result)]
            elif number < session.floor:
                lost += self._sent[command_id]
                self._drop(command_id)
        return done, lost

    def _drop(self, command_id: CommandId) -> None:
        for pending in self._sent[command_id]:
            pending.has_own_id = True  # not to be numbered anew: it may have been applied
        self.read(command_id, Forgotten.FORGOTTEN)

    def keep(self, pending: Pending) -> bool:
        """The caller waits no longer. Whether the command may be in the log: then its result is kept for a
        repetition."""
        if pending.command_id is None or (pending.has_own_id and pending in self.unsent):
            if pending in self.unsent:
                self.unsent.remove(pending)
            return False
        if pending.command_id.session == self.session:
            self._kept.add(pending.command_id.number)
        return True

    def is_sent(self, pending: Pending) -> bool:
        """Whether the command is sent and was not read yet."""
        return pending.command_id is not None and pending in self._sent.get(pending.command_id, ())

    def _is_full(self) -> bool:
        return bool(self._own) and self._next - next(iter(self._own)) >= MAX_IN_FLIGHT

    def _acknowledged(self) -> int:
        self._kept = {number for number in self._kept if number >= self._next - WINDOW}
        first = next(iter(self._own), self._next)
        return min(first, *self._kept) if self._kept else first


def _id_of(pending: Pending) -> CommandId:
    assert pending.command_id is not None
    return pending.command_id
