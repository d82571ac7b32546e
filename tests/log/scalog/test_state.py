"""The replicated state: each command has its effect once, and a snapshot contains the whole state."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdb.cores.effects import ProtocolViolation
from logdb.log.requests import AddReplica, AddShard, FinalizeShard, ReplaceServer, ShardState
from logdb.log.scalog.messages import (
    AssignShard,
    ChangeResponse,
    DropAggregator,
    OpenSegment,
    Range,
    Reconfiguration,
    Register,
    RegisterAggregator,
    SealSegment,
    SetParent,
    ShardCut,
    TrimLog,
)
from logdb.log.scalog.ordering.commands import (
    AggregatorFailed,
    ChangeCommand,
    Command,
    Cut,
    FailurePolicy,
    Replenish,
    ServerFailed,
    ServerJoined,
    ServerReturned,
    SetPolicy,
)
from logdb.log.scalog.ordering.invariants import StateChecker
from logdb.log.scalog.ordering.shard_state import OrderedShard
from logdb.log.scalog.ordering.state import OrderingState


class Log:
    """A state, and commands by short names. A server and its token have the same number."""

    def __init__(self, policy: FailurePolicy = FailurePolicy.FINALIZE_AND_ADD, servers: int = 8) -> None:
        self.state, self._checker = OrderingState(), StateChecker()
        self.state.apply(SetPolicy(policy, 1))
        for server in range(1, servers + 1):
            self.state.apply(Register(server, f"s-{server}"))
        self._id = 0

    def change(self, change: Reconfiguration, id: int = 0) -> ChangeResponse:
        self._id += 1
        answer = self.apply(ChangeCommand(id or self._id, change, ()))
        assert answer is not None
        return answer

    def apply(self, command: Command) -> ChangeResponse | None:
        answer = self.state.apply(command).answer
        self.check()
        return answer

    def check(self) -> None:
        self._checker.check(self.state)

    def done(self, change: Reconfiguration) -> int:
        changed = self.change(change)
        assert not changed.error, changed.error
        return changed.result

    def shard(self, *servers: int) -> OrderedShard:
        return self.state.shards[self.done(AddShard(servers))]

    def cut(
        self, *ends: tuple[OrderedShard, list[int]], epoch: int | None = None, placed: int = 0, time: int = 0
    ) -> None:
        """Order up to these ends of the shard's open segments."""
        shards, pairs = array("q"), array("q")
        for shard, has in ends:
            named = list(zip([segment.id for segment in shard.open], has, strict=False))
            shards.extend((shard.id, shard.epoch if epoch is None else epoch, placed, len(named)))
            for pair in named:
                pairs.extend(pair)
        self.apply(Cut(time, shards, pairs))


# ---- cuts


def test_a_cut_gives_gsns_shard_by_shard_and_segment_by_segment() -> None:
    log = Log()
    one, two = log.shard(1, 2), log.shard(3, 4)
    log.cut((one, [3, 2]), (two, [1, 4]), time=70)
    assert list(one.links) == [ShardCut(1, 0, 70, (Range(1, 1, 2, 1), Range(2, 1, 1, 3)))]
    assert list(two.links) == [ShardCut(1, 0, 70, (Range(4, 1, 3, 4),))]
    assert log.state.next_gsn == 7


def test_ends_are_absolute_so_cuts_may_overlap() -> None:
    log = Log()
    shard = log.shard(1, 2)
    for ends in ([3, 2], [3, 2], [2, 1], [5, 2]):
        log.cut((shard, ends))
    assert [link.ranges for link in shard.links] == [(Range(1, 1, 2, 1), Range(2, 1, 1, 3)), (Range(1, 3, 2, 4),)]
    assert [(link.number, link.previous) for link in shard.links] == [(1, 0), (4, 1)]
    assert log.state.next_gsn == 6


