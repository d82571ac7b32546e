"""The planted bugs of the storage server: plausible mistakes, each a patch of one method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from logdb.cores.effects import Send, Trim
from logdb.log.requests import END
from logdb.log.scalog.messages import (
    Appended,
    AppendStatusRequest,
    Range,
    RegistrationReply,
    Replicate,
    ReplicateAck,
    ShardConfig,
    ShardCut,
    Update,
)
from logdb.log.scalog.storage.member_state import MemberState
from logdb.log.scalog.storage.membership import Membership
from logdb.log.scalog.storage.metadata_journal import MetadataJournal
from logdb.log.scalog.storage.placement_index import PlacementIndex
from logdb.log.scalog.storage.primary import Primary
from logdb.log.scalog.storage.replication import Replication
from logdb.log.scalog.storage.segment_replica import SegmentReplica
from logdb.log.scalog.storage.sessions import ClientSessions
from tests.harness import planting

PLANTED: planting.Plants = {}

RARE: planting.Plants = {}
"""Bugs that need two failures at the same time (or disks that sync journals one by one) to show: the simulator needs
more than 200 seeds for them; the tests of the rules (`tests/log/scalog/test_storage_planted.py`) catch them."""


planted = partial(planting.planted, among=PLANTED, kind="storage: ")


@contextmanager
def as_if_written_were_durable(shard: MemberState) -> Iterator[None]:
    """While the context lasts, copies count as durable up to their ends."""
    durable = {copy: copy.durable for copy in shard.copies.values()}
    for copy in durable:
        copy.durable = copy.end
    yield
    for copy, end in durable.items():
        copy.durable = end


@planted(Membership, "_report")
def report_before_the_sync(right: Callable[..., None], self: Membership) -> None:
    with as_if_written_were_durable(self._shard):
        right(self)


@planted(Membership, "_report")
def report_links_before_the_sync(right: Callable[..., None], self: Membership) -> None:
    placed, self._meta.placed = self._meta.placed, self._shard.chain.head
    right(self)
    self._meta.placed = placed


@planted(Membership, "_has_caught_up", among=RARE)
def report_caught_up_without_the_records(right: Callable[..., bool], self: Membership) -> bool:
    config = self._shard.config
    return config is not None and self._shard.server in config.joining


@planted(Membership, "on_registration_reply")
def adopt_the_registration_of_another_server(
    right: Callable[..., None], self: Membership, message: RegistrationReply, sender: str
) -> None:
    right(self, message._replace(token=self._shard.token), sender)


@planted(Replication, "on_replicate")
def accept_a_gap(right: Callable[..., None], self: Replication, message: Replicate, sender: str) -> None:
    copy = self._shard.copies.get(message.segment)
    if copy is not None and message.first > copy.end:
        message = message._replace(first=copy.end)
    right(self, message, sender)


@planted(Replication, "on_appended")
def replicate_before_the_sync(
    right: Callable[..., None], self: Replication, copy: SegmentReplica, first: int, records: Any, size: int
) -> None:
    right(self, copy, first, records, size)
    for backup in self._backups.values():
        self._shard.out.append(Send(backup.address, Replicate(self._shard.number, copy.id, first, (), records)))


@planted(Replication, "_ack")
def acknowledge_before_the_sync(
    right: Callable[..., ReplicateAck], self: Replication, copy: SegmentReplica, again: bool
) -> ReplicateAck:
    with as_if_written_were_durable(self._shard):
        return right(self, copy, again=again)


@planted(Membership, "on_persisted")
def answer_appends_before_they_are_ordered(
    right: Callable[..., None], self: Membership, journal: str, end: int
) -> None:
    right(self, journal, end)
    shard = self._shard
    for segment, waiting in self._primary._waiting.items():
        while waiting and waiting[0].end <= shard.copies[segment].durable:
            _, first, sequence, client, address = waiting.pop(0)
            gsn = shard.covered + 1 + first - shard.chain.ends.get(segment, 1)
            count = shard.copies[segment].durable - first
            shard.out.append(Send(address, Appended(client, segment, ((sequence, count, gsn),), False)))


@planted(MemberState, "reached")
def reject_reads_beyond_the_cut(right: Callable[..., int], self: MemberState) -> int:
    return END


@planted(Membership, "_follow")
def adopt_the_newest_gsn_despite_a_gap(
    right: Callable[..., None], self: Membership, update: Update, sender: str, is_reply: bool
) -> None:
    right(self, update, sender, is_reply=is_reply)
    self._shard.covered = max(self._shard.covered, update.last)
    self._refresh()


@planted(Membership, "_place")
def place_links_after_a_gap(right: Callable[..., None], self: Membership, links: tuple[ShardCut, ...]) -> None:
    chain: PlacementIndex = self._shard.chain
    for link in links:
        if link.number > chain.head:
            chain.head = link.previous
            ranges = []
            for segment, first, count, gsn in link.ranges:
                first, count = chain.ends.get(segment, 1), count + first - chain.ends.get(segment, 1)
                ranges.append(Range(segment, first, count, gsn))
            right(self, (link._replace(ranges=tuple(ranges)),))


@planted(Primary, "on_append_status_request")
def report_never_for_an_open_segment(
    right: Callable[..., None], self: Primary, message: AppendStatusRequest, sender: str
) -> None:
    copy = self._shard.copies.get(message.segment)
    if copy is None or copy.sealed is not None:
        return right(self, message, sender)
    copy.sealed = copy.durable
    right(self, message, sender)
    copy.sealed = None
    return None


@planted(Primary, "on_append_status_request", among=RARE)
def report_never_with_an_incomplete_copy(
    right: Callable[..., None], self: Primary, message: AppendStatusRequest, sender: str
) -> None:
    copy = self._shard.copies.get(message.segment)
    if copy is None or copy.sealed is None:
        return right(self, message, sender)
    durable, copy.durable = copy.durable, max(copy.durable, copy.sealed)
    right(self, message, sender)
    copy.durable = durable
    return None


@planted(SegmentReplica, "recover")
def lose_client_sessions_in_a_restart(
    right: Callable[..., None], self: SegmentReplica, records: Any, first: int
) -> None:
    right(self, records, first)
    self.sessions = ClientSessions()


@planted(ClientSessions, "settle")
def drop_the_mark_of_settled_numbers(
    right: Callable[..., None], self: ClientSessions, client: int, settled: int
) -> None:
    right(self, client, settled)
    self._marks.pop(client, None)


@planted(MetadataJournal, "checkpoint", among=RARE)
def checkpoint_records_that_are_not_durable(right: Callable[..., None], self: MetadataJournal) -> None:
    with as_if_written_were_durable(self._shard):
        right(self)


@planted(Membership, "_adopt", among=RARE)
def trim_records_before_their_sessions_are_saved(
    right: Callable[..., None], self: Membership, config: ShardConfig
) -> None:
    bases = {copy.id: copy.base for copy in self._shard.copies.values()}
    right(self, config)
    for copy in self._shard.copies.values():
        if bases.get(copy.id, copy.base) < copy.base <= copy.durable:
            self._shard.out.append(Trim(copy.journal, copy.base))
