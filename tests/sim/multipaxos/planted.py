"""The bugs that are planted in Multi-Paxos, and the seed that caught each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.cores.effects import Send
from logdb.errors import Corruption, Unavailable
from logdb.log.multipaxos import commands
from logdb.log.multipaxos.client import append_client, read_client
from logdb.log.multipaxos.client.append_client import AppendClient, Batch, PendingAppend
from logdb.log.multipaxos.client.sequence_numbers import SequenceNumbers
from logdb.log.multipaxos.client.subscription import LogSubscription
from logdb.log.multipaxos.log_index import LogIndex
from logdb.log.multipaxos.messages import AppendRequest, Pull, Pulled, ReadError, TailRequest, TailResponse
from logdb.log.multipaxos.read_server import ReadServer
from logdb.log.multipaxos.record_copier import RecordCopier
from logdb.log.multipaxos.record_store import RecordStore
from logdb.log.multipaxos.replica import MultiPaxosReplica
from logdb.log.multipaxos.sessions import Run, Sessions
from logdb.log.multipaxos.state import Applied, LogState
from logdb.log.paxos.acceptor import Acceptor
from tests.harness.planting import Plants, planted
from tests.log.paxos import bugs
from tests.sim.planted_paxos import bugs_of_paxos

CAUGHT_BY = {
    "accept over a gap": 1,
    "acknowledge what is proposed": 5,
    "append an append of any size at once": 9,
    "append again what comes again": 1,
    "believe to lead without asking": 152,
    "call unavailable what was sent": 5,
    "copy nothing after a snapshot": 13,
    "forget records before they are durable": 40,
    "forget where a client appended": 5,
    "have the servers forget what was unknown": 5,
    "join parts of different commands": 46,
    "leave the sessions out of a snapshot": 39,
    "let any replica say where the tail is": 1,
    "number anew what is sent again": 1,
    "save the state before its records": 68,
    "see only the end of what is missing": 30,
    "send all tags": 1,
    "pull what was awaited twice": 1,
    "send what a follower has not applied": 3,
    "settle one number too many": 1,
    "settle what was sent": 1,
    "skip what was trimmed": 10,
    "take one damaged replica for all": 570,
    "take the index for exact": 11,
    "time records by the leader alone": 349,
    "trim past the end": 2,
    "use a snapshot with records nowhere else": 6354,
    "use the same numbers twice": 1,
    "paxos: accept before persisting": 21,
    "paxos: choose values accepted for another ballot": 45,
    "paxos: count the own vote twice": 33,
    "paxos: drop votes behind a snapshot": 6,
    "paxos: forget values in a promise": 1,
    "paxos: inform of what is proposed": 321,
    "paxos: join without the values": 122,
    "paxos: lead before all is chosen": 22,
    "paxos: skip a slot with a snapshot": 13,
    "paxos: trim before the snapshot is durable": 30,
    "paxos: vote with an empty disk": 5,
}
"""The seed that caught each bug when it was last looked at; changes give seeds another meaning."""
PLANTED: Plants = bugs_of_paxos(
    bugs.accept_before_persisting,
    bugs.choose_values_accepted_for_another_ballot,
    bugs.count_the_own_vote_twice,
    bugs.drop_votes_behind_a_snapshot,
    bugs.forget_values_in_a_promise,
    bugs.inform_of_what_is_proposed,
    bugs.join_without_the_values,
    bugs.lead_before_all_is_chosen,
    bugs.skip_a_slot_with_a_snapshot,
    bugs.trim_before_the_snapshot_is_durable,
    bugs.vote_with_an_empty_disk,
)
Right = Callable[..., Any]


# ---- the replicated state


@planted(Sessions, "find", PLANTED)
def append_again_what_comes_again(right: Right, self: Sessions, client: int, sequence: int, count: int) -> list[Run]:
    return [Run(sequence, count, 0)]


@planted(Sessions, "add", PLANTED)
def forget_where_a_client_appended(right: Right, self: Sessions, client: int, run: Run) -> None:
    if run.sequence % 3:
        right(self, client, run)


@planted(Sessions, "to_json", PLANTED)
def leave_the_sessions_out_of_a_snapshot(right: Right, self: Sessions) -> list[Any]:
    return [[], []]


@planted(Sessions, "settle", PLANTED)
def settle_one_number_too_many(right: Right, self: Sessions, client: int, settled: int) -> None:
    right(self, client, settled + 1)


@planted(LogState, "_join", PLANTED)
def join_parts_of_different_commands(right: Right, self: LogState, fragment: commands.Fragment) -> Applied:
    self.fragments.append(fragment.data)
    if len(self.fragments) < fragment.count:
        return Applied(self.next_gsn)
    command = commands.decode(b"".join(self.fragments))
    return self._apply(command)


@planted(LogState, "_order", PLANTED)
def time_records_by_the_leader_alone(right: Right, self: LogState, batch: commands.Batch, applied: Applied) -> None:
    self.time = min(self.time, batch.time)
    right(self, batch, applied)


@planted(LogState, "_trim", PLANTED)
def trim_past_the_end(right: Right, self: LogState, trim: commands.Trim, applied: Applied) -> None:
    self.oldest = max(self.oldest, trim.gsn + 1)
    right(self, trim, applied)


@planted(LogIndex, "around", PLANTED)
def take_the_index_for_exact(right: Right, self: LogIndex, time: int) -> tuple[int, int]:
    first, _ = right(self, time)
    return first, first


# ---- a replica


@planted(MultiPaxosReplica, "_append", PLANTED)
def acknowledge_what_is_proposed(
    right: Right, self: MultiPaxosReplica, request: AppendRequest, sender: str, now: int
) -> None:
    right(self, request, sender, now)
    if self.leader is not None and self.leader.proposed:
        run = Run(request.sequence, len(request.records), self.state.next_gsn)
        self.leader._answer(sender, request.client, [run])


@planted(MultiPaxosReplica, "_confirmed_question", PLANTED)
def let_any_replica_say_where_the_tail_is(
    right: Right, self: MultiPaxosReplica, request: Any, sender: str, now: int
) -> None:
    if isinstance(request, TailRequest):
        state = self.state
        tail = TailResponse(request.request, state.next_gsn - 1, state.oldest, state.batches)
        self._out.append(Send(sender, tail))
    else:
        right(self, request, sender, now)


@planted(MultiPaxosReplica, "_confirm", PLANTED)
def believe_to_lead_without_asking(right: Right, self: MultiPaxosReplica, now: int) -> None:
    self._confirming, self._questions = self._questions, {}
    self._answer_confirmed()


@planted(RecordStore, "is_durable", PLANTED)
def save_the_state_before_its_records(right: Right, self: RecordStore, first: int, end: int) -> bool:
    return True


@planted(MultiPaxosReplica, "_is_durable_at_majority", PLANTED)
def use_a_snapshot_with_records_nowhere_else(right: Right, self: MultiPaxosReplica, gsn: int) -> bool:
    return True


@planted(RecordCopier, "look", PLANTED)
def copy_nothing_after_a_snapshot(right: Right, self: RecordCopier, oldest: int, now: int) -> None:
    return None


@planted(RecordStore, "missing", PLANTED)
def see_only_the_end_of_what_is_missing(right: Right, self: RecordStore, oldest: int) -> Any:
    gap = right(self, oldest)
    return None if gap is not None and gap[1] - gap[0] < 3 else gap


@planted(RecordStore, "persisted", PLANTED)
def forget_records_before_they_are_durable(right: Right, self: RecordStore, journal: str, end: int) -> None:
    for run in self._runs:
        run.durable = run.end
    self._shrink()


@planted(RecordStore, "cached", PLANTED)
def send_all_tags(right: Right, self: RecordStore, first: int, end: int, tags: Any = None) -> Any:
    return right(self, first, end)


@planted(Acceptor, "accept", PLANTED)
def accept_over_a_gap(right: Right, self: Acceptor, first: int, values: Any, commit: int) -> bool:
    return bool(right(self, min(first, self.matched + 1), values, commit))


# ---- a client


@planted(SequenceNumbers, "take", PLANTED)
def use_the_same_numbers_twice(right: Right, self: SequenceNumbers, count: int) -> int:
    first = right(self, count)
    if count > 1:
        self.next -= 1
    return int(first)


@planted(SequenceNumbers, "settled", PLANTED)
def settle_what_was_sent(right: Right, self: SequenceNumbers) -> int:
    return self.next


@planted(SequenceNumbers, "hold", PLANTED)
def have_the_servers_forget_what_was_unknown(right: Right, self: SequenceNumbers, first: int) -> None:
    self.close(first)


@planted(AppendClient, "_expired", PLANTED)
def call_unavailable_what_was_sent(right: Right, self: AppendClient, append: append_client.PendingAppend) -> None:
    self._answer(append, Unavailable("no server took the records before the deadline"))


@planted(AppendClient, "_send", PLANTED)
def number_anew_what_is_sent_again(right: Right, self: AppendClient, batch: append_client.Batch) -> None:
    if batch.attempts:
        del self._flight[batch.sequence]
        batch.sequence = number = self.numbers.take(batch.count)
        self._flight[batch.sequence] = batch
        for append in batch.appends:
            append.first = number
            number += len(append.records)
    right(self, batch)


@planted(ReadServer, "on_request", PLANTED)
def send_what_a_follower_has_not_applied(
    right: Right, self: ReadServer, message: Any, sender: str, state: LogState
) -> None:
    if isinstance(message, Pull) and message.is_urgent and message.gsn == state.next_gsn:
        self._out.append(Send(sender, Pulled(message.request, message.gsn, message.gsn + 1)))
    else:
        right(self, message, sender, state)


@planted(LogSubscription, "_next_pull", PLANTED)
def pull_what_was_awaited_twice(right: Right, self: LogSubscription) -> Pull:
    pull: Pull = right(self)
    return pull._replace(gsn=max(pull.gsn - 1, self._reads.oldest)) if self._is_urgent else pull


@planted(read_client.RecordSource, "failed", PLANTED)
def take_one_damaged_replica_for_all(right: Right, self: Any, answer: Any, sender: str) -> Any:
    if answer.why is ReadError.UNREADABLE:
        return Corruption("the log", None, answer.explanation)
    return right(self, answer, sender)


@planted(LogSubscription, "_next_batch", PLANTED)
def skip_what_was_trimmed(right: Right, self: Any) -> Any:
    self.position = max(self.position, self._reads.oldest)
    return right(self)


@planted(AppendClient, "_launch_part", PLANTED)
def append_an_append_of_any_size_at_once(right: Right, self: Any, append: PendingAppend) -> None:
    append.sent = len(append.records)
    self._fly(Batch(append.first, [append], append.records, append.size))