def test_a_cut_of_another_epoch_adds_nothing() -> None:  # SCA-7
    log = Log()
    shard = log.shard(1, 2)
    log.cut((shard, [3, 2]), epoch=shard.epoch - 1, placed=1)
    log.cut((shard, [3, 2]), epoch=shard.epoch + 1)
    assert (log.state.next_gsn, shard.head, shard.placed, log.state.cut) == (1, 0, 0, 2)


def test_a_cut_that_names_a_sealed_segment_in_this_epoch_cannot_be_explained() -> None:  # SCA-6
    log = Log()
    shard = log.shard(1, 2)
    log.done(SealSegment(1))
    with pytest.raises(ProtocolViolation, match="SCA-6"):
        log.apply(Cut(1, array("q", [1, shard.epoch, 0, 1]), array("q", [1, 5])))


def test_the_time_of_cuts_grows_whatever_the_leaders_clock_does() -> None:
    log = Log()
    shard = log.shard(1, 2)
    for number, time in enumerate((100, 100, 50, 200)):
        log.cut((shard, [2 + number]), time=time)
    assert [link.time for link in shard.links] == [100, 101, 102, 200]


def test_links_are_kept_until_a_quorum_has_placed_them() -> None:
    log = Log()
    shard = log.shard(1, 2)
    for end in (2, 3, 4):
        log.cut((shard, [end]))
    log.cut((shard, []), placed=2)
    assert [link.number for link in shard.links] == [3]
    log.cut((shard, []), placed=1)
    assert (shard.placed, [link.number for link in shard.links]) == (2, [3])


def test_a_tally_with_a_link_that_no_cut_made_stops_the_replica() -> None:  # SCA-3
    log = Log()
    with pytest.raises(ProtocolViolation, match="SCA-3"):
        log.cut((log.shard(1, 2), []), placed=1)


# ---- finalizing and sealing


def test_finalizing_folds_the_shard_into_the_base() -> None:  # SCA-4, SCA-6
    log = Log()
    one, two = log.shard(1, 2), log.shard(3, 4)
    log.cut((one, [3, 2]), (two, [2]))
    assert log.done(FinalizeShard(one.id, 0)) == one.id
    assert (one.state, log.state.base, log.state.next_gsn) == (ShardState.FINALIZED, 3, 5)
    assert [segment.sealed for segment in one.segments] == [3, 2]
    log.cut((one, []), (two, [3]))
    assert two.links[-1].ranges == (Range(3, 2, 1, 5),)


def test_the_last_cut_of_a_grace_still_counts() -> None:
    log = Log()
    shard = log.shard(1, 2)
    log.done(FinalizeShard(shard.id, 2))
    log.cut((shard, [3]))
    assert (shard.state, shard.grace) == (ShardState.FINALIZING, 1)
    log.cut((shard, [5]))
    assert (shard.state, shard.segments[0].sealed) == (ShardState.FINALIZED, 5)
    assert log.state.finalizing == []


def test_a_grace_can_be_cut_short() -> None:
    log = Log()
    shard = log.shard(1, 2)
    log.done(FinalizeShard(shard.id, 5))
    log.done(FinalizeShard(shard.id, 9))
    assert shard.grace == 5
    log.done(FinalizeShard(shard.id, 0))
    assert shard.state is ShardState.FINALIZED
    assert log.done(FinalizeShard(shard.id, 0)) == shard.id


def test_a_sealed_segment_is_left_out_and_its_server_gets_another_one() -> None:
    log = Log(FailurePolicy.MASK)
    shard = log.shard(1, 2, 3)
    log.cut((shard, [4, 2, 1]))
    log.done(SealSegment(2))
    assert (log.state.base, log.state.next_gsn) == (1, 5)
    segment = log.done(OpenSegment(2))
    assert log.done(OpenSegment(2)) == segment
    log.cut((shard, [5, 3]))
    assert [(one.id, one.primary, one.end, one.sealed) for one in shard.segments] == [
        (1, 1, 5, None),
        (2, 2, 2, 2),
        (segment, 2, 3, None),
        (3, 3, 1, None),
    ]


