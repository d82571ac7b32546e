"""A disk: the journals of one process. A crash leaves the synced records and any prefix of the rest.

A sync makes durable all records that were written when it began, in all journals; syncs do not overlap. Decisions:

- **Crash.** Each journal loses its records from a random point after its durable end on; a journal that was created and
  not synced may be gone, one that was dropped and not synced may be back.
- **Trim** removes whole files, so trimmed records may remain, also after a restart.
- **Full.** The host keeps records that it cannot write, and tries again: the sync ends when there is space. A process
  that dies before that has written none of them.
- **Damage.** A flipped bit is noticed when the record is read: a process with a damaged record does not start
  (`DamagedJournals`) before its disk is wiped; while it runs, `SendStored` ends with `Unreadable`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from logdb.cores.effects import MILLISECOND, Journal, Persisted
from logdb.log.contract import LogRecord, Record

if TYPE_CHECKING:
    from tests.sim.world import World

FILE_RECORDS = 8
"""Number of records in a file; trimming removes whole files."""


class Damaged(Exception):
    """A record cannot be read."""


class BrokenContract(Exception):
    """A core requested an effect that `cores/effects.py` does not allow."""


class StoredJournal:
    """Records `first` to `end` - 1. Those before `durable` survive a crash; those before `trimmed` are not needed."""

    __slots__ = ("damaged", "durable", "first", "made_durable", "records", "times", "trimmed")

    def __init__(self, first: int) -> None:
        self.first = self.trimmed = self.durable = first
        self.records: list[Record] = []
        self.times: list[int] = []
        self.damaged: set[int] = set()
        self.made_durable = False

    @property
    def end(self) -> int:
        """The number of the next record."""
        return self.first + len(self.records)


class Disk:
    """The journals of one process. `trap`: called once, in the middle of the next sync."""

    def __init__(self, world: World, draw: random.Random, on_persisted: Callable[[Persisted], None]) -> None:
        self.world = world
        self.journals: dict[str, StoredJournal] = {}
        self.sync_ns = 200_000
        self.full = False
        self._draw = draw
        self._on_persisted = on_persisted
        self._dirty: dict[str, None] = {}
        self._dropped: dict[str, StoredJournal] = {}
        self._syncing: dict[str, int] | None = None
        self._life = 0
        self.trap: Callable[[], None] | None = None

    # ---- effects of the core

    def create(self, name: str, first: int) -> None:
        """Create a journal."""
        if name in self.journals:
            raise BrokenContract(f"journal {name} exists already")
        self.journals[name] = StoredJournal(first)
        self._touch(name)

    def persist(self, name: str, first: int, records: Sequence[Record], now: int) -> None:
        """Append records, and sync them."""
        journal = self.journals.get(name)
        if journal is None:
            journal = self.journals[name] = StoredJournal(1)
        end = journal.first + len(journal.records)
        if first != end:
            raise BrokenContract(f"records from {first} on for journal {name}, which ends at {end}")
        if not records:
            raise BrokenContract(f"nothing to persist in journal {name}")
        journal.records.extend(records)
        journal.times.extend([now] * len(records))
        self._touch(name)

    def read(self, name: str, first: int, end: int) -> list[Record]:
        """Durable records. Raises Damaged."""
        journal = self.journals.get(name)
        if journal is None or not journal.trimmed <= first < end <= journal.durable:
            limits = "does not exist" if journal is None else f"has {journal.trimmed} to {journal.durable} durable"
            raise BrokenContract(f"records {first} to {end} of journal {name}, which {limits}")
        if journal.damaged:
            for lsn in journal.damaged:
                if first <= lsn < end:
                    raise Damaged(f"record {lsn} of journal {name}")
        return journal.records[first - journal.first : end - journal.first]

    def trim(self, name: str, before: int) -> None:
        """Remove whole files before `before`."""
        journal = self.journals.get(name)
        if journal is None or before > journal.end:
            raise BrokenContract(f"trim of journal {name} before {before}, which it does not reach")
        journal.trimmed = max(journal.trimmed, before)
        first = journal.trimmed - journal.trimmed % FILE_RECORDS
        if first > journal.first and first <= journal.durable:
            del journal.records[: first - journal.first]
            del journal.times[: first - journal.first]
            journal.first = first
            journal.damaged = {lsn for lsn in journal.damaged if lsn >= first}

    def drop(self, name: str) -> None:
        """Drop a journal."""
        if name not in self.journals:
            raise BrokenContract(f"drop of journal {name}, which does not exist")
        journal = self.journals.pop(name)
        self._dirty.pop(name, None)
        self.world.counts["journal dropped"] += 1
        if journal.made_durable:
            self._dropped[name] = journal
            self._touch(None)

    # ---- syncing

    def _touch(self, name: str | None) -> None:
        if name is not None:
            self._dirty[name] = None
        if self._syncing is None:
            self._begin()

    def _begin(self) -> None:
        self._syncing = {name: self.journals[name].end for name in self._dirty}
        self._dirty.clear()
        delay = self.sync_ns + int(self.sync_ns * self._draw.random())
        if self.trap is not None:
            self.world.at(self.world.now + delay // 2, self._spring, self.trap)
            self.trap = None
        self.world.at(self.world.now + delay, self._synced, (self._life, tuple(self._dropped)))

    def _spring(self, trap: Callable[[], None]) -> None:
        trap()

    def _synced(self, argument: tuple[int, tuple[str, ...]]) -> None:
        life, dropped = argument
        if life != self._life or self._syncing is None:
            return
        if self.full:
            self.world.counts["write waited for space"] += 1
            self.world.at(self.world.now + 5 * MILLISECOND, self._synced, argument)
            return
        if self._draw.random() < 0.03:  # the file system may sync directories at any time
            for name in dropped:
                self._dropped.pop(name, None)
        ends, self._syncing = self._syncing, None
        done = []
        for name, end in ends.items():
            journal = self.journals.get(name)
            if journal is not None:
                journal.made_durable = True
                if end > journal.durable:
                    journal.durable = end
                    done.append(Persisted(name, end))
        if self._dirty:
            self._begin()
        for event in done:
            self._on_persisted(event)

    # ---- faults

    def crash(self) -> None:
        """The process or its machine dies: records after a random point of the unsynced part are lost."""
        self._life += 1
        draw = self._draw
        for name, journal in list(self.journals.items()):
            written = journal.end
            if not journal.made_durable and draw.random() < 0.5:
                del self.journals[name]
                if written > journal.first:
                    self.world.counts["unsynced records lost"] += 1
                continue
            kept = journal.durable if self.full else draw.randint(journal.durable, written)
            if kept < written:
                self.world.counts["unsynced records lost"] += 1
                if kept > journal.durable:
                    self.world.counts["torn tail"] += 1
                del journal.records[kept - journal.first :]
                del journal.times[kept - journal.first :]
            journal.durable = kept
            journal.made_durable = True
        for name, journal in self._dropped.items():
            if name not in self.journals and draw.random() < 0.9:
                self.world.counts["dropped journal came back"] += 1
                self.journals[name] = journal
                del journal.records[journal.durable - journal.first :]
                del journal.times[journal.durable - journal.first :]
        self._dropped.clear()
        self._dirty.clear()
        self._syncing = None

    def mount(self) -> dict[str, Journal]:
        """The journals as a starting process reads them. Raises Damaged."""
        for name, journal in self.journals.items():
            for lsn in journal.damaged:
                raise Damaged(f"record {lsn} of journal {name}")
        return {
            name: Journal(
                journal.first,
                journal.end,
                [
                    LogRecord(lsn, time, tag, payload)
                    for lsn, (time, (tag, payload)) in enumerate(
                        zip(journal.times, journal.records, strict=True), journal.first
                    )
                ],
            )
            for name, journal in self.journals.items()
        }

    def wipe(self) -> None:
        """The disk is lost and replaced by an empty one."""
        self._life += 1
        self.journals.clear()
        self._dirty.clear()
        self._dropped.clear()
        self._syncing = None
        self.full = False

    def has_damage(self) -> bool:
        """Whether some record is damaged."""
        return any(journal.damaged for journal in self.journals.values())

    def flip(self, prefix: str = "") -> bool:
        """Damage one durable record of a journal whose name has this prefix; False if there is none."""
        found = [
            (name, journal)
            for name, journal in self.journals.items()
            if name.startswith(prefix) and journal.durable > journal.trimmed
        ]
        if not found:
            return False
        _, journal = found[self._draw.randrange(len(found))]
        journal.damaged.add(self._draw.randrange(journal.trimmed, journal.durable))
        return True
