"""Coroutines that run in an event loop while a thread waits: results, errors, interrupts, and a loop that ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logdb.clients import background_loop
from logdb.clients.background_loop import begin_in_shared_loop, in_shared_loop, shared_loop
from logdb.errors import LogDBError
from tests.harness.forks import in_child
from tests.harness.interrupts import InterruptedAt


@pytest.mark.parametrize("error", [ValueError("wrong"), StopAsyncIteration(), TimeoutError(), asyncio.CancelledError()])
def test_a_thread_gets_the_result_or_the_exception(error: BaseException) -> None:
    async def work(result: int) -> int:
        await asyncio.sleep(0)
        if not result:
            raise error
        return result

    assert in_shared_loop(work(7)) == 7
    with pytest.raises(type(error)):
        in_shared_loop(work(0))


def test_a_callback_of_the_loop_cannot_wait_for_the_loop() -> None:
    """The loop waited for itself without an end, and so did all clients of the process."""
    errors: list[Exception] = []

    async def work() -> None:
        with pytest.raises(LogDBError, match="may not wait") as raised:
            in_shared_loop(asyncio.sleep(0), asyncio.get_running_loop())
        errors.append(raised.value)

    thread = threading.Thread(target=asyncio.run, args=(work(),), daemon=True)
    thread.start()
    thread.join(5)
    assert errors


def test_many_threads_wait_at_once() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0.001 * (number % 3))
        return number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: in_shared_loop(work(number)), range(200))) == list(range(200))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_anywhere_ends_the_coroutine() -> None:
    """At each line the coroutine has ended, is cancelled, or was never started."""
    running: set[int] = set()

    async def work(nth: int) -> None:
        running.add(nth)
        try:
            await asyncio.sleep(0)
        finally:
            running.discard(nth)

    async def others() -> list[str]:
        return [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    def check() -> None:
        shared_loop()
        nth = 0
        while True:
            nth += 1
            at = InterruptedAt(nth, (background_loop.__file__,))
            try:
                with at:
                    in_shared_loop(work(nth))
            except KeyboardInterrupt:
                assert at.where
            in_shared_loop(asyncio.sleep(0.001))
            assert not running, at.where
            assert not in_shared_loop(others()), at.where
            if not at.where:
                break
        assert nth > 10

    in_child(check)  # its loop has no tasks of other tests


def test_an_interrupt_while_the_loop_is_started_leaves_no_loop_without_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next call found a loop that did not run, and waited without end."""

    async def work() -> int:
        return 7

    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    def begin() -> None:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(threading.Thread, "start", interrupted)
            shared_loop()
        found = list[int]()
        calling = threading.Thread(target=lambda: found.append(in_shared_loop(work())), daemon=True)
        calling.start()
        calling.join(10)
        assert found == [7]

    in_child(begin)  # it has no loop yet


def test_an_interrupted_thread_cancels_its_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupted(handover: Any) -> Any:
        begun.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(background_loop._Handover, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_shared_loop(work())
    assert cancelled.wait(10)


def test_a_cancelled_coroutine_ends_the_wait_even_before_its_first_step() -> None:
    has_begun = False

    async def work() -> None:
        nonlocal has_begun
        has_begun = True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(in_shared_loop, work(), loop)
            while len(tasks := asyncio.all_tasks()) == 1:
                await asyncio.sleep(0)
            for task in tasks - {asyncio.current_task()}:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wrap_future(waiting)

    asyncio.run(main())
    assert not has_begun


def test_the_result_of_a_coroutine_that_only_begins_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    ended = threading.Event()

    async def work() -> None:
        ended.set()
        raise ValueError

    begin_in_shared_loop(work())
    assert ended.wait(10)
    in_shared_loop(asyncio.sleep(0))
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]
