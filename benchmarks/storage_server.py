"""CPU time of a record in the storage servers: a primary and one backup, in this process, without a disk.

Messages are passed as objects, and every write counts as durable at once. After a fixed number of appends a link orders
the records that are durable on both. Only time in the cores counts, not in the code that replaces their hosts.
"""

from __future__ import annotations

import random
from time import process_time_ns

from logdb.cores.effects import SECOND, Create, Effect, Journal, Persist, Persisted, Received, Send, TimerFired
from logdb.log.requests import ShardState
from logdb.log.scalog.config import StorageConfig
from logdb.log.scalog.messages import (
    Append,
    Appended,
    Member,
    Range,
    Register,
    RegistrationReply,
    Segment,
    ShardConfig,
    ShardCut,
    Update,
)
from logdb.log.scalog.storage.server import StorageServer

PRIMARY, BACKUP, LEADER, CLIENT = "primary", "backup", "leader", "client"
Event = Received | Persisted | TimerFired


class Pair:
    """The two servers, and the work that they have given each other. `cores_ns`: what they took."""

    def __init__(self) -> None:
        self.now = SECOND
        self.cores_ns = 0
        self.answered = 0
        self._tokens: dict[str, int] = {}
        journals: dict[str, Journal] = {}
        self._servers = {
            address: StorageServer(StorageConfig(address, (LEADER,)), journals, random.Random(address))
            for address in (PRIMARY, BACKUP)
        }
        for address, server in self._servers.items():
            self._perform(address, server.start(self.now))
        members = (Member(1, PRIMARY), Member(2, BACKUP))
        segments = (Segment(1, 1, 1, None), Segment(2, 2, 1, None))
        config = ShardConfig(1, 1, ShardState.LIVE, 2, members, segments, "")
        for member in members:
            you = RegistrationReply(
                self._tokens[member.address], member.server, False, Update(1, 1, config, (), 0, 0, 1)
            )
            self.give(member.address, you, LEADER)
        for _ in range(20):
            self.now += SECOND // 10
            for address in self._servers:
                self._handle(address, TimerFired("tick"))

    def give(self, address: str, message: object, sender: str) -> None:
        """Let a server handle a message, and then the servers to which it sends messages."""
        self._handle(address, Received(sender, message))

    def _handle(self, address: str, event: Event) -> None:
        server = self._servers[address]
        begin = process_time_ns()
        effects = server.handle(event, self.now)
        self.cores_ns += process_time_ns() - begin
        self._perform(address, effects)

    def _perform(self, address: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                if effect.to in self._servers:
                    self.give(effect.to, effect.message, address)
                elif isinstance(effect.message, Appended):
                    self.answered += sum(count for _, count, _ in effect.message.ranges)
                elif isinstance(effect.message, Register):
                    self._tokens[address] = effect.message.token
            elif isinstance(effect, Persist):
                self._handle(address, Persisted(effect.journal, effect.first + len(effect.records)))
            else:
                assert not isinstance(effect, Create) or effect.first == 1


def microseconds_per_record(
    batches: int = 2000, batch_records: int = 100, record_bytes: int = 100, batches_per_cut: int = 10
) -> float:
    """CPU time of a primary and one backup together for each record that is appended, replicated, ordered, answered."""
    pair = Pair()
    records = [(1, bytes(record_bytes))] * batch_records
    pair.cores_ns = 0
    lsn, number = 1, 0
    for batch in range(batches):
        first = 1 + batch * batch_records
        pair.give(PRIMARY, Append(7, first, max(0, first - 10 * batch_records), 1, records), CLIENT)
        if batch % batches_per_cut == batches_per_cut - 1:
            pair.now += SECOND // 1000
            count = first + batch_records - lsn
            link = ShardCut(number + 1, number, pair.now, (Range(1, lsn, count, lsn),))
            lsn, number = lsn + count, number + 1
            for address in (PRIMARY, BACKUP):
                pair.give(address, Update(1, 1, None, (link,), number, lsn - 1, 1), LEADER)
    assert pair.answered == lsn - 1
    return pair.cores_ns / 1000 / (lsn - 1)
