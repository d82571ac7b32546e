"""Bugs of the ordering layer and the aggregators that are planted on purpose: the simulator must find each.

Except for those in `SEEN_BY_TESTS`: their conditions (two leaders, one of which answers a tail request before it is
deposed; a leader whose clock is behind its predecessor's) are too rare in a seed. `tests/log/scalog/` finds them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from logdb.cores.effects import Send
from logdb.log.requests import ShardState
from logdb.log.scalog import quorum as tally
from logdb.log.scalog.messages import (
    ChangeResponse,
    Register,
    ShardTally,
    Suspect,
    TailRequest,
    TailResponse,
    TrimLog,
    Unreachable,
    Update,
)
from logdb.log.scalog.ordering import leader as leading
from logdb.log.scalog.ordering import replica, server_registry, shard_state, state
from logdb.log.scalog.ordering.commands import ChangeCommand, Cut, decode

PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {}
SEEN_BY_TESTS = {"a deposed leader answers tail requests", "a cut has the time of its leaders clock"}
SEEN: dict[str, Callable[[], AbstractContextManager[None]]] = {}


def plant(bug: Callable[[pytest.MonkeyPatch], None]) -> Callable[[pytest.MonkeyPatch], None]:
    """Make a context manager of a patch, named after the patch."""

    @contextmanager
    def planted() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            bug(patch)
            yield

    name = bug.__name__.replace("_", " ")
    (SEEN if name in SEEN_BY_TESTS else PLANTED)[f"ordering: {name}"] = planted
    return bug


@plant
def next_gsn_moves_when_a_cut_is_proposed(patch: pytest.MonkeyPatch) -> None:
    right = leading.Leader.cut

    def cut(self: leading.Leader, now: int) -> Cut | None:
        found = right(self, now)
        ends = {one.id: one.end for shard in self.state.shards.values() for one in shard.open}
        for segment, end in zip(found.pairs[::2], found.pairs[1::2], strict=True) if found else ():
            self.state.next_gsn += end - ends[segment]
        return found

    patch.setattr(leading.Leader, "cut", cut)


@plant
def a_cut_is_applied_when_it_is_proposed(patch: pytest.MonkeyPatch) -> None:
    right = leading.Leader.next_proposal
    done = replica.OrderingReplica._chosen

    def next_proposal(self: leading.Leader, now: int) -> bytes | None:
        value = right(self, now)
        if value is not None and value == self.flight:
            self.applied(self.state.apply(decode(value)))
        return value

    def chosen(self: replica.OrderingReplica, slot: int, value: bytes) -> None:
        if self.leader is not None and value == self.leader.flight:
            self.slot = slot
            self.leader.chosen(value)
        else:
            done(self, slot, value)

    patch.setattr(leading.Leader, "next_proposal", next_proposal)
    patch.setattr(replica.OrderingReplica, "_chosen", chosen)


@plant
def a_cut_of_another_epoch_is_applied(patch: pytest.MonkeyPatch) -> None:
    right = state._APPLY[Cut]

    def apply(self: state.OrderingState, cut: Cut, applied: state.AppliedCommand) -> None:
        entries, pairs, at = array("q"), array("q"), 0
        for shard_id, epoch, placed, count in zip(*[iter(cut.shards)] * 4, strict=True):
            named, at = cut.pairs[at : at + 2 * count], at + 2 * count
            shard = self.shards.get(shard_id)
            open_ids = [one.id for one in shard.open] if shard else []
            kept = [pair for pair in zip(named[::2], named[1::2], strict=True) if pair[0] in open_ids]
            placed = min(placed, shard.head) if shard else placed
            entries.extend((shard_id, shard.epoch if shard else epoch, placed, len(kept)))
            for pair in kept:
                pairs.extend(pair)
        right(self, Cut(cut.time, entries, pairs), applied)

    patch.setitem(state._APPLY, Cut, apply)
    merge = tally.ShardTallies.merge

    def merge_all(self: tally.ShardTallies, one: ShardTally) -> bool:
        known = self.get(one.shard)
        if known is not None and known.epoch < one.epoch:
            known.epoch = one.epoch
        return merge(self, one)

    patch.setattr(tally.ShardTallies, "merge", merge_all)


@plant
def sealing_does_not_count_the_ordered_records(patch: pytest.MonkeyPatch) -> None:
    right = shard_state.OrderedShard.seal

    def seal(self: shard_state.OrderedShard, segment: shard_state.OrderedSegment, next_gsn: int) -> int:
        right(self, segment, next_gsn)
        return 0

    patch.setattr(shard_state.OrderedShard, "seal", seal)


@plant
def reports_of_a_finalized_shard_are_ordered(patch: pytest.MonkeyPatch) -> None:
    right = shard_state.OrderedShard.changed

    def changed(self: shard_state.OrderedShard) -> None:
        right(self)
        if self.state is ShardState.FINALIZED:
            self.open = list(self.segments)

    patch.setattr(shard_state.OrderedShard, "changed", changed)


@plant
def a_returning_server_reopens_its_sealed_segment(patch: pytest.MonkeyPatch) -> None:
    right = state.OrderingState._open

    def reopen(self: state.OrderingState, shard: shard_state.OrderedShard, server: int) -> shard_state.OrderedSegment:
        for segment in shard.segments:
            if segment.primary == server:
                segment.sealed = None
                return segment
        return right(self, shard, server)

    patch.setattr(state.OrderingState, "_open", reopen)


@plant
def a_quorum_is_one_too_small(patch: pytest.MonkeyPatch) -> None:
    right = tally.LocalCuts.__init__

    def init(self: tally.LocalCuts, config: Any, now: int, before: Any = None) -> None:
        right(self, config._replace(quorum=max(1, config.quorum - 1)), now, before)

    patch.setattr(tally.LocalCuts, "__init__", init)


@plant
def records_on_one_member_count_as_durable(patch: pytest.MonkeyPatch) -> None:
    def furthest(self: tally.LocalCuts) -> ShardTally:
        ends = tuple((segment, max(row.values())) for segment, row in self.rows.items())
        return ShardTally(self.config.shard, self.config.epoch, self.on_quorum(self.placed.values()), ends)

    patch.setattr(tally.LocalCuts, "tally", furthest)


@plant
def a_server_with_an_empty_disk_keeps_its_id(patch: pytest.MonkeyPatch) -> None:
    right = state._APPLY[Register]

    def register(self: state.OrderingState, command: Register, applied: state.AppliedCommand) -> None:
        for server in self.servers.values():
            if server.address == command.address and server.token != command.token:
                del self.servers.tokens[server.token]
                self.servers.tokens[command.token] = server.id
                renamed = self.servers[server.id] = server._replace(token=command.token)
                if server.id in self.servers.spares:
                    self.servers.spares[server.id] = renamed
                return
        right(self, command, applied)

    patch.setitem(state._APPLY, Register, register)


@plant
def a_new_member_counts_as_caught_up_at_once(patch: pytest.MonkeyPatch) -> None:
    right = state.OrderingState._replace

    def replace(self: state.OrderingState, shard: shard_state.OrderedShard, *others: Any) -> None:
        right(self, shard, *others)
        shard.joining = ()
        shard._config = None

    patch.setattr(state.OrderingState, "_replace", replace)


@plant
def a_replaced_server_is_removed_at_once(patch: pytest.MonkeyPatch) -> None:
    right = state.OrderingState._replace

    def replace(
        self: state.OrderingState,
        shard: shard_state.OrderedShard,
        server: int,
        spare: server_registry.RegisteredServer,
        applied: state.AppliedCommand,
    ) -> None:
        right(self, shard, server, spare, applied)
        shard.replaced = ()
        self._remove(self.servers[server], applied)
        self._shard_changed(shard, applied)

    patch.setattr(state.OrderingState, "_replace", replace)


@plant
def an_aggregator_verdict_is_not_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading.Leader, "on_verdict", leading.Leader._act_on)


@plant
def a_leader_verdict_is_not_verified(patch: pytest.MonkeyPatch) -> None:
    right = leading.Leader._request_report

    def ask(self: leading.Leader, shard: int, server: int, now: int) -> None:
        if self.state.shards[shard].reports_to:
            right(self, shard, server, now)

    patch.setattr(leading.Leader, "_request_report", ask)


@plant
def a_client_report_counts_as_a_verdict(patch: pytest.MonkeyPatch) -> None:
    def report(self: replica.OrderingReplica, hint: Unreachable, sender: str, now: int) -> None:
        known = self.state.servers.get(hint.server)
        if known is not None and known.shard:
            self._verdict(Suspect(known.shard, self.state.shards[known.shard].epoch, known.id, False), sender, now)

    patch.setitem(replica._HANDLERS, Unreachable, report)


@plant
def links_are_dropped_before_they_are_placed(patch: pytest.MonkeyPatch) -> None:
    right = shard_state.OrderedShard.order

    def order(self: shard_state.OrderedShard, *cut: Any) -> int:
        next_gsn = right(self, *cut)
        while len(self.links) > 1:
            self.links.popleft()
        return next_gsn

    patch.setattr(shard_state.OrderedShard, "order", order)


@plant
def an_update_without_links_has_head_zero(patch: pytest.MonkeyPatch) -> None:
    def update(shard: int, epoch: int, config: Any, links: Any, head: int, last: int, oldest: int) -> Update:
        return Update(shard, epoch, config, links, links[-1].number if links else 0, last, oldest)

    patch.setattr(leading, "Update", update)


@plant
def a_deposed_leader_answers_tail_requests(patch: pytest.MonkeyPatch) -> None:
    def tail_request(self: replica.OrderingReplica, ask: TailRequest, sender: str, now: int) -> None:
        if self.leader is None:
            self._send_not_leader(sender, ask.request)
        else:
            answer = TailResponse(ask.request, self.state.last, self.state.oldest, self.state.version)
            self._out.append(Send(sender, answer))

    patch.setitem(replica._HANDLERS, TailRequest, tail_request)


@plant
def any_replica_answers_tail_requests(patch: pytest.MonkeyPatch) -> None:
    def tail_request(self: replica.OrderingReplica, ask: TailRequest, sender: str, now: int) -> None:
        answer = TailResponse(ask.request, self.state.last, self.state.oldest, self.state.version)
        self._out.append(Send(sender, answer))

    patch.setitem(replica._HANDLERS, TailRequest, tail_request)


@plant
def a_repeated_change_is_applied_again(patch: pytest.MonkeyPatch) -> None:
    def changing(self: state.OrderingState, command: ChangeCommand, applied: state.AppliedCommand) -> None:
        try:
            outcome = state._CHANGE[type(command.change)](self, command.change, command.live, applied), ""
        except state.ChangeRejected as refusal:
            outcome = 0, str(refusal)
        applied.answer = ChangeResponse(command.id, *outcome)

    patch.setitem(state._APPLY, ChangeCommand, changing)


@plant
def the_log_can_be_trimmed_past_its_end(patch: pytest.MonkeyPatch) -> None:
    right = state._CHANGE[TrimLog]

    def trim(self: state.OrderingState, change: TrimLog, live: Any, applied: state.AppliedCommand) -> int:
        before, self.next_gsn = self.next_gsn, max(self.next_gsn, change.gsn + 1)
        try:
            result: int = right(self, TrimLog(change.gsn + 1), live, applied)
        finally:
            self.next_gsn = before
        return result

    patch.setitem(state._CHANGE, TrimLog, trim)


@plant
def a_cut_has_the_time_of_its_leaders_clock(patch: pytest.MonkeyPatch) -> None:
    right = state._APPLY[Cut]

    def apply(self: state.OrderingState, cut: Cut, applied: state.AppliedCommand) -> None:
        self.time = cut.time - 1
        right(self, cut, applied)

    patch.setitem(state._APPLY, Cut, apply)


@plant
def a_snapshot_loses_the_applied_changes(patch: pytest.MonkeyPatch) -> None:
    right = state.OrderingState.from_bytes.__func__  # type: ignore[attr-defined]

    def from_bytes(cls: type[state.OrderingState], snapshot: bytes) -> state.OrderingState:
        restored: state.OrderingState = right(cls, snapshot)
        restored.changes.clear()
        return restored

    patch.setattr(state.OrderingState, "from_bytes", classmethod(from_bytes))


@plant
def a_snapshot_loses_the_ordered_ends_of_segments(patch: pytest.MonkeyPatch) -> None:
    right = shard_state.OrderedShard.from_json.__func__  # type: ignore[attr-defined]

    def from_json(cls: type[shard_state.OrderedShard], saved: dict[str, Any]) -> shard_state.OrderedShard:
        shard: shard_state.OrderedShard = right(cls, saved)
        for segment in shard.open:
            segment.end = segment.base
        return shard

    patch.setattr(shard_state.OrderedShard, "from_json", classmethod(from_json))
