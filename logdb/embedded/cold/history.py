"""The history of a directory in its cold tier: which versions it has, and reads of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from logdb.backups.places import DirectoryPlace, Place, place_of
from logdb.embedded.cold.tier import ColdTier, Era
from logdb.embedded.cold.tiered_log import SegmentCache, TieredLog
from logdb.embedded.cold.uploader import Uploader
from logdb.embedded.cold.views import View
from logdb.embedded.directory import Directory
from logdb.embedded.external_leases import make_folder, process_owner, remove_folder, sweep
from logdb.embedded.state_machine import StateMachine
from logdb.errors import ColdTierError, VersionTrimmed
from logdb.store.kept_views import KeptViews
from logdb.store.values import Values
from logdb.system.forking import own

ATTACHED: Final = "COLD"
"""The file in a database directory that names its cold tier."""
CACHED_OVERLAYS: Final = 4
"""Maximum size of the segments that a process keeps of a cold tier, besides the one in use, and of the views, in
overlays of the map (512 MiB)."""


def attached_to(path: Path) -> str | None:
    """The cold tier of a database directory, None if it has none. Raises ColdTierError, OSError."""
    try:
        return (path / ATTACHED).read_text().strip() or None
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ColdTierError(f"{path / ATTACHED}, which should name the cold tier, is not text ({error})") from error


def checked_place(path: Path, cold: str | os.PathLike[str]) -> Place:
    """The place of a cold tier, outside of the database directory. Raises TypeError, ValueError, ColdTierError."""
    place = place_of(cold)
    if isinstance(place, DirectoryPlace):
        at = Path(place.location()).resolve()
        if at.is_relative_to(path.resolve()):
            raise ColdTierError(f"{at} is in the directory of the database; use a place outside of it")
        return DirectoryPlace(at)
    return place


class ColdHistory:
    """The cold tier of an open directory. `writable`: this process writes the log, and copies its segments."""

    def __init__(self, machine: StateMachine, place: Place, directory: Directory, *, writable: bool) -> None:
        self._machine, self._directory, self._path = machine, directory, directory.path
        self.tier = ColdTier(place, directory.log_id)
        cache_bytes = CACHED_OVERLAYS * machine.overlay_bytes
        self._cache = SegmentCache(self.tier, self._scratch, cache_bytes)
        self.log = TieredLog(machine, self.tier, self._cache)
        self._views = KeptViews[View](cache_bytes)
        self._folded = itertools.count(1)
        self.uploader = Uploader(machine, self.tier) if writable else None
        self.values = Values(self.log.read_record)
        self._folder: Path | None = None
        self._making = threading.Lock()
        own(self)

    def attach(self) -> None:
        """Make the place the cold tier of the directory from now on. Raises ColdTierError, Corruption, Unavailable."""
        assert self.uploader is not None
        self.uploader.attach()
        DirectoryPlace(self._path).write(ATTACHED, f"{self.tier.location}\n".encode())

    def start(self) -> None:
        """Begin to copy segments, in the process that writes."""
        if self.uploader is not None:
            self.uploader.start()

    def release(self, first: int) -> bool:
        """After a compaction: whether the records before `first` may be trimmed."""
        assert self.uploader is not None
        coordinator = self._machine.coordinator
        return self.uploader.release(Era(first, coordinator.floor, coordinator.compacted_at))

    # ---- versions

    def has(self, version: int) -> bool:
        """Whether a version is older than those that the local log can read."""
        return version < self._machine.coordinator.floor

    def oldest(self) -> int:
        """The oldest version that can be read. Raises DatabaseClosed, Unavailable, Corruption, ColdTierError."""
        self._machine.version()
        return min(self.log.manifest().eras[0].floor, self._machine.coordinator.floor)

    def check(self, version: int) -> int:
        """`version`, which is before the local floor, if the tier has it. Raises VersionTrimmed."""
        oldest = self.oldest()
        if version < oldest:
            raise VersionTrimmed(version, oldest)
        return version

    # ---- reads

    @contextlib.contextmanager
    def at(self, version: int) -> Iterator[View]:
        """Reads of a version before the local floor, for the block. Raises VersionTrimmed, Corruption,
        Unavailable."""
        era, following = self.log.manifest().era_of(self.check(version))
        next_at = self._machine.coordinator.compacted_at if following is None else following.compacted_at
        through = max(version, era.compacted_at, next_at - 1)
        with self._views.use((era.first, through), lambda: self._fold(era, through)) as view:
            yield view

    def _fold(self, era: Era, through: int) -> View:
        folder = self._scratch() / f"view-{next(self._folded)}"
        return View(self._machine, self.log, self.tier.log_id, era, through, folder)

    def versions(self, key: bytes, at: int, floor: int) -> Iterator[tuple[int, bytes | None]]:
        """(version, value) of a key, newest first, from version `at` back. Versions from `floor` on, but the one that
        is live there, were read before."""
        while at >= 0 and floor > self.oldest():
            with self.at(min(at, floor - 1)) as view:
                for version, value in view.history(key, min(at, floor)):
                    yield version, value
                    at = version - 1
                floor = view.era.floor

    # ---- the end

    def _scratch(self) -> Path:
        """The folder of this process for segments and maps; a process that was killed has left one to sweep."""
        with self._making:
            if self._folder is None:
                self._directory.check()
                sweep(self._path)
                self._folder = make_folder(self._path, process_owner(os.getpid()))
            return self._folder

    def measures(self) -> dict[str, Any]:
        """Numbers for `Backend.measures`."""
        found = {} if self.uploader is None else self.uploader.measures()
        return {**found, "cold_cache_bytes": self._cache.size_bytes}

    def close(self) -> None:
        """Stop copying, and remove what was kept for reads."""
        if self.uploader is not None:
            self.uploader.stop()
        self._views.close()
        self._cache.close()
        if self._folder is not None:
            remove_folder(self._folder)

    def disown(self, parent: int) -> None:
        """In a child of fork(): the folder is the parent's."""
        self._folder = None
        self._views.disown()
        if self.uploader is not None:
            self.uploader.disown()
