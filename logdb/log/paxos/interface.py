"""What a replica and its embedding core say to each other, besides the effects and events of `logdb.cores.effects`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logdb.cores.effects import MILLISECOND, Address, Effect

JOURNAL = "paxos"
TIMERS = "paxos."
"""How the names of all timers of a replica begin."""


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
    `window`: messages with values on their way to one replica. `retain_bytes`: chosen values kept behind a snapshot
    for replicas that are a little slow, so that they need no snapshot.
    """

    election_ns: int = 500 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    batch_bytes: int = 1 << 20
    window: int = 16
    retain_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        assert 0 < 2 * self.heartbeat_ns <= self.election_ns, "a leader must be heard before it is missed"
        assert self.batch_bytes > 0, "batch_bytes"
        assert self.window > 0, "window"
