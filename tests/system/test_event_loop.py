from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import pytest

from logdb.system.event_loop import run


async def loop_that_runs() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


class OtherLoop(asyncio.SelectorEventLoop):
    pass


def test_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(new_event_loop=OtherLoop))
    assert type(run(loop_that_runs())) is OtherLoop


def test_asyncio_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert type(run(loop_that_runs())) is type(asyncio.new_event_loop()) is not OtherLoop
