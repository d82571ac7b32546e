"""The cluster that `tests.sim.explore` searches: 3 replicas, the appends of a client, elections, crashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from logdb.cores.effects import Address, Journal
from logdb.log.contract import Record
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.messages import AppendRequest, AppendResponse
from logdb.log.multipaxos.replica import MultiPaxosReplica
from logdb.log.paxos import JOURNAL
from logdb.log.paxos.messages import NO_BALLOT, Ballot
from logdb.log.paxos.records import ACCEPTED, read_accepted
from logdb.log.paxos.replica import ELECTION
from tests.sim.explore.machine import Explored, Message, Node, State, Wrong

REPLICAS = LEADER, CANDIDATE, OTHER = "replica-1", "replica-2", "replica-3"
QUORUM = 2
CLIENT, CLIENT_ID = "client", 7
BEGINNING = 1_000_000_000_000
BUDGETS: dict[str, dict[str, int]] = {
    "an append": {"append 1": 1},
    "two appends": {"append 1": 1, "append 2": 1},
    "a leader change": {"ring": 1},
    "an append and a crash": {"append 1": 1, "crash": 1},
    "an append and a leader change": {"append 1": 1, "ring": 1},
    "two appends and a leader change": {"append 1": 1, "append 2": 1, "ring": 1},
    "two appends, a leader change and a crash": {"append 1": 1, "append 2": 1, "ring": 1, "crash": 1},
}
"""Searches: what the environment may do, and how often. Each append is sent to the first leader and to the candidate,
which may receive it when it leads. A `ring` begins an election."""


def payload_of(sequence: int) -> bytes:
    """The payload of a record of the client."""
    return b"record %d" % sequence


def replica(address: Address, journals: Mapping[str, Journal]) -> MultiPaxosReplica:
    """A replica."""
    return MultiPaxosReplica(ReplicaConfig(address, REPLICAS), journals, Random(address))


class Facts(NamedTuple):
    """The facts about a replica for the checks. `chosen`: the values of the slots from 1 on. `log`: payloads by GSN,
    from 1. `durable`: slot -> the newest accepted value on the medium."""

    chosen: tuple[bytes, ...]
    log: tuple[bytes, ...]
    durable: dict[int, tuple[Ballot, bytes]]


class Cluster(Explored):
    """The cluster. The moves are made when it has a leader (`prepared`)."""

    def __init__(self) -> None:
        appends = {
            f"append {number}": AppendRequest(CLIENT_ID, number, 1, [(1, payload_of(number))]) for number in (1, 2)
        }
        moves = {name: [Message(to, CLIENT, append) for to in (LEADER, CANDIDATE)] for name, append in appends.items()}
        builds = {address: partial(replica, address) for address in REPLICAS}
        super().__init__(builds, moves=moves, rings=rings, acks_of=acknowledged, facts=facts_of, check=check)
        self._silence_ns = 0

    def prepared(self, budget: Mapping[str, int]) -> State:
        """`LEADER` leads, no message is under way, and the environment is ready to make its moves."""
        state = self.run_until(
            self.begun({}, BEGINNING), condition=lambda state: self.quiet(state) and self.has_leader(state)
        )
        self._silence_ns = 4 * ReplicaConfig(REPLICAS[0], REPLICAS).paxos.election_ns
        return state._replace(budget=tuple(sorted(budget.items())))

    def has_leader(self, state: State) -> bool:
        """Whether all replicas have joined, and the first leads."""
        cores = [self.node(state, address).core for address in REPLICAS]
        return all(core.is_complete for core in cores) and cores[0].leader is not None

    def rung(self, state: State, name: str, timer: str, at: int) -> State:
        """In the search, an election timer expires after no replica has had contact with the leader for long, so the
        others vote."""
        return super().rung(state, name, timer, max(state.now, at) + self._silence_ns)


def rings(name: str, timer: str) -> bool:
    """Elections of one replica, since the other follower would do the same. Heartbeats only send again, and flushes
    write records that Paxos's journal has."""
    return timer == ELECTION and name == CANDIDATE


def acknowledged(message: Message) -> Iterator[tuple[int, int, int]]:
    """(client, sequence, GSN) of each record that is acknowledged."""
    if isinstance(message.content, AppendResponse):
        for sequence, count, gsn in message.content.ranges:
            for at in range(count):
                yield message.content.client, sequence + at, gsn + at


def facts_of(node: Node, before: Facts | None) -> Facts:
    """Of a replica, which has taken no snapshot, so it has all commands and keeps all records in memory."""
    core: Any = node.core
    first, end, records = node.journals.get(JOURNAL, (1, 1, []))
    written = accepted_in(records)
    chosen = tuple([written[slot][1] for slot in range(1, core.slot + 1)])
    log = tuple([record.payload[8:] for record in core.store.cached(1, core.store.next_gsn)])
    return Facts(chosen, log, accepted_in(records[: end - first]))


def accepted_in(records: list[Record]) -> dict[int, tuple[Ballot, bytes]]:
    """Slot -> the value accepted for the highest ballot."""
    accepted: dict[int, tuple[Ballot, bytes]] = {}
    for tag, content in records:
        if tag == ACCEPTED:
            ballot, _, first, values = read_accepted(content)
            for slot, value in enumerate(values, first):
                if ballot >= accepted.get(slot, (NO_BALLOT, b""))[0]:
                    accepted[slot] = ballot, value
    return accepted


def check(state: State) -> None:
    """Check the invariants of every state. Raises Wrong."""
    replicas: list[Facts] = [image.facts for image in state.nodes]
    longest = max(replicas, key=lambda facts: len(facts.chosen))
    for facts in replicas:
        if facts.chosen != longest.chosen[: len(facts.chosen)]:
            raise Wrong("PAX-3: two replicas have different values in a slot")
        if facts.log != longest.log[: len(facts.log)]:
            raise Wrong("MPX-2: two replicas have different records")
    if len(set(longest.log)) < len(longest.log):
        raise Wrong("MPX-3: a record is in the log twice")
    for slot, value in enumerate(longest.chosen, 1):
        if sum(facts.durable.get(slot, (NO_BALLOT, None))[1] == value for facts in replicas) < QUORUM:
            raise Wrong(f"PAX-6: slot {slot} is chosen, and its value is not durable at a quorum")
    accepted = [[value for _, value in facts.durable.values()] for facts in replicas]
    for _, sequence, gsn in state.acks:
        payload = payload_of(sequence)
        if sum(any(payload in value for value in values) for values in accepted) < QUORUM:
            raise Wrong(f"MPX-1: record {sequence} was acknowledged, and is not durable at a quorum")
        if longest.log[gsn - 1 : gsn] not in ((payload,), ()):
            raise Wrong(f"MPX-1: record {sequence} was acknowledged at {gsn}, where another one is")
    if not len({gsn for *_, gsn in state.acks}) == len({sequence for _, sequence, _ in state.acks}) == len(state.acks):
        raise Wrong(f"MPX-3: acknowledgements differ: {sorted(state.acks)}")
