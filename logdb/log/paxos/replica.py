"""One replica of a Multi-Paxos log: what its embedding core sees of it.

The embedding core hands every event to `handle` that is Paxos's: messages of `logdb.log.paxos.messages`, timers named
"paxos.*", `Persisted` of the journal "paxos". What comes back are effects of `logdb.log.cores` for the host, and, among
them and in their place, notices for the embedding core itself, which takes them out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from logdb.log.cores import MILLISECOND, Address, Effect, Event, Journal

JOURNAL = "paxos"
TIMERS = "paxos."


class Chosen(NamedTuple):
    """`value` is the command of `slot`, for ever. Slots come in order, each once in a run of the replica."""

    slot: int
    value: bytes


class Restore(NamedTuple):
    """Begin with `snapshot` instead of whatever there is: the state after `slot`. The next chosen one is `slot` + 1.

    Comes first at a start, if there is a snapshot, and whenever a replica was so slow that it is sent another one's.
    """

    slot: int
    snapshot: bytes


class Confirmed(NamedTuple):
    """This replica still led after `read_index(token)` was called: the state after `slot`, which has been chosen by
    now, holds everything that had been chosen when it was called."""

    token: int
    slot: int


class Elected(NamedTuple):
    """This replica leads, and everything that may have been chosen before is chosen: `propose` away."""


class Deposed(NamedTuple):
    """This replica leads no more. What it has proposed and not seen chosen may be chosen yet, or never.

    Tokens of `read_index` that were not confirmed never will be.
    """


Notice = Chosen | Restore | Confirmed | Elected | Deposed
Outcome = Effect | Notice


class NotLeader(Exception):
    """Only the leader does that. `leader`: its address, "" if it is not known."""

    def __init__(self, leader: Address) -> None:
        self.leader = leader
        super().__init__(f"not the leader; that is {leader or 'unknown'}")


@dataclass(frozen=True, slots=True)
class Config:
    """`election_ns`: so long (and up to twice as long, at random) a leader must be silent to be replaced.

    `heartbeat_ns`: the leader says so often that it is there. `batch_bytes`: about the size of the largest message.
    `window`: messages on their way to one replica. `retain_bytes`: chosen values kept behind a snapshot for replicas
    that are a little slow, so that they need no snapshot.
    """

    election_ns: int = 500 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    batch_bytes: int = 1 << 20
    window: int = 16
    retain_bytes: int = 1 << 20


class Replica:
    """A replica of the log. `members`: the addresses of all (1, 3 or 5), the same list in the same order everywhere.

    `journal`: "paxos" as it was found; Journal(1, 1, ()) when there is none (the host makes it before the start).
    A replica whose journal was lost must not start again with an empty one: it would forget its promises.
    """

    def __init__(
        self, me: Address, members: Sequence[Address], journal: Journal, rng: random.Random, config: Config
    ) -> None:
        raise NotImplementedError

    # ---- the embedding core's calls

    def start(self, now: int) -> list[Outcome]:
        """What to do when the node starts: Restore, Chosen of what is known to be chosen, the first timer."""
        raise NotImplementedError

    def handle(self, event: Event, now: int) -> list[Outcome]:
        """What to do about an event. Raises ProtocolViolation."""
        raise NotImplementedError

    def propose(self, value: bytes, now: int) -> list[Outcome]:
        """Have `value` chosen for `next_slot`. Any number may be on their way. Raises NotLeader."""
        raise NotImplementedError

    def read_index(self, token: int, now: int) -> list[Outcome]:
        """Ask for `Confirmed(token, slot)`. Raises NotLeader."""
        raise NotImplementedError

    def compact(self, slot: int, snapshot: bytes, now: int) -> list[Outcome]:
        """`snapshot` is the state after `slot`, a chosen one: what is before it can go."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        """Whether this replica may propose: from `Elected` to `Deposed`."""
        raise NotImplementedError

    @property
    def leader(self) -> Address:
        """Who leads, as far as this replica knows; "" if it does not."""
        raise NotImplementedError

    @property
    def chosen(self) -> int:
        """The last slot that was said to be chosen (or restored)."""
        raise NotImplementedError

    @property
    def next_slot(self) -> int:
        """The slot that the next proposal gets, at a leader."""
        raise NotImplementedError

    @property
    def uncompacted_bytes(self) -> int:
        """Bytes of values since the newest snapshot: what a `compact` would let go."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        """PAX-n, those that one replica can see. Raises AssertionError."""
        raise NotImplementedError
