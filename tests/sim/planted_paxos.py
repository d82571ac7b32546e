"""Planted bugs of Paxos (`tests/log/paxos/bugs.py`), for the engines whose cluster shows them within 200 seeds.

Paxos's own simulation (`tests/log/paxos/test_simulation.py`), which injects faults of Paxos only, catches all of
them except those that need a very rare order of events; `tests/log/paxos/stories.py` has these orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.harness.planting import Plants, name_of
from tests.log.paxos.bugs import Plant


def planted(bug: Plant) -> Callable[[], AbstractContextManager[None]]:
    """The bug as a context manager."""

    @contextmanager
    def plant() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            yield

    return plant


def bugs_of_paxos(*bugs: Plant) -> Plants:
    """The bugs of this module by name."""
    return {f"paxos: {name_of(bug)}": planted(bug) for bug in bugs}
