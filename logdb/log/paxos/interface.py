"""The interface between a replica and its embedding core, besides the effects and events of `logdb.cores.effects`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from logdb.cores.effects import MILLISECOND, Address, Effect

JOURNAL = "paxos"
TIMERS = "paxos."
"""The prefix of the names of a replica's timers."""


class Chosen(NamedTuple):
    """`value` is permanently the command of `slot`. Slots are delivered in order, each once between two starts of the
    replica."""

    slot: int
    value: bytes


class Restore(NamedTuple):
    """Replace the state by `snapshot`, the state after `slot`. The next chosen slot is `slot` + 1.

    Delivered first at a start, if there is a snapshot, and when a slow replica receives the snapshot of another one.
    """

    slot: int
    snapshot: bytes


class Confirmed(NamedTuple):
    """The replica, or the leader that it follows, was still the leader after the call `read_index(token)`. The state
    after `slot`, which was delivered, includes everything that was known to be chosen before that call."""

    token: int
    slot: int


class Elected(NamedTuple):
    """The replica is the leader and can propose; all values that may have been chosen before are chosen."""


class Deposed(NamedTuple):
    """The replica is no longer the leader. Proposals that it has not seen chosen may be chosen later, or lost.

    Calls of `read_index` that are pending will not be confirmed.
    """


Notice = Chosen | Restore | Confirmed | Elected | Deposed
Outcome = Effect | Notice


class NotLeader(Exception):
    """Only the leader can do this. `leader`: its address, "" if unknown."""

    def __init__(self, leader: Address) -> None:
        self.leader = leader
        super().__init__(f"not the leader; that is {leader or 'unknown'}")


@dataclass(frozen=True, slots=True)
class Config:
    """`election_ns`: minimum election timeout; the timeout is random, up to twice as long. `heartbeat_ns`: the leader's
    heartbeat interval. `batch_bytes`: approximate maximum size of a message. `window`: maximum number of unanswered
    messages with values to one replica. `retain_bytes`: size of chosen values kept before a snapshot, so that a
    slightly slow replica does not need the snapshot. `buffer_bytes`: size of accepted values that are not durable; a
    replica with more than that does not lead if its disk stands still (PAX-19).
    """

    election_ns: int = 500 * MILLISECOND
    heartbeat_ns: int = 100 * MILLISECOND
    batch_bytes: int = 1 << 20
    window: int = 16
    retain_bytes: int = 1 << 20
    buffer_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        assert 0 < 2 * self.heartbeat_ns <= self.election_ns, "at least two heartbeats in an election timeout"
        assert self.batch_bytes > 0, "batch_bytes"
        assert self.window > 0, "window"
