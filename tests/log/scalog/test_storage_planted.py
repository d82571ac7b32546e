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
    "report before the sync": membership.test_a_report_contains_only_durable_records,
    "report links before the sync": membership.test_a_link_is_reported_as_placed_when_it_is_durable,
    "report caught up without the records": membership.test_a_joining_member_reports_that_it_has_caught_up,
    "adopt the registration of another server": membership.test_replies_for_another_token_are_ignored,
    "accept a gap": replication.test_a_backup_accepts_records_only_at_the_end_of_its_copy,
    "replicate before the sync": replication.test_backups_get_only_durable_records,
    "acknowledge before the sync": replication.test_repeated_records_are_accepted_once_and_acknowledged_again,
    "answer appends before they are ordered": appending.test_an_append_is_acknowledged_when_a_link_orders_it,
    "reject reads beyond the cut": reading.test_a_read_at_the_end_of_an_empty_log_waits,
    "adopt the newest gsn despite a gap": membership.test_a_member_with_a_gap_does_not_adopt_the_newest_gsn,
    "place links after a gap": membership.test_a_missing_link_is_requested,
    "report never for an open segment": appending.test_no_status_is_never_while_the_segment_is_open,
    "report never with an incomplete copy": appending.test_an_incomplete_copy_does_not_report_never,
    "lose client sessions in a restart": appending.test_sessions_survive_a_restart,
    "drop the mark of settled numbers": appending.test_settled_numbers_are_dropped_and_not_appended,
    "checkpoint records that are not durable": (
        appending.test_records_lost_in_a_crash_are_accepted_again_after_a_checkpoint
    ),
    "trim records before their sessions are saved": (
        trimming.test_records_are_trimmed_only_when_their_sessions_are_durable
    ),
}


@pytest.mark.parametrize("name", [*PLANTED, *RARE])
def test_a_planted_bug_is_caught(name: str) -> None:
    test = CAUGHT_BY[name.removeprefix("storage: ")]
    test()
    with {**PLANTED, **RARE}[name](), pytest.raises((AssertionError, ProtocolViolation)):
        test()
    test()
