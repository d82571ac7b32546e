"""Turns at keys over which transactions quarrel: who begins by reading one waits until the one before has ended.

Optimistic transactions that all change one key undo each other's work, the more of them the worse, and far more so
where reading and committing are a network apart. A key that made a transaction abort is hot for a while: transactions
that begin with it are let in one after another, and then hardly any of them aborts. Turns are courtesy, not locks:
they decide nothing, who takes too long loses its turn and goes on as before, and keys that are only read never become
hot. Who writes such a key without having asked first (`txn/speculation.py`) is told that others have their turn there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

HOT_S: Final = 1.0
TURN_S: Final = 0.05
"""A turn ends then, whether its holder has ended or not: it may be thinking, or gone."""
MAX_HOT: Final = 10_000


class ContentionQueue:
    """For one event loop. A holder is whatever stands for a transaction."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._hot: dict[bytes, float] = {}
        self._current: dict[bytes, tuple[object, asyncio.TimerHandle]] = {}
        self._lines: dict[bytes, deque[tuple[object, Callable[[], None]]]] = {}
        self._keys: dict[object, bytes] = {}

    def mark_contended(self, key: bytes) -> None:
        """A transaction has aborted because of this key."""
        if len(self._hot) >= MAX_HOT:
            self._hot.clear()
        self._hot[key] = self._loop.time() + HOT_S

    def enter(self, key: bytes, holder: object, begin: Callable[[], None]) -> bool:
        """Whether to go on at once. Else `begin` is called when it is the holder's turn, unless it leaves before."""
        until = self._hot.get(key)
        if until is None:
            return True
        if until < self._loop.time():
            del self._hot[key]
            return True
        self._keys[holder] = key
        if key not in self._current:
            self._give(key, holder)
            return True
        self._hot[key] = self._loop.time() + HOT_S
        self._lines.setdefault(key, deque()).append((holder, begin))
        return False

    def holder(self, key: bytes) -> object | None:
        """Whose turn it is, if keys have any."""
        current = self._current.get(key)
        return None if current is None else current[0]

    def leave(self, holder: object) -> None:
        """The transaction has ended, or does not want its turn any more."""
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
