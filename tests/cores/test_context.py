"""The desk of a client keeps nothing of calls that have ended, however far their deadlines are."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from random import Random

from logdb.cores.context import FEW_ALARMS, ClientContext, Timer
from logdb.cores.effects import SECOND
from logdb.log.requests import ClientConfig

CONFIG = ClientConfig("client", ("o1", "o2", "o3"), gathers=False)


class Appended:
    """What a call is about."""


def test_what_a_call_was_about_goes_with_its_answer_and_needs_no_collector() -> None:
    context = ClientContext(CONFIG, Random(1))
    thing = Appended()
    context.open(1, 30 * SECOND, partial(context.answer, 1, thing))
    known = weakref.ref(thing)
    gc.disable()
    try:
        del thing
        context.answer(1, None)
        assert known() is None
    finally:
        gc.enable()


def test_alarms_of_ended_calls_do_not_pile_up_and_the_others_ring() -> None:
    context = ClientContext(CONFIG, Random(1))
    rung = []
    for call in range(20 * FEW_ALARMS):
        context.open(call, 30 * SECOND + call, lambda: rung.append("deadline"))
        if call % 1_000:
            context.answer(call, None)
    later = Timer(lambda: rung.append("moved"))
    context.set(later, 10 * SECOND)
    later.at = None
    context.set(later, 40 * SECOND)
    assert len(context._heap) <= 2 * FEW_ALARMS
    context.now = 35 * SECOND
    context.ring()
    assert rung == ["deadline"] * 20
    context.now = 40 * SECOND
    context.ring()
    assert rung[-1] == "moved"
