"""Changes of the members of a shard: the replicated state of the MMS, and its leader."""

from __future__ import annotations

import pytest

from logdb.cores.effects import MILLISECOND, SECOND, Effect, Send
from logdb.log.requests import ShardState
from logdb.log.ziplog.messages import ChangeRequest, Freeze, Report, ShardConfig, Update
from logdb.log.ziplog.mms import commands as c
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.leader import Leader
from logdb.log.ziplog.mms.state import MembershipState, Result

SERVERS = 5
NOW = 1_700_000_000_000_000_000


def a_log(members: int = 2) -> MembershipState:
    """Shard 1 with servers 1 to `members`, in the set; the other servers are spares."""
    state = MembershipState(20 * MILLISECOND)
    for number in range(1, SERVERS + 1):
        state.apply(c.Register(NOW, 100 + number, f"s{number}"))
    state.apply(c.AddShard(NOW, 1, tuple(range(1, members + 1))))
    synchronize(state)
    return state


def synchronize(state: MembershipState) -> None:
    """All members of shard 1 have what its view began with."""
    for member in state.shards[1].members:
        state.apply(c.Synced(NOW, 1, state.shards[1].view, member.server))
    state.check()


def drain(state: MembershipState) -> ShardConfig:
    """Finalize shard 1, whose order then is stable up to its end."""
    state.apply(c.FinalizeShard(NOW, 2, 1))
    state.apply(c.Drained(NOW, 1, state.shards[1].view))
    assert state.shards[1].is_drained
    return state.shards[1]


def members(state: MembershipState) -> list[int]:
    return [member.server for member in state.shards[1].members]


def spares(state: MembershipState) -> list[int]:
    return [spare.server for spare in state.view().spares]


def recover(state: MembershipState, *chosen: int, stable: int = 7) -> Result | None:
    result = state.apply(c.Recover(NOW, 1, state.shards[1].view, stable, chosen))
    state.check()
    return result


def test_a_member_is_replaced_with_the_next_view() -> None:
    state = a_log()
    change = c.ReplaceServer(NOW, 9, 1, 4)
    assert state.apply(change) is None
    assert members(state) == [1, 2]
    assert state.apply(change) is None, "the client has sent its request again"
    assert recover(state, 2, 4) == Result(9, 4, "")
    assert members(state) == [2, 4]
    assert [one.server for one in state.shards[1].replaced] == [1]
    assert 1 not in spares(state), "it keeps the records until its successor has copied them"
    synchronize(state)
    assert 1 in spares(state)
    assert state.apply(change) == Result(9, 4, "")
    assert members(state) == [2, 4]


def test_another_spare_comes_when_the_chosen_one_has_failed() -> None:
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    assert recover(state, 2, 5) == Result(9, 5, "")


def test_a_view_that_keeps_the_member_ends_the_change() -> None:
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    result = recover(state, 2, 1)
    assert result is not None
    assert "no other server that answers can take the place" in result.error
    assert not state.changing


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (c.ReplaceServer(NOW, 9, 4, 5), "server 4 belongs to no shard"),
        (c.ReplaceServer(NOW, 9, 77, 5), "server 77 belongs to no shard"),
        (c.ReplaceServer(NOW, 9, 1, 2), "there is no spare server"),
        (c.ReplaceServer(NOW, 9, 1, 0), "there is no spare server"),
        (c.AddReplica(NOW, 9, 1, 5), "only a finalized one can have more replicas"),
        (c.AddReplica(NOW, 9, 3, 5), "shard 3 is unknown"),
    ],
)
def test_impossible_changes_are_rejected(change: c.Command, why: str) -> None:
    state = a_log()
    result = state.apply(change)
    assert result is not None
    assert why in result.error


def test_one_change_of_a_shard_at_a_time() -> None:
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    result = state.apply(c.ReplaceServer(NOW, 10, 2, 5))
    assert result is not None
    assert "is being changed" in result.error


def test_the_only_member_cannot_be_replaced() -> None:
    result = a_log(1).apply(c.ReplaceServer(NOW, 9, 1, 4))
    assert result is not None
    assert "is the only member" in result.error


