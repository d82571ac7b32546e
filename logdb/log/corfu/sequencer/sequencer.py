"""The sequencer: a counter of positions and a clock, both soft state.

A process assigns positions in one epoch, which the projection names together with the nonce of the process (COR-6). A
process that was restarted has another nonce, and assigns nothing until the auxiliary has begun an epoch for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from logdb.cores.effects import (
    MILLISECOND,
    Address,
    Effect,
    Event,
    Journal,
    Received,
    Send,
    SetTimer,
    Stop,
    TimerFired,
)
from logdb.log.corfu.messages import (
    SequencerReport,
    StreamTailRequest,
    StreamTailResponse,
    TokenRefused,
    TokenRequest,
    TokenResponse,
    Update,
)
from logdb.log.corfu.projection import NO_VIEW
from logdb.log.record_clock import is_beyond_any_pause

HEARTBEAT: Final = "sequencer.heartbeat"
REMEMBERED_RESPONSES: Final = 1_000


@dataclass(frozen=True, slots=True)
class SequencerConfig:
    """The configuration of a sequencer. `ordering`: the addresses of the auxiliary."""

    address: Address
    ordering: tuple[Address, ...]
    heartbeat_ns: int = 100 * MILLISECOND


class Sequencer:
    """The core of a sequencer. `epoch`: for which it assigns positions, 0 for none. `next`: the next position; `time`:
    of the last one. `tokens`: number of positions that were assigned. `streams`: the last position of each stream in
    this epoch."""

    def __init__(self, config: SequencerConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.config = config
        self.nonce = rng.getrandbits(62) + 1
        self.epoch = self.next = self.time = self.tokens = 0
        self.view = NO_VIEW
        self.streams: dict[int, int] = {}
        self._responses: dict[tuple[Address, int], TokenResponse] = {}
        self._out: list[Effect] = []
        self._do: dict[type, Callable[[Any, Address, int], None]] = {
            Update: self._on_update,
            TokenRequest: self._on_token_request,
            StreamTailRequest: self._on_stream_tail,
        }

    def start(self, now: int) -> list[Effect]:
        """Start the core."""
        return self._beat(now)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event."""
        if type(event) is Received and (do := self._do.get(type(event.message))) is not None:
            do(event.message, event.sender, now)
        elif type(event) is TimerFired:
            return self._beat(now)
        out, self._out = self._out, []
        return out

    def check_invariants(self) -> None:
        """Raises AssertionError."""
        assert not self.epoch or self.next >= self.view.start, "COR-6"

    def _beat(self, now: int) -> list[Effect]:
        report = SequencerReport(self.nonce, self.epoch)
        return [
            *(Send(replica, report) for replica in self.config.ordering),
            SetTimer(HEARTBEAT, now + self.config.heartbeat_ns),
        ]

    def _on_update(self, update: Update, sender: Address, now: int) -> None:
        """Begin the epoch of a projection that names this process; end the current one otherwise."""
        view = update.view
        if view.epoch <= self.view.epoch or update.nonce != self.nonce:
            return
        self.view = view
        self._responses.clear()
        self.streams.clear()
        if view.nonce == self.nonce:
            self.epoch, self.next, self.time = view.epoch, view.start, view.time
        else:
            self.epoch = 0
        self._out += self._beat(now)

    def _on_token_request(self, request: TokenRequest, sender: Address, now: int) -> None:
        """Assign positions. A repeated request gets the same ones."""
        places = set(request.places) - {0}
        live = {config.shard for config in self.view.live()}
        is_known = all(index < len(request.places) for index, _ in request.streams)
        if not self.epoch or request.epoch != self.epoch or not live or not places <= live or not is_known:
            self._out.append(Send(sender, TokenRefused(request.request, self.epoch)))
            return
        response = self._responses.get((sender, request.request))
        if response is None:
            if is_beyond_any_pause(self.time, now):
                why = "its clock is more than ten years ahead of the newest record and would date all later ones"
                self._out.append(Stop(f"{why}: set it right", wipe=False))
                return
            response = self._assign(request, now)
            self._responses[sender, request.request] = response
            if len(self._responses) > REMEMBERED_RESPONSES:
                del self._responses[next(iter(self._responses))]
        self._out.append(Send(sender, response))

    def _assign(self, request: TokenRequest, now: int) -> TokenResponse:
        first, positions = self.next, []
        self.time = max(self.time, now)
        for place in request.places:
            if place:
                stride = self.view.stride(place, self.next)
                assert stride is not None, f"COR-6: shard {place} has no position from {self.next} on"
                self.next = stride.first
            positions.append(self.next)
            self.next += 1
        self.tokens += len(positions)
        previous = []
        for index, stream in request.streams:
            previous.append(self.streams.get(stream, 0))
            self.streams[stream] = positions[index]
        return TokenResponse(
            request.request, self.epoch, first, self.next, tuple(positions), self.time, tuple(previous)
        )

    def _on_stream_tail(self, request: StreamTailRequest, sender: Address, now: int) -> None:
        """Answers only in the epoch of the request: another one says nothing about this one."""
        if not self.epoch or request.epoch != self.epoch:
            self._out.append(Send(sender, TokenRefused(request.request, self.epoch)))
        else:
            position = self.streams.get(request.stream, 0)
            self._out.append(Send(sender, StreamTailResponse(request.request, position)))
