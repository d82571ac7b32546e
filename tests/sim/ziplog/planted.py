"""The bugs that are planted in Ziplog, and the seed that caught each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from logdb.log.ziplog.client.frontiers import FrontierClient
from logdb.log.ziplog.client.inserts import Batch, Chunk, InsertClient
from logdb.log.ziplog.client.mms_client import MmsClient
from logdb.log.ziplog.client.subscription import LogSubscription, Stream
from logdb.log.ziplog.epochs import Slots
from logdb.log.ziplog.messages import FrontierResponse, Pulled, ShardConfig
from logdb.log.ziplog.mms import state
from logdb.log.ziplog.mms.leader import Leader
from logdb.log.ziplog.mms.state import MembershipState
from logdb.log.ziplog.storage import inserts
from logdb.log.ziplog.storage.checkpoints import Checkpoints
from logdb.log.ziplog.storage.inserts import Inserts
from logdb.log.ziplog.storage.log_store import LogStore
from logdb.log.ziplog.storage.read_server import ReadServer
from logdb.log.ziplog.storage.replication import Primary
from logdb.log.ziplog.storage.sessions import Sessions
from logdb.log.ziplog.storage.shard_log import ShardLog
from logdb.log.ziplog.storage.views import Views
from tests.harness.planting import Plants, planted

CAUGHT_BY: dict[str, int] = {
    "acknowledge before it is durable": 120,
    "ask one shard for its frontier": 4,
    "become stable before the view is established": 2,
    "begin a view with any member": 380,
    "begin a view with what a restart has left": 3143,
    "begin an epoch inside the last one": 3,
    "believe a refusal of another view": 30,
    "believe a set that is not open": 420681134026,
    "believe the first member": 1,
    "call durable what was written": 6,
    "call stable what the primary has": 7,
    "count what an older journal has behind a view": 5,
    "forget shards that have left": 15,
    "forget what was before a view": 7,
    "give ties to all shards": 1,
    "insert after any version": 152,
    "insert an append of any size at once": 9,
    "keep what the order has passed": 6,
    "keep what the source does not have": 11,
    "let a shard join with one member": 8,
    "number the records of a run one after another": 1,
    "open a shard before the others have entered": 16,
    "place again what comes again": 1,
    "place records when frozen": 5,
    "place the last record of an insert first": 1,
    "place records without regard to the floor": 3,
    "roll back what was speculative": 7,
    "send what is not stable": 29,
    "serve a view after a restart": 7,
    "settle what was sent": 1,
    "trust a version that is not known": 891,
    "wait for no member of a view that has ended": 8,
    "wait for no shard but the first": 1,
}
"""The seed that caught each bug when it was last looked at; changes give seeds another meaning."""
PLANTED: Plants = {}
Right = Callable[..., Any]


# ---- GSNs and epochs


@planted(Slots, "gsn", PLANTED)
def give_ties_to_all_shards(right: Right, self: Slots, slot: int) -> int:
    count, rate = slot + 1, self._rate
    return self.base + slot + sum([count * other // rate for other in self._before + self._behind])


@planted(MembershipState, "_next_base", PLANTED)
def begin_an_epoch_inside_the_last_one(right: Right, self: MembershipState, time: int) -> int:
    return min(right(self, time), self.epoch.base + 1)


@planted(Inserts, "_slots_for", PLANTED)
def place_records_without_regard_to_the_floor(right: Right, self: Inserts, floor: int, count: int, now: int) -> Any:
    return right(self, 0, count, now)


@planted(MembershipState, "view", PLANTED)
def forget_shards_that_have_left(right: Right, self: MembershipState) -> Any:
    return right(self)._replace(left=0)


# ---- views


@planted(ShardLog, "to_keep", PLANTED)
def roll_back_what_was_speculative(right: Right, self: ShardLog, cut: int) -> Any:
    return self.store.behind(cut)


@planted(Views, "_adopt", PLANTED)
def forget_what_was_before_a_view(right: Right, self: Views, config: ShardConfig, me: Any, now: int) -> None:
    right(self, config, me, now)
    if self._state.adopting is None and self._state.base is not None:
        self._state.base = self._state.log


@planted(Primary, "stable", PLANTED)
def become_stable_before_the_view_is_established(right: Right, self: Primary) -> int:
    return min([self._log.durable, *(one.durable for one in self.followers.values())])


@planted(ShardLog, "begin_view", PLANTED)
def keep_what_the_source_does_not_have(
    right: Right, self: ShardLog, journals: Any, start: int, end: int, records: Any, sessions: Any
) -> Any:
    return right(self, journals, max(start, self.end) if not records else start, max(end, self.end), records, sessions)


@planted(Checkpoints, "_load", PLANTED)
def serve_a_view_after_a_restart(right: Right, self: Checkpoints, journals: Any) -> None:
    right(self, journals)
    self._state.is_frozen = False


@planted(Views, "_freeze", PLANTED)
def place_records_when_frozen(right: Right, self: Views) -> None:
    state, inserts = self._state, self._inserts
    slots, primary = inserts.slots, state.primary
    right(self)
    inserts.slots, state.primary, state.is_frozen = slots, primary, False


@planted(InsertClient, "refused", PLANTED)
def believe_a_refusal_of_another_view(right: Right, self: InsertClient, answer: Any) -> None:
    batch = self._open.get(answer.numbers[0][0])
    right(self, answer if batch is None else answer._replace(shard=batch.shard, view=batch.view))


@planted(MembershipState, "_synced", PLANTED)
def let_a_shard_join_with_one_member(right: Right, self: MembershipState, command: Any) -> None:
    config = self.shards[command.shard]
    for member in config.members:
        right(self, command._replace(server=member.server))


@planted(Leader, "_recover", PLANTED)
def begin_a_view_with_any_member(
    right: Right, self: Leader, config: ShardConfig, report: Any, source: int, state: Any, now: int
) -> None:
    members = tuple([one._replace(is_complete=True) for one in config.members])
    right(self, config._replace(members=members), report, source, state, now)


@planted(Leader, "_may_lack", PLANTED)
def begin_a_view_with_what_a_restart_has_left(right: Right, self: Leader, *arguments: Any) -> bool:
    return False


@planted(state, "still_awaited", PLANTED)
def wait_for_no_member_of_a_view_that_has_ended(right: Right, noted: Any, source: int, before: Any) -> Any:
    return tuple([one for one in noted if one not in before])


@planted(Leader, "_has_entered", PLANTED)
def open_a_shard_before_the_others_have_entered(right: Right, self: Leader, *arguments: Any) -> bool:
    return True


# ---- replication


@planted(ShardLog, "acknowledge", PLANTED)
def acknowledge_before_it_is_durable(right: Right, self: ShardLog, journal: str, effect: Any) -> None:
    self._out.append(effect)


@planted(Primary, "stable", PLANTED)
def call_stable_what_the_primary_has(right: Right, self: Primary) -> int:
    return self._log.durable


@planted(ShardLog, "_advance", PLANTED)
def call_durable_what_was_written(right: Right, self: ShardLog) -> None:
    self._steps.clear()
    self.durable = self.end


@planted(ShardLog, "_forget_up_to", PLANTED)
def keep_what_the_order_has_passed(right: Right, self: ShardLog, end: int) -> int:
    return 0


@planted(Inserts, "_acknowledge", PLANTED)
def place_the_last_record_of_an_insert_first(right: Right, self: Inserts, message: Any, sender: str) -> Any:
    first, records = right(self, message, sender) or (0, ())
    return (first + len(records) - 1, records[-1:]) if records else None


@planted(inserts, "placed_runs", PLANTED)
def number_the_records_of_a_run_one_after_another(right: Right, places: Any) -> Any:
    found = list(places)
    return right([(number, found[0][1] + index) for index, (number, _) in enumerate(found)])


@planted(Sessions, "find", PLANTED)
def place_again_what_comes_again(right: Right, self: Sessions, client: int, sequence: int) -> int:
    return 0


@planted(LogStore, "_follow", PLANTED)
def count_what_an_older_journal_has_behind_a_view(right: Right, self: LogStore, segment: Any) -> None:
    self.segments.append(segment)


# ---- messages of limited size


@planted(InsertClient, "_insert", PLANTED)
def insert_an_append_of_any_size_at_once(
    right: Right, self: InsertClient, append: Any, indexes: Any, place: Any, floor: Any
) -> None:
    self._route(Chunk(append, indexes, place, floor, indexes[:0]))


# ---- reading


@planted(ReadServer, "on_request", PLANTED)
def send_what_is_not_stable(right: Right, self: ReadServer, message: Any, sender: str, log: ShardLog | None) -> None:
    if log is None:
        return right(self, message, sender, log)
    stable, log.stable = log.stable, max(log.stable, log.durable)
    right(self, message, sender, log)
    log.stable = stable
    return None


@planted(LogSubscription, "_is_exhausted", PLANTED)
def wait_for_no_shard_but_the_first(right: Right, self: LogSubscription, shard: int, stream: Stream) -> bool:
    return bool(right(self, shard, stream) or shard != min(self._streams))


@planted(LogSubscription, "_answered", PLANTED)
def trust_a_version_that_is_not_known(
    right: Right, self: LogSubscription, stream: Stream, answer: Any, sender: str
) -> Any:
    return right(self, stream, answer._replace(version=0) if isinstance(answer, Pulled) else answer, sender)


# ---- a client


@planted(InsertClient, "_compare", PLANTED)
def believe_the_first_member(right: Right, self: InsertClient, batch: Batch, number: int, gsn: int) -> None:
    self._done(batch, number, gsn)


@planted(InsertClient, "_settled", PLANTED)
def settle_what_was_sent(right: Right, self: InsertClient) -> int:
    return self._next


@planted(FrontierClient, "_answered", PLANTED)
def insert_after_any_version(right: Right, self: FrontierClient, answer: FrontierResponse, sender: str) -> Any:
    return right(self, answer._replace(version=self._version), sender)


@planted(FrontierClient, "_answered", PLANTED)
def believe_a_set_that_is_not_open(right: Right, self: FrontierClient, answer: FrontierResponse, sender: str) -> Any:
    return right(self, answer._replace(is_open=True), sender)


@planted(MmsClient, "in_set", PLANTED)
def ask_one_shard_for_its_frontier(right: Right, self: MmsClient) -> Any:
    return right(self)[:1]
