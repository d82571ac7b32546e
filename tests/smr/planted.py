"""Bugs in the core and in the tasks around it, which the simulation must catch."""

from __future__ import annotations

from typing import Any

from logdb.smr.core.outbox import Outbox
from logdb.smr.core.sessions import Failure, Session, Sessions
from logdb.smr.core.snapshots import SnapshotFinder
from logdb.smr.core.state import ReplicaState
from tests.harness.planting import Plants, Wrong, planted
from tests.smr.simulation import SimulatedReplica

PLANTED: Plants = {}
SEEDS = {
    "a restored session has no results": 2,
    "a restored session is as old as the log": 3,
    "results are dropped before they are acknowledged": 2,
    "a client acknowledges what it has not read": 2,
    "the result of an abandoned command is acknowledged": 6,
    "results in a snapshot are not noticed": 52,
    "a command whose outcome is lost is numbered anew": 8,
    "a snapshot without its last part is complete": 3,
    "a trim precedes the last part of the snapshot": 4,
}
"""The seed that catches a bug; 1 for those that are not named."""


@planted(ReplicaState, "apply", PLANTED)
def a_repeated_command_is_applied_again(right: Wrong, state: Any, *arguments: Any) -> Any:
    for number in state.sessions:
        state.sessions.find(number).results.clear()
    return right(state, *arguments)


@planted(Sessions, "encode", PLANTED)
def a_snapshot_has_no_sessions(right: Wrong, sessions: Any) -> Any:
    return right(Sessions())


@planted(Sessions, "decode", PLANTED)
def a_restored_session_has_no_results(right: Wrong, *arguments: Any) -> Any:
    found, at = right(*arguments)
    for number in found:
        found.find(number).results.clear()
    return found, at


@planted(Sessions, "decode", PLANTED)
def a_restored_session_is_as_old_as_the_log(right: Wrong, *arguments: Any) -> Any:
    found, at = right(*arguments)
    for number in found:
        found.find(number).used_at = 0
    return found, at


@planted(Session, "raise_floor", PLANTED)
def results_are_dropped_before_they_are_acknowledged(right: Wrong, session: Any, acknowledged: int) -> None:
    right(session, session.newest + 1)


@planted(Session, "raise_floor", PLANTED)
def acknowledged_results_are_dropped_and_the_floor_stays(right: Wrong, session: Any, acknowledged: int) -> None:
    session.results = {number: result for number, result in session.results.items() if number > session.newest - 3}


@planted(ReplicaState, "_result", PLANTED)
def a_refused_command_is_not_remembered(right: Wrong, state: Any, payload: bytes) -> Any:
    result = right(state, payload)
    if isinstance(result, Failure):
        return Failure(result.kind, f"{result.message} at {state.applied}")
    return result


@planted(ReplicaState, "restore", PLANTED)
def a_restored_replica_keeps_its_sessions(right: Wrong, state: Any, *arguments: Any) -> None:
    kept = state.sessions
    right(state, *arguments)
    state.sessions = kept


@planted(ReplicaState, "restore", PLANTED)
def a_restored_replica_skips_a_record(right: Wrong, state: Any, *arguments: Any) -> None:
    right(state, *arguments)
    state.applied += 1


@planted(Outbox, "_acknowledged", PLANTED)
def a_client_acknowledges_what_it_has_not_read(right: Wrong, outbox: Any) -> int:
    right(outbox)
    return int(outbox._next)


@planted(Outbox, "keep", PLANTED)
def the_result_of_an_abandoned_command_is_acknowledged(right: Wrong, outbox: Any, pending: Any) -> Any:
    return pending.command_id is not None


@planted(Outbox, "restored", PLANTED)
def results_in_a_snapshot_are_not_noticed(right: Wrong, outbox: Any, position: int, sessions: Any) -> Any:
    return right(outbox, position, _Found(sessions))


class _Found:
    """Sessions whose results are hidden."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def find(self, number: int) -> Session | None:
        return None if self._sessions.find(number) is None else Session(0)


@planted(Outbox, "_drop", PLANTED)
def a_command_whose_outcome_is_lost_is_numbered_anew(right: Wrong, outbox: Any, command_id: Any) -> None:
    waiting = outbox._sent[command_id]
    right(outbox, command_id)
    for pending in waiting:
        pending.command_id, pending.has_own_id = None, False
        outbox.unsent.append(pending)
    waiting.clear()


@planted(SnapshotFinder, "add", PLANTED)
def a_snapshot_without_its_last_part_is_complete(right: Wrong, finder: Any, record: Any) -> None:
    right(finder, record)
    for (position, _), parts in finder._parts.items():
        if len(parts) > 1 and position > finder.position:
            finder.position, finder.data = position, b"".join(parts.values())


@planted(SimulatedReplica, "trim_point", PLANTED)
def a_trim_passes_the_position_of_the_snapshot(right: Wrong, replica: Any) -> int:
    return int(right(replica)) + 4


@planted(SimulatedReplica, "is_snapshot_complete", PLANTED)
def a_trim_precedes_the_last_part_of_the_snapshot(right: Wrong, replica: Any) -> bool:
    return len(replica.snapshot) <= 1


@planted(SimulatedReplica, "position_of_query", PLANTED)
def a_query_does_not_ask_for_the_tail(right: Wrong, replica: Any) -> int:
    return int(replica.state.applied)


@planted(SimulatedReplica, "begin_snapshot", PLANTED)
def a_snapshot_names_a_later_position(right: Wrong, replica: Any, number: int) -> None:
    replica.state.applied += 2
    right(replica, number)
    replica.state.applied -= 2
