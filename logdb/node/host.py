"""The host of one core in an event loop: performs its effects, and passes messages, timers and durable records to it.

The core runs in the loop's thread, one event after another. A thread of the disk worker flushes the journals, one flush
at a time. The core continues during a flush, and all records that it writes meanwhile are flushed together next.

A ProtocolViolation of the core, or an error of the disk, ends the host: it handles no more events, and `ended` has the
reason. Records that were not flushed are lost then, as after a crash.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from logdb.cores.effects import (
    Address,
    Answer,
    Archive,
    Archived,
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
    Recall,
    Recalled,
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
"""Builds a core from the journals on disk."""

FULL_RETRY_S: Final = 0.25
"""Interval between attempts to write while the disk is full."""


class Network(Protocol):
    """Sends messages to other cores, which may be lost."""

    def send(self, to: Address, message: Any) -> None:
        """Queue a message. Never waits; a message that cannot be delivered is dropped."""


class HostCounters:
    """Counters of one host."""

    def __init__(self) -> None:
        self.events = self.persisted_records = self.unreadable = 0


class Host:
    """One core, and its journals if it has any.

    `ended`: done when the core has ended, with its Stop, with None after `close`, or with the exception that ended it.
    `answered` is called with the answers to calls; `archive` with each segment of a cold tier, and `recall` with each
    read of it, and what to call at its end; `full` with the reason when the disk becomes full, and with "" when it
    accepts writes again.
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
        archive: Callable[[Archive, Callable[[Archived], None]], None] | None = None,
        recall: Callable[[Recall, Callable[[Recalled], None]], None] | None = None,
        full: Callable[[str], None] | None = None,
    ) -> None:
        assert (journals is None) == (disk is None), "journals need a thread that flushes them"
        self.address, self.journals = address, journals
        self.counts = HostCounters()
        self.core: Core | None = None
        self._build, self._network, self._disk = build, network, disk
        self._clock = clock or Clock()
        self._answered, self._archive, self._recall, self._full = answered, archive, recall, full
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
        """Build the core from the journals, and start it. An exception ends the host."""
        try:
            self.core = self._build(self.journals.found() if self.journals else {}, random.SystemRandom())
            self._perform(self.core.start(self._clock()))
        except Exception as error:
            self._end(error)

    def receive(self, sender: Address, messages: Sequence[Any]) -> None:
        """Handle messages, in this order."""
        for message in messages:
            self._handle(Received(sender, message))

    def lost(self, peer: Address) -> None:
        """The last stream to this peer has ended."""
        self._handle(Disconnected(peer))

    def call(self, call: int, request: Any) -> None:
        """Pass a call of this process's application to the core; `answered` is called with its answer."""
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
                assert self._answered is not None, "an answer without a call"
                self._answered(effect)
            elif type(effect) is Archive:
                assert self._archive is not None, f"{self.address} has no cold tier"
                self._archive(effect, self._handle)
            elif type(effect) is Recall:
                assert self._recall is not None, f"{self.address} has no cold tier"
                self._recall(effect, self._handle)
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
            self.ended.exception()  # marks it as retrieved, so that asyncio logs no warning
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
            # Other events that are ready in the loop are handled first; their records are flushed with these.
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
        for event in self.journals.complete(taken):
            self._handle(event)
        if self._dirty:
            self._flush()

    def _report_refusal(self, journals: Journals) -> None:
        """Retry the writes to a full disk until it accepts them."""
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

    def fail(self, error: BaseException) -> None:
        """End the core because of an error outside it."""
        self._end(error)

    async def close(self) -> None:
        """End the core. Returns when no flush is running; a clean end flushes all performed writes. The journals stay
        open, since the caller owns them. May be called by several tasks."""
        clean = self.core is not None
        self._end(None)
        while self._flushing is not None:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.wait((self._idle,))
        if clean and self.journals is not None and self._dirty:
            self.journals.sync()
