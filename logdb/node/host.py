"""The host of one core in an event loop: performs its effects, and brings it messages, timers and what is durable.

Everything about the core happens in the loop's thread, one event after another. The only other thread is the disk
worker's, which flushes the journals; while it does, the core goes on and what it writes meanwhile is flushed next, all
together. So there is one flush at a time, and a flush serves whoever has come before it began.

A core that meets what it cannot explain, and a disk that fails, end the host: it does nothing more, and `ended` says
why. What was not flushed then is lost, as after a crash, and that is all that others may notice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from logdb.cores.effects import (
    Address,
    Answer,
    Call,
    CancelTimer,
    Core,
    Create,
    Disconnected,
    Drop,
    Effect,
    Event,
    Journal,
    Persist,
    Received,
    Send,
    SendRanges,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Trim,
    Unreadable,
)
from logdb.node.clock import Clock
from logdb.node.disk_worker import DiskWorker
from logdb.node.journals import FlushBatch, Journals

Build = Callable[[Mapping[str, Journal], random.Random], Core]
"""Makes a core from the journals that were found."""

FULL_RETRY_S: Final = 0.25
"""While the disk is full, what waits is tried again so often."""


class Network(Protocol):
    """What brings messages to other cores, perhaps."""

    def send(self, to: Address, message: Any) -> None:
        """Queue a message. Never waits; what cannot be delivered is lost."""


class HostCounters:
    """What a host has done, for whoever looks."""

    def __init__(self) -> None:
        self.events = self.persisted_records = self.unreadable = 0


class Host:
    """One core and its journals, if it has any.

    `ended`: done when the core does nothing more: its Stop, None after `close`, or the exception that ended it.
    `answered` hears what the core's calls have come to; `full` whether the disk refuses to take more, and why.
    """

    def __init__(
        self,
        address: Address,
        build: Build,
        network: Network,
        *,
        journals: Journals | None = None,
        disk: DiskWorker | None = None,
        clock: Clock | None = None,
        answered: Callable[[Answer], None] | None = None,
        full: Callable[[str], None] | None = None,
    ) -> None:
        assert (journals is None) == (disk is None), "journals need a thread that flushes them"
        self.address, self.journals = address, journals
        self.counts = HostCounters()
        self.core: Core | None = None
        self._build, self._network, self._disk = build, network, disk
        self._clock = clock or Clock()
        self._answered, self._full = answered, full
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Stop | None] = self._loop.create_future()
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._dirty = self._scheduled = False
        self._flushing: FlushBatch | None = None
        self._refused = ""
        self._retry: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None

    # ---- events

    def start(self) -> None:
        """Make the core from what the journals hold, and start it. What it raises ends the host."""
        try:
            self.core = self._build(self.journals.found() if self.journals else {}, random.SystemRandom())
            self._perform(self.core.start(self._clock()))
        except Exception as error:
            self._end(error)

    def receive(self, sender: Address, messages: Sequence[Any]) -> None:
        """Messages have come, in this order."""
        for message in messages:
            self._handle(Received(sender, message))

    def lost(self, peer: Address) -> None:
        """There is no stream to this peer any more. For clients: servers are told by their protocols' own time-outs."""
        self._handle(Disconnected(peer))

    def call(self, call: int, request: Any) -> None:
        """This node's application asks for something; `answered` will hear what it has come to."""
        self._handle(Call(call, request))

    def _handle(self, event: Event) -> None:
        core = self.core
        if core is None:
            return
        self.counts.events += 1
        try:
            effects = core.handle(event, self._clock())
            if effects:
                self._perform(effects)
        except Exception as error:
            self._end(error)

    # ---- effects

    def _perform(self, effects: list[Effect]) -> None:
        network, journals = self._network, self.journals
        for effect in effects:
            if type(effect) is Send:
                if effect.to == self.address:
                    self._loop.call_soon(self.receive, self.address, (effect.message,))
                else:
                    network.send(effect.to, effect.message)
            elif type(effect) is SetTimer:
                self._set_timer(effect.name, effect.at)
            elif type(effect) is CancelTimer:
                self._cancel_timer(effect.name)
            elif type(effect) is Answer:
                assert self._answered is not None, "an answer where nothing can be asked"
                self._answered(effect)
            elif type(effect) is Stop:
                self._end(effect)
                return
            else:
                assert journals is not None, f"{self.address} has no journals for {effect!r}"
                if type(effect) is SendStored or type(effect) is SendRanges:
                    self._send_stored(journals, effect)
                elif isinstance(effect, Create | Persist | Trim | Drop):
                    self._keep(journals, effect)

    def _send_stored(self, journals: Journals, effect: SendStored | SendRanges) -> None:
        fetched = journals.fetch(effect)
        if isinstance(fetched, Unreadable):
            self.counts.unreadable += 1
            self._loop.call_soon(self._handle, fetched)
        else:
            self._network.send(fetched.to, fetched.message)

    def _end(self, how: Stop | BaseException | None) -> None:
        self.core = None
        if self._retry is not None:
            self._retry.cancel()
        for _, handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        if self.ended.done():
            return
        if isinstance(how, BaseException):
            self.ended.set_exception(how)
            self.ended.exception()  # whoever awaits it gets it; if nobody does, nobody needs a warning
        else:
            self.ended.set_result(how)

    # ---- timers

    def _set_timer(self, name: str, at: int) -> None:
        self._cancel_timer(name)
        delay = max(0, at - self._clock()) / 1e9
        self._timers[name] = at, self._loop.call_later(delay, self._ring, name)

    def _cancel_timer(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer[1].cancel()

    def _ring(self, name: str) -> None:
        at, _ = self._timers[name]
        if self._clock() < at:
            self._set_timer(name, at)
        else:
            del self._timers[name]
            self._handle(TimerFired(name))

    # ---- journals

    def _keep(self, journals: Journals, effect: Create | Persist | Trim | Drop) -> None:
        journals.perform(effect, self._clock())
        if type(effect) is Persist:
            self.counts.persisted_records += len(effect.records)
        self._dirty = True
        if not self._scheduled and self._flushing is None:
            # Not before what else is ready in the loop has had its turn: its records ride along.
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        journals, disk = self.journals, self._disk
        if self._flushing is not None or not self._dirty or self.ended.done():
            return
        assert journals is not None
        assert disk is not None
        self._dirty = False
        try:
            self._flushing = journals.take()
        except Exception as error:
            self._end(error)
            return
        self._report_refusal(journals)
        disk.flush(journals, self._flushing, self._flushed)

    def _flushed(self, failure: BaseException | None) -> None:
        taken, self._flushing = self._flushing, None
        assert taken is not None
        assert self.journals is not None
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None
        if failure is not None:
            self._end(failure)
        for event in self.journals.settle(taken):
            self._handle(event)
        if self._dirty:
            self._flush()

    def _report_refusal(self, journals: Journals) -> None:
        """A full disk is tried again until it takes what waits."""
        refusal = str(journals.refusal or "")
        if refusal and self._retry is None:
            self._retry = self._loop.call_later(FULL_RETRY_S, self._try_again)
        if bool(refusal) != bool(self._refused) and self._full is not None:
            self._full(refusal)
        self._refused = refusal

    def _try_again(self) -> None:
        self._retry = None
        self._dirty = True
        self._flush()

    # ---- the end

    def fail(self, why: BaseException) -> None:
        """Somebody else has found that this core must not go on."""
        self._end(why)

    async def close(self) -> None:
        """End the core. Returns when the disk is not being written any more; what was performed before a clean end is
        flushed. The journals stay open: they are the caller's."""
        clean = self.core is not None
        self._end(None)
        while self._flushing is not None:
            self._idle = self._loop.create_future()
            await self._idle
        if clean and self.journals is not None and self._dirty:
            self.journals.sync()
