"""The versions that compactions have allowed up to each record: the oldest readable version, and where the log may
begin.

Computed from the records of the log by the rules of PROTOCOL.md ("Compaction"), without the code under test. The checks
compare refusals and trims of servers with it.
"""

from __future__ import annotations

from bisect import bisect_right

from logdb.cluster.compaction.cold_records import Attached, Copied, decode_cold
from logdb.cluster.compaction.records import decode_beginning, decode_ending
from logdb.log.contract import Batch, LogRecord
from logdb.store.records import BEGINNING, COLD, ENDING, PIN, decode_pin


class Floors:
    """The state after `through`. `floor`: the oldest readable version; `cleaned`: records before it may be trimmed;
    `copied`: versions from `attached` up to it are in the cold tier, None without one; `segments`: the number of its
    segments."""

    def __init__(self) -> None:
        self.through = self.floor = self.cleaned = 0
        self.begun = self.segments = self.attached = 0
        self.copied: int | None = None
        self._pins: dict[str, int] = {}
        self._moments: list[tuple[int, int, int]] = [(0, 0, 0)]

    def fold(self, batch: Batch) -> None:
        """Add the next records of the log; known ones are skipped."""
        for record in batch.records:
            if record.gsn > self.through:
                self._fold(record)
        if batch.first <= self.through + 1:
            self.through = max(self.through, batch.end - 1)

    def _fold(self, record: LogRecord) -> None:
        gsn, _, tag, payload = record
        if tag == PIN:
            name, version = decode_pin(payload)
            if not version:
                self._pins.pop(name, None)
            elif version >= self.floor:
                self._pins[name] = version
        elif tag == BEGINNING:
            self.begun = gsn
            copied = () if self.copied is None else (self.copied,)
            self.floor = max(
                self.floor, min([decode_beginning(payload).before, gsn - 1, *self._pins.values(), *copied])
            )
        elif tag == ENDING and decode_ending(payload) == self.begun:
            self.begun, self.cleaned = 0, self.floor
        elif tag == COLD:
            cold = decode_cold(payload)
            if isinstance(cold, Attached) and self.copied is None:
                self.copied = self.attached = self.floor
            elif isinstance(cold, Copied) and cold.number == self.segments + 1:
                self.copied, self.segments = cold.version, cold.number
        else:
            return
        self._moments.append((gsn, self.floor, self.cleaned))

    def at(self, gsn: int) -> tuple[int, int]:
        """(floor, cleaned) just after this record."""
        _, floor, cleaned = self._moments[bisect_right(self._moments, gsn, key=lambda moment: moment[0]) - 1]
        return floor, cleaned

    def had(self, floor: int) -> bool:
        """Whether this was ever the floor."""
        return any(moment[1] == floor for moment in self._moments)
