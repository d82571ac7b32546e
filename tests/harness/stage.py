"""Scripted mapping servers and clients of the database: the test takes the place of the log and of the network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from logdb.cluster import messages
from logdb.cluster.client.database_client import DatabaseClient, DatabaseConfig
from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.server import MappingServer
from logdb.cluster.messages import Consistency, Read, Reads
from logdb.cores.effects import SECOND, Address, Archive, Disconnected, Recall, Received
from logdb.log import requests as log
from logdb.log.contract import Batch, LogRecord, NotOfThisShard, Record, Trimmed
from logdb.log.requests import ClientConfig, ShardState
from logdb.store.key_map import KeyMap
from logdb.store.records import COMMIT, VALUE, Commit, Condition, Fold, Range, Value, encode_commit
from tests.harness.script import Script

Kind = TypeVar("Kind")
START = 1_000 * SECOND
LINEARIZABLE, SESSION, SNAPSHOT = Consistency
ITSELF = messages.VersionReply()


def log_config(address: str) -> ClientConfig:
    return ClientConfig(address, ("o1",))


class Shard(NamedTuple):
    """A shard without servers."""

    shard: int
    state: ShardState
    members: tuple[()] = ()
    joining: tuple[()] = ()
    replaced: tuple[()] = ()
    holders: tuple[()] = ()


class Configured(NamedTuple):
    """The configuration of the log."""

    version: int
    shards: tuple[Shard, ...]
    next_shard: int
    oldest: int
    spares: tuple[()] = ()


class Line:
    """A log client that only collects requests, until the test answers them. `lost`: the servers whose loss was
    reported to it."""

    def __init__(self, *_: Any) -> None:
        self.requests: list[tuple[Any, Any]] = []
        self.lost: list[Address] = []

    def start(self) -> None: ...
    def received(self, event: Received | Disconnected) -> None:
        if isinstance(event, Disconnected):
            self.lost.append(event.peer)

    def ring(self) -> None: ...
    def check_invariants(self) -> None: ...

    def call(self, request: Any, then: Any) -> int:
        self.requests.append((request, then))
        return len(self.requests)


def commit(
    sequence: int,
    writes: dict[bytes, Value],
    *,
    client: int = 1,
    snapshot: int = 0,
    label: str = "",
    reads: Sequence[bytes] = (),
    ranges: Sequence[Range] = (),
    conditions: Sequence[Condition] = (),
    folds: Sequence[Fold] = (),
) -> Record:
    """A commit record."""
    read = reads, ranges, conditions
    return COMMIT, encode_commit(Commit(client, sequence, writes, snapshot, label, *read, folds=folds))


def batch(first: int, *records: Record) -> Batch:
    """The delivery of these records, from `first` on, by a subscription without large values."""
    found = [LogRecord(gsn, gsn * 10, *record) for gsn, record in enumerate(records, first) if record[0] != VALUE]
    return Batch(first, first + len(records), found)


class Node(Script):
    """The script of one core; the test answers its requests to the log."""

    def __init__(self, core: MappingServer | DatabaseClient) -> None:
        self.line: Line = core.log  # type: ignore[assignment]
        super().__init__(lambda _: core, now=START, notice_types=(Archive, Recall))

    def asks_log(self, kind: type[Kind]) -> list[Kind]:
        """The open requests of that kind to the log."""
        return [request for request, _ in self.line.requests if isinstance(request, kind)]

    def log_answers(self, kind: type, result: Any) -> None:
        """Answer the oldest open request of that kind to the log."""
        at = next(at for at, (request, _) in enumerate(self.line.requests) if isinstance(request, kind))
        _, then = self.line.requests.pop(at)
        then(result)
        self.flush()

    def flush(self) -> None:
        """Perform the effects of the core since the log's answer."""
        effects = self.core.effects() if isinstance(self.core, MappingServer) else self.core._context.effects()
        self.perform(effects)

    @property
    def address(self) -> str:
        return self.core.config.address


