"""The records of a unit that were trimmed one by one: a journal of their GSNs, beside the journal of the entries.

An entry of which all records are deleted is described here once more. The journal of the entries may lose it then, and
its position stays decided (COR-1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from struct import pack, unpack
from typing import Final

from logdb.cores.effects import Effect, Journal, Persist, Trim
from logdb.log.corfu.messages import Entry
from logdb.log.corfu.projection import ENTRY_RECORDS, gsn_at, position_of
from logdb.log.corfu.storage.descriptions import describe, described

DELETED: Final = "deleted"
RECORDS: Final = 1
"""The tag of the GSNs of records of one entry."""
ENTRY: Final = 2
"""The tag of the description of an entry without records."""


class DeletedRecords:
    """`next`: the next LSN of the journal; those before `durable` are on the medium."""

    def __init__(self, out: list[Effect]) -> None:
        self._out = out
        self.next = self.durable = 1
        self._indexes: dict[int, Collection[int]] = {}
        self._journal: deque[tuple[int, int]] = deque()
        self._entries: deque[tuple[int, int]] = deque()

    def load(self, journal: Journal, oldest: int) -> list[Entry]:
        """Read the journal, for positions from `oldest` on. Returns the entries without records."""
        entries: dict[int, Entry] = {}
        self.next = journal.first
        for record in journal.records:
            if record.tag == ENTRY:
                entry = described(record.payload)
                position = entry.position
                entries[position], self._indexes[position] = entry, range(entry.count)
            else:
                gsns = unpack(f"<{len(record.payload) // 8}Q", record.payload)
                position = position_of(gsns[0])
                self._indexes[position] = {*self._indexes.get(position, ()), *(gsn % ENTRY_RECORDS for gsn in gsns)}
            self._journal.append((self.next, position))
            self.next += 1
        self.durable = self.next
        self.forget(oldest)
        return [entry for position, entry in entries.items() if position >= oldest]

    def restore(self, entry: Entry, indexes: Collection[int]) -> None:
        """These records of an entry were deleted before this unit copied it, as the other journal says."""
        if indexes:
            self._indexes[entry.position] = {*self.of(entry.position), *indexes}

    def add(self, entry: Entry, indexes: Collection[int]) -> None:
        """Delete the records of an entry with these indexes. Readers get them no more; a crash may bring them back
        before all LSNs up to here are durable."""
        position, known = entry.position, self._indexes.get(entry.position, ())
        new = sorted({index for index in indexes if index < entry.count}.difference(known))
        if not new:
            return
        if len(known) + len(new) == entry.count:
            self._indexes[position] = range(entry.count)
            record = ENTRY, describe(entry)
            self._entries.append((self.next, position))
        else:
            self._indexes[position] = {*known, *new}
            record = RECORDS, pack(f"<{len(new)}Q", *[gsn_at(position, index) for index in new])
        self._journal.append((self.next, position))
        self._out.append(Persist(DELETED, self.next, [record]))
        self.next += 1

    def on_persisted(self, end: int) -> list[int]:
        """All LSNs before `end` are durable. Returns the positions of the entries that the other journal need not have
        any more."""
        self.durable = end
        done: list[int] = []
        while self._entries and self._entries[0][0] < end:
            done.append(self._entries.popleft()[1])
        return done

    def of(self, position: int) -> Collection[int]:
        """The indexes of the deleted records of an entry."""
        return self._indexes.get(position, ())

    # ---- prefixes

    def forget(self, oldest: int) -> None:
        """Readers get nothing from before this position any more."""
        for position in [one for one in self._indexes if one < oldest]:
            del self._indexes[position]

    def trim_journal(self, oldest: int) -> None:
        """Delete what is about earlier positions, as far as nothing else is before it."""
        while self._journal and self._journal[0][1] < oldest and self._journal[0][0] < self.durable:
            self._journal.popleft()
        before = self._journal[0][0] if self._journal else self.next
        self._out.append(Trim(DELETED, min(before, self.durable)))