def test_a_drained_shard_gets_one_member_more() -> None:
    """Nothing is cut off, whatever the source has reported before the shard was drained."""
    state = a_log()
    config = drain(state)
    assert recover(state, 1, 2) is None
    assert state.shards[1].view == config.view, "a drained shard begins a view only for a change"
    assert state.apply(c.AddReplica(NOW, 9, 1, 4)) is None
    assert recover(state, 1, 2, 4) == Result(9, 4, "")
    assert members(state) == [1, 2, 4]
    assert not state.shards[1].is_drained
    assert [one.valid for one in state.shards[1].members] == [config.bound - 1, config.bound - 1, 0]
    synchronize(state)
    assert not state.shards[1].is_in_set
    assert state.shards[1].state is ShardState.FINALIZED


def test_a_snapshot_has_the_change_that_is_under_way() -> None:
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    restored = MembershipState.from_bytes(state.to_bytes())
    assert restored.to_bytes() == state.to_bytes()
    assert recover(restored, 2, 4) == Result(9, 4, "")


def test_a_finalized_shard_goes_when_all_its_records_are_trimmed() -> None:
    state = a_log()
    state.apply(c.FinalizeShard(NOW, 2, 1))
    bound = state.shards[1].bound
    state.apply(c.Trim(NOW, 3, bound - 1))
    assert [one.shard for one in state.view().shards] == [1]
    state.apply(c.Trim(NOW, 4, bound))
    assert state.view().shards == ()
    assert spares(state) == [3, 4, 5], "its members have not stored all of its records yet"
    state.apply(c.Drained(NOW, 1, state.shards[1].view))
    state.check()
    assert spares(state) == [1, 2, 3, 4, 5]
    late = [c.Drained(NOW, 1, 1), c.Synced(NOW, 1, 1, 1), c.Recover(NOW, 1, 1, 0, (1, 2))]
    assert [state.apply(command) for command in late] == [None, None, None]
    assert not state.shards


def test_a_shard_that_is_trimmed_away_is_changed_no_more() -> None:
    state = a_log()
    config = drain(state)
    state.apply(c.AddReplica(NOW, 9, 1, 4))
    state.apply(c.Trim(NOW, 3, config.bound))
    assert state.results[9].error == "shard 1 was trimmed away"
    assert not state.changing


def test_no_view_begins_with_a_server_that_was_released_meanwhile() -> None:
    """A leader proposes it when the command that establishes the present view is not applied yet (ZIP-8)."""
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    recover(state, 2, 4)
    assert [one.server for one in state.shards[1].former] == [1]
    late = c.Recover(NOW, 1, state.shards[1].view, 7, (1, 3))
    synchronize(state)
    before = state.shards[1]
    assert state.apply(late) is None
    state.check()
    assert state.shards[1] == before


def test_a_first_view_that_has_joined_the_set_meanwhile_does_not_end() -> None:
    """A view of a shard that never had records begins with any server. When this one was proposed, the members had not
    reported that they were synced: they may have records by now, and are not frozen."""
    state = MembershipState(20 * MILLISECOND)
    for number in (1, 2, 3):
        state.apply(c.Register(NOW, 100 + number, f"s{number}"))
    state.apply(c.AddShard(NOW, 1, (1, 2)))
    log = Reporting(state)
    log.report(1)
    log.report(3)
    log.leader.commands.clear()
    log.leader.on_timer(False, state, NOW)
    (command,) = log.leader.commands
    assert command == c.Recover(NOW, 1, 1, 0, (1, 3), is_first=True)
    synchronize(state)
    state.apply(c.decode(c.encode(command)))
    assert state.shards[1].view == 1
    assert state.shards[1].is_in_set


def noted(state: MembershipState) -> list[tuple[int, tuple[int, ...]]]:
    """The barriers, without those that wait for the members of other shards than the first."""
    found = [(version, tuple([one for one in servers if one <= 3])) for version, servers in state.barriers]
    return [barrier for barrier in found if barrier[1]]


def test_shards_wait_for_each_server_with_which_the_next_view_of_the_only_shard_may_begin() -> None:
    """Clients of its set ask for no frontier, so a server that is not frozen may place their records (ZIP-6)."""
    state = a_log(3)
    recover(state, 2, 4, 1)
    assert noted(state) == [(2, (1, 3))]
    recover(state, 1, 4, 5)
    assert noted(state) == [(2, (3,))]
    synchronize(state)
    assert noted(state) == [], "a server that has left the view, and that no view begins with"