class Log:
    """A scripted shared log for any number of nodes. Records are numbered from 1; those before `oldest` are
    trimmed. `step` answers one request of a node, `run` all requests of all nodes and delivers messages
    between nodes, until the only open requests wait for more of the log. `shards`: the requested shard by GSN; other
    records are on shard 1. `live`: the existing shards. `appends`: the kinds of records of each append."""

    def __init__(self, *records: Record) -> None:
        self.records = list(records)
        self.oldest = 1
        self.trims: list[int] = []
        self.appends: list[list[int]] = []
        self.shards: dict[int, int | None] = {}
        self.live = [1]
        self._feeds: dict[int, tuple[int, frozenset[int], int | None]] = {}

    @property
    def subscriptions(self) -> int:
        """The number of all that were made."""
        return len(self._feeds)

    def add(self, *records: Record) -> int:
        """Append a record. Returns the last GSN."""
        self.records += records
        return len(self.records)

    def place(self, shard: int, *records: Record) -> int:
        """Append a record to that shard."""
        first = len(self.records) + 1
        self.shards.update(dict.fromkeys(range(first, first + len(records)), shard))
        return self.add(*records)

    def home(self, gsn: int) -> int:
        """The shard of a record."""
        return self.shards.get(gsn) or 1

    def perform(self, request: Any) -> Any:
        """The answer to a request; None if it must wait."""
        tail = len(self.records)
        if isinstance(request, log.Append):
            self.appends.append([tag for tag, _ in request.records])
            gsns = [self.add(tuple(record)) for record in request.records]  # type: ignore[arg-type]
            self.shards.update((gsn, getattr(it, "shard", None)) for gsn, it in zip(gsns, request.records, strict=True))
            return log.AppendResult(gsns, [self.home(gsn) for gsn in gsns])
        if isinstance(request, log.View):
            shards = tuple(Shard(shard, ShardState.LIVE) for shard in self.live)
            return Configured(1, shards, len(shards) + 1, self.oldest)
        if isinstance(request, log.Tail):
            return tail
        if isinstance(request, log.Oldest):
            return self.oldest
        if isinstance(request, log.Trim):
            self.trims.append(request.gsn)
            self.oldest = max(self.oldest, request.gsn)
            return self.oldest
        if isinstance(request, log.Read):
            if request.gsn < self.oldest:
                return Trimmed(request.gsn, self.oldest)
            if request.shard != self.home(request.gsn):
                return NotOfThisShard(request.gsn, request.shard)
            return LogRecord(request.gsn, request.gsn * 10, *self.records[request.gsn - 1])
        if isinstance(request, log.Subscribe):
            if request.gsn < self.oldest:
                return Trimmed(request.gsn, self.oldest)
            number = len(self._feeds) + 1
            self._feeds[number] = request.gsn, request.tags or frozenset(range(1, 256)), request.shard
            return number
        if isinstance(request, log.Next):
            first, tags, shard = self._feeds[request.subscription]
            if first < self.oldest:
                return Trimmed(first, self.oldest)
            if first > tail:
                return None
            self._feeds[request.subscription] = tail + 1, tags, shard
            gsns = [gsn for gsn in range(first, tail + 1) if shard in (None, self.home(gsn))]
            rest = [(gsn, self.records[gsn - 1]) for gsn in gsns]
            return Batch(first, tail + 1, [LogRecord(gsn, gsn * 10, *it) for gsn, it in rest if it[0] in tags])
        assert isinstance(request, log.Close | log.Expedite), request
        return ()

    def step(self, node: Node) -> bool:
        """Answer the oldest request of a node that can be answered. Returns whether there was one."""
        for at, (request, then) in enumerate(node.line.requests):
            result = self.perform(request)
            if result is not None:
                del node.line.requests[at]
                then(result)
                node.flush()
                return True
        return False

    def run(self, *nodes: Node) -> None:
        """Run until no node has anything to do."""
        by_address = {node.address: node for node in nodes}
        busy = True
        while busy:
            busy = False
            for node in nodes:
                while node.stopped is None and self.step(node):
                    busy = True
                node.wait()
                sent, node.sent = node.sent, []
                for to, message in sent:
                    if to in by_address:
                        by_address[to].give(node.address, message)
                        busy = True
                    else:
                        node.sent.append((to, message))


class Server(Node):
    """A mapping server to which the test delivers the log."""

    core: MappingServer

    def __init__(
        self,
        *records: Record,
        on: Log | None = None,
        name: str = "m1",
        seed: int = 1,
        key_map: KeyMap | None = None,
        is_behind: bool = False,
        **config: Any,
    ) -> None:
        """`is_behind`: the test delivers the log step by step, from its beginning."""
        settings = replace(MappingConfig(name, log_config(name), Line), **config)
        with mock.patch("logdb.cluster.mapping_server.server.LogAdapter", Line):
            super().__init__(MappingServer(settings, {}, random.Random(seed), key_map))
        self.reads = 0
        if on is not None:
            on.run(self)
        elif not settings.peers and not is_behind:
            self.subscribed()
        if records:
            self.show(*records)

    @property
    def applied(self) -> int:
        return self.core.replica.applied

    def subscribed(self) -> None:
        """Answer the server's subscription."""
        assert self.asks_log(log.Subscribe)[0].gsn == self.applied + 1
        self.log_answers(log.Subscribe, 1)

    def show(self, *records: Record) -> None:
        """Deliver the next records of the log."""
        self.log_answers(log.Next, batch(self.applied + 1, *records))

    def read(self, question: Any, consistency: Consistency = SESSION, version: int = 0, sender: str = "client") -> int:
        """Deliver a read. Returns its number."""
        self.reads += 1
        self.give(sender, Reads((Read(self.reads, consistency, version, question),)))
        return self.reads

    def read_answers(self) -> dict[int, tuple[int, Any]]:
        """(version, result) by number of the reads that were answered since the last call."""
        return {
            answered.number: (answered.version, answered.result)
            for _, message in self.take(messages.Answers)
            for answered in message.answers
        }

    def ask(self, question: Any, consistency: Consistency = SESSION, version: int = 0) -> Any:
        """The result of a read that can be answered at once."""
        number = self.read(question, consistency, version)
        return self.read_answers()[number][1]


class Client(Node):
    """A client of two mapping servers, which prefers m1."""

    core: DatabaseClient

    def __init__(self, **config: Any) -> None:
        settings = replace(DatabaseConfig("client", ("m1", "m2"), log_config("client"), Line), **config)
        with mock.patch("logdb.cluster.client.database_client.LogAdapter", Line):
            super().__init__(DatabaseClient(settings, {}, random.Random(1)))
        self.core.queries.server = "m1"

    def reads(self) -> list[tuple[str, Read]]:
        """(to, read) of its requests since the last call."""
        self.wait()
        return [(to, read) for to, message in self.take(Reads) for read in message.reads]

    def answer(self, number: int, version: int, result: Any = ITSELF, sender: str = "m1") -> None:
        self.give(sender, messages.Answers((messages.Answered(number, version, result),)))

    def decide(
        self, txn: Any, version: int, verdict: Any, winner: str = "", sender: str = "m1", is_contended: bool = False
    ) -> None:
        decided = messages.Decided(*txn, version, verdict, winner, is_contended)
        self.give(sender, messages.Verdicts((decided,)))