# ---- failures (table 3.2)


def test_finalize_and_add() -> None:
    log = Log(servers=4)
    shard = log.shard(1, 2)
    log.apply(ServerFailed(1, shard.epoch, 2, (3, 4)))
    assert shard.state is ShardState.FINALIZED
    assert [member.server for member in log.state.shards[2].members] == [3, 4]
    assert log.state.owed == 0


def test_a_shard_is_owed_while_there_are_no_spares() -> None:
    log = Log(servers=5)
    shard = log.shard(1, 2)
    log.shard(3, 4)
    log.apply(ServerFailed(1, shard.epoch, 2, (5,)))
    assert (len(log.state.shards), log.state.owed) == (2, 1)
    log.apply(Register(9, "s-9"))
    log.apply(Replenish((5, 6)))
    log.apply(Replenish((5, 6)))
    assert [member.server for member in log.state.shards[3].members] == [5, 6]
    assert log.state.owed == 0


def test_the_last_shard_is_finalized_only_for_another_one() -> None:
    log = Log(servers=6)
    first, last = log.shard(1, 2), log.shard(3, 4)
    log.apply(ServerFailed(first.id, first.epoch, 1, ()))
    log.apply(ServerFailed(last.id, last.epoch, 3, (5,)))
    assert (first.state, last.state) == (ShardState.FINALIZED, ShardState.LIVE)
    log.apply(ServerFailed(last.id, last.epoch, 3, (5, 6)))
    assert last.state is ShardState.FINALIZED
    assert [member.server for member in log.state.shards[3].members] == [5, 6]


def test_remove_and_replace() -> None:
    log = Log(FailurePolicy.REMOVE_AND_REPLACE, servers=3)
    shard = log.shard(1, 2)
    log.cut((shard, [4, 3]))
    assert log.state.apply(ServerFailed(1, shard.epoch, 2, (3,))).removed == []
    config = shard.config()
    assert [member.server for member in config.replaced] == [2]
    assert [member.server for member in config.members] == [1, 3]
    assert [(one.primary, one.sealed) for one in config.segments] == [(1, None), (2, 3), (3, None)]
    assert config.joining == (3,)
    assert config.quorum == 2
    assert OrderingState.from_bytes(log.state.to_bytes()).view() == log.state.view()
    assert [server.token for server in log.state.apply(ServerJoined(1, 3)).removed] == [2]
    assert shard.config().replaced == ()


def test_no_other_member_is_replaced_while_one_is_joining() -> None:  # SCA-14
    log = Log(FailurePolicy.REMOVE_AND_REPLACE, servers=5)
    shard = log.shard(1, 2)
    log.done(ReplaceServer(2, 3))
    assert not log.state.has_remedy(ServerFailed(1, shard.epoch, 1, (4, 5)))
    log.apply(ServerFailed(1, shard.epoch, 1, (4, 5)))
    assert "server 3 is still copying shard 1" in log.change(ReplaceServer(1, 0)).error
    assert log.done(ReplaceServer(3, 4)) == 4  # the joining one itself
    log.apply(ServerJoined(1, 4))
    assert log.done(ReplaceServer(1, 5)) == 5


def test_any_joining_member_can_be_replaced() -> None:
    log = Log(FailurePolicy.REMOVE_AND_REPLACE, servers=5)
    shard = log.shard(1, 2)
    log.done(FinalizeShard(1, 0))
    for server in (3, 4):
        log.done(AddReplica(1, server))
    assert log.done(ReplaceServer(3, 5)) == 5
    assert shard.joining == (4, 5)
    log.apply(ServerJoined(1, 5))
    assert [it.server for it in shard.replaced] == [3]
    log.apply(ServerJoined(1, 4))
    assert shard.replaced == ()


