"""The planted bugs of Paxos, which `tests/log/paxos/bugs.py` holds, under the whole cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.log.paxos.bugs import BUGS, Plant


def planted(bug: Plant) -> Callable[[], AbstractContextManager[None]]:
    """The bug as a context manager."""

    @contextmanager
    def plant() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            yield

    return plant


PLANTED = {f"paxos: {bug.__name__.replace('_', ' ')}": planted(bug) for bug in BUGS}
