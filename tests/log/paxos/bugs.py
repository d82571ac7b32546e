"""Bugs to plant in replicas. The simulation or a story must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from logdb.cores.effects import Journal, Send
from logdb.log.paxos import messages, records, replica
from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.interface import Confirmed
from logdb.log.paxos.joining import Joining
from logdb.log.paxos.leader import Leader
from logdb.log.paxos.membership import FOUNDER, Membership
from logdb.log.paxos.messages import (
    NO_BALLOT,
    Accepted,
    Ballot,
    JoinReply,
    JoinRequest,
    Learn,
    MemberEnvelope,
    Promise,
    ReadIndexed,
)
from logdb.log.paxos.replica import Replica

Plant = Callable[[pytest.MonkeyPatch], None]


def promise_before_persisting(patch: pytest.MonkeyPatch) -> None:
    _answer_at_once(patch, Promise)


def accept_before_persisting(patch: pytest.MonkeyPatch) -> None:
    _answer_at_once(patch, Accepted)


def _answer_at_once(patch: pytest.MonkeyPatch, kind: type) -> None:
    right = Replica._reply_when_durable

    def answer(self: Replica, to: str, message: Any, now: int) -> None:
        if isinstance(message, kind):
            self._perform([Send(to, message)], now)
        else:
            right(self, to, message, now)

    patch.setattr(Replica, "_reply_when_durable", answer)


def forget_values_in_a_promise(patch: pytest.MonkeyPatch) -> None:
    right = Replica._reply_when_durable

    def answer(self: Replica, to: str, message: Any, now: int) -> None:
        if isinstance(message, Promise):
            message = message._replace(entries=[], last=message.first - 1)
        right(self, to, message, now)

    patch.setattr(Replica, "_reply_when_durable", answer)


def recover_the_oldest_value(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replica, "itemgetter", lambda _: lambda entry: (-entry[0].round, -entry[0].member))


def accept_a_lower_ballot(patch: pytest.MonkeyPatch) -> None:
    right = Replica._accepts_ballot

    def obeys(self: Replica, sender: str, ballot: Ballot, now: int) -> bool:
        return ballot < self._acceptor.promised or right(self, sender, ballot, now)

    patch.setattr(Replica, "_accepts_ballot", obeys)


def count_the_own_vote_twice(patch: pytest.MonkeyPatch) -> None:
    def count(self: Leader) -> None:
        votes = sorted((self._own_matched, self._own_matched, *(peer.matched for peer in self._peers.values())))
        _choose(self, votes[-self._quorum])

    patch.setattr(Leader, "_count_votes", count)


def count_the_own_vote_early(patch: pytest.MonkeyPatch) -> None:
    def count(self: Leader) -> None:
        votes = sorted((self._acceptor.matched, *(peer.matched for peer in self._peers.values())))
        _choose(self, votes[-self._quorum])

    patch.setattr(Leader, "_count_votes", count)


def _choose(leading: Leader, chosen: int) -> None:
    if chosen > leading._acceptor.commit:
        leading._acceptor.choose(chosen)
        if not leading.established:
            leading._establish()


def need_too_few_promises(patch: pytest.MonkeyPatch) -> None:
    right = Replica.__init__

    def init(self: Replica, *arguments: Any) -> None:
        right(self, *arguments)
        self._quorum -= 1

    patch.setattr(Replica, "__init__", init)


def forget_the_promise_at_restart(patch: pytest.MonkeyPatch) -> None:
    right = Acceptor._replay

    def replay(self: Acceptor, journal: Journal) -> None:
        right(self, journal)
        self.promised = max((ballot for ballot, _ in self.log), default=NO_BALLOT)

    patch.setattr(Acceptor, "_replay", replay)


def confirm_without_a_probe(patch: pytest.MonkeyPatch) -> None:
    def read_index(self: Leader, token: int) -> None:
        self._out.append(Confirmed(token, self._acceptor.commit))

    patch.setattr(Leader, "read_index", read_index)


def confirm_by_an_earlier_probe(patch: pytest.MonkeyPatch) -> None:
    right = Leader._confirm

    def confirm(self: Leader, confirmation: Confirmed | Send) -> None:
        if self._confirmed < self._probe:
            self._pending_reads.append((self._probe, confirmation))
        else:
            right(self, confirmation)

    patch.setattr(Leader, "_confirm", confirm)


def confirm_at_a_follower_without_asking(patch: pytest.MonkeyPatch) -> None:
    right = Replica.read_index

    def read_index(self: Replica, token: int, now: int) -> list[Any]:
        if self._reads or self.is_leader or not self.leader:
            return right(self, token, now)
        return [Confirmed(token, self._acceptor.commit)]

    patch.setattr(Replica, "read_index", read_index)


def confirm_at_a_follower_before_it_has_the_values(patch: pytest.MonkeyPatch) -> None:
    def confirm_reads(self: Replica) -> None:
        for token, slot in list(self._reads.items()):
            if slot is not None:
                del self._reads[token]
                self._out.append(Confirmed(token, slot))

    patch.setattr(Replica, "_confirm_reads", confirm_reads)


def choose_all_that_a_follower_has(patch: pytest.MonkeyPatch) -> None:
    def on_read_indexed(self: Replica, sender: str, message: ReadIndexed, now: int) -> None:
        self._acceptor.choose(min(message.slot, self._acceptor.last))

    patch.setattr(Replica, "_on_read_indexed", on_read_indexed)


def inform_of_what_is_proposed(patch: pytest.MonkeyPatch) -> None:
    """A leader informs others of values that only they have accepted."""

    def send_commits(self: Leader) -> None:
        for peer in self._peers.values():
            if peer.awaits_commit:
                self._out.append(Send(peer.address, Learn(self.ballot, peer.matched)))

    patch.setattr(Leader, "send_commits", send_commits)


def lead_before_all_is_chosen(patch: pytest.MonkeyPatch) -> None:
    right = Leader.begin

    def begin(self: Leader, recovered: Sequence[bytes], now: int) -> None:
        right(self, recovered, now)
        self._recovered_to = self._acceptor.commit
        if not self.established:
            self._establish()

    patch.setattr(Leader, "begin", begin)


def skip_a_slot_with_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    right = Acceptor.install
    patch.setattr(Acceptor, "install", lambda self, slot, snapshot: right(self, slot + 1, snapshot))


def drop_votes_behind_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    right = Acceptor._rewritten_log
    patch.setattr(Acceptor, "_rewritten_log", lambda self, first: right(self, first)[:0])


def trim_before_the_snapshot_is_durable(patch: pytest.MonkeyPatch) -> None:
    def store_snapshot(self: Acceptor, slot: int, snapshot: bytes) -> None:
        right(self, slot, snapshot)
        self._out.append(self._pending_effects.pop()[1])

    right = Acceptor._store_snapshot
    patch.setattr(Acceptor, "_store_snapshot", store_snapshot)


def choose_values_accepted_for_another_ballot(patch: pytest.MonkeyPatch) -> None:
    right = Acceptor.accept

    def accept(self: Acceptor, first: int, values: Sequence[bytes], commit: int) -> bool:
        follows = right(self, first, values, commit)
        self.matched = max(self.matched, min(commit, self.last))
        self.choose(min(commit, self.last))
        return follows

    patch.setattr(Acceptor, "accept", accept)


def promise_to_a_candidate_with_fewer_chosen_slots(patch: pytest.MonkeyPatch) -> None:
    """The candidate receives no values for compacted slots."""

    def prepare(self: Replica, sender: str, message: messages.Prepare, now: int) -> None:
        ballot, first = message
        if self._accepts_ballot(sender, ballot, now):
            start = max(first, self._acceptor.commit + 1)
            entries = self._acceptor.entries(start)
            self._reply_when_durable(sender, Promise(ballot, first, entries, first + len(entries) - 1), now)

    patch.setattr(Replica, "_on_prepare", prepare)


def reply_to_a_join_request_before_persisting(patch: pytest.MonkeyPatch) -> None:
    """A crash loses the new incarnation, and votes of the former one count again."""
    _answer_at_once(patch, JoinReply)


def vote_with_an_empty_disk(patch: pytest.MonkeyPatch) -> None:
    """A replica that has lost its disk is a member as soon as it knows the cluster."""

    def on_join_reply(self: Joining, sender: int, reply: JoinReply, now: int) -> bool:
        if self._acceptor.membership is None:
            self._acceptor.set_membership(Membership(tuple(reply.founders), tuple(reply.roster), True))
        return False

    patch.setattr(Joining, "on_join_reply", on_join_reply)


def count_votes_of_a_former_self(patch: pytest.MonkeyPatch) -> None:
    """Count votes of an incarnation that is known to have lost its disk."""
    right = Replica._on_envelope

    def on_envelope(self: Replica, sender: str, envelope: MemberEnvelope, now: int) -> None:
        membership = self._acceptor.membership
        if membership is not None:
            number = self._members.index(sender)
            roster = list(envelope.roster)
            roster[number] = max(roster[number], membership.roster[number])
            envelope = envelope._replace(roster=roster)
        right(self, sender, envelope, now)

    patch.setattr(Replica, "_on_envelope", on_envelope)


def keep_votes_of_a_former_self(patch: pytest.MonkeyPatch) -> None:
    """Keep votes that were counted before the loss of the disk was known."""
    patch.setattr(Leader, "reset_peer", lambda self, address: None)
    right = Replica._merge_roster

    def learn(self: Replica, roster: Sequence[int]) -> Membership:
        kept = set(self._pre_votes), dict(self._promises), set(self._complete_promises)
        membership = right(self, roster)
        self._pre_votes, self._promises, self._complete_promises = kept
        return membership

    patch.setattr(Replica, "_merge_roster", learn)


def hide_lost_disks_from_others(patch: pytest.MonkeyPatch) -> None:
    """Replicas that did not admit the new incarnation count votes of the former one."""
    right = Replica._enveloped

    def envelope(self: Replica, send: Send) -> Send:
        send = right(self, send)
        if isinstance(send.message, MemberEnvelope):
            roster = [FOUNDER] * len(send.message.roster)
            roster[self._index] = send.message.roster[self._index]
            send = Send(send.to, send.message._replace(roster=tuple(roster)))
        return send

    patch.setattr(Replica, "_enveloped", envelope)


def join_with_too_few_replies(patch: pytest.MonkeyPatch) -> None:
    """The joining replica counts itself."""
    right = Joining.__init__

    def init(self: Joining, *arguments: Any) -> None:
        right(self, *arguments)
        self._quorum -= 1

    patch.setattr(Joining, "__init__", init)


def forget_what_others_promised(patch: pytest.MonkeyPatch) -> None:
    """An admitted replica takes part in the next instance, without the promises of its former incarnation."""
    right = Joining.on_join_reply

    def on_join_reply(self: Joining, sender: int, reply: JoinReply, now: int) -> bool:
        if self._acceptor.membership is None:
            reply = reply._replace(promised=NO_BALLOT)
        return right(self, sender, reply, now)

    patch.setattr(Joining, "on_join_reply", on_join_reply)


def join_without_the_values(patch: pytest.MonkeyPatch) -> None:
    """An admitted replica promises at once, without the values."""

    def check_caught_up(self: Joining) -> None:
        membership = self._acceptor.membership
        if membership is not None and not membership.joined:
            self._acceptor.set_membership(membership._replace(joined=True))

    patch.setattr(Joining, "check_caught_up", check_caught_up)


def go_by_an_instance_alone(patch: pytest.MonkeyPatch) -> None:
    """A replica that has lost its disk takes part again after one completed instance, without a new incarnation (as in
    *Paxos made live*, 5.1). Here ballots span instances."""
    right = Joining.join_request

    def join_request(self: Joining) -> JoinRequest:
        return right(self)._replace(incarnation=0)

    def on_join_reply(self: Joining, sender: int, reply: JoinReply, now: int) -> bool:
        membership = self._acceptor.membership
        if membership is None and reply.leads:
            self._acceptor.set_membership(Membership(tuple(reply.founders), tuple(reply.roster), False))
            self._catch_up_to = reply.promised, reply.last + 1
        return membership is None

    patch.setattr(Joining, "join_request", join_request)
    patch.setattr(Joining, "on_join_reply", on_join_reply)


def drop_the_roster_with_the_old_journal(patch: pytest.MonkeyPatch) -> None:
    """A snapshot loses the membership."""
    right = Acceptor._write

    def write(self: Acceptor, written: Sequence[Any]) -> None:
        if written[0][0] == records.SNAPSHOT:
            written = [record for record in written if record[0] != records.MEMBER]
        right(self, written)

    patch.setattr(Acceptor, "_write", write)


def found_without_all(patch: pytest.MonkeyPatch) -> None:
    """More than half are enough to found a cluster."""

    def found(self: Joining) -> bool:
        others = [other for other in self._others if self._nonces[other]]
        if len(others) + 1 < self._quorum:
            return False
        founders = tuple(nonce or 1 for nonce in self._nonces)
        self._acceptor.set_membership(Membership(founders, (FOUNDER,) * len(founders), True))
        return True

    patch.setattr(Joining, "_try_to_found", found)


def lead_while_the_disk_stands_still(patch: pytest.MonkeyPatch) -> None:
    """Values are chosen without the leader, which keeps what it cannot write."""
    patch.setattr(Acceptor, "lags", lambda self, now, limit_ns: False)


BUGS: list[Plant] = [
    promise_before_persisting,
    accept_before_persisting,
    forget_values_in_a_promise,
    recover_the_oldest_value,
    accept_a_lower_ballot,
    count_the_own_vote_twice,
    count_the_own_vote_early,
    need_too_few_promises,
    forget_the_promise_at_restart,
    confirm_without_a_probe,
    confirm_at_a_follower_without_asking,
    confirm_at_a_follower_before_it_has_the_values,
    choose_all_that_a_follower_has,
    inform_of_what_is_proposed,
    lead_before_all_is_chosen,
    skip_a_slot_with_a_snapshot,
    drop_votes_behind_a_snapshot,
    trim_before_the_snapshot_is_durable,
    choose_values_accepted_for_another_ballot,
    promise_to_a_candidate_with_fewer_chosen_slots,
    reply_to_a_join_request_before_persisting,
    vote_with_an_empty_disk,
    join_without_the_values,
    lead_while_the_disk_stands_still,
]
"""The bugs that the simulation finds. The others need one order of events in a million; the stories contain it."""
