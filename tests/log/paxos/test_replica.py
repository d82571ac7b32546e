"""The rules of Paxos, one by one: a replica is driven by hand, and everything it says is looked at."""

from __future__ import annotations

import random
from typing import Any

import pytest

from logdb.cores.effects import (
    MILLISECOND,
    Create,
    Journal,
    Persist,
    Persisted,
    ProtocolViolation,
    Received,
    Send,
    SetTimer,
    TimerFired,
    Trim,
)
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
    MemberEnvelope,
    Prepare,
    PreVote,
    PreVoted,
    Probe,
    Probed,
    Promise,
    Rejected,
)

CONFIG = Config(batch_bytes=100, window=3, retain_bytes=20)
SECOND = 1_000 * MILLISECOND
FOUNDED = Membership((11, 12, 13), (FOUNDER,) * 3, True)
OLD, NEWER, NEWEST = Ballot(1, 2), Ballot(2, 1), Ballot(3, 2)


def journal_of(*written: tuple[int, bytes]) -> Journal:
    """A journal with these records."""
    return Journal(1, len(written) + 1, [LogRecord(at, 0, *record) for at, record in enumerate(written, 1)])


FOUNDERS = journal_of(records.member(FOUNDED))


class Driven:
    """Replica "a" of a, b and c (or alone), its journal (of a founder, if nothing else is said), and the time.

    `notices`: what it told its embedding core. `roster`: the incarnations that others know who talk to it.
    """

    def __init__(self, journal: Journal | None = FOUNDERS, members: str = "abc") -> None:
        self.now = 0
        self.roster = FOUNDED.roster
        self.replica = Replica("a", tuple(members), journal, random.Random(1), CONFIG)
        self.records = list(journal.records) if journal else []
        self.first = journal.first if journal else 1
        self.durable = self.first + len(self.records)
        self.timers: dict[str, int] = {}
        self.notices: list[Any] = []
        self.trimmed: list[int] = []
        self.sent_at_start = self._perform(self.replica.start(0))

    def _perform(self, out: list[Any]) -> list[tuple[str, Any]]:
        sent = []
        for effect in out:
            match effect:
                case Send(to, message):
                    sent.append((to, message.message if isinstance(message, MemberEnvelope) else message))
                case Persist(_, first, records):
                    assert first == self.first + len(self.records)
                    self.records += [LogRecord(first + at, 0, *record) for at, record in enumerate(records)]
                case SetTimer(name, at):
                    self.timers[name] = at
                case Trim(_, before):
                    self.trimmed.append(before)
                case Chosen() | Restore() | Confirmed() | Elected() | Deposed():
                    self.notices.append(effect)
        self.replica.check_invariants()
        return sent

    def hear(self, sender: str, message: Any) -> list[tuple[str, Any]]:
        """What it sends because of a message."""
        if not isinstance(message, JoinRequest | JoinReply | MemberEnvelope):
            message = MemberEnvelope(FOUNDED.cluster, self.roster, message)
        return self._perform(self.replica.handle(Received(sender, message), self.now))

    def sync(self) -> list[tuple[str, Any]]:
        """What it sends when all that it has written is durable."""
        self.durable = self.first + len(self.records)
        return self._perform(self.replica.handle(Persisted("paxos", self.durable), self.now))

    def hear_durably(self, sender: str, message: Any) -> list[tuple[str, Any]]:
        return [*self.hear(sender, message), *self.sync()]

    def wait(self, name: str) -> list[tuple[str, Any]]:
        """What it sends when a timer has run out."""
        self.now = max(self.now, self.timers[name])
        return self._perform(self.replica.handle(TimerFired(name), self.now))

    def propose(self, value: bytes) -> list[tuple[str, Any]]:
        return self._perform(self.replica.propose(value, self.now))

    def read_index(self, token: int) -> list[tuple[str, Any]]:
        return self._perform(self.replica.read_index(token, self.now))

    def compact(self, slot: int, snapshot: bytes) -> list[tuple[str, Any]]:
        return self._perform(self.replica.compact(slot, snapshot, self.now))

    def told(self) -> list[Any]:
        """The notices since this was asked last."""
        notices, self.notices = self.notices, []
        return notices

    def crash(self, members: str = "abc") -> Driven:
        """What starts again with what was durable."""
        kept = self.records[: self.durable - self.first]
        return Driven(Journal(self.first, self.durable, kept), members)

    def added(self) -> list[Any]:
        """What it has written since its start."""
        return [record for record in self.records if record.tag != records.MEMBER]


