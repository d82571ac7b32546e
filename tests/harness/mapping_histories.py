"""Logs of databases with transactions of every outcome, and compactions of them, for `tests.harness.stage`."""

from __future__ import annotations

import random

import logdb
from logdb.cluster.mapping_server.replica import Replica
from logdb.cluster.messages import Compact, Compacted
from logdb.cores.effects import SECOND
from logdb.log.contract import Record
from logdb.store.records import DECISION, PIN, VALUE, Place, digest, encode_decision, encode_pin
from tests.harness.stage import Log, Server, batch, commit

LARGE = b"x" * 5_000
"""A value in a record of its own."""


def some_history(seed: int, records: int) -> list[Record]:
    """Commits of every outcome, sent repeatedly, with large values, pins and correct decision records between."""
    draw, decider, history = random.Random(seed), Replica(None, 100), list[Record]()
    for number in range(1, records + 1):
        key = b"key %d" % draw.randrange(20)
        kind = draw.randrange(12)
        record: Record = commit(number, {key: b"%d" % number})
        if kind == 0:
            record = VALUE, LARGE
        elif kind == 1 and history and history[-1][0] == VALUE:
            record = commit(number, {key: Place(number - 1, 1, len(LARGE), digest(LARGE))})
        elif kind == 2:
            record = PIN, encode_pin(f"pin {draw.randrange(3)}", draw.choice((0, number - 1)))
        elif kind == 3:
            record = DECISION, encode_decision(decider.coordinator.undeclared())
        elif kind == 4 and history:
            record = draw.choice(history)
            if record[0] != 1:
                record = commit(number, {key: None}, client=2)
        elif kind in (5, 6):
            snapshot = max(number - draw.randrange(1, 9), 0)
            record = commit(number, {key: b"read"}, client=3, reads=[key], snapshot=snapshot, label=f"label {number}")
        elif kind == 7:
            record = commit(number, {key: b"tested"}, client=4, conditions=[logdb.absent(key)])
        history.append(record)
        decider.apply(batch(number, record))
    return history


PLACE = Place(5, 1, len(LARGE), digest(LARGE))


def compacted(log: Log, *servers: Server, before: int, number: int = 1) -> Compacted:
    """Send a request to the first server, and let time pass until its answer."""
    servers[0].give("client", Compact(number, before))
    compacted = finished(log, *servers)
    assert compacted.request == number
    return compacted


def finished(log: Log, *servers: Server, max_rounds: int = 200) -> Compacted:
    for _ in range(max_rounds):
        log.run(*servers)
        found = servers[0].take(Compacted)
        if found:
            assert all(answer == found[0] for answer in found)
            return found[0][1]
        for server in servers:
            server.wait(SECOND // 10)
    raise AssertionError(f"not ended after {max_rounds} rounds")


def write(draw: random.Random, log: Log, number: int) -> None:
    """Append a transaction of any outcome, perhaps with a large value, or a pin."""
    tail, key = len(log.records), b"key %d" % draw.randrange(12)
    kind = draw.randrange(10)
    if kind == 0:
        log.add((VALUE, LARGE), *[commit(1, {})] * draw.choice((0, 0, 10, 40)))
        log.add(commit(number, {key: PLACE._replace(gsn=tail + 1)}))
    elif kind == 1:
        log.add(commit(draw.randrange(1, number + 1), {key: None}))
    elif kind == 2:
        log.add((PIN, encode_pin("pin", draw.choice((0, max(tail - 5, 1))))))
    elif kind in (3, 4):
        snapshot = max(tail - draw.randrange(1, 30), 0)
        log.add(commit(number, {key: b"read"}, client=3, reads=[key], snapshot=snapshot, label=f"label {number}"))
    elif kind == 5:
        log.add(commit(number, {key: None}, client=4, conditions=[logdb.exists(key)]))
    else:
        log.add(commit(number, {key: b"%d" % number, b"last": b"%d" % number}))


def kinds(log: Log) -> list[int]:
    return [tag for tag, _ in log.records]


def until(kind: int, log: Log, server: Server) -> None:
    """Let the server continue until the log has such a record."""
    while kind not in kinds(log):
        if not log.step(server):
            server.wait(SECOND // 10)
