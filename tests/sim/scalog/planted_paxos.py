"""Those planted bugs of Paxos (`tests/log/paxos/bugs.py`) that the whole cluster shows within 200 seeds.

Paxos's own simulation (`tests/log/paxos/test_simulation.py`), which injects faults of Paxos only, catches all of
them except those that need a very rare order of events; `tests/log/paxos/stories.py` has these orders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.log.paxos.bugs import BUGS, Plant

SHOWN = {
    "forget_values_in_a_promise",
    "need_too_few_promises",
    "skip_a_slot_with_a_snapshot",
    "vote_with_an_empty_disk",
    "join_without_the_values",
}


def planted(bug: Plant) -> Callable[[], AbstractContextManager[None]]:
    """The bug as a context manager."""

    @contextmanager
    def plant() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            yield

    return plant


PLANTED = {f"paxos: {bug.__name__.replace('_', ' ')}": planted(bug) for bug in BUGS if bug.__name__ in SHOWN}
