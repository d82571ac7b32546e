"""Paxos tolerates a lost disk, and each rule that ensures this is necessary."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from logdb.cores.effects import ProtocolViolation
from tests.log.paxos import bugs
from tests.log.paxos.bugs import Plant
from tests.log.paxos.stories import (
    Story,
    a_promise_outlives_its_disk,
    a_snapshot_is_taken,
    an_old_leader_admits_a_replica,
    an_old_leader_continues,
    one_starts_late,
    the_leader_dies,
)

STORIES: dict[str, Callable[[], Story]] = {
    "a promise outlives its disk, and comes first": partial(a_promise_outlives_its_disk, True),
    "a promise outlives its disk, and comes last": partial(a_promise_outlives_its_disk, False),
    "an old leader admits a replica": an_old_leader_admits_a_replica,
    "an old leader continues": an_old_leader_continues,
    "the leader dies": the_leader_dies,
    "a snapshot is taken": a_snapshot_is_taken,
    "one starts late": one_starts_late,
}
NEEDED: list[tuple[Plant, str]] = [
    (bugs.keep_votes_of_a_former_self, "a promise outlives its disk, and comes first"),
    (bugs.count_votes_of_a_former_self, "a promise outlives its disk, and comes last"),
    (bugs.hide_lost_disks_from_others, "a promise outlives its disk, and comes last"),
    (bugs.go_by_an_instance_alone, "a promise outlives its disk, and comes last"),
    (bugs.join_with_too_few_replies, "an old leader admits a replica"),
    (bugs.vote_with_an_empty_disk, "an old leader admits a replica"),
    (bugs.forget_what_others_promised, "an old leader continues"),
    (bugs.join_without_the_values, "the leader dies"),
    (bugs.drop_the_roster_with_the_old_journal, "a snapshot is taken"),
    (bugs.found_without_all, "one starts late"),
]


@pytest.mark.parametrize("name", STORIES)
def test_all_replicas_end_with_the_chosen_values(name: str) -> None:
    story = STORIES[name]()
    assert story.values[2] == b"second"
    for _ in range(8):
        for member in story.members:
            if not story.replicas[member].has_joined:
                story.fire(member, "paxos.join")
            story.exchange(story.members)
        for member in story.members:
            if story.replicas[member].is_leader:
                story.heartbeat(member, story.members)
            elif story.replicas[member].has_joined and not story.replicas[member].leader:
                story.now += 1_000_000_000
                story.fire(member, "paxos.election")
                story.exchange(story.members)
    (leader,) = [member for member in story.members if story.replicas[member].is_leader]
    story.propose(leader, b"third", story.members)
    story.heartbeat(leader, story.members)
    assert [story.replicas[member].chosen for member in story.members] == [max(story.values)] * len(story.members)
    assert all(replica.has_joined for replica in story.replicas.values())


@pytest.mark.parametrize(("plant", "name"), NEEDED, ids=lambda value: getattr(value, "__name__", value))
def test_without_the_rule_the_story_fails(plant: Plant, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ProtocolViolation), match=r"PAX-3|PAX-14"):
        STORIES[name]()
