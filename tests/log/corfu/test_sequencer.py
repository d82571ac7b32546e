"""The sequencer: positions and times that grow, in the epoch that names it."""

from __future__ import annotations

from random import Random

from logdb.log.corfu.messages import SequencerReport, TokenRefused, TokenRequest, TokenResponse, Update
from logdb.log.corfu.projection import View
from logdb.log.corfu.sequencer.sequencer import Sequencer, SequencerConfig
from tests.harness.script import Script
from tests.log.corfu.client_stage import shard_of, view_of


class Scripted(Script):
    """A sequencer; `nonce`: of its process."""

    def __init__(self) -> None:
        super().__init__(lambda journals: Sequencer(SequencerConfig("q1", ("o1",)), journals, Random(1)), now=50)
        self.nonce = self.one(SequencerReport)[1].nonce

    def update(self, view: View, *, is_named: bool = True) -> None:
        """The auxiliary sends a projection."""
        self.give("o1", Update(0, self.nonce, view._replace(nonce=self.nonce if is_named else 0), False))

    def request(self, number: int, epoch: int, *places: int) -> TokenResponse | TokenRefused:
        """Request positions, and return the answer."""
        self.give("me", TokenRequest(number, epoch, places))
        (_, answer), *_ = [*self.take(TokenResponse), *self.take(TokenRefused)]
        return answer


def test_positions_and_times_grow_and_a_repeated_request_gets_the_same() -> None:
    sequencer = Scripted()
    sequencer.update(view_of(shard_of(1, 0), shard_of(2, 0), start=9, time=100))
    first = TokenResponse(1, 2, 9, 14, (9, 11, 13), 100)
    for now in (50, 200):
        sequencer.now = now
        assert sequencer.request(1, 2, 0, 1, 1) == first
    sequencer.now = 150
    assert sequencer.request(2, 2, 0) == TokenResponse(2, 2, 14, 15, (14,), 150)
    sequencer.now = 120
    assert sequencer.request(3, 2) == TokenResponse(3, 2, 15, 15, (), 150)


def test_a_sequencer_assigns_nothing_in_an_epoch_that_does_not_name_it() -> None:
    sequencer = Scripted()
    assert sequencer.request(1, 2, 0) == TokenRefused(1, 0)
    sequencer.update(view_of(shard_of(1, 0), epoch=2))
    assert sequencer.request(1, 3, 0) == TokenRefused(1, 2)
    sequencer.update(view_of(shard_of(1, 0), epoch=3), is_named=False)
    for epoch in (2, 3):
        assert sequencer.request(1, epoch, 0) == TokenRefused(1, 0)
