"""The cluster that `tests.sim.explore` searches: a shard of two units, two clients that append, a subscriber that fills
holes, and a change that seals the units. A client that dies is one whose messages never arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from logdb.cores.context import CLIENT_TIMER
from logdb.cores.effects import SECOND, Address, Answer, Call, Core, Effect, Event, Journal, Received, Send
from logdb.log import requests as calls
from logdb.log.contract import Batch
from logdb.log.corfu.auxiliary.config import AuxiliaryConfig
from logdb.log.corfu.auxiliary.replica import AuxiliaryReplica
from logdb.log.corfu.client.log_client import CorfuClient
from logdb.log.corfu.messages import ChangeRequest, Entry, Report, Seal, SequencerReport, WriteRequest
from logdb.log.corfu.projection import View, position_of
from logdb.log.corfu.sequencer.sequencer import Sequencer, SequencerConfig
from logdb.log.corfu.storage.config import UnitConfig
from logdb.log.corfu.storage.unit import StorageUnit
from tests.sim.explore.machine import Explored, Message, Node, Replayed, State, Wrong

AUXILIARY, SEQUENCER, UNITS = "auxiliary", "sequencer", ("unit-1", "unit-2", "unit-3")
WRITERS, READER = ("writer-1", "writer-2"), "reader"
APPLICATION, OPERATOR = "application", "operator"
BEGINNING = 1_000_000_000_000
SUBSCRIBE = 2
"""The number of the reader's second call."""
RETURNED, DELIVERED, PASSED = 0, 1, 2
BUDGETS: dict[str, dict[str, int]] = {
    "an append": {"append 1": 1},
    "two appends": {"append 1": 1, "append 2": 1},
    "an append and a change": {"append 1": 1, "change": 1, "ring": 1},
    "two tokens and a filler": {"token 1": 1, "token 2": 1, "ring reader": 1},
    "two tokens and a seal": {"token 1": 1, "token 2": 1, "seal": 1, "ring": 2},
    "two tokens, a filler and a change": {"token 1": 1, "token 2": 1, "change": 1, "ring": 2, "ring reader": 2},
}
"""Searches: what the environment may do, and how often. Appends 1 and 2 are of two clients. A `token` is one of them
whose entry is on its way to the head at the beginning. The change adds a shard; after a `seal` the units have rejected
their epoch for it. A `ring` is a timer of a writer, which tries again; a `ring reader` one of the subscriber, which
fills a hole."""


