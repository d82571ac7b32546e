"""Becoming a member, one message after another: what is told, what is durable before that, who is not listened to."""

from __future__ import annotations

import pytest

from logdb.cores.effects import Journal, ProtocolViolation
from logdb.log.contract import LogRecord
from logdb.log.paxos import records
from logdb.log.paxos.membership import FOUNDER, Membership
from logdb.log.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Install,
    JoinReply,
    JoinRequest,
    MemberEnvelope,
    Prepare,
    PreVote,
    Probe,
)
from tests.log.paxos.test_replica import FOUNDED, NEWER, OLD, Driven

NONCE = 1 << 40
EMPTY = (0, 0, 0)


def fresh() -> tuple[Driven, int]:
    """A replica that knows nothing and has said so, and its nonce."""
    driven = Driven(None)
    (_, join_request), _ = driven.sync()
    assert isinstance(join_request, JoinRequest)
    return driven, join_request.nonces[0]


def let_in() -> tuple[Driven, int]:
    """A replica that has lost its disk, and that b and c have let in; and its incarnation."""
    driven, _ = fresh()
    driven.now = 1_000
    for other in "bc":
        sent = driven.hear(other, JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0))
    incarnation = sent[0][1].incarnation
    known = (incarnation, FOUNDER, FOUNDER)
    driven.hear("b", JoinReply(FOUNDED.founders, known, NEWER, False, 0))
    driven.hear_durably("c", JoinReply(FOUNDED.founders, known, OLD, False, 0))
    driven.roster = known
    return driven, incarnation


# ---- founding


def test_a_nonce_is_told_when_it_is_durable() -> None:
    driven = Driven(None)
    assert driven.sent_at_start == []
    (nonce,) = {join_request.nonces[0] for _, join_request in driven.sync()}
    again = driven.crash()
    assert {join_request for _, join_request in again.sent_at_start} == {JoinRequest((nonce, 0, 0), 0, 0)}


def test_who_is_fresh_answers_no_member() -> None:
    """PAX-14"""
    driven, _ = fresh()
    for message in (
        PreVote(OLD, 9),
        Prepare(OLD, 1),
        Accept(OLD, 1, (b"v",), 1),
        Install(OLD, 1, 1, 0, b"s"),
        Probe(OLD, 1),
    ):
        assert driven.hear_durably("b", message) == []
    assert driven.told() == []


def test_all_must_have_told_the_same_to_found_a_cluster() -> None:
    """PAX-14"""
    driven, mine = fresh()
    assert driven.hear("b", JoinRequest((mine, 5, 0), 0, 0)) == [(to, JoinRequest((mine, 5, 0), 0, 0)) for to in "bc"]
    driven.hear("c", JoinRequest((mine, 5, 6), 0, 0))
    driven.hear("c", JoinRequest((mine, 4, 6), 0, 0))
    driven.hear("b", JoinRequest((mine, 5, 6), 0, 0))
    assert not driven.replica.cluster
    driven.hear("c", JoinRequest((mine, 5, 6), 0, 0))
    assert driven.replica.cluster
    assert not driven.replica.has_joined
    driven.sync()
    assert driven.replica.has_joined
    assert driven.crash().replica.has_joined


def test_a_founder_is_told_that_it_is_one() -> None:
    driven, mine = fresh()
    driven.hear("b", JoinReply((mine, 5, 6), (FOUNDER,) * 3, NO_BALLOT, False, 0))
    driven.sync()
    assert driven.replica.has_joined
    assert not driven.replica.has_rejoined


def test_a_founder_tells_who_founded() -> None:
    assert Driven().hear("b", JoinRequest((0, 9, 0), 0, 0)) == [
        ("b", JoinReply(FOUNDED.founders, FOUNDED.roster, NO_BALLOT, False, 0))
    ]


def test_a_journal_from_before_there_were_clusters_is_a_founders() -> None:
    old = Driven(Journal(1, 2, [LogRecord(1, 0, *records.promise(OLD))]))
    old.sync()
    assert old.replica.has_joined
    assert old.hear("b", JoinRequest((0, 9, 0), 0, 0)) == [("b", JoinReply(EMPTY, (FOUNDER,) * 3, OLD, False, 0))]


