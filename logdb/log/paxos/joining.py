"""Becoming a member: founding the cluster with all others, or being taken into one that exists.

A replica with an empty journal may be a new one, or one that has lost its disk, and with it what it had promised and
accepted. It cannot tell, but the others can.

- **All of them are fresh.** Each has a nonce of its own disk and tells which ones it knows. Who has been told by all
  others exactly the nonces that it knows itself founds the cluster: all of them had been made before the first was told
  all, by one that was still fresh, so at that moment nobody was a member, and nothing is forgotten (PAX-14). The others
  do the same, or are told by a member that their nonce is among the founders'.
- **There are members.** It learns the newest incarnation that more than half of all know of it, and asks to be a larger
  one. More than half of all, itself not among them, write that down before they answer with what they have promised. It
  promises the highest of that, and votes again. It does not promise, nor lead, before it has what a leader had who knew
  of it and whose ballot is no lower (PAX-15).

Why that is enough: a vote of its former self counts only together with votes of others, of which one at least is among
those who have answered. That one has voted before it knew of the new incarnation, for then the highest promise is no
lower and the leader's log has the value; or after, and whoever counts its vote drops the former one's (PAX-16).
"""

from __future__ import annotations

from collections.abc import Sequence

from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.membership import FOUNDER, Membership, cluster_of
from logdb.log.paxos.messages import Ballot, JoinReply, JoinRequest


class Joining:
    """What replica number `me` of `size` knows until it is a member. Methods return whether there is more to tell."""

    def __init__(self, me: int, size: int, acceptor: Acceptor) -> None:
        self._me, self._acceptor = me, acceptor
        self._quorum = size // 2 + 1
        self._others = [number for number in range(size) if number != me]
        self._nonces = [0] * size
        self._told: dict[int, Sequence[int]] = {}
        self._answers: dict[int, JoinReply] = {}
        self._cluster = self._wanted = 0
        self._goal: tuple[Ballot, int] | None = None

    def begin(self, nonce: int) -> None:
        """Nothing is known yet; `nonce` is for a disk that has none."""
        if not self._acceptor.nonce:
            self._acceptor.mint(nonce)
        self._nonces[self._me] = self._acceptor.nonce
        self._found()

    def join_request(self) -> JoinRequest:
        """What is to be told to all others, and again until this one has joined."""
        membership = self._acceptor.membership
        if membership is None:
            return JoinRequest(tuple(self._nonces), self._cluster, self._wanted)
        return JoinRequest((), membership.cluster, membership.roster[self._me])

    # ---- founding

    def knocked(self, sender: int, join_request: JoinRequest) -> bool:
        """Another one is no member either."""
        if self._acceptor.membership is not None or len(join_request.nonces) != len(self._nonces):
            return False
        is_news = self._nonces[sender] != join_request.nonces[sender]
        self._nonces[sender] = join_request.nonces[sender]
        self._told[sender] = join_request.nonces
        return self._found() or is_news

    def _found(self) -> bool:
        founders = tuple(self._nonces)
        if any(self._told.get(other) != founders for other in self._others):
            return False
        self._acceptor.enrol(Membership(founders, (FOUNDER,) * len(founders), True))
        return True

    # ---- being taken in

    def welcomed(self, sender: int, welcome: JoinReply, now: int) -> bool:
        """A member has answered."""
        membership, me = self._acceptor.membership, self._me
        if len(welcome.founders) != len(self._nonces):
            return False
        if membership is None:
            if welcome.founders[me] == self._acceptor.nonce and welcome.roster[me] == FOUNDER:
                self._acceptor.enrol(Membership(tuple(welcome.founders), tuple(welcome.roster), True))
                return False
            self._answers[sender] = welcome
            return self._consider(tuple(welcome.founders), now)
        if welcome.leads and (welcome.founders, welcome.roster[me]) == (membership.founders, membership.roster[me]):
            self._goal = welcome.promised, welcome.last
        return False

    def _consider(self, founders: tuple[int, ...], now: int) -> bool:
        """Look at what members of one cluster have answered, without those that others know a newer incarnation of."""
        answers = {other: answer for other, answer in self._answers.items() if answer.founders == founders}
        newest = tuple(map(max, *(answer.roster for answer in answers.values()), (0,) * len(founders)))
        current = [answer for other, answer in answers.items() if answer.roster[other] == newest[other]]
        if len(current) < self._quorum:
            return False
        known = newest[self._me]
        if known > self._wanted or not self._wanted:
            # Larger than any that has ever voted; of those that have not, the clock makes it the newest.
            self._cluster, self._wanted = cluster_of(founders), max(known + 1, now)
            return True
        knowing = [answer.promised for answer in current if answer.roster[self._me] == self._wanted]
        if len(knowing) < self._quorum:
            return False
        if (promised := max(knowing)) > self._acceptor.promised:
            self._acceptor.promise(promised)
        self._acceptor.enrol(Membership(founders, newest, False))
        return True

    def caught_up(self) -> None:
        """Look whether nothing is missing any more."""
        membership = self._acceptor.membership
        if membership is not None and not membership.joined and self._goal is not None:
            ballot, last = self._goal
            if self._acceptor.promised == ballot and self._acceptor.matched >= last:
                self._acceptor.enrol(membership._replace(joined=True))
