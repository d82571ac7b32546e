"""The bugs that are planted in Corfu, and the seed that caught each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from logdb.cores.effects import Journal
from logdb.log.corfu.auxiliary.leader import Leader
from logdb.log.corfu.auxiliary.state import ProjectionState
from logdb.log.corfu.client.appends import AppendClient, Entry
from logdb.log.corfu.client.fills import FillClient, Walk
from logdb.log.corfu.client.record_trims import Deletion, RecordTrimClient
from logdb.log.corfu.client.streams import EarlierEpochs, StreamClient, StreamRead
from logdb.log.corfu.client.subscription import LogSubscription, Stream
from logdb.log.corfu.client.tails import TailClient
from logdb.log.corfu.messages import HighestResponse, Seal, Status, WriteRequest, Written
from logdb.log.corfu.projection import POSITION_WINDOW, ShardConfig, Unit, View, gsn_at
from logdb.log.corfu.sequencer.sequencer import Sequencer
from logdb.log.corfu.storage import copier
from logdb.log.corfu.storage.copier import Copier
from logdb.log.corfu.storage.deleted_records import DeletedRecords
from logdb.log.corfu.storage.entry_store import EntryStore
from logdb.log.corfu.storage.read_server import ReadServer
from logdb.log.corfu.storage.unit import StorageUnit
from tests.harness.planting import Plants, planted

CAUGHT_BY: dict[str, int] = {
    "accept any position": 14,
    "accept any time": 14,
    "accept messages of a sealed epoch": 12,
    "acknowledge before it is durable": 10,
    "believe a tail of a sealed epoch": 2,
    "believe that every entry is its own": 16,
    "believe the first tail": 1,
    "commit before the stream replicas have it": 9,
    "copy from no former unit": 17,
    "copy nothing": 12,
    "copy nothing to a stream replica": 12,
    "count junk as a record with a time": 1,
    "end a fill at the head": 1,
    "end a stream before a missing entry": 46,
    "fill ahead of the sequencer": 14,
    "fill no hole": 5,
    "fill no stream replica": 16,
    "fill with junk what the head has": 2,
    "find half written entries": 3,
    "forget deletions in a restart": 42,
    "forget the sealed epoch in a restart": 117,
    "join a unit as complete": 12,
    "join where the epoch begins": 178,
    "keep units that are not sealed": 4,
    "leave one unit alone": 29,
    "lose the last entry of a batch": 2,
    "name no previous position": 46,
    "read a stream with open positions of earlier epochs": 29,
    "read what is not committed": 29,
    "refuse what is under way": 3,
    "release former units": 45,
    "report a lower highest position": 16,
    "report holes as decided": 5,
    "report no deleted records": 58,
    "send what is not durable": 3,
    "skip holes": 2,
    "wait for one unit of a trim": 207,
    "write again without a decision": 16,
    "write only the head": 1,
}
"""The seed that caught each bug when it was last looked at; changes give seeds another meaning."""
PLANTED: Plants = {}
Right = Callable[..., Any]


# ---- storage units


@planted(ReadServer, "rejects", PLANTED)
def accept_messages_of_a_sealed_epoch(right: Right, self: ReadServer, epoch: int) -> bool:
    return not self.has_joined


@planted(StorageUnit, "_first_undecided", PLANTED)
def report_holes_as_decided(right: Right, self: StorageUnit) -> int:
    first = right(self)
    return first and max(first, self.store.highest + 1)


@planted(StorageUnit, "_when_durable", PLANTED)
def acknowledge_before_it_is_durable(right: Right, self: StorageUnit, lsn: int, effect: Any) -> None:
    self._out.append(effect)


@planted(StorageUnit, "_on_seal", PLANTED)
def report_a_lower_highest_position(right: Right, self: StorageUnit, message: Seal, sender: str, now: int) -> None:
    highest = self.store.highest
    self.store.highest = max(0, highest - 1)
    right(self, message, sender, now)
    self.store.highest = highest


@planted(StorageUnit, "_load", PLANTED)
def forget_the_sealed_epoch_in_a_restart(right: Right, self: StorageUnit, journals: Mapping[str, Journal]) -> None:
    right(self, journals)
    self.reads.sealed = 0


@planted(StorageUnit, "_before", PLANTED)
def fill_with_junk_what_the_head_has(
    right: Right, self: StorageUnit, config: ShardConfig, position: int
) -> tuple[Unit, ...]:
    return ()


@planted(StorageUnit, "_is_assigned", PLANTED)
def accept_any_position(right: Right, self: StorageUnit, message: Any) -> bool:
    return True


@planted(StorageUnit, "_is_assigned", PLANTED)
def fill_ahead_of_the_sequencer(right: Right, self: StorageUnit, message: Any) -> bool:
    return bool(message.position < self.assigned + POSITION_WINDOW)


@planted(StorageUnit, "_is_assigned", PLANTED)
def accept_any_time(right: Right, self: StorageUnit, message: Any) -> bool:
    return right(self, message._replace(time=0) if isinstance(message, WriteRequest) else message)


@planted(EntryStore, "durable_at", PLANTED)
def send_what_is_not_durable(right: Right, self: EntryStore, position: int) -> int | None:
    return self.find(position)


@planted(EntryStore, "consecutive", PLANTED)
def skip_holes(right: Right, self: EntryStore, first: int, step: int, end: int, max_bytes: int, **named: bool) -> Any:
    while first <= self.highest and self.durable_at(first) is None and (not end or first + step < end):
        first += step
    return right(self, first, step, end, max_bytes, **named)


@planted(EntryStore, "last_at", PLANTED)
def count_junk_as_a_record_with_a_time(right: Right, self: EntryStore, time: int, end: int) -> int:
    return max(right(self, time, end), self.last if not end else 0)


@planted(Copier, "on_view", PLANTED)
def copy_nothing(right: Right, self: Copier, view: View, shard: int, me: Unit, now: int) -> None:
    self.copied = me.since


@planted(DeletedRecords, "load", PLANTED)
def forget_deletions_in_a_restart(right: Right, self: DeletedRecords, journal: Journal, oldest: int) -> Any:
    found = right(self, journal, oldest)
    self._indexes.clear()
    return found


@planted(EntryStore, "deleted_gsns", PLANTED)
def report_no_deleted_records(right: Right, self: EntryStore, entries: Any) -> Any:
    return ()


# ---- the auxiliary


@planted(ProjectionState, "_begin_epoch", PLANTED)
def keep_units_that_are_not_sealed(right: Right, self: ProjectionState, command: Any) -> Any:
    everyone = tuple([unit.server for config in self.shards.values() for unit in config.units])
    return right(self, command._replace(sealed=everyone))


@planted(ProjectionState, "_join", PLANTED)
def join_a_unit_as_complete(
    right: Right, self: ProjectionState, shard: int, number: int, *, is_new: bool = False
) -> None:
    right(self, shard, number, is_new=True)


@planted(ProjectionState, "_join", PLANTED)
def join_where_the_epoch_begins(
    right: Right, self: ProjectionState, shard: int, number: int, *, is_new: bool = False
) -> None:
    self.decided[shard] = self.start
    right(self, shard, number, is_new=is_new)


@planted(ProjectionState, "is_enough", PLANTED)
def leave_one_unit_alone(right: Right, self: ProjectionState, config: ShardConfig, count: int) -> bool:
    return True


@planted(Leader, "_is_needed", PLANTED)
def release_former_units(right: Right, self: Leader, *args: Any) -> bool:
    return False


@planted(copier, "formers_of", PLANTED)
def copy_from_no_former_unit(right: Right, config: ShardConfig, position: int) -> Any:
    return []


# ---- the sequencer


@planted(Sequencer, "_assign", PLANTED)
def name_no_previous_position(right: Right, self: Sequencer, request: Any, now: int) -> Any:
    response = right(self, request, now)
    return response._replace(previous=(0,) * len(response.previous))


# ---- streams


@planted(AppendClient, "_written", PLANTED)
def commit_before_the_stream_replicas_have_it(right: Right, self: AppendClient, entry: Entry, answer: Written) -> None:
    if entry.streams and entry.link + 1 == entry.log_units and self._is_own(entry, answer):
        entry.link = len(entry.chain) - 1
    right(self, entry, answer)


@planted(FillClient, "_units", PLANTED)
def fill_no_stream_replica(right: Right, self: FillClient, walk: Walk) -> Any:
    found = right(self, walk)
    return found if found is None or not found[1] else (found[1], found[1])


@planted(EntryStore, "readable_at", PLANTED)
def read_what_is_not_committed(right: Right, self: EntryStore, position: int) -> int | None:
    return self.durable_at(position)


@planted(EarlierEpochs, "close", PLANTED)
def read_a_stream_with_open_positions_of_earlier_epochs(right: Right, self: EarlierEpochs, then: Any) -> None:
    then()


@planted(StreamClient, "_lacks", PLANTED)
def end_a_stream_before_a_missing_entry(right: Right, self: StreamClient, read: StreamRead, position: int) -> None:
    self._finish(read, read.next)


@planted(Copier, "_is_own", PLANTED)
def copy_nothing_to_a_stream_replica(right: Right, self: Copier, entry: Any) -> bool:
    return bool(self._source == self._shard)


# ---- a client


@planted(RecordTrimClient, "_delete", PLANTED)
def wait_for_one_unit_of_a_trim(right: Right, self: RecordTrimClient, one: Deletion, streams: list[int]) -> None:
    right(self, one, streams)
    for number in sorted(one.requests)[:-1]:
        self._requests.cancel(number)
        one.requests.discard(number)


@planted(AppendClient, "_resolve", PLANTED)
def write_again_without_a_decision(right: Right, self: AppendClient, entry: Entry) -> None:
    self._begin_again(entry)


@planted(AppendClient, "_is_own", PLANTED)
def believe_that_every_entry_is_its_own(right: Right, self: AppendClient, entry: Entry, found: Written) -> bool:
    return True


@planted(AppendClient, "_written", PLANTED)
def write_only_the_head(right: Right, self: AppendClient, entry: Entry, answer: Written) -> None:
    entry.link = len(entry.chain) - 1 if self._is_own(entry, answer) else entry.link
    right(self, entry, answer)


@planted(AppendClient, "found", PLANTED)
def find_half_written_entries(right: Right, self: AppendClient, answer: Status) -> None:
    for search in [one for one in self._searches if one.id.client == answer.client]:
        for position in answer.positions:
            for index, number in enumerate(sorted(search.missing)):
                search.found[number] = gsn_at(position, index)
            search.missing.clear()
            self._search(search)
            break


@planted(AppendClient, "_drop_unsent", PLANTED)
def refuse_what_is_under_way(right: Right, self: AppendClient, append: Any) -> None:
    right(self, append)
    append.gsns = [0] * len(append.records)
    append.left = 0
    self._finish(append)


@planted(FillClient, "_step", PLANTED)
def end_a_fill_at_the_head(right: Right, self: FillClient, walk: Walk) -> None:
    if walk.link:
        self._end(walk, Written(0, walk.position, 0, 0, 0))
    else:
        right(self, walk)


@planted(TailClient, "_answered", PLANTED)
def believe_a_tail_of_a_sealed_epoch(right: Right, self: TailClient, answer: Any, sender: str) -> Any:
    if answer.request in self._open and not isinstance(answer, HighestResponse):
        answer = HighestResponse(answer.request, 0)
    return right(self, answer, sender)


@planted(TailClient, "_answered", PLANTED)
def believe_the_first_tail(right: Right, self: TailClient, answer: Any, sender: str) -> Any:
    if answer.request in self._open and isinstance(answer, HighestResponse):
        self._finish(answer.last)
        return None
    return right(self, answer, sender)


@planted(LogSubscription, "_take", PLANTED)
def lose_the_last_entry_of_a_batch(right: Right, self: LogSubscription, stream: Stream, pulled: Any, step: int) -> None:
    right(self, stream, pulled, step)
    if len(pulled.entries) > 1:
        entry, own, trimmed = stream.entries.pop()
        stream.entries.append((entry, [], trimmed))
        stream.bytes = stream.bytes - sum([len(one.payload) for one in own]) - 64 * len(own)


@planted(LogSubscription, "_fill_hole", PLANTED)
def fill_no_hole(right: Right, self: LogSubscription) -> None:
    self._hole = 0