# ---- being let in


def test_a_new_incarnation_is_durable_before_it_is_welcome() -> None:
    """PAX-15"""
    member = Driven()
    assert member.hear("b", JoinRequest((0, NONCE, 0), FOUNDED.cluster, 70)) == []
    roster = (FOUNDER, 70, FOUNDER)
    assert member.sync() == [("b", JoinReply(FOUNDED.founders, roster, NO_BALLOT, False, 0))]
    again = member.crash()
    assert again.hear("b", JoinRequest((0, NONCE, 0), FOUNDED.cluster, 70))[0][1].roster == roster


def test_more_than_half_without_it_let_a_replica_in() -> None:
    """PAX-15: and it promises the highest of what they have"""
    driven, incarnation = let_in()
    assert incarnation > FOUNDER
    assert driven.hear("c", Accept(OLD, 1, (), 0))[0][1].promised == NEWER
    assert driven.hear_durably("b", Accept(NEWER, 1, (b"v",), 0)) == [("b", Accepted(NEWER, 1, False))]


def test_who_is_let_in_promises_when_it_has_what_a_leader_had() -> None:
    """PAX-15"""
    driven, _ = let_in()
    higher = Ballot(9, 2)
    assert driven.hear_durably("c", Prepare(higher, 1)) == []
    driven.hear("b", JoinReply(FOUNDED.founders, driven.roster, NEWER, True, 2))
    driven.hear_durably("b", Accept(NEWER, 1, (b"v",), 0))
    assert not driven.replica.has_joined
    driven.hear_durably("b", Accept(NEWER, 2, (b"w",), 1))
    assert driven.replica.has_joined
    assert driven.replica.has_rejoined
    ((_, promise),) = driven.hear_durably("c", Prepare(higher, 2))
    assert promise.entries == [(NEWER, b"w")]
    assert driven.crash().replica.has_joined


def test_a_crash_on_the_way_does_not_begin_anew() -> None:
    driven, incarnation = let_in()
    again = driven.crash()
    assert again.sent_at_start == [(to, JoinRequest((), FOUNDED.cluster, incarnation)) for to in "bc"]


def test_an_answer_that_another_one_outdates_does_not_count() -> None:
    """PAX-15: b has lost its disk since"""
    driven, _ = fresh()
    assert driven.hear("b", JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0)) == []
    assert driven.hear("c", JoinReply(FOUNDED.founders, (FOUNDER, 50, FOUNDER), OLD, False, 0)) == []
    assert driven.hear("b", JoinReply(FOUNDED.founders, (FOUNDER, 50, FOUNDER), OLD, False, 0)) != []


# ---- who is not listened to


def test_a_former_self_is_not_heard() -> None:
    """PAX-16"""
    member = Driven()
    member.roster = (FOUNDER, 70, FOUNDER)
    member.hear("c", Probe(OLD, 1))
    assert member.hear("b", MemberEnvelope(FOUNDED.cluster, FOUNDED.roster, Probe(NEWER, 1))) == []
    assert member.hear("b", Probe(NEWER, 1)) != []


def test_who_was_replaced_stops() -> None:
    """PAX-17"""
    member = Driven()
    member.roster = (70, FOUNDER, FOUNDER)
    with pytest.raises(ProtocolViolation, match="PAX-17"):
        member.hear("c", Probe(OLD, 1))


def test_another_cluster_is_not_heard() -> None:
    """PAX-18"""
    other = Membership((21, 22, 23), (FOUNDER,) * 3, True)
    member = Driven()
    assert member.hear("b", MemberEnvelope(other.cluster, other.roster, Probe(OLD, 1))) == []
    assert member.hear("d", Probe(OLD, 1)) == []
    assert member.hear("b", JoinRequest((0, NONCE, 0), other.cluster, 70))[0][1].roster == FOUNDED.roster
    driven, _ = fresh()
    driven.hear("b", JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0))
    assert driven.hear("c", JoinReply(other.founders, other.roster, OLD, False, 0)) == []
