"""Speculation: a transaction reads what its own process has written last, instead of asking a server first.

Programs change the same few keys again and again, from many coroutines. The value that such a transaction reads first
is usually the one that another transaction of the same process has just written. So the transaction uses that value at
once, also while the other commit is still under way (its writes are released early), and its own commit is a
test-and-multi-put whose conditions are the values that it used: validation by value. n transactions on one key then
cost one round trip instead of 2n, and none of them aborts another.

No update is lost: the log decides the commit at its position, and applies it only if every key that was read has the
value that was read, so the transaction might have run there and then. Neither the source of a speculated value nor the
fate of the other transaction matters. Two rules complete the argument. A transaction speculates on the writes of one
other transaction: before it reads anything else it is verified, that is, it takes a snapshot, finds in it what it has
used, and is an ordinary transaction from then on. And speculation leads to nothing but a commit: an exception, also
SystemExit, or a result without writes, is discarded and the transaction runs again, unless the program was interrupted
or the task was cancelled from outside.

After a wrong speculation, or when a server replies that others contend for a key, the key is not speculated on for a
while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from logdb.errors import LimitExceeded
from logdb.store.conditions import absent, equals
from logdb.store.range_deletions import index_of
from logdb.store.records import Condition, DeletedRange, Range

MAX_AGE_S: Final = 1.0
"""Older writes are not speculated on: such a key is rarely written, and others may have written it since."""
SUPPRESSED_S: Final = 1.0
"""How long a key is not speculated on after a wrong speculation, or where others contend for it."""
MAX_KEYS: Final = 1_000
MAX_WRITES: Final = 16
MAX_BYTES: Final = 4_096
"""Maximum size of the writes of a transaction that others speculate on: the values read go into the log once more, as
conditions."""


class Misspeculated(Exception):
    """A transaction used a wrong value, or its result must be discarded: it runs again without speculation."""


class SpeculatedWrites(NamedTuple):
    """The writes of a transaction whose commit was sent at the time `at`: the value of each key, None if deleted."""

    at: float
    values: Mapping[bytes, bytes | None]

    def conditions(self, keys: Iterable[bytes]) -> list[Condition]:
        """The conditions that those of `keys` in these writes have these values. Raises Misspeculated for `WRONG`."""
        if self is WRONG:
            raise Misspeculated
        read = [(key, self.values[key]) for key in sorted(keys) if key in self.values]
        return [absent(key) if value is None else equals(key, value) for key, value in read]


WRONG: Final = SpeculatedWrites(0.0, {})
"""Replaces the writes that a transaction speculated on once they have turned out to be wrong."""


class ConditionalReply(NamedTuple):
    """The reply to a commit with conditions. `version`: of its commit record. `is_applied`: all conditions held.
    `is_contended`: another client has its turn at a key that was read."""

    version: int
    is_applied: bool
    is_contended: bool = False


def _always_false(key: bytes) -> bool:
    return False


class Speculation:
    """The writes that one client speculates on. `clock` returns seconds, and never goes back. `takes_turns`: whether
    transactions of this client wait for turns at a key, so that others must not overtake them."""

    def __init__(self, clock: Callable[[], float], takes_turns: Callable[[bytes], bool] = _always_false) -> None:
        self.clock, self._takes_turns = clock, takes_turns
        self._writes: dict[bytes, SpeculatedWrites] = {}
        self._suppressed_until: dict[bytes, float] = {}

    def speculated(self, key: bytes) -> SpeculatedWrites | None:
        """The writes that a transaction which reads `key` first may speculate on."""
        return None if self.needs_turn(key) else self.last(key)

    def last(self, key: bytes) -> SpeculatedWrites | None:
        """The last writes of `key`, also where it is not to be speculated on without a turn."""
        speculated = self._writes.get(key)
        return None if speculated is None or speculated.at < self.clock() - MAX_AGE_S else speculated

    def needs_turn(self, key: bytes) -> bool:
        """Whether a transaction that begins with `key` takes a turn, or reads the key from a server."""
        return self._takes_turns(key) or self.is_suppressed(key)

    def is_suppressed(self, key: bytes) -> bool:
        """Whether others have contended for `key` in the last `SUPPRESSED_S`."""
        until = self._suppressed_until.get(key)
        return until is not None and until > self.clock()

    async def commit(
        self,
        writes: Mapping[bytes, bytes | None],
        reads: Iterable[bytes],
        speculated: SpeculatedWrites,
        send: Callable[[list[Condition]], Awaitable[ConditionalReply]],
    ) -> int:
        """Commit a transaction that has read `reads` from `speculated`. `send` sends its writes with the conditions.

        Returns the version. Raises Misspeculated if a value that it read has changed, and what `send` raises.
        """
        reads = list(reads)
        conditions = speculated.conditions(reads)
        with self.committing(writes, reads, speculated.at):
            try:
                reply = await send(conditions)
            except LimitExceeded as error:  # the writes may follow from a wrong value
                raise Misspeculated from error
            if reply.is_contended or not reply.is_applied:
                self.suppress_speculation(reads)
            if not reply.is_applied:
                raise Misspeculated
        return reply.version

    @contextmanager
    def committing(self, writes: Mapping[bytes, bytes | None], reads: Iterable[bytes], since: float) -> Iterator[None]:
        """Calls `sent`, and `failed` if the block, which sends a commit and awaits the answer, raises."""
        self.sent(writes, reads, since)
        try:
            yield
        except BaseException:
            self.failed(writes)
            raise

    def sent(self, writes: Mapping[bytes, bytes | None], reads: Iterable[bytes], since: float) -> None:
        """A commit is sent, of a transaction that has read `reads` at the time `since`. If another commit sent since
        then writes one of these keys, at most one of the two is applied, and later transactions speculate on the
        other one."""
        if any(key in self._writes and self._writes[key].at > since for key in reads):
            return
        if len(writes) > MAX_WRITES or sum(len(value or b"") for value in writes.values()) > MAX_BYTES:
            self.forget(writes)
            return
        if len(self._writes) >= MAX_KEYS:
            self._writes.clear()
        self._writes.update(dict.fromkeys(writes, SpeculatedWrites(self.clock(), writes)))

    def failed(self, writes: Mapping[bytes, bytes | None]) -> None:
        """A commit was not applied, or its outcome is unknown."""
        for key in writes:
            if key in self._writes and self._writes[key].values is writes:
                del self._writes[key]

    def forget(self, keys: Iterable[bytes]) -> None:
        """Drop the writes of these keys: a later write of them cannot be speculated on."""
        for key in keys:
            self._writes.pop(key, None)

    def forget_ranges(self, ranges: Sequence[Range]) -> None:
        """The keys of these ranges are deleted."""
        if ranges:
            deleted = index_of([DeletedRange(1, start, end) for start, end in ranges])
            self.forget([key for key in self._writes if deleted.newest(key)])

    def suppress_speculation(self, keys: Iterable[bytes]) -> None:
        """Do not speculate on these keys for `SUPPRESSED_S`."""
        if len(self._suppressed_until) >= MAX_KEYS:
            self._suppressed_until.clear()
        self._suppressed_until.update(dict.fromkeys(keys, self.clock() + SUPPRESSED_S))