def test_remove_and_replace_waits_for_a_live_spare() -> None:
    log = Log(FailurePolicy.REMOVE_AND_REPLACE, servers=3)
    shard = log.shard(1, 2)
    assert not log.state.has_remedy(ServerFailed(1, shard.epoch, 2, ()))
    assert log.state.has_remedy(ServerFailed(1, shard.epoch, 2, (3,)))


def test_mask_seals_the_segment_and_opens_another_one_when_the_server_is_back() -> None:
    log = Log(FailurePolicy.MASK, servers=3)
    shard = log.shard(1, 2, 3)
    assert shard.config().quorum == 2
    log.cut((shard, [4, 3, 2]))
    log.apply(ServerFailed(1, shard.epoch, 2, ()))
    assert [(one.primary, one.sealed) for one in shard.segments] == [(1, None), (2, 3), (3, None)]
    assert not log.state.has_remedy(ServerFailed(1, shard.epoch, 2, ()))
    log.apply(ServerReturned(1, shard.epoch, 2))
    assert [(one.primary, one.sealed) for one in shard.segments] == [(1, None), (2, 3), (2, None), (3, None)]


def test_mask_replaces_when_there_is_a_spare() -> None:
    log = Log(FailurePolicy.MASK, servers=4)
    shard = log.shard(1, 2, 3)
    log.apply(ServerFailed(1, shard.epoch, 2, (4,)))
    assert [member.server for member in shard.members] == [1, 4, 3]
    assert shard.config().quorum == 2


@pytest.mark.parametrize("policy", FailurePolicy)
def test_a_repeated_suspicion_has_its_effect_once(policy: FailurePolicy) -> None:
    log = Log(policy, servers=9)
    shard = log.shard(*range(1, log.state.members_per_shard + 1))
    failed = ServerFailed(1, shard.epoch, 2, (5, 6, 7, 8, 9))
    log.apply(failed)
    before = log.state.to_bytes()
    log.apply(failed)
    log.apply(failed._replace(epoch=shard.epoch + 1))
    after = log.state
    after.commands -= 2
    assert after.to_bytes() == before


# ---- changes


def test_a_change_is_carried_out_once() -> None:
    log = Log()
    first = log.change(AddShard(()), id=77)
    assert log.change(AddShard(()), id=77) == first
    assert log.change(TrimLog(1), id=77) == first
    assert len(log.state.shards) == 1
    refused = log.change(FinalizeShard(9, 0), id=78)
    log.done(AddShard(()))
    assert log.change(FinalizeShard(9, 0), id=78) == refused


def test_the_number_of_stored_results_of_changes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logdb.log.scalog.ordering.state.MAX_CHANGES", 2)
    log = Log()
    for id in (1, 2, 3):
        log.change(TrimLog(1), id)
    assert list(log.state.changes) == [2, 3]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (AddShard((1, 2)), "server 1 is not a spare"),
        (AddShard((3, 3)), "2 different servers"),
        (AddShard((3,)), "2 different servers"),
        (AddShard(()), "there are 1 spares"),
        (FinalizeShard(7, 0), "shard 7 does not exist"),
        (FinalizeShard(1, -1), "grace of -1"),
        (ReplaceServer(9, 0), "server 9 belongs to no shard"),
        (ReplaceServer(3, 0), "server 3 belongs to no shard"),
        (ReplaceServer(1, 2), "server 2 is not a spare"),
        (AddReplica(1, 3), "shard 1 is live"),
        (TrimLog(5), "the log ends at 3"),
        (SealSegment(9), "no segment 9"),
        (OpenSegment(3), "belongs to no shard"),
        (SetParent("a", ""), "no aggregator at 'a'"),
        (AssignShard(1, "a"), "no aggregator at 'a'"),
        (DropAggregator("a"), "no aggregator at 'a'"),
        (DropAggregator(""), "is not an aggregator"),
    ],
)
def test_an_impossible_change_is_rejected_with_a_reason(change: Reconfiguration, error: str) -> None:
    log = Log(servers=3)
    log.cut((log.shard(1, 2), [3, 2]))
    before = (log.state.view(), log.state.next_gsn, log.state.oldest)
    assert error in log.change(change).error
    assert (log.state.view(), log.state.next_gsn, log.state.oldest) == before


