"""The cluster that `tests.sim.explore` searches: two shards of two servers, inserts of clients, a change of epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from logdb.cores.effects import SECOND, Address, Journal
from logdb.log.ziplog.messages import ChangeRequest, Insert, Inserted
from logdb.log.ziplog.mms.config import MmsConfig
from logdb.log.ziplog.mms.replica import EPOCH, MmsReplica
from logdb.log.ziplog.records import header
from logdb.log.ziplog.storage.config import StorageConfig
from logdb.log.ziplog.storage.server import StorageServer
from logdb.log.ziplog.storage.shard_log import ORDER, SPECULATIVE
from tests.sim.explore.machine import Explored, Message, Node, State, Wrong

MMS, SERVERS = "mms", ("s1", "s2", "s3", "s4")
CLIENT = "client"
BEGINNING = 1_000_000_000_000
BUDGETS: dict[str, dict[str, int]] = {
    "an insert": {"insert 1": 1},
    "an insert that is sent again": {"insert 1": 2},
    "inserts on two shards": {"insert 1": 1, "insert 3": 1},
    "two inserts on a shard": {"insert 1": 1, "insert 2": 1},
    "an insert and a change of epoch": {"insert 1": 1, "ring": 1},
    "inserts on two shards and a change of epoch": {"insert 1": 1, "insert 3": 1, "ring": 1},
    "two inserts on a shard and a change of epoch": {"insert 1": 1, "insert 2": 1, "ring": 1},
    "an insert and a crash": {"insert 1": 1, "crash": 1},
    "inserts on two shards, a change of epoch and a crash": {"insert 1": 1, "insert 3": 1, "ring": 1, "crash": 1},
}
"""Searches: what the environment may do, and how often. Inserts 1 and 2, of two clients, go to the first shard, and
insert 3 to the second. A `ring` begins an epoch, which is due when the MMS has received a report of records."""

Place = tuple[int, int, int]
"""(GSN, client, sequence number) of a record."""


def mms(journals: Mapping[str, Journal]) -> MmsReplica:
    """The only replica of the MMS."""
    return MmsReplica(MmsConfig(MMS, (MMS,), members=2, suspect_after_ns=1_000 * SECOND), journals, Random(MMS))


def storage(address: Address, journals: Mapping[str, Journal]) -> StorageServer:
    """A storage server to which no member seems silent and no epoch old."""
    config = StorageConfig(address, (MMS,), suspect_after_ns=1_000 * SECOND, epoch_age_ns=1_000 * SECOND)
    return StorageServer(config, journals, Random(address))


class Facts(NamedTuple):
    """The facts about a storage server for the checks. `order`, `speculative`: records that are durable here; `end`:
    the order covers all GSNs up to it, durably; `stable`: on all members."""

    shard: int
    view: int
    order: frozenset[Place]
    speculative: frozenset[Place]
    end: int
    stable: int


class Cluster(Explored):
    """The cluster. The moves are made when both shards accept records (`prepared`)."""

    def __init__(self) -> None:
        builds: dict[str, Any] = {MMS: mms, **{address: partial(storage, address) for address in SERVERS}}
        super().__init__(builds, moves={}, rings=rings, acks_of=acknowledged, facts=facts_of, check=check)

    def prepared(self, budget: Mapping[str, int]) -> State:
        """Both shards accept records, and no message is under way."""
        state = self.run_until(self.begun({}, BEGINNING), condition=lambda state: len(self._mms(state).servers) == 4)
        for number in (1, 2):
            servers = 2 * number - 1, 2 * number
            change = Message(MMS, CLIENT, ChangeRequest(1_000 + number, "AddShard", servers))
            state = state._replace(messages=state.messages | {change})
            state = self.run_until(state, condition=partial(self._has_shards, number))
        shards = self._mms(state).shards
        self.moves = {
            f"insert {number}": [
                Message(member.address, CLIENT, Insert(number, shard, shards[shard].view, 1, 1, 0, 0, [(1, b"record")]))
                for member in shards[shard].members
            ]
            for number, shard in ((1, 1), (2, 1), (3, 2))
        }
        return state._replace(budget=tuple(sorted(budget.items())))

    def _mms(self, state: State) -> Any:
        return self.node(state, MMS).core.state

    def _has_shards(self, number: int, state: State) -> bool:
        """Whether so many shards are open, and all their members know that."""
        decided = self._mms(state)
        if len([one for one in decided.shards.values() if one.is_in_set]) < number or not self.quiet(state):
            return False
        members = [one.address for shard in decided.shards.values() for one in shard.members]
        updates = [self.node(state, address).core.state.update for address in members]
        return all(one.change == decided.change and one.opened == decided.epoch.version for one in updates)


def rings(name: str, timer: str) -> bool:
    """The timer of the next epoch. Heartbeats only send again."""
    return (name, timer) == (MMS, EPOCH)


def acknowledged(message: Message) -> Iterator[tuple[int, int, int]]:
    """(member, client, GSN) of each record that a member acknowledges; each client has one record."""
    if isinstance(message.content, Inserted):
        for _, gsns in message.content.placed:
            for gsn in gsns:
                yield SERVERS.index(message.sender), message.content.client, gsn


def facts_of(node: Node, before: Facts | None) -> Facts | None:
    """Of a storage server; None of the MMS."""
    core = node.core
    if not isinstance(core, StorageServer):
        return None
    state = core.state
    order, speculative = (
        frozenset(
            place
            for journal, (first, durable, records) in node.journals.items()
            if journal.startswith(prefix)
            for place in map(header, records[: durable - first])
            if place[1]
        )
        for prefix in (ORDER, SPECULATIVE)
    )
    return Facts(state.shard_number, state.view, order, speculative, state.log.durable, state.log.stable)


def check(state: State) -> None:
    """Check the invariants of every state. Raises Wrong."""
    members: list[Facts] = [image.facts for image in state.nodes if image.facts is not None]
    owners: dict[int, int] = {}
    for one in members:
        for gsn, *_ in one.order | one.speculative:
            if owners.setdefault(gsn, one.shard) != one.shard:
                raise Wrong(f"ZIP-1: two shards have {gsn}")
        if len({place[1:] for place in one.order}) < len(one.order):
            raise Wrong(f"ZIP-5: a record is in an order twice: {sorted(one.order)}")
    for shard in {one.shard for one in members}:
        group = [one for one in members if one.shard == shard]
        stable = max([one.stable for one in group])
        if len({frozenset(place for place in one.order if place[0] <= stable) for one in group}) > 1:
            raise Wrong(f"ZIP-4: members of shard {shard} differ up to {stable}, which is stable")
    for member, client, gsn in state.acks:
        place = gsn, client, 1
        if place not in members[member].order | members[member].speculative:
            raise Wrong(f"ZIP-2: record {place} was acknowledged by a member on which it is not durable")
        group = {other: one for other, one in enumerate(members) if one.shard == members[member].shard}
        if all((other, client, gsn) in state.acks for other in group):
            for one in group.values():
                if one.end >= gsn and place not in one.order:
                    raise Wrong(f"ZIP-2: record {place} was inserted, and an order passes it")
