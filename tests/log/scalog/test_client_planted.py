"""The tests of the client can fail: each planted bug is caught by the test that is named here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdb.cores.effects import ProtocolViolation
from tests.log.scalog import test_client_appends as appends
from tests.log.scalog import test_client_reads as reads
from tests.log.scalog import test_client_subscriptions as subscriptions
from tests.log.scalog import test_ordering_client as ordering_client
from tests.sim.scalog.planted_client import PLANTED

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "send elsewhere after a timeout": appends.test_an_overdue_batch_is_resent_under_the_same_numbers,
    "take busy for never": appends.test_busy_does_not_release_the_numbers,
    "take sealed for never": appends.test_a_sealed_segment_keeps_the_numbers_until_a_status_says_never,
    "number anew what is sent again": appends.test_an_overdue_batch_is_resent_under_the_same_numbers,
    "call settled what was sent": appends.test_settled_stays_below_numbers_without_a_result,
    "place all parts at once": appends.test_a_large_append_is_sent_chunk_by_chunk,
    "credit a part to the beginning": appends.test_acknowledgements_may_cover_a_part_or_several_batches,
    "call unavailable what was sent": appends.test_an_append_sent_before_its_deadline_ends_as_unknown,
    "call never what is not known yet": (appends.test_the_outcome_of_an_unknown_append_can_be_requested),
    "have servers forget what was unknown": appends.test_the_numbers_of_an_unknown_append_stay_unsettled,
    "believe that gsns follow numbers": appends.test_the_append_of_another_client_is_searched_at_all_members,
    "conclude from silence": subscriptions.test_a_silent_shard_delays_the_subscription,
    "skip what was trimmed": subscriptions.test_a_subscription_at_a_trimmed_position_ends_with_trimmed,
    "take one replica for all": reads.test_a_read_is_repeated_at_another_member_if_one_lacks_the_record,
    "remember the tail": ordering_client.test_every_tail_call_sends_a_request_to_the_leader,
    "go back to an older view": ordering_client.test_an_older_view_is_not_adopted,
    "begin again with the same numbers": ordering_client.test_a_restarted_client_has_another_number,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    test = CAUGHT_BY[name.removeprefix("client: ")]
    test()
    with PLANTED[name](), pytest.raises((AssertionError, ProtocolViolation, ValueError)):
        test()
    test()
