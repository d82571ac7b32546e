"""The client of the database: the core in the application's process.

`CommitClient` brings commit records into the log, `ReadClient` puts questions to mapping servers (`QueryClient` chooses
which), the log client inside (`LogAdapter`) appends, and reads large values where they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.client.commit_client import CommitClient
from logdb.cluster.client.leases import HOLD_NS, CompactionClient, Leases
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.client.read_client import ReadClient
from logdb.cluster.log_adapter import TIMER, LogAdapter
from logdb.cluster.placement import ByObject, Placement, StickySegmentPolicy
from logdb.cores.context import ClientContext
from logdb.cores.effects import SECOND, Address, Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig
from logdb.store.limits import MAX_TRANSACTION_BYTES


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """What a client is told. `servers`: mapping servers. `log`: of its log client, at the same address, which also
    gives the time-outs, and which `build_log` makes; where records go is not for its policy to say, but for
    `StickySegmentPolicy` and the placement. `placement`: where objects live. `hedge_ns`: a commit record that is not in
    the log after so long is appended once more, `copies` times at most, unless its shard was named. `keys_per_read`: of
    one question. `session`: a version that it is not to be shown the past of. `transaction_bytes`: the longest commit
    record. `hold_ns`: so often it tells what it holds.
    """

    address: Address
    servers: tuple[Address, ...]
    log: ClientConfig
    build_log: BuildLogClient
    placement: Placement | None = None
    hedge_ns: int = 2 * SECOND
    copies: int = 3
    keys_per_read: int = 500
    session: int = 0
    transaction_bytes: int = MAX_TRANSACTION_BYTES
    hold_ns: int = HOLD_NS


class DatabaseClient:
    """A core that turns calls (`requests.py`) into records and messages. It needs no journal.

    Its number, the first part of its transaction ids, is drawn from `rng`: a host gives each incarnation a generator of
    its own, or one that goes on.
    """

    def __init__(self, config: DatabaseConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.config = config
        self._context = context = ClientContext(config.log, rng)
        order = StickySegmentPolicy(rng)
        self.log = LogAdapter(config.build_log, replace(config.log, policy=ByObject(order)), rng, context)
        self._asking = asking = QueryClient(context, config.servers)
        asking.saw(config.session)
        holds = Leases(context, config.servers, config.hold_ns)
        self._compactions = compactions = CompactionClient(context, asking)
        self._commits = CommitClient(
            context,
            self.log,
            asking,
            config.placement,
            config.hedge_ns,
            config.copies,
            config.transaction_bytes,
            holds,
            order,
        )
        readings = ReadClient(context, self.log, asking, config.keys_per_read)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Get: readings.get,
            calls.Scan: readings.scan,
            calls.MultiScan: readings.multi_scan,
            calls.History: readings.history,
            calls.Version: readings.version,
            calls.Oldest: readings.oldest,
            calls.AtTime: readings.at_time,
            calls.RecordAt: readings.record_at,
            calls.Pins: readings.pins,
            calls.Pin: readings.pin,
            calls.Aborted: readings.aborted,
            calls.Outcome: readings.outcome,
            calls.NewId: self._new_id,
            calls.Commit: self._commits.commit,
            calls.Settle: self._commits.settle,
            calls.Hold: self._hold,
            calls.Compact: compactions.compact,
            calls.SetServers: self._use,
            **dict.fromkeys(calls.FOLLOWING, self._of_the_log),
        }
        own: dict[type, Callable[[Any, Address], None]] = {
            messages.Answers: self._asking.answers,
            messages.Busy: self._asking.busy,
            messages.Verdicts: self._commits.verdicts,
            messages.Compacting: compactions.told,
            messages.Compacted: compactions.told,
        }
        self._handlers = own
        self._holds = holds

    @property
    def session(self) -> int:
        """The newest version that this client has seen."""
        return self._asking.session

    # ---- events

    def start(self, now: int) -> list[Effect]:
        self._context.now = now
        self.log.start()
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        self._context.now = now
        if type(event) is Received:
            handler = self._handlers.get(type(event.message))
            if handler is None:
                self.log.received(event)
            else:
                handler(event.message, event.sender)
        elif type(event) is Call:
            self._calls[type(event.request)](event.call, event.request)
        elif type(event) is TimerFired:
            if event.name == TIMER:
                self.log.ring()
            else:
                self._context.fire_timers()
        elif type(event) is Disconnected:
            self._asking.lost(event.peer)
            self._commits.lost(event.peer)
            self._compactions.lost(event.peer)
            self.log.received(event)
        return self._context.effects()

    def check_invariants(self) -> None:
        """Those of its parts."""
        self.log.check_invariants()
        self._asking.check_invariants()
        self._commits.check_invariants()

    def _of_the_log(self, call: int, request: Any) -> None:
        self._context.open(call, None, lambda: None)
        self.log.call(request, lambda result: self._context.answer(call, result))

    def _hold(self, call: int, request: calls.Hold) -> None:
        self._context.open(call, None, lambda: None)
        self._holds.hold(request.holder, request.version)
        self._context.answer(call, None)

    def _use(self, call: int, request: calls.SetServers) -> None:
        self._context.open(call, None, lambda: None)
        left = self._asking.server
        self._asking.use(request.servers)
        self._holds.use(request.servers)
        if self._asking.server != left:
            self._commits.lost(left)
        self._context.answer(call, None)

    def _new_id(self, call: int, request: calls.NewId) -> None:
        self._context.open(call, None, lambda: None)
        self._context.answer(call, self._commits.new_id())