def prepared(driven: Driven) -> Ballot:
    """Let it stand for election, up to its own durable promise. Returns its ballot."""
    canvasses = driven.wait("paxos.election")
    ballot = canvasses[0][1].ballot
    driven.hear("b", PreVoted(ballot))
    driven.sync()
    return ballot


def elected(driven: Driven | None = None) -> tuple[Driven, Ballot]:
    """A leader that found nothing to recover."""
    driven = driven or Driven()
    ballot = prepared(driven)
    first = driven.replica.chosen + 1
    driven.hear("b", Promise(ballot, first, [], first - 1))
    assert driven.replica.is_leader
    return driven, ballot


def with_chosen(count: int, size: int = 30) -> tuple[Driven, Ballot]:
    """A leader with chosen values of `size` bytes in its slots up to `count`. c has heard nothing of it."""
    driven, ballot = elected()
    for number in range(1, count + 1):
        driven.propose(bytes([number]) * size)
        driven.sync()
        driven.hear("b", Accepted(ballot, number, False))
    assert driven.replica.chosen == count
    driven.told()
    return driven, ballot


# ---- promises


def test_a_promise_leaves_when_it_is_durable() -> None:
    """PAX-1"""
    acceptor = Driven()
    assert acceptor.hear("b", Prepare(NEWER, 1)) == []
    assert acceptor.sync() == [("b", Promise(NEWER, 1, [], 0))]


def test_a_promise_survives_a_crash() -> None:
    """PAX-2"""
    acceptor = Driven()
    acceptor.hear_durably("b", Prepare(NEWER, 1))
    again = acceptor.crash()
    assert again.hear("c", Prepare(OLD, 1)) == [("c", Rejected(OLD, NEWER))]
    assert again.hear("c", Accept(OLD, 1, (b"v",), 0)) == [("c", Rejected(OLD, NEWER))]
    assert again.records == acceptor.records


def test_the_vote_for_a_ballot_is_its_promise_too() -> None:
    """PAX-2: who missed the Prepare"""
    acceptor = Driven()
    assert acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 0)) == [("b", Accepted(NEWER, 1, False))]
    assert acceptor.crash().hear("c", Prepare(OLD, 1)) == [("c", Rejected(OLD, NEWER))]


def test_a_promise_tells_what_was_accepted_in_pieces() -> None:
    acceptor = Driven()
    acceptor.hear_durably("c", Accept(OLD, 1, (b"x" * 60, b"y" * 60), 0))
    assert acceptor.hear_durably("b", Prepare(NEWER, 1)) == [("b", Promise(NEWER, 1, [(OLD, b"x" * 60)], 2))]
    assert acceptor.hear("b", Prepare(NEWER, 2)) == [("b", Promise(NEWER, 2, [(OLD, b"y" * 60)], 2))]


def test_who_knows_more_to_be_chosen_promises_nothing() -> None:
    """PAX-8"""
    acceptor = Driven()
    acceptor.hear_durably("c", Accept(OLD, 1, (b"v",), 1))
    assert acceptor.told() == [Chosen(1, b"v")]
    assert acceptor.hear_durably("b", Prepare(NEWER, 1)) == []
    assert acceptor.hear_durably("b", Prepare(NEWER, 2)) == [("b", Promise(NEWER, 2, [], 1))]


# ---- votes


def test_a_vote_leaves_when_it_is_durable() -> None:
    """PAX-1"""
    acceptor = Driven()
    assert acceptor.hear("b", Accept(NEWER, 1, (b"v",), 0)) == []
    assert acceptor.sync() == [("b", Accepted(NEWER, 1, False))]


