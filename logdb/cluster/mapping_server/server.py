"""The mapping server: a replica of the database that follows the log, answers reads and pushes verdicts.

Its state follows from the log: any number of servers follow the same log, and a lost server is replaced by an empty
one, which takes a checkpoint from another server or replays the log. PROTOCOL.md describes its guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from logdb.cluster.compaction.compactor import Compactor
from logdb.cluster.log_adapter import TIMER, LogAdapter
from logdb.cluster.mapping_server.answer_queue import AnswerQueue
from logdb.cluster.mapping_server.bootstrap import Bootstrap
from logdb.cluster.mapping_server.comparison import Comparison
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.contention_queue import ContentionQueue
from logdb.cluster.mapping_server.decision_writer import DecisionWriter
from logdb.cluster.mapping_server.log_follower import LogFollower
from logdb.cluster.mapping_server.read_queue import ReadQueue
from logdb.cluster.mapping_server.replica import DecidedCommit, Replica
from logdb.cluster.mapping_server.summarizer import Summarizer
from logdb.cluster.mapping_server.sweeper import RetentionSweeper
from logdb.cluster.mapping_server.verdict_subscriptions import VerdictSubscriptions
from logdb.cluster.messages import (
    AwaitVerdicts,
    Compact,
    Compare,
    Compared,
    EndTurn,
    Hold,
    Reads,
    Slice,
    SliceRequest,
    SliceUnavailable,
)
from logdb.cluster.placement import ByObject
from logdb.cores.context import ClientContext, Timer
from logdb.cores.effects import (
    Address,
    Archived,
    Disconnected,
    Effect,
    Event,
    Journal,
    Recalled,
    Received,
    TimerFired,
)
from logdb.store.key_map import KeyMap
from logdb.store.records import TxnId


class MappingServer:
    """A core that routes events to its parts, each with a state of its own.

    `key_map`: with a checkpoint on disk, if the host has one; else everything is in memory.
    """

    def __init__(
        self, config: MappingConfig, journals: Mapping[str, Journal], rng: Random, key_map: KeyMap | None = None
    ) -> None:
        self.config = config
        self._context = context = ClientContext(config.log, rng)
        self.log = log = LogAdapter(
            config.build_log, replace(config.log, policy=ByObject(config.log.policy)), rng, context
        )
        self.replica = replica = Replica(key_map, config.keep_decisions)
        self.answers = AnswerQueue(context, replica, config)
        self.bootstrap = Bootstrap(context, log, replica, config, self.answers.suspend, self._on_state)
        self.follower = LogFollower(context, log, replica, self._on_applied, self.bootstrap.on_log_failed)
        self.contention = ContentionQueue(context, self.answers)
        self.reads = ReadQueue(context, log, replica, self.answers, self.contention, config.request_ttl_ns)
        self.verdicts = VerdictSubscriptions(context, replica, config.request_ttl_ns)
        self.compactor = Compactor(config, context, log, replica)
        self.sweeper = RetentionSweeper(config, context, log, replica)
        self.comparison = Comparison(context, config.peers, replica)
        self._decisions = DecisionWriter(log, replica)
        self._summarizer = Summarizer(log, replica)
        self._upkeep = Timer(self._run_upkeep)
        self._handlers: dict[type, Callable[[Any, Address], None]] = {
            Reads: self.reads.on_reads,
            AwaitVerdicts: self.verdicts.on_await,
            EndTurn: self.contention.on_end_turn,
            Hold: self.compactor.leases.on_hold,
            Compact: self._on_compact,
            SliceRequest: self.bootstrap.on_slice_request,
            Slice: self.bootstrap.on_slice,
            SliceUnavailable: self.bootstrap.on_slice,
            Compare: self.comparison.on_compare,
            Compared: self.comparison.on_compared,
        }

    # ---- events

    def start(self, now: int) -> list[Effect]:
        """Follow the log, or first get a state."""
        self._context.now = now
        self.log.start()
        self.bootstrap.start()
        self.sweeper.start()
        self._context.set_timer(self._upkeep, now + self._context.rng.randrange(self.config.decide_ns) + 1)
        return self.effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Handle an event. Raises ProtocolViolation."""
        self._context.now = now
        self.answers.begin_event()
        if type(event) is Received:
            handler = self._handlers.get(type(event.message))
            if handler is None:
                self.log.received(event)
            else:
                handler(event.message, event.sender)
        elif type(event) is TimerFired:
            if event.name == TIMER:
                self.log.ring()
            else:
                self._context.fire_timers()
        elif type(event) is Archived:
            self.compactor.on_archived(event)
        elif type(event) is Disconnected:
            self.log.received(event)
        elif type(event) is Recalled:
            self.answers.cold.on_recalled(event)
        return self.effects()

    def effects(self) -> list[Effect]:
        """The effects of the event, with its answers and verdicts in batches. If a client waits for the log, its next
        records are awaited."""
        if self.verdicts.is_awaited or self.reads.is_awaited or self.contention.is_awaited or self.sweeper.is_awaited:
            self.follower.expedite()
        self.answers.flush()
        self.verdicts.flush()
        return self._context.effects()

    # ---- coordination of the parts

    def _on_applied(self, decided: list[DecidedCommit]) -> None:
        contended = self.contention.on_decided(decided)
        self.verdicts.on_decided([TxnId(commit.client, commit.sequence) for commit, _ in decided], contended)
        self.compactor.look()
        self.sweeper.look()
        self.reads.on_applied()

    def _on_state(self) -> None:
        """The replica has a state, which may be empty, and follows the log from there."""
        self.answers.resume()
        self.follower.start()
        self.verdicts.on_installed()
        self.reads.on_applied()

    def _on_compact(self, message: Compact, sender: Address) -> None:
        """A server without a state does not answer: the client asks another one."""
        if not self.bootstrap.is_active:
            self.compactor.compact(message, sender)

    def _run_upkeep(self) -> None:
        """Compare with the other servers, then append the decisions that they confirm."""
        context, decide_ns = self._context, self.config.decide_ns
        context.set_timer(self._upkeep, context.now + decide_ns // 2 + context.rng.randrange(decide_ns) + 1)
        if not self.bootstrap.is_active:
            self.compactor.tidy()
            self.comparison.begin(self._on_confirmed)

    def _on_confirmed(self, through: int) -> None:
        self._decisions.append(through)
        self._summarizer.summarize(through)

    def check_invariants(self) -> None:
        """Check the invariants of the parts that take microseconds. Raises AssertionError."""
        self.log.check_invariants()
        self.replica.check_invariants()
        self.bootstrap.check_invariants()
        self.answers.check_invariants()
        self.reads.check_invariants()
        self.contention.check_invariants()
        self.verdicts.check_invariants()
