"""Copies the records that a replica lacks from other replicas, after a snapshot and after the loss of a disk."""

from __future__ import annotations

from random import Random
from typing import Final

from logdb.cores.effects import CancelTimer, Effect, ProtocolViolation, Send, SetTimer
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.messages import Copying, Pull, Pulled, ReadFailed
from logdb.log.multipaxos.record_store import RecordStore

COPY: Final = "multipaxos.copy"
MAX_DOUBLINGS: Final = 6
"""The pause before a request is repeated doubles this often: a response is large, and may take long."""


class RecordCopier:
    """Requests the records of the first gap from one replica after another, a batch at a time, and the next batch when
    that one is durable. `is_complete`: all records are durable."""

    def __init__(self, config: ReplicaConfig, store: RecordStore, out: list[Effect], rng: Random) -> None:
        self._config, self._store, self._out = config, store, out
        self._others = [replica for replica in config.replicas if replica != config.address]
        self._turn = rng.randrange(len(config.replicas))
        self._number = rng.getrandbits(62)
        self._requested = self._requested_at = self._doublings = 0
        self._oldest = 1
        self._awaited = 0
        self.is_complete = True

    def look(self, oldest: int, now: int) -> None:
        """The state was replaced or trimmed: look for gaps."""
        self._oldest = oldest
        if self.is_complete and self._store.missing(oldest) is not None:
            self.is_complete = False
            self._ask(now)

    def _ask(self, now: int) -> None:
        gap = self._store.missing(self._oldest)
        if gap is None:
            self._finish(now)
            return
        first, end = gap
        for replica in self._others:
            self._out.append(Send(replica, Copying(end - first)))
        self._out.append(SetTimer(COPY, now + self._config.copy_ns))
        if first != self._requested:
            self._number += 1
        elif now >= self._requested_at + (self._config.copy_ns << self._doublings):
            self._turn += 1
            self._doublings = min(MAX_DOUBLINGS, self._doublings + 1)
        else:
            return
        self._requested, self._requested_at = first, now
        if self._others:
            peer = self._others[self._turn % len(self._others)]
            self._out.append(Send(peer, Pull(self._number, first, None, self._config.batch_bytes)))

    def _finish(self, now: int) -> None:
        """Complete the copy, in which no record is missing, as soon as the copied records are durable."""
        if not self._store.is_durable(self._oldest, self._store.flushed):
            self._out.append(SetTimer(COPY, now + self._config.copy_ns))
            return
        self.is_complete = True
        self._out.append(CancelTimer(COPY))
        for replica in self._others:
            self._out.append(Send(replica, Copying(0)))

    def on_pulled(self, message: Pulled, now: int) -> None:
        """Store received records."""
        gap = self._store.missing(self._oldest)
        if message.request != self._number or gap is None or message.first != gap[0]:
            return
        first, end = gap
        if len(message.records) != message.end - message.first:
            raise ProtocolViolation(f"MPX-5: {len(message.records)} records for {message.first} to {message.end - 1}")
        records = [(tag, payload) for _, _, tag, payload in message.records[: end - first]]
        self._store.store(first, records)
        self._doublings = max(0, self._doublings - 1)
        self._awaited = first + len(records)

    def on_persisted(self, now: int) -> None:
        """Continue when the last batch is durable."""
        if self._awaited and self._store.is_durable(self._awaited - 1, self._awaited):
            self._awaited = 0
            self._ask(now)

    def on_failed(self, message: ReadFailed) -> None:
        """The replica does not have these records: the next timer sends the request to another one."""
        if message.request == self._number:
            self._doublings = 0

    def on_timer(self, now: int) -> None:
        """Report that records are missing. If none have arrived in time, send the request to another replica, under its
        number: the response to each attempt counts."""
        self._ask(now)