def test_shards_wait_for_no_other_server_of_a_view_when_clients_ask_a_frozen_one() -> None:
    state = a_log()
    state.apply(c.AddShard(NOW, 9, (3, 4)))
    for server in (3, 4):
        state.apply(c.Synced(NOW, 2, 1, server))
    assert state.barriers == [(2, (1, 2))]
    state.apply(c.Open(NOW, 2))
    recover(state, 2, 1)
    assert state.barriers == [(3, (3, 4))]


def test_shards_wait_for_no_server_of_a_shard_that_is_drained() -> None:
    """Its order is complete, and a member has entered the version with which it left."""
    state = a_log()
    state.apply(c.FinalizeShard(NOW, 2, 1))
    assert noted(state) == [(2, (1, 2))]
    drain(state)
    assert noted(state) == []


def test_a_member_that_has_lost_its_disk_is_not_synced_any_more() -> None:
    """Else the view would be established, and server 1, which has all records, would be wiped (ZIP-10)."""
    state = a_log()
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    recover(state, 2, 4)
    state.apply(c.Register(NOW, 999, "s4"))
    synchronize(state)
    assert not state.shards[1].is_established
    assert [one.server for one in state.shards[1].former] == [1]
    assert 1 not in spares(state)


# ---- the leader


class Reporting:
    """A leader, and the reports of servers."""

    def __init__(self, state: MembershipState) -> None:
        self.state, self.out = state, list[Effect]()
        config = MmsConfig("o1", ("o1",), members=2, suspect_after_ns=500 * MILLISECOND)
        self.leader = Leader(config, self.out, NOW)

    def report(
        self,
        server: int,
        *,
        is_frozen: bool = False,
        may_lack: bool = False,
        view: int | None = None,
        now: int = NOW,
        stable: int = 7,
        epoch: int = 0,
    ) -> list[Effect]:
        """The effects of a report, by default in the view of the configuration."""
        found, change = self.state.servers[server], self.state.change
        config = self.state.shards.get(found.shard)
        shard, newest = config[:2] if config is not None else (0, 0)
        self.out.clear()
        at = newest if view is None else view
        report = Report(server, found.nonce, shard, at, is_frozen, True, stable, epoch, 0, change, 0, 0, (), may_lack)
        self.leader.on_report(report, found.address, self.state, now)
        return self.out.copy()

    def proposed(self) -> list[tuple[int, ...]]:
        """The members of the views that it has proposed."""
        found = [one.members for one in self.leader.commands if isinstance(one, c.Recover)]
        self.leader.commands.clear()
        return found


def test_the_member_that_leaves_is_not_the_next_primary() -> None:
    """Bug 24: a report of another frozen member led to `Freeze` messages, and each of these to a report."""
    log = Reporting(a_log())
    log.report(2)
    log.report(4)
    log.state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    assert log.report(1, is_frozen=True) == []
    assert log.proposed() == []
    log.leader.on_timer(False, log.state, NOW)
    assert {one.to for one in log.out if isinstance(one, Send) and isinstance(one.message, Freeze)} == {"s1", "s2"}
    log.report(2, is_frozen=True)
    assert log.proposed() == [(2, 4)]


@pytest.mark.parametrize("kind", ["ReplaceServer", "AddReplica"])
def test_a_change_waits_for_the_first_report_of_a_server_that_was_just_registered(kind: str) -> None:
    """Without it the next view began, and had no server that answers for the change."""
    log = Reporting(a_log())
    later = NOW + SECOND
    log.leader.on_applied(log.state, NOW)
    log.state.apply(c.Register(later, 106, "s6"))
    log.leader.on_applied(log.state, later)
    request = ChangeRequest(9, kind, (1, 6))
    log.leader.on_change(request, log.state, later)
    assert log.leader.commands == []
    log.report(6, now=later)
    log.leader.on_change(request, log.state, later)
    assert [command[-1] for command in log.leader.commands] == [6]


def test_a_change_names_a_server_that_never_reports() -> None:
    """The change is refused with the next view, which no operator has to wait for."""
    log = Reporting(a_log())
    log.leader.on_applied(log.state, NOW)
    log.leader.on_change(ChangeRequest(9, "ReplaceServer", (1, 4)), log.state, NOW + SECOND)
    assert log.leader.commands == [c.ReplaceServer(NOW + SECOND, 9, 1, 4)]


