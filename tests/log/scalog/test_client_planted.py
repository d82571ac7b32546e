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
    "reroute after a timeout": appends.test_an_overdue_batch_is_resent_under_the_same_numbers,
    "treat busy as never": appends.test_busy_does_not_release_the_numbers,
    "treat sealed as never": appends.test_a_sealed_segment_keeps_the_numbers_until_a_status_says_never,
    "resend under new numbers": appends.test_an_overdue_batch_is_resent_under_the_same_numbers,
    "settle numbers that were sent": appends.test_settled_stays_below_numbers_without_a_result,
    "assign all chunks at once": appends.test_a_large_append_is_sent_chunk_by_chunk,
    "acknowledge the start of a chunk for any part": appends.test_acknowledgements_may_cover_a_part_or_several_batches,
    "report sent appends as unavailable": appends.test_an_append_sent_before_its_deadline_ends_as_unknown,
    "report pending records as never appended": (appends.test_the_outcome_of_an_unknown_append_can_be_requested),
    "settle numbers of unknown appends": appends.test_the_numbers_of_an_unknown_append_stay_unsettled,
    "assume contiguous gsns of an append": appends.test_the_append_of_another_client_is_searched_at_all_members,
    "order without waiting for silent shards": subscriptions.test_a_silent_shard_delays_the_subscription,
    "skip trimmed records": subscriptions.test_a_subscription_at_a_trimmed_position_ends_with_trimmed,
    "trust one replica that lacks a record": reads.test_a_read_is_repeated_at_another_member_if_one_lacks_the_record,
    "reuse an earlier tail": ordering_client.test_every_tail_call_sends_a_request_to_the_leader,
    "adopt an older view": ordering_client.test_an_older_view_is_not_adopted,
    "reuse numbers after a restart": ordering_client.test_a_restarted_client_has_another_number,
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    test = CAUGHT_BY[name.removeprefix("client: ")]
    test()
    with PLANTED[name](), pytest.raises((AssertionError, ProtocolViolation, ValueError)):
        test()
    test()