def test_the_last_holder_of_a_shard_is_not_replaced() -> None:
    log = Log()
    log.apply(SetPolicy(FailurePolicy.REMOVE_AND_REPLACE, 0))
    shard = log.shard(1)
    assert "is the only member of shard 1" in log.change(ReplaceServer(1, 2)).error
    assert not log.state.has_remedy(ServerFailed(1, shard.epoch, 1, (2,)))


def test_replicas_of_a_finalized_shard() -> None:
    log = Log()
    shard = log.shard(1, 2)
    log.done(FinalizeShard(1, 0))
    assert log.done(AddReplica(1, 5)) == 5
    assert [member.server for member in shard.config().members] == [1, 2, 5]
    assert (shard.config().quorum, shard.config().joining) == (3, (5,))


# ---- trimming


def test_trim_has_one_place_in_the_order() -> None:  # SCA-12
    log = Log()
    shard = log.shard(1, 2)
    log.cut((shard, [10, 10]))
    assert log.done(TrimLog(5)) == 5
    assert log.done(TrimLog(3)) == 5
    assert log.done(TrimLog(19)) == 19
    assert "the log ends at 18" in log.change(TrimLog(20)).error


def test_finalized_shards_are_removed_when_everything_before_their_end_is_trimmed() -> None:
    log = Log()
    one, two = log.shard(1, 2), log.shard(3, 4)
    log.cut((one, [3]), (two, [3]))
    log.done(FinalizeShard(1, 0))
    log.done(TrimLog(4))
    assert 1 in log.state.shards
    log.done(TrimLog(5))
    assert list(log.state.shards) == [2]
    assert list(log.state.servers.removed) == [1, 2]
    assert "shard 1 was trimmed away" in log.change(FinalizeShard(1, 0)).error
    log.apply(Register(1, "s-1"))
    assert [spare.id for spare in log.state.servers.spares.values()] == [5, 6, 7, 8]


def test_a_trim_removes_sealed_segments_and_moves_bases() -> None:
    log = Log(FailurePolicy.MASK)
    shard = log.shard(1, 2, 3)
    for end in range(2, 30):
        log.cut((shard, [end, end, 1]))
    log.done(SealSegment(1))
    log.cut((shard, [40, 1]))
    log.done(TrimLog(31))
    assert 10 <= shard.config().segments[1].base <= 15
    log.done(TrimLog(57))
    assert [one.id for one in shard.segments] == [2, 3]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=100), st.data())
def test_a_base_is_never_past_the_first_readable_record(steps: list[int], data: st.DataObject) -> None:
    log = Log()
    shard = log.shard(1, 2)
    for step in steps:
        log.cut((shard, [one.end + step for one in shard.open]))
    oldest = data.draw(st.integers(1, log.state.next_gsn))
    readable = {1: [], 2: []}  # type: dict[int, list[int]]
    gsns = [(r.segment, lsn, r.first_gsn + lsn - r.first_lsn) for k in shard.links for r in k.ranges for lsn in
            range(r.first_lsn, r.first_lsn + r.count)]  # fmt: skip
    for segment, lsn, gsn in gsns:
        if gsn >= oldest:
            readable[segment].append(lsn)
    log.done(TrimLog(oldest))
    for one in shard.config().segments:
        first = min(readable[one.id], default=shard.open[one.id - 1].end)
        assert first - one.base <= 1 + sum(steps) // 4 + max(steps)
        assert one.base <= first


# ---- servers


