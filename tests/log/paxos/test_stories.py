"""What a lost disk could break does not, and each rule that sees to it is needed."""

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
    an_old_leader_goes_on,
    an_old_leader_lets_in,
    one_comes_late,
    the_leader_dies,
)

STORIES: dict[str, Callable[[], Story]] = {
    "a promise outlives its disk, and comes first": partial(a_promise_outlives_its_disk, True),
    "a promise outlives its disk, and comes last": partial(a_promise_outlives_its_disk, False),
    "an old leader lets in": an_old_leader_lets_in,
    "an old leader goes on": an_old_leader_goes_on,
    "the leader dies": the_leader_dies,
    "a snapshot is taken": a_snapshot_is_taken,
    "one comes late": one_comes_late,
}
NEEDED: list[tuple[Plant, str]] = [
    (bugs.keep_votes_of_a_former_self, "a promise outlives its disk, and comes first"),
    (bugs.count_votes_of_a_former_self, "a promise outlives its disk, and comes last"),
    (bugs.tell_nobody_who_lost_its_disk, "a promise outlives its disk, and comes last"),
    (bugs.go_by_an_instance_alone, "a promise outlives its disk, and comes last"),
    (bugs.be_let_in_by_too_few, "an old leader lets in"),
    (bugs.vote_with_an_empty_disk, "an old leader lets in"),
    (bugs.forget_what_others_promised, "an old leader goes on"),
    (bugs.join_without_the_values, "the leader dies"),
    (bugs.drop_the_roster_with_the_old_journal, "a snapshot is taken"),
    (bugs.found_without_all, "one comes late"),
]


@pytest.mark.parametrize("name", STORIES)
def test_everybody_ends_with_what_was_chosen(name: str) -> None:
    story = STORIES[name]()
    assert story.values[2] == b"second"
    for _ in range(8):
        for member in story.members:
            if not story.replicas[member].has_joined:
                story.ring(member, "paxos.join")
            story.talk(story.members)
        for member in story.members:
            if story.replicas[member].is_leader:
                story.heartbeat(member, story.members)
            elif story.replicas[member].has_joined and not story.replicas[member].leader:
                story.now += 1_000_000_000
                story.ring(member, "paxos.election")
                story.talk(story.members)
    (leader,) = [member for member in story.members if story.replicas[member].is_leader]
    story.propose(leader, b"third", story.members)
    story.heartbeat(leader, story.members)
    assert [story.replicas[member].chosen for member in story.members] == [max(story.values)] * len(story.members)
    assert all(replica.has_joined for replica in story.replicas.values())


@pytest.mark.parametrize(("plant", "name"), NEEDED, ids=lambda what: getattr(what, "__name__", what))
def test_without_the_rule_it_does(plant: Plant, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ProtocolViolation), match=r"PAX-3|PAX-14"):
        STORIES[name]()
