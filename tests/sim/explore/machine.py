"""The search: states, their successors, and the traversal, breadth first."""

from __future__ import annotations

import pickle
import random
import time
from array import array
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from logdb.cores.effects import (
    CancelTimer,
    Core,
    Create,
    Drop,
    Effect,
    Event,
    Journal,
    Persist,
    Persisted,
    Received,
    Send,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
)
from logdb.log.contract import LogRecord, Record

Build = Callable[[Mapping[str, Journal]], Core]


class Wrong(Exception):
    """A state that violates an invariant."""


class Replayed:
    """A core with functions in its state, which cannot be packed: its events are, and are handled again."""

    def __init__(
        self, build: Build, journals: Mapping[str, Journal], events: Sequence[tuple[Event | None, int]] = ()
    ) -> None:
        self._build, self._journals = build, journals
        self._events: list[tuple[Event | None, int]] = []
        self.core = build(journals)
        for event, now in events:
            self._do(event, now)

    def __reduce__(self) -> tuple[Any, ...]:
        return Replayed, (self._build, self._journals, tuple(self._events))

    def _do(self, event: Event | None, now: int) -> list[Effect]:
        self._events.append((event, now))
        return self.core.start(now) if event is None else self.core.handle(event, now)

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        return self._do(None, now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Have the core handle an event."""
        return self._do(event, now)

    def check_invariants(self) -> None:
        """Check the invariants of the core."""
        self.core.check_invariants()


class Node(NamedTuple):
    """One node between two events. `journals`: name -> (first, durable end, records). `timers`: name -> when."""

    core: Any
    journals: dict[str, tuple[int, int, list[Record]]]
    timers: dict[str, int]


class Image(NamedTuple):
    """A packed node: its bytes, the hash by which nodes are compared, and the facts that the checks need."""

    data: bytes
    key: int
    dirty: bool
    timers: tuple[tuple[str, int], ...]
    facts: Any


class Message:
    """A message under way. Messages with the same content are equal, also if it has lists and dictionaries."""

    __slots__ = ("content", "key", "sender", "to")

    def __init__(self, to: str, sender: str, content: Any) -> None:
        self.to, self.sender, self.content = to, sender, content
        self.key = hash((to, sender, frozen(content)))

    def __hash__(self) -> int:
        return self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.key == other.key

    def __repr__(self) -> str:
        return f"{self.sender} -> {self.to}: {self.content}"


class State(NamedTuple):
    """The state of the whole system. `acks`: (client, sequence, GSN) of all acknowledgements. `budget`: move -> how
    often the environment may still make it."""

    nodes: tuple[Image, ...]
    messages: frozenset[Message]
    acks: frozenset[tuple[int, int, int]]
    budget: tuple[tuple[str, int], ...]
    now: int

    @property
    def key(self) -> int:
        """The hash by which states are compared."""
        return hash((tuple(image.key for image in self.nodes), self.messages, self.acks, self.budget))


def frozen(value: Any, known: dict[int, Any] | None = None) -> Any:
    """`value`, with all contents, in a form that can be compared and hashed. `known`: by id, objects already
    visited."""
    kind = value.__class__
    if kind in (int, str, bytes, bool, float) or value is None:
        return value
    known = {} if known is None else known
    if isinstance(value, dict):
        return frozenset((frozen(key, known), frozen(each, known)) for key, each in value.items())
    if isinstance(value, tuple | list | deque):
        return (kind.__name__, *(frozen(each, known) for each in value))
    if isinstance(value, set | frozenset):
        return frozenset(frozen(each, known) for each in value)
    if kind is array:
        return value.tobytes()
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, random.Random):
        return None
    if kind is Replayed:
        return frozen(value.core, known)
    if id(value) in known:
        return known[id(value)]
    if callable(value) and hasattr(value, "__qualname__"):
        known[id(value)] = value.__qualname__
        cells = getattr(value, "__closure__", None) or ()
        return (value.__qualname__, *(frozen(cell.cell_contents, known) for cell in cells))
    known[id(value)] = kind.__name__
    fields = tuple((name, frozen(getattr(value, name, None), known)) for name in names_of(kind, value))
    known[id(value)] = hash((kind.__name__, fields))
    return known[id(value)]


NAMES: dict[type, tuple[str, ...]] = {}


def names_of(kind: type, value: Any) -> Sequence[str]:
    """The attributes of an object that are not methods."""
    if kind not in NAMES:
        slots = [getattr(parent, "__slots__", ()) for parent in kind.__mro__]
        NAMES[kind] = tuple(sorted({name for each in slots for name in ((each,) if isinstance(each, str) else each)}))
    return (*NAMES[kind], *sorted(getattr(value, "__dict__", ())))


def pack(node: Node, facts: Any) -> Image:
    """Pack a node; the inverse of `unpack`."""
    dirty = any(durable < first + len(records) for first, durable, records in node.journals.values())
    return Image(
        pickle.dumps(node, pickle.HIGHEST_PROTOCOL),
        hash((frozen(node.core), frozen(node.journals), tuple(sorted(node.timers)))),
        dirty,
        tuple(sorted(node.timers.items())),
        facts,
    )


def unpack(image: Image) -> Node:
    """Unpack a node, to handle further events."""
    return pickle.loads(image.data)  # type: ignore[no-any-return]


class Step:
    """One event of one node, and its effects."""

    def __init__(self, world: Explored, name: str, node: Node) -> None:
        self.world, self.name, self.node = world, name, node
        self.sent: list[Message] = []

    def take(self, event: Event, now: int) -> None:
        """Have the core handle an event."""
        self.do(self.node.core.handle(event, now))

    def do(self, effects: Sequence[Effect]) -> None:
        """Perform effects."""
        node = self.node
        node.core.check_invariants()
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.to, effect.message)
            elif isinstance(effect, SendStored):
                first, durable, records = node.journals[effect.journal]
                assert first <= effect.first <= effect.end <= durable, "only durable records may be sent"
                found = tuple(records[effect.first - first : effect.end - first])
                self._send(effect.to, effect.message._replace(records=found))
            elif isinstance(effect, SendRanges):
                self._send(effect.to, effect.message._replace(records=tuple(self._stretched(effect))))
            elif isinstance(effect, Create):
                assert effect.journal not in node.journals, f"{effect.journal} exists"
                node.journals[effect.journal] = (effect.first, effect.first, [])
            elif isinstance(effect, Persist):
                first, durable, records = node.journals.setdefault(effect.journal, (1, 1, []))
                assert effect.first == first + len(records), f"{effect.journal} continues at {first + len(records)}"
                records.extend((tag, bytes(payload)) for tag, payload in effect.records)
            elif isinstance(effect, SetTimer):
                node.timers[effect.name] = effect.at
            elif isinstance(effect, CancelTimer):
                node.timers.pop(effect.name, None)
            elif isinstance(effect, Drop):
                node.journals.pop(effect.journal, None)
            elif not isinstance(effect, Trim | Stop):
                raise Wrong(f"{self.name}: {effect}")

    def _stretched(self, effect: SendRanges) -> Iterator[LogRecord]:
        for stretch in effect.ranges:
            first, durable, records = self.node.journals[stretch.journal]
            assert first <= stretch.first <= stretch.end <= durable, "only durable records may be sent"
            for at, (tag, payload) in enumerate(records[stretch.first - first : stretch.end - first]):
                if effect.tags is None or tag in effect.tags:
                    yield LogRecord(stretch.number + at, stretch.time, tag, payload)

    def _send(self, to: str, content: Any) -> None:
        self.sent.append(Message(to, self.name, content))


AcksOf = Callable[[Message], Iterator[tuple[int, int, int]]]
"""The acknowledgements (client, sequence, GSN) in a message to a client."""


class Explored:
    """A system to search: its nodes, the moves of its environment, and its invariants."""

    def __init__(
        self,
        builds: Mapping[str, Build],
        *,
        moves: Mapping[str, Sequence[Message]],
        rings: Callable[[str, str], bool],
        acks_of: AcksOf,
        facts: Callable[[Node, Any], Any],
        check: Callable[[State], None],
    ) -> None:
        self.names = list(builds)
        self.builds, self.moves, self.rings = dict(builds), dict(moves), rings
        self.acks_of, self.facts, self.check = acks_of, facts, check
        self.slow_disks = False
        self._done: dict[Hashable, tuple[Image, frozenset[Message], frozenset[tuple[int, int, int]]]] = {}

    def begun(self, budget: Mapping[str, int], now: int) -> State:
        """The initial state: all nodes have just started."""
        images, messages = [], set[Message]()
        for name, build in self.builds.items():
            step = Step(self, name, Node(build({}), {}, {}))
            step.do(step.node.core.start(now))
            images.append(pack(step.node, self.facts(step.node, None)))
            messages.update(step.sent)
        return State(tuple(images), frozenset(messages), frozenset(), tuple(sorted(budget.items())), now)

    def node(self, state: State, name: str) -> Node:
        """The node in this state."""
        return unpack(state.nodes[self.names.index(name)])

    def moved(
        self,
        state: State,
        name: str,
        event: Hashable,
        act: Callable[[Step], None],
        *,
        less: Message | None = None,
        now: int | None = None,
    ) -> State:
        """The state after `act` on one node; `event` identifies `act`.

        A core is deterministic, so the result of an event is cached: interleavings differ in the other nodes.
        """
        at = self.names.index(name)
        before = state.nodes[at]
        known = self._done.get((name, before.key, event, state.now))
        if known is None:
            step = Step(self, name, unpack(before))
            act(step)
            image = pack(step.node, self.facts(step.node, before.facts))
            inside = frozenset(message for message in step.sent if message.to in self.builds)
            acks = frozenset(
                ack for message in step.sent if message.to not in self.builds for ack in self.acks_of(message)
            )
            known = self._done[name, before.key, event, state.now] = image, inside, acks
        image, inside, acks = known
        nodes = (*state.nodes[:at], image, *state.nodes[at + 1 :])
        messages = state.messages if less is None else state.messages - {less}
        return State(
            nodes,
            messages | inside if inside else messages,
            state.acks | acks if acks else state.acks,
            state.budget,
            state.now if now is None else now,
        )

    def delivered(self, state: State, message: Message) -> State:
        """The state after a message has arrived."""
        return self.moved(
            state,
            message.to,
            message,
            lambda step: step.take(Received(message.sender, message.content), state.now),
            less=message,
        )

    def synced(self, state: State, name: str) -> State:
        """The state after a node's disk has synced."""

        def sync(step: Step) -> None:
            journals = step.node.journals
            for journal, (first, durable, records) in list(journals.items()):
                if durable < first + len(records):
                    journals[journal] = (first, first + len(records), records)
                    step.take(Persisted(journal, first + len(records)), state.now)

        return self.moved(state, name, "sync", sync)

    def rung(self, state: State, name: str, timer: str, at: int) -> State:
        """The state after a timer has fired."""
        now = max(state.now, at)

        def ring(step: Step) -> None:
            del step.node.timers[timer]
            step.take(TimerFired(timer), now)

        return self.moved(state, name, (timer, at), ring, now=now)

    def restarted(self, state: State, name: str, keep: bool) -> State:
        """The state after a kill and a restart; unsynced records are lost unless `keep`."""

        def restart(step: Step) -> None:
            kept = {}
            for journal, (first, durable, records) in step.node.journals.items():
                end = first + len(records) if keep else durable
                kept[journal] = (first, end, records[: end - first])
            found = {
                journal: Journal(
                    first,
                    end,
                    [LogRecord(first + at, state.now, tag, payload) for at, (tag, payload) in enumerate(records)],
                )
                for journal, (first, end, records) in kept.items()
            }
            step.node = Node(self.builds[name](found), kept, {})
            step.do(step.node.core.start(state.now))

        return self.moved(state, name, keep, restart)

    def spent(self, state: State, move: str) -> State:
        """The state with one move less in the budget."""
        return state._replace(
            budget=tuple((name, left - (name == move)) for name, left in state.budget if left - (name == move))
        )

    def next(self, state: State) -> Iterator[tuple[str, State]]:
        """The successors of a state, each with the name of its event.

        Without a crash in the budget, a disk is synced before any other event (unless `slow_disks`): a slow message has
        the same effects as a slow disk.
        """
        budget = dict(state.budget)
        if not budget.get("crash") and not self.slow_disks:
            for name, image in zip(self.names, state.nodes, strict=True):
                if image.dirty:
                    yield f"sync {name}", self.synced(state, name)
                    return
        for message in state.messages:
            yield str(message), self.delivered(state, message)
        for name, image in zip(self.names, state.nodes, strict=True):
            if image.dirty:
                yield f"sync {name}", self.synced(state, name)
            if budget.get("crash"):
                spent = self.spent(state, "crash")
                yield f"crash {name}", self.restarted(spent, name, keep=False)
                if image.dirty:
                    yield f"crash {name}, keeping unsynced records", self.restarted(spent, name, keep=True)
            if budget.get("ring"):
                for timer, at in image.timers:
                    if self.rings(name, timer):
                        yield f"ring {timer} of {name}", self.rung(self.spent(state, "ring"), name, timer, at)
        for move, sent in self.moves.items():
            if budget.get(move):
                spent = self.spent(state, move)
                yield move, spent._replace(messages=spent.messages | frozenset(sent))

    def run_until(self, state: State, *, condition: Callable[[State], bool], max_steps: int = 20_000) -> State:
        """Follow one path to a state for which `condition` holds: deliver and sync everything, then fire the next
        timer."""
        for _ in range(max_steps):
            if condition(state):
                return state
            dirty = [name for name, image in zip(self.names, state.nodes, strict=True) if image.dirty]
            if dirty:
                state = self.synced(state, dirty[0])
            elif state.messages:
                state = self.delivered(state, min(state.messages, key=repr))
            else:
                at, timer, name = min(
                    (at, timer, name)
                    for name, image in zip(self.names, state.nodes, strict=True)
                    for timer, at in image.timers
                )
                state = self.rung(state, name, timer, at)
        raise Wrong(f"not reached within {max_steps} steps")

    def quiet(self, state: State) -> bool:
        """Whether no message or sync is under way."""
        return not state.messages and not any(image.dirty for image in state.nodes)


class Search(NamedTuple):
    """The result of a search. `states`: the number of distinct states; `complete`: whether all within the budget were
    visited."""

    states: int
    steps: int
    depth: int
    complete: bool
    seconds: float


def search(
    world: Explored, start: State, max_states: int, progress: Callable[[int, int], None] | None = None
) -> Search:
    """Search breadth first, up to `max_states` distinct states. Raises Wrong with the path to an invalid state."""
    begun = time.monotonic()
    start = start._replace(now=start.now)
    seen = {start.key}
    paths: dict[int, tuple[int, str]] = {}
    level, depth, steps = [start], 0, 0
    while level:
        following: list[State] = []
        for state in level:
            key = state.key
            try:
                for event, after in world.next(state):
                    steps += 1
                    found = after.key
                    if found in seen:
                        continue
                    seen.add(found)
                    paths[found] = (key, event)
                    world.check(after)
                    following.append(after)
                    if progress is not None and len(seen) % 1_000 == 0:
                        progress(len(seen), depth)
            except Exception as error:
                raise Wrong(f"{error!r} after\n" + "\n".join(_path(paths, key))) from error
            if len(seen) >= max_states:
                return Search(len(seen), steps, depth, False, time.monotonic() - begun)
        level, depth = following, depth + 1
    return Search(len(seen), steps, depth, True, time.monotonic() - begun)


def _path(paths: Mapping[int, tuple[int, str]], key: int) -> list[str]:
    way = []
    while key in paths:
        key, event = paths[key]
        way.append(event)
    return way[::-1]