def test_a_shard_is_drained_when_a_member_knows_that_it_has_left() -> None:
    """Without that a client of the set in which it was finds an earlier tail, though a later one was returned."""
    log = Reporting(a_log())
    before = log.state.epoch.base
    log.state.apply(c.FinalizeShard(NOW, 2, 1))
    bound = log.state.shards[1].bound
    proposed = []
    for epoch in (before, bound):
        log.report(1, stable=bound - 1, epoch=epoch)
        proposed.append(c.Drained(NOW, 1, 1) in log.leader.commands)
    assert proposed == [False, True]


def test_a_view_begins_with_a_server_that_lacks_nothing() -> None:
    """ZIP-12: a server that has acknowledged what it had not synced, and has restarted, waits for one that has not."""
    log = Reporting(a_log())
    for server in (3, 4):
        log.report(server)
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == [], "server 2 has not reported"
    log.report(2)
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == []
    log.report(2, is_frozen=True)
    assert log.proposed() == [(2, 1)]


def test_a_view_begins_with_any_server_when_all_may_lack_records() -> None:
    log = Reporting(a_log())
    log.report(1, is_frozen=True, may_lack=True)
    log.report(2, is_frozen=True, may_lack=True)
    assert log.proposed() == [(2, 1)]


def test_a_view_does_not_wait_for_a_server_that_has_lost_its_disk() -> None:
    log = Reporting(a_log())
    log.report(3)
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == []
    log.state.apply(c.Register(NOW, 999, "s2"))
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == [(1, 3)]


def test_the_source_of_a_view_lacks_nothing_until_the_view_is_established() -> None:
    """The source was frozen with everything on its disk. The other one has restarted before, and returns with less."""
    state = a_log()
    recover(state, 2, 1)
    log = Reporting(state)
    log.report(1, is_frozen=True, may_lack=True)
    log.report(2, is_frozen=True, may_lack=True, view=1)
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == []
    log.report(2, is_frozen=True, may_lack=True)
    assert log.proposed() == [(2, 1)]


def test_a_former_member_that_may_lack_records_does_not_return() -> None:
    """A mark of the view before counted for this one (seed 102062708002)."""
    state = a_log()
    recover(state, 2, 4)
    log = Reporting(state)
    assert [(one.server, one.is_synced) for one in state.shards[1].former] == [(1, True)]
    later = NOW + 600 * MILLISECOND
    log.report(1, is_frozen=True, may_lack=True, view=1, now=later)
    log.leader.on_timer(False, state, later)
    assert log.proposed() == [], "server 2 has all records on its disk"


def test_a_former_member_that_lacks_nothing_returns() -> None:
    """The source has lost its disk, and the other complete member has restarted."""
    state = a_log(3)
    recover(state, 3, 1, 4)
    log = Reporting(state)
    assert [one.server for one in state.shards[1].former] == [2]
    log.report(1, is_frozen=True, may_lack=True)
    log.report(2, is_frozen=True, view=1)
    state.apply(c.Register(NOW, 999, "s3"))
    log.leader.on_applied(state, NOW)
    log.report(1, is_frozen=True, may_lack=True)
    assert log.proposed() == []
    later = NOW + 600 * MILLISECOND
    log.leader._reports = {server: (report, later) for server, (report, _) in log.leader._reports.items()}
    log.leader.on_timer(False, state, later)
    assert [chosen[0] for chosen in log.proposed()] == [2]


def test_late_reports_of_earlier_views_count_for_nothing() -> None:
    """The servers have been frozen, or have lacked records, before the view that was established last."""
    state = a_log(3)
    recover(state, 3, 1, 2)
    synchronize(state)
    recover(state, 3, 4, 5)
    state.apply(c.Register(NOW, 999, "s3"))
    assert [one.server for one in state.shards[1].former] == [1, 2]
    log = Reporting(state)
    log.leader.on_applied(state, NOW)
    later = NOW + 600 * MILLISECOND
    for server in (1, 2):
        log.report(server, is_frozen=True, may_lack=True, view=1, now=later)
    log.leader.on_timer(False, state, later)
    assert log.leader.commands == [], "both serve view 2 for all that the leader knows"
    log.report(1, is_frozen=True, may_lack=True, view=2, now=later)
    log.leader.on_timer(False, state, later)
    assert log.proposed() == [], "the other one may have everything"
    log.report(2, is_frozen=True, view=2, now=later)
    log.leader.on_timer(False, state, later)
    assert [chosen[0] for chosen in log.proposed()] == [2]


