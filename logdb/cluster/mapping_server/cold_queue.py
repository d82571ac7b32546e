"""Reads of a mapping server that its cold tier answers: one after another, beside all other work of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from logdb.cluster.mapping_server.config import MappingConfig
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import (
    AtTime,
    Busy,
    ColdCommits,
    ColdValue,
    Get,
    History,
    MultiScan,
    Oldest,
    Question,
    Read,
    Recalling,
    Result,
    Scan,
    Version,
    Versions,
    VersionTrimmedReply,
)
from logdb.cores.context import ClientContext
from logdb.cores.effects import Address, Recall, Recalled

MAX_WAITING: Final = 64
"""Maximum number of reads of one client that wait for the tier; further ones are answered with Busy."""
OF_THE_TIER: Final = (AtTime, ColdCommits, ColdValue, Get, History, MultiScan, Scan, Version)
"""Questions that the tier answers where the replica has no version."""


class ParkedRead(NamedTuple):
    """A read that has not been answered yet. `received_at`: in ns. `size`: of the read in memory, in bytes."""

    client: Address
    read: Read
    received_at: int
    size: int = 0


class WaitingRead(NamedTuple):
    """A read that waits for the tier. `version`: of the answer; `at`: the version to read."""

    parked: ParkedRead
    version: int
    at: int
    question: Question


class ColdQueue:
    """DBS-21: what this server cannot read itself is read from the segments that its log states, or is an error.

    A server without access (`config.has_cold_tier`) refuses these versions. Reads that were not sent again for
    `config.request_ttl_ns` are dropped. `put` sends an answer.
    """

    def __init__(
        self,
        context: ClientContext,
        replica: Replica,
        put: Callable[[ParkedRead, int, Result], None],
        config: MappingConfig,
    ) -> None:
        self._context, self._replica, self._put = context, replica, put
        self._has_cold_tier, self._ttl_ns = config.has_cold_tier, config.request_ttl_ns
        self._max_bytes = config.answer_bytes
        # By client and number of the read.
        self._waiting: dict[tuple[Address, int], WaitingRead] = {}
        # The one under way, as it was when it began: a read that is sent again takes a newer version from the replica.
        self._reading: WaitingRead | None = None
        self._number = 0

    def waiting(self) -> Iterator[ParkedRead]:
        """The reads that have not been answered."""
        return (waiting.parked for waiting in self._waiting.values())

    def of(self, parked: ParkedRead, version: int, result: Result) -> Result | None:
        """The answer to a read at `version`, for which the replica has `result`; None: it will be put later."""
        cold, floor, question = self._replica.cold, self._replica.coordinator.floor, parked.read.question
        if not self._has_cold_tier or cold is None or not cold.copied.number or not cold.has_base:
            return result  # the tier has no version before the floor
        at = version
        if isinstance(question, History) and isinstance(result, Versions):
            if result.versions or not floor:
                return result._replace(more=bool(floor) or result.more)  # the next page has what was before the floor
            at = min(version, floor)
        elif isinstance(question, Oldest):
            if not question.in_cold_tier or not floor:
                return result
        elif not isinstance(result, VersionTrimmedReply) or not isinstance(question, OF_THE_TIER):
            return result
        elif isinstance(question, AtTime) and version >= self._replica.cleaned:
            question = Version()  # the log has the record, and so the exact version
        self._wait(parked, WaitingRead(parked, version, at, question))
        return None

    def _wait(self, parked: ParkedRead, waiting: WaitingRead) -> None:
        client, number = parked.client, parked.read.number
        is_new = (client, number) not in self._waiting
        if is_new and sum([of == client for of, _ in self._waiting]) >= MAX_WAITING:
            self._context.send(client, Busy((number,)))
            return
        self._waiting[client, number] = waiting
        self._context.send(client, Recalling((number,)))
        self._begin_next()

    def _begin_next(self) -> None:
        """Have the oldest read answered, unless one is under way."""
        cold, late = self._replica.cold, self._context.now - self._ttl_ns
        while self._reading is None and self._waiting:
            name, waiting = next(iter(self._waiting.items()))
            if cold is None or waiting.parked.received_at <= late:
                del self._waiting[name]
                continue
            self._reading, self._number = waiting, self._context.next_number()
            segments, through = cold.copied[:2]
            recall = Recall(self._number, cold.log_id, segments, through, waiting.at, waiting.question, self._max_bytes)
            self._context.out.append(recall)

    def on_recalled(self, event: Recalled) -> None:
        """The tier has answered."""
        if self._reading is None or event.number != self._number:
            return
        waiting, self._reading = self._reading, None
        del self._waiting[waiting.parked.client, waiting.parked.read.number]
        version = waiting.version if event.version and event.version == waiting.at else event.version
        self._put(waiting.parked, version, event.result)
        self._begin_next()
