"""The cluster to search: 3 ordering replicas, 2 shards of 2 storage servers, a client's appends, a finalization,
crashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any

from logdb.cores.effects import Address, Journal
from logdb.log.requests import AddShard, FinalizeShard, ShardState
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import Append, Appended, ChangeRequest, View
from logdb.log.scalog.ordering.replica import OrderingConfig, OrderingReplica
from logdb.log.scalog.storage.server import StorageServer
from tests.sim.explore.machine import Explored, Message, Node, State, Wrong

REPLICAS = tuple(f"ordering-{number}" for number in (1, 2, 3))
SERVERS = tuple(f"storage-{number}" for number in (1, 2, 3, 4))
CLIENT, OPERATOR = "client", "operator"
BEGINNING = 1_000_000_000_000
PAYLOAD = b"record"
BUDGETS: dict[str, dict[str, int]] = {
    "an append": {"append 1": 1},
    "two appends to a shard": {"append 1": 1, "append 2": 1},
    "an append to each shard": {"append 1": 1, "append 3": 1},
    "an append and a finalization": {"append 1": 1, "finalize": 1},
    "an append and a crash": {"append 1": 1, "crash": 1},
    "an append, a timer and a crash": {"append 1": 1, "ring": 1, "crash": 1},
    "a finalization and a crash": {"finalize": 1, "crash": 1},
    "two appends, a finalization, a timer and two crashes": {
        "append 1": 1,
        "append 3": 1,
        "finalize": 1,
        "ring": 1,
        "crash": 2,
    },
}
"""Searches: the moves of the environment, and how often each may occur. Appends 1 and 2 go to the shard that may be
finalized."""


def ordering(address: Address, journals: Mapping[str, Journal]) -> OrderingReplica:
    """A replica of the ordering layer."""
    return OrderingReplica(OrderingConfig(address, REPLICAS, quiet_ns=0), journals, Random(address))


def storage(address: Address, journals: Mapping[str, Journal]) -> StorageServer:
    """A storage server."""
    return StorageServer(StorageConfig(address, REPLICAS), journals, Random(address))


class Cluster(Explored):
    """The cluster. The moves are made when it has settled (`prepared`): they name segments and the leader."""

    def __init__(self) -> None:
        builds: dict[str, Any] = {address: partial(ordering, address) for address in REPLICAS}
        builds |= {address: partial(storage, address) for address in SERVERS}
        super().__init__(builds, moves={}, rings=rings, acks_of=acknowledged, facts=facts_of, check=check)

    def prepared(self, budget: Mapping[str, int]) -> State:
        """A state with two shards of two servers each, no messages under way, and the moves of the environment."""
        state = self.run_until(
            self.begun({}, BEGINNING), condition=lambda state: len(self.view(state).spares) == len(SERVERS)
        )
        for number in (1, 2):
            state = self.with_messages(
                state, [Message(to, OPERATOR, ChangeRequest(number, AddShard(()))) for to in REPLICAS]
            )
            state = self.run_until(state, condition=lambda state, count=number: len(self.view(state).shards) == count)
        state = self.run_until(state, condition=lambda state: self.is_ready(state) and self.quiet(state))
        view = self.view(state)
        appends = {
            f"append {number}": [Message(address, CLIENT, Append(number, 1, 1, segment, [(1, PAYLOAD)]))]
            for number, (segment, address) in enumerate(primaries(view), 1)
        }
        change = ChangeRequest(3, FinalizeShard(view.shards[0].shard, 0))
        self.moves = appends | {"finalize": [Message(to, OPERATOR, change) for to in REPLICAS]}
        return state._replace(budget=tuple(sorted(budget.items())), acks=frozenset())

    def with_messages(self, state: State, messages: list[Message]) -> State:
        """The state with these messages under way."""
        return state._replace(messages=state.messages | frozenset(messages))

    def view(self, state: State) -> View:
        """The newest configuration that a replica has."""
        views = [self.node(state, address).core.state.view() for address in REPLICAS]
        return max(views, key=lambda view: view.version)

    def is_ready(self, state: State) -> bool:
        """Whether each server knows that it is a member."""
        return all(self.node(state, address).core.shard.own() is not None for address in SERVERS)


def primaries(view: View) -> Iterator[tuple[int, Address]]:
    """(segment, its primary's address) of all open segments."""
    for shard in view.shards:
        addresses = {member.server: member.address for member in shard.members}
        for segment in shard.segments:
            if shard.state is ShardState.LIVE and segment.sealed is None:
                yield segment.id, addresses[segment.primary]


def rings(name: str, timer: str) -> bool:
    """Whether a timer may fire: heartbeats may not, since they only repeat earlier messages."""
    return "heartbeat" not in timer


def acknowledged(message: Message) -> Iterator[tuple[int, int, int]]:
    """(client, sequence, GSN) of each record that is acknowledged."""
    if isinstance(message.content, Appended):
        for sequence, count, gsn in message.content.ranges:
            for at in range(count):
                yield message.content.client, sequence + at, gsn + at


def facts_of(node: Node, before: Any) -> Any:
    """Of a replica: (slot, its state). Of a server: (its shard's links, the durable records of its segments)."""
    core = node.core
    if isinstance(core, OrderingReplica):
        if before is not None and before[0] == core.slot:
            return before
        return core.slot, core.state.to_bytes()
    links = {link.number: link.ranges for link in core.shard.chain.links(0, 1_000)}
    durable = frozenset(
        payload[:16]
        for journal, (first, end, records) in node.journals.items()
        if journal.startswith("segment-")
        for _, payload in records[: end - first]
    )
    return core.shard.number, links, durable


def check(state: State) -> None:
    """Check the invariants of every state. Raises Wrong."""
    gsns: dict[int, tuple[int, int]] = {}
    records: dict[tuple[int, int], int] = {}
    for client, sequence, gsn in state.acks:
        if gsns.setdefault(gsn, (client, sequence)) != (client, sequence):
            raise Wrong(f"SCA-4: two records were acknowledged with GSN {gsn}")
        if records.setdefault((client, sequence), gsn) != gsn:
            raise Wrong(f"SCA-13: record {sequence} of client {client} was acknowledged with two GSNs")
    states: dict[int, bytes] = {}
    links: dict[tuple[int, int], Any] = {}
    copies: list[frozenset[bytes]] = []
    for image in state.nodes:
        if len(image.facts) == 2:
            slot, replicated = image.facts
            if states.setdefault(slot, replicated) != replicated:
                raise Wrong(f"two ordering replicas differ after slot {slot}")
            continue
        shard, chain, durable = image.facts
        copies.append(durable)
        for number, ranges in chain.items():
            if links.setdefault((shard, number), ranges) != ranges:
                raise Wrong(f"SCA-3: two members of shard {shard} have different links {number}")
    for client, sequence in records:
        head = client.to_bytes(8, "little") + sequence.to_bytes(8, "little")
        if sum(head in durable for durable in copies) < 2:
            raise Wrong(f"SCA-1: record {sequence} of client {client} was acknowledged, but is not durable on a quorum")
