"""A client of Corfu that takes positions and fills them, without the rest of an append: what a client leaves behind
that dies with a token, how many tokens a sequencer assigns, and what a fill takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple

from benchmarks.corfu.effort import TIMEOUT_S
from logdb.clients.core_client import HostedClient, unwrap
from logdb.cores.context import ClientContext, PendingRequests
from logdb.cores.effects import SECOND, Address, Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.errors import Unavailable
from logdb.log.corfu.client.auxiliary_client import AuxiliaryClient
from logdb.log.corfu.client.fills import FillClient
from logdb.log.corfu.engine import ENGINE
from logdb.log.corfu.messages import TokenRefused, TokenRequest, TokenResponse
from logdb.log.requests import ClientConfig
from logdb.node.host import Build
from logdb.security.credentials import NONE
from logdb.system.addresses import endpoints_of
from logdb.transport.discovery import client_hello, discover


class Learn(NamedTuple):
    """Request the projection. -> None."""


class Take(NamedTuple):
    """Request `batch` positions again and again for `seconds`, with `pipelined` requests under way; 0 seconds: once
    each. -> (positions, seconds)."""

    batch: int
    pipelined: int = 1
    seconds: float = 0.0


class Fill(NamedTuple):
    """Decide a position. -> None."""

    position: int


class PositionCore:
    """The core: parts of Corfu's client. `Learn` comes first."""

    def __init__(self, config: ClientConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self._context = context = ClientContext(config, rng)
        self._requests = requests = PendingRequests(context)
        self._auxiliary = AuxiliaryClient(context, requests, self._on_view)
        self._fills = FillClient(context, requests, self._auxiliary)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            Learn: self._learn,
            Take: self._take,
            Fill: self._fill,
        }

    def start(self, now: int) -> list[Effect]:
        """Nothing is requested before a call."""
        self._context.now = now
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event."""
        self._context.now = now
        if type(event) is Received:
            self._requests.on_reply(event.message.request, event.message, event.sender)
        elif type(event) is Call:
            self._context.open(event.call, None, lambda: None)
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            self._context.fire_timers()
        elif type(event) is Disconnected:
            self._requests.on_disconnected(event.peer)
        return self._context.effects()

    def check_invariants(self) -> None:
        """There are none."""

    def _on_view(self) -> None:
        self._fills.on_view()

    def _learn(self, call: int, request: Learn) -> None:
        self._auxiliary.request_view(lambda view: self._context.answer(call, None))

    def _fill(self, call: int, request: Fill) -> None:
        self._fills.fill(request.position, lambda entry: self._context.answer(call, None))

    def _take(self, call: int, request: Take) -> None:
        context, view = self._context, self._auxiliary.view
        begun, taken, under_way = context.now, list[int](), request.pipelined
        places = (0,) * request.batch

        def ask() -> None:
            number = context.next_number()
            self._requests.send(number, TokenRequest(number, view.epoch, places), choose, on_reply)

        def choose(attempt: int) -> Address | None:
            return view.sequencer or None

        def on_reply(answer: TokenResponse | TokenRefused, sender: Address) -> None:
            nonlocal under_way
            if isinstance(answer, TokenRefused):
                context.answer(call, Unavailable("another epoch has begun"))
                return
            taken.extend(answer.positions)
            if context.now < begun + request.seconds * SECOND:
                ask()
                return
            under_way -= 1
            if not under_way:
                context.answer(call, (taken, (context.now - begun) / SECOND))

        for _ in range(request.pipelined):
            ask()


class PositionClient:
    """The client, for coroutines."""

    def __init__(self, client: HostedClient) -> None:
        self._client = client

    async def answer(self, request: Learn | Take | Fill) -> Any:
        """The answer to a request. Raises Unavailable."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._client.put(request, None, waiter)
        return unwrap(await waiter)


@asynccontextmanager
async def positions_of(endpoints: str) -> AsyncIterator[PositionClient]:
    """A client that knows the newest projection. It does not learn later ones."""
    theirs = await discover(endpoints_of(endpoints), client_hello(), TIMEOUT_S)

    def build(address: Address) -> Build:
        config = ClientConfig(address=address, ordering=theirs.ordering)
        return lambda journals, rng: PositionCore(config, journals, rng)

    hosted = HostedClient(theirs.cluster, ENGINE, build, _closed, NONE, theirs.right)
    try:
        client = PositionClient(hosted)
        await client.answer(Learn())
        yield client
    finally:
        await hosted.close()


def _closed(failure: BaseException | None) -> Exception:
    return Unavailable(f"the client has ended: {failure}")