def test_votes_that_one_sync_makes_durable_are_one_answer() -> None:
    acceptor = Driven()
    acceptor.hear("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.hear("b", Accept(NEWER, 2, (b"w",), 0))
    assert acceptor.sync() == [("b", Accepted(NEWER, 2, False))]


def test_what_does_not_follow_is_not_taken_and_asked_for_once() -> None:
    """PAX-5"""
    acceptor = Driven()
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 0))
    assert acceptor.hear("b", Accept(NEWER, 3, (b"x",), 0)) == [("b", Accepted(NEWER, 1, True))]
    assert acceptor.hear("b", Accept(NEWER, 4, (b"y",), 0)) == [("b", Accepted(NEWER, 1, False))]
    assert acceptor.hear_durably("b", Accept(NEWER, 1, (b"v", b"w"), 0)) == [("b", Accepted(NEWER, 2, False))]


def test_a_value_is_chosen_only_if_it_was_accepted_for_the_ballot_that_says_so() -> None:
    """PAX-7: slot 1 is chosen, with another value"""
    acceptor = Driven()
    acceptor.hear_durably("c", Accept(OLD, 1, (b"stale",), 0))
    acceptor.hear_durably("b", Accept(NEWER, 2, (), 1))
    assert acceptor.told() == []
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"right",), 1))
    assert acceptor.told() == [Chosen(1, b"right")]


def test_a_value_behind_what_a_new_leader_has_sent_stays_a_vote() -> None:
    acceptor = Driven()
    acceptor.hear_durably("c", Accept(OLD, 1, (b"v", b"w"), 0))
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 0))
    promise = acceptor.crash().hear_durably("c", Prepare(NEWEST, 1))
    assert promise == [("c", Promise(NEWEST, 1, [(NEWER, b"v"), (OLD, b"w")], 2))]


def test_two_values_for_a_chosen_slot_stop_the_replica() -> None:
    """PAX-3"""
    acceptor = Driven()
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 1))
    with pytest.raises(ProtocolViolation, match="PAX-3"):
        acceptor.hear("c", Accept(NEWEST, 1, (b"w",), 1))


# ---- election


def test_a_candidate_binds_nobody_before_a_quorum_backs_it() -> None:
    candidate = Driven()
    sent = candidate.wait("paxos.election")
    assert sent == [("b", PreVote(Ballot(1, 0), 0)), ("c", PreVote(Ballot(1, 0), 0))]
    assert candidate.added() == []
    sent = candidate.hear("c", PreVoted(Ballot(1, 0)))
    assert sent == [("b", Prepare(Ballot(1, 0), 1)), ("c", Prepare(Ballot(1, 0), 1))]


def test_who_hears_a_leader_backs_no_other() -> None:
    """PAX-13"""
    voter = Driven()
    voter.now = SECOND
    assert voter.hear("c", PreVote(NEWEST, 0)) == [("c", PreVoted(NEWEST))]
    voter.hear("b", Accept(NEWER, 1, (), 0))
    assert voter.hear("c", PreVote(NEWEST, 0)) == []
    voter.now += CONFIG.election_ns
    assert voter.hear("c", PreVote(NEWEST, 0)) == [("c", PreVoted(NEWEST))]


def test_who_knows_more_backs_no_candidate() -> None:
    """PAX-8"""
    voter = Driven()
    voter.hear_durably("b", Accept(OLD, 1, (b"v",), 1))
    voter.now = SECOND
    assert voter.hear("c", PreVote(NEWEST, 0)) == []
    assert voter.hear("c", PreVote(NEWEST, 1)) == [("c", PreVoted(NEWEST))]


def test_an_election_timer_that_heard_of_a_leader_meanwhile_waits_on() -> None:
    voter = Driven()
    voter.now = voter.timers["paxos.election"] - 1
    voter.hear_durably("b", Accept(NEWER, 1, (), 0))
    assert voter.wait("paxos.election") == []
    assert voter.replica.leader == "b"
    assert voter.wait("paxos.election")[0][1] == PreVote(Ballot(3, 0), 0)


