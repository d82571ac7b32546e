"""The client of the database: the core in the application's process.

`CommitClient` appends commit records, `ReadClient` sends queries to mapping servers (`QueryClient` chooses the server),
and the log client inside (`LogAdapter`) appends records and reads large values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from logdb.cluster import messages
from logdb.cluster.client import requests as calls
from logdb.cluster.client.commit_client import CommitClient
from logdb.cluster.client.leases import RENEWAL_NS, CompactionClient, Leases
from logdb.cluster.client.query_client import QueryClient
from logdb.cluster.client.read_client import ReadClient
from logdb.cluster.client.turn_client import TurnClient
from logdb.cluster.log_adapter import TIMER, LogAdapter
from logdb.cluster.placement import ByObject, Placement, StickySegmentPolicy
from logdb.cores.context import ClientContext
from logdb.cores.effects import SECOND, Address, Call, Disconnected, Effect, Event, Journal, Received, TimerFired
from logdb.log.engine import BuildLogClient
from logdb.log.requests import ClientConfig
from logdb.store.limits import MAX_TRANSACTION_BYTES


@dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """The configuration of a client.

    `servers`: mapping servers. `log`: the configuration of its log client, which `build_log` makes, at the same
    address; its timeouts are the client's own, its policy is replaced by `StickySegmentPolicy` and the placement.
    `placement`: the shard of each object. `hedge_ns`: a commit record that is not in the log after this time is
    appended once more, in `max_copies` copies at most, unless the placement names its shard. `keys_per_read`: maximum
    number of keys in a query. `session`: no read returns an older version. `transaction_bytes`: maximum size of a
    commit record. `renewal_ns`: how often the lease on the versions in use is renewed.
    """

    address: Address
    servers: tuple[Address, ...]
    log: ClientConfig
    build_log: BuildLogClient
    placement: Placement | None = None
    hedge_ns: int = 2 * SECOND
    max_copies: int = 3
    keys_per_read: int = 500
    session: int = 0
    transaction_bytes: int = MAX_TRANSACTION_BYTES
    renewal_ns: int = RENEWAL_NS


class DatabaseClient:
    """A core that turns calls (`requests.py`) into records and messages. It needs no journal.

    Its number, the first part of its transaction ids, is drawn from `rng`: each incarnation needs another generator, or
    the continued generator of the one before.
    """

    def __init__(self, config: DatabaseConfig, journals: Mapping[str, Journal], rng: Random) -> None:
        self.config = config
        self._context = context = ClientContext(config.log, rng)
        order = StickySegmentPolicy(rng)
        self.log = LogAdapter(config.build_log, replace(config.log, policy=ByObject(order)), rng, context)
        self.queries = queries = QueryClient(context, config.servers)
        queries.saw(config.session)
        self.leases = Leases(context, config.servers, config.renewal_ns)
        self._compactions = compactions = CompactionClient(context, queries)
        self.commits = CommitClient(
            context,
            self.log,
            queries,
            config.placement,
            config.hedge_ns,
            config.max_copies,
            config.transaction_bytes,
            self.leases,
            order,
        )
        self.turns = TurnClient(context, queries)
        reads = ReadClient(context, self.log, queries, config.keys_per_read)
        self._calls: dict[type, Callable[[int, Any], None]] = {
            calls.Get: reads.get,
            calls.Scan: reads.scan,
            calls.MultiScan: reads.multi_scan,
            calls.History: reads.history,
            calls.Version: reads.version,
            calls.Oldest: reads.oldest,
            calls.AtTime: reads.at_time,
            calls.RecordAt: reads.record_at,
            calls.Pins: reads.pins,
            calls.Pin: reads.pin,
            calls.Measure: reads.measure,
            calls.Aborted: reads.aborted,
            calls.ColdCommits: reads.cold_commits,
            calls.ColdValue: reads.cold_value,
            calls.Outcome: reads.outcome,
            calls.NewId: self._new_id,
            calls.TakeTurn: self.turns.take_turn,
            calls.Commit: self._commit,
            calls.Settle: self.commits.settle,
            calls.LeaseVersion: self._lease,
            calls.Compact: compactions.compact,
            calls.SetServers: self._set_servers,
            **dict.fromkeys(calls.FOLLOWING, self._call_log),
        }
        handlers: dict[type, Callable[[Any, Address], None]] = {
            messages.Answers: self.queries.answers,
            messages.Busy: self.queries.busy,
            messages.Recalling: self.queries.recalling,
            messages.Verdicts: self.commits.verdicts,
            messages.Compacting: compactions.on_reply,
            messages.Compacted: compactions.on_reply,
        }
        self._handlers = handlers

    @property
    def session(self) -> int:
        """The newest version that this client has seen."""
        return self.queries.session

    # ---- events

    def start(self, now: int) -> list[Effect]:
        self._context.now = now
        self.log.start()
        return self._context.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
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
            self.queries.lost(event.peer)
            self.commits.lost(event.peer)
            self._compactions.lost(event.peer)
            self.log.received(event)
        return self._context.effects()

    def check_invariants(self) -> None:
        """Check the invariants of the parts. Raises AssertionError."""
        self.log.check_invariants()
        self.queries.check_invariants()
        self.commits.check_invariants()
        self.turns.check_invariants()
        self.leases.check_invariants()

    def _call_log(self, call: int, request: Any) -> None:
        self._context.open(call, None, lambda: None)
        self.log.call(request, lambda result: self._context.answer(call, result))

    def _commit(self, call: int, request: calls.Commit) -> None:
        self.commits.commit(call, request)
        if request.holder is not None:
            self.turns.has_sent(request.holder)

    def _lease(self, call: int, request: calls.LeaseVersion) -> None:
        self._context.open(call, None, lambda: None)
        self.leases.set(request.holder, request.version)
        if request.version is None:
            self.turns.end(request.holder)
        self._context.answer(call, None)

    def _set_servers(self, call: int, request: calls.SetServers) -> None:
        self._context.open(call, None, lambda: None)
        former = self.queries.server
        self.queries.use(request.servers)
        self.leases.use(request.servers)
        if self.queries.server != former:
            self.commits.lost(former)
        self._context.answer(call, None)

    def _new_id(self, call: int, request: calls.NewId) -> None:
        self._context.open(call, None, lambda: None)
        self._context.answer(call, self.commits.new_id())
