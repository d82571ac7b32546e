"""A replica of a Multi-Paxos log: its interface, elections, and the dispatch of messages to its parts.

The embedding core passes to `handle` all events that belong to Paxos: messages of `logdb.log.paxos.messages`, timers
whose names start with `TIMERS`, and `Persisted` of the journal `JOURNAL`. The result contains effects of
`logdb.cores.effects` for the host and, in order among them, notices for the embedding core, which removes them.

A replica first becomes a member (`joining.py`). Every message between members carries the incarnations that its sender
knows, so that votes of a replica that has lost its disk since do not count (PAX-16).

When its election timeout expires, a replica first sends a *pre-vote*: it asks whether a quorum would promise its
ballot. Only then it sends `Prepare`, which changes the state of the others. Therefore a replica that was disconnected,
or knows less than the others, does not depose a leader (PAX-8, PAX-13)."""

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
from logdb.log.paxos.interface import Config, Confirmed, Deposed, NotLeader, Outcome
from logdb.log.paxos.joining import Joining
from logdb.log.paxos.leader import Leader
from logdb.log.paxos.membership import FOUNDER, Membership
from logdb.log.paxos.messages import (
    NO_BALLOT,
    Accept,
    Accepted,
    Ballot,
    Entry,
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

JOIN = "paxos.join"
ELECTION = "paxos.election"
HEARTBEAT = "paxos.heartbeat"


class Role(Enum):
    """The state of a replica in the election."""

    FOLLOWING = "following"
    PRE_VOTING = "pre-voting"
    PREPARING = "preparing"
    LEADING = "leading"


class Replica:
    """A replica of the log. `members`: the addresses of all replicas (1, 3 or 5), in the same order everywhere.

    `journal`: the journal "paxos"; None at the first start, which creates it, and if it was lost.
    """

    def __init__(
        self, me: Address, members: Sequence[Address], journal: Journal | None, rng: random.Random, config: Config
    ) -> None:
        assert me in members, "a replica is a member"
        assert len(members) % 2 == 1, "an even number of replicas tolerates no more failures than one replica less"
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
        self._last_contact_at = self._election_timeout_ns = self._again_at = 0
        self._ballot = self._highest_ballot = self._acceptor.promised
        self._pre_votes: set[Address] = set()
        self._promises: dict[Address, list[Entry]] = {}
        self._complete_promises: set[Address] = set()
        self._chunks: tuple[Ballot, int] | None = None
        self._snapshot = bytearray()
        # Calls of `read_index` while this replica follows: the slot that the leader has named, None before that.
        self._reads: dict[int, int | None] = {}
        self._started_at = 0
        self._awaits_commit = False
        self._handlers: dict[type, Callable[[Address, Any, int], None]] = {
            PreVote: self._on_pre_vote,
            PreVoted: self._on_pre_voted,
            Prepare: self._on_prepare,
            Promise: self._on_promise,
            Accept: self._on_accept,
            Accepted: self._on_accepted,
            Install: self._on_install,
            Installed: self._on_installed,
            Rejected: self._on_rejected,
            Probe: self._on_probe,
            Probed: self._on_probed,
            ReadIndex: self._on_read_index,
            ReadIndexed: self._on_read_indexed,
            Learn: self._on_learn,
        }

    # ---- the embedding core's calls

    def start(self, now: int) -> list[Outcome]:
        """Start the replica; returns Restore, Chosen for all values known to be chosen, and the first timer."""
        self._started_at = now
        self._acceptor.deliver_chosen()
        if self._acceptor.membership is None:
            if (
                self._acceptor.promised > NO_BALLOT and not self._acceptor.nonce
            ):  # a journal of a version without nonces
                size = len(self._members)
                self._acceptor.set_membership(Membership((0,) * size, (FOUNDER,) * size, True))
            else:
                self._joining.begin(self._rng.getrandbits(62) + 1)
        self._request_join(now)
        self._advance(now)
        return self._take_out()

    def handle(self, event: Event, now: int) -> list[Outcome]:
        """Handle an event. Raises ProtocolViolation."""
        match event:
            case Received(sender, _) if sender not in self._others:
                pass  # the sender has another configuration
            case Received(sender, MemberEnvelope() as envelope):
                self._on_envelope(sender, envelope, now)
            case Received(sender, JoinRequest() as join_request):
                self._on_join_request(sender, join_request, now)
            case Received(sender, JoinReply() as reply):
                if self._joining.on_join_reply(self._members.index(sender), reply, now):
                    self._request_join(now)
                self._advance(now)
            case Persisted(_, end):
                self._perform(self._acceptor.persisted(end), now)
            case TimerFired(name):
                self._on_timer(name, now)
            case _:
                raise ProtocolViolation(f"unexpected event: {event}")
        if self._reads and self.is_leader:
            reads, self._reads = self._reads, {}
            for token in reads:
                self._established_leader().read_index(token)
        return self._take_out()

    def propose(self, value: bytes, now: int) -> list[Outcome]:
        """Propose `value` for `next_slot`, without waiting for earlier proposals. Raises NotLeader."""
        self._established_leader().propose(value)
        return self._take_out()

    def read_index(self, token: int, now: int) -> list[Outcome]:
        """Request `Confirmed(token, slot)`, of the leader if this replica follows one. Raises NotLeader if it knows no
        leader."""
        if self._role is Role.FOLLOWING and self._leader:
            self._reads[token] = None
            self._ask_leader(token)
        else:
            self._established_leader().read_index(token)
        return self._take_out()

    def await_commit(self, is_awaited: bool, now: int) -> list[Outcome]:
        """While `is_awaited`, the leader informs this replica at once when slots that it has accepted are chosen, by a
        `Learn`."""
        begins, self._awaits_commit = is_awaited and not self._awaits_commit, is_awaited
        acceptor = self._acceptor
        follows = self._role is Role.FOLLOWING and bool(self._leader)
        # A vote that waits for the disk will request that; one that the leader has counted did not.
        if begins and follows and acceptor.commit < acceptor.matched and acceptor.is_durable:
            self._out.append(Send(self._leader, Accepted(acceptor.promised, acceptor.matched, False)))
        return self._take_out()

    def send_commits(self) -> list[Outcome]:
        """Inform the replicas that wait for chosen slots. Called at the end of an event, because the messages of a
        proposal also carry that."""
        if self._leading is not None:
            self._leading.send_commits()
        return self._take_out()

    def compact(self, slot: int, snapshot: bytes, now: int) -> list[Outcome]:
        """Replace the log up to the chosen `slot` by `snapshot`, the state after it."""
        self._acceptor.compact(slot, snapshot, self._config.retain_bytes)
        return self._take_out()

    @property
    def has_joined(self) -> bool:
        """Whether this replica is durably a member."""
        return self._acceptor.has_joined_durably

    @property
    def has_rejoined(self) -> bool:
        """Whether this replica has lost its disk since the cluster was founded, and become a member again."""
        membership = self._acceptor.membership
        return membership is not None and membership.roster[self._index] > FOUNDER

    @property
    def cluster(self) -> int:
        """The number of the cluster (`Membership.cluster`); 0 before this replica belongs to one."""
        return self._cluster

    @property
    def is_leader(self) -> bool:
        """Whether this replica can propose: from `Elected` to `Deposed`."""
        return self._leading is not None and self._leading.established

    @property
    def leader(self) -> Address:
        """The address of the leader; "" if unknown."""
        return self._leader

    @property
    def chosen(self) -> int:
        """The last slot that was delivered as chosen or restored."""
        return self._acceptor.commit

    @property
    def next_slot(self) -> int:
        """The slot of the next proposal, at a leader."""
        return self._acceptor.last + 1

    @property
    def uncompacted_bytes(self) -> int:
        """The size of the values chosen since the newest snapshot."""
        return self._acceptor.uncompacted_bytes

    @property
    def is_overloaded(self) -> bool:
        """Whether accepted values of more than `buffer_bytes` are not durable here. Others may have chosen them."""
        return self._acceptor.unsynced_bytes > self._config.buffer_bytes

    def check_invariants(self) -> None:
        """Check the invariants PAX-n that concern one replica. Raises AssertionError."""
        self._acceptor.check_invariants()
        assert self._joined or self._role is Role.FOLLOWING, "PAX-15"
        assert (self._role is Role.LEADING) == (self._leading is not None), "PAX-2"
        if self._leading is not None:
            assert self._leading.ballot == self._acceptor.promised, "PAX-2"
            self._leading.check_invariants()

    # ---- effects and timers

    def _take_out(self) -> list[Outcome]:
        out = [self._enveloped(effect) if isinstance(effect, Send) else effect for effect in self._out]
        self._out.clear()
        return out

    def _enveloped(self, send: Send) -> Send:
        """Put the message of a member into an envelope with the current roster."""
        membership, message = self._acceptor.membership, send.message
        if membership is None or isinstance(message, JoinRequest | JoinReply):
            return send
        if self._awaits_commit and type(message) is Accepted:
            message = message._replace(awaits_commit=True)
        return Send(send.to, MemberEnvelope(self._cluster, membership.roster, message))

    def _reply_when_durable(self, to: Address, message: Any, now: int) -> None:
        """Send `message` once everything written so far is durable (PAX-1)."""
        self._perform(self._acceptor.when_durable(Send(to, message)), now)

    def _perform(self, effects: list[Effect], now: int) -> None:
        for effect in latest_replies(effects):
            if isinstance(effect, Send) and effect.to == self._me:
                self._handlers[type(effect.message)](self._me, effect.message, now)
            else:
                self._out.append(effect)

    def _on_timer(self, name: str, now: int) -> None:
        if name == JOIN:
            self._request_join(now)
        elif name == HEARTBEAT and self._leading is not None:
            if self._leading.has_quorum(now) and not self._must_not_lead(now):
                self._leading.heartbeat()
                self._out.append(SetTimer(HEARTBEAT, now + self._config.heartbeat_ns))
            else:
                self._follow("", now)
        elif name == ELECTION and self._leading is None:
            if now >= self._last_contact_at + self._election_timeout_ns or self._role is not Role.FOLLOWING:
                if self._must_not_lead(now):
                    self._follow("", now)
                    self._restart_election_timer(now)
                else:
                    self._start_pre_vote(now)
            else:
                self._out.append(SetTimer(ELECTION, self._last_contact_at + self._election_timeout_ns))

    def _must_not_lead(self, now: int) -> bool:
        """Whether the disk of this replica stands still, and the memory is full of what waits for it (PAX-19). A
        replica without others has no successor."""
        lags = self._acceptor.lags(now, 2 * self._config.election_ns)
        return lags and self.is_overloaded and bool(self._others)

    def _restart_election_timer(self, now: int) -> None:
        """Set the election timer to a new random timeout. A later contact with the leader does not move the timer: the
        remaining time is checked when it expires."""
        self._last_contact_at = now
        self._election_timeout_ns = self._config.election_ns + self._rng.randrange(self._config.election_ns)
        self._out.append(SetTimer(ELECTION, now + self._election_timeout_ns))

    # ---- membership

    def _request_join(self, now: int) -> None:
        """Send a `JoinRequest` to all others, and set the timer to repeat it until this replica has joined."""
        if not self._acceptor.has_joined:
            for other in self._others:
                self._reply_when_durable(other, self._joining.join_request(), now)
            self._out.append(SetTimer(JOIN, now + self._config.heartbeat_ns))

    def _advance(self, now: int) -> None:
        """Begin to take part in elections once this replica has joined."""
        if self._joined:
            return
        self._joining.check_caught_up()
        membership = self._acceptor.membership
        if membership is not None:
            self._cluster = membership.cluster
        if self._acceptor.has_joined:
            self._joined = True
            self._out.append(CancelTimer(JOIN))
            self._last_contact_at = now
            if self._others:
                self._restart_election_timer(now)
            else:
                self._start_pre_vote(now)

    def _on_join_request(self, sender: Address, join_request: JoinRequest, now: int) -> None:
        """Handle the request of a replica that is not a member. A member replies once the requested incarnation is
        durable here (PAX-15)."""
        number, membership = self._members.index(sender), self._acceptor.membership
        if not self._joined or membership is None:
            if self._joining.on_join_request(number, join_request):
                self._request_join(now)
            self._advance(now)
            return
        if join_request.cluster == self._cluster:
            roster = list(membership.roster)
            roster[number] = max(roster[number], join_request.incarnation)
            membership = self._merge_roster(roster)
        leads = self._leading is not None
        promised, last = self._acceptor.promised, self._acceptor.last
        self._reply_when_durable(sender, JoinReply(membership.founders, membership.roster, promised, leads, last), now)

    def _on_envelope(self, sender: Address, envelope: MemberEnvelope, now: int) -> None:
        """Handle the message of a member; messages of former incarnations (PAX-16) and of other clusters (PAX-18) are
        ignored."""
        membership = self._acceptor.membership
        if membership is None or envelope.cluster != self._cluster:
            return
        number = self._members.index(sender)
        if envelope.roster[number] < membership.roster[number]:
            return
        self._merge_roster(envelope.roster)
        self._handlers[type(envelope.message)](sender, envelope.message, now)
        self._advance(now)

    def _merge_roster(self, roster: Sequence[int]) -> Membership:
        """Learn newer incarnations from `roster`, and discard what was counted of their former ones (PAX-16)."""
        membership = self._acceptor.membership
        assert membership is not None, "PAX-14"
        newest = tuple(map(max, membership.roster, roster))
        if newest == membership.roster:
            return membership
        if newest[self._index] != membership.roster[self._index]:
            raise ProtocolViolation(
                f"PAX-17: a newer incarnation of {self._me} has become a member; this replica has an old disk and must "
                "stop"
            )
        for member, before, after in zip(self._members, membership.roster, newest, strict=True):
            if before != after:
                self._pre_votes.discard(member)
                self._promises.pop(member, None)
                self._complete_promises.discard(member)
                if self._leading is not None:
                    self._leading.reset_peer(member)
        membership = membership._replace(roster=newest)
        self._acceptor.set_membership(membership)
        return membership

    # ---- leadership

    def _established_leader(self) -> Leader:
        if self._leading is None or not self._leading.established:
            raise NotLeader("" if self._leader == self._me else self._leader)
        return self._leading

    def _follow(self, leader: Address, now: int) -> None:
        """Become a follower of `leader`, "" if it is unknown."""
        previous, self._role, self._leader = self._role, Role.FOLLOWING, leader
        self._last_contact_at = now
        if self._leading is not None:
            if self._leading.established:
                self._out.append(Deposed())
            self._leading = None
            self._out.append(CancelTimer(HEARTBEAT))
        if previous is not Role.FOLLOWING:
            self._restart_election_timer(now)

    def _start_pre_vote(self, now: int) -> None:
        """Start an election: ask the others whether they would promise a new ballot."""
        self._role, self._leader = Role.PRE_VOTING, ""
        self._ballot = Ballot(
            max(self._highest_ballot, self._acceptor.promised).round + 1, self._members.index(self._me)
        )
        self._pre_votes = {self._me}
        if not self._others:
            self._start_prepare(now)
            return
        self._out += [Send(other, PreVote(self._ballot, self._acceptor.commit)) for other in self._others]
        self._restart_election_timer(now)

    def _on_pre_vote(self, sender: Address, message: PreVote, now: int) -> None:
        if not self._joined:
            return
        if message.ballot <= self._acceptor.promised:
            self._out.append(Send(sender, Rejected(message.ballot, self._acceptor.promised)))
        elif self._misses_leader(now) and message.commit >= self._acceptor.commit:
            self._out.append(Send(sender, PreVoted(message.ballot)))

    def _misses_leader(self, now: int) -> bool:
        """Whether this replica has had no contact with a leader within the election timeout (PAX-13)."""
        if self._role is Role.FOLLOWING:
            return now >= self._last_contact_at + self._config.election_ns
        return self._role is Role.PRE_VOTING

    def _on_pre_voted(self, sender: Address, message: PreVoted, now: int) -> None:
        if self._role is not Role.PRE_VOTING or message.ballot != self._ballot:
            return
        self._pre_votes.add(sender)
        if len(self._pre_votes) >= self._quorum:
            self._start_prepare(now)

    def _start_prepare(self, now: int) -> None:
        self._role = Role.PREPARING
        self._promises, self._complete_promises = {}, set()
        prepare = Prepare(self._ballot, self._acceptor.commit + 1)
        self._out += [Send(other, prepare) for other in self._others]
        self._on_prepare(self._me, prepare, now)

    def _on_prepare(self, sender: Address, message: Prepare, now: int) -> None:
        ballot, first = message
        if not self._joined or not self._accepts_ballot(sender, ballot, now):
            return
        # With more chosen slots than the candidate, do not promise: they may be compacted already (PAX-8).
        if first > self._acceptor.commit:
            self._last_contact_at = now
            self._reply_when_durable(
                sender, Promise(ballot, first, self._acceptor.entries(first), self._acceptor.last), now
            )

    def _accepts_ballot(self, sender: Address, ballot: Ballot, now: int) -> bool:
        """Promise `ballot` unless a higher one was promised, which rejects the message (PAX-2)."""
        if ballot < self._acceptor.promised:
            self._out.append(Send(sender, Rejected(ballot, self._acceptor.promised)))
            return False
        if ballot > self._acceptor.promised:
            self._acceptor.promise(ballot)
            if ballot != self._ballot:
                self._follow("", now)
        return True

    def _on_promise(self, sender: Address, message: Promise, now: int) -> None:
        ballot, first, entries, last = message
        if self._role is not Role.PREPARING or ballot != self._ballot:
            return
        start = self._acceptor.commit + 1
        known = self._promises.setdefault(sender, [])
        if first != start + len(known):
            return
        known += entries
        if start + len(known) <= last:
            self._restart_election_timer(now)
            self._request_rest(sender, Prepare(ballot, start + len(known)), now)
            return
        self._complete_promises.add(sender)
        if len(self._complete_promises) >= self._quorum and self._me in self._complete_promises:
            self._lead(now)

    def _request_rest(self, to: Address, prepare: Prepare, now: int) -> None:
        if to == self._me:
            self._on_prepare(to, prepare, now)
        else:
            self._out.append(Send(to, prepare))

    def _lead(self, now: int) -> None:
        """Become the leader after the promises of a quorum. A value that may have been chosen has been accepted by one
        of them, with the highest ballot of its slot (PAX-4)."""
        promises = [self._promises[member] for member in self._complete_promises]
        recovered = [
            max((entries[at] for entries in promises if at < len(entries)), key=itemgetter(0))[1]
            for at in range(max(map(len, promises)))
        ]
        self._role, self._leader = Role.LEADING, self._me
        self._promises, self._complete_promises = {}, set()
        self._leading = Leader(self._me, self._others, self._ballot, self._acceptor, self._out, self._config)
        self._leading.begin(recovered, now)
        if self._others:
            self._out += [CancelTimer(ELECTION), SetTimer(HEARTBEAT, now + self._config.heartbeat_ns)]

    def _on_rejected(self, sender: Address, message: Rejected, now: int) -> None:
        self._highest_ballot = max(self._highest_ballot, message.promised)
        if message.ballot == self._ballot and self._role in (Role.PREPARING, Role.LEADING):
            self._follow("", now)

    # ---- following

    def _follows_ballot(self, sender: Address, ballot: Ballot, now: int) -> bool:
        """Follow the leader of `ballot`, unless a higher ballot was promised."""
        if not self._accepts_ballot(sender, ballot, now):
            return False
        if self._role is not Role.FOLLOWING or self._leader != sender:
            self._follow(sender, now)
            self._repeat_reads()
        self._last_contact_at = now
        return True

    def _on_accept(self, sender: Address, message: Accept, now: int) -> None:
        ballot, first, values, commit = message
        if not self._follows_ballot(sender, ballot, now):
            return
        follows = self._acceptor.accept(first, values, max(commit, *self._named_slots(), 0))
        self._confirm_reads()
        if not values:
            self._repeat_reads()
        again = not follows and now >= self._again_at
        if again:
            self._again_at = now + self._config.heartbeat_ns // 2
        elif follows:
            self._again_at = now
        self._reply_when_durable(sender, Accepted(ballot, self._acceptor.matched, again), now)

    def _on_install(self, sender: Address, message: Install, now: int) -> None:
        ballot, slot, size, offset, data = message
        if not self._follows_ballot(sender, ballot, now):
            return
        self._acceptor.choose(min(slot, self._acceptor.matched))
        self._confirm_reads()
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
            self._confirm_reads()
        self._reply_when_durable(sender, Accepted(ballot, self._acceptor.matched, False), now)

    def _on_probe(self, sender: Address, message: Probe, now: int) -> None:
        if self._follows_ballot(sender, message.ballot, now):
            self._out.append(Send(sender, Probed(*message)))

    # ---- reading while following

    def _ask_leader(self, token: int) -> None:
        """Ask for the chosen slots. The number differs from those before a restart, of which answers may be late."""
        self._out.append(Send(self._leader, ReadIndex(self._acceptor.promised, self._started_at + token)))

    def _repeat_reads(self) -> None:
        """Ask the leader again, which may be another one: its answer, or the question, may be lost."""
        for token, slot in self._reads.items():
            if slot is None:
                self._ask_leader(token)

    def _on_read_indexed(self, sender: Address, message: ReadIndexed, now: int) -> None:
        ballot, number, slot = message
        token = number - self._started_at
        if ballot == self._acceptor.promised and token in self._reads:
            self._reads[token] = slot
            self._acceptor.choose(min(slot, self._acceptor.matched))
            self._confirm_reads()

    def _on_learn(self, sender: Address, message: Learn, now: int) -> None:
        """Slots are chosen that this replica has accepted for the leader's ballot (PAX-7)."""
        if message.ballot == self._acceptor.promised:
            self._acceptor.choose(min(message.commit, self._acceptor.matched))
            self._confirm_reads()

    def _named_slots(self) -> list[int]:
        return [slot for slot in self._reads.values() if slot is not None]

    def _confirm_reads(self) -> None:
        """Confirm the reads whose slots are delivered."""
        commit = self._acceptor.commit
        for token, slot in list(self._reads.items()):
            if slot is not None and slot <= commit:
                del self._reads[token]
                self._out.append(Confirmed(token, slot))

    # ---- leading

    def _on_read_index(self, sender: Address, message: ReadIndex, now: int) -> None:
        """A replica that is not the established leader of the ballot ignores it: the follower repeats the question when
        the leader contacts it."""
        if self.is_leader and self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.on_read_index(sender, message, now)

    def _on_accepted(self, sender: Address, message: Accepted, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.on_accepted(sender, message, now)

    def _on_installed(self, sender: Address, message: Installed, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.on_installed(sender, message, now)

    def _on_probed(self, sender: Address, message: Probed, now: int) -> None:
        if self._leading is not None and message.ballot == self._leading.ballot:
            self._leading.on_probed(sender, message, now)


def latest_replies(effects: list[Effect]) -> list[Effect]:
    """Remove each `Accepted` that a later one to the same leader includes: it is a single number."""
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
