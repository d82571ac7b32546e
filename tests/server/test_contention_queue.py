"""Turns at hot keys: in order, and every wait ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Coroutine
from typing import Any

import pytest

from logdb.server import contention_queue
from logdb.server.contention_queue import ContentionQueue


def not_twice() -> None:
    raise AssertionError("called twice")


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def test_uncontended_keys_have_no_turns() -> None:
    async def main() -> None:
        line = ContentionQueue()
        assert line.enter(b"k", 1, not_twice)
        assert line.enter(b"k", 2, not_twice)
        line.mark_contended(b"other")
        assert line.enter(b"k", 3, not_twice)
        line.leave(1)

    run(main())


def test_turns_come_in_order() -> None:
    async def main() -> None:
        line = ContentionQueue()
        line.mark_contended(b"k")
        begun: list[int] = []
        assert line.enter(b"k", "first", not_twice)
        for number in range(3):
            assert not line.enter(b"k", number, functools.partial(begun.append, number))
        assert line.enter(b"other", "other", not_twice)
        assert begun == []
        line.leave("first")
        assert begun == [0]
        line.leave(1)  # the transaction stops waiting
        line.leave(0)
        assert begun == [0, 2]
        line.leave(2)
        line.leave(2)
        assert line.enter(b"k", "last", not_twice)
        line.leave("last")

    run(main())


def test_a_slow_transaction_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_queue, "TURN_S", 0.001)

    async def main() -> None:
        line = ContentionQueue()
        line.mark_contended(b"k")
        assert line.enter(b"k", "slow", not_twice)
        begun = asyncio.Event()
        assert not line.enter(b"k", "next", begun.set)
        await begun.wait()
        line.leave("slow")

    run(main())


def test_a_key_cools_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_queue, "CONTENDED_S", 0.0)

    async def main() -> None:
        line = ContentionQueue()
        line.mark_contended(b"k")
        await asyncio.sleep(0)
        assert line.enter(b"k", 1, not_twice)
        assert line.enter(b"k", 2, not_twice)

    run(main())


def test_hot_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention_queue, "MAX_CONTENDED", 10)

    async def main() -> None:
        line = ContentionQueue()
        for number in range(100):
            line.mark_contended(b"%d" % number)
            assert line.contended <= 10

    run(main())
