"""CPU time of the client of a Scalog log: for each record that is appended, acknowledged, or read in a subscription.

The client alone, its messages answered at once by this loop; the garbage collector is on, as in a program.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from logdb.cores.effects import Answer, Call, Effect, Received, Send
from logdb.log import requests as calls
from logdb.log.contract import LogRecord
from logdb.log.requests import ClientConfig, ShardState
from logdb.log.scalog.client.log_client import LogClient
from logdb.log.scalog.messages import (
    Append,
    Appended,
    Member,
    Pull,
    Pulled,
    Segment,
    ShardConfig,
    View,
    ViewRequest,
    ViewResponse,
)
from logdb.log.scalog.records import wrap


class ClientCost(NamedTuple):
    """Microseconds of CPU for a record."""

    append_us: float
    small_append_us: float
    subscribe_us: float


def client_cost(batches: int = 3_000, records: int = 100, bytes: int = 100) -> ClientCost:
    """Appends of this number of records in one call, the same records in calls of one each (several of which share a
    batch), and a subscription that receives them."""
    return ClientCost(
        append_us=_appends(batches, records, bytes),
        small_append_us=_small_appends(batches // 10, records, bytes),
        subscribe_us=_subscription(batches, records, bytes),
    )


def _appends(batches: int, records: int, bytes: int) -> float:
    client = _client()
    append = calls.Append([(1, b"x" * bytes)] * records)
    gsn, started = 1, time.process_time_ns()
    for call in range(batches):
        message = _sent(client.handle(Call(call, append), call), Append)
        ranges = ((message.sequence, records, gsn),)
        effects = client.handle(Received("s1", Appended(message.client, message.segment, ranges, False)), call)
        assert type(effects[0]) is Answer
        gsn += records
    return (time.process_time_ns() - started) / 1e3 / (batches * records)


def _small_appends(batches: int, records: int, bytes: int) -> float:
    client = _client()
    append = calls.Append([(1, b"x" * bytes)])
    gsn = call = answered = 0
    message = _sent(client.handle(Call(call, append), 0), Append)
    started = time.process_time_ns()
    for now in range(batches):
        for _ in range(records):
            call += 1
            client.handle(Call(call, append), now)
        ranges = ((message.sequence, len(message.records), gsn),)
        gsn += len(message.records)
        effects = client.handle(Received("s1", Appended(message.client, message.segment, ranges, False)), now)
        answered += sum([type(effect) is Answer for effect in effects])
        message = _sent(effects, Append)
    assert answered == call - records + 1
    return (time.process_time_ns() - started) / 1e3 / (batches * records)


def _subscription(batches: int, records: int, bytes: int) -> float:
    client = _client()
    stored = wrap(1, 1, [(1, b"x" * bytes)] * records)
    client.handle(Call(0, calls.Subscribe(1)), 0)
    pull = _sent(client.handle(Call(1, calls.Next(0)), 0), Pull)
    spent = 0
    for call in range(2, batches + 2):
        found = [LogRecord(gsn, 0, tag, payload) for gsn, (tag, payload) in enumerate(stored, pull.gsn)]
        end = pull.gsn + records
        answer = Pulled(pull.request, 1, pull.gsn, end, ((pull.gsn, records),), False, found)
        started = time.process_time_ns()
        effects = client.handle(Received("s1", answer), 0)
        client.handle(Call(call, calls.Next(0)), 0)
        spent += time.process_time_ns() - started
        assert type(effects[0]) is Answer
        pull = _sent(effects, Pull)
    return spent / 1e3 / (batches * records)


def _client() -> LogClient:
    """A client of a log with one server."""
    client = LogClient(ClientConfig("client", ("o1",), coalesce_calls=False), {}, random.Random(1))
    question = _sent(client.start(0), ViewRequest)
    shard = ShardConfig(1, 1, ShardState.LIVE, 1, (Member(1, "s1"),), (Segment(1, 1, 1, None),), "")
    client.handle(Received("o1", ViewResponse(question.request, View(1, (shard,), 2, 1, (), ()))), 0)
    return client


def _sent(effects: Sequence[Effect], kind: type) -> Any:
    """The sent message of that kind."""
    for effect in effects:
        if type(effect) is Send and type(effect.message) is kind:
            return effect.message
    raise AssertionError(f"no {kind} is sent")


if __name__ == "__main__":
    print(client_cost())
