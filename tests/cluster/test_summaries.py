"""The history of an object, of the records of its shard alone (PROTOCOL.md, DBS-17)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

import logdb
from logdb.cluster.mapping_server import summarizer
from logdb.cluster.mapping_server.summarizer import MAX_COMMITS, ROWS_BYTES
from logdb.cluster.messages import Compact
from logdb.cluster.placement import ByHash, ByPrefix, Placement, encode_placement
from logdb.cluster.summaries import HISTORY_KINDS, ShardHistory, Summary, decode_summary, encode_summary
from logdb.cores.effects import SECOND, ProtocolViolation
from logdb.errors import Unavailable
from logdb.log.contract import LogRecord
from logdb.store.folds import ADD, MAX
from logdb.store.records import (
    BEGINNING,
    COMMIT,
    PART,
    PLACEMENT,
    SUMMARY,
    VALUE,
    Fold,
    MalformedRecord,
    Place,
    Relocated,
    Value,
    digest,
)
from tests.harness.mapping_histories import compacted, until
from tests.harness.stage import Log, Server, commit

KEYS = [b"a/%d" % number for number in range(4)] + [b"b/%d" % number for number in range(4)]
NUMBERS = [b"a/number", b"b/number"]
PLACEMENT_OF_ALL = ByPrefix({b"a/": 1, b"b/": 2})
DECIDE = SECOND
LARGE = b"large " * 1_000


def state(log: Log, placement: Placement) -> None:
    log.add((PLACEMENT, encode_placement(placement) or b""))


def write(draw: random.Random, log: Log, number: int, placement: Placement, snapshot: int) -> None:
    """Append a transaction of any outcome that writes some objects, on the shard of its first key or, like a client
    without the placement, on any shard."""
    writes: dict[bytes, Value] = {}
    for key in draw.sample(KEYS, draw.choice((1, 1, 2, 3))):
        writes[key] = draw.choice((b"%d" % number, b"%d" % number, None))
        if draw.random() < 0.2:
            shard = placement(key) or 1
            value = LARGE + b"%d" % number
            writes[key] = Place(log.place(shard, (VALUE, value)), shard, len(value), digest(value))
    folds: list[Fold] = []
    if draw.random() < 0.4:
        folds = [Fold(draw.choice((ADD, MAX)), key, number) for key in draw.sample(NUMBERS, draw.choice((1, 2)))]
        writes = draw.choice((writes, {}))
    shard = placement(next(iter(writes), folds[0].key if folds else b"")) or 1
    if draw.random() < 0.2:
        shard = 3 - shard
    fate = draw.randrange(4)
    if fate == 0:
        record = commit(draw.randrange(1, number + 1), writes, folds=folds)
    elif fate == 1:
        after = max(snapshot, len(log.records) - draw.randrange(12))
        record = commit(number, writes, reads=KEYS[:3], snapshot=after, folds=folds)
    elif fate == 2:
        record = commit(number, writes, conditions=[logdb.exists(draw.choice(KEYS))], folds=folds)
    else:
        record = commit(number, writes, folds=folds)
    log.place(shard, record)


def history_of(log: Log, key: bytes, shard: int) -> tuple[int, list[tuple[int, Value]]]:
    """The history of the key from any replica of the shard alone."""
    history = ShardHistory(key, shard)
    for gsn in range(log.oldest, len(log.records) + 1):
        tag, payload = log.records[gsn - 1]
        if log.home(gsn) == shard and tag in HISTORY_KINDS:
            history.take(LogRecord(gsn, 0, tag, payload))
    return history.versions(log.oldest)


def meant(log: Log, version: int, value: Value) -> Value:
    """A large value itself."""
    if not isinstance(value, Place):
        return value
    assert value.gsn >= log.oldest, f"DBS-13: version {version} is in the trimmed record {value.gsn}"
    return log.records[value.gsn - 1][1]


def check(log: Log, server: Server, placement: Placement) -> int:
    """Each shard has the same history of its objects as the mapping server. Returns the version up to which it has."""
    reached = []
    replica = server.core.replica
    for key in [*KEYS, *NUMBERS]:
        through, versions = history_of(log, key, placement(key) or 1)
        expected = list(replica.map.history(key, through, replica.coordinator.floor))
        assert [(version, meant(log, version, value)) for version, value in versions] == [
            (version, meant(log, version, value)) for version, value in expected
        ]
        reached.append(through)
    return min(reached)


def rest(log: Log, *servers: Server, looks: int = 3) -> None:
    for _ in range(looks):
        for server in servers:
            server.wait(2 * DECIDE)
        log.run(*servers)


def made(log: Log, name: str, seed: int, *peers: str) -> Server:
    return Server(on=log, name=name, seed=seed, decide_ns=DECIDE, keep_decisions=50, peers=peers)


def play(seed: int) -> Iterator[tuple[Log, Server, Placement]]:
    """A database with many fates, compactions and summaries at any time."""
    draw = random.Random(seed)
    placement: Placement = draw.choice((PLACEMENT_OF_ALL, ByHash((1, 2))))
    log = Log()
    log.live = [1, 2]
    for number in range(draw.randrange(5)):
        write(draw, log, number + 1, placement, 0)
    state(log, placement)
    servers = [made(log, f"m{number}", number) for number in (1, 2)]
    number = 10
    for _ in range(6):
        for _ in range(draw.randrange(8)):
            number += 1
            write(draw, log, number, placement, servers[0].core.replica.coordinator.floor)
        log.run(*servers)
        if draw.random() < 0.4:
            compacted(log, *servers, before=max(1, len(log.records) - draw.randrange(8)), number=number)
        if draw.random() < 0.2:
            killed = made(log, "m3", number)
            killed.give("client", Compact(number, len(log.records)))
            until(draw.choice((BEGINNING, PART, SUMMARY)), log, killed)
            log.run(*servers)
        if draw.random() < 0.3:
            fresh = made(log, "m2", number)
            assert fresh.core.replica.image() == servers[0].core.replica.image()
            servers[1] = fresh
        rest(log, *servers)
        yield log, servers[0], placement


SEEDS = range(20)


@pytest.mark.parametrize("most", [1, 3, MAX_COMMITS])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_shard_alone_has_the_history_of_its_objects(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summarizer, "MAX_COMMITS", most)
    for log, server, placement in play(seed):
        last = max([gsn for gsn, (tag, _) in enumerate(log.records, 1) if tag == COMMIT], default=0)
        if last:
            assert check(log, server, placement) >= last
        length = len(log.records)
        rest(log, server)
        assert len(log.records) == length, "without new facts no summary is written"


def are_caught() -> bool:
    """Whether with any seed a history is wrong or missing."""
    for seed in SEEDS:
        for log, server, placement in play(seed):
            try:
                if any(tag == COMMIT for tag, _ in log.records):
                    check(log, server, placement)
            except (AssertionError, Unavailable):
                return True
    return False


def changed(**fields: Any) -> Any:
    """An encoder of summaries that replaces some fields."""
    return mock.patch(
        "logdb.cluster.mapping_server.summarizer.encode_summary",
        lambda summary: encode_summary(summary._replace(**fields)),
    )


def test_summaries_without_the_writes_on_other_shards_are_caught() -> None:
    with changed(rows=()):
        assert are_caught()


def test_summaries_without_the_values_of_folds_are_caught() -> None:
    with mock.patch("logdb.cluster.mapping_server.summarizer.values_of_folds", return_value=[]):
        assert are_caught()


def test_summaries_without_the_aborted_records_are_caught() -> None:
    with changed(aborted=()):
        assert are_caught()


def test_compactions_without_summaries_of_their_parts_are_caught() -> None:
    with mock.patch("logdb.cluster.compaction.compactor.named", return_value=[]):
        assert are_caught()


def test_writes_after_the_last_summary_are_not_in_the_history() -> None:
    log = Log()
    log.live = [1, 2]
    state(log, PLACEMENT_OF_ALL)
    log.place(2, commit(1, {b"b/0": b"other", b"a/0": b"first"}))
    log.place(1, commit(2, {b"a/0": None}), commit(3, {b"a/0": b"no"}, conditions=[logdb.exists(b"b/9")]))
    server = made(log, "m1", 1)
    with pytest.raises(Unavailable, match="do not suffice for the history of b'a/0'"):
        history_of(log, b"a/0", 1)
    rest(log, server)
    log.place(1, commit(4, {b"a/0": b"late"}))
    assert history_of(log, b"a/0", 1) == (4, [(3, None), (2, b"first")])
    rest(log, server)
    assert history_of(log, b"a/0", 1)[1][0] == (len(log.records) - 2, b"late")
    with pytest.raises(Unavailable, match="b'b/0' is stated to live on shard 2, not 1"):
        history_of(log, b"b/0", 1)


def test_another_placement_is_summarized_from_the_start() -> None:
    """The new shard of an object gets the writes from its time on another shard."""
    log = Log()
    log.live = [1, 2]
    state(log, PLACEMENT_OF_ALL)
    log.place(1, commit(1, {b"a/0": b"on 1"}))
    server = made(log, "m1", 1)
    rest(log, server)
    moved = ByPrefix({b"a/": 2, b"b/": 2})
    state(log, moved)
    log.place(2, commit(2, {b"a/0": b"on 2"}))
    rest(log, server)
    assert [value for _, value in history_of(log, b"a/0", 2)[1]] == [b"on 2", b"on 1"]
    assert history_of(log, b"a/0", 1) == (2, [(2, b"on 1")]), "correct up to its version"


def test_a_shard_that_takes_no_appends_gets_no_summary() -> None:
    log = Log()
    state(log, PLACEMENT_OF_ALL)
    log.add(commit(1, {b"a/0": b"1"}))
    server = made(log, "m1", 1)
    rest(log, server)
    shards = [decode_summary(payload).shard for tag, payload in log.records if tag == SUMMARY]
    assert shards == [1]


def test_a_long_transaction_is_summarized_in_parts() -> None:
    log = Log()
    log.live = [1, 2]
    state(log, PLACEMENT_OF_ALL)
    log.place(1, commit(1, {b"a/0": b"1", **{b"b/%d" % number: b"small " * 30 for number in range(2_000)}}))
    server = made(log, "m1", 1)
    rest(log, server)
    longest = max(len(payload) for tag, payload in log.records if tag == SUMMARY)
    assert longest < 2 * ROWS_BYTES < len(log.records[1][1])
    assert history_of(log, b"b/0", 2) == history_of(log, b"b/1999", 2) == (2, [(2, b"small " * 30)])


def test_what_lies_between_two_commits_costs_nothing() -> None:
    """On Ziplog GSNs are times, two million for each millisecond. They were read in ranges of 10,000: a mapping server
    of a cluster with a placement did nothing else (seed 1 on nodes of the database simulator)."""
    log = Log()
    log.live = [1, 2]
    state(log, PLACEMENT_OF_ALL)
    log.place(1, commit(1, {b"a/0": b"1"}))
    log.add(*[(VALUE, b"")] * 100_000)
    log.place(2, commit(2, {b"b/0": b"2"}))
    server = made(log, "m1", 1)
    rest(log, server)
    assert log.subscriptions < 10
    assert history_of(log, b"b/0", 2)[1] == [(len(log.records) - 2, b"2")]


def test_without_a_placement_there_are_no_summaries() -> None:
    log = Log(commit(1, {b"a/0": b"1"}))
    server = made(log, "m1", 1)
    rest(log, server)
    assert len(log.records) == 1


def test_a_summary_that_contradicts_a_server_stops_it() -> None:
    log = Log(commit(1, {b"a/0": b"1"}))
    log.add((SUMMARY, encode_summary(Summary(1, b"", through=1, aborted=(1,)))))
    with pytest.raises(ProtocolViolation, match="DBS-17"):
        made(log, "m1", 1)


def test_summaries_survive_their_bytes() -> None:
    rows = (Relocated(b"k", 3, b"v"), Relocated(b"k", 2, None), Relocated(b"l", 3, Place(1, 2, 3, bytes(16))))
    summary = Summary(7, b"placement", 6, 5, 8, 9, [8, 9], list(rows), [])
    payload = encode_summary(summary)
    assert decode_summary(payload) == summary
    for end in range(len(payload)):
        with pytest.raises(MalformedRecord):
            decode_summary(payload[:end])
    with pytest.raises(MalformedRecord):
        decode_summary(b"\2" + payload[1:])