def test_a_leader_needs_promises_of_a_quorum_and_its_own() -> None:
    candidate = Driven()
    ballot = candidate.wait("paxos.election")[0][1].ballot
    candidate.hear("b", PreVoted(ballot))
    candidate.hear("b", Promise(ballot, 1, [], 0))
    assert candidate.told() == []
    candidate.sync()
    assert candidate.told() == [Elected()]
    assert candidate.replica.leader == "a"


def test_the_value_of_the_highest_ballot_is_proposed_again() -> None:
    """PAX-4: what a leader before may have had chosen. PAX-9: it leads when that is chosen"""
    candidate = Driven()
    candidate.hear_durably("c", Accept(OLD, 1, (b"old", b"mine"), 0))
    ballot = prepared(candidate)
    candidate.hear("b", Promise(ballot, 1, [(NEWER, b"newer")], 1))
    assert candidate.told() == []
    assert not candidate.replica.is_leader
    candidate.sync()
    candidate.hear("c", Accepted(ballot, 2, False))
    assert candidate.told() == [Chosen(1, b"newer"), Chosen(2, b"mine"), Elected()]


def test_promises_in_pieces_are_asked_for_to_their_end() -> None:
    candidate = Driven()
    ballot = prepared(candidate)
    assert candidate.hear("b", Promise(ballot, 1, [(OLD, b"v")], 2)) == [("b", Prepare(ballot, 2))]
    assert not candidate.replica.leader
    sent = candidate.hear("b", Promise(ballot, 2, [(OLD, b"w")], 2))
    assert sent[0] == ("b", Accept(ballot, 1, [b"v", b"w"], 0))


def test_who_is_refused_follows() -> None:
    leader, ballot = elected()
    leader.told()
    leader.hear("c", Rejected(ballot, NEWEST))
    assert leader.told() == [Deposed()]
    assert leader.wait("paxos.election")[0][1].ballot == Ballot(4, 0)


def test_a_leader_that_nobody_answers_steps_down() -> None:
    leader, _ = elected()
    until = leader.now + 2 * CONFIG.election_ns
    while leader.now <= until:
        assert leader.replica.is_leader
        leader.wait("paxos.heartbeat")
    assert not leader.replica.is_leader
    assert leader.told() == [Elected(), Deposed()]


def test_only_a_leader_takes_values_and_the_others_say_who_does() -> None:
    follower = Driven()
    with pytest.raises(NotLeader) as error:
        follower.propose(b"v")
    assert error.value.leader == ""
    follower.hear("b", Accept(NEWER, 1, (), 0))
    with pytest.raises(NotLeader) as error:
        follower.read_index(1)
    assert error.value.leader == "b"


# ---- leading


def test_a_value_is_chosen_when_a_quorum_has_it_durably() -> None:
    """PAX-6: two followers do as well as the leader and one"""
    leader, ballot = elected()
    leader.told()
    assert [message for _, message in leader.propose(b"v")] == [Accept(ballot, 1, [b"v"], 0)] * 2
    leader.hear("b", Accepted(ballot, 1, False))
    leader.hear("b", Accepted(ballot, 1, False))
    assert leader.told() == []
    leader.hear("c", Accepted(ballot, 1, False))
    assert leader.told() == [Chosen(1, b"v")]
    leader.propose(b"w")
    leader.hear("b", Accepted(ballot, 2, False))
    assert leader.told() == []
    leader.sync()
    assert leader.told() == [Chosen(2, b"w")]


def test_proposals_do_not_wait_for_each_other_but_for_the_window() -> None:
    leader, ballot = elected()
    leader.sync()
    for number in range(5):
        sent = leader.propose(b"%d" % number)
        assert len(sent) == (2 if number < CONFIG.window else 0)
    assert leader.hear("b", Accepted(ballot, 1, False)) == [("b", Accept(ballot, 4, [b"3", b"4"], 0))]


