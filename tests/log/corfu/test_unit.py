"""A storage unit: what it copies, and which positions it accepts."""

from __future__ import annotations

from random import Random

from logdb.log.corfu.messages import FillRequest, Pull, Reason, Rejected, Report, Update
from logdb.log.corfu.projection import View, gsn_at
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.unit import StorageUnit
from tests.harness.script import Script
from tests.log.corfu.client_stage import shard_of, view_of


class Scripted(Script):
    """The unit s13 of shard 1, with the projection `view`."""

    def __init__(self, view: View) -> None:
        config = UnitConfig("s13", ("o1",))
        super().__init__(lambda journals: StorageUnit(config, journals, Random(1)))
        self.sync()
        self.update(view)

    def update(self, view: View) -> None:
        """The auxiliary answers a report with a projection."""
        (_, report), *_ = self.take(Report)
        self.give("o1", Update(13, report.nonce, view, False))
        self.sync()


def test_a_unit_copies_each_entry_from_the_last_unit_of_its_chain() -> None:
    """s12 has joined later than the first positions, and the entries there are complete only on s11."""
    unit = Scripted(view_of(shard_of(1, 0, 5, 9), start=9))
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end) == ("s11", 1, 5)


def test_a_filler_learns_that_the_unit_before_has_trimmed_the_position() -> None:
    unit = Scripted(view_of(shard_of(1, 0, 0, 0)))
    unit.give("me", FillRequest(5, 2, 4, "s12"))
    to, pull = unit.one(Pull)
    assert (to, pull.first, pull.end) == ("s12", 4, 5)
    unit.give("s12", Rejected(pull.request, Reason.TRIMMED, 1, gsn_at(9)))
    to, rejected = unit.one(Rejected)
    assert (to, rejected.request, rejected.why) == ("me", 5, Reason.TRIMMED)
