"""A lock service with leases: a state machine that is replicated through the shared log.

Each process has a replica of the table of locks. A lock has a holder until its lease expires by the time of the log, so
all replicas agree on it whatever their clocks show. Each grant has a token that grows; a resource that remembers the
largest token refuses a holder that has not noticed that its lease is over.

    python3 -m examples.lock_service [HOST:PORT of a cluster without a database]
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import logdb.log
from logdb import smr

LEASE_MS = 200


class Lock(NamedTuple):
    """`token` grows with every grant of any lock; `expires_ns`: by the time of the log."""

    owner: str
    token: int
    expires_ns: int


class LockTable:
    """The machine: all locks, by name."""

    def __init__(self) -> None:
        self.locks: dict[str, Lock] = {}
        self.last_token = 0
        self.time_ns = 0

    def apply(self, command: bytes, time_ns: int) -> bytes:
        """Carry out a command of `Locks`; the result is the lock as JSON, or null."""
        request: dict[str, Any] = json.loads(command)
        self.time_ns = time_ns
        lock = self._acquire(**request) if "lease_ms" in request else self._release(**request)
        return json.dumps(lock).encode()

    def _acquire(self, name: str, owner: str, lease_ms: int) -> Lock | None:
        if lease_ms <= 0:
            raise ValueError(f"a lease lasts some milliseconds, not {lease_ms}")
        held = self.holder(name)
        if held is not None and held.owner != owner:
            return None
        if held is None:
            self.last_token += 1
        token = self.last_token if held is None else held.token
        self.locks[name] = Lock(owner, token, self.time_ns + lease_ms * 1_000_000)
        return self.locks[name]

    def _release(self, name: str, token: int) -> Lock | None:
        held = self.locks.get(name)
        return self.locks.pop(name) if held is not None and held.token == token else None

    def holder(self, name: str) -> Lock | None:
        """The lock `name`, if its lease was not over when the latest command was ordered."""
        lock = self.locks.get(name)
        return lock if lock is not None and self.time_ns < lock.expires_ns else None

    def snapshot(self) -> bytes:
        """The locks in the order of their names: the same bytes on every replica."""
        return json.dumps([self.last_token, self.time_ns, sorted(self.locks.items())]).encode()

    def restore(self, snapshot: bytes) -> None:
        """Replace the locks."""
        self.last_token, self.time_ns, locks = json.loads(snapshot)
        self.locks = {name: Lock(*lock) for name, lock in locks}


class Locks:
    """A client of the lock service, with the replica of its process."""

    def __init__(self, replica: smr.Replica[LockTable]) -> None:
        self._replica = replica

    def acquire(self, name: str, owner: str, lease_ms: int = LEASE_MS) -> Lock | None:
        """Acquire a lock, or extend the lease of one that `owner` holds; None if another one holds it."""
        return self._execute(name=name, owner=owner, lease_ms=lease_ms)

    def release(self, name: str, token: int) -> Lock | None:
        """Release a lock. Returns None if a newer token was given meanwhile."""
        return self._execute(name=name, token=token)

    def holder(self, name: str) -> Lock | None:
        """The lock, as of the latest command that had returned anywhere."""
        return self._replica.query(lambda table: table.holder(name))

    def _execute(self, **request: object) -> Lock | None:
        result = json.loads(self._replica.execute(json.dumps(request).encode()))
        return None if result is None else Lock(*result)


class Storage:
    """A resource that the lock protects: it refuses writes with a token older than one that it has seen."""

    def __init__(self) -> None:
        self.token = 0
        self.writes: list[str] = []

    def write(self, text: str, token: int) -> bool:
        """Whether the write was accepted."""
        if token < self.token:
            return False
        self.token = token
        self.writes.append(text)
        return True


def demonstrate(replica: Callable[[LockTable], smr.Replica[LockTable]]) -> None:
    """Let two processes compete for a lock; the first one pauses longer than its lease lasts."""
    storage = Storage()
    with replica(LockTable()) as ours, replica(LockTable()) as theirs:
        first, second = Locks(ours), Locks(theirs)
        lock = first.acquire("printer", "alice")
        assert lock is not None
        print(f"alice has the lock with token {lock.token}")
        assert second.acquire("printer", "bob") is None
        print(f"bob is refused: {second.holder('printer')} has the lock")
        while (next_lock := second.acquire("printer", "bob")) is None:
            time.sleep(LEASE_MS / 4_000)
        print(f"alice's lease is over; bob has the lock with token {next_lock.token}")
        assert storage.write("bob's page", next_lock.token)
        assert not storage.write("alice's page", lock.token)
        print("the storage refuses alice's late write")
        assert first.release("printer", lock.token) is None
        ours.snapshot()
    with replica(LockTable()) as restarted:
        lock = Locks(restarted).acquire("printer", "carol", LEASE_MS)
        print(f"a new replica has the locks, too: carol {'waits' if lock is None else 'has the lock'}")


def main(argv: list[str] | None = None) -> None:
    """Demonstrate the service on a log in memory, or on that of a cluster."""
    where = sys.argv[1:] if argv is None else argv
    if where:
        demonstrate(lambda table: smr.connect(where[0], table))
    else:
        log = logdb.log.MemoryLog()
        demonstrate(lambda table: smr.replicate(log, table))


if __name__ == "__main__":
    main()
