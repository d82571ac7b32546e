"""Which versions can be read, and what keeps them from being compacted away: leases of readers, and pins."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from weakref import ref

from logdb.embedded.state_machine import StateMachine
from logdb.errors import DatabaseClosed, FutureVersion, VersionTrimmed
from logdb.log.contract import Trimmed
from logdb.store.records import PIN, encode_pin
from logdb.txn.transaction import Workspace

T = TypeVar("T")


class Holder:
    """Holds a lease for a read that is not part of a transaction."""

    __slots__ = ("__weakref__",)


class Snapshots:
    """The versions of a state machine. A lease keeps a version readable while its holder reads it, and ends with it: an
    interrupt (Ctrl-C) can come before the call of `end`.

    `compacting_to`: the floor of the compaction under way, 0 without one; older versions get no new lease.
    """

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._leases: dict[ref[object], int] = {}
        self.compacting_to = 0

    # ---- versions

    @property
    def oldest_leasable(self) -> int:
        """The oldest version that gets a lease: no compaction under way removes it."""
        return max(self._machine.coordinator.floor, self.compacting_to)

    def oldest(self) -> int:
        """The oldest version that can be read; 0 is the empty database. Raises DatabaseClosed."""
        self._machine.version()
        return self._machine.coordinator.floor

    def at(self, version: int) -> int:
        """`version`, if it can be read. Raises VersionTrimmed, FutureVersion."""
        newest = self._machine.version()
        if version > newest:
            raise FutureVersion(version, newest)
        oldest = self.oldest_leasable
        if version < oldest:
            raise VersionTrimmed(version, oldest)
        return version

    def at_time(self, when: int) -> int:
        """The newest version not younger than `when` (ns since the epoch). Raises VersionTrimmed, FutureVersion."""
        newest = self._machine.version()
        if when > time.time_ns():
            raise FutureVersion.of_time(when, newest)
        return self.at(min(self._machine.log.last_at_time(when), newest))

    def time_of(self, version: int) -> int | None:
        """When the record at `version` was ordered, ns since the epoch; None if compaction has removed it.

        Raises as `at`.
        """
        try:
            return self._machine.log.time_of(self.at(version))
        except Trimmed:
            return None

    def at_newest(self, read: Callable[[int], T]) -> T:
        """`read(version)` at the newest version, again if a compaction overtakes it. Raises what `read` raises."""
        while True:
            version = self._machine.version()
            try:
                return read(version)
            except VersionTrimmed:
                if version == self._machine.version():
                    raise

    # ---- leases

    def begin(self, holder: object, *, read_only: bool) -> int:
        """Lease the newest version until `end(holder)`; with `read_only` the newest durable one. Returns it. Raises
        DatabaseClosed."""
        machine = self._machine
        if machine.closed:
            raise DatabaseClosed(machine.path, machine.forked_from)
        durable_only = read_only or machine.read_only
        while True:
            stopped = machine.stop_reason is not None
            snapshot = machine.version() if durable_only or stopped else machine.coordinator.applied
            self._leases[ref(holder)] = snapshot
            if snapshot >= self.oldest_leasable:
                return snapshot
            del self._leases[ref(holder)]  # a compaction began between the snapshot and its lease

    def version_of(self, holder: object) -> int | None:
        """The version that the holder leases, if it does."""
        return self._leases.get(ref(holder))

    def begin_work(self, work: Workspace) -> None:
        """Lease a transaction's snapshot until `end(work)`."""
        work.snapshot = self.begin(work, read_only=work.read_only)

    def lease(self, holder: object, version: int) -> None:
        """Keep `version` readable until `end(holder)`. Raises VersionTrimmed."""
        self._leases[ref(holder)] = version
        if version < self.oldest_leasable:
            del self._leases[ref(holder)]
            raise VersionTrimmed(version, self.oldest_leasable)

    def keep(self, holder: object, version: int) -> None:
        """As `lease`, without the check: the caller may hold the version already, and checks the floor as it reads."""
        self._leases[ref(holder)] = version

    def keep_or_newer(self, holder: object, version: int) -> int:
        """Keep `version`, or the newest one if `version` was compacted away; returns the kept one."""
        self._leases[ref(holder)] = version
        while version < self.oldest_leasable:
            self._leases[ref(holder)] = version = self._machine.version()
        return version

    def end(self, holder: object) -> None:
        """End a lease. Ending it twice has no effect."""
        self._leases.pop(ref(holder), None)

    def leased(self) -> list[int]:
        """The leased versions."""
        for holder in [holder for holder in list(self._leases) if holder() is None]:
            self._leases.pop(holder, None)
        return list(self._leases.values())

    # ---- pins

    def pins(self) -> dict[str, int]:
        """The pinned versions by name."""
        self._machine.version()
        return dict(self._machine.coordinator.pins)

    def pin(self, name: str, version: int | None) -> int:
        """Keep a version (None: the newest) readable under a name until it is unpinned. Returns it.

        Raises ValueError, VersionTrimmed, FutureVersion, ReadOnly, Unavailable.
        """
        machine = self._machine
        machine.version()
        if machine.read_only:
            machine.check_writable()
        if version is None:
            return self.at_newest(lambda newest: self.pin(name, newest))
        if not version:
            raise ValueError("version 0 is the empty database: there is nothing to pin yet")
        with machine.order_lock:  # a compaction reads the pins under it
            self.at(version)
            gsn = machine.append_locked([(PIN, encode_pin(name, version))])
        machine.wait_durable(gsn)
        return version

    def unpin(self, name: str) -> None:
        """Remove a pin. Raises KeyError, ReadOnly, Unavailable."""
        machine = self._machine
        machine.version()
        if name not in machine.coordinator.pins:
            raise KeyError(name)
        machine.wait_durable(machine.append([(PIN, encode_pin(name, 0))]))
