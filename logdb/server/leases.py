"""The snapshots that the client of one stream leases, by number: they live at most as long as the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdb.embedded.backend import EmbeddedBackend
from logdb.embedded.snapshots import Holder
from logdb.errors import FutureVersion, Unavailable, VersionTrimmed
from logdb.server.contention_queue import ContentionQueue
from logdb.transport.unread_answers import USER_STREAMS, UserQuota

MAX_LEASES: Final = 10_000
"""Maximum number of snapshots leased by a stream, and per `USER_STREAMS` by all streams of a user."""
MAX_WAITING: Final = 1_000
"""Maximum number of transactions of a stream that wait for their turns, and per `USER_STREAMS` by all streams of a
user; further ones begin at once, since a turn decides nothing."""


class StreamLeases:
    """The client chooses the number of a lease. The holder may also wait, or have its turn, at a contended key:
    `contention`."""

    def __init__(self, database: EmbeddedBackend, contention: ContentionQueue, user: UserQuota) -> None:
        self._database, self._contention, self._user = database, contention, user
        self._holders: dict[int, object] = {}
        self._waiting_turn: set[int] = set()

    # ---- of transactions

    def __contains__(self, lease: int) -> bool:
        return lease in self._holders

    def version_of(self, lease: int) -> int:
        """The version that a lease keeps. Raises VersionTrimmed if the stream does not have the lease."""
        holder = self._holders.get(lease)
        version = None if holder is None else self._database.snapshots.version_of(holder)
        if version is None:
            raise VersionTrimmed(0, self._database.oldest())
        return version

    def check_room(self) -> None:
        """Raises Unavailable if the stream or its user has the maximum number of leases."""
        if not self._has_room():
            many = f"this client holds {len(self._holders):,} snapshots already, and its user {self._user.leases:,}"
            raise Unavailable(f"{many}; end some of them")

    def _has_room(self) -> bool:
        return len(self._holders) < MAX_LEASES and self._user.leases < USER_STREAMS * MAX_LEASES

    def add(self, lease: int, holder: object) -> None:
        """Store a lease under its number; an earlier lease of that number ends."""
        self.release(lease)
        self._holders[lease] = holder
        self._user.leases += 1

    def release(self, lease: int) -> None:
        """End a lease. Ending it twice has no effect."""
        holder = self._holders.pop(lease, None)
        if holder is not None:
            self._user.leases -= 1
            self.begin_turn(lease)
            self._database.end(holder)
            self._contention.leave(holder)

    def release_all(self) -> None:
        """End all leases of the stream."""
        for lease in list(self._holders):
            self.release(lease)

    # ---- turns at contended keys

    def enter(self, lease: int, key: bytes, begin: Callable[[], None]) -> bool:
        """Whether the lease's transaction may begin now; else `begin` is called when it is its turn at `key`."""
        if len(self._waiting_turn) >= MAX_WAITING or self._user.turns >= USER_STREAMS * MAX_WAITING:
            return True
        if self._contention.enter(key, self._holders[lease], begin):
            return True
        self._waiting_turn.add(lease)
        self._user.turns += 1
        return False

    def begin_turn(self, lease: int) -> None:
        """The transaction has its turn, or ends."""
        if lease in self._waiting_turn:
            self._waiting_turn.remove(lease)
            self._user.turns -= 1

    @property
    def has_waiting(self) -> bool:
        """Whether a transaction of the stream waits for its turn."""
        return bool(self._waiting_turn)

    def is_contended(self, key: bytes) -> bool:
        """Whether a transaction of another client has its turn at the key."""
        holder = self._contention.holder(key)
        return holder is not None and holder not in self._holders.values()

    def mark_contended(self, key: bytes) -> None:
        """A transaction has aborted because of this key."""
        self._contention.mark_contended(key)

    # ---- of answers in pages

    def readable(self, at: int) -> int:
        """`at`, if it has been applied: transactions read versions that are not durable yet. Raises FutureVersion."""
        if at > self._database.machine.coordinator.applied:
            raise FutureVersion(at, self._database.version())
        return at

    def begin_page(self, lease: int, at: int | None, floor: int | None = None) -> tuple[int, object | None]:
        """(the version of a page, the holder of a new lease on it, None if it is leased already). `floor`: the oldest
        version that the pages read, which the holder keeps too, unless a compaction to a later one is under way. Raises
        VersionTrimmed, FutureVersion, Unavailable."""
        holder, snapshots = Holder(), self._database.snapshots
        if at is None:
            version = snapshots.begin(holder, read_only=True)
        else:
            version = self.readable(at)
            if not lease or lease in self._holders:
                return at, None
            self.check_room()
            if floor is None and not self.lease(holder, at):
                return at, None
        if floor is not None:
            snapshots.keep(holder, min(version, floor))
        return version, holder

    def lease(self, holder: object, version: int) -> bool:
        """Whether `holder` has a lease on a version from now on: the cold tier keeps those that it has. Raises
        VersionTrimmed."""
        try:
            self._database.snapshots.lease(holder, version)
        except VersionTrimmed:
            if self._database.cold is None:
                raise
            return False
        return True

    def end_page(self, lease: int, holder: object | None, more: bool) -> None:
        """After a page: the version stays leased if there are more."""
        if holder is not None and more and lease and self._has_room():
            self.add(lease, holder)
        elif holder is not None:
            self._database.end(holder)
        if not more and lease:
            self.release(lease)
