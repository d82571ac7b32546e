"""The mapping server: a replica of the database that follows the log, answers reads and tells verdicts.

It holds nothing that the log does not: any number of them follow the same log, and one that is lost is replaced by an
empty one, which takes a checkpoint from another or replays. PROTOCOL.md says what it promises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain
from random import Random
from typing import Any, NamedTuple

from logdb.cluster.compaction.compactor import Compactor
from logdb.cluster.log_adapter import TIMER, LogAdapter
from logdb.cluster.mapping_server.comparison import Comparison
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.log_recovery import LogRecovery
from logdb.cluster.mapping_server.query_executor import answer, bytes_of
from logdb.cluster.mapping_server.replica import FOLLOWED, SLICE_BYTES, Replica
from logdb.cluster.mapping_server.summarizer import Summarizer
from logdb.cluster.messages import (
    Aborted,
    Answered,
    Answers,
    AtTime,
    AwaitVerdicts,
    Busy,
    Compact,
    Compare,
    Compared,
    Consistency,
    Cursor,
    Decided,
    FutureVersionReply,
    History,
    Hold,
    MapRows,
    MultiScan,
    Outcome,
    Part,
    Read,
    Reads,
    Result,
    Scan,
    Slice,
    SliceRequest,
    SliceUnavailable,
    Verdicts,
    VersionTrimmedReply,
)
from logdb.cluster.placement import ByObject
from logdb.cores.context import ClientContext, Questions, Timer
from logdb.cores.effects import Address, Effect, Event, Journal, Received, Send, Stop, TimerFired
from logdb.log import requests as calls
from logdb.log.contract import Batch, Trimmed
from logdb.store.key_map import KeyMap
from logdb.store.records import DECISION, TxnId, encode_decision

MAX_DUE = 64
"""So many pages for one client may be due; it is told to ask again for others."""
MAX_WAITING = 10_000
"""So many reads may wait: beyond that a client that has more than a quarter of them is told to ask again."""
PAGES = frozenset({Aborted, History, MultiScan, Scan})
"""Questions with long answers."""


def _no_pause() -> int:
    return 0


class ParkedRead(NamedTuple):
    """A read that cannot be answered yet. `since`: when it came."""

    address: Address
    read: Read
    since: int


class MappingServer:
    """A core. `key_map`: with a checkpoint on disk, if the host has one; else all is in memory.

    `pause_ns`: says how long to wait before the next records of the log; the host sets it, lest memory runs out.

    For whoever looks: `tail`, the newest GSN of the log that it has heard of; `answered` and `told`, how many reads
    were answered and how many verdicts pushed; `followed`: records of the log that it was given.
    """

    def __init__(
        self, config: MappingConfig, journals: Mapping[str, Journal], rng: Random, key_map: KeyMap | None = None
    ) -> None:
        self.config = config
        self.replica = Replica(key_map, config.keep_decisions)
        self._context = context = ClientContext(config.log, rng)
        self._line = LogAdapter(config.build_log, replace(config.log, policy=ByObject(config.log.policy)), rng, context)
        self.compactor = Compactor(config, context, self._line, self.replica)
        self._comparison = Comparison(context, config.peers, self.replica)
        self._summarizer = Summarizer(self._line, self.replica)
        self._questions = Questions(context)
        self.tail = self.answered = self.told = self.followed = 0
        self._subscription = 0
        self._turn = rng.randrange(8)
        self._joined: list[Part] | None = None
        self.rebuilding: LogRecovery | None = None
        self._taken = 0
        self._floor = 0
        self._oldest = 0
        # Reads: those for which the tail is being asked, those that came after, those that wait for a version.
        self._asked: list[ParkedRead] = []
        self._unasked: list[ParkedRead] = []
        self._waiting: list[tuple[int, int, ParkedRead]] = []
        self._waits: dict[TxnId, dict[Address, int]] = {}
        # Those that can be answered, by whom they are from; so many bytes may still be answered in this event.
        self._due: dict[Address, deque[ParkedRead]] = {}
        self._room = config.answer_bytes
        self._go_on = Timer(self._answer_due)
        self._tidy = Timer(self._forget_old)
        self._decide = Timer(self._look_round)
        self._is_declaring = False
        self.pause_ns: Callable[[], int] = _no_pause
        self._read_on = Timer(self._next)
        # What goes out at the end of the event, by whom it is for.
        self._answers: dict[Address, list[Answered]] = {}
        self._verdicts: dict[Address, list[Decided]] = {}
        self._messages: dict[type, Callable[[Any, Address], None]] = {
            Reads: self._reads,
            AwaitVerdicts: self._await,
            Hold: self.compactor.hold,
            Compact: self._compact,
            SliceRequest: self._give_slice,
            Slice: self._slice,
            SliceUnavailable: self._slice,
            Compare: self._compare,
            Compared: self._comparison.told,
        }

    @property
    def applied(self) -> int:
        """How far it has got in the log."""
        return self.replica.applied

    @property
    def is_joining(self) -> bool:
        """Whether it still has to get a checkpoint, and answers nothing."""
        return self._joined is not None

    @property
    def agreed(self) -> int:
        """Comparisons with its peers, of whom at least one held the same."""
        return self._comparison.agreed

    @property
    def taken(self) -> int:
        """Versions of the checkpoint that it takes, or rebuilds from the log."""
        return self._taken if self.rebuilding is None else self.rebuilding.rows

    # ---- events

    def start(self, now: int) -> list[Effect]:
        self._context.now = now
        self._line.start()
        if self.config.peers and not self.replica.applied:
            self._join()
        else:
            self._follow()
        self._context.set(self._decide, now + self._context.rng.randrange(self.config.decide_ns) + 1)
        return self._effects()

    def handle(self, event: Event, now: int) -> list[Effect]:
        """What to do about an event. Raises ProtocolViolation."""
        self._context.now = now
        self._room = self.config.answer_bytes
        if type(event) is Received:
            own = self._messages.get(type(event.message))
            if own is None:
                self._line.received(event)
            else:
                own(event.message, event.sender)
        elif type(event) is TimerFired:
            if event.name == TIMER:
                self._line.ring()
            else:
                self._context.ring()
        return self._effects()

    def _effects(self) -> list[Effect]:
        """All that has to be done, answers and verdicts in batches."""
        out = self._context.out
        for address, answers in self._answers.items():
            batch, size = [], 0
            for answered in answers:
                batch.append(answered)
                size += bytes_of(answered.result)
                if size >= self.config.answer_bytes:
                    out.append(Send(address, Answers(tuple(batch))))
                    batch, size = [], 0
            if batch:
                out.append(Send(address, Answers(tuple(batch))))
        for address, verdicts in self._verdicts.items():
            out.append(Send(address, Verdicts(tuple(verdicts))))
        self._answers, self._verdicts = {}, {}
        return self._context.effects()

    # ---- following the log

    def _follow(self) -> None:
        self._line.call(calls.Subscribe(self.replica.applied + 1, FOLLOWED), self._subscribed)

    def _subscribed(self, result: Any) -> None:
        if isinstance(result, Exception):
            self._fell_behind(result)
        else:
            self._subscription = result
            self._next()

    def _next(self) -> None:
        self._line.call(calls.Next(self._subscription), self._delivered)

    def _delivered(self, result: Any) -> None:
        if not isinstance(result, Batch):
            self._fell_behind(result)
            return
        self.followed += len(result.records)
        for txn in self.replica.apply(result):
            if txn in self._waits:
                self._tell(txn)
        self.compactor.look()
        self._serve_waiting()
        if pause_ns := self.pause_ns():
            self._context.set(self._read_on, self._context.now + pause_ns)
        else:
            self._next()

    def _fell_behind(self, why: Any) -> None:
        """The log cannot be followed from here: what comes next was trimmed, or cannot be read by anybody."""
        if isinstance(why, Trimmed) and not self.replica.applied:
            self._oldest = why.oldest
        if self._oldest and self.config.peers and not self.replica.applied:
            self._join()
        elif isinstance(why, Trimmed) and not self.replica.applied:
            self._rebuild()
        else:
            self._context.out.append(Stop(f"it cannot follow the log: {why}", wipe=isinstance(why, Trimmed)))

    def _look_round(self) -> None:
        """See whether the others hold the same, and then to what the log should be told."""
        context, decide_ns = self._context, self.config.decide_ns
        context.set(self._decide, context.now + decide_ns // 2 + context.rng.randrange(decide_ns) + 1)
        if self._joined is None:
            self.compactor.tidy()
            self._comparison.begin(self._append_decisions)

    def _compare(self, message: Compare, sender: Address) -> None:
        """Who still has to get a checkpoint has nothing to compare."""
        if self._joined is None:
            self._comparison.asked(message, sender)

    def _append_decisions(self, through: int) -> None:
        """Tell what was aborted since the last decision record. That two servers do so at once does no harm."""
        coordinator = self.replica.coordinator
        decision = coordinator.undeclared()
        if through < decision.through:
            aborted = coordinator.ledger.aborted_between(decision.after, through)
            decision = decision._replace(through=through, aborted=aborted)
        if decision.aborted and not self._is_declaring:
            self._is_declaring = True
            self._line.call(calls.Append([(DECISION, encode_decision(decision))]), self._declared)
        self._summarizer.summarize(through)

    def _declared(self, _: Any) -> None:
        """Whatever came of it: the log will tell, and what it does not tell is tried again."""
        self._is_declaring = False

    # ---- verdicts

    def _await(self, message: AwaitVerdicts, sender: Address) -> None:
        for client, sequence, gsn in message.waits:
            txn = TxnId(client, sequence)
            self._waits.setdefault(txn, {})[sender] = self._context.now
            if self._joined is None:
                self._tell(txn)
                if txn in self._waits and 0 < gsn <= self.replica.applied:
                    self._forget(txn, sender)  # it says what cannot be (DBS-6), so there is nothing to tell it, ever
        self._look_after()

    def _forget(self, txn: TxnId, who: Address) -> None:
        waiting = self._waits[txn]
        del waiting[who]
        if not waiting:
            del self._waits[txn]

    def _tell(self, txn: TxnId) -> None:
        """Push a verdict, if there is one, to all who wait for it."""
        decided = self.replica.decided(txn)
        if decided is not None:
            for address in self._waits.pop(txn):
                self.told += 1
                self._verdicts.setdefault(address, []).append(decided)

    # ---- reads

    def _reads(self, message: Reads, sender: Address) -> None:
        if self._joined is not None or self._has_too_many(sender):
            self._context.send(sender, Busy(tuple([read.number for read in message.reads])))
            return
        now, applied = self._context.now, self.replica.applied
        for read in message.reads:
            waiting = ParkedRead(sender, read, now)
            kind = type(read.question)
            if kind is AtTime:
                self._at_time(waiting)
            elif read.consistency == Consistency.LINEARIZABLE or kind is Outcome:
                self._unasked.append(waiting)
            elif read.version <= applied:
                self._when(read.applied, waiting)
            elif read.consistency == Consistency.SESSION:
                self._when(read.version, waiting)
            else:
                self._unasked.append(waiting)
        self._ask_tail()
        self._look_after()

    def _has_too_many(self, sender: Address) -> bool:
        """Whether a client has too many reads that wait."""
        due = self._due.get(sender, ())
        if len(due) + len(self._unasked) + len(self._asked) + len(self._waiting) < MAX_WAITING:
            return False
        waiting = chain(self._unasked, self._asked, (entry[2] for entry in self._waiting))
        return len(due) + sum([one.address == sender for one in waiting]) > MAX_WAITING // 4

    def _ask_tail(self) -> None:
        """One question for all reads that have come before it is put (DBS-3)."""
        if self._unasked and not self._asked:
            self._asked, self._unasked = self._unasked, []
            self._line.call(calls.Tail(), self._tail_is)

    def _tail_is(self, tail: int) -> None:
        self.tail = max(self.tail, tail)
        asked, self._asked = self._asked, []
        for waiting in asked:
            read = waiting.read
            if read.consistency == Consistency.SNAPSHOT and type(read.question) is not Outcome:
                if read.version > tail:
                    self._send(waiting, 0, FutureVersionReply(tail))
                else:
                    self._when(max(read.version, read.applied), waiting)
            else:
                self._when(max(tail, read.version), waiting)
        self._ask_tail()

    def _when(self, version: int, waiting: ParkedRead) -> None:
        """Answer a read once that version is applied."""
        if version <= self.replica.applied:
            self._answer(waiting)
        else:
            heappush(self._waiting, (version, self._context.number(), waiting))

    def _serve_waiting(self) -> None:
        queue, applied = self._waiting, self.replica.applied
        while queue and queue[0][0] <= applied:
            self._answer(heappop(queue)[2])

    def _answer(self, waiting: ParkedRead) -> None:
        """Answer now, or in turn with those of other clients when enough has been answered in this event."""
        if self._room > 0 and not self._due:
            self._answer_now(waiting)
            return
        queue = self._due.setdefault(waiting.address, deque())
        if len(queue) >= MAX_DUE and type(waiting.read.question) in PAGES:
            self._context.send(waiting.address, Busy((waiting.read.number,)))
            return
        queue.append(waiting)
        self._context.set(self._go_on, self._context.now + 1)

    def _answer_due(self) -> None:
        """The next of each client that waits, until enough has been answered."""
        due = self._due
        if self._joined is not None:
            for address, queue in due.items():
                self._context.send(address, Busy(tuple([waiting.read.number for waiting in queue])))
            due.clear()
        while due and self._room > 0:
            address = next(iter(due))
            queue = due.pop(address)
            self._answer_now(queue.popleft())
            if queue:
                due[address] = queue
        if due:
            self._context.set(self._go_on, self._context.now + 1)

    def _answer_now(self, waiting: ParkedRead) -> None:
        read = waiting.read
        at = self.replica.applied
        if read.consistency == Consistency.SNAPSHOT and type(read.question) is not Outcome:
            at = read.version
        result = answer(self.replica, read.question, at, self.config.answer_bytes)
        self._send(waiting, 0 if type(result) is VersionTrimmedReply else at, result)

    def _send(self, waiting: ParkedRead, version: int, result: Result) -> None:
        self.answered += 1
        self._room -= bytes_of(result)
        self._answers.setdefault(waiting.address, []).append(Answered(waiting.read.number, version, result))

    def _at_time(self, waiting: ParkedRead) -> None:
        """The log knows its times; the version that it names is answered when it is applied."""
        question = waiting.read.question
        assert isinstance(question, AtTime)
        if question.time > self._context.now:
            self._send(waiting, 0, FutureVersionReply(self.replica.applied))
            return

        def told(gsn: int) -> None:
            version = waiting.read._replace(consistency=Consistency.SNAPSHOT, version=gsn)
            self._when(gsn, waiting._replace(read=version))

        self._line.call(calls.AtTime(question.time), told)

    # ---- what nobody waits for any more

    def _look_after(self) -> None:
        if self._tidy.at is None and (self._waits or self._waiting or self._unasked):
            self._context.set(self._tidy, self._context.now + self.config.request_ttl_ns)

    def _forget_old(self) -> None:
        """Who still waits has asked again by now, here or elsewhere."""
        old = self._context.now - self.config.request_ttl_ns
        self._unasked = [waiting for waiting in self._unasked if waiting.since > old]
        self._waiting = [entry for entry in self._waiting if entry[2].since > old]
        heapify(self._waiting)
        for txn, addresses in list(self._waits.items()):
            for address in [address for address, since in addresses.items() if since <= old]:
                del addresses[address]
            if not addresses:
                del self._waits[txn]
        self._look_after()

    # ---- compaction

    def _compact(self, message: Compact, sender: Address) -> None:
        """Who still has to get a checkpoint says nothing: another one is asked."""
        if self._joined is None:
            self.compactor.compact(message, sender)

    # ---- checkpoints

    def _give_slice(self, message: SliceRequest, sender: Address) -> None:
        """A part of a checkpoint. Nothing is kept for who asks: what stands at a version stays."""
        request, version, cursor = message
        applied = self.replica.applied
        version = version or applied
        if self._joined is not None or not 0 < version <= applied:
            self._context.send(sender, SliceUnavailable(request))
            return
        part, following = self.replica.slice(version, cursor, min(self.config.answer_bytes, SLICE_BYTES))
        self._context.send(sender, Slice(request, version, self.replica.coordinator.floor, part, following))

    def _join(self) -> None:
        """Begin to take a checkpoint."""
        self._joined, self.rebuilding, self._taken = [], None, 0
        self._ask_slice(0, None)

    def _ask_slice(self, version: int, cursor: Cursor | None) -> None:
        peers, number = self.config.peers, self._context.number()

        def where(attempt: int) -> Address | None:
            if attempt:
                self._turn += 1
            if attempt >= self.config.join_attempts * len(peers):
                self._questions.drop(number)
                self._give_up()
                return None
            return peers[self._turn % len(peers)]

        def answered(message: Slice | SliceUnavailable, sender: Address) -> int | None:
            if isinstance(message, SliceUnavailable):
                return self._context.backoff(1)
            self._questions.drop(number)
            self._take(message, cursor)
            return None

        self._questions.ask(number, SliceRequest(number, version, cursor), where, answered)

    def _slice(self, message: Slice | SliceUnavailable, sender: Address) -> None:
        self._questions.answer(message.request, message, sender)

    def _take(self, slice_: Slice, cursor: Cursor | None) -> None:
        """DBS-9: all parts are of one version and of servers with one floor, or it begins anew."""
        assert self._joined is not None
        if cursor is None:
            self._floor = slice_.floor
            self._joined.clear()
            if not self._drop_taken():
                return
        elif slice_.floor != self._floor:
            self._join()
            return
        if isinstance(slice_.part, MapRows):
            self.replica.take_in(slice_.part)
            self._taken += len(slice_.part.rows)
        else:
            self._joined.append(slice_.part)
        if slice_.next is not None:
            self._ask_slice(slice_.version, slice_.next)
            return
        self._install(slice_.version, self._joined)

    def _install(self, version: int, parts: list[Part]) -> None:
        self.replica.install(version, parts)
        self._taken = self.taken
        self._joined = self.rebuilding = None
        self._follow()
        for txn in list(self._waits):
            self._tell(txn)
        self._serve_waiting()

    def _give_up(self) -> None:
        """Nobody has a checkpoint: the log has it all."""
        if self._oldest:
            self._rebuild()
        elif self._drop_taken():
            self._joined = None
            self._follow()

    def _rebuild(self) -> None:
        """The log's beginning was trimmed: what a compaction has written stands for it."""
        if self._drop_taken():
            self._joined = []
            self.rebuilding = LogRecovery(
                self._line, self._context, self.replica, self._oldest, self._install, self._fell_behind
            )

    def _drop_taken(self) -> bool:
        """What was taken of a checkpoint, and did not become a whole one, is of no use. If it is on disk already the
        host begins anew."""
        if not self.replica.forget():
            self._context.out.append(Stop("what it had taken of a checkpoint is of no use any more", wipe=True))
            return False
        return True

    def check_invariants(self) -> None:
        """DBS-1 to DBS-3 and DBS-9, as far as they can be seen from here in no time."""
        self._line.check_invariants()
        self.replica.check_invariants()
        assert not self._unasked or self._asked, "DBS-3: reads wait, and nobody asks for the tail"
        assert not self._waiting or self._waiting[0][0] > self.replica.applied, "a read waits for what is applied"
        assert self._joined is None or not self.replica.applied, "DBS-9: it follows the log while it takes a checkpoint"
