"""Bugs that the simulator seldom meets, and the tests of single cores that fail with them. Those that it catches are in
`tests/sim/corfu/planted.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from logdb.log.corfu.auxiliary import chains
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.client.appends import AppendClient
from logdb.log.corfu.client.reads import CompletePositions
from logdb.log.corfu.messages import DeleteRequest, Entry, HighestRequest, OpenRequest, Pull, Seal, Update
from logdb.log.corfu.projection import ShardConfig, gsn_at, position_of
from logdb.log.corfu.sequencer.sequencer import Sequencer
from logdb.log.corfu.storage import copier
from logdb.log.corfu.storage.copier import Copier
from logdb.log.corfu.storage.deleted_records import DeletedRecords
from logdb.log.corfu.storage.read_server import ReadServer
from logdb.log.corfu.storage.unit import StorageUnit
from tests.harness import planting
from tests.harness.planting import Plants, Wrong
from tests.log.corfu import (
    test_client,
    test_former_units,
    test_record_trims,
    test_sequencer,
    test_state,
    test_streams,
    test_unit,
)

PLANTED: Plants = {}
CAUGHT_BY: dict[str, Callable[[], None]] = {}
"""The test that fails with each bug."""
Right = Callable[..., Any]

SEALED = test_unit.test_a_sealed_unit_reports_its_end_once_that_is_durable_and_answers_for_no_earlier_epoch
SKIPPED = test_unit.test_a_unit_with_an_entry_that_is_not_assigned_makes_the_sequencer_skip_it
COPIED = test_unit.test_a_unit_reports_a_copy_when_it_is_durable
COPIED_OPEN = test_streams.test_a_log_replica_that_has_copied_names_its_open_positions_from_before_it_joined
COPIED_DELETED = test_record_trims.test_a_copy_of_deleted_records_survives_a_crash_before_their_deletions_are_durable
LAST = test_streams.test_a_log_replica_reports_its_highest_entry_though_it_is_not_committed
NAMED = test_sequencer.test_a_sequencer_assigns_nothing_in_an_epoch_that_does_not_name_it
GROWING = test_sequencer.test_positions_and_times_grow_and_a_repeated_request_gets_the_same
FORMER = test_former_units.test_the_head_copies_from_the_latest_former_unit_that_has_an_entry
JOINED = test_former_units.test_a_unit_that_has_joined_answers_for_all_when_it_has_what_was_not_decided
READ = test_client.test_a_record_is_read_from_the_last_unit_unless_its_entry_is_known_to_be_complete


def planted(owner: Any, method: str, test: Callable[[], None]) -> Callable[[Wrong], Wrong]:
    """As `planting.planted`, for a bug with which `test` fails."""

    def plant(wrong: Wrong) -> Wrong:
        CAUGHT_BY[planting.name_of(wrong)] = test
        return planting.planted(owner, method, PLANTED)(wrong)

    return plant


@planted(StorageUnit, "_on_seal", SEALED)
def report_no_time(right: Right, self: StorageUnit, message: Seal, sender: str, now: int) -> None:
    time, self.store.time = self.store.time, 0
    right(self, message, sender, now)
    self.store.time = time


@planted(StorageUnit, "_ask_sequencer", SKIPPED)
def request_no_tokens_up_to_a_forged_entry(right: Right, self: StorageUnit, now: int, count: int = 0) -> None:
    if not count:
        right(self, now)


@planted(Copier, "on_persisted", COPIED)
def report_a_copy_that_is_not_durable(right: Right, self: Copier) -> None:
    if self._end:
        self.copied = self._since


@planted(ProjectionState, "_begin_epoch", test_state.test_a_change_is_carried_out_once)
def carry_out_a_change_again(right: Right, self: ProjectionState, command: Any) -> Any:
    self.results.pop(command.request, None)
    return right(self, command._replace(epoch=self.epoch))


@planted(ProjectionState, "_copied", test_state.test_a_unit_is_complete_when_it_and_those_before_it_have_copied)
def complete_every_unit_of_the_shard(right: Right, self: ProjectionState, command: Any) -> None:
    config = self.shards.get(self.servers[command.server].shard)
    for unit in config.units if config is not None else ():
        right(self, command._replace(server=unit.server, since=unit.since))


@planted(chains, "covers", test_former_units.test_no_epoch_begins_with_units_that_leave_a_gap)
def count_every_former_unit_with_all_entries_of_its_time(right: Right, config: ShardConfig, servers: Any) -> bool:
    units = [*config.units, *config.former]
    return any(not unit.since and unit.server in servers for unit in units)


@planted(
    StorageUnit,
    "_first_undecided",
    test_former_units.test_a_unit_reports_the_first_position_that_it_does_not_have_durably,
)
def report_what_is_not_there_as_decided(right: Right, self: StorageUnit) -> int:
    return self.store.highest + 1 if right(self) else 0


@planted(StorageUnit, "_is_whole", JOINED)
def answer_before_all_is_copied(right: Right, self: StorageUnit, first: int) -> bool:
    return True


@planted(copier, "formers_of", FORMER)
def copy_from_the_oldest_former_unit_first(right: Right, config: ShardConfig, position: int) -> Any:
    return right(config, position)[::-1]


@planted(copier, "formers_of", FORMER)
def copy_what_was_written_after_a_unit_had_left(right: Right, config: ShardConfig, position: int) -> Any:
    former = tuple([unit._replace(end=1 << 62) for unit in config.former])
    return right(config._replace(former=former), position)


@planted(Sequencer, "_on_update", NAMED)
def assign_positions_without_being_named(right: Right, self: Sequencer, update: Update, sender: str, now: int) -> None:
    view = update.view._replace(nonce=self.nonce)
    right(self, update._replace(view=view), sender, now)


@planted(Sequencer, "_assign", GROWING)
def assign_the_time_of_the_clock(right: Right, self: Sequencer, request: Any, now: int) -> Any:
    self.time = 0
    return right(self, request, now)


@planted(AppendClient, "_assigned", test_client.test_a_token_counts_only_in_its_epoch)
def use_a_token_in_a_later_epoch(right: Right, self: AppendClient, answer: Any, sender: str) -> Any:
    view = self._auxiliary.view
    return right(self, answer._replace(epoch=view.epoch) if hasattr(answer, "positions") else answer, sender)


@planted(CompletePositions, "__contains__", READ)
def read_from_any_unit(right: Right, self: CompletePositions, position: int) -> bool:
    return True


@planted(ShardConfig, "chain", READ)
def read_from_units_that_still_copy(right: Right, self: ShardConfig, position: int) -> Any:
    return self.units


@planted(StorageUnit, "_on_delete", test_record_trims.test_a_unit_that_still_copies_an_entry_deletes_nothing_of_it)
def delete_before_the_entry_is_copied(
    right: Right, self: StorageUnit, message: DeleteRequest, sender: str, now: int
) -> None:
    if self.store.find(position_of(message.gsns[0])) is None:
        message = message._replace(gsns=(gsn_at(self.store.positions[0]),))
    right(self, message, sender, now)


@planted(StorageUnit, "_on_open", COPIED_OPEN)
def skip_open_positions_from_before_it_joined(
    right: Right, self: StorageUnit, message: OpenRequest, sender: str, now: int
) -> None:
    right(self, message._replace(first=max(message.first, self.copier.copied)), sender, now)


@planted(DeletedRecords, "restore", COPIED_DELETED)
def read_copies_of_deleted_records(right: Right, self: DeletedRecords, entry: Entry, indexes: Any) -> None:
    """The unit has nothing in their place but a mark."""


@planted(ReadServer, "on_request", LAST)
def answer_only_when_a_later_entry_comes(right: Right, self: ReadServer, message: Any, sender: str) -> None:
    right(self, message._replace(known=message.known + 1) if isinstance(message, Pull) else message, sender)


@planted(StorageUnit, "_on_highest", SEALED)
def answer_for_a_sealed_epoch(right: Right, self: StorageUnit, message: HighestRequest, sender: str, now: int) -> None:
    right(self, message._replace(epoch=1 << 40), sender, now)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    with PLANTED[name](), pytest.raises((AssertionError, ValueError)):
        CAUGHT_BY[name]()
