"""One replica of a Multi-Paxos log: its face, who leads, and which part of it a message is for.

The embedding core hands every event to `handle` that is Paxos's: messages of `logdb.log.paxos.messages`, timers whose
names begin with `TIMERS`, `Persisted` of the journal `JOURNAL`. What comes back are effects of `logdb.log.cores` for
the host and, among them and in their place, notices for the embedding core, which takes them out.

A replica that has not heard of a leader for a while *canvasses*: would a quorum promise me this ballot? Only then it
*prepares*, which binds. So who is cut off for a while, or knows less than the others, deposes nobody (PAX-8, PAX-13).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum
from operator import itemgetter
from typing import Any

from logdb.log.cores import (
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
    Timer,
)
from logdb.log.paxos.acceptor import Acceptor
from logdb.log.paxos.face import Config, Deposed, NotLeader, Outcome
from logdb.log.paxos.leader import Leader
from logdb.log.paxos.messages import (
    Accept,
    Accepted,
    Ballot,
    Canvass,
    Canvassed,
    Entry,
    Install,
    Installed,
    Prepare,
    Probe,
    Probed,
    Promise,
    Refused,
)

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

    `journal`: "paxos" as it was found; None at the very first start, which creates it. A replica whose journal was lost
    must not start again without it: it would forget its promises.
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
        self._role = Role.FOLLOWING
        self._leader: Address = ""
        self._leading: Leader | None = None
        self._heard_at = self._patience_ns = self._again_at = 0
        self._ballot = self._seen = self._acceptor.promised
        self._backers: set[Address] = set()
        self._promises: dict[Address, list[Entry]] = {}
        self._whole: set[Address] = set()
        self._pieces: tuple[Ballot, int] | None = None
        self._snapshot = bytearray()
        self._do: dict[type, Callable[[Address, Any, int], None]] = {
            Canvass: self._canvass,
            Canvassed: self._canvassed,
            Prepare: self._prepare,
            Promise: self._promise,
            Accept: self._accept,
            Accepted: self._accepted,
            Install: self._install,
            Installed: self._installed,
            Refused: self._refused,
            Probe: self._probe,
            Probed: self._probed,
        }

    # ---- the embedding core's calls

    def start(self, now: int) -> list[Outcome]:
        """What to do when the node starts: Restore, Chosen of what is known to be chosen, the first timer."""
        self._acceptor.restore()
        self._heard_at = now
        if self._others:
            self._arm(now)
        else:
            self._run_for(now)
        return self._taken()

    def handle(self, event: Event, now: int) -> list[Outcome]:
        """What to do about an event. Raises ProtocolViolation."""
        match event:
            case Received(sender, message):
                self._do[type(message)](sender, message, now)
            case Persisted(_, end):
                self._perform(self._acceptor.persisted(end), now)
            case Timer(name):
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
        assert (self._role is Role.LEADING) == (self._leading is not None), "PAX-2"
        if self._leading is not None:
            assert self._leading.ballot == self._acceptor.promised, "PAX-2"
            self._leading.check_invariants()

    # ---- effects and timers

    def _taken(self) -> list[Outcome]:
        out = self._out[:]
        self._out.clear()
        return out

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
        if name == HEARTBEAT and self._leading is not None:
            if self._leading.has_quorum(now):
                self._leading.heartbeat()
                self._out.append(SetTimer(HEARTBEAT, now + self._config.heartbeat_ns))
            else:
                self._follow("", now)
        elif name == ELECTION and self._leading is None:
            if now >= self._heard_at + self._patience_ns or self._role is not Role.FOLLOWING:
                self._run_for(now)
            else:
                self._out.append(SetTimer(ELECTION, self._heard_at + self._patience_ns))

    def _arm(self, now: int) -> None:
        """Be patient for a random while from now on. The timer itself is moved only when it runs out."""
        self._heard_at = now
        self._patience_ns = self._config.election_ns + self._rng.randrange(self._config.election_ns)
        self._out.append(SetTimer(ELECTION, now + self._patience_ns))

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
        self._out += [Send(other, Canvass(self._ballot, self._acceptor.commit)) for other in self._others]
        self._arm(now)

    def _canvass(self, sender: Address, message: Canvass, now: int) -> None:
        if message.ballot <= self._acceptor.promised:
            self._out.append(Send(sender, Refused(message.ballot, self._acceptor.promised)))
        elif self._misses_leader(now) and message.commit >= self._acceptor.commit:
            self._out.append(Send(sender, Canvassed(message.ballot)))

    def _misses_leader(self, now: int) -> bool:
        """Whether a candidate would disturb nobody that this replica knows of (PAX-13)."""
        if self._role is Role.FOLLOWING:
            return now >= self._heard_at + self._config.election_ns
        return self._role is Role.CANVASSING

    def _canvassed(self, sender: Address, message: Canvassed, now: int) -> None:
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
        if not self._obeys(sender, ballot, now):
            return
        # Who knows more to be chosen is the better leader, and need not keep what others lack (PAX-8).
        if first > self._acceptor.commit:
            self._answer(sender, Promise(ballot, first, self._acceptor.entries(first), self._acceptor.last), now)

    def _obeys(self, sender: Address, ballot: Ballot, now: int) -> bool:
        """Whether nothing higher was promised. If so, `ballot` is promised from now on (PAX-2)."""
        if ballot < self._acceptor.promised:
            self._out.append(Send(sender, Refused(ballot, self._acceptor.promised)))
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

    def _refused(self, sender: Address, message: Refused, now: int) -> None:
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
            if self._pieces != (ballot, slot):
                self._pieces = ballot, slot
                self._snapshot.clear()
            if offset == len(self._snapshot):
                self._snapshot += data
            if len(self._snapshot) < size:
                self._out.append(Send(sender, Installed(ballot, slot, len(self._snapshot))))
                return
            self._acceptor.install(slot, bytes(self._snapshot))
            self._pieces = None
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
