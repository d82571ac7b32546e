"""Sessions: what the replicas remember of each client, so that a repeated command takes effect once.

Everything here is a function of the log's prefix, and part of every snapshot.

SMR-1: a command is applied at most once: its session exists, its number is not below the session's floor, and the
session has no result for it.
SMR-2: a session has the result of every command that it has applied and that is not below the floor. The floor rises to
what the client has acknowledged, and stays within WINDOW of the newest number.
SMR-3: a session ends when no command of it was ordered for SESSION_TTL_NS of the log's time, or when MAX_SESSIONS newer
ones exist. A session that has ended never exists again: its number is the GSN of the record that opened it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

SESSION_TTL_NS: Final = 3_600 * 1_000_000_000
MAX_SESSIONS: Final = 65_536
WINDOW: Final = 16_384
"""The number of results that a session has at most."""


class Failure(NamedTuple):
    """The exception that a command raised. `kind`: the name of its class."""

    kind: str
    message: str


class Forgotten(Enum):
    """`FORGOTTEN`: the command's session has ended, or its number is below the floor."""

    FORGOTTEN = "forgotten"


Result = bytes | Failure
Outcome = Result | Forgotten

_SESSIONS: Final = Struct("<I")
_SESSION: Final = Struct("<QQQQI")  # id, last used, floor, newest, results
_RESULT: Final = Struct("<QII")  # number, bytes of the kind of a failure (NO_KIND: none), bytes of the value
NO_KIND: Final = 0xFFFFFFFF


class Session:
    """The results of one client that it may still request."""

    __slots__ = ("floor", "newest", "results", "used_at")

    def __init__(self, used_at: int, floor: int = 1, newest: int = 0) -> None:
        self.used_at, self.floor, self.newest = used_at, floor, newest
        self.results: dict[int, Result] = {}

    def raise_floor(self, acknowledged: int) -> None:
        """Drop the results that the client has acknowledged, and those outside of the window."""
        floor = max(acknowledged, self.newest - WINDOW + 1)
        if floor <= self.floor:
            return
        results = self.results
        if floor - self.floor > len(results):
            self.results = {number: result for number, result in results.items() if number >= floor}
        else:
            for number in range(self.floor, floor):
                results.pop(number, None)
        self.floor = floor


class Sessions:
    """All sessions, by their numbers, the least recently used first."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, number: int, time: int) -> None:
        """Open the session `number`, the GSN of its record, at `time`."""
        assert number not in self._sessions, number
        self._end(time)
        self._sessions[number] = Session(time)

    def find(self, number: int) -> Session | None:
        """The session, or None if it has ended."""
        return self._sessions.get(number)

    def use(self, number: int, time: int) -> Session | None:
        """The session, which is in use at `time`; None if it has ended."""
        self._end(time)
        session = self._sessions.pop(number, None)
        if session is not None:
            session.used_at = time
            self._sessions[number] = session
        return session

    def _end(self, time: int) -> None:
        sessions = self._sessions
        while sessions:
            oldest = next(iter(sessions))
            if time - sessions[oldest].used_at <= SESSION_TTL_NS and len(sessions) <= MAX_SESSIONS:
                return
            del sessions[oldest]

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        times = [session.used_at for session in self._sessions.values()]
        assert times == sorted(times)
        for session in self._sessions.values():
            assert len(session.results) <= WINDOW
            assert all(session.floor <= number <= session.newest for number in session.results), "SMR-2"

    def encode(self) -> bytes:
        """The bytes for a snapshot."""
        parts = [_SESSIONS.pack(len(self._sessions))]
        for number, session in self._sessions.items():
            results = session.results
            parts.append(_SESSION.pack(number, session.used_at, session.floor, session.newest, len(results)))
            for at, result in results.items():
                if isinstance(result, Failure):
                    kind, value = result.kind.encode(), result.message.encode()
                    parts += (_RESULT.pack(at, len(kind), len(value)), kind, value)
                else:
                    parts += (_RESULT.pack(at, NO_KIND, len(result)), result)
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, at: int) -> tuple[Sessions, int]:
        """The sessions at byte `at` of a snapshot, and where they end. Raises struct.error, UnicodeDecodeError."""
        found = cls()
        (count,) = _SESSIONS.unpack_from(data, at)
        at += _SESSIONS.size
        for _ in range(count):
            number, used_at, floor, newest, results = _SESSION.unpack_from(data, at)
            at += _SESSION.size
            session = found._sessions[number] = Session(used_at, floor, newest)
            for _ in range(results):
                of, kind_bytes, value_bytes = _RESULT.unpack_from(data, at)
                at += _RESULT.size
                kind = ""
                if kind_bytes != NO_KIND:
                    kind = data[at : at + kind_bytes].decode()
                    at += kind_bytes
                value = data[at : at + value_bytes]
                at += value_bytes
                session.results[of] = value if kind_bytes == NO_KIND else Failure(kind, value.decode())
        return found, at
