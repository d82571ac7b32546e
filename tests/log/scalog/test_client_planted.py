"""The tests of the client can fail: each planted bug is caught by the test that is named here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdb.cores.effects import ProtocolViolation
from tests.log.scalog import test_client_appends as appends
from tests.log.scalog import test_client_council as council
from tests.log.scalog import test_client_reads as reads
from tests.log.scalog import test_client_subscriptions as subscriptions
from tests.sim.scalog.planted_client import PLANTED

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "send elsewhere after a timeout": appends.test_silence_sends_the_same_numbers_to_the_same_segment,
    "take busy for never": appends.test_busy_is_no_fate,
    "take sealed for never": appends.test_sealed_is_no_fate_before_a_member_says_never,
    "number anew what is sent again": appends.test_silence_sends_the_same_numbers_to_the_same_segment,
    "call settled what was sent": appends.test_settled_stays_below_what_is_neither_here_nor_there,
    "place all parts at once": appends.test_a_large_append_goes_out_in_parts_one_after_another,
    "credit a part to the beginning": appends.test_acknowledgements_may_cover_a_part_or_several_batches,
    "call unavailable what was sent": appends.test_what_was_sent_by_the_deadline_is_unknown_and_settled_all_the_same,
    "call never what is not known yet": (appends.test_an_unknown_append_can_be_asked_for_until_its_outcome_is_certain),
    "have servers forget what was unknown": appends.test_what_was_unknown_is_not_settled_so_that_other_clients_find_it,
    "believe that gsns follow numbers": appends.test_an_append_of_another_client_is_looked_for_at_all_members,
    "conclude from silence": subscriptions.test_a_silent_shard_holds_the_subscription,
    "skip what was trimmed": subscriptions.test_what_was_trimmed_is_said,
    "take one replica for all": reads.test_a_member_that_lacks_it_sends_the_client_to_another,
    "remember the tail": council.test_the_tail_is_asked_of_the_leader_again_each_time,
    "go back to an older view": council.test_an_older_view_is_not_taken_back,
    "begin again with the same numbers": council.test_a_client_that_restarts_is_another_one,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    test = CAUGHT_BY[name.removeprefix("client: ")]
    test()
    with PLANTED[name](), pytest.raises((AssertionError, ProtocolViolation, ValueError)):
        test()
    test()
