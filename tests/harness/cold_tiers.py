"""A cold tier for scripted mapping servers (`stage.py`)."""

from __future__ import annotations

from pathlib import Path

from logdb.backups.archiving import write_segment
from logdb.backups.places import DirectoryPlace
from logdb.cluster.cold_reads import WINDOW, ColdReader
from logdb.cluster.mapping_server.replica import UnresolvedValues
from logdb.cluster.messages import Compact, Compacted, NotReadable
from logdb.cores.effects import SECOND, Archive, Archived, Recalled
from logdb.node.cold_store import PlacedSegments
from logdb.store.key_map import KeyMap
from tests.harness.stage import Log, Server


class MemoryMap:
    """A map of a view."""

    size_bytes = 0

    def __init__(self) -> None:
        self.key_map = KeyMap(UnresolvedValues(), None)

    def prune(self, floor: int) -> None:
        self.key_map.prune(floor)

    def rest(self) -> None: ...
    def close(self) -> None: ...


class Tier:
    """A tier in a directory. `away`: why it cannot be written or read; "" if it can. `window`: see `ColdReader`."""

    def __init__(self, path: Path, window: int = WINDOW) -> None:
        self.place = DirectoryPlace(path)
        self.away = ""
        self.written: list[Archive] = []
        self.reader = ColdReader(PlacedSegments(self.place), MemoryMap, window)

    def serve(self, *servers: Server) -> bool:
        """Write the segments that the servers have sent, and answer their reads. Returns whether there were any."""
        busy = False
        for server in servers:
            for request in server.take_notices():
                if isinstance(request, Archive):
                    if not self.away:
                        write_segment(self.place, request, "test")
                        self.written.append(request)
                    server.handle(Archived(request.number, self.away))
                elif self.away:
                    server.handle(Recalled(request.number, 0, NotReadable("", self.away)))
                else:
                    server.handle(self.reader.recalled(request))
                busy = True
        return busy


def compact(log: Log, tier: Tier, *servers: Server, before: int, number: int = 1) -> Compacted:
    """Request a compaction of the first server, and let time pass until it has answered."""
    servers[0].give("client", Compact(number, before))
    for _ in range(300):
        log.run(*servers)
        tier.serve(*servers)
        if found := servers[0].take(Compacted):
            assert isinstance(found[0][1], Compacted)
            return found[0][1]
        for server in servers:
            server.wait(SECOND // 10)
    raise AssertionError(f"the compaction has not ended: {servers[0].core.compactor.phase}")
