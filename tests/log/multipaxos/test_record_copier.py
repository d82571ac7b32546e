"""The copy of the records that a replica lacks: when its requests are repeated, and which responses count."""

from __future__ import annotations

import random

from logdb.cores.effects import Effect, Persist, Send, SetTimer
from logdb.log.contract import LogRecord
from logdb.log.multipaxos.config import ReplicaConfig
from logdb.log.multipaxos.messages import Copying, Pull, Pulled, ReadError, ReadFailed
from logdb.log.multipaxos.record_copier import RecordCopier
from logdb.log.multipaxos.record_store import RecordStore

REPLICAS = ("r:1", "r:2", "r:3")


class Copy:
    """The copy of a replica that lacks the records 1 to 9."""

    def __init__(self) -> None:
        self.out: list[Effect] = []
        self.store = RecordStore({}, self.out, cache_bytes=0)
        self.store.reset(10)
        self.copier = RecordCopier(ReplicaConfig("r:1", REPLICAS), self.store, self.out, random.Random(1))
        self.copier.look(1, now=0)

    def pulls(self) -> list[tuple[str, Pull]]:
        return [
            (sent.to, sent.message) for sent in self.out if isinstance(sent, Send) and isinstance(sent.message, Pull)
        ]

    def fire(self) -> None:
        """Let the timer fire that was set last."""
        self.copier.on_timer([effect.at for effect in self.out if isinstance(effect, SetTimer)][-1])


def pulled(request: Pull) -> Pulled:
    return Pulled(request.request, 1, 2, [LogRecord(1, 0, 1, b"large")])


def test_a_response_that_takes_longer_than_the_pause_counts_and_is_not_requested_all_the_time() -> None:
    """Else a record that takes longer would never be copied, and the others would send it without end."""
    copy = Copy()
    for _ in range(20):
        copy.fire()
    assert 1 < len(copy.pulls()) < 6
    assert {to for to, _ in copy.pulls()} == {"r:2", "r:3"}
    reports = [sent for sent in copy.out if isinstance(sent, Send) and isinstance(sent.message, Copying)]
    assert len(reports) == 2 * 21
    copy.copier.on_pulled(pulled(copy.pulls()[0][1]), now=10**10)
    assert [effect.records for effect in copy.out if isinstance(effect, Persist)] == [[(1, b"large")]]


def test_a_replica_without_the_records_is_not_waited_for() -> None:
    copy = Copy()
    for _ in range(20):
        copy.fire()
    asked = len(copy.pulls())
    copy.copier.on_failed(ReadFailed(copy.pulls()[0][1].request, ReadError.MISSING, 1, ""))
    copy.fire()
    assert len(copy.pulls()) == asked + 1
