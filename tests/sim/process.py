"""A process of the simulation: it hosts one core, performs its effects, and can be killed, paused and restarted.

It also enforces the contract of `cores/effects.py`: a core that requests an effect which the contract does not allow,
raises an exception, or violates one of its invariants ends the seed with a `Failure`.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping
from heapq import heappush
from typing import TYPE_CHECKING, Any

from logdb.cores.effects import (
    MILLISECOND,
    Address,
    Answer,
    Archive,
    Call,
    CancelTimer,
    Core,
    Create,
    Drop,
    Effect,
    Event,
    Journal,
    Persist,
    Recall,
    Send,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
    Unreadable,
)
from logdb.log.contract import LogRecord
from tests.sim.disk import BrokenContract, Damaged, Disk
from tests.sim.world import Failure

if TYPE_CHECKING:
    from tests.sim.network import Network
    from tests.sim.world import World

Build = Callable[[Mapping[str, Journal], random.Random], Core]
"""Builds a core from the journals on its disk."""


class Process:
    """One address, one disk, and most of the time one core.

    `stopped`: the effect by which the core has stopped itself. `damaged`: the process cannot start before its disk is
    wiped. Callbacks: `on_answer` for the answer of each call, `on_archive` and `on_recall` for each
    segment of a cold tier and each read of it, `on_stop` when the core stops itself, `on_loss` before the process is
    killed or loses its disk, `on_end` whenever the core ends, with whether the disk is wiped; `watch` after each event.
    """

    def __init__(self, world: World, network: Network, address: Address, kind: str, build: Build) -> None:
        self.world, self.network, self.address, self.kind = world, network, address, kind
        self.build = build
        self.number = len(network.processes)
        network.processes[address] = self
        self.random = world.draw(f"core {address}")
        self.disk = Disk(world, world.draw(f"disk {address}"), self.deliver)
        self.core: Core | None = None
        self.paused = False
        self.damaged = False
        self.stopped: Stop | None = None
        self.offset = 0
        self.lives = self.wipes = 0
        self.calls: dict[int, None] = {}
        self.on_answer: Callable[[Answer], None] | None = None
        self.on_archive: Callable[[Process, Archive], None] | None = None
        self.on_recall: Callable[[Process, Recall], None] | None = None
        self.on_stop: Callable[[Process], None] | None = None
        self.on_loss: Callable[[Process], None] | None = None
        self.on_end: Callable[[bool], None] | None = None
        self.watch: Callable[[Process], None] | None = None
        self._timers: dict[str, tuple[int, int]] = {}
        self._backlog: list[Event] = []

    # ---- life cycle

    @property
    def now(self) -> int:
        """The clock of this process."""
        return self.world.now + self.offset

    def start(self) -> bool:
        """Start from the disk; returns False if it is damaged."""
        assert self.core is None
        try:
            journals = self.disk.mount()
        except Damaged as error:
            self.world.counts["start refused: damaged"] += 1
            self.world.annotate(f"{self.address} does not start: {error}")
            self.damaged = True
            return False
        self.lives += 1
        self.stopped = None
        self.world.annotate(f"start {self.address}")
        try:
            self.core = self.build(journals, self.random)
            effects = self.core.start(self.now)
            self.core.check_invariants()
        except Failure:
            raise
        except Exception as error:
            raise self._failure(error) from error
        self._perform(effects)
        return True

    def kill(self) -> None:
        """Kill the process; records that were not synced are lost from some point on."""
        if self.core is None:
            return
        self.world.annotate(f"kill {self.address}")
        if self.on_loss is not None:
            self.on_loss(self)
        self.core = None
        self.paused = False
        self.calls.clear()
        self._backlog.clear()
        self._timers.clear()
        self.disk.crash()
        if self.on_end is not None:
            self.on_end(False)
        self.network.hang_up(self.address)

    def pause(self) -> None:
        """Pause the process: events are delivered when it resumes."""
        self.world.annotate(f"pause {self.address}")
        self.paused = True

    def resume(self) -> None:
        """Resume the process."""
        if not self.paused:
            return
        self.world.annotate(f"resume {self.address}")
        self.paused = False
        waiting, self._backlog = self._backlog, []
        for event in waiting:
            self.deliver(event)

    def wipe(self) -> None:
        """Lose the disk. The process must be down."""
        assert self.core is None
        self.world.annotate(f"wipe {self.address}")
        if self.on_loss is not None:
            self.on_loss(self)
        self.damaged = False
        self.disk.wipe()
        self.wipes += 1

    def jump(self, by: int) -> None:
        """Set its clock forward."""
        self.world.annotate(f"the clock of {self.address} jumps by {by / 1e6:.3f} ms")
        self.offset += by
        for name, (_, at) in list(self._timers.items()):
            self._set_timer(name, at)

    # ---- events

    def call(self, call: int, request: Any) -> None:
        """The application makes a call."""
        self.calls[call] = None
        self.deliver(Call(call, request))

    def deliver(self, event: Event) -> None:
        """Pass an event to the core, and perform its effects."""
        core = self.core
        if core is None:
            return
        if self.paused:
            self._backlog.append(event)
            return
        self.world.note(self.number, self.address, event)
        try:
            effects = core.handle(event, self.world.now + self.offset)
            core.check_invariants()
            if self.watch is not None:
                self.watch(self)
        except Failure:
            raise
        except Exception as error:
            raise self._failure(error) from error
        if effects:
            self._perform(effects)

    def _ring(self, argument: tuple[str, int]) -> None:
        name, number = argument
        timer = self._timers.get(name)
        if timer is not None and timer[0] == number:
            if self.paused:  # a timer that is reset meanwhile must not fire, so look again later
                self.world.at(self.world.now + MILLISECOND, self._ring, argument)
                return
            del self._timers[name]
            self.deliver(TimerFired(name))

    def _set_timer(self, name: str, at: int) -> None:
        world = self.world
        time = at - self.offset
        world.number += 1
        number = world.number
        self._timers[name] = (number, at)
        heappush(world.heap, (time if time > world.now else world.now, number, self._ring, (name, number)))

    # ---- effects

    def _perform(self, effects: list[Effect]) -> None:
        address, send = self.address, self.network.send
        unreadable: list[Unreadable] = []
        try:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    send(address, effect.to, effect.message)
                elif kind is SetTimer:
                    self._set_timer(effect.name, effect.at)
                elif kind is Persist:
                    self.disk.persist(effect.journal, effect.first, effect.records, self.now)
                elif kind is SendStored:
                    try:
                        records = self.disk.read(effect.journal, effect.first, effect.end)
                    except Damaged as error:
                        self.world.counts["unreadable record read"] += 1
                        unreadable.append(Unreadable(effect, str(error)))
                    else:
                        send(address, effect.to, effect.message._replace(records=records))
                elif kind is SendRanges:
                    try:
                        found = self._read_stretches(effect)
                    except Damaged as error:
                        self.world.counts["unreadable record read"] += 1
                        unreadable.append(Unreadable(effect, str(error)))
                    else:
                        send(address, effect.to, effect.message._replace(records=found))
                elif kind is CancelTimer:
                    self._timers.pop(effect.name, None)
                elif kind is Answer:
                    self._answer(effect)
                elif kind is Create:
                    self.disk.create(effect.journal, effect.first)
                elif kind is Trim:
                    self.disk.trim(effect.journal, effect.before)
                elif kind is Drop:
                    self.disk.drop(effect.journal)
                elif kind is Archive and self.on_archive is not None:
                    self.on_archive(self, effect)
                elif kind is Recall and self.on_recall is not None:
                    self.on_recall(self, effect)
                elif kind is Stop:
                    self._stop(effect)
                    return
                else:
                    raise BrokenContract(f"unknown effect: {effect!r}")
        except BrokenContract as error:
            raise self._failure(error) from error
        for event in unreadable:
            self.world.after(0, self.deliver, event)

    def _read_stretches(self, effect: SendRanges) -> list[LogRecord]:
        found: list[LogRecord] = []
        tags = effect.tags
        for journal, first, end, number, time in effect.ranges:
            for record, (tag, payload) in enumerate(self.disk.read(journal, first, end), number):
                if tags is None or tag in tags:
                    found.append(LogRecord(record, time, tag, payload))
        return found

    def _answer(self, answer: Answer) -> None:
        if answer.call not in self.calls:
            raise BrokenContract(f"answer to a call that is not open: {answer!r}")
        del self.calls[answer.call]
        self.world.note(self.number, self.address, answer)
        if self.on_answer is not None:
            self.on_answer(answer)

    def _stop(self, stop: Stop) -> None:
        self.world.annotate(f"{self.address} stops: {stop.reason}{', wipe' if stop.wipe else ''}")
        self.world.counts["core stopped itself"] += 1
        self.core = None
        self.stopped = stop
        self._backlog.clear()
        self._timers.clear()
        if stop.wipe:
            self.disk.wipe()
            self.wipes += 1
        else:
            self.disk.crash()
        if self.on_end is not None:
            self.on_end(stop.wipe)
        if self.on_stop is not None:
            self.on_stop(self)

    def _failure(self, error: Exception) -> Failure:
        where = traceback.extract_tb(error.__traceback__)[-1]
        lines = "".join(traceback.format_exception(error)[-8:])
        return Failure(type(error).__name__, f"{self.address}: {error} ({where.name}, line {where.lineno})\n{lines}")
