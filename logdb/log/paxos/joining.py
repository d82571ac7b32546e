"""Joining: founding the cluster together with all other replicas, or becoming a member of an existing cluster.

A replica with an empty journal is either new, or has lost its disk and with it its promises and votes. It cannot decide
which, but the other replicas can.

- **All replicas are fresh.** Each has a nonce for its disk and sends the nonces that it has received. A replica that
has received from every other replica exactly the nonces that it knows itself founds the cluster. All these nonces were
drawn before the first replica had received all of them, and from replicas that were still fresh; so at that moment
there was no member, and no promise can be lost (PAX-14). The other replicas do the same, or learn from a member that
their nonce is among the founders'. - **There are members.** The replica learns the newest incarnation of itself that a
majority knows, and requests a larger one. A majority, not counting the replica itself, stores it before replying with
their promises. The replica promises the highest of these, and votes again. It gives no promise and does not lead before
it has the log of a leader that knew of the new incarnation and whose ballot is not lower (PAX-15).

Proof sketch: a vote of the former self counts only together with votes of others, at least one of which is among those
that replied. Either it voted before it knew of the new incarnation; then the highest promise is not lower, and the
leader's log has the value. Or it voted after; then the candidate that counts its vote drops the vote of the former self
(PAX-16).
"""

from __future__ import annotations

from collections.abc import Sequence

from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.membership import FOUNDER, Membership, cluster_of
from logdb.log.paxos.messages import Ballot, JoinReply, JoinRequest


class Joining:
    """The state of replica number `me` of `size` until it is a member. Its methods return whether a new `JoinRequest`
    should be sent."""

    def __init__(self, me: int, size: int, acceptor: Acceptor) -> None:
        self._me, self._acceptor = me, acceptor
        self._quorum = size // 2 + 1
        self._others = [number for number in range(size) if number != me]
        self._nonces = [0] * size
        self._nonces_from: dict[int, Sequence[int]] = {}
        self._answers: dict[int, JoinReply] = {}
        self._cluster = self._incarnation = 0
        self._catch_up_to: tuple[Ballot, int] | None = None

    def begin(self, nonce: int) -> None:
        """Start as a replica without membership; `nonce` is used if the disk has none."""
        if not self._acceptor.nonce:
            self._acceptor.set_nonce(nonce)
        self._nonces[self._me] = self._acceptor.nonce
        self._try_to_found()

    def join_request(self) -> JoinRequest:
        """The message to all other replicas, sent repeatedly until this one has joined."""
        membership = self._acceptor.membership
        if membership is None:
            return JoinRequest(tuple(self._nonces), self._cluster, self._incarnation)
        return JoinRequest((), membership.cluster, membership.roster[self._me])

    # ---- founding

    def on_join_request(self, sender: int, join_request: JoinRequest) -> bool:
        """Another replica, which is not a member either, has sent its nonces."""
        if self._acceptor.membership is not None or len(join_request.nonces) != len(self._nonces):
            return False
        is_new = self._nonces[sender] != join_request.nonces[sender]
        self._nonces[sender] = join_request.nonces[sender]
        self._nonces_from[sender] = join_request.nonces
        return self._try_to_found() or is_new

    def _try_to_found(self) -> bool:
        founders = tuple(self._nonces)
        if any(self._nonces_from.get(other) != founders for other in self._others):
            return False
        self._acceptor.set_membership(Membership(founders, (FOUNDER,) * len(founders), True))
        return True

    # ---- joining an existing cluster

    def on_join_reply(self, sender: int, reply: JoinReply, now: int) -> bool:
        """A member has replied."""
        membership, me = self._acceptor.membership, self._me
        if len(reply.founders) != len(self._nonces):
            return False
        if membership is None:
            if reply.founders[me] == self._acceptor.nonce and reply.roster[me] == FOUNDER:
                self._acceptor.set_membership(Membership(tuple(reply.founders), tuple(reply.roster), True))
                return False
            self._answers[sender] = reply
            return self._evaluate(tuple(reply.founders), now)
        if reply.leads and (reply.founders, reply.roster[me]) == (membership.founders, membership.roster[me]):
            self._catch_up_to = reply.promised, reply.last
        return False

    def _evaluate(self, founders: tuple[int, ...], now: int) -> bool:
        """Evaluate the replies of one cluster's members. A reply is ignored if another one names a newer incarnation of
        its sender."""
        answers = {other: answer for other, answer in self._answers.items() if answer.founders == founders}
        newest = tuple(map(max, *(answer.roster for answer in answers.values()), (0,) * len(founders)))
        current = [answer for other, answer in answers.items() if answer.roster[other] == newest[other]]
        if len(current) < self._quorum:
            return False
        current_incarnation = newest[self._me]
        if current_incarnation > self._incarnation or not self._incarnation:
            # Larger than any incarnation that has voted; the clock makes it larger than those that have not.
            self._cluster, self._incarnation = cluster_of(founders), max(current_incarnation + 1, now)
            return True
        promises = [answer.promised for answer in current if answer.roster[self._me] == self._incarnation]
        if len(promises) < self._quorum:
            return False
        if (promised := max(promises)) > self._acceptor.promised:
            self._acceptor.promise(promised)
        self._acceptor.set_membership(Membership(founders, newest, False))
        return True

    def check_caught_up(self) -> None:
        """Become a full member once the log up to the leader's end has been accepted."""
        membership = self._acceptor.membership
        if membership is not None and not membership.joined and self._catch_up_to is not None:
            ballot, last = self._catch_up_to
            if self._acceptor.promised == ballot and self._acceptor.matched >= last:
                self._acceptor.set_membership(membership._replace(joined=True))