class Client:
    """A client with its application: messages from `APPLICATION` are calls, and results are messages to it."""

    def __init__(self, address: Address) -> None:
        self.core = CorfuClient(calls.ClientConfig(address, (AUXILIARY,), coalesce_calls=False), {}, Random(address))
        self.calls = 0

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        return self.core.start(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event, or a call."""
        if isinstance(event, Received) and event.sender == APPLICATION:
            self.calls += 1
            event = Call(self.calls, event.message)
        effects = self.core.handle(event, now)
        return [Send(APPLICATION, effect) if isinstance(effect, Answer) else effect for effect in effects]

    def check_invariants(self) -> None:
        """Check the invariants of the core."""
        self.core.check_invariants()


def auxiliary(journals: Mapping[str, Journal]) -> Core:
    """The only replica of the auxiliary, to which no unit seems silent."""
    config = AuxiliaryConfig(AUXILIARY, (AUXILIARY,), units=1, suspect_after_ns=1_000 * SECOND)
    return AuxiliaryReplica(config, journals, Random(AUXILIARY))


def sequencer(journals: Mapping[str, Journal]) -> Core:
    """The sequencer."""
    return Sequencer(SequencerConfig(SEQUENCER, (AUXILIARY,)), journals, Random(SEQUENCER))


def unit(address: Address, journals: Mapping[str, Journal]) -> Core:
    """A storage unit."""
    return StorageUnit(UnitConfig(address, (AUXILIARY,)), journals, Random(address))


def client(address: Address, journals: Mapping[str, Journal]) -> Core:
    """A client."""
    return Client(address)


class Facts(NamedTuple):
    """The facts about a unit for the checks, or about the auxiliary (0). `view`: its projection. `entries`: those that
    are durable, by position."""

    server: int
    view: View
    entries: Mapping[int, Entry]


class Cluster(Explored):
    """The cluster. The moves are made when the shard accepts entries and the clients know it (`prepared`)."""

    def __init__(self) -> None:
        builds: dict[str, Any] = {AUXILIARY: auxiliary, SEQUENCER: sequencer}
        builds |= {address: partial(unit, address) for address in UNITS}
        builds |= {address: partial(client, address) for address in (*WRITERS, READER)}
        super().__init__(
            {name: partial(Replayed, build) for name, build in builds.items()},
            moves={},
            rings=lambda name, timer: False,
            acks_of=self.acknowledged,
            facts=facts_of,
            check=check,
        )
        self.slow_disks = True

    def prepared(self, budget: Mapping[str, int]) -> State:
        """The shard accepts entries, and the clients have its projection. If the reader may do something, it waits for
        the first record."""
        state = self.run_until(self.begun({}, BEGINNING), condition=self._has_registered)
        state = self._after(state, Message(AUXILIARY, OPERATOR, ChangeRequest(1_001, "AddShard", (1, 2))))
        for address in (*WRITERS, READER):
            state = self._after(state, Message(address, APPLICATION, calls.View()))
        for call in (calls.Subscribe(1), calls.Next(SUBSCRIBE)) if "ring reader" in budget else ():
            state = self._after(state, Message(READER, APPLICATION, call))
        self.moves = {
            f"append {number}": [Message(writer, APPLICATION, calls.Append([(1, writer.encode())]))]
            for number, writer in enumerate(WRITERS, 1)
        }
        self.moves["change"] = [Message(AUXILIARY, OPERATOR, ChangeRequest(1_002, "AddShard", (3,)))]
        for number, writer in enumerate(WRITERS, 1):
            if f"token {number}" in budget:
                state = self._with_token(state, writer, self.moves[f"append {number}"])
        if "seal" in budget:
            state = self._sealed(state, *self.moves["change"])
        left = {move: count for move, count in budget.items() if move in self.moves or "ring" in move}
        return state._replace(budget=tuple(sorted(left.items())), acks=frozenset())

    def _with_token(self, state: State, writer: Address, append: list[Message]) -> State:
        """The state in which the entry of an append is on its way to the head."""
        state = state._replace(messages=state.messages.union(append))
        while True:
            (message,) = [one for one in state.messages if writer in (one.to, one.sender)]
            if isinstance(message.content, WriteRequest):
                return state
            state = self.delivered(state, message)

    def _sealed(self, state: State, change: Message) -> State:
        """The state in which all units have rejected the epoch, and their answers are under way."""
        state = self.delivered(state._replace(messages=state.messages | {change}), change)
        for message in [one for one in state.messages if isinstance(one.content, Seal)]:
            state = self.synced(self.delivered(state, message), message.to)
        return state

    def moved(self, state: State, *args: Any, **options: Any) -> State:
        """In the search no message is lost, so that reports would only repeat what the auxiliary knows."""
        after = super().moved(state, *args, **options)
        if not self.moves:
            return after
        reports = [one for one in after.messages if isinstance(one.content, Report | SequencerReport)]
        return after._replace(messages=after.messages.difference(reports)) if reports else after

    def next(self, state: State) -> Iterator[tuple[str, State]]:
        """Timers of clients fire, but heartbeats do not: they only send again."""
        yield from super().next(state)
        budget = dict(state.budget)
        for name, move in ((READER, "ring reader"), *((writer, "ring") for writer in WRITERS)):
            at = dict(state.nodes[self.names.index(name)].timers).get(CLIENT_TIMER)
            if at is not None and budget.get(move):
                yield f"ring {name}", self.rung(self.spent(state, move), name, CLIENT_TIMER, at)

    def _after(self, state: State, message: Message) -> State:
        """The state after a message and all that follow it."""
        state = state._replace(messages=state.messages | {message})
        return self.run_until(state, condition=self.is_settled)

    def is_settled(self, state: State) -> bool:
        """Whether nothing is under way, and all servers have the newest projection."""
        view = self.view(state)
        units = [self.node(state, address).core.core for address in UNITS]
        epoch = self.node(state, SEQUENCER).core.core.epoch
        return self.quiet(state) and epoch == view.epoch and all(one.view.version == view.version for one in units)

    def view(self, state: State) -> View:
        """The newest projection."""
        return self.node(state, AUXILIARY).core.core.state.view()  # type: ignore[no-any-return]

    def _has_registered(self, state: State) -> bool:
        view = self.view(state)
        return len(view.spares) == len(UNITS) and bool(view.nonce) and self.is_settled(state)

    def acknowledged(self, message: Message) -> Iterator[tuple[int, int, int]]:
        """(`RETURNED`, writer, GSN) of each append; (`DELIVERED`, writer, GSN) of each record that the reader got, and
        (`PASSED`, 0, GSN) of the end of each batch."""
        answer = message.content
        if isinstance(answer, Answer) and isinstance(answer.result, calls.AppendResult):
            yield RETURNED, WRITERS.index(message.sender), answer.result.gsns[0]
        elif isinstance(answer, Answer) and isinstance(answer.result, Batch):
            yield PASSED, 0, answer.result.end
            for record in answer.result.records:
                yield DELIVERED, WRITERS.index(record.payload.decode()), record.gsn


def facts_of(node: Node, before: Facts | None) -> Facts | None:
    """Of the auxiliary and of units; None of other nodes."""
    core = node.core.core
    if isinstance(core, AuxiliaryReplica):
        return Facts(0, core.state.view(), {})
    if not isinstance(core, StorageUnit):
        return None
    store = core.store
    durable = [store.entry(at) for at in range(len(store.positions)) if store.end(at) <= store.durable]
    return Facts(core.server, core.view, {entry.position: entry for entry in durable})


def check(state: State) -> None:
    """Check the invariants of every state. Raises Wrong."""
    found = {image.facts.server: image.facts for image in state.nodes if image.facts is not None}
    view = found[0].view
    final: dict[int, Entry] = {}
    for shard in view.shards:
        *before, last = [found[unit.server].entries for unit in shard.units]
        for position, entry in last.items():
            if any(one.get(position) != entry for one in before):
                raise Wrong(f"COR-1: not all units have the entry {entry} of the last one")
        final |= {position: entry for position, entry in last.items() if view.owner(position) is shard}
    written = [(entry.client, entry.sequence) for entry in final.values() if entry.count]
    if len(set(written)) < len(written):
        raise Wrong(f"COR-10: a record is in the log twice: {sorted(final.values())}")
    returned = {(client, gsn) for kind, client, gsn in state.acks if kind == RETURNED}
    delivered = {(client, gsn) for kind, client, gsn in state.acks if kind == DELIVERED}
    records = returned | delivered
    if len({gsn for _, gsn in records}) < len(records) or len({client for client, _ in records}) < len(records):
        raise Wrong(f"two records have one GSN, or one has two: {sorted(records)}")
    for _, gsn in records:
        if position_of(gsn) not in final or not final[position_of(gsn)].count:
            raise Wrong(f"COR-1: record {gsn} is not on all units of its shard")
    end = max([gsn for kind, _, gsn in state.acks if kind == PASSED], default=0)
    if missing := [gsn for client, gsn in returned - delivered if gsn < end]:
        raise Wrong(f"the subscriber has passed {end} without {missing}")
