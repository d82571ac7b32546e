"""Queues of transactions at contended keys: a transaction whose first read is of such a key waits for its turn.

Optimistic transactions that change one key abort each other, more often the more of them there are, and most often
where a network is between reading and committing. A key that has made a transaction abort is contended for a while:
transactions that begin with it run one after another, and few of them abort. A turn is not a lock: it decides nothing,
it ends after `TURN_S`, and keys that are only read never become contended. A client that writes such a key without
reading it from the server (`txn/speculation.py`) is informed in the answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

CONTENDED_S: Final = 1.0
"""How long a key stays contended after the last abort or wait."""
TURN_S: Final = 0.05
"""Longest turn; a transaction that takes longer continues without one."""
MAX_CONTENDED: Final = 10_000


class ContentionQueue:
    """For one event loop. A holder is any object that identifies a transaction."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._contended: dict[bytes, float] = {}
        self._current: dict[bytes, tuple[object, asyncio.TimerHandle]] = {}
        self._lines: dict[bytes, deque[tuple[object, Callable[[], None]]]] = {}
        self._keys: dict[object, bytes] = {}

    def mark_contended(self, key: bytes) -> None:
        """Record that a transaction has aborted because of this key."""
        if len(self._contended) >= MAX_CONTENDED:
            self._contended.clear()
        self._contended[key] = self._loop.time() + CONTENDED_S

    @property
    def contended(self) -> int:
        """Number of contended keys."""
        return len(self._contended)

    def enter(self, key: bytes, holder: object, begin: Callable[[], None]) -> bool:
        """Whether the holder may begin now. Else `begin` is called at its turn, unless it leaves before."""
        until = self._contended.get(key)
        if until is None:
            return True
        if until < self._loop.time():
            del self._contended[key]
            return True
        self._keys[holder] = key
        if key not in self._current:
            self._give(key, holder)
            return True
        self._contended[key] = self._loop.time() + CONTENDED_S
        self._lines.setdefault(key, deque()).append((holder, begin))
        return False

    def holder(self, key: bytes) -> object | None:
        """The holder that has its turn at a key."""
        current = self._current.get(key)
        return None if current is None else current[0]

    def leave(self, holder: object) -> None:
        """End the holder's turn, or its wait for one."""
        key = self._keys.pop(holder, None)
        if key is not None and key in self._current and self._current[key][0] is holder:
            self._pass_on(key)

    def _give(self, key: bytes, holder: object) -> None:
        self._current[key] = holder, self._loop.call_later(TURN_S, self._pass_on, key)

    def _pass_on(self, key: bytes) -> None:
        holder, timer = self._current.pop(key)
        timer.cancel()
        self._keys.pop(holder, None)
        line = self._lines.get(key)
        while line:
            holder, begin = line.popleft()
            if holder in self._keys:
                self._give(key, holder)
                begin()
                return
        self._lines.pop(key, None)
