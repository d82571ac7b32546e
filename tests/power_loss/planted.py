"""Bugs that a power failure must show."""

from __future__ import annotations

import unittest.mock
from collections.abc import Callable
from typing import Any

from logdb.embedded import compactor
from logdb.embedded.checkpointer import Checkpointer
from logdb.embedded.commits import Commits
from logdb.log import LocalLog
from logdb.store.files import MapFiles
from tests.harness.planting import Plants, planted

PLANTED: Plants = {}


@planted(Commits, "acknowledge", PLANTED)
def acknowledge_before_the_sync(right: Callable[..., None], commits: Commits, gsn: int) -> None:
    """A commit returns when it is ordered."""


@planted(Checkpointer, "_finish", PLANTED)
def checkpoint_records_that_are_not_durable(right: Callable[..., None], checkpointer: Any, progress: Any) -> None:
    target = checkpointer._unfinished[0]
    with unittest.mock.patch.object(LocalLog, "wait_durable"):
        right(checkpointer, progress)
    checkpointer._machine.log.wait_durable(target)


@planted(compactor, "compact", PLANTED)
def prune_before_the_compaction_is_in_the_log(
    right: Callable[..., Any], machine: Any, checkpointer: Any, floor: int, progress: Any, *more: Any
) -> Any:
    checkpointer.run()
    for _ in machine.coordinator.map.checkpoint.prune(floor):
        pass
    return right(machine, checkpointer, floor, progress, *more)


@planted(MapFiles, "sync", PLANTED)
def name_a_run_before_it_is_synced(right: Callable[..., None], files: MapFiles, number: int) -> None:
    """The manifest is durable before the files that it names."""