def test_late_reports_of_a_lost_disk_count_for_nothing() -> None:
    state = a_log()
    log = Reporting(state)
    log.report(2, is_frozen=False)
    old = state.servers[2]
    state.apply(c.Register(NOW, 999, "s2"))
    log.leader.on_applied(state, NOW)
    assert old.is_gone
    for is_frozen in (False, True):
        assert log.report(2, is_frozen=is_frozen) == []
    assert log.leader.commands == []
    log.report(3)
    log.report(1, is_frozen=True)
    assert log.proposed() == [(1, 3)], "it does not seem alive, either"


@pytest.mark.parametrize("number", [0, 4])
def test_a_late_report_of_a_removed_server_does_not_register_its_lost_disk(number: int) -> None:
    """Else the server that runs at this address seems lost, and is a member never again."""
    state = a_log()
    log = Reporting(state)
    lost = state.servers[4].nonce
    state.apply(c.Register(NOW, 999, "s4"))
    assert 4 not in state.servers
    state = MembershipState.from_bytes(state.to_bytes())
    late = Report(number, lost, 0, 0, False, False, 0, 0, 0, 1, 0, 0, ())
    log.leader.on_report(late, "s4", state, NOW)
    assert log.leader.commands == []
    state.apply(c.Register(NOW, lost, "s4"))
    assert spares(state) == [3, 5, SERVERS + 1]


def test_a_disk_that_was_lost_before_it_was_registered_does_not_displace_its_successor() -> None:
    """Else the MMS would ignore the server that runs at this address from then on."""
    state = a_log()
    log = Reporting(state)
    late = Report(0, 777, 0, 0, False, False, 0, 0, 0, 0, 0, 0, ())
    for _ in range(2):
        log.leader.on_report(late, "s6", state, NOW)
        assert log.leader.commands == [], "a late report answers nothing"
    (first, again) = [one.message for one in log.out if isinstance(one, Send)]
    assert first == again == Update(state.change + 1, 0, 777, None)
    answer = late._replace(change=first.change)  # it answers, loses its disk, and the answer is late
    state.apply(c.Register(NOW, 888, "s6", state.change + 1))
    log.leader.on_report(answer, "s6", state, NOW)
    assert log.leader.commands == []
    state.apply(c.Register(NOW, 777, "s6", answer.change))
    assert [(one.nonce, one.is_gone) for one in state.servers.values() if one.address == "s6"] == [(888, False)]
    assert 777 not in state.lost
    state.apply(c.Register(NOW, 999, "s6", state.change + 1))
    assert [one.nonce for one in state.servers.values() if one.address == "s6"] == [999]
    assert state.lost == [888]


def test_a_replica_is_added_behind_the_members() -> None:
    state = a_log()
    drain(state)
    log = Reporting(state)
    for server in (1, 2, 3, 4):
        log.report(server, is_frozen=server < 3)
    assert log.proposed() == [], "a drained shard stays as it is"
    state.apply(c.AddReplica(NOW, 9, 1, 4))
    log.report(2, is_frozen=True)
    assert log.proposed() == []
    log.report(1, is_frozen=True)
    assert log.proposed() == [(1, 2, 4)]


def test_the_members_of_a_drained_shard_keep_what_is_stable() -> None:
    """Bug 27: the order of a shard may go on behind its bound, and is stable there, so it is not in memory any more."""
    state = a_log()
    bound = drain(state).bound
    state.apply(c.ReplaceServer(NOW, 9, 1, 4))
    recover(state, 2, 4, stable=bound + 5)
    assert [member.valid for member in state.shards[1].members] == [bound + 5, 0]


def test_a_leader_forgets_what_it_has_proposed_long_ago() -> None:
    """Epochs are proposed every few milliseconds."""
    log = Reporting(a_log())
    for round in range(100):
        now = NOW + round * SECOND
        log.leader.epoch_at = now
        log.leader.on_timer(True, log.state, now)
        log.state.apply(log.leader.commands.pop())
        log.leader.on_timer(False, log.state, now)
    assert len(log.leader.proposed) < 3


def test_a_shard_without_records_has_at_least_a_64th_of_the_largest_rate() -> None:
    state = a_log()
    state.apply(c.AddShard(NOW, 2, (3, 4)))
    for server in (3, 4):
        state.apply(c.Synced(NOW, 2, 1, server))
    state.apply(c.NextEpoch(NOW, ((1, 100), (2, 0))))
    assert [share.rate for share in state.epoch.shares] == [100, 2]
