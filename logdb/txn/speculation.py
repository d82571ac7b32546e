"""Speculation: a transaction begins with what its own process has written last, instead of asking a server first.

Programs change the same few keys again and again, from many coroutines. What such a transaction reads first is, as a
rule, what another one of the same process has just written. So it takes that for true, at once and also while the other
one is still on its way (its write is released early), and its commit is a test-and-multi-put whose conditions are the
values that it took for true: validation by value. n transactions on one key then cost one journey instead of 2n, and
none of them aborts another.

Why no update is lost: the log decides the commit where it stands, and applies it only if every key that was read has
the value that was read, so the transaction might have run there and then. It does not matter where a belief came from,
whether the other one commits, or what has become of answers and streams. The rest follows from two rules.
A transaction believes in what one other transaction wrote and in nothing else: before it reads more it is verified,
that is, takes a snapshot, finds there what it has believed, and is an ordinary transaction from then on. And nothing
but a commit comes of a belief: an exception, also SystemExit, or a result without writes, is thrown away and the
transaction runs again, unless the program was interrupted or the task cancelled from outside.

Where a belief was wrong, or a server tells that others have their turn at the key, nobody believes for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from logdb.store.conditions import absent, equals
from logdb.store.records import Condition

FRESH_S: Final = 1.0
"""What was written longer ago is not believed: nobody is in a hurry there, and others may have written since."""
WARY_S: Final = 1.0
"""Where belief was wrong, or is unwelcome, there is none for so long."""
MAX_KEYS: Final = 1_000
MAX_WRITES: Final = 16
MAX_BYTES: Final = 4_096
"""Of a transaction that is believed in: what was read goes into the log again, as conditions."""


class Misspeculated(Exception):
    """What a transaction believed was wrong, or must not have consequences: it is run again, without belief."""


class SpeculatedWrites(NamedTuple):
    """What a transaction wrote whose commit was sent `at` some time: the value of each key, None if it was deleted."""

    at: float
    values: Mapping[bytes, bytes | None]

    def conditions(self, keys: Iterable[bytes]) -> list[Condition]:
        """That those of `keys` which it is about are as it says. Raises Misspeculated if it is known to be wrong."""
        if self is WRONG:
            raise Misspeculated
        told = [(key, self.values[key]) for key in sorted(keys) if key in self.values]
        return [absent(key) if value is None else equals(key, value) for key, value in told]


WRONG: Final = SpeculatedWrites(0.0, {})
"""In the place of one that has turned out to be wrong."""


class Speculation:
    """The beliefs of one client. `clock` gives seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._beliefs: dict[bytes, SpeculatedWrites] = {}
        self._wary: dict[bytes, float] = {}

    def speculated(self, key: bytes) -> SpeculatedWrites | None:
        """What a transaction that reads `key` first may take for true."""
        speculated, now = self._beliefs.get(key), self.clock()
        if speculated is None or speculated.at < now - FRESH_S or self._wary.get(key, 0.0) > now:
            return None
        return speculated

    @contextmanager
    def committing(self, writes: Mapping[bytes, bytes | None], reads: Iterable[bytes], since: float) -> Iterator[None]:
        """A commit is sent here, and its answer awaited: see `sent`, and where this raises `failed`."""
        self.sent(writes, reads, since)
        try:
            yield
        except BaseException:
            self.failed(writes)
            raise

    def sent(self, writes: Mapping[bytes, bytes | None], reads: Iterable[bytes], since: float) -> None:
        """A commit is sent, of a transaction that has read `since`. If another one has been sent since then that wrote
        what it read, it will commit only if that does not: so it is that one which is believed in."""
        if any(key in self._beliefs and self._beliefs[key].at > since for key in reads):
            return
        if len(writes) > MAX_WRITES or sum(len(value or b"") for value in writes.values()) > MAX_BYTES:
            self.forget(writes)
            return
        if len(self._beliefs) >= MAX_KEYS:
            self._beliefs.clear()
        self._beliefs.update(dict.fromkeys(writes, SpeculatedWrites(self.clock(), writes)))

    def failed(self, writes: Mapping[bytes, bytes | None]) -> None:
        """A commit has not come to be, or nobody knows."""
        for key in writes:
            if key in self._beliefs and self._beliefs[key].values is writes:
                del self._beliefs[key]

    def forget(self, keys: Iterable[bytes]) -> None:
        """They are written in another way."""
        for key in keys:
            self._beliefs.pop(key, None)

    def suppress_speculation(self, keys: Iterable[bytes]) -> None:
        """A belief was wrong, or others want to write these."""
        if len(self._wary) >= MAX_KEYS:
            self._wary.clear()
        self._wary.update(dict.fromkeys(keys, self.clock() + WARY_S))