def test_a_server_that_has_lost_its_disk_is_another_server() -> None:
    log = Log(servers=2)
    log.shard(1, 2)
    log.apply(Register(9, "s-1"))
    assert [(spare.id, spare.address) for spare in log.state.servers.spares.values()] == [(3, "s-1")]
    log.apply(Register(10, "s-1"))  # and again, before it had a shard
    assert [spare.id for spare in log.state.servers.spares.values()] == [4]
    assert 9 in log.state.servers.removed


def test_a_server_may_move() -> None:
    log = Log(servers=3)
    shard = log.shard(1, 2)
    epoch = shard.epoch
    log.apply(Register(2, "elsewhere"))
    log.apply(Register(3, "there"))
    assert [member.address for member in shard.config().members] == ["s-1", "elsewhere"]
    assert shard.epoch == epoch + 1
    assert [spare.address for spare in log.state.servers.spares.values()] == ["there"]


# ---- aggregators


def test_shards_report_to_the_leaf_with_the_fewest() -> None:
    log = Log()
    log.apply(RegisterAggregator("a"))
    log.apply(RegisterAggregator("b"))
    assert [log.shard(1, 2).reports_to, log.shard(3, 4).reports_to, log.shard(5, 6).reports_to] == ["a", "b", "a"]
    log.done(SetParent("b", "a"))
    assert log.shard(7, 8).reports_to == "b"


def test_the_tree_has_no_loops() -> None:
    log = Log()
    for address in "abc":
        log.apply(RegisterAggregator(address))
    log.done(SetParent("b", "a"))
    log.done(SetParent("c", "b"))
    assert "would report to itself" in log.change(SetParent("a", "c")).error
    assert "would report to itself" in log.change(SetParent("a", "a")).error


def test_children_and_shards_of_a_removed_aggregator_are_reassigned() -> None:
    log = Log()
    for address in "abc":
        log.apply(RegisterAggregator(address))
    log.done(SetParent("c", "b"))
    shard = log.shard(1, 2)
    log.done(AssignShard(1, "b"))
    log.done(DropAggregator("b"))
    assert log.state.tree.parents == {"a": "", "c": ""}
    assert shard.reports_to == "a"
    log.done(DropAggregator("a"))
    log.done(DropAggregator("c"))
    assert shard.reports_to == ""


def test_a_stale_suspicion_of_an_aggregator_has_no_effect() -> None:
    log = Log()
    log.apply(RegisterAggregator("a"))
    suspicion = AggregatorFailed("a", log.state.version)
    log.apply(suspicion)
    assert log.state.tree.parents == {}
    log.apply(RegisterAggregator("a"))
    log.apply(suspicion)
    assert log.state.tree.parents == {"a": ""}


# ---- random commands


def play(seed: int, length: int) -> tuple[OrderingState, list[tuple[int, int]]]:
    """Random commands, likely and unlikely ones. Returns the state and every (segment, LSN) in the order of GSNs."""
    rng, state, gsns = random.Random(seed), OrderingState(), []
    checker = StateChecker()
    policy = rng.choice(list(FailurePolicy))
    state.apply(SetPolicy(policy, 1))
    last_links: dict[int, int] = {}
    for number in range(length):
        state.apply(random_command(rng, state, number))
        checker.check(state)
        fresh = []
        for shard in state.shards.values():
            for link in shard.links:
                if link.number > last_links.get(shard.id, 0):
                    last_links[shard.id] = link.number
                    fresh += link.ranges
        for one in sorted(fresh, key=lambda one: one.first_gsn):
            assert one.first_gsn == len(gsns) + 1, "SCA-4: GSNs are not dense"
            gsns += [(one.segment, lsn) for lsn in range(one.first_lsn, one.first_lsn + one.count)]
        assert state.next_gsn == len(gsns) + 1
    return state, gsns


