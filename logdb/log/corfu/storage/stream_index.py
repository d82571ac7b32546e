"""The streams of the entries of a unit, and the commit bits of those entries.

A log replica has the commit bits; a stream replica has the entries of each stream in order.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort

from logdb.log.corfu.messages import Entry
from logdb.log.corfu.storage.descriptions import packed, unpacked


class StreamIndex:
    """`uncommitted`: positions of entries of streams whose commit bit is not set."""

    def __init__(self) -> None:
        self.uncommitted: set[int] = set()
        self._streams: dict[int, bytes] = {}
        self._positions: dict[int, array[int]] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry. It is not committed yet if it has streams."""
        if entry.streams:
            self._streams[entry.position] = packed(entry.streams)
            self.uncommitted.add(entry.position)
            for stream, _ in entry.streams:
                insort(self._positions.setdefault(stream, array("Q")), entry.position)

    def of(self, position: int) -> tuple[tuple[int, int], ...]:
        """The streams of an entry, with the previous position of each."""
        return unpacked(self._streams.get(position, b""))

    def positions(self, stream: int, first: int, end: int) -> list[int]:
        """The positions of a stream from `first` to `end` - 1."""
        found = self._positions.get(stream)
        return list(found[bisect_left(found, first) : bisect_left(found, end)]) if found is not None else []

    def forget(self, oldest: int) -> None:
        """Remove everything before a position."""
        for position in [one for one in self._streams if one < oldest]:
            del self._streams[position]
        self.uncommitted = {one for one in self.uncommitted if one >= oldest}
        for stream, positions in list(self._positions.items()):
            del positions[: bisect_left(positions, oldest)]
            if not positions:
                del self._positions[stream]
