"""The desk of a client keeps nothing of calls that have ended, however far their deadlines are."""

from __future__ import annotations

import gc
import weakref
from functools import partial
from random import Random

from logdb.cores.context import FEW_ALARMS, Alarm, Desk
from logdb.cores.effects import SECOND
from tests.log.scalog.client_stage import CONFIG


class Appended:
    """What a call is about."""


def test_what_a_call_was_about_goes_with_its_answer_and_needs_no_collector() -> None:
    desk = Desk(CONFIG, Random(1))
    thing = Appended()
    desk.open(1, 30 * SECOND, partial(desk.answer, 1, thing))
    known = weakref.ref(thing)
    gc.disable()
    try:
        del thing
        desk.answer(1, None)
        assert known() is None
    finally:
        gc.enable()


def test_alarms_of_ended_calls_do_not_pile_up_and_the_others_ring() -> None:
    desk = Desk(CONFIG, Random(1))
    rung = []
    for call in range(20 * FEW_ALARMS):
        desk.open(call, 30 * SECOND + call, lambda: rung.append("deadline"))
        if call % 1_000:
            desk.answer(call, None)
    later = Alarm(lambda: rung.append("moved"))
    desk.set(later, 10 * SECOND)
    later.at = None
    desk.set(later, 40 * SECOND)
    assert len(desk._heap) <= 2 * FEW_ALARMS
    desk.now = 35 * SECOND
    desk.ring()
    assert rung == ["deadline"] * 20
    desk.now = 40 * SECOND
    desk.ring()
    assert rung[-1] == "moved"