def test_an_idle_leader_sends_heartbeats_and_nothing_else() -> None:
    leader, ballot = with_chosen(1)
    for _ in range(10):
        sent = leader.wait("paxos.heartbeat")
        assert sent == [("b", Accept(ballot, 2, (), 1)), ("c", Accept(ballot, 2, (), 1))]
        leader.hear("b", Accepted(ballot, 1, False))
    assert leader.timers["paxos.heartbeat"] == leader.now + CONFIG.heartbeat_ns


def test_who_lacks_something_gets_it_in_batches() -> None:
    leader, ballot = with_chosen(8)
    sent = leader.hear("c", Accepted(ballot, 0, True))
    assert [(message.first, len(message.values)) for _, message in sent] == [(1, 3), (4, 3), (7, 2)]
    assert leader.hear("c", Accepted(ballot, 8, False)) == []


def test_what_nobody_proposed_stops_the_leader() -> None:
    """PAX-5"""
    leader, ballot = with_chosen(1)
    with pytest.raises(ProtocolViolation, match="PAX-5"):
        leader.hear("c", Accepted(ballot, 2, False))


# ---- reading


def test_a_read_is_confirmed_by_a_probe_that_began_after_it() -> None:
    """PAX-10"""
    leader, ballot = with_chosen(2)
    assert leader.read_index(70) == [("b", Probe(ballot, 1)), ("c", Probe(ballot, 1))]
    assert leader.read_index(71) == []
    assert leader.told() == []
    assert leader.hear("b", Probed(ballot, 1)) == [("b", Probe(ballot, 2)), ("c", Probe(ballot, 2))]
    assert leader.told() == [Confirmed(70, 2)]
    leader.hear("c", Probed(ballot, 2))
    assert leader.told() == [Confirmed(71, 2)]


def test_a_deposed_leader_confirms_nothing() -> None:
    """PAX-10"""
    leader, ballot = with_chosen(2)
    leader.read_index(70)
    leader.hear("c", Prepare(NEWEST, 3))
    leader.hear("b", Probed(ballot, 1))
    assert leader.told() == [Deposed()]


def test_who_has_promised_more_answers_no_probe() -> None:
    """PAX-10"""
    acceptor = Driven()
    acceptor.hear("b", Prepare(NEWER, 1))
    assert acceptor.hear("c", Probe(OLD, 1)) == [("c", Rejected(OLD, NEWER))]
    assert acceptor.hear("b", Probe(NEWER, 1)) == [("b", Probed(NEWER, 1))]


def test_a_lost_probe_is_sent_again_with_the_heartbeat() -> None:
    leader, ballot = with_chosen(1)
    leader.read_index(70)
    assert ("b", Probe(ballot, 1)) in leader.wait("paxos.heartbeat")


# ---- snapshots and the journal


def test_the_journal_is_trimmed_when_the_snapshot_is_durable() -> None:
    """PAX-12"""
    leader, _ = with_chosen(5)
    assert leader.replica.uncompacted_bytes == 150
    before = leader.first + len(leader.records)
    leader.compact(4, b"four")
    assert leader.trimmed == []
    leader.sync()
    assert leader.trimmed == [before]
    assert leader.replica.uncompacted_bytes == 30


def test_a_snapshot_takes_promises_and_votes_with_it() -> None:
    """PAX-12: what follows the snapshot in the journal is enough"""
    acceptor = Driven()
    acceptor.hear_durably("c", Accept(OLD, 1, (b"v", b"w", b"x"), 2))
    acceptor.hear_durably("b", Prepare(NEWER, 3))
    acceptor.compact(2, b"two")
    acceptor.sync()
    kept = acceptor.records[acceptor.trimmed[0] - 1 :]
    again = Driven(Journal(acceptor.trimmed[0], acceptor.durable, kept))
    assert again.told() == [Restore(2, b"two")]
    assert again.hear("b", Prepare(NEWER, 3)) == [("b", Promise(NEWER, 3, [(OLD, b"x")], 3))]
    assert again.hear("c", Prepare(OLD, 3)) == [("c", Rejected(OLD, NEWER))]


