"""The rules of Paxos, one by one: a script drives one replica and checks everything that it sends."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from logdb.cores.effects import MILLISECOND, Journal, ProtocolViolation, Send
from logdb.log.contract import LogRecord
from logdb.log.paxos import Chosen, Config, Confirmed, Deposed, Elected, NotLeader, Replica, Restore, records
from logdb.log.paxos.membership import FOUNDER, Membership
from logdb.log.paxos.messages import (
    Accept,
    Accepted,
    Ballot,
    Install,
    Installed,
    JoinReply,
    JoinRequest,
    Learn,
    MemberEnvelope,
    Prepare,
    PreVote,
    PreVoted,
    Probe,
    Probed,
    Promise,
    ReadIndex,
    ReadIndexed,
    Rejected,
)
from tests.harness.script import Script, ScriptedJournal
from tests.log.paxos import bugs

CONFIG = Config(batch_bytes=100, window=3, retain_bytes=20, buffer_bytes=50)
SECOND = 1_000 * MILLISECOND
FOUNDED = Membership((11, 12, 13), (FOUNDER,) * 3, True)
FOUNDED_BY_FIVE = Membership((11, 12, 13, 14, 15), (FOUNDER,) * 5, True)
OLD, NEWER, NEWEST = Ballot(1, 2), Ballot(2, 1), Ballot(3, 2)


def journal_of(*written: tuple[int, bytes]) -> Journal:
    """A journal with these records."""
    return Journal(1, len(written) + 1, [LogRecord(at, 0, *record) for at, record in enumerate(written, 1)])


FOUNDERS = journal_of(records.member(FOUNDED))


class Driven(Script):
    """The script of replica "a" of a, b and c (or alone), with this journal (by default that of a founder).

    `roster`: the incarnations in the envelopes of senders. The test passes and receives messages without envelopes.
    """

    def __init__(self, journal: Journal | None = FOUNDERS, members: str = "abc") -> None:
        self.roster = FOUNDED.roster
        super().__init__(
            lambda journals: Replica("a", tuple(members), journals.get("paxos"), random.Random(1), CONFIG),
            journals={} if journal is None else {"paxos": journal},
            notice_types=(Chosen, Restore, Confirmed, Elected, Deposed),
        )

    @property
    def journal(self) -> ScriptedJournal:
        return self.journals["paxos"]

    def give(self, sender: str, message: Any) -> list[Send]:
        if not isinstance(message, JoinRequest | JoinReply | MemberEnvelope):
            message = MemberEnvelope(FOUNDED.cluster, self.roster, message)
        return super().give(sender, message)

    def give_and_sync(self, sender: str, message: Any) -> list[Send]:
        return [*self.give(sender, message), *self.sync()]

    def perform(self, effects: Iterable[Any]) -> list[Send]:
        return super().perform(
            effect._replace(message=effect.message.message)
            if isinstance(effect, Send) and isinstance(effect.message, MemberEnvelope)
            else effect
            for effect in effects
        )

    def propose(self, value: bytes) -> list[Send]:
        return self.perform(self.core.propose(value, self.now))

    def read_index(self, token: int) -> list[Send]:
        return self.perform(self.core.read_index(token, self.now))

    def compact(self, slot: int, snapshot: bytes) -> list[Send]:
        return self.perform(self.core.compact(slot, snapshot, self.now))


def prepared(driven: Driven) -> Ballot:
    """Start an election, up to its own durable promise. Returns its ballot."""
    pre_votes = driven.fire("paxos.election")
    ballot = pre_votes[0][1].ballot
    driven.give("b", PreVoted(ballot))
    driven.sync()
    return ballot


def elected(driven: Driven | None = None) -> tuple[Driven, Ballot]:
    """A leader with nothing to recover."""
    driven = driven or Driven()
    ballot = prepared(driven)
    first = driven.core.chosen + 1
    driven.give("b", Promise(ballot, first, [], first - 1))
    assert driven.core.is_leader
    return driven, ballot


def with_chosen(count: int, size: int = 30) -> tuple[Driven, Ballot]:
    """A leader with chosen values of `size` bytes in its slots up to `count`. c has received none of them."""
    driven, ballot = elected()
    for number in range(1, count + 1):
        driven.propose(bytes([number]) * size)
        driven.sync()
        driven.give("b", Accepted(ballot, number, False))
    assert driven.core.chosen == count
    driven.take_notices()
    return driven, ballot


# ---- promises


def test_a_promise_is_sent_when_it_is_durable() -> None:
    """PAX-1"""
    acceptor = Driven()
    assert acceptor.give("b", Prepare(NEWER, 1)) == []
    assert acceptor.sync() == [("b", Promise(NEWER, 1, [], 0))]


def test_a_promise_survives_a_crash() -> None:
    """PAX-2"""
    acceptor = Driven()
    acceptor.give_and_sync("b", Prepare(NEWER, 1))
    written = list(acceptor.journal.records)
    acceptor.restart()
    assert acceptor.give("c", Prepare(OLD, 1)) == [("c", Rejected(OLD, NEWER))]
    assert acceptor.give("c", Accept(OLD, 1, (b"v",), 0)) == [("c", Rejected(OLD, NEWER))]
    assert acceptor.journal.records == written


def test_a_vote_is_also_a_promise() -> None:
    """PAX-2: for a replica that missed the Prepare"""
    acceptor = Driven()
    assert acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0)) == [("b", Accepted(NEWER, 1, False))]
    acceptor.restart()
    assert acceptor.give("c", Prepare(OLD, 1)) == [("c", Rejected(OLD, NEWER))]


def test_a_promise_contains_the_accepted_values_in_parts() -> None:
    acceptor = Driven()
    acceptor.give_and_sync("c", Accept(OLD, 1, (b"x" * 60, b"y" * 60), 0))
    assert acceptor.give_and_sync("b", Prepare(NEWER, 1)) == [("b", Promise(NEWER, 1, [(OLD, b"x" * 60)], 2))]
    assert acceptor.give("b", Prepare(NEWER, 2)) == [("b", Promise(NEWER, 2, [(OLD, b"y" * 60)], 2))]


def test_a_replica_with_more_chosen_slots_does_not_promise() -> None:
    """PAX-8"""
    acceptor = Driven()
    acceptor.give_and_sync("c", Accept(OLD, 1, (b"v",), 1))
    assert acceptor.take_notices() == [Chosen(1, b"v")]
    assert acceptor.give_and_sync("b", Prepare(NEWER, 1)) == []
    assert acceptor.give_and_sync("b", Prepare(NEWER, 2)) == [("b", Promise(NEWER, 2, [], 1))]


# ---- votes


def test_a_vote_is_sent_when_it_is_durable() -> None:
    """PAX-1"""
    acceptor = Driven()
    assert acceptor.give("b", Accept(NEWER, 1, (b"v",), 0)) == []
    assert acceptor.sync() == [("b", Accepted(NEWER, 1, False))]


def test_votes_made_durable_by_one_sync_are_one_reply() -> None:
    acceptor = Driven()
    acceptor.give("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.give("b", Accept(NEWER, 2, (b"w",), 0))
    assert acceptor.sync() == [("b", Accepted(NEWER, 2, False))]


def test_a_gap_is_rejected_and_reported_once() -> None:
    """PAX-5"""
    acceptor = Driven()
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0))
    assert acceptor.give("b", Accept(NEWER, 3, (b"x",), 0)) == [("b", Accepted(NEWER, 1, True))]
    assert acceptor.give("b", Accept(NEWER, 4, (b"y",), 0)) == [("b", Accepted(NEWER, 1, False))]
    assert acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v", b"w"), 0)) == [("b", Accepted(NEWER, 2, False))]


def test_a_value_is_chosen_only_if_accepted_for_the_leaders_ballot() -> None:
    """PAX-7: slot 1 is chosen, with another value"""
    acceptor = Driven()
    acceptor.give_and_sync("c", Accept(OLD, 1, (b"stale",), 0))
    acceptor.give_and_sync("b", Accept(NEWER, 2, (), 1))
    assert acceptor.take_notices() == []
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"right",), 1))
    assert acceptor.take_notices() == [Chosen(1, b"right")]


def test_a_value_after_those_of_a_new_leader_remains_a_vote() -> None:
    acceptor = Driven()
    acceptor.give_and_sync("c", Accept(OLD, 1, (b"v", b"w"), 0))
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.restart()
    promise = acceptor.give_and_sync("c", Prepare(NEWEST, 1))
    assert promise == [("c", Promise(NEWEST, 1, [(NEWER, b"v"), (OLD, b"w")], 2))]


def test_two_values_for_a_chosen_slot_stop_the_replica() -> None:
    """PAX-3"""
    acceptor = Driven()
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 1))
    with pytest.raises(ProtocolViolation, match="PAX-3"):
        acceptor.give("c", Accept(NEWEST, 1, (b"w",), 1))


# ---- election


def test_a_candidate_sends_prepare_only_after_a_quorum_of_pre_votes() -> None:
    candidate = Driven()
    sent = candidate.fire("paxos.election")
    assert sent == [("b", PreVote(Ballot(1, 0), 0)), ("c", PreVote(Ballot(1, 0), 0))]
    assert candidate.journal.records == FOUNDERS.records
    sent = candidate.give("c", PreVoted(Ballot(1, 0)))
    assert sent == [("b", Prepare(Ballot(1, 0), 1)), ("c", Prepare(Ballot(1, 0), 1))]


def test_a_follower_in_contact_with_a_leader_rejects_pre_votes() -> None:
    """PAX-13"""
    voter = Driven()
    voter.now = SECOND
    assert voter.give("c", PreVote(NEWEST, 0)) == [("c", PreVoted(NEWEST))]
    voter.give("b", Accept(NEWER, 1, (), 0))
    assert voter.give("c", PreVote(NEWEST, 0)) == []
    voter.now += CONFIG.election_ns
    assert voter.give("c", PreVote(NEWEST, 0)) == [("c", PreVoted(NEWEST))]


def test_a_candidate_with_fewer_chosen_slots_gets_no_pre_vote() -> None:
    """PAX-8"""
    voter = Driven()
    voter.give_and_sync("b", Accept(OLD, 1, (b"v",), 1))
    voter.now = SECOND
    assert voter.give("c", PreVote(NEWEST, 0)) == []
    assert voter.give("c", PreVote(NEWEST, 1)) == [("c", PreVoted(NEWEST))]


def test_contact_with_a_leader_extends_the_election_timeout() -> None:
    voter = Driven()
    voter.now = voter.timers["paxos.election"] - 1
    voter.give_and_sync("b", Accept(NEWER, 1, (), 0))
    assert voter.fire("paxos.election") == []
    assert voter.core.leader == "b"
    assert voter.fire("paxos.election")[0][1] == PreVote(Ballot(3, 0), 0)


def test_a_leader_needs_a_quorum_of_promises_including_its_own() -> None:
    candidate = Driven()
    ballot = candidate.fire("paxos.election")[0][1].ballot
    candidate.give("b", PreVoted(ballot))
    candidate.give("b", Promise(ballot, 1, [], 0))
    assert candidate.take_notices() == []
    candidate.sync()
    assert candidate.take_notices() == [Elected()]
    assert candidate.core.leader == "a"


def test_the_value_of_the_highest_ballot_is_proposed_again() -> None:
    """PAX-4: an earlier leader may have chosen it. PAX-9: the candidate leads when the value is chosen"""
    candidate = Driven()
    candidate.give_and_sync("c", Accept(OLD, 1, (b"old", b"mine"), 0))
    ballot = prepared(candidate)
    candidate.give("b", Promise(ballot, 1, [(NEWER, b"newer")], 1))
    assert candidate.take_notices() == []
    assert not candidate.core.is_leader
    candidate.sync()
    candidate.give("c", Accepted(ballot, 2, False))
    assert candidate.take_notices() == [Chosen(1, b"newer"), Chosen(2, b"mine"), Elected()]


def test_a_candidate_requests_all_parts_of_a_promise() -> None:
    candidate = Driven()
    ballot = prepared(candidate)
    assert candidate.give("b", Promise(ballot, 1, [(OLD, b"v")], 2)) == [("b", Prepare(ballot, 2))]
    assert not candidate.core.leader
    sent = candidate.give("b", Promise(ballot, 2, [(OLD, b"w")], 2))
    assert sent[0] == ("b", Accept(ballot, 1, [b"v", b"w"], 0))


def test_an_election_lasts_until_all_parts_of_a_promise_have_arrived() -> None:
    """Values of some 30 MB on a slow network take longer than an election timeout."""
    candidate = Driven()
    ballot = prepared(candidate)
    for slot in range(1, 21):
        sent = candidate.wait(CONFIG.election_ns // 2)
        sent += candidate.give("b", Promise(ballot, slot, [(OLD, b"v")], 20))
        assert [message for _, message in sent if isinstance(message, Prepare | PreVote)] == (
            [Prepare(ballot, slot + 1)] if slot < 20 else []
        )
    assert candidate.core.leader == "a"


def test_a_replica_that_sends_the_parts_of_a_promise_supports_no_other_candidate() -> None:
    voter = Driven()
    voter.give_and_sync("c", Accept(OLD, 1, (b"x" * 60, b"y" * 60), 0))
    voter.now += SECOND
    voter.give_and_sync("b", Prepare(NEWER, 1))
    voter.now += CONFIG.election_ns
    voter.give("b", Prepare(NEWER, 2))
    assert voter.give("c", PreVote(NEWEST, 0)) == []
    assert voter.fire("paxos.election") == []


def test_a_rejected_leader_becomes_a_follower() -> None:
    leader, ballot = elected()
    leader.take_notices()
    leader.give("c", Rejected(ballot, NEWEST))
    assert leader.take_notices() == [Deposed()]
    assert leader.fire("paxos.election")[0][1].ballot == Ballot(4, 0)


def test_a_leader_without_replies_steps_down() -> None:
    leader, _ = elected()
    until = leader.now + 2 * CONFIG.election_ns
    while leader.now <= until:
        assert leader.core.is_leader
        leader.fire("paxos.heartbeat")
    assert not leader.core.is_leader
    assert leader.take_notices() == [Elected(), Deposed()]


def test_a_leader_whose_disk_stands_still_steps_down() -> None:
    """PAX-19: others choose its values without it, until its memory is full. Then it begins no election."""
    leader, ballot = elected()
    leader.sync()
    size = CONFIG.buffer_bytes // 10
    until = leader.now + 4 * CONFIG.election_ns
    while not leader.core.is_overloaded:
        assert leader.core.next_slot <= 11
        leader.propose(b"v" * size)
        for other in "bc":
            leader.give(other, Accepted(ballot, leader.core.next_slot - 1, False))
    assert leader.core.chosen == leader.core.next_slot - 1 == 11
    while leader.core.is_leader:
        assert leader.now <= until
        for other in "bc":
            leader.give(other, Accepted(ballot, leader.core.next_slot - 1, False))
        leader.fire("paxos.heartbeat")
    assert leader.take_notices()[-1] == Deposed()
    for _ in range(4):
        assert leader.fire("paxos.election") == []
    leader.sync()
    assert not leader.core.is_overloaded
    assert [type(send.message) for send in leader.fire("paxos.election")] == [PreVote, PreVote]


@pytest.mark.parametrize(("syncs_after", "value"), [(1, b"v" * CONFIG.buffer_bytes), (5, b"")], ids=["slow", "idle"])
def test_a_leader_whose_disk_is_slow_or_has_little_to_write_goes_on(syncs_after: int, value: bytes) -> None:
    """`syncs_after`: election timeouts until a sync ends."""
    leader, ballot = elected()
    until = leader.now + 5 * CONFIG.election_ns
    while leader.now < until:
        behind = leader.now + syncs_after * CONFIG.election_ns
        while leader.now < behind:
            leader.propose(value)
            for other in "bc":
                leader.give(other, Accepted(ballot, leader.core.next_slot - 1, False))
            leader.fire("paxos.heartbeat")
        leader.sync()
    assert leader.core.is_leader


def test_only_a_leader_accepts_proposals_and_others_name_it() -> None:
    follower = Driven()
    with pytest.raises(NotLeader) as error:
        follower.propose(b"v")
    assert error.value.leader == ""
    follower.give("b", Accept(NEWER, 1, (), 0))
    with pytest.raises(NotLeader) as error:
        follower.propose(b"v")
    assert error.value.leader == "b"


# ---- leading


def test_a_value_is_chosen_when_it_is_durable_on_a_quorum() -> None:
    """PAX-6: two followers are a quorum, like the leader and one"""
    leader, ballot = elected()
    leader.take_notices()
    assert [message for _, message in leader.propose(b"v")] == [Accept(ballot, 1, [b"v"], 0)] * 2
    leader.give("b", Accepted(ballot, 1, False))
    leader.give("b", Accepted(ballot, 1, False))
    assert leader.take_notices() == []
    leader.give("c", Accepted(ballot, 1, False))
    assert leader.take_notices() == [Chosen(1, b"v")]
    leader.propose(b"w")
    leader.give("b", Accepted(ballot, 2, False))
    assert leader.take_notices() == []
    leader.sync()
    assert leader.take_notices() == [Chosen(2, b"w")]


def test_proposals_wait_only_for_the_window() -> None:
    leader, ballot = elected()
    leader.sync()
    for number in range(5):
        sent = leader.propose(b"%d" % number)
        assert len(sent) == (2 if number < CONFIG.window else 0)
    assert leader.give("b", Accepted(ballot, 1, False)) == [("b", Accept(ballot, 4, [b"3", b"4"], 0))]


def test_an_idle_leader_sends_only_heartbeats() -> None:
    leader, ballot = with_chosen(1)
    for _ in range(10):
        sent = leader.fire("paxos.heartbeat")
        assert sent == [("b", Accept(ballot, 2, (), 1)), ("c", Accept(ballot, 2, (), 1))]
        leader.give("b", Accepted(ballot, 1, False))
    assert leader.timers["paxos.heartbeat"] == leader.now + CONFIG.heartbeat_ns


def test_a_replica_that_is_behind_catches_up_in_batches() -> None:
    leader, ballot = with_chosen(8)
    sent = leader.give("c", Accepted(ballot, 0, True))
    assert [(message.first, len(message.values)) for _, message in sent] == [(1, 3), (4, 3), (7, 2)]
    assert leader.give("c", Accepted(ballot, 8, False)) == []


def test_an_accepted_slot_that_was_not_proposed_stops_the_leader() -> None:
    """PAX-5"""
    leader, ballot = with_chosen(1)
    with pytest.raises(ProtocolViolation, match="PAX-5"):
        leader.give("c", Accepted(ballot, 2, False))


# ---- reading


def test_a_read_is_confirmed_by_a_probe_that_started_after_it() -> None:
    """PAX-10"""
    leader, ballot = with_chosen(2)
    assert leader.read_index(70) == [("b", Probe(ballot, 1))]
    assert leader.read_index(71) == []
    assert leader.take_notices() == []
    assert leader.give("b", Probed(ballot, 1)) == [("b", Probe(ballot, 2))]
    assert leader.take_notices() == [Confirmed(70, 2)]
    leader.give("c", Probed(ballot, 2))
    assert leader.take_notices() == [Confirmed(71, 2)]


def test_that_test_sees_a_read_which_joins_a_probe_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation hardly ever does: the answer must be late by an election."""
    bugs.confirm_by_an_earlier_probe(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_read_is_confirmed_by_a_probe_that_started_after_it()


def test_a_deposed_leader_confirms_no_read() -> None:
    """PAX-10"""
    leader, ballot = with_chosen(2)
    leader.read_index(70)
    leader.give("c", Prepare(NEWEST, 3))
    leader.give("b", Probed(ballot, 1))
    assert leader.take_notices() == [Deposed()]


def test_a_replica_with_a_higher_promise_rejects_a_probe() -> None:
    """PAX-10"""
    acceptor = Driven()
    acceptor.give("b", Prepare(NEWER, 1))
    assert acceptor.give("c", Probe(OLD, 1)) == [("c", Rejected(OLD, NEWER))]
    assert acceptor.give("b", Probe(NEWER, 1)) == [("b", Probed(NEWER, 1))]


def test_a_lost_probe_is_sent_to_all_with_the_heartbeat() -> None:
    leader, ballot = with_chosen(1)
    assert leader.read_index(70) == [("b", Probe(ballot, 1))]
    sent = leader.fire("paxos.heartbeat")
    assert [("b", Probe(ballot, 1)), ("c", Probe(ballot, 1))] == sent[:2]
    leader.give("c", Probed(ballot, 1))
    assert leader.take_notices() == [Confirmed(70, 1)]
    assert leader.read_index(71) == [("c", Probe(ballot, 2))], "b is silent, c has answered"


def following(values: int = 2) -> tuple[Driven, Ballot]:
    """A follower of "b" that has accepted this many values, of which the last is not known to be chosen."""
    follower = Driven()
    follower.give_and_sync("b", Accept(NEWER, 1, [b"value"] * values, values - 1))
    follower.take_notices()
    return follower, NEWER


def test_a_follower_asks_its_leader_and_confirms_what_it_has_delivered() -> None:
    """PAX-10"""
    follower, ballot = following(2)
    assert follower.read_index(70) == [("b", ReadIndex(ballot, 70))]
    assert follower.take_notices() == []
    follower.give("b", ReadIndexed(ballot, 70, 2))
    assert follower.take_notices() == [Chosen(2, b"value"), Confirmed(70, 2)]
    follower.give("b", ReadIndexed(ballot, 70, 2))
    assert follower.take_notices() == []


def test_a_follower_that_is_behind_confirms_when_it_has_the_values() -> None:
    """PAX-10"""
    follower, ballot = following(2)
    follower.read_index(70)
    follower.give("b", ReadIndexed(ballot, 70, 4))
    assert follower.take_notices() == [Chosen(2, b"value")]
    follower.give("b", Accept(ballot, 3, [b"third"], 2))
    assert follower.take_notices() == [Chosen(3, b"third")]
    follower.give("b", Accept(ballot, 4, [b"fourth", b"fifth"], 2))
    assert follower.take_notices() == [Chosen(4, b"fourth"), Confirmed(70, 4)]


def test_a_follower_asks_again_with_each_heartbeat_and_asks_a_new_leader() -> None:
    follower, ballot = following(1)
    follower.read_index(70)
    assert ("b", ReadIndex(ballot, 70)) in follower.give("b", Accept(ballot, 2, (), 1))
    assert ("c", ReadIndex(NEWEST, 70)) in follower.give("c", Accept(NEWEST, 2, (b"new",), 1))
    follower.give("b", ReadIndexed(ballot, 70, 1))
    assert Confirmed(70, 1) not in follower.take_notices(), "the former leader's answer does not count"
    follower.give("c", ReadIndexed(NEWEST, 70, 1))
    assert follower.take_notices() == [Confirmed(70, 1)]


def test_an_answer_to_a_question_from_before_a_restart_confirms_no_read() -> None:
    """PAX-10: the embedding core counts its calls from the beginning again."""
    follower, _ = following(2)
    (_, earlier), *_ = follower.read_index(1)
    follower.now += SECOND
    follower.restart()
    follower.give("b", Accept(NEWER, 3, (), 1))
    (_, later), *_ = follower.read_index(1)
    follower.take_notices()
    follower.give("b", ReadIndexed(NEWER, earlier.number, 1))
    assert Confirmed(1, 1) not in follower.take_notices(), "slot 2 was chosen between the two questions"
    follower.give("b", ReadIndexed(NEWER, later.number, 2))
    assert follower.take_notices() == [Chosen(2, b"value"), Confirmed(1, 2)]


def test_a_follower_that_becomes_the_leader_confirms_reads_by_a_probe() -> None:
    """PAX-10"""
    follower, _ = following(1)
    follower.give("b", Accept(NEWER, 2, (), 1))
    follower.read_index(70)
    follower.now += 2 * SECOND
    leader, ballot = elected(follower)
    assert Confirmed(70, 1) not in leader.take_notices()
    leader.give("b", Probed(ballot, 1))
    assert leader.take_notices() == [Confirmed(70, 1)]


def test_a_replica_without_a_leader_refuses_reads() -> None:
    with pytest.raises(NotLeader, match="unknown"):
        Driven().read_index(70)


def test_a_leader_of_three_answers_a_follower_at_once() -> None:
    """PAX-10: the two are a quorum"""
    leader, ballot = with_chosen(2)
    assert leader.give("c", ReadIndex(ballot, 70)) == [("c", ReadIndexed(ballot, 70, 2))]
    assert leader.give("c", ReadIndex(OLD, 71)) == []


def test_a_follower_learns_only_what_it_has_accepted_from_that_leader() -> None:
    """PAX-7"""
    follower, ballot = following(3)
    follower.give("b", Learn(OLD, 3))
    follower.give("b", Learn(NEWEST, 3))
    assert follower.take_notices() == []
    follower.give("b", Learn(ballot, 5))
    assert follower.take_notices() == [Chosen(3, b"value")]
    follower.give_and_sync("c", Accept(NEWEST, 4, (), 3))
    follower.give_and_sync("b", Accept(ballot, 4, [b"late"], 3))
    follower.give("c", Learn(NEWEST, 4))
    assert follower.take_notices() == [], "the value of slot 4 is not that of the newest leader"


def test_a_leader_informs_a_replica_that_waits_unless_another_message_does() -> None:
    leader, ballot = with_chosen(1)
    leader.core.propose(b"second", leader.now)
    leader.sync()
    leader.give("c", Accepted(ballot, 2, again=False))
    assert leader.core.send_commits() == []
    leader.give("b", Accepted(ballot, 2, again=False, awaits_commit=True))
    ((to, envelope),) = leader.core.send_commits()
    assert (to, envelope.message) == ("b", Learn(ballot, 2))
    assert leader.core.send_commits() == []
    leader.core.propose(b"third", leader.now)
    assert leader.core.send_commits() == []


def test_a_leader_of_five_probes_others_for_a_follower() -> None:
    """PAX-10"""
    leader = Driven(journal_of(records.member(FOUNDED_BY_FIVE)), "abcde")

    def give(sender: str, message: Any) -> list[Send]:
        return leader.give(sender, MemberEnvelope(FOUNDED_BY_FIVE.cluster, FOUNDED_BY_FIVE.roster, message))

    ballot = leader.fire("paxos.election")[0][1].ballot
    for other in "bc":
        give(other, PreVoted(ballot))
    leader.sync()
    for other in "bc":
        give(other, Promise(ballot, 1, [], 0))
    assert leader.core.is_leader
    assert give("c", ReadIndex(ballot, 70)) == [("b", Probe(ballot, 1)), ("c", Probe(ballot, 1))]
    assert give("c", Probed(ballot, 1)) == []
    assert give("d", Probed(ballot, 1)) == [("c", ReadIndexed(ballot, 70, 0))]


# ---- snapshots and the journal


def test_the_journal_is_trimmed_when_the_snapshot_is_durable() -> None:
    """PAX-12"""
    leader, _ = with_chosen(5)
    assert leader.core.uncompacted_bytes == 150
    before = leader.journal.end
    leader.compact(4, b"four")
    assert leader.journal.first == 1
    leader.sync()
    assert leader.journal.first == before
    assert leader.core.uncompacted_bytes == 30


def test_a_snapshot_is_written_with_promises_and_votes() -> None:
    """PAX-12: the journal from the snapshot on is enough"""
    acceptor = Driven()
    acceptor.give_and_sync("c", Accept(OLD, 1, (b"v", b"w", b"x"), 2))
    acceptor.give_and_sync("b", Prepare(NEWER, 3))
    acceptor.compact(2, b"two")
    acceptor.sync()
    assert acceptor.journal.records[0].tag == records.SNAPSHOT
    acceptor.restart()
    assert acceptor.take_notices() == [Restore(2, b"two")]
    assert acceptor.give("b", Prepare(NEWER, 3)) == [("b", Promise(NEWER, 3, [(OLD, b"x")], 3))]
    assert acceptor.give("c", Prepare(OLD, 3)) == [("c", Rejected(OLD, NEWER))]


def test_a_restart_delivers_the_chosen_values() -> None:
    """PAX-11"""
    acceptor = Driven()
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.give_and_sync("b", Accept(NEWER, 2, (b"w",), 1))
    acceptor.restart()
    assert acceptor.take_notices() == [Chosen(1, b"v")]


def test_a_snapshot_replaces_older_slots_and_keeps_later_votes() -> None:
    """PAX-11, PAX-12"""
    behind = Driven()
    behind.give_and_sync("c", Accept(OLD, 1, (b"v", b"w", b"x"), 1))
    behind.take_notices()
    assert behind.give_and_sync("b", Install(NEWER, 2, 5, 0, b"sn")) == [("b", Installed(NEWER, 2, 2))]
    assert behind.give("b", Install(NEWER, 2, 5, 0, b"sn")) == [("b", Installed(NEWER, 2, 2))]
    assert behind.give("b", Install(NEWER, 2, 5, 2, b"ap!")) == []
    assert behind.take_notices() == [Restore(2, b"snap!")]
    assert behind.sync() == [("b", Accepted(NEWER, 2, False))]
    behind.restart()
    assert behind.take_notices() == [Restore(2, b"snap!")]
    promise = behind.give_and_sync("c", Prepare(NEWEST, 3))
    assert promise == [("c", Promise(NEWEST, 3, [(OLD, b"x")], 3))]


def test_a_snapshot_replaces_no_values_accepted_from_its_leader() -> None:
    """A late report of a gap lets the leader send it. The state may lack what the values have, as records (MPX-9)."""
    follower, ballot = following(3)
    assert follower.give("b", Install(ballot, 3, 5, 0, b"snap!")) == [("b", Accepted(ballot, 3, False))]
    assert follower.take_notices() == [Chosen(3, b"value")]
    follower.restart()
    assert follower.take_notices() == [Chosen(1, b"value"), Chosen(2, b"value")]


def test_a_replica_before_the_log_gets_the_snapshot_in_chunks() -> None:
    leader, ballot = with_chosen(5)
    leader.compact(5, bytes(150))
    leader.sync()
    assert leader.give("c", Accepted(ballot, 0, True)) == [("c", Install(ballot, 5, 150, 0, bytes(100)))]
    assert leader.give("c", Installed(ballot, 5, 100)) == [("c", Install(ballot, 5, 150, 100, bytes(50)))]
    assert leader.give("c", Installed(ballot, 5, 100)) == []
    leader.fire("paxos.heartbeat")
    assert ("c", Install(ballot, 5, 150, 100, bytes(50))) in leader.fire("paxos.heartbeat")
    leader.give("c", Accepted(ballot, 5, False))
    assert leader.propose(b"v")[-1] == ("c", Accept(ballot, 6, [b"v"], 5))


def test_a_snapshot_of_a_slot_that_is_not_chosen_is_rejected() -> None:
    """PAX-11"""
    leader, _ = with_chosen(2)
    with pytest.raises(ProtocolViolation, match="PAX-11"):
        leader.compact(3, b"three")


def test_a_journal_with_a_gap_stops_the_replica() -> None:
    """PAX-12"""
    acceptor = Driven()
    acceptor.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.give_and_sync("b", Accept(NEWER, 2, (b"w",), 0))
    with pytest.raises(ProtocolViolation, match="PAX-12"):
        Driven(Journal(3, 5, acceptor.journal.records[3:]))


# ---- one replica


def test_a_single_replica_needs_no_timer() -> None:
    alone = Driven(None, members="a")
    assert alone.take_notices() == []
    alone.sync()
    assert alone.take_notices() == [Elected()]
    assert alone.propose(b"v") == []
    assert alone.take_notices() == []
    alone.sync()
    alone.read_index(70)
    assert alone.take_notices() == [Chosen(1, b"v"), Confirmed(70, 1)]
    assert alone.timers == {}


def test_a_single_replica_recovers_its_log() -> None:
    alone = Driven(None, members="a")
    alone.sync()
    alone.propose(b"v")
    alone.sync()
    alone.propose(b"lost")
    alone.restart()
    alone.sync()
    alone.sync()
    assert alone.take_notices() == [Chosen(1, b"v"), Elected()]


def test_the_first_start_creates_the_journal() -> None:
    assert Driven(None).journal.first == 1
