"""Tallies: the quorum-th largest end that the members of one epoch have reported; and suspicions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdb.log.requests import ShardState
from logdb.log.scalog.messages import Member, Recovered, Report, Segment, ShardConfig, ShardTally, Suspect
from logdb.log.scalog.quorum import LeafMonitor, LocalCuts, ShardTallies

SUSPECT, STRAGGLE = 100, 500


def shard(members: int = 2, quorum: int = 2, epoch: int = 1, sealed: tuple[int, ...] = ()) -> ShardConfig:
    """Shard 1: servers 1, 2, ..., whose segments are 11, 12, ..."""
    servers = range(1, members + 1)
    segments = tuple(Segment(10 + one, one, 1, 5 if one in sealed else None) for one in servers)
    holders = tuple(Member(one, f"s-{one}") for one in servers)
    return ShardConfig(1, epoch, ShardState.LIVE, quorum, holders, segments, "")


def report(server: int, *ends: int, placed: int = 0, epoch: int = 1) -> Report:
    return Report(1, epoch, server, placed, tuple((11 + number, end) for number, end in enumerate(ends)))


def test_a_quorum_of_all_takes_the_smallest_end() -> None:
    cuts = LocalCuts(shard(), 0)
    cuts.add(report(1, 4, 3, placed=2), 0)
    assert dict(cuts.tally().ends) == {11: 1, 12: 1}
    cuts.add(report(2, 2, 4, placed=1), 0)
    assert cuts.tally() == ShardTally(1, 1, 1, ((11, 2), (12, 3)))


def test_a_masking_quorum_takes_the_end_that_f_plus_one_members_have() -> None:
    cuts = LocalCuts(shard(members=3), 0)
    cuts.add(report(1, 9, 1, 1, placed=3), 0)
    cuts.add(report(3, 7, 5, 1, placed=1), 0)
    assert cuts.tally() == ShardTally(1, 1, 1, ((11, 7), (12, 1), (13, 1)))


def test_a_late_report_does_not_lower_an_end() -> None:
    cuts = LocalCuts(shard(), 0)
    cuts.add(report(2, 9, 9, placed=4), 0)
    assert cuts.add(report(1, 5, 5, placed=4), 0)
    assert not cuts.add(report(1, 3, 4, placed=2), 0)
    assert cuts.tally() == ShardTally(1, 1, 4, ((11, 5), (12, 5)))


def test_reports_of_other_servers_and_sealed_segments_do_not_count() -> None:
    cuts = LocalCuts(shard(sealed=(2,)), 0)
    assert not cuts.add(report(7, 9, 9), 0)
    cuts.add(report(1, 4, 9), 0)
    cuts.add(report(2, 4, 9), 0)
    assert cuts.tally().ends == ((11, 4),)


ends = st.lists(st.integers(1, 20), min_size=3, max_size=3)


@given(st.lists(st.tuples(st.integers(1, 3), ends), max_size=20), st.integers(1, 3))
def test_a_tally_is_the_quorum_th_largest_end(reports: list[tuple[int, list[int]]], quorum: int) -> None:
    cuts = LocalCuts(shard(members=3, quorum=quorum), 0)
    for server, has in reports:
        cuts.add(report(server, *has), 0)
    for number, (_, end) in enumerate(cuts.tally().ends):
        best = [max((has[number] for server, has in reports if server == one), default=1) for one in (1, 2, 3)]
        assert sum(one >= end for one in best) >= quorum
        assert sum(one > end for one in best) < quorum


def test_tallies_of_one_epoch_merge_by_maximum() -> None:
    tallies = ShardTallies()
    assert tallies.merge(ShardTally(1, 3, 2, ((11, 5), (12, 2))))
    assert tallies.merge(ShardTally(1, 3, 1, ((11, 4), (12, 6))))
    assert not tallies.merge(ShardTally(1, 3, 3, ((11, 5),)))
    assert tallies[1].tally(1) == ShardTally(1, 3, 3, ((11, 5), (12, 6)))


def test_a_newer_epoch_replaces_and_an_older_one_is_ignored() -> None:  # SCA-7
    tallies = ShardTallies()
    tallies.merge(ShardTally(1, 3, 2, ((11, 5), (12, 2))))
    assert not tallies.merge(ShardTally(1, 4, 0, ((12, 1),)))  # without any durable record
    assert not tallies.merge(ShardTally(1, 3, 9, ((11, 9), (12, 9))))
    assert tallies[1].tally(1) == ShardTally(1, 4, 0, ((12, 1),))


# ---- suspicions


def test_a_silent_member_is_suspected_again_and_again() -> None:
    cuts = LocalCuts(shard(), 0)
    cuts.add(report(1, 1, 1), 90)
    assert cuts.watch(99, SUSPECT, STRAGGLE) == []
    assert cuts.watch(100, SUSPECT, STRAGGLE) == [Suspect(1, 1, 2)]
    assert cuts.watch(150, SUSPECT, STRAGGLE) == [Suspect(1, 1, 2)]
    cuts.add(report(2, 1, 1), 160)
    assert cuts.watch(180, SUSPECT, STRAGGLE) == []


def test_a_member_lags_if_it_is_behind_the_earlier_end_of_others() -> None:
    cuts = LocalCuts(shard(), 0)
    for now in range(0, 1_600, 50):
        cuts.add(report(1, 2 + now, 1), now)
        cuts.add(report(2, 2 + max(0, now - 400), 1), now)  # behind, but it progresses
        assert cuts.watch(now, SUSPECT, STRAGGLE) == []
    verdicts = []
    for now in range(1_600, 3_000, 50):
        cuts.add(report(1, 2 + now, 1), now)
        cuts.add(report(2, 1_202, 1), now)
        verdicts += cuts.watch(now, SUSPECT, STRAGGLE)
    assert set(verdicts) == {Suspect(1, 1, 2, False)}


def test_a_joining_member_may_lag() -> None:
    cuts = LocalCuts(shard()._replace(joining=(2,)), 0)
    for now in range(0, 3_000, 50):
        cuts.add(report(1, 2 + now, 1), now)
        cuts.add(report(2, 1, 1), now)
        assert cuts.watch(now, SUSPECT, STRAGGLE) == []


def test_a_member_without_a_segment_that_reports_long_enough_has_recovered() -> None:
    cuts = LocalCuts(shard(members=3, sealed=(2,)), 0)
    verdicts = {}
    for now in range(0, 400, 50):
        for server in (1, 3) if now < 150 else (1, 2, 3):
            cuts.add(report(server, 1, 1, 1), now)
        verdicts[now] = cuts.watch(now, SUSPECT, STRAGGLE)
    assert verdicts[100] == [Suspect(1, 1, 2)]
    assert verdicts[200] == []
    assert verdicts[300] == [Recovered(1, 1, 2)]


def test_no_member_of_a_finalized_shard_is_suspected() -> None:
    cuts = LocalCuts(shard()._replace(state=ShardState.FINALIZED), 0)
    assert cuts.watch(10_000, SUSPECT, STRAGGLE) == []


def test_a_new_epoch_starts_without_ends_but_keeps_the_times_of_reports() -> None:
    before = LocalCuts(shard(), 0)
    before.add(report(1, 9, 9, placed=3), 80)
    cuts = LocalCuts(shard(epoch=2), 90, before)
    assert cuts.tally() == ShardTally(1, 2, 0, ((11, 1), (12, 1)))
    assert cuts.watch(120, SUSPECT, STRAGGLE) == [Suspect(1, 2, 2)]


def test_the_periods_of_a_shard_restart_when_its_monitor_gets_it_back() -> None:
    watch = LeafMonitor(SUSPECT, STRAGGLE, {}, 0)
    config = shard()
    for now in range(0, 100, 25):
        for server, _ in config.members:
            watch.collect(config, report(server, 1, 1), now)
        assert watch.watch([config], now) == []
    for now in range(100, 1_000, 25):  # an aggregator monitors it
        assert watch.watch([], now) == []
    back = config._replace(epoch=config.epoch + 2)
    assert watch.watch([back], 1_000) == []
    assert watch.watch([back], 1_000 + SUSPECT // 2) == []


def test_a_monitor_that_was_paused_suspects_no_member() -> None:
    watch = LeafMonitor(SUSPECT, STRAGGLE, {}, 0)
    assert watch.watch([shard()], 50) == []
    assert watch.watch([shard()], 10_050) == []
    assert watch.watch([shard()], 10_100) == []
    assert watch.watch([shard()], 10_149) == []
    assert len(watch.watch([shard()], 10_150)) == 2
