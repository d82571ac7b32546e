"""Joining, one message after another: what is sent, what is durable before that, which messages are ignored."""

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
    """A fresh replica that has sent its join request, and its nonce."""
    driven = Driven(None)
    (_, join_request), _ = driven.sync()
    assert isinstance(join_request, JoinRequest)
    return driven, join_request.nonces[0]


def admitted() -> tuple[Driven, int]:
    """A replica that has lost its disk and that b and c have admitted; and its incarnation."""
    driven, _ = fresh()
    driven.now = 1_000
    for other in "bc":
        sent = driven.give(other, JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0))
    incarnation = sent[0][1].incarnation
    known = (incarnation, FOUNDER, FOUNDER)
    driven.give("b", JoinReply(FOUNDED.founders, known, NEWER, False, 0))
    driven.give_and_sync("c", JoinReply(FOUNDED.founders, known, OLD, False, 0))
    driven.roster = known
    return driven, incarnation


# ---- founding


def test_a_nonce_is_sent_when_it_is_durable() -> None:
    driven = Driven(None)
    assert driven.sent == []
    (nonce,) = {join_request.nonces[0] for _, join_request in driven.sync()}
    assert {join_request for _, join_request in driven.restart()} == {JoinRequest((nonce, 0, 0), 0, 0)}


def test_a_fresh_replica_does_not_answer_members() -> None:
    """PAX-14"""
    driven, _ = fresh()
    for message in (
        PreVote(OLD, 9),
        Prepare(OLD, 1),
        Accept(OLD, 1, (b"v",), 1),
        Install(OLD, 1, 1, 0, b"s"),
        Probe(OLD, 1),
    ):
        assert driven.give_and_sync("b", message) == []
    assert driven.take_notices() == []


def test_founding_a_cluster_needs_the_same_nonces_from_all() -> None:
    """PAX-14"""
    driven, mine = fresh()
    assert driven.give("b", JoinRequest((mine, 5, 0), 0, 0)) == [(to, JoinRequest((mine, 5, 0), 0, 0)) for to in "bc"]
    driven.give("c", JoinRequest((mine, 5, 6), 0, 0))
    driven.give("c", JoinRequest((mine, 4, 6), 0, 0))
    driven.give("b", JoinRequest((mine, 5, 6), 0, 0))
    assert not driven.core.cluster
    driven.give("c", JoinRequest((mine, 5, 6), 0, 0))
    assert driven.core.cluster
    assert not driven.core.has_joined
    driven.sync()
    assert driven.core.has_joined
    driven.restart()
    assert driven.core.has_joined


def test_a_replica_learns_from_a_member_that_it_is_a_founder() -> None:
    driven, mine = fresh()
    driven.give("b", JoinReply((mine, 5, 6), (FOUNDER,) * 3, NO_BALLOT, False, 0))
    driven.sync()
    assert driven.core.has_joined
    assert not driven.core.has_rejoined


def test_a_founder_sends_the_founders_nonces() -> None:
    assert Driven().give("b", JoinRequest((0, 9, 0), 0, 0)) == [
        ("b", JoinReply(FOUNDED.founders, FOUNDED.roster, NO_BALLOT, False, 0))
    ]


def test_a_journal_without_a_cluster_belongs_to_a_founder() -> None:
    old = Driven(Journal(1, 2, [LogRecord(1, 0, *records.promise(OLD))]))
    old.sync()
    assert old.core.has_joined
    assert old.give("b", JoinRequest((0, 9, 0), 0, 0)) == [("b", JoinReply(EMPTY, (FOUNDER,) * 3, OLD, False, 0))]


# ---- joining an existing cluster


def test_a_new_incarnation_is_durable_before_the_reply() -> None:
    """PAX-15"""
    member = Driven()
    assert member.give("b", JoinRequest((0, NONCE, 0), FOUNDED.cluster, 70)) == []
    roster = (FOUNDER, 70, FOUNDER)
    assert member.sync() == [("b", JoinReply(FOUNDED.founders, roster, NO_BALLOT, False, 0))]
    member.restart()
    assert member.give("b", JoinRequest((0, NONCE, 0), FOUNDED.cluster, 70))[0][1].roster == roster


def test_a_majority_of_the_others_admits_a_replica() -> None:
    """PAX-15: and it promises the highest of their promises"""
    driven, incarnation = admitted()
    assert incarnation > FOUNDER
    assert driven.give("c", Accept(OLD, 1, (), 0))[0][1].promised == NEWER
    assert driven.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0)) == [("b", Accepted(NEWER, 1, False))]


def test_an_admitted_replica_promises_once_it_has_the_leaders_log() -> None:
    """PAX-15"""
    driven, _ = admitted()
    higher = Ballot(9, 2)
    assert driven.give_and_sync("c", Prepare(higher, 1)) == []
    driven.give("b", JoinReply(FOUNDED.founders, driven.roster, NEWER, True, 2))
    driven.give_and_sync("b", Accept(NEWER, 1, (b"v",), 0))
    assert not driven.core.has_joined
    driven.give_and_sync("b", Accept(NEWER, 2, (b"w",), 1))
    assert driven.core.has_joined
    assert driven.core.has_rejoined
    ((_, promise),) = driven.give_and_sync("c", Prepare(higher, 2))
    assert promise.entries == [(NEWER, b"w")]
    driven.restart()
    assert driven.core.has_joined


def test_joining_continues_after_a_crash() -> None:
    driven, incarnation = admitted()
    assert driven.restart() == [(to, JoinRequest((), FOUNDED.cluster, incarnation)) for to in "bc"]


def test_a_reply_of_a_former_incarnation_does_not_count() -> None:
    """PAX-15: b has lost its disk since"""
    driven, _ = fresh()
    assert driven.give("b", JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0)) == []
    assert driven.give("c", JoinReply(FOUNDED.founders, (FOUNDER, 50, FOUNDER), OLD, False, 0)) == []
    assert driven.give("b", JoinReply(FOUNDED.founders, (FOUNDER, 50, FOUNDER), OLD, False, 0)) != []


# ---- ignored messages


def test_messages_of_a_former_incarnation_are_ignored() -> None:
    """PAX-16"""
    member = Driven()
    member.roster = (FOUNDER, 70, FOUNDER)
    member.give("c", Probe(OLD, 1))
    assert member.give("b", MemberEnvelope(FOUNDED.cluster, FOUNDED.roster, Probe(NEWER, 1))) == []
    assert member.give("b", Probe(NEWER, 1)) != []


def test_a_replaced_replica_stops() -> None:
    """PAX-17"""
    member = Driven()
    member.roster = (70, FOUNDER, FOUNDER)
    with pytest.raises(ProtocolViolation, match="PAX-17"):
        member.give("c", Probe(OLD, 1))


def test_messages_of_another_cluster_are_ignored() -> None:
    """PAX-18"""
    other = Membership((21, 22, 23), (FOUNDER,) * 3, True)
    member = Driven()
    assert member.give("b", MemberEnvelope(other.cluster, other.roster, Probe(OLD, 1))) == []
    assert member.give("d", Probe(OLD, 1)) == []
    assert member.give("b", JoinRequest((0, NONCE, 0), other.cluster, 70))[0][1].roster == FOUNDED.roster
    driven, _ = fresh()
    driven.give("b", JoinReply(FOUNDED.founders, FOUNDED.roster, OLD, False, 0))
    assert driven.give("c", JoinReply(other.founders, other.roster, OLD, False, 0)) == []