def random_command(rng: random.Random, state: OrderingState, number: int) -> Command:
    def up_to(maximum: int) -> int:
        return rng.randint(1, max(1, maximum))

    shard = rng.choice([*state.shards, up_to(state.next_shard)])
    server = rng.choice([*state.servers, up_to(state.next_server)])
    if shard in state.shards and rng.random() < 0.8:
        server = rng.choice(state.shards[shard].members).server
    live = tuple(state.servers.spares)[: rng.randint(0, 4)]
    aggregator, other = rng.choice(["a", "b", "c", ""]), rng.choice(["a", "b", "c", ""])
    changes: list[Reconfiguration] = [
        AddShard(()),
        FinalizeShard(shard, rng.randint(0, 3)),
        ReplaceServer(server, 0),
        AddReplica(shard, 0),
        TrimLog(up_to(state.next_gsn)),
        SealSegment(up_to(state.next_segment)),
        OpenSegment(server),
        SetParent(aggregator, other),
        AssignShard(shard, aggregator),
        DropAggregator(aggregator),
    ]
    epoch = state.shards[shard].epoch - (rng.random() < 0.2) if shard in state.shards else 1
    rare: list[Command] = [
        Register(up_to(200), f"s-{up_to(100)}"),
        Register(up_to(200), f"s-{up_to(100)}"),
        RegisterAggregator(aggregator),
        *(ChangeCommand(up_to(1 << 40), rng.choice(changes), live) for _ in range(5)),
        ServerFailed(shard, epoch, server, live),
        ServerReturned(shard, epoch, server),
        ServerJoined(shard, server),
        Replenish(live),
        AggregatorFailed(aggregator, up_to(state.version)),
    ]
    if rng.random() < 0.5:
        return rng.choice(rare)
    if rng.random() < 0.2:
        return ChangeCommand(number + (1 << 50), AddShard(()), live)
    shards, pairs = array("q"), array("q")
    for one in state.shards.values():
        if rng.random() < 0.8:
            has = [(segment.id, segment.end + rng.randint(-2, 4)) for segment in one.open if rng.random() < 0.8]
            stale = rng.random() < 0.1
            shards.extend((one.id, one.epoch - stale, rng.randint(one.placed, one.head), len(has)))
            for pair in has:
                pairs.extend(pair)
    return Cut(rng.randint(0, 1000), shards, pairs)


@settings(max_examples=40)
@given(st.integers(0, 1 << 32))
def test_gsns_are_dense_and_disjoint_after_random_commands(seed: int) -> None:  # SCA-4
    _, gsns = play(seed, 150)
    assert len(set(gsns)) == len(gsns)
    by_segment: dict[int, int] = {}
    for segment, lsn in gsns:
        assert lsn == by_segment.get(segment, 0) + 1
        by_segment[segment] = lsn


@settings(max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(1, 100))
def test_a_restored_state_is_equal_and_continues_equally(seed: int, length: int) -> None:
    state, _ = play(seed, length)
    restored = OrderingState.from_bytes(state.to_bytes())
    assert restored.to_bytes() == state.to_bytes()
    assert restored.view() == state.view()
    assert restored.shards == state.shards
    rng = random.Random(seed)
    for number in range(30):
        command = random_command(rng, state, number)
        assert restored.apply(command) == state.apply(command)
    assert restored.to_bytes() == state.to_bytes()


@pytest.mark.parametrize("snapshot", [b"", b"{}", b"[]", b"[1,2,3,4,5,6,7]", b'[["x"],[],[],[],[],[],[]]', b"\xff"])
def test_a_value_that_is_not_a_snapshot_is_a_clear_error(snapshot: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="not a snapshot"):
        OrderingState.from_bytes(snapshot)


def test_the_checker_finds_violations() -> None:
    log = Log()
    shard = log.shard(1, 2)
    log.cut((shard, [3, 3]))
    log.state.next_gsn += 1
    with pytest.raises(AssertionError, match="SCA-5"):
        log.check()
    log.state.commands += 1
    with pytest.raises(AssertionError, match="SCA-4"):
        log.check()
