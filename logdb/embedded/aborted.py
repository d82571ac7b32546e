"""The aborted commits of a range of records: from the ledger, and before the floor from decision records."""

from __future__ import annotations

from logdb.embedded.state_machine import StateMachine
from logdb.errors import Corruption
from logdb.store.records import DECISION, decode_decision


def aborted_in(machine: StateMachine, first: int, end: int) -> list[int]:
    """The commit records from `first` to before `end` that were not applied, in order. Raises Corruption, Trimmed."""
    while True:
        coordinator = machine.coordinator
        floor = coordinator.floor
        early = sorted(gsn for gsn in _before_floor(machine, first) if gsn < end)
        found = [*early, *coordinator.ledger.aborted_between(max(floor, first) - 1, end - 1)]
        if machine.coordinator.floor == floor:  # else a compaction has trimmed the ledger meanwhile
            return found


def _before_floor(machine: StateMachine, first: int) -> list[int]:
    """The aborted commits from `first` to the floor: trimming removes whole files, so some of them may be left.

    The ledger no longer has them, but the decision records do. The last of these is right before the compaction record,
    and each one has the position of the one before it.
    """
    floor, at = machine.coordinator.floor, machine.coordinator.compacted_at - 1
    aborted: list[int] = []
    while first < floor and at >= first:
        record = machine.log.read_record(at, 0)
        if record.tag != DECISION:
            raise Corruption(machine.path, None, f"record {at} should be a decision record and is of kind {record.tag}")
        decision = decode_decision(record.payload)
        aborted += [gsn for gsn in decision.aborted if first <= gsn < floor]
        at = decision.after + 1
        if decision.after < first:
            break
    return aborted