def test_a_restart_tells_what_is_known_to_be_chosen() -> None:
    """PAX-11"""
    acceptor = Driven()
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.hear_durably("b", Accept(NEWER, 2, (b"w",), 1))
    assert acceptor.crash().told() == [Chosen(1, b"v")]


def test_a_snapshot_replaces_what_is_before_it_and_spares_the_votes_behind_it() -> None:
    """PAX-11, PAX-12"""
    behind = Driven()
    behind.hear_durably("c", Accept(OLD, 1, (b"v", b"w", b"x"), 1))
    behind.told()
    assert behind.hear_durably("b", Install(NEWER, 2, 5, 0, b"sn")) == [("b", Installed(NEWER, 2, 2))]
    assert behind.hear("b", Install(NEWER, 2, 5, 0, b"sn")) == [("b", Installed(NEWER, 2, 2))]
    assert behind.hear("b", Install(NEWER, 2, 5, 2, b"ap!")) == []
    assert behind.told() == [Restore(2, b"snap!")]
    assert behind.sync() == [("b", Accepted(NEWER, 2, False))]
    again = behind.crash()
    assert again.told() == [Restore(2, b"snap!")]
    promise = again.hear_durably("c", Prepare(NEWEST, 3))
    assert promise == [("c", Promise(NEWEST, 3, [(OLD, b"x")], 3))]


def test_who_is_too_far_behind_is_sent_the_snapshot_in_pieces() -> None:
    leader, ballot = with_chosen(5)
    leader.compact(5, bytes(150))
    leader.sync()
    assert leader.hear("c", Accepted(ballot, 0, True)) == [("c", Install(ballot, 5, 150, 0, bytes(100)))]
    assert leader.hear("c", Installed(ballot, 5, 100)) == [("c", Install(ballot, 5, 150, 100, bytes(50)))]
    assert leader.hear("c", Installed(ballot, 5, 100)) == []
    leader.wait("paxos.heartbeat")
    assert ("c", Install(ballot, 5, 150, 100, bytes(50))) in leader.wait("paxos.heartbeat")
    leader.hear("c", Accepted(ballot, 5, False))
    assert leader.propose(b"v")[-1] == ("c", Accept(ballot, 6, [b"v"], 5))


def test_a_snapshot_of_what_is_not_chosen_is_refused() -> None:
    """PAX-11"""
    leader, _ = with_chosen(2)
    with pytest.raises(ProtocolViolation, match="PAX-11"):
        leader.compact(3, b"three")


def test_a_journal_with_a_gap_stops_the_replica() -> None:
    """PAX-12"""
    acceptor = Driven()
    acceptor.hear_durably("b", Accept(NEWER, 1, (b"v",), 0))
    acceptor.hear_durably("b", Accept(NEWER, 2, (b"w",), 0))
    with pytest.raises(ProtocolViolation, match="PAX-12"):
        Driven(Journal(3, 5, acceptor.records[3:]))


# ---- one replica


def test_one_replica_needs_nobody_and_no_timer() -> None:
    alone = Driven(None, members="a")
    assert alone.told() == []
    alone.sync()
    assert alone.told() == [Elected()]
    assert alone.propose(b"v") == []
    assert alone.told() == []
    alone.sync()
    alone.read_index(70)
    assert alone.told() == [Chosen(1, b"v"), Confirmed(70, 1)]
    assert alone.timers == {}


def test_one_replica_finds_again_what_it_had() -> None:
    alone = Driven(None, members="a")
    alone.sync()
    alone.propose(b"v")
    alone.sync()
    alone.propose(b"lost")
    again = alone.crash("a")
    again.sync()
    again.sync()
    assert again.told() == [Chosen(1, b"v"), Elected()]


def test_the_first_start_creates_the_journal() -> None:
    replica = Replica("a", ("a", "b", "c"), None, random.Random(1), CONFIG)
    assert replica.start(0)[0] == Create("paxos", 1)
