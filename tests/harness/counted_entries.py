"""The chains of an overlay's entries, with a count of what is read of them."""

from __future__ import annotations

from typing import Any, SupportsIndex

from logdb.store.overlay import Entry


class CountedEntry(tuple[Any, ...]):
    """An entry of an overlay that counts how many elements are read of all."""

    reads = 0

    def __getitem__(self, index: SupportsIndex | slice) -> Any:  # type: ignore[override]
        CountedEntry.reads += 1
        return super().__getitem__(index)


def counted(entry: Entry | None) -> Any:
    """The chain with counted entries."""
    chain = list[Entry]()
    while entry is not None:
        chain.append(entry)
        entry = entry[2]
    copied = None
    for version, value, _ in reversed(chain):
        copied = CountedEntry((version, value, copied))
    return copied
