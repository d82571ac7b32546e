"""A client context keeps nothing of calls that have ended, however distant their deadlines are."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from random import Random

from logdb.cores.context import MIN_SWEEP_TIMERS, ClientContext, Timer
from logdb.cores.effects import SECOND
from logdb.log.requests import ClientConfig

CONFIG = ClientConfig("client", ("o1", "o2", "o3"), coalesce_calls=False)


class Argument:
    """An argument of a call."""


def test_the_answer_of_a_call_releases_its_arguments_without_the_garbage_collector() -> None:
    context = ClientContext(CONFIG, Random(1))
    argument = Argument()
    context.open(1, 30 * SECOND, partial(context.answer, 1, argument))
    reference = weakref.ref(argument)
    gc.disable()
    try:
        del argument
        context.answer(1, None)
        assert reference() is None
    finally:
        gc.enable()


def test_timers_of_ended_calls_are_removed_and_the_others_fire() -> None:
    context = ClientContext(CONFIG, Random(1))
    fired = []
    for call in range(20 * MIN_SWEEP_TIMERS):
        context.open(call, 30 * SECOND + call, lambda: fired.append("deadline"))
        if call % 1_000:
            context.answer(call, None)
    later = Timer(lambda: fired.append("moved"))
    context.set_timer(later, 10 * SECOND)
    later.at = None
    context.set_timer(later, 40 * SECOND)
    assert len(context._heap) <= 2 * MIN_SWEEP_TIMERS
    context.now = 35 * SECOND
    context.fire_timers()
    assert fired == ["deadline"] * 20
    context.now = 40 * SECOND
    context.fire_timers()
    assert fired[-1] == "moved"
