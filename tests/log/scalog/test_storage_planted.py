"""The tests of the storage server can fail: each planted bug is caught by the test that is named here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from logdb.cores.effects import ProtocolViolation
from tests.log.scalog import test_storage_appending as appending
from tests.log.scalog import test_storage_membership as membership
from tests.log.scalog import test_storage_reading as reading
from tests.log.scalog import test_storage_replication as replication
from tests.log.scalog import test_storage_trimming as trimming
from tests.sim.scalog.planted_storage import PLANTED, RARE

CAUGHT_BY: dict[str, Callable[[], None]] = {
    "report before the sync": membership.test_a_report_says_only_what_is_durable,
    "report links before the sync": membership.test_a_link_is_reported_as_placed_when_it_is_durable,
    "say caught up without the records": membership.test_a_joining_member_says_when_it_has_all,
    "become whoever is meant": membership.test_what_is_said_to_another_token_is_ignored,
    "accept a gap": replication.test_a_backup_takes_records_only_where_its_copy_ends,
    "replicate before the sync": replication.test_backups_are_sent_nothing_before_it_is_durable,
    "acknowledge before the sync": replication.test_what_comes_twice_is_taken_once_and_acknowledged_again,
    "answer appends before they are ordered": appending.test_an_append_is_answered_when_a_link_orders_it_and_not_before,
    "answer not mine behind the cut": reading.test_a_read_at_the_end_of_an_empty_log_waits,
    "believe the newest gsn despite a gap": membership.test_a_member_with_a_gap_does_not_believe_the_newest_gsn,
    "link without asking what was before": membership.test_a_link_that_was_missed_is_asked_for,
    "say never of an open segment": appending.test_nothing_is_never_while_the_segment_is_open,
    "say never with half a copy": appending.test_a_copy_that_does_not_reach_the_sealed_end_does_not_say_never,
    "forget the clients in a restart": appending.test_a_restart_forgets_no_number,
    "forget settled numbers without a mark": appending.test_settled_numbers_are_forgotten_and_refused,
    "let a checkpoint cover what is not durable": (
        appending.test_what_a_crash_has_lost_is_taken_anew_though_a_checkpoint_was_written
    ),
    "trim records before their clients are noted": (
        trimming.test_records_go_only_when_what_their_clients_have_sent_is_durable_elsewhere
    ),
}


@pytest.mark.parametrize("name", [*PLANTED, *RARE])
def test_a_planted_bug_is_caught(name: str) -> None:
    test = CAUGHT_BY[name.removeprefix("storage: ")]
    test()
    with {**PLANTED, **RARE}[name](), pytest.raises((AssertionError, ProtocolViolation)):
        test()
    test()
