"""The journals of one server on disk: the host's side of `logdb.cores.effects`.

Each journal is a `SegmentStore` in a folder of its own, `<name>.<generation>@<first>`. The number of its first record
is in the name, so a creation that a crash has interrupted can be finished. A name that is dropped and created again
gets the next generation; of two generations the higher one is valid. A folder is renamed to `<folder>.dropped` before
its first file is removed, so a folder without that suffix is complete.

Two threads may use it: one performs the core's effects and reads (`perform`, `fetch`, `take`, `complete`), the other
waits for the disk (`flush`).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import overload

from logdb.cores.effects import (
    Create,
    Drop,
    Journal,
    JournalRange,
    Persist,
    Persisted,
    ProtocolViolation,
    Send,
    SendRanges,
    SendStored,
    Trim,
    Unreadable,
)
from logdb.errors import Corruption, Unavailable
from logdb.log.contract import LogFailed, LogRecord, Record
from logdb.log.segments import Disk, SegmentStore
from logdb.log.segments.store import SEGMENT_BYTES, Run
from logdb.system.disk import DISK_FULL, described

MIN_ALLOCATION_BYTES = 64 << 10
"""Initial size of a journal on disk."""
SHORT_BYTES = 64 << 10
"""Maximum size of a short flush: its sync takes about as long as that of one record."""
DROPPED = ".dropped"
_FOLDER = re.compile(r"(?P<name>.+)\.(?P<generation>\d+)@(?P<first>\d+)")


class Stored(Sequence[LogRecord]):
    """Durable records of a store, read on access. Reading raises Corruption."""

    def __init__(self, store: SegmentStore, first: int, end: int) -> None:
        self._store, self._first, self._end = store, first, max(first, end)

    def __len__(self) -> int:
        return self._end - self._first

    def __iter__(self) -> Iterator[LogRecord]:
        return self._store.scan(self._first, self._end)

    @overload
    def __getitem__(self, at: int) -> LogRecord: ...
    @overload
    def __getitem__(self, at: slice) -> Stored: ...
    def __getitem__(self, at: int | slice) -> LogRecord | Stored:
        numbers = range(self._first, self._end)[at]
        if isinstance(numbers, int):
            return self._store.read(numbers)
        if numbers.step != 1:
            raise ValueError("records are read in their order")
        return Stored(self._store, numbers.start, numbers.stop)


class _Kept:
    """One journal. `next`: the number of the next record. `backlog`: records, with their times, for which
    the disk had no space."""

    def __init__(self, name: str, folder: Path, first: int) -> None:
        self.name, self.folder, self.first = name, folder, first
        self.store: SegmentStore | None = None
        self.next = first
        self.time = 0
        self.backlog: deque[tuple[Sequence[Record], int]] = deque()

    def opened(self, store: SegmentStore) -> None:
        self.store, self.next = store, store.end
        self.time = store.time(store.end - 1) if store.end > store.base else 0


class FlushBatch:
    """The work of one flush. `stores`: to be synced. `done`: the new ends of those that were synced."""

    def __init__(self, trims: dict[SegmentStore, int], drops: list[_Kept]) -> None:
        self.stores: list[tuple[_Kept, SegmentStore, tuple[list[Run], int]]] = []
        self.trims, self.drops = trims, drops
        self.done: list[tuple[_Kept, int]] = []

    @property
    def is_short(self) -> bool:
        """Whether it has little to write, and no files to remove."""
        if self.trims or self.drops:
            return False
        runs = [run for _, _, (runs, _) in self.stores for run in runs]
        return sum([len(frame) for _, _, frames, _ in runs for frame in frames]) <= SHORT_BYTES


class Journals:
    """The journals in `directory`, of the node with the `identity` (16 bytes). The caller holds the directory's lock.

    Raises Corruption, naming the file, when something is damaged: then the node must not start (§3.5).
    """

    def __init__(
        self, directory: Path, identity: bytes, *, segment_bytes: int = SEGMENT_BYTES, disk: Disk | None = None
    ) -> None:
        self._directory, self._identity, self._segment_bytes = directory, identity, segment_bytes
        self._disk = disk or Disk()
        self._kept: dict[str, _Kept] = {}
        self._generations: dict[str, int] = {}
        self._dirty: dict[_Kept, None] = {}
        self._trims: dict[SegmentStore, int] = {}
        self._drops: list[_Kept] = []
        self.refusal: Unavailable | None = None
        """The error of the last write that the full disk refused. Each `take` retries the backlog."""
        self._disk.make_directory(directory)
        self._disk.sync_directory(directory.parent)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def found(self) -> dict[str, Journal]:
        """The journals for a core that starts."""
        return {
            name: Journal(kept.store.base, kept.store.end, Stored(kept.store, kept.store.base, kept.store.end))
            for name, kept in self._kept.items()
            if kept.store is not None
        }

    # ---- performing effects

    def perform(self, effect: Create | Persist | Trim | Drop, now: int) -> None:
        """Perform an effect in memory; `flush` makes it durable. `now`: ns since the epoch.

        Raises LogFailed when the disk fails, ProtocolViolation for an impossible effect.
        """
        match effect:
            case Persist(name, first, records):
                kept = self._journal(name)
                if first != kept.next:
                    raise ProtocolViolation(f"records from {first} for {name}, whose next record is {kept.next}")
                kept.next += len(records)
                kept.time = max(kept.time, now)
                kept.backlog.append((records, kept.time))
                self._dirty[kept] = None
                self._write(kept)
            case Create(name, first):
                if name in self._kept:
                    raise ProtocolViolation(f"{name} exists")
                self._kept[name] = kept = self._new(name, first)
                self._dirty[kept] = None
                self._write(kept)
            case Trim(name, before):
                kept = self._journal(name)
                if kept.store is not None:
                    self._trims[kept.store] = max(before, self._trims.get(kept.store, 0))
            case Drop(name):
                kept = self._journal(name)
                del self._kept[name]
                self._dirty.pop(kept, None)
                self._drops.append(kept)

    def _journal(self, name: str) -> _Kept:
        if name not in self._kept:
            raise ProtocolViolation(f"journal {name} does not exist")
        return self._kept[name]

    def _new(self, name: str, first: int) -> _Kept:
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        return _Kept(name, self._directory / f"{name}.{generation}@{first}", first)

    def _write(self, kept: _Kept) -> None:
        """Append the backlog to the store, as far as the disk has space."""
        try:
            if kept.store is None:
                kept.store = self._store(kept)
            while kept.backlog:
                kept.store.append(*kept.backlog[0])
                kept.backlog.popleft()
        except Unavailable as full:
            self.refusal = full

    def _store(self, kept: _Kept) -> SegmentStore:
        log_id = blake2b(kept.folder.name.encode(), key=self._identity, digest_size=16).digest()
        try:
            return SegmentStore(
                kept.folder,
                log_id,
                writable=True,
                first=kept.first,
                segment_bytes=self._segment_bytes,
                min_allocation_bytes=MIN_ALLOCATION_BYTES,
                disk=self._disk,
            )
        except OSError as error:
            if error.errno in DISK_FULL:
                raise Unavailable(f"the disk that holds {self._directory} is full; free some space") from error
            raise LogFailed(described(error)) from error

    # ---- making durable

    def sync(self) -> list[Persisted]:
        """Make all performed effects durable, and return the events for the core. Raises LogFailed."""
        taken = self.take()
        self.flush(taken)
        return self.complete(taken)

    def take(self) -> FlushBatch:
        """The work for the next `flush`."""
        self.refusal = None
        taken = FlushBatch(self._trims, self._drops)
        self._trims, self._drops = {}, []
        dirty, self._dirty = self._dirty, {}
        for kept in dirty:
            self._write(kept)
            if kept.backlog or kept.store is None:
                self._dirty[kept] = None
            if kept.store is not None:
                taken.stores.append((kept, kept.store, kept.store.take_batch()))
        return taken

    def flush(self, taken: FlushBatch) -> None:
        """Make it durable. May run in another thread, one call at a time. Raises LogFailed."""
        for kept, store, frames in taken.stores:
            before = store.durable_end
            store.flush(frames)
            if store.durable_end > before:
                taken.done.append((kept, store.durable_end))
        for store, before in taken.trims.items():
            store.trim(before)
        for kept in taken.drops:
            if kept.store is not None:
                kept.store.abandon()
            self._remove(kept.folder)

    def complete(self, taken: FlushBatch) -> list[Persisted]:
        """The events for the core after `flush`."""
        return [Persisted(kept.name, end) for kept, end in taken.done if self._kept.get(kept.name) is kept]

    def _remove(self, folder: Path) -> None:
        if not folder.exists():
            return
        if folder.suffix != DROPPED:
            dropped = folder.with_name(folder.name + DROPPED)
            self._disk.rename(folder, dropped)
            self._disk.sync_directory(self._directory)
            folder = dropped
        for path in folder.iterdir():
            self._disk.unlink(path)
        self._disk.remove_directory(folder)

    # ---- reading

    def fetch(self, effect: SendStored | SendRanges) -> Send | Unreadable:
        """The message with its records, or Unreadable for the core."""
        records: Sequence[LogRecord | Record]
        try:
            if isinstance(effect, SendStored):
                records = [record[2:] for record in self._scan(effect.journal, effect.first, effect.end)]
            else:
                records = [record for part in effect.ranges for record in self._stretch(part, effect.tags)]
        except Corruption as damage:
            return Unreadable(effect, str(damage))
        return Send(effect.to, effect.message._replace(records=records))

    def _stretch(self, stretch: JournalRange, tags: frozenset[int] | None) -> list[LogRecord]:
        name, first, end, number, time = stretch
        shift = number - first
        return [
            LogRecord(lsn + shift, time, tag, payload) for lsn, _, tag, payload in self._scan(name, first, end, tags)
        ]

    def _scan(self, name: str, first: int, end: int, tags: frozenset[int] | None = None) -> Iterator[LogRecord]:
        store = self._journal(name).store
        if store is None or not store.base <= first <= end <= store.durable_end:
            raise ProtocolViolation(f"records {first} to {end - 1} of {name} are not there")
        return store.scan(first, end, tags)

    # ---- opening and closing

    def _open(self) -> None:
        newest: dict[str, tuple[int, Path, int]] = {}
        gone = []
        for folder in sorted(self._directory.iterdir()):
            match = _FOLDER.fullmatch(folder.name)
            if match is None:
                if folder.suffix == DROPPED:
                    gone.append(folder)
                continue
            name, generation = match["name"], int(match["generation"])
            older = newest.get(name)
            if older is None or older[0] < generation:
                newest[name] = generation, folder, int(match["first"])
            if older is not None:
                gone.append(min((older[:2], (generation, folder)))[1])
        for name, (generation, folder, first) in newest.items():
            self._generations[name] = generation
            self._kept[name] = kept = _Kept(name, folder, first)
            kept.opened(self._store(kept))
        for folder in gone:
            self._remove(folder)

    def wipe(self) -> None:
        """Remove all journals. Effects that were not flushed are discarded."""
        for name in list(self._kept):
            self.perform(Drop(name), 0)
        self.sync()

    def close(self) -> None:
        """Release the files. Effects that were not flushed are discarded. Raises LogFailed."""
        for kept in [*self._kept.values(), *self._drops]:
            if kept.store is not None:
                kept.store.close()
        self._kept = {}

    def check_invariants(self) -> None:
        """SEG-1 to SEG-6 of all journals, and that none has skipped a number."""
        for kept in self._kept.values():
            waiting = sum(len(records) for records, _ in kept.backlog)
            if kept.store is not None:
                kept.store.check_invariants()
                assert kept.store.end + waiting == kept.next, f"{kept.name}: {kept.store.end} and {waiting} waiting"
