"""Which records the faults of a seed may take, where servers acknowledge what they have not synced (ZIP-12).

A record may be lost only if every member of a view has lost it: by a crash before all of these members had it on their
disks, and before the next view began with it, or with its disk. Another one may get its GSN then, and it may itself get
another one, if a backup had placed them so.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from logdb.log.ziplog.messages import ShardConfig
from logdb.log.ziplog.records import header
from logdb.log.ziplog.storage.shard_log import ORDER, SPECULATIVE
from tests.sim.process import Process

Header = tuple[int, int, int]
"""GSN, client and sequence number of a record."""


class Losses:
    """`_lost_by`: by the header of a record, the numbers of the servers that have lost it, or might have. `_views`: the
    members of each view."""

    def __init__(self) -> None:
        self._lost_by: dict[Header, set[int]] = defaultdict(set)
        self._views: dict[tuple[int, int], frozenset[int]] = {}

    def note_view(self, config: ShardConfig) -> None:
        """A view has begun."""
        self._views[config.shard, config.view] = frozenset(member.server for member in config.members)

    def note_crash(self, process: Process, server: int, config: ShardConfig, members: list[Process]) -> None:
        """A server is about to crash. `members`: the processes of `config`."""
        member = next((one for one in config.members if one.server == server), None)
        if member is not None and not config.is_established and (member is config.members[0] or member.is_synced):
            return  # nothing was acknowledged since all that it has was synced
        state: Any = process.core.state  # type: ignore[union-attr]
        log = state.base or state.log
        at_risk = {header(record) for record in log.to_keep(log.stable)}
        everywhere = set.intersection(*map(on_disk, members)) if members else set()
        for record in at_risk - everywhere:
            self._lost_by[record].add(server)

    def note_loss(self, process: Process, server: int) -> None:
        """A server that is down is about to lose its disk."""
        for record in on_disk(process):
            self._lost_by[record].add(server)

    def possible(self) -> set[int]:
        """The GSNs of records that may be lost."""
        views = set(self._views.values())
        return {gsn for (gsn, _, _), servers in self._lost_by.items() if any(view <= servers for view in views)}


def on_disk(process: Process) -> set[Header]:
    """The headers of the records that are durable on the disk of a server."""
    found = set()
    for name, journal in process.disk.journals.items():
        if name.startswith((ORDER, SPECULATIVE)):
            for record in journal.records[: journal.durable - journal.first]:
                placed = header(record)
                if placed[1]:
                    found.add(placed)
    return found
