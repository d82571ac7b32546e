"""One replica of a Multi-Paxos log: its face, who leads, and which part of it a message is for.

The embedding core hands every event to `handle` that is Paxos's: messages of `logdb.log.paxos.messages`, timers whose
names begin with `TIMERS`, `Persisted` of the journal `JOURNAL`. What comes back are effects of `logdb.cores.effects`
for the host and, among them and in their place, notices for the embedding core, which takes them out.

Before all that it must be a member (`joining.py`). What members say to each other carries whom they know to have lost
its disk, so that nothing counts which such a one has said before (PAX-16).

A replica that has not heard of a leader for a while *canvasses*: would a quorum promise me this ballot? Only then it
*prepares*, which binds. So who is cut off for a while, or knows less than the others, deposes nobody (PAX-8, PAX-13).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from logdb.cores.effects import (
    Address,
    CancelTimer,
    Effect,
    Event,
    Journal,
    Persisted,
    ProtocolViolation,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.interface import Config, Deposed, NotLeader, Outcome
from logdb.log.paxos.joining import Joining
from logdb.log.paxos.leader import Leader
from logdb.log.paxos.membership import FOUNDER, Membership
from logdb.log.paxos.messages import (
    NOBODY,
    Accept,
    Accepted,
    Ballot,
    Entry,
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

JOIN = "paxos.join"
ELECTION = "paxos.election"
HEARTBEAT = "paxos.heartbeat"


class Role(Enum):
    """What a replica is doing about there being a leader."""

    FOLLOWING = "following"
    CANVASSING = "canvassing"
    PREPARING = "preparing"
    LEADING = "leading"


class Replica:
    """A replica of the log. `members`: the addresses of all (1, 3 or 5), the same list in the same order everywhere.

    `journal`: "paxos" as it was found; None at the first start, which creates it, and where it was lost.
    """

    def __init__(
        self, me: Address, members: Sequence[Address], journal: Journal | None, rng: random.Random, config: Config
    ) -> None:
        assert me in members, "a replica is a member"
        assert len(members) % 2 == 1, "an even number of replicas survives no more failures than one less"
        self._me, self._members, self._rng, self._config = me, tuple(members), rng, config
        self._others = tuple(address for address in members if address != me)
        self._quorum = len(members) // 2 + 1
        self._out: list[Outcome] = []
        self._acceptor = Acceptor(journal, self._out, config.batch_bytes)
        self._index = self._members.index(me)
        self._joining = Joining(self._index, len(members), self._acceptor)
        self._joined = False
        self._cluster = 0
        self._role = Role.FOLLOWING
        self._leader: Address = ""
        self._leading: Leader | None = None
        self._heard_at = self._request_ttl_ns = self._again_at = 0
        self._ballot = self._seen = self._acceptor.promised
        self._backers: set[Address] = set()
        self._promises: dict[Address, list[Entry]] = {}
        self._whole: set[Address] = set()
        self._chunks: tuple[Ballot, int] | None = None
        self._snapshot = bytearray()
        self._do: dict[type, Callable[[Address, Any, int], None]] = {
            PreVote: self._pre_vote,
            PreVoted: self._pre_voted,
            Prepare: self._prepare,
            Promise: self._promise,
            Accept: self._accept,
            Accepted: self._accepted,
            Install: self._install,
            Installed: self._installed,
            Rejected: self._refused,
            Probe: self._probe,
            Probed: self._probed,
        }

    # ---- the embedding core's calls

    def start(self, now: int) -> list[Outcome]:
        """What to do when the node starts: Restore, Chosen of what is known to be chosen, the first timer."""
        self._acceptor.restore()
        if self._acceptor.membership is None:
            if self._acceptor.promised > NOBODY and not self._acceptor.nonce:  # a journal from before there were nonces
                everybody = len(self._members)
                self._acceptor.enrol(Membership((0,) * everybody, (FOUNDER,) * everybody, True))
            else:
                self._joining.begin(self._rng.getrandbits(62) + 1)
        self._request_join(now)
        self._advance(now)
        return self._taken()

    def handle(self, event: Event, now: int) -> list[Outcome]:
        """What to do about an event. Raises ProtocolViolation."""
        match event:
            case Received(sender, _) if sender not in self._others:
                pass  # whose configuration is another one
            case Received(sender, MemberEnvelope() as said):
                self._hear(sender, said, now)
            case Received(sender, JoinRequest() as join_request):
                self._knocked(sender, join_request, now)
            case Received(sender, JoinReply() as welcome):
                if self._joining.welcomed(self._members.index(sender), welcome, now):
                    self._request_join(now)
                self._advance(now)
            case Persisted(_, end):
                self._perform(self._acceptor.persisted(end), now)
            case TimerFired(name):
                self._timer(name, now)
            case _:
                raise ProtocolViolation(f"no event of a replica: {event}")
        return self._taken()

    def propose(self, value: bytes, now: int) -> list[Outcome]:
        """Have `value` chosen for `next_slot`. Any number may be on their way. Raises NotLeader."""
        self._established().propose(value)
        return self._taken()

    def read_index(self, token: int, now: int) -> list[Outcome]:
        """Ask for `Confirmed(token, slot)`. Raises NotLeader."""
        self._established().read_index(token)
        return self._taken()

    def compact(self, slot: int, snapshot: bytes, now: int) -> list[Outcome]:
        """`snapshot` is the state after `slot`, a chosen one: what is before it can go."""
        self._acceptor.compact(slot, snapshot, self._config.retain_bytes)
        return self._taken()

    @property
    def has_joined(self) -> bool:
        """Whether this replica is a member, durably: it counts among those of which more than half must live."""
        return self._acceptor.has_joined_durably

    @property
    def was_let_in(self) -> bool:
        """Whether it has lost its disk since the cluster was founded, and become a member again."""
        membership = self._acceptor.membership
        return membership is not None and membership.roster[self._index] > FOUNDER

    @property
    def cluster(self) -> int:
        """What tells this replica's cluster from others that were founded under the same names; 0 before it has one."""
        return self._cluster

    @property
    def is_leader(self) -> bool:
        """Whether this replica may propose: from `Elected` to `Deposed`."""
        return self._leading is not None and self._leading.established

    @property
    def leader(self) -> Address:
        """Who leads, as far as this replica knows; "" if it does not."""
        return self._leader

    @property
    def chosen(self) -> int:
        """The last slot that was said to be chosen (or restored)."""
        return self._acceptor.commit

    @property
    def next_slot(self) -> int:
        """The slot that the next proposal gets, at a leader."""
        return self._acceptor.last + 1

    @property
    def uncompacted_bytes(self) -> int:
        """Bytes of values chosen since the newest snapshot: what a `compact` would let go."""
        return self._acceptor.uncompacted_bytes

    def check_invariants(self) -> None:
        """PAX-n, those that one replica can see. Raises AssertionError."""
        self._acceptor.check_invariants()
        assert self._joined or self._role is Role.FOLLOWING, "PAX-15"
        assert (self._role is Role.LEADING) == (self._leading is not None), "PAX-2"
        if self._leading is not None:
            assert self._leading.ballot == self._acceptor.promised, "PAX-2"
            self._leading.check_invariants()

    # ---- effects and timers

    def _taken(self) -> list[Outcome]:
        out = [self._said(effect) if isinstance(effect, Send) else effect for effect in self._out]
        self._out.clear()
        return out

    def _said(self, send: Send) -> Send:
        """With what is known now of the others: no less than when it was meant to be said."""
        membership = self._acceptor.membership
        if membership is None or isinstance(send.message, JoinRequest | JoinReply):
            return send
        return Send(send.to, MemberEnvelope(self._cluster, membership.roster, send.message))

    def _answer(self, to: Address, message: Any, now: int) -> None:
        """Say it as soon as everything written so far is durable (PAX-1)."""
        self._perform(self._acceptor.when_durable(Send(to, message)), now)

    def _perform(self, effects: list[Effect], now: int) -> None:
        for effect in newest_answers(effects):
            if isinstance(effect, Send) and effect.to == self._me:
                self._do[type(effect.message)](self._me, effect.message, now)
            else:
                self._out.append(effect)

    def _timer(self, name: str, now: int) -> None:
        if name == JOIN:
            self._request_join(now)
        elif name == HEARTBEAT and self._leading is not None:
            if self._leading.has_quorum(now):
                self._leading.heartbeat()
                self._out.append(SetTimer(HEARTBEAT, now + self._config.heartbeat_ns))
            else:
                self._follow("", now)
        elif name == ELECTION and self._leading is None:
            if now >= self._heard_at + self._request_ttl_ns or self._role is not Role.FOLLOWING:
                self._run_for(now)
            else:
                self._out.append(SetTimer(ELECTION, self._heard_at + self._request_ttl_ns))

    def _arm(self, now: int) -> None:
        """Be patient for a random while from now on. The timer itself is moved only when it runs out."""
        self._heard_at = now
        self._request_ttl_ns = self._config.election_ns + self._rng.randrange(self._config.election_ns)
        self._out.append(SetTimer(ELECTION, now + self._request_ttl_ns))

    # ---- being a member

    def _request_join(self, now: int) -> None:
        """Tell all others that this replica is none, and again until it is."""
        if not self._acceptor.has_joined:
            for other in self._others:
                self._answer(other, self._joining.join_request(), now)
            self._out.append(SetTimer(JOIN, now + self._config.heartbeat_ns))

    def _advance(self, now: int) -> None:
        """Do what a member does as soon as this replica is one."""
        if self._joined:
            return
        self._joining.caught_up()
        membership = self._acceptor.membership
        if membership is not None:
            self._cluster = membership.cluster
        if self._acceptor.has_joined:
            self._joined = True
            self._out.append(CancelTimer(JOIN))
            self._heard_at = now
            if self._others:
                self._arm(now)
            else:
                self._run_for(now)

    def _knocked(self, sender: Address, join_request: JoinRequest, now: int) -> None:
        """Another replica is no member. A member answers when the other's new incarnation is durable here (PAX-15)."""
        number, membership = self._members.index(sender), self._acceptor.membership
        if not self._joined or membership is None:
            if self._joining.knocked(number, join_request):
                self._request_join(now)
            self._advance(now)
            return
        if join_request.cluster == self._cluster:
            roster = list(membership.roster)
            roster[number] = max(roster[number], join_request.incarnation)
            membership = self._learn(roster)
        leads = self._leading is not None
        promised, last = self._acceptor.promised, self._acceptor.last
        self._answer(sender, JoinReply(membership.founders, membership.roster, promised, leads, last), now)

    def _hear(self, sender: Address, said: MemberEnvelope, now: int) -> None:
        """What a member says, unless it is not one any more, or one of another cluster (PAX-16)."""
        membership = self._acceptor.membership
        if membership is None or said.cluster != self._cluster:
            return
        number = self._members.index(sender)
        if said.roster[number] < membership.roster[number]:
            return
        self._learn(said.roster)
        self._do[type(said.message)](sender, said.message, now)
        self._advance(now)

    def _learn(self, roster: Sequence[int]) -> Membership:
        """Others have lost their disks: what they have said before counts no more (PAX-16)."""
        membership = self._acceptor.membership
        assert membership is not None, "PAX-14"
        newest = tuple(map(max, membership.roster, roster))
        if newest == membership.roster:
            return membership
        if newest[self._index] != membership.roster[self._index]:
            raise ProtocolViolation(
                f"PAX-17: another one has become a member as {self._me} since this replica was one; with an old disk "
                "it must not go on"
            )
        for member, before, after in zip(self._members, membership.roster, newest, strict=True):
            if before != after:
                self._backers.discard(member)
                self._promises.pop(member, None)
                self._whole.discard(member)
                if self._leading is not None:
                    self._leading.forget(member)
        membership = membership._replace(roster=newest)
        self._acceptor.enrol(membership)
        return membership

    # ---- leadership

    def _established(self) -> Leader:
        if self._leading is None or not self._leading.established:
            raise NotLeader("" if self._leader == self._me else self._leader)
        return self._leading

    def _follow(self, leader: Address, now: int) -> None:
        """Follow `leader`, or whoever will come."""
        was, self._role, self._leader = self._role, Role.FOLLOWING, leader
        self._heard_at = now
        if self._leading is not None:
            if self._leading.established:
                self._out.append(Deposed())
            self._leading = None
            self._out.append(CancelTimer(HEARTBEAT))
        if was is not Role.FOLLOWING:
            self._arm(now)

    def _run_for(self, now: int) -> None:
        """No leader is heard of: ask whether the others would have this replica."""
        self._role, self._leader = Role.CANVASSING, ""
        self._ballot = Ballot(max(self._seen, self._acceptor.promised).round + 1, self._members.index(self._me))
        self._backers = {self._me}
        if not self._others:
            self._prepare_all(now)
            return
        self._out += [Send(other, PreVote(self._ballot, self._acceptor.commit)) for other in self._others]
        self._arm(now)

    def _pre_vote(self, sender: Address, message: PreVote, now: int) -> None:
        if not self._joined:
            return
        if message.ballot <= self._acceptor.promised:
            self._out.append(Send(sender, Rejected(message.ballot, self._acceptor.promised)))
        elif self._misses_leader(now) and message.commit >= self._acceptor.commit:
            self._out.append(Send(sender, PreVoted(message.ballot)))

    def _misses_leader(self, now: int) -> bool:
        """Whether a candidate would disturb nobody that this replica knows of (PAX-13)."""
        if self._role is Role.FOLLOWING:
            return now >= self._heard_at + self._config.election_ns
        return self._role is Role.CANVASSING

    def _pre_voted(self, sender: Address, message: PreVoted, now: int) -> None:
        if self._role is not Role.CANVASSING or message.ballot != self._ballot:
            return
        self._backers.add(sender)
        if len(self._backers) >= self._quorum:
            self._prepare_all(now)

    def _prepare_all(self, now: int) -> None:
        self._role = Role.PREPARING
        self._promises, self._whole = {}, set()
        prepare = Prepare(self._ballot, self._acceptor.commit + 1)
        self._out += [Send(other, prepare) for other in self._others]
        self._prepare(self._me, prepare, now)

    def _prepare(self, sender: Address, message: Prepare, now: int) -> None:
        ballot, first = message
        if not self._joined or not self._obeys(sender, ballot, now):
            return
        # Who knows more to be chosen is the better leader, and need not keep what others lack (PAX-8).
        if first > self._acceptor.commit:
            self._answer(sender, Promise(ballot, first, self._acceptor.entries(first), self._acceptor.last), now)

    def _obeys(self, sender: Address, ballot: Ballot, now: int) -> bool:
        """Whether nothing higher was promised. If so, `ballot` is promised from now on (PAX-2)."""
        if ballot < self._acceptor.promised:
            self._out.append(Send(sender, Rejected(ballot, self._acceptor.promised)))
            return False
        if ballot > self._acceptor.promised:
            self._acceptor.promise(ballot)
            if ballot != self._ballot:
                self._follow("", now)
        return True

    def _promise(self, sender: Address, message: Promise, now: int) -> None:
        ballot, first, entries, last = message
        if self._role is not Role.PREPARING or ballot != self._ballot:
            return
        start = self._acceptor.commit + 1
        known = self._promises.setdefault(sender, [])
        if first != start + len(known):
            return
        known += entries
        if start + len(known) <= last:
            self._ask_on(sender, Prepare(ballot, start + len(known)), now)
            return
        self._whole.add(sender)
        if len(self._whole) >= self._quorum and self._me in self._whole:
            self._lead(now)

    def _ask_on(self, to: Address, prepare: Prepare, now: int) -> None:
        if to == self._me:
            self._prepare(to, prepare, now)
        else:
            self._out.append(Send(to, prepare))

    def _lead(self, now: int) -> None:
        """A quorum has promised: whatever may have been chosen is among what it has accepted, with the highest ballot
        of its slot (PAX-4)."""
        promises = [self._promises[member] for member in self._whole]
        recovered = [
            max((entries[at] for entries in promises if at < len(entries)), key=itemgetter(0))[1]
            for at in range(max(map(len, promises)))
        ]
        self._role, self._leader = Role.LEADING, self._me
        self._promises, self._whole = {}, set()
        self._leading = Leader(self._me, self._others, self._ballot, self._acceptor, self._out, self._config)
        self._leading.begin(recovered, now)
        if self._others:
            self._out += [CancelTimer(ELECTION), SetTimer(HEARTBEAT, now + self._config.heartbeat_ns)]

    def _refused(self, sender: Address, message: Rejected, now: int) -> None:
        self._seen = max(self._seen, message.promised)
        if message.ballot == self._ballot and self._role in (Role.PREPARING, Role.LEADING):
            self._follow("", now)

    # ---- following

    def _hears(self, sender: Address, ballot: Ballot, now: int) -> bool:
        """Whether `ballot` leads, as far as this replica knows."""
        if not self._obeys(sender, ballot, now):
            return False
        if self._role is not Role.FOLLOWING or self._leader != sender:
            self._follow(sender, now)
        self._heard_at = now
        return True

    def _accept(self, sender: Address, message: Accept, now: int) -> None:
        ballot, first, values, commit = message
        if not self._hears(sender, ballot, now):
            return
        follows = self._acceptor.accept(first, values, commit)
        again = not follows and now >= self._again_at
        if again:
            self._again_at = now + self._config.heartbeat_ns // 2
        elif follows:
            self._again_at = now
        self._answer(sender, Accepted(ballot, self._acceptor.matched, again), now)

    def _install(self, sender: Address, message: Install, now: int) -> None:
        ballot, slot, size, offset, data = message
        if not self._hears(sender, ballot, now):
            return
        if slot > self._acceptor.commit:
            if self._chunks != (ballot, slot):
                self._chunks = ballot, slot
                self._snapshot.clear()
            if offset == len(self._snapshot):
                self._snapshot += data
            if len(self._snapshot) < size:
                self._out.append(Send(sender, Installed(ballot, slot, len(self._snapshot))))
                return
            self._acceptor.install(slot, bytes(self._snapshot))
            self._chunks = None
            self._snapshot.clear()
        self._answer(sender, Accepted(ballot, self._acceptor.matched, False), now)

    def _probe(self, sender: Address, message: Probe, now: int) -> None:
        if self._hears(sender, message.ballot, now):
            self._out.append(Send(sender, Probed(*message)))

    # ---- leading

    def _accepted(self, sender: Address, message: Accepted, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.accepted(sender, message, now)

    def _installed(self, sender: Address, message: Installed, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.installed(sender, message, now)

    def _probed(self, sender: Address, message: Probed, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.probed(sender, message, now)


def newest_answers(effects: list[Effect]) -> list[Effect]:
    """Without the answers to a leader that a later one among them says too: where a replica stands is one number."""
    if len(effects) < 2:
        return effects
    newest = {
        (effect.to, effect.message.ballot): effect
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Accepted)
    }
    return [
        effect
        for effect in effects
        if not (isinstance(effect, Send) and isinstance(effect.message, Accepted))
        or newest[effect.to, effect.message.ballot] is effect
    ]
